//! Recording: how the dispatches of a command buffer wait for each other.
//!
//! A dispatch stands behind a barrier, or is relayed if its kernel can be and the device was found to run that faster
//! ([`crate::gpu::measure::tuning`]). A relayed dispatch starts beside the one before it and waits for that one's
//! workgroups by a counter (shaders/relay.glsl). That hides the dispatch's start and its first latency of memory and of
//! address translation. Dispatches that do not need each other share a counter, and wait for the same one before them.

use crate::gpu::kernels::Relaying;
use crate::gpu::kernels::push::{ProductRelayPush, RelayPush, StagedRelayPush, word};
use crate::gpu::lower::dispatch::Dispatch;
use crate::gpu::lower::layout::{GpuLayout, RELAY_COUNTERS, RELAY_STRIDE};
use crate::gpu::memory::Buffer;
use ash::vk;
use std::ops::Range;
use vk::PipelineStageFlags2 as Stage;

/// The relay counters in the arena: [`RELAY_COUNTERS`] of them.
#[derive(Debug, Clone, Copy)]
pub struct Relay {
    /// The arena.
    pub arena: vk::Buffer,
    /// Bytes from the arena's start, where the step state lies, to the first counter.
    pub offset: u64,
}

impl Relay {
    /// The counters of an arena.
    pub fn new(arena: &Buffer, layout: &GpuLayout) -> Relay {
        Relay { arena: arena.handle, offset: layout.scratch.relay }
    }
}

/// Records dispatches in order into a command buffer that is being recorded.
pub(crate) struct Recorder<'a> {
    device: &'a ash::Device,
    commands: vk::CommandBuffer,
    layout: vk::PipelineLayout,
    relay: Option<Relay>,
    /// The pipeline that was bound last.
    bound: vk::Pipeline,
    /// Counters used since the last reset.
    taken: usize,
    /// What the dispatches before that share a counter wait for and count, if they are relayed.
    before: Option<Turn>,
}

/// Relayed dispatches that share a counter.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Word of their counter, of the first stage where there are several.
    counter: u32,
    /// Workgroups and stages that they wait for; no workgroups where a barrier was.
    waits_for: (u32, usize),
    /// Their workgroups, and their stages.
    groups: u32,
    stages: usize,
}

impl Turn {
    /// These dispatches and one of `groups` workgroups that does not need what they write: it waits for what they wait for,
    /// and who waits for them waits for it. `None` where stages are counted one by one.
    fn and(self, groups: u32, stages: usize) -> Option<Turn> {
        (self.stages == 1 && stages == 1).then_some(Turn { groups: self.groups + groups, ..self })
    }
}

