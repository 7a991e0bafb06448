//! Builds the schedule from a model's shape: the steps of the forward pass (`docs/gemma3.md`, `docs/gemma4.md`), layer
//! by layer.

use super::choice;
use super::kv::{KvLayer, KvLayout};
use super::layout::{ArenaLayout, ExpertWeights, LayerWeights, StateLayout, WeightLayout};
use super::step::{AccessRange, KvType, Matrix, Op, Rows, Segment, Slot, Step};
use crate::model::{AttentionShape, Experts, LayerKind, Shape, TensorId, WeightFormat};

/// The sizes, besides the model's own, that a schedule is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The most positions that a sequence may have.
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
    /// The model's layers, heads and sizes.
    pub shape: Shape,
    /// The sizes that the schedule was built for.
    pub extent: Extent,
    /// The offsets of all weights in their buffers.
    pub weights: WeightLayout,
    /// The offsets of activations and step state in the arena.
    pub arena: ArenaLayout,
    /// The pools of pages that the KV cache consists of.
    pub kv: KvLayout,
    /// For each layer, the offset of its keys and values in its pool's pages.
    pub kv_layers: Vec<KvLayer>,
    /// The residual stream, `[max_rows, hidden]`: after a segment it holds that segment's output.
    pub residual: Slot,
    /// The residual stream after the final norm, `[head_rows, hidden]`.
    pub normed: Slot,
    /// The logits of the head rows, `[head_rows, vocab]`.
    pub logits: Slot,
    /// Each head row's sample request ([`choice::SampleRequest`]), `[head_rows, ASK_WORDS]` of u32.
    pub ask: Slot,
    /// Each head row's allowed tokens, a bit each, `[head_rows, vocab / 32]` of u32.
    pub allowed: Slot,
    /// Each head row's sample result ([`choice::SampleResult`]), `[head_rows, found_words]` of u32.
    pub found: Slot,
    /// All steps, in an order that satisfies `after`; a segment's steps are contiguous.
    pub steps: Vec<Step>,
    /// The model that drafts for this one, from its keys and values.
    pub drafter: Option<Drafter>,
}

/// The slots and the weights of a drafter, which a schedule runs after its model.
#[derive(Debug, Clone, PartialEq)]
pub struct Drafter {
    /// The drafter's own layers, heads and sizes.
    pub shape: Shape,
    /// Most rows of a draft, each of another sequence.
    pub rows: usize,
    /// The state that the next step begins with, `[rows, hidden of the model]`.
    pub state: Slot,
}

/// The most tokens that a drafter drafts at a time. With the row before them, they fill a pass of 8 rows.
pub const DRAFT_STEPS: usize = 7;
/// The most sequences that a drafter, or a draft model, drafts for at once. With more, passes without drafts use the
/// device well.
pub const DRAFT_SEQUENCES: usize = 8;

/// The slots of all activations in the arena.
struct Slots {
    layers: LayerSlots,
    /// The final norm's output, for head rows only.
    head_in: Slot,
    logits: Slot,
    ask: Slot,
    allowed: Slot,
    /// The largest eligible logit of each part of a block, for sampling.
    tops: Slot,
    found: Slot,
}

/// The activation slots of a stack of layers.
#[derive(Clone, Copy)]
struct LayerSlots {
    residual: Slot,
    /// Input of the next linear step: a normed residual.
    normed: Slot,
    /// The slots of attention in local layers.
    local: AttentionSlots,
    /// Attention of the global layers: the same slots if the widths are equal.
    global: AttentionSlots,
    /// The output of a sublayer, before the norm after it.
    sublayer: Slot,
    /// The outputs of gate and up, side by side.
    gate_up: Slot,
    /// The gated product, GELU(gate) * up.
    gated: Slot,
    /// The experts; `None` if the model has none.
    experts: Option<ExpertSlots>,
}

/// The activation slots of the experts. Those of expert rows have a row for each expert that a row uses.
#[derive(Clone, Copy)]
struct ExpertSlots {
    /// The input of the router.
    router_in: Slot,
    /// The router's score of each expert.
    scores: Slot,
    /// The indices of the experts that each row uses, as u32.
    chosen: Slot,
    /// The factors by which the chosen experts' outputs are multiplied.
    gains: Slot,
    /// The input of the experts.
    input: Slot,
    /// The outputs of the experts' gate and up, side by side; expert rows.
    gate_up: Slot,
    /// The experts' gated product, GELU(gate) * up; expert rows.
    gated: Slot,
    /// The output of each expert, before their sum; expert rows.
    parts: Slot,
    /// The sum of the experts' outputs.
    sum: Slot,
    /// The dense half's output after its norm, and then the sum of both halves.
    halves: Slot,
    /// State word for the experts of head rows in the last layer.
    kept: usize,
}

