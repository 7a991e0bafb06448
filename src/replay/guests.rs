//! A guest in a pass: what it needs before its step, what happens where the pass stops for it, and what becomes of one that
//! fails.

use super::Replay;
use super::driver::{Driver, Memory};
use super::passes::{GuestPiece, PassHalf};
use super::timeline::GuestSpan;
use crate::cpu::CpuKernels;
use crate::cpu::lanes::VectorUnits;
use crate::error::{Setting, text};
use crate::executor::guest::{Guest, GuestKind, GuestPasses, GuestReport, HostGuest, KvBlocks, PlacementTiming};
use crate::executor::weights::Progress;
use crate::executor::{PageId, Pages, Row, Tolerance, slot_row, slot_row_mut};
use crate::lower::PassKind;
use crate::model::checkpoint::Checkpoint;
use crate::npu;
use crate::reference::Formulas;
use crate::schedule::kv::{KvLayer, PAGE, Pool};
use crate::schedule::step::{KvType, Op, Slot};
use crate::schedule::{Schedule, Step};
use crate::{Error, Result};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Loads a guest anew after one has failed.
pub type GuestLoader = Box<dyn FnMut() -> Result<Box<dyn Guest>>>;

/// How often a guest that failed is loaded again.
const MOST_RELOADS: u32 = 3;
/// How long the device attends by itself before the first of them. Each next time it is twice as long.
const FIRST_RELOAD: Duration = Duration::from_secs(60);
/// How far a guest's row may be off the device's, as a share of its root mean square: one with queries, weights and values of
/// bf16 is off by 1 %.
const MOST_OFF: f64 = 0.04;

/// Whom passes are baked for, and which passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeatedGuest {
    pub kind: GuestKind,
    pub passes: GuestPasses,
}

impl SeatedGuest {
    /// Whether it attends in passes of a kind.
    pub(crate) fn attends_in(self, kind: PassKind) -> bool {
        match kind.is_measured() {
            true if kind.rows == 1 => self.passes.decode,
            true => self.passes.prefill,
            false => self.passes.others,
        }
    }
}

/// Who attends in place of the device, and what became of it.
pub(super) struct GuestSeat {
    /// Whom passes are baked for.
    seated: Option<SeatedGuest>,
    guest: Option<Box<dyn Guest>>,
    /// Loads it again; `None`: what failed once stays away.
    reload: Option<(SeatedGuest, GuestLoader)>,
    first_reload: Duration,
    /// When it is loaded again.
    due: Option<Instant>,
    reloads: u32,
    failures: u32,
    /// Whether it has proved itself: in a pass of one row, and in one of several.
    is_proved: [bool; 2],
    /// The attention step of the next pass that the device makes too, should a guest that is proved have turned wrong.
    next_check: usize,
    /// Whether the guest reads the KV cache where it is; `None`: it has not been shown yet.
    shares_kv: Option<bool>,
    /// What was measured to choose its passes.
    timings: Vec<PlacementTiming>,
}

impl GuestSeat {
    /// The guest of passes of `schedule`, if there is one, with the weights that its steps read.
    ///
    /// # Errors
    /// As for loading an executor.
    pub(super) fn load(
        kind: Option<GuestKind>,
        checkpoint: &Checkpoint,
        schedule: &Schedule,
        progress: &Progress,
    ) -> Result<GuestSeat> {
        let guest = kind.map(|kind| load(kind, checkpoint, schedule, progress)).transpose()?;
        let seated = kind.map(|kind| SeatedGuest { kind, passes: GuestPasses::ALL });
        let reload = seated.and_then(|seated| Some((seated, device_loader(seated.kind, schedule)?)));
        // What is no device's needs no proof.
        let is_proved = [reload.is_none(); 2];
        Ok(GuestSeat { guest, seated, reload, is_proved, ..GuestSeat::empty() })
    }

