//! The engine's handle: the queue of jobs that wait for a slot, bounded, and fair among clients.
//!
//! A client may have as many jobs in it as the queue is long, as far as it leaves as much to the others. All clients
//! together have twice the queue's length: a client that fills its part leaves the same to the others, and the next one
//! half of that.

use super::core::Core;
use super::deadline::{after, later};
use super::request::{Abandoned, Client, EngineError, Event, Job, Recipient, Replies, Request};
use crate::Error;
use crate::sequence::{Chooser, Reply, SequenceLimits, SequenceRequest};
use crate::text::{SamplerConfig, Tokenizer};
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The longest time after which a client is asked to retry when the queue is full.
const LONGEST_RETRY: f64 = 120.0;

/// Work to be done by the engine's thread between two passes. It is dropped undone if the engine has ended.
pub(crate) type Errand = Box<dyn FnOnce(&mut Core<'_>) + Send>;

/// The state of a reload: loading the model that is to replace the current one.
#[derive(Debug, Clone, Default)]
pub(crate) enum Takeover {
    /// The model is not being replaced.
    #[default]
    None,
    /// A new model is being loaded.
    UnderWay,
    /// The new model could not be loaded.
    Failed(Error),
}

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The most waiting replies of one client, at least 1.
    pub queue: usize,
    /// The longest time of a reply, including the time in the queue.
    pub deadline: Option<Duration>,
    /// The time without an event after which a wait for replies reports [`super::request::Event::Idle`].
    pub heartbeat: Duration,
}

/// Facts about a loaded model that requests are checked and read by: limits, tokenizer and stop tokens.
#[derive(Clone, Copy)]
pub struct ModelSide<'a> {
    /// The number of the model in this process.
    pub model: u64,
    /// The limits of the model's sequences.
    pub limits: SequenceLimits<'a>,
    /// The tokenizer that turns replies into text. `None`: replies have ids alone.
    pub tokenizer: Option<&'a Tokenizer>,
    /// The tokens that end a reply.
    pub stops: &'a [u32],
}

/// A handle of an engine: takes requests from any thread. Clones are the same engine.
#[derive(Clone)]
pub struct EngineHandle(Arc<Shared>);

/// The waiting jobs. Callers push them, and the engine's thread takes them.
struct Shared {
    settings: EngineSettings,
    state: Mutex<QueueState>,
    /// Notified when a job arrives, the queue closes, or a reload ends.
    changed: Condvar,
    /// The error with which the engine has failed.
    failure: OnceLock<Error>,
}

#[derive(Default)]
struct QueueState {
    /// The jobs that wait for a slot, in order of arrival.
    waiting: VecDeque<Job>,
    /// Work other than replies for an engine's thread, each with the number of the model that it is for.
    errands: Vec<(u64, Errand)>,
    /// The error for new jobs after the queue was closed.
    closed: Option<EngineError>,
    /// The current model. Its predecessor finishes its own jobs and ends.
    current: u64,
    /// The state of the replacement of the model.
    takeover: Takeover,
    /// Free slots of the current model. As many jobs are only passing through the queue.
    free_slots: usize,
    /// Models whose engines have ended, with the error for their jobs.
    ended: Vec<(u64, EngineError)>,
    /// Smoothed seconds between the ends of two jobs while others wait; 0 before the first.
    pace: f64,
    last_end: Option<Instant>,
}

impl EngineHandle {
    /// An engine without a model. A [`Core`] answers its requests.
    pub fn new(settings: EngineSettings) -> EngineHandle {
        let (state, changed) = (Mutex::default(), Condvar::new());
        EngineHandle(Arc::new(Shared { settings, state, changed, failure: OnceLock::new() }))
    }

    /// The time after which a client is sent a heartbeat ([`EngineSettings::heartbeat`]).
    pub(super) fn heartbeat(&self) -> Duration {
        self.0.settings.heartbeat
    }

