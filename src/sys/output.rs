//! Whether this process was started with a writable standard output.
//!
//! Before `main`, Rust opens /dev/null in place of a closed standard stream, and later it counts a write that the
//! descriptor does not allow as a success. So this check runs earlier, among the functions that the C library calls
//! first.

use std::sync::atomic::{AtomicBool, Ordering};

/// True if standard output could not be written when the process started.
static CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds pointers to functions that are called once each, with arguments that this one ignores.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: fcntl takes any number for a descriptor and F_GETFL alters nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFL) };
    CLOSED.store(flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY, Ordering::Relaxed);
}

/// True if standard output was closed, or open only for reading, when the process started.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
