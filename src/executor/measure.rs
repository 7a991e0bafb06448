//! Measuring an executor: its kernels one by one, and the read rate that bounds them. No reply needs any of this.

use super::{Executor, HeadRows, Row};
use crate::Result;
use crate::schedule::Segment;
use std::ops::Range;
use std::time::Duration;

/// One kernel of a pass with its times.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// The part of the pass that it belongs to.
    pub segment: Segment,
    /// The steps that it runs, as indices into the schedule. Empty for a kernel that only prepares the next one's input.
    pub steps: Range<usize>,
    /// The kernel's name.
    pub kernel: &'static str,
    /// Its specialisation constants and its grid, on a device that has such things.
    pub variant: String,
    /// Seconds of each repetition.
    pub seconds: Vec<f64>,
}

/// An executor that can be measured.
pub trait Measure: Executor {
    /// Submits of passes since the model was loaded, without those that fetch logits. 0 for an executor that submits nothing.
    fn submits(&self) -> u64;

    /// How long the device has worked on passes since the model was loaded, by its own clock. Zero for a device without one.
    fn busy(&self) -> Duration;

    /// Runs a pass once to warm up and then `repetitions` times, and times every kernel by itself.
    ///
    /// # Errors
    /// Input: as [`Executor::forward`]. Device: it has no clock, or it failed.
    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<Timed>>;

    /// Seconds that `replays` runs of one segment of a pass take, back to back.
    ///
    /// # Errors
    /// As [`Measure::time_steps`].
    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64>;

    /// Bytes per second at which this device reads the model's own weight buffers and does nothing else. No memory-bound
    /// kernel is faster.
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
