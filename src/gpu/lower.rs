//! From steps to dispatches: which kernel runs each step, with what push constants. Plain data, made without a device.
//!
//! A dispatch runs one step or, by a fusion declared in [`lower`], several that stand together in the schedule.

use super::kernels::{Kernel, Module, PUSH_BYTES, constants};
use crate::model::WeightFormat;
use crate::schedule::layout::StateLayout;
use crate::schedule::step::{KvType, Matrix, Op, Ring, Rows, Slot, Vector, WeightBuffer};
use crate::schedule::{Schedule, Segment, Step};
use std::ops::Range;

/// Where the device sees each buffer.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The arena.
    pub arena: u64,
    /// The weight buffers, in the layout's order.
    pub weights: Vec<u64>,
    /// The KV rings, one a layer.
    pub kv: Vec<u64>,
}

/// What of the device the choice of kernels depends on.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Invocations of a subgroup.
    pub subgroup: u32,
}

/// One dispatch of a baked command buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// The steps that it runs, as indices into the schedule.
    pub steps: Range<usize>,
    /// Its pipeline.
    pub kernel: Kernel,
    /// Push constants.
    pub push: Push,
    /// Workgroups in x and y; y counts rows or tiles of rows.
    pub groups: [u32; 2],
    /// Whether it must wait for the dispatches before it in its segment.
    pub barrier: bool,
}

/// Push constants, written in the order that the kernel's block declares them.
#[derive(Clone, Copy, PartialEq)]
pub struct Push {
    bytes: [u8; PUSH_BYTES],
    len: usize,
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Push({} bytes)", self.len)
    }
}

impl Push {
    /// None yet.
    pub fn new() -> Push {
        Push { bytes: [0; PUSH_BYTES], len: 0 }
    }

    fn put<const N: usize>(mut self, b: [u8; N]) -> Push {
        self.bytes[self.len..self.len + N].copy_from_slice(&b);
        self.len += N;
        self
    }

    /// Appends a 64-bit address; addresses come before all else, so that none needs padding.
    pub fn address(self, a: u64) -> Push {
        debug_assert_eq!(self.len % 8, 0);
        self.put(a.to_le_bytes())
    }

    /// Appends a size, an index or a count.
    pub fn word(self, w: usize) -> Push {
        debug_assert!(u32::try_from(w).is_ok());
        self.put((w as u32).to_le_bytes())
    }

    /// Appends an f32.
    pub fn float(self, x: f32) -> Push {
        self.put(x.to_le_bytes())
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Default for Push {
    fn default() -> Self {
        Push::new()
    }
}

/// Invocations of a workgroup that works on a row: enough to cover the latency of its loads, and divisible by every
/// subgroup size.
const ROW_WORKGROUP: u32 = 256;
/// As above, for kernels with a head's width of work.
const HEAD_WORKGROUP: u32 = 128;
/// Subgroups of a `linear` workgroup.
const LINEAR_SUBGROUPS: u32 = 4;
/// From this many rows on, `linear_tile` reads weights less often than `linear`.
const TILE_ROWS: usize = 16;
/// Rows and outputs of a `linear_tile` workgroup's tile.
const TILE: usize = 32;

/// Workgroups in one dimension that every Vulkan device takes.
pub const MAX_GROUPS: usize = 65_535;

/// Lowers one schedule for passes of up to `rows` rows.
struct Lowering<'a> {
    schedule: &'a Schedule,
    addresses: &'a Addresses,
    target: Target,
    /// Rows of the pass, and of the head.
    rows: [usize; 2],
}

/// The dispatches of one segment for passes of up to `rows` rows and `head_rows` rows of logits.
pub fn lower(
    schedule: &Schedule,
    segment: Segment,
    rows: usize,
    head_rows: usize,
    target: Target,
    addresses: &Addresses,
) -> Vec<Dispatch> {
    let l = Lowering { schedule, addresses, target, rows: [rows, head_rows] };
    let range = schedule.steps_of(segment);
    let mut out: Vec<Dispatch> = Vec::new();
    let mut at = range.start;
    // Steps before this one are behind a barrier.
    let mut settled = range.start;
    while at < range.end {
        let steps = &schedule.steps[at..range.end];
        let (kernel, push, groups, taken) = l.fuse(steps).unwrap_or_else(|| l.step(&steps[0]));
        let barrier = steps[..taken].iter().flat_map(|s| &s.after).any(|&d| (settled..at).contains(&d));
        if barrier {
            settled = at;
        }
        out.push(Dispatch { steps: at..at + taken, kernel, push, groups, barrier });
        at += taken;
    }
    out
}

type Lowered = (Kernel, Push, [u32; 2], usize);

fn kernel(module: Module, workgroup: u32) -> Kernel {
    Kernel { module, workgroup, constants: constants([1, 1]) }
}

fn by_format(format: WeightFormat, int8: Module, bf16: Module) -> Module {
    match format {
        WeightFormat::Int8 => int8,
        WeightFormat::Bf16 => bf16,
    }
}

fn by_kv(kv: KvType, f16: Module, f32: Module) -> Module {
    match kv {
        KvType::F16 => f16,
        KvType::F32 => f32,
    }
}

impl Lowering<'_> {
    fn slot(&self, s: Slot) -> u64 {
        self.addresses.arena + s.offset
    }

