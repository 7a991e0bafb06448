//! The read ceiling: how fast this device reads buffers when it does nothing else.

use super::bake::Queue;
use super::device::Gpu;
use super::dispatch::{Dispatch, Push};
use super::kernels::{Kernel, Module, Pipelines, constants};
use super::memory::{Access, Buffer};
use super::stamps::StampPool;
use crate::Result;
use ash::vk;
use std::rc::Rc;
use std::time::Instant;

const WORKGROUP: u32 = 256;
/// Enough workgroups to fill any device several times over.
const MAX_GROUPS: u64 = 8192;
const REPETITIONS: usize = 5;

/// A baked command buffer that reads buffers whole.
pub struct Ceiling {
    commands: vk::CommandBuffer,
    stamps: Option<StampPool>,
    bytes: u64,
}

impl Ceiling {
    /// Bakes the reads of `buffers`. `sink` is an address that the kernel may write 16 bytes to.
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
        let kernel = Kernel { module: Module::Read, workgroup: WORKGROUP, constants: constants([]) };
        let dispatch = |b: &Buffer| {
            let words = b.size / 16;
            let groups = words.div_ceil(u64::from(WORKGROUP) * 4).clamp(1, MAX_GROUPS) as u32;
            let push = Push::new().address(b.address).address(sink).word(words as usize);
            Dispatch { steps: 0..0, kernel, push, groups: [groups, 1, 1], barrier: false }
        };
        let dispatches: Vec<Dispatch> = buffers.iter().map(dispatch).collect();
        let stamps = StampPool::new(gpu, 1)?;
        let commands = queue.bake(&[&dispatches], pipelines, stamps.as_ref().map(|s| s.span(0)), &[])?;
        Ok(Ceiling { commands, stamps, bytes: buffers.iter().map(|b| b.size).sum() })
    }

    /// Bytes per second: the best of several reads, by the device's clock where it has one.
    ///
    /// # Errors
    /// Device: the device failed or was lost.
    pub fn measure(&mut self, queue: &Queue) -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            queue.submit(&[self.commands], true)?;
            queue.wait()?;
            let seconds = match &mut self.stamps {
                Some(stamps) => stamps.read()?.sum(),
                None => start.elapsed().as_secs_f64(),
            };
            // A clock too coarse for so small a read says nothing.
            best = best.min(if seconds > 0.0 { seconds } else { start.elapsed().as_secs_f64() });
        }
        Ok(self.bytes as f64 / best)
    }
}

/// The read ceiling of a device without a model: over a buffer of `bytes`.
///
/// # Errors
/// Device: the memory cannot be had, or the driver fails.
pub fn measure_alone(gpu: &Rc<Gpu>, bytes: u64, heap: usize) -> Result<f64> {
    let queue = Queue::new(gpu)?;
    let sink = Buffer::new(gpu, 64, heap, Access::Device)?;
    let buffers = [Buffer::new(gpu, bytes, heap, Access::Device)?];
    let mut pipelines = Pipelines::new(gpu)?;
    Ceiling::bake(gpu, &queue, &mut pipelines, &buffers, sink.address)?.measure(&queue)
}
