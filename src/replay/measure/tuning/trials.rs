//! The trials of tuning: the time of a pass, or of a product alone, with given tiles. Results are remembered, so that a
//! call that goes on repeats no measurement.

use super::expected::RUNS;
use super::{Halt, HaltResult, PASS_SECONDS, SAMPLE, Trial, Tuner, sampled};
use crate::lower::PassKind;
use crate::lower::dispatch::{Dispatch, Edge};
use crate::lower::kernels::Kernel;
use crate::lower::target::{Target, Tile};
use crate::replay::driver::Readiness;
use crate::replay::measure::agenda::PassProduct;
use crate::schedule::Segment;
use std::time::Duration;

/// Longest single wait for a kernel.
const WAIT: Duration = Duration::from_millis(20);

impl Tuner<'_> {
    /// Seconds of a pass. Those of a long one are estimated from some of its layers.
    pub(super) fn whole_seconds(&mut self, target: &Target, kind: PassKind, tuned: bool) -> HaltResult<Option<f64>> {
        let layers = self.layers();
        let lower = |this: &Self, i: usize| this.lowering(target, kind).segment(Segment::Layer(i));
        let time = |this: &mut Self, part: usize, dispatches: Vec<Vec<Dispatch>>| {
            let trial = Trial::Whole(kind, part, tuned);
            let parts: Vec<&[Dispatch]> = dispatches.iter().map(Vec::as_slice).collect();
            this.measure(trial, kind, &parts, target.relay, f64::INFINITY, 0.0)
        };
        let first = vec![lower(self, 0)];
        let Some(first) = time(self, 0, first)? else { return Ok(None) };
        if first * layers as f64 <= PASS_SECONDS {
            let all = self.schedule.segments();
            let all = all.map(|s| self.lowering(target, kind).segment(s)).collect();
            return time(self, 1, all);
        }
        let sample = sampled(layers, ((PASS_SECONDS / first) as usize).clamp(1, SAMPLE));
        let count = sample.len();
        let sample = sample.into_iter().map(|i| lower(self, i)).collect();
        let Some(sample) = time(self, 2, sample)? else { return Ok(None) };
        let head = vec![self.lowering(target, kind).segment(Segment::Head)];
        let Some(head) = time(self, 3, head)? else { return Ok(None) };
        Ok(Some(layers as f64 * sample / count as f64 + head))
    }

    /// Mean seconds of a product's dispatches in a tile, each after the one before. The head has one dispatch, which is
    /// timed with the norm before it: with relayed dispatches, a head of many workgroups is as fast as one of few while
    /// it waits for nothing, and 1 % of a pass slower after its norm (H100). `best`: the least seconds so far.
    pub(super) fn time_alone(
        &mut self,
        target: &Target,
        kind: PassKind,
        part: &PassProduct,
        tile: Tile,
        kernels: &[Kernel],
        best: f64,
    ) -> HaltResult<Option<f64>> {
        let trial = Trial::Alone(part.key, tile);
        if let Some(&known) = self.tuning.measured.get(&trial) {
            return Ok(known);
        }
        if !self.await_kernels(&trial, kernels)? {
            return Ok(None);
        }
        let expected = if best.is_finite() { best } else { self.expected(target, part) };
        let count = self.count(part, expected);
        let mut tried = target.clone();
        tried.tuned.insert(part.key, tile);
        let own = match part.segments[0] {
            Segment::Head => self.lowering(&tried, kind).segment(Segment::Head),
            _ => self.dispatches(&tried, kind, part.key, &part.segments[..count]).into_iter().take(count).collect(),
        };
        let own: Vec<Dispatch> = own.into_iter().map(|d| Dispatch { edge: Edge::Kernels, ..d }).collect();
        let products = own.iter().filter(|d| d.product == Some(part.key)).count() as f64;
        let (cost, others) = (RUNS * expected * products, best * products);
        let seconds = self.measure(trial.clone(), kind, &[&own], target.relay, others, cost)?;
        let each = seconds.map(|s| s / products);
        self.tuning.measured.insert(trial, each);
        Ok(each)
    }

    /// Waits for the kernels of a trial. Returns whether they are compiled; a trial with a late kernel is left out.
    pub(super) fn await_kernels(&mut self, trial: &Trial, kernels: &[Kernel]) -> HaltResult<bool> {
        if self.bed.readiness(kernels) == Readiness::Ready {
            return Ok(true);
        }
        let start = self.bed.now();
        loop {
            self.cancel.check()?;
            match self.bed.readiness(kernels) {
                Readiness::Ready => break,
                Readiness::LeftOut => {
                    self.tuning.measured.insert(trial.clone(), None);
                    return Ok(false);
                }
                Readiness::Unasked => self.bed.ask_for(kernels),
                Readiness::NotYet if !self.allowance.waits || self.is_over(0.0) => return Err(Halt::Paused),
                Readiness::NotYet => self.bed.wait(WAIT)?,
            }
        }
        let (count, seconds) = self.tuning.waited;
        self.tuning.waited = (count + kernels.len(), seconds + (self.bed.now() - start).as_secs_f64());
        Ok(true)
    }

    /// True if a measurement of `seconds` would end after the time that the call may take.
    pub(super) fn is_over(&self, seconds: f64) -> bool {
        self.allowance.until.is_some_and(|until| self.bed.now().as_secs_f64() + seconds > until.as_secs_f64())
    }

    /// Seconds of layers of a pass, and of its head if the pass is run as a whole. `pass`: its expected seconds.
    pub(super) fn time_layers(
        &mut self,
        trial: Trial,
        target: &Target,
        kind: PassKind,
        pass: f64,
        best: f64,
    ) -> HaltResult<Option<f64>> {
        if let Some(&known) = self.tuning.measured.get(&trial) {
            return Ok(known);
        }
        let sample = if pass <= self.longest() { (0..self.layers()).collect() } else { self.sample(pass) };
        let lowering = self.lowering(target, kind);
        let keeps_kv = self.allowance.keeps_kv;
        let layers = sample.into_iter().map(|i| {
            let mut all = lowering.segment(Segment::Layer(i));
            all.retain(|d| !keeps_kv || !uses_kv(d));
            all
        });
        let layers: Vec<Vec<Dispatch>> = layers.collect();
        let parts: Vec<&[Dispatch]> = layers.iter().map(Vec::as_slice).collect();
        self.measure(trial, kind, &parts, target.relay, best, RUNS * self.sampled_pass(pass))
    }

    /// Measures, unless the allowance is used up. `cost`: the approximate seconds of the measurement.
    pub(super) fn measure(
        &mut self,
        trial: Trial,
        kind: PassKind,
        parts: &[&[Dispatch]],
        relay: bool,
        others: f64,
        cost: f64,
    ) -> HaltResult<Option<f64>> {
        if let Some(&known) = self.tuning.measured.get(&trial) {
            return Ok(known);
        }
        self.cancel.check()?;
        let mut kernels: Vec<Kernel> = parts.iter().flat_map(|p| p.iter().map(|d| d.kernel)).collect();
        kernels.sort_unstable();
        kernels.dedup();
        if !self.await_kernels(&trial, &kernels)? {
            return Ok(None);
        }
        if self.allowance.measurements == 0 || self.is_over(cost) {
            return Err(Halt::Paused);
        }
        let Some(seconds) = self.bed.time(kind, parts, relay, others)? else { return Err(Halt::Paused) };
        self.allowance.measurements -= 1;
        self.tuning.measured.insert(trial, Some(seconds));
        Ok(Some(seconds))
    }
}

/// True if a dispatch reads or writes the KV cache.
fn uses_kv(d: &Dispatch) -> bool {
    ["attend", "attend_matrix", "head_prepare"].contains(&d.kernel.module.source())
}
