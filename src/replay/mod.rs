//! The executor on a device: every pass replays lists of commands that were baked when the model was loaded. A pass
//! writes the step state, submits, and waits. Nothing is recorded, bound or allocated.
//!
//! If a head row has a sample request, one more list follows the head: it computes the sample results and copies them
//! to memory that the host reads through its caches. Passes in which every row takes its argmax are replayed without
//! it.
//!
//! If no row's token needs the host, the next pass is submitted before the wait. It reads its tokens from the step
//! state, where the pass before has left them: each row's argmax, or the one token of its sample request. Sample
//! requests may depend on the tokens before; the host writes them while the pass runs, and then submits the list that
//! reads them.
//!
//! A pass consists of pieces: lists of commands and, with a guest, the steps that the guest runs between two submits.
//! Before such a step the host waits for the device and copies the keys and values that the step reads; the guest works
//! on the arena itself. Such a pass is never one submit, and the pass after it never starts ahead. A prompt's chunk is
//! divided into two halves of its rows: while the guest attends for one, the device computes the other's products.

mod baking;
mod calls;
pub mod driver;
#[cfg(test)]
mod fake;
mod guests;
mod kv;
mod list;
pub mod measure;
mod needs;
pub mod options;
mod pace;
mod passes;
mod placement;
pub mod queue;
mod results;
mod steps;
mod submits;
mod timeline;
mod tuning;
mod upload;

pub use guests::{GuestLoader, GuestUse, LoadedGuest};
#[cfg(test)]
pub(crate) use guests::{relative_rms, show_pages};
#[cfg(any(feature = "cli", feature = "serve", test))]
pub(crate) use passes::tuned as tuned_kinds;

use crate::executor::weights::Progress;
use crate::executor::{self, HeadRows, Pages, Row};
use crate::lower::dispatch::Addresses;
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::lower::{Lowering, PassKind};
use crate::model::checkpoint::Checkpoint;
use crate::plan::{Plan, Purpose};
use crate::replay::baking::Baking;
use crate::replay::driver::{Driver, HostAccess, Memory, MemorySource, unmapped};
use crate::replay::guests::GuestSeat;
use crate::replay::list::Relay;
use crate::replay::measure::ceiling::Ceiling;
use crate::replay::measure::fastest::warm_up;
use crate::replay::measure::fragment;
use crate::replay::measure::profile::Profiler;
use crate::replay::measure::timing::Timing;
use crate::replay::measure::tuning::Tuning;
use crate::replay::needs::STAGING_BYTES;
use crate::replay::options::ReplayOptions;
use crate::replay::pace::AttendTime;
use crate::replay::passes::Passes;
use crate::replay::queue::DeviceQueue;
use crate::replay::results::Results;
use crate::replay::timeline::GuestSpan;
use crate::schedule::{Pool, Schedule};
use crate::{Cancel, Error, Result};
use std::time::{Duration, Instant};

/// The executor on the device of a driver.
pub struct Replay<D: Driver> {
    schedule: Schedule,
    /// Offsets in the arena.
    layout: GpuLayout,
    options: ReplayOptions,
    target: Target,
    queue: DeviceQueue<D>,
    /// The state of tuning, if there is something to choose.
    tuning: Option<Tuning>,
    timing: Timing<D>,
    /// The kinds of pass that are tuned.
    tuned: Vec<PassKind>,
    /// Whether tuning has open questions for idle times.
    improves: bool,
    /// Whether kernels may be being compiled for tuning.
    compiles: bool,
    passes: Passes<D>,
    weights: Vec<D::Memory>,
    /// The allocations of KV pages, those of the global layers first.
    kv: [Vec<D::Memory>; 2],
    pages: Pages,
    arena: D::Memory,
    /// The guest that computes some steps in the device's place.
    seat: GuestSeat,
    /// The spans of the guest's steps, while a timeline is measured.
    guest_spans: Option<Vec<GuestSpan>>,
    /// The device's name for the user.
    name: String,
    results: Results<D>,
    /// Head rows of the last pass whose logits the host can read.
    fetched: usize,
    /// Head rows of the last pass.
    head_rows: usize,
    /// Per head row of the last pass, whether it had a sample request.
    asked: Vec<bool>,
    /// The read ceiling's lists, and its result once measured.
    ceiling: Ceiling<D>,
    bytes_per_second: Option<f64>,
    /// Rows of the last pass.
    rows: Vec<Row>,
    /// Kind of the pass that was submitted ahead, if one was.
    ahead: Option<usize>,
    /// Rows of a prompt whose slowest layer keeps to the submit budget, by the times measured so far.
    prefill_rows: usize,
    attend_time: AttendTime,
    submits: u64,
    /// Seconds of device time spent on passes.
    busy: f64,
    cancel: Cancel,
}

