//! Tuning of the executor's kernels: for seconds before the first pass, then between passes while the executor is idle.
//!
//! Between passes only products run, on the last pass's activations: the KV cache and the page tables stay unchanged.
//! Lists with new choices are baked before the next pass begins.

use super::Replay;
use super::driver::{Driver, KernelCompiler, Readiness};
use super::options::Tune;
use super::passes::tuned;
use crate::executor::measure::TuningState;
use crate::executor::weights::Progress;
use crate::lower::PassKind;
use crate::lower::caps::Caps;
use crate::lower::kernels::Kernel;
use crate::lower::target::Target;
use crate::replay::measure::agenda::Allowance;
use crate::replay::measure::bed::QueueBed;
use crate::replay::measure::choices::Choices;
use crate::replay::measure::fastest::warm_up;
use crate::replay::measure::timing::Timing;
use crate::replay::measure::tuning::{Advance, Tuner, Tuning, TuningGain};
use crate::schedule::Schedule;
use crate::{Error, Result};
use std::time::{Duration, Instant};

/// Most time of compiling and tuning together before the first pass by [`Tune::Auto`].
const BEFORE_FIRST_PASS: Duration = Duration::from_secs(3);
/// The longest tuning before the first pass beyond the time of loading, so that a small model starts fast.
const BEYOND_LOADING: Duration = Duration::from_secs(1);
/// The least time for which tuning begins. It does not begin with less.
const LEAST_TIME: Duration = Duration::from_millis(300);
/// The longest wait for the device's clocks in a call between passes.
const PATIENCE: Duration = Duration::from_millis(40);
/// Time to wait for kernels that are being compiled.
const COMPILING: Duration = Duration::from_millis(20);

/// The state of the tuning of an executor's kernels.
pub(super) struct KernelTuning<D: Driver> {
    /// The state of tuning, if there is something to choose.
    tuning: Option<Tuning>,
    timing: Timing<D>,
    /// The kinds of pass whose kernels are tuned.
    kinds: Vec<PassKind>,
    /// True if choices remain that idle time can be used for.
    improves: bool,
    /// True if kernels may be in compilation for tuning.
    pub compiles: bool,
}

impl<D: Driver> KernelTuning<D> {
    /// Tuning before any choice is made.
    pub fn new(schedule: &Schedule, caps: &Caps) -> KernelTuning<D> {
        let kinds = tuned(&schedule.extent).collect();
        KernelTuning { tuning: None, timing: Timing::new(warm_up(caps)), kinds, improves: false, compiles: false }
    }

    /// Whether the choices in `target` are defaults, partly measured or complete.
    pub fn state(&self, target: &Target) -> TuningState {
        match self.tuning.is_some() {
            true if self.improves => TuningState::Open,
            true if !target.tuned.is_empty() => TuningState::Tuned,
            _ => TuningState::Untuned,
        }
    }

    /// Stops the compilation of kernels for tuning, because a pass begins.
    #[cold]
    pub fn stop_compiling(&mut self, driver: &mut D) {
        driver.compiler().request(&[]);
        self.compiles = false;
    }
}

impl<D: Driver> Replay<D> {
    /// Takes the choices that an earlier load stored in a file.
    pub(super) fn recall(&mut self) -> Result<()> {
        if self.options.tunes(&self.target).is_none() || !self.queue.driver.caps().has_clock {
            return Ok(());
        }
        self.tuning.tuning = Some(Tuning::new(Choices::open(self.queue.driver.caps())));
        let old = self.target.clone();
        self.with_tuner(Instant::now(), Allowance::ALL, &mut |_, _| {}, |tuner, target| {
            tuner.recall(target);
            Ok(())
        })?;
        self.take_back(&old);
        Ok(())
    }

    /// Puts the choices back to those of `old` if some pass, not only those that were measured, would lack a kernel.
    /// Returns whether it did.
    fn take_back(&mut self, old: &Target) -> bool {
        if !self.queue.driver.compiler().may_lack() {
            return false;
        }
        let addresses = self.memory.addresses();
        let kernels = self.baking(&addresses).kernels();
        let mut compiler = self.queue.driver.compiler();
        let lacked = kernels.into_iter().find(|&kernel| compiler.readiness(kernel) == Readiness::LeftOut);
        drop(compiler);
        if let Some(lacked) = lacked {
            log::warn!("tuned choices are not used: there is no code for {}", lacked.module.name());
            self.target = old.clone();
        }
        lacked.is_some()
    }

