//! Recording: how the dispatches of a command buffer wait for each other.
//!
//! A dispatch stands behind a barrier, or is relayed if its kernel can be and the device was found to run that faster
//! ([`crate::replay::measure::tuning`]). A relayed dispatch starts beside the one before it and waits for that one's
//! workgroups by a counter (shaders/relay.glsl). That hides the dispatch's start and its first latency of memory and of
//! address translation. Dispatches that do not need each other share a counter, and wait for the same one before them.

use crate::lower::dispatch::Dispatch;
use crate::lower::kernels::Relaying;
use crate::lower::kernels::push::{ProductRelayPush, RelayPush, StagedRelayPush, word};
use crate::lower::layout::{GpuLayout, RELAY_COUNTERS, RELAY_STRIDE};
use crate::vulkan::memory::Buffer;
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

/// How a dispatch waits for what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// For nothing.
    Nothing,
    /// Behind a barrier.
    Barrier,
    /// With the dispatches before, for what they wait for.
    Beside,
    /// For the dispatches before, by their counter.
    Turn,
}

/// `before`: stages of the relayed dispatches before. `needs`: whether it needs what a dispatch before writes. `relays`: whether
/// it can be relayed itself.
fn wait_of(before: Option<usize>, needs: bool, relays: bool, stages: usize) -> Wait {
    match (before, relays) {
        // Stages are counted one by one.
        (Some(1), true) if !needs && stages == 1 => Wait::Beside,
        (None, _) if !needs => Wait::Nothing,
        // Only relayed dispatches have waited for those before them, so what follows one must wait.
        (_, true) => Wait::Turn,
        (_, false) => Wait::Barrier,
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
        let waits = wait_of(self.before.map(|turn| turn.stages), wait, relay.is_some(), stages);
        let turn = match (waits, relay, self.before) {
            (Wait::Beside, _, Some(turn)) => Some(Turn { groups: turn.groups + groups, ..turn }),
            (Wait::Turn, Some(relay), _) => Some(self.next_turn(relay, groups, stages)),
            (Wait::Nothing, ..) => None,
            _ => {
                self.compute_barrier();
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
    use super::{Wait, wait_of};

    #[test]
    fn a_dispatch_waits_for_all_that_it_may_need() {
        let needs = |before| wait_of(before, true, true, 1);
        let needs_nothing = |before| wait_of(before, false, true, 1);
        assert_eq!((needs(None), needs(Some(1)), needs(Some(4))), (Wait::Turn, Wait::Turn, Wait::Turn));
        // Beside those before, which have not waited for each other; stages would count its workgroups several times.
        assert_eq!((needs_nothing(None), needs_nothing(Some(1))), (Wait::Nothing, Wait::Beside));
        assert_eq!((needs_nothing(Some(4)), wait_of(Some(1), false, true, 4)), (Wait::Turn, Wait::Turn));
        // One that is never relayed waits for the whole chain before it.
        let never = |before, needs| wait_of(before, needs, false, 1);
        assert_eq!(
            (never(Some(1), false), never(Some(1), true), never(None, true)),
            (Wait::Barrier, Wait::Barrier, Wait::Barrier)
        );
        assert_eq!(never(None, false), Wait::Nothing);
    }
}
