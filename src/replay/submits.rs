//! Submits passes to the device and waits for them: whole or in pieces, alone or with the next one.

use super::Replay;
use super::driver::{Driver, Memory};
use super::flight::{Flight, NextPass, Submitted, SubmittedWork, all_rows};
use super::passes::{PassHalf, Piece, Tail};
use crate::executor::{self, DraftRow, HeadRows, Row, SampleTiming};
use crate::schedule::choice::SampleRequest;
use crate::schedule::layout::StateLayout;
use crate::{Error, Result};
use std::time::{Duration, Instant};

impl<D: Driver> Replay<D> {
    /// Submits a pass, unless it is the next one and has been submitted.
    pub(super) fn submit_pass(&mut self, rows: &[Row], head: Option<HeadRows>, samples: SampleTiming) -> Result<bool> {
        self.check_cancel()?;
        if self.flight.is_next(rows, head) {
            return self.resume();
        }
        let kind = self.begin(rows, head)?;
        let is_held = samples == SampleTiming::AtOnce && self.passes.kinds[kind].is_whole(&self.flight.rows);
        if !is_held {
            let signal = samples == SampleTiming::Never;
            self.submit(kind, head, signal, None).inspect_err(|_| self.flight.forget())?;
        }
        self.flight.note_submit(SubmittedWork::Pass(kind), head, false, is_held);
        Ok(true)
    }

    /// Makes the next pass, which has been submitted, the one that is waited for.
    pub(super) fn resume(&mut self) -> Result<bool> {
        self.check_cancel()?;
        let Some(NextPass { kind, .. }) = self.flight.next.take() else { return Ok(false) };
        let Flight { rows, results, asked, .. } = &mut self.flight;
        for (i, row) in rows.iter_mut().enumerate() {
            (row.token, row.position) = (results.next(i), row.position + 1);
        }
        asked.fill(false);
        results.slot = 1 - results.slot;
        let head = Some(all_rows(rows));
        self.flight.states = head;
        self.flight.note_submit(SubmittedWork::Pass(kind), head, true, false);
        Ok(true)
    }

    /// Fails if the pass is cancelled. The next pass, if it is in flight, is waited for and lost: its sequences end.
    fn check_cancel(&mut self) -> Result<()> {
        let Err(e) = self.cancel.check() else { return Ok(()) };
        self.settle()?;
        Err(e)
    }

    /// Submits the head over other rows of the last pass.
    pub(super) fn submit_other_head(&mut self, head: HeadRows) -> Result<bool> {
        executor::check_head(&self.schedule, self.flight.rows.len(), head)?;
        self.check_last()?;
        self.cancel.check()?;
        self.new_head(Some(head), 0);
        self.queue.edit(&mut self.memory.arena, |words| executor::write_head(words, head))?;
        self.submit_head(head, true)?;
        self.flight.note_submit(SubmittedWork::Head, Some(head), false, false);
        Ok(true)
    }

    /// Submits a draft: all of its steps at once.
    pub(super) fn submit_draft(&mut self, rows: &[DraftRow], count: usize) -> Result<bool> {
        let Some(states) = self.flight.states.filter(|_| self.flight.next.is_none()) else { return Ok(false) };
        if !executor::check_draft(&self.schedule, &self.kv.pages, rows, count, Some(states))? {
            return Ok(false);
        }
        self.cancel.check()?;
        let list = self.passes.draft(rows.len()).and_then(|draft| draft.lists.get(count - 1).copied());
        let Some(list) = list else { return Ok(false) };
        self.new_head(Some(states), rows.len());
        let (schedule, kv) = (&self.schedule, &mut self.kv);
        self.queue.edit(&mut self.memory.arena, |words| {
            executor::write_draft(words, schedule.arena.state, rows, states);
            kv.write_tables(words, schedule);
        })?;
        self.pace.submits += 1;
        // SAFETY: as in `submit`.
        unsafe { self.queue.submit(&[list], true) }.inspect_err(|_| self.flight.forget())?;
        let head = HeadRows { first: 0, count: rows.len() };
        self.flight.note_submit(SubmittedWork::Draft(count as u32), Some(head), false, false);
        Ok(true)
    }