    /// Compiles the passes' kernels.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled.
    pub(super) fn compile(&mut self) -> Result<()> {
        let start = Instant::now();
        let addresses = self.memory.addresses();
        let kernels: Vec<Kernel> = self.baking(&addresses).kernels().into_iter().collect();
        self.queue.driver.compile(&kernels)?;
        log::info!("{} kernels are there after {:.2} s", kernels.len(), start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Tunes before the first pass, as the options say. `start`: when compiling began. `loading`: the time that the
    /// weights took.
    pub(super) fn tune(&mut self, start: Instant, loading: Duration, progress: &Progress) -> Result<()> {
        let Some(tune) = self.options.tunes(&self.target).filter(|_| self.tuning.tuning.is_some()) else {
            return Ok(());
        };
        let most = BEFORE_FIRST_PASS.min(loading + BEYOND_LOADING);
        let allowance = match tune {
            Tune::Now => Allowance::ALL,
            Tune::Auto => Allowance::until(most),
            Tune::Idle | Tune::Off => Allowance { measurements: 0, waits: false, ..Allowance::ALL },
        };
        self.tuning.improves = matches!(tune, Tune::Auto | Tune::Idle);
        let old = self.target.clone();
        if tune == Tune::Off || tune == Tune::Auto && start.elapsed() + LEAST_TIME > most {
            return Ok(());
        }
        if tune == Tune::Now {
            self.tuning.timing.be_patient();
        }
        let began = Instant::now();
        let mut first = true;
        let mut say = |left: usize, seconds: f64| {
            progress.set_tuning(left, seconds);
            if std::mem::take(&mut first) && left > 0 {
                log::info!("tuning has {left} questions, which take about {seconds:.0} s in all");
            }
        };
        let (advance, measured) = self
            .with_tuner(start, allowance, &mut say, |tuner, target| {
                let before = tuner.tuning.measurements();
                let advance = tuner.advance(target)?;
                Ok((advance, tuner.tuning.measurements() - before))
            })?
            .unwrap_or((Advance::Done, 0));
        progress.set_tuning(0, 0.0);
        self.take_back(&old);
        self.tuning.improves &= advance == Advance::Paused;
        if measured > 0 {
            log::info!("tuned by {measured} measurements in {:.2} s", began.elapsed().as_secs_f64());
        }
        // The last timed list may write to the KV cache.
        self.tuning.timing.free(&self.queue);
        Ok(())
    }

    /// Makes one measurement in idle time, for [`crate::Executor::improve`].
    pub(super) fn improve_once(&mut self) -> Result<Option<Duration>> {
        if !self.tuning.improves {
            return Ok(None);
        }
        self.settle()?;
        self.flight.forget();
        let old = self.target.clone();
        let advanced = self.with_tuner(Instant::now(), Allowance::ONE, &mut |_, _| {}, |tuner, target| {
            let before = tuner.tuning.measurements();
            let advance = tuner.advance(target)?;
            Ok((advance, tuner.tuning.measurements() > before))
        })?;
        let Some((advance, has_measured)) = advanced else { return Ok(None) };
        self.take_choices(&old)?;
        self.tuning.compiles = self.queue.driver.compiler().is_busy();
        if advance == Advance::Done {
            self.tuning.improves = false;
            self.tuning.timing.free(&self.queue);
            self.queue.driver.compiler().save();
            return Ok(None);
        }
        Ok(Some(if has_measured || !self.tuning.compiles { Duration::ZERO } else { COMPILING }))
    }

    /// Bakes those lists again whose tiles differ from those of `old`.
    fn take_choices(&mut self, old: &Target) -> Result<()> {
        let new = &self.target;
        let mut rows: Vec<usize> = Vec::new();
        rows.extend(new.tuned.iter().filter(|(key, tile)| old.tuned.get(key) != Some(tile)).map(|(key, _)| key.1.rows));
        rows.extend(new.chosen.iter().filter(|(rows, way)| old.chosen.get(rows) != Some(way)).map(|(&rows, _)| rows));
        rows.extend(new.gated.iter().filter(|(rows, is)| old.gated.get(rows) != Some(is)).map(|(&rows, _)| rows));
        if rows.is_empty() || self.take_back(old) {
            return Ok(());
        }
        let addresses = self.memory.addresses();
        let mut passes = std::mem::take(&mut self.passes);
        let rebaked = self.baking(&addresses).rebake(&mut passes, &rows, old);
        self.passes = passes;
        rebaked
    }

    /// The gain of tuning: the time of each kind of pass with and without the choices. No pass may have run yet.
    ///
    /// # Errors
    /// Device: the device failed.
    pub(super) fn measure_gains(&mut self) -> Result<Vec<TuningGain>> {
        let mut untuned = self.options.target(self.queue.driver.caps());
        untuned.units = self.target.units;
        let Some(tuning) = &mut self.tuning.tuning else { return Ok(Vec::new()) };
        let known = std::mem::replace(tuning, Tuning::new(Choices::unkept()));
        self.with_tuner(Instant::now(), Allowance::ALL, &mut |_, _| {}, |tuner, _| {
            tuner.recall(&mut untuned);
            Ok(())
        })?;
        self.tuning.tuning = Some(known);
        let gains = self.with_tuner(Instant::now(), Allowance::ALL, &mut |_, _| {}, |tuner, target| {
            tuner.compare(target, &untuned)?;
            Ok(tuner.tuning.gains().to_vec())
        })?;
        self.tuning.timing.free(&self.queue);
        Ok(gains.unwrap_or_default())
    }

    /// Lets tuning work on this executor's device and memory. `None` if there is nothing to tune.
    fn with_tuner<T>(
        &mut self,
        start: Instant,
        allowance: Allowance,
        progress: &mut dyn FnMut(usize, f64),
        work: impl FnOnce(&mut Tuner<'_>, &mut Target) -> Result<T>,
    ) -> Result<Option<T>> {
        let addresses = self.memory.addresses();
        let KernelTuning { tuning: Some(tuning), timing, kinds, .. } = &mut self.tuning else { return Ok(None) };
        let tries_relay = self.queue.driver.caps().tries_relay && self.options.relay.is_none();
        let mut bed = QueueBed {
            queue: &mut self.queue,
            schedule: &self.schedule,
            layout: &self.layout,
            arena: &mut self.memory.arena,
            timing,
            start,
            patience: allowance.keeps_kv.then_some(PATIENCE),
            fills: !allowance.keeps_kv,
            ready: None,
        };
        let mut tuner = Tuner {
            tuning,
            bed: &mut bed,
            schedule: &self.schedule,
            layout: &self.layout,
            addresses: &addresses,
            kinds,
            submit_budget: self.options.submit_budget,
            tries_relay,
            allowance,
            cancel: &self.cancel,
            progress,
        };
        let worked = work(&mut tuner, &mut self.target);
        let finished = bed.finish();
        match (worked, finished) {
            (Ok(value), Ok(())) => Ok(Some(value)),
            (Err(e), _) | (_, Err(e)) => Err::<_, Error>(e),
        }
    }
}
