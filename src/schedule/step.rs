//! The steps of a forward pass, as plain data.
//!
//! A step names its kernel (the [`Op`]) and its operands: slots of the arena, weights, a layer's KV. The data that
//! changes from token to token (token ids, positions, the number of live rows) lies in the arena's step state instead.

use super::kv::KvLayer;
use crate::model::WeightFormat;

/// A buffer of weights on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightBuffer {
    /// The embedding table, the final norm and RoPE's frequencies.
    Embedding,
    /// The buffer with a layer's matrices and norms.
    Layer(usize),
    /// The head, unless it is tied to the embedding table.
    Head,
    /// The buffer with all of a drafter's tensors.
    Drafter,
}

/// A vector of f32: an RMSNorm's raw `w`, to which the norm adds 1, RoPE's inverse frequencies, or a layer's scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vector {
    /// The buffer that the vector is in.
    pub buffer: WeightBuffer,
    /// The offset of the first element from the buffer's start, in bytes.
    pub offset: u64,
    /// The number of elements.
    pub len: usize,
}

/// A matrix `[rows, cols]` in a weight format, with rows padded by that format's rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Matrix {
    /// The buffer that the matrix is in.
    pub buffer: WeightBuffer,
    /// Bytes from the buffer's start to row 0.
    pub offset: u64,
    /// Bytes from the buffer's start to row 0's scales. Unused by formats without scales.
    pub scales: u64,
    /// The number of output features.
    pub rows: usize,
    /// The number of input features.
    pub cols: usize,
    /// The format in which elements and scales are stored.
    pub format: WeightFormat,
}

impl Matrix {
    /// Bytes read for `rows` of the matrix's rows: padded elements and scales.
    pub fn bytes(&self, rows: usize) -> u64 {
        self.format.matrix_bytes(rows, self.cols)
    }

    /// The matrix of its rows `first .. first + rows`.
    pub fn rows_from(self, first: usize, rows: usize) -> Matrix {
        debug_assert!(first + rows <= self.rows);
        let behind = |at: u64, bytes: usize| at + (first * bytes) as u64;
        let offset = behind(self.offset, self.format.row_bytes(self.cols));
        Matrix { offset, scales: behind(self.scales, self.format.scale_bytes(self.cols)), rows, ..self }
    }
}

/// An activation in the arena: f32, `width` columns for each row of the pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slot {
    /// Bytes from the arena's start to row 0, column 0 of this view.
    pub offset: u64,
    /// The number of columns that this slot covers.
    pub width: usize,
    /// The distance from one row to the next, in elements.
    pub stride: usize,
}

impl Slot {
    /// The view of columns `first .. first + width`.
    pub fn columns(self, first: usize, width: usize) -> Slot {
        debug_assert!(first + width <= self.width);
        Slot { offset: self.offset + 4 * first as u64, width, stride: self.stride }
    }

    /// The offset of row `r` from the arena's start, in bytes.
    pub fn row(self, r: usize) -> u64 {
        self.offset + 4 * (r * self.stride) as u64
    }

    /// The view of the rows from `r` on.
    pub fn from_row(self, r: usize) -> Slot {
        Slot { offset: self.row(r), ..self }
    }
}

/// The element type of the KV cache. The reference executor always keeps f32, the CPU executor f16 or bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvType {
    /// IEEE half precision, 2 bytes.
    F16,
    /// bfloat16, 2 bytes: the type that the NPU multiplies.
    Bf16,
    /// IEEE single precision, 4 bytes.
    F32,
}

impl KvType {
    /// The size of one element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            KvType::F16 | KvType::Bf16 => 2,
            KvType::F32 => 4,
        }
    }

    /// Converts stored elements to f32.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            KvType::F16 => bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            KvType::Bf16 => bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            KvType::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        }
    }

    /// Converts f32 to the bytes of stored elements.
    pub fn encode(self, elements: &[f32]) -> Vec<u8> {
        match self {
            KvType::F16 => elements.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
            KvType::Bf16 => elements.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
            KvType::F32 => elements.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// The name in printed schedules: `f16`, `bf16`, `f32`.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::Bf16 => "bf16",
            KvType::F32 => "f32",
        }
    }
}

