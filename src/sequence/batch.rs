//! Sequences that run together. They join and leave between passes. Each has its own chooser, stop tokens and limit.
//!
//! A pass holds the next row of every decoding sequence and, if a prompt waits, a chunk of it. So the weights are read
//! once for both, and a long prompt delays the other sequences by a chunk at most ([`Batch::set_chunk`]). When so many
//! sequences decode that less than half of a pass is left for a chunk, decode passes and chunks alternate. Several
//! short prompts run in one pass: alone each would take nearly as long as all of them.
//!
//! A decoding sequence may have drafted tokens in a pass, as rows after its own ([`Batch::speculate`]).
//!
//! A free slot keeps the cached tokens of its last sequence, for prompts with the same beginning.

mod choosing;
mod member;
mod places;
mod plan;
mod prefixes;
mod rows;
mod verify;

use crate::executor::{Executor, HeadRows, SampleTiming, Submission};
use crate::schedule::choice::SampleRequest;
use crate::schedule::{PassShape, Schedule};
use crate::sequence::chooser::Chooser;
use crate::sequence::counts;
use crate::sequence::generate::{Finish, Generation};
use crate::sequence::prompt::SequenceLimits;
use crate::sequence::session::Session;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use member::{KvSlot, Member};
pub use places::ParkedSequence;
use plan::{PassPlan, STALE};
pub use prefixes::{Prefix, ReadPage};
use verify::Speculating;

/// A prompt to run, with the settings of its reply.
#[derive(Clone)]
pub struct SequenceRequest {
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// Chooses the reply's tokens.
    pub chooser: Chooser,
    /// Tokens that end the reply and are not part of it.
    pub stops: Vec<u32>,
    /// The most tokens of the reply.
    pub limit: usize,
    /// True if the prompt's first tokens may come from the cache. False: the whole prompt runs.
    pub reuse: bool,
}

/// A sequence that has left the batch.
pub struct FinishedSequence {
    /// The slot that the sequence had, as [`Batch::join_of`] returned it.
    pub slot: usize,
    /// The reply's tokens, or the error of a pass whose logits were not finite.
    pub reply: Result<Generation>,
    /// The chooser after this reply, with which a next reply can continue.
    pub chooser: Chooser,
}

/// Called with each chosen token: its slot, the token, and its chooser. A break ends that sequence.
pub type OnToken<'a> = &'a mut dyn FnMut(usize, u32, &mut Chooser) -> ControlFlow<Finish>;

/// The sequences that an executor runs, each in a slot of its own.
pub struct Batch {
    /// The state of each KV slot.
    slots: Vec<KvSlot>,
    /// Sequences that have ended and have not been taken yet.
    ended: VecDeque<FinishedSequence>,
    /// The slot from which the next prompt is searched.
    prompt_turn: usize,
    /// The slot from which decoding sequences are searched, so that all get rows in turn if they do not fit in one
    /// pass.
    decode_turn: usize,
    /// The most prompt rows in a pass while other sequences decode.
    most_chunk: usize,
    /// The plan of the last pass, or of the next one once it is made.
    plan: PassPlan,
    /// The state of drafting; `None` if no tokens are drafted.
    speculating: Option<Box<Speculating>>,
    /// True if the device already runs the pass after the last one, with the plan's rows.
    is_ahead: bool,
    /// The number of sequences that have ended since the batch began.
    endings: usize,
    /// The most bytes of pages that only free slots hold.
    most_kept: u64,
    /// Called while the device runs a pass ([`Batch::set_meanwhile`]).
    meanwhile: Box<dyn FnMut()>,
    /// The time that this pass may still wait for guides.
    patience: Duration,
}

/// The time that a pass waits for guides to compute their sets of allowed tokens. The row of a slower guide runs again
/// in the next pass; the other rows go on.
const PATIENCE: Duration = Duration::from_millis(5);
/// The longest wait of a pass for guides, as [`PATIENCE`], when no other sequence runs.
const PATIENCE_ALONE: Duration = Duration::from_secs(1);

impl Batch {
    /// A batch with a free slot for each sequence of the schedule.
    pub fn new(schedule: &Schedule) -> Batch {
        let extent = &schedule.extent;
        Batch {
            slots: (0..extent.sequences).map(|i| KvSlot::new(Session::new(i as u32, extent.context))).collect(),
            ended: VecDeque::new(),
            prompt_turn: 0,
            decode_turn: 0,
            most_chunk: usize::MAX,
            plan: PassPlan::with_capacity(extent.max_rows, extent.sequences.max(extent.head_rows), extent.sequences),
            speculating: None,
            is_ahead: false,
            endings: 0,
            most_kept: u64::MAX,
            meanwhile: Box::new(|| {}),
            patience: PATIENCE,
        }
    }

