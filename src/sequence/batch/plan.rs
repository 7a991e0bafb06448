//! The plan of a batch's pass: its rows, its head rows, and its relation to the next pass.

use crate::executor::{HeadRows, Row};

/// Marks a head row whose result is not used: its sequence has left since the pass began, or has continued with another
/// token than the pass assumed.
pub(super) const STALE: usize = usize::MAX;

/// The relation of a plan's rows to the next pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextPass {
    /// The rows ran in the last pass; the next one needs a new plan.
    Anew,
    /// The rows run in the next pass, which is ahead, but sequences have joined, left, or chosen other tokens since.
    Foreseen,
    /// The rows are the next pass: one row of every running sequence, all of which decode.
    Same,
    /// As `Same`, and every sequence is greedy and wants at least two more tokens, so that another pass may run ahead.
    /// Not used while drafting, because drafts are considered before each pass.
    SameGreedy,
}

/// The plan of the last pass or of the next one.
pub(super) struct PassPlan {
    /// `chunk` prompt rows, then one row for each decoding sequence. If several prompts run in the chunk, all are
    /// complete with this pass, and their last rows come after the other prompt rows.
    pub(super) rows: Vec<Row>,
    /// The number of prompt rows.
    pub(super) chunk: usize,
    /// The prompts of the chunk: slot and number of rows.
    pub(super) prompts: Vec<(usize, usize)>,
    /// The slots of the last rows, which have logits; [`STALE`] if a result is not used.
    pub(super) heads: Vec<usize>,
    /// The number of stale head rows.
    pub(super) stale: usize,
    /// The relation to the next pass.
    pub(super) next: NextPass,
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
            next: NextPass::Anew,
        }
    }

    /// Empties the plan.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.prompts.clear();
        self.heads.clear();
        (self.chunk, self.stale, self.next) = (0, 0, NextPass::Anew);
    }

    /// Whether the plan is the next pass already.
    pub(super) fn is_steady(&self) -> bool {
        self.next >= NextPass::Same
    }

    /// Notes that sequences have joined or left, so that the plan is not the next pass any more.
    pub(super) fn unsettle(&mut self) {
        self.next = self.next.min(NextPass::Foreseen);
    }

    /// Sets the relation to the next pass. `steady`: all sequences go on; `greedily`: by argmax. `is_ahead`: the next
    /// pass is already running.
    #[inline(always)]
    pub(super) fn follow(&mut self, steady: bool, greedily: bool, is_ahead: bool) {
        self.next = match steady {
            true if greedily => NextPass::SameGreedy,
            true => NextPass::Same,
            false if is_ahead => NextPass::Foreseen,
            false => NextPass::Anew,
        };
    }

    /// Marks the head rows of a sequence that leaves as stale.
    pub(super) fn leave(&mut self, slot: usize) {
        self.unsettle();
        self.heads.iter_mut().filter(|head| **head == slot).for_each(|head| *head = STALE);
    }

    /// The head rows; `None` if only a part of a prompt runs.
    pub(super) fn head_rows(&self) -> Option<HeadRows> {
        let count = self.heads.len();
        (count > 0).then(|| HeadRows { first: self.rows.len() - count, count })
    }
}
