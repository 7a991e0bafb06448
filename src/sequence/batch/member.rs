//! A sequence that runs, and the KV slot that it runs in.

use super::{FinishedSequence, OnToken};
use crate::executor::Executor;
use crate::sequence::chooser::Chooser;
use crate::sequence::generate::{Finish, Generation};
use crate::sequence::session::Session;
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A KV slot.
pub(super) struct KvSlot {
    /// What the cache holds. It stays when the slot is free, as a prefix for who comes next.
    pub(super) session: Session,
    /// The sequence that runs in it. `None`: it is free.
    pub(super) member: Option<Member>,
    /// How many sequences had ended when it became free.
    pub(super) ended: usize,
    /// How many sequences have begun with what it holds.
    pub(super) uses: usize,
    /// Whose tokens it holds ([`super::Batch::join_of`]).
    pub(super) owner: Option<u64>,
    /// How many of the first of them are anybody's.
    pub(super) open: usize,
}

/// A sequence that runs.
pub(super) struct Member {
    pub(super) chooser: Chooser,
    /// Its guide had not said yet which tokens may come when the pass asked: its token can come of the logits alone.
    pub(super) is_late: bool,
    pub(super) stops: Vec<u32>,
    pub(super) limit: usize,
    pub(super) so_far: Generation,
    /// How many sequences had ended when it was put off. Until one more has, it would only take the pages that it gave.
    pub(super) put_off: Option<usize>,
    /// Since when it decodes. `None`: its prompt is not done.
    pub(super) decoding: Option<Instant>,
    pub(super) joined: Instant,
}

/// What comes of a head row.
pub(super) enum Chosen {
    /// The reply goes on with this token.
    Token(u32),
    /// The reply ends.
    End(Finish),
    /// There is no telling.
    Failure(Box<Error>),
}

impl KvSlot {
    /// A free one.
    pub(super) fn new(session: Session) -> KvSlot {
        KvSlot { session, member: None, ended: 0, uses: 0, owner: None, open: usize::MAX }
    }

    /// Whether its sequence goes on by one row at a time. One that was put off has more to run.
    pub(super) fn decodes(&self) -> bool {
        self.member.as_ref().is_some_and(|m| m.decoding.is_some()) && self.session.pending() == 1
    }

    /// Ends the sequence that runs. `None`: none does.
    pub(super) fn end(
        &mut self,
        executor: &mut dyn Executor,
        slot: usize,
        end: Result<Finish>,
    ) -> Option<FinishedSequence> {
        let Member { decoding, joined, mut so_far, chooser, .. } = self.member.take()?;
        match decoding {
            Some(since) => so_far.decode = since.elapsed(),
            None => so_far.prefill = joined.elapsed(),
        }
        // A chunk without a head may have failed unnoticed, so nothing of a prompt that was not finished is trusted.
        let trusted = if decoding.is_some() { self.session.tokens().len() } else { so_far.kept };
        self.session.rewind(executor, trusted);
        let reply = end.map(|finish| {
            so_far.finish = finish;
            so_far.full = finish == Finish::Length && self.session.room(executor.schedule()) == 0;
            so_far
        });
        Some(FinishedSequence { slot, reply, chooser })
    }
}

impl Member {
    /// The prompt is done: its last token's logits are there. The context has room for `room` tokens more.
    pub(super) fn begin_reply(&mut self, depth: usize, room: usize) {
        if self.decoding.is_some() {
            // It was put off, and goes on.
            return;
        }
        self.so_far.prefill = self.joined.elapsed();
        self.so_far.depth = depth;
        self.decoding = Some(Instant::now());
        // The last token may be chosen when the context is full: it needs no position.
        self.limit = self.limit.min(room + 1);
        self.so_far.tokens.reserve(self.limit.min(1 << 20));
    }

    /// Whether each token is the argmax.
    pub(super) fn is_greedy(&self) -> bool {
        matches!(self.chooser, Chooser::Greedy)
    }

    /// Whether a guide says which tokens may come, which it may not have done yet.
    pub(super) fn is_guided(&self) -> bool {
        matches!(self.chooser, Chooser::Guide(_))
    }

    /// Whether the next token can be chosen. If not, this waits for that, and takes the time off `patience`.
    #[inline(always)]
    pub(super) fn is_ready(&mut self, patience: &mut Duration) -> bool {
        self.is_greedy() || self.chooser.is_ready(Duration::ZERO) || self.becomes_ready(patience)
    }

    #[cold]
    fn becomes_ready(&mut self, patience: &mut Duration) -> bool {
        let begun = Instant::now();
        let is_ready = self.chooser.is_ready(*patience);
        *patience = patience.saturating_sub(begun.elapsed());
        is_ready
    }

    /// Whether the next token needs no more than what the pass gives as its next, and the one after it is wanted.
    pub(super) fn may_run_ahead(&self) -> bool {
        self.chooser.takes_likeliest() && self.wants_two()
    }

    /// As [`Member::may_run_ahead`], with the argmax of all tokens.
    pub(super) fn may_run_ahead_greedily(&self) -> bool {
        self.is_greedy() && self.wants_two()
    }

    /// Whether the limit leaves room for two more tokens.
    fn wants_two(&self) -> bool {
        self.so_far.tokens.len() + 1 < self.limit
    }

    /// Chooses the next token from head row `head`.
    #[inline(always)]
    pub(super) fn choose(
        &mut self,
        executor: &mut dyn Executor,
        head: usize,
        slot: usize,
        on_token: OnToken<'_>,
    ) -> Chosen {
        if self.limit == 0 {
            return Chosen::End(Finish::Length);
        }
        let token = match self.chooser.choose(executor, head) {
            Ok(token) => token,
            Err(e) => return Chosen::Failure(Box::new(e)),
        };
        if self.stops.contains(&token) {
            return Chosen::End(Finish::Stop);
        }
        self.so_far.tokens.push(token);
        match on_token(slot, token, &mut self.chooser) {
            ControlFlow::Break(finish) => Chosen::End(finish),
            ControlFlow::Continue(()) if self.so_far.tokens.len() >= self.limit => Chosen::End(Finish::Length),
            ControlFlow::Continue(()) => Chosen::Token(token),
        }
    }
}
