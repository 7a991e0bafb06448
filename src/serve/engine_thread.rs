//! The engine's thread: loads a model, warms it up, and runs jobs until the queue ends. Frees the model's memory after a
//! time without requests, and loads the model again for the next request.

use super::health::Phase;
use super::http::Listen;
use super::load::ModelLoader;
use super::model::Model;
use super::server::{Notice, ServerEvent, Setup, panicked};
use super::service::Service;
use super::worker::Worker;
use crate::diagnose::status::Reporter;
use crate::engine::ModelFiles;
use crate::engine::core::{Core, LoopEnd};
use crate::engine::prefixes::{Identity, PrefixFile};
use crate::engine::queue::Takeover;
use crate::engine::request::{EngineError, Request};
use crate::executor::ExecutorExt;
use crate::executor::weights::Progress;
use crate::sequence::prompt;
use crate::sys::memory;
use crate::text::{Message, SamplerConfig};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reports the waiting replies, the current model and the places to `kiln top`, from the first load on and across later
/// ones.
pub(super) fn report(service: &Arc<Service>, places: &[String], model: &str, device: &str) -> Option<Reporter> {
    let (service, places) = (service.clone(), places.to_vec());
    Reporter::start_with("serve", model, device, move |status| {
        status.places.clone_from(&places);
        status.queue = service.metrics.waiting.get().try_into().unwrap_or_default();
        status.unloaded = matches!(service.health.phase(), Phase::Unloaded | Phase::LoadingAgain);
        if let Ok(model) = service.model() {
            (status.model, status.device) = (model.name.clone(), model.device());
        }
    })
}

/// The life of a model on its engine's thread. Only the calls of [`ModelThread::run`] wait for the device.
pub(super) struct ModelThread<'a> {
    /// The number of the model.
    pub id: u64,
    /// The model's files, for its text side.
    pub files: &'a ModelFiles,
    /// Loads the model, also again after it was unloaded.
    pub load: &'a ModelLoader,
    pub service: &'a Service,
    /// The file of the prefixes worth keeping: they are loaded from it, and saved to it at the end.
    pub prefix_file: Option<&'a PrefixFile>,
    /// The progress of the first load, with the flag that cancels every load.
    pub progress: &'a Progress,
    /// Receives events.
    pub tell: &'a dyn Fn(ServerEvent),
}

impl ModelThread<'_> {
    /// Loads the model, makes a first token, takes over the queue, and runs jobs until the queue ends. A model without
    /// requests is unloaded, and loaded again for the next request.
    ///
    /// # Errors
    /// As [`super::server::serve`].
    pub fn run(&self) -> Result<()> {
        catch_unwind(AssertUnwindSafe(|| self.answer())).unwrap_or_else(|_| Err(panicked("engine's thread")))
    }

    fn answer(&self) -> Result<()> {
        let &ModelThread { id, service, prefix_file, tell, .. } = self;
        let mut loaded = (self.load)(self.progress)?;
        tell(ServerEvent::Loaded(loaded.executor.device().to_owned()));
        let model = Arc::new(loaded.take_text(id, self.files)?);
        let answers_first = service.model().is_err();
        let enter = |phase| {
            if answers_first {
                service.health.enter(phase);
            }
        };
        if !loaded.executor.is_on_cpu() {
            enter(Phase::Tuning);
        }
        let mut worker = Worker::new(service, &model, loaded)?;
        enter(Phase::WarmingUp { has_prompt: service.system.get().is_some() });
        self.load_prefixes(&model, &mut worker)?;
        let (first, is_new) = warm_up(service, &model, &mut worker)?;
        let save = |file: &PrefixFile, worker: &mut Worker<'_>| {
            file.save(model.identity, &worker.core.batch, &first, worker.core.executor.as_mut())
        };
        if let Some(file) = prefix_file.filter(|_| is_new) {
            save(file, &mut worker)?;
        }
        service.set_model(model.clone());
        worker.note_ready();
        tell(ServerEvent::Ready(id));
        loop {
            let rest = worker.core.run(service.settings.idle_unload.unwrap_or(Duration::MAX))?;
            // A replaced model leaves the file to its successor.
            let is_current = service.model().is_ok_and(|current| current.id == id);
            if let Some(file) = prefix_file.filter(|_| is_current) {
                save(file, &mut worker)?;
            }
            drop(worker);
            if rest == LoopEnd::End {
                return Ok(());
            }
            let Some(again) = self.wait(&model)? else { return Ok(()) };
            worker = again;
        }
    }

    fn load_prefixes(&self, model: &Model, worker: &mut Worker<'_>) -> Result<()> {
        let Core { batch, executor, .. } = &mut worker.core;
        self.prefix_file.map_or(Ok(()), |file| file.load(model.identity, batch, executor.as_mut()))
    }

    /// Waits for a request and loads the unloaded model again. Its text side stays, so requests are parsed and queued
    /// without the weights. If the load fails, waiting requests get the error, and the next one tries again. `None`: there will be no more requests.
    ///
    /// # Errors
    /// Interrupted: the load was cancelled.
    pub fn wait<'m>(&'m self, model: &'m Model) -> Result<Option<Worker<'m>>> {
        let &ModelThread { service, tell, .. } = self;
        memory::give_back_freed();
        self.enter(model, Phase::Unloaded);
        tell(ServerEvent::Notice(Notice::Unloaded));
        let turn_away = |why, e: &Error| {
            service.engine.turn_away(model.id, &EngineError::Unloaded { why, error: e.clone() });
        };
        let mut has_changed = false;
        while service.engine.wait_for_some(model.id) {
            let loaded = match has_changed {
                true => Ok(None),
                false => {
                    self.enter(model, Phase::LoadingAgain);
                    self.load_again(model)
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
                    self.enter(model, Phase::Unloaded);
                    service.engine.set_takeover(Takeover::UnderWay);
                    tell(ServerEvent::Changed(model.id));
                    // Waiting requests are for the old model. They are refused when the new one has taken over.
                    if let Some(e) = service.engine.wait_for_takeover(model.id) {
                        turn_away("the model's files have changed, and cannot be loaded", &e);
                    }
                }
                Err(e @ Error::Interrupted { .. }) => return Err(e),
                Err(e) => {
                    self.enter(model, Phase::Unloaded);
                    turn_away("the model was unloaded, and cannot be loaded again", &e);
                    tell(ServerEvent::Notice(Notice::NotLoadedAgain(e)));
                }
            }
        }
        Ok(None)
    }

    /// Loads the same model, with the prefixes from the file. `None`: its files have changed.
    fn load_again<'m>(&'m self, model: &'m Model) -> Result<Option<Worker<'m>>> {
        let progress = Arc::new(Progress::new(self.progress.cancel.clone()));
        self.service.progress.set(progress.clone());
        let loaded = (self.load)(&progress)?;
        let executor = &loaded.executor;
        let identity = match &loaded.text {
            Some(text) => text.identity,
            None => Identity::new(self.files, executor.schedule(), executor.hardware())?,
        };
        if identity != model.identity {
            return Ok(None);
        }
        let mut worker = Worker::new(self.service, model, loaded)?;
        self.load_prefixes(model, &mut worker)?;
        Ok(Some(worker))
    }

    /// Sets the phase and the metrics of the unloaded model, if it is still the current one.
    fn enter(&self, model: &Model, phase: Phase) {
        let Service { health, metrics, .. } = self.service;
        self.service.while_current(model.id, || {
            health.enter(phase);
            metrics.set_unloaded();
        });
    }
}

