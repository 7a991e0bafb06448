//! The number of a pass's segments in one submit, such that each submit keeps to the budget, and the number of a
//! prompt's rows in one pass.

use crate::executor::Row;
use crate::lower::target::Target;
use crate::schedule::cost::{PassShape, step_cost};
use crate::schedule::{Op, Schedule};

/// The quantities that a pass's time grows with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PassLoad {
    rows: usize,
    /// The sum of the rows' positions.
    depths: usize,
}

impl PassLoad {
    /// The load of a pass of these rows.
    pub(crate) fn of(rows: &[Row]) -> PassLoad {
        PassLoad { rows: rows.len(), depths: rows.iter().map(|r| r.position as usize).sum() }
    }
}

/// Passes of at most this many rows are not divided, whatever time they take.
const LEAST_PREFILL_ROWS: usize = 64;

/// The rows of a prompt that a pass takes, by the times of passes, and the work so far.
pub(crate) struct Pace {
    /// Rows of a prompt whose slowest layer keeps to the submit budget, by the times measured so far.
    pub(crate) prefill_rows: usize,
    attend_time: AttendTime,
    pub(crate) submits: u64,
    /// The seconds for which the device was busy with passes.
    pub(crate) busy: f64,
}

impl Pace {
    /// The pace before any pass is measured, from predicted times.
    pub(crate) fn expected(target: &Target, schedule: &Schedule) -> Pace {
        let attend_time = AttendTime::expected(target, schedule);
        Pace { prefill_rows: schedule.extent.max_rows, attend_time, submits: 0, busy: 0.0 }
    }

    /// A prompt's rows in a pass after `depth` positions. `budget`: seconds of a submit.
    pub(crate) fn rows_at(&self, depth: usize, budget: f64) -> usize {
        // Half of the budget: the cost model's times are rough.
        self.attend_time.rows(self.prefill_rows, LEAST_PREFILL_ROWS, depth, budget / 2.0)
    }

    /// Learns from the slowest layer of a pass, or for a `whole` pass from the mean layer.
    pub(crate) fn learn(&mut self, pass: PassLoad, whole: bool, slowest: f64, budget: f64) {
        // A layer cannot be divided, but rows can. Each row takes longer the deeper the context, which shortens deep
        // passes only. For a whole pass only the mean layer's time is known.
        let is_deep = !whole && pass.rows > 1 && self.attend_time.learn(pass, slowest);
        if !is_deep && slowest > budget / 2.0 && pass.rows > LEAST_PREFILL_ROWS && pass.rows >= self.prefill_rows {
            self.prefill_rows = (pass.rows / 2).max(LEAST_PREFILL_ROWS);
            let rows = pass.rows;
            log::info!("a layer of {rows} rows took {slowest:.2} s: {} at a time from now on", self.prefill_rows);
        }
    }
}

/// The number of segments that keep a submit within the budget, and the load of the pass that this was measured on. One
/// kind of pass serves few rows and many, at any depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SubmitPace {
    /// The number of segments in a submit; 0 if it was not measured.
    pub(crate) per_submit: usize,
    timed: PassLoad,
}

/// Fewest keys per row at which attention dominates the slowest layer.
const DEEP: usize = 4096;

/// The time of a layer's attention. It grows with the keys that each row sees, and its dispatch cannot be divided among
/// submits; so the deeper a prompt is, the fewer of its rows go into a pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct AttendTime {
    /// Seconds per row and key: the cost model's estimate until a deep pass was timed. 0: unknown.
    seconds: f64,
}

