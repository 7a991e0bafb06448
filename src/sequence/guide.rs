//! What a reply may be: something that says after each token which ones may follow.

use super::chooser::Chooser;
use crate::Result;
use crate::executor::Executor;
use crate::schedule::choice::SampleRequest;
use crate::text::TokenSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Follows a reply, and says which tokens may come next.
pub trait Guide: Send {
    /// The reply's first token will be asked for soon.
    fn begin(&mut self) {}

    /// Whether [`Guide::fill`] returns at once. If not, this waits for that as long as `patience`.
    fn is_ready(&mut self, patience: Duration) -> bool {
        let _ = patience;
        true
    }

    /// Puts into `set` the tokens that may come next. There is always one.
    ///
    /// # Errors
    /// Input or Failed: it cannot tell.
    fn fill(&mut self, set: &mut TokenSet) -> Result<()>;

    /// Takes the chosen token, which was in the last set.
    ///
    /// # Errors
    /// Input or Failed: it cannot tell what would follow. It may also say so by the next [`Guide::fill`].
    fn take(&mut self, token: u32) -> Result<()>;
}

/// A chooser whose tokens a guide allows. A clone follows the same reply.
#[derive(Clone)]
pub struct Guided {
    pub(super) chooser: Chooser,
    guide: Arc<Mutex<dyn Guide>>,
    /// Whether the chooser's set is that of the next token; or why it is not.
    ready: Result<bool>,
}

impl Guided {
    /// Makes `chooser` follow `guide`, for a vocabulary of `vocab` tokens.
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

    /// As [`Guide::begin`].
    pub(super) fn begin(&mut self, prompt: &[u32]) {
        self.guide().begin();
        self.chooser.begin(prompt);
    }

    /// Whether the next token can be chosen without a wait. If not, this waits for that as long as `patience`.
    pub(super) fn is_ready(&mut self, patience: Duration) -> bool {
        self.ready != Ok(false) || self.guide().is_ready(patience)
    }

    /// Gets the next token's set, once.
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

    /// As [`Chooser::ask`]. Waits for the set.
    pub(super) fn ask(&mut self, ask: &mut SampleRequest<'_>) {
        self.prepare();
        if self.ready.is_ok() {
            self.chooser.ask(ask);
        }
    }

    /// As [`Chooser::choose`].
    pub(super) fn choose(&mut self, executor: &mut dyn Executor, row: usize) -> Result<u32> {
        self.prepare();
        self.ready.clone()?;
        let token = self.chooser.choose(executor, row)?;
        self.ready = Ok(false);
        self.guide().take(token)?;
        Ok(token)
    }
}
