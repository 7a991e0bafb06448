//! Sets of tokens, a bit each, as a guide fills them and the device reads them.

use crate::schedule::choice::set_words;

/// A set of tokens, a bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSet {
    vocab: usize,
    words: Vec<u32>,
}

impl TokenSet {
    /// None of a vocabulary's tokens.
    pub fn new(vocab: usize) -> TokenSet {
        TokenSet { vocab, words: vec![0; set_words(vocab)] }
    }

    /// Adds a token. One outside of the vocabulary changes nothing.
    pub fn insert(&mut self, id: u32) {
        if (id as usize) < self.vocab {
            self.words[id as usize / 32] |= 1 << (id % 32);
        }
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Has the tokens whose bits are set in `words`, and no others: bit `i` of word `w` is token `32 w + i`. Words that are
    /// missing count as 0; bits outside of the vocabulary change nothing.
    pub fn copy_from_words(&mut self, words: &[u32]) {
        let given = words.len().min(self.words.len());
        self.words[..given].copy_from_slice(&words[..given]);
        self.words[given..].fill(0);
        if let (Some(last), rest @ 1..) = (self.words.last_mut(), self.vocab % 32) {
            *last &= (1 << rest) - 1;
        }
    }

    /// Whether it has a token.
    pub fn contains(&self, id: u32) -> bool {
        self.words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 != 0)
    }

    /// Its bits, as of [`TokenSet::copy_from_words`].
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }
}
