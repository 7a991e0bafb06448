//! An offload whose results are compared with its owner's: in its first pass of one row and its first of several in
//! every step, later in one step of each pass. If it fails or its results differ, the owner goes on without it, and it
//! is loaded again after a while.

use crate::Result;
use crate::error::{Error, Setting, text};
use crate::executor::measure::relative_rms;
use crate::executor::offload::{
    KvBlocks, Offload, OffloadReport, OffloadStep, OffloadedPasses, PassGroup, PlacementTiming, StepOutcome,
};
use crate::executor::pages::PageChange;
use crate::executor::{PageId, Row, Tolerance, slot_row, slot_row_mut};
use crate::schedule::Schedule;
use crate::schedule::kv::KvLayer;
use crate::schedule::step::{KvType, Op, Slot};
use std::time::{Duration, Instant};

/// A function that loads an offload. It is called again after a failure.
pub type OffloadLoader = Box<dyn FnMut() -> Result<Box<dyn Offload>>>;

/// The most times that an offload is loaded again after a failure.
const MOST_RELOADS: u32 = 3;
/// Time before the first reload, while the device attends. Each further reload waits twice as long.
const FIRST_RELOAD: Duration = Duration::from_secs(60);
/// Largest deviation of an offload's row from the device's, relative to the device row's root mean square. With
/// queries, weights and values in bf16 it is 1 %.
const MOST_OFF: f64 = 0.04;

/// An offload whose results are checked, and which is replaced by the device when it fails.
pub struct CheckedOffload {
    /// The offload's name, as shown to the user.
    name: String,
    /// The steps of the schedule that the offload computes.
    steps: Vec<usize>,
    /// True if the offload is a device, which may read the KV cache where it is.
    is_device: bool,
    /// The offload; `None`: it failed, or is not loaded yet.
    raw: Option<Box<dyn Offload>>,
    passes: OffloadedPasses,
    /// Loads the offload again after a failure; `None`: a failure is final.
    reload: Option<OffloadLoader>,
    first_reload: Duration,
    /// The time at which the offload is loaded again; `None` if no reload is due.
    due: Option<Instant>,
    reloads: u32,
    failures: u32,
    /// True once the offload's results were compared in a whole pass: of one row, and of several rows.
    is_proved: [bool; 2],
    /// The step that is compared in the next pass, to detect an offload that has turned wrong.
    next_check: usize,
    /// Whether the offload reads the KV cache in place; `None`: it has not been given the cache's blocks yet.
    shares_kv: Option<bool>,
    /// True if the offload was lost or loaded since its owner baked its passes.
    has_changed: bool,
    /// The number of rows in the steps that follow.
    rows: usize,
    /// The results of the last step, until they are compared.
    results: Vec<f32>,
    /// The measurements by which the offload's passes were chosen.
    timings: Vec<PlacementTiming>,
}

impl CheckedOffload {
    /// An offload of all passes of a schedule. It needs no proof if it is not a device, and then there is no `reload`.
    pub fn new(schedule: &Schedule, raw: Box<dyn Offload>, reload: Option<OffloadLoader>) -> CheckedOffload {
        let (is_device, is_proved) = (reload.is_some(), [reload.is_none(); 2]);
        CheckedOffload { reload, is_device, is_proved, ..CheckedOffload::on_trial(schedule, Some(raw), 0) }
    }

    /// An unproved offload of all passes, or one that could not be loaded. It is not reloaded after a failure until
    /// [`CheckedOffload::keep`].
    pub(super) fn on_trial(schedule: &Schedule, raw: Option<Box<dyn Offload>>, failures: u32) -> CheckedOffload {
        let steps = (0..schedule.steps.len()).filter(|at| OffloadStep::accepts(&schedule.steps[*at])).collect();
        CheckedOffload {
            name: raw.as_ref().map_or(String::new(), |raw| raw.name().to_owned()),
            steps,
            is_device: true,
            raw,
            passes: OffloadedPasses::ALL,
            reload: None,
            first_reload: FIRST_RELOAD,
            due: None,
            reloads: 0,
            failures,
            is_proved: [false; 2],
            next_check: 0,
            shares_kv: None,
            has_changed: false,
            rows: 0,
            results: Vec::new(),
            timings: Vec::new(),
        }
    }

