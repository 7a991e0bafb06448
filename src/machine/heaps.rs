//! Heaps: a device's memory, as the planner sees it.

use crate::sys::amdgpu::GpuMemory;

/// One heap of a device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Heap {
    /// The heap's name in messages.
    pub name: String,
    /// Bytes that may still be allocated, reserved ones excluded.
    pub available: u64,
    /// Free bytes left to other programs; see [`reserve`].
    pub reserved: u64,
    /// True if the device reads the heap's memory at full rate.
    pub device_local: bool,
    /// True if the host can map the heap's memory.
    pub host_visible: bool,
}

/// A device's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The device's name in messages.
    pub device: String,
    /// The heaps.
    pub heaps: Vec<Heap>,
    /// The largest single allocation, in bytes.
    pub max_allocation: u64,
    /// Whether all heaps are the same DRAM, as on an APU. The arena then lies where the NPU and the host see it too.
    pub unified: bool,
    /// The memory that all heaps share, if known. It may be less than the sum of the heaps.
    pub pool: Option<ApuMemory>,
}

impl DeviceMemory {
    /// Bytes that may still be allocated in all heaps together.
    pub fn available(&self) -> u64 {
        let heaps = self.heaps.iter().fold(0u64, |sum, h| sum.saturating_add(h.available));
        self.pool.map_or(heaps, ApuMemory::available)
    }

    /// The heap that measurements use, the largest device-local one or else the largest, and the bytes that they may
    /// take there: `most`, or fewer where little is free.
    pub fn measured(&self, most: u64) -> (usize, u64) {
        let best = self.heaps.iter().enumerate().max_by_key(|(_, heap)| (heap.device_local, heap.available));
        let (heap, available) = best.map_or((0, 0), |(i, heap)| (i, heap.available));
        (heap, (most.min(available / 4).min(self.max_allocation) / 4096 * 4096).max(4096))
    }

    /// The memory that remains after allocations: pairs of a heap's index and bytes.
    pub fn less(&self, taken: impl IntoIterator<Item = (usize, u64)>) -> DeviceMemory {
        let mut left = self.clone();
        for (heap, bytes) in taken {
            let Some(heap) = left.heaps.get_mut(heap) else { continue };
            heap.available = heap.available.saturating_sub(bytes);
            if let Some(pool) = &mut left.pool {
                let from_vram = if heap.device_local { bytes.min(pool.vram) } else { 0 };
                let from_system = bytes - from_vram;
                pool.vram -= from_vram;
                pool.gtt_used = pool.gtt_used.saturating_add(from_system);
                pool.system = pool.system.saturating_sub(from_system);
            }
        }
        left
    }
}

/// An AMD APU's memory as its driver counts it. The heaps that Vulkan shows are parts of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApuMemory {
    /// Free bytes of the carve-out (VRAM).
    pub vram: u64,
    /// Bytes of system memory that the driver lets the GPU use (GTT).
    pub gtt: u64,
    /// Bytes of GTT in use.
    pub gtt_used: u64,
    /// Bytes of GTT that are left to other programs.
    pub gtt_reserved: u64,
    /// Bytes of system memory that may still be allocated, reserved ones excluded.
    pub system: u64,
}

impl ApuMemory {
    /// The memory as amdgpu reports it, with `system` bytes free in the system's memory.
    pub fn of(memory: &GpuMemory, system: u64) -> ApuMemory {
        let vram = memory.vram.usable.saturating_sub(memory.vram.used);
        ApuMemory {
            vram: vram - reserve(vram),
            gtt: memory.gtt.usable,
            gtt_used: memory.gtt.used,
            gtt_reserved: 0,
            system: system - reserve(system),
        }
    }

    /// Bytes that may still be allocated, in any heap.
    pub fn available(self) -> u64 {
        self.vram
            .saturating_add(self.gtt.saturating_sub(self.gtt_used).saturating_sub(self.gtt_reserved).min(self.system))
    }

    /// Kernel parameters with which `needed` bytes would fit. `None` if they fit already, or if system memory lacks
    /// them.
    pub fn parameters(self, needed: u64) -> Option<String> {
        const GIB: u64 = 1 << 30;
        let from_system = needed.checked_sub(self.vram)?;
        let taken = self.gtt_used.checked_add(self.gtt_reserved)?;
        let gtt = taken.checked_add(from_system)?.checked_next_multiple_of(GIB)?;
        let (mib, pages) = (gtt >> 20, gtt / 4096);
        let would = from_system <= self.system && gtt > self.gtt;
        would.then(|| format!("amdgpu.gttsize={mib} ttm.pages_limit={pages} ttm.page_pool_size={pages}"))
    }
}

/// The part of `free` bytes to leave to the desktop and other programs: a sixteenth, at most 1 GiB.
pub fn reserve(free: u64) -> u64 {
    (free / 16).min(1 << 30)
}

/// The system's memory as one heap, for plans of executors on the CPU.
pub fn host_memory() -> DeviceMemory {
    let free = super::available_memory();
    let reserved = reserve(free);
    let heap = Heap {
        name: "system memory".into(),
        available: free - reserved,
        reserved,
        device_local: true,
        host_visible: true,
    };
    DeviceMemory { device: "the CPU".into(), heaps: vec![heap], max_allocation: u64::MAX, unified: true, pool: None }
}