impl AttendTime {
    /// The cost model's estimate from the slowest layer's attention, for a long chunk after many tokens. Unknown on a
    /// device without figures.
    pub(crate) fn expected(target: &Target, schedule: &Schedule) -> AttendTime {
        let Some(figures) = target.figures else { return AttendTime::default() };
        let (rows, depth) = (schedule.extent.max_rows, schedule.extent.context);
        let pass = PassShape::Prefill { rows, depth };
        let attends = schedule.steps.iter().filter(|step| matches!(step.op, Op::Attend { .. }));
        let operations = attends.map(|step| step_cost(step, pass).operations).max().unwrap_or(0);
        let seconds = operations as f64 / figures.attention(target.units.is_some());
        AttendTime { seconds: seconds / rows as f64 / (depth + rows / 2) as f64 }
    }

    /// Learns from the time of a pass's slowest layer. Returns whether the pass is deep, so that attention dominates
    /// the time.
    pub(crate) fn learn(&mut self, pass: PassLoad, seconds: f64) -> bool {
        let keys = pass.depths / pass.rows.max(1);
        let is_deep = keys >= DEEP;
        if is_deep {
            // This includes the time of the layer's products.
            self.seconds = seconds / pass.rows as f64 / keys as f64;
        }
        is_deep
    }

    /// The number of a prompt's next rows after `depth` positions, from `least` to `most`, whose attention takes at
    /// most `budget` seconds.
    pub(crate) fn rows(&self, most: usize, least: usize, depth: usize, budget: f64) -> usize {
        let mut rows = most;
        while rows > least && depth + rows > DEEP && (rows * (depth + rows)) as f64 * self.seconds > budget {
            rows = (rows / 2).max(least);
        }
        rows
    }
}

/// A pass may be deeper than the timed one: twice as deep, plus this many positions per row. The budget allows for
/// that.
const DEEPER: usize = 4096;

impl SubmitPace {
    /// True if the measured pace applies to a pass: it has no more rows, and no much deeper ones.
    pub(crate) fn covers(&self, pass: PassLoad) -> bool {
        self.per_submit > 0 && pass.rows <= self.timed.rows && pass.depths <= 2 * self.timed.depths + pass.rows * DEEPER
    }

