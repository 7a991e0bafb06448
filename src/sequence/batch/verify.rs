//! Drafts in passes: a sequence that decodes alone has drafted tokens as rows behind its own.
//!
//! Each row's token is chosen as that of any row, one after the other, and a row counts only where its token is the one that
//! was chosen before it. What the cache holds of the other rows is forgotten with them: the sequence goes on at the first of
//! their positions, and no row sees positions behind its own.
//!
//! While a pass that was started ahead is under way nothing can be drafted for it. So where there is something to draft, no
//! pass is started ahead of the next one.

use super::{Batch, Chosen, Member, OnToken, Slot};
use crate::Result;
use crate::executor::{Executor, Row};
use crate::schedule::{Extent, Pass};
use crate::sequence::counts;
use crate::sequence::draft::gain::{Acceptance, Gain};
use crate::sequence::draft::{GRADES, MOST_DRAFTED, Proposer};
use std::time::Instant;

/// The drafts of a batch.
pub(super) struct Speculating {
    /// Most tokens of a draft.
    most: usize,
    /// Whether only as many tokens are drafted as pay.
    weighs: bool,
    /// One for each KV slot.
    slots: Vec<Drafting>,
    gain: Gain,
    /// The draft of the pass that comes next.
    draft: Vec<u32>,
    /// Its grade.
    grade: usize,
    /// When the last pass of the sequence that decodes alone was done.
    done: Option<Instant>,
    /// The last pass, if that verified a draft, and the tokens that it gave.
    pub(super) verified: Option<(Pass, usize)>,
}

/// What drafts the tokens of a slot's sequence, and how often it was right, by grade.
struct Drafting {
    proposer: Box<dyn Proposer>,
    acceptance: [Acceptance; GRADES],
}

impl Speculating {
    /// A sequence begins in a slot.
    pub(super) fn begin(&mut self, slot: usize) {
        let drafting = &mut self.slots[slot];
        drafting.proposer.begin();
        drafting.acceptance = Default::default();
    }

    /// The draft whose rows stand in the pass.
    pub(super) fn draft(&self) -> &[u32] {
        &self.draft
    }
}

impl Batch {
    /// Drafts up to `most` tokens at a time for a sequence that decodes alone, at most [`MOST_DRAFTED`] and what the executor
    /// was loaded for ([`crate::engine::Options::drafted`]). `weighs`: only as many as pay, by the times of passes and by how
    /// many were right; otherwise all. `proposer` makes what drafts them, for each slot. Replies are the same as without.
    pub fn speculate(&mut self, most: usize, weighs: bool, mut proposer: impl FnMut() -> Box<dyn Proposer>) {
        let drafting = |_| Drafting { proposer: proposer(), acceptance: Default::default() };
        self.speculating = (most > 0).then(|| {
            Box::new(Speculating {
                most: most.min(MOST_DRAFTED),
                weighs,
                slots: (0..self.slots.len()).map(drafting).collect(),
                gain: Gain::default(),
                draft: Vec::with_capacity(MOST_DRAFTED),
                grade: 0,
                done: None,
                verified: None,
            })
        });
        self.goes_on = false;
    }

    /// Tokens that the last pass gave if it verified a draft, else 0.
    pub fn last_verified(&self) -> usize {
        self.speculating.as_ref().and_then(|speculating| speculating.verified).map_or(0, |(_, tokens)| tokens)
    }

    /// The next pass does not follow the last one of a sequence that decodes alone.
    pub(super) fn break_off(&mut self) {
        if let Some(speculating) = &mut self.speculating {
            (speculating.done, speculating.verified) = (None, None);
            speculating.draft.clear();
        }
    }

    /// Runs a pass of the sequences of the one before, with a draft if there is one that pays.
    #[inline(never)]
    pub(super) fn run_speculating(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let is_ahead = executor.is_ahead();
        let has_draft = self.draft(executor, is_ahead)?;
        let run = match has_draft && !is_ahead {
            true => self.run_draft(executor),
            false if has_draft || !self.members().all(Member::goes_on) => self.run_rows(executor),
            false => self.run_ahead(executor),
        };
        if has_draft && (is_ahead || run.is_err()) {
            self.clear_draft();
        }
        run?;
        self.note_time();
        Ok(())
    }

