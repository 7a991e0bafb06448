//! From grammars to what sequences start from, each compiled once.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use llguidance::api::{GrammarInit, GrammarWithLexer, StopReason, TopLevelGrammar};
use llguidance::earley::CGrammar;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Logger, TokenParser, panic_utils};

use super::closing::{self, Closing, Order, Task};
use super::vocabulary::Vocabulary;
use super::{Grammar, LIMITS, schema};
use crate::display::quote;
use crate::machine::threads::REMEDY as THREADS_REMEDY;
use crate::text::Tokenizer;
use crate::{Error, Result};

/// Compiled grammars that are kept.
const MOST_KEPT: usize = 64;
/// Bytes that the kept ones take, about.
const MOST_BYTES: usize = 64 << 20;
/// Grammars that are compiled at the same time.
const MOST_AT_ONCE: usize = 2;
/// Bytes of the longest grammar's text.
const LONGEST_TEXT: usize = 256 << 10;
/// Brackets that may be open at once in a grammar in Lark's syntax: its parser is recursive.
const DEEPEST_LARK: usize = 200;
/// Bytes of the stack of a thread that compiles: references and brackets are followed by recursion.
const STACK: usize = 64 << 20;
/// How often a wait for a compilation looks whether it is cancelled.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes that the parser is offered in the search for a document.
const EFFORT_TO_FIND: usize = 4_000_000;
/// Bytes that the parser is offered in the search for a shorter one.
const EFFORT_TO_SHORTEN: usize = 500_000;

/// Characters of a reason in an error.
const LONGEST_REASON: usize = 300;

/// The grammar of the document, beside that of what follows it.
const DOCUMENT: &str = "document";

/// Compiles grammars for one tokenizer, and keeps what it has compiled. Clones share it.
#[derive(Clone)]
pub struct Grammars(Arc<Shared>);

struct Shared {
    tokenizer: Arc<Tokenizer>,
    stops: Vec<u32>,
    /// Gathered for the first grammar.
    vocabulary: OnceLock<Result<Arc<Vocabulary>>>,
    cache: Mutex<Cache>,
    /// A compilation has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Cache {
    /// By the text that is compiled.
    entries: HashMap<String, Entry>,
    running: usize,
    /// Counts compilations and uses.
    clock: u64,
}

enum Entry {
    Running,
    Done { compiled: Result<Arc<Compiled>>, used: u64 },
}

/// A compiled grammar: what the [`super::Constraint`]s of sequences start from.
pub struct Compiled {
    pub(super) vocabulary: Arc<Vocabulary>,
    /// At the beginning of the document.
    pub(super) parser: TokenParser,
    /// The shortest document.
    pub(super) closing: Closing,
    pub(super) is_json: bool,
    /// About what it takes.
    bytes: usize,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a grammar whose shortest document has {} tokens", self.shortest())
    }
}

impl Compiled {
    /// Tokens of the shortest document.
    pub fn shortest(&self) -> usize {
        self.closing.len()
    }
}

impl Grammars {
    /// `stops`: the tokens that end an answer, at least one.
    pub fn new(tokenizer: Arc<Tokenizer>, stops: Vec<u32>) -> Grammars {
        let (vocabulary, cache, ended) = (OnceLock::new(), Mutex::default(), Condvar::new());
        Grammars(Arc::new(Shared { tokenizer, stops, vocabulary, cache, ended }))
    }

