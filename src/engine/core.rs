//! The engine's loop: takes jobs from the queue, runs passes over all of them, and sends their events.

use super::ModelWithDrafts;
use super::chunk_pace::ChunkPace;
use super::queue::EngineHandle;
use super::request::{Client, EngineError, Event, Job, Outbox, Recipient, ReplyEnd, ReplyToken};
use super::turns::ParkedJob;
use crate::executor::{ExecutorExt, Measure};
use crate::schedule::PassShape;
use crate::sequence::draft::Drafts;
use crate::sequence::meter::DecodeMeter;
use crate::sequence::{Batch, Chooser, Finish, FinishedSequence, Generation, Reply};
use crate::text::Stopped;
use crate::{Error, Result};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest pause of an idle engine before it reports its progress again, and the interval of its reports.
const IDLE: Duration = Duration::from_secs(1);

/// Interval at which waiting jobs are checked for clients that are gone; each check costs a system call. A job that
/// becomes abandoned in between is found when its turn comes.
const SWEEP: Duration = Duration::from_millis(100);

/// The token counts of a reply in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTokens {
    /// The number of the prompt's tokens.
    pub prompt: usize,
    /// The number of tokens that the reply has so far.
    pub reply: usize,
}

/// A figure of an engine, or a new state of its model.
pub enum Figure<'a> {
    /// The model is loaded and answers.
    Ready {
        /// The engine, which has run no job yet.
        core: &'a Core<'a>,
        /// True if the model was loaded before, and unloaded since.
        again: bool,
    },
    /// The model's memory was freed after a time without requests.
    Unloaded,
    /// The model is being loaded again for a request.
    LoadingAgain,
    /// The model could not be loaded again. The waiting requests fail, and the next one tries again.
    NotLoadedAgain(&'a Error),
    /// The model's files have changed since it was loaded. Its requests wait for the model that takes over.
    Changed,
    /// A pass begins, or has ended; false: there is no work.
    Progress(bool),
    /// A reply has got a slot after this time in the queue.
    Queued(Duration),
    /// A reply's first token, this long after its request.
    FirstToken(Duration),
    /// A later token of a reply, this long after the one before.
    NextToken(Duration),
    /// A pass of this shape has ended, and took this time.
    Pass(PassShape, Duration),
    /// A reply is complete, with these tokens and times.
    End(&'a Generation),
    /// So many replies were given up by their clients, or are late.
    Cancelled(usize),
    /// The number of replies that wait for a slot.
    Waiting(usize),
    /// Reported every second, and by an idle engine: the passes since the last report.
    Second(&'a Core<'a>, &'a DecodeMeter),
}

/// Receives the figures of an engine on its thread.
pub trait EngineMonitor {
    /// Takes note of an event, such as a pass or a complete reply.
    fn note(&self, figure: Figure<'_>);
}

/// A monitor that ignores all events.
impl EngineMonitor for () {
    fn note(&self, _: Figure<'_>) {}
}

/// Settings of an engine's loop.
pub struct CoreSettings {
    /// The longest delay of other replies' next tokens by a prompt, unless a pass of a few rows takes longer. `None`:
    /// as long as a whole chunk takes.
    pub gap: Option<Duration>,
    /// The most bytes of keys and values in the cache for later prompts.
    pub kept: u64,
    /// The sources from which the batch's drafts come.
    pub drafts: Drafts,
}

/// Runs the jobs of one model.
pub struct Core<'a> {
    pub(super) engine: EngineHandle,
    /// The model's number, which its requests name.
    pub(super) model: u64,
    pub(super) monitor: Rc<dyn EngineMonitor + 'a>,
    /// The executor that runs the model's passes.
    pub executor: Box<dyn Measure>,
    /// The batch of sequences that the jobs run in.
    pub batch: Batch,
    /// The job in each slot of the batch.
    pub(crate) running: Vec<Option<RunningJob>>,
    /// Jobs that have temporarily given up their slots, in order.
    pub(super) parked: Vec<ParkedJob>,
    /// Events not yet sent; sent during the next pass.
    outbox: Rc<RefCell<Outbox>>,
    /// The lengths of prompt chunks that leave time for other replies. `None`: prompts run in chunks of full length.
    pace: Option<ChunkPace>,
    meter: DecodeMeter,
    /// The time when the figures of `meter` were last published.
    published: Instant,
    /// The time of the last sweep of the queue.
    swept: Instant,
}

/// A job whose sequence has a slot.
pub(crate) struct RunningJob {
    pub(super) recipient: Recipient,
    /// The numbers of the job's tokens so far.
    pub(crate) counts: ReplyTokens,
    pub(super) began: Instant,
    /// The time of the reply's first token in this slot.
    pub(super) turn: Option<Instant>,
    pub(super) first_token: Option<Instant>,
    pub(super) last_token: Instant,
}

impl RunningJob {
    /// Records a token from a pass that ended at `now`.
    fn note_token(&mut self, monitor: &dyn EngineMonitor, now: Instant) {
        match self.first_token {
            None => {
                monitor.note(Figure::FirstToken(now - self.recipient.since));
                self.first_token = Some(now);
            }
            Some(_) => monitor.note(Figure::NextToken(now - self.last_token)),
        }
        self.last_token = now;
        self.count_token();
        self.turn.get_or_insert(now);
    }

    /// Counts a token. Scored prompt tokens come first and do not count for the reply.
    pub(crate) fn count_token(&mut self) {
        match self.recipient.given.checked_sub(1) {
            Some(left) => self.recipient.given = left,
            None => self.counts.reply += 1,
        }
    }
}

impl<'a> Core<'a> {
    /// A loop without jobs, for the model with this number.
    pub fn new(
        engine: &EngineHandle,
        model: u64,
        (executor, draft): ModelWithDrafts,
        settings: CoreSettings,
        monitor: Rc<dyn EngineMonitor + 'a>,
    ) -> Core<'a> {
        let CoreSettings { gap, kept, drafts } = settings;
        let schedule = executor.schedule();
        let mut batch = Batch::new(schedule);
        batch.set_kept(kept);
        drafts.begin(&mut batch, schedule.extent.context, draft);
        let outbox = Rc::<RefCell<Outbox>>::default();
        let meanwhile = outbox.clone();
        batch.set_meanwhile(move || meanwhile.borrow_mut().send());
        Core {
            engine: engine.clone(),
            model,
            monitor,
            batch,
            running: (0..schedule.extent.sequences).map(|_| None).collect(),
            parked: Vec::new(),
            outbox,
            pace: gap.map(|gap| ChunkPace::new(gap, executor.prefill_rows())),
            meter: DecodeMeter::default(),
            published: Instant::now(),
            swept: Instant::now(),
            executor,
        }
    }

    /// The token counts of each slot's reply.
    pub fn slots(&self) -> Vec<Option<ReplyTokens>> {
        self.running.iter().map(|running| Some(running.as_ref()?.counts)).collect()
    }

    /// Runs jobs until no more will come for this model, or none has come for the time `idle`. Returns whether more may
    /// come.
    ///
    /// # Errors
    /// Device: it failed. Waiting clients are notified.
    pub fn run(&mut self, idle: Duration) -> Result<bool> {
        let mut busy = Instant::now();
        loop {
            if self.swept.elapsed() >= SWEEP {
                self.swept = Instant::now();
                self.monitor.note(Figure::Cancelled(self.engine.sweep()));
            }
            for errand in self.engine.take_errands(self.model) {
                busy = Instant::now();
                errand(self);
            }
            if self.turn()? {
                busy = Instant::now();
                continue;
            }
            self.send();
            self.monitor.note(Figure::Progress(false));
            self.publish();
            if busy.elapsed() >= idle {
                return Ok(true);
            }
            // While there is no work, the device tunes kernels for later passes.
            let pause = match self.executor.improve() {
                // The flag ended a reply.
                Err(Error::Interrupted { .. }) => IDLE,
                pause => pause?.unwrap_or(IDLE).min(IDLE),
            };
            if !self.engine.wait(self.model, pause.min(idle)) {
                return Ok(false);
            }
        }
    }

    /// Runs a pass of the jobs in the queue and the slots. Returns `false` if there are none.
    ///
    /// # Errors
    /// As [`Core::run`].
    pub(super) fn turn(&mut self) -> Result<bool> {
        // First: a job that waits gets the slot of one that is gone.
        self.drop_abandoned();
        self.admit();
        let has_work = !self.batch.is_empty();
        if has_work {
            self.step_batch().inspect_err(|e| self.fail_all(e))?;
        }
        Ok(has_work)
    }

    /// Sends the events that were collected since the last call to their recipients.
    pub(super) fn send(&self) {
        self.outbox.borrow_mut().send();
    }

    /// Puts a job into a free slot.
    pub(super) fn begin(&mut self, Job { request, recipient }: Job) {
        let counts = ReplyTokens { prompt: request.prompt.len() + recipient.given, reply: 0 };
        let now = Instant::now();
        self.monitor.note(Figure::Queued(now - recipient.since));
        match self.batch.join_of(self.executor.as_mut(), request, recipient.client.owner()) {
            Ok(slot) => {
                self.running[slot] =
                    Some(RunningJob { recipient, counts, began: now, turn: None, first_token: None, last_token: now })
            }
            Err(e) => recipient.send(Event::Failed(EngineError::Reply(e))),
        }
    }

    /// Ends jobs whose client is gone, and those whose deadline has passed.
    fn drop_abandoned(&mut self) {
        let now = Instant::now();
        let Core { monitor, outbox, .. } = self;
        let is_over = |recipient: &Recipient| {
            let is_late = recipient.is_late(now);
            if is_late {
                outbox.borrow_mut().add(recipient, recipient.late());
            }
            let is_over = is_late || recipient.is_abandoned();
            if is_over {
                monitor.note(Figure::Cancelled(1));
            }
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
    fn step_batch(&mut self) -> Result<()> {
        let Core { monitor, running, batch, executor, outbox, pace, .. } = self;
        monitor.note(Figure::Progress(true));
        if let Some(pace) = pace {
            batch.set_chunk(pace.rows());
        }
        let start = Instant::now();
        let mut done = None;
        batch.step(executor.as_mut(), &mut |slot, id, chooser| {
            let Some(running) = &mut running[slot] else { return ControlFlow::Break(Finish::Interrupted) };
            running.note_token(monitor.as_ref(), *done.get_or_insert_with(Instant::now));
            let RunningJob { recipient, .. } = running;
            let (mut text, mut thought, mut stopped) = (String::new(), String::new(), Stopped::No);
            if let Some(reply) = &mut recipient.reply {
                let (piece, found) = reply.push(id);
                (text, stopped) = (piece.to_owned(), found);
                thought = reply.take_thought();
            }
            let token = ReplyToken { id, text, thought, likelihood: chooser.take_likelihood() };
            outbox.borrow_mut().add(recipient, Event::Token(token));
            match stopped {
                Stopped::Yes => ControlFlow::Break(Finish::Stop),
                Stopped::No => ControlFlow::Continue(()),
            }
        })?;
        let time = start.elapsed();
        self.monitor.note(Figure::Progress(true));
        self.meter.add(&self.batch, self.executor.as_ref(), time);
        if let Some(pass) = self.batch.last_pass() {
            if let Some(pace) = &mut self.pace {
                pace.note(pass, time);
            }
            self.monitor.note(Figure::Pass(pass, time));
        }
        while let Some(ended) = self.batch.take_ended() {
            self.end(ended);
        }
        if self.published.elapsed() >= IDLE {
            self.publish();
        }
        Ok(())
    }

    fn end(&mut self, ended: FinishedSequence) {
        let Some(mut running) = self.running[ended.slot].take() else { return };
        self.engine.note_end();
        let event = match ended.reply {
            // A pass is interrupted by this program, which takes the tokens so far, or by a failure.
            Ok(g) if g.finish == Finish::Interrupted && running.recipient.client != Client::Program => {
                Event::Failed(EngineError::Dropped)
            }
            Ok(generation) => Event::End(Box::new(self.end_of(&mut running, generation, ended.chooser))),
            Err(e) => Event::Failed(EngineError::Reply(e)),
        };
        self.outbox.borrow_mut().add(&running.recipient, event);
    }

    fn end_of(&self, running: &mut RunningJob, generation: Generation, chooser: Chooser) -> ReplyEnd {
        let first = running.first_token.unwrap_or(running.last_token);
        self.monitor.note(Figure::End(&generation));
        let reply = &mut running.recipient.reply;
        ReplyEnd {
            text: reply.as_mut().map(|reply| reply.finish().to_owned()).unwrap_or_default(),
            thought_tokens: reply.as_ref().map_or(0, Reply::thought_tokens),
            stop: reply.as_ref().and_then(|reply| reply.stopped_by()).map(str::to_owned),
            generation,
            queued: running.began - running.recipient.since,
            prefill: first - running.began,
            decode: running.last_token - first,
            chooser,
        }
    }

    /// Sends the failure to all running and parked jobs.
    fn fail_all(&mut self, e: &Error) {
        let parked = self.parked.drain(..).map(|parked| parked.running);
        let all = self.running.iter_mut().filter_map(Option::take).chain(parked);
        let mut outbox = self.outbox.borrow_mut();
        all.for_each(|running| outbox.add(&running.recipient, Event::Failed(EngineError::Reply(e.clone()))));
        outbox.send();
    }

    /// Reports the passes since the last call to the monitor.
    pub fn publish(&mut self) {
        let meter = std::mem::take(&mut self.meter);
        self.monitor.note(Figure::Second(self, &meter));
        self.published = Instant::now();
    }
}