impl ExpertSlots {
    fn place(arena: &mut ArenaLayout, rows: usize, hidden: usize, experts: Experts) -> ExpertSlots {
        let Experts { count, used, ffn } = experts;
        ExpertSlots {
            router_in: arena.add("router_in", rows, hidden),
            scores: arena.add("scores", rows, count),
            chosen: arena.add("chosen", rows, used),
            gains: arena.add("gains", rows, used),
            input: arena.add("expert_in", rows, hidden),
            gate_up: arena.add("expert_gate_up", rows * used, 2 * ffn),
            gated: arena.add("expert_gated", rows * used, ffn),
            parts: arena.add("expert_parts", rows * used, hidden),
            sum: arena.add("expert_sum", rows, hidden),
            halves: arena.add("halves", rows, hidden),
            kept: arena.state.chosen(),
        }
    }
}

/// The slots of attention in one kind of layer.
#[derive(Clone, Copy)]
struct AttentionSlots {
    /// The projections Q, K and V, side by side.
    qkv: Slot,
    /// The output of attention, before its projection.
    attended: Slot,
}

impl LayerSlots {
    /// The slots' names are those of `names`, in the order of the fields; the global layers' follow the local ones'.
    fn place(arena: &mut ArenaLayout, names: [&'static str; 9], rows: usize, shape: &Shape) -> LayerSlots {
        let [residual, normed, qkv, attended, global_qkv, global_attended, sublayer, gate_up, gated] = names;
        let (h, f) = (shape.hidden, shape.ffn);
        let widths = |of: &AttentionShape| {
            let kv = if shape.backbone.is_some() { 0 } else { of.kv_width() };
            [of.q_width() + 2 * kv, of.q_width()]
        };
        let (residual, normed) = (arena.add(residual, rows, h), arena.add(normed, rows, h));
        let mut attention = |names: [&'static str; 2], [qkv, attended]: [usize; 2]| AttentionSlots {
            qkv: arena.add(names[0], rows, qkv),
            attended: arena.add(names[1], rows, attended),
        };
        let (of_local, of_global) = (widths(&shape.local), widths(&shape.global));
        let local = attention([qkv, attended], of_local);
        let global = match of_local == of_global {
            true => local,
            false => attention([global_qkv, global_attended], of_global),
        };
        let sublayer = arena.add(sublayer, rows, h);
        LayerSlots {
            residual,
            normed,
            local,
            global,
            sublayer,
            gate_up: arena.add(gate_up, rows, 2 * f),
            gated: arena.add(gated, rows, f),
            experts: shape.experts.map(|experts| ExpertSlots::place(arena, rows, h, experts)),
        }
    }

    fn attention(&self, kind: LayerKind) -> AttentionSlots {
        match kind {
            LayerKind::Local => self.local,
            LayerKind::Global => self.global,
        }
    }
}

impl Slots {
    fn place(arena: &mut ArenaLayout, shape: &Shape, extent: &Extent) -> Slots {
        const NAMES: [&str; 9] =
            ["residual", "normed", "qkv", "attended", "global_qkv", "global_attended", "sublayer", "gate_up", "gated"];
        Slots {
            layers: LayerSlots::place(arena, NAMES, extent.max_rows, shape),
            head_in: arena.add("head_in", extent.head_rows, shape.hidden),
            logits: arena.add("logits", extent.head_rows, shape.vocab),
            ask: arena.add("ask", extent.head_rows, choice::ASK_WORDS),
            allowed: arena.add("allowed", extent.head_rows, choice::set_words(shape.vocab)),
            tops: arena.add("tops", extent.head_rows, choice::PARTS * choice::blocks(shape.vocab)),
            found: arena.add("found", extent.head_rows, choice::found_words(shape.vocab)),
        }
    }
}

/// The activation slots of a drafter.
struct DraftSlots {
    layers: LayerSlots,
    /// The last token's embedding and the state, side by side, each as wide as the model.
    input: Slot,
    /// The output of the drafter's final norm.
    head_in: Slot,
}

impl DraftSlots {
    fn place(arena: &mut ArenaLayout, drafter: &Shape, backbone: usize, rows: usize) -> DraftSlots {
        const NAMES: [&str; 9] = [
            "draft_residual",
            "draft_normed",
            "draft_q",
            "draft_attended",
            "draft_global_q",
            "draft_global_attended",
            "draft_sublayer",
            "draft_gate_up",
            "draft_gated",
        ];
        DraftSlots {
            layers: LayerSlots::place(arena, NAMES, rows, drafter),
            input: arena.add("draft_in", rows, 2 * backbone),
            head_in: arena.add("draft_out", rows, drafter.hidden),
        }
    }
}

/// Steps to search backwards for dependencies: about a layer and a half. Earlier steps are always reached through
/// nearer ones.
const REACH: usize = 40;

/// Appends steps and derives each one's dependencies from the ranges that it reads and writes.
#[derive(Default)]
struct Builder {
    steps: Vec<Step>,
    /// The ranges that each step reads, and those that it writes.
    ranges: Vec<[Vec<AccessRange>; 2]>,
    /// The steps that each step waits for, directly or through others. Bit d stands for the step d + 1 before it.
    waits: Vec<u64>,
}

impl Builder {
    fn push(&mut self, segment: Segment, label: &'static str, rows: Rows, op: Op) {
        let (reads, writes) = (op.reads(), op.writes());
        let meets = |a: &[AccessRange], b: &[AccessRange]| a.iter().any(|x| b.iter().any(|y| x.overlaps(*y)));
        let (mut after, mut waits) = (Vec::new(), 0u64);
        // Nearest first: a step that a nearer dependency already waits for is left out.
        for (back, ([r, w], earlier)) in self.ranges.iter().zip(&self.waits).rev().take(REACH).enumerate() {
            let is_waited_for = waits >> back & 1 == 1;
            if !is_waited_for && (meets(&reads, w) || meets(&writes, w) || meets(&writes, r)) {
                after.push(self.steps.len() - 1 - back);
                waits |= (earlier << 1 | 1) << back;
            }
        }
        after.reverse();
        self.steps.push(Step { segment, label, op, rows, after });
        self.ranges.push([reads, writes]);
        self.waits.push(waits);
    }
}

impl Schedule {
    /// The schedule of `shape` for `extent`. `formats` gives each tensor's weight format (see [`WeightLayout::new`]).
    pub fn build(shape: &Shape, extent: Extent, formats: impl Fn(TensorId) -> WeightFormat) -> Schedule {
        Schedule::build_with(shape, extent, formats, None)
    }