    /// Nobody's seat.
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
        }
    }

    /// Whom passes are baked for.
    pub(super) fn seated(&self) -> Option<SeatedGuest> {
        self.seated
    }

    /// How far from exact it computes a step; `None` where there is none.
    pub(super) fn tolerance(&self, op: &Op) -> Option<Tolerance> {
        self.guest.as_ref().map(|guest| guest.tolerance(op))
    }

    /// How it does; `None` where there never was one.
    pub(super) fn report(&self) -> Option<GuestReport> {
        let was_there = self.guest.is_some() || self.failures > 0 || !self.timings.is_empty();
        let attends = self.seated.filter(|_| self.guest.is_some()).map_or(GuestPasses::NONE, |seated| seated.passes);
        was_there.then_some(GuestReport { attends, failures: self.failures })
    }

    /// What was measured to choose its passes.
    pub(super) fn timings(&self) -> &[PlacementTiming] {
        &self.timings
    }

    /// Whoever has the seat leaves it. The next pass is baked without a guest.
    pub(super) fn vacate(&mut self) {
        *self = GuestSeat { seated: self.seated, failures: self.failures, ..GuestSeat::empty() };
    }

    /// Gives the seat to a guest that is not proved, for all passes. What becomes of it when it fails is not known yet: it is
    /// not loaded again.
    pub(super) fn try_out(&mut self, kind: GuestKind, guest: Box<dyn Guest>) {
        *self = GuestSeat {
            seated: Some(SeatedGuest { kind, passes: GuestPasses::ALL }),
            guest: Some(guest),
            failures: self.failures,
            ..GuestSeat::empty()
        };
    }

    /// Whether the guest that was tried out has failed.
    pub(super) fn is_lost(&self) -> bool {
        self.guest.is_none()
    }

    /// Keeps the guest that was tried out for these passes alone, and loads it again by `load` should it fail. Of none it is
    /// given up, which is no failure.
    pub(super) fn keep(&mut self, passes: GuestPasses, timings: Vec<PlacementTiming>, load: GuestLoader) {
        self.timings = timings;
        self.seated = self.seated.map(|seated| SeatedGuest { passes, ..seated }).filter(|_| passes.any());
        match self.seated {
            Some(seated) => self.reload = Some((seated, load)),
            None => self.guest = None,
        }
    }

    /// Whether the device makes this step too, in a pass of one row or of several: all of them until the guest is proved, then
    /// one a pass of whoever is loaded again when it fails.
    fn checks(&self, step: usize, several: bool) -> bool {
        !self.is_proved[usize::from(several)] || (self.reload.is_some() && step == self.next_check)
    }

    /// Notes that all rows of a pass agree in a step. The next pass checks the layer before; with the first, the last is checked
    /// again.
    fn note_agreed(&mut self, step: usize, several: bool, schedule: &Schedule) {
        let mut attend = (0..schedule.steps.len()).filter(|at| matches!(schedule.steps[*at].op, Op::Attend { .. }));
        let last = attend.clone().next_back().unwrap_or(step);
        if self.is_proved[usize::from(several)] {
            self.next_check = attend.rfind(|at| *at < step).unwrap_or(last);
        } else if step == last {
            (self.is_proved[usize::from(several)], self.next_check) = (true, last);
        }
    }

    /// Notes that a guest could not be loaded.
    pub(super) fn note_absent(&mut self) {
        self.failures += 1;
    }

    /// Whether there is something to change before the next pass.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.seated.is_some() == self.guest.is_some() && self.due.is_none_or(|due| Instant::now() < due)
    }

    /// Takes a guest away that has failed. Whatever it held of its device is given back.
    fn lose(&mut self, guest: Box<dyn Guest>, e: &Error) {
        let name = guest.name().to_owned();
        drop(guest);
        let next = match self.note_failure() {
            Some(wait) => format!("tried again in {} s", wait.as_secs()),
            None => "not tried again".into(),
        };
        log::warn!("{name} failed, and attention goes on on the GPU; it is {next}: {e}");
    }

    /// Counts a failure. Returns after how long the guest is loaded again, if it is.
    fn note_failure(&mut self) -> Option<Duration> {
        self.failures += 1;
        let is_tried = self.reload.is_some() && self.reloads < MOST_RELOADS;
        let wait = is_tried.then(|| self.first_reload * 2u32.saturating_pow(self.reloads));
        self.due = wait.map(|wait| Instant::now() + wait);
        wait
    }

    /// Loads the guest again, where it is time for that.
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

/// What loads a guest that is a device, again and again; `None` for one that is not.
fn device_loader(kind: GuestKind, schedule: &Schedule) -> Option<GuestLoader> {
    match kind {
        GuestKind::Reference | GuestKind::Cpu => None,
        GuestKind::Npu(api) => Some(npu_loader(schedule, api)),
    }
}

/// What loads the NPU, again and again.
pub(super) fn npu_loader(schedule: &Schedule, api: npu::DriverApi) -> GuestLoader {
    let own = schedule.with_kv(KvType::Bf16);
    Box::new(move || npu(&own, api))
}

/// The NPU's guest of passes of a schedule whose KV type is bf16.
fn npu(own: &Schedule, api: npu::DriverApi) -> Result<Box<dyn Guest>> {
    Ok(Box::new(HostGuest::new(own, npu::guest::load(own, api)?)))
}

