//! Threads that follow documents and compute the sets of allowed tokens while the device computes logits. The thread
//! that chooses tokens does not wait for a slow set: it asks for it again later.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llguidance::CancellationHandle;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;

use super::{CompiledGrammar, Constraint};
use crate::sequence::guide::Guide;
use crate::text::TokenSet;
use crate::{Error, Result};

/// The longest CPU time for one set. Usual sets take 0.01 to 7 ms, and the parser's limits end most others within 100
/// ms. Within one row of its table the parser checks for cancellation only.
const LONGEST: Duration = Duration::from_millis(250);
/// Interval at which a wait for a set checks its CPU time.
const LOOK: Duration = Duration::from_millis(20);

/// Threads that fill sets. They end when this and all [`MaskStepper`]s are dropped.
#[derive(Clone)]
pub struct Masks(Arc<MaskThreads>);

struct MaskThreads {
    queue: Arc<MaskQueue>,
    /// False if no thread could be started. The caller of [`MaskStepper`] then computes the sets itself.
    are_some: bool,
}

#[derive(Default)]
struct MaskQueue {
    waiting: Mutex<WaitingMasks>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingMasks {
    /// Sets of allowed tokens to be computed, in order of arrival.
    jobs: Vec<MaskJob>,
    is_closed: bool,
}

struct MaskJob {
    work: Box<MaskWork>,
    done: Sender<Box<MaskWork>>,
}

/// The work on one set: sent to a thread and back.
struct MaskWork {
    compiled: Arc<CompiledGrammar>,
    /// True if the reply may have a thought before the document.
    thinks: bool,
    /// Created with the first set, because copying a parser takes long as well.
    constraint: Option<Constraint>,
    /// Tokens to accept before the set is filled: at first those that the document begins with, then each chosen token.
    tokens: Vec<u32>,
    set: TokenSet,
    filled: Result<()>,
    /// CPU time that the computation of the latest set took.
    time: Duration,
    watch: Arc<MaskWatch>,
}

/// A handle to cancel the work on a set from another thread.
#[derive(Default)]
struct MaskWatch(Mutex<WatchedMask>);

#[derive(Default)]
struct WatchedMask {
    /// Stops the parser that computes the set.
    parser: Option<CancellationHandle>,
    /// The CPU clock of the thread that works on the set, and its value when the work began.
    begun: Option<(ClockId, Duration)>,
    is_ended: bool,
}

impl MaskWatch {
    fn lock(&self) -> MutexGuard<'_, WatchedMask> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the work if it has used `longest` of CPU time.
    fn end_after(&self, longest: Duration) {
        let mut watched = self.lock();
        let time = watched.begun.map(|(clock, begun)| time_of(clock).saturating_sub(begun));
        if time.is_some_and(|time| time >= longest) {
            watched.end();
        }
    }
}

impl WatchedMask {
    fn end(&mut self) {
        self.is_ended = true;
        if let Some(parser) = &self.parser {
            parser.cancel();
        }
    }
}

/// A clock of this thread's CPU time that other threads can read. The id is built as in the source of Linux's
/// clock_getcpuclockid.
fn own_clock() -> ClockId {
    const THREAD: i32 = 4;
    const TIME_ON_PROCESSOR: i32 = 2;
    ClockId::from_raw(!gettid().as_raw() << 3 | THREAD | TIME_ON_PROCESSOR)
}

/// The clock's value; zero after its thread has ended.
fn time_of(clock: ClockId) -> Duration {
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

impl Masks {
    /// Starts `threads` threads, or as many as the system grants.
    pub fn start(threads: usize) -> Masks {
        let queue = Arc::<MaskQueue>::default();
        let start = |i: usize| {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("mask {i}")).spawn(move || queue.serve()).is_ok()
        };
        let started = (0..threads).take_while(|&i| start(i)).count();
        Masks(Arc::new(MaskThreads { queue, are_some: started > 0 }))
    }
}

impl Drop for MaskThreads {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

impl MaskQueue {
    fn lock(&self) -> MutexGuard<'_, WaitingMasks> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: MaskJob) {
        self.lock().jobs.push(job);
        self.changed.notify_one();
    }

