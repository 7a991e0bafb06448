//! The ceilings of a device that does nothing else: its read rate, and the rate of its matrix units.

use super::fastest::{Fastest, seconds, warm_up};
use crate::Result;
use crate::lower::dispatch::Dispatch;
use crate::lower::kernels::constants::{MatrixRateConstants, NoConstants};
use crate::lower::kernels::push::{MatrixRatePush, Push, ReadPush, word};
use crate::lower::kernels::{Kernel, Module};
use crate::lower::units::Units;
use crate::vulkan::device::Gpu;
use crate::vulkan::memory::{Buffer, HostAccess};
use crate::vulkan::pipelines::Pipelines;
use crate::vulkan::queue::Queue;
use crate::vulkan::queue::stamps::StampPool;
use ash::vk;
use std::rc::Rc;
use std::time::Duration;

const WORKGROUP: u32 = 256;
/// Enough workgroups to fill any device several times over.
const MAX_GROUPS: u64 = 8192;
/// Times the warm-up that the matrix units must have gained nothing: they take the most power, and an H100 once ran them at a
/// third of their rate for 300 ms.
const MATRIX_PATIENCE: u32 = 3;

/// Most bytes read in one submit: half a second on the slowest memory that Kiln is made for.
const SUBMIT_BYTES: u64 = 32 << 30;

/// Baked command buffers that read whole buffers.
pub struct Ceiling {
    parts: Vec<(vk::CommandBuffer, Option<StampPool>)>,
    bytes: u64,
    warm_up: Duration,
}

impl Ceiling {
    /// Bakes the reads of `buffers`. `sink`: address of 16 bytes that the kernel may write.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn bake(
        gpu: &Rc<Gpu>,
        queue: &Queue,
        pipelines: &mut Pipelines,
        buffers: &[Buffer],
        sink: u64,
    ) -> Result<Ceiling> {
        let kernel = Kernel::new(Module::Read, WORKGROUP, NoConstants {});
        let dispatch = |b: &Buffer| {
            let words = b.size / 16;
            let groups = words.div_ceil(u64::from(WORKGROUP) * 4).clamp(1, MAX_GROUPS) as u32;
            let push = Push::new(&ReadPush { data: b.address, sink, words: word(words as usize) });
            Dispatch::new(kernel, push, [groups, 1, 1])
        };
        let mut bytes = 0;
        let part_of = |b: &Buffer| {
            let part = bytes / SUBMIT_BYTES;
            bytes += b.size;
            (part, dispatch(b))
        };
        let dispatches: Vec<(u64, Dispatch)> = buffers.iter().map(part_of).collect();
        let bake = |part: &[(u64, Dispatch)]| {
            let dispatches: Vec<Dispatch> = part.iter().map(|(_, d)| d.clone()).collect();
            let stamps = StampPool::new(gpu, 1)?;
            let commands = queue.bake(&[&dispatches], pipelines, None, stamps.as_ref().map(|s| s.span(0)), &[])?;
            Ok((commands, stamps))
        };
        let parts = dispatches.chunk_by(|a, b| a.0 == b.0).map(bake).collect::<Result<_>>()?;
        Ok(Ceiling { parts, bytes, warm_up: warm_up(gpu) })
    }

    /// Bytes per second: the best of several reads, by the device's clock where it has one.
    ///
    /// # Errors
    /// Device: the device failed or was lost.
    pub fn measure(&mut self, queue: &Queue) -> Result<f64> {
        let fastest = Fastest::of_runs(self.warm_up, || {
            let mut sum = 0.0;
            for (commands, stamps) in &mut self.parts {
                sum += seconds(queue, *commands, stamps.as_mut())?;
            }
            Ok(sum)
        })?;
        Ok(self.bytes as f64 / fastest)
    }
}

/// The read ceiling of a device without a model: over a buffer of `bytes`.
///
/// # Errors
/// Device: the memory cannot be had, or the driver fails.
pub fn measure_alone(gpu: &Rc<Gpu>, bytes: u64, heap: usize) -> Result<f64> {
    let queue = Queue::new(gpu)?;
    let sink = Buffer::new(gpu, 64, heap, HostAccess::None)?;
    let buffers = [Buffer::new(gpu, bytes, heap, HostAccess::None)?];
    let mut pipelines = Pipelines::new(gpu)?;
    Ceiling::bake(gpu, &queue, &mut pipelines, &buffers, sink.address)?.measure(&queue)
}

/// Subgroups of a workgroup, workgroups, and the shortest run that counts.
const MATRIX_SUBGROUPS: u32 = 4;
const MATRIX_GROUPS: u32 = 2048;
const MATRIX_SECONDS: f64 = 2e-3;
/// Products of a subgroup in one round (shaders/matrix_rate.comp).
const MATRIX_PRODUCTS: u32 = 16;

/// The kernel of [`measure_matrix_rate`].
pub fn matrix_rate_kernel(units: Units) -> Kernel {
    let Units { m, n, k, subgroup, .. } = units;
    let constants = MatrixRateConstants { m, n, k, subgroups: MATRIX_SUBGROUPS };
    Kernel::new(Module::MatrixRate, MATRIX_SUBGROUPS * subgroup, constants)
}

/// The matrix units' ceiling: operations per second of f16 × f16 + f32 products on registers, the best of several runs.
/// A multiply-add counts as two. `None` without matrix units.
///
/// # Errors
/// Device: the driver refuses or fails.
pub fn measure_matrix_rate(gpu: &Rc<Gpu>) -> Result<Option<f64>> {
    let Some(units) = gpu.caps.matrix else { return Ok(None) };
    let queue = Queue::new(gpu)?;
    let heap = gpu.memory.memory_types[0..gpu.memory.memory_type_count as usize]
        .iter()
        .find(|t| t.property_flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL))
        .map_or(0, |t| t.heap_index as usize);
    let sink = Buffer::new(gpu, 64, heap, HostAccess::None)?;
    let mut pipelines = Pipelines::new(gpu)?;
    let kernel = matrix_rate_kernel(units);
    let mut stamps = StampPool::new(gpu, 1)?;
    // A CPU has few cores; a GPU must be filled.
    let groups = if gpu.caps.is_cpu() { 8 } else { MATRIX_GROUPS };
    let mut rounds = 16;
    loop {
        let push = Push::new(&MatrixRatePush { sink: sink.address, rounds: word(rounds as usize) });
        let dispatch = Dispatch::new(kernel, push, [groups, 1, 1]);
        let commands = queue.bake(&[&[dispatch]], &mut pipelines, None, stamps.as_ref().map(|s| s.span(0)), &[])?;
        let mut run = || seconds(&queue, commands, stamps.as_mut());
        if Fastest::of_runs(Duration::ZERO, &mut run)? >= MATRIX_SECONDS || rounds > 1 << 20 {
            let fastest = Fastest::of_runs(MATRIX_PATIENCE * warm_up(gpu), run)?;
            let product = 2.0 * f64::from(units.m * units.n * units.k);
            let products = f64::from(groups * MATRIX_SUBGROUPS) * f64::from(rounds * MATRIX_PRODUCTS);
            return Ok(Some(product * products / fastest));
        }
        rounds *= 4;
    }
}