    /// Writes the sample requests of the submitted pass while it runs, and submits the list that answers them.
    pub(super) fn submit_samples(&mut self, fill: &mut dyn FnMut(usize, &mut SampleRequest<'_>)) -> Result<bool> {
        let Some(&Submitted { head: Some(head), .. }) = self.flight.submitted.as_ref() else { return Ok(false) };
        self.write_asks(head, fill).inspect_err(|_| self.flight.forget())?;
        if !self.flight.asked.contains(&true) {
            return Ok(true);
        }
        let choice = self.passes.choice(head, self.flight.results.slot);
        if !self.release(Some(choice))? {
            self.pace.submits += 1;
            // SAFETY: as in `submit`. The signal covers the pass, too.
            unsafe { self.queue.submit(&[choice], true) }.inspect_err(|_| self.flight.forget())?;
        }
        if let Some(submitted) = &mut self.flight.submitted {
            submitted.since = Instant::now();
        }
        Ok(true)
    }

    /// Submits the pass that is held for its sample requests, with the list `choice` that answers them if there are
    /// any. Returns whether one was held.
    fn release(&mut self, choice: Option<D::Baked>) -> Result<bool> {
        let Some(Submitted { work: SubmittedWork::Pass(kind), head, is_held, .. }) = &mut self.flight.submitted else {
            return Ok(false);
        };
        let (kind, head) = (*kind, *head);
        if !std::mem::take(is_held) {
            return Ok(false);
        }
        self.submit(kind, head, true, choice).inspect_err(|_| self.flight.forget()).map(|()| true)
    }

    /// Waits for the submitted pass or head, and learns from its times.
    pub(super) fn wait_for_pass(&mut self) -> Result<()> {
        self.release(None)?;
        let Some(Submitted { work, head, is_next, since, .. }) = self.flight.submitted.take() else { return Ok(()) };
        if self.flight.next.is_none() && self.queue.is_open() {
            self.queue.close()?;
        }
        let later = usize::from(self.flight.next.as_ref().is_some_and(|next| next.has_signal));
        while self.queue.under_way() > later + 1 {
            self.queue.wait()?;
        }
        match work {
            _ if self.queue.under_way() == later => {}
            // The start of a pass that was submitted early is not known.
            SubmittedWork::Pass(kind) if self.flight.next.is_none() && !is_next => {
                let expected = self.passes.kinds[kind].last;
                self.queue.wait_promptly(expected.saturating_sub(since.elapsed()))?;
            }
            SubmittedWork::Draft(count) => {
                if let Some(draft) = self.passes.draft(self.flight.draft_rows) {
                    self.queue.wait_promptly((draft.step * count).saturating_sub(since.elapsed()))?;
                    draft.step = since.elapsed() / count;
                }
            }
            _ => self.queue.wait()?,
        }
        self.check_order()?;
        match (work, head) {
            (SubmittedWork::Pass(kind), _) => self.measure(kind, head, is_next),
            (SubmittedWork::Head, Some(head)) => self.measure_head(head),
            (SubmittedWork::Draft(_), _) | (SubmittedWork::Head, None) => Ok(()),
        }
    }

    /// Submits a pass: whole if it is known to keep to the budget, else in pieces that do. Each piece is waited for
    /// before the next is submitted, so that a pass can be cancelled between them. The device idles for some tens of
    /// microseconds between pieces; a piece takes up to the budget. An offload's step runs in such a pause. `signal`:
    /// its end gets a signal, as no sample requests follow. `choice`: a list behind a whole pass.
    fn submit(&mut self, kind: usize, head: Option<HeadRows>, signal: bool, choice: Option<D::Baked>) -> Result<()> {
        let k = &self.passes.kinds[kind];
        if k.is_whole(&self.flight.rows) {
            self.pace.submits += 1;
            let whole = k.whole[Tail::of(head) as usize].lists[0];
            let lists = [whole, choice.unwrap_or(whole)];
            // SAFETY: baked lists live as long as the executor. Each pass is waited for before the next of
            // its kind.
            return unsafe { self.queue.submit(&lists[..1 + usize::from(choice.is_some())], signal) };
        }
        self.submit_pieces(kind)?;
        let Some(head) = head else { return Ok(()) };
        self.queue.drain()?;
        self.submit_head(head, signal)
    }

    /// Submits a pass's embedding and layers in pieces.
    pub(super) fn submit_pieces(&mut self, kind: usize) -> Result<()> {
        let per_submit = self.passes.kinds[kind].per_submit(&self.flight.rows);
        for i in 0..self.passes.kinds[kind].pieces.len() {
            let k = &self.passes.kinds[kind];
            match k.pieces[i].clone() {
                Piece::Offload(piece) => {
                    self.hand_over(kind, &piece, piece.beside.clone())?;
                }
                Piece::Device(lists) => {
                    for lists in k.segments.lists[lists].chunks(per_submit) {
                        self.queue.drain()?;
                        self.cancel.check()?;
                        // SAFETY: as in `submit`; the wait above this line is for the piece before.
                        unsafe { self.queue.submit(lists, true) }?;
                        self.pace.submits += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the head rows' sample requests. A pass may be in flight: it does not use these words.
    fn write_asks(&mut self, head: HeadRows, fill: &mut dyn FnMut(usize, &mut SampleRequest<'_>)) -> Result<()> {
        let (words, schedule, asked) = (executor::asks_in(&self.schedule), &self.schedule, &mut self.flight.asked);
        // SAFETY: lists that read these words were waited for, or are submitted after this write.
        let words = unsafe { self.memory.arena.words_mut(words) }?;
        executor::write_asks(words, schedule, head, fill, asked);
        Ok(())
    }

    pub(super) fn submit_head(&mut self, head: HeadRows, signal: bool) -> Result<()> {
        self.pace.submits += 1;
        let alone = &self.passes.head(head).lists;
        // SAFETY: as in `submit`.
        unsafe { self.queue.submit(alone, signal) }
    }

    /// Submits the pass after the submitted one, with that one's next tokens, and with `signal` a signal after it. It
    /// uses the other slot of results. Returns `false` if no such pass is baked, if the pass takes several submits, if
    /// the context is full, or if a row begins a page that its sequence does not have: tables are written only while
    /// the device is idle.
    pub(super) fn submit_next(&mut self, signal: bool) -> Result<bool> {
        self.release(None)?;
        let Some(Submitted { work: SubmittedWork::Pass(kind), head, .. }) = self.flight.submitted else {
            return Ok(false);
        };
        let k = &self.passes.kinds[kind];
        let has_page = |r: &Row| self.kv.pages.is_ready(r.sequence as usize, r.position as usize + 1);
        let may_follow = head == Some(all_rows(&self.flight.rows))
            && k.is_whole(&self.flight.rows)
            && self.flight.rows.iter().all(has_page);
        let Some(following) = k.following.as_ref().filter(|_| may_follow) else { return Ok(false) };
        if self.queue.is_open() {
            // The submitted pass got no sample requests, and so no signal.
            self.queue.close()?;
        }
        // SAFETY: as in `submit`; this pass and the one before it use different slots of results.
        unsafe { self.queue.submit(&following[1 - self.flight.results.slot].lists, signal) }?;
        self.pace.submits += 1;
        self.flight.next = Some(NextPass { kind, has_signal: signal });
        Ok(true)
    }

    /// Waits for everything in flight: an unwanted next pass, or work left by an error. The last pass's results in the
    /// arena are then lost.
    pub(super) fn settle(&mut self) -> Result<()> {
        if self.queue.is_idle() {
            return Ok(());
        }
        self.queue.drain()?;
        self.flight.forget();
        if let Some(NextPass { kind, .. }) = self.flight.next.take()
            && let Some(following) = &mut self.passes.kinds[kind].following
        {
            self.pace.busy += following[1 - self.flight.results.slot].seconds()?.map_or(0.0, |(_, sum)| sum);
        }
        Ok(())
    }

    /// Reads a pass's times, and derives from the slowest segment the number that fits one submit.
    pub(super) fn measure(&mut self, kind: usize, head: Option<HeadRows>, followed: bool) -> Result<()> {
        let budget = self.options.submit_budget.as_secs_f64();
        let slot = self.flight.results.slot;
        let pass = self.flight.load();
        let k = &mut self.passes.kinds[kind];
        // A pass submitted ahead was whole, even if the pace has changed since.
        let (segments, whole) = (k.segments.lists.len(), followed || k.is_whole(&self.flight.rows));
        let stamped = match &mut k.following {
            Some(following) if followed => &mut following[slot],
            _ if whole => &mut k.whole[Tail::of(head) as usize],
            _ => &mut k.segments,
        };
        let Some((slowest, sum)) = stamped.seconds()? else { return Ok(()) };
        self.pace.busy += sum;
        k.last = if whole { Duration::from_secs_f64(sum) } else { Duration::ZERO };
        if !whole && let Some(head) = head {
            self.measure_head(head)?;
        }
        let slowest = if whole { sum / segments as f64 } else { slowest }.max(1e-9);
        let fits = if whole && sum <= budget { segments } else { (budget / slowest) as usize };
        let k = &mut self.passes.kinds[kind];
        k.pace.learn(pass, fits.clamp(1, k.most_per_submit()));
        self.pace.learn(pass, whole, slowest, budget);
        Ok(())
    }

    /// Adds the time of a separately submitted head to the busy time.
    pub(super) fn measure_head(&mut self, head: HeadRows) -> Result<()> {
        self.pace.busy += self.passes.head_mut(head).seconds()?.map_or(0.0, |(_, sum)| sum);
        Ok(())
    }

    pub(super) fn begin(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<usize> {
        executor::admit_pass(&self.schedule, &mut self.kv.pages, rows, head)?;
        if self.handover.renew() {
            self.rebake_all()?;
        }
        let kind = self.passes.kind_for(rows)?;
        self.settle()?;
        if self.tuning.compiles {
            self.tuning.stop_compiling(&mut self.queue.driver);
        }
        self.flight.rows.clear();
        self.flight.rows.extend_from_slice(rows);
        self.new_head(head, 0);
        let (schedule, kv) = (&self.schedule, &mut self.kv);
        let (baked, halves) = (&self.passes.kinds[kind], self.layout.halves);
        let write = |words: &mut [u32]| {
            executor::write_pass(words, schedule.arena.state, rows, head);
            kv.write_tables(words, schedule);
            if baked.half.is_some() {
                for (half, place) in PassHalf::BOTH.into_iter().zip(halves) {
                    let of_half = &rows[baked.rows_of(Some(half), rows.len())];
                    executor::write_pass(&mut words[place as usize / 4..], schedule.arena.state, of_half, None);
                }
            }
        };
        self.queue.edit(&mut self.memory.arena, write)?;
        Ok(kind)
    }

    /// Starts a new head: earlier logits are no longer valid. `states`, `draft_rows`: as in [`Flight`].
    pub(super) fn new_head(&mut self, states: Option<HeadRows>, draft_rows: usize) {
        (self.flight.states, self.flight.draft_rows) = (states, draft_rows);
        self.flight.asked.fill(false);
        self.flight.results.slot = 0;
        self.flight.fetched = if self.flight.results.are_apart() { 0 } else { self.flight.head_rows() };
    }

    /// Fails if a relayed dispatch of the pass, or of a pass without a head before it, gave up waiting.
    pub(super) fn check_order(&mut self) -> Result<()> {
        // The flag stays set until a head copies it with the step state.
        if self.flight.head_rows() == 0 || !self.target.relay || !self.flight.results.has_timed_out() {
            return Ok(());
        }
        self.settle()?;
        self.queue.edit(&mut self.memory.arena, |words| words[StateLayout::RELAY_TIMEOUT] = 0)?;
        Err(Error::device(
            "the GPU did not start dispatches in the order that they were given in",
            "report this, with the driver's name and version",
        ))
    }

    /// Fails if the device already runs the next pass, which overwrites the results of the last one.
    pub(super) fn check_last(&self) -> Result<()> {
        match self.flight.next {
            Some(_) => Err(Error::failed("the pass after the one that is asked about has begun", "report this")),
            None => Ok(()),
        }
    }
}
