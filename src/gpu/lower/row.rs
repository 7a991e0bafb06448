//! Lowering of the steps that work on a row at a time: embedding, norms, gated GELU, argmax; and of packing, which brings a
//! linear step's input into the layout that its kernel reads.

use super::arithmetic::{ActivationLayout, modules};
use super::layout::{ARGMAX_GROUPS, COUNTER_BYTES, MAXIMA_PARTS, MAXIMA_ROWS};
use super::lowering::{Lowered, Lowering, TokenSource};
use crate::gpu::device::limits::MAX_WORKGROUP;
use crate::gpu::kernels::{Constants, Kernel, Module, constants};
use crate::model::WeightFormat;
use crate::schedule::Step;
use crate::schedule::step::{Matrix, Op, Rows, Slot, Vector};

/// Lanes of a workgroup that works on a row: enough to cover the latency of its loads, and divisible by every subgroup
/// size.
const ROW_WORKGROUP: u32 = 256;
/// Logits of a workgroup that looks for a row's argmax.
const ARGMAX_SHARE: usize = 4096;

/// A kernel whose lanes keep a row of `width` in registers, four elements at a time. `with`: the constants behind the number
/// of times.
fn row_kernel<const N: usize>(module: Module, width: usize, with: [u32; N]) -> Kernel {
    let vecs = width.div_ceil(4);
    let turns = vecs.div_ceil(MAX_WORKGROUP as usize);
    // Divisible by every subgroup size.
    let workgroup = vecs.div_ceil(turns).next_multiple_of(64);
    let mut all: Constants = constants([turns as u32]);
    all[1..=N].copy_from_slice(&with);
    Kernel { module, workgroup: workgroup as u32, constants: all }
}

/// The operands of the norm kernels. What `residual` or `second` leave out, the kernel does not touch.
pub(super) struct Norm {
    pub(super) x: Slot,
    pub(super) weight: Vector,
    pub(super) eps: f32,
    /// What the norm is added to.
    pub(super) residual: Option<Slot>,
    /// The norm that is written, if any: weight, eps, output.
    pub(super) second: Option<(Vector, f32, Slot)>,
}

