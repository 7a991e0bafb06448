//! The queue of jobs that wait for a slot: bounded, and fair among clients.
//!
//! A client may have as many jobs in it as the queue is long, as far as it leaves as much to the others. All clients
//! together have twice the queue's length: a client that fills its part leaves the same to the others, and the next one
//! half of that.

use super::deadline::after;
use super::http::ApiError;
use super::job::{Client, Job};
use crate::Error;
use crate::executor::Executor;
use crate::sequence::Batch;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest time after which a client is asked to retry when the queue is full.
const LONGEST_RETRY: f64 = 120.0;

/// Work on the cache to be done by the engine's thread between two passes. It is dropped undone if the engine has
/// ended.
pub(super) type Errand = Box<dyn FnOnce(&mut Batch, &mut dyn Executor) + Send>;

/// The state of a reload: loading the model that is to replace the current one.
#[derive(Debug, Clone, Default)]
pub(super) enum Takeover {
    /// No reload.
    #[default]
    None,
    /// In progress.
    UnderWay,
    /// Failed.
    Failed(Error),
}

/// The waiting jobs. Connections push them, and the engine's thread takes them.
pub(super) struct JobQueue {
    /// The most jobs of one client.
    most: usize,
    state: Mutex<QueueState>,
    /// Notified when a job arrives, the queue closes, or a reload ends.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// In order of arrival.
    waiting: VecDeque<Job>,
    /// Errands with the number of their model.
    errands: Vec<(u64, Errand)>,
    /// The error for new jobs after the queue was closed.
    closed: Option<ApiError>,
    /// The current model. Its predecessor finishes its own jobs and ends.
    current: u64,
    /// The state of the reload.
    takeover: Takeover,
    /// Free slots of the current model. As many jobs are only passing through the queue.
    places: usize,
    /// Models whose engines have ended, with the error for their jobs.
    ended: Vec<(u64, ApiError)>,
    /// Smoothed seconds between the ends of two jobs while others wait; 0 before the first.
    pace: f64,
    last_end: Option<Instant>,
}

/// The result of a wait for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuePoll {
    /// There may be jobs, or the time is over.
    Jobs,
    /// The model gets no more jobs.
    Nothing,
}

