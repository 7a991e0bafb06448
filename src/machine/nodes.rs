//! Devices of the kernel's drivers: GPUs with render nodes, NPUs with accel nodes, and devices on the bus without a
//! driver.

use super::files::Files;

/// PCI vendor id of AMD's GPUs.
pub const AMD_GPU: u64 = 0x1002;
/// PCI vendor id of AMD's processors and NPUs.
const AMD: u64 = 0x1022;
/// PCI vendor and device id of the first generation of NPUs.
const XDNA_1: (u64, u64) = (AMD, 0x1502);

/// A driver interface to the NPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverApi {
    /// The kernel's driver, amdxdna.
    Kernel,
    /// libxrt.
    Xrt,
}

impl DriverApi {
    /// The interface's name within a sentence.
    pub fn name(self) -> &'static str {
        match self {
            DriverApi::Kernel => "the kernel's driver",
            DriverApi::Xrt => "libxrt",
        }
    }
}

/// A device node of a DRM or accel driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// The node's name, such as `renderD128` or `accel0`.
    pub name: String,
    /// The node's path, such as `/dev/dri/renderD128`.
    pub path: String,
    /// The device's directory in sysfs.
    pub device: String,
    /// The driver, as in `amdgpu`; empty if sysfs does not give it.
    pub driver: String,
    /// PCI address, as in `0000:c5:00.0`; empty for a device without a bus.
    pub slot: String,
    /// PCI vendor and device id; 0 for a device without them.
    pub id: (u64, u64),
    /// PCI revision; 0 for a device without one.
    pub revision: u64,
}

impl DeviceNode {
    fn find(files: &Files, class: &str, prefix: &str, nodes: &str) -> Vec<DeviceNode> {
        let names = files.list(class).unwrap_or_default();
        let own = |n: &String| n.strip_prefix(prefix).is_some_and(|n| n.parse::<u32>().is_ok());
        names.into_iter().filter(own).map(|name| DeviceNode::read(files, class, nodes, name)).collect()
    }

    fn read(files: &Files, class: &str, nodes: &str, name: String) -> DeviceNode {
        let device = format!("{class}/{name}/device");
        let uevent = |key| files.field(&format!("{device}/uevent"), key).unwrap_or_default();
        let hex = |file| files.hex(&format!("{device}/{file}")).unwrap_or(0);
        let driver = match uevent("DRIVER") {
            d if d.is_empty() => files.target(&format!("{device}/driver")).unwrap_or_default(),
            d => d,
        };
        let path = format!("{nodes}/{name}");
        let (slot, id, revision) = (uevent("PCI_SLOT_NAME"), (hex("vendor"), hex("device")), hex("revision"));
        DeviceNode { path, driver, slot, id, revision, name, device }
    }

    /// Every GPU with a render node.
    pub fn gpus(files: &Files) -> Vec<DeviceNode> {
        DeviceNode::find(files, "/sys/class/drm", "renderD", "/dev/dri")
    }

    /// Every accelerator with an accel node.
    pub fn accelerators(files: &Files) -> Vec<DeviceNode> {
        DeviceNode::find(files, "/sys/class/accel", "accel", "/dev/accel")
    }

    /// True if the kernel's driver for the device is amdgpu.
    pub fn is_amdgpu(&self) -> bool {
        self.driver == "amdgpu"
    }

    /// True if the kernel's driver for the device is amdxdna.
    pub fn is_amdxdna(&self) -> bool {
        self.driver.starts_with("amdxdna")
    }

    /// True if the device is an NPU of the generation that Kiln has programs for (XDNA 1).
    pub fn is_xdna1(&self) -> bool {
        self.id == XDNA_1
    }

    /// Whether the driver has suspended the device. Most requests would wake it up.
    pub fn is_suspended(&self, files: &Files) -> bool {
        is_suspended(files, &self.device)
    }

