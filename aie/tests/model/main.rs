//! The packed programs on a functional model of the array: right on it, and wrong with one thing changed.

mod attend;
mod faults;
mod instructions;
mod kernels;
mod latencies;
mod machine;
mod mutations;
mod npu;
mod prefill;
mod program;
mod reads;
mod rings;
mod streams;
