//! Jobs that wait for a place among the running sequences: bounded, and fair among clients.
//!
//! A client may have as many jobs here as the queue is long, and as many as it leaves to others. All clients together have
//! twice the queue's length, so one that fills its part leaves as much to the others, and the next one half of that.

use super::deadline::after;
use super::http::ApiError;
use super::job::{Client, Job};
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time after which a client that found the queue full is told to come back.
const LONGEST_RETRY: f64 = 120.0;

/// Jobs that wait. Connections push; the engine's thread takes.
pub(super) struct Queue {
    /// Most jobs of one client.
    most: usize,
    state: Mutex<State>,
    /// Told when a job arrives, the queue closes, or another model takes over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order of their arrival.
    waiting: VecDeque<Job>,
    /// Nothing is taken in any more, and why.
    closed: Option<ApiError>,
    /// The model that jobs are made for now. One before it does those that were made for it, and ends.
    current: u64,
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
pub(super) enum Found {
    /// There are jobs, or the time is over.
    Jobs,
    /// No more will come for this model.
    Nothing,
}

impl Queue {
    /// An empty queue for `most` jobs of each client, at least 1.
    pub fn new(most: usize) -> Queue {
        Queue { most: most.max(1), state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let ended = || state.ended.iter().find(|(model, _)| jobs.iter().any(|job| job.model == *model));
        if let Some(e) = state.closed.as_ref().or_else(|| ended().map(|(_, e)| e)) {
            return Err(e.clone());
        }
        state.admit(&jobs, self.most)?;
        state.waiting.extend(jobs);
        self.changed.notify_all();
        Ok(())
    }

    /// The next job for `model`: the oldest of the client that has the fewest, by `count`. Returns that number, and since when
    /// it waits.
    pub fn next(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<(usize, Instant)> {
        let state = self.state();
        state.next(model, &count).map(|at| (count(state.waiting[at].client), state.waiting[at].since))
    }

    /// Takes the job that [`Queue::next`] says.
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
        state.waiting.retain(|job| {
            if job.is_late(now) {
                job.tell_late();
                return false;
            }
            !job.is_abandoned()
        });
        before - state.waiting.len()
    }

    /// Waits until there are jobs for `model` or `time` has passed.
    pub fn wait(&self, model: u64, time: Duration) -> Found {
        let deadline = after(time);
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.waiting.iter().any(|job| job.model == model) {
                return Found::Jobs;
            }
            if state.current != model || state.closed.is_some() {
                return Found::Nothing;
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
        let (of_it, others) = state.waiting.drain(..).partition::<VecDeque<Job>, _>(|job| job.model == model);
        state.waiting = others;
        of_it.into()
    }

    /// Takes in nothing more: a push is answered by `e`. The jobs that wait stay.
    pub fn close(&self, e: ApiError) {
        self.state().closed.get_or_insert(e);
        self.changed.notify_all();
    }

    /// Takes all jobs that wait, to be told why they are not run.
    pub fn drain(&self) -> Vec<Job> {
        self.state().waiting.drain(..).collect()
    }
}

impl State {
    /// Where the next job for `model` is.
    fn next(&self, model: u64, count: impl Fn(Client) -> usize) -> Option<usize> {
        let own = self.waiting.iter().enumerate().filter(|(_, job)| job.model == model);
        own.min_by_key(|(_, job)| count(job.client)).map(|(at, _)| at)
    }

    /// Whether there is room for a request's jobs, where each client may have `most`.
    ///
    /// # Errors
    /// 503: there is none.
    fn admit(&self, jobs: &[Job], most: usize) -> Result<(), ApiError> {
        let Some(client) = jobs.first().map(|job| job.client) else { return Ok(()) };
        let mut waiting = HashMap::<Client, usize>::new();
        // The first ones have a place, and are on their way to it.
        self.waiting.iter().skip(self.places).for_each(|job| *waiting.entry(job.client).or_default() += 1);
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