    /// Learns from a timed pass. A pass of fewer rows can only lower the pace of larger ones.
    pub(crate) fn learn(&mut self, pass: PassLoad, per_submit: usize) {
        let known = self.covers(pass);
        if known && pass.rows < self.timed.rows {
            self.per_submit = self.per_submit.min(per_submit);
        } else if known && per_submit == self.per_submit {
            self.timed.depths = self.timed.depths.max(pass.depths);
        } else {
            *self = SubmitPace { per_submit, timed: pass };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AttendTime, DEEPER, PassLoad, SubmitPace};
    use crate::lower::prediction;
    use crate::model::{Shape, WeightFormat, presets};
    use crate::schedule::{Extent, KvType, PassShape, Schedule};

    #[test]
    fn what_is_known_of_few_rows_says_nothing_of_many() {
        let mut pace = SubmitPace::default();
        // Rows of different sequences, all at the same depth.
        let reach = |rows, depth| PassLoad { rows, depths: rows * depth };
        assert!(!pace.covers(reach(1, 0)), "nothing is known");
        pace.learn(reach(65, 64), 62);
        assert!(pace.covers(reach(65, 64)) && pace.covers(reach(2, DEEPER)));
        assert!(!pace.covers(reach(66, 0)), "more rows");
        assert!(!pace.covers(reach(65, 129 + DEEPER)), "far deeper");
        pace.learn(reach(512, 511), 9);
        assert!(pace.covers(reach(512, 511)) && pace.per_submit == 9);
        pace.learn(reach(70, 100), 62);
        assert_eq!((pace.per_submit, pace.timed), (9, reach(512, 511)), "fewer rows, quicker");
        pace.learn(reach(70, 100), 4);
        assert_eq!((pace.per_submit, pace.timed), (4, reach(512, 511)), "fewer rows, and slow all the same");
        pace.learn(reach(70, 60_000), 2);
        assert_eq!((pace.per_submit, pace.timed), (2, reach(70, 60_000)), "where nothing was known");
        pace.learn(reach(70, 10), 2);
        assert_eq!(pace.timed, reach(70, 60_000), "a shallow pass takes nothing back");
        pace.learn(reach(70, 10), 62);
        assert_eq!((pace.per_submit, pace.timed), (62, reach(70, 10)), "shallow again, and quicker");
    }

    #[test]
    fn deep_prompts_take_fewer_rows_and_shallow_ones_as_many_as_before() {
        let unknown = AttendTime::default();
        assert_eq!(unknown.rows(512, 64, 131_072, 0.25), 512, "nothing is known");
        let mut time = AttendTime { seconds: 8e-9 };
        let rows = |time: AttendTime, depth| time.rows(512, 64, depth, 0.25);
        assert_eq!([0, 4096, 60_000, 131_072, 1 << 22].map(|depth| rows(time, depth)), [512, 512, 512, 128, 64]);
        // A shallow pass gives no estimate of attention; a deep one replaces the cost model's.
        let pass = |rows, depth| PassLoad { rows, depths: rows * depth };
        assert!(!time.learn(pass(512, 256), 10.0));
        assert_eq!(time, AttendTime { seconds: 8e-9 });
        assert!(time.learn(pass(128, 131_072), 0.03));
        assert_eq!([60_000, 131_072].map(|depth| rows(time, depth)), [512, 512]);
        assert!(time.learn(pass(512, 131_072), 0.3));
        assert_eq!([60_000, 131_072].map(|depth| rows(time, depth)), [512, 256]);
    }

    /// One deep row among shallow ones is less work than all rows deep.
    #[test]
    fn every_rows_depth_counts() {
        let reach = |deep: usize| PassLoad { rows: 32, depths: 30_000 * deep };
        let mut pace = SubmitPace::default();
        pace.learn(reach(1), 62);
        assert!(pace.covers(reach(6)) && !pace.covers(reach(32)));
    }

    /// For every model, machine and depth, the longest dispatch of a chunk of as many rows as a pass accepts there
    /// keeps to the submit budget. On a 780M, a whole chunk after 131,072 tokens would exceed it.
    #[test]
    fn no_dispatch_of_a_prompt_takes_longer_than_a_submit_may() {
        const BUDGET: f64 = 0.5;
        const CHUNK: usize = 512;
        const CONTEXT: usize = 131_072 + CHUNK;
        let mut too_long = Vec::new();
        for name in presets::NAMES {
            let full = presets::preset(name).unwrap();
            // Five local layers and a global one represent the others.
            let shape = Shape { layers: full.layers[..6].to_vec(), ..full };
            let extent = Extent {
                context: CONTEXT,
                max_rows: CHUNK,
                head_rows: 1,
                sequences: 1,
                kv: KvType::F16,
                kv_tokens: None,
            };
            let schedule = Schedule::build(&shape, extent, |id| WeightFormat::Int8.of_matrix(id, &shape, None));
            for machine in ["780m", "890m", "8060s"] {
                let time = AttendTime::expected(&prediction::target_of(machine).unwrap(), &schedule);
                for depth in [0, 512, 4096, 16_384, 32_768, 65_536, 98_304, 131_072] {
                    let rows = time.rows(CHUNK, 64, depth, BUDGET / 2.0);
                    let longest = |rows| {
                        prediction::seconds(machine, &schedule, PassShape::Prefill { rows, depth }).unwrap().longest
                    };
                    assert!(
                        longest(rows) <= BUDGET,
                        "{name}, {machine}: {rows} rows behind {depth}: {}",
                        longest(rows)
                    );
                    let is_long = longest(CHUNK) > BUDGET / 2.0;
                    assert!(
                        depth >= 32_768 || is_long || rows == CHUNK,
                        "{name}, {machine}: {rows} rows behind {depth}"
                    );
                    if longest(CHUNK) > BUDGET {
                        too_long.push((name, machine, depth));
                    }
                }
            }
        }
        assert!(too_long.contains(&("gemma3-27b", "780m", 131_072)), "{too_long:?}");
    }
}
