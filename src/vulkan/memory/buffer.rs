//! Device memory: one buffer per allocation, with its device address, mapped if the host can see it.

use crate::error::{Setting, text};
use crate::replay::driver::{HostAccess, Memory};
use crate::sys::dma_buf::{self, DmaBuf, Mapping};
use crate::vulkan::device::{Gpu, failure, sharing};
use crate::vulkan::memory::heaps::memory_types;
use crate::{Error, Result};
use ash::vk;
use std::cell::Cell;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::rc::Rc;

/// A buffer and its memory: one allocation each.
pub struct Buffer {
    gpu: Rc<Gpu>,
    pub(in crate::vulkan) handle: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
    address: u64,
    mapped: Option<NonNull<u8>>,
    cached: bool,
    /// The memory as a dma-buf, if it is one.
    dma_buf: Option<DmaBuf>,
    /// The host's mapping of a dma-buf that another driver allocated.
    view: Option<Mapping>,
    /// True while the host's access to the dma-buf is announced to the driver that allocated it.
    held: Cell<bool>,
}

/// The allocation that a buffer is made of.
#[derive(Debug)]
pub enum Backing {
    /// Memory that the Vulkan driver allocates.
    Driver,
    /// Memory that the Vulkan driver allocates and exports as a dma-buf.
    Exported,
    /// A dma-buf of another driver, which is imported.
    Imported(DmaBuf),
}

impl Buffer {
    /// Allocates `size` bytes in `heap`.
    ///
    /// # Errors
    /// Device: the driver refuses, or the heap has no suitable memory type.
    pub fn new(gpu: &Rc<Gpu>, size: u64, heap: usize, access: HostAccess) -> Result<Buffer> {
        Buffer::backed(gpu, size, heap, access, Backing::Driver)
    }

    /// As [`Buffer::new`], with memory that other drivers may share. A dma-buf is imported into `heap` if it allows a
    /// memory type there, else into any heap.
    ///
    /// # Errors
    /// As [`Buffer::new`]. Also Device: the driver cannot share memory in this way, or the dma-buf is too small.
    pub fn backed(gpu: &Rc<Gpu>, size: u64, heap: usize, access: HostAccess, backing: Backing) -> Result<Buffer> {
        let mut shared = sharing::buffer_info();
        let mut info = vk::BufferCreateInfo::default().size(size.max(16)).usage(sharing::USAGE);
        if !matches!(backing, Backing::Driver) {
            info = info.push_next(&mut shared);
        }
        // SAFETY: the device is alive as long as `gpu`.
        let handle = unsafe { gpu.device.create_buffer(&info, None) }.map_err(failure("create a buffer"))?;
        let mut buffer = Buffer {
            gpu: gpu.clone(),
            handle,
            memory: vk::DeviceMemory::null(),
            size,
            address: 0,
            mapped: None,
            cached: false,
            dma_buf: None,
            view: None,
            held: Cell::new(false),
        };
        let index = buffer.allocate(heap, access, &backing)?;
        buffer.bind()?;
        match backing {
            Backing::Imported(dma_buf) => buffer.view(dma_buf)?,
            Backing::Exported => {
                buffer.map(index, access)?;
                buffer.dma_buf = Some(DmaBuf::from_fd(gpu.dma_bufs()?.export(buffer.memory)?)?);
            }
            Backing::Driver => buffer.map(index, access)?,
        }
        Ok(buffer)
    }

    /// Allocates the buffer's memory; returns its type. If the driver has no memory of the best type left,
    /// the next one is used.
    fn allocate(&mut self, heap: usize, access: HostAccess, backing: &Backing) -> Result<u32> {
        // SAFETY: the buffer was just made by this device and is not in use.
        let needs = unsafe { self.gpu.device.get_buffer_memory_requirements(self.handle) };
        let types = match backing {
            Backing::Imported(dma_buf) => {
                let allowed = needs.memory_type_bits & self.gpu.dma_bufs()?.memory_types(dma_buf.as_fd())?;
                let mut types = memory_types(&self.gpu, heap, allowed, HostAccess::Device);
                types.truncate(1);
                if types.is_empty() && allowed != 0 { vec![allowed.trailing_zeros()] } else { types }
            }
            _ => memory_types(&self.gpu, heap, needs.memory_type_bits, access),
        };
        let mut result = Err(Error::device(
            format!("heap {heap} has no memory type for a buffer"),
            text!("update the driver or use ", Setting::Cpu),
        ));
        for index in types {
            result = self.allocate_of(index, needs.size, backing).map(|()| index);
            if !matches!(result, Err(Error::Refused { .. })) {
                break;
            }
        }
        result
    }

