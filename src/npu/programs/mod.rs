//! The programs that the executable carries. `aie/` makes this file and those beside it from its kernels: see
//! aie/src/main.rs.

use super::program::Program;

/// aie/kernels/attend_bf16.rs
pub const ATTEND_BF16_64: Program = Program {
    name: "attend_bf16_64",
    columns: 4,
    arguments: &[262144, 131072, 294912],
    image: include_bytes!("attend_bf16_64.pdi"),
    sequence: include_bytes!("attend_bf16_64.txn"),
    container: include_bytes!("attend_bf16_64.xclbin"),
};

/// aie/kernels/attend_bf16.rs
pub const ATTEND_BF16_128: Program = Program {
    name: "attend_bf16_128",
    columns: 4,
    arguments: &[393216, 262144, 294912],
    image: include_bytes!("attend_bf16_128.pdi"),
    sequence: include_bytes!("attend_bf16_128.txn"),
    container: include_bytes!("attend_bf16_128.xclbin"),
};

/// aie/kernels/attend_bf16.rs
pub const ATTEND_BF16_256: Program = Program {
    name: "attend_bf16_256",
    columns: 4,
    arguments: &[655360, 524288, 294912],
    image: include_bytes!("attend_bf16_256.pdi"),
    sequence: include_bytes!("attend_bf16_256.txn"),
    container: include_bytes!("attend_bf16_256.xclbin"),
};

/// aie/kernels/matmul_bf16.rs
pub const MATMUL_BF16: Program = Program {
    name: "matmul_bf16",
    columns: 1,
    arguments: &[16384, 16384, 16384],
    image: include_bytes!("matmul_bf16.pdi"),
    sequence: include_bytes!("matmul_bf16.txn"),
    container: include_bytes!("matmul_bf16.xclbin"),
};

/// aie/kernels/read_sum.rs
pub const READ_SUM: Program = Program {
    name: "read_sum",
    columns: 4,
    arguments: &[32768, 65536, 512],
    image: include_bytes!("read_sum.pdi"),
    sequence: include_bytes!("read_sum.txn"),
    container: include_bytes!("read_sum.xclbin"),
};

/// aie/kernels/vector_add_bf16.rs
pub const VECTOR_ADD_BF16: Program = Program {
    name: "vector_add_bf16",
    columns: 4,
    arguments: &[8192, 8192, 8192],
    image: include_bytes!("vector_add_bf16.pdi"),
    sequence: include_bytes!("vector_add_bf16.txn"),
    container: include_bytes!("vector_add_bf16.xclbin"),
};
