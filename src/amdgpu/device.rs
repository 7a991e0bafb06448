//! A GPU behind its render node: checked, with its capabilities, its heaps, its address space and a context.

use super::addresses::FreeAddresses;
use super::code::{Chip, CodeSet};
use crate::error::{Setting, Text, text};
use crate::lower::caps::{Caps, DeviceKind};
use crate::lower::units::RDNA3;
use crate::machine::files::Files;
use crate::machine::heaps::{ApuMemory, DeviceMemory, Heap};
use crate::sys::amdgpu::context::{Context, ObjectList};
use crate::sys::amdgpu::{self, ComputeInfo, GpuInfo, GpuMemory};
use crate::sys::drm::Node;
use crate::{Error, Result};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::path::Path;

/// The directory of render nodes, and what their names begin with.
const NODES: &str = "/dev/dri";
const NODE: &str = "renderD";
/// The driver's name, the major version of its interface, and the least minor version: that of Linux 6.1.
const DRIVER: (&str, i32, i32) = ("amdgpu", 3, 49);
/// The alignment of indirect buffers and of their sizes that lists keep to, in bytes.
const LIST_ALIGNMENT: u32 = 32;
/// The addresses of code, packets and push blocks. RADV's code has the high half of a push block's address as a
/// constant.
const WINDOW: Range<u64> = 0xffff_8000_0000_0000..0xffff_8001_0000_0000;
/// Data begins here: below it an address may be an offset from a null pointer.
const LEAST_DATA: u64 = 1 << 32;

/// The index in [`RenderDevice::memory`] of the heap in VRAM.
pub const VRAM_HEAP: usize = 0;
/// The index in [`RenderDevice::memory`] of the heap in GTT, system memory that the GPU maps.
pub const GTT_HEAP: usize = 1;

/// A GPU that is open through the kernel's driver amdgpu.
pub struct RenderDevice {
    pub(super) node: Node,
    pub(super) context: Context,
    /// The chip, for which Kiln has machine code.
    pub chip: Chip,
    /// The GPU's capabilities, in terms that all drivers share.
    pub caps: Caps,
    /// The compute rings and the address space.
    pub compute: ComputeInfo,
    /// The GPU's free virtual addresses for data.
    pub(super) data: RefCell<FreeAddresses>,
    /// Free addresses of code, packets and push blocks.
    pub(super) window: RefCell<FreeAddresses>,
    /// Memory that other drivers may share, which each submit has to name.
    pub(super) shared: RefCell<ObjectList>,
    /// Set when a wait ran past its deadline. The GPU may still use the memory: none is unmapped any more.
    pub(super) is_hung: Cell<bool>,
    /// The code of its kernels, inflated where it is first asked for.
    pub(super) code: OnceCell<CodeSet>,
}

/// The remedy for a GPU that this driver cannot use.
pub(crate) fn by_others() -> Text {
    match cfg!(feature = "vulkan") {
        true => text!("use ", Setting::Vulkan, " or ", Setting::Cpu),
        false => text!("use ", Setting::Cpu),
    }
}