/// The rows of the pass that a step works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Every live row of the pass (state word `rows`).
    Pass,
    /// The rows whose logits are computed (state words `head_first`, `head_rows`).
    Head,
    /// The rows of a draft, one for each sequence (state word `rows`).
    Draft,
    /// As [`Rows::Draft`]; the step reads row `source[r]` of the last pass.
    DraftSource,
    /// Each row of the pass so many times, once for each of its experts, best expert first (state word `expert_rows`).
    Expert(usize),
}

/// A kernel with its operands. `r` runs over the step's rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Looks up embeddings: `out[r] = table[token[r]] * scale`.
    Embed {
        /// The table of token embeddings, `[vocab, hidden]`.
        table: Matrix,
        /// The factor of embeddings, `sqrt(hidden)`.
        scale: f32,
        /// The residual stream, `[rows, hidden]`.
        out: Slot,
    },
    /// `out[r] = x[r] * rsqrt(mean(x[r]^2) + eps) * (1 + weight)`. On [`Rows::Head`] it also gathers: it reads row
    /// `head_first + r` of `x`; on [`Rows::DraftSource`] row `source[r]`.
    RmsNorm {
        /// The input of the norm, `[rows, width]`.
        x: Slot,
        /// The norm's weights, `[width]`.
        weight: Vector,
        /// A small number that is added to the mean square.
        eps: f32,
        /// The normed rows, `[rows, width]`.
        out: Slot,
    },
    /// Multiplies rows by a matrix: `out[r] = weight · x[r]`.
    Linear {
        /// The matrix, `[out width, x width]`.
        weight: Matrix,
        /// The input rows, `[rows, weight.cols]`.
        x: Slot,
        /// The output rows, `[rows, weight.rows]`.
        out: Slot,
    },
    /// For each head of `x[r]`: RMSNorm over the head, then RoPE at `position[r] + ahead`; in place. A head whose norm
    /// has no weights, and which does not turn, has a weight and frequencies of zeros.
    HeadNormRope {
        /// Queries or keys, which are changed in place: `[rows, heads * head_dim]`, head-major.
        x: Slot,
        /// The norm's weights, `[head_dim]`.
        weight: Vector,
        /// A small number that is added to the mean square.
        eps: f32,
        /// RoPE's inverse frequencies, `[head_dim / 2]`.
        inv_freq: Vector,
        /// The number of heads side by side in `x`.
        heads: usize,
        /// 1 for a drafter's queries, which stand one position behind the keys that they see; else 0.
        ahead: u32,
    },
    /// Stores `k[r]` and `v[r]` at `position[r]` of `sequence[r]`.
    KvWrite {
        /// The keys, normed and rotated: `[rows, kv_heads * head_dim]`.
        k: Slot,
        /// The values, `[rows, kv_heads * head_dim]`.
        v: Slot,
        /// The layer of the KV cache that is written.
        kv: KvLayer,
    },
    /// `out[r] = softmax(q[r] · K * scale) V` per head over the visible positions of `sequence[r]`, up to
    /// `position[r]`.
    Attend {
        /// The queries, `[rows, heads * head_dim]`.
        q: Slot,
        /// The keys and values that the rows attend to.
        kv: KvLayer,
        /// The result of attention, `[rows, heads * head_dim]`.
        out: Slot,
        /// Query heads; query head j reads KV head `j / (heads / kv_heads)`.
        heads: usize,
        /// The factor of the scores, before softmax.
        scale: f32,
        /// Number of visible keys, the query's own included; `None` for all.
        window: Option<usize>,
    },
    /// `residual[r] = (residual[r] + RmsNorm(x[r]; weight)) * scalar`.
    NormAdd {
        /// The input of the norm, `[rows, width]`.
        x: Slot,
        /// The norm's weights, `[width]`.
        weight: Vector,
        /// A small number that is added to the mean square.
        eps: f32,
        /// The residual stream, to which the normed rows are added: `[rows, width]`.
        residual: Slot,
        /// The number that multiplies the sum, `[1]`; `None` for 1.
        scalar: Option<Vector>,
    },
    /// Computes the gated product: `out[r] = gelu_tanh(gate[r]) * up[r]`.
    GatedGelu {
        /// The output of the gate projection, `[rows, ffn]`.
        gate: Slot,
        /// The output of the up projection, `[rows, ffn]`.
        up: Slot,
        /// The gated product, `[rows, ffn]`.
        out: Slot,
    },
    /// The `used` largest of `scores[r]`, the largest first, the lower index first among equals: their indices in
    /// `chosen[r]`, and in `gains[r]` the softmax of their scores times `scale`, times their experts' factors.
    Route {
        /// The router's scores, `[rows, experts]`.
        scores: Slot,
        /// The factor of the scores.
        scale: f32,
        /// The factor of each expert's gain, `[experts]`.
        factors: Vector,
        /// The indices of the chosen experts, `[rows, used]` of u32.
        chosen: Slot,
        /// The gains of the chosen experts, `[rows, used]`.
        gains: Slot,
        /// State word to which the experts of head row 0 go, too; the next row's follow (`StateLayout::chosen`).
        kept: Option<usize>,
    },
    /// `out[r] = weight[e] · x[r / share]`, where e is the expert of expert row r.
    ExpertLinear {
        /// `[experts * out width, x width]`, expert by expert.
        weight: Matrix,
        /// The indices of the chosen experts, as [`Op::Route`] has written them.
        chosen: Slot,
        /// The inputs of the experts, `[expert rows / share, weight.cols]`.
        x: Slot,
        /// Expert rows that read one row of `x`: all of a row of the pass, or 1.
        share: usize,
        /// The outputs of the experts, `[expert rows, weight.rows / experts]`.
        out: Slot,
    },
    /// `out[r]` = the sum of `gains[r][i] * x[r * used + i]` over `i < used`, in this order.
    ExpertSum {
        /// The outputs of the experts, `[expert rows, width]`.
        x: Slot,
        /// The gains of the chosen experts, as [`Op::Route`] has written them.
        gains: Slot,
        /// The weighted sum of the experts' outputs, `[rows, width]`.
        out: Slot,
    },
    /// Caps logits in place: `x[r] = cap * tanh(x[r] / cap)`.
    SoftCap {
        /// The logits, `[rows, width]`.
        x: Slot,
        /// The bound on a logit's magnitude.
        cap: f32,
    },
    /// `next[r] = argmax(x[r])`, written to the step state. The lowest index wins among equals.
    Argmax {
        /// The logits, `[rows, vocab]`.
        x: Slot,
    },
    /// For each block of `x[r]`: the largest eligible logit and the sum of `exp(scale * (logit - largest))` (see
    /// [`super::choice::SampleResult::sums`]), and the largest logit of each part. Rows without a sample request are
    /// skipped.
    BlockSums {
        /// The logits, `[rows, vocab]`.
        x: Slot,
        /// `[rows, ASK_WORDS]` of u32: the sample requests.
        ask: Slot,
        /// `[rows, vocab / 32]` of u32: the set of allowed tokens.
        allowed: Slot,
        /// The largest logit and the sum of each block, `[rows, blocks, 2]`.
        sums: Slot,
        /// The largest logit of each part of a block, `[rows, blocks, PARTS]`; −∞ for a part without an eligible token.
        tops: Slot,
    },
    /// The list, the edited tokens' logits and the picked block of `x[r]` ([`super::choice::SampleResult`]). The list's
    /// floor is the `top_k`-th largest part; if that lists too many, the `top_k`-th largest logit. If the request is
    /// for the likeliest token alone ([`super::choice::SampleRequest::set`]), `next[r]` becomes that token.
    Candidates {
        /// The logits, `[rows, vocab]`.
        x: Slot,
        /// The sample requests, as in [`Op::BlockSums`].
        ask: Slot,
        /// The sets of allowed tokens, as in [`Op::BlockSums`].
        allowed: Slot,
        /// The sums that [`Op::BlockSums`] has written.
        sums: Slot,
        /// The largest logits that [`Op::BlockSums`] has written.
        tops: Slot,
        /// `[rows, SUMS]` of u32: the sample result without the sums.
        found: Slot,
    },
}

