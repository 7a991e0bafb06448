//! Chooses the rows of a pass: chunks of prompts, and a row for each decoding sequence, as far as there are free pages.

use super::Batch;
use super::member::{KvSlot, Member};
use crate::Error;
use crate::executor::{Chunk, Executor, ExecutorExt};
use crate::schedule::Extent;
use crate::schedule::kv::{PAGE, Pool};

/// Decoding sequences take pages for this many further positions in advance if enough are free. While all of them have
/// their pages, passes follow each other without a new plan.
const AHEAD: usize = PAGE;
/// The longest prompt, in rows, that runs in a pass with others. Rows of several sequences attend one by one, while a
/// long prompt's chunk uses matrix units.
const SHORT: usize = 64;

impl Batch {
    /// Chooses the rows of the next pass: several short prompts or a chunk of the next prompt, and a row for each
    /// decoding sequence, as far as there are free pages.
    pub(super) fn choose_rows(&mut self, executor: &mut dyn Executor) {
        let prompt = self.next_prompts().next();
        let decoding = self.slots.iter().filter(|slot| slot.decodes()).count();
        // The last row of a prompt needs a head row too.
        let together = 2 * decoding <= executor.prefill_rows() && decoding < executor.schedule().extent.head_rows;
        // Decoding sequences take pages first, because they end sooner and give them back.
        let decoding_first = together || self.plan.chunk > 0;
        self.plan.clear();
        if decoding_first {
            self.choose_decoding(executor);
        }
        if let Some(slot) = prompt.filter(|_| together || self.plan.heads.is_empty()) {
            let most = if decoding > 0 { self.most_chunk } else { usize::MAX };
            self.choose_prompts(executor, most);
            if self.plan.prompts.is_empty() {
                self.choose_chunk(executor, slot, most);
            }
        }
        if !decoding_first && self.plan.chunk == 0 {
            self.choose_decoding(executor);
        }
        for &slot in &self.plan.heads {
            self.slots[slot].session.propose(1, &mut self.plan.rows);
        }
        if self.plan.chunk == 0 {
            self.take_ahead(executor);
        }
        let decoding = self.plan.heads.len();
        self.plan.is_next = self.plan.chunk == 0 && decoding > 0 && self.members().count() == decoding;
        let ends = |&&(slot, rows): &&(usize, usize)| self.slots[slot].session.pending() == rows;
        self.plan.heads.splice(..0, self.plan.prompts.iter().filter(ends).map(|prompt| prompt.0));
    }

    /// Chooses short prompts to run together, with `most` rows at most: as many as make a pass with the best rate in
    /// rows per second. Chooses none if fewer than two have pages. Decoding rows have been chosen before.
    fn choose_prompts(&mut self, executor: &mut dyn Executor, most: usize) {
        let beside = self.plan.heads.len();
        let most = most.min(executor.prefill_rows() - beside);
        let room = executor.schedule().extent.head_rows - beside;
        let mut prompts = std::mem::take(&mut self.plan.prompts);
        let pending = |slot: usize| self.slots[slot].session.pending();
        let mut rows = 0;
        for slot in self.next_prompts().filter(|&slot| pending(slot) <= SHORT).take(room) {
            if rows + pending(slot) > most {
                break;
            }
            rows += pending(slot);
            prompts.push((slot, pending(slot)));
        }
        let wanted = executor.chunk(Chunk { most: rows, depth: 0, beside: Some(beside) });
        while rows > wanted && prompts.len() > 1 {
            rows -= prompts.pop().map_or(0, |(_, rows)| rows);
        }
        // The next prompt in turn must be among them.
        if prompts.len() < 2 || self.next_prompts().next() != Some(prompts[0].0) {
            prompts.clear();
        }
        let has_pages = |&(slot, rows): &(usize, usize)| self.make_room(executor, slot, rows);
        let with_pages = prompts.iter().copied().take_while(has_pages).count();
        prompts.truncate(if with_pages < 2 { 0 } else { with_pages });
        let mut last = Vec::with_capacity(prompts.len());
        for &(slot, rows) in &prompts {
            self.plan.chunk += self.slots[slot].session.propose(rows, &mut self.plan.rows);
            last.extend(self.plan.rows.pop());
        }
        self.plan.rows.append(&mut last);
        self.plan.prompts = prompts;
    }

