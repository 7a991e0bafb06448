//! The kernel's amdgpu driver without Vulkan: packets for the compute ring, and code that was compiled ahead of time.

pub mod code;
pub mod copy;
pub mod packets;
