//! amdgpu's own interface: what the GPU is, what its memory holds, and buffers that are GTT-only by construction.

use super::answer::Answer;
use super::bindings as b;
use super::dma_buf::page_size;
use super::drm::{Gem, Node};
use super::failure::{Failure, Result, retry};
use super::raw;
use nix::errno::Errno;

/// What the GPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// PCI device.
    pub device_id: u32,
    /// The driver's family number; with `external_rev` it names the chip.
    pub family: u32,
    /// The revision within the family.
    pub external_rev: u32,
    /// Compute units that are switched on.
    pub compute_units: u32,
    /// Highest clock of the engine, in kHz.
    pub max_engine_clock: u64,
    /// Highest clock of the memory, in kHz; 0 where the driver does not know.
    pub max_memory_clock: u64,
    /// Width of the memory bus, in bits; 0 where the driver does not know.
    pub memory_bits: u32,
    /// The kind of memory, as [`Device::memory_name`] names it.
    pub memory_type: u32,
    /// Whether it shares its memory with the CPU.
    pub is_apu: bool,
    /// Invocations of a wave.
    pub wave: u32,
}

/// One heap, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heap {
    /// All of it.
    pub total: u64,
    /// What the kernel leaves to processes.
    pub usable: u64,
    /// What all processes and the kernel hold of it.
    pub used: u64,
    /// The largest buffer.
    pub max_allocation: u64,
}

/// The GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// VRAM: on an APU the carve-out.
    pub vram: Heap,
    /// The part of VRAM that the CPU reaches.
    pub visible_vram: Heap,
    /// GTT: system memory that the GPU reaches.
    pub gtt: Heap,
}

/// Versions of one firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firmware {
    /// Its version.
    pub version: u32,
    /// The version of what it can do.
    pub feature: u32,
}

/// A sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sensor {
    /// Engine clock, MHz.
    EngineClock,
    /// Memory clock, MHz.
    MemoryClock,
    /// Temperature, thousandths of a degree Celsius.
    Temperature,
    /// Percent of the time that the engine is busy.
    Load,
    /// Power averaged, W.
    Power,
}

/// The firmwares that matter for compute, by name and number.
pub const FIRMWARES: [(&str, u32); 7] = [
    ("ME", b::AMDGPU_INFO_FW_GFX_ME),
    ("PFP", b::AMDGPU_INFO_FW_GFX_PFP),
    ("MEC", b::AMDGPU_INFO_FW_GFX_MEC),
    ("RLC", b::AMDGPU_INFO_FW_GFX_RLC),
    ("SDMA", b::AMDGPU_INFO_FW_SDMA),
    ("SMC", b::AMDGPU_INFO_FW_SMC),
    ("VCN", b::AMDGPU_INFO_FW_VCN),
];

// Kinds of memory that Debian 12's header does not name.
const LPDDR4: u32 = 11;
const LPDDR5: u32 = 12;

/// Asks `query` of the driver, whose own arguments `put` writes; `T` is made of integers alone. An older kernel fills less of
/// the answer and leaves the rest zero; a newer one would have more to say, and says only what fits.
fn ask<T: Default>(node: &Node, what: &str, query: u32, put: impl FnOnce(&mut b::drm_amdgpu_info)) -> Result<T> {
    let mut answer = Answer::new();
    let mut info = b::drm_amdgpu_info {
        return_pointer: answer.address(),
        return_size: size_of::<T>() as u32,
        query,
        ..Default::default()
    };
    put(&mut info);
    // SAFETY: the structure is valid for the call, and the buffer that it points to holds more than any answer.
    retry(what, || unsafe { raw::amdgpu_info(node.raw(), &info) })?;
    // SAFETY: integers alone.
    Ok(unsafe { answer.read(0) })
}

impl Device {
    /// The kind of memory, where it has a name.
    pub fn memory_name(&self) -> Option<&'static str> {
        Some(match self.memory_type {
            b::AMDGPU_VRAM_TYPE_HBM => "HBM",
            b::AMDGPU_VRAM_TYPE_DDR3 => "DDR3",
            b::AMDGPU_VRAM_TYPE_DDR4 => "DDR4",
            b::AMDGPU_VRAM_TYPE_DDR5 => "DDR5",
            b::AMDGPU_VRAM_TYPE_GDDR6 => "GDDR6",
            LPDDR4 => "LPDDR4",
            LPDDR5 => "LPDDR5",
            _ => return None,
        })
    }

    /// Bytes per second that the memory could deliver at its highest clock; `None` for other kinds of memory, whose clocks
    /// are counted in other ways. A clock of DDR is two transfers of each data line; one of LPDDR5 is eight (a Radeon 890M
    /// with LPDDR5X-7500 says 937 MHz).
    pub fn peak_bandwidth(&self) -> Option<f64> {
        let transfers = match self.memory_type {
            b::AMDGPU_VRAM_TYPE_DDR4 | b::AMDGPU_VRAM_TYPE_DDR5 => 2.0,
            LPDDR5 => 8.0,
            _ => return None,
        };
        let known = self.max_memory_clock > 0 && self.memory_bits > 0;
        known.then(|| self.max_memory_clock as f64 * 1e3 * transfers * f64::from(self.memory_bits) / 8.0)
    }
}

