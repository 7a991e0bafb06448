//! Threads that follow documents and compute what may come next, while the device computes the logits it is chosen from.
//! Those that choose tokens never wait here: a set that takes long is asked for again.

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

/// How long a processor may be at one set. Usual ones take 0.01 to 7 ms, and the parser's limits end most others within 100; but
/// for a row of its table it asks whether it was cancelled and nothing else.
const LONGEST: Duration = Duration::from_millis(250);
/// How often a wait for a set looks how long it has taken.
const LOOK: Duration = Duration::from_millis(20);

/// Threads that fill sets. They end when this and all [`MaskStepper`]s are dropped.
#[derive(Clone)]
pub struct Masks(Arc<MaskThreads>);

struct MaskThreads {
    queue: Arc<MaskQueue>,
    /// Where no thread could be started, sets are filled at once.
    are_some: bool,
}

#[derive(Default)]
struct MaskQueue {
    waiting: Mutex<WaitingMasks>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingMasks {
    /// In the order in which they came.
    jobs: Vec<MaskJob>,
    is_closed: bool,
}

struct MaskJob {
    work: Box<MaskWork>,
    done: Sender<Box<MaskWork>>,
}

/// What goes to a thread and comes back.
struct MaskWork {
    compiled: Arc<CompiledGrammar>,
    /// Made with the first set: to copy a parser takes long too.
    constraint: Option<Constraint>,
    /// Tokens that are accepted before the set is filled: those that the document begins with, then the chosen ones.
    tokens: Vec<u32>,
    set: TokenSet,
    filled: Result<()>,
    /// How long the last set took.
    time: Duration,
    watch: Arc<MaskWatch>,
}

/// What ends the work at one set from outside.
#[derive(Default)]
struct MaskWatch(Mutex<WatchedMask>);

#[derive(Default)]
struct WatchedMask {
    /// The parser that is to end.
    parser: Option<CancellationHandle>,
    /// The processor's time of the thread that is at it, and what that was when it began.
    begun: Option<(ClockId, Duration)>,
    is_ended: bool,
}

impl MaskWatch {
    fn lock(&self) -> MutexGuard<'_, WatchedMask> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the work if a processor was at it for `longest`.
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

/// The clock of the processor's time that this thread takes, for other threads: the number that Linux's clock_gettime has for
/// it, as in clock_getcpuclockid's source.
fn own_clock() -> ClockId {
    const THREAD: i32 = 4;
    const TIME_ON_PROCESSOR: i32 = 2;
    ClockId::from_raw(!gettid().as_raw() << 3 | THREAD | TIME_ON_PROCESSOR)
}

/// Zero once its thread has ended.
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

    /// Takes the job whose last set took the least time: those of a grammar that takes long hold up no others.
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

    /// Does jobs until none can come.
    fn serve(&self) {
        while let Some(MaskJob { mut work, done }) = self.next() {
            work.fill();
            // Nobody waits for a sequence that has ended.
            let _ = done.send(work);
        }
    }
}

impl MaskWork {
    /// Takes the token that was chosen, and fills the set of the next one. After a stop token there is none.
    fn fill(&mut self) {
        let begun = Instant::now();
        let clock = own_clock();
        self.watch.lock().begun = Some((clock, time_of(clock)));
        let constraint = self.constraint.get_or_insert_with(|| {
            let (constraint, parser) = Constraint::begin(self.compiled.clone());
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

/// The request asks for the grammar, so that it is to blame.
fn too_long() -> Error {
    Error::input("the grammar takes too long to follow", "use a simpler one")
}

/// The steps of one sequence: a token is given, and the set of the next is taken.
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

/// Where a sequence's work is.
enum WorkState {
    /// Nothing was asked for yet: the grammar, the tokens that its document begins with, and the number of those of the model's
    /// vocabulary. A sequence that waits for its turn holds no parser.
    Unbegun(Arc<CompiledGrammar>, Vec<u32>, usize),
    Here(Box<MaskWork>),
    /// With a thread, which sends it back.
    Away(Receiver<Box<MaskWork>>),
    /// With a thread that has ended.
    Lost,
}

impl MaskStepper {
    /// At the beginning of a document. `vocab`: tokens of the model's vocabulary.
    pub fn new(masks: &Masks, compiled: Arc<CompiledGrammar>, vocab: usize) -> MaskStepper {
        MaskStepper {
            masks: masks.clone(),
            work: WorkState::Unbegun(compiled, Vec::new(), vocab),
            watch: Arc::default(),
        }
    }

    /// Behind tokens that a document of the grammar begins with.
    pub fn behind(mut self, tokens: Vec<u32>) -> MaskStepper {
        if let WorkState::Unbegun(_, begun, _) = &mut self.work {
            *begun = tokens;
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

    /// Waits for what was sent.
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
        if let WorkState::Unbegun(compiled, tokens, vocab) = &mut self.work {
            let (compiled, tokens, set) = (compiled.clone(), std::mem::take(tokens), TokenSet::new(*vocab));
            let (filled, time, watch) = (Ok(()), Duration::ZERO, self.watch.clone());
            self.send(Box::new(MaskWork { compiled, constraint: None, tokens, set, filled, time, watch }));
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