    /// Path of a file in the device's sysfs directory.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.device)
    }
}

fn is_suspended(files: &Files, device: &str) -> bool {
    files.text(&format!("{device}/power/runtime_status")).is_ok_and(|status| status == "suspended")
}

/// The note on a suspended GPU, which is not woken for a measurement.
pub const SUSPENDED: &str = "it is suspended, and left asleep";

/// Every suspended GPU that a Vulkan driver would wake: the name of its render node, or its PCI address if it has none.
pub fn sleeping_gpus(files: &Files) -> Vec<String> {
    let nodes = DeviceNode::gpus(files);
    let without_node = Nvidia::all(files).into_iter().filter(|gpu| nodes.iter().all(|node| node.slot != gpu.slot));
    let without_node = without_node.filter(|gpu| gpu.is_suspended(files)).map(|gpu| gpu.slot);
    let with_node = nodes.iter().filter(|node| node.is_suspended(files)).map(|node| node.name.clone());
    with_node.chain(without_node).collect()
}

/// Whether there may be a GPU for a Vulkan driver: the node of some GPU driver exists.
pub fn may_have_gpu(files: &Files) -> bool {
    // amdgpu's and other drivers of the kernel; NVIDIA's; WSL's; Qualcomm's and Arm's own.
    const NODES: [(&str, &str); 5] =
        [("/dev/dri", "renderD"), ("/dev", "nvidia"), ("/dev", "dxg"), ("/dev", "kgsl"), ("/dev", "mali")];
    NODES.iter().any(|(directory, prefix)| {
        files.list(directory).unwrap_or_default().iter().any(|name| name.starts_with(prefix))
    })
}

/// A device on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// The device's PCI address, such as `0000:c5:00.0`.
    pub name: String,
    /// PCI vendor and device id.
    pub id: (u64, u64),
    /// PCI class, as in 0x038000.
    pub class: u64,
    /// True if a driver of the kernel is bound to the device.
    pub driven: bool,
}

impl PciDevice {
    /// Every device on the PCI bus.
    pub fn all(files: &Files) -> Vec<PciDevice> {
        const BUS: &str = "/sys/bus/pci/devices";
        let slot = |name: String| {
            let at = |file: &str| format!("{BUS}/{name}/{file}");
            let id = (files.hex(&at("vendor")).ok()?, files.hex(&at("device")).ok()?);
            let (class, driven) = (files.hex(&at("class")).unwrap_or(0), files.exists(&at("driver")));
            Some(PciDevice { id, class, driven, name })
        };
        files.list(BUS).unwrap_or_default().into_iter().filter_map(slot).collect()
    }

    /// True if the device is a display controller by its PCI class.
    pub fn is_gpu(&self) -> bool {
        self.class >> 16 == 0x03
    }

    /// True if the device is an NPU that the driver amdxdna supports.
    pub fn is_npu(&self) -> bool {
        npu_generation(self.id, 0).is_some()
    }
}

/// A GPU with NVIDIA's own driver. It may have no render node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvidia {
    /// PCI address, as in `0000:01:00.0`; or the node's name, as in `nvidia0`, if nothing else is visible.
    pub slot: String,
    /// Model name, as in `NVIDIA H200`.
    pub model: Option<String>,
}

impl Nvidia {
    /// Whether the driver has suspended the device. Most requests would wake it up.
    pub fn is_suspended(&self, files: &Files) -> bool {
        is_suspended(files, &format!("/sys/bus/pci/devices/{}", self.slot))
    }