    /// An offload that is loaded before the next pass, and again after a failure, first after `first_reload`.
    #[cfg(any(feature = "testing", test))]
    pub fn due(schedule: &Schedule, load: OffloadLoader, first_reload: Duration, failures: u32) -> CheckedOffload {
        let (reload, due) = (Some(load), Some(Instant::now()));
        CheckedOffload { reload, first_reload, due, ..CheckedOffload::on_trial(schedule, None, failures) }
    }

    /// Keeps the offload on trial for `passes`; after a failure, `load` loads it again. Without any passes it is
    /// dropped, which does not count as a failure.
    pub(super) fn keep(&mut self, passes: OffloadedPasses, timings: Vec<PlacementTiming>, load: OffloadLoader) {
        (self.passes, self.timings) = (passes, timings);
        match passes.any() {
            true => self.reload = Some(load),
            false => self.raw = None,
        }
    }

    /// Whether the owner also computes this step. Until the offload is proved these are all steps; afterwards one in
    /// each pass, if it can be reloaded.
    fn checks(&self, step: &OffloadStep) -> bool {
        !self.is_proved[usize::from(step.several)] || (self.reload.is_some() && step.index == self.next_check)
    }

    /// Records that offload and owner agree in a step for all rows of a pass. The next pass checks the layer before;
    /// after the first layer, the last one again.
    fn note_agreed(&mut self, step: &OffloadStep) {
        let last = self.steps.last().copied().unwrap_or(step.index);
        let is_proved = &mut self.is_proved[usize::from(step.several)];
        if *is_proved {
            self.next_check = self.steps.iter().copied().rfind(|at| *at < step.index).unwrap_or(last);
        } else if step.index == last {
            (*is_proved, self.next_check) = (true, last);
        }
    }

    /// Drops the offload, which frees its device's resources.
    fn lose(&mut self, e: &Error) {
        (self.raw, self.has_changed) = (None, true);
        let next = match self.note_failure() {
            Some(wait) => format!("tried again in {} s", wait.as_secs()),
            None => "not tried again".into(),
        };
        log::warn!("{} failed, and attention goes on on the GPU; it is {next}: {e}", self.name);
    }

    /// Counts a failure. Returns the time until the reload, if there will be one.
    fn note_failure(&mut self) -> Option<Duration> {
        self.failures += 1;
        let is_tried = self.reload.is_some() && self.reloads < MOST_RELOADS;
        let wait = is_tried.then(|| self.first_reload * 2u32.saturating_pow(self.reloads));
        self.due = wait.map(|wait| Instant::now() + wait);
        wait
    }

    /// Loads the offload again, after a failure.
    #[cold]
    fn try_again(&mut self) {
        self.due = None;
        let Some(reload) = &mut self.reload else { return };
        self.reloads += 1;
        match reload() {
            Ok(raw) => {
                log::info!("{} is tried again", raw.name());
                self.name = raw.name().to_owned();
                (self.raw, self.is_proved, self.shares_kv, self.has_changed) = (Some(raw), [false; 2], None, true);
            }
            Err(e) => {
                self.note_failure();
                log::info!("attention stays on the GPU: {e}");
            }
        }
    }

    /// Lets the offload work; if it fails, it is lost.
    fn with_raw(&mut self, work: impl FnOnce(&mut dyn Offload) -> Result<()>) {
        if let Some(Err(e)) = self.raw.as_deref_mut().map(work) {
            self.lose(&e);
        }
    }

    /// The values of the rows of a slot.
    fn values(&self, arena: &[f32], slot: Slot) -> Vec<f32> {
        (0..self.rows).flat_map(|row| slot_row(arena, slot, row)).copied().collect()
    }
}

impl Offload for CheckedOffload {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> Option<String> {
        self.raw.as_ref()?;
        let of =
            if self.passes == OffloadedPasses::ALL { String::new() } else { format!(" of {}", self.passes.name()) };
        log::info!("attention of {} is {}'s: no such pass runs ahead", self.passes.name(), self.name);
        Some(format!("attention{of} on {}", self.name))
    }

    fn runs_in(&self, passes: PassGroup) -> bool {
        self.raw.is_some() && self.passes.contain(passes)
    }

