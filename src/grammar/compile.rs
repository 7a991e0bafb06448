//! From grammars to what sequences start from, each compiled once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use llguidance::TokenParser;

use super::Grammar;
use super::memory::HeldBytes;
use super::source::{GrammarSource, StopSignal, refusal, sheltered, too_long};
use super::vocabulary::Vocabulary;
use crate::display::quote;
use crate::machine::threads::REMEDY as THREADS_REMEDY;
use crate::text::Tokenizer;
use crate::{Error, Result};

/// Compiled grammars that are kept.
const MOST_KEPT: usize = 64;
/// Bytes that the kept ones take, about. One that takes more by itself is kept until the next is compiled.
const MOST_BYTES: usize = 64 << 20;
/// Grammars that are compiled at the same time.
const MOST_AT_ONCE: usize = 2;
/// Bytes of the stack of a thread that compiles: references and brackets are followed by recursion.
const STACK: usize = 64 << 20;
/// How often a wait for a compilation looks whether it is cancelled.
const LOOK: Duration = Duration::from_millis(10);
/// How long a grammar may be compiled.
const LONGEST: Duration = Duration::from_secs(10);

/// Compiles grammars for one tokenizer, and keeps what it has compiled. Clones share it.
#[derive(Clone)]
pub struct Grammars(Arc<CompilerState>);

struct CompilerState {
    tokenizer: Arc<Tokenizer>,
    stops: Vec<u32>,
    /// Gathered for the first grammar.
    vocabulary: OnceLock<Result<Arc<Vocabulary>>>,
    cache: Mutex<GrammarCache>,
    /// A compilation has ended.
    ended: Condvar,
}

#[derive(Default)]
struct GrammarCache {
    /// By the text that is compiled.
    entries: HashMap<String, CacheEntry>,
    /// The clients whose grammars are compiled.
    running: Vec<u64>,
    /// Counts compilations and uses.
    clock: u64,
}

enum CacheEntry {
    /// `waiting`: those who asked for it and still wait. When nobody does, it is stopped.
    Running {
        waiting: usize,
        stop: StopSignal,
    },
    Done {
        compiled: Result<Arc<CompiledGrammar>>,
        used: u64,
    },
}

/// A compiled grammar: what the [`super::Constraint`]s of sequences start from.
pub struct CompiledGrammar {
    pub(super) vocabulary: Arc<Vocabulary>,
    /// At the beginning of the document.
    pub(super) parser: TokenParser,
    pub(super) is_json: bool,
    pub(super) ignored: Vec<String>,
    /// A reply that goes on with a text which is none of its documents may have one behind it.
    pub(super) is_optional: bool,
    /// About what it takes, rules and lexer.
    pub(super) bytes: HeldBytes,
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a grammar of {} bytes", self.bytes.bytes())
    }
}

impl CompiledGrammar {
    /// What the schemas of functions ask for and the grammar does not hold replies to: the function, the keyword, where it is
    /// and why.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }
}

impl Grammars {
    /// `stops`: the tokens that end an answer, at least one.
    pub fn new(tokenizer: Arc<Tokenizer>, stops: Vec<u32>) -> Grammars {
        let (vocabulary, cache, ended) = (OnceLock::new(), Mutex::default(), Condvar::new());
        Grammars(Arc::new(CompilerState { tokenizer, stops, vocabulary, cache, ended }))
    }

