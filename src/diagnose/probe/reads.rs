//! Read rates of the NPU: by number of channels, and beside the GPU; and the cost of a round trip between the two.

#[cfg(any(feature = "amdgpu", feature = "vulkan"))]
use super::round_trip;
use super::{Checks, Verdict, measure};
use crate::engine::device::OpenDevice;
use crate::executor::measure::MemoryReader;
use crate::npu::LoadedProgram;
use crate::npu::reader::NpuReader;
use crate::npu::reads::{CHANNELS, pattern};
use crate::replay::measure::fastest::warm_up;
use crate::{Error, Result};
use std::time::Instant;

/// Bytes that the NPU's commands read: more than any cache holds. Together with the program's heap they are about what
/// such a program locks in any case.
const BYTES: usize = 64 << 20;
/// The number of times that a command reads the bytes, so that the cost of its start matters little.
const PASSES: u32 = 2;
/// The numbers of DMA channels that are measured.
const CHANNEL_COUNTS: [usize; 4] = [1, 2, 4, CHANNELS];
/// The least number of reads that count, and the longest time of one, in seconds.
const READS: usize = 4;
const DEADLINE: f64 = 5.0;
/// A rate above this share of the clock's limit shows that the rate or the clock is wrong.
const MOST_SHARE: f64 = 1.02;

/// The GPU and the progress callback for measuring the NPU.
#[derive(Clone, Copy)]
pub(super) struct ReadProbe<'a> {
    /// The open device; `None` if there is none.
    pub(super) gpu: Option<&'a OpenDevice>,
    /// Called with the name of each part.
    pub(super) progress: &'a dyn Fn(&str),
}

/// Measures the NPU's read rate with the program from `load`. `clock`: the array's, in MHz.
pub(super) fn check<'x>(
    checks: &mut Checks,
    load: impl FnOnce() -> Result<LoadedProgram<'x>>,
    clock: Option<u32>,
    gpu: Option<&OpenDevice>,
) {
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64();
    let reader = load().and_then(|program| NpuReader::new(program, pattern(BYTES, 1), PASSES));
    if let Some((reader, alone)) = check_channels(checks, reader, clock, &now) {
        check_beside(checks, reader, alone, gpu, &now);
    }
}

/// Makes the measurements that need a GPU, or reports that there is none.
fn check_beside(checks: &mut Checks, npu: NpuReader<'_>, alone: f64, gpu: Option<&OpenDevice>, now: &dyn Fn() -> f64) {
    let gpu = match gpu {
        Some(gpu) if gpu.caps().is_cpu() => Err("the Vulkan device is the processor: there is no GPU beside the NPU"),
        Some(gpu) if gpu.is_hung() => Err("the GPU hangs"),
        Some(gpu) => Ok(gpu),
        None => Err("no Vulkan device is open: there is no GPU beside the NPU"),
    };
    match gpu {
        Ok(gpu) => {
            if let Some(npu) = check_together(checks, npu, gpu, alone, now) {
                #[cfg(any(feature = "amdgpu", feature = "vulkan"))]
                round_trip::check(checks, npu.into_program(), gpu, now);
                #[cfg(not(any(feature = "amdgpu", feature = "vulkan")))]
                drop(npu);
            }
        }
        Err(missing) => ["together", "round-trip"].into_iter().for_each(|name| checks.skip(name, missing)),
    }
}

/// Measures reads through increasing numbers of channels. Returns the reader with all of them, and its rate.
pub(super) fn check_channels<'x>(
    checks: &mut Checks,
    reader: Result<NpuReader<'x>>,
    clock: Option<u32>,
    now: &dyn Fn() -> f64,
) -> Option<(NpuReader<'x>, f64)> {
    let measured = reader.and_then(|mut reader| {
        let mut found = [0.0; CHANNEL_COUNTS.len()];
        for (rate, channels) in found.iter_mut().zip(CHANNEL_COUNTS) {
            reader.use_channels(channels)?;
            [*rate] = rates([&mut reader], SteadyWindow { warm_up: 0.0, reads: READS, deadline: DEADLINE }, now)?;
        }
        Ok((reader, found))
    });
    let (reader, found) = checks.got("read", Verdict::Fail, measured)?;
    report_channels(checks, found, clock);
    Some((reader, found[CHANNEL_COUNTS.len() - 1]))
}

fn report_channels(checks: &mut Checks, rates: [f64; CHANNEL_COUNTS.len()], clock: Option<u32>) {
    let list = |words: Vec<String>| words.join(", ");
    let shown = list(rates.iter().map(|rate| format!("{:.1}", rate / 1e9)).collect());
    let counts = list(CHANNEL_COUNTS.iter().map(usize::to_string).collect());
    let evidence = format!("{shown} GB/s through {counts} channels");
    let Some(mhz) = clock else {
        return checks.ok("read", format!("{evidence}; the driver does not say the array's clock"));
    };
    let share = |(rate, channels): (&f64, usize)| rate / (4e6 * f64::from(mhz) * channels as f64);
    let shares: Vec<f64> = rates.iter().zip(CHANNEL_COUNTS).map(share).collect();
    let percents = list(shares.iter().map(|share| format!("{:.0}", 100.0 * share)).collect());
    let evidence = format!("{evidence}: {percents} % of a word a cycle and channel at {mhz} MHz");
    let is_wrong = shares.iter().any(|share| *share > MOST_SHARE);
    checks.judge("read", is_wrong, evidence, "the driver's clock is wrong, or the rate: report this");
}

