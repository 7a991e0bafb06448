//! The interfaces of the kernel's drivers beyond Vulkan: dma-buf, amdgpu and amdxdna. Only this module includes
//! the generated bindings.
//!
//! libxrt, if installed, is used through a bridge in C++ ([`xrt`]).
//!
//! Three strata: `bindings` (bindgen's output for ffi/drivers.h), one unsafe function per ioctl (`raw`), and safe types
//! that own or borrow their file descriptor.

pub mod amdgpu;
pub mod amdxdna;
mod answer;
pub mod dma_buf;
pub mod drm;
pub mod exit;
pub mod failure;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(feature = "cli")]
pub mod interrupt;
#[cfg(any(test, all(feature = "amdgpu", feature = "testing")))]
pub(crate) mod ioctl_fake;
pub mod memory;
#[cfg(all(feature = "cli", target_env = "gnu", target_feature = "crt-static"))]
pub mod names;
#[cfg(feature = "init")]
pub mod network;
pub mod npu_program;
#[cfg(feature = "cli")]
pub mod output;
mod raw;
#[cfg(test)]
mod tests;
pub mod xrt;

/// ffi/bindings.rs, with every structure's size and offsets asserted.
#[allow(missing_docs, non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
#[path = "../../ffi/bindings.rs"]
pub(crate) mod bindings;

pub use failure::{DriverResult, Failure};
