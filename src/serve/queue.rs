//! Jobs that wait for a place among the running sequences: bounded, and fair among clients.
//!
//! A client may have as many jobs here as the queue is long, and as many as it leaves to others. All clients together have
//! twice the queue's length, so one that fills its part leaves as much to the others, and the next one half of that.

use super::deadline::after;
use super::http::ApiError;
use super::job::{Client, Job};
use crate::Error;
use crate::executor::Executor;
use crate::sequence::Batch;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time after which a client that found the queue full is told to come back.
const LONGEST_RETRY: f64 = 120.0;

/// What somebody wants of the cache, done by the engine's thread between two passes. Dropped, it says that the engine has
/// ended.
pub(super) type Errand = Box<dyn FnOnce(&mut Batch, &mut dyn Executor) + Send>;

/// How far the model is that is loaded anew, to take over from the one that answers.
#[derive(Debug, Clone, Default)]
pub(super) enum Takeover {
    /// None is being loaded.
    #[default]
    None,
    /// It is being loaded.
    UnderWay,
    /// It could not be loaded.
    Failed(Error),
}

/// Jobs that wait. Connections push; the engine's thread takes.
pub(super) struct JobQueue {
    /// Most jobs of one client.
    most: usize,
    state: Mutex<QueueState>,
    /// Told when a job arrives, the queue closes, or another model takes over or fails to.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// In the order of their arrival.
    waiting: VecDeque<Job>,
    /// Errands, each for a model.
    errands: Vec<(u64, Errand)>,
    /// Nothing is taken in any more, and why.
    closed: Option<ApiError>,
    /// The model that jobs are made for now. One before it does those that were made for it, and ends.
    current: u64,
    /// The model to come.
    takeover: Takeover,
    /// Places of the current model that no sequence has: as many jobs only pass through.
    places: usize,
    /// Models whose engines have ended, and what their jobs are told.
    ended: Vec<(u64, ApiError)>,
    /// Seconds between the ends of two jobs while some wait, smoothed; 0 before.
    pace: f64,
    last_end: Option<Instant>,
}

/// What the engine's thread finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuePoll {
    /// There are jobs, or the time is over.
    Jobs,
    /// No more will come for this model.
    Nothing,
}

