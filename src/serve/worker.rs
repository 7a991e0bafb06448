//! The engine's main loop: takes jobs from the queue, runs passes over all of them, and sends their events.

use super::health::Phase;
use super::http::Client;
use super::job::{Event, Job, Outbox, Recipient, ReplyEnd, ReplyToken};
use super::load::LoadedExecutor;
use super::model::Model;
use super::pace::ChunkPace;
use super::places::ParkedJob;
use super::prefixes::PrefixFile;
use super::queue::QueuePoll;
use super::service::{ReplyTokens, Service};
use crate::diagnose::energy::{EnergyMark, EnergyMeter};
use crate::executor::Measure;
use crate::executor::guest::GuestPasses;
use crate::machine::files::Files;
use crate::sequence::draft::Drafts;
use crate::sequence::meter::DecodeMeter;
use crate::sequence::{Batch, Finish, FinishedSequence, Generation};
use crate::text::Stopped;
use crate::{Error, Result};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest pause of an idle worker before it reports its health again.
const IDLE: Duration = Duration::from_secs(1);

/// Interval at which waiting jobs are checked for clients that are gone; each check costs a system call. A job that
/// becomes abandoned in between is found when its turn comes.
const SWEEP: Duration = Duration::from_millis(100);

/// Runs the jobs of one model.
pub(super) struct Worker<'a> {
    pub(super) service: &'a Service,
    pub(super) model: &'a Model,
    pub(super) executor: Box<dyn Measure>,
    pub(super) batch: Batch,
    /// The job in each slot of the batch.
    pub(super) running: Vec<Option<RunningJob>>,
    /// Jobs that have temporarily given up their slots, in order.
    pub(super) parked: Vec<ParkedJob>,
    /// Events not yet sent. They are sent during the next pass, or after the pass if all sequences are greedy.
    outbox: Rc<RefCell<Outbox>>,
    pace: ChunkPace,
    meter: DecodeMeter,
    /// The device's best read rate, in bytes per second.
    read_ceiling: f64,
    /// `None` if no energy can be read.
    spent: Option<EnergyUse>,
    /// The guest's failures published so far.
    guest_failures: u32,
    /// The time when the rates of `meter` were last published.
    published: Instant,
    /// The time of the last sweep of the queue.
    swept: Instant,
}

/// The reason why a worker stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerRest {
    /// No more jobs will come for its model.
    End,
    /// No job came for the time in the settings.
    Idle,
}

/// A job in a slot.
pub(super) struct RunningJob {
    pub(super) recipient: Recipient,
    /// Its token counts.
    pub(super) counts: ReplyTokens,
    pub(super) began: Instant,
    /// The time of its first token in this slot.
    pub(super) turn: Option<Instant>,
    pub(super) first_token: Option<Instant>,
    pub(super) last_token: Instant,
}

/// The energy meter's state.
struct EnergyUse {
    meter: EnergyMeter,
    /// The reading at the last publication.
    mark: EnergyMark,
    /// Tokens decoded since then.
    tokens: usize,
}

impl RunningJob {
    /// Records a token from a pass that ended at `now`.
    fn note_token(&mut self, service: &Service, now: Instant) {
        match self.first_token {
            None => {
                service.metrics.first_token.observe((now - self.recipient.since).as_secs_f64());
                service.health.note_first_token();
                self.first_token = Some(now);
            }
            Some(_) => service.metrics.gap.observe((now - self.last_token).as_secs_f64()),
        }
        self.last_token = now;
        self.count_token();
        self.turn.get_or_insert(now);
    }

    /// Counts a token. Scored prompt tokens come first and do not count for the reply.
    pub(super) fn count_token(&mut self) {
        match self.recipient.given.checked_sub(1) {
            Some(left) => self.recipient.given = left,
            None => self.counts.reply += 1,
        }
    }
}

