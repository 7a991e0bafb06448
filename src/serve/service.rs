//! State shared by all connections: the model, the engine, and the server's health.

use super::health::{Health, Phase};
use super::http::ApiError;
use super::metrics::Metrics;
use super::model::Model;
use super::page::PageSettings;
use super::server::Started;
use crate::Error;
use crate::engine::core::ReplyTokens;
use crate::engine::queue::{EngineHandle, EngineSettings};
use crate::engine::request::{Abandoned, Client, EngineError, GuideMaker, MOST_CHOICES, Replies, Request};
use crate::executor::weights::Progress;
use crate::grammar::{CompiledGrammar, MaskStepper, Masks};
use crate::text::SamplerConfig;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// Defaults for requests without settings of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// The sampler's settings for requests that have none.
    pub sampler: SamplerConfig,
    /// The most tokens of a reply.
    pub limit: usize,
    /// True if the model thinks before it answers, unless the request says otherwise.
    pub think: bool,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { sampler: SamplerConfig::default(), limit: usize::MAX, think: false }
    }
}

/// Settings of the service.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The most replies that wait in the queue. Further requests are refused.
    pub queue: usize,
    /// The longest time of a reply, including the time in the queue.
    pub deadline: Option<Duration>,
    /// The longest delay of other replies' next tokens by a prompt, unless a pass of a few rows takes longer.
    pub gap: Duration,
    /// The time without requests after which the model's memory is freed. The next request loads it again.
    pub idle_unload: Option<Duration>,
    /// Additional names by which requests may ask for the model.
    pub aliases: Vec<String>,
    /// True if a request that names another model is refused. False: it is answered by this model.
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
    /// The file in which the keys and values of frequent prefixes are stored between runs.
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
    /// The settings that the server was started with.
    pub settings: ServerSettings,
    /// The server's health.
    pub health: Health,
    /// The metrics that the server publishes.
    pub metrics: Metrics,
    /// The queue of requests to the engine that runs the model.
    pub(super) engine: EngineHandle,
    /// Threads that compute the allowed tokens of replies with a grammar.
    masks: Masks,
    model: RwLock<Option<Arc<Model>>>,
    /// The progress of the latest load.
    pub(super) progress: Replaceable<Arc<Progress>>,
    /// The default system message: from the settings, or from a reload.
    pub(super) system: Replaceable<Option<String>>,
    /// The defaults for requests: from the settings, or from a reload.
    pub(super) defaults: Replaceable<Arc<Defaults>>,
    /// The settings of the chat page: from the settings, or from a reload.
    pub(super) page: Replaceable<Arc<PageSettings>>,
    /// The token counts of the slots, updated once a second while the engine works.
    pub(super) slots: Replaceable<Vec<Option<ReplyTokens>>>,
}

/// A value that all threads read, and that another thread may replace.
#[derive(Default)]
pub(super) struct Replaceable<T>(RwLock<T>);

impl<T: Clone> Replaceable<T> {
    pub fn new(value: T) -> Replaceable<T> {
        Replaceable(RwLock::new(value))
    }

    /// A clone of the present value.
    pub fn get(&self) -> T {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value for all threads.
    pub fn set(&self, value: impl Into<T>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.into();
    }
}

/// The most threads that compute sets of allowed tokens for grammars.
const MOST_MASKS: usize = 8;
impl Service {
    /// A service whose model is not loaded yet.
    pub fn new(settings: ServerSettings) -> Service {
        Service {
            engine: EngineHandle::new(EngineSettings {
                queue: settings.queue,
                deadline: settings.deadline,
                heartbeat: settings.heartbeat,
            }),
            masks: Masks::start(thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2)).min(MOST_MASKS)),
            health: Health::default(),
            metrics: Metrics::default(),
            model: RwLock::new(None),
            progress: Replaceable::default(),
            system: Replaceable::new(settings.system.clone()),
            defaults: Replaceable::new(Arc::new(settings.defaults.clone())),
            page: Replaceable::new(Arc::new(settings.page.clone())),
            slots: Replaceable::default(),
            settings,
        }
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

