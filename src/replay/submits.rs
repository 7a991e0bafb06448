//! Submits passes to the device and waits for them: whole or in pieces, alone or with the next one.

use super::Replay;
use super::driver::{Driver, Memory};
use super::passes::{PassHalf, Piece, Tail};
use crate::executor::{self, HeadRows, Row, SampleRequests};
use crate::schedule::choice::{SampleRequest, SampleResult};
use crate::schedule::layout::StateLayout;
use crate::{Error, Result};
use std::time::{Duration, Instant};

impl<D: Driver> Replay<D> {
    /// Submits a pass: whole if it is known to keep to the budget, else in pieces that do. Each piece is waited for
    /// before the next is submitted, so that a pass can be cancelled between them. The device idles for some tens of
    /// microseconds between pieces; a piece takes up to the budget. A guest's step runs in such a pause. If a head row
    /// has a sample request, the list that answers it follows the head in the same submit.
    fn submit(&mut self, kind: usize, head: Option<HeadRows>) -> Result<()> {
        let k = &self.passes.kinds[kind];
        if k.is_whole(&self.flight.rows) {
            self.pace.submits += 1;
            let whole = &k.whole[Tail::of(head) as usize].lists;
            // SAFETY: baked lists live as long as the executor. Each pass is waited for before the next of
            // its kind.
            return unsafe { self.queue.submit(self.with_choice(whole, head).as_slice(), true) };
        }
        self.submit_pieces(kind)?;
        let Some(head) = head else { return Ok(()) };
        self.queue.drain()?;
        self.submit_head(head)
    }