impl<'a> Worker<'a> {
    /// A worker without jobs.
    ///
    /// # Errors
    /// Device: it failed while its read rate was measured. Input: the tokenizer cannot encode the text for drafts.
    pub fn new(service: &'a Service, model: &'a Model, loaded: impl Into<LoadedExecutor>) -> Result<Worker<'a>> {
        let LoadedExecutor { mut executor, draft, text: _ } = loaded.into();
        let read_ceiling = executor.measure_read_ceiling()?;
        let schedule = executor.schedule();
        let mut batch = Batch::new(schedule);
        batch.set_kept(service.settings.prefix_bytes.unwrap_or(u64::MAX));
        let mut drafts =
            Drafts::new(service.settings.drafted, service.settings.draft_text.as_deref(), &model.tokenizer)?;
        drafts.model = draft;
        drafts.begin(&mut batch, schedule.extent.context);
        let energy = EnergyMeter::start(&Files::system(), !executor.is_on_cpu());
        let outbox = Rc::<RefCell<Outbox>>::default();
        let meanwhile = outbox.clone();
        batch.set_meanwhile(move || meanwhile.borrow_mut().send());
        Ok(Worker {
            batch,
            running: (0..schedule.extent.sequences).map(|_| None).collect(),
            parked: Vec::new(),
            outbox,
            pace: ChunkPace::new(service.settings.gap, executor.prefill_rows()),
            meter: DecodeMeter::default(),
            read_ceiling,
            spent: energy.map(|meter| EnergyUse { mark: meter.mark(), meter, tokens: 0 }),
            guest_failures: 0,
            published: Instant::now(),
            swept: Instant::now(),
            service,
            model,
            executor,
        })
    }

    /// Records that the model is loaded and answers, if it is still the current one. Before it becomes current, metrics
    /// and health describe its predecessor.
    pub fn note_ready(&self) {
        let Worker { service, model, executor, .. } = self;
        self.publish_guest();
        service.while_current(model.id, || {
            service.metrics.set_model(executor.schedule(), self.read_ceiling, service.settings.prefix_bytes);
            service.metrics.set_placements(executor.placements());
            service.health.enter(Phase::Ready);
        });
    }

    /// Runs jobs until no more will come for this model, or none has come for a long time.
    ///
    /// # Errors
    /// Device: it failed. Waiting clients are notified.
    pub fn run(&mut self) -> Result<WorkerRest> {
        let queue = &self.service.queue;
        let limit = self.service.settings.idle_unload.unwrap_or(Duration::MAX);
        let mut busy = Instant::now();
        loop {
            if self.swept.elapsed() >= SWEEP {
                self.swept = Instant::now();
                self.service.metrics.cancelled.inc_by(queue.sweep() as u64);
            }
            for errand in queue.take_errands(self.model.id) {
                busy = Instant::now();
                errand(&mut self.batch, self.executor.as_mut());
            }
            self.admit();
            if self.batch.is_empty() {
                self.outbox.borrow_mut().send();
                self.service.health.progress(false);
                self.publish();
                if busy.elapsed() >= limit {
                    return Ok(WorkerRest::Idle);
                }
                // While there is no work, the device tunes kernels for later passes.
                let pause = self.executor.improve()?.unwrap_or(IDLE).min(IDLE);
                if queue.wait(self.model.id, pause.min(limit)) == QueuePoll::Nothing {
                    return Ok(WorkerRest::End);
                }
                continue;
            }
            busy = Instant::now();
            self.drop_abandoned();
            self.run_pass().inspect_err(|e| self.fail_all(e))?;
        }
    }

    /// Runs the jobs in the queue to their end.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn run_out(&mut self) -> Result<()> {
        self.admit();
        while !self.batch.is_empty() {
            self.run_pass().inspect_err(|e| self.fail_all(e))?;
        }
        self.outbox.borrow_mut().send();
        Ok(())
    }

    /// Loads prefixes from a file.
    ///
    /// # Errors
    /// Device: it failed.
    pub fn load_prefixes(&mut self, file: &PrefixFile) -> Result<()> {
        file.load(self.model.identity, &mut self.batch, self.executor.as_mut())
    }

    /// Writes the prefixes worth keeping to a file, `first` before the others.
    ///
    /// # Errors
    /// Device: it failed.
    pub fn save_prefixes(&mut self, file: &PrefixFile, first: &[u32]) -> Result<()> {
        file.save(self.model.identity, &self.batch, first, self.executor.as_mut())
    }

    /// Puts a job into a free slot.
    pub(super) fn begin(&mut self, Job { request, recipient }: Job) {
        let counts = ReplyTokens { prompt: request.prompt.len() + recipient.given, reply: 0 };
        // The prompts of a key's holder are not found by other clients.
        let owner = match recipient.client {
            Client::Key(number) => Some(number),
            Client::Address(_) | Client::User(_) => None,
        };
        let now = Instant::now();
        self.service.metrics.queued.observe((now - recipient.since).as_secs_f64());
        match self.batch.join_of(self.executor.as_mut(), request, owner) {
            Ok(slot) => {
                self.running[slot] =
                    Some(RunningJob { recipient, counts, began: now, turn: None, first_token: None, last_token: now })
            }
            Err(e) => recipient.tell(Event::Failed((&e).into())),
        }
    }

    /// Ends jobs whose client is gone, and those whose deadline has passed.
    fn drop_abandoned(&mut self) {
        let now = Instant::now();
        let Worker { service, outbox, .. } = self;
        let is_over = |recipient: &Recipient| {
            let is_late = recipient.is_late(now);
            if is_late {
                outbox.borrow_mut().add(recipient, recipient.late());
            }
            let is_over = is_late || recipient.is_abandoned();
            service.metrics.cancelled.inc_by(u64::from(is_over));
            is_over
        };
        self.parked.retain(|parked| !is_over(&parked.running.recipient));
        for slot in 0..self.running.len() {
            if self.running[slot].take_if(|running| is_over(&running.recipient)).is_some() {
                self.batch.leave(self.executor.as_mut(), slot);
            }
        }
    }

    /// Runs one pass and collects its events.
    fn run_pass(&mut self) -> Result<()> {
        let Worker { service, running, batch, executor, outbox, .. } = self;
        service.health.progress(true);
        batch.set_chunk(self.pace.rows());
        let start = Instant::now();
        let mut done = None;
        batch.step(executor.as_mut(), &mut |slot, id, chooser| {
            let Some(running) = &mut running[slot] else { return ControlFlow::Break(Finish::Interrupted) };
            running.note_token(service, *done.get_or_insert_with(Instant::now));
            let RunningJob { recipient, .. } = running;
            let (text, stopped) = recipient.reply.push(id);
            let token = ReplyToken { id, text: text.to_owned(), likelihood: chooser.take_likelihood() };
            outbox.borrow_mut().add(recipient, Event::Token(token));
            match stopped {
                Stopped::Yes => ControlFlow::Break(Finish::Stop),
                Stopped::No => ControlFlow::Continue(()),
            }
        })?;
        let time = start.elapsed();
        self.service.health.progress(true);
        self.meter.add(&self.batch, self.executor.as_ref(), time);
        if let Some(pass) = self.batch.last_pass() {
            self.pace.note(pass, time);
            self.service.metrics.note_pass(pass, time);
        }
        while let Some(ended) = self.batch.take_ended() {
            self.end(ended);
        }
        if self.batch.is_greedy() {
            self.outbox.borrow_mut().send();
        }
        if self.published.elapsed() >= IDLE {
            self.publish();
        }
        Ok(())
    }

    fn end(&mut self, ended: FinishedSequence) {
        let Some(mut running) = self.running[ended.slot].take() else { return };
        self.service.queue.note_end();
        let event = match ended.reply {
            // Sequences are interrupted only by a fatal failure, which all clients are notified of.
            Ok(Generation { finish: Finish::Interrupted, .. }) => return,
            Ok(generation) => Event::End(self.end_of(&mut running, generation)),
            Err(e) => Event::Failed((&e).into()),
        };
        self.outbox.borrow_mut().add(&running.recipient, event);
    }

    fn end_of(&self, running: &mut RunningJob, g: Generation) -> ReplyEnd {
        let first = running.first_token.unwrap_or(running.last_token);
        self.service.metrics.note_end(&g);
        ReplyEnd {
            text: running.recipient.reply.finish().to_owned(),
            finish: g.finish,
            stop: running.recipient.reply.stopped_by().map(str::to_owned),
            prompt_tokens: g.prompt,
            cached_tokens: g.kept,
            tokens: g.tokens.len(),
            queued: running.began - running.recipient.since,
            prefill: first - running.began,
            decode: running.last_token - first,
        }
    }

    /// Sends the failure to all running and parked jobs.
    fn fail_all(&mut self, e: &Error) {
        let parked = self.parked.drain(..).map(|parked| parked.running);
        let all = self.running.iter_mut().filter_map(Option::take).chain(parked);
        let mut outbox = self.outbox.borrow_mut();
        all.for_each(|running| outbox.add(&running.recipient, Event::Failed(e.into())));
        outbox.send();
    }

    /// Publishes the guest for attention, which may change while the model answers and between loads.
    fn publish_guest(&self) {
        let Worker { service, model, executor, .. } = self;
        model.set_device(executor.device());
        let attends = executor.guest().map_or(GuestPasses::NONE, |guest| guest.attends);
        service.while_current(model.id, || service.metrics.set_attends(attends));
    }

    /// Publishes the rates since the last call, and the resources in use.
    fn publish(&mut self) {
        self.service.set_slots(self.running.iter().map(|running| Some(running.as_ref()?.counts)).collect());
        let running = self.running.iter().flatten().count();
        let kept = self.batch.kept_bytes(self.executor.as_ref());
        self.service.metrics.publish(&self.meter, running, self.executor.pages(), kept);
        let failures = self.executor.guest().map_or(0, |guest| guest.failures);
        let seen = std::mem::replace(&mut self.guest_failures, failures);
        self.service.metrics.note_guest_failures(failures.saturating_sub(seen));
        self.publish_guest();
        if let Some(EnergyUse { meter, mark, tokens }) = &mut self.spent {
            *tokens += self.meter.tokens;
            let now = meter.mark();
            if let Some(used) = now.since(*mark) {
                self.service.metrics.add_energy(used, *tokens);
                (*mark, *tokens) = (now, 0);
            }
        }
        self.meter = DecodeMeter::default();
        self.published = Instant::now();
    }
}
