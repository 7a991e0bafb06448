//! The Vulkan device: choosing and opening one, its queue and its properties.

mod failure;
pub mod inspector;
pub mod instance;
pub mod sharing;
pub mod survey;
pub mod units;

use crate::display::plain;
use crate::error::{Setting, text};
use crate::lower::caps::{Caps, DeviceKind};
use crate::lower::limits::MAX_WORKGROUP;
use crate::machine::threads;
use crate::vulkan::device::inspector::{Inspector, check_inspectable};
use crate::vulkan::device::instance::Instance;
use crate::vulkan::device::sharing::{DmaBufs, Sharing};
use crate::vulkan::spirv;
use crate::{Error, Result};
use ash::vk;
pub use failure::failure;
use std::cell::Cell;
use std::ffi::CStr;

/// Which of the listed Vulkan devices is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A discrete device, else an integrated one, else a CPU driver.
    Best,
    /// The device with this index in the loader's order.
    Index(usize),
}

/// A device's properties that only Vulkan has, beside [`Caps`].
#[derive(Debug, Clone)]
pub struct Features {
    /// True if the driver offers several subgroup sizes, so that pipelines must request one.
    pub subgroup_choice: bool,
    /// The clock of the queue's timestamps, if it has any.
    pub clock: Option<Clock>,
    /// True if `VK_EXT_memory_budget` reports the free bytes of each heap.
    pub memory_budget: bool,
    /// The minor number of the device's render node: 128 for /dev/dri/renderD128. `None` without one.
    pub render_node: Option<i64>,
    /// Whether memory can be shared with other drivers as dma-bufs.
    pub sharing: Sharing,
    /// Identity of device and driver, part of the name of the file of its pipelines.
    pub cache_id: String,
}

/// The clock that timestamps are read from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    /// The length of a tick of the clock, in nanoseconds.
    pub nanoseconds: f64,
    /// The bits of a timestamp that are valid. The others are undefined.
    pub mask: u64,
}

impl Clock {
    /// Seconds from one timestamp to another, across one wrap of the clock.
    pub fn seconds(self, from: u64, to: u64) -> f64 {
        (to.wrapping_sub(from) & self.mask) as f64 * self.nanoseconds * 1e-9
    }
}

/// An open device with one queue for compute and transfers.
pub struct Gpu {
    instance: Instance,
    /// The physical device that was chosen.
    pub physical: vk::PhysicalDevice,
    /// The functions of the logical device.
    pub device: ash::Device,
    /// The queue that all work is submitted to.
    pub queue: vk::Queue,
    /// The index of the queue's family.
    pub family: u32,
    /// The device's capabilities, in terms that all drivers share.
    pub caps: Caps,
    /// The device's properties that only Vulkan has.
    pub features: Features,
    /// The device's heaps and memory types.
    pub memory: vk::PhysicalDeviceMemoryProperties,
    /// Set when a wait ran past its deadline. The device may never finish, so nothing is submitted, waited for or
    /// destroyed any more.
    pub hung: Cell<bool>,
    /// Set when a thread may use the device until the process ends. The device is not destroyed then.
    pub(crate) kept: Cell<bool>,
    /// The functions for dma-bufs, if the device shares its memory.
    pub(crate) dma_bufs: Option<DmaBufs>,
    /// The functions for inspecting pipelines, if the device was opened for that.
    pub(crate) inspector: Option<Inspector>,
}

/// Names of the required features that a device lacks.
fn missing_features(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Vec<&'static str> {
    let mut f12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut f13 = vk::PhysicalDeviceVulkan13Features::default();
    let mut f = vk::PhysicalDeviceFeatures2::default().push_next(&mut f12).push_next(&mut f13);
    // SAFETY: `physical` comes from this instance; the chain is of valid structures.
    unsafe { instance.get_physical_device_features2(physical, &mut f) };
    let int64 = f.features.shader_int64;
    [
        ("shaderInt64", int64),
        ("shaderInt8", f12.shader_int8),
        ("bufferDeviceAddress", f12.buffer_device_address),
        ("vulkanMemoryModel", f12.vulkan_memory_model),
        ("vulkanMemoryModelDeviceScope", f12.vulkan_memory_model_device_scope),
        ("synchronization2", f13.synchronization2),
        ("maintenance4", f13.maintenance4),
        ("shaderIntegerDotProduct", f13.shader_integer_dot_product),
        ("subgroupSizeControl", f13.subgroup_size_control),
        ("computeFullSubgroups", f13.compute_full_subgroups),
    ]
    .into_iter()
    .filter_map(|(name, there)| (there == vk::FALSE).then_some(name))
    .collect()
}

