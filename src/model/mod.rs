//! What a model is: its shape, its tensors and their form, and the files it comes from.

pub mod archive;
pub mod checkpoint;
pub mod config;
mod contents;
mod encoding;
mod files;
pub mod forge;
pub mod format;
mod index;
mod keys;
pub mod presets;
pub mod quantize;
pub mod shape;
pub mod tensor;
pub mod writer;

pub use checkpoint::{Checkpoint, Source};
pub use format::WeightFormat;
pub use shape::{LayerKind, Shape};
pub use tensor::{Role, TensorId};

/// A name or value from a file as an error message quotes it: at most 160 characters.
fn quote(text: &str) -> String {
    const MAX: usize = 160;
    match text.char_indices().nth(MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
