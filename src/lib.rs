//! Kiln: a synchronous, bare-metal-style runtime for Gemma 3.
//!
//! ```text
//! safetensors ──► checkpoint ──► plan ──► upload ──► bake ──► replay ──► logits ──► sampler ──► text
//!  (mmap)         (views)      (bytes)   (once)    (once)   (per token)
//! ```
#![warn(missing_docs)]

pub mod cli;
pub mod error;
pub mod model;

pub use error::{Error, Result};
