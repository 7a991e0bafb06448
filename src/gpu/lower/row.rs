//! Lowering of the steps that work on a row at a time: embedding, norms, gated GELU, argmax; and of packing, which brings a
//! linear step's input into the layout that its kernel reads.

use super::arithmetic::{ActivationLayout, modules};
use super::layout::{ARGMAX_GROUPS, COUNTER_BYTES, MAXIMA_PARTS, MAXIMA_ROWS};
use super::lowering::{Lowered, Lowering, TokenSource};
use crate::gpu::device::limits::MAX_WORKGROUP;
use crate::gpu::kernels::constants::{ArgmaxConstants, EmbedConstants, NormConstants, PackConstants};
use crate::gpu::kernels::push::{ArgmaxPush, EmbedPush, NormPush, PackPush, Push, word};
use crate::gpu::kernels::{Kernel, Module};
use crate::model::WeightFormat;
use crate::schedule::Step;
use crate::schedule::step::{Matrix, Op, Rows, Slot, Vector};

/// Lanes of a workgroup that works on a row: enough to cover the latency of its loads, and divisible by every subgroup
/// size.
const ROW_WORKGROUP: u32 = 256;
/// Logits of a workgroup that looks for a row's argmax.
const ARGMAX_SHARE: usize = 4096;

/// For kernels whose lanes keep a row of `width` in registers: the number of times that a lane holds four elements, and the
/// lanes of a workgroup.
fn row_division(width: usize) -> (u32, u32) {
    let vecs = width.div_ceil(4);
    let turns = vecs.div_ceil(MAX_WORKGROUP as usize);
    // Divisible by every subgroup size.
    let workgroup = vecs.div_ceil(turns).next_multiple_of(64);
    (turns as u32, workgroup as u32)
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
        let push = EmbedPush {
            state: self.addresses.arena,
            table: self.weight(table.buffer, table.offset),
            scales: self.weight(table.buffer, table.scales),
            x_out: self.slot(out),
            token: word(state.token()),
            position: word(state.position()),
            next: word(state.next()),
            cols: word(WeightFormat::padded(table.cols)),
            out_stride: word(out.stride),
            count: word(out.width),
            scale,
        };
        let chosen = u32::from(self.kind.tokens == TokenSource::Argmax);
        let kernel = Kernel::new(modules(table.format).embed, ROW_WORKGROUP, EmbedConstants { chosen });
        Lowered { kernel, push: Push::new(&push), groups: [1, self.count(rows) as u32, 1], taken: 1, product: None }
    }

    pub(super) fn argmax(&self, rows: Rows, x: Slot) -> Lowered {
        let state = self.schedule.arena.state;
        // One counter a row.
        let most = if self.count(rows) as u64 * 4 <= COUNTER_BYTES { ARGMAX_GROUPS } else { 1 };
        let groups = x.width.div_ceil(ARGMAX_SHARE).clamp(1, most) as u32;
        let push = ArgmaxPush {
            state: self.addresses.arena,
            x: self.slot(x),
            scratch: self.addresses.arena + self.layout.scratch.argmax,
            which: Self::row_count_word(rows),
            next: word(state.next()),
            finite: word(state.finite()),
            width: word(x.width),
            stride: word(x.stride),
        };
        let kernel = Kernel::new(Module::Argmax, ROW_WORKGROUP, ArgmaxConstants { groups });
        Lowered {
            kernel,
            push: Push::new(&push),
            groups: [groups, self.count(rows) as u32, 1],
            taken: 1,
            product: None,
        }
    }

    /// `at`: index of the last step that the dispatch runs.
    pub(super) fn norm(&self, module: Module, rows: Rows, n: Norm, at: usize, taken: usize) -> Lowered {
        let residual = n.residual.unwrap_or(n.x);
        let (w2, eps2, out) = n.second.unwrap_or((n.weight, n.eps, n.x));
        let written = n.second.map(|_| self.written(at, out, rows));
        let (layout, packed) = written.unwrap_or((ActivationLayout::F32, None));
        // The final norm's output is shown to whoever watches a pass.
        let keep = u32::from(rows == Rows::Head);
        let push = NormPush {
            state: self.addresses.arena,
            x: self.slot(n.x),
            w: self.vector(n.weight),
            residual: self.slot(residual),
            w2: self.vector(w2),
            y_out: self.slot(out),
            packed: packed.map_or(0, |p| self.addresses.arena + p.offset),
            which: Self::row_count_word(rows),
            gather: u32::from(rows == Rows::Head),
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
        let kernel = Kernel::new(module, workgroup, NormConstants { vecs, form: layout as u32, keep });
        Lowered { kernel, push: Push::new(&push), groups: [1, self.count(rows) as u32, 1], taken, product: None }
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
        let push = PackPush {
            state: self.addresses.arena,
            x: self.slot(gate),
            up: self.slot(up),
            y_out: packed.map_or(self.slot(out), |p| self.addresses.arena + p.offset),
            tops: self.addresses.arena + self.layout.scratch.maxima,
            which: Self::row_count_word(rows),
            width: word(gate.width),
            in_stride: word(gate.stride),
            out_stride: packed.map_or(word(4 * out.stride), |p| word(p.stride)),
            padded: packed.map_or(0, |p| word(p.padded)),
        };
        let (vecs, workgroup) = row_division(packed.map_or(gate.width, |p| p.padded).div_ceil(parts));
        let constants = PackConstants { vecs, form: layout as u32, parts: parts as u32 };
        let kernel = Kernel::new(Module::GatedGelu, workgroup, constants);
        Lowered {
            kernel,
            push: Push::new(&push),
            groups: [parts as u32, self.count(rows) as u32, 1],
            taken: 1,
            product: None,
        }
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
        let push = PackPush {
            state: self.addresses.arena,
            x: self.slot(out),
            up: self.slot(out),
            y_out: self.addresses.arena + packed.offset,
            tops: self.addresses.arena + self.layout.scratch.maxima,
            which: Self::row_count_word(step.rows),
            width: word(out.width),
            in_stride: word(out.stride),
            out_stride: word(packed.stride),
            padded: word(packed.padded),
        };
        let (vecs, workgroup) = row_division(packed.padded.div_ceil(parts));
        let constants = PackConstants { vecs, form: layout as u32, parts: parts as u32 };
        let kernel = Kernel::new(Module::Pack, workgroup, constants);
        let groups = [parts as u32, self.count(step.rows) as u32, 1];
        Some(Lowered { kernel, push: Push::new(&push), groups, taken: 0, product: None })
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
