//! Sequences of tokens, each from a prompt to a reply.
//!
//! [`prompt`] turns text or messages into token ids, and [`conversation`] keeps messages within a context. A [`session`]
//! knows what the KV cache holds of one sequence, and which rows come next. A [`batch`] makes passes of the rows of many,
//! and [`chooser`] picks each one's next token from the logits; [`generate()`] does that for one sequence alone.
//! [`draft`] guesses tokens, which the next pass verifies.
//! A [`guide`] may say which tokens a reply may have, [`likelihood`] how likely its choices were. [`reply`] turns the tokens
//! into text. [`counts`] counts the tokens of all sequences, and [`meter`] how fast a batch decodes.
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
#[cfg(test)]
mod recording;
pub mod reply;
pub mod session;

pub use batch::{Batch, FinishedSequence, SequenceRequest};
pub use chooser::Chooser;
pub use conversation::Conversation;
pub use generate::{Finish, Generation, generate};
pub use likelihood::Likelihood;
pub use prompt::SequenceLimits;
pub use reply::Reply;
pub use session::Session;
