//! Builds the schedule from a model's shape: the steps of the forward pass (`docs/gemma3.md`, `docs/gemma4.md`), layer by
//! layer.

use super::choice;
use super::kv::{KvLayer, KvLayout};
use super::layout::{ArenaLayout, StateLayout, WeightLayout};
use super::step::{AccessRange, KvType, Matrix, Op, Rows, Segment, Slot, Step};
use crate::model::{AttentionShape, LayerKind, Shape, TensorId, WeightFormat};

/// The sizes, besides the model's own, that a schedule is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Largest number of positions in a sequence.
    pub context: usize,
    /// Rows of the largest pass: the prefill chunk, or the batch if that is larger.
    pub max_rows: usize,
    /// Rows of logits that one replay of the head computes.
    pub head_rows: usize,
    /// Number of sequences, each with its own page tables.
    pub sequences: usize,
    /// Element type of the KV cache on a device.
    pub kv: KvType,
    /// Tokens that the KV cache has room for, over all sequences. `None`: room for every sequence's whole context.
    pub kv_tokens: Option<usize>,
}

/// The fixed list of steps of one forward pass, and the places of its operands. Every executor runs this list.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The model.
    pub shape: Shape,
    /// The sizes that the schedule was built for.
    pub extent: Extent,
    /// The weights' places.
    pub weights: WeightLayout,
    /// The places of activations and step state.
    pub arena: ArenaLayout,
    /// The pools of KV pages.
    pub kv: KvLayout,
    /// Each layer's part of its pool's pages.
    pub kv_layers: Vec<KvLayer>,
    /// The residual stream, `[max_rows, hidden]`: after a segment it holds that segment's output.
    pub residual: Slot,
    /// After the final norm, `[head_rows, hidden]`.
    pub normed: Slot,
    /// `[head_rows, vocab]`.
    pub logits: Slot,
    /// Each head row's sample request ([`choice::SampleRequest`]), `[head_rows, ASK_WORDS]` of u32.
    pub ask: Slot,
    /// Each head row's allowed tokens, a bit each, `[head_rows, vocab / 32]` of u32.
    pub allowed: Slot,
    /// Each head row's sample result ([`choice::SampleResult`]), `[head_rows, found_words]` of u32.
    pub found: Slot,
    /// All steps, in an order that satisfies `after`; a segment's steps are contiguous.
    pub steps: Vec<Step>,
}

/// The activation slots, each with its columns.
struct Slots {
    residual: Slot,
    /// Input of the next linear step: a normed residual.
    normed: Slot,
    /// Attention of the local layers.
    local: AttentionSlots,
    /// Attention of the global layers: the same slots if the widths are equal.
    global: AttentionSlots,
    /// Output of a sublayer, before its post-norm.
    sublayer: Slot,
    /// Gate and up side by side.
    gate_up: Slot,
    /// GELU(gate) * up.
    gated: Slot,
    /// Final norm's output, head rows only.
    head_in: Slot,
    logits: Slot,
    ask: Slot,
    allowed: Slot,
    /// The largest logit of each part of a block.
    tops: Slot,
    found: Slot,
}

/// The slots of attention in one kind of layer.
#[derive(Clone, Copy)]
struct AttentionSlots {
    /// Q, K and V side by side.
    qkv: Slot,
    /// Attention's output.
    attended: Slot,
}

impl AttentionSlots {
    fn place(arena: &mut ArenaLayout, names: [&'static str; 2], rows: usize, of: &AttentionShape) -> AttentionSlots {
        let [qkv, attended] = names;
        AttentionSlots {
            qkv: arena.add(qkv, rows, of.q_width() + 2 * of.kv_width()),
            attended: arena.add(attended, rows, of.q_width()),
        }
    }
}

impl Slots {
    fn place(arena: &mut ArenaLayout, shape: &Shape, extent: &Extent) -> Slots {
        let (rows, h, f) = (extent.max_rows, shape.hidden, shape.ffn);
        let widths = |of: &AttentionShape| (of.q_width(), of.kv_width());
        let (residual, normed) = (arena.add("residual", rows, h), arena.add("normed", rows, h));
        let local = AttentionSlots::place(arena, ["qkv", "attended"], rows, &shape.local);
        let global = match widths(&shape.local) == widths(&shape.global) {
            true => local,
            false => AttentionSlots::place(arena, ["global_qkv", "global_attended"], rows, &shape.global),
        };
        Slots {
            residual,
            normed,
            local,
            global,
            sublayer: arena.add("sublayer", rows, h),
            gate_up: arena.add("gate_up", rows, 2 * f),
            gated: arena.add("gated", rows, f),
            head_in: arena.add("head_in", extent.head_rows, h),
            logits: arena.add("logits", extent.head_rows, shape.vocab),
            ask: arena.add("ask", extent.head_rows, choice::ASK_WORDS),
            allowed: arena.add("allowed", extent.head_rows, choice::set_words(shape.vocab)),
            tops: arena.add("tops", extent.head_rows, choice::PARTS * choice::blocks(shape.vocab)),
            found: arena.add("found", extent.head_rows, choice::found_words(shape.vocab)),
        }
    }
}

/// Steps to search backwards for dependencies: about a layer and a half. Earlier steps are always reached through
/// nearer ones.
const REACH: usize = 24;

/// Appends steps and derives each one's dependencies from the ranges that it reads and writes.
struct Builder {
    steps: Vec<Step>,
}

impl Builder {
    fn push(&mut self, segment: Segment, label: &'static str, rows: Rows, op: Op) {
        let (reads, writes) = (op.reads(), op.writes());
        let meets = |a: &[AccessRange], b: &[AccessRange]| a.iter().any(|x| b.iter().any(|y| x.overlaps(*y)));
        let mut after: Vec<usize> = Vec::new();
        // Nearest first: a step that a nearer dependency already waits for is left out.
        for i in (self.steps.len().saturating_sub(REACH)..self.steps.len()).rev() {
            let (r, w) = (self.steps[i].op.reads(), self.steps[i].op.writes());
            let conflict = meets(&reads, &w) || meets(&writes, &w) || meets(&writes, &r);
            if conflict && !after.iter().any(|&a| self.waits_for(a, i)) {
                after.push(i);
            }
        }
        after.reverse();
        self.steps.push(Step { segment, label, op, rows, after });
    }

