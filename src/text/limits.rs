//! How large a tokenizer may be. Its file is not trusted, and the `tokenizers` crate needs time and memory that grow much
//! faster than the file: a token of 100,000 equal characters takes it more than an hour. Each limit is a few times what
//! Gemma 3's tokenizer has, and is checked before the crate sees the file.

/// Most bytes of a token. Gemma 3's longest has 93.
pub(super) const LONGEST: usize = 256;
/// Most tokens, and the end of their ids: rows of an embedding. Gemma 3 has 262,208.
pub(super) const TOKENS: usize = crate::model::config::limit::VOCAB;
/// Most tokens that are cut out of a text before anything is merged. Gemma 3 has 6,415.
pub(super) const ADDED: usize = 1 << 15;
/// Most places for each token at which one can be cut in two. Gemma 3 has 4.6.
pub(super) const PLACES: usize = 16;
/// Most pairs for each token that are merged. Gemma 3 has 2.
pub(super) const MERGES: usize = 4;

/// What so many tokens may have, at `each` a token. A small tokenizer may consist of long runs of spaces.
pub(super) fn most(each: usize, tokens: usize) -> usize {
    each * tokens + (1 << 16)
}
