//! Structured output: a JSON schema or a grammar describes the answer, and every token is chosen among those that it
//! allows.
//!
//! ```text
//! Grammar ──► Grammars::compile ──► Compiled ──► Constraint ──► TokenSet, for each token
//! (request)      (once each)       (shared)    (per sequence)
//! ```
//!
//! The crate llguidance compiles grammars and computes sets. This module gives it Kiln's vocabulary, bounds its work,
//! and lowers JSON schemas to the part that it enforces. [`Masks`] computes sets while the device computes logits.
//!
//! After a document comes a stop token, as part of the grammar. So the document may end wherever the parser accepts
//! that token.

mod calls;
mod compile;
mod constraint;
mod exact;
mod lower;
mod marked;
mod masks;
mod memory;
mod numbers;
mod references;
mod sizes;
mod source;
mod vocabulary;

pub use calls::{Beside, Calls, Function};
pub use compile::{CompiledGrammar, Grammars};
pub use constraint::Constraint;
pub use masks::{MaskStepper, Masks};

use crate::{Error, Result};
use llguidance::api::ParserLimits;

/// The form that an answer must have.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// The answer is any JSON object.
    JsonObject,
    /// A JSON document that satisfies a JSON schema.
    JsonSchema(serde_json::Value),
    /// A grammar in llguidance's variant of Lark's syntax.
    Lark(String),
    /// Function calls, or text or a document instead.
    Calls(Calls),
}

impl Grammar {
    /// A grammar from its text.
    ///
    /// # Errors
    /// Input: the text is GBNF, llama.cpp's syntax.
    pub fn from_text(text: String) -> Result<Grammar> {
        let is_gbnf_rule = |line: &str| {
            let name = line.split_once("::=").map_or("", |(name, _)| name.trim());
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        };
        match text.lines().any(is_gbnf_rule) {
            true => Err(Error::input(
                "the grammar is GBNF, which is not supported",
                "write it in Lark's syntax, or give a JSON schema",
            )),
            false => Ok(Grammar::Lark(text)),
        }
    }
}

/// Limits for llguidance. The costs are for one core of a server's processor, with Gemma 3's vocabulary.
const LIMITS: ParserLimits = ParserLimits {
    // Each item is compared with all others of its row, at 3 ns each: 6 ms for a whole row. An object with 400 optional
    // properties has rows of 1,610.
    max_items_in_row: 2000,
    // 30 to 200 ms. 5,000 texts of an `enum` take 180,000.
    initial_lexer_fuel: 1_000_000,
    // 3 to 60 ms. Usual patterns take up to 30,000.
    step_lexer_fuel: 100_000,
    // 15 to 120 ms, depending on the length of rows. The object with 400 properties takes 3,230.
    step_max_items: 8_000,
    // 460 bytes each for one lexeme, 7 kB for a thousand; `memory` bounds the bytes. A string of 5,000 characters has
    // 6,500.
    max_lexer_states: 20_000,
    // 400 bytes each, and 0.3 to 0.6 s for all.
    max_grammar_size: 200_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

#[cfg(test)]
mod tests;
