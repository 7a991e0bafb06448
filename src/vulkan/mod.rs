//! The Vulkan driver. Each module uses those above it.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`spirv`] | the kernels' code |
//! | [`device`] | opens a Vulkan device and queries its capabilities |
//! | [`memory`] | heaps, buffers, and memory that other drivers share |
//! | [`pipelines`] | pipelines of kernels, made by [`compiler`] on several threads |
//! | [`driver`] | implements [`crate::replay::driver::Driver`]: records lists, submits them, waits |
//!
//! Every Vulkan call is unsafe. Three rules keep them sound. Handles are owned by types that destroy them. Those types
//! keep the device alive. The code that submits waits before it reads, frees or resubmits.

pub mod compiler;
pub mod device;
pub mod driver;
pub mod memory;
pub mod pipelines;
mod record;
mod spirv;
pub mod stamps;

pub use device::{DeviceChoice, Gpu};
pub use driver::Vulkan;
