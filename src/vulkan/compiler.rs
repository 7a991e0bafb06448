//! Compiles kernels on background threads, in the order of requests.
//!
//! A compile in the driver cannot be cancelled. A compile that takes too long is *late*: its requester continues
//! without it, its thread is abandoned, and another thread compiles the next kernel. While an abandoned thread runs,
//! the objects that it uses must not be destroyed.

use crate::Result;
use crate::lower::kernels::Kernel;
use crate::replay::driver::Readiness;
use std::collections::{HashSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time after which a compilation counts as late.
pub const LATE: Duration = Duration::from_secs(10);
/// Longest wait at the end for running compiles; after it, the objects that they use are leaked.
const PATIENCE: Duration = Duration::from_secs(2);

/// Compiles a kernel to a `T`; called by several threads.
type Compile<T> = Arc<dyn Fn(Kernel) -> Result<T> + Send + Sync>;

/// Compiles kernels on threads of its own.
pub struct Background<T> {
    compile: Compile<T>,
    shared: Arc<CompileQueue>,
    sender: Sender<(Kernel, Result<T>)>,
    made: Receiver<(Kernel, Result<T>)>,
    late: Duration,
    threads: usize,
    left_out: HashSet<Kernel>,
}

/// The queue of kernels that the compiling threads share.
#[derive(Default)]
struct CompileQueue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Kernel>,
    /// Running compiles with their start. Late ones stay here until they end.
    running: Vec<(Kernel, Instant)>,
    /// The running compilations that take longer than [`LATE`].
    late: HashSet<Kernel>,
    /// The number of compiling threads, without abandoned ones.
    workers: usize,
    closed: bool,
}

