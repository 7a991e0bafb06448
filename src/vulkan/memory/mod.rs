//! Device memory: heaps, buffers, and sources of memory.

#[cfg(feature = "testing")]
pub mod allocators;
pub mod buffer;
pub mod heaps;
pub(crate) mod source;

pub use buffer::{Backing, Buffer};