    /// The number of slots: the most sequences that can run at the same time.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The number of slots that no running sequence has.
    pub fn room(&self) -> usize {
        self.slots.iter().filter(|slot| slot.member.is_none()).count()
    }

    /// Limits the prompt rows in a pass to `rows`, at least 1, while other sequences decode, because the time between
    /// two of their tokens grows with them. The default is as many as a pass takes.
    pub fn set_chunk(&mut self, rows: usize) {
        self.most_chunk = rows.max(1);
    }

    /// Sets a callback for work on the tokens of the pass before, such as sending them. It is called once in each pass,
    /// while the device works.
    pub fn set_meanwhile(&mut self, meanwhile: impl FnMut() + 'static) {
        self.meanwhile = Box::new(meanwhile);
    }

    /// The shape of the last [`Batch::step`]; the depth is the mean over decoding rows. Several prompts count as one
    /// chunk.
    pub fn last_pass(&self) -> Option<PassShape> {
        if let Some((pass, _)) = self.speculating.as_ref().and_then(|speculating| speculating.verified) {
            return Some(pass);
        }
        let PassPlan { rows, chunk, heads, stale, is_next, .. } = &self.plan;
        let depth = rows.first()?.position as usize;
        let (chunk, decoding) = (*chunk, &rows[*chunk..]);
        let sequences = decoding.len() - stale;
        let positions: usize = decoding.iter().map(|row| row.position as usize).sum();
        // The rows of the next pass are one position further.
        let mean = || positions / decoding.len() - usize::from(*is_next || self.is_ahead);
        Some(match (chunk, sequences) {
            // A pass in flight whose sequences have all left.
            (0, 0) => return None,
            (_, 0) => PassShape::Prefill { rows: chunk, depth },
            (0, _) => PassShape::Decode { sequences, depth: mean() },
            _ => PassShape::Mixed { chunk, depth, ends: heads.len() > sequences, sequences, beside: mean() },
        })
    }

    /// True if no sequence is running.
    pub fn is_empty(&self) -> bool {
        self.room() == self.slots.len()
    }

    /// Adds a sequence of `owner` and returns its slot. No pass runs yet. The sequence's cached tokens are reused only
    /// for the same owner, except for a beginning that was public already. `None`: all of them are public.
    ///
    /// # Errors
    /// Input: the prompt is empty, is longer than the context, or has a token outside of the vocabulary. Refused: no
    /// slot is free.
    pub fn join_of(
        &mut self,
        executor: &mut dyn Executor,
        request: SequenceRequest,
        owner: Option<u64>,
    ) -> Result<usize> {
        let SequenceRequest { prompt, mut chooser, stops, limit, reuse } = request;
        let known = if reuse { &prompt[..] } else { &[] };
        let slot = self.best_slot(executor, known, owner).ok_or_else(|| self.full())?;
        SequenceLimits::of(executor.schedule()).check(0, &prompt)?;
        let kept = self.place(executor, slot, &prompt, owner, reuse)?;
        chooser.begin(&prompt);
        let so_far = Generation::new(prompt.len(), kept);
        self.slots[slot].member = Some(Member {
            chooser,
            is_late: false,
            is_undecided: false,
            stops,
            limit,
            so_far,
            put_off: None,
            decoding: None,
            joined: Instant::now(),
        });
        Ok(slot)
    }

    /// The error for a sequence that joins while no slot is free.
    fn full(&self) -> Error {
        Error::refused(format!("all {} sequences are in use", self.slots.len()), "wait until one has ended")
    }

    /// Removes a sequence before its end. `None`: the slot is free.
    pub fn leave(&mut self, executor: &mut dyn Executor, slot: usize) -> Option<FinishedSequence> {
        self.end(executor, slot, Ok(Finish::Interrupted))
    }