    /// Whether `step` waits for `earlier`, directly or through other steps.
    fn waits_for(&self, step: usize, earlier: usize) -> bool {
        self.steps[step].after.iter().any(|&a| a == earlier || (a > earlier && self.waits_for(a, earlier)))
    }
}

impl Schedule {
    /// The schedule of `shape` for `extent`. `formats` gives each tensor's weight format (see [`WeightLayout::new`]).
    pub fn build(shape: &Shape, extent: Extent, formats: impl Fn(TensorId) -> WeightFormat) -> Schedule {
        let weights = WeightLayout::new(shape, formats);
        let kv = KvLayout::new(shape, &extent);
        let state = StateLayout { max_rows: extent.max_rows, head_rows: extent.head_rows };
        let mut arena = ArenaLayout::new(state, &kv, extent.sequences);
        let slots = Slots::place(&mut arena, shape, &extent);
        let kv_layers = KvLayer::all(shape, &extent, &kv);

        let mut b = Builder { steps: Vec::with_capacity(15 * shape.layers.len() + 8) };
        push_embed(&mut b, shape, &weights, &slots);
        for &layer in &kv_layers {
            push_attention(&mut b, shape, &weights, layer, &slots);
            push_ffn(&mut b, shape, &weights, layer.layer, &slots);
        }
        push_head(&mut b, shape, &weights, &slots);
        push_choice(&mut b, &slots);

        Schedule {
            shape: shape.clone(),
            extent,
            weights,
            arena,
            kv,
            kv_layers,
            residual: slots.residual,
            normed: slots.head_in,
            logits: slots.logits,
            ask: slots.ask,
            allowed: slots.allowed,
            found: slots.found,
            steps: b.steps,
        }
    }

    /// The same schedule with elements of another type in the KV cache, and the same pages.
    pub fn with_kv(&self, kv: KvType) -> Schedule {
        let mut schedule = self.clone();
        schedule.extent.kv = kv;
        schedule.kv = self.kv.with_elements(self.extent.kv, kv);
        schedule.kv_layers.iter_mut().for_each(|layer| layer.element = kv);
        for step in &mut schedule.steps {
            if let Op::KvWrite { kv: layer, .. } | Op::Attend { kv: layer, .. } = &mut step.op {
                layer.element = kv;
            }
        }
        schedule
    }

    /// The segments of every pass in order: embed, each layer, head.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<> {
        let layers = self.shape.layers.len();
        std::iter::once(Segment::Embed).chain((0..layers).map(Segment::Layer)).chain([Segment::Head])
    }

    /// Indices of a segment's steps.
    pub fn steps_of(&self, segment: Segment) -> std::ops::Range<usize> {
        let first = self.steps.partition_point(|s| order(s.segment) < order(segment));
        let end = self.steps.partition_point(|s| order(s.segment) <= order(segment));
        first..end
    }

    /// Bytes of the KV cache on a device, all sequences.
    pub fn kv_bytes(&self) -> u64 {
        self.kv.bytes()
    }
}

fn order(segment: Segment) -> usize {
    match segment {
        Segment::Embed => 0,
        Segment::Layer(i) => 1 + i,
        Segment::Head => usize::MAX - 1,
        Segment::Choice => usize::MAX,
    }
}

fn push_embed(b: &mut Builder, shape: &Shape, weights: &WeightLayout, s: &Slots) {
    let scale = (shape.hidden as f32).sqrt();
    b.push(Segment::Embed, "embed", Rows::Pass, Op::Embed { table: weights.embedding, scale, out: s.residual });
    let weight = weights.layers[0].input_norm;
    let op = Op::RmsNorm { x: s.residual, weight, eps: shape.eps, out: s.normed };
    b.push(Segment::Embed, "input_norm", Rows::Pass, op);
}

