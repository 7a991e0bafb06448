//! The server from its start to its end: loads the model while connections are answered already, watches over the engine's
//! thread, loads again on demand, and stops in good order.

use super::engine_thread::{encode_first, report, run_engine};
use super::health::Phase;
use super::http::{AccessLog, ApiError, ApiKeys, Drainer, Guard, Handler, Limits, Listen, Server};
use super::job::Defaults;
use super::manager::Manager;
use super::page::PageSettings;
use super::prefixes::PrefixFile;
use super::queue::Takeover;
use super::service::{ServerSettings, Service};
use super::unload;
use crate::engine::ModelFiles;
use crate::executor::weights::Progress;
use crate::machine::stamp::FileStamp;
use crate::machine::threads;
use crate::{Cancel, Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// What to serve, where, and to whom.
pub struct Setup {
    /// The model's files, of which its tokenizer is read.
    pub files: ModelFiles,
    /// Loads the model on the engine's thread.
    pub load: ModelLoader,
    /// How requests are treated.
    pub settings: ServerSettings,
    /// Where connections come from.
    pub listen: Vec<Listen>,
    /// What a peer may cost.
    pub limits: Limits,
    /// Who may ask.
    pub guard: Guard,
    /// Where requests are noted.
    pub access: AccessLog,
    /// Whether the service manager is told how it goes. It is not where the server is a part of another program.
    pub is_service: bool,
    /// How long requests under way may take once the server is told to stop.
    pub drain: Duration,
    /// The stamps of the files that the model is loaded from, as they are now. `None`: they cannot be told from what they were,
    /// and each reload loads the model anew.
    pub stamps: Box<dyn Fn() -> Option<Vec<FileStamp>> + Send + Sync>,
    /// Reads anew what a reload takes over beside the model.
    pub reread: Box<dyn Fn() -> Result<Reread> + Send + Sync>,
}

/// What a reload takes over beside the model. `None`: what there was stays.
#[derive(Debug, Default)]
pub struct Reread {
    /// The system message of conversations that bring none; empty: there is none.
    pub system: Option<String>,
    /// How replies are made where a request does not say.
    pub defaults: Option<Defaults>,
    /// What the chat page shows.
    pub page: Option<PageSettings>,
}

pub use super::bundle::{BundleRules, guarded};
pub use super::engine_thread::check;
pub use super::load::{LoadedExecutor, ModelLoader, loader};

/// What a server is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOrder {
    /// Stop: complete what is under way, take nothing new.
    Stop,
    /// Read the keys, the system message and the defaults anew. Where the model's files are others by now, load them, and answer with
    /// the old ones until the new ones do.
    Reload,
}

/// What the server says as it goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// It takes connections at these places.
    Listening(Vec<String>),
    /// It answers.
    Ready(Started),
    /// A model that was loaded anew answers from here on.
    Reloaded,
    /// All but the model was read anew. Its files are those that it was loaded from.
    Reread,
    /// Nobody has asked for a while, and the model's memory was given back.
    Unloaded,
    /// Somebody asks, and it is loaded again.
    LoadedAgain,
    /// It could not be loaded again. Who waited was told, and the next request tries again.
    NotLoadedAgain(Error),
    /// A model could not be loaded anew; the old one answers on.
    NotReloaded(Error),
    /// It completes what is under way.
    Draining,
    /// It has ended, as it was told to.
    Stopped,
}

/// What answers, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// From the start to the first token.
    pub boot: Duration,
    /// The model's name.
    pub model: String,
    /// What it runs on.
    pub device: String,
    /// Positions of a sequence.
    pub context: usize,
    /// Replies at once.
    pub slots: usize,
    /// Where connections are taken.
    pub places: Vec<String>,
}

/// What the threads tell the one that watches over them.
pub(super) enum ServerEvent {
    Order(ServerOrder),
    /// The model answers.
    Ready(u64),
    /// Something to say.
    Notice(Notice),
    /// This model's files are not those that it was loaded from.
    Changed(u64),
    /// An engine's thread has ended.
    Ended(u64, Result<()>),
    /// All connections have ended, or the thread that takes them panicked.
    Closed(Result<()>),
}

