//! Lowers steps to dispatches: the kernel, push constants and grid of each. The result is plain data, made without a
//! device.
//!
//! A dispatch runs one step, or several adjacent ones by a fusion that [`PieceLowering::fuse`] declares.
//! [`Lowering::lower`] takes any range of steps, as a piece of a pass. A step of another executor ends one piece, and
//! the next begins after it. Values between pieces lie in slots, in f32.

pub mod arithmetic;
#[cfg(any(feature = "cli", feature = "serve", test))]
pub(crate) mod array;
mod attend;
pub mod attend_tile;
pub mod caps;
mod choice;
pub mod dispatch;
mod experts;
pub mod figures;
pub mod fragment;
mod heads;
pub mod kernels;
pub mod layout;
pub mod limits;
mod linear;
pub mod lowering;
pub mod matrix;
mod measured;
mod piece;
#[cfg(any(feature = "cli", feature = "serve", test))]
pub(crate) mod prediction;
mod row;
pub mod shared_tile;
pub mod target;
pub mod units;

pub use lowering::{Lowering, PassKind, RowOrder, TokenSource};

use arithmetic::{ActivationLayout, Arithmetic};
use attend::{AttendOperands, Prepare};
use dispatch::{Dispatch, Edge};
use experts::{ExpertProduct, RouteOperands};
use heads::{Heads, KvEntries};
use layout::PackedSlot;
use lowering::{LoweredKernel, is_halves};
use piece::PieceLowering;
use row::NormOperands;
use target::Product;

use crate::lower::kernels::Module;
use crate::model::LayerKind;
use crate::schedule::step::{Matrix, Op, Rows, Slot, Vector};
use crate::schedule::{Segment, Step};
use std::ops::Range;

impl Lowering<'_> {
    /// The dispatches of a segment of a pass without an offload.
    pub fn segment(&self, segment: Segment) -> Vec<Dispatch> {
        PieceLowering::new(*self, 0..self.schedule.steps.len()).lower(self.schedule.steps_of(segment))
    }

    /// The dispatches of a range of steps as a piece of its own: any executor may have run the steps before, which are
    /// done when the piece begins, and the steps after find their inputs in slots.
    pub fn lower(&self, range: Range<usize>) -> Vec<Dispatch> {
        self.part(range.clone(), range)
    }

    /// The dispatches of a part of a piece. The dispatches of all parts, in order, are the piece's.
    pub fn part(&self, piece: Range<usize>, part: Range<usize>) -> Vec<Dispatch> {
        PieceLowering::new(*self, piece).lower(part)
    }

    /// The smallest ranges of the steps `of` a piece that can run alone with the kernels of the whole piece, in order.
    /// A range has several steps if one kernel runs them, or if a kernel's output is readable only by the next one.
    pub fn alone(&self, piece: Range<usize>, of: Range<usize>) -> Vec<Range<usize>> {
        let whole = PieceLowering::new(*self, piece);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut handed_on = of.start;
        let segments = self.schedule.steps[of.clone()].chunk_by(|a, b| a.segment == b.segment);
        let segments = segments.scan(of.start, |at, steps| {
            let start = *at;
            *at += steps.len();
            Some(start..*at)
        });
        for dispatch in segments.flat_map(|steps| whole.lower(steps)) {
            let steps = dispatch.steps;
            match ranges.last_mut() {
                _ if steps.is_empty() => continue,
                Some(last) if steps.start < handed_on => last.end = steps.end,
                _ => ranges.push(steps.clone()),
            }
            handed_on = steps.filter_map(|at| whole.hands_on(at)).fold(handed_on, usize::max);
        }
        ranges
    }
}