/// Loads a guest of passes of `schedule`, with the weights that its steps read.
///
/// # Errors
/// As for loading an executor.
pub fn load(
    kind: GuestKind,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    progress: &Progress,
) -> Result<Box<dyn Guest>> {
    let steps: Vec<Step> = schedule.steps.iter().filter(|step| GuestKind::takes(step)).cloned().collect();
    Ok(match kind {
        GuestKind::Reference => {
            let own = schedule.with_kv(KvType::F32);
            Box::new(HostGuest::new(&own, Formulas::load(checkpoint, &own, &steps, progress)?))
        }
        GuestKind::Npu(api) => npu(&schedule.with_kv(KvType::Bf16), api)?,
        GuestKind::Cpu => {
            // What the device keeps, where the guest can keep it.
            let own = match schedule.extent.kv {
                KvType::Bf16 => schedule.clone(),
                KvType::F16 | KvType::F32 => schedule.with_kv(KvType::F16),
            };
            Box::new(HostGuest::new(
                &own,
                CpuKernels::load(VectorUnits::best(), checkpoint, &own, &steps, None, progress)?,
            ))
        }
    })
}

/// Why a guest's step did not come about.
enum StepFault {
    /// The guest failed, and the device goes on without it.
    Guest(Error),
    /// The device failed, or the pass was cancelled.
    Device(Error),
}

impl From<Error> for StepFault {
    fn from(e: Error) -> StepFault {
        StepFault::Device(e)
    }
}

/// What becomes of a guest's step.
type StepResult = std::result::Result<(), StepFault>;

