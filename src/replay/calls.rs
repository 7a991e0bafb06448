//! The [`Executor`] interface of replay: runs passes and returns their results.

use super::Replay;
use super::driver::{Driver, Memory};
use super::passes::Piece;
use super::submits::all_rows;
use crate::Result;
use crate::executor::guest::{GuestReport, PlacementTiming};
use crate::executor::measure::{TuningGain, TuningState};
use crate::executor::{
    self, EngineSpan, Executor, HeadRows, KernelTiming, Measure, PageId, Pages, Row, SampleRequests, Watch,
};
use crate::replay::measure::ceiling::Ceiling;
use crate::schedule::choice::SampleResult;
use crate::schedule::{Pool, Schedule, Segment};
use std::ops::Range;
use std::time::Duration;

impl<D: Driver> Executor for Replay<D> {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device(&self) -> &str {
        &self.name
    }

    fn hardware(&self) -> &str {
        &self.queue.driver.caps().name
    }

    fn forward(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        self.run(rows, head, false)
    }

    fn forward_ahead(&mut self, rows: &[Row], head: HeadRows) -> Result<()> {
        self.run(rows, Some(head), head == all_rows(rows))
    }

    fn is_ahead(&self) -> bool {
        self.flight.ahead.is_some()
    }

    fn forward_choosing(&mut self, rows: &[Row], head: HeadRows, asks: SampleRequests<'_>) -> Result<()> {
        self.cancel.check()?;
        let foreseen = self.take_ahead(rows, Some(head));
        let kind = foreseen.map_or_else(|| self.begin(rows, Some(head)), Ok)?;
        let is_under_way = foreseen.is_some();
        let can_be_late = !self.memory.arena.is_handed_over() && self.passes.kinds[kind].is_whole(&self.flight.rows);
        let submitted = match is_under_way || can_be_late && (asks.is_slow || asks.may_run_ahead) {
            true => self.submit_and_ask(kind, head, asks, is_under_way),
            false => self.ask_and_submit(kind, head, asks),
        };
        let since = submitted.inspect_err(|_| self.flight.forget())?;
        while self.queue.under_way() > 1 {
            // A pass in flight before this one had a signal of its own.
            self.queue.wait()?;
        }
        // The start of a pass that ran ahead is not known.
        match self.flight.ahead.is_some() || is_under_way {
            true => self.queue.wait()?,
            false => self.queue.wait_promptly(self.passes.kinds[kind].last.saturating_sub(since.elapsed()))?,
        }
        self.check_order()?;
        self.measure(kind, Some(head), is_under_way)?;
        match self.flight.ahead.is_some() && !self.has_all_next() {
            true => self.run_again(kind, head),
            false => Ok(()),
        }
    }

    fn read_page(&mut self, pool: Pool, page: PageId, bytes: &mut [u8]) -> Result<()> {
        executor::check_page(&self.schedule, pool, page, bytes.len())?;
        self.read_from_page(pool, page, 0, bytes)
    }

    fn write_page(&mut self, pool: Pool, page: PageId, bytes: &[u8]) -> Result<()> {
        executor::check_page(&self.schedule, pool, page, bytes.len())?;
        self.write_to_page(pool, page, 0, bytes)
    }

