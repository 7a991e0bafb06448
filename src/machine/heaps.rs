//! Heaps: a device's memory as plans see it.

/// One heap of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heap {
    /// As messages name it.
    pub name: String,
    /// Bytes that may still be allocated, without those that are reserved.
    pub available: u64,
    /// Free bytes that are left to others; see [`reserve`].
    pub reserved: u64,
    /// The device reads it at its full rate.
    pub device_local: bool,
    /// The host can map it.
    pub host_visible: bool,
}

/// A device's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The device, as messages name it.
    pub device: String,
    /// Its heaps.
    pub heaps: Vec<Heap>,
    /// The largest single allocation, in bytes.
    pub max_allocation: u64,
    /// All heaps are the same DRAM, as on an APU: the arena then lies where the NPU and the host see it too.
    pub unified: bool,
    /// What the heaps are parts of, where that is known and may be less than their sum.
    pub pool: Option<Pool>,
}

impl Memory {
    /// Bytes that may still be allocated, in all heaps together.
    pub fn available(&self) -> u64 {
        let heaps = self.heaps.iter().fold(0u64, |sum, h| sum.saturating_add(h.available));
        self.pool.map_or(heaps, Pool::available)
    }
}

/// The memory of an AMD APU, as its driver counts it: whatever heaps Vulkan shows, they are this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Free bytes of the carve-out (VRAM).
    pub vram: u64,
    /// Bytes of system memory that the driver lets the GPU have (GTT).
    pub gtt: u64,
    /// Those of them that are taken, and those that are kept free.
    pub gtt_used: u64,
    /// See [`Pool::gtt_used`].
    pub gtt_reserved: u64,
    /// Bytes of system memory that may still be taken, without those that are reserved.
    pub system: u64,
}

impl Pool {
    /// Bytes that may still be allocated, in whichever heap.
    pub fn available(self) -> u64 {
        self.vram
            .saturating_add(self.gtt.saturating_sub(self.gtt_used).saturating_sub(self.gtt_reserved).min(self.system))
    }

    /// The kernel's parameters with which `needed` bytes would fit, if the system's memory has so much.
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

/// Bytes of `free` ones to leave to a desktop or whatever else shares the memory: a sixteenth, and no more than a GiB.
pub fn reserve(free: u64) -> u64 {
    (free / 16).min(1 << 30)
}

/// The system's memory as one heap, for plans of the reference executor.
pub fn host_memory() -> Memory {
    let free = super::available_memory();
    let reserved = reserve(free);
    let heap = Heap {
        name: "system memory".into(),
        available: free - reserved,
        reserved,
        device_local: true,
        host_visible: true,
    };
    Memory { device: "the CPU".into(), heaps: vec![heap], max_allocation: u64::MAX, unified: true, pool: None }
}
