//! One sequence of tokens, from a prompt to a reply.
//!
//! [`prompt`] makes token ids of text or messages, and [`conversation`] keeps messages within a context. [`session`] runs
//! ids on an executor, of which it reuses what the KV cache already holds. [`chooser`] takes the next token from the logits,
//! [`generate()`] repeats that, and [`reply`] turns the tokens into text. [`counts`] adds up what all sequences have run.
//!
//! Session, chooser and reply belong to one sequence each. None of them owns the executor: it is lent to every call.

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
