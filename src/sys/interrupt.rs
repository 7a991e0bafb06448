//! The handler of SIGINT, as a value that can be put aside and installed again.
//!
//! A chat has two: the line editor's, which is only meant for its prompt, and Kiln's, which ends a reply.

use nix::errno::Errno;
use std::ptr::{null, null_mut};

/// A handler of SIGINT.
pub struct InterruptHandler(libc::sigaction);

impl InterruptHandler {
    /// The handler that is installed.
    ///
    /// # Errors
    /// The system's.
    pub fn installed() -> nix::Result<InterruptHandler> {
        // SAFETY: of a structure of numbers, pointers and an optional function, zeros are a value.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is writable, and without a new action the handler stays.
        Errno::result(unsafe { libc::sigaction(libc::SIGINT, null(), &mut found) })?;
        Ok(InterruptHandler(found))
    }

    /// Installs it again.
    pub fn install(&self) {
        // SAFETY: the system gave this action. Its function still exists, since nothing that handles signals is unloaded.
        // It cannot fail: SIGINT may be handled, and both pointers are sound.
        unsafe { libc::sigaction(libc::SIGINT, &self.0, null_mut()) };
    }
}
