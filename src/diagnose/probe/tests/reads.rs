//! Reads on the model of the array, with its cycles as the clock; readers with scripted times; and round trips from a
//! Vulkan device to the model and back, through shared memory.

use super::*;
use crate::diagnose::probe::round_trip::RoundTrip;
use crate::engine::Device;
use crate::error::Error;
use crate::machine::files::Files;
use crate::npu::modelled_tests::{ArrayFault, loaded};
use crate::npu::programs::READ_SUM;
use crate::npu::reads::UNIT_BYTES;
use crate::sys::dma_buf::{DmaBuf, sealed_memfd};
use crate::vulkan::memory::Backing;
use std::cell::Cell;
use std::rc::Rc;

/// The lines of a group: verdict, name and evidence, and the remedy if any.
fn lines(checks: Checks) -> Vec<String> {
    let line = |check: &crate::diagnose::probe::Check| {
        let remedy = check.remedy.as_ref().map(|remedy| format!(" -> {remedy}")).unwrap_or_default();
        format!("{} {}: {}{remedy}", check.verdict.name(), check.name, check.evidence)
    };
    checks.all.iter().map(line).collect()
}

/// A reader on the model, with four units per channel and a clock of 1 GHz. Each look at the clock takes a microsecond,
/// so that a wait for a hanging read ends.
struct OnModel {
    cycles: Rc<Cell<u64>>,
    looks: Cell<u64>,
}

impl OnModel {
    fn new() -> OnModel {
        OnModel { cycles: Rc::default(), looks: Cell::new(0) }
    }

    fn reader(&self, fault: ArrayFault) -> Result<NpuReader<'static>> {
        let program = loaded(&READ_SUM, &self.cycles, fault)?;
        NpuReader::new(program, pattern(4 * CHANNELS * UNIT_BYTES, 5), 2)
    }

    fn channels(&self, fault: ArrayFault, clock: Option<u32>) -> (Vec<String>, Option<f64>) {
        let mut checks = Checks::default();
        checks.group("npu0");
        let now = || {
            self.looks.set(self.looks.get() + u64::from(fault == ArrayFault::Late));
            1e-9 * self.cycles.get() as f64 + 1e-3 * self.looks.get() as f64
        };
        let found = check_channels(&mut checks, self.reader(fault), clock, &now);
        (lines(checks), found.map(|(_, rate)| rate))
    }
}

/// n channels deliver n words per cycle, minus the overhead of commands.
#[test]
fn channels_are_measured_by_the_clock_of_the_array() {
    let (lines, rate) = OnModel::new().channels(ArrayFault::Sound, Some(1000));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let (rates, shares) = line.split_once(" GB/s through 1, 2, 4, 8 channels: ").expect(line);
    let numbers = |text: &str| text.split(", ").map(|n| n.parse().expect(text)).collect::<Vec<f64>>();
    let rates = numbers(rates.strip_prefix("ok npu0.read: ").expect(line));
    let shares = numbers(shares.strip_suffix(" % of a word a cycle and channel at 1000 MHz").expect(line));
    for ((rate, share), channels) in rates.iter().zip(shares).zip(CHANNEL_COUNTS) {
        assert!((75.0..=100.0).contains(&share), "{line}");
        assert!((rate - 4.0 * channels as f64 * share / 100.0).abs() < 0.3, "{line}");
    }
    assert!((rate.unwrap_or_default() / 1e9 - rates[3]).abs() < 0.06, "{line}");
}

#[test]
fn a_clock_that_is_not_known_or_too_slow_for_the_rate_is_said() {
    let on = |clock| OnModel::new().channels(ArrayFault::Sound, clock).0.remove(0);
    let unknown = on(None);
    assert!(unknown.ends_with("8 channels; the driver does not say the array's clock"), "{unknown}");
    let slow = on(Some(500));
    assert!(slow.starts_with("warn npu0.read: ") && slow.ends_with("the rate: report this"), "{slow}");
}

