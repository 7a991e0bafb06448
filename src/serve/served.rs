//! The server's owner of a model on the engine's thread: loads the model with its text side, and publishes its states
//! and figures in the server's metrics and health.

use super::health::Phase;
use super::http::Listen;
use super::load::{LoadedExecutor, ModelLoader};
use super::model::Model;
use super::server::{Notice, ServerEvent, Setup, panicked};
use super::service::Service;
use crate::diagnose::energy::{EnergyMark, EnergyMeter};
use crate::diagnose::status::Reporter;
use crate::engine::core::{Core, CoreSettings, EngineMonitor, Figure};
use crate::engine::model_thread::{FirstPrompt, ModelOwner, ModelThread};
use crate::engine::prefixes::{Identity, PrefixFile};
use crate::engine::{ModelFiles, ModelWithDrafts};
use crate::executor::offload::OffloadedPasses;
use crate::executor::weights::Progress;
use crate::executor::{ExecutorExt, Measure};
use crate::machine::files::Files;
use crate::sequence::draft::Drafts;
use crate::sequence::meter::DecodeMeter;
use crate::sequence::prompt;
use crate::text::Message;
use crate::{Cancel, Result};
use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
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

/// A model that the server runs, with all that its thread needs.
pub(super) struct ServedModel<'a> {
    /// The model's number in this process.
    pub id: u64,
    /// The model's files, for its tokenizer and chat template.
    pub files: &'a ModelFiles,
    /// Loads it, also again after it was unloaded.
    pub load: &'a ModelLoader,
    pub service: &'a Service,
    /// The file of the prefixes worth keeping.
    pub prefix_file: Option<&'a PrefixFile>,
    /// Cancels the model's loads and passes.
    pub cancel: Cancel,
    /// Sends an event to the supervising thread.
    pub send: &'a dyn Fn(ServerEvent),
    pub loaded: LoadedState,
}

/// The state of a model since it was loaded.
#[derive(Default)]
pub(super) struct LoadedState {
    /// The model's limits, tokenizer and chat template, from the first load on.
    text: OnceCell<Arc<Model>>,
    /// The device's best read rate, in bytes per second.
    read_ceiling: Cell<f64>,
    /// The energy meter, with its mark at the last publication and the tokens decoded since then. `None` if no energy
    /// can be read, or the model is unloaded.
    energy: RefCell<Option<(EnergyMark, EnergyMeter, usize)>>,
    /// The number of the NPU's failures that the metrics have so far.
    offload_failures: Cell<u32>,
}

impl<'a> ServedModel<'a> {
    /// Runs the model on this thread until the server needs it no more.
    ///
    /// # Errors
    /// As [`super::server::serve`].
    pub fn run(self) -> Result<()> {
        let thread = Rc::new(self).thread();
        catch_unwind(AssertUnwindSafe(|| thread.run())).unwrap_or_else(|_| Err(panicked("engine's thread")))
    }

    /// The loop of the engine's thread that runs this model.
    pub fn thread(self: Rc<Self>) -> ModelThread<ServedModel<'a>> {
        let idle = self.service.settings.idle_unload.unwrap_or(Duration::MAX);
        ModelThread { engine: self.service.engine.clone(), model: self.id, owner: self, idle }
    }

    /// Enters a phase of the server's first load. A reload enters none: the model before it answers.
    fn begin(&self, phase: Phase) {
        if self.service.model().is_err() {
            self.service.health.enter(phase);
        }
    }

    /// Makes the model the current one, unless it was loaded again. Publishes that it answers, if it is the current
    /// one.
    fn publish_ready(&self, core: &Core<'_>, again: bool) {
        if let Some(model) = self.loaded.text.get().filter(|_| !again) {
            self.service.set_model(model.clone());
        }
        let (Service { metrics, health, settings, .. }, executor) = (self.service, &core.executor);
        self.publish_offload(executor.as_ref());
        self.service.while_current(self.id, || {
            metrics.set_model(executor.schedule(), self.loaded.read_ceiling.get(), settings.prefix_bytes);
            metrics.set_placements(executor.placements());
            health.enter(Phase::Ready);
        });
        (self.send)(if again { ServerEvent::Notice(Notice::LoadedAgain) } else { ServerEvent::Ready(self.id) });
    }

    /// Publishes that the model is not in memory, if it is the current one. Then sends `event`.
    fn publish_unloaded(&self, phase: Phase, event: Option<ServerEvent>) {
        let Service { health, metrics, .. } = self.service;
        self.loaded.energy.take();
        self.service.while_current(self.id, || {
            health.enter(phase);
            metrics.set_unloaded();
        });
        event.into_iter().for_each(self.send);
    }

    /// Publishes the offload for attention, which may change while the model answers and between loads.
    fn publish_offload(&self, executor: &dyn Measure) {
        if let Some(model) = self.loaded.text.get() {
            model.device.set(executor.device());
        }
        let attends = executor.offload().map_or(OffloadedPasses::NONE, |offload| offload.attends);
        self.service.while_current(self.id, || self.service.metrics.set_attends(attends));
    }

    /// Publishes the rates of the last second, and the resources in use.
    fn publish(&self, core: &Core<'_>, meter: &DecodeMeter) {
        let (Service { metrics, .. }, executor) = (self.service, core.executor.as_ref());
        let slots = core.slots();
        let running = slots.iter().flatten().count();
        self.service.slots.set(slots);
        metrics.publish(meter, running, executor.pages(), core.batch.kept_bytes(executor));
        self.publish_offload(executor);
        let failures = executor.offload().map_or(0, |offload| offload.failures);
        metrics.note_offload_failures(failures.saturating_sub(self.loaded.offload_failures.replace(failures)));
        if let Some((mark, energy, tokens)) = self.loaded.energy.borrow_mut().as_mut() {
            *tokens += meter.tokens;
            let now = energy.mark();
            if let Some(used) = now.since(*mark) {
                metrics.add_energy(used, *tokens);
                (*mark, *tokens) = (now, 0);
            }
        }
    }
}