    /// Submits a pass's embedding and layers in pieces.
    pub(super) fn submit_pieces(&mut self, kind: usize) -> Result<()> {
        let per_submit = self.passes.kinds[kind].per_submit(&self.flight.rows);
        for i in 0..self.passes.kinds[kind].pieces.len() {
            let k = &self.passes.kinds[kind];
            match k.pieces[i].clone() {
                Piece::Guest(piece) => {
                    self.run_guest(kind, &piece, piece.beside.clone())?;
                }
                Piece::Device(lists) => {
                    for lists in k.segments.lists[lists].chunks(per_submit) {
                        self.queue.drain()?;
                        self.cancel.check()?;
                        // SAFETY: as above.
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
        let mut write = |words: &mut [u32]| executor::write_asks(words, schedule, head, fill, asked);
        if self.memory.arena.is_handed_over() {
            self.queue.drain()?;
            return self.queue.edit(&mut self.memory.arena, |arena| write(&mut arena[words]));
        }
        // SAFETY: lists that read these words were waited for, or are submitted after this write.
        write(unsafe { self.memory.arena.words_mut(words) }?);
        Ok(())
    }

    /// Writes the head rows' sample requests, and submits the pass. Returns the time of the submit.
    pub(super) fn ask_and_submit(&mut self, kind: usize, head: HeadRows, asks: SampleRequests<'_>) -> Result<Instant> {
        self.write_asks(head, asks.fill)?;
        self.submit(kind, Some(head))?;
        let begun = Instant::now();
        (asks.meanwhile)();
        Ok(begun)
    }

    /// Submits a pass, unless it `is_under_way`; writes its head rows' sample requests while it runs, and submits the
    /// list that answers them. If the rows continue, submits the next pass at once. Returns the time when the pass was
    /// under way.
    pub(super) fn submit_and_ask(
        &mut self,
        kind: usize,
        head: HeadRows,
        asks: SampleRequests<'_>,
        is_under_way: bool,
    ) -> Result<Instant> {
        if !is_under_way {
            let whole = &self.passes.kinds[kind].whole[Tail::of(Some(head)) as usize].lists;
            // SAFETY: as in `submit`. The signal of the second submit covers this one.
            unsafe { self.queue.submit(whole, false) }?;
            self.pace.submits += 1;
        }
        let begun = Instant::now();
        (asks.meanwhile)();
        self.write_asks(head, asks.fill)?;
        let choice = self.flight.asked.contains(&true).then(|| self.passes.choice(head, self.flight.results.slot));
        // SAFETY: as in `submit`.
        unsafe { self.queue.submit(choice.as_slice(), true) }?;
        self.pace.submits += 1;
        if asks.may_run_ahead && head == all_rows(&self.flight.rows) {
            // The next pass gets its signal with its own choice.
            self.submit_ahead(kind, false)?;
        }
        Ok(begun)
    }

    /// Whether the last choice has found the next token of every row with a sample request.
    pub(super) fn has_all_next(&self) -> bool {
        let asked = self.flight.asked.iter().enumerate().filter(|(_, asked)| **asked);
        asked.map(|(row, _)| self.flight.results.found(&self.schedule, row)).all(SampleResult::has_likeliest)
    }

    /// Runs the last pass again with the same sample requests: the next pass has begun with a token that was not found,
    /// and has overwritten the logits.
    #[cold]
    pub(super) fn run_again(&mut self, kind: usize, head: HeadRows) -> Result<()> {
        let (rows, asked) = (self.flight.rows.clone(), self.flight.asked.clone());
        self.begin(&rows, Some(head))?;
        self.flight.asked = asked;
        self.submit(kind, Some(head)).inspect_err(|_| self.flight.forget())?;
        self.queue.wait()?;
        self.check_order()?;
        self.measure(kind, Some(head), false)
    }

    pub(super) fn submit_head(&mut self, head: HeadRows) -> Result<()> {
        self.pace.submits += 1;
        let alone = &self.passes.head(head).lists;
        // SAFETY: as in `submit`.
        unsafe { self.queue.submit(self.with_choice(alone, Some(head)).as_slice(), true) }
    }

    /// The list that ends with a head, and the choice after it if a row has a sample request.
    fn with_choice(&self, lists: &[D::Baked], head: Option<HeadRows>) -> Followed<D::Baked> {
        let is_asked = self.flight.asked.contains(&true);
        let choice = head.filter(|_| is_asked).map(|head| self.passes.choice(head, self.flight.results.slot));
        Followed { lists: [lists[0], choice.unwrap_or(lists[0])], count: 1 + usize::from(choice.is_some()) }
    }

    /// Runs a pass, or only waits for it if it was submitted ahead. With `on`, submits the next pass before the wait.
    pub(super) fn run(&mut self, rows: &[Row], head: Option<HeadRows>, on: bool) -> Result<()> {
        self.cancel.check()?;
        let foreseen = self.take_ahead(rows, head);
        let kind = match foreseen {
            Some(kind) => {
                if self.queue.is_open() {
                    // The rows of the pass before had sample requests, and this pass got no signal.
                    self.flight.asked.fill(false);
                    self.queue.close()?;
                }
                kind
            }
            None => {
                let kind = self.begin(rows, head)?;
                self.submit(kind, head).inspect_err(|_| self.flight.forget())?;
                kind
            }
        };
        if on {
            self.submit_ahead(kind, true)?;
        }
        match on || foreseen.is_some() {
            true => self.queue.wait()?,
            false => self.queue.wait_promptly(self.passes.kinds[kind].last)?,
        }
        self.check_order()?;
        self.measure(kind, head, foreseen.is_some())
    }

    /// Makes the pass that was submitted ahead the last one, if it has these rows and this head. Returns its kind.
    pub(super) fn take_ahead(&mut self, rows: &[Row], head: Option<HeadRows>) -> Option<usize> {
        let kind = self.flight.ahead.filter(|_| self.foresees(rows, head))?;
        self.flight.ahead = None;
        self.flight.rows.copy_from_slice(rows);
        self.flight.results.slot = 1 - self.flight.results.slot;
        Some(kind)
    }

    /// Whether the pass that was submitted ahead has these rows and this head.
    fn foresees(&self, rows: &[Row], head: Option<HeadRows>) -> bool {
        let follows = |(i, (was, is)): (usize, (&Row, &Row))| {
            (is.token, is.position, is.sequence) == (self.flight.results.next(i), was.position + 1, was.sequence)
        };
        head == Some(all_rows(rows))
            && rows.len() == self.flight.rows.len()
            && self.flight.rows.iter().zip(rows).enumerate().all(follows)
    }

    /// Submits the next pass with the last one's next tokens, and with `signal` a signal after it. It uses the other
    /// slot of results. Does nothing if no such pass is baked, if the pass takes several submits, if the context is
    /// full, or if a row begins a page that its sequence does not have: tables are written only while the device is
    /// idle.
    fn submit_ahead(&mut self, kind: usize, signal: bool) -> Result<()> {
        let k = &self.passes.kinds[kind];
        let has_page = |r: &Row| self.kv.pages.is_ready(r.sequence as usize, r.position as usize + 1);
        let room = self.flight.rows.iter().all(has_page);
        if let Some(following) = k.following.as_ref().filter(|_| k.is_whole(&self.flight.rows) && room) {
            // SAFETY: as in `submit`; this pass and the one before it use different slots of results.
            unsafe { self.queue.submit(&following[1 - self.flight.results.slot].lists, signal) }?;
            self.pace.submits += 1;
            self.flight.ahead = Some(kind);
        }
        Ok(())
    }

    /// Waits for everything in flight: an unwanted pass that was submitted ahead, or work left by an error. The last
    /// pass's results in the arena are then lost.
    pub(super) fn settle(&mut self) -> Result<()> {
        if self.queue.is_idle() {
            return Ok(());
        }
        self.queue.drain()?;
        self.flight.forget();
        if let Some(kind) = self.flight.ahead.take()
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
        if !self.seat.is_settled() {
            self.settle_guest()?;
        }
        let kind = self.passes.kind_for(rows)?;
        self.settle()?;
        if self.tuning.compiles {
            self.tuning.stop_compiling(&mut self.queue.driver);
        }
        self.flight.rows.clear();
        self.flight.rows.extend_from_slice(rows);
        self.new_head(head);
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

    /// Starts a new head: earlier logits are no longer valid.
    pub(super) fn new_head(&mut self, head: Option<HeadRows>) {
        self.flight.head_rows = head.map_or(0, |h| h.count);
        self.flight.asked.fill(false);
        self.flight.results.slot = 0;
        self.flight.fetched = if self.flight.results.are_apart() { 0 } else { self.flight.head_rows };
    }

    /// Fails if a relayed dispatch of the pass, or of a pass without a head before it, gave up waiting.
    pub(super) fn check_order(&mut self) -> Result<()> {
        // The flag stays set until a head copies it with the step state.
        if self.flight.head_rows == 0 || !self.target.relay || !self.flight.results.has_timed_out() {
            return Ok(());
        }
        self.settle()?;
        self.queue.edit(&mut self.memory.arena, |words| words[StateLayout::RELAY_TIMEOUT] = 0)?;
        Err(Error::device(
            "the GPU did not start dispatches in the order that they were given in",
            "report this, with the driver's name and version",
        ))
    }

    /// Fails if the next pass is under way, which overwrites the last one's arena.
    pub(super) fn check_last(&self) -> Result<()> {
        match self.flight.ahead {
            Some(_) => Err(Error::failed("the pass after the one that is asked about has begun", "report this")),
            None => Ok(()),
        }
    }
}

/// A list, and optionally one that follows it.
struct Followed<B> {
    lists: [B; 2],
    count: usize,
}

impl<B> Followed<B> {
    fn as_slice(&self) -> &[B] {
        &self.lists[..self.count]
    }
}

/// All rows as head rows.
pub(super) fn all_rows(rows: &[Row]) -> HeadRows {
    HeadRows { first: 0, count: rows.len() }
}
