//! Drafts: tokens that are likely to come next, guessed at hardly any cost.
//!
//! A pass of a few rows takes little longer than a pass of one, since it reads the weights once. So a [`Proposer`] drafts
//! tokens for the sequences that decode, and the next pass takes them as rows after each sequence's own ([`super::batch`]).
//! Each row's token is chosen as always. A drafted token is accepted where the row before it chose that very token; the first
//! other choice ends the draft, and takes its place. So every token is chosen from the logits that it has without drafts, and
//! with the same random numbers.
//!
//! [`repeats`] drafts what followed the last tokens where they stood before, [`model`] what a smaller model takes to be the
//! likeliest. [`gain`] says how many tokens pay.

pub mod gain;
pub mod model;
pub mod repeats;

pub use model::{SharedModel, check_tokenizers};
pub use repeats::{DraftText, Repeats};

use crate::Result;
use crate::sequence::Batch;
use crate::text::Tokenizer;
use std::sync::Arc;

/// Most tokens of a draft. With the row before them they fill a pass of 8 rows.
pub const MOST_DRAFTED: usize = 7;

/// Grades of drafts.
pub const GRADES: usize = 8;

/// Drafts the tokens of a batch's sequences, each in its slot. Before each pass it is asked for the drafts that are wanted, one
/// after the other, and then makes them.
pub trait Proposer {
    /// Forgets a slot's sequence: another one begins.
    fn begin(&mut self, slot: usize);

    /// Asks for up to `most` tokens that may follow `tokens`, the whole sequence of a slot. Since the last call for that slot
    /// it has only grown.
    ///
    /// # Errors
    /// As [`Proposer::make`].
    fn ask(&mut self, slot: usize, tokens: &[u32], most: usize) -> Result<()>;

    /// Makes the drafts that were asked for since the last call.
    ///
    /// # Errors
    /// Of what it takes to draft: the device's, or the cancellation of its passes.
    fn make(&mut self) -> Result<()> {
        Ok(())
    }

    /// Appends the draft that a slot asked for last to `draft`: as many tokens as were asked for, or fewer. Returns its grade,
    /// below [`GRADES`]: drafts of one grade are alike in how often they are right.
    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize;

    /// The grade of all its drafts, where each token takes time to draft: how many pay is then decided before. `None`: a
    /// draft costs nothing, and is cut to what pays.
    fn grade(&self) -> Option<usize> {
        None
    }

    /// Most sequences that it drafts for at a time.
    fn most_sequences(&self) -> usize {
        usize::MAX
    }

    /// What drafting has taken since the last call.
    fn take_effort(&mut self) -> Effort {
        Effort::default()
    }
}

/// What drafting takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Bytes read from the device's memory.
    pub bytes: u64,
    /// Whether tokens were run that drafts are usually made without, such as a prompt's: what that took is no measure.
    pub caught_up: bool,
}

/// What a batch drafts from.
#[derive(Debug, Clone, Default)]
pub struct Drafts {
    /// Most tokens of a draft; 0: none are drafted.
    pub most: usize,
    /// A text that replies may repeat, beside their own sequences.
    pub text: Option<Arc<DraftText>>,
    /// A model that drafts instead.
    pub model: Option<SharedModel>,
}

impl Drafts {
    /// Drafts of `most` tokens at most, from a text if there is one. It is tokenized here, once for all sequences.
    ///
    /// # Errors
    /// Input: the tokenizer cannot encode the text.
    pub fn new(most: usize, text: Option<&str>, tokenizer: &Tokenizer) -> Result<Drafts> {
        // Nobody looks at the text where nothing is drafted.
        let tokens = text.filter(|_| most > 0).map(|text| tokenizer.encode(text, false)).transpose()?;
        Ok(Drafts { most, text: tokens.map(|tokens| Arc::new(DraftText::new(tokens))), model: None })
    }

    /// Lets a batch draft as many tokens as pay. `context`: positions of a sequence.
    pub fn begin(&self, batch: &mut Batch, context: usize) {
        let slots = batch.slots();
        batch.speculate(
            self.most,
            true,
            match &self.model {
                Some(model) => Box::new(model.clone()),
                None => Box::new(Repeats::new(slots, context, self.text.clone())),
            },
        );
    }
}
