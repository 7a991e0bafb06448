//! A constraint follows one sequence's document and says after each token which ones its grammar lets through next.

use std::sync::Arc;

use llguidance::earley::Parser;
use llguidance::toktrie::{Recognizer, TokTrie};
use llguidance::{CancellationHandle, TokenParser};

use super::compile::CompiledGrammar;
use super::memory::ReplyBytes;
use super::source::{said, sheltered};
use crate::display::quote;
use crate::text::{TokenSet, Tokenizer};
use crate::{Error, Result};

/// Digits of a number, one after the other: f64 tells 17 apart, and a model may print them without end.
const MOST_DIGITS: usize = 32;
/// Digits of a number's exponent: with more, f64 has no such number.
const MOST_EXPONENT_DIGITS: usize = 2;

/// The byte that begins a stop token for the parser. No content has it: it is none of UTF-8's.
const END: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Follows one document token by token.
pub struct Constraint {
    compiled: Arc<CompiledGrammar>,
    parser: TokenParser,
    is_finished: bool,
    numbers: DigitCounter,
    /// Items of the rows that its tokens have made.
    items: usize,
    bytes: ReplyBytes,
}

/// Bytes of an item of the parser's rows, with its parameter.
const ITEM_BYTES: usize = 16;
/// Bytes of a node of the lexemes' expressions that llguidance's own count is without, measured.
const NODE_BYTES: usize = 75;

impl Constraint {
    /// At the beginning of a document.
    pub fn new(compiled: Arc<CompiledGrammar>) -> Constraint {
        let parser = compiled.parser.deep_clone();
        let bytes = compiled.vocabulary.memory.begin_reply();
        Constraint { compiled, parser, is_finished: false, numbers: DigitCounter::default(), items: 0, bytes }
    }

    /// At the beginning of a document, with what ends the work at it from another thread. All that is asked of it fails then.
    pub(super) fn begin(compiled: Arc<CompiledGrammar>) -> (Constraint, CancellationHandle) {
        let mut constraint = Constraint::new(compiled);
        let handle = constraint.parser.enable_cancellation();
        (constraint, handle)
    }

    /// Fills `set` with the tokens that may come next, the stops among them where the document may end. There is always one.
    ///
    /// # Errors
    /// Input: the grammar takes too much time or memory here. Refused: all replies' grammars hold too much, and this one's more
    /// than its share. Failed: the document has ended.
    pub fn fill(&mut self, set: &mut TokenSet) -> Result<()> {
        if self.is_finished {
            return Err(Error::failed("the document has ended", "report this"));
        }
        let is_json = self.compiled.is_json;
        let too_much = |e| too_much(is_json, e);
        followed(is_json, || {
            let mut allowed = self.parser.compute_mask().map_err(too_much)?;
            if self.numbers.are_enough() {
                let mut fewer = allowed.clone();
                fewer.sub(&self.compiled.vocabulary.digits);
                if !fewer.is_zero() {
                    allowed = fewer;
                }
            }
            set.copy_from_words(allowed.as_slice());
            let lexer = self.parser.parser.lexer_stats();
            self.bytes.set(lexer.num_bytes + lexer.num_ast_nodes * NODE_BYTES + self.items * ITEM_BYTES)
        })
    }

    /// Takes the token that was chosen. A stop token ends the document.
    ///
    /// # Errors
    /// Input: the grammar takes too much time or memory here. Failed: the grammar does not allow the token.
    pub fn accept(&mut self, token: u32) -> Result<()> {
        let compiled = self.compiled.clone();
        if self.is_finished || !compiled.vocabulary.has(token) {
            return Err(not_allowed(token));
        }
        let is_json = compiled.is_json;
        let too_much = |e| too_much(is_json, e);
        followed(is_json, || {
            if compiled.vocabulary.stops.contains(&token) {
                self.is_finished = may_end(&mut self.parser.parser);
                return if self.is_finished { Ok(()) } else { Err(not_allowed(token)) };
            }
            if !self.parser.validate_token(token).map_err(too_much)? {
                return Err(not_allowed(token));
            }
            let before = self.parser.parser.stats().all_items;
            self.parser.consume_token(token).map_err(too_much)?;
            self.items += self.parser.parser.stats().all_items - before;
            self.numbers.read(compiled.vocabulary.trie().token(token), compiled.is_json);
            Ok(())
        })
    }

