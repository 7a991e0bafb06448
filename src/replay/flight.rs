//! The last pass, the pass that was submitted ahead of it, and the state of their results.

use super::driver::Driver;
use super::results::Results;
use super::submit_pace::PassLoad;
use crate::executor::{HeadRows, Row};
use crate::schedule::Schedule;
use crate::schedule::choice::SampleResult;
use std::time::Instant;

/// The last pass, and the next one if the device already runs it.
pub(super) struct Flight<D: Driver> {
    /// The rows of the last pass.
    pub rows: Vec<Row>,
    /// Head rows of the last pass, whose states a draft begins with. `None`: it had none, or they are lost.
    pub states: Option<HeadRows>,
    /// Rows of the last draft; 0 after a pass.
    pub draft_rows: usize,
    /// Per head row of the last pass, whether it had a sample request.
    pub asked: Vec<bool>,
    /// The work that is to be waited for.
    pub submitted: Option<Submitted>,
    /// The pass after it, if that was submitted, too.
    pub next: Option<NextPass>,
    /// Head rows of the last pass whose logits the host can read.
    pub fetched: usize,
    pub results: Results<D>,
}

/// Work that the device runs, and whose end was not waited for.
pub(super) struct Submitted {
    pub work: SubmittedWork,
    pub head: Option<HeadRows>,
    /// True if the pass was submitted together with the one before it, whose tokens it continues.
    pub is_next: bool,
    /// True if the work is not submitted yet, but waits for its sample requests.
    pub is_held: bool,
    pub since: Instant,
}

/// The kind of submitted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubmittedWork {
    /// A pass, with the index of its kind.
    Pass(usize),
    /// The head over other rows of the last pass.
    Head,
    /// A draft, of so many tokens for each row.
    Draft(u32),
}

/// The pass that was submitted before the results of the one before it were known.
pub(super) struct NextPass {
    pub kind: usize,
    /// True if a signal reports the end of the pass by itself.
    pub has_signal: bool,
}

impl<D: Driver> Flight<D> {
    /// The state before the first pass.
    pub fn new(schedule: &Schedule, results: Results<D>) -> Flight<D> {
        let extent = &schedule.extent;
        let (rows, asked) = (Vec::with_capacity(extent.max_rows), vec![false; extent.head_rows]);
        Flight { rows, states: None, draft_rows: 0, asked, submitted: None, next: None, fetched: 0, results }
    }

    /// True if the device already runs a pass of these rows and this head, as the next one of the last pass.
    pub fn is_next(&self, rows: &[Row], head: Option<HeadRows>) -> bool {
        let follows = |(i, (was, is)): (usize, (&Row, &Row))| {
            (is.token, is.position, is.sequence) == (self.results.next(i), was.position + 1, was.sequence)
        };
        self.next.is_some()
            && head == Some(all_rows(rows))
            && rows.len() == self.rows.len()
            && self.rows.iter().zip(rows).enumerate().all(follows)
    }

    /// Rows of logits of the last pass or draft.
    pub fn head_rows(&self) -> usize {
        match self.draft_rows {
            0 => self.states.map_or(0, |head| head.count),
            rows => rows,
        }
    }

    /// Notes that `work` with these head rows was submitted.
    pub fn note_submit(&mut self, work: SubmittedWork, head: Option<HeadRows>, is_next: bool, is_held: bool) {
        self.submitted = Some(Submitted { work, head, is_next, is_held, since: Instant::now() });
    }

    /// The number and the positions of the last pass's rows, which its time depends on.
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
        (self.fetched, self.states, self.draft_rows) = (0, None, 0);
        self.asked.fill(false);
        self.submitted = None;
    }
}

/// Declares all rows as head rows.
pub(super) fn all_rows(rows: &[Row]) -> HeadRows {
    HeadRows { first: 0, count: rows.len() }
}
