//! Sample requests and results: the data between the host and a pass when the host chooses tokens otherwise than by
//! argmax. For each head row, the host's request names what it needs of the logits, and the pass returns the result.
//! Both lie in the arena, as u32 words.
//!
//! A row's tokens are divided into edited ones, whose logits the host changes by a penalty or a bias, and *eligible*
//! ones: the others, if they are allowed and their logit is above −∞. The result covers the eligible tokens, and lists
//! the edited ones' logits separately.

/// Logits of a block. A draw over all tokens first picks a block.
pub const BLOCK: usize = 1024;
/// Parts of a block: part `g` has its elements `g, g + PARTS, …`. The candidates are found among the parts with the largest
/// maxima.
pub const PARTS: usize = 16;
/// The largest `top_k` that a request may have.
pub const MOST_TOP_K: usize = 256;
/// Most tokens of the list. It is longer than [`MOST_TOP_K`], since the bound that admits the requested tokens admits a
/// few more.
pub const MOST_LISTED: usize = 512;
/// The most tokens of a row whose logits a request may change.
pub const MOST_EDITS: usize = 384;

/// Request word: the number of likeliest tokens requested; 0 if the row takes its argmax and has no result.
pub const TOP_K: usize = 0;
/// Request word: f32, multiplies the logits in the sums.
pub const SCALE: usize = 1;
/// Request word: f32 in [0, 1], the picked block's place in the sum of all blocks; negative to pick none.
pub const UNIT: usize = 2;
/// Request word: 1 if only the tokens in the row's set are allowed.
pub const MASKED: usize = 3;
/// The index of the request's word with the number of edits.
pub const EDITS: usize = 4;
/// The index of the request's word with the first edit's token id. The other edits follow.
pub const EDIT_IDS: usize = 8;
/// The number of words in a request.
pub const ASK_WORDS: usize = EDIT_IDS + MOST_EDITS;

/// Result word: number of listed tokens. If it exceeds [`MOST_LISTED`], the list is empty.
pub const COUNT: usize = 0;
/// Result word: f32; every eligible token of at least this logit is listed. −∞: all are.
pub const FLOOR: usize = 1;
/// Result word: the picked block; `u32::MAX` for none.
pub const PICKED: usize = 2;
/// Result word: the list's first entry, each a token id and its logit, in any order.
pub const LIST: usize = 4;
/// The index of the result's word with the first edit's logit. The other edits follow.
pub const EDITED: usize = LIST + 2 * MOST_LISTED;
/// Result word: the first logit of the picked block.
pub const PICKED_LOGITS: usize = EDITED + MOST_EDITS;
/// Result word: block 0's largest eligible logit, then its sum; the other blocks follow.
pub const SUMS: usize = PICKED_LOGITS + BLOCK;

/// The number of blocks that a vocabulary is divided into.
pub fn blocks(vocab: usize) -> usize {
    vocab.div_ceil(BLOCK)
}

/// The number of words in a row's sample result.
pub fn found_words(vocab: usize) -> usize {
    SUMS + 2 * blocks(vocab)
}

/// The number of words in a set of tokens, which has a bit for each token.
pub fn set_words(vocab: usize) -> usize {
    vocab.div_ceil(32)
}

/// A head row's sample request, to be filled in. It may lie in memory that is slow for the host to read.
pub struct SampleRequest<'a> {
    words: &'a mut [u32],
    allowed: &'a mut [u32],
    is_set: bool,
}