/// The queue family that passes run on, and the bits of its timestamps.
pub(crate) fn compute_family(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Option<(u32, u32)> {
    // SAFETY: `physical` comes from this instance.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    // SAFETY: `physical` comes from this instance.
    let vendor = unsafe { instance.get_physical_device_properties(physical) }.vendor_id;
    let family = choose_family(families.iter().map(|f| f.queue_flags), vendor)?;
    Some((family as u32, families[family].timestamp_valid_bits))
}

/// The first compute family; on AMD the first that is not also a graphics family, if there is one. AMD's first family
/// is the graphics ring, which a desktop draws on, and whose barriers also write back colours and depths.
fn choose_family(families: impl Iterator<Item = vk::QueueFlags> + Clone, vendor: u32) -> Option<usize> {
    let first = |skipped: vk::QueueFlags| {
        families.clone().position(|f| f.contains(vk::QueueFlags::COMPUTE) && !f.intersects(skipped))
    };
    let of_amd = if vendor == units::AMD { first(vk::QueueFlags::GRAPHICS) } else { None };
    of_amd.or_else(|| first(vk::QueueFlags::empty()))
}

pub(crate) fn name_of(properties: &vk::PhysicalDeviceProperties) -> String {
    plain(&properties.device_name_as_c_str().unwrap_or(c"unnamed").to_string_lossy())
}

/// The reason why a device cannot be used; `None` if it can.
pub(crate) fn unfit(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    properties: &vk::PhysicalDeviceProperties,
) -> Option<String> {
    if properties.api_version < vk::API_VERSION_1_3 {
        let v = properties.api_version;
        return Some(format!("has Vulkan {}.{}, not 1.3", vk::api_version_major(v), vk::api_version_minor(v)));
    }
    let missing = missing_features(instance, physical);
    if !missing.is_empty() {
        return Some(format!("lacks {}", missing.join(", ")));
    }
    let mut p11 = vk::PhysicalDeviceVulkan11Properties::default();
    let mut p = vk::PhysicalDeviceProperties2::default().push_next(&mut p11);
    // SAFETY: `physical` comes from this instance; the chain is of valid structures.
    unsafe { instance.get_physical_device_properties2(physical, &mut p) };
    let needed =
        vk::SubgroupFeatureFlags::BASIC | vk::SubgroupFeatureFlags::ARITHMETIC | vk::SubgroupFeatureFlags::SHUFFLE;
    if !p11.subgroup_supported_operations.contains(needed)
        || !p11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
    {
        return Some("lacks subgroup arithmetic or shuffles in compute shaders".into());
    }
    if properties.limits.max_compute_work_group_invocations < MAX_WORKGROUP {
        return Some(format!("takes workgroups of less than {MAX_WORKGROUP} invocations"));
    }
    compute_family(instance, physical).is_none().then(|| "has no compute queue".into())
}

fn choose(instance: &Instance, choice: DeviceChoice) -> Result<vk::PhysicalDevice> {
    let (devices, instance) = (instance.devices()?, &instance.functions);
    let describe = |d: vk::PhysicalDevice| {
        // SAFETY: `d` comes from this instance.
        let p = unsafe { instance.get_physical_device_properties(d) };
        (kind_of(p.device_type), name_of(&p), unfit(instance, d, &p))
    };
    match choice {
        DeviceChoice::Index(i) => {
            let listed = || {
                let names: Vec<_> =
                    devices.iter().enumerate().map(|(i, &d)| format!("{i}: {}", describe(d).1)).collect();
                if names.is_empty() { "there is none".into() } else { format!("choose one of {}", names.join(", ")) }
            };
            let device = devices.get(i).copied();
            let device = device.ok_or_else(|| Error::device(format!("there is no Vulkan device {i}"), listed()))?;
            match describe(device) {
                (_, name, Some(why)) => Err(Error::device(format!("Vulkan device {i}, {name}, {why}"), listed())),
                _ => Ok(device),
            }
        }
        DeviceChoice::Best => {
            let rank = |kind| match kind {
                DeviceKind::Discrete => 0,
                DeviceKind::Integrated => 1,
                DeviceKind::Virtual => 2,
                DeviceKind::Cpu | DeviceKind::Other => 3,
            };
            let fit = devices.iter().copied().filter(|&d| describe(d).2.is_none());
            fit.min_by_key(|&d| rank(describe(d).0)).ok_or_else(|| {
                let why: Vec<_> = devices
                    .iter()
                    .map(|&d| describe(d))
                    .filter_map(|(_, name, why)| why.map(|w| format!("{name} {w}")))
                    .collect();
                let why = if why.is_empty() { "the loader lists no device".into() } else { why.join("; ") };
                Error::device(
                    format!("no usable Vulkan device: {why}"),
                    text!("install a Vulkan 1.3 driver (mesa-vulkan-drivers on Debian), or use ", Setting::Cpu),
                )
            })
        }
    }
}

pub(crate) fn read_caps(
    entry: &ash::Entry,
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    timestamp_bits: u32,
) -> Result<(Caps, Features)> {
    let mut p11 = vk::PhysicalDeviceVulkan11Properties::default();
    let mut p12 = vk::PhysicalDeviceVulkan12Properties::default();
    let mut p13 = vk::PhysicalDeviceVulkan13Properties::default();
    let mut p = vk::PhysicalDeviceProperties2::default().push_next(&mut p11).push_next(&mut p12).push_next(&mut p13);
    // SAFETY: `physical` comes from this instance; the chain is of valid structures.
    unsafe { instance.get_physical_device_properties2(physical, &mut p) };
    let properties = p.properties;
    // SAFETY: `physical` comes from this instance.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }
        .map_err(failure("list a device's extensions"))?;
    let has = |name: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name));

    let subgroup_choice = p13.min_subgroup_size != p13.max_subgroup_size
        && p13.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE);
    // Prefer 32: gfx11 runs memory-bound kernels better in waves of 32.
    let subgroup = match subgroup_choice {
        true => 32.clamp(p13.min_subgroup_size, p13.max_subgroup_size),
        false => p11.subgroup_size,
    };
    let driver = plain(&p12.driver_info_as_c_str().unwrap_or(c"").to_string_lossy());
    let id: String = properties.pipeline_cache_uuid.iter().map(|b| format!("{b:02x}")).collect();
    let cache_id = format!("{:04x}-{:04x}-{id}", properties.vendor_id, properties.device_id);
    let caps = Caps {
        name: format!("{}, {driver}", name_of(&properties)),
        kind: kind_of(properties.device_type),
        subgroup,
        max_allocation: p11.max_memory_allocation_size.min(p13.max_buffer_size),
        has_clock: timestamp_bits > 0,
        matrix: has(units::EXTENSION).then(|| units::detect(entry, instance, physical, subgroup)).flatten(),
        dot_accelerated: p13.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE,
        tries_relay: true,
        relays_behind: properties.vendor_id == units::AMD,
        cache_id: format!("{:016x}-{cache_id}", spirv::fingerprint()),
    };
    let features = Features {
        subgroup_choice,
        clock: (timestamp_bits > 0).then(|| Clock {
            nanoseconds: f64::from(properties.limits.timestamp_period),
            mask: u64::MAX >> (64 - timestamp_bits.min(64)),
        }),
        memory_budget: has(ash::ext::memory_budget::NAME),
        render_node: has(ash::ext::physical_device_drm::NAME).then(|| render_node(instance, physical)).flatten(),
        sharing: Sharing::detect(instance, physical, has),
        cache_id,
    };
    Ok((caps, features))
}