impl PieceLowering<'_> {
    /// The dispatches of the steps in `range`, which belong to the piece.
    fn lower(&self, range: Range<usize>) -> Vec<Dispatch> {
        let mut out: Vec<Dispatch> = Vec::new();
        // Inputs of linear steps that other pieces have computed are packed first.
        let entry = if range.start == self.steps.start { self.entry_packs() } else { Vec::new() };
        let mut is_packing = !entry.is_empty();
        out.extend(entry.into_iter().map(|LoweredKernel { kernel, push, groups, .. }| Dispatch {
            steps: range.start..range.start,
            ..Dispatch::new(kernel, push, groups)
        }));
        let mut at = range.start;
        // Steps before this one are ordered by a barrier that was already added.
        let mut settled = range.start;
        while at < range.end {
            let steps = &self.schedule.steps[at..range.end];
            let LoweredKernel { mut kernel, push, groups, taken, product, weights } =
                self.fuse(at, steps).unwrap_or_else(|| self.step(at, &steps[0]));
            if self.kind.count(steps[0].rows) == 1 {
                kernel.constants.set_single_row();
            }
            if let Some(LoweredKernel { kernel, push, groups, .. }) = self.pack_parts(at) {
                settled = at;
                let edge = Edge::Kernels;
                out.push(Dispatch { steps: at..at, edge, ..Dispatch::new(kernel, push, groups) });
                is_packing = true;
            }
            // Products on matrix units share one region of partial sums.
            let takes_scratch = |product| matches!(product, Some((Arithmetic::Matrix(_), Product { experts: 0, .. })));
            let unsettled = || out.iter().rev().take_while(|d| d.steps.start >= settled);
            let waits = steps[..taken].iter().flat_map(|s| &s.after).any(|&d| (settled..at).contains(&d))
                || takes_scratch(product) && unsettled().any(|d| takes_scratch(d.product))
                || is_packing;
            let edge = if waits { Edge::Kernels } else { Edge::None };
            if waits {
                settled = at;
                is_packing = false;
            }
            out.push(Dispatch { steps: at..at + taken, kernel, push, groups, edge, product, weights });
            at += taken;
            if let Some(LoweredKernel { kernel, push, groups, .. }) = self.attend_behind(at - 1, &steps[taken - 1]) {
                out.push(Dispatch { steps: at..at, ..Dispatch::new(kernel, push, groups) });
            }
            for LoweredKernel { kernel, push, groups, .. } in self.group(at - 1) {
                settled = at - 1;
                out.push(Dispatch { steps: at..at, edge: Edge::Kernels, ..Dispatch::new(kernel, push, groups) });
            }
            if let Some(LoweredKernel { kernel, push, groups, .. }) = self.pack(at - 1, &steps[taken - 1], kernel) {
                // No barrier follows the pack yet, so readers of the step still need one.
                settled = at - 1;
                out.push(Dispatch { steps: at..at, edge: Edge::Kernels, ..Dispatch::new(kernel, push, groups) });
            }
        }
        out
    }

    /// The declared fusions: one kernel for the first few of `steps`, which begin at `at`.
    fn fuse(&self, at: usize, steps: &[Step]) -> Option<LoweredKernel> {
        let rows = steps[0].rows;
        let same_rows = |n: usize| steps.len() >= n && steps[..n].iter().all(|s| s.rows == rows);
        if !same_rows(2) {
            return None;
        }
        match (&steps[0].op, &steps[1].op) {
            (&Op::NormAdd { x, weight, eps, residual, scalar }, &Op::RmsNorm { x: x2, weight: w2, eps: eps2, out })
                if x2 == residual && rows != Rows::Head =>
            {
                let second = Some((w2, eps2, out));
                let third = steps.get(2).and_then(|step| self.second_norm(at + 2, &steps[1], step));
                let norm = NormOperands { x, weight, eps, residual: Some(residual), scalar, second, third };
                Some(self.norm(Module::NormAddNorm, rows, norm, at + 1, 2 + usize::from(third.is_some())))
            }
            (&Op::Linear { weight, x, out }, &Op::GatedGelu { gate, up, out: gated })
                if self.fuses_gelu(at, weight, x, gated, rows) && is_halves(out, gate, up) =>
            {
                Some(self.linear(at, weight, x, gated, rows, true))
            }
            (Op::RmsNorm { .. }, Op::Linear { .. }) => self.fuse_route(at, steps),
            (Op::ExpertSum { .. }, Op::RmsNorm { .. }) => self.fuse_join(at, steps),
            (Op::ExpertLinear { .. }, Op::ExpertLinear { .. }) => self.fuse_experts(at, steps),
            (Op::HeadNormRope { .. }, op) if let Some(attend) = AttendOperands::of(op) => {
                let q = Heads::of(&steps[0].op).filter(|q| q.is_ahead && q.x == attend.q)?;
                let fuses = self.fuses_attention(at + 1, &attend);
                fuses.then(|| self.attend(at + 1, attend, Some(Prepare { q, entries: None }), 2))
            }
            (Op::HeadNormRope { .. }, Op::HeadNormRope { .. }) if same_rows(3) => {
                let same = steps.iter().take_while(|step| step.rows == rows).count();
                self.fuse_heads(at, &steps[..same])
            }
            _ => None,
        }
    }

    /// The norm at `at`, if it has the input and the activation layout of the norm before it, `first`, and rows of the
    /// same size: its weights and the place of its output.
    fn second_norm(&self, at: usize, first: &Step, step: &Step) -> Option<(Vector, PackedSlot)> {
        let (&Op::RmsNorm { x, eps, out, .. }, &Op::RmsNorm { x: x2, weight, eps: eps2, out: out2 }) =
            (&first.op, &step.op)
        else {
            return None;
        };
        let (layout, packed) = self.written(at - 1, out, first.rows);
        let (layout2, packed2) = self.written(at, out2, step.rows);
        let (packed, packed2) = (packed?, packed2?);
        let is_same = (x, eps, first.rows) == (x2, eps2, step.rows)
            && (layout, packed.stride, packed.padded) == (layout2, packed2.stride, packed2.padded);
        is_same.then_some((weight, packed2))
    }

    /// True if one kernel computes the product of gate and up at `at` and their gated GELU, which it writes to `gated`.
    fn fuses_gelu(&self, at: usize, weight: Matrix, x: Slot, gated: Slot, rows: Rows) -> bool {
        let written = self.written(at + 1, gated, rows).0;
        match self.arithmetic(at, weight, x, rows) {
            Arithmetic::Matrix(_) => written == ActivationLayout::F16Block,
            // Its kernel writes only blocks.
            Arithmetic::IntegerDot => written.is_scaled_by_block() && self.target.fuses_gelu(self.count(rows)),
            Arithmetic::F32 => self.target.fuses_gelu(self.count(rows)),
        }
    }

    /// Fuses norm and RoPE of Q and of K, and the norm of V if it has one, with the KV write. Attention joins if a row
    /// sees few keys of its own pass.
    fn fuse_heads(&self, at: usize, steps: &[Step]) -> Option<LoweredKernel> {
        let (q, k, v_norm) = (Heads::of(&steps[0].op)?, Heads::of(&steps[1].op)?, Heads::of(&steps[2].op));
        let write = 2 + usize::from(v_norm.is_some());
        let Op::KvWrite { k: written, v, kv } = steps.get(write)?.op else { return None };
        let is_plain = |norm: Heads| norm.x == v && norm.heads == kv.kv_heads && self.is_plain(norm);
        if v_norm.is_some_and(|norm| !is_plain(norm)) {
            return None;
        }
        let entries = KvEntries { k: written, v, kv, v_eps: v_norm.map(|norm| norm.eps) };
        if k.x != written || q.x.stride != k.x.stride || q.x.stride != v.stride || k.heads != kv.kv_heads {
            return None;
        }
        if (q.eps, q.inv_freq) == (k.eps, k.inv_freq)
            && entries.v_eps.is_none_or(|eps| eps == q.eps)
            && let Some(attend) = steps.get(write + 1).and_then(|step| AttendOperands::of(&step.op))
            && (attend.q, attend.kv, attend.heads) == (q.x, kv, q.heads)
            && self.fuses_attention(at + write + 1, &attend)
        {
            let prepare = Prepare { q, entries: Some((k, entries)) };
            return Some(self.attend(at + write + 1, attend, Some(prepare), write + 2));
        }
        Some(self.head_prepare(steps[0].rows, Some(q), Some(k), Some(entries), write + 1))
    }

    /// True if the norm has no weights and no rotation, as the norm of values.
    fn is_plain(&self, norm: Heads) -> bool {
        let plain = Some([norm.weight, norm.inv_freq]);
        LayerKind::ALL.into_iter().any(|kind| self.schedule.weights.kind(kind).plain == plain)
    }

    /// Lowers the step with index `at` to one kernel.
    fn step(&self, at: usize, step: &Step) -> LoweredKernel {
        let rows = step.rows;
        match step.op {
            Op::Embed { table, scale, out } => self.embed(rows, table, scale, out),
            Op::RmsNorm { x, weight, eps, out } => {
                let norm = NormOperands { second: Some((weight, eps, out)), ..NormOperands::new(x, weight, eps) };
                self.norm(Module::RmsNorm, rows, norm, at, 1)
            }
            Op::NormAdd { x, weight, eps, residual, scalar } => {
                let norm = NormOperands { residual: Some(residual), scalar, ..NormOperands::new(x, weight, eps) };
                self.norm(Module::NormAdd, rows, norm, at, 1)
            }
            Op::Linear { weight, x, out } => self.linear(at, weight, x, out, rows, false),
            Op::HeadNormRope { .. } => self.head_prepare(rows, Heads::of(&step.op), None, None, 1),
            Op::KvWrite { k, v, kv } => {
                self.head_prepare(rows, None, None, Some(KvEntries { k, v, kv, v_eps: None }), 1)
            }
            Op::Attend { q, kv, out, heads, scale, window } => {
                self.attend(at, AttendOperands { q, kv, out, heads, scale, window }, None, 1)
            }
            Op::GatedGelu { gate, up, out } => self.gated_gelu(at, rows, gate, up, out),
            Op::Route { scores, factors, chosen, gains, scale, kept } => {
                self.route(at, RouteOperands { scores, factors, chosen, gains, scale, kept }, None)
            }
            Op::ExpertLinear { weight, chosen, x, share, out } => {
                self.expert_linear(at, &ExpertProduct { weight, chosen, x, share, out }, None)
            }
            Op::ExpertSum { x, gains, out } => self.expert_sum(at, x, gains, out),
            Op::SoftCap { x, cap } => self.soft_cap(rows, x, cap),
            Op::Argmax { x } => self.argmax(rows, x),
            Op::BlockSums { x, ask, allowed, sums, tops } => self.block_sums(rows, [x, ask, allowed], sums, tops),
            Op::Candidates { x, ask, allowed, sums, tops, found } => {
                self.candidates(rows, [x, ask, allowed], sums, tops, found)
            }
        }
    }
}