    /// Takes the job whose last set took the least time, so that a slow grammar delays no other.
    fn next(&self) -> Option<MaskJob> {
        let mut waiting = self.lock();
        loop {
            let quickest = waiting.jobs.iter().enumerate().min_by_key(|(_, job)| job.work.time).map(|(at, _)| at);
            if let Some(at) = quickest {
                return Some(waiting.jobs.remove(at));
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Works on jobs until the queue is closed.
    fn serve(&self) {
        while let Some(MaskJob { mut work, done }) = self.next() {
            work.fill();
            // The receiver is gone if the sequence has ended.
            let _ = done.send(work);
        }
    }
}

impl MaskWork {
    /// Accepts the chosen token and fills the set for the next one, unless the document has ended.
    fn fill(&mut self) {
        let begun = Instant::now();
        let clock = own_clock();
        self.watch.lock().begun = Some((clock, time_of(clock)));
        let constraint = self.constraint.get_or_insert_with(|| {
            let (constraint, parser) = Constraint::begin(self.compiled.clone(), self.thinks);
            let mut watched = self.watch.lock();
            watched.parser = Some(parser);
            if watched.is_ended {
                watched.end();
            }
            constraint
        });
        let taken = self.tokens.drain(..).try_for_each(|token| constraint.accept(token));
        let filled = match taken {
            Ok(()) if constraint.is_finished() => Ok(()),
            Ok(()) => constraint.fill(&mut self.set),
            Err(e) => Err(e),
        };
        let mut watched = self.watch.lock();
        watched.begun = None;
        self.filled = if watched.is_ended { Err(too_long()) } else { filled };
        self.time = begun.elapsed();
    }
}

/// The error blames the request, which brought the grammar.
fn too_long() -> Error {
    Error::input("the grammar takes too long to follow", "use a simpler one")
}

/// The masks of one sequence: accepts a token, then returns the set of tokens allowed next.
pub struct MaskStepper {
    masks: Masks,
    work: WorkState,
    watch: Arc<MaskWatch>,
}

impl Drop for MaskStepper {
    fn drop(&mut self) {
        self.watch.lock().end();
    }
}

/// The state of a sequence's work.
enum WorkState {
    /// Not started: the grammar, the tokens that the document begins with, the size of the model's vocabulary, and
    /// whether a thought may come first. A sequence in the queue has no parser yet.
    Unbegun(Arc<CompiledGrammar>, Vec<u32>, usize, bool),
    Here(Box<MaskWork>),
    /// A thread computes the set, and returns the work through this channel.
    Away(Receiver<Box<MaskWork>>),
    /// The thread that had the work has ended without returning it.
    Lost,
}

impl MaskStepper {
    /// A stepper at the beginning of a document. `vocab`: the size of the model's vocabulary.
    pub fn new(masks: &Masks, compiled: Arc<CompiledGrammar>, vocab: usize) -> MaskStepper {
        MaskStepper {
            masks: masks.clone(),
            work: WorkState::Unbegun(compiled, Vec::new(), vocab, false),
            watch: Arc::default(),
        }
    }

    /// Continues after `tokens`, with which a document of the grammar begins.
    pub fn behind(mut self, tokens: Vec<u32>) -> MaskStepper {
        if let WorkState::Unbegun(_, begun, ..) = &mut self.work {
            *begun = tokens;
        }
        self
    }

    /// `thinks`: the reply may have a thought before the document.
    pub fn thinking(mut self, thinks: bool) -> MaskStepper {
        if let WorkState::Unbegun(.., may_think) = &mut self.work {
            *may_think = thinks;
        }
        self
    }

    fn send(&mut self, mut work: Box<MaskWork>) {
        let MaskThreads { queue, are_some } = &*self.masks.0;
        self.work = if *are_some {
            let (done, back) = channel();
            queue.push(MaskJob { work, done });
            WorkState::Away(back)
        } else {
            work.fill();
            WorkState::Here(work)
        };
    }

    /// Waits until the thread returns the work.
    fn fetch(&mut self) -> Result<Box<MaskWork>> {
        while !self.is_ready(LOOK) {}
        match std::mem::replace(&mut self.work, WorkState::Lost) {
            WorkState::Here(work) => Ok(work),
            _ => Err(Error::failed("a thread for grammars has ended", "report this")),
        }
    }
}

impl Guide for MaskStepper {
    fn begin(&mut self) {
        if let WorkState::Unbegun(compiled, tokens, vocab, thinks) = &mut self.work {
            let (compiled, tokens, set) = (compiled.clone(), std::mem::take(tokens), TokenSet::new(*vocab));
            let (thinks, filled, time, watch) = (*thinks, Ok(()), Duration::ZERO, self.watch.clone());
            self.send(Box::new(MaskWork { compiled, thinks, constraint: None, tokens, set, filled, time, watch }));
        }
    }

    fn is_ready(&mut self, patience: Duration) -> bool {
        self.begin();
        let WorkState::Away(back) = &self.work else { return true };
        let mut left = patience;
        loop {
            let wait = left.min(LOOK);
            match back.recv_timeout(wait) {
                Ok(work) => self.work = WorkState::Here(work),
                Err(RecvTimeoutError::Timeout) => {
                    self.watch.end_after(LONGEST);
                    left -= wait;
                    if left.is_zero() {
                        return false;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => self.work = WorkState::Lost,
            }
            return true;
        }
    }

    fn fill(&mut self, set: &mut TokenSet) -> Result<()> {
        let mut work = self.fetch()?;
        std::mem::swap(&mut work.set, set);
        let filled = work.filled.clone();
        self.work = WorkState::Here(work);
        filled
    }

    fn take(&mut self, token: u32) -> Result<()> {
        let mut work = self.fetch()?;
        work.tokens.push(token);
        self.send(work);
        Ok(())
    }
}
