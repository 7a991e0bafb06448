//! Records a list's commands as Vulkan commands, and its edges as barriers.

use super::driver::Vulkan;
use crate::lower::dispatch::Edge;
use crate::replay::driver::{DeviceCommand, MemoryCopy};
use ash::vk;
use vk::{AccessFlags2 as Access, PipelineStageFlags2 as Stage};

/// Records commands into a buffer that is being recorded. `pipelines`: those of the kernels that `commands` run, in
/// order.
///
/// # Safety
/// The buffer is in the recording state. The pipelines, and the memory and stamps that the commands use, outlive it.
pub(super) unsafe fn record(
    device: &ash::Device,
    buffer: vk::CommandBuffer,
    layout: vk::PipelineLayout,
    commands: &[DeviceCommand<'_, Vulkan>],
    pipelines: &[vk::Pipeline],
) {
    let (mut run, mut bound) = (0, vk::Pipeline::null());
    // SAFETY: as the caller promises.
    unsafe {
        reset_stamps(device, buffer, commands);
        for command in commands {
            match command {
                DeviceCommand::Wait(edge) => wait(device, buffer, *edge),
                DeviceCommand::Run { push, groups: [x, y, z], .. } => {
                    let pipeline = pipelines[run];
                    run += 1;
                    if pipeline != bound {
                        device.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::COMPUTE, pipeline);
                        bound = pipeline;
                    }
                    device.cmd_push_constants(buffer, layout, vk::ShaderStageFlags::COMPUTE, 0, push.bytes());
                    device.cmd_dispatch(buffer, *x, *y, *z);
                }
                DeviceCommand::Fill(memory, range) => {
                    device.cmd_fill_buffer(buffer, memory.handle, range.start, range.end - range.start, 0);
                }
                DeviceCommand::Copy(MemoryCopy { from, from_offset, to, to_offset, bytes }) => {
                    let region = vk::BufferCopy::default().src_offset(*from_offset).dst_offset(*to_offset).size(*bytes);
                    device.cmd_copy_buffer(buffer, from.handle, to.handle, &[region]);
                }
                DeviceCommand::Stamp(stamps, number) => {
                    device.cmd_write_timestamp2(buffer, Stage::ALL_COMMANDS, stamps.queries(), *number as u32);
                }
            }
        }
    }
}

/// Resets the queries of all stamps, consecutive ones in one call, since a driver may wait in each call.
///
/// # Safety
/// As [`record`].
unsafe fn reset_stamps(device: &ash::Device, buffer: vk::CommandBuffer, commands: &[DeviceCommand<'_, Vulkan>]) {
    let stamps = commands.iter().filter_map(|command| match command {
        DeviceCommand::Stamp(stamps, number) => Some((stamps.queries(), *number as u32)),
        _ => None,
    });
    let stamps: Vec<_> = stamps.collect();
    for run in stamps.chunk_by(|a, b| (a.0, a.1 + 1) == *b) {
        // SAFETY: as the caller promises.
        unsafe { device.cmd_reset_query_pool(buffer, run[0].0, run[0].1, run.len() as u32) };
    }
}

/// Records the memory barrier of an edge.
fn wait(device: &ash::Device, buffer: vk::CommandBuffer, edge: Edge) {
    let all = Access::MEMORY_READ | Access::MEMORY_WRITE;
    let work = Stage::COMPUTE_SHADER | Stage::TRANSFER;
    let (from, made, to, seen) = match edge {
        Edge::None => return,
        // Only storage accesses are made visible. Wider masks cost 2.5 us a barrier on NVIDIA.
        Edge::Kernels => (
            Stage::COMPUTE_SHADER,
            Access::SHADER_STORAGE_WRITE,
            Stage::COMPUTE_SHADER,
            Access::SHADER_STORAGE_READ | Access::SHADER_STORAGE_WRITE,
        ),
        // The writes are already available. RADV then leaves L2 alone.
        Edge::Relayed => (
            Stage::COMPUTE_SHADER,
            Access::NONE,
            Stage::COMPUTE_SHADER,
            Access::SHADER_STORAGE_READ | Access::SHADER_STORAGE_WRITE,
        ),
        Edge::Fill => (Stage::COMPUTE_SHADER, all, Stage::TRANSFER, all),
        Edge::Host => (work, all, Stage::HOST, all),
        Edge::Device => (work, all, work, all),
    };
    let memory = [vk::MemoryBarrier2::default()
        .src_stage_mask(from)
        .src_access_mask(made)
        .dst_stage_mask(to)
        .dst_access_mask(seen)];
    // SAFETY: the buffer is being recorded.
    unsafe { device.cmd_pipeline_barrier2(buffer, &vk::DependencyInfo::default().memory_barriers(&memory)) };
}
