//! The choice of a device, and an open device whichever driver it has.

#[cfg(feature = "amdgpu")]
use super::own_driver;
use super::{AnyExecutor, Options, PlacedModel, load_replay};
use crate::Result;
#[cfg(feature = "amdgpu")]
use crate::amdgpu::device::{GTT_HEAP, RenderDevice};
#[cfg(feature = "amdgpu")]
use crate::amdgpu::driver::Amdgpu;
#[cfg(feature = "amdgpu")]
use crate::amdgpu::shipped;
#[cfg(feature = "npu")]
use crate::executor::measure::MemoryReader;
use crate::lower::caps::Caps;
use crate::machine::files::Files;
use crate::machine::heaps::{DeviceMemory, host_memory};
use crate::machine::nodes;
use crate::replay::measure::ceiling;
use crate::replay::measure::costs::{self, Costs, Transfer};
#[cfg(feature = "npu")]
use crate::replay::measure::steady::SteadyRead;
use crate::schedule::KvType;
#[cfg(feature = "vulkan")]
use crate::vulkan::{DeviceChoice, Gpu, Vulkan, device::instance::validation_wanted, memory::heaps};
#[cfg(not(all(feature = "amdgpu", feature = "vulkan")))]
use crate::{
    Error,
    error::{Setting, text},
};
#[cfg(any(feature = "amdgpu", feature = "vulkan"))]
use std::rc::Rc;

/// The device or the executor that a model runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The best GPU. Without one the CPU: a Vulkan driver that computes on the CPU is slower than the CPU executor.
    Auto,
    /// A Vulkan device: the best, or the one with this index.
    Vulkan(Option<usize>),
    /// An AMD GPU by the kernel's own interface: the best, or the one whose render node has this number.
    Amdgpu(Option<u32>),
    /// The CPU, by the kernels that are optimised for it.
    Cpu,
    /// The reference executor, which the others are compared with.
    Reference,
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        let number = |n: &str| n.parse().map_err(|_| format!("`{n}` is not a device's number"));
        match s.split_once(':').map_or((s, None), |(driver, n)| (driver, Some(n))) {
            ("auto", None) => Ok(Device::Auto),
            ("cpu", None) => Ok(Device::Cpu),
            ("reference", None) => Ok(Device::Reference),
            ("vulkan", n) => Ok(Device::Vulkan(n.map(number).transpose()?.map(|n: u32| n as usize))),
            ("amdgpu", n) => Ok(Device::Amdgpu(n.map(number).transpose()?)),
            _ => Err("use auto, vulkan, vulkan:N, amdgpu, amdgpu:N, cpu or reference".into()),
        }
    }
}

impl std::fmt::Display for Device {
    /// Writes the device in the form that [`Device::from_str`](std::str::FromStr) reads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Vulkan(None) => f.write_str("vulkan"),
            Device::Vulkan(Some(n)) => write!(f, "vulkan:{n}"),
            Device::Amdgpu(None) => f.write_str("amdgpu"),
            Device::Amdgpu(Some(n)) => write!(f, "amdgpu:{n}"),
            Device::Cpu => f.write_str("cpu"),
            Device::Reference => f.write_str("reference"),
        }
    }
}

impl Device {
    /// True for the executors that compute on the processor: CPU and reference.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Device::Cpu | Device::Reference)
    }

    /// Opens the device, for [`Device::Auto`] the best one; `None` for an executor in the processor's memory.
    ///
    /// # Errors
    /// Device: there is no such device, or it is unusable.
    pub(crate) fn open(self, files: &Files) -> Result<Option<OpenDevice>> {
        match self {
            Device::Auto => open_vulkan(None).map(Some),
            Device::Vulkan(index) => open_vulkan(index).map(Some),
            Device::Amdgpu(number) => open_amdgpu(files, number).map(Some),
            Device::Cpu | Device::Reference => Ok(None),
        }
    }
}

/// Opens the Vulkan device with this index, or the best.
#[cfg(feature = "vulkan")]
fn open_vulkan(index: Option<usize>) -> Result<OpenDevice> {
    let choice = index.map_or(DeviceChoice::Best, DeviceChoice::Index);
    Ok(OpenDevice::Vulkan(Rc::new(Gpu::open(choice)?)))
}

#[cfg(not(feature = "vulkan"))]
fn open_vulkan(_: Option<usize>) -> Result<OpenDevice> {
    let others = if cfg!(feature = "amdgpu") { " amdgpu or cpu" } else { " cpu" };
    Err(Error::device("this build has no Vulkan", text!("use ", Setting::Device, others)))
}

/// False: without Vulkan there is no validation layer.
#[cfg(not(feature = "vulkan"))]
fn validation_wanted() -> bool {
    false
}

#[cfg(feature = "amdgpu")]
fn open_amdgpu(files: &Files, number: Option<u32>) -> Result<OpenDevice> {
    RenderDevice::find(files, number).map(|device| OpenDevice::Amdgpu(Rc::new(device)))
}

