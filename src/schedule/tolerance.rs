//! Bounds within which executors agree.

/// The bounds within which two correct computations of a step may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Each input may be rounded by this share of the largest input in its block.
    pub inputs: f32,
    /// Inputs of a block. A row's last block may be shorter.
    pub block: usize,
    /// Each output may be off by this share of the larger of its own magnitude and its row's root mean square.
    pub outputs: f32,
}

impl Tolerance {
    /// Arithmetic in f32, in any order.
    pub const F32: Tolerance = Tolerance { inputs: 1e-6, block: 32, outputs: 2e-5 };
    /// Arithmetic in f32 with exp and tanh as polynomials or a device's own.
    pub const ABOUT_F32: Tolerance = Tolerance { outputs: 1e-4, ..Tolerance::F32 };
    /// Values stored in f16: half of its last bit.
    pub const F16: Tolerance = Tolerance { inputs: 5e-4, block: 32, outputs: 5e-4 };
    /// Values stored in bf16: half of its last bit.
    pub const BF16: Tolerance = Tolerance { inputs: 2e-3, block: 32, outputs: 2e-3 };
}
