//! What comes of a pass: a token for each head row, with which its sequence goes on or ends.

use super::member::{Chosen, KvSlot};
use super::plan::{NextPass, STALE};
use super::{Batch, OnToken};
use crate::Result;
use crate::executor::Executor;
use crate::schedule::kv::PAGE;
use crate::sequence::generate::Finish;

impl Batch {
    /// Chooses a token for each head row of the last pass. Where the next pass has the same sequences, its rows are made.
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

    /// As [`Batch::choose`], of a pass that ran ahead and some of whose rows are stale.
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

    /// Chooses a token for head row `head`, of the sequence in `slot`. Clears `steady` if the next pass has other sequences.
    /// Returns whether this one goes on greedily.
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
        // A pass that runs ahead has taken the place of the logits.
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
                // Pages are taken where the rows are chosen anew.
                if position.is_multiple_of(PAGE) {
                    *steady &= executor.pages().is_ready(slot, position);
                }
                if *steady || executor.is_ahead() {
                    self.plan.rows[head] = row;
                }
                return may_run_ahead;
            }
            Chosen::End(finish) => Ok(finish),
            // If the device failed, the next pass finds it failed again, and ends every sequence.
            Chosen::Failure(e) => Err(*e),
        };
        *steady = false;
        self.put_out_chosen(executor, head, slot, end);
        false
    }

    /// Lets the row of head row `head` run again in the next pass: its guide has not said yet which tokens may come. A pass that
    /// runs ahead has the row after it, which nobody takes.
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

    /// Puts out a sequence by what was chosen from head row `head`. A pass that runs ahead has its row still.
    #[cold]
    fn put_out_chosen(&mut self, executor: &mut dyn Executor, head: usize, slot: usize, end: Result<Finish>) {
        if executor.is_ahead() {
            self.plan.rows[head].position += 1;
        }
        self.put_out(executor, slot, end);
    }
}

/// Whether the next pass runs already, and with another token than this one after head row `head`: a guide has put this one
/// in its place. The others take what that pass has for them.
fn stands_on_another(executor: &dyn Executor, head: usize, token: u32) -> bool {
    executor.is_ahead() && executor.next(head) != token
}
