//! Verification of drafts: a decoding sequence may have drafted tokens in a pass, as rows after its own.
//!
//! The token of each row is chosen in the usual way, in order. A row counts only if its token is the one that was
//! chosen before it. Cached keys and values of the other rows are overwritten: the sequence continues at the first of
//! their positions, and no row sees positions after its own.
//!
//! A draft cannot be added to a pass that was started ahead. So no pass is started ahead while there is something to
//! draft.

use super::member::{Chosen, KvSlot};
use super::plan::PassPlan;
use super::{Batch, OnToken};
use crate::Result;
use crate::executor::{Executor, Row};
use crate::schedule::{Extent, PassShape};
use crate::sequence::counts;
use crate::sequence::draft::gain::{Acceptance, DraftCandidate, PassTimes};
use crate::sequence::draft::{DraftRequest, GRADES, MOST_DRAFTED, Proposer};
use crate::sequence::generate::Finish;
use std::time::Instant;

/// The drafts of a batch's sequences, with what decides their lengths.
pub(super) struct Speculating {
    /// The most tokens of a draft.
    most: usize,
    /// True if drafts are limited to the number of tokens that is measured to pay.
    weighs: bool,
    proposer: Box<dyn Proposer>,
    /// True if the next pass is to verify drafts. It cannot if the device already runs it.
    pub(super) is_wanted: bool,
    /// The state of drafting for each KV slot.
    pub(super) slots: Vec<Drafting>,
    gain: PassTimes,
    /// The drafts considered for the next pass, one for each of its sequences.
    candidates: Vec<DraftCandidate>,
    /// End of the last pass of these sequences.
    done: Option<Instant>,
    /// The last pass, if it verified drafts, and the tokens that it gave.
    pub(super) verified: Option<(PassShape, usize)>,
    /// The sequences that end by the last pass.
    ended: Vec<(usize, Result<Finish>)>,
}

/// The draft of a slot's sequence, and the acceptance of its drafts by grade.
pub(super) struct Drafting {
    /// The drafted tokens that the next pass verifies.
    draft: Vec<u32>,
    /// The head row of the last pass that chose the sequence's last token.
    pub(super) head: Option<usize>,
    grade: usize,
    acceptance: [Acceptance; GRADES],
}

impl Speculating {
    /// Resets the drafting of a slot for a new sequence.
    pub(super) fn begin(&mut self, slot: usize) {
        self.proposer.begin(slot);
        self.slots[slot].acceptance = Default::default();
    }

    /// The draft of a slot, whose rows follow the slot's own row in the pass.
    pub(super) fn draft(&self, slot: usize) -> &[u32] {
        &self.slots[slot].draft
    }

    /// Notes that a pass begins: the head rows of the one before are lost.
    pub(super) fn begin_pass(&mut self) {
        self.slots.iter_mut().for_each(|drafting| drafting.head = None);
    }

    fn clear(&mut self) {
        self.slots.iter_mut().for_each(|drafting| drafting.draft.clear());
    }
}

impl Batch {
    /// Drafts up to `most` tokens at a time for each decoding sequence, at most [`MOST_DRAFTED`], and for all together
    /// as many as the executor was loaded for (`drafted` of the engine's options). `weighs`: only as many as pay, by
    /// the measured times of passes and by the acceptance so far. Replies do not depend on drafts.
    pub fn speculate(&mut self, most: usize, weighs: bool, proposer: Box<dyn Proposer>) {
        self.plan.is_greedy = false;
        let count = self.slots.len();
        let draft = || Vec::with_capacity(MOST_DRAFTED);
        let drafting = |_| Drafting { draft: draft(), head: None, grade: 0, acceptance: Default::default() };
        self.speculating = (most > 0).then(|| {
            Box::new(Speculating {
                most: most.min(MOST_DRAFTED),
                weighs,
                proposer,
                is_wanted: false,
                slots: (0..count).map(drafting).collect(),
                gain: PassTimes::default(),
                candidates: Vec::with_capacity(count),
                done: None,
                verified: None,
                ended: Vec::with_capacity(count),
            })
        });
    }

    /// The tokens that the last pass gave if it verified drafts, else 0.
    pub fn last_verified(&self) -> usize {
        self.speculating.as_ref().and_then(|speculating| speculating.verified).map_or(0, |(_, tokens)| tokens)
    }

    /// Notes that the next pass has other sequences than the last one.
    pub(super) fn break_off(&mut self) {
        if let Some(speculating) = &mut self.speculating {
            (speculating.done, speculating.verified, speculating.is_wanted) = (None, None, false);
            speculating.clear();
        }
    }

