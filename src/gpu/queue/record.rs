//! Recording: what a command buffer's dispatches wait for. Each stands behind a barrier or, where kernels can and the device
//! was seen to ([`crate::gpu::measure::tuning`]), is relayed: it starts beside the one before it and waits for its workgroups by a
//! counter (shaders/relay.glsl), so that starting, the first latency of memory and of address translation are not waited for.

use crate::gpu::kernels::Relaying;
use crate::gpu::kernels::push::{RelayPush, StagedRelayPush, word};
use crate::gpu::lower::dispatch::Dispatch;
use crate::gpu::lower::layout::{GpuLayout, RELAY_COUNTERS, RELAY_STRIDE};
use crate::gpu::memory::Buffer;
use ash::vk;
use vk::PipelineStageFlags2 as Stage;

/// Where the counters of relayed dispatches are: [`RELAY_COUNTERS`] of them in the arena.
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
    /// Counters taken since they were set to zero.
    taken: usize,
    /// Workgroups of the dispatch before, where they count themselves, and its stages.
    before: Option<(u32, usize)>,
}

impl<'a> Recorder<'a> {
    /// For a command buffer of `device` that is being recorded, behind all that was submitted before it.
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

    /// Records one dispatch; with `wait`, everything before it is done when it begins to use what that wrote.
    ///
    /// # Safety
    /// The pipeline and what the push constants point to outlive the command buffer.
    pub(crate) unsafe fn dispatch(&mut self, d: &Dispatch, pipeline: vk::Pipeline, wait: bool) {
        let relaying = d.kernel.module.relaying();
        // What a relayed dispatch waited for, those after it have not.
        let wait = wait || self.before.is_some();
        let relayed = self.relay.filter(|_| wait && relaying != Relaying::Never);
        // Nobody counts, and nobody is waited for but by a barrier.
        let mut words = StagedRelayPush { turn: 0, before: 0, stages: 1 };
        if let Some(relay) = relayed {
            let stages = d.kernel.stages();
            if self.taken + stages > RELAY_COUNTERS {
                self.reset(relay);
            }
            let counter = relay.offset + self.taken as u64 * RELAY_STRIDE;
            let (before, before_stages) = self.before.unwrap_or_else(|| {
                self.compute_barrier();
                (0, 1)
            });
            words = StagedRelayPush { turn: word((counter / 4) as usize), before, stages: word(before_stages) };
            self.taken += stages;
            self.before = Some((d.groups.iter().product(), stages));
        } else {
            if wait {
                self.compute_barrier();
            }
            self.before = None;
        }
        debug_assert_eq!(d.push.fields(), d.kernel.module.push(), "the push constants are another kernel's");
        let push = match relaying {
            Relaying::Never => d.push,
            Relaying::Whole => d.push.followed_by(&RelayPush { turn: words.turn, before: words.before }),
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

    fn compute_barrier(&self) {
        barrier(self.device, self.commands, Stage::COMPUTE_SHADER, Stage::COMPUTE_SHADER);
    }

    /// Sets all counters to zero, behind everything before and before everything after.
    fn reset(&mut self, relay: Relay) {
        let bytes = RELAY_COUNTERS as u64 * RELAY_STRIDE;
        barrier(self.device, self.commands, Stage::COMPUTE_SHADER, Stage::TRANSFER);
        // SAFETY: the command buffer is being recorded, and the counters lie within the arena.
        unsafe { self.device.cmd_fill_buffer(self.commands, relay.arena, relay.offset, bytes, 0) };
        barrier(self.device, self.commands, Stage::TRANSFER, Stage::COMPUTE_SHADER);
        (self.taken, self.before) = (0, None);
    }
}

/// A memory barrier between two sets of stages.
pub(crate) fn barrier(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    from: vk::PipelineStageFlags2,
    to: vk::PipelineStageFlags2,
) {
    use vk::AccessFlags2 as Access;
    // Between kernels no more than storage buffers is made visible: on NVIDIA the wider masks cost 2.5 us a barrier.
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
