//! The way from any place in a document to its end: what fits a budget is decided by it.
//!
//! A closing is found by a search over the bytes that the parser takes, most promising first. The parser tells neither how
//! much is left of a rule nor when two places are alike, so the order and the pruning are guesses. What is found is none:
//! the parser has taken every byte of it, and the end behind them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use llguidance::derivre::{NextByte, StateID};
use llguidance::earley::{Parser, ParserRecognizer};
use llguidance::toktrie::{Recognizer, TokTrie};

/// The byte that begins a stop token for the parser. No content has it: it is none of UTF-8's.
const END: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// How far into the closing that is known a search tries to join it.
const LONGEST_SKIP: usize = 32;

/// Bytes that end a document, and the fewest tokens that spell them.
#[derive(Debug, Clone, Default)]
pub(super) struct Closing {
    bytes: Vec<u8>,
    /// For each byte, the token that begins there, and the tokens from there to the end.
    tokens: Vec<(u32, usize)>,
}

impl Closing {
    /// Divides `bytes` into the fewest tokens. `None` if the vocabulary cannot spell them.
    pub(super) fn spell(trie: &TokTrie, bytes: Vec<u8>) -> Option<Closing> {
        let mut tokens = vec![(0, usize::MAX); bytes.len()];
        for from in (0..bytes.len()).rev() {
            let mut node = trie.root();
            for (to, &byte) in bytes.iter().enumerate().skip(from) {
                let Some(child) = trie.child_at_byte(node, byte) else { break };
                node = child;
                let rest = tokens.get(to + 1).map_or(0, |(_, count)| *count);
                if let Some(token) = node.token_id().filter(|_| rest < tokens[from].1.saturating_sub(1)) {
                    tokens[from] = (token, rest + 1);
                }
            }
        }
        let is_spelled = tokens.first().is_none_or(|(_, count)| *count < usize::MAX);
        is_spelled.then_some(Closing { bytes, tokens })
    }

    /// Tokens of it.
    pub(super) fn len(&self) -> usize {
        self.tokens.first().map_or(0, |(_, count)| *count)
    }

    /// Its first token; `None` if it is empty.
    pub(super) fn first(&self) -> Option<u32> {
        self.tokens.first().map(|(token, _)| *token)
    }

    /// What is left behind `bytes`, if it begins with them.
    pub(super) fn behind(&self, bytes: &[u8]) -> Option<Closing> {
        let rest = self.bytes.strip_prefix(bytes)?;
        Some(Closing { bytes: rest.to_vec(), tokens: self.tokens[bytes.len()..].to_vec() })
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// How a search goes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Straight on: towards any end.
    Any,
    /// By length: towards the shortest.
    Shortest,
}

/// What a search is given.
pub(super) struct Task<'a> {
    pub(super) trie: &'a TokTrie,
    /// The bytes that are tokens, in the order in which they are tried.
    pub(super) alphabet: &'a [u8],
    /// What the document has behind the parser's place.
    pub(super) after: &'a [u8],
    /// Whether that ends inside of a JSON string.
    pub(super) in_string: bool,
    /// A closing from the parser's place, or from one near it.
    pub(super) known: &'a Closing,
    /// Tokens that are few enough: the first closing of so many is taken.
    pub(super) most: usize,
    pub(super) order: Order,
    /// Bytes that the parser may be offered.
    pub(super) effort: usize,
}

/// The best closing that is found behind `task.after`; `None` if there is none within the effort. The parser's place stays.
pub(super) fn find(parser: &mut Parser, task: &Task<'_>) -> Option<Closing> {
    parser.with_recognizer(|rec| {
        rec.trie_started("closing");
        let start = rec.lexer_state();
        let rows = count_rows(rec);
        let is_taken = task.after.iter().all(|&byte| rec.try_push_byte(byte));
        // Inside of a lexeme that has come no further, such as a string.
        let stays = !task.after.is_empty() && rec.lexer_state() == start && count_rows(rec) == rows;
        let found = match is_taken {
            false => None,
            true if stays && task.known.len() <= task.most => Some(task.known.clone()),
            true => Search::new(rec, task).run(),
        };
        rec.trie_finished();
        found
    })
}

/// Counts the lexemes that have ended so far, also those of ways that were left again.
fn count_rows(rec: &mut ParserRecognizer<'_>) -> usize {
    rec.stats_mut().rows + rec.stats_mut().cached_rows
}

