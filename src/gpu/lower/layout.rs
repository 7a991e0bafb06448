//! The arena as the GPU needs it: the schedule's slots, and behind them what only its kernels use. The schedule knows
//! nothing of this.

use crate::schedule::layout::{ALIGN, StateLayout};
use crate::schedule::step::{Op, Rows, Slot};
use crate::schedule::{Extent, Schedule};

/// State word that a relayed dispatch sets where it waited in vain: the pass is worth nothing. It is the word that the
/// schedule leaves to the executor.
pub const STALLED: usize = StateLayout::EXECUTOR;

/// Counters by which relayed dispatches wait for each other.
pub const RELAY_COUNTERS: usize = 1024;
/// Bytes from one of them to the next: a cache line.
pub const RELAY_STRIDE: u64 = 128;

/// Bytes at the start of a scratch region that hold counters. They are zero between steps.
pub const COUNTER_BYTES: u64 = 4096;

/// Bytes of the partial sums, and of the counters, of matrix products whose inputs are divided among workgroups.
pub const PRODUCT_SCRATCH: [u64; 2] = [16 << 20, 64 << 10];
/// Partial results of one head's attention that the scratch holds: rows times parts a row.
pub const SPLIT_ROWS: usize = 64;
/// Partial results of a row's argmax that the scratch holds.
pub const ARGMAX_GROUPS: usize = 256;
/// Workgroups of a row that each leave the largest element of their part.
pub const MAXIMA_PARTS: usize = 8;
/// Rows of a pass up to which a row has several such parts.
pub const MAXIMA_ROWS: usize = 64;

/// Where a slot's packed copy lies: the input of a linear step in the layout that its kernel reads
/// ([`super::arithmetic::ActivationLayout`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedSlot {
    /// Bytes from the arena's start to row 0.
    pub offset: u64,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Elements of a row; those behind the slot's width are zero.
    pub padded: usize,
    /// Whether its writer has whole rows at hand, and so knows a row's largest element.
    pub whole_rows: bool,
}

/// Regions in which workgroups of one step leave partial results for the last of them to add up. Each begins with
/// [`COUNTER_BYTES`] of counters unless said otherwise. Bytes from the arena's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scratch {
    /// Attention's: at most [`SPLIT_ROWS`] parts of a head, over all rows.
    pub attend: u64,
    /// Argmax's: at most [`ARGMAX_GROUPS`] parts a row.
    pub argmax: u64,
    /// Matrix products': the partial sums, then their counters ([`PRODUCT_SCRATCH`] bytes).
    pub product: [u64; 2],
    /// The largest elements of parts of rows: [`MAXIMA_PARTS`] words for each of [`MAXIMA_ROWS`] rows; no counters.
    pub maxima: u64,
    /// The counters of relayed dispatches: [`RELAY_COUNTERS`], [`RELAY_STRIDE`] bytes apart.
    pub relay: u64,
}

/// Where everything lies in a GPU's arena.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuLayout {
    /// The packed copies of the slots that linear steps read.
    packed: Vec<(Slot, PackedSlot)>,
    /// Partial results.
    pub scratch: Scratch,
    /// Bytes of the arena in all.
    pub bytes: u64,
}

/// Hands out the bytes behind the schedule's slots.
struct Tail {
    bytes: u64,
}

impl Tail {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.bytes;
        self.bytes += bytes.next_multiple_of(ALIGN);
        at
    }
}

impl GpuLayout {
    /// The layout for a schedule.
    pub fn new(schedule: &Schedule) -> GpuLayout {
        let mut tail = Tail { bytes: schedule.arena.bytes };
        let mut packed: Vec<(Slot, PackedSlot)> = Vec::new();
        for step in &schedule.steps {
            let Op::Linear { x, .. } = step.op else { continue };
            if !packed.iter().any(|(slot, _)| *slot == x) {
                packed.push((x, place_packed(&mut tail, schedule, x, step.rows)));
            }
        }
        let scratch = Scratch::place(&mut tail, schedule, &schedule.extent);
        GpuLayout { packed, scratch, bytes: tail.bytes }
    }

    /// The packed copy of a slot that a linear step reads.
    pub fn packed(&self, slot: Slot) -> Option<PackedSlot> {
        self.packed.iter().find(|(s, _)| *s == slot).map(|p| p.1)
    }
}

fn place_packed(tail: &mut Tail, schedule: &Schedule, slot: Slot, rows: Rows) -> PackedSlot {
    let rows = match rows {
        Rows::Pass => schedule.extent.max_rows,
        Rows::Head => schedule.extent.head_rows,
    };
    let padded = slot.width.next_multiple_of(32);
    // Int16Block is the largest layout: two bytes an element and an f32 scale for 16.
    let stride = (2 * padded + padded / 4).next_multiple_of(64);
    let offset = tail.take((rows * stride) as u64);
    // Attention's workgroups have one head of a row each.
    let by_heads = |op: &Op| matches!(op, Op::Attend { out, .. } if *out == slot);
    let whole_rows = !schedule.steps.iter().any(|s| by_heads(&s.op));
    PackedSlot { offset, stride, padded, whole_rows }
}

impl Scratch {
    fn place(tail: &mut Tail, schedule: &Schedule, extent: &Extent) -> Scratch {
        let shape = &schedule.shape;
        // Of each part a head's sums, padded, and four floats about them.
        let parts = 4 * (shape.heads * SPLIT_ROWS * (shape.head_dim.next_multiple_of(8) + 4)) as u64;
        let attend = tail.take(COUNTER_BYTES + parts);
        let argmax = tail.take(COUNTER_BYTES + 8 * (extent.head_rows * ARGMAX_GROUPS) as u64);
        let product = PRODUCT_SCRATCH.map(|bytes| tail.take(bytes));
        let relay = tail.take(RELAY_COUNTERS as u64 * RELAY_STRIDE);
        let maxima = tail.take((4 * MAXIMA_ROWS * MAXIMA_PARTS) as u64);
        Scratch { attend, argmax, product, relay, maxima }
    }
}