impl<'a> SampleRequest<'a> {
    /// An empty request in `words` ([`ASK_WORDS`]), whose set of tokens is in `allowed` ([`set_words`]).
    pub fn new(words: &'a mut [u32], allowed: &'a mut [u32]) -> SampleRequest<'a> {
        words[TOP_K] = 0;
        SampleRequest { words, allowed, is_set: false }
    }

    /// True if the row has a request. Otherwise the device takes its argmax.
    pub fn is_set(&self) -> bool {
        self.is_set
    }

    /// Requests the `top_k` likeliest tokens, at most [`MOST_TOP_K`], and each block's sum of `exp(scale * logit)`;
    /// with `unit`, also the logits of the block in which that share of all sums ends. `edits`, at most [`MOST_EDITS`],
    /// are the tokens whose logits the host changes; `allowed` is the set of allowed tokens, a bit each.
    ///
    /// With a `top_k` of 1, no `unit` and no edits, the pass takes the likeliest eligible token itself, the lowest of
    /// equals: it becomes the row's next token in the argmax's place. If no token is eligible,
    /// or more are equal than the list holds, the argmax stays ([`SampleResult::has_likeliest`]).
    pub fn set(
        &mut self,
        top_k: usize,
        scale: f32,
        unit: Option<f32>,
        edits: impl Iterator<Item = u32>,
        allowed: Option<&[u32]>,
    ) {
        self.is_set = top_k > 0;
        self.words[TOP_K] = top_k.min(MOST_TOP_K) as u32;
        self.words[SCALE] = scale.to_bits();
        self.words[UNIT] = unit.unwrap_or(-1.0).to_bits();
        self.words[MASKED] = u32::from(allowed.is_some());
        let mut count = 0;
        for (word, id) in self.words[EDIT_IDS..].iter_mut().zip(edits) {
            *word = id;
            count += 1;
        }
        self.words[EDITS] = count;
        if let Some(allowed) = allowed {
            let words = self.allowed.len().min(allowed.len());
            self.allowed[..words].copy_from_slice(&allowed[..words]);
        }
    }
}

/// The tokens and the sums that the device found for a head row's request.
#[derive(Clone, Copy)]
pub struct SampleResult<'a> {
    words: &'a [u32],
}

impl<'a> SampleResult<'a> {
    /// The result in a row's `words`, [`found_words`] of them.
    pub fn new(words: &'a [u32]) -> SampleResult<'a> {
        SampleResult { words }
    }

    /// The listed tokens with their logits, in any order: every eligible token of at least [`SampleResult::floor`].
    /// `None` if there were too many.
    pub fn list(self) -> Option<impl Iterator<Item = (u32, f32)> + 'a> {
        let count = self.words[COUNT] as usize;
        let entries = self.words[LIST..EDITED].chunks_exact(2).take(count);
        (count <= MOST_LISTED).then(|| entries.map(|entry| (entry[0], f32::from_bits(entry[1]))))
    }

    /// Whether the row's next token is its likeliest eligible one: at least one token is listed, the list has room for
    /// all equal ones, and every logit is sound.
    pub fn has_likeliest(self) -> bool {
        (1..=MOST_LISTED).contains(&(self.words[COUNT] as usize)) && self.is_sound()
    }

    /// True if each logit is a number or −∞.
    pub fn is_sound(self) -> bool {
        self.sums().all(|(largest, sum)| largest < f32::INFINITY && sum < f32::INFINITY)
    }

    /// The logit down to which every eligible token is listed; −∞ if all are.
    pub fn floor(self) -> f32 {
        f32::from_bits(self.words[FLOOR])
    }

    /// The changed token's logit, for edit `i` of the request.
    pub fn edited(self, i: usize) -> f32 {
        f32::from_bits(self.words[EDITED..PICKED_LOGITS][i])
    }

    /// Each block's largest eligible logit, and the sum of `exp(scale * (logit - largest))` over the eligible tokens.
    /// −∞ and 0 for a block without any. NaN if any logit of the block is NaN or +∞.
    pub fn sums(self) -> impl Iterator<Item = (f32, f32)> + 'a {
        self.words[SUMS..].chunks_exact(2).map(|block| (f32::from_bits(block[0]), f32::from_bits(block[1])))
    }

    /// The picked block and its logits. `None` if no block was picked.
    pub fn picked(self) -> Option<(usize, &'a [f32])> {
        let block = self.words[PICKED];
        (block != u32::MAX).then(|| (block as usize, bytemuck::cast_slice(&self.words[PICKED_LOGITS..SUMS])))
    }
}
