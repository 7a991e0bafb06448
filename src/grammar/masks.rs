//! Threads that compute what may come next while the device computes the logits it is chosen from.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::Constraint;
use crate::sequence::guide::Guide;
use crate::text::TokenSet;
use crate::{Error, Result};

/// Threads that fill sets. They end when this and all [`MaskStepper`]s are dropped.
#[derive(Clone)]
pub struct Masks {
    /// `None` where no thread could be started: then sets are filled at once.
    jobs: Option<Sender<MaskJob>>,
}

struct MaskJob {
    work: Box<MaskWork>,
    done: Sender<Box<MaskWork>>,
}

/// What goes to a thread and comes back.
struct MaskWork {
    constraint: Constraint,
    set: TokenSet,
    filled: Result<()>,
}

impl Masks {
    /// Starts `threads` threads, or as many as the system grants.
    pub fn start(threads: usize) -> Masks {
        let (jobs, queue) = channel::<MaskJob>();
        let queue = Arc::new(Mutex::new(queue));
        let start = |i: usize| {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("mask {i}")).spawn(move || serve(&queue)).is_ok()
        };
        let started = (0..threads).take_while(|&i| start(i)).count();
        Masks { jobs: (started > 0).then_some(jobs) }
    }
}

/// Fills sets until nobody can ask for one.
fn serve(queue: &Mutex<Receiver<MaskJob>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(MaskJob { mut work, done }) = next else { return };
        work.fill();
        // Nobody waits for a sequence that has ended.
        let _ = done.send(work);
    }
}

impl MaskWork {
    fn fill(&mut self) {
        self.filled = self.constraint.fill(&mut self.set);
    }
}

/// The steps of one sequence: a token is given, and the set of the next is taken.
pub struct MaskStepper {
    masks: Masks,
    work: WorkState,
}

/// Where a sequence's work is.
enum WorkState {
    Here(Box<MaskWork>),
    /// With a thread, which sends it back.
    Away(Receiver<Box<MaskWork>>),
    /// With a thread that has ended.
    Lost,
}

impl MaskStepper {
    /// Begins a document, and asks for the first token's set. `vocab`: tokens of the model's vocabulary.
    pub fn new(masks: &Masks, constraint: Constraint, vocab: usize) -> MaskStepper {
        let work = Box::new(MaskWork { constraint, set: TokenSet::new(vocab), filled: Ok(()) });
        let mut step = MaskStepper { masks: masks.clone(), work: WorkState::Lost };
        step.send(work);
        step
    }

    /// Takes the chosen token, and asks for the next one's set. After a stop token no set is asked for.
    ///
    /// # Errors
    /// As [`Constraint::accept`].
    pub fn begin(&mut self, token: u32) -> Result<()> {
        let mut work = self.fetch()?;
        let taken = work.constraint.accept(token);
        if taken.is_ok() && !work.constraint.is_finished() {
            self.send(work);
        } else {
            self.work = WorkState::Here(work);
        }
        taken
    }

    /// Waits for the set that was asked for, and exchanges it for `set`, which is for the same vocabulary.
    ///
    /// # Errors
    /// As [`Constraint::fill`].
    pub fn wait(&mut self, set: &mut TokenSet) -> Result<()> {
        let mut work = self.fetch()?;
        std::mem::swap(&mut work.set, set);
        let filled = work.filled.clone();
        self.work = WorkState::Here(work);
        filled
    }

    fn send(&mut self, work: Box<MaskWork>) {
        let (done, back) = channel();
        let unsent = match &self.masks.jobs {
            Some(jobs) => jobs.send(MaskJob { work, done }).err().map(|unsent| unsent.0.work),
            None => Some(work),
        };
        self.work = match unsent {
            Some(mut work) => {
                work.fill();
                WorkState::Here(work)
            }
            None => WorkState::Away(back),
        };
    }

    fn fetch(&mut self) -> Result<Box<MaskWork>> {
        match std::mem::replace(&mut self.work, WorkState::Lost) {
            WorkState::Here(work) => Ok(work),
            WorkState::Away(back) => back.recv().map_err(|_| lost()),
            WorkState::Lost => Err(lost()),
        }
    }
}

impl Guide for MaskStepper {
    fn fill(&mut self, set: &mut TokenSet) -> Result<()> {
        self.wait(set)
    }

    fn take(&mut self, token: u32) -> Result<()> {
        self.begin(token)
    }
}

fn lost() -> Error {
    Error::failed("a thread for grammars has ended", "report this")
}
