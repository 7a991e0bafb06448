//! Ends the process while one of its threads cannot be waited for.

use std::sync::atomic::{AtomicBool, Ordering};

static HAS_ABANDONED: AtomicBool = AtomicBool::new(false);

/// Notes that a thread inside a driver is not waited for, and may run until the process ends.
pub fn abandon_thread() {
    HAS_ABANDONED.store(true, Ordering::Relaxed);
}

/// Ends the process at once if a thread was abandoned, without exit handlers of the driver and the C library: they would
/// free memory that the thread still uses inside the driver. Output must have been flushed.
pub fn leave_abandoned(code: u8) {
    if HAS_ABANDONED.load(Ordering::Relaxed) {
        // SAFETY: nothing of this process is used after the call, which does not return.
        unsafe { libc::_exit(i32::from(code)) }
    }
}
