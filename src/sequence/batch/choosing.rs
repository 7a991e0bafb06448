//! The results of a pass: chooses a token for each head row, and continues or ends its sequence.

use super::member::{Chosen, KvSlot, Member};
use super::plan::STALE;
use super::{Batch, OnToken};
use crate::executor::Executor;
use crate::schedule::kv::PAGE;

impl Batch {
    /// Chooses a token for each head row of the last pass. If the next pass has the same sequences, writes its rows.
    #[inline(always)]
    pub(super) fn choose(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) {
        if self.plan.heads.is_empty() {
            return self.choose_drafted(executor, on_token);
        }
        // A plan with stale rows is never the next pass.
        let mut is_next = self.plan.is_next;
        let mut is_greedy = self.speculating.is_none();
        for head in 0..self.plan.heads.len() {
            let slot = self.plan.heads[head];
            if slot != STALE {
                is_greedy &= self.choose_head(executor, head, slot, &mut is_next, on_token);
            }
        }
        (self.plan.is_next, self.plan.is_greedy) = (is_next, is_next && is_greedy);
    }

    /// Chooses a token for head row `head`, which belongs to the sequence in `slot`. Clears `is_next` if the next pass
    /// cannot have the same sequences. Returns whether this sequence is greedy and wants two more tokens.
    #[inline(always)]
    fn choose_head(
        &mut self,
        executor: &mut dyn Executor,
        head: usize,
        slot: usize,
        is_next: &mut bool,
        on_token: OnToken<'_>,
    ) -> bool {
        let KvSlot { session, member: Some(member), .. } = &mut self.slots[slot] else { return false };
        // The logits are gone if a pass runs ahead.
        let is_lost = |member: &mut Member| {
            let result = executor.result(head);
            member.is_undecided = result.found.is_some_and(|found| !found.has_likeliest());
            member.is_late || member.is_undecided
        };
        // The token of a greedy plan is the device's.
        let is_certain = self.plan.is_greedy;
        if !is_certain {
            if self.is_ahead && !member.is_greedy() && is_lost(member) || !member.is_ready(&mut self.patience) {
                self.repeat(head, slot, is_next);
                return false;
            }
            member.is_undecided = false;
        }
        if session.pending() > 0 {
            session.commit(1);
            member.so_far.passes += 1;
        }
        let end = match member.choose(executor, head, slot, on_token) {
            Chosen::Token(token) => {
                // A guide may have replaced the likeliest token.
                *is_next &= is_certain || !self.is_ahead || executor.result(head).next == token;
                let row = session.push_chosen(token);
                if let Some(speculating) = &mut self.speculating {
                    speculating.slots[slot].head = Some(head);
                }
                let position = row.position as usize;
                // A row without a page needs a new plan, which takes pages.
                if position.is_multiple_of(PAGE) {
                    *is_next &= executor.pages().is_ready(slot, position);
                }
                if *is_next || self.is_ahead {
                    self.plan.rows[head] = row;
                }
                return member.may_run_ahead_greedily();
            }
            Chosen::End(finish) => Ok(finish),
            // If the device has failed, the next pass fails too and ends all sequences.
            Chosen::Failure(e) => Err(*e),
        };
        *is_next = false;
        if self.is_ahead {
            // The pass in flight still has a row of it.
            self.plan.rows[head].position += 1;
        }
        self.put_out(executor, slot, end);
        false
    }

    /// Lets a row run again in the next pass, because its token cannot be chosen: its guide has not computed the set of
    /// allowed tokens, or the logits that it needs are gone. The row of a pass in flight becomes stale.
    #[cold]
    fn repeat(&mut self, head: usize, slot: usize, is_next: &mut bool) {
        let session = &mut self.slots[slot].session;
        if session.pending() == 0 {
            session.repeat_last();
        }
        if self.is_ahead {
            self.plan.rows[head].position += 1;
            self.plan.leave(slot);
            *is_next = false;
        }
    }
}
