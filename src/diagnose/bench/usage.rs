//! CPU time and anonymous memory of this process.

use crate::diagnose::periodic::PeriodicWork;
use crate::machine::memory_field;
use crate::{Error, Result};
use nix::sys::resource::{UsageWho, getrusage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The CPU time of a process, user and system, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuTime {
    /// CPU time of all threads of the process, including the driver's.
    pub process: f64,
    /// CPU time of the calling thread: it writes and submits the pass, and the driver may spin on it while waiting.
    pub thread: f64,
}

impl CpuTime {
    /// CPU time used up to now.
    ///
    /// # Errors
    /// Failed: the kernel does not report it.
    pub fn now() -> Result<CpuTime> {
        let read = |who| {
            let usage = getrusage(who);
            let usage = usage.map_err(|e| Error::failed(format!("the CPU time cannot be read: {e}"), "report this"))?;
            let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + 1e-6 * t.tv_usec() as f64;
            Ok::<_, Error>(seconds(usage.user_time()) + seconds(usage.system_time()))
        };
        Ok(CpuTime { process: read(UsageWho::RUSAGE_SELF)?, thread: read(UsageWho::RUSAGE_THREAD)? })
    }

    /// CPU time used since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime { process: self.process - earlier.process, thread: self.thread - earlier.thread }
    }
}

/// Bytes of anonymous memory that this process holds now (`RssAnon`); `None` if the kernel does not report it.
pub fn anonymous_bytes() -> Option<u64> {
    memory_field(&std::fs::read_to_string("/proc/self/status").ok()?, "RssAnon")
}

/// Intervals between measurements of memory, while a model loads and while it runs. A measurement costs CPU time of the
/// process, so it is rarer while the model runs.
const LOADING: Duration = Duration::from_millis(5);
const RUNNING: Duration = Duration::from_millis(100);

/// Watches this process's anonymous memory on a separate thread.
pub struct MemoryWatch {
    shared: Arc<UsageState>,
    _looks: PeriodicWork,
    /// Bytes of memory that the process had when the watch began.
    pub baseline: u64,
}

#[derive(Default)]
struct UsageState {
    peak: AtomicU64,
    running: AtomicBool,
}

impl UsageState {
    fn look(&self) {
        self.peak.fetch_max(anonymous_bytes().unwrap_or(0), Ordering::Relaxed);
    }
}

impl MemoryWatch {
    /// Starts the watch at the interval for loading, with the current memory as the baseline. `None` if the kernel does
    /// not report the memory or no thread can be started.
    pub fn start() -> Option<MemoryWatch> {
        let baseline = anonymous_bytes()?;
        let shared = Arc::new(UsageState { peak: baseline.into(), ..UsageState::default() });
        let own = shared.clone();
        let watch = move || {
            own.look();
            if own.running.load(Ordering::Relaxed) { RUNNING } else { LOADING }
        };
        let looks = PeriodicWork::start("memory", Duration::ZERO, watch).ok()?;
        Some(MemoryWatch { shared, _looks: looks, baseline })
    }

    /// Switches to the longer interval, for a running model.
    pub fn loaded(&self) {
        self.shared.look();
        self.shared.running.store(true, Ordering::Relaxed);
    }

    /// The most bytes of memory that the process has had so far.
    pub fn peak(&self) -> u64 {
        self.shared.look();
        self.shared.peak.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// The longest wait of these tests, even on a busy machine.
    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn a_peak_that_is_gone_again_was_seen() {
        let watch = MemoryWatch::start().unwrap();
        // Far more than other tests free meanwhile.
        let block = vec![1u8; 256 << 20];
        let enough = watch.baseline + (128 << 20);
        // Kept until the watching thread has seen it, because `peak` would itself read the memory.
        let start = Instant::now();
        while watch.shared.peak.load(Ordering::Relaxed) < enough {
            assert!(start.elapsed() < DEADLINE, "nobody looks");
            std::thread::sleep(LOADING);
        }
        drop(std::hint::black_box(block));
        assert!(watch.peak() >= enough, "{} after {}", watch.peak(), watch.baseline);
    }

    #[test]
    fn work_takes_cpu_time_of_this_thread() {
        let (before, start) = (CpuTime::now().unwrap(), Instant::now());
        loop {
            let used = CpuTime::now().unwrap().since(before);
            if used.thread > 0.02 {
                // The process's time is read first, so it may lack the last moment of this thread.
                assert!(used.process >= 0.9 * used.thread, "{used:?}");
                break;
            }
            assert!(start.elapsed() < DEADLINE, "{used:?}");
        }
    }
}
