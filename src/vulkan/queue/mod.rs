//! Bakes dispatches into command buffers once, and submits them for every token.

// Until attention runs on the NPU, tests alone exchange fences.
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
pub mod fence;
pub mod record;
pub mod stamps;

use crate::error::{Setting, text};
use crate::lower::dispatch::{Dispatch, Edge};
use crate::vulkan::device::{Gpu, failure};
use crate::vulkan::memory::Buffer;
use crate::vulkan::pipelines::Pipelines;
use crate::vulkan::queue::record::{Recorder, Relay, barrier};
use crate::vulkan::queue::stamps::Stamps;
use crate::{Error, Result};
use ash::vk;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static RECORDINGS: AtomicU64 = AtomicU64::new(0);

/// Command buffers that this process has recorded. Baking and uploading record; replaying must not.
#[cfg(feature = "testing")]
pub fn recordings() -> u64 {
    RECORDINGS.load(Ordering::Relaxed)
}

/// Time per submit before the device counts as hung. A CPU driver on a small machine may take minutes for a layer of a
/// large model. A GPU's own lockup timeout is seconds.
const GPU_DEADLINE: Duration = Duration::from_secs(20);
const CPU_DEADLINE: Duration = Duration::from_secs(600);

/// A wait may wake up this long after its fence. So [`Queue::wait_promptly`] looks at the fence itself for this long
/// before the expected end, and after it.
const WAKING: Duration = Duration::from_micros(300);

/// Most fences under way at a time: one for the pass that is waited for, one for the pass after it.
const FENCES: usize = 2;

/// The device's queue, a command pool, and fences. Fences are waited for in the order of their submits.
pub struct Queue {
    gpu: Rc<Gpu>,
    pool: vk::CommandPool,
    fences: [vk::Fence; FENCES],
    deadline: Duration,
    /// Submits that each fence covers.
    submits: [Cell<u32>; FENCES],
    /// Submits since the last fence.
    open: Cell<u32>,
    /// Fences submitted, and fences waited for, since the start.
    signals: Cell<usize>,
    waits: Cell<usize>,
}