#[test]
fn what_fails_while_the_npu_reads_is_one_line() {
    for (fault, words) in [
        (ArrayFault::Full, "no memory is left for an NPU buffer -> end what else"),
        (ArrayFault::Fails(1), "the NPU reports an error in the program"),
        (ArrayFault::Fails(9), "the NPU reports an error in the program"),
        (ArrayFault::Late, "read_sum on the NPU did not end within 5.0 s -> "),
        (ArrayFault::Wrong(1), "the sums of 1 of the NPU's 8 channels are not those of what was there to be read -> "),
        (ArrayFault::Wrong(30), "the sums of 1 of the NPU's 8 channels are not those of what was there to be read -> "),
    ] {
        let (lines, rate) = OnModel::new().channels(fault, Some(1000));
        assert!(rate.is_none() && lines.len() == 1, "{fault:?}: {lines:?}");
        assert!(lines[0].starts_with(&format!("fail npu0.read: {words}")), "{fault:?}: {lines:?}");
    }
}

/// Ticks from a reader's start in which its reads take three times as long, because its clocks are low.
const COLD: u64 = 15_000;

/// A reader whose reads take a scripted number of ticks, and more while another one reads. A look at the clock is a
/// tick.
struct ScriptedReader<'a> {
    ticks: &'a Cell<u64>,
    /// The number of active readers.
    reading: &'a Cell<u64>,
    alone: u64,
    beside: u64,
    next: u64,
    started: Option<u64>,
    ends: u64,
    fails: bool,
}

impl MemoryReader for ScriptedReader<'_> {
    fn name(&self) -> &'static str {
        "a script"
    }

    fn bytes(&self) -> u64 {
        1000
    }

    fn start(&mut self) -> Result<()> {
        (self.started, self.next) = (Some(self.ticks.get()), self.ticks.get() + 3 * self.alone);
        self.reading.set(self.reading.get() + 1);
        Ok(())
    }

    fn poll(&mut self) -> Result<bool> {
        let ended = self.ticks.get() >= self.next;
        if ended {
            self.ends += 1;
            if self.fails && self.ends > 2 {
                return Err(Error::device("the script ends", "write another one"));
            }
            let warm = if self.reading.get() > 1 { self.beside } else { self.alone };
            let is_cold = self.started.is_none_or(|start| self.next < start + COLD);
            self.next += if is_cold { 3 * warm } else { warm };
        }
        Ok(ended)
    }

    fn stop(&mut self) -> Result<()> {
        self.reading.set(self.reading.get() - u64::from(self.started.take().is_some()));
        Ok(())
    }
}

/// The rates of both readers while both read and are warm.
#[test]
fn together_counts_what_both_read_while_both_do() {
    let (ticks, reading) = (Cell::new(0), Cell::new(0));
    let reader = |alone, beside| {
        let (next, started, ends, fails) = (0, None, 0, false);
        ScriptedReader { ticks: &ticks, reading: &reading, alone, beside, next, started, ends, fails }
    };
    let now = || 1e-3 * ticks.replace(ticks.get() + 1) as f64;
    let (mut gpu, mut npu) = (reader(400, 500), reader(900, 1500));
    let (alone, [beside, besides]) = read_together(&mut npu, &mut gpu, 20.0, &now).expect("rates");
    let near = |rate: f64, ticks: f64| (rate - 1e6 / ticks).abs() < 0.02 * rate;
    assert!(near(alone, 400.0) && near(beside, 500.0) && near(besides, 1500.0), "{alone} {beside} {besides}");
    assert_eq!(reading.get(), 0, "neither reads on");

    let mut checks = Checks::default();
    checks.group("npu0");
    report_together(&mut checks, [70.3e9, 27.0e9], [60.1e9, 24.86e9]);
    let wanted =
        "ok npu0.together: the GPU reads 70.3 GB/s alone, the NPU 27.0 alone; together 60.1 and 24.9, 85.0 in all";
    assert_eq!(lines(checks), [wanted]);
}

#[test]
fn where_one_reader_fails_or_stands_still_the_other_is_stopped() {
    let (ticks, reading) = (Cell::new(0), Cell::new(0));
    let reader = |alone, fails| {
        let (beside, next, started, ends) = (alone, 0, None, 0);
        ScriptedReader { ticks: &ticks, reading: &reading, alone, beside, next, started, ends, fails }
    };
    let now = || 1e-3 * ticks.replace(ticks.get() + 1) as f64;
    let told = |mut npu: ScriptedReader<'_>, mut gpu: ScriptedReader<'_>| {
        let e = read_together(&mut npu, &mut gpu, 0.0, &now).expect_err("a failure");
        assert!(npu.started.is_none() || npu.fails, "{e}");
        assert!(gpu.started.is_none(), "{e}");
        e.to_string()
    };
    let failed = told(reader(70, true), reader(50, false));
    assert!(failed.contains("the script ends"), "{failed}");
    let stands = told(reader(1_000_000, false), reader(50, false));
    assert!(stands.contains("a script ended no read within 5.0 s"), "{stands}");
}

