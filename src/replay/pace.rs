//! How many segments of a pass go into one submit, so that each submit keeps to the budget.

use crate::executor::Row;

/// The quantities that a pass's time grows with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PassLoad {
    rows: usize,
    /// Sum of the rows' positions.
    depths: usize,
}

impl PassLoad {
    /// The reach of a pass of these rows.
    pub(crate) fn of(rows: &[Row]) -> PassLoad {
        PassLoad { rows: rows.len(), depths: rows.iter().map(|r| r.position as usize).sum() }
    }
}

/// How many segments keep a submit within the budget, and the reach of the pass that this was measured on. One kind of
/// pass serves few rows and many, at any depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SubmitPace {
    /// Segments per submit; 0 if nothing was measured.
    pub(crate) per_submit: usize,
    timed: PassLoad,
}

/// How much deeper than the timed pass a pass may be: twice the depth, plus this many positions a row. The budget has
/// room for that.
const DEEPER: usize = 4096;

impl SubmitPace {
    /// Whether the pace holds for a pass.
    pub(crate) fn covers(&self, pass: PassLoad) -> bool {
        self.per_submit > 0 && pass.rows <= self.timed.rows && pass.depths <= 2 * self.timed.depths + pass.rows * DEEPER
    }

    /// Takes the result of a timed pass. A pass of fewer rows can only lower the pace of larger ones.
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
    use super::{DEEPER, PassLoad, SubmitPace};

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

    /// One deep row among shallow ones is less work than all rows deep.
    #[test]
    fn every_rows_depth_counts() {
        let reach = |deep: usize| PassLoad { rows: 32, depths: 30_000 * deep };
        let mut pace = SubmitPace::default();
        pace.learn(reach(1), 62);
        assert!(pace.covers(reach(6)) && !pace.covers(reach(32)));
    }
}
