//! Drafts: cheap guesses at the next tokens.
//!
//! A pass of a few rows takes little longer than a pass of one, since it reads the weights once. So a [`Proposer`]
//! drafts tokens for the decoding sequences, and the next pass runs them as rows after each sequence's own
//! ([`super::batch`]). Each row's token is chosen as always. A drafted token is accepted if the row before it chose the
//! same token; the first different choice ends the draft and replaces its token. So every token is chosen from the same
//! logits, and with the same random numbers, as without drafts.
//!
//! [`repeats`] drafts the continuation of an earlier occurrence of the last tokens, [`model`] the likeliest tokens of a
//! smaller model. [`gain`] decides how many tokens pay.

pub mod gain;
pub mod model;
pub mod repeats;

pub use model::{DraftModel, check_tokenizers};
pub use repeats::{DraftText, Repeats};

use crate::Result;
use crate::sequence::Batch;
use crate::text::Tokenizer;
use std::sync::Arc;

/// The longest draft. With the row before it, it fills a pass of 8 rows.
pub const MOST_DRAFTED: usize = 7;

/// The number of grades of drafts.
pub const GRADES: usize = 8;

/// Drafts tokens for the sequences of a batch, by slot. Before each pass the batch asks for all drafts it wants, and
/// then has them made together.
pub trait Proposer {
    /// Forgets a slot's sequence, because a new one begins.
    fn begin(&mut self, slot: usize);

    /// Requests up to `most` tokens to follow `tokens`, the whole sequence of a slot. Between two calls for the same
    /// sequence it only grows.
    ///
    /// # Errors
    /// As [`Proposer::make`].
    fn ask(&mut self, slot: usize, tokens: &[u32], most: usize) -> Result<()>;

    /// Makes the drafts that were requested since the last call.
    ///
    /// # Errors
    /// Errors of the device, or the cancellation of passes.
    fn make(&mut self) -> Result<()> {
        Ok(())
    }

    /// Appends the slot's last requested draft, which may be shorter than requested. Returns its grade, below
    /// [`GRADES`]: drafts of the same grade have a similar acceptance.
    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize;

    /// The grade of all drafts, if drafting a token takes time: the number to draft is then decided in advance. `None`:
    /// drafts are free, and are cut to the number that pays.
    fn grade(&self) -> Option<usize> {
        None
    }

    /// The most sequences that it drafts for in one pass.
    fn most_sequences(&self) -> usize {
        usize::MAX
    }

    /// Takes the cost of drafting since the last call.
    fn take_effort(&mut self) -> Effort {
        Effort::default()
    }
}

/// The cost of drafting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Bytes read from the device's memory.
    pub bytes: u64,
    /// Whether unusual work was included, such as a prompt's tokens, so that the time is not representative.
    pub caught_up: bool,
}

/// The sources of a batch's drafts.
#[derive(Debug, Clone, Default)]
pub struct Drafts {
    /// The longest draft; 0 for no drafts.
    pub most: usize,
    /// A text that replies may repeat, in addition to their own sequences.
    pub text: Option<Arc<DraftText>>,
}

impl Drafts {
    /// Drafts of at most `most` tokens, from a text if given. The text is tokenized here, once for all sequences.
    ///
    /// # Errors
    /// Input: the tokenizer cannot encode the text.
    pub fn new(most: usize, text: Option<&str>, tokenizer: &Tokenizer) -> Result<Drafts> {
        // The text is not used if nothing is drafted.
        let tokens = text.filter(|_| most > 0).map(|text| tokenizer.encode(text, false)).transpose()?;
        Ok(Drafts { most, text: tokens.map(|tokens| Arc::new(DraftText::new(tokens))) })
    }

    /// Enables drafts in a batch, as many tokens as pay: by `model` if there is one, else from repeats. `context`:
    /// positions of a sequence.
    pub fn begin(&self, batch: &mut Batch, context: usize, model: Option<DraftModel>) {
        let slots = batch.slots();
        batch.speculate(
            self.most,
            true,
            match model {
                Some(model) => Box::new(model),
                None => Box::new(Repeats::new(slots, context, self.text.clone())),
            },
        );
    }
}