/// What the GPU is.
///
/// # Errors
/// ENOTTY, EINVAL: not amdgpu. ENODEV: it is gone.
pub fn device(node: &Node) -> Result<Device> {
    let d: b::drm_amdgpu_info_device = ask(node, "ask what the GPU is", b::AMDGPU_INFO_DEV_INFO, |_| {})?;
    Ok(Device {
        device_id: d.device_id,
        family: d.family,
        external_rev: d.external_rev,
        compute_units: d.cu_active_number,
        max_engine_clock: d.max_engine_clock,
        max_memory_clock: d.max_memory_clock,
        memory_bits: d.vram_bit_width,
        memory_type: d.vram_type,
        is_apu: d.ids_flags & u64::from(b::AMDGPU_IDS_FLAGS_FUSION) != 0,
        wave: d.wave_front_size,
    })
}

/// What its memory holds.
///
/// # Errors
/// As [`device`].
pub fn memory(node: &Node) -> Result<Memory> {
    let m: b::drm_amdgpu_memory_info = ask(node, "ask what the GPU's memory holds", b::AMDGPU_INFO_MEMORY, |_| {})?;
    let heap = |h: b::drm_amdgpu_heap_info| Heap {
        total: h.total_heap_size,
        usable: h.usable_heap_size,
        used: h.heap_usage,
        max_allocation: h.max_allocation,
    };
    Ok(Memory { vram: heap(m.vram), visible_vram: heap(m.cpu_accessible_vram), gtt: heap(m.gtt) })
}

/// Buffers that were moved out of VRAM for want of room since the driver was loaded.
///
/// # Errors
/// As [`device`].
pub fn evictions(node: &Node) -> Result<u64> {
    ask(node, "ask for evictions", b::AMDGPU_INFO_NUM_EVICTIONS, |_| {})
}

/// Resets since the driver was loaded in which VRAM's content was lost.
///
/// # Errors
/// As [`device`].
pub fn losses(node: &Node) -> Result<u32> {
    ask(node, "ask for resets", b::AMDGPU_INFO_VRAM_LOST_COUNTER, |_| {})
}

/// One firmware of [`FIRMWARES`].
///
/// # Errors
/// EINVAL: there is none such.
pub fn firmware(node: &Node, number: u32) -> Result<Firmware> {
    let put = |info: &mut b::drm_amdgpu_info| {
        info.__bindgen_anon_1.query_fw = b::drm_amdgpu_query_fw { fw_type: number, ..Default::default() };
    };
    let f: b::drm_amdgpu_info_firmware = ask(node, "ask for a firmware's version", b::AMDGPU_INFO_FW_VERSION, put)?;
    Ok(Firmware { version: f.ver, feature: f.feature })
}

/// One sensor's value, in its own unit.
///
/// # Errors
/// EINVAL, EOPNOTSUPP: this GPU has none such.
pub fn sensor(node: &Node, sensor: Sensor) -> Result<u32> {
    let number = match sensor {
        Sensor::EngineClock => b::AMDGPU_INFO_SENSOR_GFX_SCLK,
        Sensor::MemoryClock => b::AMDGPU_INFO_SENSOR_GFX_MCLK,
        Sensor::Temperature => b::AMDGPU_INFO_SENSOR_GPU_TEMP,
        Sensor::Load => b::AMDGPU_INFO_SENSOR_GPU_LOAD,
        Sensor::Power => b::AMDGPU_INFO_SENSOR_GPU_AVG_POWER,
    };
    let put = |info: &mut b::drm_amdgpu_info| info.__bindgen_anon_1.sensor_info.type_ = number;
    ask(node, "read a sensor", b::AMDGPU_INFO_SENSOR, put)
}

/// A buffer of `size` bytes that lies in GTT and nowhere else, so that it stays where it was mapped; to be exported.
///
/// # Errors
/// ENOMEM: GTT is full. EINVAL: `size` is 0 or no multiple of the page's.
pub fn allocate_gtt(node: &Node, size: u64) -> Result<Gem<'_>> {
    let what = "allocate GTT memory";
    if size == 0 || !size.is_multiple_of(page_size()) {
        return Err(Failure::new(what, Errno::EINVAL));
    }
    let mut data = b::drm_amdgpu_gem_create {
        in_: b::drm_amdgpu_gem_create_in {
            bo_size: size,
            alignment: page_size(),
            domains: u64::from(b::AMDGPU_GEM_DOMAIN_GTT),
            domain_flags: u64::from(b::AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED),
        },
    };
    // SAFETY: the structure is valid for the call; the kernel answers in the same union's `out`.
    let handle =
        retry(what, || unsafe { raw::amdgpu_gem_create(node.raw(), &mut data) }).map(|_| unsafe { data.out.handle })?;
    Ok(node.own(handle))
}