    /// [`Schedule::build`] with a drafter: its shape ([`Shape::backbone`]), and the weight formats of its own tensors.
    pub fn build_with(
        shape: &Shape,
        extent: Extent,
        formats: impl Fn(TensorId) -> WeightFormat,
        drafter: Option<(&Shape, &dyn Fn(TensorId) -> WeightFormat)>,
    ) -> Schedule {
        let mut weights = WeightLayout::new(shape, formats);
        if let Some((drafter, formats)) = drafter {
            weights = weights.with_drafter(drafter, formats);
        }
        let kv = KvLayout::new(shape, &extent);
        let draft_rows = drafter.map_or(0, |_| extent.sequences.min(extent.head_rows).min(DRAFT_SEQUENCES));
        let used_experts = shape.experts.map_or(0, |experts| experts.used);
        let state = StateLayout { max_rows: extent.max_rows, head_rows: extent.head_rows, draft_rows, used_experts };
        let mut arena = ArenaLayout::new(state, &kv, extent.sequences);
        let slots = Slots::place(&mut arena, shape, &extent);
        let kv_layers = KvLayer::all(shape, &extent, &kv);

        let mut b = Builder::default();
        push_embed(&mut b, shape, &weights, &slots);
        let stack = Stack { shape, layers: &weights.layers, weights: &weights, slots: &slots.layers, rows: Rows::Pass };
        for &layer in &kv_layers {
            stack.push_attention(&mut b, layer.layer, layer);
            stack.push_ffn(&mut b, layer.layer);
        }
        push_head(&mut b, shape, &weights, &slots);
        push_choice(&mut b, &slots);
        let drafter = drafter.map(|(drafter, _)| {
            let of = DraftSlots::place(&mut arena, drafter, shape.hidden, draft_rows);
            push_draft(&mut b, [shape, drafter], &weights, &kv_layers, &slots, &of);
            let state = of.input.columns(shape.hidden, shape.hidden);
            Drafter { shape: drafter.clone(), rows: draft_rows, state }
        });

        Schedule {
            shape: shape.clone(),
            extent,
            weights,
            arena,
            kv,
            kv_layers,
            residual: slots.layers.residual,
            normed: slots.head_in,
            logits: slots.logits,
            ask: slots.ask,
            allowed: slots.allowed,
            found: slots.found,
            steps: b.steps,
            drafter,
        }
    }