    fn found(&self, row: usize) -> Option<SampleResult<'_>> {
        self.flight.found(&self.schedule, row)
    }

    fn project(&mut self, head: HeadRows) -> Result<()> {
        executor::check_head(&self.schedule, self.flight.rows.len(), head)?;
        self.check_last()?;
        self.cancel.check()?;
        self.new_head(Some(head));
        self.queue.edit(&mut self.memory.arena, |words| executor::write_head(words, head))?;
        self.submit_head(head)?;
        self.queue.wait()?;
        self.check_order()?;
        self.measure_head(head)
    }

    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        let kind = self.begin(rows, head)?;
        for i in 0..self.passes.kinds[kind].pieces.len() {
            match self.passes.kinds[kind].pieces[i].clone() {
                // A watcher reads the arena, so no lists run beside a guest's step.
                Piece::Guest(piece) => {
                    self.run_guest(kind, &piece, 0..0).inspect_err(|_| self.flight.forget())?;
                    self.run_watched(kind, piece.beside, watch)?;
                }
                Piece::Device(lists) => self.run_watched(kind, lists, watch)?,
            }
        }
        if let Some(head) = head {
            self.cancel.check().inspect_err(|_| self.flight.forget())?;
            self.memory.arena.to_device()?;
            self.submit_head(head)?;
            self.show(Segment::Head, watch)?;
        }
        self.check_order()
    }

    fn next(&self, row: usize) -> u32 {
        self.flight.results.next(row)
    }

    fn is_finite(&self, row: usize) -> bool {
        self.flight.results.is_finite(row)
    }

    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        executor::check_logits(row, self.flight.head_rows)?;
        self.check_last()?;
        match self.passes.fetch(self.flight.head_rows).filter(|_| self.flight.fetched <= row) {
            Some(fetch) => {
                self.memory.arena.to_device()?;
                // SAFETY: as in `Replay::submit`.
                unsafe { self.queue.run(fetch) }?;
                self.flight.fetched = self.flight.head_rows;
            }
            None => self.memory.arena.to_host()?,
        }
        Ok(self.flight.results.logits(&self.memory.arena, &self.schedule, row))
    }

    fn prefill_rows(&self) -> usize {
        self.pace.prefill_rows
    }

    fn rows_at(&self, depth: usize) -> usize {
        self.pace.rows_at(depth, self.options.submit_budget.as_secs_f64())
    }

    fn chunk_rows(&self, most: usize, beside: usize) -> usize {
        self.passes.chunk_rows(most, beside)
    }

    fn improve(&mut self) -> Result<Option<Duration>> {
        self.improve_once()
    }

    fn guest(&self) -> Option<GuestReport> {
        self.seat.report()
    }

    fn placements(&self) -> &[PlacementTiming] {
        self.seat.timings()
    }

    fn pages(&self) -> &Pages {
        &self.kv.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.kv.pages
    }
}

impl<D: Driver> Replay<D> {
    /// Runs lists of a watched pass, and calls the watcher after each segment that they end.
    fn run_watched(&mut self, kind: usize, lists: Range<usize>, watch: Watch<'_>) -> Result<()> {
        for i in lists {
            let baked = &self.passes.kinds[kind];
            let (list, part) = (baked.segments.lists[i], baked.parts[i]);
            self.cancel.check().inspect_err(|_| self.flight.forget())?;
            self.memory.arena.to_device()?;
            // SAFETY: as in `Replay::submit`.
            unsafe { self.queue.submit(&[list], true) }?;
            match part.ends {
                true => self.show(part.segment, watch)?,
                false => self.queue.wait()?,
            }
        }
        Ok(())
    }

    /// Waits for the last submit, and calls the watcher with a segment's output.
    fn show(&mut self, segment: Segment, watch: Watch<'_>) -> Result<()> {
        self.queue.wait()?;
        self.memory.arena.to_host()?;
        // SAFETY: the segment was waited for, and the next one is submitted after the watcher returns.
        let arena = bytemuck::cast_slice(unsafe { self.memory.arena.bytes() }.unwrap_or_default());
        watch(segment, executor::watched_row(&self.schedule, arena, segment, self.flight.rows.len()));
        Ok(())
    }
}

impl<D: Driver> Measure for Replay<D> {
    fn submits(&self) -> u64 {
        self.pace.submits
    }

    fn busy(&self) -> Duration {
        Duration::from_secs_f64(self.pace.busy)
    }

    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<KernelTiming>> {
        let kind = self.begin(rows, Some(head))?;
        self.profiler(kind, head).time_steps(repetitions)
    }

    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64> {
        let kind = self.begin(rows, Some(head))?;
        self.profiler(kind, head).time_segment(segment, replays)
    }

    fn timeline(&mut self, rows: &[Row], head: HeadRows) -> Result<Vec<EngineSpan>> {
        self.time_engines(rows, head)
    }

    fn tuning(&self) -> TuningState {
        self.tuning.state(&self.target)
    }

    fn measure_gains(&mut self) -> Result<Vec<TuningGain>> {
        Replay::measure_gains(self)
    }

    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64> {
        self.settle()?;
        let i = executor::segment_buffer(&self.schedule, segment);
        Ceiling::bake(&mut self.queue, &self.memory.weights[i..=i], self.memory.arena.address())?.measure(&self.queue)
    }

    fn measure_read_ceiling(&mut self) -> Result<f64> {
        if let Some(rate) = self.ceiling.known() {
            return Ok(rate);
        }
        self.settle()?;
        self.ceiling.measure(&self.queue)
    }
}