impl JobQueue {
    /// An empty queue for at most `most` jobs per client, at least 1.
    pub fn new(most: usize) -> JobQueue {
        JobQueue { most: most.max(1), state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // A panic leaves no inconsistent state, because each call changes one field.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of waiting jobs.
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Adds all jobs of a request, or none.
    ///
    /// # Errors
    /// 503: there is no room, or the server stops. If the model's engine has ended, the error for its jobs.
    pub fn push(&self, jobs: Vec<Job>) -> Result<(), ApiError> {
        let mut state = self.state();
        jobs.iter().try_for_each(|job| state.check_open(job.recipient.model))?;
        state.admit(&jobs, self.most)?;
        let one = |job: &Job| (job.recipient.client, job.recipient.model);
        debug_assert!(jobs.windows(2).all(|pair| one(&pair[0]) == one(&pair[1])), "jobs of several requests");
        state.waiting.extend(jobs);
        self.changed.notify_all();
        Ok(())
    }

    /// Adds an errand for `model`.
    ///
    /// # Errors
    /// As [`JobQueue::push`], but an errand always has room.
    pub fn send(&self, model: u64, errand: Errand) -> Result<(), ApiError> {
        let mut state = self.state();
        state.check_open(model)?;
        state.errands.push((model, errand));
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the errands for `model`, oldest first.
    pub fn take_errands(&self, model: u64) -> Vec<Errand> {
        let mut state = self.state();
        state.errands.extract_if(.., |(of, _)| *of == model).map(|(_, errand)| errand).collect()
    }

    /// The next job for `model`: the oldest one of the client with the fewest replies by `count`. Returns that number,
    /// and the time since when the job waits.
    pub fn next(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<(usize, Instant)> {
        let state = self.state();
        state
            .next(model, &count)
            .map(|at| (count(state.waiting[at].recipient.client), state.waiting[at].recipient.since))
    }

    /// Takes the job that [`JobQueue::next`] returns.
    pub fn take(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<Job> {
        let mut state = self.state();
        let at = state.next(model, &count)?;
        state.places = state.places.saturating_sub(1);
        state.waiting.remove(at)
    }

    /// Sets the number of free slots of `model`.
    pub fn set_places(&self, model: u64, places: usize) {
        let mut state = self.state();
        if state.current == model {
            state.places = places;
        }
    }

    /// Removes jobs whose client is gone, and jobs whose deadline has passed, which get an event. Returns their number.
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

    /// Records the end of a running job. The rate of ends predicts when there will be room.
    pub fn note_end(&self) {
        let mut state = self.state();
        let now = Instant::now();
        if let Some(last) = state.last_end.filter(|_| !state.waiting.is_empty()) {
            let seconds = (now - last).as_secs_f64();
            state.pace = if state.pace == 0.0 { seconds } else { 0.9 * state.pace + 0.1 * seconds };
        }
        state.last_end = Some(now);
    }

    /// Makes `model` the current one.
    pub fn hand_to(&self, model: u64) {
        let mut state = self.state();
        (state.current, state.places) = (model, 0);
        drop(state);
        self.changed.notify_all();
    }

    /// Records that the engine of `model` has ended; later pushes for it get the error `e`. Returns its waiting jobs,
    /// to be notified. A request may have been parsed for one model and pushed after another has taken over.
    pub fn end(&self, model: u64, e: ApiError) -> Vec<Job> {
        let mut state = self.state();
        state.ended.push((model, e));
        let jobs = state.clear(model);
        debug_assert!(!state.waits_for(model), "work is left for a model that has ended");
        jobs
    }

    /// Takes the waiting jobs for `model`, to be notified.
    pub fn clear(&self, model: u64) -> Vec<Job> {
        self.state().clear(model)
    }

    /// Waits until there is work for the unloaded `model` and no reload is in progress, since both may not fit in
    /// memory. Returns false if another model has taken over or the queue is closed.
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

    /// Sets the state of the reload.
    pub fn set_takeover(&self, takeover: Takeover) {
        self.state().takeover = takeover;
        self.changed.notify_all();
    }

    /// Waits for the end of a reload that replaces `model`. Returns its error if it failed.
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

    /// Refuses new jobs with `e` from now on. Waiting jobs stay.
    pub fn close(&self, e: ApiError) {
        self.state().closed.get_or_insert(e);
        self.changed.notify_all();
    }

    /// Takes all waiting jobs, to be notified.
    pub fn drain(&self) -> Vec<Job> {
        let mut state = self.state();
        state.errands.clear();
        state.waiting.drain(..).collect()
    }
}

impl QueueState {
    /// # Errors
    /// The error for jobs of `model`, if the queue is closed or its engine has ended.
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

    /// Whether `model` is the current one and the queue is open.
    fn is_open_for(&self, model: u64) -> bool {
        self.current == model && self.closed.is_none()
    }

    fn is_under_way(&self) -> bool {
        matches!(self.takeover, Takeover::UnderWay)
    }

    /// Whether there is work for `model`.
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
    /// 503: there is no room.
    fn admit(&self, jobs: &[Job], most: usize) -> Result<(), ApiError> {
        let Some(client) = jobs.first().map(|job| job.recipient.client) else { return Ok(()) };
        let mut waiting = HashMap::<Client, usize>::new();
        // The first jobs have a free slot and are only passing through.
        self.waiting.iter().skip(self.places).for_each(|job| *waiting.entry(job.recipient.client).or_default() += 1);
        let own = waiting.get(&client).copied().unwrap_or(0);
        let all: usize = waiting.values().map(|&count| count.min(most)).sum();
        let wait = jobs.len().saturating_sub(self.places.saturating_sub(self.waiting.len()));
        // A request larger than the queue may wait alone; it does not count for others' room.
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
