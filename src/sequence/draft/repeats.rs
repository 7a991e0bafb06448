//! Drafts of what followed the last tokens where they stood before: in the sequence itself, or in a text.
//!
//! An index knows of every run of [`SHORTEST`] to [`LONGEST`] tokens where its latest occurrence ends. It is kept up as
//! tokens come: a token costs the same however many there are. Its size is fixed; where it is too small for all runs, later
//! ones take the place of earlier ones.

use super::{GRADES, MOST_DRAFTED, Proposer};
use crate::Result;
use std::sync::Arc;

/// Tokens of the shortest run that a draft goes on.
pub const SHORTEST: usize = 2;
/// Tokens of the longest run that is looked for.
pub const LONGEST: usize = 8;
/// Lengths of runs.
const LENGTHS: usize = LONGEST - SHORTEST + 1;
const _: () = assert!(LENGTHS <= GRADES);

/// Places where a run may be noted.
const PROBES: usize = 8;
/// Most tokens of a sequence that all have places of their own, and most of a text.
const MOST_OWN: usize = 1 << 15;
const MOST_TEXT: usize = 1 << 20;

/// Where runs of tokens occurred last.
#[derive(Debug, Clone)]
struct RepeatIndex {
    /// For each length a table: where what follows a run begins; 0 for a free place.
    places: Vec<u32>,
    /// Places of a table, a power of two.
    size: usize,
    /// Runs that end before this position are noted.
    noted: usize,
}

/// The hashes of the last runs of `tokens`, by length; of those that are longer than `tokens`, 0.
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
    /// An index with places for the runs of `tokens` tokens.
    fn new(tokens: usize) -> RepeatIndex {
        let size = (2 * tokens.max(PROBES)).next_power_of_two();
        RepeatIndex { places: vec![0; LENGTHS * size], size, noted: SHORTEST }
    }

    fn clear(&mut self) {
        // One that was never used has touched no memory yet.
        if self.noted > SHORTEST {
            self.places.fill(0);
            self.noted = SHORTEST;
        }
    }

    /// Indices of the places that a run may have.
    fn probes(&self, length: usize, hash: u64) -> impl Iterator<Item = usize> + Clone + use<> {
        let (table, mask) = ((length - SHORTEST) * self.size, self.size - 1);
        let home = (hash >> 32) as usize;
        (0..PROBES).map(move |i| table + ((home + i) & mask))
    }

    /// Notes the runs of `tokens` that something follows. It has those of all tokens but the new ones.
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

    /// Where in `tokens`, whose runs it has, what follows the latest `run` begins.
    fn find(&self, tokens: &[u32], run: &[u32], hash: u64) -> Option<usize> {
        let places = self.probes(run.len(), hash).map(|at| self.places[at] as usize);
        // A place is free for good once one behind it is taken, so nothing stands behind a free one.
        let mut taken = places.take_while(|place| *place != 0);
        taken.find(|&place| tokens.get(place - run.len()..place) == Some(run))
    }
}

/// A text whose runs are drafts for any sequence.
#[derive(Debug)]
pub struct DraftText {
    tokens: Vec<u32>,
    index: RepeatIndex,
}

impl DraftText {
    /// Takes a text's tokens, fewer than 2³².
    pub fn new(tokens: Vec<u32>) -> DraftText {
        let mut index = RepeatIndex::new(tokens.len().min(MOST_TEXT));
        index.note(&tokens);
        DraftText { tokens, index }
    }
}

/// Drafts what followed the longest of the last runs that occurred before, after its latest occurrence. Where both have it,
/// the sequence comes before the text.
#[derive(Debug)]
pub struct Repeats {
    /// One for each slot.
    slots: Vec<Own>,
    text: Option<Arc<DraftText>>,
}

/// What is known of a slot's sequence.
#[derive(Debug)]
struct Own {
    index: RepeatIndex,
    draft: Vec<u32>,
    grade: usize,
}

impl Repeats {
    /// For so many sequences, each of `context` tokens at most, fewer than 2³².
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

    fn ask(&mut self, slot: usize, tokens: &[u32], most: usize) -> Result<()> {
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
    /// Appends the draft. Returns its grade.
    fn find(&mut self, text: Option<&DraftText>, tokens: &[u32], most: usize) -> usize {
        let Own { index, draft, .. } = self;
        let hashes = hashes(tokens);
        for length in (SHORTEST..=LONGEST.min(tokens.len())).rev() {
            let (run, hash) = (&tokens[tokens.len() - length..], hashes[length]);
            if let Some(from) = index.find(tokens, run, hash) {
                // At the sequence's end it goes on with what it has drafted: what repeats itself goes round.
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
