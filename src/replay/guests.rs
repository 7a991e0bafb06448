//! A guest in a pass: what it needs before its step, what happens where the pass stops for it, and what becomes of one that
//! fails.

use super::Replay;
use super::driver::{Driver, Memory};
use crate::cpu::CpuKernels;
use crate::cpu::lanes::VectorUnits;
use crate::executor::guest::{Guest, GuestKind, GuestReport, HostGuest};
use crate::executor::weights::Progress;
use crate::executor::{PageId, Row, Stepwise, slot_row};
use crate::model::checkpoint::Checkpoint;
use crate::npu;
use crate::reference::Formulas;
use crate::schedule::kv::KvLayer;
use crate::schedule::step::{KvType, Op, Slot};
use crate::schedule::{Schedule, Step};
use crate::{Error, Result};
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

/// Who attends in place of the device, and what became of it.
pub(super) struct GuestSeat {
    /// Whom passes are baked for.
    kind: Option<GuestKind>,
    guest: Option<Box<dyn Guest>>,
    /// Loads it again; `None`: what failed once stays away.
    reload: Option<(GuestKind, GuestLoader)>,
    first_reload: Duration,
    /// When it is loaded again.
    due: Option<Instant>,
    reloads: u32,
    failures: u32,
    /// Whether it has proved itself: in a pass of one row, and in one of several.
    is_proved: [bool; 2],
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
        let own = schedule.with_kv(KvType::Bf16);
        let reload = match kind {
            Some(kind @ GuestKind::Npu(api)) => {
                let load: GuestLoader = Box::new(move || npu(&own, api));
                Some((kind, load))
            }
            _ => None,
        };
        // What is no device's needs no proof.
        let is_proved = [reload.is_none(); 2];
        Ok(GuestSeat { kind, guest, reload, first_reload: FIRST_RELOAD, due: None, reloads: 0, failures: 0, is_proved })
    }

    /// Whom passes are baked for.
    pub(super) fn kind(&self) -> Option<GuestKind> {
        self.kind
    }

    /// How it does; `None` where there never was one.
    pub(super) fn report(&self) -> Option<GuestReport> {
        let was_there = self.guest.is_some() || self.failures > 0;
        was_there.then(|| GuestReport { attends: self.guest.is_some(), failures: self.failures })
    }

    /// Whether there is something to change before the next pass.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.kind.is_some() == self.guest.is_some() && self.due.is_none_or(|due| Instant::now() < due)
    }

    /// Takes a guest away that has failed. Whatever it held of its device is given back.
    fn lose(&mut self, guest: Box<dyn Guest>, e: &Error) {
        let name = guest.name().to_owned();
        drop(guest);
        self.failures += 1;
        let wait = self.first_reload * 2u32.saturating_pow(self.reloads);
        self.due = (self.reload.is_some() && self.reloads < MOST_RELOADS).then(|| Instant::now() + wait);
        let next = match self.due {
            Some(_) => format!("tried again in {} s", wait.as_secs()),
            None => "not tried again".into(),
        };
        log::warn!("{name} failed, and attention goes on on the GPU; it is {next}: {e}");
    }

    /// Loads the guest again, where it is time for that.
    fn try_again(&mut self) {
        let Some((kind, reload)) = self.reload.as_mut().filter(|_| self.due.is_some_and(|due| Instant::now() >= due))
        else {
            return;
        };
        let kind = *kind;
        self.reloads += 1;
        self.due = None;
        match reload() {
            Ok(guest) => {
                log::info!("{} is tried again", guest.name());
                (self.kind, self.guest, self.is_proved) = (Some(kind), Some(guest), [false; 2]);
            }
            Err(e) => {
                self.failures += 1;
                let more = self.reloads < MOST_RELOADS;
                self.due = more.then(|| Instant::now() + self.first_reload * 2u32.saturating_pow(self.reloads));
                log::info!("attention stays on the GPU: {e}");
            }
        }
    }
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
    let steps: Vec<Step> = schedule.steps.iter().filter(|step| kind.takes(step)).cloned().collect();
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

impl<D: Driver> Replay<D> {
    /// What the device is called. Says what a guest costs.
    pub(super) fn set_name(&mut self) {
        let device = &self.queue.driver.caps().name;
        self.name = match &self.seat.guest {
            Some(guest) => {
                log::info!("the device waits for {} at every attention: no pass runs ahead", guest.name());
                format!("{device}, attention on {}", guest.name())
            }
            None => device.clone(),
        };
    }

    /// Has another guest from the next pass on. `load` loads it, and again after it has failed: first after `first_reload`.
    #[cfg(feature = "testing")]
    pub fn give_guest(&mut self, kind: GuestKind, first_reload: Duration, load: GuestLoader) {
        self.seat = GuestSeat {
            kind: self.seat.kind,
            guest: None,
            reload: Some((kind, load)),
            first_reload,
            due: Some(Instant::now()),
            reloads: 0,
            failures: self.seat.failures,
            is_proved: [false; 2],
        };
    }