/// Whether the document may end here.
pub(super) fn may_end(parser: &mut Parser) -> bool {
    parser.with_recognizer(|rec| {
        rec.trie_started("end");
        let ends = rec.try_push_byte(END);
        rec.trie_finished();
        ends
    })
}

/// A place behind `task.after`.
struct Place {
    /// The place a byte before, and that byte. The first place is its own.
    before: usize,
    byte: u8,
    /// Bytes from the first place.
    length: usize,
    /// Lexemes that ended on the way.
    rows: usize,
    /// The place at which the current lexeme began.
    row: usize,
    state: StateID,
    nesting: Nesting,
}

/// Where in a JSON document a place is, as far as the way to it tells. Of other texts it tells less.
#[derive(Clone, Copy)]
struct Nesting {
    in_string: bool,
    is_escaped: bool,
    /// Brackets that were opened on the way and are not closed, or the opposite.
    depth: isize,
    /// The place at which the innermost of them was opened; 0 for none.
    outer: usize,
    /// The place of the latest quote that opened a string; 0 for none.
    string: usize,
    /// A hash of the keys that lead here, and of a value that is a string.
    path: u64,
}

struct Search<'s, 'p, 'a> {
    rec: &'s mut ParserRecognizer<'p>,
    task: &'s Task<'a>,
    /// Bytes that the parser holds behind `task.after`.
    held: Vec<u8>,
    places: Vec<Place>,
    open: BinaryHeap<(Reverse<[isize; 3]>, Reverse<usize>)>,
    /// States of the lexer by the place at which their lexeme began: the same state there has the same future.
    seen: HashSet<(usize, StateID)>,
    /// The latest places at which a lexeme began, by what can be seen of them.
    alike: HashMap<(StateID, isize, u64), usize>,
    offered: usize,
    best: Option<Closing>,
}

impl<'s, 'p, 'a> Search<'s, 'p, 'a> {
    fn new(rec: &'s mut ParserRecognizer<'p>, task: &'s Task<'a>) -> Self {
        let state = rec.lexer_state();
        let nesting = Nesting { in_string: task.in_string, is_escaped: false, depth: 0, outer: 0, string: 0, path: 0 };
        let first = Place { before: 0, byte: 0, length: 0, rows: 0, row: 0, state, nesting };
        Search {
            rec,
            task,
            held: Vec::new(),
            places: vec![first],
            open: BinaryHeap::from([(Reverse([0; 3]), Reverse(0))]),
            seen: HashSet::from([(0, state)]),
            alike: HashMap::new(),
            offered: 0,
            best: None,
        }
    }

    fn run(mut self) -> Option<Closing> {
        while let Some((_, Reverse(place))) = self.open.pop() {
            if self.best.as_ref().is_some_and(|best| best.len() <= self.task.most) || self.offered > self.task.effort {
                break;
            }
            // A token has at least a byte, but a shorter text can have more tokens: this is a guess as well.
            let is_long = |best: &Closing| self.places[place].length >= best.bytes.len();
            if self.best.as_ref().is_some_and(is_long) {
                continue;
            }
            self.go_to(place);
            if self.offer(END) {
                self.leave(1);
                self.take(self.held.clone());
                continue;
            }
            if self.places[place].row == place {
                self.join();
            }
            self.go_on(place);
        }
        self.best
    }

    /// Offers the parser a byte.
    fn offer(&mut self, byte: u8) -> bool {
        self.offered += 1;
        self.rec.try_push_byte(byte)
    }

    fn leave(&mut self, bytes: usize) {
        self.rec.pop_bytes(bytes);
    }

    /// Moves the parser.
    fn go_to(&mut self, place: usize) {
        let mut bytes = vec![0; self.places[place].length];
        let mut at = place;
        for byte in bytes.iter_mut().rev() {
            *byte = self.places[at].byte;
            at = self.places[at].before;
        }
        let common = bytes.iter().zip(&self.held).take_while(|(a, b)| a == b).count();
        self.leave(self.held.len() - common);
        for &byte in &bytes[common..] {
            // It took them before.
            self.offer(byte);
        }
        self.held = bytes;
    }

    /// Tries to go on as the known closing does, from one of its bytes.
    fn join(&mut self) {
        let known = self.task.known.bytes.as_slice();
        for from in 0..known.len().min(LONGEST_SKIP) {
            let rest = &known[from..];
            let taken = rest.iter().take_while(|byte| self.offer(**byte)).count();
            let ends = taken == rest.len() && self.offer(END);
            self.leave(taken + usize::from(ends));
            if ends {
                self.take([&self.held[..], rest].concat());
                return;
            }
        }
    }