    /// Every GPU that the driver lists in /proc or that the bus shows. If a container hides both, every device node.
    pub fn all(files: &Files) -> Vec<Nvidia> {
        const GPUS: &str = "/proc/driver/nvidia/gpus";
        let mut slots = files.list(GPUS).unwrap_or_default();
        let on_bus = PciDevice::all(files).into_iter().filter(|s| {
            s.is_gpu() && files.target(&format!("/sys/bus/pci/devices/{}/driver", s.name)).is_ok_and(|d| d == "nvidia")
        });
        slots.extend(on_bus.map(|s| s.name));
        if slots.is_empty() {
            let own = |n: &String| n.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
            slots.extend(files.list("/dev").unwrap_or_default().into_iter().filter(own));
        }
        slots.sort();
        slots.dedup();
        let model = |slot: &str| files.field(&format!("{GPUS}/{slot}/information"), "Model").ok();
        slots.into_iter().map(|slot| Nvidia { model: model(&slot).filter(|m| !m.is_empty()), slot }).collect()
    }
}

/// An NPU's generation by PCI ids and revision; `None` for other devices.
pub fn npu_generation(id: (u64, u64), revision: u64) -> Option<&'static str> {
    Some(match (id, revision) {
        (XDNA_1, _) => "XDNA 1 (Phoenix, Hawk Point)",
        ((AMD, 0x17f0), 0x10) => "XDNA 2 (Strix Point)",
        ((AMD, 0x17f0), 0x11) => "XDNA 2 (Strix Halo)",
        ((AMD, 0x17f0), 0x20) => "XDNA 2 (Krackan Point)",
        ((AMD, 0x17f0), _) => "XDNA 2",
        _ => return None,
    })
}

/// The instruction set of an AMD GPU, as in `gfx1103`: from the compute driver (KFD), else from the chip's IP discovery
/// table.
pub fn gfx_name(files: &Files, node: &DeviceNode) -> Option<String> {
    const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
    let minor = node.name.trim_start_matches("renderD");
    let topology = files.list(NODES).unwrap_or_default().into_iter().find_map(|n| {
        let file = format!("{NODES}/{n}/properties");
        let field = |key| files.field(&file, key).ok();
        (field("drm_render_minor")? == minor).then(|| field("gfx_target_version")?.parse::<u32>().ok())?
    });
    if let Some(v) = topology.filter(|&v| v > 0) {
        return Some(format!("gfx{}{:x}{:x}", v / 10_000, v / 100 % 100, v % 100));
    }
    // The table holds the graphics block's version. For some chips it differs from the instruction set's.
    let part = |name: &str| files.value::<u32>(&node.file(&format!("ip_discovery/die/0/GC/0/{name}"))).ok();
    Some(match (part("major")?, part("minor")?, part("revision")?) {
        (11, 0, 1 | 4) => "gfx1103".into(),
        (11, 0, 2) => "gfx1102".into(),
        (11, 0, 3) => "gfx1101".into(),
        (major, minor, revision) => format!("gfx{major}{minor:x}{revision:x}"),
    })
}

/// The value of a parameter on the kernel's command line; empty for a parameter without a value.
pub fn kernel_parameter(command_line: &str, name: &str) -> Option<String> {
    let words = command_line.split_ascii_whitespace().rev();
    words.filter_map(|w| w.strip_prefix(name)).find_map(|rest| match rest {
        "" => Some(String::new()),
        rest => rest.strip_prefix('=').map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_shows_by_a_node_of_its_driver() {
        for (node, wanted) in [("dri/renderD128", true), ("dri/card0", false), ("nvidia0", true), ("null", false)] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("dev").join(node);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
            assert_eq!(may_have_gpu(&Files::under(root.path())), wanted, "{node}");
        }
    }

    #[test]
    fn the_last_of_a_parameter_counts_and_only_its_whole_name() {
        let line = "ro amd_iommu=on quiet amd_iommu=off ttm.pages_limit=8388608 amdgpu.gttsize_x=1";
        assert_eq!(kernel_parameter(line, "amd_iommu").as_deref(), Some("off"));
        assert_eq!(kernel_parameter(line, "quiet").as_deref(), Some(""));
        assert_eq!(kernel_parameter(line, "amdgpu.gttsize"), None);
    }
}
