//! The results of a step, and how they are read from an executor and written to one.

use super::ComparedPass;
use crate::executor::{Stepwise, slot_row_mut};
use crate::schedule::Schedule;
use crate::schedule::kv::PAGE;
use crate::schedule::step::{AccessRange, KvType, Op, Rows, Slot};
use crate::{Error, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// A tensor that a step writes, and whose values are compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tensor {
    /// The columns of a slot, in these rows.
    Slot(Slot, Rows),
    /// A layer's keys (0) or values (1) of `[rows, width]`.
    Kv { layer: usize, half: usize, width: usize },
    /// The experts that each row of the pass uses.
    Experts(Slot),
    /// The next token that each head row chose.
    Next,
}

/// The tensors that the steps write, each once.
pub(super) fn written(schedule: &Schedule, steps: Range<usize>) -> Vec<Tensor> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for step in &schedule.steps[steps] {
        for write in step.op.writes() {
            let of = match write {
                AccessRange::Arena(offset, stride, width) => {
                    let slot = Slot { offset, stride: stride as usize / 4, width: width as usize / 4 };
                    match step.op {
                        Op::Route { chosen, .. } if chosen == slot => vec![Tensor::Experts(slot)],
                        _ => vec![Tensor::Slot(slot, step.rows)],
                    }
                }
                AccessRange::Kv(layer) => {
                    let width = schedule.shape.attention_of(layer).kv_width();
                    [0, 1].map(|half| Tensor::Kv { layer, half, width }).to_vec()
                }
                AccessRange::Next => vec![Tensor::Next],
            };
            of.into_iter().for_each(|tensor| {
                if !tensors.contains(&tensor) {
                    tensors.push(tensor);
                }
            });
        }
    }
    tensors
}

/// The slots that steps read from earlier steps, each once.
pub(super) fn read(schedule: &Schedule, steps: Range<usize>) -> Vec<Tensor> {
    let mut inputs: Vec<Tensor> = Vec::new();
    for at in steps.clone() {
        let step = &schedule.steps[at];
        for range in step.op.reads() {
            let AccessRange::Arena(offset, stride, width) = range else { continue };
            let slot = Slot { offset, stride: stride as usize / 4, width: width as usize / 4 };
            let input = match step.op {
                // The head's norm gathers from all of the pass's rows.
                Op::RmsNorm { .. } => Tensor::Slot(slot, Rows::Pass),
                Op::ExpertLinear { chosen, .. } if chosen == slot => Tensor::Experts(slot),
                Op::ExpertSum { x, gains, .. } if x == slot => Tensor::Slot(slot, Rows::Expert(gains.width)),
                _ => Tensor::Slot(slot, step.input_rows()),
            };
            let is_made =
                schedule.steps[steps.start..at].iter().any(|s| s.op.writes().iter().any(|w| w.overlaps(range)));
            if !is_made && !inputs.contains(&input) {
                inputs.push(input);
            }
        }
    }
    inputs
}

impl Tensor {
    pub(super) fn name(&self, schedule: &Schedule) -> String {
        match self {
            Tensor::Slot(slot, _) | Tensor::Experts(slot) => schedule.arena.name_of(*slot),
            Tensor::Kv { half: 0, .. } => "keys".into(),
            Tensor::Kv { .. } => "values".into(),
            Tensor::Next => "next".into(),
        }
    }

    pub(super) fn width(&self) -> usize {
        match self {
            Tensor::Slot(slot, _) | Tensor::Experts(slot) => slot.width,
            Tensor::Kv { width, .. } => *width,
            Tensor::Next => 1,
        }
    }