    /// Runs one pass: plans it, submits it and, where no token needs the host, the pass after it; sends the tokens of
    /// the pass before while the device works; waits, and chooses a token for each head row. [`Batch::take_ended`] then
    /// returns the sequences that have ended. Does nothing if the batch is empty.
    ///
    /// # Errors
    /// Device: the device failed; every sequence has left then. A pass that is cancelled is no error: it ends all
    /// sequences as [`Finish::Interrupted`], with the tokens so far.
    pub fn step(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) -> Result<()> {
        match self.run_pass(executor) {
            Ok(()) => {
                self.choose(executor, on_token);
                Ok(())
            }
            Err(e) => self.end_all(executor, e),
        }
    }

    // Inlined with its callees: once per token the device waits for this path.
    #[inline(always)]
    fn run_pass(&mut self, executor: &mut dyn Executor) -> Result<()> {
        match self.plan.is_greedy {
            true => self.run_greedy(executor),
            false => self.run_planned(executor),
        }
    }

    /// Runs a pass of a plan that is greedy: the pass after it follows at once.
    #[inline(always)]
    fn run_greedy(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let head = HeadRows { first: 0, count: self.plan.rows.len() };
        executor.submit(Submission::pass(&self.plan.rows, Some(head)))?;
        self.is_ahead = executor.submit(Submission::Next { samples: false })?;
        (self.meanwhile)();
        executor.wait()?;
        counts::count_decoded(head.count);
        Ok(())
    }

    /// Plans and runs a pass of any kind: chunks of prompts, decoding, and drafts.
    #[inline(never)]
    fn run_planned(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let is_resumed = !self.plan.is_next && self.is_ahead && self.resume(executor)?;
        if !is_resumed && !self.plan.is_next && !self.plan_anew(executor)? {
            self.plan.clear();
            return Ok(());
        }
        if self.plan.is_next {
            self.draft(executor)?;
        }
        let sequences = self.plan.rows.len();
        let has_drafts = self.place_drafts();
        self.speculating.iter_mut().for_each(|speculating| speculating.begin_pass());
        let may_run_ahead = self.plan.is_next && !has_drafts && self.may_run_ahead();
        let samples = self.sample_timing();
        if !is_resumed {
            executor.submit(Submission::Pass { rows: &self.plan.rows, head: self.plan.head_rows(), samples })?;
        }
        if samples == SampleTiming::Later {
            // Meanwhile guides compute.
            (self.meanwhile)();
        }
        if samples != SampleTiming::Never {
            self.request_samples(executor)?;
        }
        let next = Submission::Next { samples: samples != SampleTiming::Never };
        self.is_ahead = may_run_ahead && executor.submit(next)?;
        if samples != SampleTiming::Later {
            (self.meanwhile)();
        }
        executor.wait()?;
        if self.plan.chunk > 0 {
            self.commit_chunk(executor);
        }
        match has_drafts {
            // Drafted rows are chosen one after the other, by `verify`.
            true => self.plan.heads.clear(),
            // 0 if only prompts run.
            false => counts::count_decoded(self.plan.rows.len() - self.plan.chunk - self.plan.stale),
        }
        self.note_time(sequences);
        Ok(())
    }

