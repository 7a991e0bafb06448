//! libkiln: Kiln's C interface. `include/kiln.h` is made of this crate, and documents each function.
//!
//! # Rules of all functions
//!
//! - A handle is a number that is never used twice, in the place of a pointer, and is never dereferenced. So a closed
//!   or invalid handle is an error and not a crash, and a handle may be closed while another thread uses it.
//! - No panic crosses the border, nothing is printed, no signal is handled, and the process is never ended.
//! - Each function returns a code. [`kiln_last_error`] has the words of the thread's last call.
//! - Texts have lengths. Memory that a function gives comes from `malloc`, and the caller frees it with [`kiln_free`].
//!
//! `unsafe` is in `border` alone, beside the signatures: C's arguments are turned into values there.
#![warn(missing_docs)]

mod apart;
mod border;
mod fault;
mod handles;
mod logging;
mod options;

pub use border::*;