    /// Chooses a chunk of a prompt, with `most` rows at most, if there are pages. Decoding rows have been chosen
    /// before.
    fn choose_chunk(&mut self, executor: &mut dyn Executor, slot: usize, most: usize) {
        let beside = self.plan.heads.len();
        let session = &self.slots[slot].session;
        let most = session.pending().min(executor.prefill_rows() - beside).min(most);
        let depth = session.tokens().len();
        let most = executor.chunk(Chunk { most, depth, beside: (beside > 0).then_some(beside) });
        if self.make_room(executor, slot, most) {
            self.plan.chunk = self.slots[slot].session.propose(most, &mut self.plan.rows);
            self.plan.prompts.push((slot, self.plan.chunk));
        }
    }

    /// Chooses the decoding sequences of a pass: those that get a page.
    fn choose_decoding(&mut self, executor: &mut dyn Executor) {
        let Extent { max_rows, head_rows, .. } = executor.schedule().extent;
        let most = max_rows.min(head_rows);
        for slot in self.slots_from(self.decode_turn) {
            if self.plan.heads.len() < most && self.slots[slot].decodes() && self.make_room(executor, slot, 1) {
                self.plan.heads.push(slot);
            }
        }
        self.decode_turn = self.plan.heads.last().map_or(0, |last| last + 1);
        // Sorted by slot, so that the next pass has them in the same order.
        self.plan.heads.sort_unstable();
    }

    /// Takes pages in advance for the sequences of a decode pass.
    fn take_ahead(&mut self, executor: &mut dyn Executor) {
        let Extent { max_rows, context, .. } = executor.schedule().extent;
        for &slot in &self.plan.heads {
            let next = self.slots[slot].session.next_positions(1).start;
            let ahead = next..(next + 1 + AHEAD.min(max_rows - 1)).min(context);
            if executor.pages().has_room(slot, &ahead) {
                // If no page is free, the sequence takes one later or waits.
                let _ = executor.pages_mut().extend(slot, ahead);
            }
        }
    }

    /// Takes pages for the next rows of a slot, `most` at most. If none is free, free slots give up theirs, the oldest
    /// first. Returns whether there are enough.
    fn make_room(&mut self, executor: &mut dyn Executor, slot: usize, most: usize) -> bool {
        let positions = self.slots[slot].session.next_positions(most);
        loop {
            if executor.pages().has_room(slot, &positions) {
                return executor.pages_mut().extend(slot, positions).is_ok();
            }
            if !self.give_way(executor, slot) {
                return false;
            }
        }
    }

    /// Takes the pages from the sequence that joined last among those with pages; it runs again from its first token
    /// when there is room. If only one has pages, that sequence ends, because the cache is too small for it.
    pub(super) fn make_way(&mut self, executor: &mut dyn Executor) {
        let joined = |slot: &usize| self.slots[*slot].member.as_ref().map(|member| member.joined);
        let running = || (0..self.slots.len()).filter(|slot| joined(slot).is_some());
        let with_pages = || running().filter(|&slot| !self.slots[slot].session.tokens().is_empty());
        let Some(last) = with_pages().max_by_key(joined).or_else(|| running().next()) else { return };
        if with_pages().count() < 2 {
            let error = no_room(executor);
            return self.put_out(executor, last, Err(error));
        }
        self.slots[last].session.put_off(executor);
        self.trim(executor);
        if let Some(member) = &mut self.slots[last].member {
            member.put_off = Some(self.endings);
        }
    }

    /// The slots with prompts to run, in turn.
    fn next_prompts(&self) -> impl Iterator<Item = usize> {
        let alone = self.room() + 1 == self.slots.len();
        let waits = move |member: &Member| !alone && member.put_off == Some(self.endings);
        let is_prompt = move |slot: &KvSlot| slot.member.as_ref().is_some_and(|m| !waits(m)) && !slot.decodes();
        self.slots_from(self.prompt_turn).filter(move |&slot| is_prompt(&self.slots[slot]))
    }

    /// The indices of all slots in turn, beginning with `first`.
    fn slots_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.slots.len();
        (0..count).map(move |i| (first + i) % count)
    }
}

/// The error for a sequence that needs more pages than there are.
fn no_room(executor: &dyn Executor) -> Error {
    let tokens = executor.schedule().kv.pool(Pool::Global).pages * PAGE;
    Error::refused(
        format!("the KV cache holds {tokens} tokens, and the sequence needs more"),
        "use a shorter prompt, or a device with more memory",
    )
}
