//! The GPU's memory: an object of the kernel's for each allocation, with its addresses and the host's mapping.

use super::device::{GTT_HEAP, RenderDevice, VRAM_HEAP};
use crate::error::{Setting, text};
use crate::replay::driver::{HostAccess, Memory};
use crate::sys::amdgpu::objects::{GpuAccess, HostMapping, ObjectKind, PlacedObject, allocate, map};
use crate::sys::dma_buf::{DmaBuf, Mapping};
use crate::{Error, Result, display};
use nix::errno::Errno;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

/// Objects of this size and more begin at a multiple of it, so that a page table's entry covers as much.
const LARGE: u64 = 2 << 20;

/// An allocation. The GPU's accesses look into the host's caches where the host maps it through them.
pub struct GpuBuffer {
    place: Option<TakenAddresses>,
    host: Option<Mapping>,
    dma_buf: Option<DmaBuf>,
    address: u64,
    size: u64,
    is_cached: bool,
}

/// A range of the GPU's addresses with the memory mapped there. Dropping it frees both.
struct TakenAddresses {
    device: Rc<RenderDevice>,
    access: GpuAccess,
    /// Taken addresses: one page more than the object, which stays unmapped.
    taken: Range<u64>,
    object: Option<PlacedObject>,
    is_shared: bool,
}

impl GpuBuffer {
    /// Allocates `size` bytes of data in one of the plan's heaps. `is_shared`: other drivers may import it.
    ///
    /// # Errors
    /// Refused: there is no room. Device: there is no such heap, or the kernel refuses.
    pub fn data(
        device: &Rc<RenderDevice>,
        size: u64,
        heap: usize,
        access: HostAccess,
        is_shared: bool,
    ) -> Result<GpuBuffer> {
        if ![VRAM_HEAP, GTT_HEAP].contains(&heap) {
            return Err(Error::device(format!("the GPU has no heap {heap}"), "report this"));
        }
        // Shared memory must not move: it stays in GTT, where other drivers have mapped it.
        let in_vram = heap == VRAM_HEAP && !is_shared;
        let host = match access {
            HostAccess::None => HostMapping::None,
            HostAccess::Host if !in_vram => HostMapping::Cached,
            HostAccess::Host | HostAccess::Device => HostMapping::WriteCombined,
        };
        GpuBuffer::new(device, size, ObjectKind { in_vram, host, is_shared }, GpuAccess::Data)
    }

    /// Allocates `size` bytes for code, packets and push blocks, which the host writes.
    ///
    /// # Errors
    /// As [`GpuBuffer::data`].
    pub fn code(device: &Rc<RenderDevice>, size: u64) -> Result<GpuBuffer> {
        let kind = ObjectKind { in_vram: false, host: HostMapping::WriteCombined, is_shared: false };
        GpuBuffer::new(device, size, kind, GpuAccess::Code)
    }

    fn new(device: &Rc<RenderDevice>, size: u64, kind: ObjectKind, access: GpuAccess) -> Result<GpuBuffer> {
        let refused = |cause: String| {
            let remedy = "close what else uses the GPU's memory, boot with more GTT (amdgpu.gttsize), or use a smaller model or ";
            let remedy = text!(remedy, Setting::Context);
            Error::refused(cause, remedy)
        };
        let page = device.compute.page;
        let whole = size.max(1).checked_next_multiple_of(page).filter(|whole| whole.checked_add(page).is_some());
        let whole = whole.ok_or_else(|| refused(format!("{size} B are more than any GPU has")))?;
        let free = if access == GpuAccess::Data { &device.data } else { &device.window };
        let alignment = if whole >= LARGE { LARGE } else { page };
        let address = free.borrow_mut().take(whole + page, alignment);
        let address = address.ok_or_else(|| refused(format!("no addresses are left for {}", display::bytes(size))))?;
        // From here on an error frees the addresses and the object: `TakenAddresses` is dropped.
        let taken = address..address + whole + page;
        let mut place = TakenAddresses { device: device.clone(), access, taken, object: None, is_shared: false };
        let gem = allocate(&device.node, whole, kind).map_err(|e| match e.errno {
            Errno::ENOMEM | Errno::ENOSPC => {
                refused(format!("the GPU has no {} left, although it said so", display::bytes(size)))
            }
            _ => e.into(),
        })?;
        let dma_buf = kind.is_shared.then(|| gem.export()).transpose()?;
        let host = match (&dma_buf, kind.host) {
            (_, HostMapping::None) => None,
            // The same pages as by the node itself.
            (Some(shared), _) => Some(shared.map()?),
            (None, _) => Some(map(&device.node, &gem, whole)?),
        };
        let object = place.object.insert(PlacedObject::new(&device.node, gem, address, whole, access)?);
        if kind.is_shared {
            device.shared.borrow_mut().add(object.gem());
            place.is_shared = true;
        }
        let is_cached = kind.host == HostMapping::Cached;
        Ok(GpuBuffer { place: Some(place), host, dma_buf, address, size, is_cached })
    }
}

impl Drop for TakenAddresses {
    fn drop(&mut self) {
        if let Some(object) = self.object.take()
            && self.is_shared
        {
            self.device.shared.borrow_mut().remove(object.gem());
        }
        let free = if self.access == GpuAccess::Data { &self.device.data } else { &self.device.window };
        free.borrow_mut().give(self.taken.start, self.taken.end - self.taken.start);
    }
}

impl Drop for GpuBuffer {
    fn drop(&mut self) {
        let place = self.place.take();
        if place.as_ref().is_some_and(|place| place.device.is_hung.get()) {
            // The GPU may still use it. The process's end frees it.
            std::mem::forget((place, self.host.take()));
        }
    }
}

impl Memory for GpuBuffer {
    fn address(&self) -> u64 {
        self.address
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn is_cached(&self) -> bool {
        self.is_cached
    }

    fn hide(&mut self) {
        self.host = None;
    }

    fn mapping(&self) -> Option<NonNull<u8>> {
        self.host.as_ref().map(Mapping::start)
    }

    fn dma_buf(&self) -> Option<&DmaBuf> {
        self.dma_buf.as_ref()
    }
}
