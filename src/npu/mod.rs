//! Loads and runs programs on the NPU, which `aie/` packs ([`programs`]).
//!
//! A [`LoadedProgram`] holds columns of the array with one program on them, and the buffers that the program works on.
//! If a run exceeds its deadline, the context becomes unusable.
//!
//! [`offload`] attends in place of a device, by streams that [`attend`] makes.
//!
//! There are two driver interfaces to the NPU: the kernel's driver (`kernel`) and libxrt (`xrt`). Other modules do not
//! depend on a context's choice.

pub mod attend;
#[cfg(test)]
mod blocks_tests;
mod context;
#[cfg(test)]
mod device_tests;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod handover_tests;
mod kernel;
#[cfg(test)]
pub(crate) mod modelled_tests;
pub(crate) mod offload;
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
