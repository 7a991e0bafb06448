//! Programs on the NPU: buffers, hardware contexts that hold columns of the array, and commands.

use super::dma_buf::Mapping;
use super::drm::{Gem, Node, Syncobj};
use super::failure::{DriverResult, Failure, retry};
use super::{bindings as b, raw};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::Duration;

/// What the NPU uses a buffer for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferKind {
    /// Data: ordinary memory, shared with the CPU, and with other drivers by dma-buf.
    Shared,
    /// The device heap: 64 MiB, one per open node. It is mapped, aligned to its size, before any other buffer is made.
    DeviceHeap,
    /// Instructions and programs, allocated from the device heap.
    Device,
    /// Memory for a command's packet.
    Command,
}

/// The offset and the address at which a buffer is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLocation {
    /// Offset for mapping it through the node; `None` if it cannot be mapped.
    pub map_offset: Option<u64>,
    /// Address in this process, once the buffer or its heap is mapped.
    pub address: Option<u64>,
    /// Address on the device; `None` if it gets one only when mapped.
    pub device_address: Option<u64>,
}

/// The device heap, mapped at a multiple of its size, as the driver requires. [`BufferKind::Device`] buffers lie in it.
#[derive(Debug)]
pub struct DeviceHeap {
    /// A reservation of twice the heap's size, which contains an aligned range of the heap's size.
    reserved: NonNull<c_void>,
    /// The aligned range, where the heap is mapped.
    mapped: NonNull<c_void>,
    _buffer: Gem,
}

/// A hardware context: it holds columns of the array until dropped.
#[derive(Debug)]
pub struct HardwareContext {
    node: Node,
    handle: u32,
    timeline: Syncobj,
}

/// Allocates a buffer of `size` bytes.
///
/// # Errors
/// ENOMEM: the locked-memory limit is reached, or memory is full. EINVAL: the driver rejects the size.
pub fn allocate(node: &Node, kind: BufferKind, size: u64) -> DriverResult<Gem> {
    let kind = match kind {
        BufferKind::Shared => b::AMDXDNA_BO_SHMEM,
        BufferKind::DeviceHeap => b::AMDXDNA_BO_DEV_HEAP,
        BufferKind::Device => b::AMDXDNA_BO_DEV,
        BufferKind::Command => b::AMDXDNA_BO_CMD,
    };
    let mut data = b::amdxdna_drm_create_bo { size, type_: kind, ..Default::default() };
    // SAFETY: the structure is valid for the call.
    retry("allocate an NPU buffer", || unsafe { raw::amdxdna_create_bo(node.raw(), &mut data) })?;
    Ok(node.own(data.handle))
}

/// Where a buffer lies, whether made here or imported.
///
/// # Errors
/// EINVAL, ENOENT: the buffer is not this node's.
pub fn locate(node: &Node, buffer: &Gem) -> DriverResult<BufferLocation> {
    let mut data = b::amdxdna_drm_get_bo_info { handle: buffer.handle(), ..Default::default() };
    // SAFETY: the structure is valid for the call.
    retry("ask where an NPU buffer lies", || unsafe { raw::amdxdna_get_bo_info(node.raw(), &mut data) })?;
    // For a missing address the driver's header says 0, but the driver answers all ones.
    let known = |address: u64| (address != 0 && address != u64::MAX).then_some(address);
    Ok(BufferLocation {
        map_offset: known(data.map_offset),
        address: known(data.vaddr),
        device_address: known(data.xdna_addr),
    })
}

/// Maps `size` bytes of a buffer, made here or imported, through its node. `None` if it cannot be mapped.
///
/// # Errors
/// As [`locate`]. ENOMEM, EINVAL: `size` exceeds the buffer.
pub fn map(node: &Node, buffer: &Gem, size: u64) -> DriverResult<Option<Mapping>> {
    let offset = locate(node, buffer)?.map_offset;
    offset.map(|offset| Mapping::new("map an NPU buffer", node, offset, size)).transpose()
}

