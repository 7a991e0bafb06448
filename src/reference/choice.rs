//! What a choice other than argmax needs of a row's logits ([`crate::schedule::choice`]).

use crate::executor::slot_row;
use crate::schedule::choice::{
    ASK_WORDS, BLOCK, COUNT, EDIT_IDS, EDITED, EDITS, FLOOR, LIST, MASKED, MOST_EDITS, MOST_LISTED, PARTS, PICKED,
    PICKED_LOGITS, SCALE, UNIT, WANT,
};
use crate::schedule::step::Slot;

/// What a row asks for, and which of its tokens are eligible.
struct Asked<'a> {
    words: &'a [u32],
    allowed: &'a [u32],
    logits: &'a [f32],
}

impl<'a> Asked<'a> {
    /// `None` if the row asks for nothing.
    fn of(arena: &'a [f32], x: Slot, ask: Slot, allowed: Slot, r: usize) -> Option<Asked<'a>> {
        let words: &[u32] = &bytemuck::cast_slice(slot_row(arena, ask, r))[..ASK_WORDS];
        let allowed = bytemuck::cast_slice(slot_row(arena, allowed, r));
        (words[WANT] > 0).then(|| Asked { words, allowed, logits: slot_row(arena, x, r) })
    }

    fn float(&self, word: usize) -> f32 {
        f32::from_bits(self.words[word])
    }

    fn edits(&self) -> &[u32] {
        &self.words[EDIT_IDS..][..(self.words[EDITS] as usize).min(MOST_EDITS)]
    }

    /// The logit of an eligible token; −∞ for the others.
    fn eligible(&self, id: usize) -> f32 {
        let is_allowed = self.words[MASKED] == 0 || self.allowed[id / 32] >> (id % 32) & 1 != 0;
        match is_allowed && !self.edits().contains(&(id as u32)) {
            true => self.logits[id],
            false => f32::NEG_INFINITY,
        }
    }

    /// The eligible tokens of at least `floor`.
    fn above(&self, floor: f32) -> Vec<(u32, f32)> {
        let all = (0..self.logits.len()).map(|id| (id as u32, self.eligible(id)));
        all.filter(|&(_, logit)| logit >= floor && logit > f32::NEG_INFINITY).collect()
    }

    /// The `want`-th largest of `values`; −∞ if they are fewer.
    fn bound(&self, mut values: Vec<f32>) -> f32 {
        values.sort_unstable_by(|a, b| b.total_cmp(a));
        values.get(self.words[WANT] as usize - 1).copied().unwrap_or(f32::NEG_INFINITY)
    }
}

pub(crate) fn block_sums(arena: &mut [f32], operands: [Slot; 3], sums: Slot, tops: Slot, r: usize) {
    let [x, ask, allowed] = operands;
    let Some(asked) = Asked::of(arena, x, ask, allowed, r) else { return };
    let (mut sums_row, mut tops_row) = (Vec::with_capacity(sums.width), Vec::with_capacity(tops.width));
    for first in (0..x.width).step_by(BLOCK) {
        let ids = || first..(first + BLOCK).min(x.width);
        let largest = ids().map(|id| asked.eligible(id)).fold(f32::NEG_INFINITY, f32::max);
        let weight = |l: f32| if l > f32::NEG_INFINITY { ((l - largest) * asked.float(SCALE)).exp() } else { 0.0 };
        let sum = ids().map(|id| weight(asked.eligible(id))).sum::<f32>();
        let is_sound = ids().all(|id| asked.logits[id] < f32::INFINITY);
        sums_row.extend(if is_sound { [largest, sum] } else { [f32::NAN; 2] });
        for part in 0..PARTS {
            let elements = ids().skip(part).step_by(PARTS);
            tops_row.push(elements.map(|id| asked.eligible(id)).fold(f32::NEG_INFINITY, f32::max));
        }
    }
    super::ops::row_mut(arena, sums, r).copy_from_slice(&sums_row);
    super::ops::row_mut(arena, tops, r).copy_from_slice(&tops_row);
}

/// Returns the row's next token, if it asks for the likeliest one alone and that is found.
pub(crate) fn candidates(
    arena: &mut [f32],
    operands: [Slot; 3],
    sums: Slot,
    tops: Slot,
    found: Slot,
    r: usize,
) -> Option<u32> {
    let [x, ask, allowed] = operands;
    let asked = Asked::of(arena, x, ask, allowed, r)?;
    let mut floor = asked.bound(slot_row(arena, tops, r).to_vec());
    let mut list = asked.above(floor);
    if list.len() > MOST_LISTED {
        floor = asked.bound(list.iter().map(|&(_, logit)| logit).collect());
        list = asked.above(floor);
    }
    let is_one = asked.words[WANT] == 1 && asked.edits().is_empty() && asked.float(UNIT) < 0.0;
    let next = list.first().filter(|_| is_one && list.len() <= MOST_LISTED).map(|&(id, _)| id);
    let edited: Vec<f32> = asked.edits().iter().map(|&id| asked.logits[id as usize]).collect();
    let picked = pick(slot_row(arena, sums, r), asked.float(SCALE), asked.float(UNIT));
    let block = picked.map_or(&[][..], |b| &asked.logits[b * BLOCK..((b + 1) * BLOCK).min(x.width)]).to_vec();

    let row = super::ops::row_mut(arena, found, r);
    row[COUNT] = f32::from_bits(list.len() as u32);
    row[FLOOR] = floor;
    row[PICKED] = f32::from_bits(picked.map_or(u32::MAX, |b| b as u32));
    for (entry, (id, logit)) in row[LIST..EDITED].chunks_exact_mut(2).zip(list) {
        entry.copy_from_slice(&[f32::from_bits(id), logit]);
    }
    row[EDITED..][..edited.len()].copy_from_slice(&edited);
    row[PICKED_LOGITS..][..block.len()].copy_from_slice(&block);
    next
}

/// The block in which the part `unit` of all blocks' sums ends; `None` if `unit` is negative.
fn pick(sums: &[f32], scale: f32, unit: f32) -> Option<usize> {
    let peak = sums.iter().step_by(2).copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> =
        sums.chunks_exact(2).map(|b| if b[1] > 0.0 { b[1] * ((b[0] - peak) * scale).exp() } else { 0.0 }).collect();
    let mut left = unit * weights.iter().sum::<f32>();
    let mut picked = None;
    for (block, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        picked = Some(block);
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    picked.filter(|_| unit >= 0.0)
}
