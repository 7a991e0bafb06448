//! Sessions: threads of questions to an engine, and their tokens in its cache: brought there, written to a file, and read back.

use super::Engine;
use crate::executor::Executor;
use crate::sequence::Batch;
use crate::serve::http::{ApiError, Method};
use crate::serve::job::{Client, ReplyRequest};
use crate::serve::prefixes::session;
use crate::text::SamplerConfig;
use crate::{Cancel, Error, Result};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a session is brought into the cache to be saved, where others' sequences take its pages at once.
const TRIES: usize = 8;

/// How a session came to its tokens, of which each is one of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced {
    /// Tokens whose keys and values were there.
    pub reused: usize,
    /// Tokens that were run behind what the session held before.
    pub extended: usize,
    /// Tokens that were run in the place of what the session held before, or of what the cache had lost of it.
    pub rebuilt: usize,
}

/// A thread of questions to an engine, and the tokens that it was brought to. All of an engine share its batch, each may be used
/// by any thread, and each keeps the engine.
pub struct EngineSession {
    engine: Arc<Engine>,
    cancel: Cancel,
    /// What [`EngineSession::sync`] or [`EngineSession::load`] gave it last. A call that changes them holds them until it returns.
    tokens: Mutex<Vec<u32>>,
}

/// Another session of the same engine with the same tokens. Each goes on by itself; what the cache holds, they share.
impl Clone for EngineSession {
    fn clone(&self) -> EngineSession {
        let tokens = self.tokens().clone();
        EngineSession { engine: self.engine.clone(), cancel: Cancel::default(), tokens: Mutex::new(tokens) }
    }
}

impl EngineSession {
    /// A session of `engine` that holds no tokens.
    pub fn new(engine: Arc<Engine>) -> EngineSession {
        EngineSession { engine, cancel: Cancel::default(), tokens: Mutex::default() }
    }

    /// The tokens that it was brought to, for this thread alone.
    fn tokens(&self) -> MutexGuard<'_, Vec<u32>> {
        // They are replaced as a whole.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The flag of a call that begins now: what was cancelled before is no reason to end it.
    fn begin(&self) -> &Cancel {
        self.cancel.clear();
        &self.cancel
    }

    /// Ends what the session's calls do, from any thread: they are interrupted. The next call runs again.
    pub fn cancel(&self) {
        self.cancel.set();
    }

    /// Brings the session to `tokens`: the cache then holds their keys and values, and a prompt that begins with them goes on from
    /// there. What is there already is kept, and the rest is run; what the cache holds gives way to running replies where they
    /// need its room.
    ///
    /// # Errors
    /// Input: they are no prompt for this model. Refused: the queue is full. Interrupted: it was cancelled. Failed: the engine
    /// has ended.
    pub fn sync(&self, tokens: Vec<u32>) -> Result<Synced> {
        let mut held = self.tokens();
        let reused = self.engine.sync(&tokens, self.begin())?;
        let old = held.len().min(tokens.len()).max(reused);
        let synced = Synced { reused, rebuilt: old - reused, extended: tokens.len() - old };
        *held = tokens;
        Ok(synced)
    }

    /// Writes the session's tokens with their keys and values to a file, all of it or nothing, for [`EngineSession::load`].
    ///
    /// # Errors
    /// As [`EngineSession::sync`]. Input: it holds no tokens, or there is something else at `path`. Refused: others' sequences
    /// leave the cache no room. Failed: the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let held = self.tokens();
        if held.is_empty() {
            return Err(Error::input("the session holds no tokens", "bring it to some by a sync"));
        }
        self.engine.save(&held, path, self.begin())
    }

    /// Brings the session to the tokens of a file of [`EngineSession::save`], and returns them: what goes on behind them is what
    /// it would have been where they were saved.
    ///
    /// # Errors
    /// Input: the file is none, or not of this model on this device. Refused: all places have replies. Failed: the engine has
    /// ended.
    pub fn load(&self, path: &Path) -> Result<Vec<u32>> {
        let mut held = self.tokens();
        let loaded = self.engine.load(path)?;
        held.clone_from(&loaded);
        Ok(loaded)
    }

    /// As [`Engine::request`], until the session is cancelled.
    ///
    /// # Errors
    /// As [`Engine::request`].
    pub fn request(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
        on: &mut dyn FnMut(u16, &[u8]) -> ControlFlow<()>,
    ) -> Result<u16> {
        self.engine.request(method, path, body, self.begin(), on)
    }
}

