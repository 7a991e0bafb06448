//! Runs a guest's steps within a pass: prepares its inputs, stops the pass for the step, checks its results, and
//! handles its failures.

use super::Replay;
use super::driver::{Driver, Memory};
use super::passes::{GuestPiece, PassHalf};
use super::timeline::GuestSpan;
use crate::error::{Setting, text};
use crate::executor::guest::{Guest, GuestKind, GuestPasses, GuestReport, KvBlocks, PlacementTiming};
use crate::executor::{PageId, Pages, Row, Tolerance, slot_row, slot_row_mut};
use crate::lower::PassKind;
use crate::schedule::Schedule;
use crate::schedule::kv::{KvLayer, PAGE, Pool};
use crate::schedule::step::{Op, Slot};
use crate::{Error, Result};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Loads a guest, again after each failure.
pub type GuestLoader = Box<dyn FnMut() -> Result<Box<dyn Guest>>>;

/// A guest of all passes.
pub struct LoadedGuest {
    /// Its kind.
    pub kind: GuestKind,
    /// The guest.
    pub guest: Box<dyn Guest>,
    /// Loads it again after it has failed, if it is a device.
    pub reload: Option<GuestLoader>,
}

/// In which of a device's passes a guest attends.
pub enum GuestUse {
    /// In none.
    Never,
    /// In all. They then take several submits, with a wait for the device between them: none starts before the one ahead of it
    /// is done. The guest may keep a copy of the KV cache, which the plan does not count.
    Always(LoadedGuest),
    /// In those in which it is faster: that is measured once, when everything else is loaded.
    IfFaster(GuestKind, GuestLoader),
}

/// Most reloads of a guest that failed.
const MOST_RELOADS: u32 = 3;
/// Time before the first reload, while the device attends. Each further reload waits twice as long.
const FIRST_RELOAD: Duration = Duration::from_secs(60);
/// Largest deviation of a guest's row from the device's, relative to the device row's root mean square. With queries,
/// weights and values in bf16 it is 1 %.
const MOST_OFF: f64 = 0.04;

/// The guest that passes are baked for, and its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeatedGuest {
    pub kind: GuestKind,
    pub passes: GuestPasses,
}

impl SeatedGuest {
    /// Whether the guest attends in passes of a kind.
    pub(crate) fn attends_in(self, kind: PassKind) -> bool {
        match kind.is_measured() {
            true if kind.rows == 1 => self.passes.decode,
            true => self.passes.prefill,
            false => self.passes.others,
        }
    }
}

/// The guest that attends in place of the device, with its history.
pub(super) struct GuestSeat {
    /// The guest that passes are baked for.
    seated: Option<SeatedGuest>,
    guest: Option<Box<dyn Guest>>,
    /// Loads the guest again after a failure; `None`: it is not reloaded.
    reload: Option<(SeatedGuest, GuestLoader)>,
    first_reload: Duration,
    /// Time of the next reload.
    due: Option<Instant>,
    reloads: u32,
    failures: u32,
    /// Whether the guest's results were checked in a whole pass: of one row, and of several.
    is_proved: [bool; 2],
    /// The attention step that the device also computes in the next pass, to detect a guest that has turned wrong.
    next_check: usize,
    /// Whether the guest reads the KV cache in place; `None`: it has not been given the cache's blocks yet.
    shares_kv: Option<bool>,
    /// The measurements by which its passes were chosen.
    timings: Vec<PlacementTiming>,
    /// The spans of its steps, while a timeline is measured.
    pub(super) spans: Option<Vec<GuestSpan>>,
}

impl GuestSeat {
    /// The seat of a guest that attends in all passes, if there is one.
    pub(super) fn of(loaded: Option<LoadedGuest>) -> GuestSeat {
        let Some(LoadedGuest { kind, guest, reload }) = loaded else { return GuestSeat::empty() };
        let seated = SeatedGuest { kind, passes: GuestPasses::ALL };
        // A guest on the CPU needs no proof.
        let is_proved = [reload.is_none(); 2];
        let reload = reload.map(|reload| (seated, reload));
        GuestSeat { guest: Some(guest), seated: Some(seated), reload, is_proved, ..GuestSeat::empty() }
    }

    /// Without a guest.
    fn empty() -> GuestSeat {
        GuestSeat {
            seated: None,
            guest: None,
            reload: None,
            first_reload: FIRST_RELOAD,
            due: None,
            reloads: 0,
            failures: 0,
            is_proved: [false; 2],
            next_check: 0,
            shares_kv: None,
            timings: Vec::new(),
            spans: None,
        }
    }