    /// Compiles a grammar, or returns what was compiled for it before. The first one also gathers the vocabulary: for Gemma
    /// 3's, that takes one to two seconds.
    ///
    /// # Errors
    /// Input: the grammar is wrong, too large, or uses what is not supported, which is named. Interrupted: `abandoned` says that
    /// nobody waits for it; it is asked now and then, and the compilation goes on for the next who asks.
    /// Failed: no thread can be started.
    pub fn compile(&self, grammar: &Grammar, abandoned: &dyn Fn() -> bool) -> Result<Arc<Compiled>> {
        let (source, key) = prepare(grammar)?;
        let mut source = Some(source);
        let mut cache = self.0.lock();
        loop {
            if abandoned() {
                return Err(Error::Interrupted {
                    cause: "nobody waits for the grammar".into(),
                    remedy: "ask again".into(),
                });
            }
            if let Some(done) = cache.find(&key) {
                return done;
            }
            if !cache.entries.contains_key(&key) && cache.running < MOST_AT_ONCE {
                if let Some(source) = source.take() {
                    self.start(&mut cache, &key, source)?;
                } else {
                    // It was compiled, and has already made room for others.
                    source = Some(prepare(grammar)?.0);
                }
                continue;
            }
            cache = self.0.ended.wait_timeout(cache, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Compilations and uses so far.
    #[cfg(test)]
    pub(super) fn uses(&self) -> u64 {
        self.0.lock().clock
    }

    /// Starts a thread that compiles `source`.
    fn start(&self, cache: &mut Cache, key: &str, source: Source) -> Result<()> {
        let (shared, of) = (self.0.clone(), key.to_owned());
        let run = move || {
            let failure =
                |reason: &str| Error::failed(format!("a grammar was not compiled: {}", quote(reason)), "report this");
            // Whoever waits has to hear of a panic too.
            let compiled = sheltered(failure, || source.compile(shared.vocabulary()?).map(Arc::new));
            shared.lock().put(of, compiled);
            shared.ended.notify_all();
        };
        Builder::new()
            .name("grammar".into())
            .stack_size(STACK)
            .spawn(run)
            .map_err(|e| Error::failed(format!("no thread can be started: {e}"), THREADS_REMEDY))?;
        cache.entries.insert(key.to_owned(), Entry::Running);
        cache.running += 1;
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vocabulary(&self) -> Result<Arc<Vocabulary>> {
        self.vocabulary.get_or_init(|| Vocabulary::gather(&self.tokenizer, &self.stops).map(Arc::new)).clone()
    }
}

impl Cache {
    /// What was compiled, if it was.
    fn find(&mut self, key: &str) -> Option<Result<Arc<Compiled>>> {
        let Some(Entry::Done { compiled, used }) = self.entries.get_mut(key) else { return None };
        self.clock += 1;
        *used = self.clock;
        Some(compiled.clone())
    }

    /// Keeps what was compiled, and drops what was not used for the longest time.
    fn put(&mut self, key: String, compiled: Result<Arc<Compiled>>) {
        self.running -= 1;
        self.clock += 1;
        self.entries.insert(key, Entry::Done { compiled, used: self.clock });
        while self.entries.len() > 1 && (self.entries.len() > MOST_KEPT || self.bytes() > MOST_BYTES) {
            let uses = self.entries.iter().filter_map(|(key, entry)| match entry {
                Entry::Done { used, .. } if *used < self.clock => Some((*used, key.clone())),
                _ => None,
            });
            let Some((_, oldest)) = uses.min() else { break };
            self.entries.remove(&oldest);
        }
    }

    fn bytes(&self) -> usize {
        let of = |(key, entry): (&String, &Entry)| match entry {
            Entry::Done { compiled: Ok(compiled), .. } => key.len() + compiled.bytes,
            _ => key.len(),
        };
        self.entries.iter().map(of).sum()
    }
}

/// Runs a part of llguidance. A panic of it becomes the error that `failure` makes of what it said.
pub(super) fn sheltered<T>(failure: impl Fn(&str) -> Error, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let ran = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| Ok(run())));
    ran.unwrap_or_else(|e| Err(failure(&said(&e))))
}

/// What llguidance says, on one line. What lies behind an empty line or in a backtrace is for its authors.
pub(super) fn said(error: &impl std::fmt::Display) -> String {
    let text = format!("{error:#}");
    let text = text.split("<backtrace>").next().unwrap_or_default();
    if text.trim_start().starts_with("panic:") {
        return "the parser fails on it".to_owned();
    }
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let words: Vec<&str> = lines.filter(|line| !line.bytes().all(|byte| byte == b'^')).collect();
    words.join(" ").chars().take(LONGEST_REASON).collect()
}

/// What llguidance compiles.
struct Source {
    document: GrammarWithLexer,
    is_json: bool,
}

/// What is compiled for a grammar, and the text that tells it from others.
fn prepare(grammar: &Grammar) -> Result<(Source, String)> {
    let (mut document, key) = match grammar {
        Grammar::Lark(text) => {
            check_depth(text)?;
            schema::check_embedded(text)?;
            (GrammarWithLexer::from_lark(text.clone()), format!("lark {text}"))
        }
        json => {
            let schema = match json {
                Grammar::JsonSchema(schema) => schema::prepare(schema)?,
                _ => schema::prepare(&schema::any_object())?,
            };
            let key = format!("json {schema}");
            (GrammarWithLexer::from_json_schema(schema), key)
        }
    };
    if key.len() > LONGEST_TEXT {
        return Err(Error::input(
            format!("the grammar has {} bytes, and {LONGEST_TEXT} are supported", key.len()),
            "use a smaller one",
        ));
    }
    document.name = Some(DOCUMENT.into());
    Ok((Source { document, is_json: !matches!(grammar, Grammar::Lark(_)) }, key))
}

fn check_depth(lark: &str) -> Result<()> {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in lark.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    match deepest > DEEPEST_LARK {
        true => Err(Error::input(
            format!("the grammar has {deepest} brackets within each other, and {DEEPEST_LARK} are supported"),
            "give inner parts rules of their own",
        )),
        false => Ok(()),
    }
}

impl Source {
    fn compile(self, vocabulary: Arc<Vocabulary>) -> Result<Compiled> {
        let is_json = self.is_json;
        let refused = |reason: &str| match is_json {
            true => schema::refusal(reason),
            false => Error::input(format!("the grammar cannot be used: {}", quote(reason)), "change the grammar"),
        };
        let stops: Vec<String> = vocabulary.stops.iter().map(u32::to_string).collect();
        let whole = GrammarWithLexer::from_lark(format!("start: @{DOCUMENT} <[{}]>", stops.join(",")));
        let init = GrammarInit::Serialized(TopLevelGrammar { grammars: vec![whole, self.document], max_tokens: None });
        let caps = InferenceCapabilities::default();
        let mut parser = vocabulary
            .factory
            .create_parser_from_init_ext(init, Logger::new(0, 0), caps, LIMITS)
            .map_err(|e| refused(&said(&e)))?;
        let grammar = parser.parser.grammar();
        let lexemes = grammar.lexer_spec();
        let unsupported = [
            (lexemes.has_stop, "`stop`"),
            (lexemes.has_max_tokens, "`max_tokens`"),
            (has_temperature(grammar), "`temperature`"),
            (lexemes.token_range_lexemes(&lexemes.all_lexemes()).len() > 1, "special tokens"),
        ];
        if let Some((_, what)) = unsupported.iter().find(|(is_used, _)| *is_used) {
            return Err(Error::input(format!("the grammar uses {what}, which is not supported"), "leave it out"));
        }
        parser.start_without_prompt();
        sheltered(refused, move || {
            // Gives the lexer its fuel for the search.
            parser.compute_mask().map_err(|e| match parser.stop_reason() {
                StopReason::NoExtensionBias => refused("no text is one of it"),
                _ => refused(&said(&e)),
            })?;
            let closing = find_shortest(&vocabulary, &mut parser);
            if let Some(error) = parser.parser.get_error() {
                return Err(refused(&said(&error.message())));
            }
            let closing = closing.ok_or_else(|| refused("no text was found that is one of it"))?;
            let bytes = parser.parser.lexer_stats().num_bytes;
            Ok(Compiled { vocabulary, parser, closing, is_json, bytes })
        })
    }
}

/// Whether a rule asks for a temperature of its own.
fn has_temperature(grammar: &CGrammar) -> bool {
    let (mut open, mut seen) = (vec![grammar.start()], HashSet::new());
    while let Some(symbol) = open.pop() {
        let data = grammar.sym_data(symbol);
        if data.props.temperature != 0.0 {
            return true;
        }
        if seen.insert(symbol.as_index()) {
            open.extend(data.rules.iter().flat_map(|&rule| grammar.rule_rhs(rule).0));
        }
    }
    false
}

/// The shortest document: any one first, since the search for the shortest goes on from there.
fn find_shortest(vocabulary: &Vocabulary, parser: &mut TokenParser) -> Option<Closing> {
    let (trie, alphabet) = (vocabulary.trie(), &vocabulary.alphabet[..]);
    let none = Closing::default();
    let any = Task {
        trie,
        alphabet,
        after: &[],
        in_string: false,
        known: &none,
        most: usize::MAX,
        order: Order::Any,
        effort: EFFORT_TO_FIND,
    };
    let known = closing::find(&mut parser.parser, &any)?;
    let shortest = Task { known: &known, most: 0, order: Order::Shortest, effort: EFFORT_TO_SHORTEN, ..any };
    closing::find(&mut parser.parser, &shortest).or(Some(known))
}
