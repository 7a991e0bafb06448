//! Threads that run the parts of a step.
//!
//! A pass has some hundred steps of microseconds each, so threads poll for the next one, for [`SPIN`] at most, and then
//! sleep. The calling thread runs parts too. A thread that has taken no part is not waited for.
//!
//! A thread that the system preempts in the middle of a part delays the step until it runs again, which takes
//! milliseconds if another process has its processor. Such a thread is late. It takes no parts for a while afterwards
//! ([`RestTimes`]), so that a busy processor costs only its own share of the speed. The caller sleeps while it waits
//! for a late thread, which may need the caller's processor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a thread polls before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// The number of polls between two reads of the clock.
const LOOKS: u32 = 64;
/// Time that the caller waits for the last parts before their threads may count as late.
const GRACE: Duration = Duration::from_micros(100);
/// A thread is late if its part takes this many times as long as one of the caller's own.
const SLOWER: u32 = 4;
/// The value of the part counter while no parts of the job can be taken.
const CLOSED: u32 = u32::MAX;

/// The function that runs one part of a job.
struct PoolTask<'a> {
    part: &'a (dyn Fn(usize) + Sync),
}

struct PoolState {
    /// The job's number, and in the lower half the index of its next part. The thread that advances the index has the
    /// part.
    next: AtomicU64,
    /// The job of that number, on its caller's stack; valid while a part is taken and not done.
    job: AtomicPtr<PoolTask<'static>>,
    parts: AtomicUsize,
    done: AtomicUsize,
    has_panicked: AtomicBool,
    ends: AtomicBool,
    /// The number of threads that wait for `wake`.
    sleeping: AtomicUsize,
    /// True while the caller waits for `finished`.
    caller_sleeps: AtomicBool,
    bed: Mutex<()>,
    wake: Condvar,
    finished: Condvar,
    /// The state of each thread, without the caller's.
    workers: Vec<WorkerState>,
}

/// Communication between the caller and a thread.
#[derive(Default)]
struct WorkerState {
    /// The number of the job that the thread runs a part of; 0 if it runs none.
    has_part_of: AtomicU32,
    /// True if the caller found that the thread was late with its part.
    is_late: AtomicBool,
}

/// The time that a late thread takes no parts. It doubles if the thread is late again soon.
struct RestTimes {
    last: Duration,
    ended: Option<Instant>,
}

impl RestTimes {
    const LEAST: Duration = Duration::from_millis(5);
    const MOST: Duration = Duration::from_millis(160);
    /// A thread is late again soon if it is within this many times its last rest.
    const SOON: u32 = 2;

    fn next(&mut self, now: Instant) -> Duration {
        let soon = self.ended.is_some_and(|ended| now.duration_since(ended) < RestTimes::SOON * self.last);
        self.last = if soon { (2 * self.last).min(RestTimes::MOST) } else { RestTimes::LEAST };
        self.ended = Some(now + self.last);
        self.last
    }
}

/// A pool of threads that run the parts of one caller's jobs.
pub struct ThreadPool {
    shared: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
}

fn number(word: u64) -> u32 {
    (word >> 32) as u32
}

fn index(word: u64) -> u32 {
    word as u32
}

impl PoolState {
    fn new(workers: usize) -> PoolState {
        PoolState {
            next: AtomicU64::new(u64::from(CLOSED)),
            job: AtomicPtr::new(std::ptr::null_mut()),
            parts: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            has_panicked: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            caller_sleeps: AtomicBool::new(false),
            bed: Mutex::new(()),
            wake: Condvar::new(),
            finished: Condvar::new(),
            workers: (0..workers).map(|_| WorkerState::default()).collect(),
        }
    }

