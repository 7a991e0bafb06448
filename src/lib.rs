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

#[cfg(feature = "cli")]
pub mod cli;
pub mod diagnose;
mod display;
pub mod engine;
pub mod error;
pub mod executor;
mod gpu;
pub mod machine;
pub mod model;
pub mod plan;
mod reference;
pub mod schedule;
pub mod sequence;
// Until attention runs on the NPU, tests alone drive some of it.
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
mod sys;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;

pub use error::{Error, Result, Setting};
pub use executor::Executor;
