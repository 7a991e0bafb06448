//! Pieces of a pass that another executor computes: the pass stops there, hands over arena and KV cache, and goes on.

use super::Replay;
#[cfg(feature = "npu")]
use super::driver::KernelCompiler;
use super::driver::{Driver, Memory};
use super::passes::{OffloadPiece, PassHalf};
use super::timeline::OffloadSpan;
use crate::Result;
use crate::executor::offload::{KvBlocks, Offload, OffloadStep, StepOutcome};
use crate::executor::{PageId, Pages, Row};
use crate::schedule::kv::{KvLayer, PAGE, Pool};
use crate::schedule::step::Op;
use std::ops::Range;
use std::time::Instant;

/// The executor of some steps of the passes.
#[derive(Default)]
pub(super) struct Handover {
    offload: Option<Box<dyn Offload>>,
    /// True if the offload reads keys and values where the device has them, without copies.
    shares_kv: bool,
    /// The spans of the offload's steps, while a timeline is measured.
    pub spans: Option<Vec<OffloadSpan>>,
}

impl Handover {
    /// Lets `offload` compute attention; `None` for the device alone.
    pub fn to(offload: Option<Box<dyn Offload>>) -> Handover {
        Handover { offload, ..Handover::default() }
    }

    /// The offload, if there is one.
    pub fn offload(&self) -> Option<&dyn Offload> {
        self.offload.as_deref()
    }

    /// Gives the offload a chance to be lost or loaded again. Returns true if passes must be baked again for it.
    #[inline]
    pub fn renew(&mut self) -> bool {
        self.offload.as_mut().is_some_and(|offload| offload.renew())
    }
}

impl<D: Driver> Replay<D> {
    /// Gives the offload the KV cache's blocks. If it cannot read them in place, it gets copies for every step.
    pub(super) fn share_kv(&mut self) {
        let Some(offload) = &mut self.handover.offload else { return };
        let [global, local] = [0, 1].map(|pool| self.kv.blocks[pool].iter().map(Memory::dma_buf).collect());
        let (Some(global), Some(local)) = (global, local) else {
            log::info!(
                "{} takes a copy of the KV cache: its blocks are no dma-bufs here; update this device's driver",
                offload.name()
            );
            return;
        };
        let layouts = Pool::ALL.map(|pool| *self.schedule.kv.pool(pool));
        let cache = KvBlocks { element: self.schedule.extent.kv, layouts, blocks: [global, local] };
        self.handover.shares_kv = offload.share_kv(&cache).unwrap_or_else(|e| {
            log::info!("{} takes a copy of the KV cache: {e}", offload.name());
            false
        });
    }

    /// Sets the executor's name: the device's, and what the offload computes.
    pub(super) fn set_name(&mut self) {
        let device = &self.queue.driver.caps().name;
        self.name = match self.handover.offload().and_then(Offload::part) {
            Some(part) => format!("{device}, {part}"),
            None => device.clone(),
        };
    }

    /// Bakes the lists of every kind of pass again, since the offload has changed.
    #[cold]
    pub(super) fn rebake_all(&mut self) -> Result<()> {
        self.settle()?;
        self.flight.forget();
        let rows: Vec<usize> = self.passes.kinds.iter().map(|baked| baked.kind.rows).collect();
        let (addresses, target) = (self.memory.addresses(), self.target.clone());
        let mut passes = std::mem::take(&mut self.passes);
        let rebaked = self.baking(&addresses).rebake(&mut passes, &rows, &target);
        // The number of submits changes with the offload, so measured paces no longer hold.
        passes.kinds.iter_mut().for_each(|baked| (baked.pace, baked.last) = Default::default());
        self.passes = passes;
        self.share_kv();
        self.set_name();
        rebaked
    }

    /// Waits for all submits, then lets the offload run a step of the pass and submits the lists `beside`: before the
    /// step if [`Replay::can_run_beside`], else after it.
    pub(super) fn hand_over(&mut self, kind: usize, piece: &OffloadPiece, beside: Range<usize>) -> Result<()> {
        self.queue.drain()?;
        self.cancel.check()?;
        let rows = self.passes.kinds[kind].rows_of(piece.half, self.flight.rows.len());
        let step = self.offload_step(piece.step, piece.half, &rows);
        let is_before = self.can_run_beside(&step);
        if is_before {
            self.submit_beside(kind, beside.clone())?;
        }
        match self.handover.offload.take() {
            Some(mut offload) => {
                let computed = self.compute_on(offload.as_mut(), &step, piece, rows);
                self.handover.offload = Some(offload);
                computed?;
            }
            None => self.run_step_for(piece.step, piece.half)?,
        }
        if is_before { Ok(()) } else { self.submit_beside(kind, beside) }
    }