    /// Takes and runs parts of the job with number `of` until none is left, or the thread is found late. Returns the
    /// number of parts that it ran.
    fn work(&self, of: u32, worker: Option<&WorkerState>) -> u32 {
        let mut ran = 0;
        loop {
            let word = self.next.load(Ordering::Acquire);
            let (at, parts) = (index(word), self.parts.load(Ordering::Relaxed));
            if number(word) != of || at == CLOSED || at as usize >= parts {
                return ran;
            }
            let job = self.job.load(Ordering::Relaxed);
            if let Some(worker) = worker {
                worker.has_part_of.store(of, Ordering::Relaxed);
            }
            // Fails if another job has begun: `parts` and `job` may then be that job's.
            let taken = self.next.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if taken {
                // SAFETY: this part is taken and not done, so `ThreadPool::run` has not returned and the job is alive.
                let job = unsafe { &*job };
                if catch_unwind(AssertUnwindSafe(|| (job.part)(at as usize))).is_err() {
                    self.has_panicked.store(true, Ordering::Relaxed);
                }
                ran += 1;
            }
            if let Some(worker) = worker {
                worker.has_part_of.store(0, Ordering::Relaxed);
            }
            if taken {
                // The caller sleeps only for other threads' parts: it has finished its own by then.
                let last = self.done.fetch_add(1, Ordering::SeqCst) + 1 == parts;
                if last && self.caller_sleeps.load(Ordering::SeqCst) {
                    drop(self.lock());
                    self.finished.notify_all();
                }
            }
            if worker.is_some_and(|worker| worker.is_late.load(Ordering::Relaxed)) {
                return ran;
            }
        }
    }

    /// Waits for a job other than `seen`. Returns its number; `None` when the pool ends.
    fn wait(&self, seen: u32) -> Option<u32> {
        let is_there = || {
            let word = self.next.load(Ordering::SeqCst);
            (number(word) != seen && index(word) != CLOSED).then(|| number(word))
        };
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if let Some(number) = is_there() {
                    return Some(number);
                }
                std::hint::spin_loop();
            }
            if self.ends.load(Ordering::Relaxed) {
                return None;
            }
            if start.elapsed() > SPIN {
                break;
            }
        }
        let mut bed = self.lock();
        // Counted before the last check: a caller that publishes a job after that check sees the count.
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if self.ends.load(Ordering::SeqCst) {
                break None;
            }
            if let Some(number) = is_there() {
                break Some(number);
            }
            bed = self.wake.wait(bed).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Sleeps for `time`, regardless of jobs, unless the pool ends.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut bed = self.lock();
        while !self.ends.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            bed = self.wake.wait_timeout(bed, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the job's parts are done. The caller began the job at `start` and ran `ran` of its parts.
    fn finish(&self, of: u32, parts: usize, start: Instant, ran: u32) {
        let is_done = || self.done.load(Ordering::SeqCst) >= parts;
        let spin = || {
            (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                is_done()
            })
        };
        if is_done() || spin() {
            return;
        }
        let own = Instant::now();
        let patience = GRACE.max(SLOWER * ((own - start) / ran.max(1)));
        while own.elapsed() < patience {
            if spin() {
                return;
            }
        }
        for worker in self.workers.iter().filter(|worker| worker.has_part_of.load(Ordering::Relaxed) == of) {
            worker.is_late.store(true, Ordering::Relaxed);
        }
        let mut bed = self.lock();
        // Set before the check: a thread that ends the last part after the check sees that the caller sleeps.
        self.caller_sleeps.store(true, Ordering::SeqCst);
        while !is_done() {
            bed = self.finished.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::SeqCst);
    }

    fn wake_all(&self) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            drop(self.lock());
            self.wake.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.bed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The main function of a thread of the pool.
fn serve(shared: &PoolState, worker: &WorkerState) {
    let (mut seen, mut rest) = (0, RestTimes { last: RestTimes::LEAST, ended: None });
    while let Some(number) = shared.wait(seen) {
        shared.work(number, Some(worker));
        seen = number;
        if worker.is_late.load(Ordering::Relaxed) {
            shared.rest(rest.next(Instant::now()));
            worker.is_late.store(false, Ordering::Relaxed);
        }
    }
}

impl ThreadPool {
    /// Starts `threads - 1` threads, or fewer if the system grants no more. The caller is the last one.
    pub fn start(threads: usize) -> ThreadPool {
        let shared = Arc::new(PoolState::new(threads.saturating_sub(1)));
        let spawn = |i: usize| {
            let shared = shared.clone();
            let run = move || serve(&shared, &shared.workers[i - 1]);
            std::thread::Builder::new().name("cpu".into()).spawn(run)
        };
        let threads: Vec<_> = (1..threads).map(spawn).map_while(std::io::Result::ok).collect();
        ThreadPool { shared, threads }
    }

