//! An interpreter of RDNA 3 machine code (gfx11, and gfx11.5's scalar floats): a test instrument, stricter than the
//! hardware. README.md says what it is, what it refuses and how it was checked.
//!
//! [`isa`] is the instruction set as data, [`decode`] makes instructions of words, [`program`] a closure of each, from
//! [`scalar`], [`vector`], [`lanes`], [`matrix`], [`smem`], [`vmem`], [`buffer`], [`scratch`] and [`ds`]. [`machine`] runs a grid's [`wave`]s
//! against [`cache`], [`lds`] and [`memory`]; [`kernel`] enters RADV's kernels.

#![warn(missing_docs)]
// With NaNs "not less" is another condition than "greater or equal", and "less or greater" another than "not equal".
#![allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons)]

pub mod atomics;
pub mod buffer;
pub mod cache;
pub mod decode;
pub mod ds;
pub mod fault;
pub mod float;
pub mod isa;
pub mod kernel;
pub mod lanes;
pub mod lds;
pub mod machine;
pub mod matrix;
pub mod memory;
pub mod operand;
pub mod ops;
pub mod program;
pub mod scalar;
pub mod scratch;
pub mod smem;
pub mod spread;
pub mod vector;
pub mod vmem;
pub mod wave;
