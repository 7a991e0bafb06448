//! State shared by all connections: the model, the queue to the engine, and the server's health.

use super::deadline::later;
use super::health::{Health, Phase};
use super::http::ApiError;
use super::job::{
    Abandoned, ChoiceEvent, Client, Defaults, Event, Job, MOST_CHOICES, Recipient, ReplyEnd, ReplyRequest,
};
use super::metrics::Metrics;
use super::model::Model;
use super::page::PageSettings;
use super::queue::JobQueue;
use crate::executor::Executor;
use crate::executor::weights::Progress;
use crate::grammar::{self, Masks};
use crate::sequence::{Batch, Chooser, Reply, SequenceRequest};
use crate::text::SamplerConfig;
use crate::{Cancel, Error};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// Settings of the service.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The most waiting replies.
    pub queue: usize,
    /// The longest time of a reply, including the time in the queue.
    pub deadline: Option<Duration>,
    /// The longest delay of other replies' next tokens by a prompt, unless a pass of a few rows takes longer.
    pub gap: Duration,
    /// The time without requests after which the model's memory is freed. The next request loads it again.
    pub idle_unload: Option<Duration>,
    /// Additional names of the model.
    pub aliases: Vec<String>,
    /// Whether requests for a model of another name are refused.
    pub strict_model: bool,
    /// The time after which a silent stream sends a comment, so that proxies keep the connection.
    pub heartbeat: Duration,
    /// The default system message. It is cached before the first request.
    pub system: Option<String>,
    /// Defaults for requests without settings of their own.
    pub defaults: Defaults,
    /// The settings of the chat page.
    pub page: PageSettings,
    /// The limit of the cache kept for later prompts, in bytes. `None`: all that running replies do not need.
    pub prefix_bytes: Option<u64>,
    /// A file that keeps prefixes between runs.
    pub prefix_file: Option<PathBuf>,
    /// The most tokens of a draft; 0 for no drafts.
    pub drafted: usize,
    /// A text to draft from, in addition to the replies' own tokens.
    pub draft_text: Option<String>,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            queue: 256,
            deadline: None,
            gap: Duration::from_millis(250),
            idle_unload: None,
            aliases: Vec::new(),
            strict_model: false,
            heartbeat: Duration::from_secs(10),
            system: None,
            defaults: Defaults::default(),
            page: PageSettings::default(),
            prefix_bytes: None,
            prefix_file: None,
            drafted: 0,
            draft_text: None,
        }
    }
}

/// State shared by all connections.
pub struct Service {
    /// The settings.
    pub settings: ServerSettings,
    /// The server's health.
    pub health: Health,
    /// The metrics.
    pub metrics: Metrics,
    pub(super) queue: JobQueue,
    /// Threads that compute the allowed tokens of replies with a grammar.
    masks: Masks,
    model: RwLock<Option<Arc<Model>>>,
    /// See [`Service::progress`].
    progress: RwLock<Arc<Progress>>,
    /// See [`Service::system`].
    system: RwLock<Option<String>>,
    /// See [`Service::defaults`].
    defaults: RwLock<Arc<Defaults>>,
    /// See [`Service::page`].
    page: RwLock<Arc<PageSettings>>,
    /// See [`Service::slots`].
    slots: RwLock<Vec<Option<ReplyTokens>>>,
    /// The error with which the engine has failed.
    cause: OnceLock<Error>,
}

/// Token counts of a reply in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTokens {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens generated so far.
    pub reply: usize,
}

/// The events of a [`ReplyRequest`]'s replies.
pub struct ReplyEvents<'a> {
    service: &'a Service,
    events: Receiver<ChoiceEvent>,
    /// The number of replies that have not ended.
    left: usize,
    /// See [`ReplyEvents::until`].
    cancel: Option<Cancel>,
    /// Its drop marks the replies as abandoned.
    _waits: Arc<()>,
}

/// The most threads that compute allowed tokens.
const MOST_MASKS: usize = 8;
/// Interval at which a wait for the engine checks whether it has failed.
const LOOK: Duration = Duration::from_secs(1);
/// Interval at which a wait that can be cancelled checks whether it is.
const SLICE: Duration = Duration::from_millis(20);

