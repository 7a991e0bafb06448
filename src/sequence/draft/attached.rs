//! Drafts by the drafter of the model's own schedule, which reads the model's keys and values and its last state.
//!
//! It has no cache: a draft begins with the state of the row that chose the last token. All tokens of a draft, for all
//! sequences, are one submit. If that state is lost, because another pass has run since, nothing is drafted.

use super::{DraftRequest, Effort, MOST_DRAFTED, Proposer};
use crate::error::{Setting, text};
use crate::executor::{DraftRow, Executor, ExecutorExt, Row, Submission};
use crate::schedule::Schedule;
use crate::{Error, Result};

/// Proposes the tokens that the schedule's drafter drafts.
pub struct AttachedDrafter {
    /// The next draft's rows, each with its slot and the number of tokens to draft.
    rows: Vec<DraftRow>,
    asked: Vec<(usize, usize)>,
    /// The last draft of each slot.
    drafts: Vec<Vec<u32>>,
    most_sequences: usize,
    effort: Effort,
}

impl AttachedDrafter {
    /// The drafter of a schedule; `None` if that has none.
    pub fn of(schedule: &Schedule) -> Option<AttachedDrafter> {
        let rows = schedule.drafter.as_ref()?.rows;
        Some(AttachedDrafter {
            rows: Vec::with_capacity(rows),
            asked: Vec::with_capacity(rows),
            drafts: (0..schedule.extent.sequences).map(|_| Vec::with_capacity(MOST_DRAFTED)).collect(),
            most_sequences: rows,
            effort: Effort::default(),
        })
    }
}

impl Proposer for AttachedDrafter {
    fn begin(&mut self, slot: usize) {
        self.drafts[slot].clear();
    }

    fn ask(&mut self, request: DraftRequest<'_>) -> Result<()> {
        let DraftRequest { slot, tokens, most, head } = request;
        self.drafts[slot].clear();
        let (Some(head), Some((&token, before))) = (head, tokens.split_last()) else { return Ok(()) };
        if most > 0 && self.rows.len() < self.most_sequences {
            let row = Row { token, position: before.len() as u32, sequence: slot as u32 };
            self.rows.push(DraftRow { row, head });
            self.asked.push((slot, most));
        }
        Ok(())
    }

    fn make(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let AttachedDrafter { rows, asked, drafts, effort, .. } = self;
        let count = asked.iter().map(|(_, most)| *most).max().unwrap_or(0).min(MOST_DRAFTED);
        let made = (count > 0).then(|| -> Result<()> {
            if !executor.submit(Submission::Draft { rows, count })? {
                return Ok(());
            }
            executor.wait()?;
            let depth = rows.iter().map(|row| row.row.position as usize).sum::<usize>() / rows.len();
            effort.bytes += count as u64 * executor.schedule().draft_cost(rows.len(), depth).memory_bytes();
            for (i, (slot, most)) in asked.iter().enumerate() {
                for step in 0..count.min(*most) {
                    let result = step * rows.len() + i;
                    if !executor.is_finite(result) {
                        let cause = "the drafter's logits are not finite";
                        return Err(Error::failed(cause, text!("leave out ", Setting::Draft)));
                    }
                    drafts[*slot].push(executor.next(result));
                }
            }
            Ok(())
        });
        rows.clear();
        asked.clear();
        made.unwrap_or(Ok(()))
    }

    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize {
        draft.extend(&self.drafts[slot]);
        0
    }

    /// Always grade 0, because the drafter's drafts are not told apart by their quality.
    fn grade(&self) -> Option<usize> {
        Some(0)
    }

    fn most_sequences(&self) -> usize {
        self.most_sequences
    }

    fn take_effort(&mut self) -> Effort {
        std::mem::take(&mut self.effort)
    }
}
