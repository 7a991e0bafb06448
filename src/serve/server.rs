//! The server's life cycle: accepts connections while the model is still loading, supervises the engine's thread,
//! reloads on demand, and stops in an orderly way.

use super::health::Phase;
use super::http::{AccessLog, ApiKeys, Drainer, Guard, Handler, Limits, Listen, Server};
use super::manager::Manager;
use super::page::PageSettings;
use super::served::{LoadedState, ServedModel, encode_first, report};
use super::service::{ServerSettings, Service};
use crate::diagnose::status::Reporter;
use crate::engine::ModelFiles;
use crate::engine::prefixes::PrefixFile;
use crate::engine::queue::Takeover;
use crate::engine::request::EngineError;
use crate::machine::stamp::FileStamp;
use crate::machine::threads;
use crate::serve::service::Defaults;
use crate::{Cancel, Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The configuration of a server: its model, limits and access rules.
pub struct Setup {
    /// The model's files, for its tokenizer and chat template.
    pub files: ModelFiles,
    /// Loads the model on the engine's thread.
    pub load: ModelLoader,
    /// The settings of the service that answers requests.
    pub settings: ServerSettings,
    /// The addresses and Unix sockets to listen on.
    pub listen: Vec<Listen>,
    /// Limits on the size and the time of requests.
    pub limits: Limits,
    /// The access rules, such as the keys that requests need.
    pub guard: Guard,
    /// The log in which each request is recorded.
    pub access: AccessLog,
    /// True if the server runs as a service, and notifies the service manager. False inside another program.
    pub is_service: bool,
    /// The time for requests in progress after the server was told to stop.
    pub drain: Duration,
    /// The current stamps of the model's files. `None`: changes cannot be detected, and each reload loads the model
    /// again.
    pub stamps: Box<dyn Fn() -> Option<Vec<FileStamp>> + Send + Sync>,
    /// Reads the settings that a reload applies besides the model.
    pub reread: Box<dyn Fn() -> Result<Reread> + Send + Sync>,
}

/// Settings that a reload applies besides the model. `None`: unchanged.
#[derive(Debug, Default)]
pub struct Reread {
    /// The default system message; empty for none.
    pub system: Option<String>,
    /// Defaults for requests without settings of their own.
    pub defaults: Option<Defaults>,
    /// The settings of the chat page.
    pub page: Option<PageSettings>,
}

pub use super::bundle::{BundleRules, guarded};
pub use super::load::{LoadedExecutor, ModelLoader, loader};
pub use super::served::check;

/// An order that the program gives to its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOrder {
    /// Stop: complete requests in progress, and refuse new ones.
    Stop,
    /// Read the keys, the system message and the defaults again. If the model's files have changed, load them, and
    /// answer by the old model until the new one is ready.
    Reload,
}

/// A notice about the server's state.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// The server accepts connections at these addresses.
    Listening(Vec<String>),
    /// The model is loaded, and requests are answered.
    Ready(Started),
    /// The reloaded model answers from now on.
    Reloaded,
    /// The settings were read again. The model's files have not changed.
    Reread,
    /// The model's memory was freed after a time without requests.
    Unloaded,
    /// The model was loaded again for a request.
    LoadedAgain,
    /// The model could not be loaded again. The waiting requests failed, and the next one tries again.
    NotLoadedAgain(Error),
    /// A reload failed; the old model continues.
    NotReloaded(Error),
    /// Requests in progress are being completed.
    Draining,
    /// The server has stopped as ordered.
    Stopped,
}

/// A running server's addresses, model and limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Started {
    /// Time from the start to the first token.
    pub boot: Duration,
    /// The name of the model that answers.
    pub model: String,
    /// The name of the device that the model runs on.
    pub device: String,
    /// The most positions of a sequence, prompt and reply together.
    pub context: usize,
    /// The most replies at the same time.
    pub slots: usize,
    /// The addresses and Unix sockets that the server listens on.
    pub places: Vec<String>,
}

/// An event that other threads send to the supervising thread.
pub(super) enum ServerEvent {
    Order(ServerOrder),
    /// A model is loaded, on the device of this name.
    Loaded(String),
    /// The model with this number is loaded, and answers.
    Ready(u64),
    /// A notice for the program that started the server.
    Notice(Notice),
    /// This model's files have changed since it was loaded.
    Changed(u64),
    /// The thread of the model with this number has ended, with this result.
    Ended(u64, Result<()>),
    /// All connections have ended, or the thread that takes them panicked.
    Closed(Result<()>),
}