/// Loads a model and answers once, without accepting connections. Also checks that the file of prefixes can be written,
/// and that places reachable from other machines have keys. Returns the model and the time taken.
///
/// # Errors
/// As [`super::server::serve`].
pub fn check(setup: &Setup, progress: &Progress) -> Result<(Arc<Model>, Duration)> {
    let start = Instant::now();
    setup.settings.prefix_file.as_deref().map_or(Ok(()), PrefixFile::try_out)?;
    setup.listen.iter().try_for_each(|at| at.check(&setup.guard))?;
    Listen::check_keys(&setup.listen, &setup.guard)?;
    let service = Service::new(setup.settings.clone());
    let mut loaded = (setup.load)(progress)?;
    let model = Arc::new(loaded.take_text(1, &setup.files)?);
    warm_up(&service, &model, &mut Worker::new(&service, &model, loaded)?)?;
    Ok((model, start.elapsed()))
}

/// The prompt for the first question of a conversation.
///
/// # Errors
/// Input: it exceeds the context.
pub(super) fn encode_first(model: &Model, system: Option<&str>, question: &str) -> Result<Vec<u32>> {
    let system = system.map(|text| Message::new("system", text));
    let messages: Vec<Message> = system.into_iter().chain([Message::new("user", question)]).collect();
    prompt::encode_messages(&model.tokenizer, &model.template, &messages, model.limits())
}

/// Answers a first question with one token, so that the system prompt is cached and every kernel has run. Returns the
/// common beginning of prompts with this system prompt, plus one token, and whether it was new to the cache.
fn warm_up(service: &Service, model: &Model, worker: &mut Worker<'_>) -> Result<(Vec<u32>, bool)> {
    let system = service.system.get();
    let encode = |question: &str| encode_first(model, system.as_deref(), question);
    let prompt = encode("Hello")?;
    let first = match &system {
        Some(_) => {
            let other = encode("Why?")?;
            let common = prompt.iter().zip(&other).take_while(|(a, b)| a == b).count();
            prompt[..prompt.len().min(common + 1)].to_vec()
        }
        None => Vec::new(),
    };
    let ask = Request { limit: 1, sampler: SamplerConfig::greedy(), ignore_eos: true, ..Request::new(prompt) };
    let failed = |e: EngineError| Error::failed(format!("the first question failed: {e}"), "report this");
    let answers = service.engine.ask(model.target(), ask).map_err(failed)?;
    worker.core.run_out()?;
    let ends = answers.gather().map_err(failed)?.into_iter().filter_map(|whole| whole.end);
    let cached: usize = ends.map(|end| end.generation.kept).sum();
    let is_new = cached + 1 < first.len();
    Ok((first, is_new))
}
