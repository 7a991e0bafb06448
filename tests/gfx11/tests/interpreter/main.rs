//! The interpreter against LLVM's names, vectors of other sources, plain arithmetic, and whole kernels.

#[path = "../common/mod.rs"]
mod common;

mod caches;
mod decode;
mod differential;
mod kernels;
mod matrix;
mod moves;
mod vectors;