    /// The guest that passes are baked for.
    pub(super) fn seated(&self) -> Option<SeatedGuest> {
        self.seated
    }

    /// The guest's error bound for a step; `None` without a guest.
    pub(super) fn tolerance(&self, op: &Op) -> Option<Tolerance> {
        self.guest.as_ref().map(|guest| guest.tolerance(op))
    }

    /// The guest's state; `None` if there never was one.
    pub(super) fn report(&self) -> Option<GuestReport> {
        let was_there = self.guest.is_some() || self.failures > 0 || !self.timings.is_empty();
        let attends = self.seated.filter(|_| self.guest.is_some()).map_or(GuestPasses::NONE, |seated| seated.passes);
        was_there.then_some(GuestReport { attends, failures: self.failures })
    }

    /// The measurements by which the guest's passes were chosen.
    pub(super) fn timings(&self) -> &[PlacementTiming] {
        &self.timings
    }

    /// Removes the guest. The next pass is baked without one.
    pub(super) fn vacate(&mut self) {
        *self = GuestSeat { seated: self.seated, failures: self.failures, ..GuestSeat::empty() };
    }

    /// Sets an unproved guest for all passes. It is not reloaded after a failure until [`GuestSeat::keep`].
    pub(super) fn try_out(&mut self, kind: GuestKind, guest: Box<dyn Guest>) {
        *self = GuestSeat {
            seated: Some(SeatedGuest { kind, passes: GuestPasses::ALL }),
            guest: Some(guest),
            failures: self.failures,
            ..GuestSeat::empty()
        };
    }

    /// Whether the guest on trial has failed.
    pub(super) fn is_lost(&self) -> bool {
        self.guest.is_none()
    }

    /// Keeps the guest on trial for `passes`; after a failure, `load` loads it again. Without any passes the guest is
    /// dropped, which does not count as a failure.
    pub(super) fn keep(&mut self, passes: GuestPasses, timings: Vec<PlacementTiming>, load: GuestLoader) {
        self.timings = timings;
        self.seated = self.seated.map(|seated| SeatedGuest { passes, ..seated }).filter(|_| passes.any());
        match self.seated {
            Some(seated) => self.reload = Some((seated, load)),
            None => self.guest = None,
        }
    }

    /// Whether the device also computes this step, in a pass of one row or of several. Until the guest is proved these
    /// are all steps; afterwards one in each pass, if the guest can be reloaded.
    fn checks(&self, step: usize, several: bool) -> bool {
        !self.is_proved[usize::from(several)] || (self.reload.is_some() && step == self.next_check)
    }

    /// Records that guest and device agree in a step for all rows of a pass. The next pass checks the layer before;
    /// after the first layer, the last one again.
    fn note_agreed(&mut self, step: usize, several: bool, schedule: &Schedule) {
        let mut attend = (0..schedule.steps.len()).filter(|at| matches!(schedule.steps[*at].op, Op::Attend { .. }));
        let last = attend.clone().next_back().unwrap_or(step);
        if self.is_proved[usize::from(several)] {
            self.next_check = attend.rfind(|at| *at < step).unwrap_or(last);
        } else if step == last {
            (self.is_proved[usize::from(several)], self.next_check) = (true, last);
        }
    }

    /// Counts a guest that could not be loaded.
    pub(super) fn note_absent(&mut self) {
        self.failures += 1;
    }

    /// Whether the passes' lists fit the present guest and no reload is due.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.seated.is_some() == self.guest.is_some() && self.due.is_none_or(|due| Instant::now() < due)
    }

    /// Drops a guest that has failed, which frees its device's resources.
    fn lose(&mut self, guest: Box<dyn Guest>, e: &Error) {
        let name = guest.name().to_owned();
        drop(guest);
        let next = match self.note_failure() {
            Some(wait) => format!("tried again in {} s", wait.as_secs()),
            None => "not tried again".into(),
        };
        log::warn!("{name} failed, and attention goes on on the GPU; it is {next}: {e}");
    }

    /// Counts a failure. Returns the time until the guest's reload, if there will be one.
    fn note_failure(&mut self) -> Option<Duration> {
        self.failures += 1;
        let is_tried = self.reload.is_some() && self.reloads < MOST_RELOADS;
        let wait = is_tried.then(|| self.first_reload * 2u32.saturating_pow(self.reloads));
        self.due = wait.map(|wait| Instant::now() + wait);
        wait
    }

    /// Reloads the guest if that is due.
    fn try_again(&mut self) {
        let Some((seated, reload)) = self.reload.as_mut().filter(|_| self.due.is_some_and(|due| Instant::now() >= due))
        else {
            return;
        };
        let seated = *seated;
        self.reloads += 1;
        self.due = None;
        match reload() {
            Ok(guest) => {
                log::info!("{} is tried again", guest.name());
                (self.seated, self.guest, self.is_proved) = (Some(seated), Some(guest), [false; 2]);
                self.shares_kv = None;
            }
            Err(e) => {
                self.note_failure();
                log::info!("attention stays on the GPU: {e}");
            }
        }
    }
}

