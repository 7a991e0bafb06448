// Made from ffi/drivers.h by `cargo check --features bindgen`; not edited by hand.

pub const DMA_BUF_SYNC_READ: u32 = 1;
pub const DMA_BUF_SYNC_WRITE: u32 = 2;
pub const DMA_BUF_SYNC_RW: u32 = 3;
pub const DMA_BUF_SYNC_START: u32 = 0;
pub const DMA_BUF_SYNC_END: u32 = 4;
pub const DMA_BUF_SYNC_VALID_FLAGS_MASK: u32 = 7;
pub const UDMABUF_FLAGS_CLOEXEC: u32 = 1;
pub const DRM_SYNCOBJ_CREATE_SIGNALED: u32 = 1;
pub const DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE: u32 = 1;
pub const DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE: u32 = 1;
pub const DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL: u32 = 1;
pub const DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT: u32 = 2;
pub const DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE: u32 = 4;
pub const DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED: u32 = 1;
pub const DRM_COMMAND_BASE: u32 = 64;
pub const DRM_AMDGPU_GEM_CREATE: u32 = 0;
pub const DRM_AMDGPU_GEM_MMAP: u32 = 1;
pub const DRM_AMDGPU_CTX: u32 = 2;
pub const DRM_AMDGPU_CS: u32 = 4;
pub const DRM_AMDGPU_INFO: u32 = 5;
pub const DRM_AMDGPU_GEM_VA: u32 = 8;
pub const DRM_AMDGPU_WAIT_CS: u32 = 9;
pub const AMDGPU_GEM_DOMAIN_CPU: u32 = 1;
pub const AMDGPU_GEM_DOMAIN_GTT: u32 = 2;
pub const AMDGPU_GEM_DOMAIN_VRAM: u32 = 4;
pub const AMDGPU_GEM_DOMAIN_GDS: u32 = 8;
pub const AMDGPU_GEM_DOMAIN_GWS: u32 = 16;
pub const AMDGPU_GEM_DOMAIN_OA: u32 = 32;
pub const AMDGPU_GEM_DOMAIN_MASK: u32 = 63;
pub const AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED: u32 = 1;
pub const AMDGPU_GEM_CREATE_NO_CPU_ACCESS: u32 = 2;
pub const AMDGPU_GEM_CREATE_CPU_GTT_USWC: u32 = 4;
pub const AMDGPU_GEM_CREATE_VRAM_CLEARED: u32 = 8;
pub const AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS: u32 = 32;
pub const AMDGPU_GEM_CREATE_VM_ALWAYS_VALID: u32 = 64;
pub const AMDGPU_GEM_CREATE_EXPLICIT_SYNC: u32 = 128;
pub const AMDGPU_GEM_CREATE_CP_MQD_GFX9: u32 = 256;
pub const AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE: u32 = 512;
pub const AMDGPU_GEM_CREATE_ENCRYPTED: u32 = 1024;
pub const AMDGPU_GEM_CREATE_PREEMPTIBLE: u32 = 2048;
pub const AMDGPU_CTX_OP_ALLOC_CTX: u32 = 1;
pub const AMDGPU_CTX_OP_FREE_CTX: u32 = 2;
pub const AMDGPU_CTX_OP_QUERY_STATE: u32 = 3;
pub const AMDGPU_CTX_OP_QUERY_STATE2: u32 = 4;
pub const AMDGPU_CTX_OP_GET_STABLE_PSTATE: u32 = 5;
pub const AMDGPU_CTX_OP_SET_STABLE_PSTATE: u32 = 6;
pub const AMDGPU_CTX_QUERY2_FLAGS_RESET: u32 = 1;
pub const AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST: u32 = 2;
pub const AMDGPU_CTX_QUERY2_FLAGS_GUILTY: u32 = 4;
pub const AMDGPU_CTX_QUERY2_FLAGS_RAS_CE: u32 = 8;
pub const AMDGPU_CTX_QUERY2_FLAGS_RAS_UE: u32 = 16;
pub const AMDGPU_VA_OP_MAP: u32 = 1;
pub const AMDGPU_VA_OP_UNMAP: u32 = 2;
pub const AMDGPU_VA_OP_CLEAR: u32 = 3;
pub const AMDGPU_VA_OP_REPLACE: u32 = 4;
pub const AMDGPU_VM_PAGE_READABLE: u32 = 2;
pub const AMDGPU_VM_PAGE_WRITEABLE: u32 = 4;
pub const AMDGPU_VM_PAGE_EXECUTABLE: u32 = 8;
pub const AMDGPU_VM_PAGE_PRT: u32 = 16;
pub const AMDGPU_HW_IP_COMPUTE: u32 = 1;
pub const AMDGPU_CHUNK_ID_IB: u32 = 1;
pub const AMDGPU_CHUNK_ID_FENCE: u32 = 2;
pub const AMDGPU_CHUNK_ID_DEPENDENCIES: u32 = 3;
pub const AMDGPU_CHUNK_ID_SYNCOBJ_IN: u32 = 4;
pub const AMDGPU_CHUNK_ID_SYNCOBJ_OUT: u32 = 5;
pub const AMDGPU_CHUNK_ID_BO_HANDLES: u32 = 6;
pub const AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES: u32 = 7;
pub const AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT: u32 = 8;
pub const AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL: u32 = 9;
pub const AMDGPU_IDS_FLAGS_FUSION: u32 = 1;
pub const AMDGPU_INFO_HW_IP_INFO: u32 = 2;
pub const AMDGPU_INFO_FW_VERSION: u32 = 14;
pub const AMDGPU_INFO_FW_VCE: u32 = 1;
pub const AMDGPU_INFO_FW_UVD: u32 = 2;
pub const AMDGPU_INFO_FW_GMC: u32 = 3;
pub const AMDGPU_INFO_FW_GFX_ME: u32 = 4;
pub const AMDGPU_INFO_FW_GFX_PFP: u32 = 5;
pub const AMDGPU_INFO_FW_GFX_CE: u32 = 6;
pub const AMDGPU_INFO_FW_GFX_RLC: u32 = 7;
pub const AMDGPU_INFO_FW_GFX_MEC: u32 = 8;
pub const AMDGPU_INFO_FW_SMC: u32 = 10;
pub const AMDGPU_INFO_FW_SDMA: u32 = 11;
pub const AMDGPU_INFO_FW_SOS: u32 = 12;
pub const AMDGPU_INFO_FW_ASD: u32 = 13;
pub const AMDGPU_INFO_FW_VCN: u32 = 14;
pub const AMDGPU_INFO_FW_GFX_RLC_RESTORE_LIST_CNTL: u32 = 15;
pub const AMDGPU_INFO_FW_GFX_RLC_RESTORE_LIST_GPM_MEM: u32 = 16;
pub const AMDGPU_INFO_FW_GFX_RLC_RESTORE_LIST_SRM_MEM: u32 = 17;
pub const AMDGPU_INFO_FW_DMCU: u32 = 18;
pub const AMDGPU_INFO_FW_TA: u32 = 19;
pub const AMDGPU_INFO_FW_DMCUB: u32 = 20;
pub const AMDGPU_INFO_FW_TOC: u32 = 21;
pub const AMDGPU_INFO_VRAM_USAGE: u32 = 16;
pub const AMDGPU_INFO_GTT_USAGE: u32 = 17;
pub const AMDGPU_INFO_DEV_INFO: u32 = 22;
pub const AMDGPU_INFO_VIS_VRAM_USAGE: u32 = 23;
pub const AMDGPU_INFO_NUM_EVICTIONS: u32 = 24;
pub const AMDGPU_INFO_MEMORY: u32 = 25;
pub const AMDGPU_INFO_SENSOR: u32 = 29;
pub const AMDGPU_INFO_SENSOR_GFX_SCLK: u32 = 1;
pub const AMDGPU_INFO_SENSOR_GFX_MCLK: u32 = 2;
pub const AMDGPU_INFO_SENSOR_GPU_TEMP: u32 = 3;
pub const AMDGPU_INFO_SENSOR_GPU_LOAD: u32 = 4;
pub const AMDGPU_INFO_SENSOR_GPU_AVG_POWER: u32 = 5;
pub const AMDGPU_INFO_SENSOR_VDDNB: u32 = 6;
pub const AMDGPU_INFO_SENSOR_VDDGFX: u32 = 7;
pub const AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_SCLK: u32 = 8;
pub const AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_MCLK: u32 = 9;
pub const AMDGPU_INFO_VRAM_LOST_COUNTER: u32 = 31;
pub const AMDGPU_VRAM_TYPE_UNKNOWN: u32 = 0;
pub const AMDGPU_VRAM_TYPE_GDDR1: u32 = 1;
pub const AMDGPU_VRAM_TYPE_DDR2: u32 = 2;
pub const AMDGPU_VRAM_TYPE_GDDR3: u32 = 3;
pub const AMDGPU_VRAM_TYPE_GDDR4: u32 = 4;
pub const AMDGPU_VRAM_TYPE_GDDR5: u32 = 5;
pub const AMDGPU_VRAM_TYPE_HBM: u32 = 6;
pub const AMDGPU_VRAM_TYPE_DDR3: u32 = 7;
pub const AMDGPU_VRAM_TYPE_DDR4: u32 = 8;
pub const AMDGPU_VRAM_TYPE_GDDR6: u32 = 9;
pub const AMDGPU_VRAM_TYPE_DDR5: u32 = 10;
pub const KILN_XRT_FACE: &[u8; 16] = b"kiln_xrt_face_1\0";
pub type __s8 = ::std::os::raw::c_schar;
pub type __u8 = ::std::os::raw::c_uchar;
pub type __u16 = ::std::os::raw::c_ushort;
pub type __s32 = ::std::os::raw::c_int;
pub type __u32 = ::std::os::raw::c_uint;
pub type __s64 = ::std::os::raw::c_longlong;
pub type __u64 = ::std::os::raw::c_ulonglong;
pub type __kernel_ulong_t = ::std::os::raw::c_ulong;
pub type __kernel_size_t = __kernel_ulong_t;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dma_buf_sync {
    pub flags: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_buf_sync"][::std::mem::size_of::<dma_buf_sync>() - 8usize];
    ["Alignment of dma_buf_sync"][::std::mem::align_of::<dma_buf_sync>() - 8usize];
    ["Offset of field: dma_buf_sync::flags"][::std::mem::offset_of!(dma_buf_sync, flags) - 0usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dma_buf_export_sync_file {
    pub flags: __u32,
    pub fd: __s32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_buf_export_sync_file"][::std::mem::size_of::<dma_buf_export_sync_file>() - 8usize];
    ["Alignment of dma_buf_export_sync_file"][::std::mem::align_of::<dma_buf_export_sync_file>() - 4usize];
    ["Offset of field: dma_buf_export_sync_file::flags"]
        [::std::mem::offset_of!(dma_buf_export_sync_file, flags) - 0usize];
    ["Offset of field: dma_buf_export_sync_file::fd"][::std::mem::offset_of!(dma_buf_export_sync_file, fd) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dma_buf_import_sync_file {
    pub flags: __u32,
    pub fd: __s32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_buf_import_sync_file"][::std::mem::size_of::<dma_buf_import_sync_file>() - 8usize];
    ["Alignment of dma_buf_import_sync_file"][::std::mem::align_of::<dma_buf_import_sync_file>() - 4usize];
    ["Offset of field: dma_buf_import_sync_file::flags"]
        [::std::mem::offset_of!(dma_buf_import_sync_file, flags) - 0usize];
    ["Offset of field: dma_buf_import_sync_file::fd"][::std::mem::offset_of!(dma_buf_import_sync_file, fd) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dma_heap_allocation_data {
    pub len: __u64,
    pub fd: __u32,
    pub fd_flags: __u32,
    pub heap_flags: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dma_heap_allocation_data"][::std::mem::size_of::<dma_heap_allocation_data>() - 24usize];
    ["Alignment of dma_heap_allocation_data"][::std::mem::align_of::<dma_heap_allocation_data>() - 8usize];
    ["Offset of field: dma_heap_allocation_data::len"][::std::mem::offset_of!(dma_heap_allocation_data, len) - 0usize];
    ["Offset of field: dma_heap_allocation_data::fd"][::std::mem::offset_of!(dma_heap_allocation_data, fd) - 8usize];
    ["Offset of field: dma_heap_allocation_data::fd_flags"]
        [::std::mem::offset_of!(dma_heap_allocation_data, fd_flags) - 12usize];
    ["Offset of field: dma_heap_allocation_data::heap_flags"]
        [::std::mem::offset_of!(dma_heap_allocation_data, heap_flags) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct sync_merge_data {
    pub name: [::std::os::raw::c_char; 32usize],
    pub fd2: __s32,
    pub fence: __s32,
    pub flags: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of sync_merge_data"][::std::mem::size_of::<sync_merge_data>() - 48usize];
    ["Alignment of sync_merge_data"][::std::mem::align_of::<sync_merge_data>() - 4usize];
    ["Offset of field: sync_merge_data::name"][::std::mem::offset_of!(sync_merge_data, name) - 0usize];
    ["Offset of field: sync_merge_data::fd2"][::std::mem::offset_of!(sync_merge_data, fd2) - 32usize];
    ["Offset of field: sync_merge_data::fence"][::std::mem::offset_of!(sync_merge_data, fence) - 36usize];
    ["Offset of field: sync_merge_data::flags"][::std::mem::offset_of!(sync_merge_data, flags) - 40usize];
    ["Offset of field: sync_merge_data::pad"][::std::mem::offset_of!(sync_merge_data, pad) - 44usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct sync_fence_info {
    pub obj_name: [::std::os::raw::c_char; 32usize],
    pub driver_name: [::std::os::raw::c_char; 32usize],
    pub status: __s32,
    pub flags: __u32,
    pub timestamp_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of sync_fence_info"][::std::mem::size_of::<sync_fence_info>() - 80usize];
    ["Alignment of sync_fence_info"][::std::mem::align_of::<sync_fence_info>() - 8usize];
    ["Offset of field: sync_fence_info::obj_name"][::std::mem::offset_of!(sync_fence_info, obj_name) - 0usize];
    ["Offset of field: sync_fence_info::driver_name"][::std::mem::offset_of!(sync_fence_info, driver_name) - 32usize];
    ["Offset of field: sync_fence_info::status"][::std::mem::offset_of!(sync_fence_info, status) - 64usize];
    ["Offset of field: sync_fence_info::flags"][::std::mem::offset_of!(sync_fence_info, flags) - 68usize];
    ["Offset of field: sync_fence_info::timestamp_ns"][::std::mem::offset_of!(sync_fence_info, timestamp_ns) - 72usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct sync_file_info {
    pub name: [::std::os::raw::c_char; 32usize],
    pub status: __s32,
    pub flags: __u32,
    pub num_fences: __u32,
    pub pad: __u32,
    pub sync_fence_info: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of sync_file_info"][::std::mem::size_of::<sync_file_info>() - 56usize];
    ["Alignment of sync_file_info"][::std::mem::align_of::<sync_file_info>() - 8usize];
    ["Offset of field: sync_file_info::name"][::std::mem::offset_of!(sync_file_info, name) - 0usize];
    ["Offset of field: sync_file_info::status"][::std::mem::offset_of!(sync_file_info, status) - 32usize];
    ["Offset of field: sync_file_info::flags"][::std::mem::offset_of!(sync_file_info, flags) - 36usize];
    ["Offset of field: sync_file_info::num_fences"][::std::mem::offset_of!(sync_file_info, num_fences) - 40usize];
    ["Offset of field: sync_file_info::pad"][::std::mem::offset_of!(sync_file_info, pad) - 44usize];
    ["Offset of field: sync_file_info::sync_fence_info"]
        [::std::mem::offset_of!(sync_file_info, sync_fence_info) - 48usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct udmabuf_create {
    pub memfd: __u32,
    pub flags: __u32,
    pub offset: __u64,
    pub size: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of udmabuf_create"][::std::mem::size_of::<udmabuf_create>() - 24usize];
    ["Alignment of udmabuf_create"][::std::mem::align_of::<udmabuf_create>() - 8usize];
    ["Offset of field: udmabuf_create::memfd"][::std::mem::offset_of!(udmabuf_create, memfd) - 0usize];
    ["Offset of field: udmabuf_create::flags"][::std::mem::offset_of!(udmabuf_create, flags) - 4usize];
    ["Offset of field: udmabuf_create::offset"][::std::mem::offset_of!(udmabuf_create, offset) - 8usize];
    ["Offset of field: udmabuf_create::size"][::std::mem::offset_of!(udmabuf_create, size) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct drm_version {
    pub version_major: ::std::os::raw::c_int,
    pub version_minor: ::std::os::raw::c_int,
    pub version_patchlevel: ::std::os::raw::c_int,
    pub name_len: __kernel_size_t,
    pub name: *mut ::std::os::raw::c_char,
    pub date_len: __kernel_size_t,
    pub date: *mut ::std::os::raw::c_char,
    pub desc_len: __kernel_size_t,
    pub desc: *mut ::std::os::raw::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_version"][::std::mem::size_of::<drm_version>() - 64usize];
    ["Alignment of drm_version"][::std::mem::align_of::<drm_version>() - 8usize];
    ["Offset of field: drm_version::version_major"][::std::mem::offset_of!(drm_version, version_major) - 0usize];
    ["Offset of field: drm_version::version_minor"][::std::mem::offset_of!(drm_version, version_minor) - 4usize];
    ["Offset of field: drm_version::version_patchlevel"]
        [::std::mem::offset_of!(drm_version, version_patchlevel) - 8usize];
    ["Offset of field: drm_version::name_len"][::std::mem::offset_of!(drm_version, name_len) - 16usize];
    ["Offset of field: drm_version::name"][::std::mem::offset_of!(drm_version, name) - 24usize];
    ["Offset of field: drm_version::date_len"][::std::mem::offset_of!(drm_version, date_len) - 32usize];
    ["Offset of field: drm_version::date"][::std::mem::offset_of!(drm_version, date) - 40usize];
    ["Offset of field: drm_version::desc_len"][::std::mem::offset_of!(drm_version, desc_len) - 48usize];
    ["Offset of field: drm_version::desc"][::std::mem::offset_of!(drm_version, desc) - 56usize];
};
impl Default for drm_version {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_gem_close {
    pub handle: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_gem_close"][::std::mem::size_of::<drm_gem_close>() - 8usize];
    ["Alignment of drm_gem_close"][::std::mem::align_of::<drm_gem_close>() - 4usize];
    ["Offset of field: drm_gem_close::handle"][::std::mem::offset_of!(drm_gem_close, handle) - 0usize];
    ["Offset of field: drm_gem_close::pad"][::std::mem::offset_of!(drm_gem_close, pad) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_prime_handle {
    pub handle: __u32,
    pub flags: __u32,
    pub fd: __s32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_prime_handle"][::std::mem::size_of::<drm_prime_handle>() - 12usize];
    ["Alignment of drm_prime_handle"][::std::mem::align_of::<drm_prime_handle>() - 4usize];
    ["Offset of field: drm_prime_handle::handle"][::std::mem::offset_of!(drm_prime_handle, handle) - 0usize];
    ["Offset of field: drm_prime_handle::flags"][::std::mem::offset_of!(drm_prime_handle, flags) - 4usize];
    ["Offset of field: drm_prime_handle::fd"][::std::mem::offset_of!(drm_prime_handle, fd) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_syncobj_create {
    pub handle: __u32,
    pub flags: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_syncobj_create"][::std::mem::size_of::<drm_syncobj_create>() - 8usize];
    ["Alignment of drm_syncobj_create"][::std::mem::align_of::<drm_syncobj_create>() - 4usize];
    ["Offset of field: drm_syncobj_create::handle"][::std::mem::offset_of!(drm_syncobj_create, handle) - 0usize];
    ["Offset of field: drm_syncobj_create::flags"][::std::mem::offset_of!(drm_syncobj_create, flags) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_syncobj_destroy {
    pub handle: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_syncobj_destroy"][::std::mem::size_of::<drm_syncobj_destroy>() - 8usize];
    ["Alignment of drm_syncobj_destroy"][::std::mem::align_of::<drm_syncobj_destroy>() - 4usize];
    ["Offset of field: drm_syncobj_destroy::handle"][::std::mem::offset_of!(drm_syncobj_destroy, handle) - 0usize];
    ["Offset of field: drm_syncobj_destroy::pad"][::std::mem::offset_of!(drm_syncobj_destroy, pad) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_syncobj_handle {
    pub handle: __u32,
    pub flags: __u32,
    pub fd: __s32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_syncobj_handle"][::std::mem::size_of::<drm_syncobj_handle>() - 16usize];
    ["Alignment of drm_syncobj_handle"][::std::mem::align_of::<drm_syncobj_handle>() - 4usize];
    ["Offset of field: drm_syncobj_handle::handle"][::std::mem::offset_of!(drm_syncobj_handle, handle) - 0usize];
    ["Offset of field: drm_syncobj_handle::flags"][::std::mem::offset_of!(drm_syncobj_handle, flags) - 4usize];
    ["Offset of field: drm_syncobj_handle::fd"][::std::mem::offset_of!(drm_syncobj_handle, fd) - 8usize];
    ["Offset of field: drm_syncobj_handle::pad"][::std::mem::offset_of!(drm_syncobj_handle, pad) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_syncobj_timeline_wait {
    pub handles: __u64,
    pub points: __u64,
    pub timeout_nsec: __s64,
    pub count_handles: __u32,
    pub flags: __u32,
    pub first_signaled: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_syncobj_timeline_wait"][::std::mem::size_of::<drm_syncobj_timeline_wait>() - 40usize];
    ["Alignment of drm_syncobj_timeline_wait"][::std::mem::align_of::<drm_syncobj_timeline_wait>() - 8usize];
    ["Offset of field: drm_syncobj_timeline_wait::handles"]
        [::std::mem::offset_of!(drm_syncobj_timeline_wait, handles) - 0usize];
    ["Offset of field: drm_syncobj_timeline_wait::points"]
        [::std::mem::offset_of!(drm_syncobj_timeline_wait, points) - 8usize];
    ["Offset of field: drm_syncobj_timeline_wait::timeout_nsec"]
        [::std::mem::offset_of!(drm_syncobj_timeline_wait, timeout_nsec) - 16usize];
    ["Offset of field: drm_syncobj_timeline_wait::count_handles"]
        [::std::mem::offset_of!(drm_syncobj_timeline_wait, count_handles) - 24usize];
    ["Offset of field: drm_syncobj_timeline_wait::flags"]
        [::std::mem::offset_of!(drm_syncobj_timeline_wait, flags) - 28usize];
    ["Offset of field: drm_syncobj_timeline_wait::first_signaled"]
        [::std::mem::offset_of!(drm_syncobj_timeline_wait, first_signaled) - 32usize];
    ["Offset of field: drm_syncobj_timeline_wait::pad"]
        [::std::mem::offset_of!(drm_syncobj_timeline_wait, pad) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_create_in {
    pub bo_size: __u64,
    pub alignment: __u64,
    pub domains: __u64,
    pub domain_flags: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_gem_create_in"][::std::mem::size_of::<drm_amdgpu_gem_create_in>() - 32usize];
    ["Alignment of drm_amdgpu_gem_create_in"][::std::mem::align_of::<drm_amdgpu_gem_create_in>() - 8usize];
    ["Offset of field: drm_amdgpu_gem_create_in::bo_size"]
        [::std::mem::offset_of!(drm_amdgpu_gem_create_in, bo_size) - 0usize];
    ["Offset of field: drm_amdgpu_gem_create_in::alignment"]
        [::std::mem::offset_of!(drm_amdgpu_gem_create_in, alignment) - 8usize];
    ["Offset of field: drm_amdgpu_gem_create_in::domains"]
        [::std::mem::offset_of!(drm_amdgpu_gem_create_in, domains) - 16usize];
    ["Offset of field: drm_amdgpu_gem_create_in::domain_flags"]
        [::std::mem::offset_of!(drm_amdgpu_gem_create_in, domain_flags) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_create_out {
    pub handle: __u32,
    pub _pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_gem_create_out"][::std::mem::size_of::<drm_amdgpu_gem_create_out>() - 8usize];
    ["Alignment of drm_amdgpu_gem_create_out"][::std::mem::align_of::<drm_amdgpu_gem_create_out>() - 4usize];
    ["Offset of field: drm_amdgpu_gem_create_out::handle"]
        [::std::mem::offset_of!(drm_amdgpu_gem_create_out, handle) - 0usize];
    ["Offset of field: drm_amdgpu_gem_create_out::_pad"]
        [::std::mem::offset_of!(drm_amdgpu_gem_create_out, _pad) - 4usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_gem_create {
    pub in_: drm_amdgpu_gem_create_in,
    pub out: drm_amdgpu_gem_create_out,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_gem_create"][::std::mem::size_of::<drm_amdgpu_gem_create>() - 32usize];
    ["Alignment of drm_amdgpu_gem_create"][::std::mem::align_of::<drm_amdgpu_gem_create>() - 8usize];
    ["Offset of field: drm_amdgpu_gem_create::in_"][::std::mem::offset_of!(drm_amdgpu_gem_create, in_) - 0usize];
    ["Offset of field: drm_amdgpu_gem_create::out"][::std::mem::offset_of!(drm_amdgpu_gem_create, out) - 0usize];
};
impl Default for drm_amdgpu_gem_create {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_bo_list_in {
    pub operation: __u32,
    pub list_handle: __u32,
    pub bo_number: __u32,
    pub bo_info_size: __u32,
    pub bo_info_ptr: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_bo_list_in"][::std::mem::size_of::<drm_amdgpu_bo_list_in>() - 24usize];
    ["Alignment of drm_amdgpu_bo_list_in"][::std::mem::align_of::<drm_amdgpu_bo_list_in>() - 8usize];
    ["Offset of field: drm_amdgpu_bo_list_in::operation"]
        [::std::mem::offset_of!(drm_amdgpu_bo_list_in, operation) - 0usize];
    ["Offset of field: drm_amdgpu_bo_list_in::list_handle"]
        [::std::mem::offset_of!(drm_amdgpu_bo_list_in, list_handle) - 4usize];
    ["Offset of field: drm_amdgpu_bo_list_in::bo_number"]
        [::std::mem::offset_of!(drm_amdgpu_bo_list_in, bo_number) - 8usize];
    ["Offset of field: drm_amdgpu_bo_list_in::bo_info_size"]
        [::std::mem::offset_of!(drm_amdgpu_bo_list_in, bo_info_size) - 12usize];
    ["Offset of field: drm_amdgpu_bo_list_in::bo_info_ptr"]
        [::std::mem::offset_of!(drm_amdgpu_bo_list_in, bo_info_ptr) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_bo_list_entry {
    pub bo_handle: __u32,
    pub bo_priority: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_bo_list_entry"][::std::mem::size_of::<drm_amdgpu_bo_list_entry>() - 8usize];
    ["Alignment of drm_amdgpu_bo_list_entry"][::std::mem::align_of::<drm_amdgpu_bo_list_entry>() - 4usize];
    ["Offset of field: drm_amdgpu_bo_list_entry::bo_handle"]
        [::std::mem::offset_of!(drm_amdgpu_bo_list_entry, bo_handle) - 0usize];
    ["Offset of field: drm_amdgpu_bo_list_entry::bo_priority"]
        [::std::mem::offset_of!(drm_amdgpu_bo_list_entry, bo_priority) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_in {
    pub op: __u32,
    pub flags: __u32,
    pub ctx_id: __u32,
    pub priority: __s32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_ctx_in"][::std::mem::size_of::<drm_amdgpu_ctx_in>() - 16usize];
    ["Alignment of drm_amdgpu_ctx_in"][::std::mem::align_of::<drm_amdgpu_ctx_in>() - 4usize];
    ["Offset of field: drm_amdgpu_ctx_in::op"][::std::mem::offset_of!(drm_amdgpu_ctx_in, op) - 0usize];
    ["Offset of field: drm_amdgpu_ctx_in::flags"][::std::mem::offset_of!(drm_amdgpu_ctx_in, flags) - 4usize];
    ["Offset of field: drm_amdgpu_ctx_in::ctx_id"][::std::mem::offset_of!(drm_amdgpu_ctx_in, ctx_id) - 8usize];
    ["Offset of field: drm_amdgpu_ctx_in::priority"][::std::mem::offset_of!(drm_amdgpu_ctx_in, priority) - 12usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_ctx_out {
    pub alloc: drm_amdgpu_ctx_out__bindgen_ty_1,
    pub state: drm_amdgpu_ctx_out__bindgen_ty_2,
    pub pstate: drm_amdgpu_ctx_out__bindgen_ty_3,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_out__bindgen_ty_1 {
    pub ctx_id: __u32,
    pub _pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_ctx_out__bindgen_ty_1"][::std::mem::size_of::<drm_amdgpu_ctx_out__bindgen_ty_1>() - 8usize];
    ["Alignment of drm_amdgpu_ctx_out__bindgen_ty_1"]
        [::std::mem::align_of::<drm_amdgpu_ctx_out__bindgen_ty_1>() - 4usize];
    ["Offset of field: drm_amdgpu_ctx_out__bindgen_ty_1::ctx_id"]
        [::std::mem::offset_of!(drm_amdgpu_ctx_out__bindgen_ty_1, ctx_id) - 0usize];
    ["Offset of field: drm_amdgpu_ctx_out__bindgen_ty_1::_pad"]
        [::std::mem::offset_of!(drm_amdgpu_ctx_out__bindgen_ty_1, _pad) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_out__bindgen_ty_2 {
    pub flags: __u64,
    pub hangs: __u32,
    pub reset_status: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_ctx_out__bindgen_ty_2"][::std::mem::size_of::<drm_amdgpu_ctx_out__bindgen_ty_2>() - 16usize];
    ["Alignment of drm_amdgpu_ctx_out__bindgen_ty_2"]
        [::std::mem::align_of::<drm_amdgpu_ctx_out__bindgen_ty_2>() - 8usize];
    ["Offset of field: drm_amdgpu_ctx_out__bindgen_ty_2::flags"]
        [::std::mem::offset_of!(drm_amdgpu_ctx_out__bindgen_ty_2, flags) - 0usize];
    ["Offset of field: drm_amdgpu_ctx_out__bindgen_ty_2::hangs"]
        [::std::mem::offset_of!(drm_amdgpu_ctx_out__bindgen_ty_2, hangs) - 8usize];
    ["Offset of field: drm_amdgpu_ctx_out__bindgen_ty_2::reset_status"]
        [::std::mem::offset_of!(drm_amdgpu_ctx_out__bindgen_ty_2, reset_status) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_out__bindgen_ty_3 {
    pub flags: __u32,
    pub _pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_ctx_out__bindgen_ty_3"][::std::mem::size_of::<drm_amdgpu_ctx_out__bindgen_ty_3>() - 8usize];
    ["Alignment of drm_amdgpu_ctx_out__bindgen_ty_3"]
        [::std::mem::align_of::<drm_amdgpu_ctx_out__bindgen_ty_3>() - 4usize];
    ["Offset of field: drm_amdgpu_ctx_out__bindgen_ty_3::flags"]
        [::std::mem::offset_of!(drm_amdgpu_ctx_out__bindgen_ty_3, flags) - 0usize];
    ["Offset of field: drm_amdgpu_ctx_out__bindgen_ty_3::_pad"]
        [::std::mem::offset_of!(drm_amdgpu_ctx_out__bindgen_ty_3, _pad) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_ctx_out"][::std::mem::size_of::<drm_amdgpu_ctx_out>() - 16usize];
    ["Alignment of drm_amdgpu_ctx_out"][::std::mem::align_of::<drm_amdgpu_ctx_out>() - 8usize];
    ["Offset of field: drm_amdgpu_ctx_out::alloc"][::std::mem::offset_of!(drm_amdgpu_ctx_out, alloc) - 0usize];
    ["Offset of field: drm_amdgpu_ctx_out::state"][::std::mem::offset_of!(drm_amdgpu_ctx_out, state) - 0usize];
    ["Offset of field: drm_amdgpu_ctx_out::pstate"][::std::mem::offset_of!(drm_amdgpu_ctx_out, pstate) - 0usize];
};
impl Default for drm_amdgpu_ctx_out {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_ctx {
    pub in_: drm_amdgpu_ctx_in,
    pub out: drm_amdgpu_ctx_out,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_ctx"][::std::mem::size_of::<drm_amdgpu_ctx>() - 16usize];
    ["Alignment of drm_amdgpu_ctx"][::std::mem::align_of::<drm_amdgpu_ctx>() - 8usize];
    ["Offset of field: drm_amdgpu_ctx::in_"][::std::mem::offset_of!(drm_amdgpu_ctx, in_) - 0usize];
    ["Offset of field: drm_amdgpu_ctx::out"][::std::mem::offset_of!(drm_amdgpu_ctx, out) - 0usize];
};
impl Default for drm_amdgpu_ctx {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_mmap_in {
    pub handle: __u32,
    pub _pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_gem_mmap_in"][::std::mem::size_of::<drm_amdgpu_gem_mmap_in>() - 8usize];
    ["Alignment of drm_amdgpu_gem_mmap_in"][::std::mem::align_of::<drm_amdgpu_gem_mmap_in>() - 4usize];
    ["Offset of field: drm_amdgpu_gem_mmap_in::handle"]
        [::std::mem::offset_of!(drm_amdgpu_gem_mmap_in, handle) - 0usize];
    ["Offset of field: drm_amdgpu_gem_mmap_in::_pad"][::std::mem::offset_of!(drm_amdgpu_gem_mmap_in, _pad) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_mmap_out {
    pub addr_ptr: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_gem_mmap_out"][::std::mem::size_of::<drm_amdgpu_gem_mmap_out>() - 8usize];
    ["Alignment of drm_amdgpu_gem_mmap_out"][::std::mem::align_of::<drm_amdgpu_gem_mmap_out>() - 8usize];
    ["Offset of field: drm_amdgpu_gem_mmap_out::addr_ptr"]
        [::std::mem::offset_of!(drm_amdgpu_gem_mmap_out, addr_ptr) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_gem_mmap {
    pub in_: drm_amdgpu_gem_mmap_in,
    pub out: drm_amdgpu_gem_mmap_out,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_gem_mmap"][::std::mem::size_of::<drm_amdgpu_gem_mmap>() - 8usize];
    ["Alignment of drm_amdgpu_gem_mmap"][::std::mem::align_of::<drm_amdgpu_gem_mmap>() - 8usize];
    ["Offset of field: drm_amdgpu_gem_mmap::in_"][::std::mem::offset_of!(drm_amdgpu_gem_mmap, in_) - 0usize];
    ["Offset of field: drm_amdgpu_gem_mmap::out"][::std::mem::offset_of!(drm_amdgpu_gem_mmap, out) - 0usize];
};
impl Default for drm_amdgpu_gem_mmap {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_wait_cs_in {
    pub handle: __u64,
    pub timeout: __u64,
    pub ip_type: __u32,
    pub ip_instance: __u32,
    pub ring: __u32,
    pub ctx_id: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_wait_cs_in"][::std::mem::size_of::<drm_amdgpu_wait_cs_in>() - 32usize];
    ["Alignment of drm_amdgpu_wait_cs_in"][::std::mem::align_of::<drm_amdgpu_wait_cs_in>() - 8usize];
    ["Offset of field: drm_amdgpu_wait_cs_in::handle"][::std::mem::offset_of!(drm_amdgpu_wait_cs_in, handle) - 0usize];
    ["Offset of field: drm_amdgpu_wait_cs_in::timeout"]
        [::std::mem::offset_of!(drm_amdgpu_wait_cs_in, timeout) - 8usize];
    ["Offset of field: drm_amdgpu_wait_cs_in::ip_type"]
        [::std::mem::offset_of!(drm_amdgpu_wait_cs_in, ip_type) - 16usize];
    ["Offset of field: drm_amdgpu_wait_cs_in::ip_instance"]
        [::std::mem::offset_of!(drm_amdgpu_wait_cs_in, ip_instance) - 20usize];
    ["Offset of field: drm_amdgpu_wait_cs_in::ring"][::std::mem::offset_of!(drm_amdgpu_wait_cs_in, ring) - 24usize];
    ["Offset of field: drm_amdgpu_wait_cs_in::ctx_id"][::std::mem::offset_of!(drm_amdgpu_wait_cs_in, ctx_id) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_wait_cs_out {
    pub status: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_wait_cs_out"][::std::mem::size_of::<drm_amdgpu_wait_cs_out>() - 8usize];
    ["Alignment of drm_amdgpu_wait_cs_out"][::std::mem::align_of::<drm_amdgpu_wait_cs_out>() - 8usize];
    ["Offset of field: drm_amdgpu_wait_cs_out::status"]
        [::std::mem::offset_of!(drm_amdgpu_wait_cs_out, status) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_wait_cs {
    pub in_: drm_amdgpu_wait_cs_in,
    pub out: drm_amdgpu_wait_cs_out,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_wait_cs"][::std::mem::size_of::<drm_amdgpu_wait_cs>() - 32usize];
    ["Alignment of drm_amdgpu_wait_cs"][::std::mem::align_of::<drm_amdgpu_wait_cs>() - 8usize];
    ["Offset of field: drm_amdgpu_wait_cs::in_"][::std::mem::offset_of!(drm_amdgpu_wait_cs, in_) - 0usize];
    ["Offset of field: drm_amdgpu_wait_cs::out"][::std::mem::offset_of!(drm_amdgpu_wait_cs, out) - 0usize];
};
impl Default for drm_amdgpu_wait_cs {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_va {
    pub handle: __u32,
    pub _pad: __u32,
    pub operation: __u32,
    pub flags: __u32,
    pub va_address: __u64,
    pub offset_in_bo: __u64,
    pub map_size: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_gem_va"][::std::mem::size_of::<drm_amdgpu_gem_va>() - 40usize];
    ["Alignment of drm_amdgpu_gem_va"][::std::mem::align_of::<drm_amdgpu_gem_va>() - 8usize];
    ["Offset of field: drm_amdgpu_gem_va::handle"][::std::mem::offset_of!(drm_amdgpu_gem_va, handle) - 0usize];
    ["Offset of field: drm_amdgpu_gem_va::_pad"][::std::mem::offset_of!(drm_amdgpu_gem_va, _pad) - 4usize];
    ["Offset of field: drm_amdgpu_gem_va::operation"][::std::mem::offset_of!(drm_amdgpu_gem_va, operation) - 8usize];
    ["Offset of field: drm_amdgpu_gem_va::flags"][::std::mem::offset_of!(drm_amdgpu_gem_va, flags) - 12usize];
    ["Offset of field: drm_amdgpu_gem_va::va_address"][::std::mem::offset_of!(drm_amdgpu_gem_va, va_address) - 16usize];
    ["Offset of field: drm_amdgpu_gem_va::offset_in_bo"]
        [::std::mem::offset_of!(drm_amdgpu_gem_va, offset_in_bo) - 24usize];
    ["Offset of field: drm_amdgpu_gem_va::map_size"][::std::mem::offset_of!(drm_amdgpu_gem_va, map_size) - 32usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk {
    pub chunk_id: __u32,
    pub length_dw: __u32,
    pub chunk_data: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_cs_chunk"][::std::mem::size_of::<drm_amdgpu_cs_chunk>() - 16usize];
    ["Alignment of drm_amdgpu_cs_chunk"][::std::mem::align_of::<drm_amdgpu_cs_chunk>() - 8usize];
    ["Offset of field: drm_amdgpu_cs_chunk::chunk_id"][::std::mem::offset_of!(drm_amdgpu_cs_chunk, chunk_id) - 0usize];
    ["Offset of field: drm_amdgpu_cs_chunk::length_dw"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk, length_dw) - 4usize];
    ["Offset of field: drm_amdgpu_cs_chunk::chunk_data"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk, chunk_data) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_in {
    pub ctx_id: __u32,
    pub bo_list_handle: __u32,
    pub num_chunks: __u32,
    pub flags: __u32,
    pub chunks: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_cs_in"][::std::mem::size_of::<drm_amdgpu_cs_in>() - 24usize];
    ["Alignment of drm_amdgpu_cs_in"][::std::mem::align_of::<drm_amdgpu_cs_in>() - 8usize];
    ["Offset of field: drm_amdgpu_cs_in::ctx_id"][::std::mem::offset_of!(drm_amdgpu_cs_in, ctx_id) - 0usize];
    ["Offset of field: drm_amdgpu_cs_in::bo_list_handle"]
        [::std::mem::offset_of!(drm_amdgpu_cs_in, bo_list_handle) - 4usize];
    ["Offset of field: drm_amdgpu_cs_in::num_chunks"][::std::mem::offset_of!(drm_amdgpu_cs_in, num_chunks) - 8usize];
    ["Offset of field: drm_amdgpu_cs_in::flags"][::std::mem::offset_of!(drm_amdgpu_cs_in, flags) - 12usize];
    ["Offset of field: drm_amdgpu_cs_in::chunks"][::std::mem::offset_of!(drm_amdgpu_cs_in, chunks) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_out {
    pub handle: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_cs_out"][::std::mem::size_of::<drm_amdgpu_cs_out>() - 8usize];
    ["Alignment of drm_amdgpu_cs_out"][::std::mem::align_of::<drm_amdgpu_cs_out>() - 8usize];
    ["Offset of field: drm_amdgpu_cs_out::handle"][::std::mem::offset_of!(drm_amdgpu_cs_out, handle) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_cs {
    pub in_: drm_amdgpu_cs_in,
    pub out: drm_amdgpu_cs_out,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_cs"][::std::mem::size_of::<drm_amdgpu_cs>() - 24usize];
    ["Alignment of drm_amdgpu_cs"][::std::mem::align_of::<drm_amdgpu_cs>() - 8usize];
    ["Offset of field: drm_amdgpu_cs::in_"][::std::mem::offset_of!(drm_amdgpu_cs, in_) - 0usize];
    ["Offset of field: drm_amdgpu_cs::out"][::std::mem::offset_of!(drm_amdgpu_cs, out) - 0usize];
};
impl Default for drm_amdgpu_cs {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_ib {
    pub _pad: __u32,
    pub flags: __u32,
    pub va_start: __u64,
    pub ib_bytes: __u32,
    pub ip_type: __u32,
    pub ip_instance: __u32,
    pub ring: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_cs_chunk_ib"][::std::mem::size_of::<drm_amdgpu_cs_chunk_ib>() - 32usize];
    ["Alignment of drm_amdgpu_cs_chunk_ib"][::std::mem::align_of::<drm_amdgpu_cs_chunk_ib>() - 8usize];
    ["Offset of field: drm_amdgpu_cs_chunk_ib::_pad"][::std::mem::offset_of!(drm_amdgpu_cs_chunk_ib, _pad) - 0usize];
    ["Offset of field: drm_amdgpu_cs_chunk_ib::flags"][::std::mem::offset_of!(drm_amdgpu_cs_chunk_ib, flags) - 4usize];
    ["Offset of field: drm_amdgpu_cs_chunk_ib::va_start"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk_ib, va_start) - 8usize];
    ["Offset of field: drm_amdgpu_cs_chunk_ib::ib_bytes"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk_ib, ib_bytes) - 16usize];
    ["Offset of field: drm_amdgpu_cs_chunk_ib::ip_type"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk_ib, ip_type) - 20usize];
    ["Offset of field: drm_amdgpu_cs_chunk_ib::ip_instance"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk_ib, ip_instance) - 24usize];
    ["Offset of field: drm_amdgpu_cs_chunk_ib::ring"][::std::mem::offset_of!(drm_amdgpu_cs_chunk_ib, ring) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_fence {
    pub handle: __u32,
    pub offset: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_cs_chunk_fence"][::std::mem::size_of::<drm_amdgpu_cs_chunk_fence>() - 8usize];
    ["Alignment of drm_amdgpu_cs_chunk_fence"][::std::mem::align_of::<drm_amdgpu_cs_chunk_fence>() - 4usize];
    ["Offset of field: drm_amdgpu_cs_chunk_fence::handle"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk_fence, handle) - 0usize];
    ["Offset of field: drm_amdgpu_cs_chunk_fence::offset"]
        [::std::mem::offset_of!(drm_amdgpu_cs_chunk_fence, offset) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_query_fw {
    pub fw_type: __u32,
    pub ip_instance: __u32,
    pub index: __u32,
    pub _pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_query_fw"][::std::mem::size_of::<drm_amdgpu_query_fw>() - 16usize];
    ["Alignment of drm_amdgpu_query_fw"][::std::mem::align_of::<drm_amdgpu_query_fw>() - 4usize];
    ["Offset of field: drm_amdgpu_query_fw::fw_type"][::std::mem::offset_of!(drm_amdgpu_query_fw, fw_type) - 0usize];
    ["Offset of field: drm_amdgpu_query_fw::ip_instance"]
        [::std::mem::offset_of!(drm_amdgpu_query_fw, ip_instance) - 4usize];
    ["Offset of field: drm_amdgpu_query_fw::index"][::std::mem::offset_of!(drm_amdgpu_query_fw, index) - 8usize];
    ["Offset of field: drm_amdgpu_query_fw::_pad"][::std::mem::offset_of!(drm_amdgpu_query_fw, _pad) - 12usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct drm_amdgpu_info {
    pub return_pointer: __u64,
    pub return_size: __u32,
    pub query: __u32,
    pub __bindgen_anon_1: drm_amdgpu_info__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_info__bindgen_ty_1 {
    pub mode_crtc: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1,
    pub query_hw_ip: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2,
    pub read_mmr_reg: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3,
    pub query_fw: drm_amdgpu_query_fw,
    pub vbios_info: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4,
    pub sensor_info: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5,
    pub video_cap: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1 {
    pub id: __u32,
    pub _pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1"]
        [::std::mem::size_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1>() - 8usize];
    ["Alignment of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1"]
        [::std::mem::align_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1>() - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1::id"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1, id) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1::_pad"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_1, _pad) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2 {
    pub type_: __u32,
    pub ip_instance: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2"]
        [::std::mem::size_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2>() - 8usize];
    ["Alignment of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2"]
        [::std::mem::align_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2>() - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2::type_"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2, type_) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2::ip_instance"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_2, ip_instance) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3 {
    pub dword_offset: __u32,
    pub count: __u32,
    pub instance: __u32,
    pub flags: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3"]
        [::std::mem::size_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3>() - 16usize];
    ["Alignment of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3"]
        [::std::mem::align_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3>() - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3::dword_offset"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3, dword_offset) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3::count"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3, count) - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3::instance"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3, instance) - 8usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3::flags"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_3, flags) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4 {
    pub type_: __u32,
    pub offset: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4"]
        [::std::mem::size_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4>() - 8usize];
    ["Alignment of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4"]
        [::std::mem::align_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4>() - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4::type_"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4, type_) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4::offset"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_4, offset) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5 {
    pub type_: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5"]
        [::std::mem::size_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5>() - 4usize];
    ["Alignment of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5"]
        [::std::mem::align_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5>() - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5::type_"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_5, type_) - 0usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6 {
    pub type_: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6"]
        [::std::mem::size_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6>() - 4usize];
    ["Alignment of drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6"]
        [::std::mem::align_of::<drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6>() - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6::type_"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1__bindgen_ty_6, type_) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info__bindgen_ty_1"][::std::mem::size_of::<drm_amdgpu_info__bindgen_ty_1>() - 16usize];
    ["Alignment of drm_amdgpu_info__bindgen_ty_1"][::std::mem::align_of::<drm_amdgpu_info__bindgen_ty_1>() - 4usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1::mode_crtc"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1, mode_crtc) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1::query_hw_ip"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1, query_hw_ip) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1::read_mmr_reg"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1, read_mmr_reg) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1::query_fw"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1, query_fw) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1::vbios_info"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1, vbios_info) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1::sensor_info"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1, sensor_info) - 0usize];
    ["Offset of field: drm_amdgpu_info__bindgen_ty_1::video_cap"]
        [::std::mem::offset_of!(drm_amdgpu_info__bindgen_ty_1, video_cap) - 0usize];
};
impl Default for drm_amdgpu_info__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info"][::std::mem::size_of::<drm_amdgpu_info>() - 32usize];
    ["Alignment of drm_amdgpu_info"][::std::mem::align_of::<drm_amdgpu_info>() - 8usize];
    ["Offset of field: drm_amdgpu_info::return_pointer"]
        [::std::mem::offset_of!(drm_amdgpu_info, return_pointer) - 0usize];
    ["Offset of field: drm_amdgpu_info::return_size"][::std::mem::offset_of!(drm_amdgpu_info, return_size) - 8usize];
    ["Offset of field: drm_amdgpu_info::query"][::std::mem::offset_of!(drm_amdgpu_info, query) - 12usize];
};
impl Default for drm_amdgpu_info {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_heap_info {
    pub total_heap_size: __u64,
    pub usable_heap_size: __u64,
    pub heap_usage: __u64,
    pub max_allocation: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_heap_info"][::std::mem::size_of::<drm_amdgpu_heap_info>() - 32usize];
    ["Alignment of drm_amdgpu_heap_info"][::std::mem::align_of::<drm_amdgpu_heap_info>() - 8usize];
    ["Offset of field: drm_amdgpu_heap_info::total_heap_size"]
        [::std::mem::offset_of!(drm_amdgpu_heap_info, total_heap_size) - 0usize];
    ["Offset of field: drm_amdgpu_heap_info::usable_heap_size"]
        [::std::mem::offset_of!(drm_amdgpu_heap_info, usable_heap_size) - 8usize];
    ["Offset of field: drm_amdgpu_heap_info::heap_usage"]
        [::std::mem::offset_of!(drm_amdgpu_heap_info, heap_usage) - 16usize];
    ["Offset of field: drm_amdgpu_heap_info::max_allocation"]
        [::std::mem::offset_of!(drm_amdgpu_heap_info, max_allocation) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_memory_info {
    pub vram: drm_amdgpu_heap_info,
    pub cpu_accessible_vram: drm_amdgpu_heap_info,
    pub gtt: drm_amdgpu_heap_info,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_memory_info"][::std::mem::size_of::<drm_amdgpu_memory_info>() - 96usize];
    ["Alignment of drm_amdgpu_memory_info"][::std::mem::align_of::<drm_amdgpu_memory_info>() - 8usize];
    ["Offset of field: drm_amdgpu_memory_info::vram"][::std::mem::offset_of!(drm_amdgpu_memory_info, vram) - 0usize];
    ["Offset of field: drm_amdgpu_memory_info::cpu_accessible_vram"]
        [::std::mem::offset_of!(drm_amdgpu_memory_info, cpu_accessible_vram) - 32usize];
    ["Offset of field: drm_amdgpu_memory_info::gtt"][::std::mem::offset_of!(drm_amdgpu_memory_info, gtt) - 64usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info_firmware {
    pub ver: __u32,
    pub feature: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info_firmware"][::std::mem::size_of::<drm_amdgpu_info_firmware>() - 8usize];
    ["Alignment of drm_amdgpu_info_firmware"][::std::mem::align_of::<drm_amdgpu_info_firmware>() - 4usize];
    ["Offset of field: drm_amdgpu_info_firmware::ver"][::std::mem::offset_of!(drm_amdgpu_info_firmware, ver) - 0usize];
    ["Offset of field: drm_amdgpu_info_firmware::feature"]
        [::std::mem::offset_of!(drm_amdgpu_info_firmware, feature) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info_device {
    pub device_id: __u32,
    pub chip_rev: __u32,
    pub external_rev: __u32,
    pub pci_rev: __u32,
    pub family: __u32,
    pub num_shader_engines: __u32,
    pub num_shader_arrays_per_engine: __u32,
    pub gpu_counter_freq: __u32,
    pub max_engine_clock: __u64,
    pub max_memory_clock: __u64,
    pub cu_active_number: __u32,
    pub cu_ao_mask: __u32,
    pub cu_bitmap: [[__u32; 4usize]; 4usize],
    pub enabled_rb_pipes_mask: __u32,
    pub num_rb_pipes: __u32,
    pub num_hw_gfx_contexts: __u32,
    pub _pad: __u32,
    pub ids_flags: __u64,
    pub virtual_address_offset: __u64,
    pub virtual_address_max: __u64,
    pub virtual_address_alignment: __u32,
    pub pte_fragment_size: __u32,
    pub gart_page_size: __u32,
    pub ce_ram_size: __u32,
    pub vram_type: __u32,
    pub vram_bit_width: __u32,
    pub vce_harvest_config: __u32,
    pub gc_double_offchip_lds_buf: __u32,
    pub prim_buf_gpu_addr: __u64,
    pub pos_buf_gpu_addr: __u64,
    pub cntl_sb_buf_gpu_addr: __u64,
    pub param_buf_gpu_addr: __u64,
    pub prim_buf_size: __u32,
    pub pos_buf_size: __u32,
    pub cntl_sb_buf_size: __u32,
    pub param_buf_size: __u32,
    pub wave_front_size: __u32,
    pub num_shader_visible_vgprs: __u32,
    pub num_cu_per_sh: __u32,
    pub num_tcc_blocks: __u32,
    pub gs_vgt_table_depth: __u32,
    pub gs_prim_buffer_depth: __u32,
    pub max_gs_waves_per_vgt: __u32,
    pub _pad1: __u32,
    pub cu_ao_bitmap: [[__u32; 4usize]; 4usize],
    pub high_va_offset: __u64,
    pub high_va_max: __u64,
    pub pa_sc_tile_steering_override: __u32,
    pub tcc_disabled_mask: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info_device"][::std::mem::size_of::<drm_amdgpu_info_device>() - 368usize];
    ["Alignment of drm_amdgpu_info_device"][::std::mem::align_of::<drm_amdgpu_info_device>() - 8usize];
    ["Offset of field: drm_amdgpu_info_device::device_id"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, device_id) - 0usize];
    ["Offset of field: drm_amdgpu_info_device::chip_rev"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, chip_rev) - 4usize];
    ["Offset of field: drm_amdgpu_info_device::external_rev"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, external_rev) - 8usize];
    ["Offset of field: drm_amdgpu_info_device::pci_rev"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, pci_rev) - 12usize];
    ["Offset of field: drm_amdgpu_info_device::family"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, family) - 16usize];
    ["Offset of field: drm_amdgpu_info_device::num_shader_engines"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, num_shader_engines) - 20usize];
    ["Offset of field: drm_amdgpu_info_device::num_shader_arrays_per_engine"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, num_shader_arrays_per_engine) - 24usize];
    ["Offset of field: drm_amdgpu_info_device::gpu_counter_freq"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, gpu_counter_freq) - 28usize];
    ["Offset of field: drm_amdgpu_info_device::max_engine_clock"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, max_engine_clock) - 32usize];
    ["Offset of field: drm_amdgpu_info_device::max_memory_clock"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, max_memory_clock) - 40usize];
    ["Offset of field: drm_amdgpu_info_device::cu_active_number"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, cu_active_number) - 48usize];
    ["Offset of field: drm_amdgpu_info_device::cu_ao_mask"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, cu_ao_mask) - 52usize];
    ["Offset of field: drm_amdgpu_info_device::cu_bitmap"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, cu_bitmap) - 56usize];
    ["Offset of field: drm_amdgpu_info_device::enabled_rb_pipes_mask"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, enabled_rb_pipes_mask) - 120usize];
    ["Offset of field: drm_amdgpu_info_device::num_rb_pipes"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, num_rb_pipes) - 124usize];
    ["Offset of field: drm_amdgpu_info_device::num_hw_gfx_contexts"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, num_hw_gfx_contexts) - 128usize];
    ["Offset of field: drm_amdgpu_info_device::_pad"][::std::mem::offset_of!(drm_amdgpu_info_device, _pad) - 132usize];
    ["Offset of field: drm_amdgpu_info_device::ids_flags"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, ids_flags) - 136usize];
    ["Offset of field: drm_amdgpu_info_device::virtual_address_offset"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, virtual_address_offset) - 144usize];
    ["Offset of field: drm_amdgpu_info_device::virtual_address_max"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, virtual_address_max) - 152usize];
    ["Offset of field: drm_amdgpu_info_device::virtual_address_alignment"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, virtual_address_alignment) - 160usize];
    ["Offset of field: drm_amdgpu_info_device::pte_fragment_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, pte_fragment_size) - 164usize];
    ["Offset of field: drm_amdgpu_info_device::gart_page_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, gart_page_size) - 168usize];
    ["Offset of field: drm_amdgpu_info_device::ce_ram_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, ce_ram_size) - 172usize];
    ["Offset of field: drm_amdgpu_info_device::vram_type"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, vram_type) - 176usize];
    ["Offset of field: drm_amdgpu_info_device::vram_bit_width"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, vram_bit_width) - 180usize];
    ["Offset of field: drm_amdgpu_info_device::vce_harvest_config"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, vce_harvest_config) - 184usize];
    ["Offset of field: drm_amdgpu_info_device::gc_double_offchip_lds_buf"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, gc_double_offchip_lds_buf) - 188usize];
    ["Offset of field: drm_amdgpu_info_device::prim_buf_gpu_addr"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, prim_buf_gpu_addr) - 192usize];
    ["Offset of field: drm_amdgpu_info_device::pos_buf_gpu_addr"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, pos_buf_gpu_addr) - 200usize];
    ["Offset of field: drm_amdgpu_info_device::cntl_sb_buf_gpu_addr"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, cntl_sb_buf_gpu_addr) - 208usize];
    ["Offset of field: drm_amdgpu_info_device::param_buf_gpu_addr"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, param_buf_gpu_addr) - 216usize];
    ["Offset of field: drm_amdgpu_info_device::prim_buf_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, prim_buf_size) - 224usize];
    ["Offset of field: drm_amdgpu_info_device::pos_buf_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, pos_buf_size) - 228usize];
    ["Offset of field: drm_amdgpu_info_device::cntl_sb_buf_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, cntl_sb_buf_size) - 232usize];
    ["Offset of field: drm_amdgpu_info_device::param_buf_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, param_buf_size) - 236usize];
    ["Offset of field: drm_amdgpu_info_device::wave_front_size"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, wave_front_size) - 240usize];
    ["Offset of field: drm_amdgpu_info_device::num_shader_visible_vgprs"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, num_shader_visible_vgprs) - 244usize];
    ["Offset of field: drm_amdgpu_info_device::num_cu_per_sh"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, num_cu_per_sh) - 248usize];
    ["Offset of field: drm_amdgpu_info_device::num_tcc_blocks"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, num_tcc_blocks) - 252usize];
    ["Offset of field: drm_amdgpu_info_device::gs_vgt_table_depth"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, gs_vgt_table_depth) - 256usize];
    ["Offset of field: drm_amdgpu_info_device::gs_prim_buffer_depth"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, gs_prim_buffer_depth) - 260usize];
    ["Offset of field: drm_amdgpu_info_device::max_gs_waves_per_vgt"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, max_gs_waves_per_vgt) - 264usize];
    ["Offset of field: drm_amdgpu_info_device::_pad1"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, _pad1) - 268usize];
    ["Offset of field: drm_amdgpu_info_device::cu_ao_bitmap"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, cu_ao_bitmap) - 272usize];
    ["Offset of field: drm_amdgpu_info_device::high_va_offset"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, high_va_offset) - 336usize];
    ["Offset of field: drm_amdgpu_info_device::high_va_max"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, high_va_max) - 344usize];
    ["Offset of field: drm_amdgpu_info_device::pa_sc_tile_steering_override"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, pa_sc_tile_steering_override) - 352usize];
    ["Offset of field: drm_amdgpu_info_device::tcc_disabled_mask"]
        [::std::mem::offset_of!(drm_amdgpu_info_device, tcc_disabled_mask) - 360usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_info_hw_ip {
    pub hw_ip_version_major: __u32,
    pub hw_ip_version_minor: __u32,
    pub capabilities_flags: __u64,
    pub ib_start_alignment: __u32,
    pub ib_size_alignment: __u32,
    pub available_rings: __u32,
    pub _pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of drm_amdgpu_info_hw_ip"][::std::mem::size_of::<drm_amdgpu_info_hw_ip>() - 32usize];
    ["Alignment of drm_amdgpu_info_hw_ip"][::std::mem::align_of::<drm_amdgpu_info_hw_ip>() - 8usize];
    ["Offset of field: drm_amdgpu_info_hw_ip::hw_ip_version_major"]
        [::std::mem::offset_of!(drm_amdgpu_info_hw_ip, hw_ip_version_major) - 0usize];
    ["Offset of field: drm_amdgpu_info_hw_ip::hw_ip_version_minor"]
        [::std::mem::offset_of!(drm_amdgpu_info_hw_ip, hw_ip_version_minor) - 4usize];
    ["Offset of field: drm_amdgpu_info_hw_ip::capabilities_flags"]
        [::std::mem::offset_of!(drm_amdgpu_info_hw_ip, capabilities_flags) - 8usize];
    ["Offset of field: drm_amdgpu_info_hw_ip::ib_start_alignment"]
        [::std::mem::offset_of!(drm_amdgpu_info_hw_ip, ib_start_alignment) - 16usize];
    ["Offset of field: drm_amdgpu_info_hw_ip::ib_size_alignment"]
        [::std::mem::offset_of!(drm_amdgpu_info_hw_ip, ib_size_alignment) - 20usize];
    ["Offset of field: drm_amdgpu_info_hw_ip::available_rings"]
        [::std::mem::offset_of!(drm_amdgpu_info_hw_ip, available_rings) - 24usize];
    ["Offset of field: drm_amdgpu_info_hw_ip::_pad"][::std::mem::offset_of!(drm_amdgpu_info_hw_ip, _pad) - 28usize];
};
pub const DRM_AMDXDNA_CREATE_HWCTX: amdxdna_ioctl_number = 0;
pub const DRM_AMDXDNA_DESTROY_HWCTX: amdxdna_ioctl_number = 1;
pub const DRM_AMDXDNA_CONFIG_HWCTX: amdxdna_ioctl_number = 2;
pub const DRM_AMDXDNA_CREATE_BO: amdxdna_ioctl_number = 3;
pub const DRM_AMDXDNA_GET_BO_INFO: amdxdna_ioctl_number = 4;
pub const DRM_AMDXDNA_SYNC_BO: amdxdna_ioctl_number = 5;
pub const DRM_AMDXDNA_EXEC_CMD: amdxdna_ioctl_number = 6;
pub const DRM_AMDXDNA_GET_INFO: amdxdna_ioctl_number = 7;
pub const DRM_AMDXDNA_SET_STATE: amdxdna_ioctl_number = 8;
pub const DRM_AMDXDNA_GET_ARRAY: amdxdna_ioctl_number = 10;
pub type amdxdna_ioctl_number = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_qos_info {
    pub gops: __u32,
    pub fps: __u32,
    pub dma_bandwidth: __u32,
    pub latency: __u32,
    pub frame_exec_time: __u32,
    pub priority: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_qos_info"][::std::mem::size_of::<amdxdna_qos_info>() - 24usize];
    ["Alignment of amdxdna_qos_info"][::std::mem::align_of::<amdxdna_qos_info>() - 4usize];
    ["Offset of field: amdxdna_qos_info::gops"][::std::mem::offset_of!(amdxdna_qos_info, gops) - 0usize];
    ["Offset of field: amdxdna_qos_info::fps"][::std::mem::offset_of!(amdxdna_qos_info, fps) - 4usize];
    ["Offset of field: amdxdna_qos_info::dma_bandwidth"]
        [::std::mem::offset_of!(amdxdna_qos_info, dma_bandwidth) - 8usize];
    ["Offset of field: amdxdna_qos_info::latency"][::std::mem::offset_of!(amdxdna_qos_info, latency) - 12usize];
    ["Offset of field: amdxdna_qos_info::frame_exec_time"]
        [::std::mem::offset_of!(amdxdna_qos_info, frame_exec_time) - 16usize];
    ["Offset of field: amdxdna_qos_info::priority"][::std::mem::offset_of!(amdxdna_qos_info, priority) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_create_hwctx {
    pub ext: __u64,
    pub ext_flags: __u64,
    pub qos_p: __u64,
    pub umq_bo: __u32,
    pub log_buf_bo: __u32,
    pub max_opc: __u32,
    pub num_tiles: __u32,
    pub mem_size: __u32,
    pub umq_doorbell: __u32,
    pub handle: __u32,
    pub syncobj_handle: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_create_hwctx"][::std::mem::size_of::<amdxdna_drm_create_hwctx>() - 56usize];
    ["Alignment of amdxdna_drm_create_hwctx"][::std::mem::align_of::<amdxdna_drm_create_hwctx>() - 8usize];
    ["Offset of field: amdxdna_drm_create_hwctx::ext"][::std::mem::offset_of!(amdxdna_drm_create_hwctx, ext) - 0usize];
    ["Offset of field: amdxdna_drm_create_hwctx::ext_flags"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, ext_flags) - 8usize];
    ["Offset of field: amdxdna_drm_create_hwctx::qos_p"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, qos_p) - 16usize];
    ["Offset of field: amdxdna_drm_create_hwctx::umq_bo"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, umq_bo) - 24usize];
    ["Offset of field: amdxdna_drm_create_hwctx::log_buf_bo"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, log_buf_bo) - 28usize];
    ["Offset of field: amdxdna_drm_create_hwctx::max_opc"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, max_opc) - 32usize];
    ["Offset of field: amdxdna_drm_create_hwctx::num_tiles"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, num_tiles) - 36usize];
    ["Offset of field: amdxdna_drm_create_hwctx::mem_size"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, mem_size) - 40usize];
    ["Offset of field: amdxdna_drm_create_hwctx::umq_doorbell"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, umq_doorbell) - 44usize];
    ["Offset of field: amdxdna_drm_create_hwctx::handle"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, handle) - 48usize];
    ["Offset of field: amdxdna_drm_create_hwctx::syncobj_handle"]
        [::std::mem::offset_of!(amdxdna_drm_create_hwctx, syncobj_handle) - 52usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_destroy_hwctx {
    pub handle: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_destroy_hwctx"][::std::mem::size_of::<amdxdna_drm_destroy_hwctx>() - 8usize];
    ["Alignment of amdxdna_drm_destroy_hwctx"][::std::mem::align_of::<amdxdna_drm_destroy_hwctx>() - 4usize];
    ["Offset of field: amdxdna_drm_destroy_hwctx::handle"]
        [::std::mem::offset_of!(amdxdna_drm_destroy_hwctx, handle) - 0usize];
    ["Offset of field: amdxdna_drm_destroy_hwctx::pad"]
        [::std::mem::offset_of!(amdxdna_drm_destroy_hwctx, pad) - 4usize];
};
pub const DRM_AMDXDNA_HWCTX_CONFIG_CU: amdxdna_config_hwctx_param = 0;
pub type amdxdna_config_hwctx_param = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_config_hwctx {
    pub handle: __u32,
    pub param_type: __u32,
    pub param_val: __u64,
    pub param_val_size: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_config_hwctx"][::std::mem::size_of::<amdxdna_drm_config_hwctx>() - 24usize];
    ["Alignment of amdxdna_drm_config_hwctx"][::std::mem::align_of::<amdxdna_drm_config_hwctx>() - 8usize];
    ["Offset of field: amdxdna_drm_config_hwctx::handle"]
        [::std::mem::offset_of!(amdxdna_drm_config_hwctx, handle) - 0usize];
    ["Offset of field: amdxdna_drm_config_hwctx::param_type"]
        [::std::mem::offset_of!(amdxdna_drm_config_hwctx, param_type) - 4usize];
    ["Offset of field: amdxdna_drm_config_hwctx::param_val"]
        [::std::mem::offset_of!(amdxdna_drm_config_hwctx, param_val) - 8usize];
    ["Offset of field: amdxdna_drm_config_hwctx::param_val_size"]
        [::std::mem::offset_of!(amdxdna_drm_config_hwctx, param_val_size) - 16usize];
    ["Offset of field: amdxdna_drm_config_hwctx::pad"][::std::mem::offset_of!(amdxdna_drm_config_hwctx, pad) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_cu_config {
    pub cu_bo: __u32,
    pub cu_func: __u8,
    pub pad: [__u8; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_cu_config"][::std::mem::size_of::<amdxdna_cu_config>() - 8usize];
    ["Alignment of amdxdna_cu_config"][::std::mem::align_of::<amdxdna_cu_config>() - 4usize];
    ["Offset of field: amdxdna_cu_config::cu_bo"][::std::mem::offset_of!(amdxdna_cu_config, cu_bo) - 0usize];
    ["Offset of field: amdxdna_cu_config::cu_func"][::std::mem::offset_of!(amdxdna_cu_config, cu_func) - 4usize];
    ["Offset of field: amdxdna_cu_config::pad"][::std::mem::offset_of!(amdxdna_cu_config, pad) - 5usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_config_one_cu {
    pub num_cus: __u16,
    pub pad: [__u16; 3usize],
    pub cu: amdxdna_cu_config,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_config_one_cu"][::std::mem::size_of::<amdxdna_config_one_cu>() - 16usize];
    ["Alignment of amdxdna_config_one_cu"][::std::mem::align_of::<amdxdna_config_one_cu>() - 4usize];
    ["Offset of field: amdxdna_config_one_cu::num_cus"]
        [::std::mem::offset_of!(amdxdna_config_one_cu, num_cus) - 0usize];
    ["Offset of field: amdxdna_config_one_cu::pad"][::std::mem::offset_of!(amdxdna_config_one_cu, pad) - 2usize];
    ["Offset of field: amdxdna_config_one_cu::cu"][::std::mem::offset_of!(amdxdna_config_one_cu, cu) - 8usize];
};
pub const AMDXDNA_BO_SHMEM: amdxdna_bo_type = 1;
pub const AMDXDNA_BO_DEV_HEAP: amdxdna_bo_type = 2;
pub const AMDXDNA_BO_DEV: amdxdna_bo_type = 3;
pub const AMDXDNA_BO_CMD: amdxdna_bo_type = 4;
pub type amdxdna_bo_type = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_create_bo {
    pub flags: __u64,
    pub vaddr: __u64,
    pub size: __u64,
    pub type_: __u32,
    pub handle: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_create_bo"][::std::mem::size_of::<amdxdna_drm_create_bo>() - 32usize];
    ["Alignment of amdxdna_drm_create_bo"][::std::mem::align_of::<amdxdna_drm_create_bo>() - 8usize];
    ["Offset of field: amdxdna_drm_create_bo::flags"][::std::mem::offset_of!(amdxdna_drm_create_bo, flags) - 0usize];
    ["Offset of field: amdxdna_drm_create_bo::vaddr"][::std::mem::offset_of!(amdxdna_drm_create_bo, vaddr) - 8usize];
    ["Offset of field: amdxdna_drm_create_bo::size"][::std::mem::offset_of!(amdxdna_drm_create_bo, size) - 16usize];
    ["Offset of field: amdxdna_drm_create_bo::type_"][::std::mem::offset_of!(amdxdna_drm_create_bo, type_) - 24usize];
    ["Offset of field: amdxdna_drm_create_bo::handle"][::std::mem::offset_of!(amdxdna_drm_create_bo, handle) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_get_bo_info {
    pub ext: __u64,
    pub ext_flags: __u64,
    pub handle: __u32,
    pub pad: __u32,
    pub map_offset: __u64,
    pub vaddr: __u64,
    pub xdna_addr: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_get_bo_info"][::std::mem::size_of::<amdxdna_drm_get_bo_info>() - 48usize];
    ["Alignment of amdxdna_drm_get_bo_info"][::std::mem::align_of::<amdxdna_drm_get_bo_info>() - 8usize];
    ["Offset of field: amdxdna_drm_get_bo_info::ext"][::std::mem::offset_of!(amdxdna_drm_get_bo_info, ext) - 0usize];
    ["Offset of field: amdxdna_drm_get_bo_info::ext_flags"]
        [::std::mem::offset_of!(amdxdna_drm_get_bo_info, ext_flags) - 8usize];
    ["Offset of field: amdxdna_drm_get_bo_info::handle"]
        [::std::mem::offset_of!(amdxdna_drm_get_bo_info, handle) - 16usize];
    ["Offset of field: amdxdna_drm_get_bo_info::pad"][::std::mem::offset_of!(amdxdna_drm_get_bo_info, pad) - 20usize];
    ["Offset of field: amdxdna_drm_get_bo_info::map_offset"]
        [::std::mem::offset_of!(amdxdna_drm_get_bo_info, map_offset) - 24usize];
    ["Offset of field: amdxdna_drm_get_bo_info::vaddr"]
        [::std::mem::offset_of!(amdxdna_drm_get_bo_info, vaddr) - 32usize];
    ["Offset of field: amdxdna_drm_get_bo_info::xdna_addr"]
        [::std::mem::offset_of!(amdxdna_drm_get_bo_info, xdna_addr) - 40usize];
};
pub const AMDXDNA_SYNC_TO_DEVICE: amdxdna_sync_direction = 0;
pub const AMDXDNA_SYNC_FROM_DEVICE: amdxdna_sync_direction = 1;
pub type amdxdna_sync_direction = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_sync_bo {
    pub handle: __u32,
    pub direction: __u32,
    pub offset: __u64,
    pub size: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_sync_bo"][::std::mem::size_of::<amdxdna_drm_sync_bo>() - 24usize];
    ["Alignment of amdxdna_drm_sync_bo"][::std::mem::align_of::<amdxdna_drm_sync_bo>() - 8usize];
    ["Offset of field: amdxdna_drm_sync_bo::handle"][::std::mem::offset_of!(amdxdna_drm_sync_bo, handle) - 0usize];
    ["Offset of field: amdxdna_drm_sync_bo::direction"]
        [::std::mem::offset_of!(amdxdna_drm_sync_bo, direction) - 4usize];
    ["Offset of field: amdxdna_drm_sync_bo::offset"][::std::mem::offset_of!(amdxdna_drm_sync_bo, offset) - 8usize];
    ["Offset of field: amdxdna_drm_sync_bo::size"][::std::mem::offset_of!(amdxdna_drm_sync_bo, size) - 16usize];
};
pub const AMDXDNA_CMD_SUBMIT_EXEC_BUF: amdxdna_cmd_type = 0;
pub type amdxdna_cmd_type = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_exec_cmd {
    pub ext: __u64,
    pub ext_flags: __u64,
    pub hwctx: __u32,
    pub type_: __u32,
    pub cmd_handles: __u64,
    pub args: __u64,
    pub cmd_count: __u32,
    pub arg_count: __u32,
    pub seq: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_exec_cmd"][::std::mem::size_of::<amdxdna_drm_exec_cmd>() - 56usize];
    ["Alignment of amdxdna_drm_exec_cmd"][::std::mem::align_of::<amdxdna_drm_exec_cmd>() - 8usize];
    ["Offset of field: amdxdna_drm_exec_cmd::ext"][::std::mem::offset_of!(amdxdna_drm_exec_cmd, ext) - 0usize];
    ["Offset of field: amdxdna_drm_exec_cmd::ext_flags"]
        [::std::mem::offset_of!(amdxdna_drm_exec_cmd, ext_flags) - 8usize];
    ["Offset of field: amdxdna_drm_exec_cmd::hwctx"][::std::mem::offset_of!(amdxdna_drm_exec_cmd, hwctx) - 16usize];
    ["Offset of field: amdxdna_drm_exec_cmd::type_"][::std::mem::offset_of!(amdxdna_drm_exec_cmd, type_) - 20usize];
    ["Offset of field: amdxdna_drm_exec_cmd::cmd_handles"]
        [::std::mem::offset_of!(amdxdna_drm_exec_cmd, cmd_handles) - 24usize];
    ["Offset of field: amdxdna_drm_exec_cmd::args"][::std::mem::offset_of!(amdxdna_drm_exec_cmd, args) - 32usize];
    ["Offset of field: amdxdna_drm_exec_cmd::cmd_count"]
        [::std::mem::offset_of!(amdxdna_drm_exec_cmd, cmd_count) - 40usize];
    ["Offset of field: amdxdna_drm_exec_cmd::arg_count"]
        [::std::mem::offset_of!(amdxdna_drm_exec_cmd, arg_count) - 44usize];
    ["Offset of field: amdxdna_drm_exec_cmd::seq"][::std::mem::offset_of!(amdxdna_drm_exec_cmd, seq) - 48usize];
};
pub const DRM_AMDXDNA_QUERY_AIE_STATUS: amdxdna_get_info_param = 0;
pub const DRM_AMDXDNA_QUERY_AIE_METADATA: amdxdna_get_info_param = 1;
pub const DRM_AMDXDNA_QUERY_AIE_VERSION: amdxdna_get_info_param = 2;
pub const DRM_AMDXDNA_QUERY_CLOCK_METADATA: amdxdna_get_info_param = 3;
pub const DRM_AMDXDNA_QUERY_SENSORS: amdxdna_get_info_param = 4;
pub const DRM_AMDXDNA_QUERY_HW_CONTEXTS: amdxdna_get_info_param = 5;
pub const DRM_AMDXDNA_QUERY_FIRMWARE_VERSION: amdxdna_get_info_param = 8;
pub const DRM_AMDXDNA_GET_POWER_MODE: amdxdna_get_info_param = 9;
pub const DRM_AMDXDNA_QUERY_TELEMETRY: amdxdna_get_info_param = 10;
pub const DRM_AMDXDNA_QUERY_RESOURCE_INFO: amdxdna_get_info_param = 12;
pub type amdxdna_get_info_param = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_get_info {
    pub param: __u32,
    pub buffer_size: __u32,
    pub buffer: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_get_info"][::std::mem::size_of::<amdxdna_drm_get_info>() - 16usize];
    ["Alignment of amdxdna_drm_get_info"][::std::mem::align_of::<amdxdna_drm_get_info>() - 8usize];
    ["Offset of field: amdxdna_drm_get_info::param"][::std::mem::offset_of!(amdxdna_drm_get_info, param) - 0usize];
    ["Offset of field: amdxdna_drm_get_info::buffer_size"]
        [::std::mem::offset_of!(amdxdna_drm_get_info, buffer_size) - 4usize];
    ["Offset of field: amdxdna_drm_get_info::buffer"][::std::mem::offset_of!(amdxdna_drm_get_info, buffer) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_query_aie_version {
    pub major: __u32,
    pub minor: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_aie_version"][::std::mem::size_of::<amdxdna_drm_query_aie_version>() - 8usize];
    ["Alignment of amdxdna_drm_query_aie_version"][::std::mem::align_of::<amdxdna_drm_query_aie_version>() - 4usize];
    ["Offset of field: amdxdna_drm_query_aie_version::major"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_version, major) - 0usize];
    ["Offset of field: amdxdna_drm_query_aie_version::minor"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_version, minor) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_query_aie_tile_metadata {
    pub row_count: __u16,
    pub row_start: __u16,
    pub dma_channel_count: __u16,
    pub lock_count: __u16,
    pub event_reg_count: __u16,
    pub pad: [__u16; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_aie_tile_metadata"]
        [::std::mem::size_of::<amdxdna_drm_query_aie_tile_metadata>() - 16usize];
    ["Alignment of amdxdna_drm_query_aie_tile_metadata"]
        [::std::mem::align_of::<amdxdna_drm_query_aie_tile_metadata>() - 2usize];
    ["Offset of field: amdxdna_drm_query_aie_tile_metadata::row_count"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_tile_metadata, row_count) - 0usize];
    ["Offset of field: amdxdna_drm_query_aie_tile_metadata::row_start"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_tile_metadata, row_start) - 2usize];
    ["Offset of field: amdxdna_drm_query_aie_tile_metadata::dma_channel_count"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_tile_metadata, dma_channel_count) - 4usize];
    ["Offset of field: amdxdna_drm_query_aie_tile_metadata::lock_count"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_tile_metadata, lock_count) - 6usize];
    ["Offset of field: amdxdna_drm_query_aie_tile_metadata::event_reg_count"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_tile_metadata, event_reg_count) - 8usize];
    ["Offset of field: amdxdna_drm_query_aie_tile_metadata::pad"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_tile_metadata, pad) - 10usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_query_aie_metadata {
    pub col_size: __u32,
    pub cols: __u16,
    pub rows: __u16,
    pub version: amdxdna_drm_query_aie_version,
    pub core: amdxdna_drm_query_aie_tile_metadata,
    pub mem: amdxdna_drm_query_aie_tile_metadata,
    pub shim: amdxdna_drm_query_aie_tile_metadata,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_aie_metadata"][::std::mem::size_of::<amdxdna_drm_query_aie_metadata>() - 64usize];
    ["Alignment of amdxdna_drm_query_aie_metadata"][::std::mem::align_of::<amdxdna_drm_query_aie_metadata>() - 4usize];
    ["Offset of field: amdxdna_drm_query_aie_metadata::col_size"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_metadata, col_size) - 0usize];
    ["Offset of field: amdxdna_drm_query_aie_metadata::cols"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_metadata, cols) - 4usize];
    ["Offset of field: amdxdna_drm_query_aie_metadata::rows"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_metadata, rows) - 6usize];
    ["Offset of field: amdxdna_drm_query_aie_metadata::version"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_metadata, version) - 8usize];
    ["Offset of field: amdxdna_drm_query_aie_metadata::core"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_metadata, core) - 16usize];
    ["Offset of field: amdxdna_drm_query_aie_metadata::mem"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_metadata, mem) - 32usize];
    ["Offset of field: amdxdna_drm_query_aie_metadata::shim"]
        [::std::mem::offset_of!(amdxdna_drm_query_aie_metadata, shim) - 48usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_query_clock {
    pub name: [__u8; 16usize],
    pub freq_mhz: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_clock"][::std::mem::size_of::<amdxdna_drm_query_clock>() - 24usize];
    ["Alignment of amdxdna_drm_query_clock"][::std::mem::align_of::<amdxdna_drm_query_clock>() - 4usize];
    ["Offset of field: amdxdna_drm_query_clock::name"][::std::mem::offset_of!(amdxdna_drm_query_clock, name) - 0usize];
    ["Offset of field: amdxdna_drm_query_clock::freq_mhz"]
        [::std::mem::offset_of!(amdxdna_drm_query_clock, freq_mhz) - 16usize];
    ["Offset of field: amdxdna_drm_query_clock::pad"][::std::mem::offset_of!(amdxdna_drm_query_clock, pad) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_query_clock_metadata {
    pub mp_npu_clock: amdxdna_drm_query_clock,
    pub h_clock: amdxdna_drm_query_clock,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_clock_metadata"][::std::mem::size_of::<amdxdna_drm_query_clock_metadata>() - 48usize];
    ["Alignment of amdxdna_drm_query_clock_metadata"]
        [::std::mem::align_of::<amdxdna_drm_query_clock_metadata>() - 4usize];
    ["Offset of field: amdxdna_drm_query_clock_metadata::mp_npu_clock"]
        [::std::mem::offset_of!(amdxdna_drm_query_clock_metadata, mp_npu_clock) - 0usize];
    ["Offset of field: amdxdna_drm_query_clock_metadata::h_clock"]
        [::std::mem::offset_of!(amdxdna_drm_query_clock_metadata, h_clock) - 24usize];
};
pub const AMDXDNA_SENSOR_TYPE_POWER: amdxdna_sensor_type = 0;
pub const AMDXDNA_SENSOR_TYPE_COLUMN_UTILIZATION: amdxdna_sensor_type = 1;
pub const AMDXDNA_SENSOR_TYPE_TEMPERATURE: amdxdna_sensor_type = 2;
pub type amdxdna_sensor_type = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdxdna_drm_query_sensor {
    pub label: [__u8; 64usize],
    pub input: __u32,
    pub max: __u32,
    pub average: __u32,
    pub highest: __u32,
    pub status: [__u8; 64usize],
    pub units: [__u8; 16usize],
    pub unitm: __s8,
    pub type_: __u8,
    pub pad: [__u8; 6usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_sensor"][::std::mem::size_of::<amdxdna_drm_query_sensor>() - 168usize];
    ["Alignment of amdxdna_drm_query_sensor"][::std::mem::align_of::<amdxdna_drm_query_sensor>() - 4usize];
    ["Offset of field: amdxdna_drm_query_sensor::label"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, label) - 0usize];
    ["Offset of field: amdxdna_drm_query_sensor::input"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, input) - 64usize];
    ["Offset of field: amdxdna_drm_query_sensor::max"][::std::mem::offset_of!(amdxdna_drm_query_sensor, max) - 68usize];
    ["Offset of field: amdxdna_drm_query_sensor::average"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, average) - 72usize];
    ["Offset of field: amdxdna_drm_query_sensor::highest"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, highest) - 76usize];
    ["Offset of field: amdxdna_drm_query_sensor::status"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, status) - 80usize];
    ["Offset of field: amdxdna_drm_query_sensor::units"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, units) - 144usize];
    ["Offset of field: amdxdna_drm_query_sensor::unitm"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, unitm) - 160usize];
    ["Offset of field: amdxdna_drm_query_sensor::type_"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, type_) - 161usize];
    ["Offset of field: amdxdna_drm_query_sensor::pad"]
        [::std::mem::offset_of!(amdxdna_drm_query_sensor, pad) - 162usize];
};
impl Default for amdxdna_drm_query_sensor {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_query_hwctx {
    pub context_id: __u32,
    pub start_col: __u32,
    pub num_col: __u32,
    pub pad: __u32,
    pub pid: __s64,
    pub command_submissions: __u64,
    pub command_completions: __u64,
    pub migrations: __u64,
    pub preemptions: __u64,
    pub errors: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_hwctx"][::std::mem::size_of::<amdxdna_drm_query_hwctx>() - 64usize];
    ["Alignment of amdxdna_drm_query_hwctx"][::std::mem::align_of::<amdxdna_drm_query_hwctx>() - 8usize];
    ["Offset of field: amdxdna_drm_query_hwctx::context_id"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, context_id) - 0usize];
    ["Offset of field: amdxdna_drm_query_hwctx::start_col"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, start_col) - 4usize];
    ["Offset of field: amdxdna_drm_query_hwctx::num_col"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, num_col) - 8usize];
    ["Offset of field: amdxdna_drm_query_hwctx::pad"][::std::mem::offset_of!(amdxdna_drm_query_hwctx, pad) - 12usize];
    ["Offset of field: amdxdna_drm_query_hwctx::pid"][::std::mem::offset_of!(amdxdna_drm_query_hwctx, pid) - 16usize];
    ["Offset of field: amdxdna_drm_query_hwctx::command_submissions"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, command_submissions) - 24usize];
    ["Offset of field: amdxdna_drm_query_hwctx::command_completions"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, command_completions) - 32usize];
    ["Offset of field: amdxdna_drm_query_hwctx::migrations"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, migrations) - 40usize];
    ["Offset of field: amdxdna_drm_query_hwctx::preemptions"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, preemptions) - 48usize];
    ["Offset of field: amdxdna_drm_query_hwctx::errors"]
        [::std::mem::offset_of!(amdxdna_drm_query_hwctx, errors) - 56usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_query_firmware_version {
    pub major: __u32,
    pub minor: __u32,
    pub patch: __u32,
    pub build: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_query_firmware_version"]
        [::std::mem::size_of::<amdxdna_drm_query_firmware_version>() - 16usize];
    ["Alignment of amdxdna_drm_query_firmware_version"]
        [::std::mem::align_of::<amdxdna_drm_query_firmware_version>() - 4usize];
    ["Offset of field: amdxdna_drm_query_firmware_version::major"]
        [::std::mem::offset_of!(amdxdna_drm_query_firmware_version, major) - 0usize];
    ["Offset of field: amdxdna_drm_query_firmware_version::minor"]
        [::std::mem::offset_of!(amdxdna_drm_query_firmware_version, minor) - 4usize];
    ["Offset of field: amdxdna_drm_query_firmware_version::patch"]
        [::std::mem::offset_of!(amdxdna_drm_query_firmware_version, patch) - 8usize];
    ["Offset of field: amdxdna_drm_query_firmware_version::build"]
        [::std::mem::offset_of!(amdxdna_drm_query_firmware_version, build) - 12usize];
};
pub const POWER_MODE_DEFAULT: amdxdna_power_mode_type = 0;
pub const POWER_MODE_LOW: amdxdna_power_mode_type = 1;
pub const POWER_MODE_MEDIUM: amdxdna_power_mode_type = 2;
pub const POWER_MODE_HIGH: amdxdna_power_mode_type = 3;
pub const POWER_MODE_TURBO: amdxdna_power_mode_type = 4;
pub type amdxdna_power_mode_type = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_power_mode {
    pub power_mode: __u8,
    pub pad: [__u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_power_mode"][::std::mem::size_of::<amdxdna_drm_power_mode>() - 8usize];
    ["Alignment of amdxdna_drm_power_mode"][::std::mem::align_of::<amdxdna_drm_power_mode>() - 1usize];
    ["Offset of field: amdxdna_drm_power_mode::power_mode"]
        [::std::mem::offset_of!(amdxdna_drm_power_mode, power_mode) - 0usize];
    ["Offset of field: amdxdna_drm_power_mode::pad"][::std::mem::offset_of!(amdxdna_drm_power_mode, pad) - 1usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_get_resource_info {
    pub npu_clk_max: __u64,
    pub npu_tops_max: __u64,
    pub npu_task_max: __u64,
    pub npu_tops_curr: __u64,
    pub npu_task_curr: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_get_resource_info"][::std::mem::size_of::<amdxdna_drm_get_resource_info>() - 40usize];
    ["Alignment of amdxdna_drm_get_resource_info"][::std::mem::align_of::<amdxdna_drm_get_resource_info>() - 8usize];
    ["Offset of field: amdxdna_drm_get_resource_info::npu_clk_max"]
        [::std::mem::offset_of!(amdxdna_drm_get_resource_info, npu_clk_max) - 0usize];
    ["Offset of field: amdxdna_drm_get_resource_info::npu_tops_max"]
        [::std::mem::offset_of!(amdxdna_drm_get_resource_info, npu_tops_max) - 8usize];
    ["Offset of field: amdxdna_drm_get_resource_info::npu_task_max"]
        [::std::mem::offset_of!(amdxdna_drm_get_resource_info, npu_task_max) - 16usize];
    ["Offset of field: amdxdna_drm_get_resource_info::npu_tops_curr"]
        [::std::mem::offset_of!(amdxdna_drm_get_resource_info, npu_tops_curr) - 24usize];
    ["Offset of field: amdxdna_drm_get_resource_info::npu_task_curr"]
        [::std::mem::offset_of!(amdxdna_drm_get_resource_info, npu_task_curr) - 32usize];
};
pub const DRM_AMDXDNA_SET_POWER_MODE: amdxdna_set_state_param = 0;
pub type amdxdna_set_state_param = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_set_state {
    pub param: __u32,
    pub buffer_size: __u32,
    pub buffer: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_set_state"][::std::mem::size_of::<amdxdna_drm_set_state>() - 16usize];
    ["Alignment of amdxdna_drm_set_state"][::std::mem::align_of::<amdxdna_drm_set_state>() - 8usize];
    ["Offset of field: amdxdna_drm_set_state::param"][::std::mem::offset_of!(amdxdna_drm_set_state, param) - 0usize];
    ["Offset of field: amdxdna_drm_set_state::buffer_size"]
        [::std::mem::offset_of!(amdxdna_drm_set_state, buffer_size) - 4usize];
    ["Offset of field: amdxdna_drm_set_state::buffer"][::std::mem::offset_of!(amdxdna_drm_set_state, buffer) - 8usize];
};
pub const DRM_AMDXDNA_HW_CONTEXT_ALL: amdxdna_get_array_param = 0;
pub const DRM_AMDXDNA_HW_LAST_ASYNC_ERR: amdxdna_get_array_param = 2;
pub const DRM_AMDXDNA_BO_USAGE: amdxdna_get_array_param = 6;
pub type amdxdna_get_array_param = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_get_array {
    pub param: __u32,
    pub element_size: __u32,
    pub num_element: __u32,
    pub pad: __u32,
    pub buffer: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_get_array"][::std::mem::size_of::<amdxdna_drm_get_array>() - 24usize];
    ["Alignment of amdxdna_drm_get_array"][::std::mem::align_of::<amdxdna_drm_get_array>() - 8usize];
    ["Offset of field: amdxdna_drm_get_array::param"][::std::mem::offset_of!(amdxdna_drm_get_array, param) - 0usize];
    ["Offset of field: amdxdna_drm_get_array::element_size"]
        [::std::mem::offset_of!(amdxdna_drm_get_array, element_size) - 4usize];
    ["Offset of field: amdxdna_drm_get_array::num_element"]
        [::std::mem::offset_of!(amdxdna_drm_get_array, num_element) - 8usize];
    ["Offset of field: amdxdna_drm_get_array::pad"][::std::mem::offset_of!(amdxdna_drm_get_array, pad) - 12usize];
    ["Offset of field: amdxdna_drm_get_array::buffer"][::std::mem::offset_of!(amdxdna_drm_get_array, buffer) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_hwctx_entry {
    pub context_id: __u32,
    pub start_col: __u32,
    pub num_col: __u32,
    pub hwctx_id: __u32,
    pub pid: __s64,
    pub command_submissions: __u64,
    pub command_completions: __u64,
    pub migrations: __u64,
    pub preemptions: __u64,
    pub errors: __u64,
    pub priority: __u64,
    pub heap_usage: __u64,
    pub suspensions: __u64,
    pub state: __u32,
    pub pasid: __u32,
    pub gops: __u32,
    pub fps: __u32,
    pub dma_bandwidth: __u32,
    pub latency: __u32,
    pub frame_exec_time: __u32,
    pub txn_op_idx: __u32,
    pub ctx_pc: __u32,
    pub fatal_error_type: __u32,
    pub fatal_error_exception_type: __u32,
    pub fatal_error_exception_pc: __u32,
    pub fatal_error_app_module: __u32,
    pub pad: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_hwctx_entry"][::std::mem::size_of::<amdxdna_drm_hwctx_entry>() - 144usize];
    ["Alignment of amdxdna_drm_hwctx_entry"][::std::mem::align_of::<amdxdna_drm_hwctx_entry>() - 8usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::context_id"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, context_id) - 0usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::start_col"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, start_col) - 4usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::num_col"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, num_col) - 8usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::hwctx_id"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, hwctx_id) - 12usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::pid"][::std::mem::offset_of!(amdxdna_drm_hwctx_entry, pid) - 16usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::command_submissions"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, command_submissions) - 24usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::command_completions"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, command_completions) - 32usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::migrations"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, migrations) - 40usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::preemptions"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, preemptions) - 48usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::errors"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, errors) - 56usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::priority"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, priority) - 64usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::heap_usage"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, heap_usage) - 72usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::suspensions"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, suspensions) - 80usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::state"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, state) - 88usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::pasid"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, pasid) - 92usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::gops"][::std::mem::offset_of!(amdxdna_drm_hwctx_entry, gops) - 96usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::fps"][::std::mem::offset_of!(amdxdna_drm_hwctx_entry, fps) - 100usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::dma_bandwidth"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, dma_bandwidth) - 104usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::latency"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, latency) - 108usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::frame_exec_time"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, frame_exec_time) - 112usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::txn_op_idx"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, txn_op_idx) - 116usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::ctx_pc"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, ctx_pc) - 120usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::fatal_error_type"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, fatal_error_type) - 124usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::fatal_error_exception_type"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, fatal_error_exception_type) - 128usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::fatal_error_exception_pc"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, fatal_error_exception_pc) - 132usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::fatal_error_app_module"]
        [::std::mem::offset_of!(amdxdna_drm_hwctx_entry, fatal_error_app_module) - 136usize];
    ["Offset of field: amdxdna_drm_hwctx_entry::pad"][::std::mem::offset_of!(amdxdna_drm_hwctx_entry, pad) - 140usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_async_error {
    pub err_code: __u64,
    pub ts_us: __u64,
    pub ex_err_code: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_async_error"][::std::mem::size_of::<amdxdna_async_error>() - 24usize];
    ["Alignment of amdxdna_async_error"][::std::mem::align_of::<amdxdna_async_error>() - 8usize];
    ["Offset of field: amdxdna_async_error::err_code"][::std::mem::offset_of!(amdxdna_async_error, err_code) - 0usize];
    ["Offset of field: amdxdna_async_error::ts_us"][::std::mem::offset_of!(amdxdna_async_error, ts_us) - 8usize];
    ["Offset of field: amdxdna_async_error::ex_err_code"]
        [::std::mem::offset_of!(amdxdna_async_error, ex_err_code) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct amdxdna_drm_bo_usage {
    pub pid: __s64,
    pub total_usage: __u64,
    pub internal_usage: __u64,
    pub heap_usage: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of amdxdna_drm_bo_usage"][::std::mem::size_of::<amdxdna_drm_bo_usage>() - 32usize];
    ["Alignment of amdxdna_drm_bo_usage"][::std::mem::align_of::<amdxdna_drm_bo_usage>() - 8usize];
    ["Offset of field: amdxdna_drm_bo_usage::pid"][::std::mem::offset_of!(amdxdna_drm_bo_usage, pid) - 0usize];
    ["Offset of field: amdxdna_drm_bo_usage::total_usage"]
        [::std::mem::offset_of!(amdxdna_drm_bo_usage, total_usage) - 8usize];
    ["Offset of field: amdxdna_drm_bo_usage::internal_usage"]
        [::std::mem::offset_of!(amdxdna_drm_bo_usage, internal_usage) - 16usize];
    ["Offset of field: amdxdna_drm_bo_usage::heap_usage"]
        [::std::mem::offset_of!(amdxdna_drm_bo_usage, heap_usage) - 24usize];
};
pub const KILN_XRT_DONE: _bindgen_ty_1 = 0;
pub const KILN_XRT_FAILED: _bindgen_ty_1 = 1;
pub const KILN_XRT_LATE: _bindgen_ty_1 = 2;
pub type _bindgen_ty_1 = ::std::os::raw::c_uint;
pub const KILN_XRT_INSTRUCTIONS: _bindgen_ty_2 = 0;
pub const KILN_XRT_DATA: _bindgen_ty_2 = 1;
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
pub const KILN_XRT_TO_DEVICE: _bindgen_ty_3 = 0;
pub const KILN_XRT_TO_HOST: _bindgen_ty_3 = 1;
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kiln_xrt_text {
    pub bytes: [::std::os::raw::c_char; 512usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kiln_xrt_text"][::std::mem::size_of::<kiln_xrt_text>() - 512usize];
    ["Alignment of kiln_xrt_text"][::std::mem::align_of::<kiln_xrt_text>() - 1usize];
    ["Offset of field: kiln_xrt_text::bytes"][::std::mem::offset_of!(kiln_xrt_text, bytes) - 0usize];
};
impl Default for kiln_xrt_text {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kiln_xrt_device {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kiln_xrt_program {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kiln_xrt_kernel {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kiln_xrt_buffer {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct kiln_xrt_run {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kiln_xrt_face {
    pub version: ::std::option::Option<
        unsafe extern "C" fn(numbers: *mut u32, why: *mut kiln_xrt_text) -> ::std::os::raw::c_int,
    >,
    pub count: ::std::option::Option<
        unsafe extern "C" fn(devices: *mut u32, why: *mut kiln_xrt_text) -> ::std::os::raw::c_int,
    >,
    pub open: ::std::option::Option<
        unsafe extern "C" fn(
            which: *const ::std::os::raw::c_char,
            device: *mut *mut kiln_xrt_device,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub describe: ::std::option::Option<
        unsafe extern "C" fn(
            device: *const kiln_xrt_device,
            name: *mut kiln_xrt_text,
            slot: *mut kiln_xrt_text,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub close_device: ::std::option::Option<unsafe extern "C" fn(device: *mut kiln_xrt_device)>,
    pub load: ::std::option::Option<
        unsafe extern "C" fn(
            device: *const kiln_xrt_device,
            xclbin: *const ::std::os::raw::c_void,
            size: u64,
            program: *mut *mut kiln_xrt_program,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub close_program: ::std::option::Option<unsafe extern "C" fn(program: *mut kiln_xrt_program)>,
    pub find_kernel: ::std::option::Option<
        unsafe extern "C" fn(
            program: *const kiln_xrt_program,
            name: *const ::std::os::raw::c_char,
            kernel: *mut *mut kiln_xrt_kernel,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub group: ::std::option::Option<
        unsafe extern "C" fn(
            kernel: *const kiln_xrt_kernel,
            argument: i32,
            group: *mut i32,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub close_kernel: ::std::option::Option<unsafe extern "C" fn(kernel: *mut kiln_xrt_kernel)>,
    pub allocate: ::std::option::Option<
        unsafe extern "C" fn(
            program: *const kiln_xrt_program,
            size: u64,
            kind: i32,
            group: i32,
            buffer: *mut *mut kiln_xrt_buffer,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub import_fd: ::std::option::Option<
        unsafe extern "C" fn(
            program: *const kiln_xrt_program,
            fd: i32,
            buffer: *mut *mut kiln_xrt_buffer,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub export_fd: ::std::option::Option<
        unsafe extern "C" fn(
            buffer: *mut kiln_xrt_buffer,
            fd: *mut i32,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub map: ::std::option::Option<
        unsafe extern "C" fn(
            buffer: *mut kiln_xrt_buffer,
            bytes: *mut *mut ::std::os::raw::c_void,
            size: *mut u64,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub sync: ::std::option::Option<
        unsafe extern "C" fn(
            buffer: *mut kiln_xrt_buffer,
            direction: i32,
            offset: u64,
            size: u64,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub close_buffer: ::std::option::Option<unsafe extern "C" fn(buffer: *mut kiln_xrt_buffer)>,
    pub make_run: ::std::option::Option<
        unsafe extern "C" fn(
            kernel: *const kiln_xrt_kernel,
            run: *mut *mut kiln_xrt_run,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub set_buffer: ::std::option::Option<
        unsafe extern "C" fn(
            run: *mut kiln_xrt_run,
            argument: i32,
            buffer: *const kiln_xrt_buffer,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub set_number: ::std::option::Option<
        unsafe extern "C" fn(
            run: *mut kiln_xrt_run,
            argument: i32,
            number: *const ::std::os::raw::c_void,
            size: u64,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub start: ::std::option::Option<
        unsafe extern "C" fn(run: *mut kiln_xrt_run, why: *mut kiln_xrt_text) -> ::std::os::raw::c_int,
    >,
    pub wait: ::std::option::Option<
        unsafe extern "C" fn(
            run: *mut kiln_xrt_run,
            milliseconds: u32,
            why: *mut kiln_xrt_text,
        ) -> ::std::os::raw::c_int,
    >,
    pub close_run: ::std::option::Option<unsafe extern "C" fn(run: *mut kiln_xrt_run)>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of kiln_xrt_face"][::std::mem::size_of::<kiln_xrt_face>() - 176usize];
    ["Alignment of kiln_xrt_face"][::std::mem::align_of::<kiln_xrt_face>() - 8usize];
    ["Offset of field: kiln_xrt_face::version"][::std::mem::offset_of!(kiln_xrt_face, version) - 0usize];
    ["Offset of field: kiln_xrt_face::count"][::std::mem::offset_of!(kiln_xrt_face, count) - 8usize];
    ["Offset of field: kiln_xrt_face::open"][::std::mem::offset_of!(kiln_xrt_face, open) - 16usize];
    ["Offset of field: kiln_xrt_face::describe"][::std::mem::offset_of!(kiln_xrt_face, describe) - 24usize];
    ["Offset of field: kiln_xrt_face::close_device"][::std::mem::offset_of!(kiln_xrt_face, close_device) - 32usize];
    ["Offset of field: kiln_xrt_face::load"][::std::mem::offset_of!(kiln_xrt_face, load) - 40usize];
    ["Offset of field: kiln_xrt_face::close_program"][::std::mem::offset_of!(kiln_xrt_face, close_program) - 48usize];
    ["Offset of field: kiln_xrt_face::find_kernel"][::std::mem::offset_of!(kiln_xrt_face, find_kernel) - 56usize];
    ["Offset of field: kiln_xrt_face::group"][::std::mem::offset_of!(kiln_xrt_face, group) - 64usize];
    ["Offset of field: kiln_xrt_face::close_kernel"][::std::mem::offset_of!(kiln_xrt_face, close_kernel) - 72usize];
    ["Offset of field: kiln_xrt_face::allocate"][::std::mem::offset_of!(kiln_xrt_face, allocate) - 80usize];
    ["Offset of field: kiln_xrt_face::import_fd"][::std::mem::offset_of!(kiln_xrt_face, import_fd) - 88usize];
    ["Offset of field: kiln_xrt_face::export_fd"][::std::mem::offset_of!(kiln_xrt_face, export_fd) - 96usize];
    ["Offset of field: kiln_xrt_face::map"][::std::mem::offset_of!(kiln_xrt_face, map) - 104usize];
    ["Offset of field: kiln_xrt_face::sync"][::std::mem::offset_of!(kiln_xrt_face, sync) - 112usize];
    ["Offset of field: kiln_xrt_face::close_buffer"][::std::mem::offset_of!(kiln_xrt_face, close_buffer) - 120usize];
    ["Offset of field: kiln_xrt_face::make_run"][::std::mem::offset_of!(kiln_xrt_face, make_run) - 128usize];
    ["Offset of field: kiln_xrt_face::set_buffer"][::std::mem::offset_of!(kiln_xrt_face, set_buffer) - 136usize];
    ["Offset of field: kiln_xrt_face::set_number"][::std::mem::offset_of!(kiln_xrt_face, set_number) - 144usize];
    ["Offset of field: kiln_xrt_face::start"][::std::mem::offset_of!(kiln_xrt_face, start) - 152usize];
    ["Offset of field: kiln_xrt_face::wait"][::std::mem::offset_of!(kiln_xrt_face, wait) - 160usize];
    ["Offset of field: kiln_xrt_face::close_run"][::std::mem::offset_of!(kiln_xrt_face, close_run) - 168usize];
};
