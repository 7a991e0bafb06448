//! libkiln: Kiln's C interface. `include/kiln.h` is made of this crate, and documents each function.
//!
//! # What holds everywhere
//!
//! - A handle is a number that is never used twice, in the place of a pointer that nobody follows. So a handle that was given
//!   back, or that is none, is an error and not a crash, and a handle may be given back while another thread uses it.
//! - No panic crosses the border, nothing is printed, no signal is handled, and the process is never ended.
//! - Each function returns a code; the words are the thread's, until its next call ([`kiln_last_error`]).
//! - Texts have lengths. What a function gives is `malloc`'s, and the caller frees it with [`kiln_free`].
//!
//! `unsafe` is in `border` alone, beside the signatures: what C hands over is turned into values there.
#![warn(missing_docs)]

mod apart;
mod border;
mod fault;
mod handles;
mod logging;
mod options;

pub use border::*;
