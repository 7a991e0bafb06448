//! Which slot a sequence gets, what it finds there, and how it leaves one to others for a while.
//!
//! A sequence begins with what a slot holds of its prompt: it takes that slot over, or begins with the same pages in another
//! one. Taken over, a slot loses what it holds beyond the common beginning. All prompts have a beginning in common, if only
//! the template's, so a slot is taken over only by a sequence that gains as much by it as is lost, or by the same prompt again.

use super::Batch;
use super::member::{KvSlot, Member};
use crate::Result;
use crate::executor::Executor;
use std::cmp::Reverse;

/// A sequence that has left its slot to others, and goes on in any.
pub struct ParkedSequence {
    member: Member,
    /// Its prompt and its reply so far.
    tokens: Vec<u32>,
    owner: Option<u64>,
}

impl KvSlot {
    /// The part of `tokens` that a sequence of `owner` may find here, and one token more.
    fn visible<'t>(&self, tokens: &'t [u32], owner: Option<u64>) -> &'t [u32] {
        let most = if self.owner == owner { usize::MAX } else { self.open };
        &tokens[..tokens.len().min(most.saturating_add(1))]
    }

    /// How many of `tokens` it holds for a sequence of `owner` that takes it over.
    fn shared(&self, executor: &dyn Executor, tokens: &[u32], owner: Option<u64>) -> usize {
        self.session.shared(executor, self.visible(tokens, owner))
    }

    /// How many of `tokens` it holds for a sequence of `owner` in another slot.
    fn shareable(&self, executor: &dyn Executor, tokens: &[u32], owner: Option<u64>) -> usize {
        self.session.shareable(executor, self.visible(tokens, owner))
    }
}

impl Batch {
    /// How many of a prompt's tokens a free slot holds already, of those that are anybody's.
    pub fn shared(&self, executor: &dyn Executor, prompt: &[u32]) -> usize {
        let free = self.slots.iter().filter(|slot| slot.member.is_none());
        free.map(|slot| slot.shared(executor, prompt, None)).max().unwrap_or(0)
    }

    /// The free slot for a prompt: the one that holds the most of it, if that is all or worth what the slot holds beside it.
    /// Otherwise an empty one, or the one that ended first.
    pub(super) fn best_slot(&self, executor: &dyn Executor, prompt: &[u32], owner: Option<u64>) -> Option<usize> {
        let free = || self.slots.iter().enumerate().filter(|(_, slot)| slot.member.is_none());
        let of = |slot: &KvSlot| {
            let shared = slot.shared(executor, prompt, owner);
            (shared, Reverse(slot.session.tokens().len() - shared))
        };
        let (best, (shared, Reverse(lost))) = free().map(|(at, slot)| (at, of(slot))).max_by_key(|(_, of)| *of)?;
        // What it would find anyway, in whatever slot.
        let anyway = self.slots.iter().map(|slot| slot.shareable(executor, prompt, owner)).max().unwrap_or(0);
        // Of the same prompt again, what is lost is the reply that is made anew.
        let is_again = shared + 1 == prompt.len() && self.slots[best].session.tokens().starts_with(prompt);
        if shared > anyway && (is_again || shared - anyway >= lost) {
            return Some(best);
        }
        free().min_by_key(|(_, slot)| (slot.keeps(), slot.ended)).map(|(at, _)| at)
    }

    /// Makes a free slot begin as another one, if that holds a page more of `prompt` than this one. Returns which.
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

    /// Makes `tokens` the sequence of a free slot, with what the cache holds of them if it is to be used. Returns how many
    /// that are.
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
        // What everybody was given stays everybody's.
        of.open = if owner.is_none() { usize::MAX } else { of.open.min(kept) };
        of.owner = owner;
        self.note_use(slot, other, kept);
        if let Some(speculating) = &mut self.speculating {
            speculating.begin(slot);
        }
        self.plan.unsettle();
        Ok(kept)
    }

    /// Takes a sequence whose reply has begun out of its slot, which others may use. `None`: none runs there, or it is within
    /// its prompt.
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

    /// Lets a sequence that was parked go on. Returns its slot. What the cache has lost of it is run again.
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
