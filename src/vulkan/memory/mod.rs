//! Device memory: heaps, buffers, and the arena.

#[cfg(feature = "testing")]
pub mod allocators;
pub mod arena;
pub mod buffer;
pub mod heaps;

pub use buffer::{Backing, Buffer};
pub use heaps::HostAccess;
