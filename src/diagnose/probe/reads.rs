//! Read rates of the NPU: by number of channels, and beside the GPU; and the cost of a round trip between the two.

use super::steady::{SteadyWindow, rates};
use super::{Checks, Verdict, measure, round_trip};
use crate::Result;
use crate::executor::measure::MemoryReader;
use crate::npu::LoadedProgram;
use crate::npu::reader::NpuReader;
use crate::npu::reads::{CHANNELS, pattern};
use crate::replay::measure::fastest::warm_up;
use crate::replay::measure::steady::SteadyRead;
use crate::vulkan::{Gpu, Vulkan};
use std::rc::Rc;
use std::time::Instant;

/// Bytes that the NPU's commands read: more than any cache holds. Together with the program's heap they are about what
/// such a program locks in any case.
const BYTES: usize = 64 << 20;
/// How many times a command reads them, so that the cost of starting it matters little.
const PASSES: u32 = 2;
/// Numbers of channels to measure.
const CHANNEL_COUNTS: [usize; 4] = [1, 2, 4, CHANNELS];
/// The least number of reads that count, and the longest time of one, in seconds.
const READS: usize = 4;
const DEADLINE: f64 = 5.0;
/// A rate above this share of the clock's limit shows that the rate or the clock is wrong.
const MOST_SHARE: f64 = 1.02;

/// The GPU and the progress callback for measuring the NPU.
#[derive(Clone, Copy)]
pub(super) struct ReadProbe<'a> {
    /// The open Vulkan device.
    pub(super) gpu: Option<&'a Rc<Gpu>>,
    /// Called with the name of each part.
    pub(super) progress: &'a dyn Fn(&str),
}

/// Measures the NPU's read rate with the program from `load`. `clock`: the array's, in MHz.
pub(super) fn check<'x>(
    checks: &mut Checks,
    load: impl FnOnce() -> Result<LoadedProgram<'x>>,
    clock: Option<u32>,
    gpu: Option<&Rc<Gpu>>,
) {
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64();
    let reader = load().and_then(|program| NpuReader::new(program, pattern(BYTES, 1), PASSES));
    if let Some((reader, alone)) = check_channels(checks, reader, clock, &now) {
        check_beside(checks, reader, alone, gpu, &now);
    }
}

/// Makes the measurements that need a GPU, or reports that there is none.
fn check_beside(checks: &mut Checks, reader: NpuReader<'_>, alone: f64, gpu: Option<&Rc<Gpu>>, now: &dyn Fn() -> f64) {
    let gpu = match gpu {
        Some(gpu) if gpu.caps.is_cpu() => Err("the Vulkan device is the processor: there is no GPU beside the NPU"),
        Some(gpu) if gpu.hung.get() => Err("the GPU hangs"),
        Some(gpu) => Ok(gpu),
        None => Err("no Vulkan device is open: there is no GPU beside the NPU"),
    };
    match gpu {
        Ok(gpu) => {
            if let Some(reader) = check_together(checks, reader, gpu, alone, now) {
                round_trip::check(checks, reader.into_program(), gpu, now);
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
    match measured {
        Ok((reader, found)) => {
            report_channels(checks, found, clock);
            Some((reader, found[CHANNEL_COUNTS.len() - 1]))
        }
        Err(e) => {
            checks.error("read", Verdict::Fail, &e);
            None
        }
    }
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
    match shares.iter().any(|share| *share > MOST_SHARE) {
        true => checks.warn("read", evidence, "the driver's clock is wrong, or the rate: report this"),
        false => checks.ok("read", evidence),
    }
}

/// Measures the GPU's reads alone and then beside the NPU's, which have the rate `alone` without the GPU.
fn check_together<'x>(
    checks: &mut Checks,
    mut reader: NpuReader<'x>,
    gpu: &Rc<Gpu>,
    alone: f64,
    now: &dyn Fn() -> f64,
) -> Option<NpuReader<'x>> {
    let (heap, size) = measure::read_size(gpu);
    let warm_up = warm_up(&gpu.caps).as_secs_f64();
    let measured = Vulkan::new(gpu)
        .and_then(|vulkan| SteadyRead::new(vulkan, size, heap))
        .and_then(|mut steady| read_together(&mut reader, &mut steady, warm_up, now));
    match measured {
        Ok((gpu, together)) => {
            report_together(checks, [gpu, alone], together);
            Some(reader)
        }
        Err(e) => {
            checks.error("together", Verdict::Fail, &e);
            None
        }
    }
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

#[cfg(test)]
#[path = "tests/reads.rs"]
mod tests;