    /// Submits lists of a pass. The next drain waits for them.
    pub(super) fn submit_beside(&mut self, kind: usize, lists: Range<usize>) -> Result<()> {
        let baked = &self.passes.kinds[kind];
        let last = lists.end;
        let per_submit = baked.per_submit(&self.flight.rows);
        for first in lists.step_by(per_submit) {
            let end = last.min(first + per_submit);
            // SAFETY: as in `Replay::submit`.
            unsafe { self.queue.submit(&baked.segments.lists[first..end], end == last) }?;
            self.pace.submits += 1;
        }
        Ok(())
    }

    /// Whether lists may run beside a step: the offload accesses its inputs without the device's help, and the device
    /// does not compute the step as well.
    fn can_run_beside(&self, step: &OffloadStep) -> bool {
        let reaches_kv = self.handover.shares_kv || self.kv.blocks.iter().flatten().all(Memory::is_mapped);
        let is_alone = self.handover.offload().is_some_and(|offload| !offload.needs_owner(step));
        reaches_kv && is_alone
    }

    /// A step for `rows` of the pass, which the offload numbers from 0.
    fn offload_step(&self, index: usize, half: Option<PassHalf>, rows: &Range<usize>) -> OffloadStep {
        let mut op = self.schedule.steps[index].op.clone();
        if let Op::Attend { q, out, .. } = &mut op {
            (*q, *out) = (q.from_row(rows.start), out.from_row(rows.start));
        }
        OffloadStep { index, op, several: self.flight.rows.len() > 1, is_last: half != Some(PassHalf::First) }
    }

    /// Lets the offload compute a step of the pass, and computes it too if the offload asks for that.
    fn compute_on(
        &mut self,
        offload: &mut dyn Offload,
        step: &OffloadStep,
        piece: &OffloadPiece,
        rows: Range<usize>,
    ) -> Result<()> {
        let start = Instant::now();
        let outcome = self.run_step_on(offload, step, rows)?;
        if let (Some(spans), StepOutcome::Done | StepOutcome::Compare) = (&mut self.handover.spans, outcome) {
            spans.push(OffloadSpan { piece: piece.clone(), start, end: Instant::now() });
        }
        if outcome == StepOutcome::Done {
            return Ok(());
        }
        self.queue.drain()?;
        self.run_step_for(piece.step, piece.half)?;
        match outcome {
            StepOutcome::Compare => {
                let compare = |words: &mut [u32]| offload.compare(step, bytemuck::cast_slice_mut(words));
                self.queue.edit(&mut self.memory.arena, compare)
            }
            StepOutcome::Done | StepOutcome::Failed => Ok(()),
        }
    }

    /// Lets the offload run one step of the begun pass, without checks. No submit may be in flight.
    ///
    /// # Errors
    /// The offload's and the device's.
    pub(super) fn run_by_offload(&mut self, step: usize) -> Result<()> {
        let Some(mut offload) = self.handover.offload.take() else { return self.run_step_for(step, None) };
        let rows = 0..self.flight.rows.len();
        let place = self.offload_step(step, None, &rows);
        let ran = match offload.raw() {
            Some(raw) => self.run_step_on(raw, &place, rows).map(drop),
            None => self.run_step_for(step, None),
        };
        self.handover.offload = Some(offload);
        ran
    }

    /// Lets the offload run a step for `rows` of the pass.
    fn run_step_on(
        &mut self,
        offload: &mut dyn Offload,
        step: &OffloadStep,
        rows: Range<usize>,
    ) -> Result<StepOutcome> {
        offload.begin(&self.flight.rows[rows.clone()]);
        if let Op::Attend { kv, .. } = &step.op {
            self.show_kv(offload, kv, rows)?;
        }
        if self.queue.is_idle() {
            let mut ran = Ok(StepOutcome::Failed);
            let run = |words: &mut [u32]| ran = offload.run(step, bytemuck::cast_slice_mut(words));
            self.queue.edit(&mut self.memory.arena, run)?;
            return ran;
        }
        let words = self.memory.arena.size() as usize / 4;
        // SAFETY: submits in flight use the other half's rows only, and the offload uses these.
        let arena = unsafe { self.memory.arena.words_mut(0..words) }?;
        offload.run(step, bytemuck::cast_slice_mut(arena))
    }

