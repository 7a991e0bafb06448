//! Drafts from repetition: the tokens that followed the last few tokens at an earlier place, in the sequence itself or
//! in a given text.
//!
//! An index holds the end of the latest occurrence of every run of [`SHORTEST`] to [`LONGEST`] tokens. It is updated
//! with each token, at constant cost. Its size is fixed; when it is too small for all runs, later runs replace earlier
//! ones.

use super::{DraftRequest, GRADES, MOST_DRAFTED, Proposer};
use crate::Result;
use std::sync::Arc;

/// The shortest run that a draft may continue.
pub const SHORTEST: usize = 2;
/// The most tokens of a repeated run that is searched for.
pub const LONGEST: usize = 8;
/// The number of lengths of runs that are indexed.
const LENGTHS: usize = LONGEST - SHORTEST + 1;
const _: () = assert!(LENGTHS <= GRADES);

/// The number of table entries that are tried for a run.
const PROBES: usize = 8;
/// The most tokens of a sequence, and of a text, for which the index is sized.
const MOST_OWN: usize = 1 << 15;
const MOST_TEXT: usize = 1 << 20;

/// An index of the latest occurrences of runs of tokens.
#[derive(Debug, Clone)]
struct RepeatIndex {
    /// A hash table for each length. An entry is the position after the run; 0 if free.
    places: Vec<u32>,
    /// Entries of a table, a power of two.
    size: usize,
    /// Runs that end before this position are in the index.
    noted: usize,
}

/// The hashes of the last runs of `tokens`, by length; 0 for lengths above that of `tokens`.
fn hashes(tokens: &[u32]) -> [u64; LONGEST + 1] {
    let mut hashes = [0; LONGEST + 1];
    let mut hash = 0u64;
    for (length, token) in (1..=LONGEST).zip(tokens.iter().rev()) {
        hash = (hash.rotate_left(5) ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hashes[length] = hash;
    }
    hashes
}

impl RepeatIndex {
    /// An index sized for the runs of `tokens` tokens.
    fn new(tokens: usize) -> RepeatIndex {
        let size = (2 * tokens.max(PROBES)).next_power_of_two();
        RepeatIndex { places: vec![0; LENGTHS * size], size, noted: SHORTEST }
    }

    fn clear(&mut self) {
        // An unused index has not touched its memory yet, and stays so.
        if self.noted > SHORTEST {
            self.places.fill(0);
            self.noted = SHORTEST;
        }
    }

    /// Indices of the entries that a run may be stored in.
    fn probes(&self, length: usize, hash: u64) -> impl Iterator<Item = usize> + Clone + use<> {
        let (table, mask) = ((length - SHORTEST) * self.size, self.size - 1);
        let home = (hash >> 32) as usize;
        (0..PROBES).map(move |i| table + ((home + i) & mask))
    }

    /// Adds the runs of `tokens` that are followed by a token. The index already has all runs before the new tokens.
    fn note(&mut self, tokens: &[u32]) {
        for end in self.noted..tokens.len() {
            let hashes = hashes(&tokens[..end]);
            for length in SHORTEST..=LONGEST.min(end) {
                let run = &tokens[end - length..end];
                let is_free = |at: &usize| match self.places[*at] as usize {
                    0 => true,
                    place => tokens.get(place - length..place) == Some(run),
                };
                let mut probes = self.probes(length, hashes[length]);
                let home = probes.clone().next();
                if let Some(at) = probes.find(is_free).or(home) {
                    self.places[at] = end as u32;
                }
            }
        }
        self.noted = self.noted.max(tokens.len());
    }

    /// The position after the latest occurrence of `run` in `tokens`, which are indexed.
    fn find(&self, tokens: &[u32], run: &[u32], hash: u64) -> Option<usize> {
        let places = self.probes(run.len(), hash).map(|at| self.places[at] as usize);
        // Entries are never freed, so no run is stored after a free one.
        let mut taken = places.take_while(|place| *place != 0);
        taken.find(|&place| tokens.get(place - run.len()..place) == Some(run))
    }
}

/// A text whose runs serve as drafts for any sequence.
#[derive(Debug)]
pub struct DraftText {
    tokens: Vec<u32>,
    index: RepeatIndex,
}

impl DraftText {
    /// Indexes a text's tokens, fewer than 2³².
    pub fn new(tokens: Vec<u32>) -> DraftText {
        let mut index = RepeatIndex::new(tokens.len().min(MOST_TEXT));
        index.note(&tokens);
        DraftText { tokens, index }
    }
}

/// Drafts the continuation of the longest of the last runs that occurred before, at its latest occurrence. The sequence
/// itself is preferred to the text.
#[derive(Debug)]
pub struct Repeats {
    /// The index of each slot's own tokens.
    slots: Vec<Own>,
    text: Option<Arc<DraftText>>,
}

/// The index and draft of a slot's sequence.
#[derive(Debug)]
struct Own {
    index: RepeatIndex,
    draft: Vec<u32>,
    grade: usize,
}

impl Repeats {
    /// State for `slots` sequences of at most `context` tokens each, fewer than 2³².
    pub fn new(slots: usize, context: usize, text: Option<Arc<DraftText>>) -> Repeats {
        let index = || RepeatIndex::new(context.min(MOST_OWN));
        let own = |_| Own { index: index(), draft: Vec::with_capacity(MOST_DRAFTED), grade: 0 };
        Repeats { slots: (0..slots).map(own).collect(), text }
    }
}

impl Proposer for Repeats {
    fn begin(&mut self, slot: usize) {
        self.slots[slot].index.clear();
    }

    fn ask(&mut self, request: DraftRequest<'_>) -> Result<()> {
        let DraftRequest { slot, tokens, most, .. } = request;
        let own = &mut self.slots[slot];
        own.index.note(tokens);
        own.draft.clear();
        own.grade = own.find(self.text.as_deref(), tokens, most);
        Ok(())
    }

    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize {
        let own = &self.slots[slot];
        draft.extend_from_slice(&own.draft);
        own.grade
    }
}

impl Own {
    /// Appends the draft for `tokens`. Returns its grade.
    fn find(&mut self, text: Option<&DraftText>, tokens: &[u32], most: usize) -> usize {
        let Own { index, draft, .. } = self;
        let hashes = hashes(tokens);
        for length in (SHORTEST..=LONGEST.min(tokens.len())).rev() {
            let (run, hash) = (&tokens[tokens.len() - length..], hashes[length]);
            if let Some(from) = index.find(tokens, run, hash) {
                // Past the end of the sequence the draft continues with its own tokens, as in a loop.
                for at in from..from + most {
                    let next = tokens.get(at).or_else(|| draft.get(at - tokens.len())).copied();
                    draft.extend(next);
                }
                return length - SHORTEST;
            }
            if let Some(text) = text
                && let Some(from) = text.index.find(&text.tokens, run, hash)
            {
                draft.extend(text.tokens[from..].iter().take(most));
                return length - SHORTEST;
            }
        }
        0
    }
}

#[cfg(test)]
#[path = "repeats_tests.rs"]
mod tests;
