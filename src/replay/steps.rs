//! Runs single steps of a pass, to compare executors: each call bakes a list, while passes replay.

use super::Replay;
use super::baking::of_half;
use super::driver::{Driver, Memory, MemoryCopy};
use super::passes::{PassHalf, group};
use crate::Result;
use crate::executor::offload::OffloadStep;
use crate::executor::{self, HeadRows, PageId, Row, Stepwise, Tolerance};
use crate::lower::{PassKind, RowOrder, TokenSource};
use crate::schedule::kv::KvLayer;
use crate::schedule::{Pool, Segment};
use std::ops::Range;

impl<D: Driver> Replay<D> {
    /// The kinds that the begun pass's layers and its head are lowered for.
    fn kinds_of_pass(&self) -> Result<[PassKind; 2]> {
        let kind = self.passes.kinds[self.passes.kind_for(&self.flight.rows)?].kind;
        let head_rows = if self.flight.head_rows() > 1 { kind.rows.min(kind.head_rows) } else { 1 };
        Ok([kind, PassKind { rows: 1, head_rows, order: RowOrder::Consecutive, tokens: TokenSource::Host }])
    }

    /// Splits a range of the begun pass's steps at the head.
    fn parts(&self, steps: Range<usize>) -> [Range<usize>; 2] {
        let head = self.schedule.steps_of(Segment::Head).start;
        [steps.start..steps.end.min(head), steps.start.max(head)..steps.end]
    }

    /// The steps of the begun pass that the offload runs, in order.
    fn offloaded_steps(&self, of: Range<usize>) -> Result<Vec<usize>> {
        let [kind, _] = self.kinds_of_pass()?;
        let runs = self.handover.offload().is_some_and(|offload| offload.runs_in(group(kind)));
        Ok(of.filter(|step| runs && OffloadStep::accepts(&self.schedule.steps[*step])).collect())
    }

    /// Waits for submits in flight, then copies bytes of a page from `offset` on to `bytes`.
    pub(super) fn read_from_page(&mut self, pool: Pool, page: PageId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.settle()?;
        let staging = &self.flight.results.pages;
        let mut at = offset as u64;
        for piece in bytes.chunks_mut(staging.size() as usize) {
            let end = at + piece.len() as u64;
            let copy =
                |(from, from_offset, to_offset, bytes)| MemoryCopy { from, from_offset, to: staging, to_offset, bytes };
            self.queue.copy(self.kv.pieces(pool, page, at..end).map(copy))?;
            staging.copy_to(piece)?;
            at = end;
        }
        Ok(())
    }

    /// Waits for submits in flight, then copies `bytes` to a page from `offset` on.
    pub(super) fn write_to_page(&mut self, pool: Pool, page: PageId, offset: usize, bytes: &[u8]) -> Result<()> {
        self.settle()?;
        let mut at = offset as u64;
        for piece in bytes.chunks(self.flight.results.pages.size() as usize) {
            self.flight.results.pages.copy_from(piece)?;
            let staging = &self.flight.results.pages;
            let end = at + piece.len() as u64;
            let copy =
                |(to, to_offset, from_offset, bytes)| MemoryCopy { from: staging, from_offset, to, to_offset, bytes };
            self.queue.copy(self.kv.pieces(pool, page, at..end).map(copy))?;
            at = end;
        }
        Ok(())
    }
}

impl<D: Driver> Replay<D> {
    /// Runs a step of the begun pass for all or half of its rows. No submit may be in flight.
    pub(super) fn run_step_for(&mut self, step: usize, half: Option<PassHalf>) -> Result<()> {
        let Some(half) = half else { return self.run_on_device(step..step + 1) };
        let kind = self.passes.kinds[self.passes.kind_for(&self.flight.rows)?].kind;
        let (kind, addresses) = of_half(kind, half, &self.memory.addresses(), &self.layout);
        let lowered = self.lowering(&addresses, kind).lower(step..step + 1);
        let list = self.queue.bake(&[&lowered], None, None, None)?;
        self.run_once(list)
    }

    /// Runs steps of the begun pass on the device, also those that an offload would run.
    fn run_on_device(&mut self, steps: Range<usize>) -> Result<()> {
        self.cancel.check()?;
        let (kinds, addresses) = (self.kinds_of_pass()?, self.memory.addresses());
        let parts = self.parts(steps).into_iter().zip(kinds);
        let lowered = parts.map(|(steps, kind)| self.lowering(&addresses, kind).lower(steps));
        let lowered: Vec<_> = lowered.filter(|dispatches| !dispatches.is_empty()).collect();
        let relay = self.memory.relay(&self.target, &self.layout, &self.queue.driver);
        let list = self.queue.bake(&lowered.iter().map(Vec::as_slice).collect::<Vec<_>>(), relay, None, None)?;
        self.run_once(list)
    }

    /// Runs a list that was just baked, waits for it, and frees it.
    fn run_once(&mut self, list: D::Baked) -> Result<()> {
        // SAFETY: the memory that the list uses is this executor's.
        unsafe { self.queue.run(list) }?;
        self.queue.driver.free(&[list]);
        Ok(())
    }
}

impl<D: Driver> Stepwise for Replay<D> {
    fn begin_pass(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        self.begin(rows, head).map(drop)
    }

    fn run_steps(&mut self, steps: Range<usize>) -> Result<()> {
        let mut at = steps.start;
        for step in self.offloaded_steps(steps.clone())? {
            if at < step {
                self.run_on_device(at..step)?;
            }
            self.run_by_offload(step)?;
            at = step + 1;
        }
        if at < steps.end { self.run_on_device(at..steps.end) } else { Ok(()) }
    }

    fn ranges(&self) -> Result<Vec<Range<usize>>> {
        let ([kind, head_kind], addresses) = (self.kinds_of_pass()?, self.memory.addresses());
        let all = self.schedule.steps.len();
        let [layers, head] = self.parts(0..self.schedule.steps_of(Segment::Head).end);
        let lowering = self.lowering(&addresses, kind);
        let (mut ranges, mut at) = (Vec::new(), 0);
        for step in self.offloaded_steps(layers.clone())? {
            ranges.extend(lowering.alone(at..step, at..step));
            ranges.push(step..step + 1);
            at = step + 1;
        }
        ranges.extend(lowering.alone(at..all, at..layers.end));
        ranges.extend(self.lowering(&addresses, head_kind).alone(0..all, head));
        Ok(ranges)
    }

    fn access_arena(&mut self, access: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        self.queue.drain()?;
        self.queue.edit(&mut self.memory.arena, |words| access(bytemuck::cast_slice_mut(words)))
    }

    fn read_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &mut [u8]) -> Result<()> {
        let part = executor::page_part(&self.schedule, layer, page, bytes.len())?;
        self.read_from_page(layer.pool, page, part.start, bytes)
    }

    fn write_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()> {
        let part = executor::page_part(&self.schedule, layer, page, bytes.len())?;
        self.write_to_page(layer.pool, page, part.start, bytes)
    }

    fn tolerance(&self, step: usize) -> Tolerance {
        let s = &self.schedule.steps[step];
        let is_offloaded = self.offloaded_steps(step..step + 1).is_ok_and(|steps| !steps.is_empty());
        if let Some(offload) = self.handover.offload().filter(|_| is_offloaded) {
            return offload.tolerance(&s.op);
        }
        let Ok([kind, head]) = self.kinds_of_pass() else { return Tolerance::F32 };
        let kind = if s.segment == Segment::Head { head } else { kind };
        let addresses = self.memory.addresses();
        self.lowering(&addresses, kind).tolerance(step)
    }
}
