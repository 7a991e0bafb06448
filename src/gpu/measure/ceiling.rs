//! The ceilings of a device that does nothing else: its read rate, and the rate of its matrix units.

use crate::Result;
use crate::gpu::device::Gpu;
use crate::gpu::device::units::Units;
use crate::gpu::kernels::constants::{MatrixRateConstants, NoConstants};
use crate::gpu::kernels::pipelines::Pipelines;
use crate::gpu::kernels::push::{MatrixRatePush, Push, ReadPush, word};
use crate::gpu::kernels::{Kernel, Module};
use crate::gpu::lower::dispatch::Dispatch;
use crate::gpu::memory::{Buffer, HostAccess};
use crate::gpu::queue::Queue;
use crate::gpu::queue::stamps::StampPool;
use ash::vk;
use std::rc::Rc;
use std::time::{Duration, Instant};

const WORKGROUP: u32 = 256;
/// Enough workgroups to fill any device several times over.
const MAX_GROUPS: u64 = 8192;
/// Fewest runs of which the fastest is taken.
const REPETITIONS: usize = 5;
/// A run gains something if it takes less than this times the last one that did.
const GAIN: f64 = 0.99;
/// A device that goes on gaining is not waited for longer than this many times its warm-up.
const PATIENCE: u32 = 4;
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

/// How long a device must have gained nothing. An idle GPU takes a while to raise its clocks.
fn warm_up(gpu: &Gpu) -> Duration {
    if gpu.caps.kind == vk::PhysicalDeviceType::CPU { Duration::ZERO } else { Duration::from_millis(300) }
}

/// The fastest of runs that go on until none has gained anything for as long as a device takes to warm up.
struct Fastest {
    warm_up: Duration,
    seconds: f64,
    runs: usize,
    /// Seconds of the last run that gained something, and when it ended, since the first run began.
    gained: (f64, Duration),
}

impl Fastest {
    /// Seconds of the fastest of several runs.
    fn of_runs(warm_up: Duration, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
        let start = Instant::now();
        let mut fastest = Fastest::new(warm_up);
        while fastest.goes_on(start.elapsed()) {
            let seconds = run()?;
            fastest.add(seconds, start.elapsed());
        }
        Ok(fastest.seconds)
    }

    fn new(warm_up: Duration) -> Fastest {
        Fastest { warm_up, seconds: f64::INFINITY, runs: 0, gained: (f64::INFINITY, Duration::ZERO) }
    }

    /// Takes in a run that ended at `now`.
    fn add(&mut self, seconds: f64, now: Duration) {
        if seconds < GAIN * self.gained.0 {
            self.gained = (seconds, now);
        }
        self.seconds = self.seconds.min(seconds);
        self.runs += 1;
    }

    /// Whether there may be a faster run.
    fn goes_on(&self, now: Duration) -> bool {
        let rises = now < self.gained.1 + self.warm_up && now < self.warm_up * PATIENCE;
        self.runs < REPETITIONS || rises
    }
}

/// Seconds of a run of `commands`, by the device's clock (span 0 of `stamps`) if it has one.
fn seconds(queue: &Queue, commands: vk::CommandBuffer, stamps: Option<&mut StampPool>) -> Result<f64> {
    let start = Instant::now();
    // SAFETY: the command buffer is waited for below, each time.
    unsafe { queue.submit(&[commands], true) }?;
    queue.wait()?;
    let elapsed = start.elapsed().as_secs_f64();
    let stamped = match stamps {
        Some(stamps) => stamps.read()?.sum(),
        None => elapsed,
    };
    // The device's clock may be too coarse for a short run.
    Ok(if stamped > 0.0 { stamped } else { elapsed })
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
    let groups = if gpu.caps.kind == vk::PhysicalDeviceType::CPU { 8 } else { MATRIX_GROUPS };
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

#[cfg(test)]
mod tests {
    use super::*;

    const WARM_UP: Duration = Duration::from_millis(300);

    /// Seconds of the fastest run of a device whose runs take `seconds(now)`, and when the last one ended.
    fn fastest(warm_up: Duration, seconds: impl Fn(Duration) -> f64) -> (f64, Duration) {
        let (mut now, mut fastest) = (Duration::ZERO, Fastest::new(warm_up));
        while fastest.goes_on(now) {
            let taken = seconds(now);
            now += Duration::from_secs_f64(taken);
            fastest.add(taken, now);
        }
        (fastest.seconds, now)
    }

    #[test]
    fn a_device_that_raises_its_clock_late_is_waited_for() {
        let rising = |now: Duration| match now.as_millis() {
            0..250 => 9e-3,
            250..500 => 6e-3,
            _ => 3e-3,
        };
        assert_eq!(fastest(WARM_UP, rising).0, 3e-3);
    }

    #[test]
    fn a_device_is_measured_no_longer_than_it_gains() {
        let (seconds, taken) = fastest(WARM_UP, |_| 3e-3);
        assert_eq!(seconds, 3e-3);
        assert!((300..310).contains(&taken.as_millis()), "{taken:?}");
        // It gains less in all than counts.
        let (_, taken) = fastest(WARM_UP, |now| 10e-3 / (1.0 + 0.01 * now.as_secs_f64()));
        assert!((300..320).contains(&taken.as_millis()), "{taken:?}");
        // It goes on gaining, a little with each run.
        let (_, taken) = fastest(WARM_UP, |now| 10e-3 / (1.0 + now.as_secs_f64()));
        assert!((1200..1220).contains(&taken.as_millis()), "{taken:?}");
        // Runs of seconds each: a slow device. And one that has no clock to raise.
        assert_eq!(fastest(WARM_UP, |_| 2.0), (2.0, Duration::from_secs(10)));
        assert_eq!(fastest(Duration::ZERO, |_| 0.5), (0.5, Duration::from_millis(2500)));
    }
}