/// The result of [`ReplyEvents::next`].
#[derive(Debug, Clone, PartialEq)]
pub enum EventPoll {
    /// An event of reply `.0`.
    Event(usize, Event),
    /// No event for a while: a stream should send a heartbeat.
    Idle,
}

impl Service {
    /// A service without a model.
    pub fn new(settings: ServerSettings) -> Service {
        Service {
            queue: JobQueue::new(settings.queue),
            masks: Masks::start(thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2)).min(MOST_MASKS)),
            health: Health::default(),
            metrics: Metrics::default(),
            model: RwLock::new(None),
            progress: RwLock::default(),
            system: RwLock::new(settings.system.clone()),
            defaults: RwLock::new(Arc::new(settings.defaults.clone())),
            page: RwLock::new(Arc::new(settings.page.clone())),
            slots: RwLock::default(),
            cause: OnceLock::new(),
            settings,
        }
    }

    /// The default system message: from the settings, or from a reload.
    pub fn system(&self) -> Option<String> {
        self.system.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces [`Service::system`].
    pub(super) fn set_system(&self, text: Option<String>) {
        *self.system.write().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// The defaults for requests: from the settings, or from a reload.
    pub fn defaults(&self) -> Arc<Defaults> {
        self.defaults.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces [`Service::defaults`].
    pub(super) fn set_defaults(&self, defaults: Defaults) {
        *self.defaults.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(defaults);
    }

    /// The settings of the chat page, or those from a reload.
    pub fn page(&self) -> Arc<PageSettings> {
        self.page.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces [`Service::page`].
    pub(super) fn set_page(&self, page: PageSettings) {
        *self.page.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(page);
    }

    /// The token counts of the slots, updated once a second while the engine works.
    pub fn slots(&self) -> Vec<Option<ReplyTokens>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_slots(&self, slots: Vec<Option<ReplyTokens>>) {
        *self.slots.write().unwrap_or_else(PoisonError::into_inner) = slots;
    }

    /// The current model.
    ///
    /// # Errors
    /// 503: it is still loading.
    pub fn model(&self) -> Result<Arc<Model>, ApiError> {
        let model = self.model.read().unwrap_or_else(PoisonError::into_inner).clone();
        model.ok_or_else(|| {
            let why = self.health.ready().err().unwrap_or_else(|| "the model is loading".into());
            ApiError::unavailable(why, 5).code("loading")
        })
    }

    /// Calls `then` if `model` is the current one, and keeps it so meanwhile.
    pub(super) fn while_current(&self, model: u64, then: impl FnOnce()) {
        let current = self.model.read().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| current.id == model) {
            then();
        }
    }

    /// Makes `model` the current one.
    pub(super) fn set_model(&self, model: Arc<Model>) {
        self.queue.hand_to(model.id);
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = Some(model);
    }

    /// The progress of the latest load.
    pub(super) fn progress(&self) -> Arc<Progress> {
        self.progress.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_progress(&self, progress: Arc<Progress>) {
        *self.progress.write().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Runs a function on the engine's thread between two passes, and waits for its result.
    ///
    /// # Errors
    /// 503: the engine has ended, or ends before it runs the function.
    pub(super) fn on_engine<T: Send + 'static>(
        &self,
        model: &Model,
        work: impl FnOnce(&mut Batch, &mut dyn Executor) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (give, given) = channel();
        self.queue.send(model.id, Box::new(move |batch, executor| drop(give.send(work(batch, executor)))))?;
        given.recv().map_err(|_| match self.health.phase() {
            Phase::Failed(_) => self.failure(),
            _ => ApiError::stopping(),
        })
    }

    /// The names of `model`: its own, then the aliases.
    pub fn names<'n>(&'n self, model: &'n Model) -> impl Iterator<Item = &'n str> {
        std::iter::once(&model.name).chain(&self.settings.aliases).map(String::as_str)
    }

    /// Whether the deadline of a request from `since` has passed.
    pub(super) fn is_late(&self, since: Instant) -> bool {
        self.settings.deadline.is_some_and(|deadline| since.elapsed() >= deadline)
    }

    /// As [`Service::submit_since`], for the server's own requests.
    ///
    /// # Errors
    /// As [`Service::submit_since`].
    pub(super) fn start_own(&self, model: &Model, ask: ReplyRequest) -> Result<ReplyEvents<'_>, ApiError> {
        self.submit(model, &[ask], Client::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), Arc::new(|| false))
    }

    pub(super) fn submit(
        &self,
        model: &Model,
        asks: &[ReplyRequest],
        client: Client,
        abandoned: Abandoned,
    ) -> Result<ReplyEvents<'_>, ApiError> {
        self.submit_since(model, asks, client, abandoned, Instant::now())
    }

    /// Puts requests into the queue, all or none. Their replies are numbered consecutively. `abandoned` tells whether
    /// the client is gone, and the deadline counts from `since`.
    ///
    /// # Errors
    /// 400: a setting is wrong. 503: there is no room, or the server stops.
    pub(super) fn submit_since(
        &self,
        model: &Model,
        asks: &[ReplyRequest],
        client: Client,
        abandoned: Abandoned,
        since: Instant,
    ) -> Result<ReplyEvents<'_>, ApiError> {
        let replies: usize = asks.iter().map(|ask| ask.choices).sum();
        if !(1..=MOST_CHOICES).contains(&replies) {
            return Err(ApiError::bad(format!("{replies} replies are not in 1..={MOST_CHOICES}")).param("n"));
        }
        for ask in asks {
            model.limits().check(0, &ask.prompt).map_err(|e| ApiError::from(&e).code("context_length_exceeded"))?;
        }
        let waits = Arc::new(());
        let held = Arc::downgrade(&waits);
        let abandoned: Abandoned = Arc::new(move || held.strong_count() == 0 || abandoned());
        let (events_in, events) = channel();
        let job = |choice: usize, (ask, own): (&ReplyRequest, usize)| {
            let seed = ask.sampler.seed.map(|seed| seed.wrapping_add(own as u64));
            let vocab = model.shape.vocab;
            let mut chooser = Chooser::new(SamplerConfig { seed, ..ask.sampler.clone() }, vocab)?;
            // The last token needs no position.
            let limit = ask.limit.min(model.context - ask.prompt.len() + 1);
            if let Some(grammar) = &ask.grammar {
                let begun = grammar.tokens_of(&ask.begun, &model.tokenizer)?;
                let masks = grammar::MaskStepper::new(&self.masks, grammar.clone(), vocab).behind(begun);
                chooser = chooser.guided(masks, vocab)?;
            }
            let ignores_stops = ask.scores || ask.ignore_eos && ask.grammar.is_none();
            let (prompt, given) = ask.prompt.split_at(if ask.scores { 1 } else { ask.prompt.len() });
            if ask.scores {
                chooser = chooser.following(given.to_vec());
            }
            let request = SequenceRequest {
                prompt: prompt.to_vec(),
                chooser: match ask.likelihoods {
                    Some(top) => chooser.reporting(top),
                    None => chooser,
                },
                stops: if ignores_stops { Vec::new() } else { model.stops().to_vec() },
                limit: limit + given.len(),
                reuse: ask.reuse,
            };
            let recipient = Recipient {
                model: model.id,
                choice,
                given: given.len(),
                reply: Reply::new(&model.tokenizer, &ask.stop)?.going_on(&ask.begun, ask.calls.clone()),
                client,
                abandoned: abandoned.clone(),
                since,
                deadline: self.settings.deadline.map(|deadline| later(since, deadline)),
                events: events_in.clone(),
            };
            Ok(Job { request, recipient })
        };
        let all = asks.iter().flat_map(|ask| (0..ask.choices).map(move |own| (ask, own)));
        let jobs = all.enumerate().map(|(choice, of)| job(choice, of)).collect::<crate::Result<Vec<Job>>>();
        self.queue.push(jobs.map_err(|e| ApiError::from(&e))?).inspect_err(|_| {
            self.metrics.refused.inc();
        })?;
        Ok(ReplyEvents { service: self, events, left: replies, cancel: None, _waits: waits })
    }

    /// Records that the engine of `model` has ended, by `failure` or because another took over. Waiting and later
    /// requests for it are notified.
    pub(super) fn end_model(&self, model: u64, failure: Option<&Error>) {
        let e = match failure {
            Some(e) => engine_failed(&e.to_string()).caused_by(e),
            None => ApiError::unavailable("the model was loaded anew as the request came; ask again", 1)
                .code("model_replaced"),
        };
        self.queue.end(model, e.clone()).iter().for_each(|job| job.recipient.tell(Event::Failed(e.clone())));
    }

    /// Refuses the waiting requests for `model`, which may be loaded again later.
    pub(super) fn turn_away(&self, model: u64, e: &ApiError) {
        self.queue.clear(model).iter().for_each(|job| job.recipient.tell(Event::Failed(e.clone())));
    }

    /// Records that the engine has failed: all requests are refused from now on, and waiting ones are notified.
    pub(super) fn fail(&self, why: &str) {
        self.health.enter(Phase::Failed(why.to_owned()));
        let e = self.failure();
        self.queue.close(e.clone());
        self.queue.drain().iter().for_each(|job| job.recipient.tell(Event::Failed(e.clone())));
    }

    /// As [`Service::fail`], with the engine's error, which requests of this process get unchanged.
    pub(super) fn fail_by(&self, e: &Error) {
        // The first failure is the one that ended the engine.
        let _ = self.cause.set(e.clone());
        self.fail(&e.to_string());
    }

    /// The error for clients after the engine has failed.
    fn failure(&self) -> ApiError {
        let e = match self.health.phase() {
            Phase::Failed(why) => engine_failed(&why),
            _ => ApiError::internal(),
        };
        match self.cause.get() {
            Some(cause) => e.caused_by(cause),
            None => e,
        }
    }
}

