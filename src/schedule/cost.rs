//! The bytes that a step moves and the operations that it computes, from which the roofline is drawn.

use super::build::Schedule;
use super::choice;
use super::step::{Op, Rows, Segment, Step};

/// Bytes and operations of one step (or of a sum of steps).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes of weights read. Each weight counts once, whatever the number of rows.
    pub weight_bytes: u64,
    /// Bytes of keys and values read and written.
    pub kv_bytes: u64,
    /// Bytes of activations read and written in the arena.
    pub activation_bytes: u64,
    /// Multiplications and additions of the matrix products and of attention.
    pub operations: u64,
}

impl Cost {
    /// The sum of all bytes, those of memory and of activations.
    pub fn bytes(&self) -> u64 {
        self.memory_bytes() + self.activation_bytes
    }

    /// Bytes that must come from memory: weights and KV. The roofline is drawn from these. A decode pass's activations
    /// stay in caches; counting them would inflate the rate's share of the roofline.
    pub fn memory_bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, o: Cost) {
        self.weight_bytes += o.weight_bytes;
        self.kv_bytes += o.kv_bytes;
        self.activation_bytes += o.activation_bytes;
        self.operations += o.operations;
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        let mut sum = Cost::default();
        costs.for_each(|cost| sum += cost);
        sum
    }
}

/// The pass to cost: its number of rows and their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassShape {
    /// `rows` consecutive positions of one sequence, the first at `depth`.
    Prefill {
        /// The number of rows, all of one sequence.
        rows: usize,
        /// The position of the first row in its sequence.
        depth: usize,
    },
    /// One row in each of `sequences` sequences, all at position `depth`.
    Decode {
        /// The number of sequences.
        sequences: usize,
        /// The position of each row in its sequence.
        depth: usize,
    },
    /// A chunk of a prompt, as in `Prefill`, and beside it one row in each of `sequences` sequences.
    Mixed {
        /// The number of rows in the chunk.
        chunk: usize,
        /// The position of the chunk's first row.
        depth: usize,
        /// True if the chunk's last row is a head row, because the prompt ends there.
        ends: bool,
        /// The number of other sequences in the pass, each with one row.
        sequences: usize,
        /// The position of each other sequence's row.
        beside: usize,
    },
    /// The next row of each of `sequences` sequences and the drafted ones after it, all of them head rows.
    Verify {
        /// The number of sequences.
        sequences: usize,
        /// The number of rows of all sequences together.
        rows: usize,
        /// The position of each sequence's first row.
        depth: usize,
    },
}

impl PassShape {
    fn rows(self) -> u64 {
        match self {
            PassShape::Prefill { rows, .. } | PassShape::Verify { rows, .. } => rows as u64,
            PassShape::Decode { sequences, .. } => sequences as u64,
            PassShape::Mixed { chunk, sequences, .. } => (chunk + sequences) as u64,
        }
    }

    /// Rows whose logits are computed: the last of a prefill, all of a decode and of a draft.
    fn head_rows(self) -> u64 {
        match self {
            PassShape::Prefill { .. } => 1,
            PassShape::Decode { sequences, .. } => sequences as u64,
            PassShape::Verify { rows, .. } => rows as u64,
            PassShape::Mixed { ends, sequences, .. } => sequences as u64 + u64::from(ends),
        }
    }

    /// Query-key pairs over all rows, and distinct KV entries read for them.
    fn keys(self, window: Option<usize>) -> (u64, u64) {
        let seen = |position: usize| window.map_or(position + 1, |w| w.min(position + 1)) as u64;
        match self {
            PassShape::Decode { sequences, depth } => {
                let n = seen(depth) * sequences as u64;
                (n, n)
            }
            PassShape::Verify { sequences, rows, depth } => {
                // Approximates the rows as evenly spread over the sequences.
                let (each, longer) = (rows / sequences, rows % sequences);
                let of = |rows| PassShape::Prefill { rows, depth }.keys(window);
                let ((few, some), (more, others)) = (of(each), of(each + 1));
                let sum = |a, b| (sequences - longer) as u64 * a + longer as u64 * b;
                (sum(few, more), sum(some, others))
            }
            PassShape::Prefill { rows, depth } => {
                let pairs = (depth..depth + rows).map(seen).sum();
                let oldest = window.map_or(0, |w| (depth + 1).saturating_sub(w));
                (pairs, (depth + rows - oldest) as u64)
            }
            PassShape::Mixed { chunk, depth, sequences, beside, .. } => {
                let of_chunk = PassShape::Prefill { rows: chunk, depth }.keys(window);
                let of_others = PassShape::Decode { sequences, depth: beside }.keys(window);
                (of_chunk.0 + of_others.0, of_chunk.1 + of_others.1)
            }
        }
    }
}

