//! Threads that run the parts of a step.
//!
//! A pass has some hundred steps of microseconds each, so threads wait for the next one in a loop, for [`SPIN`] at most;
//! then they sleep. The caller takes parts as they do. Nobody waits for a thread that has taken no part: one that the system
//! runs late, because something else has its processor, costs its share of the speed and no more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread waits in a loop before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// Looks before the clock is read, or the processor given to others.
const LOOKS: u32 = 64;
/// The index of a job whose parts cannot be taken yet.
const CLOSED: u32 = u32::MAX;

/// What runs a part.
struct PoolTask<'a> {
    part: &'a (dyn Fn(usize) + Sync),
}

struct PoolState {
    /// The job's number, and below it the index of its next part. Whoever moves the index has the part.
    next: AtomicU64,
    /// The job of that number, on its caller's stack; valid while a part of it is taken and not done.
    job: AtomicPtr<PoolTask<'static>>,
    parts: AtomicUsize,
    done: AtomicUsize,
    has_panicked: AtomicBool,
    ends: AtomicBool,
    sleeping: AtomicUsize,
    bed: Mutex<()>,
    wake: Condvar,
}

/// The threads, and their caller.
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
    /// Takes parts of the job whose number is `of` and runs them until none is left.
    fn work(&self, of: u32) {
        loop {
            let word = self.next.load(Ordering::Acquire);
            let (at, parts) = (index(word), self.parts.load(Ordering::Relaxed));
            if number(word) != of || at == CLOSED || at as usize >= parts {
                return;
            }
            let job = self.job.load(Ordering::Relaxed);
            // It fails where the job is another one by now: then neither `parts` nor `job` may be this one's.
            if self.next.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: this part is taken and not done, so that `ThreadPool::run` has not returned from the job.
            let job = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(|| (job.part)(at as usize))).is_err() {
                self.has_panicked.store(true, Ordering::Relaxed);
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits for a job that is not that of `seen`. Returns its number; `None` if there will be none.
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
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted before the last look: whoever publishes a job after that look finds the count.
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

    fn wake_all(&self) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }
}

impl ThreadPool {
    /// Starts `threads - 1` threads, or fewer where the system grants no more. The caller is the last one.
    pub fn start(threads: usize) -> ThreadPool {
        let shared = Arc::new(PoolState {
            next: AtomicU64::new(u64::from(CLOSED)),
            job: AtomicPtr::new(std::ptr::null_mut()),
            parts: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            has_panicked: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            bed: Mutex::new(()),
            wake: Condvar::new(),
        });
        let spawn = |_| {
            let shared = shared.clone();
            let run = move || {
                let mut seen = 0;
                while let Some(number) = shared.wait(seen) {
                    shared.work(number);
                    seen = number;
                }
            };
            std::thread::Builder::new().name("cpu".into()).spawn(run)
        };
        let threads: Vec<_> = (1..threads).map(spawn).map_while(std::io::Result::ok).collect();
        ThreadPool { shared, threads }
    }

    /// Threads, the caller included.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `part` with each of `0 .. parts`, on all threads. Returns when all have returned.
    ///
    /// # Panics
    /// If a part did.
    pub fn run(&mut self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        if self.threads.is_empty() || parts <= 1 {
            return (0..parts).for_each(part);
        }
        assert!(parts < CLOSED as usize, "{parts} parts");
        let shared = &*self.shared;
        let mut job = PoolTask { part };
        let of = number(shared.next.load(Ordering::Relaxed)).wrapping_add(1);
        // Closed first: a thread that still looks at the job before finds it gone before it can mix up the two.
        shared.next.store(u64::from(of) << 32 | u64::from(CLOSED), Ordering::SeqCst);
        shared.job.store((&raw mut job).cast(), Ordering::Relaxed);
        shared.parts.store(parts, Ordering::Relaxed);
        shared.done.store(0, Ordering::Relaxed);
        shared.next.store(u64::from(of) << 32, Ordering::SeqCst);
        shared.wake_all();
        shared.work(of);
        let mut looks = 0;
        while shared.done.load(Ordering::Acquire) < parts {
            std::hint::spin_loop();
            looks += 1;
            if looks % LOOKS == 0 {
                // Who has the last part may wait for this processor.
                std::thread::yield_now();
            }
        }
        if shared.has_panicked.swap(false, Ordering::Relaxed) {
            panic!("a part of a step panicked");
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        drop(self.shared.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // Its parts' panics were caught.
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
            // Both are in a part at once: so the other thread is there.
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
