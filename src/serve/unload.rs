//! A model that nobody asks for a while gives its memory back, and is loaded again for the next request.
//!
//! Its text side stays: requests are read and put into the queue without the weights, and wait there while they are loaded. The
//! thread that had the engine waits for them.

use super::health::Phase;
use super::http::ApiError;
use super::model::Model;
use super::prefixes::{Identity, PrefixFile};
use super::queue::Takeover;
use super::server::{Notice, Setup};
use super::service::Service;
use super::worker::Worker;
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
    /// What a model that is loaded again finds in its cache.
    pub prefix_file: Option<&'a PrefixFile>,
    /// Ends a load.
    pub cancel: &'a Cancel,
}

/// What the server is told meanwhile.
pub(super) enum UnloadedNews {
    Notice(Notice),
    /// The files are another model's by now, which has to be loaded as one.
    Changed,
}

impl<'a> Unloaded<'a> {
    /// Waits until somebody asks for the model, and loads it again. Who asks in vain is told why, and the next one's request tries
    /// again. `None`: nobody will ask.
    ///
    /// # Errors
    /// Interrupted: the load was ended.
    pub fn wait(&self, say: &dyn Fn(UnloadedNews)) -> Result<Option<Worker<'a>>> {
        let &Unloaded { model, service, .. } = self;
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
                Ok(Some(worker)) => {
                    worker.note_ready();
                    say(UnloadedNews::Notice(Notice::LoadedAgain));
                    return Ok(Some(worker));
                }
                Ok(None) => {
                    has_changed = true;
                    self.enter(Phase::Unloaded);
                    service.queue.set_takeover(Takeover::UnderWay);
                    say(UnloadedNews::Changed);
                    // Who waits asks for a model that is no more, and is told so once the other one has taken over.
                    if let Some(e) = service.queue.wait_for_takeover(model.id) {
                        self.turn_away(format!("the model's files have changed, and cannot be loaded: {e}"));
                    }
                }
                Err(e @ Error::Interrupted { .. }) => return Err(e),
                Err(e) => {
                    self.enter(Phase::Unloaded);
                    self.turn_away(format!("the model was unloaded, and cannot be loaded again: {e}"));
                    say(UnloadedNews::Notice(Notice::NotLoadedAgain(e)));
                }
            }
        }
        Ok(None)
    }

    fn turn_away(&self, why: String) {
        self.service.turn_away(self.model.id, &ApiError::unavailable(why, RETRY).code("not_loaded"));
    }

    /// The model as it was, with what the file of prefixes has. `None`: its files are others.
    fn load(&self) -> Result<Option<Worker<'a>>> {
        let progress = Arc::new(Progress::new(self.cancel.clone()));
        self.service.set_progress(progress.clone());
        let loaded = (self.setup.load)(&progress)?;
        let executor = &loaded.executor;
        let identity = match &loaded.text {
            Some(text) => text.identity,
            None => Identity::new(&self.setup.files, executor.schedule(), executor.hardware())?,
        };
        if identity != self.model.identity {
            return Ok(None);
        }
        let mut worker = Worker::new(self.service, self.model, loaded)?;
        if let Some(file) = self.prefix_file {
            worker.load_prefixes(file)?;
        }
        Ok(Some(worker))
    }

    /// Says how it goes without the weights, unless another model answers by now.
    fn enter(&self, phase: Phase) {
        let Service { health, metrics, .. } = self.service;
        self.service.while_current(self.model.id, || {
            health.enter(phase);
            metrics.set_unloaded();
        });
    }
}

/// Sweeps the queue where the engine's thread, which does it otherwise, waits for a load or for somebody to ask.
pub(super) fn sweep(service: &Service) {
    let Service { health, metrics, queue, .. } = service;
    let (is_unloaded, is_draining) = match health.phase() {
        Phase::Unloaded | Phase::LoadingAgain => (true, false),
        phase => (false, phase == Phase::Draining),
    };
    if is_unloaded || is_draining {
        metrics.cancelled.inc_by(queue.sweep() as u64);
    }
    // An engine that runs, as it may while the server drains, counts those too that have lost their places.
    if is_unloaded {
        metrics.waiting.set(queue.len() as i64);
    }
}