pub(crate) fn kind_of(kind: vk::PhysicalDeviceType) -> DeviceKind {
    match kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    }
}

/// The minor number of a device's render node. The device must have VK_EXT_physical_device_drm.
fn render_node(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Option<i64> {
    let mut drm = vk::PhysicalDeviceDrmPropertiesEXT::default();
    let mut p = vk::PhysicalDeviceProperties2::default().push_next(&mut drm);
    // SAFETY: `physical` comes from this instance, and the extension is present.
    unsafe { instance.get_physical_device_properties2(physical, &mut p) };
    (drm.has_render == vk::TRUE).then_some(drm.render_minor)
}

impl Gpu {
    /// Loads Vulkan and opens a device.
    ///
    /// # Errors
    /// Device: no loader, no driver, no such device, or one that lacks a required feature (named).
    pub fn open(choice: DeviceChoice) -> Result<Gpu> {
        Gpu::open_as(choice, false)
    }

    /// [`Gpu::open`] for use with [`Pipelines::inspect`].
    ///
    /// # Errors
    /// Device: as [`Gpu::open`], or the driver cannot report on compiled kernels.
    #[cfg(feature = "testing")]
    pub fn open_for_inspection(choice: DeviceChoice) -> Result<Gpu> {
        Gpu::open_as(choice, true)
    }

    /// The flags with which every pipeline is created.
    pub(crate) fn pipeline_flags(&self) -> vk::PipelineCreateFlags {
        match self.inspector {
            None => vk::PipelineCreateFlags::empty(),
            Some(_) => {
                vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
                    | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR
            }
        }
    }

    /// `inspect`: has the driver keep what `testing::inspect` reads.
    pub(crate) fn open_as(choice: DeviceChoice, inspect: bool) -> Result<Gpu> {
        let made = Instance::new()?;
        let (entry, instance) = (&made.entry, &made.functions);
        let physical = choose(&made, choice)?;
        let (family, timestamp_bits) = compute_family(instance, physical)
            .ok_or_else(|| Error::device("the device has no compute queue", text!("use ", Setting::Cpu)))?;
        let (caps, features) = read_caps(entry, instance, physical, timestamp_bits)?;
        // SAFETY: `physical` comes from this instance.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        if caps.is_cpu() {
            check_threads()?;
        }
        let device = create_device(instance, physical, family, &caps, &features, inspect)?;
        let inspector = inspect.then(|| Inspector::new(instance, &device));
        let dma_bufs = (features.sharing != Sharing::default()).then(|| DmaBufs::new(instance, &device));
        // SAFETY: the family and index are those the device was created with.
        let queue = unsafe { device.get_device_queue(family, 0) };
        Ok(Gpu {
            instance: made,
            physical,
            device,
            queue,
            family,
            caps,
            features,
            memory,
            hung: Cell::new(false),
            kept: Cell::new(false),
            dma_bufs,
            inspector,
        })
    }

    /// The functions for dma-bufs.
    ///
    /// # Errors
    /// Device: the driver has none.
    pub(crate) fn dma_bufs(&self) -> Result<&DmaBufs> {
        self.dma_bufs.as_ref().ok_or_else(|| {
            Error::device(format!("{} shares no memory as dma-bufs", self.caps.name), "use memory of its own")
        })
    }

    /// Bytes that may still be allocated from each heap.
    pub fn heap_budgets(&self) -> Vec<u64> {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut p = vk::PhysicalDeviceMemoryProperties2::default();
        if self.features.memory_budget {
            p = p.push_next(&mut budget);
        }
        // SAFETY: `physical` comes from this instance; the budget structure is chained only if the extension is
        // present.
        unsafe { self.instance.functions.get_physical_device_memory_properties2(self.physical, &mut p) };
        let heaps = p.memory_properties;
        (0..heaps.memory_heap_count as usize)
            .map(|i| match self.features.memory_budget {
                true => budget.heap_budget[i].saturating_sub(budget.heap_usage[i]),
                false => heaps.memory_heaps[i].size,
            })
            .collect()
    }
}

