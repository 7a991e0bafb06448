//! A running sequence and its KV slot.

use super::{FinishedSequence, OnToken};
use crate::executor::Executor;
use crate::sequence::chooser::Chooser;
use crate::sequence::generate::{Finish, Generation};
use crate::sequence::session::Session;
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A slot for one sequence, which keeps its keys and values after the sequence has ended.
pub(super) struct KvSlot {
    /// The cached tokens. They stay when the slot becomes free, as a prefix for later sequences.
    pub(super) session: Session,
    /// The sequence that runs in the slot. `None`: the slot is free.
    pub(super) member: Option<Member>,
    /// The batch's count of ended sequences when the slot became free. Smaller is older.
    pub(super) ended: usize,
    /// The number of sequences that began with this slot's tokens.
    pub(super) uses: usize,
    /// The owner of the tokens ([`super::Batch::join_of`]), which alone may reuse those that are not public.
    pub(super) owner: Option<u64>,
    /// The number of first tokens that sequences of any owner may reuse.
    pub(super) open: usize,
}

/// A sequence that runs in a slot.
pub(super) struct Member {
    pub(super) chooser: Chooser,
    /// True if the guide was not ready when the pass was submitted. The next token can then be chosen from the logits
    /// only.
    pub(super) is_late: bool,
    /// True if the device could not choose the last token by itself, as a pass that ran ahead needed.
    pub(super) is_undecided: bool,
    pub(super) stops: Vec<u32>,
    pub(super) limit: usize,
    pub(super) so_far: Generation,
    /// The count of ended sequences when this one gave back its pages. It waits until the count changes, since before
    /// that it would only take the same pages back.
    pub(super) put_off: Option<usize>,
    /// Start of decoding. `None`: the prompt is not complete.
    pub(super) decoding: Option<Instant>,
    pub(super) joined: Instant,
}

/// The result of a head row: a token, the end of the reply, or an error.
pub(super) enum Chosen {
    /// The reply continues with this token.
    Token(u32),
    /// The reply ends for this reason.
    End(Finish),
    /// No token: logits were not finite, or the device failed.
    Failure(Box<Error>),
}

impl KvSlot {
    /// A free slot, with `session` as its cache.
    pub(super) fn new(session: Session) -> KvSlot {
        KvSlot { session, member: None, ended: 0, uses: 0, owner: None, open: usize::MAX }
    }

    /// True if the slot's sequence decodes, one row at a time. After giving back its pages a sequence has more rows to
    /// run.
    pub(super) fn decodes(&self) -> bool {
        self.member.as_ref().is_some_and(|m| m.decoding.is_some()) && self.session.pending() == 1
    }

    /// Ends the running sequence. `None`: the slot is free.
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
        // A chunk without a head row may have failed unnoticed, so the cached tokens of an incomplete prompt are
        // dropped.
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
    /// Begins the reply after the prompt's last pass. `depth`: tokens in the cache; `room`: positions left in the
    /// context.
    pub(super) fn begin_reply(&mut self, depth: usize, room: usize) {
        if self.decoding.is_some() {
            // The sequence continues after it had given back its pages.
            return;
        }
        self.so_far.prefill = self.joined.elapsed();
        self.so_far.depth = depth;
        self.decoding = Some(Instant::now());
        // The last token needs no position, so it may be chosen when the context is full.
        self.limit = self.limit.min(room + 1);
        self.so_far.tokens.reserve(self.limit.min(1 << 20));
    }

    /// True if each choice is the token with the largest logit.
    #[inline(always)]
    pub(super) fn is_greedy(&self) -> bool {
        matches!(self.chooser, Chooser::Greedy)
    }

    /// True if a guide restricts the tokens. The set of allowed tokens may take long to compute.
    pub(super) fn is_guided(&self) -> bool {
        matches!(self.chooser, Chooser::Guide(_))
    }

    /// True if the next token can be chosen. Waits for the guide for `patience` at most, and subtracts the time from
    /// it.
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

    /// True if the device can choose this sequence's next token itself, and the limit allows another one after it.
    #[inline(always)]
    pub(super) fn may_run_ahead(&self) -> bool {
        self.chooser.takes_likeliest() && self.wants_two() && !self.is_undecided
    }

    /// True if each choice is the token with the largest of all logits, and the limit allows another one after it.
    #[inline(always)]
    pub(super) fn may_run_ahead_greedily(&self) -> bool {
        self.is_greedy() && self.wants_two()
    }

    /// True if the limit allows two more tokens.
    #[inline(always)]
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
