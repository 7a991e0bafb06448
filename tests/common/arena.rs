//! Where the arenas that are tested come from.

use super::vgem;
use kiln::testing::gpu::memory::allocators::{DMA_HEAP, MEMFD, UDMABUF_MEMFD};
use kiln::testing::gpu::memory::arena::Allocator;

/// Whether this is a system where dma-bufs must work (tools/vm-test), not one where they may.
pub fn dma_bufs_required() -> bool {
    std::env::var_os("KILN_TEST_DMA_BUF").is_some_and(|v| v == "1")
}

/// Each kind of dma-buf that a kernel with vgem makes.
pub const DMA_BUFS: [Allocator; 3] = [UDMABUF_MEMFD, DMA_HEAP, Allocator { name: "vgem", allocate: vgem::allocate }];

/// Who makes the arenas that are tested: the kernel where dma-bufs must work, else nobody's driver.
pub fn arena_allocators() -> Vec<Allocator> {
    match dma_bufs_required() {
        true => DMA_BUFS.to_vec(),
        false => vec![MEMFD],
    }
}
