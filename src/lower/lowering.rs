//! The inputs of lowering: the schedule, the device addresses of its operands, and the kind of pass.

use super::arithmetic::{Arithmetic, Operand, modules};
use super::dispatch::Addresses;
use super::layout::GpuLayout;
use super::piece::PieceLowering;
use super::target::{Product, Target};
use crate::lower::kernels::Kernel;
use crate::lower::kernels::push::{Push, PushBlock, word};
use crate::schedule::layout::StateLayout;
use crate::schedule::rows::leading_run;
use crate::schedule::step::{KvType, Matrix, Op, Rows, Slot, Vector, WeightBuffer};
use crate::schedule::{Pool, Row, Schedule, Step, Tolerance};
use std::ops::Range;

/// A kind of pass. Lists are baked for every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PassKind {
    /// The most rows of a pass of this kind.
    pub rows: usize,
    /// The most rows of logits in a pass of this kind.
    pub head_rows: usize,
    /// The relation of its rows to each other.
    pub order: RowOrder,
    /// Where the tokens of the pass come from.
    pub tokens: TokenSource,
}

/// An offload counts as faster below this share of the device's time: equal runs differ by the rest.
#[cfg(any(feature = "cli", feature = "serve", feature = "npu", test))]
const FASTER: f64 = 0.98;

/// True if a pass of `offload` seconds with an offload is enough faster than one of `device` seconds without.
#[cfg(any(feature = "cli", feature = "serve", feature = "npu", test))]
pub(crate) fn is_faster(offload: f64, device: f64) -> bool {
    offload < FASTER * device
}

/// Where the tokens of a pass come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenSource {
    /// The host has written them, with their positions.
    Host,
    /// Each row's token is its row's next token from the pass before, one position further.
    Next,
    /// Each row's token is that of this step of the draft, at the same position.
    Drafted(usize),
}

/// The relation of the rows of a pass to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowOrder {
    /// The rows are at consecutive positions of one sequence.
    Consecutive,
    /// Each row is of another sequence, so no row sees another's keys.
    Apart,
    /// A chunk of one sequence at consecutive positions, then rows each of another sequence.
    Mixed,
    /// The rows may be of any sequences and positions.
    Any,
}

impl RowOrder {
    /// True if `rows` are in this order.
    pub fn holds(self, rows: &[Row]) -> bool {
        let is_new = |i: usize| rows[..i].iter().all(|r| r.sequence != rows[i].sequence);
        match self {
            RowOrder::Consecutive => leading_run(rows) == rows.len(),
            RowOrder::Apart => (1..rows.len()).all(is_new),
            RowOrder::Mixed => RowOrder::Apart.holds(&rows[leading_run(rows).saturating_sub(1)..]),
            RowOrder::Any => true,
        }
    }
}

impl std::fmt::Display for PassKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let order = match self.order {
            _ if self.rows == 1 => return f.write_str("one row"),
            RowOrder::Consecutive => "of one sequence",
            RowOrder::Apart => "apart",
            RowOrder::Mixed => "mixed",
            RowOrder::Any => "in any order",
        };
        write!(f, "{} rows {order}", self.rows)
    }
}

/// Fewest rows of a half: with fewer, reading the weights twice costs more than attention beside the products gains.
const LEAST_HALF: usize = 64;

impl PassKind {
    /// Rows of the first half of a pass of this kind, if it is divided for an offload: the most rows of a smaller
    /// kind. Rows of the second half see the first's keys, and the first half sees none of the second's.
    pub(crate) fn half(self) -> Option<usize> {
        let is_in_order = matches!(self.order, RowOrder::Consecutive | RowOrder::Mixed);
        let half = self.rows.div_ceil(2).next_power_of_two();
        (is_in_order && LEAST_HALF <= half && half < self.rows).then_some(half)
    }

    /// Whether placement of attention is measured for passes of this kind: a single token, and a divided chunk of one
    /// sequence. A short chunk has no work to run beside its attention, and the times of other kinds do not follow from
    /// these two.
    pub(crate) fn is_measured(self) -> bool {
        self.order == RowOrder::Consecutive && (self.rows == 1 || self.half().is_some())
    }

    /// The most rows of this kind that a pass has.
    pub fn count(self, rows: Rows) -> usize {
        match rows {
            Rows::Pass | Rows::Draft | Rows::DraftSource => self.rows,
            Rows::Head => self.head_rows,
            Rows::Expert(used) => used * self.rows,
        }
    }
}

/// Lowers steps of one schedule for one kind of pass.
#[derive(Clone, Copy)]
pub struct Lowering<'a> {
    /// The schedule whose steps are lowered.
    pub schedule: &'a Schedule,
    /// The offsets of the arena's regions beside the schedule's slots.
    pub layout: &'a GpuLayout,
    /// The device addresses of arena and weights.
    pub addresses: &'a Addresses,
    /// The device's properties and tunings, from which kernels are chosen.
    pub target: &'a Target,
    /// The kind of pass that is lowered.
    pub kind: PassKind,
}

/// True if `gate` and `up` are the first and the second half of `whole`.
pub(super) fn is_halves(whole: Slot, gate: Slot, up: Slot) -> bool {
    let half = whole.width / 2;
    gate == whole.columns(0, half) && up == whole.columns(half, half)
}

