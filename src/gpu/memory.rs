//! Device memory: one buffer per allocation, each with its device address, mapped where the host can see it.

use super::device::{Gpu, failure};
use crate::plan::{Heap, Memory};
use crate::{Error, Result};
use ash::vk;
use std::rc::Rc;

/// A buffer with memory of its own.
pub struct Buffer {
    gpu: Rc<Gpu>,
    /// The buffer.
    pub handle: vk::Buffer,
    memory: vk::DeviceMemory,
    /// Bytes.
    pub size: u64,
    /// Its device address.
    pub address: u64,
    mapped: Option<std::ptr::NonNull<u8>>,
    /// Whether the host reads it through its caches.
    pub cached: bool,
}

/// What a buffer's memory must offer beside lying in its heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only the device needs it; mapped where that costs nothing.
    Device,
    /// The host must be able to write and read it.
    Host,
}

/// The memory type for a buffer in `heap`: of those that `allowed` (a bit set), the first with the most of what helps.
fn memory_type(gpu: &Gpu, heap: usize, allowed: u32, access: Access) -> Option<u32> {
    use vk::MemoryPropertyFlags as F;
    let mapped = F::HOST_VISIBLE | F::HOST_COHERENT;
    let types = &gpu.memory.memory_types[..gpu.memory.memory_type_count as usize];
    let fit = types.iter().enumerate().filter(|(i, t)| {
        let flags = t.property_flags;
        t.heap_index as usize == heap
            && allowed & (1 << i) != 0
            && !flags.intersects(F::PROTECTED | F::LAZILY_ALLOCATED | F::DEVICE_COHERENT_AMD)
            && (access == Access::Device || flags.contains(mapped))
    });
    let worth = |flags: F| u32::from(flags.contains(mapped)) + u32::from(flags.contains(mapped | F::HOST_CACHED));
    fit.max_by_key(|(i, t)| (worth(t.property_flags), std::cmp::Reverse(*i))).map(|(i, _)| i as u32)
}

impl Buffer {
    /// Allocates `size` bytes in `heap`.
    ///
    /// # Errors
    /// Device: the driver refuses, or the heap has no memory type that serves.
    pub fn new(gpu: &Rc<Gpu>, size: u64, heap: usize, access: Access) -> Result<Buffer> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size.max(16)).usage(usage);
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
        };
        buffer.bind(heap, access)?;
        Ok(buffer)
    }

    fn bind(&mut self, heap: usize, access: Access) -> Result<()> {
        let device = &self.gpu.device;
        // SAFETY: the buffer was just made by this device and is not in use.
        let needs = unsafe { device.get_buffer_memory_requirements(self.handle) };
        let index = memory_type(&self.gpu, heap, needs.memory_type_bits, access).ok_or_else(|| {
            Error::device(
                format!("heap {heap} has no memory type for a buffer"),
                "update the driver or use `--device cpu`",
            )
        })?;
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(index)
            .push_next(&mut flags);
        // SAFETY: the memory type is one the buffer allows; the memory is bound once and mapped whole, once.
        unsafe {
            self.memory = device.allocate_memory(&info, None).map_err(|r| no_memory(needs.size, r))?;
            device.bind_buffer_memory(self.handle, self.memory, 0).map_err(failure("bind memory"))?;
            self.address =
                device.get_buffer_device_address(&vk::BufferDeviceAddressInfo::default().buffer(self.handle));
            let properties = self.gpu.memory.memory_types[index as usize].property_flags;
            self.cached = properties.contains(vk::MemoryPropertyFlags::HOST_CACHED);
            if properties.contains(vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT) {
                let at = device
                    .map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
                    .map_err(failure("map memory"))?;
                self.mapped = std::ptr::NonNull::new(at.cast());
            }
        }
        Ok(())
    }

    /// Hides the mapping, as if the host could not see this memory.
    pub fn hide(&mut self) {
        self.mapped = None;
    }

    /// The buffer's bytes, where the host sees them. What the device writes meanwhile shows only after a wait.
    pub fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the mapping covers `size` bytes for the buffer's life. The device writes only between a submit and its
        // wait, and executors hold no such slice across one.
        self.mapped.map(|p| unsafe { std::slice::from_raw_parts(p.as_ptr(), self.size as usize) })
    }

    /// As [`Buffer::bytes`], for writing.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as in `bytes`; `&mut self` makes it the only host view.
        self.mapped.map(|p| unsafe { std::slice::from_raw_parts_mut(p.as_ptr(), self.size as usize) })
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

/// Whether what the host writes to or reads from device memory must pass through a staging buffer: some heap cannot be
/// mapped, or is mapped without the host's caches.
pub fn needs_staging(gpu: &Gpu) -> bool {
    (0..gpu.memory.memory_heap_count as usize).any(|heap| {
        memory_type(gpu, heap, u32::MAX, Access::Device).is_some_and(|t| {
            let flags = gpu.memory.memory_types[t as usize].property_flags;
            !flags.contains(vk::MemoryPropertyFlags::HOST_COHERENT | vk::MemoryPropertyFlags::HOST_CACHED)
        })
    })
}

/// What an allocation that the plan held possible failed for.
fn no_memory(size: u64, result: vk::Result) -> Error {
    let size = crate::plan::bytes(size);
    match result {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => Error::refused(
            format!("the driver has no {size} left, although it said so: {result}"),
            "close what else uses this device's memory, or use a smaller model or --ctx",
        ),
        r => failure(&format!("allocate {size}"))(r),
    }
}

/// The device's heaps as the plan sees them.
pub fn describe(gpu: &Gpu) -> Memory {
    let budgets = gpu.heap_budgets();
    let (heap_count, system) = (budgets.len(), crate::machine::available_memory());
    let types = &gpu.memory.memory_types[..gpu.memory.memory_type_count as usize];
    let heaps = budgets
        .into_iter()
        .enumerate()
        .map(|(i, available)| {
            let device_local = gpu.memory.memory_heaps[i].flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
            let host_visible = types.iter().any(|t| {
                t.heap_index as usize == i
                    && t.property_flags
                        .contains(vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT)
            });
            // What lies in system memory cannot be more than what is free there, which drivers do not tell.
            let available = match gpu.caps.kind {
                vk::PhysicalDeviceType::CPU => available.min(system),
                vk::PhysicalDeviceType::INTEGRATED_GPU if !device_local || heap_count == 1 => available.min(system),
                _ => available,
            };
            let kind = if device_local { "device-local" } else { "host" };
            Heap { name: format!("{kind} heap {i}"), available, device_local, host_visible }
        })
        .collect();
    let unified = gpu.caps.kind != vk::PhysicalDeviceType::DISCRETE_GPU;
    Memory { device: gpu.caps.name.clone(), heaps, max_allocation: gpu.caps.max_allocation, unified }
}
