//! dma-bufs for tests, of each kind that a kernel with vgem makes.

use super::vgem;
use kiln::testing::sys::dma_buf::{DmaBuf, SYSTEM_HEAP, UDMABUF, open_node, sealed_memfd};
use std::os::fd::AsFd;
use std::path::Path;

/// Whether dma-bufs must work on this system (tools/vm-test); elsewhere they may.
pub fn dma_bufs_required() -> bool {
    std::env::var_os("KILN_TEST_DMA_BUF").is_some_and(|v| v == "1")
}

/// A memfd of whole pages that udmabuf makes a dma-buf of.
pub fn udmabuf(bytes: u64) -> kiln::Result<DmaBuf> {
    let device = open_node(Path::new(UDMABUF))?;
    Ok(DmaBuf::from_memfd(device.as_fd(), sealed_memfd(bytes)?.as_fd(), bytes)?)
}

/// A dma-buf of whole pages of the system's heap.
pub fn heap(bytes: u64) -> kiln::Result<DmaBuf> {
    Ok(DmaBuf::from_heap(open_node(Path::new(SYSTEM_HEAP))?.as_fd(), bytes)?)
}

/// What makes each kind of dma-buf, with its name.
pub type Allocate = fn(u64) -> kiln::Result<DmaBuf>;
pub const DMA_BUFS: [(&str, Allocate); 3] = [(UDMABUF, udmabuf), (SYSTEM_HEAP, heap), ("vgem", vgem::allocate)];
