//! One sequence of tokens, from a prompt to a reply.
//!
//! [`prompt`] turns text or messages into token ids, and [`conversation`] keeps messages within a context. [`session`]
//! runs ids on an executor and reuses the part that the KV cache already holds. [`chooser`] picks the next token from
//! the logits, [`generate()`] repeats that, and [`reply`] turns the tokens into text. [`counts`] counts the tokens of
//! all sequences.
//!
//! Session, chooser and reply belong to one sequence each. None of them owns the executor: each call borrows it.

pub mod chooser;
pub mod conversation;
pub mod counts;
pub mod generate;
pub mod prompt;
pub mod reply;
pub mod session;

pub use chooser::Chooser;
pub use conversation::Conversation;
pub use generate::{Finish, Generation, generate};
pub use prompt::Limits;
pub use reply::Reply;
pub use session::Session;
