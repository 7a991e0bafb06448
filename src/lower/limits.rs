//! Limits that every Vulkan device has at least, and that kernels and schedules rely on.

/// Workgroups in one dimension that every Vulkan device supports.
pub const MAX_GROUPS: usize = 65_535;
/// Most lanes in a workgroup. A device must support this many.
pub const MAX_WORKGROUP: u32 = 1024;

/// `groups` as a grid dimension, at most [`MAX_GROUPS`]. Kernels loop over the rest.
pub fn grid(groups: usize) -> u32 {
    groups.clamp(1, MAX_GROUPS) as u32
}
