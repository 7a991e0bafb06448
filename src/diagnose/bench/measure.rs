//! The measurement: runs passes through an executor, times them by the host's clock, and takes bytes and operations
//! from the schedule's costs.

use super::drafts::Policy;
use super::kernels::KernelTime;
use super::roof::{Ceilings, MeasuredRates};
use super::stats::Sample;
use super::timeline::EngineTimeline;
use super::usage::CpuTime;
use super::{Case, Work};
use crate::Result;
use crate::diagnose::energy::{Energy, EnergyMeter};
use crate::executor::{Executor, ExecutorExt, HeadRows, Measure, Row};
use crate::machine::files::Files;
use crate::schedule::choice::SampleRequest;
use crate::schedule::cost::step_cost;
use crate::schedule::{Cost, PassShape, Schedule, Segment};
use crate::sequence::chooser::not_finite;
use crate::sequence::draft::Proposer;
use crate::sequence::{Chooser, Session, counts};
use crate::text::SamplerConfig;
use std::ops::Range;
use std::time::Instant;

/// Tokens that a sequence decodes before anything is timed.
const WARM_UP_TOKENS: usize = 8;

/// The measurements of one line of a bench.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchLine {
    /// The work that the line times.
    pub case: Case,
    /// The number of tokens that all sequences take in one repetition.
    pub tokens: usize,
    /// The number of passes in one repetition.
    pub passes: usize,
    /// The bytes and the operations of one repetition.
    pub cost: Cost,
    /// The seconds that each repetition took.
    pub seconds: Sample,
    /// Rates of the median repetition. Those of the fastest one are checked against the ceilings too.
    pub rates: MeasuredRates,
    /// The number of submits to the device for each token.
    pub submits_per_token: f64,
    /// CPU seconds per token: of all the process's threads, and of the submitting thread alone.
    pub cpu_per_token: CpuTime,
    /// Share of the time in which the device was busy, by the device's clock. `None` without such a clock.
    pub busy: Option<f64>,
    /// Energy per token, over all repetitions. `None` if unknown.
    pub energy_per_token: Option<Energy>,
    /// The times of the pass's kernels, if requested.
    pub kernels: Vec<KernelTime>,
    /// The engines' activity during its pass, if requested.
    pub timeline: Option<EngineTimeline>,
}

impl BenchLine {
    /// Tokens per second of each repetition.
    pub fn tokens_per_second(&self) -> Sample {
        Sample::new(self.seconds.values.iter().map(|s| self.tokens as f64 / s))
    }

    /// Seconds of a pass, from the median repetition.
    pub fn pass_seconds(&self) -> f64 {
        self.seconds.median() / self.passes as f64
    }
}

/// Bytes and operations of a pass, with the head or without.
pub fn pass_cost(schedule: &Schedule, pass: PassShape, head: bool) -> Cost {
    let is_run = |segment: Segment| segment.is_in_all() && (head || segment != Segment::Head);
    schedule.steps.iter().filter(|s| is_run(s.segment)).map(|s| step_cost(s, pass)).sum()
}

/// The shape of a pass with `rows` rows of one sequence and one row for each of `beside` others, with the logits of the
/// last row and of the others.
fn of_rows(rows: usize, beside: usize, depth: usize) -> PassShape {
    match beside {
        0 => PassShape::Prefill { rows, depth },
        sequences => PassShape::Mixed { chunk: rows, depth, ends: true, sequences, beside: depth },
    }
}

/// A loaded model whose passes are timed.
pub struct Bench<'a> {
    pub(super) executor: &'a mut dyn Measure,
    pub(super) ceilings: Ceilings,
    /// Positions of each sequence that a prefill has filled with keys and values.
    filled: Vec<usize>,
    /// The choosers of sequences that sample; empty where each takes its argmax.
    choosers: Vec<Chooser>,
    /// The draft model, if the time that it takes is measured too.
    pub(super) draft: Option<Box<dyn Proposer>>,
    /// The state of drafting for the current line.
    policy: Policy,
    /// The energy meter; `None` if no energy can be read.
    energy: Option<EnergyMeter>,
    /// Called with a description of each measurement.
    pub(super) progress: &'a dyn Fn(&str),
}

/// The time and the passes of one repetition.
pub(super) struct Repetition {
    seconds: f64,
    /// Passes with their bytes and operations, for work whose size is known only afterwards.
    pub(super) passes: usize,
    pub(super) cost: Cost,
    cpu: CpuTime,
    submits: u64,
    busy: f64,
}

