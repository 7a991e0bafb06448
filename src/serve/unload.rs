//! Frees a model's memory after a time without requests, and loads the model again for the next request.
//!
//! The text side stays: requests are parsed and queued without the weights, and wait while they are loaded. The former
//! engine's thread waits for them.

use super::health::Phase;
use super::model::Model;
use super::prefixes::{Identity, PrefixFile};
use super::server::{Notice, ServerEvent, Setup};
use super::service::Service;
use super::worker::Worker;
use crate::engine::queue::Takeover;
use crate::engine::request::EngineError;
use crate::executor::ExecutorExt;
use crate::executor::weights::Progress;
use crate::sys::memory;
use crate::{Cancel, Error, Result};
use std::sync::Arc;

/// A model without its weights.
pub(super) struct Unloaded<'a> {
    pub model: &'a Model,
    pub setup: &'a Setup,
    pub service: &'a Service,
    /// The file with the prefixes to restore after loading.
    pub prefix_file: Option<&'a PrefixFile>,
    /// Cancels a load.
    pub cancel: &'a Cancel,
    /// Tells the server what happens.
    pub tell: &'a dyn Fn(ServerEvent),
}

impl<'a> Unloaded<'a> {
    /// Waits for a request and loads the model again. If that fails, waiting requests get the error, and the next one
    /// tries again. `None`: there will be no more requests.
    ///
    /// # Errors
    /// Interrupted: the load was cancelled.
    pub fn wait(&self) -> Result<Option<Worker<'a>>> {
        let &Unloaded { model, service, tell, .. } = self;
        memory::give_back_freed();
        self.enter(Phase::Unloaded);
        tell(ServerEvent::Notice(Notice::Unloaded));
        let mut has_changed = false;
        while service.engine.wait_for_some(model.id) {
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
                    tell(ServerEvent::Notice(Notice::LoadedAgain));
                    return Ok(Some(worker));
                }
                Ok(None) => {
                    has_changed = true;
                    self.enter(Phase::Unloaded);
                    service.engine.set_takeover(Takeover::UnderWay);
                    tell(ServerEvent::Changed(model.id));
                    // Waiting requests are for the old model. They are refused when the new one has taken over.
                    if let Some(e) = service.engine.wait_for_takeover(model.id) {
                        self.turn_away("the model's files have changed, and cannot be loaded", &e);
                    }
                }
                Err(e @ Error::Interrupted { .. }) => return Err(e),
                Err(e) => {
                    self.enter(Phase::Unloaded);
                    self.turn_away("the model was unloaded, and cannot be loaded again", &e);
                    tell(ServerEvent::Notice(Notice::NotLoadedAgain(e)));
                }
            }
        }
        Ok(None)
    }

    fn turn_away(&self, why: &'static str, e: &Error) {
        self.service.engine.turn_away(self.model.id, &EngineError::Unloaded { why, error: e.clone() });
    }

    /// Loads the same model, with the prefixes from the file. `None`: its files have changed.
    fn load(&self) -> Result<Option<Worker<'a>>> {
        let progress = Arc::new(Progress::new(self.cancel.clone()));
        self.service.progress.set(progress.clone());
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
            file.load(self.model.identity, &mut worker.core.batch, worker.core.executor.as_mut())?;
        }
        Ok(Some(worker))
    }

    /// Sets the phase and the metrics of the unloaded model, if it is still the current one.
    fn enter(&self, phase: Phase) {
        let Service { health, metrics, .. } = self.service;
        self.service.while_current(self.model.id, || {
            health.enter(phase);
            metrics.set_unloaded();
        });
    }
}

/// Sweeps the queue while the engine's thread waits for a load or a request and cannot do it itself.
pub(super) fn sweep(service: &Service) {
    let Service { health, metrics, engine, .. } = service;
    let (is_unloaded, is_draining) = match health.phase() {
        Phase::Unloaded | Phase::LoadingAgain => (true, false),
        phase => (false, phase == Phase::Draining),
    };
    if is_unloaded || is_draining {
        metrics.cancelled.inc_by(engine.sweep() as u64);
    }
    // A running engine counts its parked jobs too.
    if is_unloaded {
        metrics.waiting.set(engine.len() as i64);
    }
}
