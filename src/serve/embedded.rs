//! An engine inside another program: the server's API without a port.
//!
//! [`Engine::open`] starts one thread, the engine's. Requests of this process go to the API's functions and into the
//! engine's queue, so all paths, with checks, batch and cache, are those of `kiln serve`.

mod call;
mod machine;
mod reply;
mod serving;
mod session;

pub use machine::{ForecastOptions, plan_json, probe_json};
pub use reply::CompletionRequest;
pub use serving::Serving;
pub use session::{EngineSession, Synced};

use super::api::Api;
use super::health::Phase;
use super::http::{Listen, Method};
use super::model::Model;
use super::served::{LoadedState, ServedModel, report};
use super::server::{self, ModelLoader, ServerEvent, Started, panicked};
use super::service::{ServerSettings, Service};
use crate::engine::prefixes::PrefixFile;
use crate::engine::queue::Takeover;
use crate::engine::request::EngineError;
use crate::engine::{ModelFiles, Options};
use crate::{Cancel, Error, Result};
use call::apart;
use serving::start;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The number of the only model.
const MODEL: u64 = 1;
/// Interval at which the progress of a load is checked.
const SLICE: Duration = Duration::from_millis(20);
/// The time that requests of other programs have after the engine is closed.
const DRAIN: Duration = Duration::from_secs(2);

/// Options for opening an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The files of the model to open.
    pub files: ModelFiles,
    /// Options for loading the model, for `options.sequences` sequences, or as many of them as fit.
    pub options: Options,
    /// The server's settings.
    pub settings: ServerSettings,
    /// Addresses at which the engine also serves other programs over HTTP; empty for none.
    pub listen: Vec<Listen>,
}

/// The default number of simultaneous replies.
const DEFAULT_BATCH: usize = 8;

/// Defaults for a model: 8 simultaneous replies, and no other program can connect.
impl From<ModelFiles> for EngineOptions {
    fn from(files: ModelFiles) -> EngineOptions {
        let options = Options { sequences: DEFAULT_BATCH, head_rows: DEFAULT_BATCH, ..Options::default() };
        EngineOptions { files, options, settings: ServerSettings::default(), listen: Vec::new() }
    }
}

/// A callback for the progress of a load: its stage (`loading`, `tuning`, `first token`, `ready`), and the finished
/// share of the stage. A break cancels the load.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, f64) -> ControlFlow<()>;