    /// Gives the offload the table entries of the pages that rows of the pass see. If it does not share the cache,
    /// copies the pages' part of a layer to its memory, all of it for every pass, since other passes and restored pages
    /// may have changed any of it. Pages that the host does not map go through staging.
    fn show_kv(&mut self, offload: &mut dyn Offload, layer: &KvLayer, rows: Range<usize>) -> Result<()> {
        let part = layer.elements() * layer.element.bytes();
        let offset = layer.place * part;
        let layout = *self.schedule.kv.pool(layer.pool);
        let pages = show_pages(&self.kv.pages, layer.pool, &self.flight.rows[rows], offload);
        if self.handover.shares_kv {
            return Ok(());
        }
        let mut copied = Vec::new();
        for page in pages {
            let (block, start) = layout.in_block(page as usize);
            // SAFETY: submits in flight write other layers, and this layer's positions after these rows, which are not
            // read.
            match unsafe { self.kv.blocks[layer.pool as usize][block].bytes() } {
                Some(bytes) => {
                    let first = start as usize + offset * layout.block_pages;
                    offload.copy_kv(layer, page, layer.element, &bytes[first..first + part])?;
                }
                None => {
                    copied.resize(part, 0);
                    self.read_from_page(layer.pool, page, offset, &mut copied)?;
                    offload.copy_kv(layer, page, layer.element, &copied)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(feature = "npu")]
impl<D: Driver> crate::offload::OffloadOwner for Replay<D> {
    fn measured_rows(&self) -> Vec<usize> {
        self.passes
            .kinds
            .iter()
            .map(|baked| baked.kind)
            .filter(|kind| kind.is_measured())
            .map(|kind| kind.rows)
            .collect()
    }

    fn set_offload(&mut self, offload: Option<Box<dyn Offload>>) -> Result<()> {
        if offload.is_none() && self.handover.offload.is_none() {
            return Ok(());
        }
        self.handover = Handover::to(offload);
        self.rebake_all()?;
        self.queue.driver.compiler().save();
        Ok(())
    }

    fn take_offload(&mut self) -> Option<Box<dyn Offload>> {
        self.handover.offload.take()
    }

    fn time_layers(&mut self, rows: &[Row], layers: usize, now: &dyn Fn() -> f64) -> Result<f64> {
        let kind = self.begin(rows, None)?;
        let before = (self.pace.submits, self.pace.busy);
        let start = now();
        let ran = self.run_layers(kind, layers);
        let seconds = now() - start;
        self.flight.forget();
        (self.pace.submits, self.pace.busy) = before;
        ran.map(|()| seconds)
    }
}

#[cfg(feature = "npu")]
impl<D: Driver> Replay<D> {
    /// Runs the begun pass up to the end of the first `layers` layers. Between them it waits only for an offload.
    fn run_layers(&mut self, kind: usize, layers: usize) -> Result<()> {
        use super::passes::Piece;
        use crate::schedule::Segment;
        let end = self.schedule.steps_of(Segment::Layer(layers.saturating_sub(1))).end;
        for i in 0..self.passes.kinds[kind].pieces.len() {
            self.cancel.check()?;
            let baked = &self.passes.kinds[kind];
            // A piece's lists are those of consecutive layers.
            let is_before = |list: &usize| !matches!(baked.parts[*list].segment, Segment::Layer(l) if l >= layers);
            let up_to = |lists: Range<usize>| lists.start..lists.start + lists.take_while(is_before).count();
            match baked.pieces[i].clone() {
                Piece::Offload(piece) => {
                    let beside = up_to(piece.beside.clone());
                    match piece.step < end {
                        true => self.hand_over(kind, &piece, beside)?,
                        false => self.submit_beside(kind, beside)?,
                    }
                }
                Piece::Device(lists) => {
                    for list in up_to(lists) {
                        // SAFETY: as in `Replay::submit`.
                        unsafe { self.queue.submit(&baked.segments.lists[list..=list], false) }?;
                    }
                }
            }
        }
        self.queue.drain()
    }
}

/// Sets an offload's table entries for the pages of a pool that rows see. Returns the pages, each once.
pub(crate) fn show_pages(pages: &Pages, pool: Pool, rows: &[Row], offload: &mut dyn Offload) -> Vec<PageId> {
    let mut seen: Vec<PageId> = Vec::new();
    for row in first_on_pages(rows) {
        for entry in pages.visible(pool, row.sequence as usize, row.position as usize) {
            offload.set_page(&entry);
            seen.push(entry.page);
        }
    }
    seen.sort_unstable();
    seen.dedup();
    seen
}

/// The rows, except a row after another of its sequence on the same page: it sees no further page.
fn first_on_pages(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let page = |row: &Row| (row.sequence, row.position as usize / PAGE);
    rows.chunk_by(move |a, b| page(a) == page(b) && a.position < b.position).filter_map(|rows| rows.first())
}

#[cfg(all(test, feature = "npu"))]
mod tests;
