//! Matrix units: detection, shapes and limits.
//!
//! They are used through `VK_KHR_cooperative_matrix`. The matrices differ from device to device: 16x16x16 on NVIDIA and
//! AMD, 8x8x8 on lavapipe.

use ash::vk;
use std::ffi::CStr;

/// The device extension that gives access to matrix units.
pub const EXTENSION: &CStr = ash::khr::cooperative_matrix::NAME;

/// A device's matrix units as the kernels use them. A subgroup computes D = A B + C with A `[m, k]` and B `[k, n]` of
/// f16, C and D `[m, n]` of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units {
    /// Rows of A.
    pub m: u32,
    /// Columns of B.
    pub n: u32,
    /// Columns of A.
    pub k: u32,
    /// The fewest columns of B that the device offers.
    pub least_n: u32,
    /// Lanes per row of A (per column of B) in a subgroup's fragments, if the driver lays them out evenly. Unknown
    /// before [`crate::gpu::measure::fragment::find`] has run.
    pub row_lanes: Option<u32>,
    /// Columns of A in s8 × s8 + s32 products, if the device has them.
    pub s8_k: Option<u32>,
    /// Lanes of a subgroup.
    pub subgroup: u32,
    /// Most bytes of shared memory in a workgroup.
    pub shared_bytes: u32,
    /// Most lanes in a workgroup.
    pub max_workgroup: u32,
    /// Bytes of sums that a lane can keep in registers.
    pub sum_bytes: u32,
    /// Most steps of a product's loop to unroll.
    pub unrolled_steps: u32,
}

/// AMD's PCI vendor number. RADV of Mesa 25.0 spills more than 256 bytes of sums to scratch memory.
pub(super) const AMD: u32 = 0x1002;
/// A CPU driver takes minutes to compile a large tile, or two unrolled steps of a smaller one.
const CPU_SUM_BYTES: u32 = 256;
const CPU_UNROLLED_STEPS: u32 = 1;

impl Units {
    /// The matrix units of a device that has `EXTENSION`, with subgroups of `subgroup` lanes. `None` if it lacks f16 ×
    /// f16 + f32 or a feature that the kernels need.
    pub(crate) fn detect(
        entry: &ash::Entry,
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        subgroup: u32,
    ) -> Option<Units> {
        let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut f12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut f = vk::PhysicalDeviceFeatures2::default().push_next(&mut f12).push_next(&mut matrix);
        // SAFETY: `physical` comes from this instance; the chain is of valid structures, and the extension is there.
        unsafe { instance.get_physical_device_features2(physical, &mut f) };
        let features = [matrix.cooperative_matrix, f12.shader_float16];
        let mut p_matrix = vk::PhysicalDeviceCooperativeMatrixPropertiesKHR::default();
        let mut p11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut p = vk::PhysicalDeviceProperties2::default().push_next(&mut p11).push_next(&mut p_matrix);
        // SAFETY: as above.
        unsafe { instance.get_physical_device_properties2(physical, &mut p) };
        let (limits, vendor, kind) = (p.properties.limits, p.properties.vendor_id, p.properties.device_type);
        if features.contains(&vk::FALSE)
            || !p_matrix.cooperative_matrix_supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
            || !p11.subgroup_supported_operations.contains(vk::SubgroupFeatureFlags::SHUFFLE)
        {
            return None;
        }
        let functions = ash::khr::cooperative_matrix::Instance::new(entry, instance);
        // SAFETY: as above.
        let shapes = unsafe { functions.get_physical_device_cooperative_matrix_properties(physical) }.ok()?;
        type Component = vk::ComponentTypeKHR;
        let of = |operands: Component, sums: Component, most_k: u32| {
            shapes.iter().filter(move |s| {
                [s.a_type, s.b_type, s.c_type, s.result_type] == [operands, operands, sums, sums]
                    && s.scope == vk::ScopeKHR::SUBGROUP
                    && s.saturating_accumulation == vk::FALSE
                    && [s.m_size, s.n_size].iter().all(|n| [8, 16].contains(n))
                    && s.k_size.is_power_of_two()
                    && (8..=most_k).contains(&s.k_size)
            })
        };
        // The largest shape takes the fewest instructions and loads.
        let s = of(Component::FLOAT16, Component::FLOAT32, 16).max_by_key(|s| s.m_size * s.n_size * s.k_size)?;
        let bytes =
            of(Component::SINT8, Component::SINT32, 64).filter(|b| (b.m_size, b.n_size) == (s.m_size, s.n_size));
        let alike =
            of(Component::FLOAT16, Component::FLOAT32, 16).filter(|o| (o.m_size, o.k_size) == (s.m_size, s.k_size));
        Some(Units {
            m: s.m_size,
            n: s.n_size,
            k: s.k_size,
            least_n: alike.map(|o| o.n_size).min().unwrap_or(s.n_size),
            row_lanes: None,
            s8_k: bytes.map(|b| b.k_size).max(),
            subgroup,
            shared_bytes: limits.max_compute_shared_memory_size,
            sum_bytes: match kind {
                vk::PhysicalDeviceType::CPU => CPU_SUM_BYTES,
                _ if vendor == AMD => 256,
                _ => u32::MAX,
            },
            unrolled_steps: match kind {
                vk::PhysicalDeviceType::CPU => CPU_UNROLLED_STEPS,
                _ => u32::MAX,
            },
            max_workgroup: limits.max_compute_work_group_invocations.min(limits.max_compute_work_group_size[0]),
        })
    }
}
