//! What a model is: its shape, its tensors and their form, and the files it comes from.

pub mod checkpoint;
pub mod config;
pub mod format;
pub mod presets;
pub mod shape;
pub mod tensor;
pub mod write;

pub use checkpoint::{Checkpoint, Source};
pub use format::WeightFormat;
pub use shape::{LayerKind, Shape};
pub use tensor::{Role, TensorId};
