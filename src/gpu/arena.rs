//! The arena's memory: one allocation that the GPU, the host and, as a dma-buf, other drivers see alike.

use super::device::Gpu;
use super::memory::{Access, Backing, Buffer};
use crate::{Error, Result};
use ash::vk;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Where the arena's memory comes from.
#[derive(Debug, Clone, Copy, Default)]
pub enum Source {
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
    /// A dma-buf of at least so many bytes, zero or not, which the host can map.
    pub allocate: fn(u64) -> Result<OwnedFd>,
}

/// Memory without any device. Only Mesa's driver for the CPU takes it as though it were a dma-buf.
pub const MEMFD: Allocator = Allocator { name: "memfd", allocate: memfd };

/// dma-bufs are made of whole pages; this is a multiple of every page size in use.
const PAGE: u64 = 64 << 10;

fn memfd(bytes: u64) -> Result<OwnedFd> {
    let failed = |e: &dyn std::fmt::Display| Error::failed(format!("cannot make a memfd: {e}"), "free some memory");
    let file = File::from(memfd_create(c"kiln arena", MFdFlags::MFD_CLOEXEC).map_err(|e| failed(&e))?);
    file.set_len(bytes.next_multiple_of(PAGE)).map_err(|e| failed(&e))?;
    Ok(file.into())
}

/// Allocates the arena, `bytes` in `heap` or elsewhere, as `source` says, and clears it.
///
/// # Errors
/// Device: the driver refuses, or shares no memory in this way. Whatever the allocator says.
pub fn allocate(gpu: &Rc<Gpu>, source: Source, bytes: u64, heap: usize) -> Result<Buffer> {
    let backed = |backing| Buffer::backed(gpu, bytes, heap, Access::Host, backing);
    let mut arena = match source {
        Source::Ordinary => backed(Backing::Driver)?,
        Source::Exported => backed(Backing::Exported)?,
        Source::Imported(allocator) => {
            let arena = backed(Backing::Imported((allocator.allocate)(bytes)?))?;
            log::info!("the arena is a dma-buf of {}", allocator.name);
            arena
        }
        Source::Auto if gpu.caps.sharing.exports && gpu.caps.kind == vk::PhysicalDeviceType::INTEGRATED_GPU => {
            backed(Backing::Exported).or_else(|e| {
                log::warn!("the arena is no dma-buf, and no other device can share it: {e}");
                backed(Backing::Driver)
            })?
        }
        Source::Auto => backed(Backing::Driver)?,
    };
    let cleared = arena.bytes_mut().map(|bytes| bytes.fill(0));
    cleared
        .ok_or_else(|| Error::device("the arena's memory is not mapped", "update the driver, or use `--device cpu`"))?;
    Ok(arena)
}
