//! amdgpu's own interface: the GPU's properties, memory use and sensors, and buffers that always stay in GTT. With the
//! feature `amdgpu` also the requests of a driver: objects in the GPU's address space ([`objects`]), and contexts that
//! run packets ([`context`]).

#[cfg(feature = "amdgpu")]
pub mod context;
#[cfg(feature = "amdgpu")]
pub mod objects;

use super::answer::ReplyBuffer;
use super::bindings as b;
use super::dma_buf::page_size;
use super::drm::{Gem, Node};
use super::failure::{DriverResult, Failure, retry};
use super::raw;
use nix::errno::Errno;

/// The properties of a GPU that its driver reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuInfo {
    /// The PCI id of the device.
    pub device_id: u32,
    /// The driver's family number; with `external_rev` it names the chip.
    pub family: u32,
    /// The revision of the GPU within its family.
    pub external_rev: u32,
    /// The number of compute units that are active.
    pub compute_units: u32,
    /// The highest clock of the engine, in kHz.
    pub max_engine_clock: u64,
    /// Highest memory clock, in kHz; 0 if the driver does not know.
    pub max_memory_clock: u64,
    /// Width of the memory bus, in bits; 0 if the driver does not know.
    pub memory_bits: u32,
    /// The driver's number for the kind of memory; [`GpuInfo::memory_name`] gives its name.
    pub memory_type: u32,
    /// True if the GPU shares its memory with the CPU.
    pub is_apu: bool,
}

/// The properties of a GPU, beside [`GpuInfo`], that a driver needs.
#[cfg(feature = "amdgpu")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeInfo {
    /// The compute rings that may be used, a bit each.
    pub rings: u32,
    /// Alignment of an indirect buffer's address, in bytes.
    pub start_alignment: u32,
    /// Alignment of an indirect buffer's size, in bytes.
    pub size_alignment: u32,
    /// The number of shader engines.
    pub engines: u32,
    /// Rate of the clock that stamps record, in kHz.
    pub clock: u32,
    /// The lower addresses that a process may use.
    pub low: std::ops::Range<u64>,
    /// The upper ones, whose topmost sixteen bits are set.
    pub high: std::ops::Range<u64>,
    /// Alignment of addresses that objects are mapped at.
    pub page: u64,
}

/// The size and the use of one heap, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuHeap {
    /// The size of the heap.
    pub total: u64,
    /// Bytes that processes may allocate. The kernel reserves the others.
    pub usable: u64,
    /// Bytes in use by all processes and the kernel.
    pub used: u64,
    /// The size of the largest buffer that may be possible.
    pub max_allocation: u64,
}

/// The heaps of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuMemory {
    /// VRAM; on an APU, the carve-out.
    pub vram: GpuHeap,
    /// GTT: system memory that the GPU can access.
    pub gtt: GpuHeap,
}

/// The versions of one of a GPU's firmwares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firmware {
    /// The version of the firmware.
    pub version: u32,
    /// The version of the firmware's feature set.
    pub feature: u32,
}

/// A sensor of a GPU, with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuSensor {
    /// The clock of the engine, in MHz.
    EngineClock,
    /// The clock of the memory, in MHz.
    MemoryClock,
    /// The temperature, in thousandths of a degree Celsius.
    Temperature,
    /// The average power, in W.
    Power,
}

/// The firmwares that matter for compute: name and the driver's number.
pub const FIRMWARES: [(&str, u32); 8] = [
    ("ME", b::AMDGPU_INFO_FW_GFX_ME),
    ("PFP", b::AMDGPU_INFO_FW_GFX_PFP),
    ("MEC", b::AMDGPU_INFO_FW_GFX_MEC),
    ("RLC", b::AMDGPU_INFO_FW_GFX_RLC),
    ("SDMA", b::AMDGPU_INFO_FW_SDMA),
    ("SMC", b::AMDGPU_INFO_FW_SMC),
    ("VCN", b::AMDGPU_INFO_FW_VCN),
    ("MES", MES),
];

