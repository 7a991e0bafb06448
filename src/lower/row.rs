//! Lowering of the steps that work on one row at a time: embedding, norms, gated GELU, argmax. Also packing, which
//! copies a linear step's input into the activation layout that its kernel reads.

use super::arithmetic::{ActivationLayout, modules};
use super::layout::{ARGMAX_GROUPS, COUNTER_BYTES, MAXIMA_PARTS, MAXIMA_ROWS, PackedSlot};
use super::lowering::{LoweredKernel, Lowering, TokenSource};
use super::piece::PieceLowering;
use crate::lower::kernels::constants::{ArgmaxConstants, EmbedConstants, NoConstants, NormConstants, PackConstants};
use crate::lower::kernels::push::{ArgmaxPush, EmbedPush, NormPush, PackPush, SoftCapPush, word};
use crate::lower::kernels::{Kernel, Module};
use crate::lower::limits::MAX_WORKGROUP;
use crate::model::WeightFormat;
use crate::schedule::Step;
use crate::schedule::step::{Matrix, Op, Rows, Slot, Vector};

/// Lanes of a workgroup for one row. Enough to hide load latency, and divisible by every subgroup size.
const ROW_WORKGROUP: u32 = 256;
/// The number of logits that a workgroup of argmax reads.
const ARGMAX_SHARE: usize = 4096;

/// For kernels that keep a row of `width` elements in registers: vectors of four per lane, and lanes of a workgroup.
pub(super) fn row_division(width: usize) -> (u32, u32) {
    let vecs = width.div_ceil(4);
    let turns = vecs.div_ceil(MAX_WORKGROUP as usize);
    // Divisible by every subgroup size.
    let workgroup = vecs.div_ceil(turns).next_multiple_of(64);
    (turns as u32, workgroup as u32)
}

/// The operands of the norm kernels. The kernel does not access operands that are `None`.
pub(super) struct NormOperands {
    pub(super) x: Slot,
    pub(super) weight: Vector,
    pub(super) eps: f32,
    /// The slot to which the norm is added.
    pub(super) residual: Option<Slot>,
    /// The number by which the sum with the residual is multiplied.
    pub(super) scalar: Option<Vector>,
    /// The second norm, written to a slot: weight, eps, output.
    pub(super) second: Option<(Vector, f32, Slot)>,
    /// A further output of the second norm with other weights, packed as the first one is.
    pub(super) third: Option<(Vector, PackedSlot)>,
}

impl NormOperands {
    /// A norm without residual, and without another norm after it.
    pub(super) fn new(x: Slot, weight: Vector, eps: f32) -> NormOperands {
        NormOperands { x, weight, eps, residual: None, scalar: None, second: None, third: None }
    }
}

impl Lowering<'_> {
    pub(super) fn embed(&self, rows: Rows, table: Matrix, scale: f32, out: Slot) -> LoweredKernel {
        let state = self.schedule.arena.state;
        let push = EmbedPush {
            state: self.addresses.state,
            table: self.weight(table.buffer, table.offset),
            scales: self.weight(table.buffer, table.scales),
            x_out: self.slot(out),
            token: word(state.token()),
            position: word(state.position()),
            next: word(match self.kind.tokens {
                TokenSource::Drafted(step) => state.drafted(step),
                TokenSource::Host | TokenSource::Next => state.next(),
            }),
            cols: word(WeightFormat::padded(table.cols)),
            out_stride: word(out.stride),
            count: word(out.width),
            scale,
        };
        let chosen = match self.kind.tokens {
            TokenSource::Host => 0,
            TokenSource::Next => 1,
            TokenSource::Drafted(_) => 2,
        };
        let kernel =
            Kernel::new(modules(table.format).embed, ROW_WORKGROUP, EmbedConstants { chosen }).of_weights(table.format);
        LoweredKernel::new(kernel, &push, [1, self.count(rows) as u32, 1], 1)
    }

    pub(super) fn soft_cap(&self, rows: Rows, x: Slot, cap: f32) -> LoweredKernel {
        let push = SoftCapPush {
            state: self.addresses.state,
            x: self.slot(x),
            which: Lowering::row_count_word(rows),
            width: word(x.width),
            stride: word(x.stride),
            cap,
        };
        let kernel = Kernel::new(Module::SoftCap, ROW_WORKGROUP, NoConstants {});
        let groups = [word(x.width).div_ceil(ROW_WORKGROUP), self.count(rows) as u32, 1];
        LoweredKernel::new(kernel, &push, groups, 1)
    }

    pub(super) fn argmax(&self, rows: Rows, x: Slot) -> LoweredKernel {
        let state = self.schedule.arena.state;
        // One counter per row.
        let most = if self.count(rows) as u64 * 4 <= COUNTER_BYTES { ARGMAX_GROUPS } else { 1 };
        let groups = x.width.div_ceil(ARGMAX_SHARE).clamp(1, most) as u32;
        let step = if let TokenSource::Drafted(before) = self.kind.tokens { before + 1 } else { 0 };
        let (next, finite) = match rows {
            Rows::Draft => (state.drafted(step), state.drafted_finite(step)),
            _ => (state.next(), state.finite()),
        };
        let push = ArgmaxPush {
            state: self.addresses.state,
            x: self.slot(x),
            scratch: self.addresses.arena + self.layout.scratch.argmax,
            which: Lowering::row_count_word(rows),
            next: word(next),
            finite: word(finite),
            width: word(x.width),
            stride: word(x.stride),
        };
        let kernel = Kernel::new(Module::Argmax, ROW_WORKGROUP, ArgmaxConstants { groups });
        LoweredKernel::new(kernel, &push, [groups, self.count(rows) as u32, 1], 1)
    }
}

