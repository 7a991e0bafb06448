//! Sessions: conversations with an engine, whose tokens can be put into the cache, saved to a file, and loaded.

use super::Engine;
use crate::serve::http::Method;
use crate::text::Message;
use crate::{Cancel, Error, Result};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The result of a sync: each token of the session is counted in one of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced {
    /// The number of tokens whose keys and values were in the cache.
    pub reused: usize,
    /// Tokens that were run after the session's earlier tokens.
    pub extended: usize,
    /// Tokens that were run because they differ from the session's earlier ones, or were evicted from the cache.
    pub rebuilt: usize,
}

/// A conversation with an engine, and its tokens. All sessions of an engine share its batch. A session may be used from
/// any thread, and keeps the engine alive.
pub struct EngineSession {
    pub(super) engine: Arc<Engine>,
    cancel: Cancel,
    /// True after [`EngineSession::close`]: all further calls are refused.
    is_closed: AtomicBool,
    /// The tokens of the last [`EngineSession::sync`] or [`EngineSession::load`]. A call that changes them holds the
    /// lock.
    tokens: Mutex<Vec<u32>>,
    /// The questions of [`EngineSession::ask`] and their answers.
    messages: Mutex<Vec<Message>>,
}

/// An independent session of the same engine with the same tokens and messages. Both share the cached keys and values.
impl Clone for EngineSession {
    fn clone(&self) -> EngineSession {
        let (tokens, messages) = (self.tokens().clone().into(), self.messages().clone().into());
        EngineSession { tokens, messages, ..EngineSession::new(self.engine.clone()) }
    }
}

impl EngineSession {
    /// A session of `engine` without tokens.
    pub fn new(engine: Arc<Engine>) -> EngineSession {
        EngineSession {
            engine,
            cancel: Cancel::default(),
            is_closed: AtomicBool::default(),
            tokens: Mutex::default(),
            messages: Mutex::default(),
        }
    }

    /// Locks the session's tokens, even after a panic.
    fn tokens(&self) -> MutexGuard<'_, Vec<u32>> {
        // The tokens are replaced as a whole, so a panic cannot leave a part.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the session's messages.
    pub(in crate::serve) fn messages(&self) -> MutexGuard<'_, Vec<Message>> {
        // A question and its answer are added by one call that does not panic.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cancellation flag for a new call, cleared of earlier cancellations. It stays set in a closed session.
    pub(super) fn begin(&self) -> &Cancel {
        self.cancel.clear();
        // Behind the clearing, which may have undone that of `close`.
        if self.is_closed.load(Ordering::SeqCst) {
            self.cancel.set();
        }
        &self.cancel
    }

    /// Interrupts the session's running calls, from any thread. Later calls are not affected.
    pub fn cancel(&self) {
        self.cancel.set();
    }

    /// Ends all calls as [`EngineSession::cancel`] does, also one that is about to begin on another thread.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.cancel.set();
    }

    /// Brings the cache to hold the keys and values of `tokens`, so that a prompt that begins with them continues from
    /// there. Cached tokens are kept, and the rest is run. Running replies may evict them later if they need the room.
    ///
    /// # Errors
    /// Input: the tokens are not a valid prompt. Refused: the queue is full. Interrupted: it was cancelled. Failed: the
    /// engine has ended.
    pub fn sync(&self, tokens: Vec<u32>) -> Result<Synced> {
        let mut held = self.tokens();
        let (service, model) = (&self.engine.service, self.engine.model()?);
        let reused = service.count_refusal(service.engine.sync(model.target(), &tokens, self.begin()))?;
        let old = held.len().min(tokens.len()).max(reused);
        let synced = Synced { reused, rebuilt: old - reused, extended: tokens.len() - old };
        *held = tokens;
        Ok(synced)
    }

    /// Writes the session's tokens, keys and values to a file for [`EngineSession::load`]. The file is complete or not
    /// written.
    ///
    /// # Errors
    /// As [`EngineSession::sync`]. Input: the session is empty, or another kind of file is at `path`. Refused: other
    /// sequences leave no room in the cache. Failed: the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let (held, cancel) = (self.tokens(), self.begin());
        if held.is_empty() {
            return Err(Error::input("the session holds no tokens", "bring it to some by a sync"));
        }
        let (service, model) = (&self.engine.service, self.engine.model()?);
        Ok(service.count_refusal(service.engine.save(model.target(), model.identity, &held, path, cancel))?)
    }

    /// Loads a file of [`EngineSession::save`] into the cache, and returns its tokens. The continuation is the same as
    /// after the original tokens.
    ///
    /// # Errors
    /// Input: the file is not a session of this model on this device. Refused: all slots are in use. Failed: the engine
    /// has ended.
    pub fn load(&self, path: &Path) -> Result<Vec<u32>> {
        let mut held = self.tokens();
        let model = self.engine.model()?;
        held.clone_from(&self.engine.service.engine.load(model.id, model.identity, path)?);
        Ok(held.clone())
    }

    /// Makes a request as [`Engine::request`] does. It ends when the session is cancelled.
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
