//! Allocators of the arena's memory outside the Vulkan driver, for sharing it with other drivers.

use crate::error::{Setting, Text, text};
use crate::machine::files::Files;
use crate::machine::nodes::DeviceNode;
use crate::replay::driver::Allocator;
use crate::sys::amdgpu;
use crate::sys::dma_buf::{self, DmaBuf, SYSTEM_HEAP, UDMABUF, open_node, sealed_memfd};
use crate::sys::drm::Node;
use crate::{Error, Result};
use std::os::fd::AsFd;
use std::path::Path;

/// A plain memfd. Only Mesa's CPU driver imports it as if it were a dma-buf.
pub const MEMFD: Allocator =
    Allocator { name: "a memfd", allocate: |bytes| Ok(DmaBuf::from_fd(sealed_memfd(whole_pages(bytes))?)?) };
/// A memfd that /dev/udmabuf turns into a dma-buf.
pub const UDMABUF_MEMFD: Allocator = Allocator { name: UDMABUF, allocate: udmabuf };
/// The dma-heap of system memory.
pub const DMA_HEAP: Allocator = Allocator { name: SYSTEM_HEAP, allocate: dma_heap };

/// amdgpu, in system memory that its GPU can access. Uses the first such GPU; any other can access that memory too.
pub const AMDGPU: Allocator = Allocator { name: "amdgpu", allocate: amdgpu };

/// Rounds up to whole pages, as dma-bufs require.
fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(dma_buf::page_size())
}

/// udmabuf's module parameter: its largest size in MiB.
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
    // The kernel does not refuse an allocation that is too large: it kills processes until it fits.
    let free = crate::machine::available_memory();
    if bytes > free {
        let (bytes, free) = (crate::display::bytes(bytes), crate::display::bytes(free));
        let cause = format!("an arena of {bytes} is more than the {free} that the system has free");
        let smaller = Text::any_of([Setting::Context.into(), Setting::Batch.into()]);
        return Err(Error::refused(cause, text!("use a smaller ", smaller, ", or free some memory")));
    }
    Ok(DmaBuf::from_heap(open_node(Path::new(SYSTEM_HEAP))?.as_fd(), whole_pages(bytes))?)
}

fn amdgpu(bytes: u64) -> Result<DmaBuf> {
    let nodes = DeviceNode::gpus(&Files::system());
    let node = nodes.iter().filter(|n| n.is_amdgpu()).find_map(|n| Node::open(Path::new(&n.path)).ok());
    let node = node.ok_or_else(|| Error::device("there is no GPU of amdgpu's to allocate from", "see `kiln probe`"))?;
    Ok(amdgpu::allocate_gtt(&node, whole_pages(bytes))?.export()?)
}
