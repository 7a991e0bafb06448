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
//! A pass consists of pieces: lists of commands and, with an offload, the steps that it runs between two submits. Before
//! such a step the host waits for the device and copies the keys and values that the step reads; the offload works on
//! the arena itself. Such a pass is never one submit, and the pass after it never starts ahead. A prompt's chunk is
//! divided into two halves of its rows: while the offload attends for one, the device computes the other's products.

mod baking;
mod calls;
pub mod device_queue;
pub mod driver;
#[cfg(test)]
mod fake;
mod flight;
mod handover;
mod kv;
mod list;
pub mod measure;
mod memory;
mod needs;
pub mod options;
mod passes;
mod results;
mod steps;
mod submit_pace;
mod submits;
mod timeline;
mod tuning;
mod upload;

#[cfg(test)]
pub(crate) use handover::show_pages;
#[cfg(any(feature = "amdgpu", feature = "cli", feature = "serve", test))]
pub(crate) use passes::tuned as tuned_kinds;
#[cfg(test)]
pub(crate) use passes::{group as pass_group, kinds as pass_kinds};

use crate::executor::HeadRows;
use crate::executor::offload::Offload;
use crate::executor::weights::Progress;
use crate::lower::dispatch::Addresses;
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::lower::{Lowering, PassKind};
use crate::model::checkpoint::Checkpoint;
use crate::plan::{Plan, Purpose};
use crate::replay::baking::Baking;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, KernelCompiler, Memory};
use crate::replay::flight::Flight;
use crate::replay::handover::Handover;
use crate::replay::kv::KvCache;
use crate::replay::measure::ceiling::Ceiling;
use crate::replay::measure::fragment;
use crate::replay::measure::profile::Profiler;
use crate::replay::memory::{ModelMemory, planned};
use crate::replay::options::ReplayOptions;
use crate::replay::passes::Passes;
use crate::replay::results::Results;
use crate::replay::submit_pace::Pace;
use crate::replay::tuning::KernelTuning;
use crate::schedule::Schedule;
use crate::{Cancel, Result};
use std::time::{Duration, Instant};

/// The executor on the device of a driver.
pub struct Replay<D: Driver> {
    schedule: Schedule,
    /// The offsets of the arena's regions.
    layout: GpuLayout,
    options: ReplayOptions,
    target: Target,
    queue: DeviceQueue<D>,
    cancel: Cancel,
    /// The name of the device and of the offload, as shown to the user.
    name: String,
    memory: ModelMemory<D>,
    kv: KvCache<D::Memory>,
    passes: Passes<D>,
    flight: Flight<D>,
    pace: Pace,
    tuning: KernelTuning<D>,
    /// Lists that measure the device's highest rate of reading memory.
    ceiling: Ceiling<D>,
    /// The executor of some steps, if there is one.
    handover: Handover,
}

impl<D: Driver> Replay<D> {
    /// Loads weights into the planned memory and bakes every kind of pass. `offload` computes some of their steps.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Interrupted: it was cancelled. Device: the driver refuses or fails.
    pub fn load(
        offload: Option<Box<dyn Offload>>,
        driver: D,
        checkpoint: &Checkpoint,
        mut schedule: Schedule,
        plan: &Plan,
        options: ReplayOptions,
        progress: &Progress,
    ) -> Result<Replay<D>> {
        let mut queue = DeviceQueue::new(driver);
        let start = Instant::now();
        let memory = ModelMemory::load(&mut queue, checkpoint, &schedule, plan, options, progress)?;
        let apart = !memory.arena.is_cached() || options.staged;
        let results = Results::new(&queue.driver, &schedule, planned(plan, Purpose::Staging)?, apart)?;
        // Last, since a smaller KV cache is acceptable.
        let kv = KvCache::allocate(&queue.driver, plan, &mut schedule, options)?;
        let ceiling = Ceiling::bake(&mut queue, &memory.weights, memory.arena.address())?;
        let target = options.target(queue.driver.caps());
        let mut replay = Replay {
            options,
            cancel: progress.cancel.clone(),
            name: String::new(),
            layout: GpuLayout::new(&schedule),
            memory,
            kv,
            passes: Passes::default(),
            flight: Flight::new(&schedule, results),
            pace: Pace::expected(&target, &schedule),
            tuning: KernelTuning::new(&schedule, queue.driver.caps()),
            ceiling,
            handover: Handover::to(offload),
            target,
            queue,
            schedule,
        };
        replay.share_kv();
        replay.set_name();
        replay.queue.edit(&mut replay.memory.arena, |words| replay.kv.fill_tables(words, &replay.schedule))?;
        replay.bake(start.elapsed(), progress)?;
        replay.queue.driver.compiler().save();
        Ok(replay)
    }

    fn lowering<'a>(&'a self, addresses: &'a Addresses, kind: PassKind) -> Lowering<'a> {
        Lowering { schedule: &self.schedule, layout: &self.layout, addresses, target: &self.target, kind }
    }

    /// Bakes every kind of pass. `loading`: the time that the weights took.
    fn bake(&mut self, loading: Duration, progress: &Progress) -> Result<()> {
        let start = Instant::now();
        if let Some(units) = self.target.units {
            self.target.units = Some(fragment::find(&mut self.queue, &mut self.flight.results.pages, units)?);
        }
        self.recall()?;
        self.compile()?;
        self.tune(start, loading, progress)?;
        self.cancel.check()?;
        let addresses = self.memory.addresses();
        self.passes = self.baking(&addresses).bake()?;
        Ok(())
    }

    fn baking<'a>(&'a mut self, addresses: &'a Addresses) -> Baking<'a, D> {
        let relay = self.memory.relay(&self.target, &self.layout, &self.queue.driver);
        Baking {
            queue: &mut self.queue,
            schedule: &self.schedule,
            layout: &self.layout,
            addresses,
            target: &self.target,
            relay,
            arena: &self.memory.arena,
            results: &self.flight.results,
            offload: self.handover.offload(),
        }
    }

    /// Bytes of device memory that weights, KV cache and arena take.
    #[cfg(feature = "testing")]
    pub fn allocated(&self) -> u64 {
        let buffers = self.memory.weights.iter().chain(self.kv.blocks.iter().flatten()).chain([&self.memory.arena]);
        buffers.map(Memory::size).sum()
    }

    /// A profiler for a pass whose step state has been written.
    fn profiler(&mut self, kind: usize, head: HeadRows) -> Profiler<'_, D> {
        let addresses = self.memory.addresses();
        let kind = self.passes.kinds[kind].kind;
        let head_rows = if head.count == 1 { 1 } else { kind.rows.min(kind.head_rows) };
        let kind = PassKind { head_rows, ..kind };
        let lowering = self.lowering(&addresses, kind);
        let segments = self.schedule.segments().map(|s| (s, lowering.segment(s))).collect();
        let relay = self.memory.relay(&self.target, &self.layout, &self.queue.driver);
        Profiler { relay, submit_budget: self.options.submit_budget, queue: &mut self.queue, segments }
    }
}

impl<D: Driver> Drop for Replay<D> {
    fn drop(&mut self) {
        // Memory that the device may use lives until the device is idle.
        self.queue.driver.finish();
    }
}
