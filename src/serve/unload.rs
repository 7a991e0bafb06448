//! A model that nobody asks for a while gives its memory back, and is loaded again for the next request.
//!
//! Its text side stays: requests are read and put into the queue without the weights, and wait there while they are loaded. The
//! thread that had the engine waits for them.

use super::health::Phase;
use super::http::ApiError;
use super::model::Model;
use super::prefixes::Identity;
use super::server::{LoadedExecutor, Notice, Setup};
use super::service::Service;
use crate::executor::weights::Progress;
use crate::sys::memory;
use crate::{Cancel, Error, Result};
use std::sync::Arc;

/// Seconds after which somebody may ask again whose request found no model.
const RETRY: u64 = 5;

/// A model without its weights.
pub(super) struct Unloaded<'a> {
    pub model: &'a Model,
    pub setup: &'a Setup,
    pub service: &'a Service,
    /// Ends a load.
    pub cancel: &'a Cancel,
}

/// What the server is told meanwhile.
pub(super) enum UnloadedNews {
    Notice(Notice),
    /// The files are another model's by now, which has to be loaded as one.
    Changed,
}

impl Unloaded<'_> {
    /// Waits until somebody asks for the model, and loads it again. Who asks in vain is told why, and the next one's request tries
    /// again. `None`: nobody will ask.
    ///
    /// # Errors
    /// Interrupted: the load was ended.
    pub fn wait(&self, say: &dyn Fn(UnloadedNews)) -> Result<Option<LoadedExecutor>> {
        let Unloaded { model, service, .. } = self;
        memory::give_back_freed();
        self.enter(Phase::Unloaded);
        say(UnloadedNews::Notice(Notice::Unloaded));
        let mut has_changed = false;
        while service.queue.wait_for_some(model.id) {
            let loaded = match has_changed {
                true => Ok(None),
                false => {
                    self.enter(Phase::LoadingAgain);
                    self.load()
                }
            };
            match loaded {
                Ok(Some(loaded)) => {
                    self.enter(Phase::Ready);
                    say(UnloadedNews::Notice(Notice::LoadedAgain));
                    return Ok(Some(loaded));
                }
                Ok(None) => {
                    has_changed = true;
                    // Who waits asks for a model that is no more.
                    let e =
                        ApiError::unavailable("the model's files have changed, and they are loaded; ask again", RETRY);
                    service.turn_away(model.id, &e.code("model_replaced"));
                    self.enter(Phase::Unloaded);
                    say(UnloadedNews::Changed);
                }
                Err(e @ Error::Interrupted { .. }) => return Err(e),
                Err(e) => {
                    self.enter(Phase::Unloaded);
                    let words = format!("the model was unloaded, and cannot be loaded again: {e}");
                    service.turn_away(model.id, &ApiError::unavailable(words, RETRY).code("not_loaded"));
                    say(UnloadedNews::Notice(Notice::NotLoadedAgain(e)));
                }
            }
        }
        Ok(None)
    }

    /// The model as it was. `None`: its files are others.
    fn load(&self) -> Result<Option<LoadedExecutor>> {
        let progress = Arc::new(Progress::new(self.cancel.clone()));
        self.service.set_progress(progress.clone());
        let loaded = (self.setup.load)(&progress)?;
        let executor = &loaded.executor;
        let identity = Identity::new(&self.setup.files, executor.schedule(), executor.device())?;
        Ok((identity == self.model.identity).then_some(loaded))
    }

    /// Says how it goes, unless another model answers by now.
    fn enter(&self, phase: Phase) {
        let has_weights = phase == Phase::Ready;
        self.service.health.enter(phase);
        if self.service.model().is_ok_and(|current| current.id != self.model.id) {
            return self.service.health.enter(Phase::Ready);
        }
        if !has_weights {
            self.service.metrics.set_unloaded();
        }
    }
}
