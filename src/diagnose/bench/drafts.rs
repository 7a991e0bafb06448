//! Decoding with drafts of a given acceptance. It measures the cost of passes, and the number of drafted tokens that
//! pays at this cost.

use super::measure::{Bench, Repetition};
use crate::executor::{ExecutorExt, HeadRows, Row};
use crate::schedule::{Cost, PassShape};
use crate::sequence::counts;
use crate::sequence::draft::gain::{Acceptance, DraftCandidate, PassTimes};
use crate::sequence::draft::{DraftRequest, MOST_DRAFTED, Proposer};
use crate::{Error, Result};
use std::time::Instant;

/// Drafts of which a stated share is right, for measuring passes that verify them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stated {
    /// Tokens of each draft; `None`: as many as pay, at most [`MOST_DRAFTED`].
    pub drafted: Option<usize>,
    /// The number of right tokens among a thousand drafted ones that follow right ones.
    pub right: u32,
}

impl Stated {
    /// Drafts of `drafted` tokens, or of as many as pay, with an acceptance of `share` per token, rounded to a
    /// thousandth.
    ///
    /// # Errors
    /// Input: no token, more than [`MOST_DRAFTED`], or `share` is not a probability.
    pub fn new(drafted: Option<usize>, share: f64) -> Result<Stated> {
        if let Some(drafted) = drafted.filter(|drafted| !(1..=MOST_DRAFTED).contains(drafted)) {
            let what = format!("drafts of {drafted} tokens are not in 1..={MOST_DRAFTED}");
            return Err(Error::input(what, "choose another number of tokens"));
        }
        if !(0.0..=1.0).contains(&share) {
            let what = format!("a drafted token cannot be right with a probability of {share}");
            return Err(Error::input(what, "give a number from 0 to 1"));
        }
        Ok(Stated { drafted, right: (1000.0 * share).round() as u32 })
    }

    /// The most tokens that a draft has.
    pub fn most(self) -> usize {
        self.drafted.unwrap_or(MOST_DRAFTED)
    }

    /// A function from a draft's length to the number of its right tokens. For a sequence the numbers are the same in
    /// every run, and spread so evenly that a hundred drafts have the given acceptance.
    pub fn coins(self, sequence: usize) -> impl FnMut(usize) -> usize {
        let share = f64::from(self.right) / 1000.0;
        // Multiples of the golden ratio spread evenly.
        const STEP: f64 = 0.618_033_988_749_895;
        let mut number = (0.5 + 0.5 * STEP * sequence as f64) % 1.0;
        move |drafted| {
            number = (number + STEP) % 1.0;
            // The probability that the first `n` tokens are all right is `share` to the power of `n`.
            let mut all_right = 1.0;
            (0..drafted)
                .take_while(|_| {
                    all_right *= share;
                    number < all_right
                })
                .count()
        }
    }
}

/// Measured times of passes with drafts, and the acceptance so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Policy {
    gain: PassTimes,
    acceptance: Acceptance,
}