/// The reason why a guest's step failed.
enum StepFault {
    /// The guest failed; the device continues without it.
    Guest(Error),
    /// The device failed, or the pass was cancelled.
    Device(Error),
}

impl From<Error> for StepFault {
    fn from(e: Error) -> StepFault {
        StepFault::Device(e)
    }
}

/// The result of a guest's step.
type StepResult = std::result::Result<(), StepFault>;

impl<D: Driver> Replay<D> {
    /// Gives the KV cache's blocks to a newly loaded NPU. If it cannot read them in place, it gets copies for every
    /// step, as other guests do.
    pub(super) fn share_kv(&mut self) {
        let GuestSeat { guest: Some(guest), seated: Some(seated), shares_kv: shares @ None, .. } = &mut self.seat
        else {
            return;
        };
        if !matches!(seated.kind, GuestKind::Npu(_)) {
            return;
        }
        let [global, local] =
            [0, 1].map(|pool| self.kv.blocks[pool].iter().map(Memory::dma_buf).collect::<Option<Vec<_>>>());
        let element = self.schedule.extent.kv;
        let shared = match (global, local) {
            (Some(global), Some(local)) => {
                let layouts = Pool::ALL.map(|pool| *self.schedule.kv.pool(pool));
                guest.share_kv(&KvBlocks { element, layouts, blocks: [global, local] })
            }
            _ => Err(Error::device("its blocks are no dma-bufs here", "update this device's driver")),
        };
        let name = guest.name();
        *shares = Some(*shared.as_ref().unwrap_or(&false));
        match shared {
            Ok(true) => log::info!("{name} reads the KV cache where it is"),
            Ok(false) => log::info!(
                "{name} takes a copy of the KV cache, whose elements are {}: those of bf16 it may read where they are",
                element.name()
            ),
            Err(e) => log::info!("{name} takes a copy of the KV cache: {e}"),
        }
    }

    /// Sets the device's name, with the guest's, and logs the guest's effect on passes.
    pub(super) fn set_name(&mut self) {
        let device = &self.queue.driver.caps().name;
        self.name = match (&self.seat.guest, self.seat.seated) {
            (Some(guest), Some(SeatedGuest { passes, .. })) => {
                let (name, of) = (guest.name(), passes.name());
                log::info!("attention of {of} is {name}'s: no such pass runs ahead");
                let of = if passes == GuestPasses::ALL { String::new() } else { format!(" of {of}") };
                format!("{device}, attention{of} on {name}")
            }
            _ => device.clone(),
        };
    }

    /// Replaces the guest from the next pass on. `load` loads it, and reloads it after a failure, first after
    /// `first_reload`.
    #[cfg(feature = "testing")]
    pub fn give_guest(&mut self, kind: GuestKind, first_reload: Duration, load: GuestLoader) {
        self.seat = GuestSeat {
            seated: self.seat.seated,
            reload: Some((SeatedGuest { kind, passes: GuestPasses::ALL }, load)),
            first_reload,
            due: Some(Instant::now()),
            failures: self.seat.failures,
            ..GuestSeat::empty()
        };
    }

    /// Before a pass: bakes passes for a guest that was loaded, or without one that was lost.
    #[cold]
    pub(super) fn settle_guest(&mut self) -> Result<()> {
        self.settle()?;
        self.flight.forget();
        self.seat.try_again();
        if self.seat.guest.is_none() {
            self.seat.seated = None;
        }
        self.rebake_all()
    }