impl Queue {
    /// A pool and fences on the device's queue.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn new(gpu: &Rc<Gpu>) -> Result<Queue> {
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.family);
        let deadline = if gpu.caps.is_cpu() { CPU_DEADLINE } else { GPU_DEADLINE };
        let mut queue = Queue {
            gpu: gpu.clone(),
            pool: vk::CommandPool::null(),
            fences: [vk::Fence::null(); FENCES],
            deadline,
            submits: Default::default(),
            open: Cell::new(0),
            signals: Cell::new(0),
            waits: Cell::new(0),
        };
        // SAFETY: the device lives as long as `gpu`. If a call fails, the queue's drop destroys what was made.
        unsafe {
            queue.pool = gpu.device.create_command_pool(&info, None).map_err(failure("create a command pool"))?;
            for fence in &mut queue.fences {
                let info = vk::FenceCreateInfo::default();
                *fence = gpu.device.create_fence(&info, None).map_err(failure("create a fence"))?;
            }
        }
        Ok(queue)
    }

    /// Records a command buffer from the queue's pool.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub(crate) fn record(&self, what: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> Result<vk::CommandBuffer> {
        RECORDINGS.fetch_add(1, Ordering::Relaxed);
        let device = &self.gpu.device;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is this device's and used from one thread (`Queue` is not `Sync`).
        unsafe {
            let commands = device.allocate_command_buffers(&info).map_err(failure("allocate a command buffer"))?[0];
            let begin = vk::CommandBufferBeginInfo::default();
            device.begin_command_buffer(commands, &begin).map_err(failure("record commands"))?;
            what(device, commands);
            device.end_command_buffer(commands).map_err(failure("record commands"))?;
            Ok(commands)
        }
    }

    /// Bakes dispatches into a command buffer that may be replayed any number of times. Each part stands behind a
    /// barrier. The command buffer waits for everything submitted before it. The host sees its writes once the fence is
    /// waited for. `readback` is copied at the end: source, destination, region.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the driver refuses.
    pub fn bake(
        &self,
        parts: &[&[Dispatch]],
        pipelines: &mut Pipelines,
        relay: Option<Relay>,
        stamps: Option<Stamps>,
        readback: &[(vk::Buffer, vk::Buffer, vk::BufferCopy)],
    ) -> Result<vk::CommandBuffer> {
        let dispatches =
            || parts.iter().flat_map(|p| p.iter().enumerate()).map(|(i, d)| (d, d.edge != Edge::None || i == 0));
        let handles = pipelines.get(&dispatches().map(|(d, _)| d.kernel).collect::<Vec<_>>())?;
        let layout = pipelines.layout;
        let aheads = weights_ahead(dispatches().map(|(d, _)| d.weights.clone()));
        self.record(|device, commands| {
            use vk::PipelineStageFlags2 as Stage;
            // SAFETY: the command buffer is being recorded; pipelines, buffers and queries outlive it.
            unsafe {
                if let Some(s) = stamps {
                    device.cmd_reset_query_pool(commands, s.pool, s.first, 2);
                    device.cmd_write_timestamp2(commands, Stage::ALL_COMMANDS, s.pool, s.first);
                }
                let mut recorder = Recorder::new(device, commands, layout, relay);
                for (((d, wait), &pipeline), ahead) in dispatches().zip(&handles).zip(aheads) {
                    recorder.dispatch(d, pipeline, wait, ahead);
                }
                if !readback.is_empty() {
                    barrier(device, commands, Stage::COMPUTE_SHADER, Stage::TRANSFER);
                    for (from, to, region) in readback {
                        device.cmd_copy_buffer(commands, *from, *to, &[*region]);
                    }
                }
                barrier(device, commands, Stage::COMPUTE_SHADER | Stage::TRANSFER, Stage::HOST);
                if let Some(s) = stamps {
                    device.cmd_write_timestamp2(commands, Stage::ALL_COMMANDS, s.pool, s.first + 1);
                }
            }
        })
    }

    /// Submits baked command buffers in order. With `signal`, a fence follows the last.
    ///
    /// # Errors
    /// Device: the device was lost.
    ///
    /// # Safety
    /// The command buffers were recorded by this queue and not freed. None of them is pending: each earlier submit of
    /// it was waited for. What they use lives until this submit is waited for.
    pub unsafe fn submit(&self, commands: &[vk::CommandBuffer], signal: bool) -> Result<()> {
        let fence = self.begin(signal)?;
        let info = [vk::SubmitInfo::default().command_buffers(commands)];
        // SAFETY: as the caller promises.
        unsafe { self.gpu.device.queue_submit(self.gpu.queue, &info, fence) }.map_err(failure("submit work"))?;
        self.count(signal);
        Ok(())
    }

    /// The fence of the next submit; null without `signal`.
    fn begin(&self, signal: bool) -> Result<vk::Fence> {
        if self.gpu.hung.get() {
            return Err(hung(0));
        }
        if signal && self.under_way() == FENCES {
            return Err(Error::device("more passes are under way than can be waited for", "report this"));
        }
        Ok(if signal { self.fences[self.signals.get() % FENCES] } else { vk::Fence::null() })
    }

    /// Counts a submit that succeeded.
    fn count(&self, signal: bool) {
        self.open.set(self.open.get() + 1);
        if signal {
            self.submits[self.signals.get() % FENCES].set(self.open.take());
            self.signals.set(self.signals.get() + 1);
        }
    }

    /// Fences submitted and not yet waited for.
    pub fn under_way(&self) -> usize {
        self.signals.get() - self.waits.get()
    }

    /// Whether everything submitted has been waited for.
    pub fn is_idle(&self) -> bool {
        self.under_way() == 0 && !self.is_open()
    }

    /// Waits for everything submitted. If an error left submits without a fence, submits one.
    ///
    /// # Errors
    /// As [`Queue::wait`].
    pub fn drain(&self) -> Result<()> {
        while self.under_way() > 0 {
            self.wait()?;
        }
        if self.is_open() {
            self.close()?;
            self.wait()?;
        }
        Ok(())
    }

    /// Whether something was submitted that has no fence behind it.
    pub fn is_open(&self) -> bool {
        self.open.get() > 0
    }

    /// Puts a fence behind what was submitted without one.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn close(&self) -> Result<()> {
        // SAFETY: there is no command buffer, only the fence.
        unsafe { self.submit(&[], true) }
    }

    /// As [`Queue::submit`] with a fence. Waits for semaphores and signals others; each comes with its value, which
    /// only timelines use.
    ///
    /// # Errors
    /// Device: the device was lost.
    ///
    /// # Safety
    /// As [`Queue::submit`]; the semaphores are this device's and live until the wait.
    #[cfg_attr(not(feature = "testing"), allow(dead_code))]
    pub(crate) unsafe fn submit_ordered(
        &self,
        commands: &[vk::CommandBuffer],
        waits: &[(vk::Semaphore, u64)],
        signals: &[(vk::Semaphore, u64)],
    ) -> Result<()> {
        let fence = self.begin(true)?;
        let infos = |semaphores: &[(vk::Semaphore, u64)]| -> Vec<_> {
            let info = |&(semaphore, value)| {
                let info = vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value);
                info.stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
            };
            semaphores.iter().map(info).collect()
        };
        let (waits, signals) = (infos(waits), infos(signals));
        let commands: Vec<_> =
            commands.iter().map(|&c| vk::CommandBufferSubmitInfo::default().command_buffer(c)).collect();
        let info = [vk::SubmitInfo2::default()
            .wait_semaphore_infos(&waits)
            .command_buffer_infos(&commands)
            .signal_semaphore_infos(&signals)];
        // SAFETY: as the caller promises.
        unsafe { self.gpu.device.queue_submit2(self.gpu.queue, &info, fence) }.map_err(failure("submit work"))?;
        self.count(true);
        Ok(())
    }

    /// Waits for the oldest fence under way; there must be one.
    ///
    /// # Errors
    /// Device: the device was lost, or did not finish within one deadline per submit.
    pub fn wait(&self) -> Result<()> {
        if self.gpu.hung.get() {
            return Err(hung(0));
        }
        let i = self.waits.get() % FENCES;
        let fences = [self.fences[i]];
        let deadline = self.deadline * self.submits[i].get();
        let timeout = deadline.as_nanos() as u64;
        // SAFETY: the fence is this device's, and a submit that signals it is under way.
        unsafe {
            self.gpu.device.wait_for_fences(&fences, true, timeout).map_err(|r| match r {
                vk::Result::TIMEOUT => {
                    self.gpu.hung.set(true);
                    hung(deadline.as_secs())
                }
                r => failure("finish its work")(r),
            })?;
            self.gpu.device.reset_fences(&fences).map_err(failure("reset a fence"))?;
        }
        self.waits.set(self.waits.get() + 1);
        Ok(())
    }

    /// As [`Queue::wait`], where the device idles until the host has seen the end: what was just submitted takes about
    /// `expected`. Sleeps for most of that time.
    ///
    /// # Errors
    /// As [`Queue::wait`].
    pub fn wait_promptly(&self, expected: Duration) -> Result<()> {
        // A CPU driver needs the processor itself.
        if !self.gpu.caps.is_cpu() && !self.gpu.hung.get() {
            let start = Instant::now();
            std::thread::sleep(expected.saturating_sub(WAKING));
            let fence = self.fences[self.waits.get() % FENCES];
            // SAFETY: the fence is this device's.
            let is_done = || unsafe { self.gpu.device.get_fence_status(fence) };
            while start.elapsed() < expected + WAKING && !is_done().map_err(failure("finish its work"))? {
                std::hint::spin_loop();
            }
        }
        self.wait()
    }

    /// Copies between buffers, behind everything submitted before, and waits. The host sees what was copied.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn copy(&self, from: &Buffer, to: &Buffer, regions: &[vk::BufferCopy]) -> Result<()> {
        use vk::PipelineStageFlags2 as Stage;
        let commands = self.record(|device, commands| {
            barrier(device, commands, Stage::COMPUTE_SHADER | Stage::TRANSFER, Stage::TRANSFER);
            // SAFETY: the regions lie within both buffers, which outlive the wait below.
            unsafe { device.cmd_copy_buffer(commands, from.handle, to.handle, regions) };
            barrier(device, commands, Stage::TRANSFER, Stage::HOST);
        })?;
        self.run_once(commands)
    }

    /// Submits, waits, and frees a command buffer.
    fn run_once(&self, commands: vk::CommandBuffer) -> Result<()> {
        // SAFETY: the command buffer was just recorded; the caller holds the buffers that it copies between.
        unsafe { self.submit(&[commands], true) }?;
        self.wait()?;
        self.free(&[commands]);
        Ok(())
    }

    /// Frees command buffers of this queue. They must have been waited for.
    pub(crate) fn free(&self, commands: &[vk::CommandBuffer]) {
        if commands.is_empty() {
            return;
        }
        // SAFETY: they are of this pool, the wait for them is over, and their owner gives them up.
        unsafe { self.gpu.device.free_command_buffers(self.pool, commands) };
    }
}