/// A range that a step reads or writes. Dependencies between steps are derived from these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AccessRange {
    /// Columns of an arena slot: byte offset of row 0, row stride in bytes, width in bytes.
    Arena(u64, u64, u64),
    /// The keys and values of the layer with this index.
    Kv(usize),
    /// The words of the step state with each head row's next token.
    Next,
}

impl AccessRange {
    /// The range of all columns of a slot.
    pub(crate) fn slot(s: Slot) -> AccessRange {
        AccessRange::Arena(s.offset, 4 * s.stride as u64, 4 * s.width as u64)
    }

    /// True if a write of this range overwrites all of `other`.
    pub fn covers(self, other: AccessRange) -> bool {
        match (self, other) {
            (AccessRange::Arena(a, sa, wa), AccessRange::Arena(b, sb, wb)) => sa == sb && a <= b && b + wb <= a + wa,
            _ => self == other,
        }
    }

    /// True if both ranges can have a byte in common, in any rows.
    pub fn overlaps(self, other: AccessRange) -> bool {
        match (self, other) {
            (AccessRange::Kv(a), AccessRange::Kv(b)) => a == b,
            (AccessRange::Next, AccessRange::Next) => true,
            (AccessRange::Arena(a, sa, wa), AccessRange::Arena(b, sb, wb)) => {
                if sa == sb && sa > 0 && a.abs_diff(b) < sa {
                    // Two views of one slot: columns decide (views never wrap into the next row).
                    a < b + wb && b < a + wa
                } else {
                    // Slots are disjoint allocations; the same start means the same slot.
                    a == b
                }
            }
            _ => false,
        }
    }
}

