//! Checks of Vulkan: the devices listed by the loader, and which of them can run Kiln.

use super::{Checks, Verdict, wake_it};
#[cfg(feature = "vulkan")]
use crate::display::{bytes, counted};
use crate::engine::Device;
use crate::engine::device::OpenDevice;
use crate::error::{Setting, text};
use crate::lower::caps::DeviceKind;
use crate::machine::files::Files;
#[cfg(feature = "vulkan")]
use crate::vulkan::device::survey::{self, Listed};

/// The devices that the checks of Vulkan have found.
#[derive(Default)]
pub(super) struct VulkanDevices {
    /// The device that Kiln would run on, open.
    pub opened: Option<OpenDevice>,
    /// The opened device's name. If none was to be opened, the name of the first suitable one.
    pub device: Option<String>,
    /// The number and the name of every suitable device.
    pub fit: Vec<(usize, String)>,
    /// True if any listed device is hardware, suitable or not.
    pub hardware: bool,
}

/// Reports that Vulkan was not checked because these GPUs are asleep: every driver opens all GPUs that it finds.
pub(super) fn leave_unasked(checks: &mut Checks, asleep: &[String]) -> VulkanDevices {
    let evidence = format!("not asked: its drivers open every GPU, and would wake {} up", asleep.join(", "));
    checks.group("vulkan").unseen("loader", evidence, wake_it());
    VulkanDevices::default()
}

/// Checks every Vulkan device. Opens the one that Kiln would run on, if requested.
pub(super) fn check(checks: &mut Checks, files: &Files, device: Device) -> VulkanDevices {
    let (fit, hardware) = check_devices(checks.group("vulkan"));
    checks.group("vulkan");
    if device.is_host() || matches!(device, Device::Amdgpu(_)) {
        let aside = if device.is_host() { Setting::Cpu.aside() } else { Setting::Device.aside() };
        checks.skip("open", text!("not asked for", aside));
        let device = fit.first().map(|(_, name)| name.clone());
        return VulkanDevices { opened: None, device, fit, hardware };
    }
    let opened = open(checks, files, device);
    let device = opened.as_ref().map(|gpu| gpu.caps().name.clone());
    VulkanDevices { opened, device, fit, hardware }
}

/// Checks every device that the loader lists. Returns those that can run Kiln, and whether any is hardware.
#[cfg(feature = "vulkan")]
fn check_devices(checks: &mut Checks) -> (Vec<(usize, String)>, bool) {
    let devices = checks.got("loader", Verdict::Fail, survey::list()).unwrap_or_default();
    if !devices.is_empty() {
        checks.ok("loader", counted(devices.len(), "device"));
    }
    for (i, listed) in devices.iter().enumerate() {
        check_device(checks.group(format!("vulkan{i}")), listed);
    }
    let hardware = devices.iter().any(|d| d.kind != DeviceKind::Cpu);
    let fit = devices.into_iter().enumerate().filter(|(_, d)| d.unfit.is_none()).map(|(i, d)| (i, d.name));
    (fit.collect(), hardware)
}

#[cfg(not(feature = "vulkan"))]
fn check_devices(checks: &mut Checks) -> (Vec<(usize, String)>, bool) {
    checks.skip("loader", "this build has no Vulkan");
    (Vec::new(), false)
}

fn open(checks: &mut Checks, files: &Files, device: Device) -> Option<OpenDevice> {
    let opened = checks.got("open", Verdict::Fail, device.open(files))??;
    let evidence = format!("opened {}", opened.caps().name);
    match opened.caps().kind {
        DeviceKind::Cpu => checks.warn(
            "open",
            format!("{evidence}, a driver for the CPU: the CPU executor is faster, and what `auto` takes"),
            "install the GPU's Vulkan driver (mesa-vulkan-drivers for AMD) for its speed",
        ),
        _ => checks.ok("open", evidence),
    }
    Some(opened)
}

#[cfg(feature = "vulkan")]
fn check_device(checks: &mut Checks, d: &Listed) {
    let [major, minor, patch] = d.api;
    let evidence = format!("{}, {}, Vulkan {major}.{minor}.{patch}", d.name, d.driver);
    let Some(caps) = d.caps.as_ref().filter(|_| d.unfit.is_none()) else {
        let why = d.unfit.as_deref().unwrap_or("cannot be used");
        let remedy = text!("update its driver, or choose another device with ", Setting::VulkanIndex);
        return checks.warn("device", format!("{evidence}: {why}"), remedy);
    };
    checks.ok("device", evidence);
    let dot = if caps.dot_accelerated { "accelerated" } else { "emulated" };
    let mut features = vec![
        format!("subgroups of {}", caps.subgroup),
        format!("integer dot products {dot}"),
        format!("allocations up to {}", bytes(caps.max_allocation)),
    ];
    if !caps.has_clock {
        features.push("no timestamps".into());
    }
    let (have, lack): (Vec<_>, Vec<_>) = d.extensions.iter().partition(|e| e.1);
    let words = |of: Vec<&(&str, bool)>| of.iter().map(|e| e.0).collect::<Vec<_>>().join(", ");
    if !have.is_empty() {
        features.push(format!("has {}", words(have)));
    }
    if !lack.is_empty() {
        features.push(format!("lacks {}", words(lack)));
    }
    let features = features.join("; ");
    let hardware = d.kind != DeviceKind::Cpu;
    let is_slow = hardware && !caps.dot_accelerated;
    checks.judge("features", is_slow, features, "update the driver: without the instruction, INT8 products are slow");
    match (&caps.matrix, hardware) {
        (Some(u), _) => {
            let shapes = if d.shapes.is_empty() { String::new() } else { format!(" of {}", d.shapes.join("; ")) };
            checks.ok("matrix", format!("uses {}x{}x{} f16 x f16 + f32{shapes}", u.m, u.n, u.k));
        }
        (None, true) => checks.warn(
            "matrix",
            "no matrix units that Kiln can use: prefill and large batches compute in ordinary units",
            "on AMD gfx11 and newer use Mesa 24.0 or newer",
        ),
        (None, false) => checks.skip("matrix", "no matrix units"),
    }
}
