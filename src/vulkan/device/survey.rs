//! Every Vulkan device that the loader lists, whether or not it can run Kiln.

use crate::Result;
use crate::lower::caps::{Caps, DeviceKind};
use crate::vulkan::device::failure::failure;
use crate::vulkan::device::instance::Instance;
use crate::vulkan::device::{compute_family, kind_of, name_of, read_caps, unfit, units};
use ash::vk;
use std::ffi::CStr;

/// A device that the loader lists.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The device's name, from its driver.
    pub name: String,
    /// The kind of the device: discrete, integrated, CPU, ….
    pub kind: DeviceKind,
    /// The version of Vulkan that the device supports.
    pub api: [u32; 3],
    /// The driver's name and version, as the driver gives them.
    pub driver: String,
    /// The reason why it cannot run Kiln; `None` if it can.
    pub unfit: Option<String>,
    /// The device's capabilities; `None` if it cannot run Kiln.
    pub caps: Option<Caps>,
    /// Each shape of matrices that the device's matrix units multiply.
    pub shapes: Vec<String>,
    /// Optional extensions that Kiln uses, and whether the device has each.
    pub extensions: Vec<(&'static str, bool)>,
}

/// Optional extensions that Kiln uses, and their purposes.
const OPTIONAL: [(&CStr, &str); 4] = [
    (ash::ext::memory_budget::NAME, "memory budget"),
    (units::EXTENSION, "cooperative matrix"),
    (ash::ext::external_memory_dma_buf::NAME, "dma-buf"),
    (ash::khr::pipeline_executable_properties::NAME, "machine code"),
];

/// Lists every device, in the order that `vulkan:N` counts them.
///
/// # Errors
/// Device: no loader or no driver.
pub fn list() -> Result<Vec<Listed>> {
    let instance = Instance::new()?;
    let describe = |d| describe(&instance.entry, &instance.functions, d);
    instance.devices()?.into_iter().map(describe).collect()
}

fn describe(entry: &ash::Entry, instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<Listed> {
    let mut p12 = vk::PhysicalDeviceVulkan12Properties::default();
    let mut p = vk::PhysicalDeviceProperties2::default().push_next(&mut p12);
    // SAFETY: `physical` comes from this instance; the chain is of valid structures.
    unsafe { instance.get_physical_device_properties2(physical, &mut p) };
    let properties = p.properties;
    // SAFETY: `physical` comes from this instance.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }
        .map_err(failure("list a device's extensions"))?;
    let has = |name: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
    let unfit = unfit(instance, physical, &properties);
    let caps = match (&unfit, compute_family(instance, physical)) {
        (None, Some((_, bits))) => Some(read_caps(entry, instance, physical, bits)?.0),
        _ => None,
    };
    let text = |s: std::result::Result<&CStr, _>| s.unwrap_or(c"").to_string_lossy().into_owned();
    let version = properties.api_version;
    Ok(Listed {
        name: name_of(&properties),
        kind: kind_of(properties.device_type),
        api: [vk::api_version_major(version), vk::api_version_minor(version), vk::api_version_patch(version)],
        driver: format!("{} {}", text(p12.driver_name_as_c_str()), text(p12.driver_info_as_c_str())),
        unfit,
        caps,
        shapes: if has(units::EXTENSION) { shapes(entry, instance, physical) } else { Vec::new() },
        extensions: OPTIONAL.iter().map(|&(name, word)| (word, has(name))).collect(),
    })
}

fn component(t: vk::ComponentTypeKHR) -> String {
    // ash has no names for these yet; numbers from vulkan_core.h.
    match t.as_raw() {
        1_000_141_000 => return "bf16".into(),
        1_000_491_002 => return "f8e4m3".into(),
        1_000_491_003 => return "f8e5m2".into(),
        _ => {}
    }
    format!("{t:?}").to_lowercase().replace("float", "f").replace("sint", "i").replace("uint", "u")
}

/// The distinct shapes of a device that has the extension, as text: `16x16x16 f16 x f16 + f32`.
fn shapes(entry: &ash::Entry, instance: &ash::Instance, physical: vk::PhysicalDevice) -> Vec<String> {
    let functions = ash::khr::cooperative_matrix::Instance::new(entry, instance);
    // SAFETY: `physical` comes from this instance and has the extension.
    let found = unsafe { functions.get_physical_device_cooperative_matrix_properties(physical) }.unwrap_or_default();
    let subgroup = found.iter().filter(|s| s.scope == vk::ScopeKHR::SUBGROUP);
    let mut shapes: Vec<String> = subgroup
        .map(|s| {
            let [a, b, c] = [s.a_type, s.b_type, s.c_type].map(component);
            format!("{}x{}x{} {a} x {b} + {c}", s.m_size, s.n_size, s.k_size)
        })
        .collect();
    shapes.sort();
    shapes.dedup();
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vulkan::device::{choose_family, units};

    #[test]
    fn passes_run_on_amds_compute_rings_and_on_the_first_family_that_computes_elsewhere() {
        let (all, compute) = (vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE, vk::QueueFlags::COMPUTE);
        let of = |families: &[vk::QueueFlags], vendor| choose_family(families.iter().copied(), vendor);
        let (copies, nvidia) = (vk::QueueFlags::TRANSFER, 0x10de);
        assert_eq!((of(&[all, copies, compute], units::AMD), of(&[all, copies, compute], nvidia)), (Some(2), Some(0)));
        // RADV_DEBUG=nocompute leaves only the graphics ring.
        assert_eq!((of(&[copies, all], units::AMD), of(&[copies], units::AMD)), (Some(1), None));
    }

    #[test]
    fn component_types_have_the_fields_names() {
        let names =
            [vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::SINT8, vk::ComponentTypeKHR::UINT32].map(component);
        assert_eq!(names, ["f16", "i8", "u32"]);
        assert_eq!(component(vk::ComponentTypeKHR::from_raw(1_000_141_000)), "bf16");
    }
}