fn engine_failed(why: &str) -> ApiError {
    ApiError::new(500, format!("the engine has failed: {why}")).code("engine_failed")
}

/// Waits for the next event of any reply. `None` when all have ended.
impl Iterator for ReplyEvents<'_> {
    type Item = EventPoll;

    fn next(&mut self) -> Option<EventPoll> {
        if self.left == 0 {
            return None;
        }
        let mut quiet = Duration::ZERO;
        loop {
            if let Some(Err(e)) = self.cancel.as_ref().map(|cancel| cancel.check_or("the request was cancelled")) {
                self.left = 0;
                return Some(EventPoll::Event(0, Event::Failed((&e).into())));
            }
            let wait = if self.cancel.is_some() { SLICE } else { LOOK }.min(self.service.settings.heartbeat);
            match self.events.recv_timeout(wait) {
                Ok((choice, event)) => {
                    self.left -= usize::from(!matches!(event, Event::Token(_)));
                    return Some(EventPoll::Event(choice, event));
                }
                Err(RecvTimeoutError::Timeout) if !matches!(self.service.health.phase(), Phase::Failed(_)) => {
                    quiet += wait;
                    if quiet >= self.service.settings.heartbeat {
                        return Some(EventPoll::Idle);
                    }
                }
                // The engine has failed, or dropped the job.
                Err(_) => {
                    self.left = 0;
                    return Some(EventPoll::Event(0, Event::Failed(self.service.failure())));
                }
            }
        }
    }
}