    /// Bakes every kind of pass anew for the present guest.
    pub(super) fn rebake_all(&mut self) -> Result<()> {
        let rows: Vec<usize> = self.passes.kinds.iter().map(|baked| baked.kind.rows).collect();
        let (addresses, target) = (self.memory.addresses(), self.target.clone());
        let mut passes = std::mem::take(&mut self.passes);
        let rebaked = self.baking(&addresses).rebake(&mut passes, &rows, &target);
        // The number of submits changes with the guest, so measured paces no longer hold.
        passes.kinds.iter_mut().for_each(|baked| (baked.pace, baked.last) = Default::default());
        self.passes = passes;
        self.share_kv();
        self.set_name();
        rebaked
    }

    /// Waits for all submits, then lets the guest run a step of the pass and submits the lists `beside`: before the
    /// step if [`Replay::can_run_beside`], else after it.
    pub(super) fn run_guest(&mut self, kind: usize, piece: &GuestPiece, beside: Range<usize>) -> Result<()> {
        self.queue.drain()?;
        self.cancel.check()?;
        let is_before = self.can_run_beside(piece.step);
        if is_before {
            self.submit_beside(kind, beside.clone())?;
        }
        self.run_guest_step(kind, piece)?;
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

    /// Whether lists may run beside the guest's step: the guest accesses its inputs without the device's help, and the
    /// device does not check its result.
    fn can_run_beside(&self, step: usize) -> bool {
        let reaches_kv = self.seat.shares_kv == Some(true) || self.kv.blocks.iter().flatten().all(Memory::is_mapped);
        let is_trusted = self.seat.guest.is_some() && !self.seat.checks(step, self.flight.rows.len() > 1);
        reaches_kv && !self.memory.arena.is_handed_over() && is_trusted
    }

    /// Lets the guest run a step. If it fails, the device runs this step and later ones: a guest only reads the KV
    /// cache, and the device's step overwrites all of the guest's output.
    fn run_guest_step(&mut self, kind: usize, piece: &GuestPiece) -> Result<()> {
        let &GuestPiece { step, half, .. } = piece;
        let rows = self.passes.kinds[kind].rows_of(half, self.flight.rows.len());
        let Some(mut guest) = self.seat.guest.take() else { return self.run_step_for(step, half) };
        let start = Instant::now();
        let ran = self.run_step_of(guest.as_mut(), step, rows.clone());
        if let (Ok(()), Some(spans)) = (&ran, &mut self.seat.spans) {
            spans.push(GuestSpan { piece: piece.clone(), start, end: Instant::now() });
        }
        match ran.and_then(|()| self.check(piece, rows)) {
            Ok(()) => {
                self.seat.guest = Some(guest);
                Ok(())
            }
            Err(StepFault::Device(e)) => {
                self.seat.guest = Some(guest);
                Err(e)
            }
            Err(StepFault::Guest(e)) => {
                self.seat.lose(guest, &e);
                self.queue.drain()?;
                self.run_step_for(step, half)
            }
        }
    }

    /// Lets the guest run one step of the begun pass, without a check. No submit may be in flight.
    ///
    /// # Errors
    /// The guest's and the device's.
    pub(super) fn run_by_guest(&mut self, step: usize) -> Result<()> {
        let Some(mut guest) = self.seat.guest.take() else { return self.run_step_for(step, None) };
        let ran = self.run_step_of(guest.as_mut(), step, 0..self.flight.rows.len());
        self.seat.guest = Some(guest);
        ran.map_err(|(StepFault::Guest(e) | StepFault::Device(e))| e)
    }

    /// Runs the step on the device too and compares, in a guest's first pass of one row, in its first of several, and
    /// in one layer of each later pass. Until the guest is proved the device's results are used, afterwards the
    /// guest's, so that a reply does not depend on which layer is checked.
    ///
    /// # Errors
    /// Guest: its results differ from the device's.
    fn check(&mut self, piece: &GuestPiece, rows: Range<usize>) -> StepResult {
        let &GuestPiece { step, half, .. } = piece;
        let several = self.flight.rows.len() > 1;
        if !self.seat.checks(step, several) {
            return Ok(());
        }
        let Op::Attend { out, .. } = self.schedule.steps[step].op else { return Ok(()) };
        let guests = self.rows_of(out, rows.clone())?;
        self.run_step_for(step, half)?;
        let own = self.rows_of(out, rows.clone())?;
        for (guests, own) in guests.chunks(out.width).zip(own.chunks(out.width)) {
            let off = relative_rms(guests, own);
            // For a row of zeros the deviation is 0/0 or infinite.
            if !(off <= MOST_OFF || guests == own) {
                let what = format!("its attention is off the GPU's by {:.1} % in step {step}", 100.0 * off);
                return Err(StepFault::Guest(Error::device(what, text!("report this, and use ", Setting::NoNpu))));
            }
        }
        if self.seat.is_proved[usize::from(several)] {
            let write = |words: &mut [u32]| {
                let arena: &mut [f32] = bytemuck::cast_slice_mut(words);
                for (row, values) in rows.zip(guests.chunks(out.width)) {
                    slot_row_mut(arena, out, row).copy_from_slice(values);
                }
            };
            self.queue.edit(&mut self.memory.arena, write)?;
        }
        if half != Some(PassHalf::First) {
            self.seat.note_agreed(step, several, &self.schedule);
        }
        Ok(())
    }

    /// Rows of a slot.
    fn rows_of(&mut self, slot: Slot, rows: Range<usize>) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        let read = |words: &mut [u32]| {
            let arena: &[f32] = bytemuck::cast_slice(words);
            values.extend(rows.flat_map(|row| slot_row(arena, slot, row)));
        };
        self.queue.edit(&mut self.memory.arena, read)?;
        Ok(values)
    }