    /// Before a pass: bakes passes for the guest that has come, or without the one that has gone.
    #[cold]
    pub(super) fn settle_guest(&mut self) -> Result<()> {
        self.settle()?;
        self.forget();
        self.seat.try_again();
        if self.seat.guest.is_none() {
            self.seat.kind = None;
        }
        let rows: Vec<usize> = self.passes.kinds.iter().map(|baked| baked.kind.rows).collect();
        let (addresses, target) = (self.addresses(), self.target.clone());
        let mut passes = std::mem::take(&mut self.passes);
        let rebaked = self.baking(&addresses).rebake(&mut passes, &rows, &target);
        // With a guest, no pass is one submit.
        passes.kinds.iter_mut().for_each(|baked| (baked.pace, baked.last) = Default::default());
        self.passes = passes;
        self.set_name();
        rebaked
    }

    /// Lets the guest run a step of the pass, between two submits. The device has nothing under way meanwhile. Where the guest
    /// fails, the device runs this step and those that follow: a guest only reads the KV cache, and the step writes all of what
    /// the guest may have written.
    pub(super) fn run_guest(&mut self, step: usize) -> Result<()> {
        self.queue.drain()?;
        self.cancel.check()?;
        let Some(mut guest) = self.seat.guest.take() else { return self.run_steps(step..step + 1) };
        let ran = self.run_step_of(guest.as_mut(), step).and_then(|()| self.prove(step));
        match ran {
            Ok(()) => self.seat.guest = Some(guest),
            Err(e @ Error::Interrupted { .. }) => {
                self.seat.guest = Some(guest);
                return Err(e);
            }
            Err(e) => {
                self.seat.lose(guest, &e);
                return self.run_steps(step..step + 1);
            }
        }
        Ok(())
    }

    /// In the first pass of a guest with one row, and in the first with several: lets the device run the step too, and compares.
    ///
    /// # Errors
    /// Device: the guest computed something else.
    fn prove(&mut self, step: usize) -> Result<()> {
        let several = usize::from(self.rows.len() > 1);
        if self.seat.is_proved[several] {
            return Ok(());
        }
        let Op::Attend { out, .. } = self.schedule.steps[step].op else { return Ok(()) };
        let guests = self.rows_of(out)?;
        self.run_steps(step..step + 1)?;
        let own = self.rows_of(out)?;
        for (guests, own) in guests.chunks(out.width).zip(own.chunks(out.width)) {
            let squares = |xs: &mut dyn Iterator<Item = f32>| xs.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let off = squares(&mut guests.iter().zip(own).map(|(a, b)| a - b)) / squares(&mut own.iter().copied());
            // A row of zeros is off by nothing, or by no number.
            if !(off <= MOST_OFF || guests == own) {
                let what = format!("its attention is off the GPU's by {:.1} % in step {step}", 100.0 * off);
                return Err(Error::device(what, "report this, and attend on the GPU (`--npu off`)"));
            }
        }
        let is_last = !self.schedule.steps[step + 1..].iter().any(|step| matches!(step.op, Op::Attend { .. }));
        self.seat.is_proved[several] = is_last;
        Ok(())
    }

    /// The pass's rows of a slot.
    fn rows_of(&mut self, slot: Slot) -> Result<Vec<f32>> {
        let (rows, mut values) = (self.rows.len(), Vec::new());
        let read = |words: &mut [u32]| {
            let arena: &[f32] = bytemuck::cast_slice(words);
            values.extend((0..rows).flat_map(|row| slot_row(arena, slot, row)));
        };
        self.queue.edit(&mut self.arena, read)?;
        Ok(values)
    }

    fn run_step_of(&mut self, guest: &mut dyn Guest, step: usize) -> Result<()> {
        guest.begin(&self.rows);
        if let Op::Attend { kv, .. } = self.schedule.steps[step].op {
            self.copy_kv(guest, &kv)?;
        }
        let op = &self.schedule.steps[step].op;
        let mut ran = Ok(());
        self.queue.edit(&mut self.arena, |words| ran = guest.run(op, bytemuck::cast_slice_mut(words)))?;
        ran
    }

    /// Copies what the pass's rows see of a layer's keys and values to the guest's own memory: all of it for every pass, since
    /// other passes, and whoever restores pages, may have written any of it. Where the host does not map them, they go
    /// through staging.
    fn copy_kv(&mut self, guest: &mut dyn Guest, layer: &KvLayer) -> Result<()> {
        let part = layer.elements() * layer.element.bytes();
        let offset = layer.place * part;
        let layout = *self.schedule.kv.pool(layer.pool);
        let of = |row: &Row| self.pages.visible(layer.pool, row.sequence as usize, row.position as usize);
        let mut pages: Vec<PageId> = Vec::new();
        for entry in self.rows.iter().flat_map(of) {
            guest.set_page(&entry);
            pages.push(entry.page);
        }
        pages.sort_unstable();
        pages.dedup();
        let mut copied = Vec::new();
        for page in pages {
            let (block, start) = layout.in_block(page as usize);
            // SAFETY: everything submitted has been waited for, so the device does not write the cache.
            match unsafe { self.kv[layer.pool as usize][block].bytes() } {
                Some(bytes) => {
                    let first = start as usize + offset * layout.block_pages;
                    guest.copy_kv(layer, page, layer.element, &bytes[first..first + part]);
                }
                None => {
                    copied.resize(part, 0);
                    self.read_from_page(layer.pool, page, offset, &mut copied)?;
                    guest.copy_kv(layer, page, layer.element, &copied);
                }
            }
        }
        Ok(())
    }
}
