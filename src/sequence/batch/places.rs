//! Assigns slots: the slot of a new sequence, the cached prefix that it starts with, and parking of sequences.
//!
//! A sequence starts with a cached prefix of its prompt: it takes over the slot that holds it, or shares its pages from
//! another slot. A slot that is taken over loses its tokens after the common prefix. All prompts share a prefix, if
//! only the template's, so a slot is taken over only if that saves as many tokens as it loses, or for the same prompt
//! again.

use super::Batch;
use super::member::{KvSlot, Member};
use crate::Result;
use crate::executor::Executor;
use std::cmp::Reverse;

/// A sequence that has left its slot and can continue in any other.
pub struct ParkedSequence {
    member: Member,
    /// The tokens of the prompt and of the reply so far.
    tokens: Vec<u32>,
    owner: Option<u64>,
}

impl KvSlot {
    /// The part of `tokens` that may be shared with a sequence of `owner`, and one token more, which always runs.
    fn visible<'t>(&self, tokens: &'t [u32], owner: Option<u64>) -> &'t [u32] {
        let most = if self.owner == owner { usize::MAX } else { self.open };
        &tokens[..tokens.len().min(most.saturating_add(1))]
    }

    /// The number of first `tokens` that a sequence of `owner` would find in this slot's cache.
    fn shared(&self, executor: &dyn Executor, tokens: &[u32], owner: Option<u64>) -> usize {
        self.session.shared(executor, self.visible(tokens, owner))
    }

    /// The number of `tokens` that a sequence of `owner` in another slot can share with this one.
    fn shareable(&self, executor: &dyn Executor, tokens: &[u32], owner: Option<u64>) -> usize {
        self.session.shareable(executor, self.visible(tokens, owner))
    }
}

impl Batch {
    /// The most first tokens of a prompt that a free slot has in its cache, counting only public ones.
    pub fn shared(&self, executor: &dyn Executor, prompt: &[u32]) -> usize {
        let free = self.slots.iter().filter(|slot| slot.member.is_none());
        free.map(|slot| slot.shared(executor, prompt, None)).max().unwrap_or(0)
    }

    /// The free slot for a prompt: the one with the longest cached prefix, if taking it over is worth the tokens it
    /// loses. Else an empty one, or the one that became free first.
    pub(super) fn best_slot(&self, executor: &dyn Executor, prompt: &[u32], owner: Option<u64>) -> Option<usize> {
        let free = || self.slots.iter().enumerate().filter(|(_, slot)| slot.member.is_none());
        let of = |slot: &KvSlot| {
            let shared = slot.shared(executor, prompt, owner);
            (shared, Reverse(slot.session.tokens().len() - shared))
        };
        let (best, (shared, Reverse(lost))) = free().map(|(at, slot)| (at, of(slot))).max_by_key(|(_, of)| *of)?;
        // The prefix that it could share from any slot without taking one over.
        let anyway = self.slots.iter().map(|slot| slot.shareable(executor, prompt, owner)).max().unwrap_or(0);
        // For the same prompt only the old reply is lost, which is generated again.
        let is_again = shared + 1 == prompt.len() && self.slots[best].session.tokens().starts_with(prompt);
        if shared > anyway && (is_again || shared - anyway >= lost) {
            return Some(best);
        }
        free().min_by_key(|(_, slot)| (slot.keeps(), slot.ended)).map(|(at, _)| at)
    }

    /// Lets a free slot share the prefix of the slot with the longest one, if that is longer than its own. Returns that
    /// slot.
    pub(super) fn take_prefix(
        &mut self,
        executor: &mut dyn Executor,
        slot: usize,
        prompt: &[u32],
        owner: Option<u64>,
    ) -> Option<usize> {
        let own = self.slots[slot].shared(executor, prompt, owner);
        let of = |other: usize| self.slots[other].shareable(executor, prompt, owner);
        let others = (0..self.slots.len()).filter(|&other| other != slot).map(|other| (of(other), other));
        let (_, best) = others.max().filter(|(shared, _)| *shared > own)?;
        if let Ok([slot, other]) = self.slots.get_disjoint_mut([slot, best]) {
            slot.session.rewind(executor, 0);
            slot.session.begin_as(executor, &other.session, other.visible(prompt, owner));
            slot.open = other.open;
        }
        Some(best)
    }

    /// Makes `tokens` the sequence of a free slot, and with `reuse` keeps or shares their cached prefix. Returns the
    /// length of that prefix.
    ///
    /// # Errors
    /// As [`crate::sequence::Session::replace`].
    pub(super) fn place(
        &mut self,
        executor: &mut dyn Executor,
        slot: usize,
        tokens: &[u32],
        owner: Option<u64>,
        reuse: bool,
    ) -> Result<usize> {
        let other = if reuse { self.take_prefix(executor, slot, tokens, owner) } else { None };
        let of = &mut self.slots[slot];
        if other.is_none() {
            let kept = if reuse { of.shared(executor, tokens, owner) } else { 0 };
            of.session.rewind(executor, kept);
        }
        let kept = of.session.replace(executor, tokens)?;
        // Tokens that were public stay public.
        of.open = if owner.is_none() { usize::MAX } else { of.open.min(kept) };
        of.owner = owner;
        self.note_use(slot, other, kept);
        if let Some(speculating) = &mut self.speculating {
            speculating.begin(slot);
        }
        self.plan.change();
        Ok(kept)
    }

    /// Removes a decoding sequence from its slot, for others to use. `None`: the slot is free, or its sequence is still
    /// in its prompt.
    pub fn park(&mut self, executor: &mut dyn Executor, slot: usize) -> Option<ParkedSequence> {
        let of = &mut self.slots[slot];
        let member = of.member.take_if(|member| member.decoding.is_some())?;
        let tokens = of.session.all_tokens().to_vec();
        let held = of.session.tokens().len();
        of.session.rewind(executor, held);
        self.plan.leave(slot);
        self.endings += 1;
        of.ended = self.endings;
        let owner = of.owner;
        self.trim(executor);
        Some(ParkedSequence { member, tokens, owner })
    }

    /// Continues a parked sequence and returns its slot. Tokens that are no longer cached run again.
    ///
    /// # Errors
    /// Refused: no slot is free.
    pub fn unpark(&mut self, executor: &mut dyn Executor, parked: ParkedSequence) -> Result<usize> {
        let ParkedSequence { member, tokens, owner } = parked;
        let slot = self.best_slot(executor, &tokens, owner).ok_or_else(|| self.full())?;
        self.place(executor, slot, &tokens, owner, true)?;
        self.slots[slot].member = Some(Member { put_off: None, ..member });
        Ok(slot)
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
