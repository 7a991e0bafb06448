//! The arena's memory: one allocation that the GPU, the host and, as a dma-buf, other drivers see alike.

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
    /// Exported where host and GPU share their memory and the driver exports it, else ordinary.
    #[default]
    Auto,
    /// The Vulkan driver, for itself.
    Ordinary,
    /// The Vulkan driver, exported as a dma-buf.
    Exported,
    /// Another driver, imported as a dma-buf.
    Imported(Allocator),
}

/// Who else can make the arena's memory.
#[derive(Debug, Clone, Copy)]
pub struct Allocator {
    /// As messages name it.
    pub name: &'static str,
    /// A dma-buf of at least so many bytes, whatever they hold, that the host can map.
    pub allocate: fn(u64) -> Result<DmaBuf>,
}

/// Allocates the arena, `bytes` in `heap` or elsewhere, as `source` says, and clears it.
///
/// # Errors
/// Device: the driver refuses, or shares no memory in this way. Whatever the allocator says.
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
