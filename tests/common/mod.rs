//! Shared code of the tests.
#![allow(dead_code, unused_imports)]

pub mod arena;
pub mod check;
mod compare;
mod device;
mod drafts;
mod forged;
mod gemma3;
pub mod gguf;
mod golden;
mod guide;
pub mod program;
mod random;
mod turns;
pub mod vgem;

pub use compare::{Outputs, bits, max_abs, observe, relative_rms, rms};
pub use device::{
    AUTO, DOT, F32, MATRIX_F16, MATRIX_S8, ONE_SUBMIT, forced, listen, load, nvidia_units, open_gpu, runs_all,
    shared_heap, takes_all, units, vulkan, worth_compiling,
};
pub use drafts::Mixed;
pub use forged::{Forged, small_shape};
pub use gemma3::{gemma3_270m, gemma3_tokenizer};
pub use golden::{Case, floats, golden, golden_dir, ids};
pub use guide::Fifths;
pub use random::Random;
pub use turns::{decode_ahead, decode_in_turns};