    fn renew(&mut self) -> bool {
        if self.due.is_some_and(|due| Instant::now() >= due) {
            self.try_again();
        }
        std::mem::take(&mut self.has_changed)
    }

    /// The blocks are given to the offload once after each load.
    fn share_kv(&mut self, cache: &KvBlocks<'_>) -> Result<bool> {
        let Some(raw) = self.raw.as_mut().filter(|_| self.is_device) else { return Ok(false) };
        if let Some(shares) = self.shares_kv {
            return Ok(shares);
        }
        let (shared, name) = (raw.share_kv(cache), &self.name);
        match &shared {
            Ok(true) => log::info!("{name} reads the KV cache where it is"),
            Ok(false) => log::info!(
                "{name} takes a copy of the KV cache, whose elements are {}: those of bf16 it may read where they are",
                cache.element.name()
            ),
            Err(e) => log::info!("{name} takes a copy of the KV cache: {e}"),
        }
        Ok(*self.shares_kv.insert(shared.unwrap_or(false)))
    }

    fn needs_owner(&self, step: &OffloadStep) -> bool {
        self.raw.is_none() || self.checks(step)
    }

    fn begin(&mut self, rows: &[Row]) {
        self.rows = rows.len();
        self.raw.iter_mut().for_each(|raw| raw.begin(rows));
    }

    fn set_page(&mut self, entry: &PageChange) {
        self.raw.iter_mut().for_each(|raw| raw.set_page(entry));
    }

    fn copy_kv(&mut self, layer: &KvLayer, page: PageId, element: KvType, bytes: &[u8]) -> Result<()> {
        self.with_raw(|raw| raw.copy_kv(layer, page, element, bytes));
        Ok(())
    }

    /// If the offload fails, the owner computes this step and later ones: an offload only reads the KV cache, and the
    /// owner's step overwrites all of its output.
    fn run(&mut self, step: &OffloadStep, arena: &mut [f32]) -> Result<StepOutcome> {
        self.with_raw(|raw| raw.run(step, arena).map(drop));
        if self.raw.is_none() {
            return Ok(StepOutcome::Failed);
        }
        let Op::Attend { out, .. } = step.op else { return Ok(StepOutcome::Done) };
        if !self.checks(step) {
            return Ok(StepOutcome::Done);
        }
        self.results = self.values(arena, out);
        Ok(StepOutcome::Compare)
    }

    /// Until the offload is proved the owner's results are used, afterwards the offload's, so that a reply does not
    /// depend on which layer is checked.
    fn compare(&mut self, step: &OffloadStep, arena: &mut [f32]) {
        let Op::Attend { out, .. } = step.op else { return };
        let (results, own) = (std::mem::take(&mut self.results), self.values(arena, out));
        for (result, own) in results.chunks(out.width).zip(own.chunks(out.width)) {
            let off = relative_rms(result, own);
            // For a row of zeros the deviation is 0/0 or infinite.
            if !(off <= MOST_OFF || result == own) {
                let what = format!("its attention is off the GPU's by {:.1} % in step {}", 100.0 * off, step.index);
                return self.lose(&Error::device(what, text!("report this, and use ", Setting::NoNpu)));
            }
        }
        if self.is_proved[usize::from(step.several)] {
            for (row, values) in results.chunks(out.width).enumerate() {
                slot_row_mut(arena, out, row).copy_from_slice(values);
            }
        }
        if step.is_last {
            self.note_agreed(step);
        }
    }

    fn raw(&mut self) -> Option<&mut dyn Offload> {
        self.raw.as_deref_mut()
    }

    fn tolerance(&self, op: &Op) -> Tolerance {
        self.raw.as_ref().map_or(Tolerance::F32, |raw| raw.tolerance(op))
    }

    fn report(&self) -> Option<OffloadReport> {
        let was_there = self.raw.is_some() || self.failures > 0 || !self.timings.is_empty();
        let attends = if self.raw.is_some() { self.passes } else { OffloadedPasses::NONE };
        was_there.then_some(OffloadReport { attends, failures: self.failures })
    }

    fn timings(&self) -> &[PlacementTiming] {
        &self.timings
    }
}
