//! Loads and runs programs on the NPU, which `aie/` packs ([`programs`]).
//!
//! A [`LoadedProgram`] holds columns of the array with one program on them, and the buffers that the program works on.
//! If a run exceeds its deadline, the context becomes unusable.
//!
//! [`guest`] attends in place of a device, by streams that [`attend`] makes.
//!
//! There are two driver interfaces to the NPU: the kernel's driver (`kernel`) and libxrt (`xrt`). Other modules do not
//! depend on a context's choice.

pub mod attend;
#[cfg(test)]
mod blocks;
mod context;
#[cfg(test)]
mod device;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod guest;
#[cfg(test)]
mod handover;
mod kernel;
#[cfg(test)]
pub(crate) mod modelled;
mod packet;
pub mod program;
pub mod programs;
pub mod reader;
pub mod reads;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod trial;
mod xrt;

pub use context::{BufferId, BufferPieces, CommandId, LoadedProgram};
pub use program::Program;

/// A driver interface to the NPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverApi {
    /// The kernel's driver, amdxdna.
    Kernel,
    /// libxrt.
    Xrt,
}

impl DriverApi {
    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            DriverApi::Kernel => "the kernel's driver",
            DriverApi::Xrt => "libxrt",
        }
    }
}
