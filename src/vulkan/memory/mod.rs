//! Device memory: heaps and buffers.

pub mod buffer;
pub mod heaps;

pub use buffer::{Backing, Buffer};
