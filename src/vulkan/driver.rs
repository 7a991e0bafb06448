//! The driver: records lists into command buffers once, and submits them for every pass.

use super::device::{Gpu, failure};
use super::memory::{Backing, Buffer};
use super::pipelines::Pipelines;
use super::record;
use super::stamps::StampPool;
use crate::lower::caps::{Caps, DeviceKind};
use crate::lower::kernels::Kernel;
use crate::replay::driver::{DeviceCommand, Driver, HostAccess, KernelCompiler, MemorySource, SIGNALS, hung};
use crate::{Result, display};
use ash::vk;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static RECORDINGS: AtomicU64 = AtomicU64::new(0);

/// Command buffers that this process has recorded. Baking and uploading record; replaying must not.
#[cfg(feature = "testing")]
pub fn recordings() -> u64 {
    RECORDINGS.load(Ordering::Relaxed)
}

/// A Vulkan device's driver: its queue, a command pool, a fence for each signal, and its pipelines.
pub struct Vulkan {
    gpu: Rc<Gpu>,
    pool: vk::CommandPool,
    fences: [vk::Fence; SIGNALS],
    pipelines: Pipelines,
}

impl Vulkan {
    /// A driver of an open device.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn new(gpu: &Rc<Gpu>) -> Result<Vulkan> {
        let pipelines = Pipelines::new(gpu)?;
        let (pool, fences) = (vk::CommandPool::null(), [vk::Fence::null(); SIGNALS]);
        let mut vulkan = Vulkan { gpu: gpu.clone(), pool, fences, pipelines };
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.family);
        // SAFETY: the device lives as long as `gpu`. If a call fails, `Drop` destroys the objects made until then.
        unsafe {
            vulkan.pool = gpu.device.create_command_pool(&info, None).map_err(failure("create a command pool"))?;
            for fence in &mut vulkan.fences {
                let info = vk::FenceCreateInfo::default();
                *fence = gpu.device.create_fence(&info, None).map_err(failure("create a fence"))?;
            }
        }
        Ok(vulkan)
    }

    /// The fence of a signal; null without one.
    fn fence(&self, signal: Option<usize>) -> Result<vk::Fence> {
        match self.gpu.hung.get() {
            true => Err(hung(0)),
            false => Ok(signal.map_or(vk::Fence::null(), |signal| self.fences[signal])),
        }
    }
}

impl Driver for Vulkan {
    type Memory = Buffer;
    type Baked = vk::CommandBuffer;
    type Stamps = StampPool;

    fn caps(&self) -> &Caps {
        &self.gpu.caps
    }

    fn allocate(&self, bytes: u64, heap: usize, access: HostAccess, source: MemorySource) -> Result<Buffer> {
        let backed = |backing| Buffer::backed(&self.gpu, bytes, heap, access, backing);
        let shares = self.gpu.features.sharing.exports && self.gpu.caps.kind == DeviceKind::Integrated;
        match source {
            MemorySource::Exported => backed(Backing::Exported),
            MemorySource::Auto if shares => backed(Backing::Exported).or_else(|e| {
                log::warn!("{} is no dma-buf, and no other device can share it: {e}", display::bytes(bytes));
                backed(Backing::Driver)
            }),
            MemorySource::Auto | MemorySource::Ordinary => backed(Backing::Driver),
        }
    }

    fn compile(&mut self, kernels: &[Kernel]) -> Result<()> {
        self.pipelines.get(kernels).map(drop)
    }

    fn bake(&mut self, commands: &[DeviceCommand<'_, Vulkan>]) -> Result<vk::CommandBuffer> {
        let kernels = commands.iter().filter_map(|command| match command {
            DeviceCommand::Run { kernel, .. } => Some(*kernel),
            _ => None,
        });
        let pipelines = self.pipelines.get(&kernels.collect::<Vec<_>>())?;
        RECORDINGS.fetch_add(1, Ordering::Relaxed);
        let device = &self.gpu.device;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is this device's and used from one thread (`Vulkan` is not `Sync`). Pipelines live as long
        // as the pool; memory and stamps as long as the list may run, by the contract of submits.
        unsafe {
            let buffer = device.allocate_command_buffers(&info).map_err(failure("allocate a command buffer"))?[0];
            let begin = vk::CommandBufferBeginInfo::default();
            device.begin_command_buffer(buffer, &begin).map_err(failure("record commands"))?;
            record::record(device, buffer, self.pipelines.layout, commands, &pipelines);
            device.end_command_buffer(buffer).map_err(failure("record commands"))?;
            Ok(buffer)
        }
    }

    fn free(&self, lists: &[vk::CommandBuffer]) {
        if lists.is_empty() || self.gpu.hung.get() {
            return;
        }
        // SAFETY: the lists are of this pool, every submit of them was waited for, and their owner gives them up.
        unsafe { self.gpu.device.free_command_buffers(self.pool, lists) };
    }

    fn stamps(&self, count: usize) -> Result<Option<StampPool>> {
        StampPool::new(&self.gpu, count)
    }

    unsafe fn submit(&self, lists: &[vk::CommandBuffer], signal: Option<usize>) -> Result<()> {
        let fence = self.fence(signal)?;
        let info = [vk::SubmitInfo::default().command_buffers(lists)];
        // SAFETY: as the caller promises.
        unsafe { self.gpu.device.queue_submit(self.gpu.queue, &info, fence) }.map_err(failure("submit work"))
    }

    fn is_done(&self, signal: usize) -> Result<bool> {
        // SAFETY: the fence is this device's.
        unsafe { self.gpu.device.get_fence_status(self.fences[signal]) }.map_err(failure("finish its work"))
    }

    fn wait(&self, signal: usize, deadline: Duration) -> Result<()> {
        if self.gpu.hung.get() {
            return Err(hung(0));
        }
        let fences = [self.fences[signal]];
        let timeout = deadline.as_nanos() as u64;
        // SAFETY: the fence is this device's, and a submit that signals it is in flight.
        unsafe {
            self.gpu.device.wait_for_fences(&fences, true, timeout).map_err(|r| match r {
                vk::Result::TIMEOUT => {
                    self.gpu.hung.set(true);
                    hung(deadline.as_secs())
                }
                r => failure("finish its work")(r),
            })?;
            self.gpu.device.reset_fences(&fences).map_err(failure("reset a fence"))
        }
    }

    fn is_hung(&self) -> bool {
        self.gpu.hung.get()
    }

    fn finish(&self) {
        if !self.gpu.hung.get() {
            // SAFETY: the device is alive; no other thread submits meanwhile.
            let _ = unsafe { self.gpu.device.device_wait_idle() };
        }
    }

    fn compiler(&mut self) -> impl KernelCompiler {
        &mut self.pipelines
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        if self.gpu.hung.get() {
            return;
        }
        self.finish();
        // SAFETY: the device is idle, and no list recorded from this pool is used after it.
        unsafe {
            for fence in self.fences {
                self.gpu.device.destroy_fence(fence, None);
            }
            self.gpu.device.destroy_command_pool(self.pool, None);
        }
    }
}