    /// True if a request that came at `since` has passed its deadline.
    pub fn is_late(&self, since: Instant) -> bool {
        self.0.settings.deadline.is_some_and(|deadline| since.elapsed() >= deadline)
    }

    /// Puts requests into the queue, all or none. Their replies are numbered consecutively. `abandoned` tells whether
    /// the client is gone, and the deadline counts from `since`.
    ///
    /// # Errors
    /// A setting or a prompt is wrong, there is no room, or the engine stops.
    pub fn submit(
        &self,
        target: ModelSide<'_>,
        requests: &[Request],
        client: Client,
        abandoned: Abandoned,
        since: Instant,
    ) -> Result<Replies, EngineError> {
        let mut replies = Replies::of(self);
        self.add(&mut replies, target, requests, client, abandoned, since)?;
        Ok(replies.complete())
    }

    /// As [`EngineHandle::submit`], for a request of this program.
    ///
    /// # Errors
    /// As [`EngineHandle::submit`].
    pub(crate) fn ask(&self, target: ModelSide<'_>, request: Request) -> Result<Replies, EngineError> {
        self.submit(target, &[request], Client::Program, Arc::new(|| false), Instant::now())
    }

    /// As [`EngineHandle::submit`], for further replies beside earlier ones. Returns the number of the first.
    ///
    /// # Errors
    /// As [`EngineHandle::submit`].
    pub(super) fn add(
        &self,
        replies: &mut Replies,
        target: ModelSide<'_>,
        requests: &[Request],
        client: Client,
        abandoned: Abandoned,
        since: Instant,
    ) -> Result<usize, EngineError> {
        for request in requests {
            target.limits.check(0, &request.prompt).map_err(EngineError::Prompt)?;
        }
        let (held, first) = (Arc::downgrade(&replies.waits), replies.count);
        let events = replies.sender.as_ref().ok_or(EngineError::Dropped)?.clone();
        let abandoned: Abandoned = Arc::new(move || held.strong_count() == 0 || abandoned());
        let job = |choice: usize, (ask, own): (&Request, usize)| {
            let seed = ask.sampler.seed.map(|seed| seed.wrapping_add(own as u64));
            let shape = target.limits.shape;
            let mut sampler = SamplerConfig { seed, ..ask.sampler.clone() };
            sampler.forbid(&shape.suppressed);
            let mut chooser = match &ask.chooser {
                Some(chooser) => chooser.clone(),
                None => Chooser::new(sampler, shape.vocab)?,
            };
            // The last token needs no position.
            let limit = ask.limit.min(target.limits.context - ask.prompt.len() + 1);
            if let Some(guide) = &ask.guide {
                chooser = guide(chooser)?;
            }
            let ignores_stops = ask.scores || ask.ignore_eos && ask.guide.is_none();
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
                stops: if ignores_stops { Vec::new() } else { target.stops.to_vec() },
                limit: limit + given.len(),
                reuse: ask.reuse,
            };
            let reply = target.tokenizer.map(|tokenizer| Reply::new(tokenizer, &ask.stop)).transpose()?;
            let recipient = Recipient {
                model: target.model,
                choice: first + choice,
                given: given.len(),
                reply: reply.map(|reply| reply.going_on(&ask.begun, ask.calls.clone())),
                client,
                abandoned: abandoned.clone(),
                since,
                deadline: self.0.settings.deadline.map(|deadline| later(since, deadline)),
                events: events.clone(),
            };
            Ok(Job { request, recipient })
        };
        let all = requests.iter().flat_map(|ask| (0..ask.choices).map(move |own| (ask, own)));
        let jobs = all.enumerate().map(|(choice, of)| job(choice, of)).collect::<crate::Result<Vec<Job>>>();
        let jobs = jobs.map_err(EngineError::Reply)?;
        let count = jobs.len();
        self.push(jobs)?;
        (replies.count, replies.left) = (replies.count + count, replies.left + count);
        Ok(first)
    }

    /// Runs a function on the engine's thread between two passes, and waits for its result.
    ///
    /// # Errors
    /// The engine has ended, or ends before it runs the function.
    pub fn run<T: Send + 'static>(
        &self,
        model: u64,
        work: impl FnOnce(&mut Core<'_>) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (give, given) = channel();
        self.send(model, Box::new(move |core| drop(give.send(work(core)))))?;
        // A function that panics is dropped before the engine has failed.
        let dropped = || self.state().closed.clone().unwrap_or(EngineError::Dropped);
        given.recv().map_err(|_| self.failure().map_or_else(dropped, EngineError::Failed))
    }

    /// The error with which the engine has failed.
    pub fn failure(&self) -> Option<Error> {
        self.0.failure.get().cloned()
    }

    /// Records that the engine of `model` has ended, by `failure` or because another took over. Waiting and later
    /// requests for it are notified: a request may have been parsed for one model and pushed after another has taken
    /// over.
    pub(crate) fn end_model(&self, model: u64, failure: Option<&Error>) {
        let e = failure.map_or(EngineError::Replaced, |e| EngineError::Failed(e.clone()));
        let mut state = self.state();
        state.ended.push((model, e.clone()));
        let jobs = state.clear(model);
        debug_assert!(!state.waits_for(model), "work is left for a model that has ended");
        drop(state);
        jobs.iter().for_each(|job| job.recipient.send(Event::Failed(e.clone())));
    }

    /// Refuses the waiting requests for `model`, which may be loaded again later.
    pub(crate) fn turn_away(&self, model: u64, e: &EngineError) {
        let jobs = self.state().clear(model);
        jobs.iter().for_each(|job| job.recipient.send(Event::Failed(e.clone())));
    }

    /// Records that the engine has failed: all requests are refused from now on, and waiting ones are notified.
    pub(crate) fn fail(&self, e: &Error) {
        // The first failure is the one that ended the engine.
        let e = EngineError::Failed(self.0.failure.get_or_init(|| e.clone()).clone());
        self.close(e.clone());
        self.drain().iter().for_each(|job| job.recipient.send(Event::Failed(e.clone())));
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // A panic leaves no inconsistent state: no call panics between two changes.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of jobs that wait in the queue.
    pub(crate) fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Adds all jobs of a request, or none.
    ///
    /// # Errors
    /// There is no room, or the engine stops. If the model's engine has ended, the error for its jobs.
    pub(crate) fn push(&self, jobs: Vec<Job>) -> Result<(), EngineError> {
        let mut state = self.state();
        jobs.iter().try_for_each(|job| state.check_open(job.recipient.model))?;
        state.admit(&jobs, self.0.settings.queue.max(1))?;
        let one = |job: &Job| (job.recipient.client, job.recipient.model);
        debug_assert!(jobs.windows(2).all(|pair| one(&pair[0]) == one(&pair[1])), "jobs of several requests");
        state.waiting.extend(jobs);
        self.0.changed.notify_all();
        Ok(())
    }

    /// Adds an errand for `model`.
    ///
    /// # Errors
    /// As [`EngineHandle::push`], but an errand always has room.
    pub(crate) fn send(&self, model: u64, errand: Errand) -> Result<(), EngineError> {
        let mut state = self.state();
        state.check_open(model)?;
        state.errands.push((model, errand));
        self.0.changed.notify_all();
        Ok(())
    }

    /// Takes the errands for the engine of `model`, oldest first.
    pub(crate) fn take_errands(&self, model: u64) -> Vec<Errand> {
        let mut state = self.state();
        state.errands.extract_if(.., |(of, _)| *of == model).map(|(_, errand)| errand).collect()
    }

    /// The next job for `model`: the oldest one of the client with the fewest replies by `count`. Returns that number,
    /// and the time since when the job waits.
    pub(crate) fn next(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<(usize, Instant)> {
        let state = self.state();
        state
            .next(model, &count)
            .map(|at| (count(state.waiting[at].recipient.client), state.waiting[at].recipient.since))
    }

    /// Takes the job that [`EngineHandle::next`] returns.
    pub(crate) fn take(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<Job> {
        let mut state = self.state();
        let at = state.next(model, &count)?;
        state.free_slots = state.free_slots.saturating_sub(1);
        state.waiting.remove(at)
    }

    /// Sets the number of free slots of `model`.
    pub(crate) fn set_free_slots(&self, model: u64, free_slots: usize) {
        let mut state = self.state();
        if state.current == model {
            state.free_slots = free_slots;
        }
    }

    /// Removes jobs whose client is gone, and jobs whose deadline has passed, which get an event. Returns their number.
    pub(crate) fn sweep(&self) -> usize {
        let now = Instant::now();
        let mut state = self.state();
        let before = state.waiting.len();
        state.waiting.retain(|Job { recipient, .. }| {
            if recipient.is_late(now) {
                recipient.send(recipient.late());
                return false;
            }
            !recipient.is_abandoned()
        });
        before - state.waiting.len()
    }

    /// Waits until there are jobs or errands for `model` or `time` has passed. Returns false if it gets no more jobs.
    pub(crate) fn wait(&self, model: u64, time: Duration) -> bool {
        let deadline = after(time);
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.waits_for(model) {
                return true;
            }
            // Before the time: an engine that tunes asks with none.
            if state.current != model || state.closed.is_some() {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records the end of a running job. The rate of ends predicts when there will be room.
    pub(crate) fn note_end(&self) {
        let mut state = self.state();
        let now = Instant::now();
        if let Some(last) = state.last_end.filter(|_| !state.waiting.is_empty()) {
            let seconds = (now - last).as_secs_f64();
            state.pace = if state.pace == 0.0 { seconds } else { 0.9 * state.pace + 0.1 * seconds };
        }
        state.last_end = Some(now);
    }

    /// True if `model` is the one that new requests go to.
    pub(super) fn is_current(&self, model: u64) -> bool {
        self.state().current == model
    }

    /// Makes `model` the one that new requests go to.
    pub(crate) fn hand_to(&self, model: u64) {
        let mut state = self.state();
        (state.current, state.free_slots) = (model, 0);
        drop(state);
        self.0.changed.notify_all();
    }

    /// Waits until there is work for the unloaded `model` and no reload is in progress, since both may not fit in
    /// memory. Returns false if another model has taken over or the queue is closed.
    pub(crate) fn wait_for_some(&self, model: u64) -> bool {
        let mut state = self.state();
        while state.is_open_for(model) {
            if state.waits_for(model) && !state.is_under_way() {
                return true;
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        false
    }

    /// Sets the state of the replacement, and wakes the engines.
    pub(crate) fn set_takeover(&self, takeover: Takeover) {
        self.state().takeover = takeover;
        self.0.changed.notify_all();
    }

    /// Waits for the end of a reload that replaces `model`. Returns its error if it failed.
    pub(crate) fn wait_for_takeover(&self, model: u64) -> Option<Error> {
        let mut state = self.state();
        while state.is_open_for(model) && state.is_under_way() {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.takeover {
            Takeover::Failed(e) if state.is_open_for(model) => Some(e.clone()),
            _ => None,
        }
    }

    /// Refuses new jobs with `e` from now on. Waiting jobs stay.
    pub(crate) fn close(&self, e: EngineError) {
        self.state().closed.get_or_insert(e);
        self.0.changed.notify_all();
    }

    /// Empties the queue, and returns its jobs, so that their clients can be told.
    pub(crate) fn drain(&self) -> Vec<Job> {
        let mut state = self.state();
        state.errands.clear();
        state.waiting.drain(..).collect()
    }
}

impl QueueState {
    /// # Errors
    /// The error for jobs of `model`, if the queue is closed or its engine has ended.
    fn check_open(&self, model: u64) -> Result<(), EngineError> {
        let ended = || self.ended.iter().find(|(of, _)| *of == model).map(|(_, e)| e);
        self.closed.as_ref().or_else(ended).map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Takes all jobs for `model`, and drops its errands.
    fn clear(&mut self, model: u64) -> Vec<Job> {
        self.errands.retain(|(of, _)| *of != model);
        let (of_it, others) = self.waiting.drain(..).partition::<VecDeque<Job>, _>(|job| job.recipient.model == model);
        self.waiting = others;
        of_it.into()
    }

    /// True if new requests go to `model`, and the queue is not closed.
    fn is_open_for(&self, model: u64) -> bool {
        self.current == model && self.closed.is_none()
    }

    fn is_under_way(&self) -> bool {
        matches!(self.takeover, Takeover::UnderWay)
    }

    /// True if jobs or errands for `model` are in the queue.
    fn waits_for(&self, model: u64) -> bool {
        self.waiting.iter().any(|job| job.recipient.model == model) || self.errands.iter().any(|(of, _)| *of == model)
    }

    /// The index of the next job for `model`.
    fn next(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<usize> {
        let own = self.waiting.iter().enumerate().filter(|(_, job)| job.recipient.model == model);
        own.min_by_key(|(_, job)| count(job.recipient.client)).map(|(at, _)| at)
    }

    /// Whether there is room for a request's jobs, with at most `most` per client.
    ///
    /// # Errors
    /// There is no room.
    fn admit(&self, jobs: &[Job], most: usize) -> Result<(), EngineError> {
        let Some(client) = jobs.first().map(|job| job.recipient.client) else { return Ok(()) };
        let mut waiting = HashMap::<Client, usize>::new();
        // The first jobs have a free slot and are only passing through.
        for job in self.waiting.iter().skip(self.free_slots) {
            *waiting.entry(job.recipient.client).or_default() += 1;
        }
        let own = waiting.get(&client).copied().unwrap_or(0);
        let all: usize = waiting.values().map(|&count| count.min(most)).sum();
        let wait = jobs.len().saturating_sub(self.free_slots.saturating_sub(self.waiting.len()));
        // A request larger than the queue may wait alone; it does not count for others' room.
        if wait == 0 || waiting.is_empty() || own + wait <= most.saturating_mul(2).saturating_sub(all) {
            return Ok(());
        }
        let retry = (self.waiting.len() as f64 * self.pace).clamp(1.0, LONGEST_RETRY).ceil();
        let message = match own {
            0 => format!("{} replies wait already, as many as may", self.waiting.len()),
            own => {
                format!("{own} replies of this client wait already, and {} in all, as many as may", self.waiting.len())
            }
        };
        Err(EngineError::Full { message, retry: retry as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn an_errand_is_its_models_and_whoever_waits_for_it_is_told_of_its_end() {
        let queue = EngineHandle::new(EngineSettings { queue: 1, deadline: None, heartbeat: Duration::MAX });
        let (sender, receiver) = channel();
        let errand = |model| {
            let sender = sender.clone();
            queue.send(model, Box::new(move |_| sender.send(model).unwrap()))
        };
        errand(1).unwrap();
        errand(2).unwrap();
        assert!(queue.wait(1, Duration::from_secs(60)));
        assert_eq!((queue.take_errands(2).len(), queue.take_errands(2).len()), (1, 0));
        queue.end_model(1, None);
        assert!(queue.take_errands(1).is_empty());
        assert_eq!(errand(1).unwrap_err(), EngineError::Replaced);
        errand(3).unwrap();
        queue.close(EngineError::Dropped);
        assert_eq!(errand(3).unwrap_err(), EngineError::Dropped);
        queue.drain();
        drop(sender);
        assert!(receiver.recv().is_err(), "dropped, and not done");
    }
}