/// The longest sleep of the supervising thread between its checks, such as of key files.
const TICK: Duration = Duration::from_millis(500);
/// The time for connections to read the reason after the engine has failed.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The extension requested from the service manager while the model loads.
const EXTENSION: Duration = Duration::from_secs(60);
/// The longest tuning of a device for a model.
const LONGEST_TUNING: Duration = Duration::from_secs(600);

/// Serves until told to stop. `handler` creates the handler of requests; `notify` is called with notices.
///
/// # Errors
/// Input: a place cannot be opened, or the model is damaged. Refused: it does not fit. Device: there is no device, it
/// failed, or the engine's thread panicked.
pub fn serve<H: Handler + Send>(
    setup: &Setup,
    orders: Receiver<ServerOrder>,
    handler: impl FnOnce(Arc<Service>) -> H,
    notify: &mut dyn FnMut(Notice),
) -> Result<()> {
    let server = Server::bind(&setup.listen, setup.limits.clone(), setup.guard.clone())?;
    let server = server.with_access_log(setup.access.clone());
    let service = Arc::new(Service::new(setup.settings.clone()));
    let handler = handler(service.clone());
    let (events, messages) = channel();
    let prefix_file = setup.settings.prefix_file.as_deref().map(PrefixFile::take).transpose()?.flatten();
    let prefix_file = prefix_file.as_ref();
    let relayed = events.clone();
    // Outside of the scope below, because it ends only when the sender of orders is dropped, which may never happen.
    let relay = move || orders.iter().map(ServerEvent::Order).try_for_each(|order| relayed.send(order));
    thread::Builder::new().name("orders".into()).spawn(relay).map_err(no_thread)?;
    let places = server.names();
    notify(Notice::Listening(places.clone()));
    let drainer = server.drainer();
    let done = thread::scope(|scope| {
        let closed = events.clone();
        let take_connections = move || {
            // State left by the panic ends with the thread.
            let ran = catch_unwind(AssertUnwindSafe(|| server.run(&handler)));
            let _ = closed.send(ServerEvent::Closed(ran.map_err(|_| panicked("thread that takes connections"))));
        };
        thread::Builder::new().name("listen".into()).spawn_scoped(scope, take_connections).map_err(no_thread)?;
        let mut watch = Watching {
            setup,
            service: &service,
            drainer,
            places,
            reporter: None,
            manager: if setup.is_service { Manager::from_environment() } else { Manager::default() },
            cancels: Vec::new(),
            stamps: [None, None],
            loading: None,
            answering: None,
            last: 0,
            fed: Instant::now(),
            looked: Instant::now(),
            seen: (0, Instant::now()),
        };
        let start = |watch: &mut Watching<'_>| {
            let ((id, cancel), service) = (watch.begin(), &service);
            let (events, failed) = (events.clone(), events.clone());
            let work = move || {
                let (Setup { files, load, .. }, loaded) = (setup, LoadedState::default());
                let send = &|event| drop(events.send(event));
                let model = ServedModel { id, files, load, service, prefix_file, cancel, send, loaded };
                send(ServerEvent::Ended(id, model.run()));
            };
            if let Err(e) = thread::Builder::new().name("engine".into()).spawn_scoped(scope, work) {
                let _ = failed.send(ServerEvent::Ended(id, Err(no_thread(e))));
            }
        };
        // The scope waits for all threads, so they must be ended even if this one panics.
        let watched = catch_unwind(AssertUnwindSafe(|| {
            start(&mut watch);
            watch.run(&messages, &mut |watch| start(watch), notify)
        }));
        watch.end_all();
        watched.unwrap_or_else(|_| Err(panicked("thread that watches over the others")))
    });
    // Engines and connections have ended. Dropping the remaining jobs notifies their receivers.
    drop(service.engine.drain());
    done.inspect(|()| notify(Notice::Stopped))
}

/// The error for a thread that cannot be started.
fn no_thread(e: std::io::Error) -> Error {
    Error::failed(format!("a thread of the server cannot be started: {e}"), threads::REMEDY)
}

/// The error for a thread that has panicked.
pub(super) fn panicked(thread: &str) -> Error {
    Error::device(format!("the {thread} panicked"), "start it again, and report what it said")
}

