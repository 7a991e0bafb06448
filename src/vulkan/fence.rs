//! Explicit fences between the GPU's queue and other devices or the host: sync_files and timelines. Drivers hand
//! sync_files to each other.

use super::driver::Vulkan;
use crate::Result;
use crate::replay::queue::DeviceQueue;
use crate::sys::fence::SyncFile;
use crate::vulkan::device::sync_files::SYNC_FILE;
use crate::vulkan::device::{Gpu, failure};
use ash::vk;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// Longest wait of the host for another device.
const HOST_WAIT: Duration = Duration::from_secs(20);

/// A semaphore of the driver's, destroyed when dropped.
struct Semaphore {
    gpu: Rc<Gpu>,
    handle: vk::Semaphore,
}

impl Semaphore {
    fn new(gpu: &Rc<Gpu>, info: &vk::SemaphoreCreateInfo<'_>) -> Result<Semaphore> {
        // SAFETY: the device lives as long as `gpu`; the structure is valid for the call.
        let handle = unsafe { gpu.device.create_semaphore(info, None) }.map_err(failure("create a semaphore"))?;
        Ok(Semaphore { gpu: gpu.clone(), handle })
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        if self.gpu.hung.get() {
            return;
        }
        // SAFETY: submits with the semaphore are waited for before it is dropped.
        unsafe { self.gpu.device.destroy_semaphore(self.handle, None) };
    }
}

/// Lets a submit wait for another driver's work and another driver wait for the submit, by sync_files. It serves one submit
/// at a time.
pub struct Gate {
    gpu: Rc<Gpu>,
    incoming: Semaphore,
    outgoing: Semaphore,
}

impl Gate {
    /// A gate for the device's queue.
    ///
    /// # Errors
    /// Device: the driver does not export and import sync_files.
    pub fn new(gpu: &Rc<Gpu>) -> Result<Gate> {
        gpu.sync_files()?;
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(SYNC_FILE);
        let outgoing = Semaphore::new(gpu, &vk::SemaphoreCreateInfo::default().push_next(&mut export))?;
        let incoming = Semaphore::new(gpu, &vk::SemaphoreCreateInfo::default())?;
        Ok(Gate { gpu: gpu.clone(), incoming, outgoing })
    }

    /// Imports a fence: the semaphore that the next submit must wait for.
    ///
    /// # Errors
    /// Device: the driver refuses the fence.
    fn take_in(&self, fence: SyncFile) -> Result<vk::Semaphore> {
        // As with dma-bufs, a driver may close the descriptor even if the import fails, so it is not closed here.
        let fd = OwnedFd::from(fence).into_raw_fd();
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(self.incoming.handle)
            .flags(vk::SemaphoreImportFlags::TEMPORARY)
            .handle_type(SYNC_FILE)
            .fd(fd);
        // SAFETY: the semaphore is this device's and in no submit; the driver takes over the descriptor.
        unsafe { self.gpu.sync_files()?.functions.import_semaphore_fd(&info) }.map_err(failure("take in a fence"))?;
        Ok(self.incoming.handle)
    }

