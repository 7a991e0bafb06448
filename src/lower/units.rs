//! Matrix units: shapes and limits. The matrices differ from device to device: 16x16x16 on NVIDIA and AMD, 8x8x8 on lavapipe.

/// A device's matrix units as the kernels use them. A subgroup computes D = A B + C with A `[m, k]` and B `[k, n]` of
/// f16, C and D `[m, n]` of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixUnits {
    /// The number of rows of A.
    pub m: u32,
    /// The number of columns of B.
    pub n: u32,
    /// The number of columns of A, which is that of rows of B.
    pub k: u32,
    /// The smallest `n` that the device offers with this `m` and `k`.
    pub least_n: u32,
    /// Lanes per row of A (per column of B) in a subgroup's fragments, if the driver lays them out evenly. Unknown
    /// before replay has looked for them on the device.
    pub row_lanes: Option<u32>,
    /// Columns of A in s8 × s8 + s32 products, if the device has them.
    pub s8_k: Option<u32>,
    /// The number of lanes in a subgroup.
    pub subgroup: u32,
    /// Most bytes of shared memory in a workgroup.
    pub shared_bytes: u32,
    /// The most lanes in a workgroup.
    pub max_workgroup: u32,
    /// Bytes of sums that a lane can keep in registers.
    pub sum_bytes: u32,
    /// Most steps of a product's loop to unroll.
    pub unrolled_steps: u32,
}

/// The matrix units of RDNA 3 and 3.5 as RADV reports them.
#[cfg(any(feature = "amdgpu", feature = "cli", feature = "serve", test))]
pub(crate) const RDNA3: MatrixUnits = MatrixUnits {
    m: 16,
    n: 16,
    k: 16,
    least_n: 16,
    row_lanes: None,
    s8_k: Some(16),
    subgroup: 32,
    shared_bytes: 65536,
    max_workgroup: 1024,
    sum_bytes: 256,
    unrolled_steps: u32::MAX,
};

/// The matrix units of Hopper as NVIDIA's driver reports them, with its layout of fragments.
#[cfg(test)]
pub(crate) const HOPPER: MatrixUnits = MatrixUnits {
    least_n: 8,
    row_lanes: Some(4),
    s8_k: Some(32),
    shared_bytes: 48 << 10,
    sum_bytes: u32::MAX,
    ..RDNA3
};
