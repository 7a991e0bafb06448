//! Sequences of tokens, each from a prompt to a reply.
//!
//! [`prompt`] turns text or messages into token ids, and [`conversation`] keeps messages within a context. A
//! [`session`] tracks one sequence's tokens in the KV cache and its next rows. A [`batch`] runs passes over the rows of
//! many sequences, and a [`chooser`] picks the next token of each from the logits. [`draft`] guesses tokens, which the
//! next pass verifies. A [`guide`] may restrict the tokens of a reply, and [`likelihood`] reports how likely its
//! choices were. [`reply`] turns the tokens into text. [`counts`] counts the tokens of all sequences, and [`meter`]
//! measures the decode rate of a batch.
//!
//! Session, chooser and reply belong to one sequence each. None of them owns the executor: each call borrows it.

pub mod batch;
pub mod chooser;
pub mod conversation;
pub mod counts;
pub mod draft;
pub mod generate;
pub mod guide;
pub mod likelihood;
pub mod meter;
pub mod prompt;
pub mod reply;
pub mod session;

pub use batch::{Batch, FinishedSequence, SequenceRequest};
pub use chooser::Chooser;
pub use conversation::Conversation;
pub use generate::{Finish, Generation};
pub use likelihood::Likelihood;
pub use prompt::SequenceLimits;
pub use reply::Reply;
pub use session::Session;
