//! The designs: each lies beside its kernel, `kernels/NAME.rs` by `kernels/NAME.s`.

use crate::pack::Design;

#[path = "../kernels/attend_decode_bf16.rs"]
pub mod attend_decode_bf16;
#[path = "../kernels/matmul_bf16.rs"]
pub mod matmul_bf16;
#[path = "../kernels/vector_add_bf16.rs"]
pub mod vector_add_bf16;

/// Those that the executable carries.
pub fn carried() -> Vec<Design> {
    vec![matmul_bf16::design(), vector_add_bf16::design()]
}

/// All, with those that nothing in the executable runs yet.
pub fn all() -> Vec<Design> {
    [vec![attend_decode_bf16::design()], carried()].concat()
}