impl Engine {
    /// Brings `tokens` into the cache, as far as they are not there: what begins with them goes on from there. Returns how many
    /// were there. What the cache holds gives way to running replies where they need its room.
    ///
    /// # Errors
    /// Input: they are no prompt for this model. Refused: the queue is full. Interrupted: `cancel` is set. Failed: the engine
    /// has ended.
    fn sync(&self, tokens: &[u32], cancel: &Cancel) -> Result<usize> {
        let model = self.model()?;
        model.limits().check(0, tokens)?;
        let sought = tokens.to_vec();
        let holds = move |batch: &mut Batch, executor: &mut dyn Executor| batch.holder(executor, &sought).is_some();
        if self.service.on_engine(&model, holds).map_err(api_error)? {
            return Ok(tokens.len());
        }
        let ask = ReplyRequest {
            limit: 1,
            sampler: SamplerConfig::greedy(),
            ignore_eos: true,
            ..ReplyRequest::new(tokens.to_vec())
        };
        let (client, flag) = (Client::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), cancel.clone());
        let answers = self.service.submit(&model, &[ask], client, Arc::new(move || flag.is_set()));
        let done = answers.and_then(|answers| answers.gather());
        cancel.check_or("the call was cancelled")?;
        let ends = done.map_err(api_error)?.into_iter().filter_map(|whole| whole.end);
        Ok(ends.map(|end| end.cached_tokens).sum())
    }

    /// Writes `tokens` with their keys and values to a file, all of it or nothing, for `Engine::load`.
    ///
    /// # Errors
    /// As `Engine::sync`. Input: there is something else at `path`. Refused: others' sequences leave the cache no room.
    /// Failed: the file cannot be written.
    fn save(&self, tokens: &[u32], path: &Path, cancel: &Cancel) -> Result<()> {
        session::check_place(path)?;
        let model = self.model()?;
        for _ in 0..TRIES {
            self.sync(tokens, cancel)?;
            let (sought, identity) = (tokens.to_vec(), model.identity);
            let copy =
                move |batch: &mut Batch, executor: &mut dyn Executor| session::copy(&sought, identity, batch, executor);
            if let Some(bytes) = self.service.on_engine(&model, copy).map_err(api_error)?? {
                return session::write(path, &bytes);
            }
        }
        Err(Error::refused("other sequences leave the session no room in the cache", "save it once they have ended"))
    }

    /// Puts what a file of `Engine::save` holds into the cache, and returns its tokens: what goes on after them is what it
    /// would have been where they were saved.
    ///
    /// # Errors
    /// Input: the file is none, or not of this model on this device. Refused: all places have replies. Failed: the engine has
    /// ended.
    fn load(&self, path: &Path) -> Result<Vec<u32>> {
        let model = self.model()?;
        let (identity, name) = (model.identity, path.to_owned());
        let bytes = session::read(path, identity)?;
        let put_in = move |batch: &mut Batch, executor: &mut dyn Executor| {
            session::restore(&name, bytes, identity, batch, executor)
        };
        let restored = self.service.on_engine(&model, put_in).map_err(api_error)??;
        restored.ok_or_else(|| {
            Error::refused(
                "no place is free for the session: replies are under way in all",
                "load it once one has ended",
            )
        })
    }
}

/// An error of the service, as a program of this process is told it.
fn api_error(e: ApiError) -> Error {
    error_of(e.status, &e.message)
}

/// The error of an answer's status and message, in which the remedy stands behind the last semicolon.
pub(super) fn error_of(status: u16, message: &str) -> Error {
    let (cause, remedy) = message.rsplit_once("; ").unwrap_or((message, "try again"));
    match status {
        503 => Error::refused(cause.to_owned(), remedy.to_owned()),
        400..=499 => Error::input(cause.to_owned(), remedy.to_owned()),
        _ => Error::failed(cause.to_owned(), remedy.to_owned()),
    }
}
