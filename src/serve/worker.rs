//! The engine's loop under the server: loads drafts and prefixes, and publishes the loop's figures.

use super::health::Phase;
use super::load::LoadedExecutor;
use super::model::Model;
use super::service::Service;
use crate::Result;
use crate::diagnose::energy::{EnergyMark, EnergyMeter};
use crate::engine::core::{Core, CoreSettings, EngineMonitor, Figure};
use crate::executor::offload::OffloadedPasses;
use crate::executor::{ExecutorExt, Measure};
use crate::machine::files::Files;
use crate::sequence::draft::Drafts;
use crate::sequence::meter::DecodeMeter;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Publishes the figures of a model's engine in the server's metrics and health.
struct ServiceMonitor<'a> {
    service: &'a Service,
    model: &'a Model,
    /// `None` if no energy can be read.
    spent: RefCell<Option<EnergyUse>>,
    /// The offload's failures published so far.
    offload_failures: Cell<u32>,
}

/// The energy meter's state.
struct EnergyUse {
    meter: EnergyMeter,
    /// The reading at the last publication.
    mark: EnergyMark,
    /// Tokens decoded since then.
    tokens: usize,
}

impl ServiceMonitor<'_> {
    /// Publishes the offload for attention, which may change while the model answers and between loads.
    fn publish_offload(&self, executor: &dyn Measure) {
        let ServiceMonitor { service, model, .. } = self;
        model.device.set(executor.device());
        let attends = executor.offload().map_or(OffloadedPasses::NONE, |offload| offload.attends);
        service.while_current(model.id, || service.metrics.set_attends(attends));
    }

    /// Publishes the rates of the last second, and the resources in use.
    fn publish(&self, core: &Core<'_>, meter: &DecodeMeter) {
        let (Service { metrics, .. }, executor) = (self.service, core.executor.as_ref());
        let slots = core.slots();
        let running = slots.iter().flatten().count();
        self.service.slots.set(slots);
        metrics.publish(meter, running, executor.pages(), core.batch.kept_bytes(executor));
        let failures = executor.offload().map_or(0, |offload| offload.failures);
        metrics.note_offload_failures(failures.saturating_sub(self.offload_failures.replace(failures)));
        self.publish_offload(executor);
        if let Some(EnergyUse { meter: energy, mark, tokens }) = self.spent.borrow_mut().as_mut() {
            *tokens += meter.tokens;
            let now = energy.mark();
            if let Some(used) = now.since(*mark) {
                metrics.add_energy(used, *tokens);
                (*mark, *tokens) = (now, 0);
            }
        }
    }
}

impl EngineMonitor for ServiceMonitor<'_> {
    fn note(&self, figure: Figure<'_>) {
        let Service { metrics, health, .. } = self.service;
        match figure {
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

/// Runs the jobs of one model.
pub(super) struct Worker<'a> {
    pub(super) core: Core<'a>,
    monitor: Rc<ServiceMonitor<'a>>,
    /// The device's best read rate, in bytes per second.
    read_ceiling: f64,
}

impl<'a> Worker<'a> {
    /// A worker without jobs.
    ///
    /// # Errors
    /// Device: it failed while its read rate was measured. Input: the tokenizer cannot encode the text for drafts.
    pub fn new(service: &'a Service, model: &'a Model, loaded: LoadedExecutor) -> Result<Worker<'a>> {
        let LoadedExecutor { mut executor, draft, text: _ } = loaded;
        let read_ceiling = executor.measure_read_ceiling()?;
        let settings = &service.settings;
        let drafts = Drafts::new(settings.drafted, settings.draft_text.as_deref(), &model.tokenizer)?;
        let energy = EnergyMeter::start(&Files::system(), !executor.is_on_cpu());
        let spent = energy.map(|meter| EnergyUse { mark: meter.mark(), meter, tokens: 0 });
        let monitor = Rc::new(ServiceMonitor { service, model, spent: spent.into(), offload_failures: Cell::new(0) });
        let kept = settings.prefix_bytes.unwrap_or(u64::MAX);
        let settings = CoreSettings { gap: Some(settings.gap), kept, drafts };
        let core = Core::new(&service.engine, model.id, executor, draft, settings, monitor.clone());
        Ok(Worker { core, monitor, read_ceiling })
    }

    /// Records that the model is loaded and answers, if it is still the current one. Before it becomes current, metrics
    /// and health describe its predecessor.
    pub fn note_ready(&self) {
        let (ServiceMonitor { service, model, .. }, executor) = (self.monitor.as_ref(), &self.core.executor);
        self.monitor.publish_offload(executor.as_ref());
        service.while_current(model.id, || {
            service.metrics.set_model(executor.schedule(), self.read_ceiling, service.settings.prefix_bytes);
            service.metrics.set_placements(executor.placements());
            service.health.enter(Phase::Ready);
        });
    }
}
