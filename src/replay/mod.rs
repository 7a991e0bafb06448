//! The Vulkan executor: every pass replays command buffers that were baked when the model was loaded. A pass writes the
//! step state, submits, and waits. Nothing is recorded, bound or allocated.
//!
//! Where a head row's token is not its argmax, one more command buffer follows the head: it finds what the host needs to
//! choose the token, and copies that to memory that the host reads through its caches. Passes in which every row takes its
//! argmax are replayed without it.
//!
//! Where no row needs more than that, the next pass is submitted before the wait. It takes its tokens from the step state,
//! where the pass before has left them: each row's argmax, or the one token that the row asked for. What rows ask for may
//! depend on the tokens before. The host writes it while the pass runs, and then submits what reads it.
//!
//! A pass is a list of pieces: command buffers, and where there is a guest the steps that it runs between two submits. Before
//! such a step the host waits for the device and copies the keys and values that the step reads; the guest works on the arena
//! itself. Such a pass is never one submit, and none starts ahead of it.

mod baking;
mod calls;
pub mod driver;
mod guests;
mod kv;
pub mod measure;
pub mod options;
mod pace;
mod passes;
mod results;
mod steps;
mod submits;
mod tuning;
mod upload;

#[cfg(any(feature = "cli", test))]
pub(crate) use passes::tuned as tuned_kinds;

use crate::executor::guest::Guest;
use crate::executor::weights::Progress;
use crate::executor::{self, HeadRows, Pages, Row};
use crate::lower::dispatch::Addresses;
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::lower::{Lowering, PassKind};
use crate::model::checkpoint::Checkpoint;
use crate::plan::device::STAGING_BYTES;
use crate::plan::{Plan, Purpose};
use crate::replay::baking::Baking;
use crate::replay::measure::ceiling::Ceiling;
use crate::replay::measure::fastest::warm_up;
use crate::replay::measure::fragment;
use crate::replay::measure::profile::Profiler;
use crate::replay::measure::timing::Timing;
use crate::replay::measure::tuning::Tuning;
use crate::replay::options::VulkanOptions;
use crate::replay::passes::Passes;
use crate::replay::results::Results;
use crate::schedule::{Pool, Schedule};
use crate::vulkan::device::Gpu;
use crate::vulkan::memory::arena;
use crate::vulkan::memory::{Buffer, HostAccess};
use crate::vulkan::pipelines::Pipelines;
use crate::vulkan::queue::Queue;
use crate::vulkan::queue::record::Relay;
use crate::{Cancel, Error, Result};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The Vulkan executor.
pub struct Vulkan {
    schedule: Schedule,
    /// Offsets in the arena.
    layout: GpuLayout,
    options: VulkanOptions,
    target: Target,
    // Fields drop in this order. The queue comes first, since it waits for the device.
    queue: Queue,
    pipelines: Pipelines,
    /// What tuning keeps, where there is something to choose.
    tuning: Option<Tuning>,
    timing: Timing,
    /// The kinds of pass that are tuned.
    tuned: Vec<PassKind>,
    /// Whether there is more to measure while nothing else is to do.
    improves: bool,
    /// Whether kernels may be being compiled for that.
    compiles: bool,
    passes: Passes,
    weights: Vec<Buffer>,
    /// The allocations of KV pages, those of the global layers first.
    kv: [Vec<Buffer>; 2],
    pages: Pages,
    arena: Buffer,
    /// Who computes some steps in place of the device.
    guest: Option<Box<dyn Guest>>,
    /// What the device is called.
    name: String,
    results: Results,
    /// Head rows of the last pass whose logits the host can read.
    fetched: usize,
    /// Head rows of the last pass.
    head_rows: usize,
    /// Which of them asked for something.
    asked: Vec<bool>,
    /// The read ceiling's command buffers, and its result once measured.
    ceiling: Ceiling,
    bytes_per_second: Option<f64>,
    /// Rows of the last pass.
    rows: Vec<Row>,
    /// Kind of the pass that was submitted ahead, if one was.
    ahead: Option<usize>,
    /// Rows of a prompt for which a layer keeps to the submit budget, by the times measured so far.
    prefill_rows: usize,
    submits: u64,
    /// Seconds of device time spent on passes.
    busy: f64,
    cancel: Cancel,
    gpu: Rc<Gpu>,
}

