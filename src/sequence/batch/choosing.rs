//! The results of a pass: chooses a token for each head row, and continues or ends its sequence.

use super::member::{Chosen, KvSlot};
use super::plan::{NextPass, STALE};
use super::{Batch, OnToken};
use crate::Result;
use crate::executor::Executor;
use crate::schedule::kv::PAGE;
use crate::sequence::generate::Finish;

impl Batch {
    /// Chooses a token for each head row of the last pass. If the next pass has the same sequences, writes its rows.
    #[inline(always)]
    pub(super) fn choose(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) {
        if self.plan.stale > 0 {
            return self.choose_of_some(executor, on_token);
        }
        let (mut steady, mut all_greedy) = (self.plan.is_steady(), self.speculating.is_none());
        let mut head = 0;
        while let Some(&slot) = self.plan.heads.get(head) {
            all_greedy &= self.choose_head(executor, head, slot, &mut steady, on_token);
            head += 1;
        }
        self.plan.follow(steady, all_greedy, executor.is_ahead());
        if head == 0 {
            self.choose_drafted(executor, on_token);
        }
    }

    /// As [`Batch::choose`], for a pass that ran ahead and has stale rows.
    #[cold]
    fn choose_of_some(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) {
        for head in 0..self.plan.heads.len() {
            let slot = self.plan.heads[head];
            if slot != STALE {
                self.choose_head(executor, head, slot, &mut false, on_token);
            }
        }
        self.plan.next = NextPass::Anew;
    }

    /// Chooses a token for head row `head`, which belongs to the sequence in `slot`. Clears `steady` if the next pass
    /// cannot have the same sequences. Returns whether this sequence goes on greedily.
    #[inline(always)]
    fn choose_head(
        &mut self,
        executor: &mut dyn Executor,
        head: usize,
        slot: usize,
        steady: &mut bool,
        on_token: OnToken<'_>,
    ) -> bool {
        let KvSlot { session, member: Some(member), .. } = &mut self.slots[slot] else { return false };
        // The logits are gone if a pass runs ahead.
        if member.is_late && executor.is_ahead() || !member.is_ready(&mut self.patience) {
            self.repeat(executor, head, slot, steady);
            return false;
        }
        if session.pending() > 0 {
            session.commit(1);
            member.so_far.passes += 1;
        }
        let end = match member.choose(executor, head, slot, on_token) {
            Chosen::Token(token) => {
                let may_run_ahead = member.may_run_ahead_greedily();
                if !may_run_ahead {
                    *steady &= !stands_on_another(executor, head, token);
                }
                let row = session.push_chosen(token);
                let position = row.position as usize;
                // A row without a page needs a new plan, which takes pages.
                if position.is_multiple_of(PAGE) {
                    *steady &= executor.pages().is_ready(slot, position);
                }
                if *steady || executor.is_ahead() {
                    self.plan.rows[head] = row;
                }
                return may_run_ahead;
            }
            Chosen::End(finish) => Ok(finish),
            // If the device has failed, the next pass fails too and ends all sequences.
            Chosen::Failure(e) => Err(*e),
        };
        *steady = false;
        self.put_out_chosen(executor, head, slot, end);
        false
    }

    /// Lets a row run again in the next pass, because its guide has not computed the set of allowed tokens. If a pass
    /// runs ahead, that pass's row of this sequence becomes stale.
    #[cold]
    fn repeat(&mut self, executor: &mut dyn Executor, head: usize, slot: usize, steady: &mut bool) {
        let session = &mut self.slots[slot].session;
        if session.pending() == 0 {
            session.repeat_last();
        }
        if executor.is_ahead() {
            self.plan.rows[head].position += 1;
            self.plan.leave(slot);
            *steady = false;
        }
    }

    /// Ends a sequence after its choice from head row `head`. A pass that runs ahead still has a row of it.
    #[cold]
    fn put_out_chosen(&mut self, executor: &mut dyn Executor, head: usize, slot: usize, end: Result<Finish>) {
        if executor.is_ahead() {
            self.plan.rows[head].position += 1;
        }
        self.put_out(executor, slot, end);
    }
}

/// Whether the next pass already runs, with a token after head row `head` that differs from the chosen `token`. That
/// happens only if a guide has replaced the likeliest token.
fn stands_on_another(executor: &dyn Executor, head: usize, token: u32) -> bool {
    executor.is_ahead() && executor.next(head) != token
}