    /// Drafts tokens for the sequences of the next pass, unless that is in flight already.
    pub(super) fn draft(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let is_wanted = self.draft_for(executor, self.is_ahead)?;
        if let Some(speculating) = &mut self.speculating {
            speculating.is_wanted = is_wanted;
            if self.is_ahead {
                speculating.clear();
            }
        }
        Ok(())
    }

    /// Drafts tokens for the sequences of the next pass. Returns whether there are any. For a pass that already runs
    /// ahead, returns whether there would be.
    fn draft_for(&mut self, executor: &mut dyn Executor, is_ahead: bool) -> Result<bool> {
        let Batch { slots, plan, speculating: Some(speculating), .. } = self else { return Ok(false) };
        let rows = &plan.rows;
        speculating.clear();
        speculating.verified = None;
        let Speculating { most, weighs, proposer, slots: drafting, gain, candidates, done, .. } = &mut **speculating;
        let Extent { max_rows, head_rows, .. } = executor.schedule().extent;
        let room = head_rows.min(max_rows).saturating_sub(rows.len());
        if room == 0 || rows.len() > proposer.most_sequences() {
            return Ok(false);
        }
        // Without weighing, each sequence gets an equal part.
        let each = if *weighs { room } else { room / rows.len() };
        let grade = proposer.grade().map(|grade| grade.min(GRADES - 1));
        candidates.clear();
        for row in rows {
            let slot = row.sequence as usize;
            let Some(member) = &slots[slot].member else { return Ok(false) };
            // All of `n` drafted tokens may be accepted, and one more is chosen. The limit stays within the context.
            let wanted = member.limit.saturating_sub(member.so_far.tokens.len() + 1);
            // A report describes only a pass's last choice.
            let length = if member.chooser.reports() { 0 } else { wanted.min(*most).min(each) };
            let share = drafting[slot].acceptance[grade.unwrap_or_default()].share();
            candidates.push(DraftCandidate::new(length, share));
        }
        if grade.is_some() {
            let chosen = match *weighs {
                true => gain.choose(candidates, room),
                false => candidates.iter().map(|candidate| candidate.drafted).sum(),
            };
            // A draft that takes time is not made for a pass that has already started.
            if chosen == 0 || is_ahead {
                return Ok(chosen > 0);
            }
        }
        let slot_of = |row: &Row| row.sequence as usize;
        let mut asked = 0;
        for (slot, candidate) in rows.iter().map(slot_of).zip(&*candidates).filter(|(_, c)| c.drafted > 0) {
            let (tokens, head) = (slots[slot].session.all_tokens(), drafting[slot].head);
            proposer.ask(DraftRequest { slot, tokens, most: candidate.drafted, head })?;
            asked += 1;
        }
        proposer.make(executor)?;
        let effort = proposer.take_effort();
        if effort.caught_up {
            *done = None;
        }
        let vocab = executor.schedule().shape.vocab;
        for (slot, candidate) in rows.iter().map(slot_of).zip(&mut *candidates).filter(|(_, c)| c.drafted > 0) {
            if let Some(member) = &mut slots[slot].member {
                member.so_far.draft_bytes += effort.bytes / asked;
            }
            let Drafting { draft, grade, acceptance, .. } = &mut drafting[slot];
            *grade = proposer.copy_draft(slot, draft).min(GRADES - 1);
            let sound = draft.iter().take(candidate.drafted).take_while(|&&token| (token as usize) < vocab).count();
            draft.truncate(sound);
            *candidate = DraftCandidate::new(sound, acceptance[*grade].share());
        }
        if *weighs && grade.is_none() {
            gain.choose(candidates, room);
        }
        let mut has_drafts = false;
        for (row, candidate) in rows.iter().zip(&*candidates) {
            let draft = &mut drafting[slot_of(row)].draft;
            draft.truncate(candidate.drafted);
            if !is_ahead && !draft.is_empty() {
                draft.truncate(positions_behind(executor, slot_of(row), row.position as usize, draft.len()));
            }
            has_drafts |= !draft.is_empty();
        }
        Ok(has_drafts)
    }

    /// Places the drafts' rows after the sequences' own, each with a head row. Returns whether there are any.
    pub(super) fn place_drafts(&mut self) -> bool {
        let Batch { plan: PassPlan { rows, heads, .. }, speculating: Some(speculating), .. } = self else {
            return false;
        };
        if speculating.slots.iter().all(|drafting| drafting.draft.is_empty()) {
            return false;
        }
        let sequences = rows.len();
        let Some(&any) = rows.first() else { return false };
        let drafted: usize = rows.iter().map(|row| speculating.draft(row.sequence as usize).len()).sum();
        rows.resize(sequences + drafted, any);
        // From the end, so that no row is overwritten before it is moved.
        let mut end = rows.len();
        for i in (0..sequences).rev() {
            let own = rows[i];
            let draft = speculating.draft(own.sequence as usize);
            let at = end - draft.len() - 1;
            for (row, (&token, position)) in rows[at + 1..end].iter_mut().zip(draft.iter().zip(own.position + 1..)) {
                *row = Row { token, position, ..own };
            }
            rows[at] = own;
            end = at;
        }
        heads.clear();
        heads.extend(rows.iter().map(|row| row.sequence as usize));
        true
    }