impl CompileQueue {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next kernel; `None` when the thread should end.
    fn next(&self) -> Option<Kernel> {
        let mut jobs = self.jobs();
        loop {
            if jobs.closed {
                return None;
            }
            if let Some(kernel) = jobs.waiting.pop_front() {
                jobs.running.push((kernel, Instant::now()));
                return Some(kernel);
            }
            jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records the end of a compile. Returns whether its thread was abandoned meanwhile.
    fn end(&self, kernel: Kernel) -> bool {
        let mut jobs = self.jobs();
        jobs.running.retain(|(k, _)| *k != kernel);
        let was_late = jobs.late.remove(&kernel);
        self.changed.notify_all();
        was_late
    }
}

impl<T: Send + 'static> Background<T> {
    /// Compiles by `compile` on up to `threads` threads. They start with the first kernel. A kernel is late after `late`.
    pub fn new(threads: usize, late: Duration, compile: Compile<T>) -> Background<T> {
        let (sender, made) = channel();
        let (shared, left_out) = (Arc::default(), HashSet::new());
        Background { compile, shared, sender, made, late, threads: threads.max(1), left_out }
    }

    /// Replaces the queue by `kernels`, in this order. Earlier requests that have not begun are dropped.
    pub fn ask_for(&mut self, kernels: impl Iterator<Item = Kernel>) {
        let mut jobs = self.shared.jobs();
        jobs.waiting.clear();
        for kernel in kernels {
            let is_known = self.left_out.contains(&kernel) || jobs.running.iter().any(|(k, _)| *k == kernel);
            if !is_known && !jobs.waiting.contains(&kernel) {
                jobs.waiting.push_back(kernel);
            }
        }
        let wanted = self.threads.min(jobs.waiting.len() + jobs.running.len());
        let missing = wanted.saturating_sub(jobs.workers);
        drop(jobs);
        self.shared.changed.notify_all();
        for _ in 0..missing {
            self.spawn();
        }
    }

    fn spawn(&self) {
        let (shared, compile, sender) = (self.shared.clone(), self.compile.clone(), self.sender.clone());
        self.shared.jobs().workers += 1;
        let work = move || {
            while let Some(kernel) = shared.next() {
                let made = compile(kernel);
                // Sent before the end is recorded, so that the result is there when the end is seen.
                let is_wanted = sender.send((kernel, made)).is_ok();
                if shared.end(kernel) || !is_wanted {
                    return;
                }
            }
            shared.jobs().workers -= 1;
        };
        if std::thread::Builder::new().name("compiler".into()).spawn(work).is_err() {
            self.shared.jobs().workers -= 1;
        }
    }

    /// Results since the last call. A kernel that failed is left out from now on.
    pub fn take(&mut self) -> Vec<(Kernel, T)> {
        let mut taken = Vec::new();
        for (kernel, made) in self.made.try_iter() {
            match made {
                Ok(made) => taken.push((kernel, made)),
                Err(e) => {
                    log::warn!("a tile is left out: {e}");
                    self.left_out.insert(kernel);
                }
            }
        }
        self.let_go_of_late();
        taken
    }

    /// The state of a kernel without a result from [`Background::take`] yet. `Unasked` also if its compile has ended
    /// since.
    pub fn readiness(&self, kernel: Kernel) -> Readiness {
        if self.left_out.contains(&kernel) {
            return Readiness::LeftOut;
        }
        let jobs = self.shared.jobs();
        let comes = jobs.waiting.contains(&kernel) || jobs.running.iter().any(|(k, _)| *k == kernel);
        match (comes, jobs.workers) {
            // Without a thread nothing is compiled.
            (true, 0) => Readiness::LeftOut,
            (true, _) => Readiness::NotYet,
            (false, _) => Readiness::Unasked,
        }
    }

    /// Waits until a compile ends, for `most` at most.
    pub fn wait(&self, most: Duration) {
        let jobs = self.shared.jobs();
        if jobs.running.len() > jobs.late.len() || !jobs.waiting.is_empty() {
            drop(self.shared.changed.wait_timeout(jobs, most));
        }
    }

    /// True if a kernel is being compiled or waits for it. Late compilations do not count.
    pub fn is_busy(&self) -> bool {
        let jobs = self.shared.jobs();
        jobs.running.len() > jobs.late.len() || !jobs.waiting.is_empty()
    }

    fn let_go_of_late(&mut self) {
        let mut jobs = self.shared.jobs();
        let Jobs { running, late, workers, .. } = &mut *jobs;
        let is_new = |(kernel, since): &&(Kernel, Instant)| since.elapsed() > self.late && !late.contains(kernel);
        let new: Vec<Kernel> = running.iter().filter(is_new).map(|r| r.0).collect();
        *workers -= new.len().min(*workers);
        late.extend(&new);
        drop(jobs);
        for kernel in new {
            let name = kernel.module.name();
            log::warn!(
                "a tile is left out: the driver has compiled its kernel {name} for {:.0?} and goes on",
                self.late
            );
            self.left_out.insert(kernel);
            self.spawn();
        }
    }

    /// Starts no further compiles, and waits for running ones. Returns their results, and whether all have ended: if
    /// not, the objects that `compile` uses must live on.
    pub fn close(&mut self) -> (Vec<(Kernel, T)>, bool) {
        let start = Instant::now();
        let mut jobs = self.shared.jobs();
        (jobs.closed, jobs.waiting) = (true, VecDeque::new());
        self.shared.changed.notify_all();
        while !jobs.running.is_empty() {
            let Some(left) = PATIENCE.checked_sub(start.elapsed()) else { break };
            jobs = self.shared.changed.wait_timeout(jobs, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_done = jobs.running.is_empty();
        drop(jobs);
        let made = self.made.try_iter().filter_map(|(kernel, made)| Some((kernel, made.ok()?)));
        (made.collect(), is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::lower::kernels::Module;
    use crate::lower::kernels::constants::NoConstants;
    use std::sync::mpsc::SyncSender;
    use std::sync::mpsc::sync_channel;

    fn kernel(number: u32) -> Kernel {
        Kernel::new(Module::Read, number, NoConstants {})
    }

    /// Compiles to the kernel's number: at once, except 7, which waits for a message on the channel, and 8, which
    /// fails.
    fn background(threads: usize, late: Duration) -> (Background<u32>, SyncSender<()>) {
        let (go, wait) = sync_channel(8);
        let wait = Mutex::new(wait);
        let compile = move |k: Kernel| match k.workgroup {
            7 => wait.lock().unwrap().recv().map(|()| 7).map_err(|_| Error::device("gone", "none")),
            8 => Err(Error::device("cannot be compiled", "none")),
            n => Ok(n),
        };
        (Background::new(threads, late, Arc::new(compile)), go)
    }

    /// Takes results until there are `count`.
    fn take(background: &mut Background<u32>, count: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        while taken.len() < count {
            background.wait(Duration::from_millis(10));
            taken.extend(background.take().into_iter().map(|t| t.1));
        }
        taken
    }

    #[test]
    fn kernels_are_compiled_in_order_and_what_fails_is_left_out() {
        let (mut b, _go) = background(1, LATE);
        b.ask_for([3, 8, 1, 2, 1].into_iter().map(kernel));
        assert_eq!(take(&mut b, 3), [3, 1, 2]);
        assert_eq!(b.readiness(kernel(8)), Readiness::LeftOut);
        b.ask_for([8, 5].into_iter().map(kernel));
        assert_eq!(take(&mut b, 1), [5]);
        assert!(!b.is_busy() && b.close().1);
    }

    #[test]
    fn a_new_list_replaces_what_has_not_begun() {
        let (mut b, go) = background(1, LATE);
        b.ask_for([7, 1].into_iter().map(kernel));
        while b.shared.jobs().running.is_empty() {
            std::thread::yield_now();
        }
        b.ask_for([7, 2].into_iter().map(kernel));
        assert_eq!((b.readiness(kernel(7)), b.readiness(kernel(2))), (Readiness::NotYet, Readiness::NotYet));
        assert_eq!(b.readiness(kernel(1)), Readiness::Unasked);
        go.send(()).unwrap();
        assert_eq!(take(&mut b, 2), [7, 2]);
    }

    /// The compile of 7 does not end: other kernels continue on another thread, and `close` waits only for its limit.
    /// If its result comes in time, it is taken.
    #[test]
    fn a_late_kernel_holds_nothing_up() {
        let (mut b, go) = background(1, Duration::ZERO);
        b.ask_for([7, 1].into_iter().map(kernel));
        assert_eq!(take(&mut b, 1), [1]);
        assert_eq!(b.readiness(kernel(7)), Readiness::LeftOut);
        let (made, is_done) = b.close();
        assert!(made.is_empty() && !is_done, "7 is under way");
        go.send(()).unwrap();
        assert_eq!(b.close().0.first().map(|m| m.1), Some(7));
    }
}
