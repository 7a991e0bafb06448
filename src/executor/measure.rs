//! Times an executor's kernels one by one, and the memory read rate that bounds them; tells of its tuning and its
//! offload. Passes do not use this.

use super::offload::{OffloadReport, PlacementTiming};
use super::{Executor, HeadRows, Row};
use crate::Result;
use crate::schedule::Segment;
use std::ops::Range;
use std::time::Duration;

/// The measured times of one kernel of a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTiming {
    /// The segment of the pass that the kernel belongs to.
    pub segment: Segment,
    /// Indices into the schedule of the steps that this kernel runs. Empty for a kernel that only prepares the next
    /// one's input.
    pub steps: Range<usize>,
    /// The name of the kernel, for tables.
    pub kernel: &'static str,
    /// Specialisation constants and grid; empty on the CPU.
    pub variant: String,
    /// The time of each repetition, in seconds.
    pub seconds: Vec<f64>,
}

/// A device that computes steps of a pass: the executor's own, or its offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// The device that the executor itself runs on.
    Device,
    /// The offload that computes some of its steps.
    Offload,
}

/// A segment of a pass with the times at which it started and ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSpan {
    /// The device that computed it.
    pub engine: EngineKind,
    /// The segment that it belongs to.
    pub segment: Segment,
    /// The range of the pass's rows that it covers.
    pub rows: Range<usize>,
    /// Seconds from the pass's first submit to its start.
    pub start: f64,
    /// Seconds from the pass's first submit to its end.
    pub end: f64,
}

/// The gain of tuning for passes of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningGain {
    /// The kind, as text: `one row`, `512 rows of one sequence`.
    pub kind: String,
    /// The number of rows in a pass of this kind.
    pub rows: usize,
    /// Seconds of a pass with default tiles, which are chosen without a measurement.
    pub before: f64,
    /// Seconds of a pass with the present tiles.
    pub after: f64,
}

/// The basis on which an executor's kernels were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningState {
    /// The tiles are defaults, without measurements.
    Untuned,
    /// Some tiles are measured; others are still to be.
    Open,
    /// All tiles are measured.
    Tuned,
}

/// Called after each segment of a watched pass with the residual stream of the pass's last row, `[hidden]`. After the
/// head it is the final norm's output for the first head row.
pub type Watch<'a> = &'a mut dyn FnMut(Segment, &[f32]);

/// An executor whose passes and kernels can be timed.
pub trait Measure: Executor {
    /// Runs a pass segment by segment, and waits for it. `watch` is called with each segment's output.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()>;

    /// Queue submits for passes since the model was loaded. Submits that only fetch logits do not count. 0 on the CPU.
    fn submits(&self) -> u64;

    /// Device time spent on passes since the model was loaded, by the device's clock. Zero without a clock.
    fn busy(&self) -> Duration;

    /// Runs a pass once to warm up, then `repetitions` times, timing each kernel separately.
    ///
    /// # Errors
    /// Input: as [`Executor::submit`]. Device: no clock, or the device failed.
    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<KernelTiming>>;

    /// Seconds of `replays` back-to-back runs of one segment of a pass.
    ///
    /// # Errors
    /// As [`Measure::time_steps`].
    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64>;

    /// Runs a pass's embedding and layers once to warm up, and once more. Returns the spans of work of each engine in
    /// the second run, in the order of starts. The device's times are by its own clock, counted from the first submit.
    /// Empty if the executor records none.
    ///
    /// # Errors
    /// As [`Measure::time_steps`].
    fn timeline(&mut self, _rows: &[Row], _head: HeadRows) -> Result<Vec<EngineSpan>> {
        Ok(Vec::new())
    }

    /// The state of the offload that computes some of its steps; `None` if there never was one.
    fn offload(&self) -> Option<OffloadReport> {
        None
    }

    /// The measurements by which attention was placed; empty without any.
    fn placements(&self) -> &[PlacementTiming] {
        &[]
    }

    /// Works for some tens of milliseconds on making later passes faster: call it between passes while the executor is
    /// idle. The results of the last pass are lost; the KV cache stays. Returns the time to wait before the next call;
    /// `None` if no work is left.
    ///
    /// # Errors
    /// Interrupted: the work was cancelled. Device: the device failed or was lost.
    fn improve(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// Whether measurements chose the kernels.
    fn tuning(&self) -> TuningState {
        TuningState::Untuned
    }

    /// Measures the gain of tuning for each kind of pass. Call it before the first pass: it writes to the KV cache.
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

    /// [`Measure::measure_read_ceiling`] over the weight buffer of one segment.
    ///
    /// # Errors
    /// As [`Measure::measure_read_ceiling`].
    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64>;
}

/// A device that can read memory without pause, for measuring its bandwidth.
#[cfg(feature = "npu")]
pub(crate) trait MemoryReader {
    /// The device's name within a sentence.
    fn name(&self) -> &'static str;

    /// The number of bytes that one read covers.
    fn bytes(&self) -> u64;

    /// Starts as many reads as the device runs at a time.
    ///
    /// # Errors
    /// Device: the device failed, or its driver refuses.
    fn start(&mut self) -> Result<()>;

    /// Whether the oldest read has ended; if so, another one is started.
    ///
    /// # Errors
    /// Device: the device failed, hangs, or read other values than the memory holds.
    fn poll(&mut self) -> Result<bool>;

    /// Waits for the reads in flight.
    ///
    /// # Errors
    /// As [`MemoryReader::poll`].
    fn stop(&mut self) -> Result<()>;
}

/// The deviation of `values` from `others`, relative to the root mean square of `others`.
#[cfg(any(feature = "npu", feature = "amdgpu"))]
pub(crate) fn relative_rms(values: &[f32], others: &[f32]) -> f64 {
    let squares = |xs: &mut dyn Iterator<Item = f32>| xs.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let off = squares(&mut values.iter().zip(others).map(|(a, b)| a - b));
    (off / squares(&mut others.iter().copied())).sqrt()
}