    /// The fence of the submit that signals `outgoing`. It must have been submitted. `None` if it is already done.
    fn give_out(&self) -> Result<Option<SyncFile>> {
        let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(self.outgoing.handle).handle_type(SYNC_FILE);
        let functions = &self.gpu.sync_files()?.functions;
        // SAFETY: the semaphore is this device's, and its signal is submitted.
        let fd = unsafe { functions.get_semaphore_fd(&info) }.map_err(failure("give out a fence"))?;
        // SAFETY: -1 means that the work is already done. Any other descriptor is new, and has no other owner.
        Ok((fd >= 0).then(|| SyncFile::from_fd(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Submits baked command buffers that wait for `after` and for `order`'s point. Returns a fence for other devices,
    /// or `None` if the work is already done. On the host, [`DeviceQueue::wait`] waits for it.
    ///
    /// # Errors
    /// Device: the device was lost, or the driver refuses the fence.
    ///
    /// # Safety
    /// As [`DeviceQueue::submit`]; this and the timelines live until the wait.
    pub unsafe fn submit(
        &self,
        queue: &DeviceQueue<Vulkan>,
        commands: &[vk::CommandBuffer],
        after: Option<SyncFile>,
        order: TimelineOrder<'_>,
    ) -> Result<Option<SyncFile>> {
        let incoming = match after {
            // Mesa's CPU driver (26.1) imports a fence but does not wait for it.
            Some(fence) if self.gpu.caps.is_cpu() => {
                fence.wait(HOST_WAIT)?;
                None
            }
            after => after.map(|fence| self.take_in(fence)).transpose()?,
        };
        // SAFETY: as the caller promises.
        unsafe { order.submit_with(queue, commands, incoming, Some(self.outgoing.handle)) }?;
        self.give_out()
    }
}

/// Points of timelines that a submit waits for and signals.
#[derive(Default, Clone, Copy)]
pub struct TimelineOrder<'a> {
    /// The submit begins when this timeline has reached this value.
    pub after: Option<(&'a Timeline, u64)>,
    /// The submit raises this timeline to this value when it is done.
    pub then: Option<(&'a Timeline, u64)>,
}

impl TimelineOrder<'_> {
    /// Submits baked command buffers with these waits and signals; [`DeviceQueue::wait`] waits for them on the host.
    ///
    /// # Errors
    /// Device: the device was lost.
    ///
    /// # Safety
    /// As [`DeviceQueue::submit`]; the timelines live until the wait.
    pub unsafe fn submit(self, queue: &DeviceQueue<Vulkan>, commands: &[vk::CommandBuffer]) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.submit_with(queue, commands, None, None) }
    }

    unsafe fn submit_with(
        self,
        queue: &DeviceQueue<Vulkan>,
        commands: &[vk::CommandBuffer],
        incoming: Option<vk::Semaphore>,
        outgoing: Option<vk::Semaphore>,
    ) -> Result<()> {
        let point = |(timeline, value): (&Timeline, u64)| (timeline.semaphore.handle, value);
        let waits: Vec<_> = incoming.map(|s| (s, 0)).into_iter().chain(self.after.map(point)).collect();
        let signals: Vec<_> = outgoing.map(|s| (s, 0)).into_iter().chain(self.then.map(point)).collect();
        // SAFETY: as the caller promises.
        queue.submit_by(true, |vulkan, signal| unsafe { vulkan.submit_ordered(commands, signal, &waits, &signals) })
    }
}

/// A counter that only grows. The host and submits can raise it, and wait until it reaches a value.
pub struct Timeline {
    gpu: Rc<Gpu>,
    semaphore: Semaphore,
}

impl Timeline {
    /// A timeline at zero.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn new(gpu: &Rc<Gpu>) -> Result<Timeline> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let semaphore = Semaphore::new(gpu, &vk::SemaphoreCreateInfo::default().push_next(&mut kind))?;
        Ok(Timeline { gpu: gpu.clone(), semaphore })
    }

    /// The current value.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn value(&self) -> Result<u64> {
        // SAFETY: the semaphore is this device's, and a timeline.
        unsafe { self.gpu.device.get_semaphore_counter_value(self.semaphore.handle) }
            .map_err(failure("read a timeline"))
    }

    /// Raises the timeline to `value`, from the host.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn raise(&self, value: u64) -> Result<()> {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore.handle).value(value);
        // SAFETY: as in `value`.
        unsafe { self.gpu.device.signal_semaphore(&info) }.map_err(failure("raise a timeline"))
    }

    /// Waits on the host until the timeline has reached `value`, for at most `timeout`. Returns whether it has.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn wait(&self, value: u64, timeout: Duration) -> Result<bool> {
        let (semaphores, values) = ([self.semaphore.handle], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: as in `value`.
        match unsafe { self.gpu.device.wait_semaphores(&info, nanoseconds) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(r) => Err(failure("wait for a timeline")(r)),
        }
    }
}
