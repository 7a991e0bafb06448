//! Times an executor's kernels one by one, and the memory read rate that bounds them. Generation needs none of this.

use super::{Executor, HeadRows, Row};
use crate::Result;
use crate::schedule::Segment;
use std::ops::Range;
use std::time::Duration;

/// One kernel of a pass with its times.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTiming {
    /// The kernel's part of the pass.
    pub segment: Segment,
    /// Indices into the schedule of the steps that this kernel runs. Empty for a kernel that only prepares the next
    /// one's input.
    pub steps: Range<usize>,
    /// The kernel's name.
    pub kernel: &'static str,
    /// Specialisation constants and grid; empty on the CPU.
    pub variant: String,
    /// Seconds of each repetition.
    pub seconds: Vec<f64>,
}

/// Who works on a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// The executor's own device.
    Device,
    /// The guest that attends in its place.
    Guest,
}

/// A part of a pass, and when it ran.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSpan {
    /// Who ran it.
    pub engine: EngineKind,
    /// What it is a part of.
    pub segment: Segment,
    /// The pass's rows that it is of.
    pub rows: Range<usize>,
    /// Seconds from the pass's first submit to its start.
    pub start: f64,
    /// The same to its end.
    pub end: f64,
}

/// What tuning has gained for passes of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningGain {
    /// The kind, as text: `one row`, `512 rows of one sequence`.
    pub kind: String,
    /// Rows of a pass.
    pub rows: usize,
    /// Seconds of a pass with the tiles that are chosen without a measurement.
    pub before: f64,
    /// Seconds of a pass as it runs now.
    pub after: f64,
}

/// By what an executor's kernels were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningState {
    /// By what is known without measuring: default tiles.
    Untuned,
    /// By measurements in part, and there is more to measure.
    Open,
    /// By measurements.
    Tuned,
}

/// An executor that can be measured.
pub trait Measure: Executor {
    /// Queue submits for passes since the model was loaded. Submits that only fetch logits do not count. 0 on the CPU.
    fn submits(&self) -> u64;

    /// Device time spent on passes since the model was loaded, by the device's clock. Zero without a clock.
    fn busy(&self) -> Duration;

    /// Runs a pass once to warm up, then `repetitions` times, timing each kernel separately.
    ///
    /// # Errors
    /// Input: as [`Executor::forward`]. Device: no clock, or the device failed.
    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<KernelTiming>>;

    /// Seconds for `replays` back-to-back runs of one segment of a pass.
    ///
    /// # Errors
    /// As [`Measure::time_steps`].
    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64>;

    /// Runs a pass's embedding and layers once to warm up, and once more: who worked on them when, in the order of starts.
    /// The device's times are by its own clock, which is taken to be 0 at the first submit. Empty where nobody notes them.
    ///
    /// # Errors
    /// As [`Measure::time_steps`].
    fn timeline(&mut self, _rows: &[Row], _head: HeadRows) -> Result<Vec<EngineSpan>> {
        Ok(Vec::new())
    }

    /// By what its kernels were chosen.
    fn tuning(&self) -> TuningState {
        TuningState::Untuned
    }

    /// Measures what tuning gains, kind of pass by kind of pass. Call it before the first pass: it writes to the KV cache.
    ///
    /// # Errors
    /// Device: the device failed.
    fn measure_gains(&mut self) -> Result<Vec<TuningGain>> {
        Ok(Vec::new())
    }

    /// Read bandwidth over all of the model's weight buffers, in bytes per second, with no other work on the device. No
    /// memory-bound kernel is faster.
    ///
    /// # Errors
    /// Device: the device failed or was lost.
    fn measure_read_ceiling(&mut self) -> Result<f64>;

    /// As [`Measure::measure_read_ceiling`], over the weight buffer of one segment alone.
    ///
    /// # Errors
    /// As [`Measure::measure_read_ceiling`].
    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64>;
}

/// A device that reads memory on and on.
pub(crate) trait MemoryReader {
    /// Its name in a sentence.
    fn name(&self) -> &'static str;

    /// Bytes of a read.
    fn bytes(&self) -> u64;

    /// Starts as many reads as can be under way.
    ///
    /// # Errors
    /// Device: the device failed, or its driver refuses.
    fn start(&mut self) -> Result<()>;

    /// Whether the oldest read has ended; another one is started then.
    ///
    /// # Errors
    /// Device: the device failed, hangs, or has not read what is there.
    fn poll(&mut self) -> Result<bool>;

    /// Waits for what is under way.
    ///
    /// # Errors
    /// As [`MemoryReader::poll`].
    fn stop(&mut self) -> Result<()>;
}