#[cfg(not(feature = "amdgpu"))]
fn open_amdgpu(_: &Files, _: Option<u32>) -> Result<OpenDevice> {
    let other = if cfg!(feature = "vulkan") { Setting::Vulkan } else { Setting::Cpu };
    let remedy = text!("use ", other, ", or build with the feature amdgpu");
    Err(Error::device("this build has no driver of its own for AMD's GPUs", remedy))
}

/// An open device, by its driver. Each measurement has a queue and memory of its own beside a loaded model's.
pub(crate) enum OpenDevice {
    /// A device that is opened by Vulkan.
    #[cfg(feature = "vulkan")]
    Vulkan(Rc<Gpu>),
    /// A GPU that is opened by the kernel's driver amdgpu.
    #[cfg(feature = "amdgpu")]
    Amdgpu(Rc<RenderDevice>),
}

/// Evaluates `$work` with a new driver for an open device, whichever kind it is.
macro_rules! with_driver {
    ($device:expr, $driver:ident => $work:expr) => {
        match *$device {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => {
                let $driver = Vulkan::new(gpu)?;
                $work
            }
            #[cfg(feature = "amdgpu")]
            OpenDevice::Amdgpu(ref device) => {
                let $driver = Amdgpu::of(device)?;
                $work
            }
        }
    };
}

/// Evaluates an expression of a device of Vulkan, or one of a device of amdgpu.
macro_rules! of_device {
    ($device:expr, vulkan($gpu:ident) => $of_vulkan:expr, amdgpu($amdgpu:ident) => $of_amdgpu:expr $(,)?) => {
        match *$device {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref $gpu) => $of_vulkan,
            #[cfg(feature = "amdgpu")]
            OpenDevice::Amdgpu(ref $amdgpu) => $of_amdgpu,
        }
    };
}

#[cfg_attr(not(any(feature = "amdgpu", feature = "vulkan")), allow(unreachable_code, unused_variables))]
impl OpenDevice {
    /// The device's capabilities.
    pub fn caps(&self) -> &Caps {
        of_device!(self, vulkan(gpu) => &gpu.caps, amdgpu(device) => &device.caps)
    }

    /// The device's memory, as much as is free now.
    ///
    /// # Errors
    /// Device: the device is gone.
    pub fn memory(&self) -> Result<DeviceMemory> {
        of_device!(self, vulkan(gpu) => Ok(heaps::describe(gpu)), amdgpu(device) => device.memory())
    }

    /// True if uploads go through a staging buffer: the host cannot map all of the device's memory, or only uncached.
    fn is_staged(&self) -> bool {
        of_device!(self, vulkan(gpu) => heaps::needs_staging(gpu), amdgpu(_device) => true)
    }

    /// The index of a heap that the host can map.
    ///
    /// # Errors
    /// Device: the device has no such heap.
    fn host_heap(&self) -> Result<usize> {
        of_device!(self, vulkan(gpu) => heaps::host_heap(gpu), amdgpu(_device) => Ok(GTT_HEAP))
    }

    /// True if the device did not finish its work within a deadline.
    pub fn is_hung(&self) -> bool {
        of_device!(self, vulkan(gpu) => gpu.hung.get(), amdgpu(device) => device.is_hung())
    }

    /// Loads an executor on the device.
    ///
    /// # Errors
    /// As [`super::load`].
    pub(super) fn load(&self, model: PlacedModel<'_>) -> Result<Box<dyn AnyExecutor>> {
        of_device!(
            self,
            vulkan(gpu) => load_replay(Vulkan::new(gpu)?, model),
            amdgpu(device) => {
                shipped::check(device, &model.schedule, &model.options.vulkan)?;
                load_replay(Amdgpu::of(device)?, model)
            },
        )
    }

    /// Measures the read rate of its best heap, in bytes per second, over at most `most` bytes. Returns these too.
    ///
    /// # Errors
    /// Device: there is not enough memory, or the driver fails.
    pub fn read_rate(&self, most: u64) -> Result<(f64, u64)> {
        let (heap, bytes) = self.memory()?.measured(most);
        let rate: Result<f64> = with_driver!(self, driver => ceiling::measure_alone(driver, bytes, heap));
        Ok((rate?, bytes))
    }

    /// Measures the rate of its matrix units in operations per second; `None` without such units.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    pub fn matrix_rate(&self) -> Result<Option<f64>> {
        let (heap, _) = self.memory()?.measured(0);
        with_driver!(self, driver => ceiling::measure_matrix_rate(driver, heap))
    }

    /// Measures the costs of dispatches and submits.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    pub fn costs(&self) -> Result<Costs> {
        let (heap, _) = self.memory()?.measured(0);
        with_driver!(self, driver => costs::measure(driver, heap))
    }

    /// Measures uploads of at most `most` bytes.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    pub fn transfer(&self, most: u64) -> Result<Transfer> {
        let (heap, bytes) = self.memory()?.measured(most);
        let by = self.host_heap()?;
        with_driver!(self, driver => costs::measure_transfer(driver, heap, by, bytes))
    }

    /// A reader of at most `most` bytes, to run beside another device's.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    #[cfg(feature = "npu")]
    pub fn reader(&self, most: u64) -> Result<Box<dyn MemoryReader>> {
        let (heap, bytes) = self.memory()?.measured(most);
        Ok(with_driver!(self, driver => Box::new(SteadyRead::new(driver, bytes, heap)?)))
    }
}