    /// The number of threads that run parts, the caller included.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `part` with each of `0 .. parts`, on all threads. Returns when all have returned.
    ///
    /// # Panics
    /// If a part panicked.
    pub fn run(&mut self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        if self.threads.is_empty() || parts <= 1 {
            return (0..parts).for_each(part);
        }
        assert!(parts < CLOSED as usize, "{parts} parts");
        let shared = &*self.shared;
        let mut job = PoolTask { part };
        // No job has number 0.
        let of = number(shared.next.load(Ordering::Relaxed)).wrapping_add(1).max(1);
        // Closed first: a thread that still reads the previous job's state fails to take a part, and cannot mix up the
        // two jobs.
        shared.next.store(u64::from(of) << 32 | u64::from(CLOSED), Ordering::SeqCst);
        shared.job.store((&raw mut job).cast(), Ordering::Relaxed);
        shared.parts.store(parts, Ordering::Relaxed);
        shared.done.store(0, Ordering::Relaxed);
        shared.next.store(u64::from(of) << 32, Ordering::SeqCst);
        shared.wake_all();
        let start = Instant::now();
        let ran = shared.work(of, None);
        shared.finish(of, parts, start, ran);
        if shared.has_panicked.swap(false, Ordering::Relaxed) {
            panic!("a part of a step panicked");
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.sleeping.fetch_add(1, Ordering::SeqCst);
        self.shared.wake_all();
        for thread in self.threads.drain(..) {
            // Panics of its parts were caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_runs_once_in_each_of_many_jobs() {
        let mut pool = ThreadPool::start(4);
        for parts in (0..40).chain([1000]).cycle().take(3000) {
            let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            pool.run(parts, &|i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{parts} parts");
        }
    }

    #[test]
    fn threads_that_sleep_are_woken() {
        let mut pool = ThreadPool::start(2);
        for _ in 0..3 {
            // Both threads are in a part at once, so the other thread runs.
            let there = AtomicUsize::new(0);
            pool.run(2, &|_| {
                there.fetch_add(1, Ordering::SeqCst);
                while there.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            });
            while pool.shared.sleeping.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Runs a job of two parts, one on the other thread, which leaves its part once `may_leave` returns true.
    fn with_both_threads(pool: &mut ThreadPool, may_leave: impl Fn(&WorkerState) -> bool + Sync) {
        let (shared, caller, there) = (pool.shared.clone(), std::thread::current().id(), AtomicUsize::new(0));
        pool.run(2, &|_| {
            there.fetch_add(1, Ordering::SeqCst);
            while there.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            while std::thread::current().id() != caller && !may_leave(&shared.workers[0]) {
                std::thread::yield_now();
            }
        });
    }

    /// The system never runs the thread, because another process has its processor.
    #[test]
    fn a_thread_that_takes_no_part_holds_up_no_step() {
        let absent = std::thread::spawn(|| {});
        let mut pool = ThreadPool { shared: Arc::new(PoolState::new(1)), threads: vec![absent] };
        for parts in 2..50 {
            let count = AtomicUsize::new(0);
            pool.run(parts, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), parts);
        }
    }

    /// The system stops the thread in the middle of a part: the caller sleeps meanwhile, and the thread rests and comes
    /// back.
    #[test]
    fn a_late_thread_is_found_rests_and_comes_back() {
        let mut pool = ThreadPool::start(2);
        for _ in 0..3 {
            let shared = pool.shared.clone();
            // The caller would wait for this part forever if it did not mark the thread late before it sleeps.
            with_both_threads(&mut pool, |worker| {
                worker.is_late.load(Ordering::SeqCst) && shared.caller_sleeps.load(Ordering::SeqCst)
            });
            while pool.shared.workers[0].is_late.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            with_both_threads(&mut pool, |_| true);
        }
        // The pool ends while a thread rests.
        with_both_threads(&mut pool, |worker| worker.is_late.load(Ordering::SeqCst));
    }

    #[test]
    fn rests_grow_while_a_thread_is_late_again_soon() {
        let mut rest = RestTimes { last: RestTimes::LEAST, ended: None };
        let mut now = Instant::now();
        for times in [1, 2, 4, 8, 16, 32, 32] {
            let time = rest.next(now);
            assert_eq!(time, times * RestTimes::LEAST);
            now += time + RestTimes::LEAST;
        }
        now += 2 * RestTimes::SOON * RestTimes::MOST;
        assert_eq!(rest.next(now), RestTimes::LEAST);
    }

    #[test]
    fn a_panic_comes_out_and_the_pool_goes_on() {
        let mut pool = ThreadPool::start(3);
        let fails = |i: usize| assert!(i != 5, "this one");
        assert!(catch_unwind(AssertUnwindSafe(|| pool.run(9, &fails))).is_err());
        let count = AtomicUsize::new(0);
        pool.run(9, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 9);
    }
}
