//! Text at both ends of the model: prompts become token ids, logits become the next id, ids become text again.
//!
//! Input: [`ChatTemplate`] renders messages, [`Tokenizer`] turns text into ids. Output: [`Sampler`] picks an id,
//! [`StreamDecoder`] turns ids into text that is never retracted, [`StopMatcher`] ends it at a stop string. This module
//! does not depend on devices or schedules.

mod bpe;
pub mod calls;
pub mod chat;
pub mod limits;
mod pieces;
mod recent;
pub mod sampler;
mod spellings;
pub mod stop;
pub mod stream;
pub mod tokenizer;
mod vocabulary;
mod windows;

pub use calls::CallSyntax;
pub use chat::{ChatInput, ChatTemplate, ContentPart, Message, MessageContent, Rendered};
pub use sampler::{Sampler, SamplerConfig, TokenSet};
pub use stop::{StopMatcher, Stopped};
pub use stream::StreamDecoder;
pub use tokenizer::{TextEncoder, Tokenizer, parse_id, parse_ids};

#[cfg(test)]
pub(crate) mod testing;
