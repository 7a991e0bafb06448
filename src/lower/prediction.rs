//! Predicts the time of a pass on a device that the cost model knows by name, from its kernels, without measurements.

use super::dispatch::{Addresses, Dispatch};
use super::figures::Figures;
use super::kernels::Module;
use super::layout::GpuLayout;
use super::target::{Product, Target};
use super::units::{MatrixUnits, RDNA3};
use super::{Lowering, PassKind, RowOrder, TokenSource};
use crate::schedule::cost::{Cost, PassShape, step_cost};
use crate::schedule::{Op, Schedule};

/// Share of a memory's peak that reads reach: 212 of an 8060S's 256 GB/s by rocm_bandwidth_test, as llm-tracker.info published it in
/// 2025.
const READS: f64 = 0.83;
/// Seconds of a pass on the host and of its submit, which overlap with no dispatch. An estimate.
const SUBMIT: f64 = 150e-6;

/// The predicted time of a pass, in seconds.
pub(crate) struct Seconds {
    pub(crate) all: f64,
    /// Seconds of the dispatches that compute attention.
    pub(crate) attention: f64,
    /// Seconds that the longest dispatch takes.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) longest: f64,
}

/// Seconds of a pass on one of [`crate::machine::profile`]'s machines, without its carve-out: a token for each of
/// `sequences`, or `rows` of one prompt. `None`: the cost model does not know the machine, or the pass is of another
/// shape.
pub(crate) fn seconds(machine: &str, schedule: &Schedule, pass: PassShape) -> Option<Seconds> {
    let target = target_of(machine)?;
    let figures = target.figures?;
    // Tiles are chosen by the peak, as on the machine itself.
    let reached = Figures { memory: READS * figures.memory, ..figures };
    let (rows, order) = match pass {
        PassShape::Decode { sequences: 1, .. } => (1, RowOrder::Consecutive),
        PassShape::Decode { sequences, .. } => (sequences, RowOrder::Apart),
        PassShape::Prefill { rows, .. } => (rows, RowOrder::Consecutive),
        PassShape::Mixed { .. } | PassShape::Verify { .. } => return None,
    };
    let head_rows = if order == RowOrder::Apart { rows } else { 1 };
    let kind = PassKind { rows, head_rows, order, tokens: TokenSource::Host };
    let (layout, weights) = (GpuLayout::new(schedule), vec![0; schedule.weights.buffers.len()]);
    let addresses = Addresses::new(0, weights);
    let lowering = Lowering { schedule, layout: &layout, addresses: &addresses, target: &target, kind };
    let dispatches = schedule.segments().flat_map(|segment| lowering.segment(segment));
    let mut seconds = Seconds { all: SUBMIT, attention: 0.0, longest: 0.0 };
    for d in dispatches {
        let of_dispatch = dispatch_seconds(&target, reached, schedule, pass, &d);
        seconds.all += of_dispatch;
        seconds.longest = seconds.longest.max(of_dispatch);
        if d.steps.clone().any(|at| matches!(schedule.steps[at].op, Op::Attend { .. })) {
            seconds.attention += of_dispatch;
        }
    }
    Some(seconds)
}

/// The target for a machine that the cost model knows.
pub(crate) fn target_of(machine: &str) -> Option<Target> {
    let units = MatrixUnits { row_lanes: Some(1), ..RDNA3 };
    Some(Target { figures: Some(Figures::named(machine)?), ..Target::new(units.subgroup, true, Some(units)) })
}

fn dispatch_seconds(target: &Target, reached: Figures, schedule: &Schedule, pass: PassShape, d: &Dispatch) -> f64 {
    let mut cost = Cost::default();
    d.steps.clone().for_each(|at| cost += step_cost(&schedule.steps[at], pass));
    if let Some((arithmetic, mut p)) = d.product {
        if p.experts > 0 {
            // The experts that are read, side by side.
            let read = (cost.weight_bytes as f64 / p.weight_bytes()).round().max(1.0) as usize;
            p = Product { outputs: read * p.outputs, experts: 0, ..p };
        }
        let tile = target.tile(arithmetic, p);
        let of_tile = tile.map(|tile| reached.seconds(target.subgroup, target.units, p, tile, d.groups));
        return of_tile.unwrap_or_else(|| reached.least_seconds(arithmetic, p));
    }
    let rate = match d.kernel.module {
        Module::AttendMatrixF16
        | Module::AttendMatrixReloadF16
        | Module::AttendMatrixBf16
        | Module::AttendMatrixReloadBf16 => reached.attention(true),
        _ => reached.attention(false),
    };
    let moved = cost.memory_bytes() as f64 / reached.memory + cost.activation_bytes as f64 / reached.cache;
    moved.max(cost.operations as f64 / rate) + reached.dispatch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BlockFormat, LayerKind, Shape, WeightFormat, presets};
    use crate::schedule::{Extent, KvType};

    fn tokens_s(machine: &str, shape: &Shape, format: WeightFormat, pass: PassShape) -> f64 {
        let (sequences, tokens) = match pass {
            PassShape::Decode { sequences, .. } => (sequences, sequences),
            PassShape::Prefill { rows, .. } => (1, rows),
            _ => unreachable!(),
        };
        let kv = KvType::F16;
        let extent = Extent { context: 4096, max_rows: 512, head_rows: sequences, sequences, kv, kv_tokens: None };
        let schedule = Schedule::build(shape, extent, |id| format.of_matrix(id, shape, None));
        tokens as f64 / seconds(machine, &schedule, pass).unwrap().all
    }

    fn decode(sequences: usize) -> PassShape {
        PassShape::Decode { sequences, depth: 0 }
    }

    /// No machine exceeds its memory's rate, one sequence comes near it, and several sequences together decode more
    /// tokens.
    #[test]
    fn predictions_keep_to_the_roofline() {
        let shape = presets::preset("gemma3-27b").unwrap();
        for (machine, bandwidth) in [("780m", 89.6e9), ("890m", 120e9), ("8060s", 256e9)] {
            for (format, gigabytes) in [(WeightFormat::Int8, 27.0), (WeightFormat::Int4, 15.8)] {
                let roof = bandwidth / 1e9 / gigabytes;
                let [one, eight, many] = [1, 8, 32].map(|n| tokens_s(machine, &shape, format, decode(n)));
                assert!((0.7..READS).contains(&(one / roof)), "{machine}, {}: {one} of {roof}", format.name());
                assert!(one < eight && eight < many && many < 32.0 * one, "{machine}: {one}, {eight}, {many}");
            }
        }
        assert_eq!(Figures::named("a machine"), None);
    }

    /// llama.cpp on an 8060S by RADV, Llama 3 8B, prompts of 512 tokens (its pull request 18749 of 2026-01-11): the
    /// same work by other kernels.
    #[test]
    fn prefill_is_predicted_near_what_llama_cpp_was_published_with() {
        let shape = Shape {
            vocab: 128_256,
            hidden: 4096,
            ffn: 14_336,
            layers: vec![LayerKind::Global; 32],
            ..presets::preset("gemma3-27b").unwrap().with_heads(32, 8, 128)
        };
        for (format, published) in [(BlockFormat::Q4_0, 875.0), (BlockFormat::Q4K, 794.0), (BlockFormat::Q8_0, 742.0)] {
            let format = format.kept_as();
            let predicted = tokens_s("8060s", &shape, format, PassShape::Prefill { rows: 512, depth: 0 });
            println!("{}: {predicted:.0} tokens/s predicted, {published} published", format.name());
            assert!((0.5..2.5).contains(&(predicted / published)), "{}: {predicted}, {published}", format.name());
        }
    }
}