/// Writes the CPU's cached copies of `bytes` back to memory and drops them. The NPU does not see the CPU's caches, and
/// the driver's own request for this (SYNC_BO) refuses imported buffers: before a run this makes the host's writes
/// visible to the NPU, and after a run the NPU's writes to the host.
pub fn flush(bytes: &[u8]) {
    flush_each([bytes]);
}

/// Calls [`flush`] for each of several slices.
pub fn flush_each<'b>(slices: impl IntoIterator<Item = &'b [u8]>) {
    // The driver exists for x86-64 only: on other architectures there is no NPU.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has these instructions, and each line holds at least one of the bytes: an empty slice has
    // none.
    unsafe {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        const LINE: usize = 64;
        _mm_mfence();
        for bytes in slices.into_iter().filter(|bytes| !bytes.is_empty()) {
            let before = bytes.as_ptr() as usize % LINE;
            for at in (0..bytes.len() + before).step_by(LINE) {
                _mm_clflush(bytes.as_ptr().wrapping_sub(before).wrapping_add(at));
            }
        }
        _mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slices;
}

impl DeviceHeap {
    /// The size of a heap in bytes.
    pub const BYTES: usize = 64 << 20;

    /// Allocates and maps the heap of an open node.
    ///
    /// # Errors
    /// ENOMEM: the locked-memory limit is reached, or memory is full. EBUSY, EINVAL: the node has a heap already.
    pub fn new(node: &Node) -> DriverResult<DeviceHeap> {
        const WHAT: &str = "map the NPU's heap";
        const ONCE: NonZeroUsize = NonZeroUsize::new(DeviceHeap::BYTES).unwrap();
        const TWICE: NonZeroUsize = NonZeroUsize::new(2 * DeviceHeap::BYTES).unwrap();
        let failure = |errno| Failure::new(WHAT, errno);
        let buffer = allocate(node, BufferKind::DeviceHeap, DeviceHeap::BYTES as u64)?;
        let offset = locate(node, &buffer)?.map_offset.and_then(|offset| i64::try_from(offset).ok());
        let offset = offset.ok_or_else(|| failure(Errno::ENODEV))?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: without an address hint, this mapping replaces no other.
        let reserved = unsafe { mmap_anonymous(None, TWICE, ProtFlags::PROT_NONE, flags) }.map_err(failure)?;
        // From here on, each failure unmaps the reservation by `Drop`.
        let mut heap = DeviceHeap { reserved, mapped: reserved, _buffer: buffer };
        let aligned = NonZeroUsize::new(reserved.addr().get().next_multiple_of(DeviceHeap::BYTES));
        let (access, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED | MapFlags::MAP_FIXED);
        // SAFETY: the aligned part lies in the reservation, which is this value's own and holds nothing.
        heap.mapped = unsafe { mmap(aligned, ONCE, access, flags, node, offset) }.map_err(failure)?;
        Ok(heap)
    }

    /// Writes `bytes` to `address`, inside a [`BufferKind::Device`] buffer in this process, and makes them visible to
    /// the NPU.
    ///
    /// # Errors
    /// EFAULT: the range is not in the heap.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> DriverResult<()> {
        let start = usize::try_from(address).ok().and_then(|a| a.checked_sub(self.mapped.addr().get()));
        let start = start.filter(|start| start.checked_add(bytes.len()).is_some_and(|end| end <= DeviceHeap::BYTES));
        let start = start.ok_or_else(|| Failure::new("write to the NPU's heap", Errno::EFAULT))?;
        // SAFETY: the mapping holds the range, lives as long as this value, and is this process's only one.
        let to = unsafe { std::slice::from_raw_parts_mut(self.mapped.cast::<u8>().as_ptr().add(start), bytes.len()) };
        to.copy_from_slice(bytes);
        flush(to);
        Ok(())
    }
}