/// Measures the GPU's reads alone and then beside the NPU's, which have the rate `alone` without the GPU.
fn check_together<'x>(
    checks: &mut Checks,
    mut reader: NpuReader<'x>,
    gpu: &OpenDevice,
    alone: f64,
    now: &dyn Fn() -> f64,
) -> Option<NpuReader<'x>> {
    let warm_up = warm_up(gpu.caps()).as_secs_f64();
    let steady = gpu.reader(measure::most_read(gpu));
    let measured = steady.and_then(|mut steady| read_together(&mut reader, steady.as_mut(), warm_up, now));
    let (gpu, together) = checks.got("together", Verdict::Fail, measured)?;
    report_together(checks, [gpu, alone], together);
    Some(reader)
}

/// The GPU's rate alone, and both rates together: the GPU's, the NPU's.
pub(super) fn read_together(
    npu: &mut dyn MemoryReader,
    gpu: &mut dyn MemoryReader,
    warm_up: f64,
    now: &dyn Fn() -> f64,
) -> Result<(f64, [f64; 2])> {
    let watch = SteadyWindow { warm_up, reads: READS, deadline: DEADLINE };
    let [alone] = rates([&mut *gpu], watch, now)?;
    Ok((alone, rates([gpu, npu], watch, now)?))
}

fn report_together(checks: &mut Checks, alone: [f64; 2], together: [f64; 2]) {
    let giga = |rate: f64| format!("{:.1}", rate / 1e9);
    let ([gpu, npu], [beside, besides]) = (alone.map(giga), together.map(giga));
    let sum = giga(together[0] + together[1]);
    checks.ok(
        "together",
        format!("the GPU reads {gpu} GB/s alone, the NPU {npu} alone; together {beside} and {besides}, {sum} in all"),
    );
}

/// The duration of a measurement, in seconds of the clock.
#[derive(Debug, Clone, Copy)]
struct SteadyWindow {
    /// The time before reads count, in which devices raise their clocks.
    warm_up: f64,
    /// The least number of reads of each device that count.
    reads: usize,
    /// The longest time without the end of a read.
    deadline: f64,
}

/// Bytes per second of each reader while all of them read, by the clock `now`.
///
/// # Errors
/// Device: a reader fails, or ends no read within the deadline. Then all reads have ended except those that hang.
fn rates<const N: usize>(
    readers: [&mut dyn MemoryReader; N],
    watch: SteadyWindow,
    now: &dyn Fn() -> f64,
) -> Result<[f64; N]> {
    let mut readers = readers;
    let ends = match follow(&mut readers, watch, now) {
        Ok(ends) => ends,
        Err((failed, e)) => {
            // Reports the first failure, since others may follow from it.
            let others = readers.iter_mut().enumerate().filter(|(index, _)| *index != failed);
            others.for_each(|(_, reader)| drop(reader.stop()));
            return Err(e);
        }
    };
    readers.iter_mut().try_for_each(|reader| reader.stop())?;
    let mut rates = [0.0; N];
    for ((rate, reader), ends) in rates.iter_mut().zip(&readers).zip(ends) {
        let (count, seconds) =
            (ends.len().saturating_sub(1), ends.last().unwrap_or(&0.0) - ends.first().unwrap_or(&0.0));
        *rate = reader.bytes() as f64 * count as f64 / seconds;
    }
    Ok(rates)
}

/// The end times of each reader's reads, after the warm-up and after every reader has ended one. An error comes with
/// the index of the reader that failed.
fn follow<const N: usize>(
    readers: &mut [&mut dyn MemoryReader; N],
    watch: SteadyWindow,
    now: &dyn Fn() -> f64,
) -> std::result::Result<[Vec<f64>; N], (usize, Error)> {
    let begin = now();
    for (index, reader) in readers.iter_mut().enumerate() {
        reader.start().map_err(|e| (index, e))?;
    }
    let mut ends = [const { Vec::new() }; N];
    let mut last = [begin; N];
    let mut counts = false;
    loop {
        for (index, reader) in readers.iter_mut().enumerate() {
            if reader.poll().map_err(|e| (index, e))? {
                last[index] = now();
                ends[index].push(last[index]);
            } else if now() - last[index] > watch.deadline {
                // The reader's own error on a hanging read is better, if it has one.
                reader.stop().map_err(|e| (index, e))?;
                let cause = format!("{} ended no read within {:.1} s", reader.name(), watch.deadline);
                return Err((index, Error::device(cause, "end what else uses it, and see `dmesg`")));
            }
        }
        let all_have = |count: usize| ends.iter().all(|ends| ends.len() >= count);
        if !counts && all_have(1) && now() - begin >= watch.warm_up {
            counts = true;
            ends.iter_mut().for_each(Vec::clear);
        } else if counts && all_have(watch.reads + 1) {
            return Ok(ends);
        }
    }
}

#[cfg(test)]
#[path = "tests/reads.rs"]
mod tests;
