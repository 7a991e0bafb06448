//! One unsafe function per ioctl. `fd` must be open. `data` must point to a valid structure whose own pointers and
//! sizes hold for the call. Each returns the kernel's non-negative answer or its errno.

use super::bindings as b;
use nix::{ioctl_readwrite, ioctl_write_ptr};

// linux/dma-buf.h
ioctl_write_ptr!(dma_buf_sync, b'b', 0, b::dma_buf_sync);

// linux/dma-heap.h
ioctl_readwrite!(dma_heap_alloc, b'H', 0, b::dma_heap_allocation_data);

// linux/udmabuf.h
ioctl_write_ptr!(udmabuf_create, b'u', 0x42, b::udmabuf_create);

// drm.h
ioctl_readwrite!(drm_version, b'd', 0x00, b::drm_version);
ioctl_write_ptr!(drm_gem_close, b'd', 0x09, b::drm_gem_close);
ioctl_readwrite!(drm_prime_handle_to_fd, b'd', 0x2d, b::drm_prime_handle);
ioctl_readwrite!(drm_prime_fd_to_handle, b'd', 0x2e, b::drm_prime_handle);
ioctl_readwrite!(drm_syncobj_destroy, b'd', 0xc0, b::drm_syncobj_destroy);
ioctl_readwrite!(drm_syncobj_timeline_wait, b'd', 0xca, b::drm_syncobj_timeline_wait);

const fn amdgpu(number: u32) -> u32 {
    b::DRM_COMMAND_BASE + number
}

// amdgpu_drm.h
ioctl_readwrite!(amdgpu_gem_create, b'd', amdgpu(b::DRM_AMDGPU_GEM_CREATE), b::drm_amdgpu_gem_create);
#[cfg(feature = "amdgpu")]
ioctl_readwrite!(amdgpu_gem_mmap, b'd', amdgpu(b::DRM_AMDGPU_GEM_MMAP), b::drm_amdgpu_gem_mmap);
#[cfg(feature = "amdgpu")]
ioctl_write_ptr!(amdgpu_gem_va, b'd', amdgpu(b::DRM_AMDGPU_GEM_VA), b::drm_amdgpu_gem_va);
#[cfg(feature = "amdgpu")]
ioctl_readwrite!(amdgpu_ctx, b'd', amdgpu(b::DRM_AMDGPU_CTX), b::drm_amdgpu_ctx);
#[cfg(feature = "amdgpu")]
ioctl_readwrite!(amdgpu_cs, b'd', amdgpu(b::DRM_AMDGPU_CS), b::drm_amdgpu_cs);
#[cfg(feature = "amdgpu")]
ioctl_readwrite!(amdgpu_wait_cs, b'd', amdgpu(b::DRM_AMDGPU_WAIT_CS), b::drm_amdgpu_wait_cs);
ioctl_write_ptr!(amdgpu_info, b'd', amdgpu(b::DRM_AMDGPU_INFO), b::drm_amdgpu_info);

const fn amdxdna(number: b::amdxdna_ioctl_number) -> u32 {
    b::DRM_COMMAND_BASE + number
}

// amdxdna_accel.h
ioctl_readwrite!(amdxdna_create_hwctx, b'd', amdxdna(b::DRM_AMDXDNA_CREATE_HWCTX), b::amdxdna_drm_create_hwctx);
ioctl_readwrite!(amdxdna_destroy_hwctx, b'd', amdxdna(b::DRM_AMDXDNA_DESTROY_HWCTX), b::amdxdna_drm_destroy_hwctx);
ioctl_readwrite!(amdxdna_config_hwctx, b'd', amdxdna(b::DRM_AMDXDNA_CONFIG_HWCTX), b::amdxdna_drm_config_hwctx);
ioctl_readwrite!(amdxdna_create_bo, b'd', amdxdna(b::DRM_AMDXDNA_CREATE_BO), b::amdxdna_drm_create_bo);
ioctl_readwrite!(amdxdna_get_bo_info, b'd', amdxdna(b::DRM_AMDXDNA_GET_BO_INFO), b::amdxdna_drm_get_bo_info);
ioctl_readwrite!(amdxdna_exec_cmd, b'd', amdxdna(b::DRM_AMDXDNA_EXEC_CMD), b::amdxdna_drm_exec_cmd);
ioctl_readwrite!(amdxdna_get_info, b'd', amdxdna(b::DRM_AMDXDNA_GET_INFO), b::amdxdna_drm_get_info);
ioctl_readwrite!(amdxdna_get_array, b'd', amdxdna(b::DRM_AMDXDNA_GET_ARRAY), b::amdxdna_drm_get_array);