fn gpu() -> OpenDevice {
    Device::Vulkan(None).open(&Files::system()).expect("a Vulkan device").expect("no executor of the CPU")
}

/// The Vulkan device's part of simultaneous reads: it reads until it is stopped.
#[test]
fn a_vulkan_device_reads_on_until_it_is_stopped() {
    let gpu = gpu();
    let mut steady = gpu.reader(1 << 20).expect("a buffer");
    let (start, watch) = (Instant::now(), SteadyWindow { warm_up: 0.0, reads: READS, deadline: 600.0 });
    for _ in 0..2 {
        let [rate] = rates([steady.as_mut()], watch, &|| start.elapsed().as_secs_f64()).expect("a rate");
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
    }
}

/// Memory that Mesa's driver for the CPU accepts as a dma-buf.
fn shared(bytes: u64) -> DmaBuf {
    sealed_memfd(bytes).and_then(DmaBuf::from_fd).expect("a memfd")
}

/// The device writes data, the model reads it and sums it up, and the clock gives the time of the trip. A driver that
/// accepts no dma-buf, as lavapipe before Mesa 25.0, is reported in one line; `tools/matrix-test` has a newer one.
#[test]
fn bytes_go_from_a_vulkan_device_to_the_model_of_the_array_and_back() {
    let OpenDevice::Vulkan(gpu) = gpu() else { panic!("another driver's device") };
    let trip = |fault| {
        let (on, looks) = (OnModel::new(), Cell::new(0.0));
        let program = loaded(&READ_SUM, &on.cycles, fault)?;
        let backings = [64 << 10, 4096].map(|bytes| Backing::Imported(shared(bytes)));
        RoundTrip::by_vulkan(program, &gpu, backings)?.median(&|| looks.replace(looks.get() + 1e-4))
    };
    if !gpu.features.sharing.imports {
        let e = trip(ArrayFault::Sound).expect_err("memory that is not shared").to_string();
        assert!(e.contains("shares no memory as dma-bufs; "), "{e}");
        return;
    }
    let took = trip(ArrayFault::Sound).expect("a trip");
    assert!((took - 1e-4).abs() < 1e-9, "{took}");
    for (fault, words) in [
        (ArrayFault::Full, "no memory is left for an NPU buffer"),
        (ArrayFault::Fails(3), "the NPU reports an error"),
        (ArrayFault::Late, "read_sum on the NPU did not end within 5.0 s"),
        (ArrayFault::Blind, "the sums of 8 of the NPU's 8 channels are not those of what was there"),
    ] {
        let e = trip(fault).expect_err("a failure").to_string();
        assert!(e.contains(words), "{fault:?}: {e}");
    }
}

/// Without a GPU, or with one that shares no memory, the NPU is measured alone, and the other lines name the missing
/// part.
#[test]
fn what_is_missing_beside_the_npu_is_said() {
    let on = OnModel::new();
    let mut checks = Checks::default();
    checks.group("npu0");
    check_beside(&mut checks, on.reader(ArrayFault::Sound).expect("a reader"), 1.0, None, &|| 0.0);
    let missing = "no Vulkan device is open: there is no GPU beside the NPU";
    assert_eq!(lines(checks), ["together", "round-trip"].map(|name| format!("skip npu0.{name}: {missing}")));

    let gpu = gpu();
    let mut checks = Checks::default();
    checks.group("npu0");
    check_beside(&mut checks, on.reader(ArrayFault::Sound).expect("a reader"), 1.0, Some(&gpu), &|| 0.0);
    assert!(
        gpu.caps().is_cpu() && lines(checks).iter().all(|line| line.contains("the Vulkan device is the processor"))
    );

    let OpenDevice::Vulkan(opened) = &gpu else { panic!("another driver's device") };
    if !opened.features.sharing.exports {
        let mut checks = Checks::default();
        checks.group("npu0");
        let program = loaded(&READ_SUM, &on.cycles, ArrayFault::Sound).expect("a program");
        round_trip::check(&mut checks, program, &gpu, &|| 0.0);
        let wanted = "skip npu0.round-trip: this Vulkan driver exports no dma-buf that the NPU could read -> ";
        assert!(matches!(&lines(checks)[..], [line] if line.starts_with(wanted)));
    }
}
