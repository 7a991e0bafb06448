//! The arena's memory: one allocation that the GPU, the host and, as a dma-buf, other drivers see alike.

use crate::error::{Setting, text};
use crate::gpu::device::Gpu;
use crate::gpu::memory::{Backing, Buffer, HostAccess};
use crate::sys::amdgpu;
use crate::sys::dma_buf::{self, DmaBuf, SYSTEM_HEAP, UDMABUF, open_node, sealed_memfd};
use crate::sys::drm::Node;
use crate::{Error, Result};
use ash::vk;
use std::os::fd::AsFd;
use std::path::Path;
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

/// Memory without any device. Only Mesa's driver for the CPU takes it as though it were a dma-buf.
pub const MEMFD: Allocator =
    Allocator { name: "a memfd", allocate: |bytes| Ok(DmaBuf::from_fd(sealed_memfd(whole_pages(bytes))?)?) };
/// A memfd made a dma-buf by /dev/udmabuf.
pub const UDMABUF_MEMFD: Allocator = Allocator { name: UDMABUF, allocate: udmabuf };
/// The dma-heap of system memory.
pub const DMA_HEAP: Allocator = Allocator { name: SYSTEM_HEAP, allocate: dma_heap };

/// amdgpu's, in system memory that its GPU reaches: of the first such GPU, since any other reaches it too.
pub const AMDGPU: Allocator = Allocator { name: "amdgpu", allocate: amdgpu };

/// dma-bufs are made of whole pages.
fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(dma_buf::page_size())
}

/// The megabytes that udmabuf wraps at most, as its module's parameter.
const UDMABUF_LIMIT: &str = "/sys/module/udmabuf/parameters/size_limit_mb";

fn udmabuf(bytes: u64) -> Result<DmaBuf> {
    let device = open_node(Path::new(UDMABUF))?;
    let size = whole_pages(bytes);
    let limit = std::fs::read_to_string(UDMABUF_LIMIT).ok().and_then(|mb| mb.trim().parse::<u64>().ok());
    if let Some(limit) = limit.filter(|mb| mb.saturating_mul(1 << 20) < size) {
        let cause =
            format!("an arena of {} is larger than udmabuf's limit of {limit} MiB", crate::display::bytes(bytes));
        return Err(Error::refused(cause, format!("write {} into {UDMABUF_LIMIT}", size.div_ceil(1 << 20))));
    }
    Ok(DmaBuf::from_memfd(device.as_fd(), sealed_memfd(size)?.as_fd(), size)?)
}

fn dma_heap(bytes: u64) -> Result<DmaBuf> {
    // The kernel's own answer to more than there is: it kills processes until there is.
    let free = crate::machine::available_memory();
    if bytes > free {
        let (bytes, free) = (crate::display::bytes(bytes), crate::display::bytes(free));
        let cause = format!("an arena of {bytes} is more than the {free} that the system has free");
        return Err(Error::refused(
            cause,
            text!("use a smaller ", Setting::Context, " or ", Setting::Batch, ", or free some memory"),
        ));
    }
    Ok(DmaBuf::from_heap(open_node(Path::new(SYSTEM_HEAP))?.as_fd(), whole_pages(bytes))?)
}

fn amdgpu(bytes: u64) -> Result<DmaBuf> {
    let nodes = std::fs::read_dir("/dev/dri").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut nodes: Vec<_> = nodes.filter(|p| p.to_string_lossy().contains("renderD")).collect();
    nodes.sort();
    let is_amdgpu = |node: &Node| node.version().is_ok_and(|v| v.name == "amdgpu");
    let node = nodes.iter().filter_map(|path| Node::open(path).ok()).find(is_amdgpu);
    let node = node.ok_or_else(|| Error::device("there is no GPU of amdgpu's to allocate from", "see `kiln probe`"))?;
    Ok(amdgpu::allocate_gtt(&node, whole_pages(bytes))?.export()?)
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
    let cleared = arena.bytes_mut().map(|bytes| bytes.fill(0));
    cleared.ok_or_else(|| {
        Error::device("the arena's memory is not mapped", text!("update the driver, or use ", Setting::Cpu))
    })?;
    Ok(arena)
}