    /// Records the time of a decode pass since the end of the one before, if the number of drafted tokens is limited to
    /// those that pay.
    pub(super) fn note_time(&mut self, sequences: usize) {
        let Batch { plan, speculating: Some(speculating), .. } = self else { return };
        if !speculating.weighs || !plan.is_next {
            return;
        }
        let now = Instant::now();
        if let Some(before) = speculating.done.replace(now) {
            speculating.gain.note_pass(sequences, plan.rows.len(), (now - before).as_secs_f64());
        }
    }

    /// Chooses tokens for the rows of a pass that verified drafts. In each sequence it stops at the first row whose
    /// choice differs from the next row's token.
    #[inline(never)]
    pub(super) fn choose_drafted(&mut self, executor: &mut dyn Executor, on_token: OnToken<'_>) {
        let Batch { slots, plan, speculating: Some(speculating), patience, .. } = self else { return };
        let PassPlan { rows, heads, .. } = plan;
        let Speculating { slots: drafting, verified, ended, .. } = &mut **speculating;
        if drafting.iter().all(|drafting| drafting.draft.is_empty()) {
            return;
        }
        let count = rows.len();
        let (mut first, mut left) = (0, 0);
        let (mut sequences, mut depths, mut tokens) = (0, 0, 0);
        while first < count {
            let slot = rows[first].sequence as usize;
            let KvSlot { session, member: Some(member), .. } = &mut slots[slot] else { return };
            let Drafting { draft, head, grade, acceptance } = &mut drafting[slot];
            (sequences, depths) = (sequences + 1, depths + rows[first].position as usize);
            let (mut accepted, mut missed, mut repeats) = (0, false, false);
            let end = loop {
                if !member.is_ready(patience) {
                    // This row runs again in the next pass.
                    rows[left] = rows[first + accepted];
                    left += 1;
                    repeats = true;
                    break None;
                }
                session.commit(1);
                match member.choose(executor, first + accepted, slot, on_token) {
                    Chosen::Token(token) => {
                        let row = session.push_chosen(token);
                        *head = Some(first + accepted);
                        missed = draft.get(accepted).is_some_and(|drafted| *drafted != token);
                        if missed || accepted == draft.len() {
                            // The rows of the next pass replace those of this one.
                            rows[left] = row;
                            left += 1;
                            break None;
                        }
                        accepted += 1;
                    }
                    Chosen::End(finish) => break Some(Ok(finish)),
                    // If the device has failed, the next pass fails too and ends all sequences.
                    Chosen::Failure(e) => break Some(Err(*e)),
                }
            };
            member.so_far.passes += 1;
            member.so_far.drafted += draft.len();
            member.so_far.accepted += accepted;
            tokens += accepted + usize::from(!repeats);
            if !draft.is_empty() && !repeats {
                acceptance[*grade].note(accepted, missed);
            }
            ended.extend(end.map(|end| (slot, end)));
            first += 1 + draft.len();
            draft.clear();
        }
        counts::count_verified(sequences, tokens);
        *verified = Some((PassShape::Verify { sequences, rows: count, depth: depths / sequences.max(1) }, tokens));
        rows.truncate(left);
        heads.extend(rows.iter().map(|row| row.sequence as usize));
        // A row without a page needs a new plan, which takes pages.
        let is_ready = |row: &Row| executor.pages().is_ready(row.sequence as usize, row.position as usize);
        if !ended.is_empty() || !rows.iter().all(is_ready) {
            plan.is_next = false;
        }
        let mut ended = std::mem::take(ended);
        for (slot, end) in ended.drain(..) {
            self.put_out(executor, slot, end);
        }
        if let Some(speculating) = &mut self.speculating {
            speculating.ended = ended;
        }
    }
}

/// Takes pages for the `count` positions after position `at` of a sequence, if there are any to spare. Returns the
/// number of positions with a page.
fn positions_behind(executor: &mut dyn Executor, slot: usize, at: usize, count: usize) -> usize {
    let positions = at..at + 1 + count;
    let is_ready = |executor: &dyn Executor, position| executor.pages().is_ready(slot, position);
    if !is_ready(executor, at + count) && executor.pages().has_room(slot, &positions) {
        // Positions without a page are not drafted.
        let _ = executor.pages_mut().extend(slot, positions);
    }
    (1..=count).take_while(|behind| is_ready(executor, at + behind)).count()
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