    /// Whether a stop token was taken.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }
}

impl CompiledGrammar {
    /// The tokens of a text that a document begins with, which a reply goes on from. Blanks before it do not count. Calls may
    /// follow any text: where the grammar is one of calls, a text that begins none of its documents has no tokens.
    ///
    /// # Errors
    /// Input: no document begins with the text, or following it takes too much.
    pub fn tokens_of(self: &Arc<Self>, begun: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let begun = begun.trim_start();
        if begun.is_empty() {
            return Ok(Vec::new());
        }
        // Behind <bos>.
        let tokens = tokenizer.encode_verbatim(begun)?.split_off(1);
        let mut constraint = Constraint::new(self.clone());
        match tokens.iter().try_for_each(|&token| constraint.accept(token)) {
            Ok(()) => Ok(tokens),
            Err(Error::Failed { .. }) if self.is_optional => Ok(Vec::new()),
            Err(Error::Failed { .. }) => Err(Error::input(
                "no document of the form that is asked for begins as the assistant's last message does",
                "leave the message or the form out, or begin the message as a document",
            )),
            Err(e) => Err(e),
        }
    }
}

/// Whether the document may end here.
fn may_end(parser: &mut Parser) -> bool {
    parser.with_recognizer(|rec| {
        rec.trie_started("end");
        let ends = rec.try_push_byte(END);
        rec.trie_finished();
        ends
    })
}

/// Runs a part of llguidance at a place in a document.
fn followed<T>(is_json: bool, run: impl FnOnce() -> Result<T>) -> Result<T> {
    sheltered(|reason| too_much(is_json, reason), run)
}

fn not_allowed(token: u32) -> Error {
    Error::failed(format!("token {token} was chosen, which the grammar does not allow here"), "report this")
}

/// The request asks for the grammar, so that it is to blame. Of a schema the parser says nothing that its author has written.
fn too_much(is_json: bool, error: impl std::fmt::Display) -> Error {
    if is_json {
        log::debug!("a JSON schema cannot be followed: {}", quote(&said(&error)));
        return Error::input("the JSON schema cannot be followed: it is too large", "use a simpler one");
    }
    Error::input(format!("the grammar cannot be followed: {}", quote(&said(&error))), "use a simpler grammar")
}

/// Counts a number's digits, in the text of a JSON document.
#[derive(Clone, Copy, Default)]
struct DigitCounter {
    in_string: bool,
    is_escaped: bool,
    /// Digits at the end of the text, one after the other.
    digits: usize,
    /// Whether they are an exponent's.
    in_exponent: bool,
}

impl DigitCounter {
    fn read(&mut self, bytes: &[u8], is_json: bool) {
        for &byte in bytes.iter().filter(|_| is_json) {
            let is_quote = byte == b'"' && !self.is_escaped;
            self.is_escaped = self.in_string && byte == b'\\' && !self.is_escaped;
            self.in_string ^= is_quote;
            match byte {
                b'0'..=b'9' if !self.in_string => self.digits += 1,
                b'+' | b'-' => {}
                _ => (self.digits, self.in_exponent) = (0, matches!(byte, b'e' | b'E') && !self.in_string),
            }
        }
    }

    /// Whether no more digits are needed.
    fn are_enough(&self) -> bool {
        self.digits >= if self.in_exponent { MOST_EXPONENT_DIGITS } else { MOST_DIGITS }
    }
}