/// Refuses a CPU driver whose threads could not all be started: Mesa's waits for missing ones forever.
fn check_threads() -> Result<()> {
    // One per processor, up to Mesa's LP_MAX_THREADS, and one for submits.
    let needed = std::thread::available_parallelism().map_or(1, usize::from).min(32) + 1;
    match threads::count_startable(needed) {
        few if few < needed => {
            let cause = format!("the CPU driver needs {needed} threads, and {few} can be started");
            Err(Error::device(cause, text!(threads::REMEDY, ", or use ", Setting::Cpu)))
        }
        _ => Ok(()),
    }
}

fn create_device(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    family: u32,
    caps: &Caps,
    offered: &Features,
    inspect: bool,
) -> Result<ash::Device> {
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let mut extensions = Vec::new();
    if offered.memory_budget {
        extensions.push(ash::ext::memory_budget::NAME.as_ptr());
    }
    if caps.matrix.is_some() {
        extensions.push(units::EXTENSION.as_ptr());
    }
    extensions.extend(offered.sharing.extensions().iter().map(|e| e.as_ptr()));
    let features = vk::PhysicalDeviceFeatures::default().shader_int64(true);
    let matrix_units = caps.matrix.is_some();
    let mut f12 = vk::PhysicalDeviceVulkan12Features::default()
        .shader_int8(true)
        .buffer_device_address(true)
        .shader_float16(matrix_units)
        .vulkan_memory_model(true)
        .vulkan_memory_model_device_scope(true);
    let mut f13 = vk::PhysicalDeviceVulkan13Features::default()
        .synchronization2(true)
        .maintenance4(true)
        .shader_integer_dot_product(true)
        .subgroup_size_control(true)
        .compute_full_subgroups(true);
    let mut inspection = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
    if inspect {
        check_inspectable(instance, physical)?;
        extensions.push(ash::khr::pipeline_executable_properties::NAME.as_ptr());
        inspection = inspection.pipeline_executable_info(true);
    }
    let mut f_matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
    let mut info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .enabled_features(&features)
        .push_next(&mut f12)
        .push_next(&mut f13);
    if inspect {
        info = info.push_next(&mut inspection);
    }
    if caps.matrix.is_some() {
        info = info.push_next(&mut f_matrix);
    }
    // SAFETY: features and extensions were checked to be present; all structures live through the call.
    unsafe { instance.create_device(physical, &info, None) }.map_err(failure("open the device"))
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.hung.get() || self.kept.get() {
            return self.instance.abandon();
        }
        // SAFETY: every object made from the device holds an `Rc` of this, so all are gone.
        unsafe { self.device.destroy_device(None) };
    }
}
