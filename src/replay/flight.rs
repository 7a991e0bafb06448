//! The last pass, the pass that was submitted ahead of it, and the state of their results.

use super::driver::Driver;
use super::pace::PassLoad;
use super::results::Results;
use crate::executor::Row;
use crate::schedule::Schedule;
use crate::schedule::choice::SampleResult;

/// The last pass, and the one behind it if it is under way.
pub(super) struct Flight<D: Driver> {
    /// Rows of the last pass.
    pub rows: Vec<Row>,
    /// Head rows of the last pass.
    pub head_rows: usize,
    /// Per head row of the last pass, whether it had a sample request.
    pub asked: Vec<bool>,
    /// Kind of the pass that was submitted ahead, if one was.
    pub ahead: Option<usize>,
    /// Head rows of the last pass whose logits the host can read.
    pub fetched: usize,
    pub results: Results<D>,
}

impl<D: Driver> Flight<D> {
    /// No pass.
    pub fn new(schedule: &Schedule, results: Results<D>) -> Flight<D> {
        let extent = &schedule.extent;
        let (rows, asked) = (Vec::with_capacity(extent.max_rows), vec![false; extent.head_rows]);
        Flight { rows, head_rows: 0, asked, ahead: None, fetched: 0, results }
    }

    /// The load of the last pass.
    pub fn load(&self) -> PassLoad {
        PassLoad::of(&self.rows)
    }

    /// The sample result of a head row, if it had a request.
    pub fn found(&self, schedule: &Schedule, row: usize) -> Option<SampleResult<'_>> {
        self.asked.get(row).is_some_and(|asked| *asked).then(|| self.results.found(schedule, row))
    }

    /// Forgets the last pass: its results are lost.
    pub fn forget(&mut self) {
        self.rows.clear();
        (self.head_rows, self.fetched) = (0, 0);
        self.asked.fill(false);
    }
}
