//! A model: its shape, its tensors, their weight formats, and reading and writing its files.

pub mod architecture;
pub mod blocks;
#[cfg(any(feature = "cli", feature = "serve"))]
pub mod bundle;
pub mod checkpoint;
pub mod config;
pub mod format;
pub mod grouped;
pub(crate) mod json;
pub mod mix;
pub mod presets;
pub mod shape;
pub mod tensor;
pub(crate) mod text_file;
pub mod write;

pub use architecture::Architecture;
pub use blocks::BlockFormat;
pub use checkpoint::Checkpoint;
pub use format::{SourceFormat, WeightFormat};
pub use mix::FileMix;
pub use shape::{AttentionShape, Experts, LayerKind, Rope, Shape, Values};
pub use tensor::{Role, TensorId};