    /// Plans the next pass. `false`: the batch is empty.
    fn plan_anew(&mut self, executor: &mut dyn Executor) -> Result<bool> {
        while !self.plan.is_next {
            if self.is_empty() {
                return Ok(false);
            }
            self.choose_rows(executor);
            debug_assert!(self.have_pages(executor), "a row without a page");
            match self.plan.rows.is_empty() {
                // No sequence has pages for a row.
                true => self.make_way(executor),
                false if self.plan.is_next => {}
                false => {
                    self.break_off();
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    /// True if each row of the plan has pages for its position, and for the positions that it attends to.
    fn have_pages(&self, executor: &dyn Executor) -> bool {
        let mut rows = self.plan.rows.iter();
        rows.all(|row| executor.pages().is_ready(row.sequence as usize, row.position as usize))
    }

    /// Goes on with the pass in flight. Its rows are stale whose sequence has left or chose another token.
    #[cold]
    fn resume(&mut self, executor: &mut dyn Executor) -> Result<bool> {
        self.break_off();
        let PassPlan { rows, heads, stale, .. } = &mut self.plan;
        debug_assert_eq!(rows.len(), heads.len(), "a pass that runs ahead has rows that decode alone");
        for (row, (head, chosen)) in heads.iter_mut().zip(rows).enumerate() {
            if executor.result(row).next != chosen.token {
                *head = STALE;
            }
        }
        *stale = heads.iter().filter(|head| **head == STALE).count();
        self.is_ahead = executor.submit(Submission::Resume)?;
        Ok(self.is_ahead)
    }

    #[inline(always)]
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.slots.iter().filter_map(|slot| slot.member.as_ref())
    }

    /// The sequences of the head rows that are not stale.
    #[inline(always)]
    fn heads(&self) -> impl Iterator<Item = &Member> {
        self.plan.heads.iter().filter_map(|&slot| self.slots.get(slot)?.member.as_ref())
    }

    /// When the sample requests of the planned pass come.
    #[inline(always)]
    fn sample_timing(&self) -> SampleTiming {
        let (mut timing, mut heads) = (SampleTiming::Never, self.heads());
        while let Some(member) = heads.next().filter(|_| timing != SampleTiming::Later) {
            timing = match member.is_guided() || self.is_ahead {
                _ if member.is_greedy() => timing,
                true => SampleTiming::Later,
                false => SampleTiming::AtOnce,
            };
        }
        timing
    }

    /// True if the device can start the pass after the next one without the host: it then chooses the tokens itself.
    #[inline(always)]
    fn may_run_ahead(&self) -> bool {
        match &self.speculating {
            None => self.members().all(Member::may_run_ahead),
            // Drafts are considered before each pass.
            Some(speculating) => !speculating.is_wanted && self.members().all(Member::may_run_ahead_greedily),
        }
    }

    /// Submits the head rows' sample requests. Further rows of the same sequence are its draft.
    fn request_samples(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let alone = self.room() + 1 == self.slots.len();
        let Batch { slots, plan: PassPlan { heads, .. }, speculating, patience, .. } = self;
        *patience = if alone { PATIENCE_ALONE } else { PATIENCE };
        let mut fill = |row: usize, request: &mut SampleRequest<'_>| {
            let slot = heads[row];
            if slot == STALE {
                return;
            }
            let draft = speculating.as_ref().map_or(&[][..], |speculating| speculating.draft(slot));
            // Rows of one sequence are adjacent.
            let behind = heads[..row].iter().rev().take_while(|other| **other == slot).count();
            if let Some(member) = &mut slots[slot].member {
                member.is_late = behind == 0 && !member.is_ready(patience);
                if !member.is_late {
                    member.chooser.ask_after(&draft[..behind.min(draft.len())], request);
                }
            }
        };
        executor.submit(Submission::Samples(&mut fill)).map(drop)
    }

    /// Takes a sequence that has ended, in the order in which they ended.
    pub fn take_ended(&mut self) -> Option<FinishedSequence> {
        self.ended.pop_front()
    }

    /// Ends all sequences after a pass that failed or was cancelled.
    #[cold]
    fn end_all(&mut self, executor: &mut dyn Executor, e: Error) -> Result<()> {
        (0..self.slots.len()).for_each(|slot| self.put_out(executor, slot, Ok(Finish::Interrupted)));
        // No pass has run.
        self.plan.clear();
        self.is_ahead = false;
        self.break_off();
        if matches!(e, Error::Interrupted { .. }) {
            return Ok(());
        }
        self.ended.clear();
        Err(e)
    }

    /// Commits the chunk of the last pass. The reply of a prompt that is complete begins.
    fn commit_chunk(&mut self, executor: &dyn Executor) {
        debug_assert_eq!(self.plan.prompts.iter().map(|(_, rows)| rows).sum::<usize>(), self.plan.chunk);
        counts::count_prefilled(self.plan.chunk);
        for &(slot, rows) in &self.plan.prompts {
            let KvSlot { session, member, .. } = &mut self.slots[slot];
            session.commit(rows);
            if let Some(member) = member.as_mut().filter(|_| session.pending() == 0) {
                member.begin_reply(session.tokens().len(), session.room(executor.schedule()));
            }
            self.prompt_turn = slot + 1;
        }
    }

    #[cold]
    fn put_out(&mut self, executor: &mut dyn Executor, slot: usize, end: Result<Finish>) {
        let ended = self.end(executor, slot, end);
        self.ended.extend(ended);
    }

    fn end(&mut self, executor: &mut dyn Executor, slot: usize, end: Result<Finish>) -> Option<FinishedSequence> {
        self.plan.leave(slot);
        self.endings += 1;
        self.slots[slot].ended = self.endings;
        let ended = self.slots[slot].end(executor, slot, end);
        self.trim(executor);
        if self.is_empty() {
            counts::note_idle();
        }
        ended
    }
}

#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
