//! What a machine's memory and matrix units allow: tokens a second, and the time that a prompt takes.

use super::form::ModelForm;
use super::machine::PlannedMachine;
use crate::lower::array::Placements;
use crate::lower::prediction;
use crate::machine::profile::PREFILL_SHARE;
use crate::schedule::cost::Cost;
use crate::schedule::{Extent, PassShape, Schedule};
use crate::sequence::draft::gain::expected_tokens;

/// Batches that the roofline is printed for.
pub(crate) const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The roofline of a batch: tokens per second of all sequences together.
pub(crate) struct Roof {
    pub(crate) batch: usize,
    pub(crate) bytes: u64,
    pub(crate) tokens_s: f64,
    pub(crate) bound: &'static str,
}

/// The least seconds that a pass takes for its memory, and for its matrix products.
fn least_seconds(cost: Cost, target: &PlannedMachine) -> (f64, f64) {
    let matrix = target.operations.map_or(0.0, |operations| cost.operations as f64 / operations);
    (cost.memory_bytes() as f64 / target.bandwidth, matrix)
}

/// The roofline of `sequences` that each decode a token at a short context.
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

/// Drafted tokens that fill a kind of pass with the row before them.
pub(crate) const DRAFTED: [usize; 3] = [1, 3, 7];
/// Probabilities that a drafted token is right, once those before it are.
pub(crate) const RIGHT: [f64; 4] = [0.5, 0.6, 0.7, 0.8];

/// Tokens per second of one sequence with so many drafted, each of them right with a probability of `right` once those before
/// it are: by a draft model, or at no cost.
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
    let one = |draft| seconds(draft, PassShape::Decode { sequences: 1, depth: 0 });
    let drafting = drafted as f64 * draft.map_or(0.0, one);
    let all = drafting + seconds(schedule, PassShape::Verify { sequences: 1, rows: 1 + drafted, depth: 0 });
    expected_tokens(drafted, right) / all
}

/// Tokens of the prompt that the time to the first token is given for, unless the context is shorter.
const PROMPT: usize = 1000;

/// What a prompt takes before its first token, at best.
pub(crate) struct Prefill {
    /// Tokens of the prompt.
    pub(crate) tokens: usize,
    /// Multiplications and additions of all its passes.
    pub(crate) operations: u64,
    /// What the matrix units compute in a second at their peak.
    pub(crate) peak: f64,
    /// Seconds with matrix units at their peak.
    pub(crate) seconds_at_peak: f64,
    /// Seconds with matrix units at [`PREFILL_SHARE`] of it.
    pub(crate) seconds: f64,
}

impl Prefill {
    /// The passes of a prompt; `None` where nothing is known of the device's matrix units.
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

/// Sequences that decoding is predicted for.
const PREDICTED: [usize; 3] = [1, 8, 32];

/// Sequences whose attention is predicted.
const ATTENDING: [usize; 4] = [1, 2, 8, 32];

/// Tokens behind which attention is predicted.
const DEPTHS: [usize; 3] = [1024, 8192, 32_768];

/// What the cost model expects of a machine by name. Nothing of it is measured.
pub(crate) struct Prediction {
    /// Sequences, and the tokens a second of all of them.
    pub(crate) decode: Vec<(usize, f64)>,
    /// Rows of a prompt's first pass, and the tokens a second in it.
    pub(crate) prefill: (usize, f64),
    /// Where attention would run behind so many tokens; none where the machine has no NPU that it could run on.
    pub(crate) attention: Vec<Attention>,
}

/// The attention of a pass, with so many tokens of each sequence behind so many others.
pub(crate) struct Attention {
    pub(crate) behind: usize,
    pub(crate) sequences: usize,
    pub(crate) tokens: usize,
    pub(crate) placements: Placements,
}

impl Prediction {
    /// `None`: the machine is this one.
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
