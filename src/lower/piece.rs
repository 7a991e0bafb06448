//! A piece of a pass: a range of steps that the device runs without a break. Within it, kernels write values in the
//! activation layout of the next linear step. Before and after it all values lie in slots, in f32, where any executor
//! can read them: values that are read after the piece are written there, and the piece's inputs are packed at its
//! start.

use super::arithmetic::{ActivationLayout, Arithmetic, Operand, modules};
use super::experts::ExpertProduct;
use super::layout::PackedSlot;
use super::lowering::{LoweredKernel, Lowering, is_halves};
use super::target::Product;
use crate::schedule::Step;
use crate::schedule::step::{AccessRange, Matrix, Op, Rows, Slot};
use std::ops::{Deref, Range};

/// Lowers the steps of one piece of a pass to dispatches.
pub(super) struct PieceLowering<'a> {
    lowering: Lowering<'a>,
    /// The indices of the piece's steps.
    pub(super) steps: Range<usize>,
}

impl<'a> Deref for PieceLowering<'a> {
    type Target = Lowering<'a>;

    fn deref(&self) -> &Lowering<'a> {
        &self.lowering
    }
}

impl<'a> PieceLowering<'a> {
    pub(super) fn new(lowering: Lowering<'a>, steps: Range<usize>) -> PieceLowering<'a> {
        PieceLowering { lowering, steps }
    }

    /// The activation layout in which the step at `at` has to write `slot`, and the place of its packed slot. f32 stays
    /// in the slot; so does a value that is read after the piece.
    pub(super) fn written(&self, at: usize, slot: Slot, rows: Rows) -> (ActivationLayout, Option<PackedSlot>) {
        match self.is_read_behind(at, slot) {
            true => (ActivationLayout::F32, None),
            false => self.wanted(at, slot, rows),
        }
    }

    /// The activation layout in which the piece's linear steps read the output of the step at `at` in `slot`, and the
    /// place of its packed slot. The next reader decides; several readers between two writes are adjacent and read one
    /// layout.
    pub(super) fn wanted(&self, at: usize, slot: Slot, rows: Rows) -> (ActivationLayout, Option<PackedSlot>) {
        let behind = self.schedule.steps.iter().enumerate().take(self.steps.end).skip(at);
        let reader = behind.filter_map(|(at, s)| Some((at, reads(s, slot)?))).next();
        match reader.map(|(at, weight)| self.input_layout(at, weight, slot, rows)) {
            None | Some(ActivationLayout::F32) => (ActivationLayout::F32, None),
            Some(ActivationLayout::F16Row) if reader.is_some_and(|(r, weight)| self.is_gated(at, r, weight)) => {
                (ActivationLayout::F16Block, self.layout.packed(slot))
            }
            Some(layout) => (layout, self.layout.packed(slot)),
        }
    }

    /// The activation layout in which the product at `at`, of `weight` with `slot`, reads the slot.
    fn input_layout(&self, at: usize, weight: Matrix, slot: Slot, rows: Rows) -> ActivationLayout {
        match ExpertProduct::of(&self.schedule.steps[at].op) {
            Some(e) => self.expert_layout(at, &e),
            None => modules(weight.format).inputs(self.arithmetic(at, weight, slot, rows)),
        }
    }

    /// True if a step after the piece reads `slot` as the step at `at` has written it.
    fn is_read_behind(&self, at: usize, slot: Slot) -> bool {
        let has_steps_behind = self.steps.end < self.schedule.steps.len();
        has_steps_behind && self.last_reader(at, slot).is_some_and(|reader| reader >= self.steps.end)
    }

    /// The last step that reads the output of the step at `at` in `slot`.
    fn last_reader(&self, at: usize, slot: Slot) -> Option<usize> {
        let value = AccessRange::slot(slot);
        let behind = self.schedule.steps.iter().enumerate().skip(at + 1);
        let mut last = None;
        for (at, step) in behind {
            if step.op.reads().iter().any(|read| read.overlaps(value)) {
                last = Some(at);
            }
            if step.op.writes().iter().any(|write| write.covers(value)) {
                break;
            }
        }
        last
    }

    /// One past the last step that reads the output of the step at `at`, if that is packed instead of in a slot.
    pub(super) fn hands_on(&self, at: usize) -> Option<usize> {
        let step = &self.schedule.steps[at];
        // Where rows stand in the order of the experts, only the sum at the end of these steps has them in the pass's.
        let is_grouped = self.groups_experts(at);
        let out = match step.op {
            Op::RmsNorm { out, .. } | Op::Attend { out, .. } | Op::GatedGelu { out, .. } => out,
            Op::Route { chosen: out, .. } | Op::ExpertLinear { out, .. } if is_grouped => out,
            _ => return None,
        };
        let is_packed = match step.rows {
            Rows::Expert(_) if is_grouped => true,
            Rows::Pass if matches!(step.op, Op::Route { .. }) => true,
            Rows::Pass | Rows::Expert(_) => self.written(at, out, step.rows).0 != ActivationLayout::F32,
            Rows::Head | Rows::Draft | Rows::DraftSource => false,
        };
        self.last_reader(at, out).filter(|_| is_packed).map(|reader| reader + 1)
    }

    /// Packs the inputs of the piece's linear steps that steps before the piece have written.
    pub(super) fn entry_packs(&self) -> Vec<LoweredKernel> {
        let mut known: Vec<Slot> = Vec::new();
        let mut packs = Vec::new();
        for at in self.steps.clone() {
            let step = &self.schedule.steps[at];
            if let Op::Linear { weight, x, .. } | Op::ExpertLinear { weight, x, .. } = step.op
                && !known.contains(&x)
            {
                known.push(x);
                if !self.schedule.steps[self.steps.start..at].iter().any(|step| writes(step, x)) && !self.is_in_parts(x)
                {
                    packs.extend(self.pack_input(at, weight, x, step.input_rows()));
                }
            }
        }
        packs.extend(self.entry_table());
        packs
    }

    /// Packs the input of the linear step at `at` if several steps have written it in parts.
    pub(super) fn pack_parts(&self, at: usize) -> Option<LoweredKernel> {
        let Step { ref op, rows, .. } = self.schedule.steps[at];
        let Op::Linear { weight, x, .. } = *op else { return None };
        self.is_in_parts(x).then(|| self.pack_input(at, weight, x, rows))?
    }

    fn is_in_parts(&self, x: Slot) -> bool {
        !self.schedule.steps.iter().any(|step| writes(step, x))
    }

    fn pack_input(&self, at: usize, weight: Matrix, x: Slot, rows: Rows) -> Option<LoweredKernel> {
        let layout = self.input_layout(at, weight, x, rows);
        self.pack_slot(x, rows, layout, self.layout.packed(x)?, 1)
    }

    /// Whether the step at `at` is a gated GELU that matrix units compute after its products, just before it in the
    /// piece. `weight` is that of the step at `reader`, which reads it.
    fn is_gated(&self, at: usize, reader: usize, weight: Matrix) -> bool {
        let Some(of) = self.gate_and_up(at) else { return false };
        let (rows, f16) = (self.schedule.steps[at].rows, Arithmetic::Matrix(Operand::F16));
        let Op::GatedGelu { out, .. } = self.schedule.steps[at].op else { return false };
        let product = |weight, gelu| Product::new(weight, self.count(rows), gelu);
        self.arithmetic(at - 1, of.0, of.1, rows) == f16
            && self.arithmetic(reader, weight, out, rows) == f16
            && self.target.gates(product(of.0, true), product(weight, false))
    }

    /// The weight and the inputs of the step before a gated GELU at `at`, if that step is in this piece and computes
    /// exactly gate and up.
    fn gate_and_up(&self, at: usize) -> Option<(Matrix, Slot)> {
        let steps = &self.schedule.steps;
        match (&steps[at.checked_sub(1).filter(|before| *before >= self.steps.start)?], &steps[at]) {
            (
                &Step { op: Op::Linear { weight, x, out }, rows, .. },
                &Step { op: Op::GatedGelu { gate, up, .. }, rows: of, .. },
            ) if rows == of && is_halves(out, gate, up) => Some((weight, x)),
            _ => None,
        }
    }

    /// If the step at `at` reads `slot` in F16Block, the output of a gated GELU: the inputs of the products before
    /// that. `None` for another layout.
    pub(super) fn gated_from(&self, at: usize, slot: Slot) -> Option<Slot> {
        let made = |s: &Step| matches!(s.op, Op::GatedGelu { out, .. } if out == slot);
        let first = self.steps.start;
        let gelu = first + self.schedule.steps[first..at].iter().rposition(made)?;
        let is_blocks = self.written(gelu, slot, self.schedule.steps[at].rows).0 == ActivationLayout::F16Block;
        self.gate_and_up(gelu).filter(|_| is_blocks).map(|(_, x)| x)
    }
}

/// True if `step` writes all columns of `slot`.
fn writes(step: &Step, slot: Slot) -> bool {
    step.op.writes().iter().any(|write| write.covers(AccessRange::slot(slot)))
}

/// The matrix of a linear step that reads `slot`.
fn reads(step: &Step, slot: Slot) -> Option<Matrix> {
    match step.op {
        Op::Linear { weight, x, .. } | Op::ExpertLinear { weight, x, .. } if x == slot => Some(weight),
        _ => None,
    }
}
