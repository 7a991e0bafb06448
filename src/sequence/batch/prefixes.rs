//! Cached prefixes in free slots: how many are kept, and how they are saved and restored.

use super::Batch;
use super::member::KvSlot;
use crate::Error;
use crate::executor::{Executor, ExecutorExt, PageId};
use crate::schedule::kv::{PAGE, Pool};
use crate::sequence::prompt::SequenceLimits;

/// Tokens whose keys and values are in a slot's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix<'a> {
    slot: usize,
    /// The tokens of the prefix.
    pub tokens: &'a [u32],
}

impl Prefix<'_> {
    /// The pages of a pool that tokens after the prefix attend to, in pairs of page number and id. Page `number` holds
    /// the positions from `PAGE * number` on. The last page may hold more than the prefix.
    pub fn pages(&self, executor: &dyn Executor, pool: Pool) -> impl Iterator<Item = (usize, PageId)> {
        executor.pages().seen(pool, self.slot, self.tokens.len())
    }
}

/// A callback that reads the content of a page of a pool, by its number.
pub type ReadPage<'a, E> = &'a mut dyn FnMut(Pool, usize, &mut [u8]) -> Result<(), E>;

impl Batch {
    /// Limits the pages that only free slots hold to `bytes`. Without a limit prefixes stay until their pages are
    /// needed.
    pub fn set_kept(&mut self, bytes: u64) {
        self.most_kept = bytes;
    }

    /// Bytes of the pages that only free slots hold.
    pub fn kept_bytes(&self, executor: &dyn Executor) -> u64 {
        let pages = executor.pages().held_only_by(|slot| self.slots[slot].member.is_none());
        let bytes = |pool: Pool| pages[pool as usize] as u64 * executor.schedule().kv.pool(pool).page_bytes;
        Pool::ALL.into_iter().map(bytes).sum()
    }

    /// Evicts prefixes until free slots are within the limit: the oldest first, each from its end.
    pub(super) fn trim(&mut self, executor: &mut dyn Executor) {
        if self.most_kept == u64::MAX {
            return;
        }
        let each: u64 = Pool::ALL.map(|pool| executor.schedule().kv.pool(pool).page_bytes).iter().sum();
        loop {
            let excess = self.kept_bytes(executor).saturating_sub(self.most_kept);
            let Some(oldest) = self.slots.iter_mut().filter(|slot| slot.keeps()).min_by_key(|slot| slot.ended) else {
                return;
            };
            if excess == 0 {
                return;
            }
            let behind = oldest.session.tokens().len().saturating_sub(1) / PAGE * PAGE;
            let pages = excess.div_ceil(each.max(1)) as usize - 1;
            oldest.session.rewind(executor, behind.saturating_sub(pages * PAGE));
        }
    }

    /// Frees the pages of the slot that became free first. Returns false if no free slot except `slot` has any.
    pub(super) fn give_way(&mut self, executor: &mut dyn Executor, slot: usize) -> bool {
        let others = self.slots.iter_mut().enumerate().filter(|(other, s)| *other != slot && s.keeps());
        let Some((_, oldest)) = others.min_by_key(|(_, other)| other.ended) else { return false };
        oldest.session.rewind(executor, 0);
        true
    }

    /// Counts the use of a prefix of `kept` tokens by the sequence in `slot`, from its own slot or shared from `other`.
    pub(super) fn note_use(&mut self, slot: usize, other: Option<usize>, kept: usize) {
        // All prompts share their first tokens, so shorter prefixes do not count.
        let uses = if other.is_none() && kept >= PAGE { self.slots[slot].uses + 1 } else { 0 };
        self.slots[slot].uses = uses;
        if let Some(other) = other {
            self.slots[other].uses += 1;
        }
    }