impl<D: Driver> Replay<D> {
    /// Loads weights into the planned memory and bakes every kind of pass. The device attends.
    ///
    /// # Errors
    /// As [`Replay::load_beside`].
    #[cfg(any(feature = "testing", test))]
    pub fn load(
        driver: D,
        checkpoint: &Checkpoint,
        schedule: Schedule,
        plan: &Plan,
        options: ReplayOptions,
        progress: &Progress,
    ) -> Result<Replay<D>> {
        Replay::load_beside(GuestUse::Never, driver, checkpoint, schedule, plan, options, progress)
    }

    /// Loads weights into the planned memory and bakes every kind of pass.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Interrupted: it was cancelled. Device: the driver refuses or fails.
    pub fn load_beside(
        guests: GuestUse,
        driver: D,
        checkpoint: &Checkpoint,
        mut schedule: Schedule,
        plan: &Plan,
        options: ReplayOptions,
        progress: &Progress,
    ) -> Result<Replay<D>> {
        let has_guest = !matches!(guests, GuestUse::Never);
        let (guest, candidate) = match guests {
            GuestUse::Never => (None, None),
            GuestUse::Always(guest) => (Some(guest), None),
            GuestUse::IfFaster(kind, loader) => (None, Some((kind, loader))),
        };
        let mut queue = DeviceQueue::new(driver);
        let start = Instant::now();
        let weights = load_weights(&mut queue, checkpoint, &schedule, plan, options, progress)?;
        let layout = GpuLayout::new(&schedule);
        let heap = planned(plan, Purpose::Arena)?;
        let arena = allocate_arena(&queue.driver, options.arena, layout.bytes, heap)?;
        let apart = !arena.is_cached() || options.staged;
        let results = Results::new(&queue.driver, &schedule, planned(plan, Purpose::Staging)?, apart)?;
        // Last, since a smaller KV cache is acceptable.
        let mut kv = kv::allocate(&queue.driver, plan, &mut schedule.kv, options.arena, has_guest)?;
        if options.staged {
            kv.iter_mut().flatten().for_each(Memory::hide);
        }
        let ceiling = Ceiling::bake(&mut queue, &weights, arena.address())?;
        let mut replay = Replay {
            options,
            target: options.target(queue.driver.caps()),
            tuning: None,
            timing: Timing::new(warm_up(queue.driver.caps())),
            tuned: passes::tuned(&schedule.extent).collect(),
            improves: false,
            compiles: false,
            layout,
            passes: Passes::default(),
            weights,
            kv,
            pages: Pages::new(&schedule),
            arena,
            seat: GuestSeat::of(guest),
            guest_spans: None,
            name: String::new(),
            results,
            fetched: 0,
            head_rows: 0,
            asked: vec![false; schedule.extent.head_rows],
            ceiling,
            bytes_per_second: None,
            rows: Vec::with_capacity(schedule.extent.max_rows),
            ahead: None,
            prefill_rows: schedule.extent.max_rows,
            attend_time: AttendTime::default(),
            submits: 0,
            busy: 0.0,
            cancel: progress.cancel.clone(),
            queue,
            schedule,
        };
        replay.attend_time = AttendTime::expected(&replay.target, &replay.schedule);
        replay.share_kv();
        replay.set_name();
        replay.fill_tables()?;
        replay.bake(start.elapsed(), progress)?;
        if let Some((kind, loader)) = candidate {
            let start = Instant::now();
            replay.seat_if_faster(kind, loader, &|| start.elapsed().as_secs_f64())?;
        }
        replay.queue.driver.save_kernels();
        Ok(replay)
    }

    fn lowering<'a>(&'a self, addresses: &'a Addresses, kind: PassKind) -> Lowering<'a> {
        Lowering { schedule: &self.schedule, layout: &self.layout, addresses, target: &self.target, kind }
    }

    fn addresses(&self) -> Addresses {
        Addresses::new(self.arena.address(), self.weights.iter().map(|b| b.address()).collect())
    }