/// Expected number of distinct experts of `count` that `rows` rows use, `used` each, if they choose independently of each
/// other. Real rows share more.
pub fn distinct_experts(count: usize, used: usize, rows: u64) -> f64 {
    let left_out = 1.0 - used as f64 / count as f64;
    count as f64 * (1.0 - left_out.powf(rows as f64))
}

/// The bytes and operations of one step in a pass of this shape.
pub fn step_cost(step: &Step, pass: PassShape) -> Cost {
    let rows = match step.rows {
        Rows::Pass | Rows::Draft | Rows::DraftSource => pass.rows(),
        Rows::Head => pass.head_rows(),
        Rows::Expert(used) => used as u64 * pass.rows(),
    };
    let f32s = |n: usize| 4 * n as u64 * rows;
    let mut c = Cost::default();
    match &step.op {
        Op::Embed { table, out, .. } => {
            c.weight_bytes = table.bytes(1) * rows;
            c.activation_bytes = f32s(out.width);
        }
        Op::RmsNorm { x, weight, out, .. } => {
            c.weight_bytes = 4 * weight.len as u64;
            c.activation_bytes = f32s(x.width + out.width);
        }
        Op::Linear { weight, x, out } => {
            c.weight_bytes = weight.bytes(weight.rows);
            c.activation_bytes = f32s(x.width + out.width);
            c.operations = 2 * weight.rows as u64 * weight.cols as u64 * rows;
        }
        Op::HeadNormRope { x, weight, inv_freq, .. } => {
            c.weight_bytes = 4 * (weight.len + inv_freq.len) as u64;
            c.activation_bytes = f32s(2 * x.width);
        }
        Op::KvWrite { k, v, kv } => {
            c.activation_bytes = f32s(k.width + v.width);
            c.kv_bytes = (2 * kv.kv_heads * kv.dim_stride() * kv.element.bytes()) as u64 * rows;
        }
        Op::Attend { q, kv, out, heads, window, .. } => {
            let (pairs, entries) = pass.keys(*window);
            c.activation_bytes = f32s(q.width + out.width);
            c.kv_bytes = entries * (2 * kv.kv_heads * kv.dim_stride() * kv.element.bytes()) as u64;
            c.operations = pairs * 4 * (heads * kv.head_dim) as u64;
        }
        Op::NormAdd { x, weight, residual, scalar, .. } => {
            c.weight_bytes = 4 * (weight.len + scalar.map_or(0, |scalar| scalar.len)) as u64;
            c.activation_bytes = f32s(x.width + 2 * residual.width);
        }
        Op::GatedGelu { gate, up, out } => c.activation_bytes = f32s(gate.width + up.width + out.width),
        Op::Route { scores, factors, chosen, .. } => {
            c.weight_bytes = 4 * factors.len as u64;
            c.activation_bytes = f32s(scores.width + 2 * chosen.width);
        }
        Op::ExpertLinear { weight, chosen, x, share, out } => {
            let experts = weight.rows / out.width;
            let read = distinct_experts(experts, chosen.width, pass.rows());
            c.weight_bytes = (read * weight.bytes(out.width) as f64) as u64;
            c.activation_bytes = f32s(x.width) / *share as u64 + f32s(out.width);
            c.operations = 2 * (out.width * weight.cols) as u64 * rows;
        }
        Op::ExpertSum { gains, out, .. } => c.activation_bytes = f32s(gains.width * (out.width + 1) + out.width),
        Op::SoftCap { x, .. } => c.activation_bytes = f32s(2 * x.width),
        Op::Argmax { x } => c.activation_bytes = f32s(x.width),
        Op::BlockSums { x, sums, tops, .. } => c.activation_bytes = f32s(x.width + sums.width + tops.width),
        // The parts with the candidates, and the output.
        Op::Candidates { tops, found, .. } => {
            c.activation_bytes = f32s(tops.width + choice::MOST_TOP_K * choice::BLOCK / choice::PARTS + found.width);
        }
    }
    c
}

impl Schedule {
    /// Cost of a whole pass, head included, in which every row takes its argmax.
    pub fn cost(&self, pass: PassShape) -> Cost {
        self.steps.iter().filter(|s| s.segment.is_in_all()).map(|s| step_cost(s, pass)).sum()
    }

    /// Cost of one step of the drafter for `sequences` sequences of `depth` positions.
    pub fn draft_cost(&self, sequences: usize, depth: usize) -> Cost {
        let pass = PassShape::Decode { sequences, depth: depth.saturating_sub(1) };
        self.steps[self.steps_of(Segment::Draft)].iter().map(|s| step_cost(s, pass)).sum()
    }
}
