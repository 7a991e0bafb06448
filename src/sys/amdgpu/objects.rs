//! Objects of memory: made in VRAM or GTT, mapped for the host, and mapped in the GPU's address space.

use super::{b, create, raw, retry};
use crate::sys::DriverResult;
use crate::sys::dma_buf::Mapping;
use crate::sys::drm::{Gem, Node};

/// How the host can map a memory object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMapping {
    /// The host cannot map the object.
    None,
    /// Past the host's caches: writes are collected, reads are slow.
    WriteCombined,
    /// Through the host's caches, which the GPU's accesses look into.
    Cached,
}

/// The heap of a memory object, and how the host and other devices access it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectKind {
    /// True if the object is in VRAM while there is room. Otherwise it is in GTT.
    pub in_vram: bool,
    /// How the host can map the object.
    pub host: HostMapping,
    /// Whether other drivers may import it. The kernel keeps an object that they may not in place for every submit of
    /// the process; one that they may has to be named in each submit that uses it ([`super::context::ObjectList`]).
    pub is_shared: bool,
}

/// The use of an object by the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuAccess {
    /// Data that kernels read and write.
    Data,
    /// The GPU reads it and runs it: machine code, packets, and the arguments beside them.
    Code,
}

/// Makes an object of `size` bytes.
///
/// # Errors
/// ENOMEM: there is no room. EINVAL: `size` is 0 or not a multiple of the page size.
pub fn allocate(node: &Node, size: u64, kind: ObjectKind) -> DriverResult<Gem> {
    let vram = if kind.in_vram { b::AMDGPU_GEM_DOMAIN_VRAM } else { 0 };
    let host = match (kind.host, kind.in_vram) {
        (HostMapping::None, _) => b::AMDGPU_GEM_CREATE_NO_CPU_ACCESS,
        (HostMapping::Cached, _) | (HostMapping::WriteCombined, true) => b::AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED,
        (HostMapping::WriteCombined, false) => {
            b::AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | b::AMDGPU_GEM_CREATE_CPU_GTT_USWC
        }
    };
    let always = if kind.is_shared { 0 } else { b::AMDGPU_GEM_CREATE_VM_ALWAYS_VALID };
    let flags = host | always | b::AMDGPU_GEM_CREATE_EXPLICIT_SYNC;
    create(node, "allocate GPU memory", size, vram | b::AMDGPU_GEM_DOMAIN_GTT, flags)
}

/// Maps an object of `size` bytes for the host.
///
/// # Errors
/// EPERM: it was made without a mapping. ENOMEM.
pub fn map(node: &Node, gem: &Gem, size: u64) -> DriverResult<Mapping> {
    let what = "map GPU memory";
    let offset = retry(what, || {
        let mut data =
            b::drm_amdgpu_gem_mmap { in_: b::drm_amdgpu_gem_mmap_in { handle: gem.handle(), ..Default::default() } };
        // SAFETY: the structure is valid for the call; the kernel answers in the same union's `out`.
        unsafe { raw::amdgpu_gem_mmap(node.raw(), &mut data).map(|_| data.out.addr_ptr) }
    })?;
    Mapping::new(what, node, offset, size)
}

/// An object at an address of the GPU's address space. Dropped, it is unmapped there and closed.
#[derive(Debug)]
pub struct PlacedObject {
    node: Node,
    gem: Gem,
    address: u64,
    size: u64,
}

impl PlacedObject {
    /// Maps an object of `size` bytes at `address`.
    ///
    /// # Errors
    /// EINVAL: the addresses are taken, or no process may use them. ENOMEM.
    pub fn new(node: &Node, gem: Gem, address: u64, size: u64, access: GpuAccess) -> DriverResult<PlacedObject> {
        let flags = match access {
            GpuAccess::Data => b::AMDGPU_VM_PAGE_READABLE | b::AMDGPU_VM_PAGE_WRITEABLE,
            GpuAccess::Code => b::AMDGPU_VM_PAGE_READABLE | b::AMDGPU_VM_PAGE_EXECUTABLE,
        };
        address_space(node, "map GPU memory in its address space", &gem, b::AMDGPU_VA_OP_MAP, flags, address, size)?;
        Ok(PlacedObject { node: node.clone(), gem, address, size })
    }

    /// The memory object that is mapped.
    pub fn gem(&self) -> &Gem {
        &self.gem
    }

    /// The GPU address of the object's first byte.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for PlacedObject {
    fn drop(&mut self) {
        let what = "unmap GPU memory";
        let _ = address_space(&self.node, what, &self.gem, b::AMDGPU_VA_OP_UNMAP, 0, self.address, self.size);
    }
}

/// Makes the GEM_VA ioctl, which maps an object into the GPU's address space or removes it.
fn address_space(
    node: &Node,
    what: &str,
    gem: &Gem,
    operation: u32,
    flags: u32,
    address: u64,
    size: u64,
) -> DriverResult<()> {
    let data = b::drm_amdgpu_gem_va {
        handle: gem.handle(),
        operation,
        flags,
        va_address: address,
        offset_in_bo: 0,
        map_size: size,
        ..Default::default()
    };
    // SAFETY: the structure is valid for the call.
    retry(what, || unsafe { raw::amdgpu_gem_va(node.raw(), &data) }).map(drop)
}
