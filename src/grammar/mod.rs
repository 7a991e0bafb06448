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
mod masks;
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

/// What llguidance may spend. Its units: fuel is about 100 ns, a state of a lexer 1 to 2 kB.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 2000,
    initial_lexer_fuel: 1_000_000,
    step_lexer_fuel: 200_000,
    step_max_items: 50_000,
    max_lexer_states: 20_000,
    max_grammar_size: 200_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

#[cfg(test)]
mod tests;