    /// True if the values are integers, which must be equal.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Tensor::Experts(_) | Tensor::Next)
    }

    /// True if the host, or a step from `end` on, reads values that a step before `end` has written.
    pub(super) fn is_read_behind(&self, schedule: &Schedule, end: usize) -> bool {
        let own = match self {
            Tensor::Slot(slot, _) | Tensor::Experts(slot) => AccessRange::slot(*slot),
            Tensor::Kv { layer, .. } => AccessRange::Kv(*layer),
            Tensor::Next => return true,
        };
        for step in &schedule.steps[end..] {
            if step.op.reads().iter().any(|read| read.overlaps(own)) {
                return true;
            }
            if step.op.writes().iter().any(|write| write.covers(own)) {
                return false;
            }
        }
        // The next pass reads the cache.
        matches!(self, Tensor::Kv { .. })
    }

    /// Reads the tensor from an executor, as `[rows, width]`.
    pub(super) fn read(&self, executor: &mut dyn Stepwise, pass: &ComparedPass) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        self.visit(executor, pass, &mut |_, part| values.extend_from_slice(part))?;
        Ok(values)
    }

    /// Writes the tensor to an executor.
    pub(super) fn write(&self, executor: &mut dyn Stepwise, pass: &ComparedPass, values: &[f32]) -> Result<()> {
        self.visit(executor, pass, &mut |at, part| part.copy_from_slice(&values[at..at + part.len()]))
    }

    /// Calls `visit` with each part of the tensor in order, and with the index of its first element. Changes by `visit`
    /// are written back.
    fn visit(
        &self,
        executor: &mut dyn Stepwise,
        pass: &ComparedPass,
        visit: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<()> {
        match *self {
            Tensor::Slot(slot, rows) => executor.access_arena(&mut |arena| {
                (0..count(rows, pass)).for_each(|row| visit(row * slot.width, slot_row_mut(arena, slot, row)));
            }),
            Tensor::Experts(slot) => executor.access_arena(&mut |arena| {
                (0..pass.rows.len())
                    .for_each(|row| visit_words(slot_row_mut(arena, slot, row), row * slot.width, visit));
            }),
            Tensor::Next => {
                let next = executor.schedule().arena.state.next();
                executor.access_arena(&mut |arena| visit_words(&mut arena[next..][..pass.head.count], 0, visit))
            }
            Tensor::Kv { layer, half, .. } => visit_kv(executor, layer, half, pass, visit),
        }
    }

    /// The values rounded to the narrower of two cache formats.
    pub(super) fn rounded(&self, mut values: Vec<f32>, elements: [KvType; 2]) -> Vec<f32> {
        if matches!(self, Tensor::Kv { .. }) {
            for kept in [KvType::F16, KvType::Bf16].into_iter().filter(|kept| elements.contains(kept)) {
                values = kept.decode(&kept.encode(&values));
            }
        }
        values
    }
}

fn count(rows: Rows, pass: &ComparedPass) -> usize {
    match rows {
        Rows::Pass | Rows::Draft | Rows::DraftSource => pass.rows.len(),
        Rows::Head => pass.head.count,
        Rows::Expert(used) => used * pass.rows.len(),
    }
}

/// [`Tensor::visit`] of whole numbers, each a part; `first` is the index of the first.
fn visit_words(words: &mut [f32], first: usize, visit: &mut dyn FnMut(usize, &mut [f32])) {
    for (i, word) in words.iter_mut().enumerate() {
        let mut number = word.to_bits() as f32;
        visit(first + i, std::slice::from_mut(&mut number));
        *word = f32::from_bits(number as u32);
    }
}

/// [`Tensor::visit`] of keys or values: a part is a head of a row of the pass.
fn visit_kv(
    executor: &mut dyn Stepwise,
    layer: usize,
    half: usize,
    pass: &ComparedPass,
    visit: &mut dyn FnMut(usize, &mut [f32]),
) -> Result<()> {
    let kv = executor.schedule().kv_layers[layer];
    let mut parts: HashMap<u32, (Vec<f32>, bool)> = HashMap::new();
    let mut at = 0;
    for row in &pass.rows {
        let position = row.position as usize;
        let page = executor.pages().page(kv.pool, row.sequence as usize, position / PAGE);
        let page = page.ok_or_else(|| Error::failed("a row of the pass has no page", "report this"))?;
        let (part, has_changed) = match parts.entry(page) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut bytes = vec![0; kv.elements() * kv.element.bytes()];
                executor.read_kv(&kv, page, &mut bytes)?;
                new.insert((kv.element.decode(&bytes), false))
            }
        };
        for head in 0..kv.kv_heads {
            let first = kv.element_at(half, head, position) - kv.place * kv.elements();
            let values = &mut part[first..first + kv.head_dim];
            let before = values.to_vec();
            visit(at, values);
            *has_changed |= before.iter().zip(&*values).any(|(a, b)| a.to_bits() != b.to_bits());
            at += kv.head_dim;
        }
    }
    for (page, (part, _)) in parts.into_iter().filter(|(_, (_, has_changed))| *has_changed) {
        executor.write_kv(&kv, page, &kv.element.encode(&part))?;
    }
    Ok(())
}