/// A device that a model can be loaded on, or the CPU.
pub(crate) struct Opened {
    /// The open device; `None` if the model runs on the CPU.
    pub device: Option<OpenDevice>,
    /// Why `auto` took the CPU. Logged after loading, so that a failed load prints its error alone.
    pub fallback: Option<Fallback>,
}

/// The reason for which `auto` chooses the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// There is no GPU.
    NoGpu,
    /// There may be a GPU, but it cannot be used for this reason.
    Unusable(String),
}

impl Opened {
    /// The memory of the device or of the CPU.
    ///
    /// # Errors
    /// As [`OpenDevice::memory`].
    pub fn memory(&self) -> Result<DeviceMemory> {
        self.device.as_ref().map_or_else(|| Ok(host_memory()), OpenDevice::memory)
    }

    /// True if uploads are copied through a staging buffer; `None` on the CPU.
    pub fn staged(&self) -> Option<bool> {
        self.device.as_ref().map(OpenDevice::is_staged)
    }

    /// The element type of the KV cache for these options: not every executor has each.
    pub fn kv(&self, options: &Options) -> KvType {
        match (&self.device, options.device, options.kv) {
            (None, Device::Reference, _) => KvType::F32,
            (None, _, KvType::F32) => KvType::F16,
            // There is no code for keys and values in f32.
            #[cfg(feature = "amdgpu")]
            (Some(OpenDevice::Amdgpu(_)), _, KvType::F32) => KvType::F16,
            (_, _, kv) => kv,
        }
    }
}

/// True if `auto` chooses the GPU with the capabilities `best`, false if it chooses the CPU.
pub(crate) fn takes_gpu(files: &Files, best: &Caps) -> bool {
    // The validation layer works on a Vulkan device only, so asking for it means Vulkan.
    validation_wanted() || (nodes::may_have_gpu(files) && !best.is_cpu())
}

/// Opens the device, or takes the CPU.
///
/// # Errors
/// Device: there is no such device, or it is unusable.
pub(crate) fn open(device: Device) -> Result<Opened> {
    open_in(&Files::system(), device)
}

/// As [`open`], on a machine with these files.
///
/// # Errors
/// As [`open`].
pub(super) fn open_in(files: &Files, device: Device) -> Result<Opened> {
    let may_fall_back = device == Device::Auto && !validation_wanted();
    let instead = |why| Ok(Opened { device: None, fallback: Some(why) });
    // Vulkan drivers for the CPU are slow to load, need much memory, and crash where memory is limited.
    if may_fall_back && !nodes::may_have_gpu(files) {
        return instead(Fallback::NoGpu);
    }
    let opened = device.open(files);
    #[cfg(feature = "amdgpu")]
    let opened = if may_fall_back { prefer_own_driver(files, opened) } else { opened };
    match opened {
        Ok(Some(best)) if may_fall_back && !takes_gpu(files, best.caps()) => instead(Fallback::Unusable(format!(
            "a GPU has a device node, and Vulkan knows only {}, which computes on the CPU as well",
            best.caps().name
        ))),
        Err(e) if may_fall_back => instead(Fallback::Unusable(e.to_string())),
        opened => Ok(Opened { device: opened?, fallback: None }),
    }
}

/// The GPU that Vulkan has opened, or any of amdgpu's if it has opened none: by amdgpu's own interface, if that is better.
#[cfg(feature = "amdgpu")]
fn prefer_own_driver(files: &Files, by_vulkan: Result<Option<OpenDevice>>) -> Result<Option<OpenDevice>> {
    #[allow(unused_mut)]
    let mut number = None;
    #[cfg(feature = "vulkan")]
    if let Ok(Some(OpenDevice::Vulkan(gpu))) = &by_vulkan
        && !gpu.caps.is_cpu()
    {
        match gpu.features.render_node {
            Some(node) => number = u32::try_from(node).ok(),
            None => return by_vulkan,
        }
    }
    let Ok(own) = RenderDevice::find(files, number) else { return by_vulkan };
    let opened = |device| Opened { device: Some(device), fallback: None };
    let own = opened(OpenDevice::Amdgpu(Rc::new(own)));
    match by_vulkan {
        Ok(Some(vulkan)) if !vulkan.caps().is_cpu() => {
            let vulkan = opened(vulkan);
            Ok(if own_driver::is_better(&own, Some(&vulkan)) { own.device } else { vulkan.device })
        }
        _ if own_driver::is_better(&own, None) => Ok(own.device),
        none => none,
    }
}
