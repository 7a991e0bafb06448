//! The devices that the kernel's drivers offer: GPUs with their render nodes, NPUs with their accel nodes, and such ones
//! on the bus that no driver has taken.

use super::files::Files;

/// PCI's number of AMD's GPUs.
pub const AMD_GPU: u64 = 0x1002;
/// PCI's number of AMD's processors, the NPU among them.
const AMD: u64 = 0x1022;

/// A device that a driver of DRM or accel has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// As in `renderD128` or `accel0`.
    pub name: String,
    /// Where it is opened, as in `/dev/dri/renderD128`.
    pub path: String,
    /// Its directory in sysfs, with everything that its driver says.
    pub device: String,
    /// The driver, as in `amdgpu`; empty where sysfs does not say.
    pub driver: String,
    /// Where it is on the bus, as in `0000:c5:00.0`; empty where it is on none.
    pub slot: String,
    /// PCI's numbers of vendor and device; 0 where it has none.
    pub id: (u64, u64),
    /// PCI's revision; 0 where it has none.
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

    /// Whether amdgpu drives it.
    pub fn is_amdgpu(&self) -> bool {
        self.driver == "amdgpu"
    }

    /// Whether amdxdna drives it.
    pub fn is_amdxdna(&self) -> bool {
        self.driver.starts_with("amdxdna")
    }

    /// A file of its device in sysfs.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.device)
    }
}

/// A device on the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// As in `0000:c5:00.0`.
    pub name: String,
    /// PCI's numbers of vendor and device.
    pub id: (u64, u64),
    /// PCI's class, as in 0x038000.
    pub class: u64,
    /// Whether a driver has taken it.
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

    /// Whether it is a display controller.
    pub fn is_gpu(&self) -> bool {
        self.class >> 16 == 0x03
    }

    /// Whether it is an NPU that amdxdna knows.
    pub fn is_npu(&self) -> bool {
        npu_generation(self.id, 0).is_some()
    }
}

/// A GPU of NVIDIA's own driver, which need not have a render node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvidia {
    /// Where it is on the bus, as in `0000:01:00.0`; its node's name, as in `nvidia0`, where that is all that is seen.
    pub slot: String,
    /// What it is, as in `NVIDIA H200`.
    pub model: Option<String>,
}

impl Nvidia {
    /// Every one that the driver lists in /proc, the bus shows it on, or, where a container hides both, has a node.
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

/// What an NPU is, by PCI's numbers.
pub fn npu_generation(id: (u64, u64), revision: u64) -> Option<&'static str> {
    Some(match (id, revision) {
        ((AMD, 0x1502), _) => "XDNA 1 (Phoenix, Hawk Point)",
        ((AMD, 0x17f0), 0x10) => "XDNA 2 (Strix Point)",
        ((AMD, 0x17f0), 0x11) => "XDNA 2 (Strix Halo)",
        ((AMD, 0x17f0), 0x20) => "XDNA 2 (Krackan Point)",
        ((AMD, 0x17f0), _) => "XDNA 2",
        _ => return None,
    })
}

/// The instruction set of an AMD GPU, as in `gfx1103`: what the compute driver says, else what the chip's own table does.
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
    // The table has the block's version, which for some chips is not the instruction set's.
    let part = |name: &str| files.value::<u32>(&node.file(&format!("ip_discovery/die/0/GC/0/{name}"))).ok();
    Some(match (part("major")?, part("minor")?, part("revision")?) {
        (11, 0, 1 | 4) => "gfx1103".into(),
        (11, 0, 2) => "gfx1102".into(),
        (11, 0, 3) => "gfx1101".into(),
        (major, minor, revision) => format!("gfx{major}{minor:x}{revision:x}"),
    })
}

/// The value of a parameter on the kernel's command line; empty where it stands there without one.
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
    fn the_last_of_a_parameter_counts_and_only_its_whole_name() {
        let line = "ro amd_iommu=on quiet amd_iommu=off ttm.pages_limit=8388608 amdgpu.gttsize_x=1";
        assert_eq!(kernel_parameter(line, "amd_iommu").as_deref(), Some("off"));
        assert_eq!(kernel_parameter(line, "quiet").as_deref(), Some(""));
        assert_eq!(kernel_parameter(line, "amdgpu.gttsize"), None);
    }
}
