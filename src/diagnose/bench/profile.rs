//! Measurements of parts of a pass: each kernel, or a single layer.

use super::kernels::KernelTime;
use super::measure::{Bench, BenchLine};
use super::roof::{Ceilings, MeasuredRates};
use super::timeline::EngineTimeline;
use super::{Case, Work};
use crate::error::{Setting, text};
use crate::model::LayerKind;
use crate::schedule::cost::step_cost;
use crate::schedule::{Cost, Segment};
use crate::{Error, Result};

/// Numbers of back-to-back runs of a layer alone; each is timed.
pub const LAYER_REPLAYS: [usize; 3] = [1, 10, 50];

/// The measured time of one layer by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerTime {
    /// The index of the layer.
    pub layer: usize,
    /// The kind of the layer: whether it attends to a window or to all positions.
    pub kind: LayerKind,
    /// The number of positions that are in the cache before the run.
    pub depth: usize,
    /// The bytes and the operations of one run.
    pub cost: Cost,
    /// Bytes per second at which the device reads only this layer's weights.
    pub ceiling: f64,
    /// Number of back-to-back runs, and the seconds of one run.
    pub runs: Vec<(usize, f64)>,
    /// Rates of the longest series of runs.
    pub rates: MeasuredRates,
    /// Seconds of the embedding and of the head.
    pub ends: [f64; 2],
    /// Seconds of a whole pass if every layer took as long as this one.
    pub pass_seconds: f64,
}

impl Bench<'_> {
    /// Times one layer alone in a decode of one sequence at `depth`, once for each of [`LAYER_REPLAYS`].
    ///
    /// # Errors
    /// Input: the model has no such layer. Failed: a rate above the roofline. Device: no clock, or it failed.
    pub fn measure_layer(&mut self, layer: usize, depth: usize) -> Result<LayerTime> {
        let layers = self.executor.schedule().shape.layers.len();
        check_layer(layer, layers)?;
        let case = Case { work: Work::Decode { sequences: 1, tokens: 1 }, depth };
        self.fill(case)?;
        (self.progress)(&format!("layer {layer} alone"));
        let (rows, head, pass) = self.pass_of(case);
        let segment = Segment::Layer(layer);
        let executor = &mut *self.executor;
        let ceiling = executor.measure_segment_ceiling(segment)?;
        let mut one = |segment, replays: usize| -> Result<f64> {
            Ok(executor.time_segment(segment, &rows, head, replays)? / replays as f64)
        };
        let runs = LAYER_REPLAYS.into_iter().map(|n| Ok((n, one(segment, n)?))).collect::<Result<Vec<_>>>()?;
        let ends = [one(Segment::Embed, 10)?, one(Segment::Head, 10)?];
        let schedule = executor.schedule();
        let cost = schedule.steps[schedule.steps_of(segment)].iter().map(|s| step_cost(s, pass)).sum();
        let shape = &schedule.shape;
        let (kind, layers) = (shape.layers[layer], shape.layers.len());
        let longest = runs.last().map_or(f64::NAN, |r| r.1);
        let what = format!("layer {layer} alone");
        // The read ceiling is the layer's own; the matrix units' ceiling is the model's.
        let rates = Ceilings { read: ceiling, ..self.ceilings }.judge(&what, cost, longest)?;
        let pass_seconds = layers as f64 * longest + ends[0] + ends[1];
        Ok(LayerTime { layer, kind, depth, cost, ceiling, runs, rates, ends, pass_seconds })
    }

    /// Times every kernel of one pass of a measured line; for a prefill, of its first chunk.
    ///
    /// # Errors
    /// Device: it has no clock to time by, or it failed.
    pub fn measure_kernels(&mut self, line: &mut BenchLine, repetitions: usize) -> Result<()> {
        (self.progress)(&format!("{}: kernel by kernel", line.case.name()));
        let (rows, head, pass) = self.pass_of(line.case);
        let timed = self.executor.time_steps(&rows, head, repetitions)?;
        let schedule = self.executor.schedule();
        line.kernels = timed.iter().map(|t| KernelTime::new(schedule, t, pass, self.ceilings)).collect();
        match line.kernels.iter().map(|k| k.seconds).sum::<f64>() > 0.0 {
            true => Ok(()),
            false => {
                let cause = "the device's clock is too coarse to see any kernel of this pass";
                Err(Error::device(cause, text!("leave out ", Setting::Kernels.the(), ", or measure a larger model")))
            }
        }
    }

    /// Records the engines' activity during one pass of a measured line; for a prefill, during its first chunk.
    ///
    /// # Errors
    /// As [`Bench::measure_kernels`].
    pub fn measure_timeline(&mut self, line: &mut BenchLine) -> Result<()> {
        (self.progress)(&format!("{}: timeline", line.case.name()));
        let (rows, head, _) = self.pass_of(line.case);
        line.timeline = EngineTimeline::of(self.executor.timeline(&rows, head)?);
        Ok(())
    }
}

/// Refuses a layer that the model does not have.
///
/// # Errors
/// Input, naming both.
pub fn check_layer(layer: usize, layers: usize) -> Result<()> {
    if layer < layers {
        return Ok(());
    }
    Err(Error::input(
        format!("there is no layer {layer}: the model has {layers}"),
        text!("choose a ", Setting::Layer, format!(" of 0 to {}", layers - 1)),
    ))
}