impl Bench<'_> {
    /// Uses a draft model, whose time then counts. Its drafts are replaced by tokens of the given acceptance.
    pub fn draft_with(&mut self, model: Box<dyn Proposer>) {
        self.draft = Some(model);
    }

    /// Decodes `tokens` tokens of each of `sequences` sequences from `depth` on. `policy` carries over between runs.
    pub(super) fn run_drafts(
        &mut self,
        stated: Stated,
        (sequences, tokens): (usize, usize),
        depth: usize,
        policy: &mut Policy,
    ) -> Result<Repetition> {
        let mut model = self.draft.take();
        // A draft model's vocabulary may be slightly smaller.
        let vocab = model.as_ref().map_or(usize::MAX, |model| model.vocab());
        let fit = |token: u32| (token as usize % vocab) as u32;
        let whole = |s| self.tokens(s, 0..depth + tokens).into_iter().map(fit).collect();
        let start = |s| {
            let whole: Vec<u32> = whole(s);
            Decoding {
                sequence: s,
                at: depth,
                next: whole[depth],
                most: 0,
                head: None,
                coins: Box::new(stated.coins(s)),
                whole,
            }
        };
        let mut decoding: Vec<Decoding> = (0..sequences).map(start).collect();
        let mut candidates: Vec<DraftCandidate> = Vec::with_capacity(sequences);
        let extent = self.executor.schedule().extent;
        let (mut passes, mut rows) = (Vec::with_capacity(sequences * tokens), Vec::with_capacity(extent.max_rows));
        let mut draft_bytes = 0;
        let done = self.timed(|executor| {
            let (mut before, mut is_ahead) = (None, false);
            loop {
                let count = decoding.len();
                decoding.retain(|decoding| decoding.at < decoding.whole.len());
                if decoding.is_empty() {
                    return Ok(());
                }
                if decoding.len() < count {
                    before = None;
                }
                let drafts = model.as_ref().is_none_or(|model| decoding.len() <= model.most_sequences());
                let room = if drafts { extent.head_rows - decoding.len() } else { 0 };
                candidates.clear();
                for decoding in &mut decoding {
                    decoding.most = stated.most().min(decoding.whole.len() - decoding.at - 1);
                    candidates.push(DraftCandidate::new(decoding.most, policy.acceptance.share()));
                }
                let wanted = match stated.drafted {
                    Some(_) => {
                        let each = room / decoding.len();
                        candidates.iter_mut().for_each(|candidate| candidate.drafted = candidate.length.min(each));
                        candidates.iter().map(|candidate| candidate.drafted).sum()
                    }
                    None => policy.gain.choose(&mut candidates, room),
                };
                // A pass that already runs gets no drafts.
                let drafted = if is_ahead { 0 } else { wanted };
                if drafted == 0 {
                    candidates.iter_mut().for_each(|candidate| candidate.drafted = 0);
                }
                if let Some(model) = model.as_mut().filter(|_| drafted > 0) {
                    for (decoding, candidate) in decoding.iter().zip(&candidates).filter(|(_, c)| c.drafted > 0) {
                        let (slot, tokens) = (decoding.sequence, &decoding.whole[..=decoding.at]);
                        model.ask(DraftRequest { slot, tokens, most: candidate.drafted, head: decoding.head })?;
                    }
                    model.make(executor)?;
                    let effort = model.take_effort();
                    draft_bytes += effort.bytes;
                    if effort.caught_up {
                        before = None;
                    }
                }
                rows.clear();
                for (decoding, candidate) in decoding.iter().zip(&candidates) {
                    rows.push(Row { token: decoding.next, ..decoding.row(decoding.at) });
                    rows.extend((decoding.at + 1..=decoding.at + candidate.drafted).map(|at| decoding.row(at)));
                }
                let head = HeadRows { first: 0, count: rows.len() };
                is_ahead = match wanted == 0 && decoding.iter().all(|decoding| decoding.most > 0) {
                    true => executor.forward_ahead(&rows, head)?,
                    false => executor.forward(&rows, Some(head)).map(|()| false)?,
                };
                let mean = decoding.iter().map(|decoding| decoding.at).sum::<usize>() / decoding.len();
                passes.push(PassShape::Verify { sequences: decoding.len(), rows: rows.len(), depth: mean });
                let mut first = 0;
                for (decoding, &DraftCandidate { drafted, .. }) in decoding.iter_mut().zip(&candidates) {
                    let right = (decoding.coins)(drafted);
                    counts::count_verified(1, 1 + right);
                    decoding.at += 1 + right;
                    decoding.head = Some(first + right);
                    decoding.next = match decoding.whole.get(decoding.at) {
                        Some(&token) if drafted > 0 => token,
                        _ => executor.next(first),
                    };
                    first += 1 + drafted;
                    if stated.drafted.is_none() && drafted > 0 {
                        policy.acceptance.note(right, right < drafted);
                    }
                }
                let now = Instant::now();
                if let Some(before) = before.replace(now) {
                    policy.gain.note_pass(decoding.len(), rows.len(), (now - before).as_secs_f64());
                }
            }
        });
        self.draft = model;
        let mut done = done?;
        let mut cost: Cost = passes.iter().map(|&pass| self.executor.schedule().cost(pass)).sum();
        cost.weight_bytes += draft_bytes;
        (done.passes, done.cost) = (passes.len(), cost);
        Ok(done)
    }
}

/// A sequence that decodes while it is measured.
struct Decoding {
    sequence: usize,
    /// All tokens of the sequence, including those still to be decoded.
    whole: Vec<u32>,
    /// The position and the token of the sequence's next row.
    at: usize,
    next: u32,
    /// The most tokens that the sequence's next draft may have.
    most: usize,
    /// The head row of the last pass that its next row follows.
    head: Option<usize>,
    coins: Box<dyn FnMut(usize) -> usize>,
}

impl Decoding {
    fn row(&self, at: usize) -> Row {
        Row { token: self.whole[at], position: at as u32, sequence: self.sequence as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::draft::gain::expected_tokens;

    #[test]
    fn drafts_are_right_as_often_as_stated() {
        for share in [0.0, 0.5, 0.6, 0.8, 1.0] {
            for drafted in [1, 3, 7] {
                let mut coins = Stated::new(Some(drafted), share).unwrap().coins(drafted);
                let right: usize = (0..100).map(|_| coins(drafted)).sum();
                let expected = expected_tokens(drafted, share) - 1.0;
                assert!((right as f64 / 100.0 - expected).abs() < 0.06, "{drafted} of {share}: {right}, {expected}");
            }
        }
        for (drafted, share) in [(0, 0.5), (8, 0.5), (1, 1.5), (1, -0.1), (1, f64::NAN)] {
            assert_eq!(Stated::new(Some(drafted), share).unwrap_err().exit_code(), 2, "{drafted}, {share}");
        }
    }
}