impl<D: Driver> Replay<D> {
    /// Shows an NPU that has come the KV cache's blocks. One that does not read them there gets copies for every step, as other
    /// guests do.
    pub(super) fn share_kv(&mut self) {
        let GuestSeat { guest: Some(guest), seated: Some(seated), shares_kv: shares @ None, .. } = &mut self.seat
        else {
            return;
        };
        if !matches!(seated.kind, GuestKind::Npu(_)) {
            return;
        }
        let [global, local] = [0, 1].map(|pool| self.kv[pool].iter().map(Memory::dma_buf).collect::<Option<Vec<_>>>());
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

    /// What the device is called. Says what a guest costs.
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

    /// Has another guest from the next pass on. `load` loads it, and again after it has failed: first after `first_reload`.
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

    /// Before a pass: bakes passes for the guest that has come, or without the one that has gone.
    #[cold]
    pub(super) fn settle_guest(&mut self) -> Result<()> {
        self.settle()?;
        self.forget();
        self.seat.try_again();
        if self.seat.guest.is_none() {
            self.seat.seated = None;
        }
        self.rebake_all()
    }

    /// Bakes every kind of pass anew, for whoever has the seat.
    pub(super) fn rebake_all(&mut self) -> Result<()> {
        let rows: Vec<usize> = self.passes.kinds.iter().map(|baked| baked.kind.rows).collect();
        let (addresses, target) = (self.addresses(), self.target.clone());
        let mut passes = std::mem::take(&mut self.passes);
        let rebaked = self.baking(&addresses).rebake(&mut passes, &rows, &target);
        // No pass with a guest is one submit, and the paces of those without were others.
        passes.kinds.iter_mut().for_each(|baked| (baked.pace, baked.last) = Default::default());
        self.passes = passes;
        self.share_kv();
        self.set_name();
        rebaked
    }

    /// Lets the guest run a step of the pass once all that was submitted is done, and submits the lists `beside` it: before the
    /// step where the guest can do with that, else behind it.
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

    /// Submits lists of a pass, whose end the next drain waits for.
    pub(super) fn submit_beside(&mut self, kind: usize, lists: Range<usize>) -> Result<()> {
        let baked = &self.passes.kinds[kind];
        let last = lists.end;
        let per_submit = baked.per_submit(&self.rows);
        for first in lists.step_by(per_submit) {
            let end = last.min(first + per_submit);
            // SAFETY: as in `Replay::submit`.
            unsafe { self.queue.submit(&baked.segments.lists[first..end], end == last) }?;
            self.submits += 1;
        }
        Ok(())
    }

    /// Whether the guest's step needs nothing of the device but what is there: the guest reaches all that it works on, and the
    /// device need not prove what it makes.
    fn can_run_beside(&self, step: usize) -> bool {
        let reaches_kv = self.seat.shares_kv == Some(true) || self.kv.iter().flatten().all(Memory::is_mapped);
        let is_trusted = self.seat.guest.is_some() && !self.seat.checks(step, self.rows.len() > 1);
        reaches_kv && !self.arena.is_handed_over() && is_trusted
    }

    /// Lets the guest run a step. Where it fails, the device runs this step and those that follow: a guest only reads the KV
    /// cache, and the step writes all of what the guest may have written.
    fn run_guest_step(&mut self, kind: usize, piece: &GuestPiece) -> Result<()> {
        let &GuestPiece { step, half, .. } = piece;
        let rows = self.passes.kinds[kind].rows_of(half, self.rows.len());
        let Some(mut guest) = self.seat.guest.take() else { return self.run_step_for(step, half) };
        let start = Instant::now();
        let ran = self.run_step_of(guest.as_mut(), step, rows.clone());
        if let (Ok(()), Some(spans)) = (&ran, &mut self.guest_spans) {
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

    /// Lets the guest run a step of the begun pass by itself, which nobody checks. Nothing is under way.
    ///
    /// # Errors
    /// The guest's own, and those of the device.
    pub(super) fn run_by_guest(&mut self, step: usize) -> Result<()> {
        let Some(mut guest) = self.seat.guest.take() else { return self.run_step_for(step, None) };
        let ran = self.run_step_of(guest.as_mut(), step, 0..self.rows.len());
        self.seat.guest = Some(guest);
        ran.map_err(|(StepFault::Guest(e) | StepFault::Device(e))| e)
    }

    /// In the first pass of a guest with one row, in the first with several, and then in one layer of each: lets the device run
    /// the step too, and compares. Until the guest is proved the device's results count, and then the guest's, so that a reply
    /// does not depend on what is checked.
    ///
    /// # Errors
    /// Guest: it computed something else.
    fn check(&mut self, piece: &GuestPiece, rows: Range<usize>) -> StepResult {
        let &GuestPiece { step, half, .. } = piece;
        let several = self.rows.len() > 1;
        if !self.seat.checks(step, several) {
            return Ok(());
        }
        let Op::Attend { out, .. } = self.schedule.steps[step].op else { return Ok(()) };
        let guests = self.rows_of(out, rows.clone())?;
        self.run_step_for(step, half)?;
        let own = self.rows_of(out, rows.clone())?;
        for (guests, own) in guests.chunks(out.width).zip(own.chunks(out.width)) {
            let off = relative_rms(guests, own);
            // A row of zeros is off by nothing, or by no number.
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
            self.queue.edit(&mut self.arena, write)?;
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
        self.queue.edit(&mut self.arena, read)?;
        Ok(values)
    }

    /// Runs a step for rows of the pass by the guest, whose first row is the first of them.
    fn run_step_of(&mut self, guest: &mut dyn Guest, step: usize, rows: Range<usize>) -> StepResult {
        let mut op = self.schedule.steps[step].op.clone();
        guest.begin(&self.rows[rows.clone()]);
        if let Op::Attend { kv, q, out, .. } = &mut op {
            (*q, *out) = (q.from_row(rows.start), out.from_row(rows.start));
            self.show_kv(guest, kv, rows)?;
        }
        if self.queue.is_idle() {
            let mut ran = Ok(());
            self.queue.edit(&mut self.arena, |words| ran = guest.run(&op, bytemuck::cast_slice_mut(words)))?;
            return ran.map_err(StepFault::Guest);
        }
        let words = self.arena.size() as usize / 4;
        // SAFETY: what is under way works on the other half's rows, and the guest on these.
        let arena = unsafe { self.arena.words_mut(0..words) }?;
        guest.run(&op, bytemuck::cast_slice_mut(arena)).map_err(StepFault::Guest)
    }

    /// Shows the guest the pages that rows of the pass see, and where it does not share the cache copies their part of a layer to
    /// its own memory: all of it for every pass, since other passes, and whoever restores pages, may have written any of it.
    /// Where the host does not map them, they go through staging.
    fn show_kv(&mut self, guest: &mut dyn Guest, layer: &KvLayer, rows: Range<usize>) -> StepResult {
        let part = layer.elements() * layer.element.bytes();
        let offset = layer.place * part;
        let layout = *self.schedule.kv.pool(layer.pool);
        let pages = show_pages(&self.pages, layer.pool, &self.rows[rows], guest);
        if self.seat.shares_kv == Some(true) {
            return Ok(());
        }
        let mut copied = Vec::new();
        for page in pages {
            let (block, start) = layout.in_block(page as usize);
            // SAFETY: what is under way writes other layers, and this layer's positions behind these rows, which nobody looks at.
            match unsafe { self.kv[layer.pool as usize][block].bytes() } {
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

/// How far values are off others, as a share of these' root mean square.
pub(crate) fn relative_rms(values: &[f32], others: &[f32]) -> f64 {
    let squares = |xs: &mut dyn Iterator<Item = f32>| xs.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let off = squares(&mut values.iter().zip(others).map(|(a, b)| a - b));
    (off / squares(&mut others.iter().copied())).sqrt()
}

/// Shows a guest the tables' entries of what rows see of a pool. Returns the pages, each once.
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

/// The rows without those behind another one of their sequence on the same page, which see no page that it does not see.
fn first_on_pages(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let page = |row: &Row| (row.sequence, row.position as usize / PAGE);
    rows.chunk_by(move |a, b| page(a) == page(b) && a.position < b.position).filter_map(|rows| rows.first())
}

#[cfg(test)]
mod tests;
