//! The ceilings of an idle device: its read rate, and the rate of its matrix units.

use super::fastest::{Fastest, seconds, warm_up};
use crate::Result;
use crate::lower::dispatch::Dispatch;
use crate::lower::kernels::constants::{MatrixRateConstants, NoConstants};
use crate::lower::kernels::push::{MatrixRatePush, Push, ReadPush, word};
use crate::lower::kernels::{Kernel, Module};
use crate::lower::units::MatrixUnits;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, HostAccess, Memory, MemorySource};
use std::time::Duration;

const WORKGROUP: u32 = 256;
/// Enough workgroups to fill any device several times over.
const MAX_GROUPS: u64 = 8192;
/// How many times as long as usual a warm-up of the matrix units must bring no gain: they draw the most power, and an
/// H100 once ran them at a third of their rate for 300 ms.
const MATRIX_PATIENCE: u32 = 3;

/// Most bytes read in one submit: half a second on the slowest memory that Kiln supports.
const SUBMIT_BYTES: u64 = 32 << 30;

/// Baked lists that read whole buffers, for the highest rate of reading memory.
pub struct Ceiling<D: Driver> {
    parts: Vec<(D::Baked, Option<D::Stamps>)>,
    bytes: u64,
    warm_up: Duration,
    measured: Option<f64>,
}

impl<D: Driver> Ceiling<D> {
    /// Bakes the reads of `buffers`. `sink`: address of 16 bytes that the kernel may write.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn bake(queue: &mut DeviceQueue<D>, buffers: &[D::Memory], sink: u64) -> Result<Ceiling<D>> {
        let mut bytes = 0;
        let part_of = |b: &D::Memory| {
            let part = bytes / SUBMIT_BYTES;
            bytes += b.size();
            (part, read(b, sink))
        };
        let dispatches: Vec<(u64, Dispatch)> = buffers.iter().map(part_of).collect();
        let bake = |part: &[(u64, Dispatch)]| {
            let dispatches: Vec<Dispatch> = part.iter().map(|(_, d)| d.clone()).collect();
            let stamps = queue.driver.stamps(2)?;
            let list = queue.bake(&[&dispatches], None, stamps.as_ref().map(|s| (s, 0)), None)?;
            Ok((list, stamps))
        };
        let parts = dispatches.chunk_by(|a, b| a.0 == b.0).map(bake).collect::<Result<_>>()?;
        Ok(Ceiling { parts, bytes, warm_up: warm_up(queue.driver.caps()), measured: None })
    }

    /// Bytes per second: the best of several reads, by the device's clock if it has one.
    ///
    /// # Errors
    /// Device: the device failed or was lost.
    pub fn measure(&mut self, queue: &DeviceQueue<D>) -> Result<f64> {
        let fastest = Fastest::of_runs(self.warm_up, || {
            let mut sum = 0.0;
            for (list, stamps) in &mut self.parts {
                sum += seconds(queue, *list, stamps.as_mut())?;
            }
            Ok(sum)
        })?;
        Ok(*self.measured.insert(self.bytes as f64 / fastest))
    }

    /// The rate in bytes per second that was measured last; `None` before.
    pub fn known(&self) -> Option<f64> {
        self.measured
    }
}

/// The dispatch that reads a whole buffer.
pub(super) fn read<M: Memory>(buffer: &M, sink: u64) -> Dispatch {
    let words = buffer.size() / 16;
    let groups = words.div_ceil(u64::from(WORKGROUP) * 4).clamp(1, MAX_GROUPS) as u32;
    let push = Push::new(&ReadPush { data: buffer.address(), sink, words: word(words as usize) });
    Dispatch::new(Kernel::new(Module::Read, WORKGROUP, NoConstants {}), push, [groups, 1, 1])
}

/// The read ceiling of a device without a model: over a buffer of `bytes`.
///
/// # Errors
/// Device: there is not enough memory, or the driver fails.
pub fn measure_alone<D: Driver>(driver: D, bytes: u64, heap: usize) -> Result<f64> {
    let mut queue = DeviceQueue::new(driver);
    let allocate = |bytes| queue.driver.allocate(bytes, heap, HostAccess::None, MemorySource::Ordinary);
    let (sink, buffers) = (allocate(64)?, [allocate(bytes)?]);
    Ceiling::bake(&mut queue, &buffers, sink.address())?.measure(&queue)
}

/// Subgroups of a workgroup, workgroups, and seconds of the shortest run that counts.
const MATRIX_SUBGROUPS: u32 = 4;
const MATRIX_GROUPS: u32 = 2048;
const MATRIX_SECONDS: f64 = 2e-3;
/// Products of a subgroup in one round (shaders/matrix_rate.comp).
const MATRIX_PRODUCTS: u32 = 16;

/// The kernel with which [`measure_matrix_rate`] times the matrix units.
pub fn matrix_rate_kernel(units: MatrixUnits) -> Kernel {
    let MatrixUnits { m, n, k, subgroup, .. } = units;
    let constants = MatrixRateConstants { m, n, k, subgroups: MATRIX_SUBGROUPS };
    Kernel::new(Module::MatrixRate, MATRIX_SUBGROUPS * subgroup, constants)
}

/// The matrix units' ceiling: operations per second of f16 × f16 + f32 products on registers, the best of several runs.
/// A multiply-add counts as two. `None` without matrix units. `heap`: index of one of the device's heaps.
///
/// # Errors
/// Device: the driver refuses or fails.
pub fn measure_matrix_rate<D: Driver>(driver: D, heap: usize) -> Result<Option<f64>> {
    let Some(units) = driver.caps().matrix else { return Ok(None) };
    let mut queue = DeviceQueue::new(driver);
    let sink = queue.driver.allocate(64, heap, HostAccess::None, MemorySource::Ordinary)?;
    let kernel = matrix_rate_kernel(units);
    let mut stamps = queue.driver.stamps(2)?;
    // A CPU has few cores; a GPU must be filled.
    let groups = if queue.driver.caps().is_cpu() { 8 } else { MATRIX_GROUPS };
    let mut rounds = 16;
    loop {
        let push = Push::new(&MatrixRatePush { sink: sink.address(), rounds: word(rounds as usize) });
        let dispatch = Dispatch::new(kernel, push, [groups, 1, 1]);
        let list = queue.bake(&[&[dispatch]], None, stamps.as_ref().map(|s| (s, 0)), None)?;
        let mut run = || seconds(&queue, list, stamps.as_mut());
        if Fastest::of_runs(Duration::ZERO, &mut run)? >= MATRIX_SECONDS || rounds > 1 << 20 {
            let fastest = Fastest::of_runs(MATRIX_PATIENCE * warm_up(queue.driver.caps()), run)?;
            let product = 2.0 * f64::from(units.m * units.n * units.k);
            let products = f64::from(groups * MATRIX_SUBGROUPS) * f64::from(rounds * MATRIX_PRODUCTS);
            return Ok(Some(product * products / fastest));
        }
        rounds *= 4;
    }
}
