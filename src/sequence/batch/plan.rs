//! The plan of a batch's pass: its rows and its head rows.

use crate::executor::{HeadRows, Row};

/// Marks a head row whose result is not used: its sequence has left since the pass began, or has continued with another
/// token than the pass assumed.
pub(super) const STALE: usize = usize::MAX;

/// The plan of the last pass or of the next one.
pub(super) struct PassPlan {
    /// `chunk` prompt rows, then one row for each decoding sequence. If several prompts run in the chunk, all are
    /// complete with this pass, and their last rows come after the other prompt rows.
    pub(super) rows: Vec<Row>,
    /// The number of rows that are prompt tokens.
    pub(super) chunk: usize,
    /// The prompts of the chunk: slot and number of rows.
    pub(super) prompts: Vec<(usize, usize)>,
    /// The slots of the last rows, which have logits; [`STALE`] if a result is not used.
    pub(super) heads: Vec<usize>,
    /// The number of head rows whose results are not used.
    pub(super) stale: usize,
    /// True if the rows are those of the next pass: one row of every running sequence, all of which decode.
    pub(super) is_next: bool,
    /// Whether besides each of these sequences is greedy and wants two more tokens, and nothing is drafted: then the
    /// pass needs no sample request, and the pass after it can be submitted with it.
    pub(super) is_greedy: bool,
}

impl PassPlan {
    /// An empty plan with room for this many rows, head rows and prompts.
    pub(super) fn with_capacity(rows: usize, heads: usize, prompts: usize) -> PassPlan {
        PassPlan {
            rows: Vec::with_capacity(rows),
            chunk: 0,
            prompts: Vec::with_capacity(prompts),
            heads: Vec::with_capacity(heads),
            stale: 0,
            is_next: false,
            is_greedy: false,
        }
    }

    /// Removes all rows from the plan.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.prompts.clear();
        self.heads.clear();
        (self.chunk, self.stale) = (0, 0);
        self.change();
    }

    /// Notes that the next pass has other rows.
    pub(super) fn change(&mut self) {
        (self.is_next, self.is_greedy) = (false, false);
    }

    /// Marks the head rows of a sequence that leaves as stale.
    pub(super) fn leave(&mut self, slot: usize) {
        self.change();
        self.heads.iter_mut().filter(|head| **head == slot).for_each(|head| *head = STALE);
    }

    /// The rows that have logits, which are the last ones. `None` if the pass only runs a chunk of a prompt.
    pub(super) fn head_rows(&self) -> Option<HeadRows> {
        let count = self.heads.len();
        (count > 0).then(|| HeadRows { first: self.rows.len() - count, count })
    }
}
