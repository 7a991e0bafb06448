//! Heaps: a device's memory, and the choice of heap and memory type for each use.

use crate::lower::caps::DeviceKind;
use crate::machine::heaps::{ApuMemory, DeviceMemory, Heap, reserve};
use crate::replay::driver::HostAccess;
use crate::sys::amdgpu;
use crate::sys::drm::Node;
use crate::vulkan::device::Gpu;
use crate::{Error, Result};
use ash::vk;
use std::path::Path;

/// The memory types for a buffer in `heap`, among those in the bit set `allowed`, the best first: mapped and cached
/// types, then mapped ones; for [`HostAccess::None`] types that cannot be mapped come first.
///
/// A driver may have less memory of one type than its heap has. NVIDIA's driver of 2026 charges twice a buffer's bytes
/// to the heap's budget for a host-visible type, and refuses a further buffer of that type while other types can still
/// use the whole rest.
pub(crate) fn memory_types(gpu: &Gpu, heap: usize, allowed: u32, access: HostAccess) -> Vec<u32> {
    fitting(&gpu.memory.memory_types[..gpu.memory.memory_type_count as usize], heap, allowed, access)
}

fn fitting(types: &[vk::MemoryType], heap: usize, allowed: u32, access: HostAccess) -> Vec<u32> {
    use vk::MemoryPropertyFlags as F;
    let mapped = F::HOST_VISIBLE | F::HOST_COHERENT;
    let fits = |i: &u32| {
        let vk::MemoryType { property_flags: flags, heap_index, .. } = types[*i as usize];
        heap_index as usize == heap
            && allowed & (1 << i) != 0
            && !flags.intersects(F::PROTECTED | F::LAZILY_ALLOCATED | F::DEVICE_COHERENT_AMD)
            && (access != HostAccess::Host || flags.contains(mapped))
    };
    let worth = |flags: F| match access {
        HostAccess::None => u32::from(!flags.contains(F::HOST_VISIBLE)),
        _ => u32::from(flags.contains(mapped)) + u32::from(flags.contains(mapped | F::HOST_CACHED)),
    };
    let mut fit: Vec<u32> = (0..types.len() as u32).filter(fits).collect();
    fit.sort_by_key(|&i| std::cmp::Reverse(worth(types[i as usize].property_flags)));
    fit
}

/// True if host access to device memory must go through a staging buffer: some heap cannot be mapped, or only uncached.
pub fn needs_staging(gpu: &Gpu) -> bool {
    (0..gpu.memory.memory_heap_count as usize).any(|heap| {
        memory_types(gpu, heap, u32::MAX, HostAccess::Device).first().is_some_and(|&t| {
            let flags = gpu.memory.memory_types[t as usize].property_flags;
            !flags.contains(vk::MemoryPropertyFlags::HOST_COHERENT | vk::MemoryPropertyFlags::HOST_CACHED)
        })
    })
}

/// The device's heaps as the plan sees them: the driver's budget, less a reserve for other processes.
pub fn describe(gpu: &Gpu) -> DeviceMemory {
    let budgets = gpu.heap_budgets();
    let (heap_count, system) = (budgets.len(), crate::machine::available_memory());
    let pool = pool(gpu, system);
    let heaps = budgets
        .into_iter()
        .enumerate()
        .map(|(i, budget)| {
            let device_local = gpu.memory.memory_heaps[i].flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
            let host_visible = !memory_types(gpu, i, u32::MAX, HostAccess::Host).is_empty();
            // A heap in system memory is limited by free system memory, which drivers do not report.
            let free = match gpu.caps.kind {
                DeviceKind::Cpu => budget.min(system),
                DeviceKind::Integrated if pool.is_some() => budget,
                DeviceKind::Integrated if !device_local || heap_count == 1 => budget.min(system),
                _ => budget,
            };
            // A pool's sizes already leave out its reserve.
            let reserved = if pool.is_some() { 0 } else { reserve(free) };
            let kind = if device_local { "device-local" } else { "host" };
            let name = format!("{kind} heap {i}");
            Heap { name, available: free - reserved, reserved, device_local, host_visible }
        })
        .collect();
    let unified = gpu.caps.kind != DeviceKind::Discrete;
    DeviceMemory { device: gpu.caps.name.clone(), heaps, max_allocation: gpu.caps.max_allocation, unified, pool }
}

/// An APU's memory as amdgpu reports it. RADV divides the same bytes into heaps by its own rule.
fn pool(gpu: &Gpu, system: u64) -> Option<ApuMemory> {
    if gpu.caps.kind != DeviceKind::Integrated {
        return None;
    }
    let node = Node::open(Path::new(&format!("/dev/dri/renderD{}", gpu.features.render_node?))).ok()?;
    if node.version().ok()?.name != "amdgpu" {
        return None;
    }
    amdgpu::memory(&node).ok().map(|memory| ApuMemory::of(&memory, system))
}

/// A heap that the host can map, preferably through its caches.
///
/// # Errors
/// Device: no heap can be mapped.
pub fn host_heap(gpu: &Gpu) -> Result<usize> {
    use vk::MemoryPropertyFlags as F;
    let types = &gpu.memory.memory_types[..gpu.memory.memory_type_count as usize];
    let mapped = types.iter().filter(|t| t.property_flags.contains(F::HOST_VISIBLE | F::HOST_COHERENT));
    let best = mapped.max_by_key(|t| t.property_flags.contains(F::HOST_CACHED));
    best.map(|t| t.heap_index as usize)
        .ok_or_else(|| Error::device("the device has no memory that the host can map", "update the driver"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vk::MemoryPropertyFlags as F;

    /// The memory types of NVIDIA's driver for an H200: heap 0 is the device's memory, heap 1 the host's.
    #[test]
    fn types_for_the_host_come_first_only_where_the_host_needs_them() {
        let local = F::DEVICE_LOCAL;
        let mapped = F::HOST_VISIBLE | F::HOST_COHERENT;
        let types = [(F::empty(), 1), (local, 0), (mapped, 1), (mapped | F::HOST_CACHED, 1), (local | mapped, 0)];
        let types = types.map(|(property_flags, heap_index)| vk::MemoryType { property_flags, heap_index });
        let fit = |heap, access| fitting(&types, heap, u32::MAX, access);
        assert_eq!(fit(0, HostAccess::None), [1, 4]);
        assert_eq!(fit(0, HostAccess::Device), [4, 1]);
        assert_eq!(fit(0, HostAccess::Host), [4]);
        assert_eq!(fit(1, HostAccess::Host), [3, 2]);
        assert_eq!(fitting(&types, 0, 0b1, HostAccess::Device), [0u32; 0]);
    }
}
