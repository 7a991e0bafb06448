//! Sources of memory: the Vulkan driver, which may export it as a dma-buf, or another driver.

use crate::Result;
use crate::display;
use crate::lower::caps::DeviceKind;
use crate::replay::driver::{HostAccess, MemorySource};
use crate::vulkan::device::Gpu;
use crate::vulkan::memory::{Backing, Buffer};
use std::rc::Rc;

/// Allocates `bytes` from `source`, in `heap` if the Vulkan driver allocates them.
///
/// # Errors
/// Device: the driver refuses, or cannot share memory in this way. Refused: the driver has none left. Any error of the
/// allocator.
pub(crate) fn allocate(
    gpu: &Rc<Gpu>,
    bytes: u64,
    heap: usize,
    access: HostAccess,
    source: MemorySource,
) -> Result<Buffer> {
    let backed = |backing| Buffer::backed(gpu, bytes, heap, access, backing);
    let shares = gpu.features.sharing.exports && gpu.caps.kind == DeviceKind::Integrated;
    match source {
        MemorySource::Imported(allocator) => {
            let memory = backed(Backing::Imported((allocator.allocate)(bytes)?))?;
            log::info!("{} are a dma-buf of {}", display::bytes(bytes), allocator.name);
            Ok(memory)
        }
        MemorySource::Exported => backed(Backing::Exported),
        MemorySource::Auto if shares => backed(Backing::Exported).or_else(|e| {
            log::warn!("{} is no dma-buf, and no other device can share it: {e}", display::bytes(bytes));
            backed(Backing::Driver)
        }),
        MemorySource::Auto | MemorySource::Ordinary => backed(Backing::Driver),
    }
}
