//! Programs on the NPU: what `aie/` packs ([`programs`]), loaded and run.
//!
//! A [`LoadedProgram`] holds columns of the array with one program on them, and the buffers that the program works on.
//! A run ends within its deadline, or the context is of no use any more.
//!
//! [`guest`] attends in place of a device, by streams that [`attend`] makes.
//!
//! Two ways lead to the NPU: the kernel's driver (`kernel`) and libxrt (`xrt`). Which one a context takes shows nowhere
//! else.

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

/// A way to the NPU.
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