    /// Drafts tokens for the sequence that decodes alone. Returns whether there are any.
    fn draft(&mut self, executor: &mut dyn Executor, is_ahead: bool) -> Result<bool> {
        let Batch { slots, rows, speculating: Some(speculating), .. } = self else { return Ok(false) };
        speculating.draft.clear();
        speculating.verified = None;
        let &[Row { position, sequence, .. }] = &rows[..] else {
            speculating.done = None;
            return Ok(false);
        };
        let (slot, at) = (sequence as usize, position as usize);
        let Slot { session, member: Some(member), .. } = &mut slots[slot] else { return Ok(false) };
        let Extent { max_rows, head_rows, .. } = executor.schedule().extent;
        // Of `n` drafted tokens all may be accepted, and one more chosen. The limit keeps within the context.
        let wanted = member.limit.saturating_sub(member.so_far.tokens.len() + 1);
        let mut most = speculating.most.min(wanted).min(head_rows.min(max_rows) - 1);
        // A report tells of a pass's last choice alone.
        if most == 0 || member.chooser.reports() {
            return Ok(false);
        }
        let Speculating { slots: drafting, draft, grade, gain, weighs, done, .. } = &mut **speculating;
        let Drafting { proposer, acceptance } = &mut drafting[slot];
        let weighed = proposer.grade().filter(|_| *weighs);
        if let Some(grade) = weighed {
            most = gain.drafted(most, acceptance[grade.min(GRADES - 1)].share());
            // What takes time is not drafted for a pass that cannot take it.
            if most == 0 || is_ahead {
                return Ok(most > 0);
            }
        }
        *grade = proposer.propose(session.all_tokens(), most, draft)?.min(GRADES - 1);
        let effort = proposer.take_effort();
        member.so_far.draft_bytes += effort.bytes;
        if effort.caught_up {
            *done = None;
        }
        let vocab = executor.schedule().shape.vocab;
        let sound = draft.iter().take(most).take_while(|&&token| (token as usize) < vocab).count();
        draft.truncate(sound);
        if *weighs && weighed.is_none() {
            draft.truncate(gain.drafted(draft.len(), acceptance[*grade].share()));
        }
        if !is_ahead {
            let behind = draft.len();
            draft.truncate(positions_behind(executor, slot, at, behind));
        }
        Ok(!draft.is_empty())
    }

    /// Runs a pass with the draft behind the sequence's next row.
    fn run_draft(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let Batch { rows, heads, speculating: Some(speculating), .. } = self else { return Ok(()) };
        let (Some(&first), Some(&slot)) = (rows.first(), heads.first()) else { return Ok(()) };
        for (&token, position) in speculating.draft.iter().zip(first.position + 1..) {
            rows.push(Row { token, position, ..first });
            heads.push(slot);
        }
        let run = self.forward_rows(executor);
        // Those of no other pass are chosen from here.
        self.heads.clear();
        run
    }

    fn clear_draft(&mut self) {
        if let Some(speculating) = &mut self.speculating {
            speculating.draft.clear();
        }
    }

    /// Notes how long a pass of the sequence that decodes alone took, from the end of the one before.
    fn note_time(&mut self) {
        let Batch { rows, speculating: Some(speculating), .. } = self else { return };
        if !speculating.weighs || rows.len() != 1 + speculating.draft.len() {
            return;
        }
        let now = Instant::now();
        if let Some(before) = speculating.done.replace(now) {
            speculating.gain.note_pass(rows.len(), (now - before).as_secs_f64());
        }
    }

    /// Chooses a token for each row of a pass that verified a draft, as long as the next row has the token that was chosen.
    #[inline(never)]
    pub(super) fn choose_drafted(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) {
        let Batch { slots, rows, heads, speculating: Some(speculating), .. } = self else { return };
        let draft = std::mem::take(&mut speculating.draft);
        let (Some(&first), false) = (rows.first(), draft.is_empty()) else {
            speculating.draft = draft;
            return;
        };
        let slot = first.sequence as usize;
        let Slot { session, member: Some(member), .. } = &mut slots[slot] else { return };
        let (mut accepted, mut missed) = (0, false);
        let ended = loop {
            session.commit(1);
            match member.choose(executor, accepted, slot, on_token) {
                Chosen::Token(token) => {
                    let row = session.push_chosen(token);
                    missed = draft.get(accepted).is_some_and(|drafted| *drafted != token);
                    if missed || accepted == draft.len() {
                        rows.clear();
                        rows.push(row);
                        heads.push(slot);
                        break None;
                    }
                    accepted += 1;
                }
                Chosen::End(finish) => break Some(Ok(finish)),
                // If the device failed, the next pass finds it failed again, and ends every sequence.
                Chosen::Failure(e) => break Some(Err(*e)),
            }
        };
        member.so_far.passes += 1;
        member.so_far.drafted += draft.len();
        member.so_far.accepted += accepted;
        counts::count_verified(1 + accepted);
        speculating.slots[slot].acceptance[speculating.grade].note(accepted, missed);
        let pass = Pass::Verify { rows: 1 + draft.len(), depth: first.position as usize };
        speculating.verified = Some((pass, 1 + accepted));
        speculating.draft = draft;
        speculating.draft.clear();
        match ended {
            Some(end) => self.put_out(executor, slot, end),
            // Pages are taken where the rows are chosen anew.
            None => self.steady &= executor.pages().is_ready(slot, self.rows[0].position as usize),
        }
    }
}

/// Takes pages for `count` positions behind position `at` of a sequence, as far as there are any to spare. Returns how many
/// positions have one.
fn positions_behind(executor: &mut dyn Executor, slot: usize, at: usize, count: usize) -> usize {
    let positions = at..at + 1 + count;
    let is_ready = |executor: &dyn Executor, position| executor.pages().is_ready(slot, position);
    if !is_ready(executor, at + count) && executor.pages().has_room(slot, &positions) {
        // What it finds no page for is not drafted.
        let _ = executor.pages_mut().extend(slot, positions);
    }
    (1..=count).take_while(|behind| is_ready(executor, at + behind)).count()
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