impl<'a> Recorder<'a> {
    /// For a command buffer of `device` that is being recorded. Records a barrier behind everything submitted before
    /// it.
    ///
    /// # Safety
    /// The command buffer is in the recording state as long as this is used, and what `relay` names outlives it.
    pub(crate) unsafe fn new(
        device: &'a ash::Device,
        commands: vk::CommandBuffer,
        layout: vk::PipelineLayout,
        relay: Option<Relay>,
    ) -> Recorder<'a> {
        barrier(device, commands, Stage::COMPUTE_SHADER | Stage::TRANSFER, Stage::COMPUTE_SHADER | Stage::TRANSFER);
        let bound = vk::Pipeline::null();
        Recorder { device, commands, layout, relay, bound, taken: RELAY_COUNTERS, before: None }
    }

    /// Records one dispatch. With `wait`, it uses memory only after everything before it is done. `ahead`: device
    /// addresses of the weights of the next product, for which it asks if it is a relayed product.
    ///
    /// # Safety
    /// The pipeline, what the push constants point to and `ahead` outlive the command buffer.
    pub(crate) unsafe fn dispatch(&mut self, d: &Dispatch, pipeline: vk::Pipeline, wait: bool, ahead: Range<u64>) {
        let relaying = d.kernel.module.relaying();
        let relay = self.relay.filter(|_| relaying != Relaying::Never);
        let (groups, stages) = (d.groups.iter().product::<u32>(), d.kernel.stages());
        // Not relayed: counts for no one, waits for no counter.
        let mut words = StagedRelayPush { turn: 0, before: 0, stages: 1, ahead_low: 0, ahead_high: 0, ahead_bytes: 0 };
        let beside = self.before.filter(|_| !wait).and_then(|turn| turn.and(groups, stages));
        let turn = match relay {
            Some(_) if beside.is_some() => beside,
            Some(relay) if wait || self.before.is_some() => Some(self.next_turn(relay, groups, stages)),
            // Only a relayed dispatch has waited for those before it, so one that is not must wait.
            _ => {
                if wait || self.before.is_some() {
                    self.compute_barrier();
                }
                None
            }
        };
        if let Some(turn) = turn {
            words = StagedRelayPush {
                turn: turn.counter,
                before: turn.waits_for.0,
                stages: word(turn.waits_for.1),
                ahead_low: ahead.start as u32,
                ahead_high: (ahead.start >> 32) as u32,
                ahead_bytes: u32::try_from(ahead.end - ahead.start).unwrap_or(u32::MAX),
            };
        }
        self.before = turn;
        debug_assert_eq!(d.push.fields(), d.kernel.module.push(), "the push constants are another kernel's");
        let push = match relaying {
            Relaying::Never => d.push,
            Relaying::Whole => d.push.followed_by(&RelayPush { turn: words.turn, before: words.before }),
            Relaying::Product => {
                let StagedRelayPush { turn, before, ahead_low, ahead_high, ahead_bytes, .. } = words;
                d.push.followed_by(&ProductRelayPush { turn, before, ahead_low, ahead_high, ahead_bytes })
            }
            Relaying::Staged => d.push.followed_by(&words),
        };
        // SAFETY: the command buffer is being recorded; the rest as the caller promises.
        unsafe {
            if pipeline != self.bound {
                self.device.cmd_bind_pipeline(self.commands, vk::PipelineBindPoint::COMPUTE, pipeline);
                self.bound = pipeline;
            }
            let stage = vk::ShaderStageFlags::COMPUTE;
            self.device.cmd_push_constants(self.commands, self.layout, stage, 0, push.bytes());
            self.device.cmd_dispatch(self.commands, d.groups[0], d.groups[1], d.groups[2]);
        }
    }

    /// A counter for a dispatch that waits for those of the last.
    fn next_turn(&mut self, relay: Relay, groups: u32, stages: usize) -> Turn {
        if self.taken + stages > RELAY_COUNTERS {
            self.reset(relay);
        }
        let waits_for = self.before.map(|turn| (turn.groups, turn.stages)).unwrap_or_else(|| {
            self.compute_barrier();
            (0, 1)
        });
        let counter = relay.offset + self.taken as u64 * RELAY_STRIDE;
        self.taken += stages;
        Turn { counter: word((counter / 4) as usize), waits_for, groups, stages }
    }

    fn compute_barrier(&self) {
        barrier(self.device, self.commands, Stage::COMPUTE_SHADER, Stage::COMPUTE_SHADER);
    }

    /// Zeroes all counters, with a barrier before and after.
    fn reset(&mut self, relay: Relay) {
        let bytes = RELAY_COUNTERS as u64 * RELAY_STRIDE;
        barrier(self.device, self.commands, Stage::COMPUTE_SHADER, Stage::TRANSFER);
        // SAFETY: the command buffer is being recorded, and the counters lie within the arena.
        unsafe { self.device.cmd_fill_buffer(self.commands, relay.arena, relay.offset, bytes, 0) };
        barrier(self.device, self.commands, Stage::TRANSFER, Stage::COMPUTE_SHADER);
        (self.taken, self.before) = (0, None);
    }
}

/// A memory barrier from one set of stages to another.
pub(crate) fn barrier(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    from: vk::PipelineStageFlags2,
    to: vk::PipelineStageFlags2,
) {
    use vk::AccessFlags2 as Access;
    // Between kernels, only storage accesses are made visible. Wider masks cost 2.5 us a barrier on NVIDIA.
    let (made, seen) = match from == Stage::COMPUTE_SHADER && to == Stage::COMPUTE_SHADER {
        true => (Access::SHADER_STORAGE_WRITE, Access::SHADER_STORAGE_READ | Access::SHADER_STORAGE_WRITE),
        false => (Access::MEMORY_READ | Access::MEMORY_WRITE, Access::MEMORY_READ | Access::MEMORY_WRITE),
    };
    let memory = [vk::MemoryBarrier2::default()
        .src_stage_mask(from)
        .src_access_mask(made)
        .dst_stage_mask(to)
        .dst_access_mask(seen)];
    // SAFETY: the command buffer is being recorded.
    unsafe { device.cmd_pipeline_barrier2(commands, &vk::DependencyInfo::default().memory_barriers(&memory)) };
}

#[cfg(test)]
mod tests {
    use super::Turn;

    #[test]
    fn dispatches_that_do_not_need_each_other_are_waited_for_together() {
        let first = Turn { counter: 96, waits_for: (7, 3), groups: 40, stages: 1 };
        let both = first.and(2, 1).unwrap();
        assert_eq!((both.counter, both.waits_for, both.groups), (96, (7, 3), 42));
        assert!(first.and(2, 4).is_none(), "its workgroups would count four times");
        assert!(Turn { stages: 4, ..first }.and(2, 1).is_none());
    }
}
