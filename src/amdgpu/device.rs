//! A GPU behind its render node: checked, with its capabilities, its heaps, its address space and a context.

use super::addresses::FreeAddresses;
use super::code::Chip;
use crate::error::{Setting, text};
use crate::lower::caps::{Caps, DeviceKind};
use crate::lower::units::RDNA3;
use crate::machine::heaps::{ApuMemory, DeviceMemory, Heap};
use crate::sys::amdgpu::context::{Context, ObjectList};
use crate::sys::amdgpu::{self, ComputeInfo, GpuInfo, GpuMemory};
use crate::sys::drm::Node;
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;

/// The driver's name, and the major version of its interface.
const DRIVER: (&str, i32) = ("amdgpu", 3);
/// The alignment of indirect buffers and of their sizes that lists keep to, in bytes.
const LIST_ALIGNMENT: u32 = 32;
/// The addresses of code, packets and push blocks. RADV's code has the high half of a push block's address as a
/// constant.
const WINDOW: Range<u64> = 0xffff_8000_0000_0000..0xffff_8001_0000_0000;
/// Data begins here: below it an address may be an offset from a null pointer.
const LEAST_DATA: u64 = 1 << 32;

/// Index of a heap in [`RenderDevice::memory`].
pub const VRAM_HEAP: usize = 0;
/// Index of the other heap.
pub const GTT_HEAP: usize = 1;

/// An open GPU.
pub struct RenderDevice {
    pub(super) node: Node,
    pub(super) context: Context,
    /// The chip.
    pub chip: Chip,
    /// The capabilities.
    pub caps: Caps,
    /// The compute rings and the address space.
    pub compute: ComputeInfo,
    /// Free addresses of data.
    pub(super) data: RefCell<FreeAddresses>,
    /// Free addresses of code, packets and push blocks.
    pub(super) window: RefCell<FreeAddresses>,
    /// Memory that other drivers may share, which each submit has to name.
    pub(super) shared: RefCell<ObjectList>,
    /// Set when a wait ran past its deadline. The GPU may still use the memory: none is unmapped any more.
    pub(super) is_hung: Cell<bool>,
}

impl RenderDevice {
    /// Opens a GPU by its render node: /dev/dri/renderD128 and on.
    ///
    /// # Errors
    /// Device: the node cannot be opened, is another driver's, or its GPU cannot be used.
    pub fn open(path: &Path) -> Result<RenderDevice> {
        let node = Node::open(path)?;
        let version = node.version()?;
        let numbers = version.numbers;
        if version.name != DRIVER.0 {
            let cause = format!("{} is driven by {}, not by {}", path.display(), version.name, DRIVER.0);
            return Err(Error::device(cause, text!("name an AMD GPU's render node, or use Vulkan or ", Setting::Cpu)));
        }
        if numbers[0] != DRIVER.1 {
            let [major, minor, patch] = numbers;
            let cause = format!("{} {major}.{minor}.{patch} has another interface than {}.x", DRIVER.0, DRIVER.1);
            return Err(Error::device(cause, text!("use Vulkan or ", Setting::Cpu)));
        }
        let info = amdgpu::device(&node)?;
        let chip = Chip::of(&info).ok_or_else(|| {
            let cause = format!("Kiln has no code for GPU family {}, revision {:#x}", info.family, info.external_rev);
            Error::device(cause, text!("use Vulkan, whose driver compiles it, or ", Setting::Cpu))
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
            node,
            compute,
        })
    }

    /// The heaps as the plan sees them: VRAM, which is the BIOS's carve-out, and GTT, the system memory that the GPU
    /// may use.
    ///
    /// # Errors
    /// Device: the GPU is gone.
    pub fn memory(&self) -> Result<DeviceMemory> {
        Ok(describe(&amdgpu::memory(&self.node)?, crate::machine::available_memory(), &self.caps))
    }
}

/// Whether a GPU's rings and addresses are as lists need them.
fn check(compute: &ComputeInfo) -> Result<()> {
    let fault = |cause: &str, remedy: &'static str| Err(Error::device(cause, remedy));
    let &ComputeInfo { rings, start_alignment, size_alignment, .. } = compute;
    let aligned = |alignment: u32| alignment <= LIST_ALIGNMENT && LIST_ALIGNMENT.is_multiple_of(alignment.max(1));
    if rings & 1 == 0 {
        return fault(
            "the GPU has no compute ring",
            "install the GPU's firmware (firmware-amd-graphics on Debian), and see the kernel's log (`dmesg`)",
        );
    }
    if !aligned(start_alignment) || !aligned(size_alignment) {
        let cause = format!("the GPU wants packets aligned to {start_alignment} B, in units of {size_alignment} B");
        return fault(&cause, "use Vulkan, and report this");
    }
    let has_window = compute.high.start <= WINDOW.start && WINDOW.end <= compute.high.end;
    if compute.low.start.max(LEAST_DATA) >= compute.low.end || !has_window || !compute.page.is_power_of_two() {
        let (low, high) = (&compute.low, &compute.high);
        let cause = format!("the kernel gives a process the addresses {low:x?} and {high:x?}, which are too few");
        return fault(&cause, "update the kernel, or use Vulkan");
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
        cache_id: format!("1002-{device:04x}-amdgpu-{name}"),
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