/// A loaded model that answers requests of this process, many at once and from any thread. Dropping it ends requests in
/// progress and frees its memory.
pub struct Engine {
    service: Arc<Service>,
    started: Started,
    /// The open sockets of `EngineOptions::listen`.
    serving: Option<Serving>,
    /// Cancels the load and the passes of this engine's model.
    cancel: Cancel,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Engine {
    /// Loads the model, and returns when it is ready.
    ///
    /// # Errors
    /// As [`server::serve`].
    pub fn open(options: EngineOptions) -> Result<Engine> {
        Engine::open_watched(options, &mut |_, _| ControlFlow::Continue(()))
    }

    /// As [`Engine::open`]. Calls `on` with the progress on this thread, from the beginning until it is ready.
    ///
    /// # Errors
    /// As [`server::serve`]. Interrupted: `on` returned a break.
    pub fn open_watched(options: EngineOptions, on: OnProgress<'_>) -> Result<Engine> {
        let load = server::loader(options.files.clone(), None, options.options, true);
        Engine::open_by(load, options, on)
    }

    /// Opens an engine as [`Engine::open_watched`] does, with `load` to load the model.
    pub(super) fn open_by(load: ModelLoader, options: EngineOptions, on: OnProgress<'_>) -> Result<Engine> {
        let EngineOptions { files, settings, listen, .. } = options;
        let prefix_file = settings.prefix_file.as_deref().map(PrefixFile::take).transpose()?.flatten();
        let service = Arc::new(Service::new(settings));
        let serving = match &listen[..] {
            [] => None,
            listen => Some(Serving::open(&service, listen, None, None)?),
        };
        let places = serving.as_ref().map(|serving| serving.places().to_vec()).unwrap_or_default();
        let cancel = Cancel::default();
        let (ready, is_ready) = channel();
        let (of_thread, open, ends) = (service.clone(), places.clone(), cancel.clone());
        let run = move || {
            let (service, reporter) = (&of_thread, Cell::new(None));
            let send = |event| match event {
                ServerEvent::Loaded(device) => reporter.set(report(service, &open, &files.name(), &device)),
                ServerEvent::Ready(_) => drop(ready.send(())),
                ServerEvent::Changed(_) => {
                    let e = Error::failed("an engine keeps the model that it was opened with", "open another engine");
                    service.engine.set_takeover(Takeover::Failed(e));
                }
                _ => {}
            };
            let (files, load, prefix_file) = (&files, &load, prefix_file.as_ref());
            let (cancel, send, loaded) = (ends, &send, LoadedState::default());
            let model = ServedModel { id: MODEL, files, load, service, prefix_file, cancel, send, loaded };
            let done = match model.run() {
                Err(Error::Interrupted { .. }) if service.health.phase() == Phase::Draining => Ok(()),
                done => done.inspect_err(|e| service.fail(e)),
            };
            service.engine.end_model(MODEL, done.as_ref().err());
            done
        };
        let thread = Some(start("engine", run)?);
        let mut engine = Engine { service, started: Started::default(), serving, cancel, thread };
        let (mut stages, mut shown) = (Stages::default(), Some(("loading", 0)));
        let mut flow = on("loading", 0.0);
        loop {
            if flow.is_break() {
                return Err(given_up());
            }
            match is_ready.recv_timeout(SLICE) {
                Ok(()) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    engine.end()?;
                    return Err(Error::failed("the engine ended without an answer", "report this"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let (stage, share) = stages.now(&engine.service);
                    let now = Some((stage, (share * 1000.0) as u32));
                    if now != shown {
                        (shown, flow) = (now, on(stage, share));
                    }
                }
            }
        }
        engine.started = engine.service.started(places);
        match on("ready", 1.0) {
            ControlFlow::Continue(()) => Ok(engine),
            ControlFlow::Break(()) => Err(given_up()),
        }
    }

    /// The running engine's model, device and limits.
    pub fn started(&self) -> &Started {
        &self.started
    }

    /// The model's text side: tokenizer, template and shape.
    ///
    /// # Errors
    /// Refused: the engine has ended before the model was loaded.
    pub fn model(&self) -> Result<Arc<Model>> {
        Ok(self.service.model()?)
    }

    /// Answers a request to a path of the API, and passes the answer's body to `on` on this thread as it is made.
    /// Returns the status. A break from `on` ends the request like a client that disconnects.
    ///
    /// # Errors
    /// Input: `path` is no path. Interrupted: `cancel` is set, or `on` returned a break. The error that ended a stream.
    pub fn request(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
        cancel: &Cancel,
        on: &mut dyn FnMut(u16, &[u8]) -> ControlFlow<()>,
    ) -> Result<u16> {
        if !path.starts_with('/') || path.contains(|c: char| c.is_control() || c == ' ') {
            return Err(Error::input(format!("{path:?} is no path"), "name one as /v1/chat/completions is"));
        }
        let api = Api::new(self.service.clone());
        let mut hear = |(status, piece): (u16, Vec<u8>)| on(status, &piece);
        apart(&mut hear, move |pass| {
            api.request(method, path, body, cancel, &mut |status, piece| match piece.is_empty() {
                true => Ok(()),
                false => pass((status, piece.to_vec())),
            })
        })
    }

    /// Ends requests in progress, and frees the model's memory.
    ///
    /// # Errors
    /// The error with which the engine had ended before, if any.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // Set first, so that notified clients find this state.
        self.service.health.enter(Phase::Draining);
        if let Some(serving) = self.serving.take() {
            serving.stop(DRAIN);
        }
        self.cancel.set();
        self.service.engine.close(EngineError::Stopping);
        let done = thread.join().unwrap_or_else(|_| Err(panicked("engine's thread")));
        // Dropping the remaining jobs notifies their receivers.
        drop(self.service.engine.drain());
        done
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            log::error!("{e}");
        }
    }
}

/// The state from which the stage of a load and its progress are computed.
#[derive(Debug, Default)]
struct Stages {
    /// The largest number of open tuning questions so far.
    questions: u64,
}

impl Stages {
    fn now(&mut self, service: &Service) -> (&'static str, f64) {
        let progress = service.progress.get();
        let share = |part: u64, whole: u64| if whole > 0 { (part as f64 / whole as f64).min(1.0) } else { 0.0 };
        match (service.health.phase(), progress.tuning()) {
            (Phase::Loading, None) => ("loading", share(progress.done(), progress.total())),
            (Phase::Loading, Some((open, _))) => {
                self.questions = self.questions.max(open);
                ("tuning", share(self.questions - open, self.questions))
            }
            _ => ("first token", 0.0),
        }
    }
}

/// The error of a load that its caller has cancelled.
fn given_up() -> Error {
    Error::interrupted("the caller ended the load", "open the engine again")
}
