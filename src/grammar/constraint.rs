//! What one sequence may say next.

use std::sync::Arc;

use llguidance::TokenParser;
use llguidance::toktrie::SimpleVob;

use super::closing::{self, Closing, Order, Task};
use super::compile::{Compiled, said, sheltered};
use crate::display::quote;
use crate::text::TokenSet;
use crate::{Error, Result};

/// Digits of a number, one after the other: f64 tells 17 apart, and a model may print them without end.
const MOST_DIGITS: usize = 32;
/// Digits of a number's exponent: with more, f64 has no such number.
const MOST_EXPONENT_DIGITS: usize = 2;

/// Bytes that the parser is offered when a token may lengthen what is left of the document: 1 to 2 ms.
const EFFORT: usize = 20_000;

/// Follows one document token by token. It knows a way to the document's end that fits into what is left of the budget,
/// and takes no token after which it knew none.
pub struct Constraint {
    compiled: Arc<Compiled>,
    parser: TokenParser,
    /// From here to the document's end, in `left` tokens or fewer.
    closing: Closing,
    /// Whether a search for a shorter closing is of no use.
    is_shortest: bool,
    /// The next search for one waits until `left` is no more than this above the closing's tokens.
    spare: usize,
    /// Tokens that the document may still have.
    left: usize,
    is_cut: bool,
    is_finished: bool,
    numbers: Numbers,
    /// Searches for a shorter closing.
    #[cfg(test)]
    pub(super) searches: usize,
}

impl Constraint {
    /// At the beginning of a document that may have `limit` tokens, the stop token not counted.
    ///
    /// # Errors
    /// Input: the shortest document has more.
    pub fn new(compiled: Arc<Compiled>, limit: usize) -> Result<Constraint> {
        let shortest = compiled.shortest();
        if limit < shortest {
            return Err(Error::input(
                format!("the shortest document of this grammar has {shortest} tokens, and the answer may have {limit}"),
                format!("allow at least {shortest}"),
            ));
        }
        let (parser, closing) = (compiled.parser.deep_clone(), compiled.closing.clone());
        Ok(Constraint {
            compiled,
            parser,
            closing,
            is_shortest: true,
            spare: usize::MAX,
            left: limit,
            is_cut: false,
            is_finished: false,
            numbers: Numbers::default(),
            #[cfg(test)]
            searches: 0,
        })
    }

    /// Fills `set` with the tokens that may come next, the stops among them where the document may end. There is always one.
    ///
    /// # Errors
    /// Failed: the document has ended, or the grammar takes too much time or memory here.
    pub fn fill(&mut self, set: &mut TokenSet) -> Result<()> {
        if self.is_finished {
            return Err(Error::failed("the document has ended", "report this"));
        }
        followed(|| {
            let mut allowed = self.parser.compute_mask().map_err(too_much)?;
            self.shorten();
            let vocabulary = &self.compiled.vocabulary;
            if self.left <= self.closing.len() {
                self.leave_closing(&mut allowed);
            } else if self.numbers.are_enough() {
                let mut fewer = allowed.clone();
                fewer.sub(&vocabulary.digits);
                if !fewer.is_zero() {
                    allowed = fewer;
                }
            }
            set.copy_from_words(allowed.as_slice());
            Ok(())
        })
    }

    /// Takes the token that was chosen, and returns the one that stands in its place: itself, or the closing's next if no
    /// closing behind it would fit. A stop token ends the document.
    ///
    /// # Errors
    /// Failed: the grammar does not allow the token, or takes too much time or memory here.
    pub fn accept(&mut self, token: u32) -> Result<u32> {
        let compiled = self.compiled.clone();
        if self.is_finished || !compiled.vocabulary.has(token) {
            return Err(not_allowed(token));
        }
        followed(|| {
            if compiled.vocabulary.stops.contains(&token) {
                return self.finish(token);
            }
            self.is_cut |= self.left <= self.closing.len();
            match self.closing_behind(compiled.vocabulary.trie().token(token)) {
                Some((closing, is_shortest)) => {
                    self.is_shortest = is_shortest;
                    self.take(token, closing)?;
                    Ok(token)
                }
                None if !self.parser.validate_token(token).map_err(too_much)? => Err(not_allowed(token)),
                None => {
                    self.is_cut = true;
                    self.take_closings_first()
                }
            }
        })
    }