    fn allocate_of(&mut self, index: u32, size: u64, backing: &Backing) -> Result<()> {
        let device = &self.gpu.device;
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(self.handle);
        let (mut export, mut import);
        let mut info =
            vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(index).push_next(&mut flags);
        match backing {
            Backing::Driver => {}
            Backing::Exported => {
                export = sharing::export_info();
                info = info.push_next(&mut dedicated).push_next(&mut export);
            }
            Backing::Imported(dma_buf) => {
                check_size(dma_buf.size(), size)?;
                let own = dma_buf.as_fd().try_clone_to_owned();
                import = sharing::import_info(own.map_err(|e| no_descriptor(&e))?);
                info = info.push_next(&mut dedicated).push_next(&mut import);
            }
        }
        // SAFETY: the memory type is one the buffer allows; all structures live through the call.
        self.memory = unsafe { device.allocate_memory(&info, None) }.map_err(|r| match backing {
            Backing::Driver => no_memory(size, r),
            Backing::Exported => failure("allocate memory to export as a dma-buf")(r),
            Backing::Imported(_) => failure("import a dma-buf")(r),
        })?;
        Ok(())
    }

    fn bind(&mut self) -> Result<()> {
        let device = &self.gpu.device;
        // SAFETY: the memory was allocated for this buffer, and is bound once.
        unsafe {
            device.bind_buffer_memory(self.handle, self.memory, 0).map_err(failure("bind memory"))?;
            self.address =
                device.get_buffer_device_address(&vk::BufferDeviceAddressInfo::default().buffer(self.handle));
        }
        Ok(())
    }

    /// Maps the driver's memory, unless the host cannot see it or never needs it.
    fn map(&mut self, index: u32, access: HostAccess) -> Result<()> {
        if access == HostAccess::None {
            return Ok(());
        }
        let properties = self.gpu.memory.memory_types[index as usize].property_flags;
        self.cached = properties.contains(vk::MemoryPropertyFlags::HOST_CACHED);
        if properties.contains(vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT) {
            let (memory, flags) = (self.memory, vk::MemoryMapFlags::empty());
            // SAFETY: the memory is visible to the host, and mapped whole, once.
            let at = unsafe { self.gpu.device.map_memory(memory, 0, vk::WHOLE_SIZE, flags) };
            self.mapped = NonNull::new(at.map_err(failure("map memory"))?.cast());
        }
        Ok(())
    }

    /// Maps a dma-buf through the driver that made it. Mapping it through Vulkan is unsafe: amdgpu allows that for an
    /// imported dma-buf, and then kills the process that reads it.
    fn view(&mut self, dma_buf: DmaBuf) -> Result<()> {
        let view = dma_buf.map()?;
        self.mapped = Some(view.start());
        self.view = Some(view);
        self.cached = true;
        self.dma_buf = Some(dma_buf);
        self.to_host()
    }

    fn hold(&self, held: bool, say: impl FnOnce(&DmaBuf) -> crate::sys::DriverResult<()>) -> Result<()> {
        let Some(dma_buf) = self.dma_buf.as_ref().filter(|_| self.view.is_some() && self.held.get() != held) else {
            return Ok(());
        };
        match say(dma_buf) {
            // A memfd has only the host's caches.
            Err(e) if e.errno == nix::errno::Errno::ENOTTY => {}
            other => other?,
        }
        self.held.set(held);
        Ok(())
    }
}

impl Memory for Buffer {
    fn address(&self) -> u64 {
        self.address
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn is_cached(&self) -> bool {
        self.cached
    }

    fn hide(&mut self) {
        self.mapped = None;
    }

    fn mapping(&self) -> Option<NonNull<u8>> {
        self.mapped
    }

    fn dma_buf(&self) -> Option<&DmaBuf> {
        self.dma_buf.as_ref()
    }

    fn to_host(&self) -> Result<()> {
        self.hold(true, |d| d.begin(dma_buf::Access::ReadWrite))
    }

    fn to_device(&self) -> Result<()> {
        self.hold(false, |d| d.end(dma_buf::Access::ReadWrite))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.gpu.hung.get() {
            return;
        }
        // SAFETY: executors wait for the device before they drop buffers; freeing memory unmaps it.
        unsafe {
            self.gpu.device.destroy_buffer(self.handle, None);
            self.gpu.device.free_memory(self.memory, None);
        }
    }
}

fn no_descriptor(e: &std::io::Error) -> Error {
    Error::device(format!("cannot duplicate a dma-buf's descriptor: {e}"), "raise `ulimit -n`")
}

/// Checks a dma-buf's size. A driver may trust a given size, and access past the dma-buf's end kills the process.
fn check_size(size: u64, needed: u64) -> Result<()> {
    match size >= needed {
        true => Ok(()),
        false => Err(Error::device(
            format!("a dma-buf of {size} B was given where {needed} B are needed"),
            "allocate a larger one",
        )),
    }
}

/// The error of a failed allocation that the plan considered possible.
fn no_memory(size: u64, result: vk::Result) -> Error {
    let size = crate::display::bytes(size);
    match result {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => Error::refused(
            format!("the driver has no {size} left, although it said so: {result}"),
            text!("close what else uses this device's memory, or use a smaller model or ", Setting::Context),
        ),
        r => failure(&format!("allocate {size}"))(r),
    }
}