impl Vulkan {
    /// Loads weights into the planned memory and bakes every kind of pass.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Interrupted: it was cancelled. Device: the driver refuses or fails.
    pub fn load(
        gpu: &Rc<Gpu>,
        checkpoint: &Checkpoint,
        mut schedule: Schedule,
        plan: &Plan,
        options: VulkanOptions,
        progress: &Progress,
    ) -> Result<Vulkan> {
        let queue = Queue::new(gpu)?;
        let start = Instant::now();
        let weights = load_weights(gpu, checkpoint, &schedule, plan, options, &queue, progress)?;
        let layout = GpuLayout::new(&schedule);
        let heap = planned(plan, Purpose::Arena)?;
        let arena = arena::allocate(gpu, options.arena, layout.bytes, heap)?;
        let apart = !arena.cached || options.staged;
        let results = Results::new(gpu, &schedule, planned(plan, Purpose::Staging)?, apart)?;
        // Last, since it can do with less.
        let mut kv = kv::allocate(gpu, plan, &mut schedule.kv, options.arena, options.guest.is_some())?;
        if options.staged {
            kv.iter_mut().flatten().for_each(Buffer::hide);
        }
        let guest = options.guest.map(|kind| guests::load(kind, checkpoint, &schedule, progress)).transpose()?;
        let name = guests::name(gpu, guest.as_deref());
        let mut pipelines = Pipelines::new(gpu)?;
        let ceiling = Ceiling::bake(gpu, &queue, &mut pipelines, &weights, arena.address)?;
        let mut vulkan = Vulkan {
            pipelines,
            queue,
            options,
            target: options.target(gpu),
            tuning: None,
            timing: Timing::new(warm_up(gpu)),
            tuned: passes::tuned(&schedule.extent).collect(),
            improves: false,
            compiles: false,
            layout,
            passes: Passes::default(),
            weights,
            kv,
            pages: Pages::new(&schedule),
            arena,
            guest,
            name,
            results,
            fetched: 0,
            head_rows: 0,
            asked: vec![false; schedule.extent.head_rows],
            ceiling,
            bytes_per_second: None,
            rows: Vec::with_capacity(schedule.extent.max_rows),
            ahead: None,
            prefill_rows: schedule.extent.max_rows,
            submits: 0,
            busy: 0.0,
            cancel: progress.cancel.clone(),
            gpu: gpu.clone(),
            schedule,
        };
        vulkan.fill_tables()?;
        vulkan.bake(start.elapsed(), progress)?;
        vulkan.pipelines.save();
        Ok(vulkan)
    }

    /// The relay counters, if dispatches are relayed.
    fn relay(&self) -> Option<Relay> {
        self.target.relay.then(|| Relay::new(&self.arena, &self.layout))
    }

    fn lowering<'a>(&'a self, addresses: &'a Addresses, kind: PassKind) -> Lowering<'a> {
        Lowering { schedule: &self.schedule, layout: &self.layout, addresses, target: &self.target, kind }
    }

    fn addresses(&self) -> Addresses {
        Addresses { arena: self.arena.address, weights: self.weights.iter().map(|b| b.address).collect() }
    }

    fn fill_tables(&mut self) -> Result<()> {
        let (schedule, kv) = (&self.schedule, &self.kv);
        let start = |pool, page| page_address(schedule, kv, pool, page);
        // SAFETY: nothing was submitted yet that uses the arena.
        unsafe { self.arena.edit(|words| executor::fill_tables(words, schedule, start)) }
    }

    /// Bakes every kind of pass. `loading`: how long the weights have taken.
    fn bake(&mut self, loading: Duration, progress: &Progress) -> Result<()> {
        let start = Instant::now();
        if let Some(units) = self.target.units {
            self.target.units = Some(fragment::find(&self.gpu, &self.queue, &mut self.pipelines, units)?);
        }
        self.recall()?;
        self.compile()?;
        self.tune(start, loading, progress)?;
        self.cancel.check()?;
        let addresses = self.addresses();
        self.passes = self.baking(&addresses).bake()?;
        Ok(())
    }