/// A kernel that runs the first `taken` steps of a range.
#[derive(Clone)]
pub(super) struct LoweredKernel {
    pub(super) kernel: Kernel,
    pub(super) push: Push,
    pub(super) groups: [u32; 3],
    pub(super) taken: usize,
    /// The product that it computes, if its tile can be chosen.
    pub(super) product: Option<(Arithmetic, Product)>,
    /// The addresses of the weights that the kernel reads ([`Dispatch::weights`](super::dispatch::Dispatch::weights)).
    pub(super) weights: Range<u64>,
}

impl LoweredKernel {
    /// Makes a kernel that computes no product.
    pub(super) fn new<B: PushBlock>(kernel: Kernel, push: &B, groups: [u32; 3], taken: usize) -> LoweredKernel {
        LoweredKernel { kernel, push: Push::new(push), groups, taken, product: None, weights: 0..0 }
    }
}

/// The bounds on the error of a product with this arithmetic.
fn tolerance_of(arithmetic: Arithmetic) -> Tolerance {
    let about = Tolerance::ABOUT_F32;
    match arithmetic {
        Arithmetic::F32 => about,
        // Inputs of 16 bits, with one scale for 16 of them or for a row.
        Arithmetic::IntegerDot => Tolerance { inputs: 2e-5, block: 16, ..about },
        Arithmetic::Matrix(Operand::S8) => Tolerance { inputs: 2e-5, block: usize::MAX, ..about },
        // Inputs and weights of f16.
        Arithmetic::Matrix(Operand::F16) => Tolerance { inputs: 1e-3, ..about },
    }
}

impl Lowering<'_> {
    /// The address of a slot's first row in this pass. A pass of experts has no second half: its first row is 0.
    pub(super) fn slot(&self, s: Slot) -> u64 {
        self.addresses.arena + s.row(self.addresses.first_row)
    }

    /// The device address of a pool's page tables.
    pub(super) fn table(&self, pool: Pool) -> u64 {
        self.addresses.arena + self.schedule.arena.tables[pool as usize].offset
    }

    pub(super) fn weight(&self, buffer: WeightBuffer, offset: u64) -> u64 {
        self.addresses.weights[self.schedule.weights.index(buffer)] + offset
    }

    pub(super) fn vector(&self, v: Vector) -> u64 {
        self.weight(v.buffer, v.offset)
    }

    pub(super) fn count(&self, rows: Rows) -> usize {
        self.kind.count(rows)
    }

    /// The state word that counts a step's live rows.
    pub(super) fn row_count_word(rows: Rows) -> u32 {
        word(match rows {
            Rows::Pass | Rows::Draft | Rows::DraftSource => StateLayout::ROWS,
            Rows::Head => StateLayout::HEAD_ROWS,
            Rows::Expert(_) => StateLayout::EXPERT_ROWS,
        })
    }

    /// The arithmetic of the linear step at `at`, which reads `slot`. If adjacent steps read the same slot with
    /// matrices of other formats that need another activation layout, all of them compute in f32.
    pub(crate) fn arithmetic(&self, at: usize, weight: Matrix, slot: Slot, rows: Rows) -> Arithmetic {
        let Some(packed) = self.layout.packed(slot) else { return Arithmetic::F32 };
        let of = |weight: Matrix| self.target.arithmetic(weight.format, self.count(rows), packed.whole_rows);
        let layout = |weight: Matrix| modules(weight.format).inputs(of(weight));
        let is_shared = self.readers(at, slot).all(|other| layout(other) == layout(weight));
        if is_shared { of(weight) } else { Arithmetic::F32 }
    }

    /// The error bounds of the kernels of a step, as an executor's `tolerance` says.
    pub fn tolerance(&self, step: usize) -> Tolerance {
        let s = &self.schedule.steps[step];
        let about = Tolerance::ABOUT_F32;
        match s.op {
            Op::Linear { weight, x, .. } => tolerance_of(self.arithmetic(step, weight, x, s.rows)),
            Op::ExpertLinear { .. } => {
                tolerance_of(PieceLowering::new(*self, 0..self.schedule.steps.len()).expert_arithmetic(step))
            }
            Op::KvWrite { kv, .. } if kv.element == KvType::F16 => Tolerance::F16,
            Op::KvWrite { kv, .. } if kv.element == KvType::Bf16 => Tolerance::BF16,
            // Queries and weights of f16 on matrix units.
            Op::Attend { .. } if self.target.units.is_some() => Tolerance { inputs: 1e-3, outputs: 1e-3, ..about },
            _ => about,
        }
    }

    /// The matrices of the linear step at `at` and of adjacent steps that read the same slot.
    fn readers(&self, at: usize, slot: Slot) -> impl Iterator<Item = Matrix> {
        let reads = move |step: &Step| match step.op {
            Op::Linear { weight, x, .. } if x == slot => Some(weight),
            _ => None,
        };
        let (before, behind) = self.schedule.steps.split_at(at);
        before.iter().rev().map_while(reads).chain(behind.iter().map_while(reads))
    }
}