/// The numbers of the render nodes, rising: 128 for /dev/dri/renderD128.
pub(crate) fn numbers(files: &Files) -> Vec<u32> {
    let names = files.list(NODES).unwrap_or_default();
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(NODE)?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

impl RenderDevice {
    /// Opens the GPU whose render node has this number, else the best: one with memory of its own before others, and
    /// the one with the most memory among these.
    ///
    /// # Errors
    /// Device: there is no such node, or none can be used: as [`RenderDevice::open`] for the first that amdgpu drives.
    pub fn find(files: &Files, number: Option<u32>) -> Result<RenderDevice> {
        let numbers = numbers(files);
        let path = |number: &u32| format!("{NODES}/{NODE}{number}");
        if numbers.is_empty() {
            let remedy =
                "load the GPU's driver (`modprobe amdgpu`); in a container pass /dev/dri in (`--device /dev/dri`)";
            return Err(Error::device(format!("there is no render node in {NODES}"), remedy));
        }
        if let Some(number) = number {
            if !numbers.contains(&number) {
                let names: Vec<String> = numbers.iter().map(path).collect();
                let remedy = format!("choose one of {}", names.join(", "));
                return Err(Error::device(format!("there is no render node {}", path(&number)), remedy));
            }
            return RenderDevice::open(&files.at(&path(&number)));
        }
        let is_anothers = |path: &String| {
            let version = Node::open(&files.at(path)).and_then(|node| node.version());
            version.is_ok_and(|version| version.name != DRIVER.0)
        };
        let (mut usable, mut refused) = (Vec::new(), None);
        for path in numbers.iter().map(path).filter(|path| !is_anothers(path)) {
            match RenderDevice::open(&files.at(&path)).and_then(|device| Ok((device.memory()?.available(), device))) {
                Ok(opened) => usable.push(opened),
                Err(e) => drop(refused.get_or_insert(e)),
            }
        }
        let best = usable.into_iter().max_by_key(|(bytes, device)| (device.caps.kind == DeviceKind::Discrete, *bytes));
        let none = || Error::device(format!("{} drives none of the GPUs here", DRIVER.0), by_others());
        best.map(|(_, device)| device).ok_or_else(|| refused.unwrap_or_else(none))
    }

    /// Opens a GPU by its render node.
    ///
    /// # Errors
    /// Device: the node cannot be opened, is another driver's, or its GPU cannot be used.
    pub fn open(path: &Path) -> Result<RenderDevice> {
        let node = Node::open(path)?;
        let version = node.version()?;
        let numbers @ [major, minor, patch] = version.numbers;
        if version.name != DRIVER.0 {
            let cause = format!("{} is driven by {}, not by {}", path.display(), version.name, DRIVER.0);
            return Err(Error::device(cause, by_others()));
        }
        if major != DRIVER.1 {
            let cause = format!("{} {major}.{minor}.{patch} has another interface than {}.x", DRIVER.0, DRIVER.1);
            return Err(Error::device(cause, by_others()));
        }
        if minor < DRIVER.2 {
            let least = format!("{}.{}, that of Linux 6.1", DRIVER.1, DRIVER.2);
            let cause = format!("{} {major}.{minor}.{patch} is older than {least}", DRIVER.0);
            return Err(Error::device(cause, text!("install a newer kernel, or ", by_others())));
        }
        let info = amdgpu::device(&node)?;
        let chip = Chip::of(&info).ok_or_else(|| {
            let GpuInfo { device_id, family, external_rev, .. } = info;
            let known = Chip::ALL.map(Chip::name).join(", ");
            let gpu = format!("this GPU (device {device_id:04x}, family {family}, revision {external_rev:#x})");
            Error::device(format!("there is no code for {gpu}, but for {known}"), by_others())
        })?;
        let compute = amdgpu::compute(&node)?;
        check(&compute)?;
        let memory = amdgpu::memory(&node)?;
        Ok(RenderDevice {
            context: Context::new(&node)?,
            chip,
            caps: caps(chip, &info, &compute, &memory, numbers),
            data: RefCell::new(FreeAddresses::new(compute.low.start.max(LEAST_DATA)..compute.low.end)),
            window: RefCell::new(FreeAddresses::new(WINDOW)),
            shared: RefCell::default(),
            is_hung: Cell::new(false),
            code: OnceCell::new(),
            node,
            compute,
        })
    }

    /// True if a wait for the GPU has passed its deadline.
    pub fn is_hung(&self) -> bool {
        self.is_hung.get()
    }

    /// The code of its chip's kernels.
    ///
    /// # Errors
    /// Device: the executable is damaged.
    pub fn code(&self) -> Result<&CodeSet> {
        if let Some(code) = self.code.get() {
            return Ok(code);
        }
        let code = CodeSet::of(self.chip)?;
        Ok(self.code.get_or_init(|| code))
    }

    /// Its heaps as the plan sees them: VRAM, which is the BIOS's carve-out, and GTT, the system memory that the GPU may
    /// use.
    ///
    /// # Errors
    /// Device: the GPU is gone.
    pub fn memory(&self) -> Result<DeviceMemory> {
        Ok(describe(&amdgpu::memory(&self.node)?, crate::machine::available_memory(), &self.caps))
    }
}

/// Checks that a GPU's compute rings and address space are as command lists need them.
fn check(compute: &ComputeInfo) -> Result<()> {
    let fault = |cause: &str, remedy: Text| Err(Error::device(cause, remedy));
    let &ComputeInfo { rings, start_alignment, size_alignment, .. } = compute;
    let aligned = |alignment: u32| alignment <= LIST_ALIGNMENT && LIST_ALIGNMENT.is_multiple_of(alignment.max(1));
    if rings & 1 == 0 {
        return fault(
            "the GPU has no compute ring",
            "install the GPU's firmware (firmware-amd-graphics on Debian), and see the kernel's log (`dmesg`)".into(),
        );
    }
    if !aligned(start_alignment) || !aligned(size_alignment) {
        let cause = format!("the GPU wants packets aligned to {start_alignment} B, in units of {size_alignment} B");
        return fault(&cause, text!("report this, and ", by_others()));
    }
    let has_window = compute.high.start <= WINDOW.start && WINDOW.end <= compute.high.end;
    if compute.low.start.max(LEAST_DATA) >= compute.low.end || !has_window || !compute.page.is_power_of_two() {
        let (low, high) = (&compute.low, &compute.high);
        let cause = format!("the kernel gives a process the addresses {low:x?} and {high:x?}, which are too few");
        return fault(&cause, text!("install a newer kernel, or ", by_others()));
    }
    Ok(())
}

/// The capabilities that Vulkan's driver reports for the same chip.
fn caps(chip: Chip, info: &GpuInfo, compute: &ComputeInfo, memory: &GpuMemory, version: [i32; 3]) -> Caps {
    let [major, minor, patch] = version;
    let (name, device) = (chip.name(), info.device_id);
    Caps {
        name: format!("AMD Radeon ({name}), amdgpu {major}.{minor}.{patch}"),
        kind: if info.is_apu { DeviceKind::Integrated } else { DeviceKind::Discrete },
        subgroup: RDNA3.subgroup,
        max_allocation: memory.vram.max_allocation.max(memory.gtt.max_allocation),
        has_clock: compute.clock > 0,
        matrix: Some(RDNA3),
        dot_accelerated: true,
        tries_relay: true,
        relays_behind: true,
        cache_id: format!("{:016x}-1002-{device:04x}-amdgpu-{name}", chip.digest()),
    }
}

/// The heaps of a GPU with `system` bytes free in its system memory.
fn describe(memory: &GpuMemory, system: u64, caps: &Caps) -> DeviceMemory {
    // A pool's sizes leave out what other programs need.
    let pool = ApuMemory::of(memory, system);
    let gtt = pool.gtt.saturating_sub(pool.gtt_used).min(pool.system);
    let heap = |name: &str, available, device_local| Heap {
        name: name.into(),
        available,
        reserved: 0,
        device_local,
        host_visible: true,
    };
    DeviceMemory {
        device: caps.name.clone(),
        heaps: vec![heap("VRAM", pool.vram, true), heap("GTT", gtt, false)],
        max_allocation: caps.max_allocation,
        unified: caps.kind == DeviceKind::Integrated,
        pool: Some(pool),
    }
}