    /// The prefixes worth saving, the best last: prefixes in free slots that sequences have begun with, the most used
    /// last, and then the cached part of `first`.
    pub fn prefixes(&self, executor: &dyn Executor, first: &[u32]) -> Vec<Prefix<'_>> {
        let free = || (0..self.slots.len()).filter(|&slot| self.slots[slot].keeps());
        // Tokens with an owner are left out: a saved prefix is available to all.
        let tokens = |slot: usize| {
            let KvSlot { session, open, .. } = &self.slots[slot];
            &session.tokens()[..session.tokens().len().min(*open)]
        };
        let mut used: Vec<usize> = free().filter(|&slot| self.slots[slot].uses > 0).collect();
        used.sort_by_key(|&slot| (self.slots[slot].uses, self.slots[slot].ended));
        let of_first = |slot: usize| self.slots[slot].session.shared(executor, first).min(tokens(slot).len());
        let best = free().max_by_key(|&slot| of_first(slot)).filter(|slot| !used.contains(slot));
        let all = used.iter().map(|&slot| (slot, executor.pages().kept(slot, tokens(slot).len())));
        let all = all.chain(best.map(|slot| (slot, of_first(slot)))).filter(|(_, length)| *length > 0);
        all.map(|(slot, length)| Prefix { slot, tokens: &tokens(slot)[..length] }).collect()
    }

    /// A slot that holds all of `tokens` publicly, with all pages that tokens after them attend to. `None`: no slot
    /// does.
    pub fn holder(&self, executor: &dyn Executor, tokens: &[u32]) -> Option<Prefix<'_>> {
        let pages = executor.pages();
        let holds = |slot: &usize| {
            let KvSlot { session, open, .. } = &self.slots[*slot];
            let is_whole =
                |pool| pages.seen(pool, *slot, tokens.len()).count() == pages.numbers(pool, tokens.len()).len();
            *open >= tokens.len() && session.tokens().starts_with(tokens) && Pool::ALL.into_iter().all(is_whole)
        };
        let slot = (0..self.slots.len()).find(holds)?;
        Some(Prefix { slot, tokens: &self.slots[slot].session.tokens()[..tokens.len()] })
    }

    /// Loads `tokens` into a free slot as if they had run: `read` returns the content of pages that cannot be shared
    /// with another slot. The slot counts as the latest one. Other free slots give up their pages if needed. Returns
    /// whether there was room.
    ///
    /// # Errors
    /// Input: the tokens are not a valid prompt. Device: it failed. Errors of `read`. The slot is empty then.
    pub fn restore<E: From<Error>>(
        &mut self,
        executor: &mut dyn Executor,
        tokens: &[u32],
        read: ReadPage<'_, E>,
    ) -> Result<bool, E> {
        SequenceLimits::of(executor.schedule()).check(0, tokens)?;
        let free = (0..self.slots.len()).filter(|&slot| self.slots[slot].member.is_none());
        let Some(slot) = free.min_by_key(|&slot| (self.slots[slot].keeps(), self.slots[slot].ended)) else {
            return Ok(false);
        };
        self.slots[slot].empty(executor);
        // The last token of a prompt is never shared, so another one is appended.
        self.take_prefix(executor, slot, &[tokens, &[0]].concat(), None);
        let shared = self.slots[slot].session.tokens().len();
        while executor.pages_mut().restore(slot, tokens.len()).is_err() {
            executor.pages_mut().truncate(slot, shared);
            if !self.give_way(executor, slot) {
                self.slots[slot].empty(executor);
                return Ok(false);
            }
        }
        if let Err(e) = fill(executor, slot, tokens.len(), shared / PAGE, read) {
            self.slots[slot].empty(executor);
            return Err(e);
        }
        self.slots[slot].session.adopt(tokens);
        self.endings += 1;
        self.slots[slot].ended = self.endings;
        self.trim(executor);
        Ok(true)
    }

    /// Drops the cached tokens of all free slots.
    pub fn forget(&mut self, executor: &mut dyn Executor) {
        self.slots.iter_mut().filter(|slot| slot.member.is_none()).for_each(|slot| slot.empty(executor));
    }
}

/// Writes the pages of a slot from page number `first` on.
fn fill<E: From<Error>>(
    executor: &mut dyn Executor,
    slot: usize,
    end: usize,
    first: usize,
    read: ReadPage<'_, E>,
) -> Result<(), E> {
    for pool in Pool::ALL {
        let mut bytes = vec![0; executor.schedule().kv.pool(pool).page_bytes as usize];
        let pages: Vec<(usize, PageId)> = executor.pages().seen(pool, slot, end).collect();
        for (number, page) in pages.into_iter().filter(|(number, _)| *number >= first) {
            read(pool, number, &mut bytes)?;
            executor.write_page(pool, page, &bytes)?;
        }
    }
    Ok(())
}

impl KvSlot {
    /// True if no sequence runs in the slot, and its cache has tokens.
    pub(super) fn keeps(&self) -> bool {
        self.member.is_none() && !self.session.tokens().is_empty()
    }

    fn empty(&mut self, executor: &mut dyn Executor) {
        self.session.rewind(executor, 0);
        (self.uses, self.owner, self.open) = (0, None, usize::MAX);
    }
}