impl Op {
    /// The kernel's name, as `plan --schedule` and `bench --kernels` print it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::RmsNorm { .. } => "rms_norm",
            Op::Linear { .. } => "linear",
            Op::HeadNormRope { .. } => "head_norm_rope",
            Op::KvWrite { .. } => "kv_write",
            Op::Attend { .. } => "attend",
            Op::NormAdd { .. } => "norm_add",
            Op::GatedGelu { .. } => "gated_gelu",
            Op::Route { .. } => "route",
            Op::ExpertLinear { .. } => "expert_linear",
            Op::ExpertSum { .. } => "expert_sum",
            Op::SoftCap { .. } => "soft_cap",
            Op::Argmax { .. } => "argmax",
            Op::BlockSums { .. } => "block_sums",
            Op::Candidates { .. } => "candidates",
        }
    }

    /// The operands' sizes, as `plan --schedule` prints them.
    pub fn operands(&self) -> String {
        let matrix = |m: &Matrix| format!("{} [{}, {}]", m.format.name(), m.rows, m.cols);
        match self {
            Op::Embed { table, .. } => matrix(table),
            Op::RmsNorm { x, .. }
            | Op::NormAdd { x, .. }
            | Op::SoftCap { x, .. }
            | Op::Argmax { x }
            | Op::BlockSums { x, .. }
            | Op::Candidates { x, .. } => format!("f32 [{}]", x.width),
            Op::Linear { weight, .. } => matrix(weight),
            Op::HeadNormRope { x, heads, .. } => format!("f32 [{heads}, {}]", x.width / heads),
            Op::KvWrite { kv, .. } => format!("{} 2 x [{}, {}]", kv.element.name(), kv.kv_heads, kv.head_dim),
            Op::Attend { kv, window, heads, .. } => {
                let keys = window.map_or_else(|| "all".into(), |w| format!("{w}"));
                format!("{heads} heads x {}, keys {keys}", kv.head_dim)
            }
            Op::GatedGelu { out, .. } => format!("f32 2 x [{}]", out.width),
            Op::Route { scores, chosen, .. } => format!("{} of {}", chosen.width, scores.width),
            Op::ExpertLinear { weight, out, .. } => {
                format!("{} {} x [{}, {}]", weight.format.name(), weight.rows / out.width, out.width, weight.cols)
            }
            Op::ExpertSum { out, gains, .. } => format!("f32 {} x [{}]", gains.width, out.width),
        }
    }

    /// The tensors of the model that the step reads: the buffer of each, and the offset of its first byte.
    pub fn weights(&self) -> Vec<(WeightBuffer, u64)> {
        let matrix = |m: &Matrix| (m.buffer, m.offset);
        let vector = |v: &Vector| (v.buffer, v.offset);
        match self {
            Op::Embed { table, .. } => vec![matrix(table)],
            Op::Linear { weight, .. } | Op::ExpertLinear { weight, .. } => vec![matrix(weight)],
            Op::Route { factors, .. } => vec![vector(factors)],
            Op::RmsNorm { weight, .. } => vec![vector(weight)],
            Op::NormAdd { weight, scalar, .. } => [weight].into_iter().chain(scalar).map(vector).collect(),
            Op::HeadNormRope { weight, inv_freq, .. } => vec![vector(weight), vector(inv_freq)],
            Op::KvWrite { .. }
            | Op::Attend { .. }
            | Op::GatedGelu { .. }
            | Op::ExpertSum { .. }
            | Op::SoftCap { .. }
            | Op::Argmax { .. }
            | Op::BlockSums { .. }
            | Op::Candidates { .. } => vec![],
        }
    }

    /// The ranges that the step reads, without weights and step state.
    pub fn reads(&self) -> Vec<AccessRange> {
        let s = AccessRange::slot;
        match *self {
            Op::Embed { .. } => vec![],
            Op::RmsNorm { x, .. }
            | Op::Linear { x, .. }
            | Op::HeadNormRope { x, .. }
            | Op::SoftCap { x, .. }
            | Op::Argmax { x } => vec![s(x)],
            Op::KvWrite { k, v, .. } => vec![s(k), s(v)],
            Op::Attend { q, kv, .. } => vec![s(q), AccessRange::Kv(kv.layer)],
            Op::NormAdd { x, residual, .. } => vec![s(x), s(residual)],
            Op::GatedGelu { gate, up, .. } => vec![s(gate), s(up)],
            Op::Route { scores, .. } => vec![s(scores)],
            Op::ExpertLinear { chosen, x, .. } => vec![s(chosen), s(x)],
            Op::ExpertSum { x, gains, .. } => vec![s(x), s(gains)],
            Op::BlockSums { x, ask, allowed, .. } => vec![s(x), s(ask), s(allowed)],
            Op::Candidates { x, ask, allowed, sums, tops, .. } => vec![s(x), s(ask), s(allowed), s(sums), s(tops)],
        }
    }

    /// The ranges of the arena and of the KV cache that the step writes.
    pub fn writes(&self) -> Vec<AccessRange> {
        let s = AccessRange::slot;
        match *self {
            Op::Embed { out, .. }
            | Op::RmsNorm { out, .. }
            | Op::Linear { out, .. }
            | Op::Attend { out, .. }
            | Op::GatedGelu { out, .. }
            | Op::ExpertLinear { out, .. }
            | Op::ExpertSum { out, .. } => vec![s(out)],
            Op::Route { chosen, gains, .. } => vec![s(chosen), s(gains)],
            Op::HeadNormRope { x, .. } | Op::SoftCap { x, .. } => vec![s(x)],
            Op::KvWrite { kv, .. } => vec![AccessRange::Kv(kv.layer)],
            Op::NormAdd { residual, .. } => vec![s(residual)],
            Op::Argmax { .. } => vec![AccessRange::Next],
            Op::BlockSums { sums, tops, .. } => vec![s(sums), s(tops)],
            Op::Candidates { found, .. } => vec![s(found), AccessRange::Next],
        }
    }
}