    /// The same schedule and the same pages, with `kv` as the type of the KV cache's elements.
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

    /// The indices of the steps that belong to a segment.
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
        Segment::Head => usize::MAX - 2,
        Segment::Choice => usize::MAX - 1,
        Segment::Draft => usize::MAX,
    }
}

fn push_embed(b: &mut Builder, shape: &Shape, weights: &WeightLayout, s: &Slots) {
    let scale = (shape.hidden as f32).sqrt();
    let LayerSlots { residual: out, normed, .. } = s.layers;
    b.push(Segment::Embed, "embed", Rows::Pass, Op::Embed { table: weights.embedding, scale, out });
    let weight = weights.layers[0].input_norm;
    let op = Op::RmsNorm { x: out, weight, eps: shape.eps, out: normed };
    b.push(Segment::Embed, "input_norm", Rows::Pass, op);
}

/// A stack of layers: a model's or a drafter's.
struct Stack<'a> {
    shape: &'a Shape,
    layers: &'a [LayerWeights],
    /// The weights of the whole model, with the vectors of each kind of layer.
    weights: &'a WeightLayout,
    slots: &'a LayerSlots,
    rows: Rows,
}

impl Stack<'_> {
    fn push(&self, b: &mut Builder, layer: usize, label: &'static str, op: Op) {
        self.push_rows(b, layer, label, self.rows, op);
    }

    fn push_rows(&self, b: &mut Builder, layer: usize, label: &'static str, rows: Rows, op: Op) {
        let segment = if self.rows == Rows::Pass { Segment::Layer(layer) } else { Segment::Draft };
        b.push(segment, label, rows, op);
    }

    /// Attention of a layer, with its own keys and values in `kv`.
    fn push_attention(&self, b: &mut Builder, layer: usize, kv: KvLayer) {
        let Stack { shape, weights, slots, .. } = *self;
        let w = &self.layers[layer];
        let kind = shape.layers[layer];
        let (attention, vectors, eps) = (shape.attention(kind), weights.kind(kind), shape.eps);
        let AttentionSlots { qkv, .. } = slots.attention(kind);
        let (qw, kvw) = (attention.q_width(), attention.kv_width());
        let (q, k, v) = (qkv.columns(0, qw), qkv.columns(qw, kvw), qkv.columns(qw + kvw, kvw));
        let (heads, kv_heads, inv_freq, ahead) = (attention.heads, attention.kv_heads, vectors.rope, 0);

        products(&w.qkv, slots.normed, qkv).for_each(|op| self.push(b, layer, "qkv", op));
        self.push(b, layer, "q_norm_rope", Op::HeadNormRope { x: q, weight: w.q_norm, eps, inv_freq, heads, ahead });
        if let Some(weight) = w.k_norm {
            let op = Op::HeadNormRope { x: k, weight, eps, inv_freq, heads: kv_heads, ahead };
            self.push(b, layer, "k_norm_rope", op);
        }
        if let Some([weight, inv_freq]) = vectors.plain {
            let op = Op::HeadNormRope { x: v, weight, eps, inv_freq, heads: kv_heads, ahead };
            self.push(b, layer, "v_norm", op);
        }
        self.push(b, layer, "kv_write", Op::KvWrite { k, v, kv });
        self.push_attend(b, layer, q, kv, attention.window);
    }

    /// Attention of a drafter's layer to keys and values of its model. A row stands at the last cached position, one
    /// behind the token that it drafts after; the window is that token's.
    fn push_draft_attention(&self, b: &mut Builder, layer: usize, kv: KvLayer) {
        let Stack { shape, weights, slots, .. } = *self;
        let w = &self.layers[layer];
        let kind = shape.layers[layer];
        let (attention, inv_freq, eps) = (shape.attention(kind), weights.kind(kind).rope, shape.eps);
        let AttentionSlots { qkv: q, .. } = slots.attention(kind);
        products(&w.qkv, slots.normed, q).for_each(|op| self.push(b, layer, "q", op));
        let op = Op::HeadNormRope { x: q, weight: w.q_norm, eps, inv_freq, heads: attention.heads, ahead: 1 };
        self.push(b, layer, "q_norm_rope", op);
        self.push_attend(b, layer, q, kv, attention.window.map(|window| window - 1));
    }

    fn push_attend(&self, b: &mut Builder, layer: usize, q: Slot, kv: KvLayer, window: Option<usize>) {
        let Stack { shape, slots, .. } = *self;
        let (w, kind) = (&self.layers[layer], shape.layers[layer]);
        let (AttentionSlots { attended, .. }, heads) = (slots.attention(kind), shape.attention(kind).heads);
        let (scale, eps) = (shape.query_pre_attn_scalar.powf(-0.5), shape.eps);
        self.push(b, layer, "attend", Op::Attend { q, kv, out: attended, heads, scale, window });
        self.push(b, layer, "attention_out", Op::Linear { weight: w.o, x: attended, out: slots.sublayer });
        let (x, weight, residual) = (slots.sublayer, w.post_attention_norm, slots.residual);
        self.push(b, layer, "post_attention", Op::NormAdd { x, weight, eps, residual, scalar: None });
        let op = Op::RmsNorm { x: residual, weight: w.pre_ffn_norm, eps, out: slots.normed };
        self.push(b, layer, "pre_ffn_norm", op);
    }

    fn push_ffn(&self, b: &mut Builder, layer: usize) {
        let Stack { shape, layers, slots: s, .. } = *self;
        let w = &layers[layer];
        let experts = w.experts.as_ref().zip(s.experts);
        if let Some((experts, slots)) = experts {
            self.push_route(b, layer, experts, slots);
        }
        let (gate, up) = (s.gate_up.columns(0, shape.ffn), s.gate_up.columns(shape.ffn, shape.ffn));
        products(&w.gate_up, s.normed, s.gate_up).for_each(|op| self.push(b, layer, "gate_up", op));
        self.push(b, layer, "gated_gelu", Op::GatedGelu { gate, up, out: s.gated });
        self.push(b, layer, "down", Op::Linear { weight: w.down, x: s.gated, out: s.sublayer });
        let x = match experts {
            Some((experts, slots)) => self.push_experts(b, layer, experts, slots),
            None => s.sublayer,
        };
        let (weight, residual) = (w.post_ffn_norm, s.residual);
        let op = Op::NormAdd { x, weight, eps: shape.eps, residual, scalar: w.scalar };
        self.push(b, layer, "post_ffn", op);
        // The next layer's input norm belongs to this segment, so that it can be fused with the residual add before it.
        if let Some(next) = layers.get(layer + 1) {
            let op = Op::RmsNorm { x: s.residual, weight: next.input_norm, eps: shape.eps, out: s.normed };
            self.push(b, layer, "input_norm", op);
        }
    }

    /// The choice of each row's experts, and their input.
    fn push_route(&self, b: &mut Builder, layer: usize, w: &ExpertWeights, s: ExpertSlots) {
        let Stack { shape, slots, .. } = *self;
        let eps = shape.eps;
        let op = Op::RmsNorm { x: slots.residual, weight: w.input_norm, eps, out: s.input };
        self.push(b, layer, "pre_expert_norm", op);
        let op = Op::RmsNorm { x: slots.residual, weight: w.router_norm, eps, out: s.router_in };
        self.push(b, layer, "router_norm", op);
        self.push(b, layer, "router", Op::Linear { weight: w.router, x: s.router_in, out: s.scores });
        let ExpertSlots { scores, chosen, gains, kept, .. } = s;
        let scale = (shape.hidden as f32).powf(-0.5);
        let is_last = layer + 1 == shape.layers.len();
        let kept = is_last.then_some(kept);
        self.push(b, layer, "route", Op::Route { scores, scale, factors: w.factors, chosen, gains, kept });
    }

    /// The experts, and the sum of their output and the dense half's, each behind a norm. Returns the sum's slot.
    fn push_experts(&self, b: &mut Builder, layer: usize, w: &ExpertWeights, s: ExpertSlots) -> Slot {
        let (eps, chosen, ffn) = (self.shape.eps, s.chosen, w.down.cols);
        let (gate, up) = (s.gate_up.columns(0, ffn), s.gate_up.columns(ffn, ffn));
        let share = chosen.width;
        let mut push = |label, op| self.push_rows(b, layer, label, Rows::Expert(share), op);
        push("expert_gate", Op::ExpertLinear { weight: w.gate, chosen, x: s.input, share, out: gate });
        push("expert_up", Op::ExpertLinear { weight: w.up, chosen, x: s.input, share, out: up });
        push("expert_gelu", Op::GatedGelu { gate, up, out: s.gated });
        push("expert_down", Op::ExpertLinear { weight: w.down, chosen, x: s.gated, share: 1, out: s.parts });
        let ExpertSlots { gains, halves, sum, .. } = s;
        self.push(b, layer, "expert_sum", Op::ExpertSum { x: s.parts, gains, out: sum });
        let (x, weight) = (self.slots.sublayer, w.post_dense_norm);
        self.push(b, layer, "post_dense", Op::RmsNorm { x, weight, eps, out: halves });
        let op = Op::NormAdd { x: sum, weight: w.post_norm, eps, residual: halves, scalar: None };
        self.push(b, layer, "post_experts", op);
        halves
    }
}