fn hung(seconds: u64) -> Error {
    Error::device(
        format!("the GPU hangs: it did not finish within {seconds} s"),
        text!("see the kernel's log for a hung ring; ", Setting::Cpu, " works without the GPU"),
    )
}

/// For each of a series of dispatches, the weights that the next one behind it that has any reads.
fn weights_ahead(weights: impl DoubleEndedIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut next = 0..0;
    let of = |own: Range<u64>| if own.is_empty() { next.clone() } else { std::mem::replace(&mut next, own) };
    let mut ahead: Vec<_> = weights.rev().map(of).collect();
    ahead.reverse();
    ahead
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.gpu.hung.get() {
            return;
        }
        // SAFETY: waits for all work; nothing recorded from this pool is used after it.
        unsafe {
            let _ = self.gpu.device.device_wait_idle();
            for fence in self.fences {
                self.gpu.device.destroy_fence(fence, None);
            }
            self.gpu.device.destroy_command_pool(self.pool, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::weights_ahead;

    #[test]
    fn each_dispatch_has_the_weights_of_the_product_behind_it() {
        let ahead = weights_ahead([0..0, 8..12, 0..0, 0..0, 4..8, 16..20, 0..0].into_iter());
        assert_eq!(ahead, [8..12, 4..8, 4..8, 4..8, 16..20, 0..0, 0..0]);
        assert!(weights_ahead(std::iter::empty()).is_empty());
    }
}
