//! A proposer whose drafts are right and wrong by chance.

use super::Random;
use kiln::sequence::draft::Proposer;
use std::sync::{Arc, Mutex};

/// Drafts from a known sequence, with wrong tokens among the right ones.
pub struct Mixed {
    /// The sequence that is known.
    known: Arc<Mutex<Vec<u32>>>,
    random: Random,
    vocab: usize,
}

impl Mixed {
    /// For the sequences of a model with `vocab` tokens; those with equal seeds draft the same.
    pub fn new(known: &Arc<Mutex<Vec<u32>>>, seed: u64, vocab: usize) -> Mixed {
        Mixed { known: known.clone(), random: Random(seed), vocab }
    }
}

impl Proposer for Mixed {
    fn begin(&mut self) {}

    fn propose(&mut self, tokens: &[u32], most: usize, draft: &mut Vec<u32>) -> kiln::Result<usize> {
        let known = self.known.lock().unwrap();
        // None, all right, all wrong, or right up to some token; and of any length.
        let length = self.random.below(most + 1);
        let right = match self.random.below(4) {
            0 => length,
            1 => 0,
            _ => self.random.below(length + 1),
        };
        for i in 0..length {
            let token = known.get(tokens.len() + i).copied().unwrap_or_default() as usize;
            let other = if i < right { token } else { (token + 1 + self.random.below(self.vocab - 1)) % self.vocab };
            draft.push(other as u32);
        }
        Ok(0)
    }
}