    /// Calls `then` if `model` is the current model. The model is not replaced until `then` returns.
    pub(super) fn while_current(&self, model: u64, then: impl FnOnce()) {
        let current = self.model.read().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| current.id == model) {
            then();
        }
    }

    /// Makes `model` the current one.
    pub(super) fn set_model(&self, model: Arc<Model>) {
        self.engine.hand_to(model.id);
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = Some(model);
    }

    /// Counts the refusal of a program's own work for which there was no room.
    pub(super) fn count_refusal<T>(&self, done: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(EngineError::Full { .. }) = done {
            self.metrics.refused.inc();
        }
        done
    }

    /// The maker of guides for replies that begin with `begun` and have the form of a grammar.
    ///
    /// # Errors
    /// Input: the tokenizer cannot encode `begun`.
    pub(super) fn guide(
        &self,
        model: &Model,
        grammar: &Arc<CompiledGrammar>,
        ask: &Request,
    ) -> crate::Result<GuideMaker> {
        let (begun, thinks) = (grammar.tokens_of(&ask.begun, &model.tokenizer)?, ask.thinks);
        let (masks, grammar, vocab) = (self.masks.clone(), grammar.clone(), model.shape.vocab);
        Ok(Arc::new(move |chooser| {
            let guide = MaskStepper::new(&masks, grammar.clone(), vocab).behind(begun.clone()).thinking(thinks);
            chooser.guided(guide, vocab)
        }))
    }

    /// The names of `model`: its own, then the aliases.
    pub fn names<'n>(&'n self, model: &'n Model) -> impl Iterator<Item = &'n str> {
        std::iter::once(&model.name).chain(&self.settings.aliases).map(String::as_str)
    }

    /// As [`EngineHandle::submit`].
    ///
    /// # Errors
    /// 400: a setting is wrong. 503: there is no room, or the server stops.
    pub(super) fn submit(
        &self,
        model: &Model,
        asks: &[Request],
        client: Client,
        abandoned: Abandoned,
        since: Instant,
    ) -> Result<Replies, ApiError> {
        let replies: usize = asks.iter().map(|ask| ask.choices).sum();
        if !(1..=MOST_CHOICES).contains(&replies) {
            return Err(ApiError::bad(format!("{replies} replies are not in 1..={MOST_CHOICES}")).param("n"));
        }
        let submitted = self.engine.submit(model.target(), asks, client, abandoned, since);
        if let Err(EngineError::Full { .. } | EngineError::Stopping | EngineError::Replaced | EngineError::Failed(_)) =
            submitted
        {
            self.metrics.refused.inc();
        }
        Ok(submitted?)
    }

    /// Sweeps the queue while the engine's thread waits for a load or a request and cannot do it itself.
    pub(super) fn sweep(&self) {
        let Service { health, metrics, engine, .. } = self;
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

    /// A description of the running server, which listens at `places`.
    pub(super) fn started(&self, places: Vec<String>) -> Started {
        let model = self.model().ok();
        let model = model.as_deref();
        Started {
            boot: self.health.boot().unwrap_or_default(),
            model: model.map(|model| model.name.clone()).unwrap_or_default(),
            device: model.map(|model| model.device()).unwrap_or_default(),
            context: model.map_or(0, |model| model.context),
            slots: model.map_or(0, |model| model.slots),
            places,
        }
    }

    /// Records that the engine has failed: all requests are refused from now on, and waiting ones are notified.
    pub(super) fn fail(&self, e: &Error) {
        self.health.enter(Phase::Failed(e.to_string()));
        self.engine.fail(e);
    }
}

/// The status, the code and the message of an engine's error. 400, or 500 if the server is at fault.
impl From<EngineError> for ApiError {
    fn from(e: EngineError) -> ApiError {
        let error = match &e {
            EngineError::Prompt(cause) => return ApiError::from(cause).code("context_length_exceeded"),
            EngineError::Reply(cause) => return ApiError::from(cause),
            EngineError::Full { retry, .. } => ApiError::unavailable(e.to_string(), *retry).code("queue_full"),
            EngineError::Late(_) => ApiError::new(504, e.to_string()).code("deadline_exceeded"),
            EngineError::Stopping => ApiError::stopping(),
            EngineError::Replaced => ApiError::unavailable(e.to_string(), 1).code("model_replaced"),
            EngineError::Unloaded { .. } => ApiError::unavailable(e.to_string(), RETRY).code("not_loaded"),
            EngineError::Failed(_) => ApiError::new(500, e.to_string()).code("engine_failed"),
            EngineError::Dropped => ApiError::internal(),
        };
        error.caused_by(&e.into())
    }
}

/// Seconds after which a client may retry if the model could not be loaded.
const RETRY: u64 = 5;
