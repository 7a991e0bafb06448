//! From steps to dispatches: which kernel runs each step, with what push constants. Plain data, made without a device.
//!
//! A dispatch runs one step or, by a fusion declared in [`lower`], several that stand together in the schedule.

mod attend;
pub mod dispatch;
pub mod fragment;
pub mod linear;
pub mod matrix;

use crate::executor::Row;
use crate::gpu::device::MAX_WORKGROUP;
use crate::gpu::kernels::{Constants, Kernel, Module, constants};
use crate::gpu::lower::attend::{Attend, whole_blocks};
use crate::gpu::lower::dispatch::{Addresses, Dispatch, Push};
use crate::gpu::lower::linear::{DOT_BLOCK, Family, Form, Product, Target, Variant};
use crate::gpu::lower::matrix::LinearPush;
use crate::model::WeightFormat;
use crate::schedule::build::{ARGMAX_GROUPS, TOP_PARTS, TOP_ROWS};
use crate::schedule::layout::{COUNTER_BYTES, Packed, StateLayout};
use crate::schedule::step::{KvType, Matrix, Op, Ring, Rows, Slot, Vector, WeightBuffer};
use crate::schedule::{Schedule, Segment, Step};

/// Invocations of a workgroup that works on a row: enough to cover the latency of its loads, and divisible by every
/// subgroup size.
const ROW_WORKGROUP: u32 = 256;
/// As above, for kernels with a head's width of work.
const HEAD_WORKGROUP: u32 = 128;
/// Workgroups that look for one row's argmax, at 4096 logits each.
const ARGMAX_SHARE: usize = 4096;

/// What a pass that is baked for looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Rows at most.
    pub rows: usize,
    /// Rows of logits at most.
    pub head_rows: usize,
    /// How the rows stand to each other.
    pub order: Order,
    /// Where its tokens come from.
    pub tokens: Tokens,
}

/// Where the tokens of a pass come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// The host has written them, with their positions.
    Given,
    /// They are the choices of the pass before, each a position behind what that choice was made from.
    Chosen,
}

/// How the rows of a pass stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Consecutive positions of one sequence.
    Consecutive,
    /// Each of a sequence of its own: no row sees another's key.
    Apart,
    /// Any.
    Mixed,
}

impl Order {
    /// Whether these rows stand so.
    pub fn holds(self, rows: &[Row]) -> bool {
        let follows = |w: &[Row]| w[0].sequence == w[1].sequence && w[0].position + 1 == w[1].position;
        let is_new = |i: usize| rows[..i].iter().all(|r| r.sequence != rows[i].sequence);
        match self {
            Order::Consecutive => rows.windows(2).all(follows),
            Order::Apart => (1..rows.len()).all(is_new),
            Order::Mixed => true,
        }
    }
}

impl Batch {
    /// Rows that a step works on at most.
    pub fn count(self, rows: Rows) -> usize {
        match rows {
            Rows::Pass => self.rows,
            Rows::Head => self.head_rows,
        }
    }
}

/// Lowers one schedule for one kind of pass.
pub(crate) struct Lowering<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) addresses: &'a Addresses,
    pub(crate) target: &'a Target,
    pub(crate) batch: Batch,
}

/// A kernel for the first `taken` steps.
#[derive(Clone, Copy)]
pub(crate) struct Lowered {
    pub(crate) kernel: Kernel,
    pub(crate) push: Push,
    pub(crate) groups: [u32; 3],
    pub(crate) taken: usize,
}