    fn weight(&self, buffer: WeightBuffer, offset: u64) -> u64 {
        self.addresses.weights[self.schedule.weights.index(buffer)] + offset
    }

    fn vector(&self, v: Vector) -> u64 {
        self.weight(v.buffer, v.offset)
    }

    fn push(&self) -> Push {
        Push::new().address(self.addresses.arena)
    }

    fn count(&self, rows: Rows) -> usize {
        match rows {
            Rows::Pass => self.rows[0],
            Rows::Head => self.rows[1],
        }
    }

    fn state_word(rows: Rows) -> usize {
        match rows {
            Rows::Pass => StateLayout::ROWS,
            Rows::Head => StateLayout::HEAD_ROWS,
        }
    }

    /// The declared fusions: several steps that one kernel runs together.
    fn fuse(&self, steps: &[Step]) -> Option<Lowered> {
        let same_rows = |n: usize| steps[..n].iter().all(|s| s.rows == steps[0].rows);
        match steps {
            [a, b, ..] if same_rows(2) => match (&a.op, &b.op) {
                (&Op::NormAdd { x, weight, eps, residual }, &Op::RmsNorm { x: x2, weight: w2, eps: eps2, out })
                    if x2 == residual && a.rows == Rows::Pass =>
                {
                    let second = Some((w2, eps2, out));
                    let norm = Norm { x, weight, eps, residual: Some(residual), second };
                    Some(self.norm(Module::NormAddNorm, a.rows, norm, 2))
                }
                (&Op::Linear { weight, x, out }, &Op::GatedGelu { gate, up, out: gated })
                    if self.count(a.rows) < TILE_ROWS && is_halves(out, gate, up) =>
                {
                    let (k, push, groups) = self.linear(weight, x, gated, a.rows, true);
                    Some((k, push, groups, 2))
                }
                (
                    &Op::HeadNormRope { x: q, weight: wq, eps: eq, inv_freq: fq, heads },
                    &Op::HeadNormRope { x: k, weight: wk, eps: ek, inv_freq: fk, heads: kv_heads },
                ) => {
                    let Op::KvWrite { k: k2, v, ring } = steps.get(2)?.op else { return None };
                    let alike = q.stride == k.stride && q.stride == v.stride && kv_heads == ring.kv_heads;
                    (same_rows(3) && k == k2 && alike).then(|| {
                        let q = Heads { x: q, weight: wq, eps: eq, inv_freq: fq, heads };
                        let k = Heads { x: k, weight: wk, eps: ek, inv_freq: fk, heads: kv_heads };
                        self.head_prepare(a.rows, Some(q), Some(k), Some((k2, v, ring)), 3)
                    })
                }
                _ => None,
            },
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
                    .word(WeightFormat::padded(table.cols))
                    .word(out.stride)
                    .word(out.width)
                    .float(scale);
                let module = by_format(table.format, Module::EmbedInt8, Module::EmbedBf16);
                (kernel(module, ROW_WORKGROUP), push, [1, rows], 1)
            }
            Op::RmsNorm { x, weight, eps, out } => {
                let norm = Norm { x, weight, eps, residual: None, second: Some((weight, eps, out)) };
                self.norm(Module::RmsNorm, step.rows, norm, 1)
            }
            Op::NormAdd { x, weight, eps, residual } => {
                let norm = Norm { x, weight, eps, residual: Some(residual), second: None };
                self.norm(Module::NormAdd, step.rows, norm, 1)
            }
            Op::Linear { weight, x, out } => {
                let (k, push, groups) = self.linear(weight, x, out, step.rows, false);
                (k, push, groups, 1)
            }
            Op::HeadNormRope { x, weight, eps, inv_freq, heads } => {
                let q = Heads { x, weight, eps, inv_freq, heads };
                self.head_prepare(step.rows, Some(q), None, None, 1)
            }
            Op::KvWrite { k, v, ring } => self.head_prepare(step.rows, None, None, Some((k, v, ring)), 1),
            Op::Attend { q, ring, out, heads, scale, window } => {
                let push = self
                    .push()
                    .address(self.slot(q))
                    .address(self.addresses.kv[ring.layer])
                    .address(self.slot(out))
                    .word(state.position())
                    .word(state.sequence())
                    .word(heads)
                    .word(ring.kv_heads)
                    .word(ring.head_dim)
                    .word(q.stride)
                    .word(out.stride)
                    .word(ring.capacity)
                    .word(window.unwrap_or(0))
                    .float(scale);
                let module = by_kv(ring.element, Module::AttendF16, Module::AttendF32);
                (kernel(module, HEAD_WORKGROUP), push, [heads as u32, rows], 1)
            }
            Op::GatedGelu { gate, up, out } => {
                let push = self
                    .push()
                    .address(self.slot(gate))
                    .address(self.slot(up))
                    .address(self.slot(out))
                    .word(gate.width)
                    .word(gate.stride)
                    .word(out.stride);
                let groups = (gate.width as u32).div_ceil(ROW_WORKGROUP);
                (kernel(Module::GatedGelu, ROW_WORKGROUP), push, [groups, rows], 1)
            }
            Op::Softcap { x, cap } => self.argmax(Module::Softcap, step.rows, x, cap),
            Op::Argmax { x } => self.argmax(Module::Argmax, step.rows, x, 0.0),
        }
    }

    fn argmax(&self, module: Module, rows: Rows, x: Slot, cap: f32) -> Lowered {
        let push = self
            .push()
            .address(self.slot(x))
            .word(Self::state_word(rows))
            .word(self.schedule.arena.state.next())
            .word(x.width)
            .word(x.stride)
            .float(cap);
        (kernel(module, ROW_WORKGROUP), push, [1, self.count(rows) as u32], 1)
    }

    fn norm(&self, module: Module, rows: Rows, n: Norm, taken: usize) -> Lowered {
        let residual = n.residual.unwrap_or(n.x);
        let (w2, eps2, out) = n.second.unwrap_or((n.weight, n.eps, n.x));
        let push = self
            .push()
            .address(self.slot(n.x))
            .address(self.vector(n.weight))
            .address(self.slot(residual))
            .address(self.vector(w2))
            .address(self.slot(out))
            .word(Self::state_word(rows))
            .word(usize::from(rows == Rows::Head))
            .word(n.x.width)
            .word(n.x.stride)
            .word(residual.stride)
            .word(out.stride)
            .float(n.eps)
            .float(eps2);
        (kernel(module, ROW_WORKGROUP), push, [1, self.count(rows) as u32], taken)
    }

    /// With `gelu`, `weight` holds gate's rows and up's, and `out` takes the gated product.
    fn linear(&self, weight: Matrix, x: Slot, out: Slot, rows: Rows, gelu: bool) -> (Kernel, Push, [u32; 2]) {
        let outputs = if gelu { weight.rows / 2 } else { weight.rows };
        let count = self.count(rows);
        let push = self
            .push()
            .address(self.weight(weight.buffer, weight.offset))
            .address(self.weight(weight.buffer, weight.scales))
            .address(self.slot(x))
            .address(self.slot(out))
            .word(Self::state_word(rows))
            .word(outputs)
            .word(WeightFormat::padded(weight.cols))
            .word(x.stride)
            .word(out.stride);
        if count >= TILE_ROWS {
            let module = by_format(weight.format, Module::LinearTileInt8, Module::LinearTileBf16);
            return (kernel(module, 64), push, [grid(outputs.div_ceil(TILE)), count.div_ceil(TILE) as u32]);
        }
        let module = match gelu {
            true => by_format(weight.format, Module::LinearGeluInt8, Module::LinearGeluBf16),
            false => by_format(weight.format, Module::LinearInt8, Module::LinearBf16),
        };
        let columns = count.next_power_of_two().min(8);
        // Each output row of a subgroup takes `columns` accumulators, twice that with gelu: keep them in registers.
        let rows_each = if gelu || columns > 4 { 1 } else { 2 };
        let workgroup = self.target.subgroup * LINEAR_SUBGROUPS;
        let kernel = Kernel { module, workgroup, constants: constants([rows_each as u32, columns as u32]) };
        let groups = outputs.div_ceil(rows_each * LINEAR_SUBGROUPS as usize);
        (kernel, push, [grid(groups), count.div_ceil(columns) as u32])
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
        let groups = [(heads + 2 * kv_heads) as u32, self.count(rows) as u32];
        (kernel(module, HEAD_WORKGROUP), push, groups, taken)
    }
}

/// Workgroups for that much work: no more than every device takes in one dimension; kernels stride over the rest.
fn grid(groups: usize) -> u32 {
    groups.min(MAX_GROUPS) as u32
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
struct Heads {
    x: Slot,
    weight: Vector,
    eps: f32,
    inv_freq: Vector,
    heads: usize,
}

/// Whether `gate` and `up` are the first and second half of `whole`.
fn is_halves(whole: Slot, gate: Slot, up: Slot) -> bool {
    let half = whole.width / 2;
    gate == whole.columns(0, half) && up == whole.columns(half, half)
}
