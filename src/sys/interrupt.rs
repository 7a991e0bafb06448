//! The SIGINT handler as a value that can be saved and installed again.
//!
//! A chat has two handlers: the line editor's, for its prompt only, and Kiln's, which ends a reply.

use nix::errno::Errno;
use std::ptr::{null, null_mut};

/// A handler of SIGINT, which can be installed again later.
pub struct InterruptHandler(libc::sigaction);

impl InterruptHandler {
    /// The installed handler.
    ///
    /// # Errors
    /// The system's.
    pub fn installed() -> nix::Result<InterruptHandler> {
        // SAFETY: all zeros are a valid value of a structure of numbers, pointers and an optional function.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is writable, and without a new action the handler stays.
        Errno::result(unsafe { libc::sigaction(libc::SIGINT, null(), &mut found) })?;
        Ok(InterruptHandler(found))
    }

    /// Installs the handler.
    pub fn install(&self) {
        // SAFETY: the action came from the system, and its function still exists, since no library with a signal
        // handler is unloaded. The call cannot fail: SIGINT may be handled, and both pointers are valid.
        unsafe { libc::sigaction(libc::SIGINT, &self.0, null_mut()) };
    }
}