/// The state of the supervising thread.
struct Watching<'a> {
    setup: &'a Setup,
    service: &'a Arc<Service>,
    drainer: Drainer,
    /// The addresses and Unix sockets that the server listens on.
    places: Vec<String>,
    /// Reports to `kiln top`, from the first load on and across later ones.
    reporter: Option<Reporter>,
    manager: Manager,
    /// The cancellation flag of each running engine, by its model. An engine that answers may load again, too.
    cancels: Vec<(u64, Cancel)>,
    /// The stamps of the files of the loading model and of the current one.
    stamps: [Option<Vec<FileStamp>>; 2],
    loading: Option<u64>,
    answering: Option<u64>,
    /// The number of the model that was loaded last.
    last: u64,
    /// The time of the last sign of life to the manager's watchdog.
    fed: Instant,
    /// The time of the last check of the key files.
    looked: Instant,
    /// The progress of the load, and the time when it last changed.
    seen: (u64, Instant),
}

impl Watching<'_> {
    /// Assigns a number and a cancellation flag to the next model.
    fn begin(&mut self) -> (u64, Cancel) {
        self.last += 1;
        let cancel = Cancel::default();
        self.cancels.push((self.last, cancel.clone()));
        self.service.engine.set_takeover(Takeover::UnderWay);
        self.loading = Some(self.last);
        self.stamps[0] = (self.setup.stamps)();
        self.seen = (0, Instant::now());
        (self.last, cancel)
    }

    fn run(
        &mut self,
        messages: &Receiver<ServerEvent>,
        start: &mut dyn FnMut(&mut Self),
        notify: &mut dyn FnMut(Notice),
    ) -> Result<()> {
        let mut failure = Ok(());
        loop {
            match messages.recv_timeout(TICK) {
                Ok(ServerEvent::Order(ServerOrder::Stop)) => self.stop(self.setup.drain, notify),
                Ok(ServerEvent::Order(ServerOrder::Reload))
                    if self.loading.is_none() && !self.drainer.is_draining() =>
                {
                    self.manager.send(&reloading());
                    self.reread();
                    match self.service.health.phase() {
                        Phase::Unloaded => {
                            log::info!("the model is unloaded; its files are read again for the next request");
                            self.manager.send("READY=1\nSTATUS=unloaded");
                        }
                        _ if self.has_same_files() => {
                            log::info!("the model's files are those that it was loaded from");
                            self.manager.send("READY=1\nSTATUS=answering");
                            notify(Notice::Reread);
                        }
                        _ => {
                            log::info!("loading the model anew");
                            start(self);
                        }
                    }
                }
                Ok(ServerEvent::Order(ServerOrder::Reload)) => {
                    log::warn!("the model is not loaded anew: one is loading already, or the server stops");
                    self.reread();
                }
                Ok(ServerEvent::Loaded(device)) => {
                    let report = || report(self.service, &self.places, &self.setup.files.name(), &device);
                    self.reporter = self.reporter.take().or_else(report);
                }
                Ok(ServerEvent::Ready(id)) => self.note_ready(id, notify),
                Ok(ServerEvent::Notice(notice)) => {
                    self.manager.send(if notice == Notice::LoadedAgain {
                        "STATUS=answering"
                    } else {
                        "STATUS=unloaded"
                    });
                    notify(notice);
                }
                // The loading model already has the new files.
                Ok(ServerEvent::Changed(_)) if self.loading.is_some() => {}
                Ok(ServerEvent::Changed(id)) if self.answering == Some(id) && !self.drainer.is_draining() => {
                    start(self)
                }
                // The engine waits for the result of the reload.
                Ok(ServerEvent::Changed(_)) => {
                    let e = Error::failed("the server is stopping", "start it again");
                    self.service.engine.set_takeover(Takeover::Failed(e));
                }
                Ok(ServerEvent::Ended(id, done)) => {
                    let was_loading = self.loading.take_if(|loading| *loading == id).is_some();
                    self.cancels.retain(|(of, _)| *of != id);
                    let why = done.as_ref().err().cloned();
                    if was_loading {
                        self.service.engine.set_takeover(why.clone().map_or(Takeover::None, Takeover::Failed));
                    }
                    match done {
                        Ok(()) => {}
                        Err(Error::Interrupted { .. }) if self.drainer.is_draining() => {}
                        Err(e) if was_loading && self.answering.is_some() => {
                            self.manager.send("READY=1");
                            notify(Notice::NotReloaded(e));
                        }
                        // A replaced model fails alone; its clients have been notified.
                        Err(e) if !was_loading && self.answering != Some(id) => log::error!("{e}"),
                        Err(e) => {
                            self.service.fail(&e);
                            failure = failure.and(Err(e));
                            self.stop(LAST_WORDS, notify);
                        }
                    }
                    // After the health was set, because notified clients may check it.
                    self.service.engine.end_model(id, why.as_ref());
                }
                // No clients are left.
                Ok(ServerEvent::Closed(done)) => return failure.and(done),
                Err(RecvTimeoutError::Disconnected) => return failure,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.tick();
        }
    }

    /// True if a model answers, and its files have not changed since it was loaded.
    fn has_same_files(&self) -> bool {
        self.answering.is_some() && self.stamps[1].is_some() && self.stamps[1] == (self.setup.stamps)()
    }

    /// Applies the settings of a reload. A setting that cannot be read stays as it was.
    fn reread(&self) {
        for keys in self.setup.guard.all_keys() {
            if let Err(e) = keys.reread() {
                log::error!("the API keys stay as they were: {e}");
            }
        }
        match (self.setup.reread)() {
            Ok(Reread { system, defaults, page }) => {
                if let Some(page) = page {
                    self.service.page.set(page);
                }
                if let Some(text) = system {
                    let system = Some(text).filter(|text| !text.is_empty());
                    match self.fits(system.as_deref()) {
                        Ok(()) => self.service.system.set(system),
                        Err(e) => log::error!("the system prompt stays as it was: {e}"),
                    }
                }
                if let Some(defaults) = defaults {
                    self.service.defaults.set(defaults);
                }
            }
            Err(e) => log::error!("the system prompt, the defaults and the page stay as they were: {e}"),
        }
    }

    /// Checks that a conversation with this system message fits the current model's context, because the message would
    /// apply to every conversation.
    fn fits(&self, system: Option<&str>) -> Result<()> {
        let Ok(model) = self.service.model() else { return Ok(()) };
        encode_first(&model, system, "Hello").map(|_| ())
    }

    /// Reads key files that have changed. A key removed from its file is not valid any more.
    fn refresh_keys(&self) {
        self.setup.guard.all_keys().for_each(ApiKeys::follow);
    }

    /// Stops all other threads: connections, loads and the engine.
    fn end_all(&self) {
        self.drainer.drain(Duration::ZERO);
        self.cancels.iter().for_each(|(_, cancel)| cancel.set());
        self.service.engine.close(EngineError::Stopping);
    }

    fn note_ready(&mut self, id: u64, notify: &mut dyn FnMut(Notice)) {
        self.loading.take_if(|loading| *loading == id);
        self.service.engine.set_takeover(Takeover::None);
        let is_first = self.answering.replace(id).is_none();
        // If the files have changed during the load, the stamps are dropped, so that the next reload loads them.
        self.stamps[1] = self.stamps[0].take().filter(|before| (self.setup.stamps)().as_ref() == Some(before));
        self.manager.send("READY=1\nSTATUS=answering");
        notify(match is_first {
            true => Notice::Ready(self.service.started(self.places.clone())),
            false => Notice::Reloaded,
        });
    }

    fn stop(&mut self, grace: Duration, notify: &mut dyn FnMut(Notice)) {
        // Set first, so that notified clients find this state.
        self.service.health.enter(Phase::Draining);
        if !self.drainer.is_draining() {
            notify(Notice::Draining);
            self.manager.send("STOPPING=1\nSTATUS=completing what is under way");
        }
        // The flag would also end passes after the load, so it is set only during one.
        self.cancels.iter().filter(|(of, _)| self.loading == Some(*of)).for_each(|(_, cancel)| cancel.set());
        self.drainer.drain(grace);
    }

    /// Feeds the manager's watchdog while the engine makes progress, and asks for more time while a model loads.
    fn tick(&mut self) {
        if self.looked.elapsed() >= TICK {
            self.looked = Instant::now();
            self.refresh_keys();
        }
        self.service.sweep();
        let done = self.service.progress.get().done();
        if done != self.seen.0 {
            self.seen = (done, Instant::now());
        }
        let is_fresh = |patience| self.seen.1.elapsed() < patience;
        if self.loading.is_some() && self.answering.is_none() && is_fresh(LONGEST_TUNING) {
            self.manager.send(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS=loading the model", EXTENSION.as_micros()));
        }
        let Some(watchdog) = self.manager.watchdog else { return };
        let health = &self.service.health;
        let is_well = health.stalled() < watchdog || self.answering.is_none();
        if is_well && self.fed.elapsed() >= watchdog / 4 {
            self.fed = Instant::now();
            self.manager.send("WATCHDOG=1");
        }
    }
}

/// The notification of a reload, with the time that systemd requires.
fn reloading() -> String {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros())
}
