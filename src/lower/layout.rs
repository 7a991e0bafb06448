//! The GPU's arena: the schedule's slots, then memory that only the kernels use, unknown to the schedule.

use super::arithmetic::modules;
use super::experts::ExpertRegions;
use crate::model::LayerKind;
use crate::schedule::layout::ALIGN;
use crate::schedule::step::{Op, Rows, Slot};
use crate::schedule::{Extent, Schedule};

/// The number of relay counters in the arena.
pub const RELAY_COUNTERS: usize = 1024;
/// Bytes from one relay counter to the next: a cache line.
pub const RELAY_STRIDE: u64 = 128;

/// Bytes of counters at the start of a scratch region. They are zero between steps.
pub const COUNTER_BYTES: u64 = 4096;

/// Bytes for partial results of matrix units, in products and attention: partial sums, then counters.
pub const PRODUCT_SCRATCH: [u64; 2] = [16 << 20, 64 << 10];
/// The most partial results of one head's attention: rows times parts of each row's keys.
pub const SPLIT_ROWS: usize = 64;
/// The most partial results of the argmax of a row.
pub const ARGMAX_GROUPS: usize = 256;
/// Workgroups per row of a gated GELU whose output is scaled by row. Each stores the largest element of its part.
pub const MAXIMA_PARTS: usize = 8;
/// The most rows of a pass whose gated GELU is divided among workgroups.
pub const MAXIMA_ROWS: usize = 64;

/// The place of a packed slot: a copy of a slot in the activation layout of the linear step that reads it
/// ([`super::arithmetic::ActivationLayout`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedSlot {
    /// Bytes from the arena's start to row 0.
    pub offset: u64,
    /// Distance from one row to the next, in bytes.
    pub stride: usize,
    /// Elements of a row. Elements past the slot's width are zero.
    pub padded: usize,
    /// True if one workgroup writes a whole row, and so knows the row's largest element.
    pub whole_rows: bool,
}

/// Regions for partial results of one step, which the last workgroup to arrive adds up. Offsets are bytes from the
/// arena's start. A region begins with [`COUNTER_BYTES`] of counters unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scratch {
    /// Attention: at most [`SPLIT_ROWS`] parts of a head, over all rows.
    pub attend: u64,
    /// Argmax: at most [`ARGMAX_GROUPS`] parts per row.
    pub argmax: u64,
    /// Matrix units: partial sums, and their counters ([`PRODUCT_SCRATCH`] bytes).
    pub product: [u64; 2],
    /// Largest elements: u32 `[MAXIMA_ROWS, MAXIMA_PARTS]`; no counters.
    pub maxima: u64,
    /// The offset of the relay counters: [`RELAY_COUNTERS`], [`RELAY_STRIDE`] bytes apart.
    pub relay: u64,
}

/// Offsets of all regions in a GPU's arena.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuLayout {
    /// The packed copies of the slots that linear steps read.
    packed: Vec<(Slot, PackedSlot)>,
    /// The offsets of kernels' partial results.
    pub scratch: Scratch,
    /// The step states of a pass's two halves, each a [`crate::schedule::layout::StateLayout`]: bytes from the arena's
    /// start.
    pub halves: [u64; 2],
    /// The offsets of what experts' kernels need.
    pub(super) experts: ExpertRegions,
    /// The size of the whole arena in bytes.
    pub bytes: u64,
}

/// Allocates regions of the arena after the schedule's slots.
struct ArenaTail {
    bytes: u64,
}

impl ArenaTail {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.bytes;
        self.bytes += bytes.next_multiple_of(ALIGN);
        at
    }
}

impl GpuLayout {
    /// The layout of the arena for a schedule.
    pub fn new(schedule: &Schedule) -> GpuLayout {
        let mut tail = ArenaTail { bytes: schedule.arena.bytes };
        let mut packed: Vec<(Slot, PackedSlot)> = Vec::new();
        for step in &schedule.steps {
            let (Op::Linear { x, .. } | Op::ExpertLinear { x, .. }) = step.op else { continue };
            if !packed.iter().any(|(slot, _)| *slot == x) {
                packed.push((x, place_packed(&mut tail, schedule, x, step.input_rows())));
            }
        }
        let scratch = Scratch::place(&mut tail, schedule, &schedule.extent);
        let halves = [(); 2].map(|()| tail.take(4 * schedule.arena.state.words() as u64));
        let experts = ExpertRegions::place(schedule, |bytes| tail.take(bytes));
        GpuLayout { packed, scratch, halves, experts, bytes: tail.bytes }
    }

    /// The packed copy of a slot that a linear step reads.
    pub fn packed(&self, slot: Slot) -> Option<PackedSlot> {
        self.packed.iter().find(|(s, _)| *s == slot).map(|p| p.1)
    }
}

fn place_packed(tail: &mut ArenaTail, schedule: &Schedule, slot: Slot, rows: Rows) -> PackedSlot {
    let rows = match rows {
        Rows::Pass => schedule.extent.max_rows,
        Rows::Head => schedule.extent.head_rows,
        Rows::Draft | Rows::DraftSource => schedule.arena.state.draft_rows,
        Rows::Expert(used) => used * schedule.extent.max_rows,
    };
    let padded = slot.width.next_multiple_of(32);
    let readers = schedule.steps.iter().filter_map(|step| match step.op {
        Op::Linear { weight, x, .. } | Op::ExpertLinear { weight, x, .. } if x == slot => {
            Some(modules(weight.format).packed_bytes(padded))
        }
        _ => None,
    });
    let stride = readers.max().unwrap_or(0).next_multiple_of(64);
    let offset = tail.take((rows * stride) as u64);
    // A workgroup of attention writes only some heads of a row.
    let by_heads = |op: &Op| matches!(op, Op::Attend { out, .. } if *out == slot);
    let whole_rows = !schedule.steps.iter().any(|s| by_heads(&s.op));
    PackedSlot { offset, stride, padded, whole_rows }
}

impl Scratch {
    fn place(tail: &mut ArenaTail, schedule: &Schedule, extent: &Extent) -> Scratch {
        // Per part and head: its sums, padded, and four floats.
        let parts = |kind| {
            let attention = schedule.shape.attention(kind);
            4 * (attention.heads * SPLIT_ROWS * (attention.head_dim.next_multiple_of(8) + 4)) as u64
        };
        let parts = LayerKind::ALL.map(parts).into_iter().fold(0, u64::max);
        let attend = tail.take(COUNTER_BYTES + parts);
        let argmax = tail.take(COUNTER_BYTES + 8 * (extent.head_rows * ARGMAX_GROUPS) as u64);
        let product = PRODUCT_SCRATCH.map(|bytes| tail.take(bytes));
        let relay = tail.take(RELAY_COUNTERS as u64 * RELAY_STRIDE);
        let maxima = tail.take((4 * MAXIMA_ROWS * MAXIMA_PARTS) as u64);
        Scratch { attend, argmax, product, relay, maxima }
    }
}