    fn baking<'a>(&'a mut self, addresses: &'a Addresses) -> Baking<'a> {
        let relay = self.relay();
        Baking {
            gpu: &self.gpu,
            queue: &self.queue,
            pipelines: &mut self.pipelines,
            schedule: &self.schedule,
            layout: &self.layout,
            addresses,
            target: &self.target,
            relay,
            arena: &self.arena,
            results: &self.results,
            guest: self.options.guest,
        }
    }

    /// The arena as a dma-buf for other devices, if it is one.
    #[cfg(feature = "testing")]
    pub fn arena(&self) -> Option<&crate::sys::dma_buf::DmaBuf> {
        self.arena.dma_buf()
    }

    /// Bytes of weights, KV cache and arena.
    #[cfg(feature = "testing")]
    pub fn allocated(&self) -> u64 {
        let buffers = self.weights.iter().chain(self.kv.iter().flatten()).chain([&self.arena]);
        buffers.map(|buffer| buffer.size).sum()
    }

    /// A profiler for a pass whose step state has been written.
    fn profiler(&mut self, kind: usize, head: HeadRows) -> Profiler<'_> {
        let addresses = self.addresses();
        let kind = self.passes.kinds[kind].kind;
        let head_rows = if head.count == 1 { 1 } else { kind.rows.min(kind.head_rows) };
        let kind = PassKind { head_rows, ..kind };
        let lowering = self.lowering(&addresses, kind);
        let segments = self.schedule.segments().map(|s| (s, lowering.segment(s))).collect();
        Profiler {
            relay: self.relay(),
            submit_budget: self.options.submit_budget,
            gpu: &self.gpu,
            queue: &self.queue,
            pipelines: &mut self.pipelines,
            segments,
        }
    }
}

/// The address of a page.
fn page_address(schedule: &Schedule, kv: &[Vec<Buffer>; 2], pool: Pool, page: usize) -> u64 {
    let (block, offset) = page_in(schedule, kv, pool, page);
    block.address + offset
}

/// The allocation that a page lies in, and the bytes from its start to the page.
fn page_in<'a>(schedule: &Schedule, kv: &'a [Vec<Buffer>; 2], pool: Pool, page: usize) -> (&'a Buffer, u64) {
    let layout = schedule.kv.pool(pool);
    let (block, page) = (page / layout.block_pages(), page % layout.block_pages());
    (&kv[pool as usize][block], page as u64 * layout.page_bytes)
}

fn planned(plan: &Plan, purpose: Purpose) -> Result<usize> {
    plan.heap(purpose).ok_or_else(|| Error::device(format!("the plan has no {}", purpose.kind()), "report this"))
}

fn load_weights(
    gpu: &Rc<Gpu>,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    plan: &Plan,
    options: VulkanOptions,
    queue: &Queue,
    progress: &Progress,
) -> Result<Vec<Buffer>> {
    let mut staging = None;
    let mut buffers = Vec::with_capacity(schedule.weights.buffers.len());
    for layout in &schedule.weights.buffers {
        let heap = planned(plan, Purpose::Weights(layout.buffer))?;
        let mut buffer = Buffer::new(gpu, layout.bytes, heap, HostAccess::Device)?;
        if options.staged {
            buffer.hide();
        }
        if !buffer.is_mapped() && staging.is_none() {
            staging = Some(Buffer::new(gpu, STAGING_BYTES, planned(plan, Purpose::Staging)?, HostAccess::Host)?);
        }
        upload::upload(checkpoint, layout, &mut buffer, staging.as_mut(), queue, progress)?;
        buffers.push(buffer);
    }
    Ok(buffers)
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        if self.gpu.hung.get() {
            return;
        }
        // SAFETY: waits for the device before anything that it may use is destroyed.
        let _ = unsafe { self.gpu.device.device_wait_idle() };
    }
}
