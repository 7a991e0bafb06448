//! A constraint follows the document of one sequence and computes the set of tokens that its grammar allows next.

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

/// The most digits in a row of a number: f64 distinguishes 17, and a model may print digits without end.
const MOST_DIGITS: usize = 32;
/// The most digits of an exponent: with more, the number is outside the range of f64.
const MOST_EXPONENT_DIGITS: usize = 2;

/// The byte that begins a stop token for the parser. It never occurs in UTF-8, so no content has it.
const END: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Follows one document, token by token, and a thought before it, whose text is free.
pub struct Constraint {
    compiled: Arc<CompiledGrammar>,
    place: ReplyPlace,
    parser: TokenParser,
    is_finished: bool,
    numbers: DigitCounter,
    /// The number of items in all rows of the parser, which bounds its memory.
    items: usize,
    bytes: ReplyBytes,
}

/// The stage of a reply: before the document, in a thought, or in the document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplyPlace {
    /// Before the document, or before a thought that comes first.
    Start,
    Thought,
    Document,
}

/// Bytes of an item of the parser's rows, with its parameter.
const ITEM_BYTES: usize = 16;
/// Measured bytes of a node of the lexemes' expressions that llguidance's own count does not include.
const NODE_BYTES: usize = 75;

impl Constraint {
    /// A constraint at the beginning of a document.
    pub fn new(compiled: Arc<CompiledGrammar>) -> Constraint {
        let parser = compiled.parser.deep_clone();
        let bytes = compiled.vocabulary.memory.begin_reply();
        let numbers = DigitCounter::default();
        Constraint { compiled, place: ReplyPlace::Document, parser, is_finished: false, numbers, items: 0, bytes }
    }

    /// Lets a thought come before the document, where the vocabulary has the tokens around thoughts.
    pub fn thinking(self) -> Constraint {
        let place = if self.compiled.vocabulary.thought.is_some() { ReplyPlace::Start } else { ReplyPlace::Document };
        Constraint { place, ..self }
    }

    /// A constraint at the beginning of a document, and a handle by which another thread cancels it. After that all
    /// calls fail.
    pub(super) fn begin(compiled: Arc<CompiledGrammar>, thinks: bool) -> (Constraint, CancellationHandle) {
        let constraint = Constraint::new(compiled);
        let mut constraint = if thinks { constraint.thinking() } else { constraint };
        let handle = constraint.parser.enable_cancellation();
        (constraint, handle)
    }

    /// Fills `set` with the tokens that may come next; stop tokens are among them if the document may end here. The set
    /// is never empty.
    ///
    /// # Errors
    /// Input: the grammar takes too much time or memory here. Refused: the grammars of all replies together hold too
    /// much, and this one more than its share. Failed: the document has ended.
    pub fn fill(&mut self, set: &mut TokenSet) -> Result<()> {
        if self.is_finished {
            return Err(Error::failed("the document has ended", "report this"));
        }
        if self.place == ReplyPlace::Thought {
            set.copy_from_words(self.compiled.vocabulary.thoughts.as_slice());
            return Ok(());
        }
        let thought = self.compiled.vocabulary.thought.filter(|_| self.place == ReplyPlace::Start);
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
            thought.into_iter().for_each(|[open, _]| set.insert(open));
            let lexer = self.parser.parser.lexer_stats();
            self.bytes.set(lexer.num_bytes + lexer.num_ast_nodes * NODE_BYTES + self.items * ITEM_BYTES)
        })
    }

    /// Advances by the chosen token. A stop token ends the document.
    ///
    /// # Errors
    /// Input: the grammar takes too much time or memory here. Failed: the grammar does not allow the token.
    pub fn accept(&mut self, token: u32) -> Result<()> {
        let compiled = self.compiled.clone();
        if self.is_finished || !compiled.vocabulary.has(token) {
            return Err(not_allowed(token));
        }
        self.place = match (self.place, compiled.vocabulary.thought) {
            (ReplyPlace::Start, Some([open, _])) if token == open => ReplyPlace::Thought,
            (ReplyPlace::Thought, Some([_, close])) if token == close => ReplyPlace::Document,
            (ReplyPlace::Thought, _) if compiled.vocabulary.thoughts.is_allowed(token) => ReplyPlace::Thought,
            (ReplyPlace::Thought, _) => return Err(not_allowed(token)),
            (ReplyPlace::Start | ReplyPlace::Document, _) => return self.accept_in_document(&compiled, token),
        };
        Ok(())
    }

    fn accept_in_document(&mut self, compiled: &CompiledGrammar, token: u32) -> Result<()> {
        self.place = ReplyPlace::Document;
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

    /// True after a stop token was accepted: the reply is complete.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }
}

impl CompiledGrammar {
    /// Tokenizes the beginning of a document that a reply continues, without its leading blanks. The result is empty if
    /// the text starts no document and the grammar is one of calls, which may follow any text.
    ///
    /// # Errors
    /// Input: no document begins with the text, or following it takes too much time or memory.
    pub fn tokens_of(self: &Arc<Self>, begun: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let begun = begun.trim_start();
        if begun.is_empty() {
            return Ok(Vec::new());
        }
        // Without <bos>.
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

/// True if the text so far is a whole document, so that a stop token is allowed next.
fn may_end(parser: &mut Parser) -> bool {
    parser.with_recognizer(|rec| {
        rec.trie_started("end");
        let ends = rec.try_push_byte(END);
        rec.trie_finished();
        ends
    })
}

/// Runs a call into llguidance inside a document; a panic becomes an error.
fn followed<T>(is_json: bool, run: impl FnOnce() -> Result<T>) -> Result<T> {
    sheltered(|reason| too_much(is_json, reason), run)
}

fn not_allowed(token: u32) -> Error {
    Error::failed(format!("token {token} was chosen, which the grammar does not allow here"), "report this")
}

/// The error for a grammar that is too expensive to follow. It blames the request, which brought the grammar. For a
/// JSON schema llguidance's own message is only logged, because it does not speak of the schema's text.
fn too_much(is_json: bool, error: impl std::fmt::Display) -> Error {
    if is_json {
        log::debug!("a JSON schema cannot be followed: {}", quote(&said(&error)));
        return Error::input("the JSON schema cannot be followed: it is too large", "use a simpler one");
    }
    Error::input(format!("the grammar cannot be followed: {}", quote(&said(&error))), "use a simpler grammar")
}

/// Counts the digits of numbers in the text of a JSON document.
#[derive(Clone, Copy, Default)]
struct DigitCounter {
    in_string: bool,
    is_escaped: bool,
    /// Consecutive digits at the end of the text.
    digits: usize,
    /// True while the digits of a number's exponent are counted, false for those before it.
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

    /// True if the number or its exponent has the most digits allowed, so that no further digit may follow.
    fn are_enough(&self) -> bool {
        self.digits >= if self.in_exponent { MOST_EXPONENT_DIGITS } else { MOST_DIGITS }
    }
}
