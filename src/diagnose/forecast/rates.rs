//! The rates that a machine's memory and matrix units allow: tokens per second, and the time of a prompt.

use super::form::ModelForm;
use super::machine::PlannedMachine;
use crate::lower::array::Placements;
use crate::lower::prediction;
use crate::machine::profile::PREFILL_SHARE;
use crate::schedule::cost::Cost;
use crate::schedule::{Extent, PassShape, Schedule};
use crate::sequence::draft::gain::expected_tokens;

/// Batches for which the roofline is printed.
pub(crate) const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The roofline of a batch: tokens per second of all sequences together.
pub(crate) struct Roof {
    pub(crate) batch: usize,
    pub(crate) bytes: u64,
    pub(crate) tokens_s: f64,
    pub(crate) bound: &'static str,
}

/// The shortest time of a pass by its memory traffic, and by its matrix products, in seconds.
fn least_seconds(cost: Cost, target: &PlannedMachine) -> (f64, f64) {
    let matrix = target.operations.map_or(0.0, |operations| cost.operations as f64 / operations);
    (cost.memory_bytes() as f64 / target.bandwidth, matrix)
}

/// The roofline of `sequences` sequences, each decoding a token at a short context.
pub(crate) fn roof(schedule: &Schedule, target: &PlannedMachine, sequences: usize) -> Roof {
    let cost = schedule.cost(PassShape::Decode { sequences, depth: 0 });
    let (memory, matrix) = least_seconds(cost, target);
    Roof {
        batch: sequences,
        bytes: cost.memory_bytes(),
        tokens_s: sequences as f64 / memory.max(matrix),
        bound: if memory >= matrix { "memory" } else { "matrix units" },
    }
}

/// Numbers of drafted tokens that, with the row before them, fill a class of passes.
pub(crate) const DRAFTED: [usize; 3] = [1, 3, 7];
/// Acceptances: the probability that a drafted token is right if those before it are.
pub(crate) const RIGHT: [f64; 4] = [0.5, 0.6, 0.7, 0.8];

/// Tokens per second of one sequence with `drafted` tokens per draft and an acceptance of `right`. The drafts come from
/// the schedule's drafter or a draft model, or are free.
pub(crate) fn draft_rate(
    schedule: &Schedule,
    draft: Option<&Schedule>,
    target: &PlannedMachine,
    drafted: usize,
    right: f64,
) -> f64 {
    let seconds = |schedule: &Schedule, pass| {
        let (memory, matrix) = least_seconds(schedule.cost(pass), target);
        memory.max(matrix)
    };
    let one = match (&schedule.drafter, draft) {
        (Some(_), _) => {
            let (memory, matrix) = least_seconds(schedule.draft_cost(1, 0), target);
            memory.max(matrix)
        }
        (None, Some(draft)) => seconds(draft, PassShape::Decode { sequences: 1, depth: 0 }),
        (None, None) => 0.0,
    };
    let drafting = drafted as f64 * one;
    let all = drafting + seconds(schedule, PassShape::Verify { sequences: 1, rows: 1 + drafted, depth: 0 });
    expected_tokens(drafted, right) / all
}

/// The prompt's length for the time to the first token, unless the context is shorter.
const PROMPT: usize = 1000;

/// The shortest time of a prompt before its first token.
pub(crate) struct Prefill {
    /// The number of tokens in the prompt.
    pub(crate) tokens: usize,
    /// The number of multiplications and additions in all passes over the prompt.
    pub(crate) operations: u64,
    /// The peak rate of the matrix units, per second.
    pub(crate) peak: f64,
    /// Seconds that the prompt takes if matrix units run at their peak.
    pub(crate) seconds_at_peak: f64,
    /// Seconds with matrix units at [`PREFILL_SHARE`] of their peak.
    pub(crate) seconds: f64,
}