/// The part of the pass that a step belongs to. Each segment is baked into one list of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Token ids to the residual stream, and the first layer's input norm.
    Embed,
    /// The layer with this index.
    Layer(usize),
    /// Final norm to argmax, on the rows whose logits are computed.
    Head,
    /// The sample results for choices other than argmax. Only passes with a sample request run it, so it is not among
    /// [`super::Schedule::segments`].
    Choice,
    /// One step of a drafter: a token and a state of the model to the next token and state. Only a draft runs it, so it
    /// is not among [`super::Schedule::segments`].
    Draft,
}

impl Segment {
    /// True if every pass with head rows runs the segment.
    pub fn is_in_all(self) -> bool {
        !matches!(self, Segment::Choice | Segment::Draft)
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Segment::Embed => f.write_str("embed"),
            Segment::Layer(i) => write!(f, "layer {i}"),
            Segment::Head => f.write_str("head"),
            Segment::Choice => f.write_str("choice"),
            Segment::Draft => f.write_str("draft"),
        }
    }
}

impl Step {
    /// The rows of the slot that a product reads: those of the pass, where all experts of a row share them.
    pub fn input_rows(&self) -> Rows {
        match self.op {
            Op::ExpertLinear { share: 2.., .. } => Rows::Pass,
            _ => self.rows,
        }
    }
}

/// A step of the schedule: an operation, its rows and the steps before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The segment of the pass that the step belongs to.
    pub segment: Segment,
    /// The step's name within the segment: `qkv`, `post_attention`, ….
    pub label: &'static str,
    /// The operation, with its operands.
    pub op: Op,
    /// The rows that the step works on.
    pub rows: Rows,
    /// Indices of the earlier steps that this step waits for.
    pub after: Vec<usize>,
}
