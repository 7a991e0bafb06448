//! Programs on the NPU: buffers, hardware contexts that hold columns of the array, and commands.

use super::bindings as b;
use super::dma_buf::Mapping;
use super::drm::{Gem, Node};
use super::failure::{Failure, Result, retry};
use super::raw;
use nix::errno::Errno;
use std::time::Duration;

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferKind {
    /// Data: ordinary memory, shared with the CPU, and with other drivers by dma-buf.
    Shared,
    /// The device heap: 64 MiB, one per process. It is mapped, aligned to its size, before any other buffer is made.
    DeviceHeap,
    /// Instructions and programs, allocated from the device heap.
    Device,
    /// A command.
    Command,
}

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Offset for mapping it through the node; `None` if it cannot be mapped.
    pub map_offset: Option<u64>,
    /// Address in this process, once the buffer or its heap is mapped.
    pub address: Option<u64>,
    /// Address on the device; `None` if it gets one only when mapped.
    pub device_address: Option<u64>,
}

/// The direction of a synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Makes the CPU's writes visible to the NPU.
    ToDevice,
    /// Makes the NPU's writes visible to the CPU.
    FromDevice,
}

/// A hardware context: it holds columns of the array until dropped.
#[derive(Debug)]
pub struct HardwareContext<'a> {
    node: &'a Node,
    handle: u32,
    timeline: u32,
}

/// Makes a buffer of `size` bytes.
///
/// # Errors
/// ENOMEM: the locked-memory limit is reached, or memory is full. EINVAL: the driver rejects the size.
pub fn allocate(node: &Node, kind: BufferKind, size: u64) -> Result<Gem<'_>> {
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
pub fn locate(node: &Node, buffer: &Gem<'_>) -> Result<Place> {
    let mut data = b::amdxdna_drm_get_bo_info { handle: buffer.handle(), ..Default::default() };
    // SAFETY: the structure is valid for the call.
    retry("ask where an NPU buffer lies", || unsafe { raw::amdxdna_get_bo_info(node.raw(), &mut data) })?;
    // For a missing address the driver's header says 0, but the driver answers all ones.
    let known = |address: u64| (address != 0 && address != u64::MAX).then_some(address);
    Ok(Place { map_offset: known(data.map_offset), address: known(data.vaddr), device_address: known(data.xdna_addr) })
}

/// Maps `size` bytes of a buffer, made here or imported, through its node. `None` if it cannot be mapped.
///
/// # Errors
/// As [`locate`]. ENOMEM, EINVAL: `size` exceeds the buffer.
pub fn map(node: &Node, buffer: &Gem<'_>, size: u64) -> Result<Option<Mapping>> {
    let offset = locate(node, buffer)?.map_offset;
    offset.map(|offset| Mapping::new("map an NPU buffer", node, offset, size)).transpose()
}

/// Makes `size` bytes of a buffer from `offset` on visible to the other side.
///
/// # Errors
/// EOPNOTSUPP: an imported buffer. Flush the CPU's cache lines by hand instead.
pub fn sync(node: &Node, buffer: &Gem<'_>, direction: Direction, offset: u64, size: u64) -> Result<()> {
    let direction = match direction {
        Direction::ToDevice => b::AMDXDNA_SYNC_TO_DEVICE,
        Direction::FromDevice => b::AMDXDNA_SYNC_FROM_DEVICE,
    };
    let mut data = b::amdxdna_drm_sync_bo { handle: buffer.handle(), direction, offset, size };
    // SAFETY: the structure is valid for the call.
    retry("synchronise an NPU buffer", || unsafe { raw::amdxdna_sync_bo(node.raw(), &mut data) }).map(drop)
}

/// Sets the power mode by its number in the interface (0 default … 4 turbo). Only root may.
///
/// # Errors
/// EPERM, EACCES: not root. EINVAL: no such mode.
pub fn set_power_mode(node: &Node, mode: u8) -> Result<()> {
    let mode = b::amdxdna_drm_power_mode { power_mode: mode, ..Default::default() };
    let mut data = b::amdxdna_drm_set_state {
        param: b::DRM_AMDXDNA_SET_POWER_MODE,
        buffer_size: size_of_val(&mode) as u32,
        buffer: (&raw const mode) as u64,
    };
    // SAFETY: the structure and the one that it points to are valid for the call.
    retry("set the NPU's power mode", || unsafe { raw::amdxdna_set_state(node.raw(), &mut data) }).map(drop)
}

impl<'a> HardwareContext<'a> {
    /// Reserves `tiles` compute tiles: whole columns of four.
    ///
    /// # Errors
    /// ENOSPC, EAGAIN: no columns are free. EINVAL: the heap is missing or unmapped, or `tiles` exceeds the array.
    pub fn new(node: &'a Node, tiles: u32) -> Result<HardwareContext<'a>> {
        let qos = b::amdxdna_qos_info::default();
        let mut data = b::amdxdna_drm_create_hwctx {
            qos_p: (&raw const qos) as u64,
            // XRT's value: the driver requires some number here.
            max_opc: 0x800,
            num_tiles: tiles,
            ..Default::default()
        };
        // SAFETY: the structure and the one that it points to are valid for the call.
        retry("make an NPU context", || unsafe { raw::amdxdna_create_hwctx(node.raw(), &mut data) })?;
        Ok(HardwareContext { node, handle: data.handle, timeline: data.syncobj_handle })
    }

    /// Loads `program`, a [`BufferKind::Device`] buffer that holds a partition image, as the context's one compute unit.
    ///
    /// # Errors
    /// EINVAL: the driver rejects it.
    pub fn load(&self, program: &Gem<'_>) -> Result<()> {
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
    pub fn submit(&self, command: &Gem<'_>, buffers: &[&Gem<'_>]) -> Result<u64> {
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
    pub fn wait(&self, number: u64, timeout: Duration) -> Result<()> {
        self.node.wait_timeline(self.timeline, number, timeout)
    }
}

impl Drop for HardwareContext<'_> {
    fn drop(&mut self) {
        let mut data = b::amdxdna_drm_destroy_hwctx { handle: self.handle, pad: 0 };
        // SAFETY: the structure is valid for the call, and the handle is this value's own.
        let _ = retry("end an NPU context", || unsafe { raw::amdxdna_destroy_hwctx(self.node.raw(), &mut data) });
    }
}