    /// Whether the budget ended the document, or chose a part of it.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether a stop token was taken.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Tokens that the document may still have.
    pub fn left(&self) -> usize {
        self.left
    }

    fn finish(&mut self, stop: u32) -> Result<u32> {
        if !closing::may_end(&mut self.parser.parser) {
            return Err(not_allowed(stop));
        }
        self.is_finished = true;
        Ok(stop)
    }

    /// A closing behind `bytes` that fits, and whether it is the shortest.
    fn closing_behind(&mut self, bytes: &[u8]) -> Option<(Closing, bool)> {
        let most = self.left.checked_sub(1)?;
        if let Some(rest) = self.closing.behind(bytes).filter(|rest| rest.len() <= most) {
            return Some((rest, self.is_shortest));
        }
        let any = self.find(bytes, most, Order::Any).filter(|closing| closing.len() <= most);
        let found = any.or_else(|| self.find(bytes, most, Order::Shortest));
        found.filter(|closing| closing.len() <= most).map(|closing| (closing, false))
    }

    fn find(&mut self, after: &[u8], most: usize, order: Order) -> Option<Closing> {
        let vocabulary = &self.compiled.vocabulary;
        let (trie, alphabet) = (vocabulary.trie(), &vocabulary.alphabet[..]);
        let mut numbers = self.numbers;
        numbers.read(after, self.compiled.is_json);
        let in_string = numbers.in_string;
        let task = Task { trie, alphabet, after, in_string, known: &self.closing, most, order, effort: EFFORT };
        closing::find(&mut self.parser.parser, &task)
    }

    /// Looks for a shorter closing when the budget comes near the one that is known, and again each time what lies between
    /// them has halved: a search takes milliseconds and finds the same after most tokens.
    fn shorten(&mut self) {
        let spare = |this: &Self| this.left.saturating_sub(this.closing.len());
        if self.is_shortest || spare(self) > self.spare.min(self.closing.len() + 16) {
            return;
        }
        #[cfg(test)]
        {
            self.searches += 1;
        }
        if let Some(shorter) = self.find(&[], 0, Order::Shortest).filter(|found| found.len() < self.closing.len()) {
            self.closing = shorter;
        }
        self.is_shortest = true;
        self.spare = spare(self) / 2;
    }

    fn take(&mut self, token: u32, closing: Closing) -> Result<()> {
        self.parser.consume_token(token).map_err(too_much)?;
        self.numbers.read(self.compiled.vocabulary.trie().token(token), self.compiled.is_json);
        self.closing = closing;
        self.left -= 1;
        Ok(())
    }

    fn take_closings_first(&mut self) -> Result<u32> {
        let Some(token) = self.closing.first() else {
            let stop = self.compiled.vocabulary.stops[0];
            return self.finish(stop);
        };
        let bytes = self.compiled.vocabulary.trie().token(token);
        let rest = self.closing.behind(bytes).unwrap_or_default();
        self.take(token, rest)?;
        Ok(token)
    }

    /// Leaves the closing's next token, and the stops where they are allowed.
    fn leave_closing(&self, allowed: &mut SimpleVob) {
        let vocabulary = &self.compiled.vocabulary;
        let mut left = vocabulary.trie().alloc_token_set();
        vocabulary.stops.iter().chain(&self.closing.first()).for_each(|&token| left.allow_token(token));
        allowed.and(&left);
    }
}

/// Runs a part of llguidance at a place in a document.
fn followed<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    sheltered(|reason| too_much(reason), run)
}

fn not_allowed(token: u32) -> Error {
    Error::failed(format!("token {token} was chosen, which the grammar does not allow here"), "report this")
}

fn too_much(error: impl std::fmt::Display) -> Error {
    Error::failed(format!("the grammar cannot be followed: {}", quote(&said(&error))), "use a simpler grammar")
}

/// Counts a number's digits, in the text of a JSON document.
#[derive(Clone, Copy, Default)]
struct Numbers {
    in_string: bool,
    is_escaped: bool,
    /// Digits at the end of the text, one after the other.
    digits: usize,
    /// Whether they are an exponent's.
    in_exponent: bool,
}

impl Numbers {
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
