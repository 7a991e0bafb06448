//! Rayon's threads, which loading, writing and the reference executor share. A limit of the system may allow fewer of
//! them than processors.

use crate::machine::files::Files;
use crate::{Error, Result};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rayon::{ThreadBuilder, ThreadPoolBuilder};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// The remedy if no more threads can be started.
pub(crate) const REMEDY: &str = "raise the limit on processes (`ulimit -u`), on the tasks of its service or container \
                                 (pids.max), or on address space (`ulimit -v`)";

/// Address space of a thread: its stack, and the arena that malloc reserves for it.
const ADDRESS_SPACE: u64 = (2 + 64) << 20;

/// Starts rayon's threads unless they run: one per processor, or as many as the system grants. If it grants none, the
/// main thread works alone.
///
/// Every use of rayon in this crate calls it before. Rayon itself would panic if it could not start every thread.
///
/// # Errors
/// Failed: no thread can be started, and this one is not the main one, so that it could end before rayon's work does.
pub(crate) fn start() -> Result<()> {
    static STARTED: OnceLock<Result<()>> = OnceLock::new();
    STARTED.get_or_init(|| build(most_threads())).clone()
}

/// The number of threads in the pool: as many as are requested, and as the address space allows.
fn most_threads() -> usize {
    let told = std::env::var_os("RAYON_NUM_THREADS").map(|told| told.to_string_lossy().into_owned());
    grantable(wanted_threads(told.as_deref(), std::thread::available_parallelism().map_or(1, usize::from)))
}

/// `wanted`, or fewer threads if the limit on address space leaves no room for their stacks.
fn grantable(wanted: usize) -> usize {
    let limit = getrlimit(Resource::RLIMIT_AS).map_or(RLIM_INFINITY, |(soft, _)| soft);
    match limit {
        RLIM_INFINITY => wanted,
        // Half of the remaining address space is for everything else.
        limit => wanted.min((limit.saturating_sub(mapped_bytes()) / 2 / ADDRESS_SPACE) as usize),
    }
}

/// The number of threads that `RAYON_NUM_THREADS` requests; by rayon's convention 0 means one per processor.
fn wanted_threads(told: Option<&str>, processors: usize) -> usize {
    /// More are of no use on any machine, and could exhaust the system.
    const MOST: usize = 1024;
    match told.map(str::parse::<usize>) {
        None | Some(Ok(0)) => processors,
        Some(Ok(count)) if count <= MOST => count,
        Some(_) => {
            let told = told.unwrap_or_default();
            log::warn!("RAYON_NUM_THREADS={told:?} is no number up to {MOST}; {processors} threads are started");
            processors
        }
    }
}

/// Cores that this process may run on. A core counts once for all of its processors, which share vector units.
pub(crate) fn cores() -> usize {
    grantable(cores_in(&Files::system(), &own_processors()))
}

/// The processors that this process may run on; none if that is unknown.
fn own_processors() -> Vec<usize> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok();
    let is_own = |i: &usize| set.as_ref().is_some_and(|set| set.is_set(*i).unwrap_or(false));
    (0..nix::sched::CpuSet::count()).filter(is_own).collect()
}

fn cores_in(files: &Files, processors: &[usize]) -> usize {
    let core = |i: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list");
        files.text(&path).map_or_else(|_| i.to_string(), |list| list.trim().to_string())
    };
    let cores: std::collections::BTreeSet<String> = processors.iter().map(core).collect();
    // A quota of CPU time may be smaller than the number of processors.
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    if cores.is_empty() { most } else { cores.len().min(most) }
}

/// Bytes of address space that this process has mapped.
fn mapped_bytes() -> u64 {
    let status = Files::system().text("/proc/self/status").unwrap_or_default();
    super::memory_field(&status, "VmSize").unwrap_or(0)
}

/// Builds rayon's global pool of `wanted` threads or fewer. Rayon tries only once, so the threads are started before.
fn build(wanted: usize) -> Result<()> {
    let granted: Vec<WaitingThread> = (0..wanted).map_while(|_| WaitingThread::start().ok()).collect();
    let builder = match granted.len() {
        0 if nix::unistd::gettid() == nix::unistd::getpid() => {
            ThreadPoolBuilder::new().num_threads(1).use_current_thread()
        }
        0 => {
            return Err(Error::failed("no thread can be started", REMEDY));
        }
        threads => ThreadPoolBuilder::new().num_threads(threads),
    };
    if granted.len() < wanted {
        log::info!("{} threads instead of {wanted}: the system grants no more", granted.len().max(1));
    }
    let gone = |_| std::io::Error::other("the thread has ended");
    let built = builder.spawn_handler(|worker| granted[worker.index()].part.send(worker).map_err(gone)).build_global();
    // The library's user may have built the pool before. Its threads serve as well.
    if let Err(e) = built {
        log::debug!("rayon's threads are not started here: {e}");
    }
    Ok(())
}

/// The number of threads that can be started now, up to `most`. They have ended when this returns.
pub(crate) fn count_startable(most: usize) -> usize {
    let started: Vec<WaitingThread> = (0..most).map_while(|_| WaitingThread::start().ok()).collect();
    let count = started.len();
    for WaitingThread { part, thread } in started {
        drop(part);
        // The thread had no work that could fail.
        let _ = thread.join();
    }
    count
}

/// A thread that has started and waits for its work in the pool. Dropping `part` ends it.
struct WaitingThread {
    part: Sender<ThreadBuilder>,
    thread: JoinHandle<()>,
}

impl WaitingThread {
    fn start() -> std::io::Result<WaitingThread> {
        let (part, parts) = channel::<ThreadBuilder>();
        let run = move || parts.recv().into_iter().for_each(ThreadBuilder::run);
        let thread = std::thread::Builder::new().name("worker".into()).spawn(run)?;
        Ok(WaitingThread { part, thread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_sensible_number_of_threads_is_as_good_as_none() {
        let wanted = |told| wanted_threads(told, 6);
        assert_eq!([None, Some("0"), Some("1"), Some("1024")].map(wanted), [6, 6, 1, 1024]);
        for told in ["", "-1", "two", "1025", "100000", "99999999999999999999999"] {
            assert_eq!(wanted(Some(told)), 6, "{told}");
        }
    }

    #[test]
    fn processors_of_one_core_count_once() {
        let sys = tempfile::tempdir().unwrap();
        for (i, siblings) in ["0,4", "1,5", "2", "3", "0,4", "1,5"].iter().enumerate() {
            let topology = sys.path().join(format!("sys/devices/system/cpu/cpu{i}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("thread_siblings_list"), format!("{siblings}\n")).unwrap();
        }
        let files = Files::under(sys.path());
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(cores_in(&files, &[0, 4]), 1);
        assert_eq!(cores_in(&files, &[0, 1, 4, 5]), 2.min(most));
        // Without a topology each processor counts.
        assert_eq!(cores_in(&files, &[8, 9]), 2.min(most));
        assert_eq!(cores_in(&files, &[]), most);
    }
}