impl PieceLowering<'_> {
    /// `at`: index of the last step that the dispatch runs.
    pub(super) fn norm(&self, module: Module, rows: Rows, n: NormOperands, at: usize, taken: usize) -> LoweredKernel {
        let residual = n.residual.unwrap_or(n.x);
        let (w2, eps2, out) = n.second.unwrap_or((n.weight, n.eps, n.x));
        let written = n.second.map(|_| self.written(at, out, rows));
        let (layout, packed) = written.unwrap_or((ActivationLayout::F32, None));
        // Watchers of a pass read the final norm's output, so it is kept in f32 too.
        let keep = u32::from(rows == Rows::Head);
        let push = NormPush {
            state: self.addresses.state,
            x: self.slot(n.x),
            w: self.vector(n.weight),
            residual: self.slot(residual),
            w2: self.vector(w2),
            scalar: n.scalar.map_or(0, |scalar| self.vector(scalar)),
            y_out: self.slot(out),
            packed: packed.map_or(0, |p| self.addresses.arena + p.offset),
            w3: n.third.map_or(0, |(weight, _)| self.vector(weight)),
            packed2: n.third.map_or(0, |(_, p)| self.addresses.arena + p.offset),
            which: Lowering::row_count_word(rows),
            gather: match rows {
                Rows::Pass | Rows::Draft | Rows::Expert(_) => 0,
                Rows::Head => 1,
                Rows::DraftSource => word(self.schedule.arena.state.source()),
            },
            width: word(n.x.width),
            x_stride: word(n.x.stride),
            residual_stride: word(residual.stride),
            out_stride: word(out.stride),
            packed_stride: packed.map_or(0, |p| word(p.stride)),
            padded: packed.map_or(0, |p| word(p.padded)),
            eps: n.eps,
            eps2,
        };
        let (vecs, workgroup) = row_division(packed.map_or(n.x.width, |p| p.padded));
        let (scaled, twice) = (u32::from(n.scalar.is_some()), u32::from(n.third.is_some()));
        let constants = NormConstants { vecs, form: layout as u32, keep, scaled, twice };
        let kernel = Kernel::new(module, workgroup, constants);
        LoweredKernel::new(kernel, &push, [1, self.count(rows) as u32, 1], taken)
    }

    /// Workgroups per row of the gated product. With several, the output is f32: no workgroup knows the whole row's
    /// scale.
    fn gelu_parts(&self, at: usize, rows: Rows, out: Slot) -> usize {
        let scaled = self.written(at, out, rows).0.is_scaled_by_row();
        if scaled && self.count(rows) <= MAXIMA_ROWS { MAXIMA_PARTS } else { 1 }
    }

    pub(super) fn gated_gelu(&self, at: usize, rows: Rows, gate: Slot, up: Slot, out: Slot) -> LoweredKernel {
        let parts = self.gelu_parts(at, rows, out);
        let (layout, packed) = if parts > 1 { (ActivationLayout::F32, None) } else { self.written(at, out, rows) };
        let push = PackPush {
            state: self.addresses.state,
            x: self.slot(gate),
            up: self.slot(up),
            y_out: packed.map_or(self.slot(out), |p| self.addresses.arena + p.offset),
            list: 0,
            tops: self.addresses.arena + self.layout.scratch.maxima,
            which: Lowering::row_count_word(rows),
            width: word(gate.width),
            in_stride: word(gate.stride),
            out_stride: packed.map_or(word(4 * out.stride), |p| word(p.stride)),
            padded: packed.map_or(0, |p| word(p.padded)),
        };
        let (vecs, workgroup) = row_division(packed.map_or(gate.width, |p| p.padded).div_ceil(parts));
        let constants = PackConstants { vecs, form: layout as u32, parts: parts as u32, gather: 0 };
        let kernel = Kernel::new(Module::GatedGelu, workgroup, constants);
        LoweredKernel::new(kernel, &push, [parts as u32, self.count(rows) as u32, 1], 1)
    }

    /// Packs the output of the step at `at` for the next linear step. `None` if `kernel`, which ran the step, has
    /// written the packed slot itself, or no linear step of the piece reads it packed.
    pub(super) fn pack(&self, at: usize, step: &Step, kernel: Kernel) -> Option<LoweredKernel> {
        let mut parts = 1;
        let is_in_slot = |out: Slot| self.written(at, out, step.rows).0 == ActivationLayout::F32;
        let out = match step.op {
            Op::Embed { out, .. } | Op::Linear { out, .. } | Op::ExpertSum { out, .. } => out,
            Op::RmsNorm { out, .. } if is_in_slot(out) => out,
            Op::Attend { out, kv, .. } if !whole_blocks(kv.head_dim) || is_in_slot(out) => out,
            Op::GatedGelu { out, .. } if writes_f32_only(kernel.module) || is_in_slot(out) => out,
            Op::GatedGelu { out, .. } if self.gelu_parts(at, step.rows, out) > 1 => {
                parts = self.gelu_parts(at, step.rows, out);
                out
            }
            Op::NormAdd { residual, .. } => residual,
            Op::HeadNormRope { x, .. } | Op::SoftCap { x, .. } => x,
            Op::RmsNorm { .. }
            | Op::Attend { .. }
            | Op::GatedGelu { .. }
            | Op::KvWrite { .. }
            | Op::Route { .. }
            | Op::ExpertLinear { .. }
            | Op::Argmax { .. }
            | Op::BlockSums { .. }
            | Op::Candidates { .. } => return None,
        };
        let (layout, packed) = self.wanted(at, out, step.rows);
        self.pack_slot(out, step.rows, layout, packed?, parts)
    }

    /// Packs a slot, in `parts` workgroups a row. `None` for f32, which stays in the slot.
    pub(super) fn pack_slot(
        &self,
        slot: Slot,
        rows: Rows,
        layout: ActivationLayout,
        packed: PackedSlot,
        parts: usize,
    ) -> Option<LoweredKernel> {
        (layout != ActivationLayout::F32).then(|| self.pack_rows(slot, rows, layout, packed, parts, None))
    }

    /// Packs rows of a slot: with `gather`, for row r the row `list[r] / share`; the address of the list, and `share`.
    pub(super) fn pack_rows(
        &self,
        slot: Slot,
        rows: Rows,
        layout: ActivationLayout,
        packed: PackedSlot,
        parts: usize,
        gather: Option<(u64, usize)>,
    ) -> LoweredKernel {
        let push = PackPush {
            state: self.addresses.state,
            x: self.slot(slot),
            up: self.slot(slot),
            y_out: self.addresses.arena + packed.offset,
            list: gather.map_or(0, |(list, _)| list),
            tops: self.addresses.arena + self.layout.scratch.maxima,
            which: Lowering::row_count_word(rows),
            width: word(slot.width),
            in_stride: word(slot.stride),
            out_stride: word(packed.stride),
            padded: word(packed.padded),
        };
        let (vecs, workgroup) = row_division(packed.padded.div_ceil(parts));
        let gather = gather.map_or(0, |(_, share)| share as u32);
        let constants = PackConstants { vecs, form: layout as u32, parts: parts as u32, gather };
        let kernel = Kernel::new(Module::Pack, workgroup, constants);
        let groups = [parts as u32, self.count(rows) as u32, 1];
        LoweredKernel::new(kernel, &push, groups, 0)
    }
}

/// True if a head is a whole number of blocks of 16. Only then can the attention kernel write a packed slot.
pub(super) fn whole_blocks(head_dim: usize) -> bool {
    head_dim.is_multiple_of(16)
}

/// True if the kernel `module` computes the gated product and can write it in f32 only.
fn writes_f32_only(module: Module) -> bool {
    WeightFormat::ALL.iter().any(|&format| modules(format).linear_gelu == module)
}
