//! The arena's memory: one allocation, seen by the GPU, by the host and, as a dma-buf, by other drivers.

use crate::error::{Setting, text};
use crate::gpu::device::Gpu;
use crate::gpu::memory::{Backing, Buffer, HostAccess};
use crate::sys::dma_buf::DmaBuf;
use crate::{Error, Result};
use ash::vk;
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
    let backed = |backing| Buffer::backed(gpu, bytes, heap, HostAccess::Host, backing);
    let mut arena = match source {
        ArenaSource::Ordinary => backed(Backing::Driver)?,
        ArenaSource::Exported => backed(Backing::Exported)?,
        ArenaSource::Imported(allocator) => {
            let arena = backed(Backing::Imported((allocator.allocate)(bytes)?))?;
            log::info!("the arena is a dma-buf of {}", allocator.name);
            arena
        }
        ArenaSource::Auto if gpu.caps.sharing.exports && gpu.caps.kind == vk::PhysicalDeviceType::INTEGRATED_GPU => {
            backed(Backing::Exported).or_else(|e| {
                log::warn!("the arena is no dma-buf, and no other device can share it: {e}");
                backed(Backing::Driver)
            })?
        }
        ArenaSource::Auto => backed(Backing::Driver)?,
    };
    // SAFETY: no command buffer knows the arena yet.
    let cleared = unsafe { arena.bytes_mut() }.map(|bytes| bytes.fill(0));
    cleared.ok_or_else(|| {
        Error::device("the arena's memory is not mapped", text!("update the driver, or use ", Setting::Cpu))
    })?;
    Ok(arena)
}