    fn fill_tables(&mut self) -> Result<()> {
        let (schedule, kv) = (&self.schedule, &self.kv);
        let start = |pool, page| page_address(schedule, kv, pool, page);
        self.queue.edit(&mut self.arena, |words| executor::fill_tables(words, schedule, start))
    }

    /// Bakes every kind of pass. `loading`: the time that the weights took.
    fn bake(&mut self, loading: Duration, progress: &Progress) -> Result<()> {
        let start = Instant::now();
        if let Some(units) = self.target.units {
            self.target.units = Some(fragment::find(&mut self.queue, &mut self.results.pages, units)?);
        }
        self.recall()?;
        self.compile()?;
        self.tune(start, loading, progress)?;
        self.cancel.check()?;
        let addresses = self.addresses();
        self.passes = self.baking(&addresses).bake()?;
        Ok(())
    }

    fn baking<'a>(&'a mut self, addresses: &'a Addresses) -> Baking<'a, D> {
        let caps = self.queue.driver.caps();
        let relay = self.target.relay.then(|| Relay::new(&self.arena, &self.layout, caps));
        Baking {
            queue: &mut self.queue,
            schedule: &self.schedule,
            layout: &self.layout,
            addresses,
            target: &self.target,
            relay,
            arena: &self.arena,
            results: &self.results,
            guest: self.seat.seated(),
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
        buffers.map(Memory::size).sum()
    }

    /// A profiler for a pass whose step state has been written.
    fn profiler(&mut self, kind: usize, head: HeadRows) -> Profiler<'_, D> {
        let addresses = self.addresses();
        let kind = self.passes.kinds[kind].kind;
        let head_rows = if head.count == 1 { 1 } else { kind.rows.min(kind.head_rows) };
        let kind = PassKind { head_rows, ..kind };
        let lowering = self.lowering(&addresses, kind);
        let segments = self.schedule.segments().map(|s| (s, lowering.segment(s))).collect();
        let caps = self.queue.driver.caps();
        let relay = self.target.relay.then(|| Relay::new(&self.arena, &self.layout, caps));
        Profiler { relay, submit_budget: self.options.submit_budget, queue: &mut self.queue, segments }
    }
}

/// The address of a page: of its part for the pool's first layer.
fn page_address<M: Memory>(schedule: &Schedule, kv: &[Vec<M>; 2], pool: Pool, page: usize) -> u64 {
    let (block, offset) = schedule.kv.pool(pool).in_block(page);
    kv[pool as usize][block].address() + offset
}

fn planned(plan: &Plan, purpose: Purpose) -> Result<usize> {
    plan.heap(purpose).ok_or_else(|| Error::device(format!("the plan has no {}", purpose.kind()), "report this"))
}

/// Allocates the arena, and clears it.
fn allocate_arena<D: Driver>(driver: &D, source: MemorySource, bytes: u64, heap: usize) -> Result<D::Memory> {
    let mut arena = driver.allocate(bytes, heap, HostAccess::Host, source)?;
    // SAFETY: no baked list uses the arena yet.
    unsafe { arena.bytes_mut() }.ok_or_else(unmapped)?.fill(0);
    Ok(arena)
}

fn load_weights<D: Driver>(
    queue: &mut DeviceQueue<D>,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    plan: &Plan,
    options: ReplayOptions,
    progress: &Progress,
) -> Result<Vec<D::Memory>> {
    let mut staging = None;
    let mut buffers = Vec::with_capacity(schedule.weights.buffers.len());
    for layout in &schedule.weights.buffers {
        let heap = planned(plan, Purpose::Weights(layout.buffer))?;
        let mut buffer = queue.driver.allocate(layout.bytes, heap, HostAccess::Device, MemorySource::Ordinary)?;
        if options.staged {
            buffer.hide();
        }
        if !buffer.is_mapped() && staging.is_none() {
            let heap = planned(plan, Purpose::Staging)?;
            staging = Some(queue.driver.allocate(STAGING_BYTES, heap, HostAccess::Host, MemorySource::Ordinary)?);
        }
        upload::upload(checkpoint, layout, &mut buffer, staging.as_mut(), queue, progress)?;
        buffers.push(buffer);
    }
    Ok(buffers)
}

impl<D: Driver> Drop for Replay<D> {
    fn drop(&mut self) {
        // Memory that the device may use lives until the device is idle.
        self.queue.driver.finish();
    }
}
