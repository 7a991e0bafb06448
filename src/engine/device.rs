//! The choice of a device, and an open device whichever driver it has.

use super::{AnyExecutor, Options, PlacedModel, load_replay};
use crate::Result;
#[cfg(not(feature = "vulkan"))]
use crate::error::{Setting, text};
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
#[cfg(feature = "vulkan")]
use std::rc::Rc;

/// Where to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The best GPU. Without one the CPU: a Vulkan driver that computes on the CPU is slower than the CPU executor.
    Auto,
    /// A Vulkan device: the best, or the one with this index.
    Vulkan(Option<usize>),
    /// The CPU executor.
    Cpu,
    /// The reference executor, which the others are compared with.
    Reference,
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        match (s, s.strip_prefix("vulkan:")) {
            ("auto", _) => Ok(Device::Auto),
            ("cpu", _) => Ok(Device::Cpu),
            ("reference", _) => Ok(Device::Reference),
            ("vulkan", _) => Ok(Device::Vulkan(None)),
            (_, Some(n)) => {
                n.parse().map(|n| Device::Vulkan(Some(n))).map_err(|_| format!("`{n}` is not a device index"))
            }
            _ => Err("use auto, vulkan, vulkan:N, cpu or reference".into()),
        }
    }
}

impl Device {
    /// Whether it names an executor in the processor's memory.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Device::Cpu | Device::Reference)
    }

    /// Opens the device, for [`Device::Auto`] the best one; `None` for an executor in the processor's memory.
    ///
    /// # Errors
    /// Device: there is no such device, or it is unusable.
    pub(crate) fn open(self) -> Result<Option<OpenDevice>> {
        match self {
            Device::Auto | Device::Vulkan(None) => open_vulkan(None),
            Device::Vulkan(index) => open_vulkan(index),
            Device::Cpu | Device::Reference => Ok(None),
        }
    }
}

/// Opens the Vulkan device with this index, or the best.
///
/// # Errors
/// As [`Device::open`].
#[cfg(feature = "vulkan")]
fn open_vulkan(index: Option<usize>) -> Result<Option<OpenDevice>> {
    let choice = index.map_or(DeviceChoice::Best, DeviceChoice::Index);
    Ok(Some(OpenDevice::Vulkan(Rc::new(Gpu::open(choice)?))))
}

/// A build without Vulkan opens none of its devices.
///
/// # Errors
/// Device: always.
#[cfg(not(feature = "vulkan"))]
fn open_vulkan(_: Option<usize>) -> Result<Option<OpenDevice>> {
    let others = if cfg!(feature = "amdgpu") { " amdgpu or cpu" } else { " cpu" };
    Err(crate::Error::device("this build has no Vulkan", text!("use ", Setting::Device, others)))
}

/// Whether Vulkan's validation layer is asked for, which works on a Vulkan device alone.
#[cfg(not(feature = "vulkan"))]
fn validation_wanted() -> bool {
    false
}

/// An open device, by its driver. Each measurement has a queue and memory of its own beside a loaded model's.
pub(crate) enum OpenDevice {
    /// By Vulkan.
    #[cfg(feature = "vulkan")]
    Vulkan(Rc<Gpu>),
}