    fn take(&mut self, bytes: Vec<u8>) {
        let closing = Closing::spell(self.task.trie, bytes);
        if let Some(closing) = closing.filter(|c| self.best.as_ref().is_none_or(|best| c.len() < best.len())) {
            self.best = Some(closing);
        }
    }

    /// Opens the places a byte further.
    fn go_on(&mut self, place: usize) {
        let state = self.places[place].state;
        if let NextByte::ForcedByte(byte) = self.rec.lexer_mut().next_byte(state) {
            self.step(place, byte, true);
            return;
        }
        let alphabet = self.task.alphabet;
        let begins = self.places[place].row == place;
        let mut is_open = false;
        // Blanks between lexemes and letters of other scripts lengthen a closing, unless there is nothing else.
        for &byte in alphabet.iter().filter(|byte| byte.is_ascii() && !(begins && is_blank(**byte))) {
            is_open |= self.step(place, byte, false);
        }
        if !is_open {
            for &byte in alphabet {
                self.step(place, byte, true);
            }
        }
    }

    /// The nesting behind `byte` at `place`.
    fn nest(&self, place: usize, byte: u8) -> Nesting {
        let mut nesting = self.places[place].nesting;
        let outer = nesting.outer;
        if nesting.in_string {
            nesting.in_string = byte != b'"' || nesting.is_escaped;
            nesting.is_escaped = byte == b'\\' && !nesting.is_escaped;
            if !nesting.in_string {
                nesting.path = hash((nesting.path, self.bytes_behind(nesting.string, place)));
            }
            return nesting;
        }
        match byte {
            b'"' => (nesting.in_string, nesting.string) = (true, self.places.len()),
            b'{' | b'[' | b'(' => {
                nesting.depth += 1;
                nesting.outer = self.places.len();
            }
            b'}' | b']' | b')' => {
                nesting.depth -= 1;
                let to = self.places[outer].nesting;
                (nesting.outer, nesting.path) =
                    if outer == 0 { (0, hash(nesting.depth)) } else { (self.outer_of(outer), to.path) };
            }
            b',' => nesting.path = if outer == 0 { hash(nesting.depth) } else { self.places[outer].nesting.path },
            _ => {}
        }
        nesting
    }

    /// The bytes of the way from `earlier` to `place`.
    fn bytes_behind(&self, earlier: usize, place: usize) -> Vec<u8> {
        let mut at = place;
        let back = std::iter::from_fn(|| {
            let byte = (at > earlier).then(|| self.places[at].byte);
            at = self.places[at].before;
            byte
        });
        back.collect()
    }

    /// The place at which the bracket around that of `opened` was opened.
    fn outer_of(&self, opened: usize) -> usize {
        self.places[self.places[opened].before].nesting.outer
    }

    /// Opens the place behind `byte`, which may be a blank that begins a lexeme if `blanks`. Returns whether the parser
    /// takes the byte and the place is new.
    fn step(&mut self, place: usize, byte: u8, blanks: bool) -> bool {
        let before = count_rows(self.rec);
        if !self.offer(byte) {
            return false;
        }
        let state = self.rec.lexer_state();
        let begins = count_rows(self.rec) > before;
        self.leave(1);
        let new = self.places.len();
        let Place { length, rows, row, .. } = self.places[place];
        let nesting = self.nest(place, byte);
        let depth = nesting.depth;
        if begins && is_blank(byte) && !blanks {
            return false;
        }
        let (rows, row) = if begins { (rows + 1, new) } else { (rows, row) };
        if !self.seen.insert((row, state)) {
            return false;
        }
        if begins {
            // A list's next element begins as the one before it did: only a place on another way is a twin.
            let looks = (state, depth, nesting.path);
            if self.alike.get(&looks).is_some_and(|&twin| !is_on_way(&self.places, twin, place)) {
                return false;
            }
            self.alike.insert(looks, new);
        }
        self.places.push(Place { before: place, byte, length: length + 1, rows, row, state, nesting });
        let length = length as isize + 1;
        let rank = match self.task.order {
            Order::Any => [depth, -(rows as isize), length],
            Order::Shortest => [length + depth, length, 0],
        };
        self.open.push((Reverse(rank), Reverse(new)));
        true
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether the way to `place` leads over `earlier`, at which a lexeme began.
fn is_on_way(places: &[Place], earlier: usize, place: usize) -> bool {
    let mut row = places[place].row;
    while row > earlier {
        row = places[places[row].before].row;
    }
    row == earlier
}
