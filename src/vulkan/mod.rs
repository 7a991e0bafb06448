//! The driver by Vulkan, in the order in which one part uses another.
//!
//! | room | what it does |
//! | --- | --- |
//! | [`device`] | opens a Vulkan device and says what it can do |
//! | [`memory`] | heaps, buffers, and memory that other drivers share |
//! | [`pipelines`] | pipelines of kernels, made by [`compiler`] on several threads |
//! | [`queue`] | records dispatches into command buffers, submits them, waits |
//!
//! Every Vulkan call is unsafe. Three rules keep them sound. Handles are owned by types that destroy them. Those types
//! keep the device alive. Who submits waits before it reads, frees or resubmits.

pub mod compiler;
pub mod device;
#[cfg(feature = "testing")]
pub mod inspect;
pub mod memory;
pub mod pipelines;
pub mod queue;

pub use device::{Choice, Gpu};
