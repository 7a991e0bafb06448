//! What all connections share: the model, the queue to the engine, and the server's health.

use super::deadline::later;
use super::health::{Health, Phase};
use super::http::{ApiError, PeerWatch};
use super::job::{
    Abandoned, ChoiceEvent, Client, Defaults, Event, Job, MOST_CHOICES, Recipient, ReplyEnd, ReplyRequest,
};
use super::metrics::Metrics;
use super::model::Model;
use super::page::PageSettings;
use super::queue::JobQueue;
use crate::Error;
use crate::executor::Executor;
use crate::executor::weights::Progress;
use crate::grammar::{self, Masks};
use crate::sequence::{Batch, Chooser, Reply, SequenceRequest};
use crate::text::SamplerConfig;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// How the server treats requests.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Replies that may wait for a place.
    pub queue: usize,
    /// Longest time that a reply may take, waiting included.
    pub deadline: Option<Duration>,
    /// Longest time that a prompt may hold up the others' next tokens, where a pass of a few rows is not longer.
    pub gap: Duration,
    /// A model that nobody has asked for so long gives its memory back, until somebody asks again.
    pub idle_unload: Option<Duration>,
    /// Names of the model beside its own.
    pub aliases: Vec<String>,
    /// Refuses requests for a model by another name than its own and its aliases.
    pub strict_model: bool,
    /// A stream without events for so long sends a comment, so that nothing on the way takes it for dead.
    pub heartbeat: Duration,
    /// The system message of conversations that bring none. It is in the cache before the first request.
    pub system: Option<String>,
    /// How replies are made where a request does not say.
    pub defaults: Defaults,
    /// What the chat page shows of its owner.
    pub page: PageSettings,
    /// Most bytes of the cache that are kept for prompts to come and that no running reply has. `None`: what others leave.
    pub prefix_bytes: Option<u64>,
    /// A file that keeps prefixes from one run to the next.
    pub prefix_file: Option<PathBuf>,
    /// Most tokens that are drafted at a time for a reply; 0: none.
    pub drafted: usize,
    /// A text that they are drafted from, beside the replies' own sequences.
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

/// What all connections share.
pub struct Service {
    /// How requests are treated.
    pub settings: ServerSettings,
    /// How the server does.
    pub health: Health,
    /// What it has done.
    pub metrics: Metrics,
    pub(super) queue: JobQueue,
    /// Threads that say what replies of a given form may be next.
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
}

/// Tokens of a reply that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTokens {
    /// Those of its prompt.
    pub prompt: usize,
    /// Those made so far.
    pub reply: usize,
}

/// What comes of a [`ReplyRequest`].
pub struct ReplyEvents<'a> {
    service: &'a Service,
    events: Receiver<ChoiceEvent>,
    /// Replies that have not ended.
    left: usize,
    /// Its end says that nobody waits for those any more.
    _waits: Arc<()>,
}

/// Most threads that compute what replies of a given form may be next.
const MOST_MASKS: usize = 8;
/// How often somebody who waits for the engine looks whether it has failed.
const LOOK: Duration = Duration::from_secs(1);