impl ReplyEvents<'_> {
    /// The same events, which end with [`Error::Interrupted`] soon after `cancel` is set.
    pub(super) fn until(self, cancel: &Cancel) -> Self {
        Self { cancel: Some(cancel.clone()), ..self }
    }

    /// Waits for the end of all replies. Returns the tokens and the end of each. Call it before any event was taken.
    ///
    /// # Errors
    /// The error of the first reply that failed.
    pub fn gather(self) -> Result<Vec<CompleteReply>, ApiError> {
        let mut whole = vec![CompleteReply::default(); self.left];
        for step in self {
            match step {
                EventPoll::Idle => {}
                EventPoll::Event(_, Event::Failed(e)) => return Err(e),
                EventPoll::Event(choice, event) => whole[choice].add(event),
            }
        }
        Ok(whole)
    }
}

/// A complete reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CompleteReply {
    /// Its text.
    pub text: String,
    /// Its tokens, each with the text that became final with it.
    pub tokens: Vec<super::job::ReplyToken>,
    /// Its end.
    pub end: Option<ReplyEnd>,
}

impl CompleteReply {
    fn add(&mut self, event: Event) {
        match event {
            Event::Token(token) => {
                self.text.push_str(&token.text);
                self.tokens.push(token);
            }
            Event::End(end) => {
                self.text.push_str(&end.text);
                self.end = Some(end);
            }
            Event::Failed(_) => {}
        }
    }
}