/// The products of stacked tensors: one, or if their formats differ one for each run of a format, into its columns.
fn products(parts: &[Matrix], x: Slot, out: Slot) -> impl Iterator<Item = Op> + '_ {
    parts.iter().scan(0, move |first, &weight| {
        let out = out.columns(*first, weight.rows);
        *first += weight.rows;
        Some(Op::Linear { weight, x, out })
    })
}

fn push_head(b: &mut Builder, shape: &Shape, weights: &WeightLayout, s: &Slots) {
    let mut push = |label, op| b.push(Segment::Head, label, Rows::Head, op);
    let weight = weights.final_norm;
    push("final_norm", Op::RmsNorm { x: s.layers.residual, weight, eps: shape.eps, out: s.head_in });
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

/// One step of a drafter of shape `drafter` for a model of shape `model`. The first of a draft begins with the state of
/// a row of the last pass, behind the model's final norm; the others leave that step out, and begin with their own.
fn push_draft(
    b: &mut Builder,
    [model, drafter]: [&Shape; 2],
    weights: &WeightLayout,
    kv: &[KvLayer],
    s: &Slots,
    of: &DraftSlots,
) {
    let Some(w) = &weights.drafter else { return };
    let mut push = |label, rows, op| b.push(Segment::Draft, label, rows, op);
    let (embedded, state) = (of.input.columns(0, model.hidden), of.input.columns(model.hidden, model.hidden));
    let (weight, eps) = (weights.final_norm, model.eps);
    push("state", Rows::DraftSource, Op::RmsNorm { x: s.layers.residual, weight, eps, out: state });
    let scale = (model.hidden as f32).sqrt();
    push("embed", Rows::Draft, Op::Embed { table: weights.embedding, scale, out: embedded });
    let (eps, LayerSlots { residual, normed, .. }) = (drafter.eps, of.layers);
    push("pre_projection", Rows::Draft, Op::Linear { weight: w.pre_projection, x: of.input, out: residual });
    let weight = w.layers[0].input_norm;
    push("input_norm", Rows::Draft, Op::RmsNorm { x: residual, weight, eps, out: normed });
    let stack = Stack { shape: drafter, layers: &w.layers, weights, slots: &of.layers, rows: Rows::Draft };
    for (layer, kind) in drafter.layers.iter().enumerate() {
        let last = kv.iter().rfind(|kv| model.layers[kv.layer] == *kind);
        last.into_iter().for_each(|kv| stack.push_draft_attention(b, layer, *kv));
        stack.push_ffn(b, layer);
    }
    let mut push = |label, op| b.push(Segment::Draft, label, Rows::Draft, op);
    push("final_norm", Op::RmsNorm { x: residual, weight: w.final_norm, eps, out: of.head_in });
    push("post_projection", Op::Linear { weight: w.post_projection, x: of.head_in, out: state });
    push("head", Op::Linear { weight: w.head, x: of.head_in, out: s.logits });
    if let Some(cap) = drafter.softcap {
        push("soft_cap", Op::SoftCap { x: s.logits, cap });
    }
    push("argmax", Op::Argmax { x: s.logits });
}