/// The number of the firmware that schedules queues, missing from Debian 12's header.
pub const MES: u32 = 0x1a;

// Kinds of memory that Debian 12's header lacks.
const LPDDR4: u32 = 11;
const LPDDR5: u32 = 12;

/// Sends `query` to the driver; `put` writes its arguments. `T` consists of integers only. An older kernel fills less
/// of the answer and leaves the rest zero; a newer one truncates its answer to `T`.
fn ask<T: Default>(node: &Node, what: &str, query: u32, put: impl FnOnce(&mut b::drm_amdgpu_info)) -> DriverResult<T> {
    let mut answer = ReplyBuffer::new();
    let mut info = b::drm_amdgpu_info {
        return_pointer: answer.address(),
        return_size: size_of::<T>() as u32,
        query,
        ..Default::default()
    };
    put(&mut info);
    // SAFETY: the structure is valid for the call, and the buffer that it points to holds more than any answer.
    retry(what, || unsafe { raw::amdgpu_info(node.raw(), &info) })?;
    // SAFETY: `T` consists of integers only.
    Ok(unsafe { answer.read(0) })
}

impl GpuInfo {
    /// The name of the kind of memory, if known.
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

    /// Peak memory bandwidth at the highest clock, in bytes per second. `None` for kinds of memory other than DDR4,
    /// DDR5 and LPDDR5, whose clocks are counted in other ways.
    ///
    /// DDR makes two transfers per clock and data line, LPDDR5 eight: a Radeon 890M with LPDDR5X-7500 reports 937 MHz.
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

/// The GPU's properties.
///
/// # Errors
/// ENOTTY, EINVAL: not amdgpu. ENODEV: the GPU is gone.
pub fn device(node: &Node) -> DriverResult<GpuInfo> {
    let d: b::drm_amdgpu_info_device = ask(node, "ask what the GPU is", b::AMDGPU_INFO_DEV_INFO, |_| {})?;
    Ok(GpuInfo {
        device_id: d.device_id,
        family: d.family,
        external_rev: d.external_rev,
        compute_units: d.cu_active_number,
        max_engine_clock: d.max_engine_clock,
        max_memory_clock: d.max_memory_clock,
        memory_bits: d.vram_bit_width,
        memory_type: d.vram_type,
        is_apu: d.ids_flags & u64::from(b::AMDGPU_IDS_FLAGS_FUSION) != 0,
    })
}

/// A GPU's compute rings and its address space.
///
/// # Errors
/// As [`device`].
#[cfg(feature = "amdgpu")]
pub fn compute(node: &Node) -> DriverResult<ComputeInfo> {
    let d: b::drm_amdgpu_info_device = ask(node, "ask what the GPU is", b::AMDGPU_INFO_DEV_INFO, |_| {})?;
    let put = |info: &mut b::drm_amdgpu_info| info.__bindgen_anon_1.query_hw_ip.type_ = b::AMDGPU_HW_IP_COMPUTE;
    let ip: b::drm_amdgpu_info_hw_ip = ask(node, "ask for compute rings", b::AMDGPU_INFO_HW_IP_INFO, put)?;
    Ok(ComputeInfo {
        rings: ip.available_rings,
        start_alignment: ip.ib_start_alignment,
        size_alignment: ip.ib_size_alignment,
        engines: d.num_shader_engines,
        clock: d.gpu_counter_freq,
        low: d.virtual_address_offset..d.virtual_address_max,
        high: d.high_va_offset..d.high_va_max,
        page: u64::from(d.virtual_address_alignment).max(page_size()),
    })
}

/// The GPU's heaps and their use.
///
/// # Errors
/// As [`device`].
pub fn memory(node: &Node) -> DriverResult<GpuMemory> {
    let m: b::drm_amdgpu_memory_info = ask(node, "ask what the GPU's memory holds", b::AMDGPU_INFO_MEMORY, |_| {})?;
    let heap = |h: b::drm_amdgpu_heap_info| GpuHeap {
        total: h.total_heap_size,
        usable: h.usable_heap_size,
        used: h.heap_usage,
        max_allocation: h.max_allocation,
    };
    Ok(GpuMemory { vram: heap(m.vram), gtt: heap(m.gtt) })
}

/// Buffers evicted from VRAM for lack of room since the driver was loaded.
///
/// # Errors
/// As [`device`].
pub fn evictions(node: &Node) -> DriverResult<u64> {
    ask(node, "ask for evictions", b::AMDGPU_INFO_NUM_EVICTIONS, |_| {})
}

/// GPU resets since the driver was loaded that lost VRAM's content.
///
/// # Errors
/// As [`device`].
pub fn losses(node: &Node) -> DriverResult<u32> {
    ask(node, "ask for resets", b::AMDGPU_INFO_VRAM_LOST_COUNTER, |_| {})
}

/// Versions of one firmware of [`FIRMWARES`].
///
/// # Errors
/// EINVAL: no such firmware.
pub fn firmware(node: &Node, number: u32) -> DriverResult<Firmware> {
    let put = |info: &mut b::drm_amdgpu_info| {
        info.__bindgen_anon_1.query_fw = b::drm_amdgpu_query_fw { fw_type: number, ..Default::default() };
    };
    let f: b::drm_amdgpu_info_firmware = ask(node, "ask for a firmware's version", b::AMDGPU_INFO_FW_VERSION, put)?;
    Ok(Firmware { version: f.ver, feature: f.feature })
}

/// One sensor's value, in its unit.
///
/// # Errors
/// EINVAL, EOPNOTSUPP: this GPU lacks the sensor.
pub fn sensor(node: &Node, sensor: GpuSensor) -> DriverResult<u32> {
    let number = match sensor {
        GpuSensor::EngineClock => b::AMDGPU_INFO_SENSOR_GFX_SCLK,
        GpuSensor::MemoryClock => b::AMDGPU_INFO_SENSOR_GFX_MCLK,
        GpuSensor::Temperature => b::AMDGPU_INFO_SENSOR_GPU_TEMP,
        GpuSensor::Power => b::AMDGPU_INFO_SENSOR_GPU_AVG_POWER,
    };
    let put = |info: &mut b::drm_amdgpu_info| info.__bindgen_anon_1.sensor_info.type_ = number;
    ask(node, "read a sensor", b::AMDGPU_INFO_SENSOR, put)
}

/// A buffer of `size` bytes for export. It may lie in GTT only, so it stays where it was mapped.
///
/// # Errors
/// ENOMEM: GTT is full. EINVAL: `size` is 0 or not a multiple of the page size.
pub fn allocate_gtt(node: &Node, size: u64) -> DriverResult<Gem> {
    let (domains, flags) = (b::AMDGPU_GEM_DOMAIN_GTT, b::AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED);
    create(node, "allocate GTT memory", size, domains, flags)
}

/// Makes the GEM_CREATE ioctl, which allocates a memory object.
fn create(node: &Node, what: &str, size: u64, domains: u32, flags: u32) -> DriverResult<Gem> {
    if size == 0 || !size.is_multiple_of(page_size()) {
        return Err(Failure::new(what, Errno::EINVAL));
    }
    let arguments = b::drm_amdgpu_gem_create_in {
        bo_size: size,
        alignment: page_size(),
        domains: domains.into(),
        domain_flags: flags.into(),
    };
    // The kernel's answer is written over the arguments, which a repeated request needs again.
    let handle = retry(what, || {
        let mut data = b::drm_amdgpu_gem_create { in_: arguments };
        // SAFETY: the structure is valid for the call; the kernel answers in the same union's `out`.
        unsafe { raw::amdgpu_gem_create(node.raw(), &mut data).map(|_| data.out.handle) }
    })?;
    Ok(node.own(handle))
}