/// How often the watching thread looks around.
const TICK: Duration = Duration::from_millis(500);
/// How long connections may take to read why the engine has failed.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What the service manager is asked to wait on while the model loads.
const EXTENSION: Duration = Duration::from_secs(60);
/// How long a device may be measured for a model.
const LONGEST_TUNING: Duration = Duration::from_secs(600);

/// Serves until told to stop. `handler` makes the handler of requests; `say` is told how it goes.
///
/// # Errors
/// Input: a place to listen at cannot be had, or the model is damaged. Refused: it does not fit. Device: there is no device,
/// it failed, or the engine's thread panicked.
pub fn serve<H: Handler + Send>(
    setup: &Setup,
    orders: Receiver<ServerOrder>,
    handler: impl FnOnce(Arc<Service>) -> H,
    say: &mut dyn FnMut(Notice),
) -> Result<()> {
    let server = Server::bind(&setup.listen, setup.limits.clone(), setup.guard.clone())?;
    let server = server.with_access_log(setup.access.clone());
    let service = Arc::new(Service::new(setup.settings.clone()));
    let handler = handler(service.clone());
    let (tell, messages) = channel();
    let prefix_file = setup.settings.prefix_file.as_deref().map(PrefixFile::take).transpose()?.flatten();
    let prefix_file = prefix_file.as_ref();
    let told = tell.clone();
    // Not part of the scope below: it ends when nobody gives orders any more, which may be never.
    let relay = move || orders.iter().map(ServerEvent::Order).try_for_each(|order| told.send(order));
    thread::Builder::new().name("orders".into()).spawn(relay).map_err(no_thread)?;
    let places = server.names();
    say(Notice::Listening(places.clone()));
    let drainer = server.drainer();
    let reporter = OnceLock::new();
    let report = |device: &str| {
        reporter.get_or_init(|| report(&service, &places, &setup.files.name(), device));
    };
    let report = &report;
    let done = thread::scope(|scope| {
        let closed = tell.clone();
        let take_connections = move || {
            // What the panic left unfinished ends with the thread.
            let ran = catch_unwind(AssertUnwindSafe(|| server.run(&handler)));
            let _ = closed.send(ServerEvent::Closed(ran.map_err(|_| panicked("thread that takes connections"))));
        };
        thread::Builder::new().name("listen".into()).spawn_scoped(scope, take_connections).map_err(no_thread)?;
        let mut watch = Watching {
            setup,
            service: &service,
            drainer,
            places: places.clone(),
            manager: if setup.is_service { Manager::from_environment() } else { Manager::default() },
            progress: Arc::default(),
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
            let (id, progress, tell) = (watch.begin(), watch.progress.clone(), tell.clone());
            let (service, failed) = (&service, tell.clone());
            let work = move || {
                let run = || run_engine(id, setup, service, prefix_file, &progress, report, &tell);
                let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(panicked("engine's thread")));
                let _ = tell.send(ServerEvent::Ended(id, done));
            };
            if let Err(e) = thread::Builder::new().name("engine".into()).spawn_scoped(scope, work) {
                let _ = failed.send(ServerEvent::Ended(id, Err(no_thread(e))));
            }
        };
        // The scope waits for all threads, so whatever becomes of this one, the others are told to end.
        let watched = catch_unwind(AssertUnwindSafe(|| {
            start(&mut watch);
            watch.run(&messages, &mut |watch| start(watch), say)
        }));
        watch.end_all();
        watched.unwrap_or_else(|_| Err(panicked("thread that watches over the others")))
    });
    // Engines and connections have ended. Whoever waits yet is told so by what is dropped.
    drop(service.queue.drain());
    done.inspect(|()| say(Notice::Stopped))
}

/// The error where a thread cannot be started.
fn no_thread(e: std::io::Error) -> Error {
    Error::failed(format!("a thread of the server cannot be started: {e}"), threads::REMEDY)
}

/// The error of a thread that panicked.
fn panicked(thread: &str) -> Error {
    Error::device(format!("the {thread} panicked"), "start it again, and report what it said")
}

