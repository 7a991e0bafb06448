//! What passes between the host and a pass when the host chooses tokens otherwise than by argmax: for each head row, what
//! the host asks of the logits, and what the pass finds in them. Both lie in the arena, as u32 words.
//!
//! A row's tokens are divided into those that the host reads for itself (it changes their logits, by a penalty or a bias)
//! and the *eligible* ones: the others, if they are allowed and their logit is above −∞. What is found covers the eligible
//! tokens; the edited ones' logits come beside it.

/// Logits of a block. A block is what a draw over all tokens picks first.
pub const BLOCK: usize = 1024;
/// Parts of a block: part `g` has its elements `g, g + PARTS, …`. The candidates are found among the parts with the largest
/// maxima.
pub const PARTS: usize = 16;
/// Most tokens that a row can be asked for.
pub const MOST_TOP_K: usize = 256;
/// Most tokens that are listed: a bound that lets the wanted ones through lets a few more through.
pub const MOST_LISTED: usize = 512;
/// Most tokens of a row whose logits the host reads for itself.
pub const MOST_EDITS: usize = 384;

/// Word of an ask: how many of the likeliest tokens are asked for; 0 where the row takes its argmax, and nothing is
/// found.
pub const TOP_K: usize = 0;
/// Word of an ask: f32, multiplies the logits in the sums.
pub const SCALE: usize = 1;
/// Word of an ask: f32 in [0, 1], where in the sum of all blocks the picked block lies; negative for none.
pub const UNIT: usize = 2;
/// Word of an ask: 1 where only the tokens in the row's set are allowed.
pub const MASKED: usize = 3;
/// Word of an ask: number of edits.
pub const EDITS: usize = 4;
/// Word of an ask: the edits' first token id.
pub const EDIT_IDS: usize = 8;
/// Words of an ask.
pub const ASK_WORDS: usize = EDIT_IDS + MOST_EDITS;

/// Word of what is found: how many tokens are listed. More than [`MOST_LISTED`]: there was no room, and none is.
pub const COUNT: usize = 0;
/// Word of what is found: f32; every eligible token of at least this logit is listed. −∞: all are.
pub const FLOOR: usize = 1;
/// Word of what is found: the picked block; `u32::MAX` for none.
pub const PICKED: usize = 2;
/// Word of what is found: the list's first entry, each a token id and its logit, in any order.
pub const LIST: usize = 4;
/// Word of what is found: the first edit's logit.
pub const EDITED: usize = LIST + 2 * MOST_LISTED;
/// Word of what is found: the first logit of the picked block.
pub const PICKED_LOGITS: usize = EDITED + MOST_EDITS;
/// Word of what is found: block 0's largest eligible logit, then its sum; the other blocks follow.
pub const SUMS: usize = PICKED_LOGITS + BLOCK;

/// Blocks of a vocabulary.
pub fn blocks(vocab: usize) -> usize {
    vocab.div_ceil(BLOCK)
}

/// Words of what is found in a row.
pub fn found_words(vocab: usize) -> usize {
    SUMS + 2 * blocks(vocab)
}

/// Words of a set of tokens.
pub fn set_words(vocab: usize) -> usize {
    vocab.div_ceil(32)
}

/// What the host asks of a head row's logits, to be filled in. It may lie in memory that the host should not read.
pub struct SampleRequest<'a> {
    words: &'a mut [u32],
    allowed: &'a mut [u32],
    is_set: bool,
}

impl<'a> SampleRequest<'a> {
    /// An ask for nothing. `words`: [`ASK_WORDS`]; `allowed`: [`set_words`].
    pub fn new(words: &'a mut [u32], allowed: &'a mut [u32]) -> SampleRequest<'a> {
        words[TOP_K] = 0;
        SampleRequest { words, allowed, is_set: false }
    }

    /// Whether anything is asked for.
    pub fn is_set(&self) -> bool {
        self.is_set
    }

    /// Asks for the `top_k` likeliest tokens, at most [`MOST_TOP_K`], and for each block's sum of `exp(scale * logit)`;
    /// with `unit`, for the logits of the block in which that part of all sums ends. `edits`, at most [`MOST_EDITS`],
    /// are the tokens that the host reads for itself; `allowed` is the set of allowed tokens, a bit each.
    ///
    /// With a `top_k` of 1, no `unit` and no edits, the pass takes the likeliest eligible token itself, the lowest of
    /// equals: it becomes the row's [`crate::executor::Executor::next`] in the argmax's place. Where none is eligible,
    /// or more are equal than are listed, that stays the argmax ([`SampleResult::has_likeliest`]).
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

/// What was found in a head row's logits.
#[derive(Clone, Copy)]
pub struct SampleResult<'a> {
    words: &'a [u32],
}

impl<'a> SampleResult<'a> {
    /// What is found in a row, [`found_words`].
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

    /// Whether a row that asks for the likeliest token alone has it as its next: one is listed, no more are as likely than
    /// there is room for, and every logit is sound.
    pub fn has_likeliest(self) -> bool {
        (1..=MOST_LISTED).contains(&(self.words[COUNT] as usize)) && self.is_sound()
    }

    /// Whether every logit is a number or −∞.
    pub fn is_sound(self) -> bool {
        self.sums().all(|(largest, sum)| largest < f32::INFINITY && sum < f32::INFINITY)
    }

    /// The least logit of which every eligible token is listed; −∞ if all are.
    pub fn floor(self) -> f32 {
        f32::from_bits(self.words[FLOOR])
    }

    /// The logit of edit `i`.
    pub fn edited(self, i: usize) -> f32 {
        f32::from_bits(self.words[EDITED..PICKED_LOGITS][i])
    }

    /// Each block's largest eligible logit, and the sum of `exp(scale * (logit - largest))` over the eligible tokens. −∞ and
    /// 0 where there is none. NaN where any logit of the block is NaN or +∞.
    pub fn sums(self) -> impl Iterator<Item = (f32, f32)> + 'a {
        self.words[SUMS..].chunks_exact(2).map(|block| (f32::from_bits(block[0]), f32::from_bits(block[1])))
    }

    /// The picked block and its logits. `None` if no block was picked.
    pub fn picked(self) -> Option<(usize, &'a [f32])> {
        let block = self.words[PICKED];
        (block != u32::MAX).then(|| (block as usize, bytemuck::cast_slice(&self.words[PICKED_LOGITS..SUMS])))
    }
}