impl Drop for DeviceHeap {
    fn drop(&mut self) {
        // SAFETY: the reservation, with the heap in it, is this value's own.
        let _ = unsafe { munmap(self.reserved, 2 * DeviceHeap::BYTES) };
    }
}

impl HardwareContext {
    /// Reserves `tiles` compute tiles: whole columns of four.
    ///
    /// # Errors
    /// ENOSPC, EAGAIN: no columns are free. EINVAL: the heap is missing or unmapped, or `tiles` exceeds the array.
    pub fn new(node: &Node, tiles: u32) -> DriverResult<HardwareContext> {
        let qos = b::amdxdna_qos_info::default();
        let mut data = b::amdxdna_drm_create_hwctx {
            qos_p: (&raw const qos) as u64,
            // XRT's value: the driver requires a number here.
            max_opc: 0x800,
            num_tiles: tiles,
            ..Default::default()
        };
        // SAFETY: the structure and the one that it points to are valid for the call.
        retry("make an NPU context", || unsafe { raw::amdxdna_create_hwctx(node.raw(), &mut data) })?;
        Ok(HardwareContext {
            node: node.clone(),
            handle: data.handle,
            timeline: node.own_timeline(data.syncobj_handle),
        })
    }

    /// Loads `program`, a [`BufferKind::Device`] buffer that holds a partition image, as the context's one compute
    /// unit.
    ///
    /// # Errors
    /// EINVAL: the driver rejects it.
    pub fn load(&self, program: &Gem) -> DriverResult<()> {
        let config = b::amdxdna_config_one_cu {
            num_cus: 1,
            cu: b::amdxdna_cu_config { cu_bo: program.handle(), ..Default::default() },
            ..Default::default()
        };
        let mut data = b::amdxdna_drm_config_hwctx {
            handle: self.handle,
            param_type: b::DRM_AMDXDNA_HWCTX_CONFIG_CU,
            param_val: (&raw const config) as u64,
            param_val_size: size_of_val(&config) as u32,
            pad: 0,
        };
        // SAFETY: the structure and the one that it points to, with its size, are valid for the call.
        retry("load an NPU program", || unsafe { raw::amdxdna_config_hwctx(self.node.raw(), &mut data) }).map(drop)
    }

    /// Submits `command`, which uses `buffers`. Returns its number for [`HardwareContext::wait`].
    ///
    /// # Errors
    /// EINVAL: the command is malformed. EIO, ETIME: the array does not answer.
    pub fn submit(&self, command: &Gem, buffers: &[&Gem]) -> DriverResult<u64> {
        let what = "submit an NPU command";
        let handles: Vec<u32> = buffers.iter().map(|b| b.handle()).collect();
        let mut data = b::amdxdna_drm_exec_cmd {
            hwctx: self.handle,
            type_: b::AMDXDNA_CMD_SUBMIT_EXEC_BUF,
            cmd_handles: u64::from(command.handle()),
            args: handles.as_ptr() as u64,
            cmd_count: 1,
            arg_count: u32::try_from(handles.len()).map_err(|_| Failure::new(what, Errno::E2BIG))?,
            ..Default::default()
        };
        // SAFETY: the structure and the array that it points to, with its length, are valid for the call.
        retry(what, || unsafe { raw::amdxdna_exec_cmd(self.node.raw(), &mut data) })?;
        Ok(data.seq)
    }

    /// Waits until the command `number` is done. Its packet says whether it succeeded.
    ///
    /// # Errors
    /// ETIME: `timeout` is over.
    pub fn wait(&self, number: u64, timeout: Duration) -> DriverResult<()> {
        self.node.wait_timeline(self.timeline.handle(), number, timeout)
    }
}

impl Drop for HardwareContext {
    fn drop(&mut self) {
        let mut data = b::amdxdna_drm_destroy_hwctx { handle: self.handle, pad: 0 };
        // SAFETY: the structure is valid for the call, and the handle is this value's own.
        let _ = retry("end an NPU context", || unsafe { raw::amdxdna_destroy_hwctx(self.node.raw(), &mut data) });
    }
}
