//! A proposer whose drafts are right and wrong by chance.

use super::Random;
use kiln::sequence::draft::{DraftRequest, MOST_DRAFTED, Proposer};
use std::sync::{Arc, Mutex};

/// Drafts from known sequences, with wrong tokens among the right ones.
pub struct Mixed {
    /// The sequences that are known, by slot.
    known: Arc<Mutex<Vec<Vec<u32>>>>,
    random: Random,
    vocab: usize,
    drafts: Vec<Vec<u32>>,
}

impl Mixed {
    /// For the sequences of a model with `vocab` tokens; those with equal seeds draft the same.
    pub fn new(known: &Arc<Mutex<Vec<Vec<u32>>>>, seed: u64, vocab: usize) -> Mixed {
        let drafts = known.lock().unwrap().iter().map(|_| Vec::with_capacity(MOST_DRAFTED)).collect();
        Mixed { known: known.clone(), random: Random(seed), vocab, drafts }
    }
}

impl Proposer for Mixed {
    fn begin(&mut self, _: usize) {}

    fn ask(&mut self, request: DraftRequest<'_>) -> kiln::Result<()> {
        let DraftRequest { slot, tokens, most, .. } = request;
        let known = &self.known.lock().unwrap()[slot];
        // None, all right, all wrong, or right up to some token; and of any length.
        let length = self.random.below(most + 1);
        let right = match self.random.below(4) {
            0 => length,
            1 => 0,
            _ => self.random.below(length + 1),
        };
        self.drafts[slot].clear();
        for i in 0..length {
            let token = known.get(tokens.len() + i).copied().unwrap_or_default() as usize;
            let other = if i < right { token } else { (token + 1 + self.random.below(self.vocab - 1)) % self.vocab };
            self.drafts[slot].push(other as u32);
        }
        Ok(())
    }

    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize {
        draft.extend_from_slice(&self.drafts[slot]);
        0
    }
}
