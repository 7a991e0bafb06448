//! Kiln: a synchronous, bare-metal-style runtime for Gemma 3.
//!
//! ```text
//! safetensors ──► checkpoint ──► plan ──► upload ──► bake ──► replay ──► logits ──► sampler ──► text
//!  (files)        (views)      (bytes)   (once)    (once)   (per token)
//! ```
//!
//! A model is baked once, when it is loaded, into a fixed schedule of command buffers; every token replays them. What
//! changes from token to token lies in the step state, in device memory. No async executor, no graph framework, no
//! allocation and no recording while tokens flow.
#![warn(missing_docs)]

pub mod bench;
pub mod cache;
pub mod cli;
pub mod demo;
pub mod engine;
pub mod error;
pub mod executor;
pub mod generate;
pub mod gpu;
pub mod machine;
pub mod model;
pub mod plan;
pub mod probe;
pub mod reference;
pub mod schedule;
pub mod session;
pub mod status;
pub mod sys;
pub mod text;
pub mod top;
pub mod weights;

pub use error::{Error, Result};
pub use executor::Executor;