impl EngineMonitor for ServedModel<'_> {
    fn note(&self, figure: Figure<'_>) {
        let Service { metrics, health, .. } = self.service;
        match figure {
            Figure::Ready { core, again } => self.publish_ready(core, again),
            Figure::Unloaded => self.publish_unloaded(Phase::Unloaded, Some(ServerEvent::Notice(Notice::Unloaded))),
            Figure::LoadingAgain => self.publish_unloaded(Phase::LoadingAgain, None),
            Figure::NotLoadedAgain(e) => {
                let notice = Notice::NotLoadedAgain(e.clone());
                self.publish_unloaded(Phase::Unloaded, Some(ServerEvent::Notice(notice)));
            }
            Figure::Changed => self.publish_unloaded(Phase::Unloaded, Some(ServerEvent::Changed(self.id))),
            Figure::Progress(works) => health.progress(works),
            Figure::Queued(time) => metrics.queued.observe(time.as_secs_f64()),
            Figure::FirstToken(time) => {
                metrics.first_token.observe(time.as_secs_f64());
                health.note_first_token();
            }
            Figure::NextToken(gap) => metrics.gap.observe(gap.as_secs_f64()),
            Figure::Pass(pass, time) => metrics.note_pass(pass, time),
            Figure::End(reply) => metrics.note_end(reply),
            Figure::Cancelled(replies) => {
                metrics.cancelled.inc_by(replies as u64);
            }
            Figure::Waiting(replies) => {
                metrics.waiting.set(replies as i64);
            }
            Figure::Second(core, meter) => self.publish(core, meter),
        }
    }
}

impl ModelOwner for ServedModel<'_> {
    fn load(&self) -> Result<Option<(ModelWithDrafts, CoreSettings)>> {
        let progress = Arc::new(Progress::new(self.cancel.clone()));
        self.service.progress.set(progress.clone());
        let mut loaded = (self.load)(&progress)?;
        let (schedule, hardware) = (loaded.executor.schedule(), loaded.executor.hardware());
        let model = match self.loaded.text.get() {
            Some(model) if Identity::new(self.files, schedule, hardware)? != model.identity => return Ok(None),
            Some(model) => model,
            None => {
                (self.send)(ServerEvent::Loaded(loaded.executor.device().to_owned()));
                let model = Arc::new(loaded.take_text(self.id, self.files)?);
                self.loaded.text.get_or_init(|| model)
            }
        };
        let LoadedExecutor { mut executor, draft, .. } = loaded;
        if !executor.is_on_cpu() {
            self.begin(Phase::Tuning);
        }
        self.loaded.read_ceiling.set(executor.measure_read_ceiling()?);
        let energy = EnergyMeter::start(&Files::system(), !executor.is_on_cpu());
        self.loaded.energy.replace(energy.map(|meter| (meter.mark(), meter, 0)));
        self.loaded.offload_failures.set(0);
        let settings = &self.service.settings;
        let drafts = Drafts::new(settings.drafted, settings.draft_text.as_deref(), &model.tokenizer)?;
        self.begin(Phase::WarmingUp { has_prompt: self.service.system.get().is_some() });
        let kept = settings.prefix_bytes.unwrap_or(u64::MAX);
        Ok(Some(((executor, draft), CoreSettings { gap: Some(settings.gap), kept, drafts })))
    }

    /// A first question. Of a system prompt, the beginning that it shares with another question is kept, with one more
    /// token.
    fn first_prompt(&self) -> Result<Option<FirstPrompt<'_>>> {
        let Some(model) = self.loaded.text.get() else { return Ok(None) };
        let system = self.service.system.get();
        let encode = |question: &str| encode_first(model, system.as_deref(), question);
        let tokens = encode("Hello")?;
        let common = match &system {
            Some(_) => tokens.iter().zip(&encode("Why?")?).take_while(|(a, b)| a == b).count() + 1,
            None => 0,
        };
        Ok(Some(FirstPrompt { side: model.target(), tokens, common }))
    }

    fn prefix_file(&self) -> Option<(&PrefixFile, Identity)> {
        self.prefix_file.zip(self.loaded.text.get().map(|model| model.identity))
    }
}

/// Loads a model and answers once, without accepting connections. Also checks that the file of prefixes can be written,
/// and that places reachable from other machines have keys. Returns the model and the time taken.
///
/// # Errors
/// As [`super::server::serve`].
pub fn check(setup: &Setup, cancel: Cancel) -> Result<(Arc<Model>, Duration)> {
    let start = Instant::now();
    setup.settings.prefix_file.as_deref().map_or(Ok(()), PrefixFile::try_out)?;
    setup.listen.iter().try_for_each(|at| at.check(&setup.guard))?;
    Listen::check_keys(&setup.listen, &setup.guard)?;
    let service = &Service::new(setup.settings.clone());
    let (Setup { files, load, .. }, send, loaded) = (setup, &|_| (), LoadedState::default());
    let model = ServedModel { id: 1, files, load, service, prefix_file: None, cancel, send, loaded };
    let thread = Rc::new(model).thread();
    let (core, _) = thread.start()?;
    thread.owner.publish_ready(&core, false);
    Ok((service.model()?, start.elapsed()))
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
