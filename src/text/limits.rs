//! Limits on the size of a tokenizer. Its file is not trusted, and the time and memory of the `tokenizers` crate grow
//! much faster than the file: a token of 100,000 equal characters takes it more than an hour. Each limit is a few times
//! the value of Gemma 3's tokenizer, and is checked before the crate sees the file.

/// Most bytes of a token. Gemma 3's longest has 93.
pub(super) const LONGEST: usize = 256;
/// Most tokens, and the end of their ids: rows of an embedding. Gemma 3 has 262,208.
pub(super) const TOKENS: usize = crate::model::config::limit::VOCAB;
/// Most added tokens, which are cut out of a text before merges. Gemma 3 has 6,415.
pub(super) const ADDED: usize = 1 << 15;
/// Most places per token at which a token can be split in two. Gemma 3 has 4.6.
pub(super) const PLACES: usize = 16;
/// Most merges per token. Gemma 3 has 2.
pub(super) const MERGES: usize = 4;

/// The limit for `tokens` tokens at `each` per token. A small tokenizer may consist of long runs of spaces.
pub(super) fn most(each: usize, tokens: usize) -> usize {
    each * tokens + (1 << 16)
}
