//! An engine inside another program: the server's API without a port.
//!
//! [`Engine::open`] runs the server on its own threads. Requests of this process go to the API's functions and into the
//! server's queue, so all paths, with checks, batch and cache, are those of `kiln serve`.

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
use super::http::{Guard, Limits, Listen, Method};
use super::model::Model;
use super::server::{self, ModelLoader, Notice, Reread, ServerOrder, Setup, Started};
use super::service::{ServerSettings, Service};
use crate::engine::{ModelFiles, Options};
use crate::machine::threads;
use crate::{Cancel, Error, Result};
use call::apart;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval at which the progress of a load is checked.
const SLICE: Duration = Duration::from_millis(20);
/// The time that requests of other programs have after the engine is closed.
const DRAIN: Duration = Duration::from_secs(2);

/// Options for opening an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The model.
    pub files: ModelFiles,
    /// Options for loading the model, for `options.sequences` sequences, or as many of them as fit.
    pub options: Options,
    /// The server's settings.
    pub settings: ServerSettings,
    /// Places at which other programs may connect too.
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
    orders: Sender<ServerOrder>,
    service: Arc<Service>,
    started: Started,
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

    /// As [`Engine::open_watched`], by a loader.
    pub(super) fn open_by(load: ModelLoader, options: EngineOptions, on: OnProgress<'_>) -> Result<Engine> {
        let EngineOptions { files, settings, listen, .. } = options;
        let setup = Setup {
            load,
            files,
            settings,
            listen,
            limits: Limits::default(),
            guard: Guard { open_paths: Api::open_paths(), ..Guard::default() },
            access: Default::default(),
            is_service: false,
            drain: DRAIN,
            stamps: Box::new(|| None),
            reread: Box::new(|| Ok(Reread::default())),
        };
        let (orders, taken) = channel();
        let (say, notices) = channel();
        let (give, given) = channel();
        let run = move || {
            let handler = |service: Arc<Service>| {
                let _ = give.send(service.clone());
                Api::new(service)
            };
            server::serve(&setup, taken, handler, &mut |notice| drop(say.send(notice)))
        };
        let thread = thread::Builder::new().name("kiln".into()).spawn(run);
        let thread = thread
            .map_err(|e| Error::failed(format!("a thread of the engine cannot be started: {e}"), threads::REMEDY))?;
        let Ok(service) = given.recv() else { return Err(ended(thread)) };
        let (mut stages, mut told) = (Stages::default(), Some(("loading", 0)));
        let mut flow = on("loading", 0.0);
        let started = loop {
            if flow.is_break() {
                let _ = orders.send(ServerOrder::Stop);
                let _ = thread.join();
                return Err(given_up());
            }
            match notices.recv_timeout(SLICE) {
                Ok(Notice::Ready(started)) => break started,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ended(thread)),
                Err(RecvTimeoutError::Timeout) => {
                    let (stage, share) = stages.now(&service);
                    let now = Some((stage, (share * 1000.0) as u32));
                    if now != told {
                        (told, flow) = (now, on(stage, share));
                    }
                }
            }
        };
        let engine = Engine { orders, service, started, thread: Some(thread) };
        match on("ready", 1.0) {
            ControlFlow::Continue(()) => Ok(engine),
            ControlFlow::Break(()) => Err(given_up()),
        }
    }

    /// A description of the running engine.
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

    /// Answers a request to a path of the API, and passes the answer's body to `on` on this thread as it is made. Returns
    /// the status. A break from `on` ends the request like a client that disconnects.
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
        let _ = self.orders.send(ServerOrder::Stop);
        match self.thread.take() {
            Some(thread) => thread.join().unwrap_or_else(|_| Err(Error::device("the engine panicked", "report this"))),
            None => Ok(()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            log::error!("{e}");
        }
    }
}

/// The progress of a load.
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
    Error::Interrupted { cause: "the caller ended the load".into(), remedy: "open the engine again".into() }
}

/// The error with which an engine ended before it was ready.
fn ended(thread: JoinHandle<Result<()>>) -> Error {
    match thread.join() {
        Ok(Err(e)) => e,
        _ => Error::failed("the engine ended without an answer", "report this"),
    }
}