impl Lowering<'_> {
    pub(super) fn embed(&self, rows: Rows, table: Matrix, scale: f32, out: Slot) -> Lowered {
        let state = self.schedule.arena.state;
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
        let from_argmax = u32::from(self.kind.tokens == TokenSource::Argmax);
        let module = modules(table.format).embed;
        let kernel = Kernel { module, workgroup: ROW_WORKGROUP, constants: constants([from_argmax]) };
        Lowered { kernel, push, groups: [1, self.count(rows) as u32, 1], taken: 1, product: None }
    }

    pub(super) fn argmax(&self, rows: Rows, x: Slot) -> Lowered {
        let state = self.schedule.arena.state;
        // One counter a row.
        let most = if self.count(rows) as u64 * 4 <= COUNTER_BYTES { ARGMAX_GROUPS } else { 1 };
        let groups = x.width.div_ceil(ARGMAX_SHARE).clamp(1, most) as u32;
        let push = self
            .push()
            .address(self.slot(x))
            .address(self.addresses.arena + self.layout.scratch.argmax)
            .word(Self::row_count_word(rows))
            .word(state.next())
            .word(state.finite())
            .word(x.width)
            .word(x.stride);
        let kernel = Kernel { module: Module::Argmax, workgroup: ROW_WORKGROUP, constants: constants([groups]) };
        Lowered { kernel, push, groups: [groups, self.count(rows) as u32, 1], taken: 1, product: None }
    }

    /// `at`: index of the last step that the dispatch runs.
    pub(super) fn norm(&self, module: Module, rows: Rows, n: Norm, at: usize, taken: usize) -> Lowered {
        let residual = n.residual.unwrap_or(n.x);
        let (w2, eps2, out) = n.second.unwrap_or((n.weight, n.eps, n.x));
        let written = n.second.map(|_| self.written(at, out, rows));
        let (layout, packed) = written.unwrap_or((ActivationLayout::F32, None));
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
            .word(Self::row_count_word(rows))
            .word(usize::from(rows == Rows::Head))
            .word(n.x.width)
            .word(n.x.stride)
            .word(residual.stride)
            .word(out.stride)
            .word(packed.map_or(0, |p| p.stride))
            .word(packed.map_or(0, |p| p.padded))
            .float(n.eps)
            .float(eps2);
        let kernel = row_kernel(module, packed.map_or(n.x.width, |p| p.padded), [layout as u32, keep]);
        Lowered { kernel, push, groups: [1, self.count(rows) as u32, 1], taken, product: None }
    }

    /// Workgroups that make a row of the gated product. Several leave it in f32, because none of them knows the scale that the
    /// row's layout takes.
    fn gelu_parts(&self, at: usize, rows: Rows, out: Slot) -> usize {
        let scaled = self.written(at, out, rows).0.is_scaled_by_row();
        if scaled && self.count(rows) <= MAXIMA_ROWS { MAXIMA_PARTS } else { 1 }
    }

    pub(super) fn gated_gelu(&self, at: usize, rows: Rows, gate: Slot, up: Slot, out: Slot) -> Lowered {
        let parts = self.gelu_parts(at, rows, out);
        let (layout, packed) = if parts > 1 { (ActivationLayout::F32, None) } else { self.written(at, out, rows) };
        let push = self
            .push()
            .address(self.slot(gate))
            .address(self.slot(up))
            .address(packed.map_or(self.slot(out), |p| self.addresses.arena + p.offset))
            .address(self.addresses.arena + self.layout.scratch.maxima)
            .word(Self::row_count_word(rows))
            .word(gate.width)
            .word(gate.stride)
            .word(packed.map_or(4 * out.stride, |p| p.stride))
            .word(packed.map_or(0, |p| p.padded));
        let width = packed.map_or(gate.width, |p| p.padded).div_ceil(parts);
        let kernel = row_kernel(Module::GatedGelu, width, [layout as u32, parts as u32]);
        Lowered { kernel, push, groups: [parts as u32, self.count(rows) as u32, 1], taken: 1, product: None }
    }

    /// Brings what the step at `at` has written with `kernel` into the layout that the next linear step reads, where the
    /// kernel did not do so itself.
    pub(super) fn pack(&self, at: usize, step: &Step, kernel: Kernel) -> Option<Lowered> {
        let mut parts = 1;
        let out = match step.op {
            Op::Embed { out, .. } | Op::Linear { out, .. } => out,
            Op::Attend { out, ring, .. } if !whole_blocks(ring.head_dim) => out,
            Op::GatedGelu { out, .. } if writes_f32_only(kernel.module) => out,
            Op::GatedGelu { out, .. } if self.gelu_parts(at, step.rows, out) > 1 => {
                parts = self.gelu_parts(at, step.rows, out);
                out
            }
            Op::NormAdd { residual, .. } => residual,
            Op::HeadNormRope { x, .. } => x,
            Op::RmsNorm { .. } | Op::Attend { .. } | Op::GatedGelu { .. } | Op::KvWrite { .. } | Op::Argmax { .. } => {
                return None;
            }
        };
        let (layout, packed) = self.written(at, out, step.rows);
        let packed = packed?;
        let push = self
            .push()
            .address(self.slot(out))
            .address(self.slot(out))
            .address(self.addresses.arena + packed.offset)
            .address(self.addresses.arena + self.layout.scratch.maxima)
            .word(Self::row_count_word(step.rows))
            .word(out.width)
            .word(out.stride)
            .word(packed.stride)
            .word(packed.padded);
        let kernel = row_kernel(Module::Pack, packed.padded.div_ceil(parts), [layout as u32, parts as u32]);
        let groups = [parts as u32, self.count(step.rows) as u32, 1];
        Some(Lowered { kernel, push, groups, taken: 0, product: None })
    }
}

/// Whether a head's output is whole blocks of 16, so that the attention kernel can write a packed layout by itself.
pub(super) fn whole_blocks(head_dim: usize) -> bool {
    head_dim.is_multiple_of(16)
}

/// Whether a kernel that makes the gated product writes it in f32 alone.
fn writes_f32_only(module: Module) -> bool {
    matches!(module, Module::LinearGeluInt8 | Module::LinearGeluBf16)
}
