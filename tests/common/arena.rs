//! Allocators for the arenas under test.

use super::vgem;
use kiln::testing::replay::driver::Allocator;
use kiln::testing::vulkan::memory::allocators::{DMA_HEAP, MEMFD, UDMABUF_MEMFD};

/// Whether dma-bufs must work on this system (tools/vm-test); elsewhere they may.
pub fn dma_bufs_required() -> bool {
    std::env::var_os("KILN_TEST_DMA_BUF").is_some_and(|v| v == "1")
}

/// Each kind of dma-buf that a kernel with vgem makes.
pub const DMA_BUFS: [Allocator; 3] = [UDMABUF_MEMFD, DMA_HEAP, Allocator { name: "vgem", allocate: vgem::allocate }];

/// Allocators to test: the kernel's drivers where dma-bufs must work, else a memfd.
pub fn arena_allocators() -> Vec<Allocator> {
    match dma_bufs_required() {
        true => DMA_BUFS.to_vec(),
        false => vec![MEMFD],
    }
}