#[cfg_attr(not(feature = "vulkan"), allow(unreachable_code, unused_variables))]
impl OpenDevice {
    /// Its capabilities.
    pub fn caps(&self) -> &Caps {
        match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => &gpu.caps,
        }
    }

    /// Its memory, as much as is free now.
    pub fn memory(&self) -> DeviceMemory {
        match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => heaps::describe(gpu),
        }
    }

    /// Whether it did not finish within a deadline.
    pub fn is_hung(&self) -> bool {
        match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => gpu.hung.get(),
        }
    }

    /// Loads an executor on it.
    ///
    /// # Errors
    /// As [`super::load`].
    pub(super) fn load(&self, model: PlacedModel<'_>) -> Result<Box<dyn AnyExecutor>> {
        match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => load_replay(Vulkan::new(gpu)?, model),
        }
    }

    /// Measures the read rate of its best heap, in bytes per second, over at most `most` bytes. Returns these too.
    ///
    /// # Errors
    /// Device: there is not enough memory, or the driver fails.
    pub fn read_rate(&self, most: u64) -> Result<(f64, u64)> {
        let (heap, bytes) = self.memory().measured(most);
        let rate: Result<f64> = match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => ceiling::measure_alone(Vulkan::new(gpu)?, bytes, heap),
        };
        Ok((rate?, bytes))
    }

    /// Measures the rate of its matrix units in operations per second; `None` without such units.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    pub fn matrix_rate(&self) -> Result<Option<f64>> {
        let (heap, _) = self.memory().measured(0);
        match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => ceiling::measure_matrix_rate(Vulkan::new(gpu)?, heap),
        }
    }

    /// Measures the costs of dispatches and submits.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    pub fn costs(&self) -> Result<Costs> {
        let (heap, _) = self.memory().measured(0);
        match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => costs::measure(Vulkan::new(gpu)?, heap),
        }
    }

    /// Measures uploads of at most `most` bytes.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    pub fn transfer(&self, most: u64) -> Result<Transfer> {
        let (heap, bytes) = self.memory().measured(most);
        match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => {
                costs::measure_transfer(Vulkan::new(gpu)?, heap, heaps::host_heap(gpu)?, bytes)
            }
        }
    }

    /// A reader of at most `most` bytes, to run beside another device's.
    ///
    /// # Errors
    /// As [`OpenDevice::read_rate`].
    #[cfg(feature = "npu")]
    pub fn reader(&self, most: u64) -> Result<Box<dyn MemoryReader>> {
        let (heap, bytes) = self.memory().measured(most);
        Ok(match *self {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => Box::new(SteadyRead::new(Vulkan::new(gpu)?, bytes, heap)?),
        })
    }
}

/// A device that a model can be loaded on, or the CPU.
pub(crate) struct Opened {
    /// The device; `None` for the CPU.
    pub device: Option<OpenDevice>,
    /// Why `auto` took the CPU. Logged after loading, so that a failed load prints its error alone.
    pub fallback: Option<Fallback>,
}

/// The reason why `auto` takes the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// There is no GPU.
    NoGpu,
    /// There may be a GPU, but it cannot be used for this reason.
    Unusable(String),
}

impl Opened {
    /// The memory of the device or of the CPU.
    pub fn memory(&self) -> DeviceMemory {
        self.device.as_ref().map_or_else(host_memory, OpenDevice::memory)
    }

    /// Whether uploads go through staging; `None` on the CPU.
    pub fn staged(&self) -> Option<bool> {
        self.device.as_ref().map(|device| match *device {
            #[cfg(feature = "vulkan")]
            OpenDevice::Vulkan(ref gpu) => heaps::needs_staging(gpu),
        })
    }

    /// The element type of the KV cache for these options: not every executor has each.
    pub fn kv(&self, options: &Options) -> KvType {
        match (&self.device, options.device, options.kv) {
            (None, Device::Reference, _) => KvType::F32,
            (None, _, KvType::F32) => KvType::F16,
            (_, _, kv) => kv,
        }
    }
}

/// Whether `auto` takes the best device, which has these capabilities, and not the CPU.
pub(crate) fn takes_gpu(files: &Files, best: &Caps) -> bool {
    // The validation layer works on a Vulkan device only, so asking for it means Vulkan.
    validation_wanted() || (nodes::may_have_gpu(files) && !best.is_cpu())
}

/// Opens the device, or takes the CPU.
///
/// # Errors
/// Device: there is no such device, or it is unusable.
pub(crate) fn open(device: Device) -> Result<Opened> {
    let (files, may_fall_back) = (Files::system(), device == Device::Auto && !validation_wanted());
    let instead = |why| Ok(Opened { device: None, fallback: Some(why) });
    // Vulkan drivers for the CPU are slow to load, need much memory, and crash where memory is limited.
    if may_fall_back && !nodes::may_have_gpu(&files) {
        return instead(Fallback::NoGpu);
    }
    match device.open() {
        Ok(Some(best)) if may_fall_back && !takes_gpu(&files, best.caps()) => instead(Fallback::Unusable(format!(
            "a GPU has a device node, and Vulkan knows only {}, which computes on the CPU as well",
            best.caps().name
        ))),
        Err(e) if may_fall_back => instead(Fallback::Unusable(e.to_string())),
        opened => Ok(Opened { device: opened?, fallback: None }),
    }
}