/// The dispatches of one segment for one kind of pass.
pub fn lower(
    schedule: &Schedule,
    segment: Segment,
    batch: Batch,
    target: &Target,
    addresses: &Addresses,
) -> Vec<Dispatch> {
    let l = Lowering { schedule, addresses, target, batch };
    let range = schedule.steps_of(segment);
    let mut out: Vec<Dispatch> = Vec::new();
    let mut at = range.start;
    // Steps before this one are behind a barrier.
    let mut settled = range.start;
    while at < range.end {
        let steps = &schedule.steps[at..range.end];
        let Lowered { mut kernel, push, groups, taken } = l.fuse(steps).unwrap_or_else(|| l.step(&steps[0]));
        if batch.count(steps[0].rows) == 1 {
            kernel.constants[Kernel::SINGLE] = 1;
        }
        let barrier = steps[..taken].iter().flat_map(|s| &s.after).any(|&d| (settled..at).contains(&d));
        if barrier {
            settled = at;
        }
        out.push(Dispatch { steps: at..at + taken, kernel, push, groups, barrier });
        at += taken;
        if let Some(Lowered { kernel, push, groups, .. }) = l.pack(&steps[taken - 1], kernel) {
            // Whoever waits for the step waits for this too, which is not behind a barrier yet.
            settled = at - 1;
            out.push(Dispatch { steps: at..at, kernel, push, groups, barrier: true });
        }
    }
    out
}

fn by_format(format: WeightFormat, int8: Module, bf16: Module) -> Module {
    match format {
        WeightFormat::Int8 => int8,
        WeightFormat::Bf16 => bf16,
    }
}

pub(crate) fn by_kv(kv: KvType, f16: Module, f32: Module) -> Module {
    match kv {
        KvType::F16 => f16,
        KvType::F32 => f32,
    }
}

/// A kernel whose invocations keep a row of `width` in registers, four elements at a time, `with` the constants behind the
/// number of times.
fn row_kernel<const N: usize>(module: Module, width: usize, with: [u32; N]) -> Kernel {
    let vecs = width.div_ceil(4);
    let turns = vecs.div_ceil(MAX_WORKGROUP as usize);
    // Divisible by every subgroup size.
    let workgroup = vecs.div_ceil(turns).next_multiple_of(64);
    let mut all: Constants = constants([turns as u32]);
    all[1..=N].copy_from_slice(&with);
    Kernel { module, workgroup: workgroup as u32, constants: all }
}

