//! Limits that every device keeps to, or must.

/// Workgroups in one dimension that every Vulkan device takes.
pub const MAX_GROUPS: usize = 65_535;
/// Lanes of a workgroup at most; a device must take as many.
pub const MAX_WORKGROUP: u32 = 1024;

/// Workgroups for that much work: no more than every device takes in one dimension. Kernels stride over the rest.
pub fn grid(groups: usize) -> u32 {
    groups.clamp(1, MAX_GROUPS) as u32
}
