//! The engine's thread: loads a model, warms it up, and runs jobs until the queue ends.

use super::health::Phase;
use super::http::{ApiError, Listen};
use super::model::Model;
use super::prefixes::PrefixFile;
use super::server::{ServerEvent, Setup};
use super::service::Service;
use super::unload::Unloaded;
use super::worker::Worker;
use crate::diagnose::status::Reporter;
use crate::engine::core::LoopEnd;
use crate::engine::request::Request;
use crate::executor::ExecutorExt;
use crate::executor::weights::Progress;
use crate::sequence::prompt;
use crate::text::{Message, SamplerConfig};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::Sender;
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

/// Loads a model, makes a first token, takes over the queue, and runs jobs until the queue ends. Prefixes worth keeping
/// are loaded from a file, and saved to it at the end.
pub(super) fn run_engine(
    id: u64,
    setup: &Setup,
    service: &Arc<Service>,
    prefix_file: Option<&PrefixFile>,
    progress: &Progress,
    report: &(dyn Fn(&str) + Sync),
    tell: &Sender<ServerEvent>,
) -> Result<()> {
    let mut loaded = (setup.load)(progress)?;
    report(loaded.executor.device());
    let model = Arc::new(loaded.take_text(id, &setup.files)?);
    let answers_first = service.model().is_err();
    let enter = |phase| {
        if answers_first {
            service.health.enter(phase);
        }
    };
    if !loaded.executor.is_on_cpu() {
        enter(Phase::Tuning);
    }
    let say = |event| drop(tell.send(event));
    let mut worker = Worker::new(service, &model, loaded)?;
    enter(Phase::WarmingUp { has_prompt: service.system.get().is_some() });
    if let Some(file) = prefix_file {
        file.load(model.identity, &mut worker.core.batch, worker.core.executor.as_mut())?;
    }
    let (first, is_new) = warm_up(service, &model, &mut worker)?;
    if let Some(file) = prefix_file.filter(|_| is_new) {
        file.save(model.identity, &worker.core.batch, &first, worker.core.executor.as_mut())?;
    }
    service.set_model(model.clone());
    worker.note_ready();
    say(ServerEvent::Ready(id));
    loop {
        let rest = worker.core.run(setup.settings.idle_unload.unwrap_or(Duration::MAX))?;
        // A replaced model leaves the file to its successor.
        let is_current = service.model().is_ok_and(|current| current.id == id);
        if let Some(file) = prefix_file.filter(|_| is_current) {
            file.save(model.identity, &worker.core.batch, &first, worker.core.executor.as_mut())?;
        }
        drop(worker);
        if rest == LoopEnd::End {
            return Ok(());
        }
        let unloaded = Unloaded { model: &model, setup, service, prefix_file, cancel: &progress.cancel, tell: &say };
        let Some(loaded) = unloaded.wait()? else { return Ok(()) };
        worker = loaded;
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
    let failed = |e: ApiError| Error::failed(format!("the first question failed: {}", e.message), "report this");
    let answers = service.start_own(model, ask).map_err(failed)?;
    worker.core.run_out()?;
    let ends = answers.gather().map_err(|e| failed(e.into()))?.into_iter().filter_map(|whole| whole.end);
    let cached: usize = ends.map(|end| end.generation.kept).sum();
    let is_new = cached + 1 < first.len();
    Ok((first, is_new))
}
