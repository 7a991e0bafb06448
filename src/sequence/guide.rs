//! Guides: constraints on a reply that say after each token which tokens may follow.

use super::chooser::Chooser;
use crate::Result;
use crate::executor::Executor;
use crate::schedule::choice::SampleRequest;
use crate::text::TokenSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Follows a reply and computes the tokens that may come next.
pub trait Guide: Send {
    /// Announces that the first token is about to be requested.
    fn begin(&mut self) {}

    /// True if [`Guide::fill`] would return without waiting. Waits for that for `patience` at most.
    fn is_ready(&mut self, patience: Duration) -> bool {
        let _ = patience;
        true
    }

    /// Fills `set` with the tokens that may come next; there is at least one.
    ///
    /// # Errors
    /// Input or Failed: the set cannot be computed.
    fn fill(&mut self, set: &mut TokenSet) -> Result<()>;

    /// Advances by the chosen token, which was in the last set.
    ///
    /// # Errors
    /// Input or Failed: the token cannot be followed. The error may also come from the next [`Guide::fill`].
    fn take(&mut self, token: u32) -> Result<()>;
}

/// A chooser restricted by a guide. Clones share the guide.
#[derive(Clone)]
pub struct Guided {
    pub(super) chooser: Chooser,
    guide: Arc<Mutex<dyn Guide>>,
    /// True if the chooser's set is the one for the next token. The error of computing it, if that failed.
    ready: Result<bool>,
}

impl Guided {
    /// Restricts `chooser` by `guide`, for a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// As [`Chooser::new`].
    pub(super) fn new(mut chooser: Chooser, guide: impl Guide + 'static, vocab: usize) -> Result<Guided> {
        chooser.allow(TokenSet::new(vocab))?;
        Ok(Guided { chooser, guide: Arc::new(Mutex::new(guide)), ready: Ok(false) })
    }

    fn guide(&self) -> MutexGuard<'_, dyn Guide + 'static> {
        self.guide.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a reply to `prompt`: starts the guide and the chooser within.
    pub(super) fn begin(&mut self, prompt: &[u32]) {
        self.guide().begin();
        self.chooser.begin(prompt);
    }

    /// True if the next token can be chosen without waiting. Waits for that for `patience` at most.
    pub(super) fn is_ready(&mut self, patience: Duration) -> bool {
        self.ready != Ok(false) || self.guide().is_ready(patience)
    }

    /// Fetches the set for the next token, unless that has been done.
    fn prepare(&mut self) {
        if self.ready == Ok(false) {
            let guide = self.guide.clone();
            let mut guide = guide.lock().unwrap_or_else(PoisonError::into_inner);
            self.ready = match self.chooser.allowed_mut() {
                Some(set) => guide.fill(set).map(|()| true),
                None => Ok(true),
            };
        }
    }

    /// Writes the sample request, once the set of allowed tokens is computed.
    pub(super) fn ask(&mut self, ask: &mut SampleRequest<'_>) {
        self.prepare();
        if self.ready.is_ok() {
            self.chooser.ask(ask);
        }
    }

    /// Chooses the token of a head row among those that the guide allows.
    pub(super) fn choose(&mut self, executor: &mut dyn Executor, row: usize) -> Result<u32> {
        self.prepare();
        self.ready.clone()?;
        let token = self.chooser.choose(executor, row)?;
        self.ready = Ok(false);
        self.guide().take(token)?;
        Ok(token)
    }
}
