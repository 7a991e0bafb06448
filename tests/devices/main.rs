//! A device and its driver without a model: requests of the kernel's drivers, kernels that are compiled and timed, and
//! attention by itself.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod compiles;
mod drivers;
mod timing;