/// What [`ReplyEvents::next`] finds.
#[derive(Debug, Clone, PartialEq)]
pub enum EventPoll {
    /// Something has happened to reply `.0`.
    Event(usize, Event),
    /// Nothing has happened for a while: a stream sends a heartbeat.
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
            settings,
        }
    }

    /// The system message of conversations that bring none: that of the settings, or a later one.
    pub fn system(&self) -> Option<String> {
        self.system.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another in the place of [`Service::system`].
    pub(super) fn set_system(&self, text: Option<String>) {
        *self.system.write().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// How replies are made where a request does not say: as the settings have it, or later ones.
    pub fn defaults(&self) -> Arc<Defaults> {
        self.defaults.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts others in the place of [`Service::defaults`].
    pub(super) fn set_defaults(&self, defaults: Defaults) {
        *self.defaults.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(defaults);
    }

    /// What the chat page shows: as the settings have it, or later.
    pub fn page(&self) -> Arc<PageSettings> {
        self.page.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another in the place of [`Service::page`].
    pub(super) fn set_page(&self, page: PageSettings) {
        *self.page.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(page);
    }

    /// What the engine's places held when that was last published, once a second while it works.
    pub fn slots(&self) -> Vec<Option<ReplyTokens>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_slots(&self, slots: Vec<Option<ReplyTokens>>) {
        *self.slots.write().unwrap_or_else(PoisonError::into_inner) = slots;
    }

    /// The model that answers now.
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

    /// Does `then` if the model of this number answers, and none takes over from it meanwhile.
    pub(super) fn while_current(&self, model: u64, then: impl FnOnce()) {
        let current = self.model.read().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| current.id == model) {
            then();
        }
    }

    /// Makes `model` the one that answers.
    pub(super) fn set_model(&self, model: Arc<Model>) {
        self.queue.hand_to(model.id);
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = Some(model);
    }

    /// How far the model is that was loaded last, or that loads now.
    pub(super) fn progress(&self) -> Arc<Progress> {
        self.progress.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_progress(&self, progress: Arc<Progress>) {
        *self.progress.write().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Has the engine's thread do something with the cache, between two passes, and waits for what comes of it.
    ///
    /// # Errors
    /// 503: the engine has ended, or ends before it comes to it.
    pub(super) fn on_engine<T: Send + 'static>(
        &self,
        model: &Model,
        work: impl FnOnce(&mut Batch, &mut dyn Executor) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (give, given) = channel();
        self.queue.send(model.id, Box::new(move |batch, executor| drop(give.send(work(batch, executor)))))?;
        given.recv().map_err(|_| ApiError::stopping())
    }

    /// The names that `model` goes by: its own, then the aliases.
    pub fn names<'n>(&'n self, model: &'n Model) -> impl Iterator<Item = &'n str> {
        std::iter::once(&model.name).chain(&self.settings.aliases).map(String::as_str)
    }

    /// Puts what is asked into the queue, all or none. Replies are numbered on from ask to ask. `watch` says how long
    /// somebody waits for them, and `since` from when on their time counts.
    ///
    /// # Errors
    /// 400: a setting is wrong. 503: no room is left, or the server stops.
    pub fn start(
        &self,
        model: &Model,
        asks: &[ReplyRequest],
        client: Client,
        watch: PeerWatch,
        since: Instant,
    ) -> Result<ReplyEvents<'_>, ApiError> {
        self.submit_since(model, asks, client, Arc::new(move || watch.is_gone()), since)
    }

    /// Whether the time of a request that came at `since` is over.
    pub(super) fn is_late(&self, since: Instant) -> bool {
        self.settings.deadline.is_some_and(|deadline| since.elapsed() >= deadline)
    }

    /// As [`Service::start`], for the server itself.
    ///
    /// # Errors
    /// As [`Service::start`].
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

    fn submit_since(
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
        Ok(ReplyEvents { service: self, events, left: replies, _waits: waits })
    }

    /// The engine of `model` has ended, by `failure` or because another took over. Whoever waits for it, or comes for it yet,
    /// is told.
    pub(super) fn end_model(&self, model: u64, failure: Option<&Error>) {
        let e = match failure {
            Some(e) => engine_failed(&e.to_string()),
            None => ApiError::unavailable("the model was loaded anew as the request came; ask again", 1)
                .code("model_replaced"),
        };
        self.queue.end(model, e.clone()).iter().for_each(|job| job.recipient.tell(Event::Failed(e.clone())));
    }

    /// Tells whoever waits for `model`, which goes on, that it is not there.
    pub(super) fn turn_away(&self, model: u64, e: &ApiError) {
        self.queue.clear(model).iter().for_each(|job| job.recipient.tell(Event::Failed(e.clone())));
    }

    /// The engine has failed: nothing more is answered, and whoever waits is told.
    pub(super) fn fail(&self, why: &str) {
        self.health.enter(Phase::Failed(why.to_owned()));
        let e = self.failure();
        self.queue.close(e.clone());
        self.queue.drain().iter().for_each(|job| job.recipient.tell(Event::Failed(e.clone())));
    }

    /// What a client is told when the engine has failed.
    fn failure(&self) -> ApiError {
        match self.health.phase() {
            Phase::Failed(why) => engine_failed(&why),
            _ => ApiError::internal(),
        }
    }
}

fn engine_failed(why: &str) -> ApiError {
    ApiError::new(500, format!("the engine has failed: {why}")).code("engine_failed")
}

/// Waits for the next event of any reply. `None`: all have ended.
impl Iterator for ReplyEvents<'_> {
    type Item = EventPoll;

    fn next(&mut self) -> Option<EventPoll> {
        if self.left == 0 {
            return None;
        }
        let mut quiet = Duration::ZERO;
        loop {
            let wait = LOOK.min(self.service.settings.heartbeat);
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
                // The engine has failed, or dropped the job without a word.
                Err(_) => {
                    self.left = 0;
                    return Some(EventPoll::Event(0, Event::Failed(self.service.failure())));
                }
            }
        }
    }
}

impl ReplyEvents<'_> {
    /// Waits for all replies to end, before anything was heard of them. Returns the tokens and the end of each.
    ///
    /// # Errors
    /// The first reply that failed.
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
    /// Its tokens, with the text that became final with each.
    pub tokens: Vec<super::job::ReplyToken>,
    /// How it ended.
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