/// The thread that watches over the others.
struct Watching<'a> {
    setup: &'a Setup,
    service: &'a Service,
    drainer: Drainer,
    /// Where connections are taken.
    places: Vec<String>,
    manager: Manager,
    /// Of the model that is loading.
    progress: Arc<Progress>,
    /// What ends the work of each engine that has not ended, by its model: one that answers loads again too.
    cancels: Vec<(u64, Cancel)>,
    /// The stamps of the files of the model that is loading, and of the one that answers.
    stamps: [Option<Vec<FileStamp>>; 2],
    loading: Option<u64>,
    answering: Option<u64>,
    /// The last model's number.
    last: u64,
    /// When the manager's watchdog was last fed.
    fed: Instant,
    /// When the files of keys were last looked at.
    looked: Instant,
    /// How far the load was, and since when.
    seen: (u64, Instant),
}

impl Watching<'_> {
    /// Numbers the next model.
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.progress = Arc::new(Progress::new(Cancel::default()));
        self.cancels.push((self.last, self.progress.cancel.clone()));
        self.service.set_progress(self.progress.clone());
        self.service.queue.set_takeover(Takeover::UnderWay);
        self.loading = Some(self.last);
        self.stamps[0] = (self.setup.stamps)();
        self.seen = (0, Instant::now());
        self.last
    }

    fn run(
        &mut self,
        messages: &Receiver<ServerEvent>,
        start: &mut dyn FnMut(&mut Self),
        say: &mut dyn FnMut(Notice),
    ) -> Result<()> {
        let mut failure = Ok(());
        loop {
            match messages.recv_timeout(TICK) {
                Ok(ServerEvent::Order(ServerOrder::Stop)) => self.stop(self.setup.drain, say),
                Ok(ServerEvent::Order(ServerOrder::Reload))
                    if self.loading.is_none() && !self.drainer.is_draining() =>
                {
                    self.manager.tell(&reloading());
                    self.reread();
                    match self.service.health.phase() {
                        Phase::Unloaded => {
                            log::info!("the model rests; its files are read anew when somebody asks");
                            self.manager.tell("READY=1\nSTATUS=unloaded");
                        }
                        _ if self.has_same_files() => {
                            log::info!("the model's files are those that it was loaded from");
                            self.manager.tell("READY=1\nSTATUS=answering");
                            say(Notice::Reread);
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
                Ok(ServerEvent::Ready(id)) => self.note_ready(id, say),
                Ok(ServerEvent::Notice(notice)) => {
                    self.manager.tell(if notice == Notice::LoadedAgain {
                        "STATUS=answering"
                    } else {
                        "STATUS=unloaded"
                    });
                    say(notice);
                }
                // What is loading, or has taken over, was loaded from the new files.
                Ok(ServerEvent::Changed(_)) if self.loading.is_some() => {}
                Ok(ServerEvent::Changed(id)) if self.answering == Some(id) && !self.drainer.is_draining() => {
                    start(self)
                }
                // Its engine waits for what comes of it.
                Ok(ServerEvent::Changed(_)) => {
                    let e = Error::failed("the server is stopping", "start it again");
                    self.service.queue.set_takeover(Takeover::Failed(e));
                }
                Ok(ServerEvent::Ended(id, done)) => {
                    let was_loading = self.loading.take_if(|loading| *loading == id).is_some();
                    self.cancels.retain(|(of, _)| *of != id);
                    let why = done.as_ref().err().cloned();
                    if was_loading {
                        self.service.queue.set_takeover(why.clone().map_or(Takeover::None, Takeover::Failed));
                    }
                    match done {
                        Ok(()) => {}
                        Err(Error::Interrupted { .. }) if self.drainer.is_draining() => {}
                        Err(e) if was_loading && self.answering.is_some() => {
                            self.manager.tell("READY=1");
                            say(Notice::NotReloaded(e));
                        }
                        // A model that was replaced fails alone: its clients were told.
                        Err(e) if !was_loading && self.answering != Some(id) => log::error!("{e}"),
                        Err(e) => {
                            self.service.fail(&e.to_string());
                            failure = failure.and(Err(e));
                            self.stop(LAST_WORDS, say);
                        }
                    }
                    // After the server's health says so: who is told may look.
                    self.service.end_model(id, why.as_ref());
                }
                // Without connections nobody waits for anything.
                Ok(ServerEvent::Closed(done)) => return failure.and(done),
                Err(RecvTimeoutError::Disconnected) => return failure,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.tick();
        }
    }

    /// Whether the model that answers was loaded from the files as they are.
    fn has_same_files(&self) -> bool {
        self.answering.is_some() && self.stamps[1].is_some() && self.stamps[1] == (self.setup.stamps)()
    }

    /// Takes over what a reload does beside the model. What cannot be read stays as it was.
    fn reread(&self) {
        for keys in self.setup.guard.all_keys() {
            if let Err(e) = keys.reread() {
                log::error!("the API keys stay as they were: {e}");
            }
        }
        match (self.setup.reread)() {
            Ok(Reread { system, defaults, page }) => {
                if let Some(page) = page {
                    self.service.set_page(page);
                }
                if let Some(text) = system {
                    let system = Some(text).filter(|text| !text.is_empty());
                    match self.fits(system.as_deref()) {
                        Ok(()) => self.service.set_system(system),
                        Err(e) => log::error!("the system prompt stays as it was: {e}"),
                    }
                }
                if let Some(defaults) = defaults {
                    self.service.set_defaults(defaults);
                }
            }
            Err(e) => log::error!("the system prompt, the defaults and the page stay as they were: {e}"),
        }
    }

    /// Whether a conversation with this system message has room in the model that answers. One that has none would take every
    /// conversation's.
    fn fits(&self, system: Option<&str>) -> Result<()> {
        let Ok(model) = self.service.model() else { return Ok(()) };
        encode_first(&model, system, "Hello").map(|_| ())
    }

    /// Takes over keys whose file has changed: one that was taken out of it is right no more.
    fn refresh_keys(&self) {
        self.setup.guard.all_keys().for_each(ApiKeys::follow);
    }

    /// Tells all other threads to end.
    fn end_all(&self) {
        self.drainer.drain(Duration::ZERO);
        self.cancels.iter().for_each(|(_, cancel)| cancel.set());
        self.service.queue.close(ApiError::stopping());
    }

    fn note_ready(&mut self, id: u64, say: &mut dyn FnMut(Notice)) {
        self.loading.take_if(|loading| *loading == id);
        self.service.queue.set_takeover(Takeover::None);
        let is_first = self.answering.replace(id).is_none();
        // Files that changed during the load are loaded once more.
        self.stamps[1] = self.stamps[0].take().filter(|before| (self.setup.stamps)().as_ref() == Some(before));
        self.manager.tell("READY=1\nSTATUS=answering");
        say(match is_first {
            true => Notice::Ready(self.started()),
            false => Notice::Reloaded,
        });
    }

    fn started(&self) -> Started {
        let model = self.service.model().ok();
        let model = model.as_deref();
        Started {
            boot: self.service.health.boot().unwrap_or_default(),
            model: model.map(|model| model.name.clone()).unwrap_or_default(),
            device: model.map(|model| model.device()).unwrap_or_default(),
            context: model.map_or(0, |model| model.context),
            slots: model.map_or(0, |model| model.slots),
            places: self.places.clone(),
        }
    }

    fn stop(&mut self, grace: Duration, say: &mut dyn FnMut(Notice)) {
        // Before anybody is told: who asks then finds it so.
        self.service.health.enter(Phase::Draining);
        if !self.drainer.is_draining() {
            say(Notice::Draining);
            self.manager.tell("STOPPING=1\nSTATUS=completing what is under way");
        }
        // A flag that ends a load ends the passes of what it loaded too.
        if self.loading.is_some() {
            self.progress.cancel.set();
        }
        self.drainer.drain(grace);
    }

    /// Feeds the manager's watchdog as long as the engine makes progress, and asks for time while a model loads.
    fn tick(&mut self) {
        if self.looked.elapsed() >= TICK {
            self.looked = Instant::now();
            self.refresh_keys();
        }
        unload::sweep(self.service);
        let done = self.progress.done();
        if done != self.seen.0 {
            self.seen = (done, Instant::now());
        }
        let is_fresh = |patience| self.seen.1.elapsed() < patience;
        if self.loading.is_some() && self.answering.is_none() && is_fresh(LONGEST_TUNING) {
            self.manager.tell(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS=loading the model", EXTENSION.as_micros()));
        }
        let Some(watchdog) = self.manager.watchdog else { return };
        let health = &self.service.health;
        let is_well = health.stalled() < watchdog || self.answering.is_none();
        if is_well && self.fed.elapsed() >= watchdog / 4 {
            self.fed = Instant::now();
            self.manager.tell("WATCHDOG=1");
        }
    }
}

/// The notice of a reload, with the time that systemd wants beside it.
fn reloading() -> String {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros())
}
