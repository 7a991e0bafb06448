//! The profile: times a pass's dispatches one by one, or one segment alone. It bakes command buffers on request, from
//! the executor's dispatches, and frees them afterwards. The command buffers that decoding replays have none of these
//! stamps.

use crate::error::{Setting, text};
use crate::executor::Timed;
use crate::lower::dispatch::{Dispatch, Edge};
use crate::schedule::Segment;
use crate::vulkan::device::Gpu;
use crate::vulkan::pipelines::Pipelines;
use crate::vulkan::queue::Queue;
use crate::vulkan::queue::record::{Recorder, Relay, barrier};
use crate::vulkan::queue::stamps::{StampPool, Stamps};
use crate::{Error, Result};
use ash::vk;
use std::rc::Rc;
use std::time::Duration;

/// The parts of an executor that a profile uses.
pub struct Profiler<'a> {
    /// The device.
    pub gpu: &'a Rc<Gpu>,
    /// Its queue.
    pub queue: &'a Queue,
    /// Its pipelines.
    pub pipelines: &'a mut Pipelines,
    /// The dispatches of the pass, segment by segment.
    pub segments: Vec<(Segment, Vec<Dispatch>)>,
    /// The executor's relay counters, if it relays.
    pub relay: Option<Relay>,
    /// The longest that one submit should keep the device busy.
    pub submit_budget: Duration,
}

/// Command buffers that are freed when dropped.
struct Recorded<'a> {
    queue: &'a Queue,
    gpu: &'a Gpu,
    commands: Vec<vk::CommandBuffer>,
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        if self.gpu.hung.get() || self.commands.is_empty() {
            return;
        }
        // An error between submit and wait leaves work under way, so wait for the device.
        // SAFETY: the device is alive; nothing else submits meanwhile.
        let _ = unsafe { self.gpu.device.device_wait_idle() };
        self.queue.free(&self.commands);
    }
}

impl Profiler<'_> {
    /// Runs the pass whose step state is in the arena `repetitions` times. Each dispatch is stamped and stands behind a
    /// barrier. Returns every dispatch with its seconds in each run, from the end of the dispatch before to its own
    /// end. That includes the barrier, so the times add up to the pass.
    ///
    /// # Errors
    /// Device: it has no timestamps, or it failed.
    pub fn time_steps(&mut self, repetitions: usize) -> Result<Vec<Timed>> {
        // A pool per segment: every driver can make small pools. The pools outlive the commands that write to them.
        let mut pools = Vec::new();
        let mut recorded = Recorded { queue: self.queue, gpu: self.gpu, commands: Vec::new() };
        for (_, dispatches) in &self.segments {
            let pool = StampPool::with_stamps(self.gpu, dispatches.len() + 1)?.ok_or_else(no_clock)?;
            recorded.commands.push(record_stamped(self.queue, self.pipelines, dispatches, pool.queries())?);
            pools.push(pool);
        }
        let timed = |s: &Segment, d: &Dispatch| Timed {
            segment: *s,
            steps: d.steps.clone(),
            kernel: d.kernel.module.name(),
            variant: variant(d),
            seconds: Vec::with_capacity(repetitions),
        };
        let mut timed: Vec<Timed> = self.segments.iter().flat_map(|(s, ds)| ds.iter().map(|d| timed(s, d))).collect();
        // The first run warms up.
        for run in 0..=repetitions {
            for (i, &commands) in recorded.commands.iter().enumerate() {
                // SAFETY: recorded above; `Recorded` keeps it until the wait.
                unsafe { self.queue.submit(&[commands], i + 1 == self.segments.len()) }?;
            }
            self.queue.wait()?;
            let mut at = timed.iter_mut();
            for pool in &mut pools {
                // The pools' spans and the dispatches stand in the same order.
                for (seconds, timed) in pool.read_steps()?.zip(&mut at) {
                    if run > 0 {
                        timed.seconds.push(seconds);
                    }
                }
            }
        }
        Ok(timed)
    }

    /// Seconds of `replays` back-to-back runs of one segment, by the device's clock.
    ///
    /// # Errors
    /// Device: it has no timestamps, or it failed.
    pub fn time_segment(&mut self, segment: Segment, replays: usize) -> Result<f64> {
        let found = self.segments.iter().position(|(s, _)| *s == segment);
        let dispatches = found.map(|i| self.segments.swap_remove(i).1).unwrap_or_default();
        // One run warms up and says how many fit the submit budget.
        let one = self.run_replays(&dispatches, 1, 1)?;
        let per_submit = (self.submit_budget.as_secs_f64() / one.max(1e-9)) as usize;
        self.run_replays(&dispatches, replays, per_submit.clamp(1, replays))
    }

    /// Seconds from the start of the first of `replays` runs to the end of the last, `per_submit` to a submit.
    fn run_replays(&mut self, dispatches: &[Dispatch], replays: usize, per_submit: usize) -> Result<f64> {
        let pieces = replays.div_ceil(per_submit);
        let mut pool = StampPool::new(self.gpu, pieces)?.ok_or_else(no_clock)?;
        let mut recorded = Recorded { queue: self.queue, gpu: self.gpu, commands: Vec::new() };
        for i in 0..pieces {
            let times = per_submit.min(replays - i * per_submit);
            let commands = record_replays(self.queue, self.pipelines, dispatches, self.relay, times, pool.span(i))?;
            recorded.commands.push(commands);
        }
        for (i, &commands) in recorded.commands.iter().enumerate() {
            // SAFETY: recorded above; `Recorded` keeps it until the wait.
            unsafe { self.queue.submit(&[commands], i + 1 == pieces) }?;
        }
        self.queue.wait()?;
        pool.elapsed()
    }
}

