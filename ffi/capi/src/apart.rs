//! Work that takes more stack than a caller's thread may have.
//!
//! A caller's thread has the stack that the host program gave it, which may be a few pages. Drivers, templates and
//! nested documents may need more, so they run on threads of Kiln's.

use crate::fault::Fault;
use std::thread;

/// The stack of such a thread. Only pages that are used take memory.
const STACK: usize = 8 << 20;

/// The remedy if no thread can be started.
const REMEDY: &str = "raise the limit on threads (`ulimit -u`, pids.max) or on address space (`ulimit -v`)";

/// Does `work` on a thread of its own, and waits for it. `work` does not call the caller's functions: these are
/// promised the caller's thread.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> Result<T, Fault> + Send) -> Result<T, Fault> {
    let panicked = |payload: Box<dyn std::any::Any + Send>| Err(Fault::panicked(&*payload));
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("kiln call".into()).stack_size(STACK).spawn_scoped(scope, work);
        let thread =
            thread.map_err(|e| Fault::failed(format!("a thread for the call cannot be started: {e}"), REMEDY))?;
        thread.join().unwrap_or_else(panicked)
    })
}