impl<'a> Bench<'a> {
    /// Measures the ceilings. `matrix` measures the matrix units' rate in operations per second.
    ///
    /// # Errors
    /// Device: it failed.
    pub fn new(
        executor: &'a mut dyn Measure,
        matrix: impl FnOnce() -> Result<Option<f64>>,
        progress: &'a dyn Fn(&str),
    ) -> Result<Bench<'a>> {
        progress("measuring the ceilings");
        // Reading raises an idle GPU's clocks for the matrix test, and that test in turn for reading: an H200 just out
        // of idle once read at less than half of its rate for 300 ms.
        let (idle, matrix) = (executor.measure_read_ceiling()?, matrix()?);
        let ceilings = Ceilings { read: executor.measure_read_ceiling()?.max(idle), matrix };
        let filled = vec![0; executor.schedule().extent.sequences];
        let energy = EnergyMeter::start(&Files::system(), !executor.is_on_cpu());
        let (choosers, draft, policy) = (Vec::new(), None, Policy::default());
        Ok(Bench { executor, ceilings, filled, choosers, draft, policy, energy, progress })
    }

    /// Makes every decoding sequence sample by the default settings, each with its own seed.
    ///
    /// # Errors
    /// None: the default settings are valid.
    pub fn sample(&mut self) -> Result<()> {
        let vocab = self.executor.schedule().shape.vocab;
        let config = |seed| SamplerConfig { seed: Some(seed), ..SamplerConfig::default() };
        let seeds = 0..self.filled.len() as u64;
        self.choosers = seeds.map(|seed| Chooser::new(config(seed), vocab)).collect::<Result<_>>()?;
        Ok(())
    }

    /// The highest rates that the machine allows, by which lines are judged.
    pub fn ceilings(&self) -> Ceilings {
        self.ceilings
    }

    /// Rates of some work. A rate above the read ceiling makes the ceiling be measured again, after work this time: the
    /// device may have read below its clocks at first.
    fn judge(&mut self, case: Case, cost: Cost, seconds: f64) -> Result<MeasuredRates> {
        if self.ceilings.rates(cost, seconds).read_share > 1.0 {
            self.ceilings.read = self.executor.measure_read_ceiling()?.max(self.ceilings.read);
        }
        self.ceilings.judge(&case.name(), cost, seconds)
    }

    /// Rates of a line against the current ceilings, which a later line may have raised.
    pub fn rates(&self, line: &BenchLine) -> MeasuredRates {
        self.ceilings.rates(line.cost, line.seconds.median())
    }

    /// Measures one line `repetitions` times.
    ///
    /// # Errors
    /// Failed: a rate is above the roofline, or logits are not finite. Device: it failed.
    pub fn measure(&mut self, case: Case, repetitions: usize) -> Result<BenchLine> {
        self.fill(case)?;
        (self.progress)(&format!("{}: warming up", case.name()));
        let mut next = vec![0u32; self.filled.len()];
        match case.work {
            // Repeats until the chunk size is settled: the first runs show how many rows stay within the submit budget.
            Work::Prefill(_) => loop {
                let rows = self.executor.prefill_rows();
                self.run_once(case, &mut next)?;
                if self.executor.prefill_rows() == rows {
                    break;
                }
            },
            Work::Rows { rows, beside, passes } => {
                let work = Work::Rows { rows, beside, passes: passes.min(WARM_UP_TOKENS) };
                self.run_once(Case { work, ..case }, &mut next)?;
            }
            Work::Decode { sequences, tokens } => {
                next.iter_mut().enumerate().for_each(|(i, t)| *t = self.token(i, case.depth));
                let work = Work::Decode { sequences, tokens: tokens.min(WARM_UP_TOKENS) };
                self.run_once(Case { work, ..case }, &mut next)?;
            }
            // Repeats until passes of every number of rows have run.
            Work::Draft { .. } => {
                self.policy = Policy::default();
                self.run_once(case, &mut next)?;
            }
        };
        self.check_finite(case)?;
        let (tokens, mut passes, mut cost) = self.size(case);
        let chunk = self.executor.prefill_rows();
        let before = self.energy.as_ref().map(EnergyMeter::mark);
        let mut done = Vec::with_capacity(repetitions);
        for i in 0..repetitions {
            (self.progress)(&format!("{}: repetition {} of {repetitions}", case.name(), i + 1));
            done.push(self.run_once(case, &mut next)?);
        }
        let after = self.energy.as_ref().map(EnergyMeter::mark);
        let used = after.zip(before).and_then(|(after, before)| after.since(before)?.per(tokens * repetitions));
        if self.executor.prefill_rows() != chunk {
            // The device has slowed down and needs smaller chunks, so the repetitions are not comparable. Start again.
            return self.measure(case, repetitions);
        }
        let seconds = Sample::new(done.iter().map(|r| r.seconds));
        if let Work::Draft { .. } = case.work {
            // Repetitions may differ in their drafts: takes the slowest one that is not slower than the median.
            let median =
                done.iter().filter(|r| r.seconds <= seconds.median()).max_by(|a, b| a.seconds.total_cmp(&b.seconds));
            (passes, cost) = median.map_or((0, cost), |r| (r.passes, r.cost));
            done.iter().try_for_each(|r| self.judge(case, r.cost, r.seconds).map(drop))?;
        } else {
            self.judge(case, cost, seconds.min())?;
        }
        let rates = self.judge(case, cost, seconds.median())?;
        let sum = |f: fn(&Repetition) -> f64| done.iter().map(f).sum::<f64>();
        let all_tokens = (tokens * repetitions) as f64;
        let busy = sum(|r| r.busy) / sum(|r| r.seconds);
        Ok(BenchLine {
            case,
            tokens,
            passes,
            cost,
            rates,
            submits_per_token: sum(|r| r.submits as f64) / all_tokens,
            cpu_per_token: CpuTime {
                process: sum(|r| r.cpu.process) / all_tokens,
                thread: sum(|r| r.cpu.thread) / all_tokens,
            },
            // A device without a clock reports 0.
            busy: (busy > 0.0).then_some(busy),
            seconds,
            energy_per_token: used,
            kernels: Vec::new(),
            timeline: None,
        })
    }

    /// The tokens, the passes and the cost of one repetition.
    fn size(&self, case: Case) -> (usize, usize, Cost) {
        let (schedule, chunk) = (self.executor.schedule(), self.executor.prefill_rows());
        let mut cost = Cost::default();
        match case.work {
            Work::Prefill(tokens) => {
                for first in (0..tokens).step_by(chunk) {
                    let rows = chunk.min(tokens - first);
                    let pass = PassShape::Prefill { rows, depth: case.depth + first };
                    cost += pass_cost(schedule, pass, first + rows == tokens);
                }
                (tokens, tokens.div_ceil(chunk), cost)
            }
            Work::Rows { rows, beside, passes } => {
                for _ in 0..passes {
                    cost += pass_cost(schedule, of_rows(rows, beside, case.depth), true);
                }
                ((rows + beside) * passes, passes, cost)
            }
            Work::Decode { sequences, tokens } => {
                for i in 0..tokens {
                    cost += pass_cost(schedule, PassShape::Decode { sequences, depth: case.depth + i }, true);
                }
                (sequences * tokens, tokens, cost)
            }
            // How many passes drafts take is known after the run.
            Work::Draft { sequences, tokens, .. } => (sequences * tokens, 0, cost),
        }
    }

    /// A token for a position of a sequence: spread over the vocabulary, and the same in every run.
    fn token(&self, sequence: usize, position: usize) -> u32 {
        let mixed = (sequence as u64 * 0x1_0001 + position as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed >> 32) % self.executor.schedule().shape.vocab as u64) as u32
    }

    /// Prefills every sequence of a case up to its depth, from where it is.
    pub(super) fn fill(&mut self, case: Case) -> Result<()> {
        for sequence in 0..case.sequences() {
            let at = self.filled[sequence];
            if at >= case.depth {
                continue;
            }
            let progress = self.progress;
            let mut done = at;
            let mut session = self.session(sequence, at);
            let tokens = self.tokens(sequence, at..case.depth);
            session.prefill_with(self.executor, &tokens, &mut |executor, rows, _| {
                progress(&format!("prefilling sequence {sequence}: {done} of {}", case.depth));
                done += rows.len();
                executor.forward(rows, None)
            })?;
            self.filled[sequence] = case.depth;
        }
        Ok(())
    }

    pub(super) fn tokens(&self, sequence: usize, positions: Range<usize>) -> Vec<u32> {
        positions.map(|p| self.token(sequence, p)).collect()
    }

    /// A session at `depth`, to which its sequence has been filled.
    fn session(&self, sequence: usize, depth: usize) -> Session {
        Session::resume(sequence as u32, self.tokens(sequence, 0..depth))
    }

    fn rows(&self, sequence: usize, positions: Range<usize>) -> Vec<Row> {
        let row = |p| Row { token: self.token(sequence, p), position: p as u32, sequence: sequence as u32 };
        positions.map(row).collect()
    }

    /// `rows` rows of the first sequence and one row for each of `beside` others, at a depth.
    fn mixed_rows(&self, rows: usize, beside: usize, depth: usize) -> Vec<Row> {
        let others = (1..=beside).flat_map(|sequence| self.rows(sequence, depth..depth + 1));
        self.rows(0, depth..depth + rows).into_iter().chain(others).collect()
    }

    /// A pass of the case's kind and its head rows, to time single kernels with.
    pub(super) fn pass_of(&self, case: Case) -> (Vec<Row>, HeadRows, PassShape) {
        let depth = case.depth;
        match case.work {
            Work::Prefill(tokens) => {
                let rows = tokens.min(self.executor.prefill_rows());
                let head = HeadRows { first: rows - 1, count: 1 };
                (self.rows(0, depth..depth + rows), head, PassShape::Prefill { rows, depth })
            }
            Work::Rows { rows, beside, .. } => {
                let head = HeadRows { first: rows - 1, count: 1 + beside };
                (self.mixed_rows(rows, beside, depth), head, of_rows(rows, beside, depth))
            }
            Work::Decode { sequences, .. } => {
                let rows = (0..sequences).flat_map(|s| self.rows(s, depth..depth + 1)).collect();
                (rows, HeadRows { first: 0, count: sequences }, PassShape::Decode { sequences, depth })
            }
            Work::Draft { stated, sequences, .. } => {
                let most = (self.executor.schedule().extent.head_rows / sequences).max(1);
                let each = (1 + stated.most()).min(most);
                let rows: Vec<Row> = (0..sequences).flat_map(|s| self.rows(s, depth..depth + each)).collect();
                let (head, count) = (HeadRows { first: 0, count: rows.len() }, rows.len());
                (rows, head, PassShape::Verify { sequences, rows: count, depth })
            }
        }
    }

    /// Runs one repetition. A decode starts with the tokens in `next`, one per sequence, and puts the tokens that
    /// follow into it.
    fn run_once(&mut self, case: Case, next: &mut [u32]) -> Result<Repetition> {
        match case.work {
            Work::Prefill(tokens) => {
                let mut session = self.session(0, case.depth);
                let tokens = self.tokens(0, case.depth..case.depth + tokens);
                self.timed(|executor| session.prefill(executor, &tokens))
            }
            Work::Rows { passes, .. } => {
                let (rows, head, _) = self.pass_of(case);
                self.timed(|executor| {
                    for _ in 0..passes {
                        executor.forward(&rows, Some(head))?;
                        counts::count_prefilled(rows.len());
                    }
                    Ok(())
                })
            }
            Work::Decode { sequences, tokens } => {
                let head = HeadRows { first: 0, count: sequences };
                let row = |s: usize| Row { token: 0, position: 0, sequence: s as u32 };
                let mut rows: Vec<Row> = (0..sequences).map(row).collect();
                let mut choosers = std::mem::take(&mut self.choosers);
                let done = self.timed(|executor| {
                    for i in 0..tokens {
                        for (row, &token) in rows.iter_mut().zip(next.iter()) {
                            (row.token, row.position) = (token, (case.depth + i) as u32);
                        }
                        if !choosers.is_empty() {
                            let fill = &mut |row: usize, request: &mut SampleRequest<'_>| choosers[row].ask(request);
                            executor.forward_sampling(&rows, head, false, fill)?;
                        } else if i + 1 < tokens {
                            executor.forward_ahead(&rows, head)?;
                        } else {
                            executor.forward(&rows, Some(head))?;
                        }
                        counts::count_decoded(sequences);
                        for (s, token) in next.iter_mut().enumerate().take(sequences) {
                            *token = match choosers.get_mut(s) {
                                Some(chooser) => chooser.choose(executor, s)?,
                                None => executor.next(s),
                            };
                        }
                    }
                    Ok(())
                });
                self.choosers = choosers;
                done
            }
            Work::Draft { stated, sequences, tokens } => {
                let mut policy = std::mem::take(&mut self.policy);
                let done = self.run_drafts(stated, (sequences, tokens), case.depth, &mut policy);
                self.policy = policy;
                done
            }
        }
    }

    /// Calls `run` and reads all clocks before and after it.
    pub(super) fn timed(&mut self, run: impl FnOnce(&mut dyn Executor) -> Result<()>) -> Result<Repetition> {
        let (submits, busy) = (self.executor.submits(), self.executor.busy());
        let cpu = CpuTime::now()?;
        let start = Instant::now();
        run(self.executor)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Repetition {
            seconds,
            passes: 0,
            cost: Cost::default(),
            cpu: CpuTime::now()?.since(cpu),
            submits: self.executor.submits() - submits,
            busy: (self.executor.busy() - busy).as_secs_f64(),
        })
    }

    /// Refuses to time a model that computes nonsense: a NaN anywhere makes every logit NaN.
    fn check_finite(&mut self, case: Case) -> Result<()> {
        match (0..case.sequences()).all(|row| self.executor.is_finite(row)) {
            true => Ok(()),
            false => Err(not_finite(self.executor)),
        }
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