    /// Compiles a grammar, or returns what was compiled for it before. The first one also gathers the vocabulary: for Gemma
    /// 3's, that takes one to two seconds. `client` tells who asks: one grammar of each is compiled at a time.
    ///
    /// # Errors
    /// Input: the grammar is wrong, too large, or uses what is not supported, which is named. Interrupted: `abandoned` says that
    /// the client is gone; it is asked now and then, and the compilation ends if no other waits for it. Where replies and their
    /// grammars hold all memory that is meant for them, it waits until some have ended.
    /// Failed: no thread can be started.
    pub fn compile(
        &self,
        grammar: &Grammar,
        client: u64,
        abandoned: &dyn Fn() -> bool,
    ) -> Result<Arc<CompiledGrammar>> {
        let source = GrammarSource::of(grammar)?;
        let key = source.key().to_owned();
        let mut source = Some(source);
        let mut waits = false;
        let mut cache = self.0.lock();
        loop {
            if abandoned() {
                if waits {
                    cache.leave(&key);
                }
                return Err(Error::Interrupted {
                    cause: "nobody waits for the grammar".into(),
                    remedy: "ask again".into(),
                });
            }
            let has_place = cache.running.len() < MOST_AT_ONCE && !cache.running.contains(&client);
            let is_known = cache.entries.contains_key(&key);
            let has_room = has_place && (is_known || self.0.has_memory(&mut cache));
            match cache.entries.get_mut(&key) {
                Some(CacheEntry::Done { .. }) => return cache.find(&key),
                Some(CacheEntry::Running { waiting, stop }) => {
                    if !waits && !stop.is_asked() {
                        *waiting += 1;
                        waits = true;
                    }
                    if stop.is_late() {
                        stop.ask();
                    }
                }
                None if has_room => {
                    let source = match source.take() {
                        Some(source) => source,
                        // It was compiled, and has already made room for others.
                        None => GrammarSource::of(grammar)?,
                    };
                    self.start(&mut cache, &key, source, client)?;
                    waits = true;
                    continue;
                }
                None => waits = false,
            }
            cache = self.0.ended.wait_timeout(cache, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The bytes that compiled grammars and replies hold.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.0.vocabulary().map_or(0, |vocabulary| vocabulary.memory.held())
    }

    /// Compilations and uses so far.
    #[cfg(test)]
    pub(super) fn uses(&self) -> u64 {
        self.0.lock().clock
    }

    /// Takes a place as if a grammar of `client` were compiled.
    #[cfg(test)]
    pub(crate) fn hold(&self, client: u64) {
        self.0.lock().running.push(client);
    }

    /// Starts a thread that compiles `source`.
    fn start(&self, cache: &mut GrammarCache, key: &str, source: GrammarSource, client: u64) -> Result<()> {
        let (shared, of, stop) = (self.0.clone(), key.to_owned(), StopSignal::within(LONGEST));
        let stopped = stop.clone();
        let run = move || {
            let compiled = shared.vocabulary().and_then(|vocabulary| {
                // Whoever waits has to hear of a panic too, which this grammar has caused.
                sheltered(refusal, || source.compile(vocabulary, &stopped).map(Arc::new))
            });
            if let Ok(compiled) = &compiled {
                compiled.ignored.iter().for_each(|what| log::warn!("a schema is not kept to in full: {}", quote(what)));
            }
            shared.lock().put(of, client, &stopped, compiled);
            shared.ended.notify_all();
        };
        Builder::new()
            .name("grammar".into())
            .stack_size(STACK)
            .spawn(run)
            .map_err(|e| Error::failed(format!("no thread can be started: {e}"), THREADS_REMEDY))?;
        cache.entries.insert(key.to_owned(), CacheEntry::Running { waiting: 1, stop });
        cache.running.push(client);
        Ok(())
    }
}

impl CompilerState {
    fn lock(&self) -> MutexGuard<'_, GrammarCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is memory for another grammar, once those that are kept for later have made room.
    fn has_memory(&self, cache: &mut GrammarCache) -> bool {
        let Some(Ok(vocabulary)) = self.vocabulary.get() else { return true };
        while !vocabulary.memory.has_room() && cache.drop_oldest() {}
        vocabulary.memory.has_room()
    }

    fn vocabulary(&self) -> Result<Arc<Vocabulary>> {
        self.vocabulary.get_or_init(|| Vocabulary::gather(&self.tokenizer, &self.stops).map(Arc::new)).clone()
    }
}

impl GrammarCache {
    /// What was compiled.
    fn find(&mut self, key: &str) -> Result<Arc<CompiledGrammar>> {
        self.clock += 1;
        match self.entries.get_mut(key) {
            Some(CacheEntry::Done { compiled, used }) => {
                *used = self.clock;
                compiled.clone()
            }
            _ => Err(Error::failed("a compiled grammar was lost", "report this")),
        }
    }

    /// One who waited for `key` has left.
    fn leave(&mut self, key: &str) {
        if let Some(CacheEntry::Running { waiting, stop }) = self.entries.get_mut(key) {
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                stop.ask();
            }
        }
    }

    /// Keeps what was compiled, and drops what was not used for the longest time.
    fn put(&mut self, key: String, client: u64, stop: &StopSignal, compiled: Result<Arc<CompiledGrammar>>) {
        if let Some(at) = self.running.iter().position(|running| *running == client) {
            self.running.swap_remove(at);
        }
        self.clock += 1;
        if stop.is_asked() && !stop.is_late() {
            // All who had asked for it left. Whoever asks next starts anew.
            self.entries.remove(&key);
            return;
        }
        // The parser of one that was stopped stays stopped.
        let compiled = if stop.is_asked() { compiled.and_then(|_| Err(too_long())) } else { compiled };
        self.entries.insert(key, CacheEntry::Done { compiled, used: self.clock });
        while (self.entries.len() > MOST_KEPT || self.bytes() > MOST_BYTES) && self.drop_oldest() {}
    }

    /// Drops what was not used for the longest time, but not the last. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let uses = self.entries.iter().filter_map(|(key, entry)| match entry {
            CacheEntry::Done { used, .. } if *used < self.clock => Some((*used, key)),
            _ => None,
        });
        let oldest = uses.min().map(|(_, key)| key.clone());
        oldest.is_some_and(|key| self.entries.remove(&key).is_some())
    }

    fn bytes(&self) -> usize {
        let of = |(key, entry): (&String, &CacheEntry)| match entry {
            CacheEntry::Done { compiled: Ok(compiled), .. } => key.len() + compiled.bytes.bytes(),
            _ => key.len(),
        };
        self.entries.iter().map(of).sum()
    }
}
