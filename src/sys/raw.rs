//! One unsafe function per ioctl. `fd` must be open, and `data` point to a valid structure whose own pointers and sizes
//! hold for the call; each gives the kernel's non-negative answer or its errno.

use super::bindings as b;
use nix::{ioctl_readwrite, ioctl_write_ptr};

// linux/dma-buf.h
ioctl_write_ptr!(dma_buf_sync, b'b', 0, b::dma_buf_sync);
ioctl_readwrite!(dma_buf_export_sync_file, b'b', 2, b::dma_buf_export_sync_file);
ioctl_write_ptr!(dma_buf_import_sync_file, b'b', 3, b::dma_buf_import_sync_file);

// linux/dma-heap.h
ioctl_readwrite!(dma_heap_alloc, b'H', 0, b::dma_heap_allocation_data);

// linux/udmabuf.h
ioctl_write_ptr!(udmabuf_create, b'u', 0x42, b::udmabuf_create);

// linux/sync_file.h
ioctl_readwrite!(sync_merge, b'>', 3, b::sync_merge_data);
ioctl_readwrite!(sync_file_info, b'>', 4, b::sync_file_info);
