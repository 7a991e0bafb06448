//! Compiles grammars, each once, and caches the results.

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

/// The most compiled grammars in the cache.
const MOST_KEPT: usize = 64;
/// The most bytes of compiled grammars in the cache, estimated. A larger grammar stays until the next one is compiled.
const MOST_BYTES: usize = 64 << 20;
/// The most grammars that are compiled at the same time.
const MOST_AT_ONCE: usize = 2;
/// Stack of a compiling thread, in bytes: references and brackets are followed by recursion.
const STACK: usize = 64 << 20;
/// Interval at which a wait for a compilation checks for cancellation.
const LOOK: Duration = Duration::from_millis(10);
/// The longest time to compile a grammar.
const LONGEST: Duration = Duration::from_secs(10);

/// Compiles grammars for one tokenizer and caches the results. Clones share the cache.
#[derive(Clone)]
pub struct Grammars(Arc<CompilerState>);

struct CompilerState {
    tokenizer: Arc<Tokenizer>,
    stops: Vec<u32>,
    /// Built from the tokenizer when the first grammar is compiled, and used by all grammars.
    vocabulary: OnceLock<Result<Arc<Vocabulary>>>,
    cache: Mutex<GrammarCache>,
    /// Notified when a compilation ends, so that callers waiting for its grammar wake.
    ended: Condvar,
}

#[derive(Default)]
struct GrammarCache {
    /// Compiled grammars and running compilations, by the key of the grammar's source.
    entries: HashMap<String, CacheEntry>,
    /// The clients whose grammars are being compiled now.
    running: Vec<u64>,
    /// The number of compilations and uses so far. An entry with a smaller number was used earlier, and is evicted
    /// first.
    clock: u64,
}

enum CacheEntry {
    /// `waiting`: callers that wait for the result. At 0 the compilation is stopped.
    Running {
        waiting: usize,
        stop: StopSignal,
    },
    Done {
        compiled: Result<Arc<CompiledGrammar>>,
        used: u64,
    },
}

/// A compiled grammar, from which the [`super::Constraint`]s of sequences start.
pub struct CompiledGrammar {
    pub(super) vocabulary: Arc<Vocabulary>,
    /// The parser at the beginning of a document.
    pub(super) parser: TokenParser,
    pub(super) is_json: bool,
    pub(super) ignored: Vec<String>,
    /// True if a reply may begin with text that starts no document of the grammar, and have a document after it.
    pub(super) is_optional: bool,
    /// Estimated bytes of this grammar's rules and lexer, counted for the limit on all grammars until this is dropped.
    pub(super) bytes: HeldBytes,
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a grammar of {} bytes", self.bytes.bytes())
    }
}

impl CompiledGrammar {
    /// Parts of the functions' schemas that the grammar does not enforce. Each entry names the function, the keyword,
    /// its place and the reason.
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

    /// Compiles a grammar, or returns the cached one. The first call also builds the vocabulary's trie, which takes one
    /// to two seconds for Gemma 3's. `client` identifies the requester: each has one grammar compiled at a time. While
    /// the memory for grammars is used up, the call waits until replies have ended.
    ///
    /// # Errors
    /// Input: the grammar is wrong, too large, or uses an unsupported feature, which the message names. Interrupted:
    /// `abandoned`, which is polled, says that the client is gone; the compilation stops if no other caller waits for
    /// it. Failed: no thread can be started.
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
                return Err(Error::interrupted("no request waits for the grammar", "ask again"));
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
                        // An earlier result of this grammar has been evicted already.
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

    /// Bytes held by compiled grammars and replies.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.0.vocabulary().map_or(0, |vocabulary| vocabulary.memory.held())
    }

    /// The number of compilations and uses so far.
    #[cfg(test)]
    pub(super) fn uses(&self) -> u64 {
        self.0.lock().clock
    }

    /// Occupies the slot of a compilation for `client`.
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
                // A panic becomes an error too, so that the waiting callers get an answer.
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

    /// True if another grammar fits into memory. Evicts cached grammars to make room.
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
    /// The compiled grammar for `key`, or the error of its compilation. Marks the entry as used.
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

    /// Records that a caller no longer waits for `key`, and stops the compilation after the last one.
    fn leave(&mut self, key: &str) {
        if let Some(CacheEntry::Running { waiting, stop }) = self.entries.get_mut(key) {
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                stop.ask();
            }
        }
    }

    /// Stores a result, and evicts the entries that were not used for the longest time.
    fn put(&mut self, key: String, client: u64, stop: &StopSignal, compiled: Result<Arc<CompiledGrammar>>) {
        if let Some(at) = self.running.iter().position(|running| *running == client) {
            self.running.swap_remove(at);
        }
        self.clock += 1;
        if stop.is_asked() && !stop.is_late() {
            // All callers have left; the next one compiles it again.
            self.entries.remove(&key);
            return;
        }
        // A stopped parser cannot be used, even if the compilation still finished.
        let compiled = if stop.is_asked() { compiled.and_then(|_| Err(too_long())) } else { compiled };
        self.entries.insert(key, CacheEntry::Done { compiled, used: self.clock });
        while (self.entries.len() > MOST_KEPT || self.bytes() > MOST_BYTES) && self.drop_oldest() {}
    }

    /// Evicts the entry that was not used for the longest time, except the newest one. Returns whether an entry was
    /// evicted.
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
