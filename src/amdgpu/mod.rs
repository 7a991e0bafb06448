//! The driver of AMD's RDNA 3 and 3.5 GPUs by the kernel's amdgpu interface itself. Each module uses those above it.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`code`] | the chips, and the machine code of their kernels |
//! | [`packets`] | writes the packets of dispatches, edges and stamps |
//! | [`copy`] | fills and copies as dispatches |
//! | [`device`] | opens a render node, checks it and queries its capabilities |
//! | [`memory`] | allocations, at addresses of [`addresses`] |
//! | [`queue`] | submits, and their end |
//! | [`shipped`] | refuses a model whose kernels do not ship |
//! | [`driver`] | implements [`crate::replay::driver::Driver`]: lists of packets |

mod addresses;
pub mod code;
pub mod copy;
pub mod device;
pub mod driver;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod memory;
pub mod packets;
pub mod queue;
pub mod shipped;
#[cfg(test)]
mod tests;
