//! Detection of matrix units, which are used through `VK_KHR_cooperative_matrix`.

use crate::lower::units::MatrixUnits;
use ash::vk;
use std::ffi::CStr;

/// The device extension that gives access to matrix units.
pub const EXTENSION: &CStr = ash::khr::cooperative_matrix::NAME;

/// AMD's PCI vendor number. RADV of Mesa 25.0 spills more than 256 bytes of sums to scratch memory.
pub(super) const AMD: u32 = 0x1002;
/// A CPU driver takes minutes to compile a large tile, or two unrolled steps of a smaller one.
const CPU_SUM_BYTES: u32 = 256;
const CPU_UNROLLED_STEPS: u32 = 1;

/// The matrix units of a device with `EXTENSION`, for subgroups of `subgroup` lanes. `None` if it lacks f16 × f16 + f32
/// or a feature that the kernels need.
pub(crate) fn detect(
    entry: &ash::Entry,
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    subgroup: u32,
) -> Option<MatrixUnits> {
    let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
    let mut f12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut f = vk::PhysicalDeviceFeatures2::default().push_next(&mut f12).push_next(&mut matrix);
    // SAFETY: `physical` comes from this instance; the chain is of valid structures, and the extension is present.
    unsafe { instance.get_physical_device_features2(physical, &mut f) };
    let features = [matrix.cooperative_matrix, f12.shader_float16];
    let mut p_matrix = vk::PhysicalDeviceCooperativeMatrixPropertiesKHR::default();
    let mut p11 = vk::PhysicalDeviceVulkan11Properties::default();
    let mut p = vk::PhysicalDeviceProperties2::default().push_next(&mut p11).push_next(&mut p_matrix);
    // SAFETY: `physical` comes from this instance; the chain is of valid structures, and the extension is present.
    unsafe { instance.get_physical_device_properties2(physical, &mut p) };
    let (limits, vendor, kind) = (p.properties.limits, p.properties.vendor_id, p.properties.device_type);
    if features.contains(&vk::FALSE)
        || !p_matrix.cooperative_matrix_supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
        || !p11.subgroup_supported_operations.contains(vk::SubgroupFeatureFlags::SHUFFLE)
    {
        return None;
    }
    let functions = ash::khr::cooperative_matrix::Instance::new(entry, instance);
    // SAFETY: `physical` comes from this instance, and the extension is present.
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
    // The largest shape needs the fewest instructions and loads.
    let s = of(Component::FLOAT16, Component::FLOAT32, 16).max_by_key(|s| s.m_size * s.n_size * s.k_size)?;
    let bytes = of(Component::SINT8, Component::SINT32, 64).filter(|b| (b.m_size, b.n_size) == (s.m_size, s.n_size));
    let alike = of(Component::FLOAT16, Component::FLOAT32, 16).filter(|o| (o.m_size, o.k_size) == (s.m_size, s.k_size));
    Some(MatrixUnits {
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
