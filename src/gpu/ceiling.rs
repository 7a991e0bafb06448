//! The read ceiling: how fast this device reads buffers when it does nothing else.

use super::bake::{Queue, Stamps};
use super::device::{Gpu, failure};
use super::kernels::{Kernel, Module, Pipelines};
use super::lower::{Dispatch, Push};
use super::memory::{Access, Buffer};
use crate::Result;
use ash::vk;
use std::rc::Rc;
use std::time::Instant;

const WORKGROUP: u32 = 256;
/// Enough workgroups to fill any device several times over.
const MAX_GROUPS: u64 = 8192;
const REPETITIONS: usize = 5;

/// Bytes per second at which `buffers` are read: the best of several passes, by the device's clock where it has one.
/// `sink` is an address that the kernel may write 16 bytes to.
///
/// # Errors
/// Device: the driver refuses or fails.
pub fn measure(gpu: &Gpu, queue: &Queue, pipelines: &mut Pipelines, buffers: &[&Buffer], sink: u64) -> Result<f64> {
    let kernel = Kernel { module: Module::Read, workgroup: WORKGROUP, constants: [1, 1] };
    let dispatches: Vec<Dispatch> = buffers
        .iter()
        .map(|b| {
            let words = b.size / 16;
            let groups = words.div_ceil(u64::from(WORKGROUP) * 4).clamp(1, MAX_GROUPS) as u32;
            let push = Push::new().address(b.address).address(sink).word(words as usize);
            Dispatch { steps: 0..0, kernel, push, groups: [groups, 1], barrier: false }
        })
        .collect();
    let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(2);
    let pool = gpu
        .caps
        .timestamp_ns
        // SAFETY: the device is alive; the pool is destroyed below.
        .map(|_| unsafe { gpu.device.create_query_pool(&info, None) }.map_err(failure("create a query pool")))
        .transpose()?;
    let best = time(gpu, queue, pipelines, &dispatches, pool);
    if let Some(pool) = pool {
        // SAFETY: every submit that wrote it has been waited for.
        unsafe { gpu.device.destroy_query_pool(pool, None) };
    }
    let bytes: u64 = buffers.iter().map(|b| b.size).sum();
    Ok(bytes as f64 / best?)
}

/// Seconds of the quickest of several replays.
fn time(
    gpu: &Gpu,
    queue: &Queue,
    pipelines: &mut Pipelines,
    dispatches: &[Dispatch],
    pool: Option<vk::QueryPool>,
) -> Result<f64> {
    let commands = queue.bake(dispatches, pipelines, pool.map(|pool| Stamps { pool, first: 0 }), &[])?;
    let mut best = f64::INFINITY;
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        queue.submit(&[commands], true)?;
        queue.wait()?;
        let mut seconds = start.elapsed().as_secs_f64();
        if let (Some(pool), Some(tick)) = (pool, gpu.caps.timestamp_ns) {
            let mut stamps = [0u64; 2];
            let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
            // SAFETY: the replay that writes these queries has been waited for.
            unsafe { gpu.device.get_query_pool_results(pool, 0, &mut stamps, flags) }
                .map_err(failure("read timestamps"))?;
            let device = stamps[1].saturating_sub(stamps[0]) as f64 * tick * 1e-9;
            if device > 0.0 {
                seconds = device;
            }
        }
        best = best.min(seconds);
    }
    queue.free(commands);
    Ok(best)
}

/// The read ceiling of a device without a model: over a buffer of `bytes`.
///
/// # Errors
/// Device: the memory cannot be had, or the driver fails.
pub fn measure_alone(gpu: &Rc<Gpu>, bytes: u64, heap: usize) -> Result<f64> {
    let buffer = Buffer::new(gpu, bytes, heap, Access::Device)?;
    let sink = Buffer::new(gpu, 64, heap, Access::Device)?;
    let queue = Queue::new(gpu)?;
    let mut pipelines = Pipelines::new(gpu)?;
    measure(gpu, &queue, &mut pipelines, &[&buffer], sink.address)
}