fn push_attention(b: &mut Builder, shape: &Shape, weights: &WeightLayout, kv: KvLayer, s: &Slots) {
    let w = &weights.layers[kv.layer];
    let segment = Segment::Layer(kv.layer);
    let mut push = |label, op| b.push(segment, label, Rows::Pass, op);
    let kind = shape.layers[kv.layer];
    let (attention, vectors, eps) = (shape.attention(kind), weights.kind(kind), shape.eps);
    let AttentionSlots { qkv, attended } = match kind {
        LayerKind::Local => s.local,
        LayerKind::Global => s.global,
    };
    let (qw, kvw) = (attention.q_width(), attention.kv_width());
    let (q, k, v) = (qkv.columns(0, qw), qkv.columns(qw, kvw), qkv.columns(qw + kvw, kvw));
    let (heads, kv_heads, inv_freq) = (attention.heads, attention.kv_heads, vectors.rope);

    products(&w.qkv, s.normed, qkv).for_each(|op| push("qkv", op));
    push("q_norm_rope", Op::HeadNormRope { x: q, weight: w.q_norm, eps, inv_freq, heads });
    push("k_norm_rope", Op::HeadNormRope { x: k, weight: w.k_norm, eps, inv_freq, heads: kv_heads });
    if let Some([weight, inv_freq]) = vectors.plain {
        push("v_norm", Op::HeadNormRope { x: v, weight, eps, inv_freq, heads: kv_heads });
    }
    push("kv_write", Op::KvWrite { k, v, kv });
    let (scale, window) = (shape.query_pre_attn_scalar.powf(-0.5), attention.window);
    push("attend", Op::Attend { q, kv, out: attended, heads, scale, window });
    push("attention_out", Op::Linear { weight: w.o, x: attended, out: s.sublayer });
    let (x, weight, residual) = (s.sublayer, w.post_attention_norm, s.residual);
    push("post_attention", Op::NormAdd { x, weight, eps, residual, scalar: None });
    push("pre_ffn_norm", Op::RmsNorm { x: s.residual, weight: w.pre_ffn_norm, eps, out: s.normed });
}

/// The products of stacked tensors: one, or if their formats differ one for each run of a format, into its columns.
fn products(parts: &[Matrix], x: Slot, out: Slot) -> impl Iterator<Item = Op> + '_ {
    parts.iter().scan(0, move |first, &weight| {
        let out = out.columns(*first, weight.rows);
        *first += weight.rows;
        Some(Op::Linear { weight, x, out })
    })
}

fn push_ffn(b: &mut Builder, shape: &Shape, weights: &WeightLayout, layer: usize, s: &Slots) {
    let mut push = |label, op| b.push(Segment::Layer(layer), label, Rows::Pass, op);
    let w = &weights.layers[layer];
    let (gate, up) = (s.gate_up.columns(0, shape.ffn), s.gate_up.columns(shape.ffn, shape.ffn));
    products(&w.gate_up, s.normed, s.gate_up).for_each(|op| push("gate_up", op));
    push("gated_gelu", Op::GatedGelu { gate, up, out: s.gated });
    push("down", Op::Linear { weight: w.down, x: s.gated, out: s.sublayer });
    let (x, weight, residual) = (s.sublayer, w.post_ffn_norm, s.residual);
    push("post_ffn", Op::NormAdd { x, weight, eps: shape.eps, residual, scalar: w.scalar });
    // The next layer's input norm belongs to this segment, so that it can be fused with the residual add before it.
    if let Some(next) = weights.layers.get(layer + 1) {
        let op = Op::RmsNorm { x: s.residual, weight: next.input_norm, eps: shape.eps, out: s.normed };
        push("input_norm", op);
    }
}

fn push_head(b: &mut Builder, shape: &Shape, weights: &WeightLayout, s: &Slots) {
    let mut push = |label, op| b.push(Segment::Head, label, Rows::Head, op);
    let weight = weights.final_norm;
    push("final_norm", Op::RmsNorm { x: s.residual, weight, eps: shape.eps, out: s.head_in });
    push("head", Op::Linear { weight: weights.head, x: s.head_in, out: s.logits });
    if let Some(cap) = shape.softcap {
        push("soft_cap", Op::SoftCap { x: s.logits, cap });
    }
    push("argmax", Op::Argmax { x: s.logits });
}

fn push_choice(b: &mut Builder, s: &Slots) {
    let mut push = |label, op| b.push(Segment::Choice, label, Rows::Head, op);
    let Slots { logits: x, ask, allowed, tops, .. } = *s;
    let sums = s.found.columns(choice::SUMS, s.found.width - choice::SUMS);
    let found = s.found.columns(0, choice::SUMS);
    push("block_sums", Op::BlockSums { x, ask, allowed, sums, tops });
    push("candidates", Op::Candidates { x, ask, allowed, sums, tops, found });
}