impl Prefill {
    /// The passes of a prompt; `None` if the rate of the device's matrix units is unknown.
    pub(crate) fn of(schedule: &Schedule, target: &PlannedMachine) -> Option<Prefill> {
        let peak = target.operations?;
        let tokens = PROMPT.min(schedule.extent.context);
        let mut prefill = Prefill { tokens, operations: 0, peak, seconds_at_peak: 0.0, seconds: 0.0 };
        let chunk = schedule.extent.max_rows;
        for depth in (0..tokens).step_by(chunk) {
            let cost = schedule.cost(PassShape::Prefill { rows: chunk.min(tokens - depth), depth });
            let (memory, matrix) = least_seconds(cost, target);
            prefill.operations += cost.operations;
            prefill.seconds_at_peak += memory.max(matrix);
            prefill.seconds += memory.max(matrix / PREFILL_SHARE);
        }
        Some(prefill)
    }
}

/// Numbers of sequences for which decoding is predicted.
const PREDICTED: [usize; 3] = [1, 8, 32];

/// Numbers of sequences for which attention is predicted.
const ATTENDING: [usize; 4] = [1, 2, 8, 32];

/// The context lengths for which the time of attention is predicted.
const DEPTHS: [usize; 3] = [1024, 8192, 32_768];

/// The cost model's prediction for a machine by name. No part of it is measured.
pub(crate) struct Prediction {
    /// Numbers of sequences, with their total tokens per second.
    pub(crate) decode: Vec<(usize, f64)>,
    /// Rows of a prompt's first pass, and its tokens per second.
    pub(crate) prefill: (usize, f64),
    /// The predicted engine of attention at several context lengths; empty if the machine has no usable NPU.
    pub(crate) attention: Vec<Attention>,
}

/// The attention of a pass: the number of tokens of each sequence, and of tokens before them.
pub(crate) struct Attention {
    pub(crate) behind: usize,
    pub(crate) sequences: usize,
    pub(crate) tokens: usize,
    pub(crate) placements: Placements,
}

impl Prediction {
    /// Predicts the rates of a named machine. `None` for this machine, which can be measured.
    pub(super) fn of(form: &ModelForm, extent: Extent, target: &PlannedMachine) -> Option<Prediction> {
        let name = target.named.as_ref()?.profile.name;
        let rate = |sequences: usize, pass: PassShape, tokens: usize| {
            let extent = Extent { sequences, head_rows: sequences, max_rows: extent.max_rows.max(sequences), ..extent };
            let extent = Extent { kv_tokens: None, ..extent };
            Some(tokens as f64 / prediction::seconds(name, &form.build(extent).0, pass)?.all)
        };
        let decode = PREDICTED
            .into_iter()
            .map(|n| Some((n, rate(n, PassShape::Decode { sequences: n, depth: 0 }, n)?)))
            .collect::<Option<_>>()?;
        let rows = extent.max_rows;
        let attention = |behind: usize, (sequences, tokens): (usize, usize), pass: PassShape| {
            let max_rows = rows.max(sequences);
            let context = behind + rows;
            let extent = Extent { context, sequences, head_rows: sequences, max_rows, kv_tokens: None, ..extent };
            let placements = Placements::of(name, &form.build(extent).0, pass)?;
            Some(Attention { behind, sequences, tokens, placements })
        };
        let at = |behind: usize| {
            let decode =
                ATTENDING.map(|sequences| ((sequences, 1), PassShape::Decode { sequences, depth: behind - 1 }));
            let prefill = ((1, rows), PassShape::Prefill { rows, depth: behind });
            decode.into_iter().chain([prefill]).filter_map(move |(of, pass)| attention(behind, of, pass))
        };
        let fits = |behind: &usize| behind + rows <= form.shape.max_context;
        let attention = DEPTHS.into_iter().filter(fits).flat_map(at).collect();
        Some(Prediction { decode, prefill: (rows, rate(1, PassShape::Prefill { rows, depth: 0 }, rows)?), attention })
    }
}
