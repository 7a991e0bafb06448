//! The pass of a batch as a value: its rows, whose results they give, and how the next pass stands to it.

use crate::executor::{HeadRows, Row};

/// Stands for a slot where a row's sequence has left since the pass began, or goes on otherwise than the pass foresaw: its
/// results are nobody's.
pub(super) const STALE: usize = usize::MAX;

/// How the rows of a plan stand to the next pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextPass {
    /// They are those of the last pass. The next one is planned anew.
    Anew,
    /// They are those of the next pass as far as it runs ahead; the batch has other members by now, or other tokens.
    Foreseen,
    /// They are those of the next pass: every member decodes and has one of them.
    Same,
    /// As `Same`, and each member takes its argmax next, and the one after it, unless it ends: the pass after the next may run
    /// ahead of it. Never where tokens may be drafted: that is looked at before each pass.
    SameGreedy,
}

/// The pass that was run last, or that comes next.
pub(super) struct PassPlan {
    /// `chunk` rows of prompts, then one of each sequence that decodes. Of several prompts, which all end in the pass, the last
    /// rows stand after all others.
    pub(super) rows: Vec<Row>,
    /// How many of them are of prompts.
    pub(super) chunk: usize,
    /// The prompts of the chunk: slots, and rows of each.
    pub(super) prompts: Vec<(usize, usize)>,
    /// The slots of the last rows, which have logits; [`STALE`] where nobody takes these.
    pub(super) heads: Vec<usize>,
    /// How many of these are stale.
    pub(super) stale: usize,
    /// What follows.
    pub(super) next: NextPass,
}

impl PassPlan {
    /// No rows, with room for so many rows, head rows and prompts.
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

    /// Begins a plan without rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.prompts.clear();
        self.heads.clear();
        (self.chunk, self.stale, self.next) = (0, 0, NextPass::Anew);
    }

    /// Whether its rows are those of the next pass, which needs no plan then.
    pub(super) fn is_steady(&self) -> bool {
        self.next >= NextPass::Same
    }

    /// The batch has other members than the next pass was planned for.
    pub(super) fn unsettle(&mut self) {
        self.next = self.next.min(NextPass::Foreseen);
    }

    /// What follows a pass. `steady`: its sequences all go on, `greedily` or not. `is_ahead`: the next one runs already.
    #[inline(always)]
    pub(super) fn follow(&mut self, steady: bool, greedily: bool, is_ahead: bool) {
        self.next = match steady {
            true if greedily => NextPass::SameGreedy,
            true => NextPass::Same,
            false if is_ahead => NextPass::Foreseen,
            false => NextPass::Anew,
        };
    }

    /// A slot's sequence leaves: nobody takes its results.
    pub(super) fn leave(&mut self, slot: usize) {
        self.unsettle();
        self.heads.iter_mut().filter(|head| **head == slot).for_each(|head| *head = STALE);
    }

    /// The rows that have logits; none where only a part of a prompt runs.
    pub(super) fn head_rows(&self) -> Option<HeadRows> {
        let count = self.heads.len();
        (count > 0).then(|| HeadRows { first: self.rows.len() - count, count })
    }
}
