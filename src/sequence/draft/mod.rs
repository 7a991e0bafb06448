//! Drafts: cheap guesses at the next tokens.
//!
//! A pass of a few rows takes little longer than a pass of one, since it reads the weights once. So a [`Proposer`]
//! drafts tokens for the decoding sequences, and the next pass runs them as rows after each sequence's own
//! ([`super::batch`]). Each row's token is chosen as always. A drafted token is accepted if the row before it chose the
//! same token; the first different choice ends the draft and replaces its token. So every token is chosen from the same
//! logits, and with the same random numbers, as without drafts.
//!
//! [`repeats`] drafts the continuation of an earlier occurrence of the last tokens, [`model`] the likeliest tokens of a
//! smaller model, [`attached`] those of a drafter that reads the model's keys and values. [`gain`] decides how many
//! tokens pay.

pub mod attached;
pub mod gain;
pub mod model;
pub mod repeats;

pub use attached::AttachedDrafter;
pub use model::{DraftModel, check_tokenizers};
pub use repeats::{DraftText, Repeats};

use crate::Result;
use crate::executor::Executor;
use crate::schedule::DRAFT_STEPS;
use crate::sequence::Batch;
use crate::text::Tokenizer;
use std::sync::Arc;

/// The longest draft. With the row before it, it fills a pass of 8 rows.
pub const MOST_DRAFTED: usize = DRAFT_STEPS;

/// The number of grades of drafts.
pub const GRADES: usize = 8;

/// Drafts tokens for the sequences of a batch, by slot. Before each pass the batch asks for all drafts it wants, and
/// then has them made together.
pub trait Proposer {
    /// Forgets a slot's sequence, because a new one begins.
    fn begin(&mut self, slot: usize);

    /// Requests a draft, which the next call of [`Proposer::make`] makes.
    ///
    /// # Errors
    /// As [`Proposer::make`].
    fn ask(&mut self, request: DraftRequest<'_>) -> Result<()>;

    /// Makes the drafts that were requested since the last call. `executor` is the model's, which runs no pass.
    ///
    /// # Errors
    /// Errors of the device, or the cancellation of passes.
    fn make(&mut self, executor: &mut dyn Executor) -> Result<()> {
        let _ = executor;
        Ok(())
    }

    /// Bytes of weights that it has beside the model's.
    fn weight_bytes(&self) -> u64 {
        0
    }

    /// Tokens that it knows; it drafts nothing for sequences with others.
    fn vocab(&self) -> usize {
        usize::MAX
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

/// A request for a draft of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// The sequence's slot in the batch.
    pub slot: usize,
    /// The whole sequence. Between two requests for the same sequence it only grows.
    pub tokens: &'a [u32],
    /// The most tokens that the draft may have.
    pub most: usize,
    /// The head row of the last pass that chose the sequence's last token; `None` if that pass did not.
    pub head: Option<usize>,
}

/// The work that drafting took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Bytes that drafting read from the device's memory.
    pub bytes: u64,
    /// True if the time includes unusual work, such as that of a prompt's tokens, and is not representative.
    pub caught_up: bool,
}

/// The sources from which a batch's drafts come.
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

    /// Enables drafts in a batch, as many tokens as pay: by `drafter` if there is one, else from repeats. `context`:
    /// positions of a sequence.
    pub fn begin(&self, batch: &mut Batch, context: usize, drafter: Option<Box<dyn Proposer>>) {
        let slots = batch.slots();
        batch.speculate(
            self.most,
            true,
            drafter.unwrap_or_else(|| Box::new(Repeats::new(slots, context, self.text.clone()))),
        );
    }
}
