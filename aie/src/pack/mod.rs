//! The packer: from what a [`Design`] describes to the bytes that the firmware, the driver and libxrt take.

pub mod array;
mod bytes;
mod check;
pub mod command;
pub mod container;
pub mod descriptor;
pub mod design;
pub mod image;
pub mod listing;
pub mod run;
pub mod sequence;
pub mod stream;

pub use array::{Channel, Tile};
pub use descriptor::Dimension;
pub use design::{Argument, Buffer, Design, Packed, Transfer};
