//! What a model is: its shape, its tensors and their form, and the files it comes from.

pub mod format;
pub mod shape;
pub mod tensor;

pub use format::WeightFormat;
pub use shape::{LayerKind, Shape};
pub use tensor::{Role, TensorId};