/// Text of the constants and grid by which dispatches of one module differ.
fn variant(d: &Dispatch) -> String {
    format!("workgroup {}, constants {:?}, groups {:?}", d.kernel.workgroup, d.kernel.constants, d.groups)
}

fn no_clock() -> Error {
    Error::device(
        "the device's queue has no timestamps to time kernels by",
        text!("leave out ", Setting::Kernels.the(), " and ", Setting::Layer.the()),
    )
}

/// Dispatches in order, each behind a barrier, with a stamp before the first and after each.
fn record_stamped(
    queue: &Queue,
    pipelines: &mut Pipelines,
    dispatches: &[Dispatch],
    stamps: vk::QueryPool,
) -> Result<vk::CommandBuffer> {
    use vk::PipelineStageFlags2 as Stage;
    let handles = pipelines.get(&dispatches.iter().map(|d| d.kernel).collect::<Vec<_>>())?;
    let layout = pipelines.layout;
    queue.record(|device, commands| {
        // SAFETY: the command buffer is being recorded; pipelines, buffers and queries outlive it.
        unsafe {
            device.cmd_reset_query_pool(commands, stamps, 0, dispatches.len() as u32 + 1);
            device.cmd_write_timestamp2(commands, Stage::ALL_COMMANDS, stamps, 0);
            let mut recorder = Recorder::new(device, commands, layout, None);
            for (i, (d, &pipeline)) in dispatches.iter().zip(&handles).enumerate() {
                recorder.dispatch(d, pipeline, true, 0..0);
                device.cmd_write_timestamp2(commands, Stage::ALL_COMMANDS, stamps, i as u32 + 1);
            }
            barrier(device, commands, Stage::COMPUTE_SHADER, Stage::HOST);
        }
    })
}

/// The dispatches `times` over, with the barriers of the executor's command buffers.
fn record_replays(
    queue: &Queue,
    pipelines: &mut Pipelines,
    dispatches: &[Dispatch],
    relay: Option<Relay>,
    times: usize,
    stamps: Stamps,
) -> Result<vk::CommandBuffer> {
    use vk::PipelineStageFlags2 as Stage;
    let handles = pipelines.get(&dispatches.iter().map(|d| d.kernel).collect::<Vec<_>>())?;
    let layout = pipelines.layout;
    queue.record(|device, commands| {
        // SAFETY: as in `record_stamped`.
        unsafe {
            device.cmd_reset_query_pool(commands, stamps.pool, stamps.first, 2);
            device.cmd_write_timestamp2(commands, Stage::ALL_COMMANDS, stamps.pool, stamps.first);
            let mut recorder = Recorder::new(device, commands, layout, relay);
            for _ in 0..times {
                for (i, (d, &pipeline)) in dispatches.iter().zip(&handles).enumerate() {
                    recorder.dispatch(d, pipeline, d.edge != Edge::None || i == 0, 0..0);
                }
            }
            barrier(device, commands, Stage::COMPUTE_SHADER, Stage::HOST);
            device.cmd_write_timestamp2(commands, Stage::ALL_COMMANDS, stamps.pool, stamps.first + 1);
        }
    })
}
