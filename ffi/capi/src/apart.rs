//! Work that takes more stack than a caller's thread may have.
//!
//! A caller's thread has the stack that its host gave it, which may be a few pages. Drivers, templates and documents that nest
//! take what they take, so they have threads of Kiln's.

use crate::fault::Fault;
use std::thread;

/// Its stack. The system gives memory to the pages of it that are used.
const STACK: usize = 8 << 20;

/// What to do where no thread can be started.
const REMEDY: &str = "raise the limit on threads (`ulimit -u`, pids.max) or on address space (`ulimit -v`)";

/// Does `work` on a thread of its own, and waits for it. What the caller's functions are called from is no such work: they are
/// promised their own thread.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> Result<T, Fault> + Send) -> Result<T, Fault> {
    let panicked = |payload: Box<dyn std::any::Any + Send>| Err(Fault::panicked(&*payload));
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("kiln call".into()).stack_size(STACK).spawn_scoped(scope, work);
        let thread =
            thread.map_err(|e| Fault::failed(format!("a thread for the call cannot be started: {e}"), REMEDY))?;
        thread.join().unwrap_or_else(panicked)
    })
}
