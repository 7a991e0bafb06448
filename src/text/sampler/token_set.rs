//! Sets of tokens as bits, filled by a guide and read by the device.

use crate::schedule::choice::set_words;

/// A set of tokens, one bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSet {
    vocab: usize,
    words: Vec<u32>,
}

impl TokenSet {
    /// An empty set over a vocabulary of `vocab` tokens.
    pub fn new(vocab: usize) -> TokenSet {
        TokenSet { vocab, words: vec![0; set_words(vocab)] }
    }

    /// Adds a token. Ids outside the vocabulary are ignored.
    pub fn insert(&mut self, id: u32) {
        if (id as usize) < self.vocab {
            self.words[id as usize / 32] |= 1 << (id % 32);
        }
    }

    /// Removes all tokens from the set.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Replaces the set by the bits of `words`: bit `i` of word `w` is token `32 w + i`. Missing words count as 0; bits
    /// outside the vocabulary are ignored.
    pub fn copy_from_words(&mut self, words: &[u32]) {
        let given = words.len().min(self.words.len());
        self.words[..given].copy_from_slice(&words[..given]);
        self.words[given..].fill(0);
        if let (Some(last), rest @ 1..) = (self.words.last_mut(), self.vocab % 32) {
            *last &= (1 << rest) - 1;
        }
    }

    /// True if the set contains the token `id`.
    pub fn contains(&self, id: u32) -> bool {
        self.words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 != 0)
    }

    /// The set as bits, in the layout of [`TokenSet::copy_from_words`].
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The number of tokens in the vocabulary, and so of bits.
    pub fn vocab(&self) -> usize {
        self.vocab
    }
}
