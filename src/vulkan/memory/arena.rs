//! The arena's memory: one allocation, seen by the GPU, by the host and, as a dma-buf, by other drivers.

use crate::display;
use crate::error::{Setting, text};
use crate::lower::caps::DeviceKind;
use crate::sys::dma_buf::DmaBuf;
use crate::vulkan::device::Gpu;
use crate::vulkan::memory::{Backing, Buffer, HostAccess};
use crate::{Error, Result};
use std::rc::Rc;

/// Where the arena's memory comes from.
#[derive(Debug, Clone, Copy, Default)]
pub enum ArenaSource {
    /// Exported if host and GPU share their memory and the driver can export it, else ordinary.
    #[default]
    Auto,
    /// Allocated by the Vulkan driver, not shared.
    Ordinary,
    /// Allocated by the Vulkan driver and exported as a dma-buf.
    Exported,
    /// Allocated by another driver and imported as a dma-buf.
    Imported(Allocator),
}

/// Another driver that can allocate the arena's memory.
#[derive(Debug, Clone, Copy)]
pub struct Allocator {
    /// Its name in messages.
    pub name: &'static str,
    /// Allocates a dma-buf of at least the given bytes that the host can map. Its content is undefined.
    pub allocate: fn(u64) -> Result<DmaBuf>,
}

/// Allocates the arena's `bytes` from `source`, in `heap` if the Vulkan driver allocates them, and clears them.
///
/// # Errors
/// Device: the driver refuses, or cannot share memory in this way. Any error of the allocator.
pub fn allocate(gpu: &Rc<Gpu>, source: ArenaSource, bytes: u64, heap: usize) -> Result<Buffer> {
    let mut arena = match source {
        ArenaSource::Imported(allocator) => {
            let backing = Backing::Imported((allocator.allocate)(bytes)?);
            let arena = Buffer::backed(gpu, bytes, heap, HostAccess::Host, backing)?;
            log::info!("the arena is a dma-buf of {}", allocator.name);
            arena
        }
        source => shareable(gpu, source, bytes, heap, HostAccess::Host)?,
    };
    // SAFETY: no command buffer knows the arena yet.
    let cleared = unsafe { arena.bytes_mut() }.map(|bytes| bytes.fill(0));
    cleared.ok_or_else(|| {
        Error::device("the arena's memory is not mapped", text!("update the driver, or use ", Setting::Cpu))
    })?;
    Ok(arena)
}

/// Memory of the Vulkan driver that other devices can share as far as `source` wants that: the arena, and the KV cache that
/// an NPU would read.
///
/// # Errors
/// Device: the driver refuses, or cannot share memory. Refused: it has none left.
pub fn shareable(gpu: &Rc<Gpu>, source: ArenaSource, bytes: u64, heap: usize, access: HostAccess) -> Result<Buffer> {
    let backed = |backing| Buffer::backed(gpu, bytes, heap, access, backing);
    let shares = gpu.features.sharing.exports && gpu.caps.kind == DeviceKind::Integrated;
    match source {
        ArenaSource::Exported => backed(Backing::Exported),
        ArenaSource::Auto if shares => backed(Backing::Exported).or_else(|e| {
            log::warn!("{} is no dma-buf, and no other device can share it: {e}", display::bytes(bytes));
            backed(Backing::Driver)
        }),
        ArenaSource::Auto | ArenaSource::Ordinary | ArenaSource::Imported(_) => backed(Backing::Driver),
    }
}
