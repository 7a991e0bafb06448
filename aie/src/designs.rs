//! The designs, `kernels/NAME.rs`, and the kernels that their cores run, of one source `kernels/NAME.s` or of several.

use crate::pack::Design;

#[path = "../kernels/attend_bf16.rs"]
pub mod attend_bf16;
#[path = "../kernels/matmul_bf16.rs"]
pub mod matmul_bf16;
#[path = "../kernels/read_sum.rs"]
pub mod read_sum;
#[path = "../kernels/vector_add_bf16.rs"]
pub mod vector_add_bf16;

/// Kernels, and the sources that each is made of, one behind the other.
pub const KERNELS: [(&str, &[&str]); 4] = [
    ("attend_bf16", &["attend_decode_bf16", "attend_prefill_bf16", "attend_edges_bf16"]),
    ("matmul_bf16", &["matmul_bf16"]),
    ("read_sum", &["read_sum"]),
    ("vector_add_bf16", &["vector_add_bf16"]),
];

/// All, which the executable carries.
pub fn all() -> Vec<Design> {
    let others = [matmul_bf16::design(), read_sum::design(), vector_add_bf16::design()];
    attend_bf16::designs().into_iter().chain(others).collect()
}
