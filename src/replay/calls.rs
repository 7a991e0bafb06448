//! The [`Executor`] interface of replay: runs passes and returns their results.

use super::Replay;
use super::driver::{Driver, Memory};
use super::flight::Flight;
use super::passes::Piece;
use crate::Result;
use crate::executor::measure::{TuningGain, TuningState};
use crate::executor::offload::{Offload, OffloadReport, PlacementTiming};
use crate::executor::{
    self, Chunk, DeviceInfo, EngineSpan, Executor, HeadRows, KernelTiming, Measure, PageCopy, PageId, Pages, Row,
    RowResult, Submission, Watch,
};
use crate::replay::measure::ceiling::Ceiling;
use crate::schedule::{Pool, Schedule, Segment};
use std::ops::Range;
use std::time::Duration;

impl<D: Driver> Executor for Replay<D> {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device_info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: &self.name, hardware: &self.queue.driver.caps().name, is_cpu: false }
    }

    fn pages(&self) -> &Pages {
        &self.kv.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.kv.pages
    }

    fn copy_page(&mut self, pool: Pool, page: PageId, copy: PageCopy<'_>) -> Result<()> {
        executor::check_page(&self.schedule, pool, page, copy.len())?;
        match copy {
            PageCopy::Read(bytes) => self.read_from_page(pool, page, 0, bytes),
            PageCopy::Write(bytes) => self.write_to_page(pool, page, 0, bytes),
        }
    }

    fn submit(&mut self, work: Submission<'_>) -> Result<bool> {
        match work {
            Submission::Pass { rows, head, samples } => self.submit_pass(rows, head, samples),
            Submission::Head(head) => self.submit_other_head(head),
            Submission::Samples(fill) => self.submit_samples(fill),
            Submission::Next { samples } => self.submit_next(!samples),
            Submission::Draft { rows, count } => self.submit_draft(rows, count),
            Submission::Resume => self.resume(),
        }
    }

    fn wait(&mut self) -> Result<()> {
        self.wait_for_pass()
    }

    fn result(&self, row: usize) -> RowResult<'_> {
        let Flight { results, draft_rows, .. } = &self.flight;
        if let (Some(step), Some(row)) = (row.checked_div(*draft_rows), row.checked_rem(*draft_rows)) {
            let (next, is_finite) = results.drafted(step, row);
            return RowResult { next, is_finite, found: None, experts: &[] };
        }
        RowResult {
            next: results.next(row),
            is_finite: results.is_finite(row),
            found: self.flight.found(&self.schedule, row),
            experts: results.experts(row),
        }
    }

    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        let rows = self.flight.head_rows();
        executor::check_logits(row, rows)?;
        self.check_last()?;
        if let Some(fetch) = self.passes.fetch(rows).filter(|_| self.flight.fetched <= row) {
            // SAFETY: as in `Replay::submit`.
            unsafe { self.queue.run(fetch) }?;
            self.flight.fetched = rows;
        }
        Ok(self.flight.results.logits(&self.memory.arena, &self.schedule, row))
    }

    fn chunk(&self, chunk: Chunk) -> usize {
        let rows = self.pace.rows_at(chunk.depth, self.options.submit_budget.as_secs_f64());
        match chunk.beside {
            None => chunk.most.min(rows),
            Some(beside) => self.passes.chunk_rows(chunk.most.min(rows), beside),
        }
    }
}

impl<D: Driver> Replay<D> {
    /// Runs lists of a watched pass, and calls the watcher after each segment that they end.
    fn run_watched(&mut self, kind: usize, lists: Range<usize>, watch: Watch<'_>) -> Result<()> {
        for i in lists {
            let baked = &self.passes.kinds[kind];
            let (list, part) = (baked.segments.lists[i], baked.parts[i]);
            self.cancel.check().inspect_err(|_| self.flight.forget())?;
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
        // SAFETY: the segment was waited for, and the next one is submitted after the watcher returns.
        let arena = bytemuck::cast_slice(unsafe { self.memory.arena.bytes() }.unwrap_or_default());
        watch(segment, executor::watched_row(&self.schedule, arena, segment, self.flight.rows.len()));
        Ok(())
    }
}

impl<D: Driver> Measure for Replay<D> {
    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        let kind = self.begin(rows, head)?;
        for i in 0..self.passes.kinds[kind].pieces.len() {
            match self.passes.kinds[kind].pieces[i].clone() {
                // A watcher reads the arena, so no lists run beside an offload's step.
                Piece::Offload(piece) => {
                    self.hand_over(kind, &piece, 0..0).inspect_err(|_| self.flight.forget())?;
                    self.run_watched(kind, piece.beside, watch)?;
                }
                Piece::Device(lists) => self.run_watched(kind, lists, watch)?,
            }
        }
        if let Some(head) = head {
            self.cancel.check().inspect_err(|_| self.flight.forget())?;
            self.submit_head(head, true)?;
            self.show(Segment::Head, watch)?;
        }
        self.check_order()
    }

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

    fn offload(&self) -> Option<OffloadReport> {
        self.handover.offload()?.report()
    }

    fn placements(&self) -> &[PlacementTiming] {
        self.handover.offload().map_or(&[], Offload::timings)
    }

    fn improve(&mut self) -> Result<Option<Duration>> {
        self.improve_once()
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