impl JobQueue {
    /// An empty queue for `most` jobs of each client, at least 1.
    pub fn new(most: usize) -> JobQueue {
        JobQueue { most: most.max(1), state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Nothing is left half done by a panic: each call changes one field.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Adds all of a request's jobs, or none.
    ///
    /// # Errors
    /// 503: there is no room, or the server stops. What their model's jobs are told, where its engine has ended.
    pub fn push(&self, jobs: Vec<Job>) -> Result<(), ApiError> {
        let mut state = self.state();
        jobs.iter().try_for_each(|job| state.check_open(job.recipient.model))?;
        state.admit(&jobs, self.most)?;
        state.waiting.extend(jobs);
        self.changed.notify_all();
        Ok(())
    }

    /// Adds an errand for `model`.
    ///
    /// # Errors
    /// As [`JobQueue::push`], but there is always room.
    pub fn send(&self, model: u64, errand: Errand) -> Result<(), ApiError> {
        let mut state = self.state();
        state.check_open(model)?;
        state.errands.push((model, errand));
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the errands for `model`, the oldest first.
    pub fn take_errands(&self, model: u64) -> Vec<Errand> {
        let mut state = self.state();
        state.errands.extract_if(.., |(of, _)| *of == model).map(|(_, errand)| errand).collect()
    }

    /// The next job for `model`: the oldest of the client that has the fewest, by `count`. Returns that number, and since when
    /// it waits.
    pub fn next(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<(usize, Instant)> {
        let state = self.state();
        state
            .next(model, &count)
            .map(|at| (count(state.waiting[at].recipient.client), state.waiting[at].recipient.since))
    }

    /// Takes the job that [`JobQueue::next`] says.
    pub fn take(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<Job> {
        let mut state = self.state();
        let at = state.next(model, &count)?;
        state.places = state.places.saturating_sub(1);
        state.waiting.remove(at)
    }

    /// Notes how many places `model` has that no sequence has.
    pub fn set_places(&self, model: u64, places: usize) {
        let mut state = self.state();
        if state.current == model {
            state.places = places;
        }
    }

    /// Removes the jobs for which nobody waits any more, and those whose time is over. The latter are told. Returns how many
    /// they were.
    pub fn sweep(&self) -> usize {
        let now = Instant::now();
        let mut state = self.state();
        let before = state.waiting.len();
        state.waiting.retain(|Job { recipient, .. }| {
            if recipient.is_late(now) {
                recipient.tell(recipient.late());
                return false;
            }
            !recipient.is_abandoned()
        });
        before - state.waiting.len()
    }

    /// Waits until there are jobs or errands for `model` or `time` has passed.
    pub fn wait(&self, model: u64, time: Duration) -> QueuePoll {
        let deadline = after(time);
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.waits_for(model) {
                return QueuePoll::Jobs;
            }
            if state.current != model || state.closed.is_some() {
                return QueuePoll::Nothing;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes that a running job has ended: how often that happens says when there will be room.
    pub fn note_end(&self) {
        let mut state = self.state();
        let now = Instant::now();
        if let Some(last) = state.last_end.filter(|_| !state.waiting.is_empty()) {
            let seconds = (now - last).as_secs_f64();
            state.pace = if state.pace == 0.0 { seconds } else { 0.9 * state.pace + 0.1 * seconds };
        }
        state.last_end = Some(now);
    }

    /// From here on jobs are made for `model`.
    pub fn hand_to(&self, model: u64) {
        let mut state = self.state();
        (state.current, state.places) = (model, 0);
        drop(state);
        self.changed.notify_all();
    }

    /// The engine of `model` has ended: a push for it is answered by `e` from here on. Returns the jobs that wait for it, to
    /// be told. A request may be read with one model, and pushed once another has taken over.
    pub fn end(&self, model: u64, e: ApiError) -> Vec<Job> {
        let mut state = self.state();
        state.ended.push((model, e));
        state.clear(model)
    }

    /// Takes what waits for `model`, to be told why it is not done.
    pub fn clear(&self, model: u64) -> Vec<Job> {
        self.state().clear(model)
    }

    /// Waits until there is something to do for `model`, which was unloaded, and no other one is being loaded: both at once may
    /// not fit. False: another has taken over, or the queue is closed.
    pub fn wait_for_some(&self, model: u64) -> bool {
        let mut state = self.state();
        while state.is_open_for(model) {
            if state.waits_for(model) && !state.is_under_way() {
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        false
    }

    /// Notes how far the model is that is to take over.
    pub fn set_takeover(&self, takeover: Takeover) {
        self.state().takeover = takeover;
        self.changed.notify_all();
    }

    /// Waits until another has taken over from `model`, or cannot: why.
    pub fn wait_for_takeover(&self, model: u64) -> Option<Error> {
        let mut state = self.state();
        while state.is_open_for(model) && state.is_under_way() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.takeover {
            Takeover::Failed(e) if state.is_open_for(model) => Some(e.clone()),
            _ => None,
        }
    }

    /// Takes in nothing more: a push is answered by `e`. The jobs that wait stay.
    pub fn close(&self, e: ApiError) {
        self.state().closed.get_or_insert(e);
        self.changed.notify_all();
    }

    /// Takes all jobs that wait, to be told why they are not run.
    pub fn drain(&self) -> Vec<Job> {
        let mut state = self.state();
        state.errands.clear();
        state.waiting.drain(..).collect()
    }
}

impl QueueState {
    /// # Errors
    /// What jobs for `model` are told, where none are taken in any more.
    fn check_open(&self, model: u64) -> Result<(), ApiError> {
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

    /// Whether jobs for `model` are taken in, and no other has taken over from it.
    fn is_open_for(&self, model: u64) -> bool {
        self.current == model && self.closed.is_none()
    }

    fn is_under_way(&self) -> bool {
        matches!(self.takeover, Takeover::UnderWay)
    }

    /// Whether there is something to do for `model`.
    fn waits_for(&self, model: u64) -> bool {
        self.waiting.iter().any(|job| job.recipient.model == model) || self.errands.iter().any(|(of, _)| *of == model)
    }

    /// Where the next job for `model` is.
    fn next(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<usize> {
        let own = self.waiting.iter().enumerate().filter(|(_, job)| job.recipient.model == model);
        own.min_by_key(|(_, job)| count(job.recipient.client)).map(|(at, _)| at)
    }

    /// Whether there is room for a request's jobs, where each client may have `most`.
    ///
    /// # Errors
    /// 503: there is none.
    fn admit(&self, jobs: &[Job], most: usize) -> Result<(), ApiError> {
        let Some(client) = jobs.first().map(|job| job.recipient.client) else { return Ok(()) };
        let mut waiting = HashMap::<Client, usize>::new();
        // The first ones have a place, and are on their way to it.
        self.waiting.iter().skip(self.places).for_each(|job| *waiting.entry(job.recipient.client).or_default() += 1);
        let own = waiting.get(&client).copied().unwrap_or(0);
        let all: usize = waiting.values().map(|&count| count.min(most)).sum();
        let wait = jobs.len().saturating_sub(self.places.saturating_sub(self.waiting.len()));
        // One request may be larger than the queue: it waits alone. Others find room as if it were not.
        if wait == 0 || waiting.is_empty() || own + wait <= (2 * most).saturating_sub(all) {
            return Ok(());
        }
        let retry = (self.waiting.len() as f64 * self.pace).clamp(1.0, LONGEST_RETRY).ceil();
        let message = match own {
            0 => format!("{} replies wait already, as many as may", self.waiting.len()),
            own => {
                format!("{own} replies of this client wait already, and {} in all, as many as may", self.waiting.len())
            }
        };
        Err(ApiError::unavailable(message, retry as u64).code("queue_full"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn an_errand_is_its_models_and_whoever_waits_for_it_is_told_of_its_end() {
        let queue = JobQueue::new(1);
        let (say, said) = channel();
        let errand = |model| {
            let say = say.clone();
            queue.send(model, Box::new(move |_, _| say.send(model).unwrap()))
        };
        errand(1).unwrap();
        errand(2).unwrap();
        assert_eq!(queue.wait(1, Duration::from_secs(60)), QueuePoll::Jobs);
        assert_eq!((queue.take_errands(2).len(), queue.take_errands(2).len()), (1, 0));
        assert!(queue.end(1, ApiError::stopping()).is_empty() && queue.take_errands(1).is_empty());
        assert_eq!(errand(1).unwrap_err(), ApiError::stopping());
        errand(3).unwrap();
        queue.close(ApiError::internal());
        assert_eq!(errand(3).unwrap_err(), ApiError::internal());
        queue.drain();
        drop(say);
        assert!(said.recv().is_err(), "dropped, and not done");
    }
}