impl Lowering<'_> {
    pub(crate) fn slot(&self, s: Slot) -> u64 {
        self.addresses.arena + s.offset
    }

    fn weight(&self, buffer: WeightBuffer, offset: u64) -> u64 {
        self.addresses.weights[self.schedule.weights.index(buffer)] + offset
    }

    pub(crate) fn vector(&self, v: Vector) -> u64 {
        self.weight(v.buffer, v.offset)
    }

    pub(crate) fn push(&self) -> Push {
        Push::new().address(self.addresses.arena)
    }

    fn count(&self, rows: Rows) -> usize {
        self.batch.count(rows)
    }

    fn state_word(rows: Rows) -> usize {
        match rows {
            Rows::Pass => StateLayout::ROWS,
            Rows::Head => StateLayout::HEAD_ROWS,
        }
    }

    /// The family that multiplies what a slot holds.
    fn family(&self, slot: Slot, rows: Rows) -> Family {
        let format = self.schedule.weights.format;
        let family = |p: Packed| self.target.family(format, self.count(rows), p.whole_rows);
        self.schedule.arena.packed(slot).map_or(Family::Float, family)
    }

    /// The form that linear steps read a slot in, and where it lies; f32 in the slot itself has no place beside it.
    pub(crate) fn form(&self, slot: Slot, rows: Rows) -> (Form, Option<Packed>) {
        match self.family(slot, rows).form() {
            Form::F32 => (Form::F32, None),
            form => (form, self.schedule.arena.packed(slot)),
        }
    }

    /// Brings what a step has written into the form that linear steps read it in, where its kernel did not do so.
    fn pack(&self, step: &Step, kernel: Kernel) -> Option<Lowered> {
        let mut parts = 1;
        let out = match step.op {
            Op::Embed { out, .. } | Op::Linear { out, .. } => out,
            Op::Attend { out, ring, .. } if !whole_blocks(ring.head_dim) => out,
            Op::GatedGelu { out, .. } if writes_f32_only(kernel.module) => out,
            Op::GatedGelu { out, .. } if self.gelu_parts(step.rows, out) > 1 => {
                parts = self.gelu_parts(step.rows, out);
                out
            }
            Op::NormAdd { residual, .. } => residual,
            Op::HeadNormRope { x, .. } | Op::Softcap { x, .. } => x,
            Op::RmsNorm { .. } | Op::Attend { .. } | Op::GatedGelu { .. } | Op::KvWrite { .. } | Op::Argmax { .. } => {
                return None;
            }
        };
        let (form, packed) = self.form(out, step.rows);
        let packed = packed?;
        let push = self
            .push()
            .address(self.slot(out))
            .address(self.slot(out))
            .address(self.addresses.arena + packed.offset)
            .address(self.addresses.arena + self.schedule.scratch.tops)
            .word(Self::state_word(step.rows))
            .word(out.width)
            .word(out.stride)
            .word(packed.stride)
            .word(packed.padded);
        let kernel = row_kernel(Module::Pack, packed.padded.div_ceil(parts), [form as u32, parts as u32]);
        Some(Lowered { kernel, push, groups: [parts as u32, self.count(step.rows) as u32, 1], taken: 0 })
    }

    /// Workgroups that make a row of the gated product. Several leave it in f32, because none of them knows the scale that its
    /// form takes.
    fn gelu_parts(&self, rows: Rows, out: Slot) -> usize {
        let scaled = matches!(self.form(out, rows).0, Form::Half | Form::Bytes);
        if scaled && self.count(rows) <= TOP_ROWS { TOP_PARTS } else { 1 }
    }

    /// The declared fusions: several steps that one kernel runs together.
    fn fuse(&self, steps: &[Step]) -> Option<Lowered> {
        let rows = steps[0].rows;
        let same_rows = |n: usize| steps.len() >= n && steps[..n].iter().all(|s| s.rows == rows);
        if !same_rows(2) {
            return None;
        }
        match (&steps[0].op, &steps[1].op) {
            (&Op::NormAdd { x, weight, eps, residual }, &Op::RmsNorm { x: x2, weight: w2, eps: eps2, out })
                if x2 == residual && rows == Rows::Pass =>
            {
                let second = Some((w2, eps2, out));
                Some(self.norm(Module::NormAddNorm, rows, Norm { x, weight, eps, residual: Some(residual), second }, 2))
            }
            (&Op::Linear { weight, x, out }, &Op::GatedGelu { gate, up, out: gated })
                if self.target.fuses_gelu(weight.format, self.count(rows)) && is_halves(out, gate, up) =>
            {
                Some(self.linear(weight, x, gated, rows, true))
            }
            (
                &Op::HeadNormRope { x: q, weight: wq, eps: eq, inv_freq: fq, heads },
                &Op::HeadNormRope { x: k, weight: wk, eps: ek, inv_freq: fk, heads: kv_heads },
            ) if same_rows(3) => {
                let Op::KvWrite { k: k2, v, ring } = steps[2].op else { return None };
                if k != k2 || q.stride != k.stride || q.stride != v.stride || kv_heads != ring.kv_heads {
                    return None;
                }
                let q = Heads { x: q, weight: wq, eps: eq, inv_freq: fq, heads };
                let k = Heads { x: k, weight: wk, eps: ek, inv_freq: fk, heads: kv_heads };
                if same_rows(4)
                    && (self.batch.rows == 1 || self.batch.order == Order::Apart)
                    && (eq, fq) == (ek, fk)
                    && let Op::Attend { q: q2, ring: r2, out, heads: h2, scale, window } = steps[3].op
                    && (q2, r2, h2) == (q.x, ring, heads)
                {
                    let attend = Attend { q: q2, ring, out, heads, scale, window };
                    return Some(self.attend(attend, Some((q, k, v)), 4));
                }
                Some(self.head_prepare(rows, Some(q), Some(k), Some((k2, v, ring)), 3))
            }
            _ => None,
        }
    }

    fn step(&self, step: &Step) -> Lowered {
        let rows = self.count(step.rows) as u32;
        let state = self.schedule.arena.state;
        match step.op {
            Op::Embed { table, scale, out } => {
                let push = self
                    .push()
                    .address(self.weight(table.buffer, table.offset))
                    .address(self.weight(table.buffer, table.scales))
                    .address(self.slot(out))
                    .word(state.token())
                    .word(state.position())
                    .word(state.next())
                    .word(WeightFormat::padded(table.cols))
                    .word(out.stride)
                    .word(out.width)
                    .float(scale);
                let module = by_format(table.format, Module::EmbedInt8, Module::EmbedBf16);
                let chosen = u32::from(self.batch.tokens == Tokens::Chosen);
                let kernel = Kernel { module, workgroup: ROW_WORKGROUP, constants: constants([chosen]) };
                Lowered { kernel, push, groups: [1, rows, 1], taken: 1 }
            }
            Op::RmsNorm { x, weight, eps, out } => {
                let norm = Norm { x, weight, eps, residual: None, second: Some((weight, eps, out)) };
                self.norm(Module::RmsNorm, step.rows, norm, 1)
            }
            Op::NormAdd { x, weight, eps, residual } => {
                let norm = Norm { x, weight, eps, residual: Some(residual), second: None };
                self.norm(Module::NormAdd, step.rows, norm, 1)
            }
            Op::Linear { weight, x, out } => self.linear(weight, x, out, step.rows, false),
            Op::HeadNormRope { x, weight, eps, inv_freq, heads } => {
                let q = Heads { x, weight, eps, inv_freq, heads };
                self.head_prepare(step.rows, Some(q), None, None, 1)
            }
            Op::KvWrite { k, v, ring } => self.head_prepare(step.rows, None, None, Some((k, v, ring)), 1),
            Op::Attend { q, ring, out, heads, scale, window } => {
                self.attend(Attend { q, ring, out, heads, scale, window }, None, 1)
            }
            Op::GatedGelu { gate, up, out } => self.gated_gelu(step.rows, gate, up, out),
            Op::Softcap { x, cap } => self.argmax(Module::Softcap, step.rows, x, cap),
            Op::Argmax { x } => self.argmax(Module::Argmax, step.rows, x, 0.0),
        }
    }

    fn argmax(&self, module: Module, rows: Rows, x: Slot, cap: f32) -> Lowered {
        let state = self.schedule.arena.state;
        // One counter a row.
        let most = if self.count(rows) as u64 * 4 <= COUNTER_BYTES { ARGMAX_GROUPS } else { 1 };
        let groups = x.width.div_ceil(ARGMAX_SHARE).clamp(1, most) as u32;
        let push = self
            .push()
            .address(self.slot(x))
            .address(self.addresses.arena + self.schedule.scratch.argmax)
            .word(Self::state_word(rows))
            .word(state.next())
            .word(state.finite())
            .word(x.width)
            .word(x.stride)
            .float(cap);
        let kernel = Kernel { module, workgroup: ROW_WORKGROUP, constants: constants([groups]) };
        Lowered { kernel, push, groups: [groups, self.count(rows) as u32, 1], taken: 1 }
    }

    fn norm(&self, module: Module, rows: Rows, n: Norm, taken: usize) -> Lowered {
        let residual = n.residual.unwrap_or(n.x);
        let (w2, eps2, out) = n.second.unwrap_or((n.weight, n.eps, n.x));
        let (form, packed) = if n.second.is_some() { self.form(out, rows) } else { (Form::F32, None) };
        // The final norm's output is shown to whoever watches a pass.
        let keep = u32::from(rows == Rows::Head);
        let push = self
            .push()
            .address(self.slot(n.x))
            .address(self.vector(n.weight))
            .address(self.slot(residual))
            .address(self.vector(w2))
            .address(self.slot(out))
            .address(packed.map_or(0, |p| self.addresses.arena + p.offset))
            .word(Self::state_word(rows))
            .word(usize::from(rows == Rows::Head))
            .word(n.x.width)
            .word(n.x.stride)
            .word(residual.stride)
            .word(out.stride)
            .word(packed.map_or(0, |p| p.stride))
            .word(packed.map_or(0, |p| p.padded))
            .float(n.eps)
            .float(eps2);
        let kernel = row_kernel(module, packed.map_or(n.x.width, |p| p.padded), [form as u32, keep]);
        Lowered { kernel, push, groups: [1, self.count(rows) as u32, 1], taken }
    }

    /// With `gelu`, `weight` holds gate's rows and up's, and `out` takes the gated product.
    fn linear(&self, weight: Matrix, x: Slot, out: Slot, rows: Rows, gelu: bool) -> Lowered {
        let (form, packed) = self.form(x, rows);
        let product = Product::new(weight, self.count(rows), gelu);
        let taken = 1 + usize::from(gelu);
        let (matrix, scales) = (self.weight(weight.buffer, weight.offset), self.weight(weight.buffer, weight.scales));
        let arena = self.addresses.arena;
        match (packed, self.target.variant(self.family(x, rows), product), self.target.units) {
            (Some(p), Some(Variant::Dot(v)), _) => {
                let to = if gelu { self.form(out, rows).1 } else { None };
                let (kernel, groups) = self.target.dot(product, v);
                let push = self
                    .push()
                    .address(matrix)
                    .address(scales)
                    .address(arena + p.offset)
                    .address(to.map_or(self.slot(out), |t| arena + t.offset))
                    .word(Self::state_word(rows))
                    .word(product.outputs)
                    .word(p.padded)
                    .word(p.stride)
                    .word(to.map_or(out.stride, |t| t.stride))
                    .word(to.map_or(0, |t| t.padded));
                Lowered { kernel, push, groups, taken }
            }
            (Some(p), Some(Variant::Matrix(linear)), Some(units)) => {
                let [parts, arrived] = self.schedule.scratch.product.map(|offset| arena + offset);
                let push = LinearPush {
                    state: arena,
                    weight: matrix,
                    scales,
                    x: arena + p.offset,
                    out: self.slot(out),
                    parts,
                    arrived,
                    which: Self::state_word(rows),
                    outputs: product.outputs,
                    inputs: product.inputs,
                    x_stride: p.stride,
                    out_stride: out.stride,
                    splits: linear.splits,
                };
                let kernel = linear.kernel(units);
                Lowered { kernel, push: push.push(), groups: linear.groups(product.rows, product.outputs), taken }
            }
            (Some(p), None, _) if form == Form::Planes => {
                let (kernel, groups) = self.target.dot_tile(product);
                let push = self
                    .push()
                    .address(matrix)
                    .address(scales)
                    .address(arena + p.offset)
                    .address(self.slot(out))
                    .word(Self::state_word(rows))
                    .word(product.outputs)
                    .word(product.inputs / DOT_BLOCK)
                    .word(p.padded)
                    .word(p.stride)
                    .word(out.stride);
                Lowered { kernel, push, groups, taken }
            }
            _ => {
                let (kernel, groups) = self.target.float(weight.format, product);
                let push = self
                    .push()
                    .address(matrix)
                    .address(scales)
                    .address(self.slot(x))
                    .address(self.slot(out))
                    .word(Self::state_word(rows))
                    .word(product.outputs)
                    .word(product.inputs)
                    .word(x.stride)
                    .word(out.stride);
                Lowered { kernel, push, groups, taken }
            }
        }
    }

    fn gated_gelu(&self, rows: Rows, gate: Slot, up: Slot, out: Slot) -> Lowered {
        let parts = self.gelu_parts(rows, out);
        let (form, packed) = if parts > 1 { (Form::F32, None) } else { self.form(out, rows) };
        let push = self
            .push()
            .address(self.slot(gate))
            .address(self.slot(up))
            .address(packed.map_or(self.slot(out), |p| self.addresses.arena + p.offset))
            .address(self.addresses.arena + self.schedule.scratch.tops)
            .word(Self::state_word(rows))
            .word(gate.width)
            .word(gate.stride)
            .word(packed.map_or(4 * out.stride, |p| p.stride))
            .word(packed.map_or(0, |p| p.padded));
        let width = packed.map_or(gate.width, |p| p.padded).div_ceil(parts);
        let kernel = row_kernel(Module::GatedGelu, width, [form as u32, parts as u32]);
        Lowered { kernel, push, groups: [parts as u32, self.count(rows) as u32, 1], taken: 1 }
    }

    /// Norm and RoPE of `q` and of `k`, and the KV write, whichever are given.
    fn head_prepare(
        &self,
        rows: Rows,
        q: Option<Heads>,
        k: Option<Heads>,
        write: Option<(Slot, Slot, Ring)>,
        taken: usize,
    ) -> Lowered {
        // What is not given is not reached by any workgroup; any valid operand stands in for it.
        let some = q.or(k);
        let slot = |s: Option<Slot>| s.or(some.map(|h| h.x)).map_or(0, |s| self.slot(s));
        let vector = |h: Option<Heads>, of: fn(Heads) -> Vector| h.or(some).map_or(0, |h| self.vector(of(h)));
        let state = self.schedule.arena.state;
        let (heads, kv_heads) = (q.map_or(0, |q| q.heads), write.map_or(0, |w| w.2.kv_heads));
        let dim = some.map_or_else(|| write.map_or(0, |w| w.2.head_dim), |h| h.x.width / h.heads);
        let stride = some.map(|h| h.x.stride).or(write.map(|w| w.0.stride)).unwrap_or(0);
        let push = self
            .push()
            .address(slot(q.map(|q| q.x)))
            .address(slot(write.map(|w| w.0)))
            .address(slot(write.map(|w| w.1)))
            .address(vector(q, |h| h.weight))
            .address(vector(k, |h| h.weight))
            .address(vector(q, |h| h.inv_freq))
            .address(vector(k, |h| h.inv_freq))
            .address(write.map_or(0, |w| self.addresses.kv[w.2.layer]))
            .word(state.position())
            .word(state.sequence())
            .word(heads)
            .word(kv_heads)
            .word(dim)
            .word(stride)
            .word(write.map_or(1, |w| w.2.capacity))
            .word(usize::from(k.is_some()))
            .float(q.map_or(0.0, |q| q.eps))
            .float(k.map_or(0.0, |k| k.eps));
        let kv = write.map_or(KvType::F16, |w| w.2.element);
        let module = by_kv(kv, Module::HeadPrepareF16, Module::HeadPrepareF32);
        let groups = [(heads + 2 * kv_heads) as u32, self.count(rows) as u32, 1];
        let kernel = Kernel { module, workgroup: HEAD_WORKGROUP, constants: constants([]) };
        Lowered { kernel, push, groups, taken }
    }
}

/// Whether a kernel that makes the gated product writes it in f32 alone.
fn writes_f32_only(module: Module) -> bool {
    matches!(module, Module::LinearGeluInt8 | Module::LinearGeluBf16)
}

/// The operands of the norm kernels. What `residual` or `second` leave out, the kernel does not touch.
struct Norm {
    x: Slot,
    weight: Vector,
    eps: f32,
    /// What the norm is added to.
    residual: Option<Slot>,
    /// The norm that is written, if any: weight, eps, output.
    second: Option<(Vector, f32, Slot)>,
}

/// The operands of a [`Op::HeadNormRope`].
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) x: Slot,
    pub(crate) weight: Vector,
    pub(crate) eps: f32,
    pub(crate) inv_freq: Vector,
    pub(crate) heads: usize,
}

/// Whether `gate` and `up` are the first and second half of `whole`.
fn is_halves(whole: Slot, gate: Slot, up: Slot) -> bool {
    let half = whole.width / 2;
    gate == whole.columns(0, half) && up == whole.columns(half, half)
}