    /// Lets the guest run a step for `rows` of the pass; the guest numbers them from 0.
    fn run_step_of(&mut self, guest: &mut dyn Guest, step: usize, rows: Range<usize>) -> StepResult {
        let mut op = self.schedule.steps[step].op.clone();
        guest.begin(&self.flight.rows[rows.clone()]);
        if let Op::Attend { kv, q, out, .. } = &mut op {
            (*q, *out) = (q.from_row(rows.start), out.from_row(rows.start));
            self.show_kv(guest, kv, rows)?;
        }
        if self.queue.is_idle() {
            let mut ran = Ok(());
            self.queue.edit(&mut self.memory.arena, |words| ran = guest.run(&op, bytemuck::cast_slice_mut(words)))?;
            return ran.map_err(StepFault::Guest);
        }
        let words = self.memory.arena.size() as usize / 4;
        // SAFETY: submits in flight use the other half's rows only, and the guest uses these.
        let arena = unsafe { self.memory.arena.words_mut(0..words) }?;
        guest.run(&op, bytemuck::cast_slice_mut(arena)).map_err(StepFault::Guest)
    }

    /// Gives the guest the table entries of the pages that rows of the pass see. If the guest does not share the cache,
    /// copies the pages' part of a layer to its memory, all of it for every pass, since other passes and restored pages
    /// may have changed any of it. Pages that the host does not map go through staging.
    fn show_kv(&mut self, guest: &mut dyn Guest, layer: &KvLayer, rows: Range<usize>) -> StepResult {
        let part = layer.elements() * layer.element.bytes();
        let offset = layer.place * part;
        let layout = *self.schedule.kv.pool(layer.pool);
        let pages = show_pages(&self.kv.pages, layer.pool, &self.flight.rows[rows], guest);
        if self.seat.shares_kv == Some(true) {
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
                    let bytes = &bytes[first..first + part];
                    guest.copy_kv(layer, page, layer.element, bytes).map_err(StepFault::Guest)?;
                }
                None => {
                    copied.resize(part, 0);
                    self.read_from_page(layer.pool, page, offset, &mut copied)?;
                    guest.copy_kv(layer, page, layer.element, &copied).map_err(StepFault::Guest)?;
                }
            }
        }
        Ok(())
    }
}

/// The deviation of `values` from `others`, relative to the root mean square of `others`.
pub(crate) fn relative_rms(values: &[f32], others: &[f32]) -> f64 {
    let squares = |xs: &mut dyn Iterator<Item = f32>| xs.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let off = squares(&mut values.iter().zip(others).map(|(a, b)| a - b));
    (off / squares(&mut others.iter().copied())).sqrt()
}

/// Sets a guest's table entries for the pages of a pool that rows see. Returns the pages, each once.
pub(crate) fn show_pages(pages: &Pages, pool: Pool, rows: &[Row], guest: &mut dyn Guest) -> Vec<PageId> {
    let mut seen: Vec<PageId> = Vec::new();
    for row in first_on_pages(rows) {
        for entry in pages.visible(pool, row.sequence as usize, row.position as usize) {
            guest.set_page(&entry);
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

#[cfg(test)]
mod tests;
