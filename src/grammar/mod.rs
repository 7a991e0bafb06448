//! Structured output: what an answer may be is given as a JSON schema or a grammar, and every token is chosen among those
//! that it lets through.
//!
//! ```text
//! Grammar ──► Grammars::compile ──► Compiled ──► Constraint ──► TokenSet, for each token
//! (asked for)    (once each)       (shared)    (per sequence)
//! ```
//!
//! The crate llguidance compiles grammars and computes sets. This module gives it Kiln's vocabulary, bounds what it does,
//! and lowers JSON schemas to what it holds replies to. [`Masks`] computes sets while the device computes logits.
//!
//! A document is followed by a stop token, which the grammar itself asks for. So wherever the parser takes that token, the
//! document may end.

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

/// What an answer may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// A JSON object of any kind.
    JsonObject,
    /// A JSON document that satisfies a JSON schema.
    JsonSchema(serde_json::Value),
    /// A text of a grammar in llguidance's variant of Lark's syntax.
    Lark(String),
    /// Calls of functions, or text.
    Calls(Calls),
}

impl Grammar {
    /// A grammar that is given as text.
    ///
    /// # Errors
    /// Input: it is GBNF, llama.cpp's syntax.
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

/// What llguidance may spend. The costs are of one core of a server's processor, with Gemma 3's vocabulary.
const LIMITS: ParserLimits = ParserLimits {
    // An item is compared with all others of its row, at 3 ns each: 6 ms for a whole row. An object of 400 optional
    // properties has rows of 1,610.
    max_items_in_row: 2000,
    // 30 to 200 ms. 5,000 texts of an `enum` take 180,000.
    initial_lexer_fuel: 1_000_000,
    // 3 to 60 ms. Patterns that occur take up to 30,000.
    step_lexer_fuel: 100_000,
    // 15 to 120 ms, as the rows are long. That object takes 3,230.
    step_max_items: 8_000,
    // 460 bytes each of one lexeme, 7 kB of a thousand; `memory` bounds the bytes. A text of 5,000 characters has 6,500.
    max_lexer_states: 20_000,
    // 400 bytes each, and 0.3 to 0.6 s for all.
    max_grammar_size: 200_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

#[cfg(test)]
mod tests;
