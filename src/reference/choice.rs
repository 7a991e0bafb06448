//! The sample results of a row's logits ([`crate::schedule::choice`]), for choices other than argmax.

use crate::executor::{slot_row, slot_row_mut};
use crate::schedule::choice::{
    ASK_WORDS, BLOCK, COUNT, EDIT_IDS, EDITED, EDITS, FLOOR, LIST, MASKED, MOST_EDITS, MOST_LISTED, PARTS, PICKED,
    PICKED_LOGITS, SCALE, TOP_K, UNIT, blocks,
};
use crate::schedule::step::Slot;

/// A row's sample request and its eligible logits.
pub(crate) struct EligibleLogits<'a> {
    words: &'a [u32],
    allowed: &'a [u32],
    logits: &'a [f32],
}

impl<'a> EligibleLogits<'a> {
    /// The eligible logits of row `r`. `None` if the row has no sample request.
    pub(crate) fn of(arena: &'a [f32], x: Slot, ask: Slot, allowed: Slot, r: usize) -> Option<EligibleLogits<'a>> {
        let words: &[u32] = &bytemuck::cast_slice(slot_row(arena, ask, r))[..ASK_WORDS];
        let allowed = bytemuck::cast_slice(slot_row(arena, allowed, r));
        (words[TOP_K] > 0).then(|| EligibleLogits { words, allowed, logits: slot_row(arena, x, r) })
    }

    fn float(&self, word: usize) -> f32 {
        f32::from_bits(self.words[word])
    }

    fn edits(&self) -> &[u32] {
        &self.words[EDIT_IDS..][..(self.words[EDITS] as usize).min(MOST_EDITS)]
    }

    /// A block's logits, with −∞ for tokens that are not eligible and past the vocabulary's end.
    pub(crate) fn block(&self, block: usize) -> [f32; BLOCK] {
        let first = block * BLOCK;
        let own = &self.logits[first..self.logits.len().min(first + BLOCK)];
        let mut logits = [f32::NEG_INFINITY; BLOCK];
        logits[..own.len()].copy_from_slice(own);
        if self.words[MASKED] != 0 {
            let is_allowed = |id: usize| self.allowed[id / 32] >> (id % 32) & 1 != 0;
            let refused = (0..own.len()).filter(|i| !is_allowed(first + i));
            refused.for_each(|i| logits[i] = f32::NEG_INFINITY);
        }
        let edits = self.edits().iter().map(|&id| id as usize);
        edits
            .filter(|id| (first..first + own.len()).contains(id))
            .for_each(|id| logits[id - first] = f32::NEG_INFINITY);
        logits
    }

    /// A block's largest eligible logit and its sum, NaN where a logit is +∞ or NaN; and the largest of each part. `sum` gives
    /// the sum of `exp(scale * (logit - largest))`, where −∞ adds nothing.
    pub(crate) fn sums(
        &self,
        block: usize,
        sum: impl FnOnce(&[f32; BLOCK], f32, f32) -> f32,
    ) -> ([f32; 2], [f32; PARTS]) {
        let logits = self.block(block);
        let mut tops = [f32::NEG_INFINITY; PARTS];
        for parts in logits.chunks_exact(PARTS) {
            tops.iter_mut().zip(parts).for_each(|(top, logit)| *top = top.max(*logit));
        }
        let largest = tops.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let own = &self.logits[block * BLOCK..self.logits.len().min((block + 1) * BLOCK)];
        let is_sound = own.iter().fold(true, |sound, logit| sound & (*logit < f32::INFINITY));
        let sums = if is_sound { [largest, sum(&logits, largest, self.float(SCALE))] } else { [f32::NAN; 2] };
        (sums, tops)
    }

    /// The eligible tokens with logits of at least `floor`. `tops` has the largest logit of each part of each block.
    fn above(&self, floor: f32, tops: &[f32]) -> Vec<(u32, f32)> {
        let blocks = tops.chunks_exact(PARTS).enumerate();
        let blocks = blocks.filter(|(_, tops)| tops.iter().any(|top| *top >= floor && *top > f32::NEG_INFINITY));
        blocks
            .flat_map(|(block, _)| {
                let logits = self.block(block).into_iter().enumerate();
                let wanted = logits.filter(|&(_, logit)| logit >= floor && logit > f32::NEG_INFINITY);
                wanted.map(move |(i, logit)| ((block * BLOCK + i) as u32, logit)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The `TOP_K`-th largest of `values`; −∞ if there are fewer.
    fn bound(&self, mut values: Vec<f32>) -> f32 {
        values.sort_unstable_by(|a, b| b.total_cmp(a));
        values.get(self.words[TOP_K] as usize - 1).copied().unwrap_or(f32::NEG_INFINITY)
    }
}

pub(crate) fn block_sums(arena: &mut [f32], operands: [Slot; 3], sums: Slot, tops: Slot, r: usize) {
    let [x, ask, allowed] = operands;
    let Some(asked) = EligibleLogits::of(arena, x, ask, allowed, r) else { return };
    let weight =
        |l: f32, largest: f32, scale: f32| if l > f32::NEG_INFINITY { ((l - largest) * scale).exp() } else { 0.0 };
    let sum = |logits: &[f32; BLOCK], largest, scale| logits.iter().map(|l| weight(*l, largest, scale)).sum::<f32>();
    let found: Vec<_> = (0..blocks(x.width)).map(|block| asked.sums(block, sum)).collect();
    write_sums(arena, sums, tops, r, &found);
}

/// Writes the results of [`EligibleLogits::sums`] for each block of row `r`.
pub(crate) fn write_sums(arena: &mut [f32], sums: Slot, tops: Slot, r: usize, found: &[([f32; 2], [f32; PARTS])]) {
    let row = slot_row_mut(arena, sums, r).chunks_exact_mut(2);
    row.zip(found).for_each(|(row, (sums, _))| row.copy_from_slice(sums));
    let row = slot_row_mut(arena, tops, r).chunks_exact_mut(PARTS);
    row.zip(found).for_each(|(row, (_, tops))| row.copy_from_slice(tops));
}

/// Returns the row's next token if its request is for the likeliest token alone and that is found.
pub(crate) fn candidates(
    arena: &mut [f32],
    operands: [Slot; 3],
    sums: Slot,
    tops: Slot,
    found: Slot,
    r: usize,
) -> Option<u32> {
    let [x, ask, allowed] = operands;
    let asked = EligibleLogits::of(arena, x, ask, allowed, r)?;
    let tops = slot_row(arena, tops, r);
    let mut floor = asked.bound(tops.to_vec());
    let mut list = asked.above(floor, tops);
    if list.len() > MOST_LISTED {
        floor = asked.bound(list.iter().map(|&(_, logit)| logit).collect());
        list = asked.above(floor, tops);
    }
    let is_one = asked.words[TOP_K] == 1 && asked.edits().is_empty() && asked.float(UNIT) < 0.0;
    let next = list.first().filter(|_| is_one && list.len() <= MOST_LISTED).map(|&(id, _)| id);
    let edited: Vec<f32> = asked.edits().iter().map(|&id| asked.logits[id as usize]).collect();
    let picked = pick(slot_row(arena, sums, r), asked.float(SCALE), asked.float(UNIT));
    let block = picked.map_or(&[][..], |b| &asked.logits[b * BLOCK..((b + 1) * BLOCK).min(x.width)]).to_vec();

    let row = slot_row_mut(arena, found, r);
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

/// The block in which the cumulative sum passes the share `unit` of the total; `None` if `unit` is negative.
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
