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

pub mod options;
mod pace;
mod passes;
pub mod results;

use crate::executor::weights::Progress;
use crate::executor::{self, Asks, Executor, HeadRows, Measure, PageId, Pages, Row, Timed, Watch};
use crate::gpu::device::Gpu;
use crate::gpu::kernels::pipelines::Pipelines;
use crate::gpu::lower::dispatch::Addresses;
use crate::gpu::lower::layout::{GpuLayout, STALLED};
use crate::gpu::lower::target::Target;
use crate::gpu::lower::{Lowering, PassKind};
use crate::gpu::measure::ceiling::Ceiling;
use crate::gpu::measure::fragment;
use crate::gpu::measure::profile::Profiler;
use crate::gpu::measure::tuning::Tuner;
use crate::gpu::memory::{Buffer, HostAccess};
use crate::gpu::memory::{arena, kv};
use crate::gpu::queue::Queue;
use crate::gpu::queue::record::Relay;
use crate::gpu::queue::upload::{self, STAGING_BYTES};
use crate::gpu::replay::options::VulkanOptions;
use crate::gpu::replay::pace::Reach;
use crate::gpu::replay::passes::{Baking, Passes, Tail};
use crate::gpu::replay::results::Results;
use crate::model::checkpoint::Checkpoint;
use crate::plan::{Plan, Purpose};
use crate::schedule::choice::{Ask, Found};
use crate::schedule::{Pool, Schedule, Segment};
use crate::{Cancel, Error, Result};
use ash::vk;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Passes of at most this many rows are not divided, however long they take.
const LEAST_PREFILL_ROWS: usize = 64;

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
    passes: Passes,
    weights: Vec<Buffer>,
    /// The allocations of KV pages, those of the global layers first.
    kv: [Vec<Buffer>; 2],
    pages: Pages,
    arena: Buffer,
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
        let weights = load_weights(gpu, checkpoint, &schedule, plan, options, &queue, progress)?;
        let layout = GpuLayout::new(&schedule);
        let heap = planned(plan, Purpose::Arena)?;
        let arena = arena::allocate(gpu, options.arena, layout.bytes, heap)?;
        let apart = !arena.cached || options.staged;
        let results = Results::new(gpu, &schedule, planned(plan, Purpose::Staging)?, apart)?;
        // Last, since it can do with less.
        let kv = kv::allocate(gpu, plan, &mut schedule.kv, options.arena)?;
        let mut pipelines = Pipelines::new(gpu)?;
        let ceiling = Ceiling::bake(gpu, &queue, &mut pipelines, &weights, arena.address)?;
        let mut vulkan = Vulkan {
            pipelines,
            queue,
            options,
            target: options.target(gpu),
            layout,
            passes: Passes::default(),
            weights,
            kv,
            pages: Pages::new(&schedule),
            arena,
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
        vulkan.bake()?;
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

    fn bake(&mut self) -> Result<()> {
        let (addresses, extent) = (self.addresses(), self.schedule.extent);
        if let Some(units) = self.target.units {
            self.target.units = Some(fragment::find(&self.gpu, &self.queue, &mut self.pipelines, units)?);
        }
        if self.options.tunes(&self.target) {
            let mut tuner = Tuner {
                gpu: &self.gpu,
                queue: &self.queue,
                pipelines: &mut self.pipelines,
                schedule: &self.schedule,
                layout: &self.layout,
                addresses: &addresses,
                arena: &mut self.arena,
                submit_budget: self.options.submit_budget,
                relay: self.options.relay,
                ready: None,
                ranked: HashMap::new(),
                worked: None,
                compiling: Duration::ZERO,
            };
            tuner.tune(&mut self.target, passes::tuned(&extent))?;
        }
        self.cancel.check()?;
        let relay = self.relay();
        let mut baking = Baking {
            gpu: &self.gpu,
            queue: &self.queue,
            pipelines: &mut self.pipelines,
            schedule: &self.schedule,
            layout: &self.layout,
            addresses: &addresses,
            target: &self.target,
            relay,
            arena: &self.arena,
            results: &self.results,
        };
        self.passes = baking.bake()?;
        Ok(())
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

    /// Submits a pass: whole if it is known to keep to the budget, else in pieces that do. Each piece is waited for before
    /// the next is submitted, so that a pass can be cancelled between them. The device idles for some tens of
    /// microseconds then; a piece takes up to the budget. Where a head row asks for something, what finds it follows the
    /// head in the same submit.
    fn submit(&mut self, kind: usize, head: Option<HeadRows>) -> Result<()> {
        let k = &self.passes.kinds[kind];
        let per_submit = k.per_submit(&self.rows);
        if k.is_whole(&self.rows) {
            self.submits += 1;
            let whole = &k.whole[Tail::of(head) as usize].commands;
            // SAFETY: baked command buffers live as long as the executor. Each pass is waited for before the next of
            // its kind.
            return unsafe { self.queue.submit(self.with_choice(whole, head).as_slice(), true) };
        }
        for piece in k.segments.commands.chunks(per_submit) {
            self.queue.drain()?;
            self.cancel.check()?;
            // SAFETY: as above.
            unsafe { self.queue.submit(piece, true) }?;
            self.submits += 1;
        }
        let Some(head) = head else { return Ok(()) };
        self.queue.drain()?;
        self.submit_head(head)
    }

    /// Writes what the head rows ask for. A pass may be under way: it does not use these words.
    fn write_asks(&mut self, head: HeadRows, fill: &mut dyn FnMut(usize, &mut Ask<'_>)) -> Result<()> {
        let (words, schedule, asked) = (executor::asks_in(&self.schedule), &self.schedule, &mut self.asked);
        let mut write = |words: &mut [u32]| executor::write_asks(words, schedule, head, fill, asked);
        if self.arena.is_handed_over() {
            self.queue.drain()?;
            // SAFETY: everything submitted has been waited for, so the device does not use the arena.
            return unsafe { self.arena.edit(|arena| write(&mut arena[words])) };
        }
        // SAFETY: what reads these words was waited for, or is submitted after them.
        write(unsafe { self.arena.words_mut(words) }?);
        Ok(())
    }

    /// Writes what the head rows ask for, and submits the pass. Returns when.
    fn ask_and_submit(&mut self, kind: usize, head: HeadRows, asks: Asks<'_>) -> Result<Instant> {
        self.write_asks(head, asks.fill)?;
        self.submit(kind, Some(head))?;
        let begun = Instant::now();
        (asks.meanwhile)();
        Ok(begun)
    }

    /// Submits a pass, unless it `is_under_way`; writes what its head rows ask for while it runs, and submits what finds that.
    /// The pass behind it follows at once where the rows go on. Returns when the host came to it.
    fn submit_and_ask(&mut self, kind: usize, head: HeadRows, asks: Asks<'_>, is_under_way: bool) -> Result<Instant> {
        if !is_under_way {
            let whole = &self.passes.kinds[kind].whole[Tail::of(Some(head)) as usize].commands;
            // SAFETY: as in `submit`. The fence of the second submit covers this one.
            unsafe { self.queue.submit(whole, false) }?;
            self.submits += 1;
        }
        let begun = Instant::now();
        (asks.meanwhile)();
        self.write_asks(head, asks.fill)?;
        let choice = self.asked.contains(&true).then(|| self.passes.choice(head, self.results.slot));
        // SAFETY: as in `submit`.
        unsafe { self.queue.submit(choice.as_slice(), true) }?;
        self.submits += 1;
        if asks.goes_on && head == all_rows(&self.rows) {
            // Its fence will be that of its own choice.
            self.submit_ahead(kind, false)?;
        }
        Ok(begun)
    }

    /// Whether the last choice has found the next token of every row that asked for one.
    fn has_all_next(&self) -> bool {
        let asked = self.asked.iter().enumerate().filter(|(_, asked)| **asked);
        asked.map(|(row, _)| self.results.found(&self.schedule, row)).all(Found::has_likeliest)
    }

    /// Runs the last pass again, with the same asks: the pass behind it, which has begun, stands on a token that was not
    /// found, and has taken the place of the logits.
    #[cold]
    fn run_again(&mut self, kind: usize, head: HeadRows) -> Result<()> {
        let (rows, asked) = (self.rows.clone(), self.asked.clone());
        self.begin(&rows, Some(head))?;
        self.asked = asked;
        self.submit(kind, Some(head)).inspect_err(|_| self.forget())?;
        self.queue.wait()?;
        self.check_order()?;
        self.measure(kind, Some(head), false)
    }

    fn submit_head(&mut self, head: HeadRows) -> Result<()> {
        self.submits += 1;
        let alone = &self.passes.head(head).commands;
        // SAFETY: as in `submit`.
        unsafe { self.queue.submit(self.with_choice(alone, Some(head)).as_slice(), true) }
    }

    /// The one command buffer that ends with a head, and what follows it.
    fn with_choice(&self, commands: &[vk::CommandBuffer], head: Option<HeadRows>) -> Followed {
        let is_asked = self.asked.contains(&true);
        let choice = head.filter(|_| is_asked).map(|head| self.passes.choice(head, self.results.slot));
        Followed { commands: [commands[0], choice.unwrap_or_default()], count: 1 + usize::from(choice.is_some()) }
    }

    /// Runs a pass, or only waits for it if it was submitted ahead. With `on`, submits the next pass before the wait.
    fn run(&mut self, rows: &[Row], head: Option<HeadRows>, on: bool) -> Result<()> {
        self.cancel.check()?;
        let foreseen = self.take_ahead(rows, head);
        let kind = match foreseen {
            Some(kind) => {
                if self.queue.is_open() {
                    // The rows of the pass before asked for something, and this one got no fence.
                    self.asked.fill(false);
                    self.queue.close()?;
                }
                kind
            }
            None => {
                let kind = self.begin(rows, head)?;
                self.submit(kind, head).inspect_err(|_| self.forget())?;
                kind
            }
        };
        if on {
            self.submit_ahead(kind, true)?;
        }
        match on || foreseen.is_some() {
            true => self.queue.wait()?,
            false => self.queue.wait_promptly(self.passes.kinds[kind].last)?,
        }
        self.check_order()?;
        self.measure(kind, head, foreseen.is_some())
    }

    /// Makes the pass that was submitted ahead the last one, if it has these rows and this head. Returns its kind.
    fn take_ahead(&mut self, rows: &[Row], head: Option<HeadRows>) -> Option<usize> {
        let kind = self.ahead.filter(|_| self.foresees(rows, head))?;
        self.ahead = None;
        self.rows.copy_from_slice(rows);
        self.results.slot = 1 - self.results.slot;
        Some(kind)
    }

    /// Whether the pass that was submitted ahead has these rows and this head.
    fn foresees(&self, rows: &[Row], head: Option<HeadRows>) -> bool {
        let follows = |(i, (was, is)): (usize, (&Row, &Row))| {
            (is.token, is.position, is.sequence) == (self.results.next(i), was.position + 1, was.sequence)
        };
        head == Some(all_rows(rows))
            && rows.len() == self.rows.len()
            && self.rows.iter().zip(rows).enumerate().all(follows)
    }

    /// Submits the next pass with what the last one leaves as tokens, and with `signal` a fence behind it. It takes the other
    /// slot of results. Does nothing if no such pass is baked, if the pass takes several submits, if the context is full,
    /// or if a row comes to a page that it does not have: tables are written only while the device is idle.
    fn submit_ahead(&mut self, kind: usize, signal: bool) -> Result<()> {
        let k = &self.passes.kinds[kind];
        let has_page = |r: &Row| self.pages.is_ready(r.sequence as usize, r.position as usize + 1);
        let room = self.rows.iter().all(has_page);
        if let Some(following) = k.following.as_ref().filter(|_| k.is_whole(&self.rows) && room) {
            // SAFETY: as in `submit`; this pass and the one before it use different slots of results.
            unsafe { self.queue.submit(&following[1 - self.results.slot].commands, signal) }?;
            self.submits += 1;
            self.ahead = Some(kind);
        }
        Ok(())
    }

    /// Waits for anything still under way: an unwanted pass that was submitted ahead, or work left by an error. The
    /// last pass's results in the arena are then lost.
    fn settle(&mut self) -> Result<()> {
        if self.queue.is_idle() {
            return Ok(());
        }
        self.queue.drain()?;
        self.forget();
        if let Some(kind) = self.ahead.take()
            && let Some(following) = &mut self.passes.kinds[kind].following
        {
            self.busy += following[1 - self.results.slot].seconds()?.map_or(0.0, |(_, sum)| sum);
        }
        Ok(())
    }

    /// Forgets the last pass: its results are lost.
    fn forget(&mut self) {
        self.rows.clear();
        (self.head_rows, self.fetched) = (0, 0);
        self.asked.fill(false);
    }

    /// Reads a pass's times, and derives from the slowest segment how many fit one submit.
    fn measure(&mut self, kind: usize, head: Option<HeadRows>, followed: bool) -> Result<()> {
        let budget = self.options.submit_budget.as_secs_f64();
        let slot = self.results.slot;
        let (rows, pass) = (self.rows.len(), Reach::of(&self.rows));
        let k = &mut self.passes.kinds[kind];
        // A pass submitted ahead was whole, even if the pace has changed since.
        let (segments, whole) = (k.segments.commands.len(), followed || k.is_whole(&self.rows));
        let stamped = match &mut k.following {
            Some(following) if followed => &mut following[slot],
            _ if whole => &mut k.whole[Tail::of(head) as usize],
            _ => &mut k.segments,
        };
        let Some((slowest, sum)) = stamped.seconds()? else { return Ok(()) };
        self.busy += sum;
        k.last = if whole { Duration::from_secs_f64(sum) } else { Duration::ZERO };
        if !whole && let Some(head) = head {
            self.measure_head(head)?;
        }
        let slowest = if whole { sum / segments as f64 } else { slowest }.max(1e-9);
        let fits = if whole && sum <= budget { segments } else { (budget / slowest) as usize };
        self.passes.kinds[kind].pace.learn(pass, fits.clamp(1, segments));
        // A layer cannot be divided, but rows can. Each row takes longer the deeper the context.
        if slowest > budget / 2.0 && rows > LEAST_PREFILL_ROWS && rows >= self.prefill_rows {
            self.prefill_rows = (rows / 2).max(LEAST_PREFILL_ROWS);
            log::info!("a layer of {rows} rows took {slowest:.2} s: {} at a time from now on", self.prefill_rows);
        }
        Ok(())
    }

    /// Adds the time of a separately submitted head to the busy time.
    fn measure_head(&mut self, head: HeadRows) -> Result<()> {
        self.busy += self.passes.head_mut(head).seconds()?.map_or(0.0, |(_, sum)| sum);
        Ok(())
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

    fn begin(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<usize> {
        executor::admit_pass(&self.schedule, &mut self.pages, rows, head)?;
        let kind = self.passes.kind_for(rows)?;
        self.settle()?;
        self.rows.clear();
        self.rows.extend_from_slice(rows);
        self.new_head(head);
        let (schedule, kv, pages) = (&self.schedule, &self.kv, &mut self.pages);
        let write = |words: &mut [u32]| {
            executor::write_pass(words, schedule.arena.state, rows, head);
            executor::write_tables(words, &schedule.arena, pages, |pool, page| page_address(schedule, kv, pool, page));
        };
        // SAFETY: everything submitted has been waited for, so the device does not use the arena.
        unsafe { self.arena.edit(write) }?;
        Ok(kind)
    }

    /// Starts a new head: earlier logits are no longer valid.
    fn new_head(&mut self, head: Option<HeadRows>) {
        self.head_rows = head.map_or(0, |h| h.count);
        self.asked.fill(false);
        self.results.slot = 0;
        self.fetched = if self.results.are_apart() { 0 } else { self.head_rows };
    }

    /// Refuses a pass if one of its relayed dispatches gave up waiting, or one of a pass without a head before it.
    fn check_order(&mut self) -> Result<()> {
        // The flag stays set until a head copies it with the step state.
        if self.head_rows == 0 || !self.target.relay || !self.results.is_stalled() {
            return Ok(());
        }
        self.settle()?;
        // SAFETY: everything submitted has been waited for, so the device does not use the arena.
        unsafe { self.arena.edit(|words| words[STALLED] = 0) }?;
        Err(Error::device(
            "the GPU did not start dispatches in the order that they were given in",
            "report this, with the driver's name and version",
        ))
    }

    /// Refuses to read a pass's arena while the next pass is under way.
    fn check_last(&self) -> Result<()> {
        match self.ahead {
            Some(_) => Err(Error::failed("the pass after the one that is asked about has begun", "report this")),
            None => Ok(()),
        }
    }
}

/// A command buffer, and perhaps one that follows it.
struct Followed {
    commands: [vk::CommandBuffer; 2],
    count: usize,
}

impl Followed {
    fn as_slice(&self) -> &[vk::CommandBuffer] {
        &self.commands[..self.count]
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

/// Every row's logits.
fn all_rows(rows: &[Row]) -> HeadRows {
    HeadRows { first: 0, count: rows.len() }
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

impl Executor for Vulkan {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device(&self) -> &str {
        &self.gpu.caps.name
    }

    fn forward(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        self.run(rows, head, false)
    }

    fn forward_ahead(&mut self, rows: &[Row], head: HeadRows) -> Result<()> {
        self.run(rows, Some(head), head == all_rows(rows))
    }

    fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    fn forward_choosing(&mut self, rows: &[Row], head: HeadRows, asks: Asks<'_>) -> Result<()> {
        self.cancel.check()?;
        let foreseen = self.take_ahead(rows, Some(head));
        let kind = foreseen.map_or_else(|| self.begin(rows, Some(head)), Ok)?;
        let is_under_way = foreseen.is_some();
        let can_be_late = !self.arena.is_handed_over() && self.passes.kinds[kind].is_whole(&self.rows);
        let submitted = match is_under_way || can_be_late && (asks.is_slow || asks.goes_on) {
            true => self.submit_and_ask(kind, head, asks, is_under_way),
            false => self.ask_and_submit(kind, head, asks),
        };
        let since = submitted.inspect_err(|_| self.forget())?;
        while self.queue.under_way() > 1 {
            // The pass had a fence of its own.
            self.queue.wait()?;
        }
        // When a pass began that ran ahead is not known.
        match self.ahead.is_some() || is_under_way {
            true => self.queue.wait()?,
            false => self.queue.wait_promptly(self.passes.kinds[kind].last.saturating_sub(since.elapsed()))?,
        }
        self.check_order()?;
        self.measure(kind, Some(head), is_under_way)?;
        match self.ahead.is_some() && !self.has_all_next() {
            true => self.run_again(kind, head),
            false => Ok(()),
        }
    }

    fn read_page(&mut self, pool: Pool, page: PageId, bytes: &mut [u8]) -> Result<()> {
        executor::check_page(&self.schedule, pool, page, bytes.len())?;
        self.settle()?;
        let (block, mut at) = page_in(&self.schedule, &self.kv, pool, page as usize);
        for piece in bytes.chunks_mut(self.results.pages.size as usize) {
            let region = vk::BufferCopy::default().src_offset(at).size(piece.len() as u64);
            self.queue.copy(block, &self.results.pages, &[region])?;
            self.results.pages.copy_to(piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_page(&mut self, pool: Pool, page: PageId, bytes: &[u8]) -> Result<()> {
        executor::check_page(&self.schedule, pool, page, bytes.len())?;
        self.settle()?;
        let (block, mut at) = page_in(&self.schedule, &self.kv, pool, page as usize);
        for piece in bytes.chunks(self.results.pages.size as usize) {
            self.results.pages.copy_from(piece)?;
            let region = vk::BufferCopy::default().dst_offset(at).size(piece.len() as u64);
            self.queue.copy(&self.results.pages, block, &[region])?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn found(&self, row: usize) -> Option<Found<'_>> {
        self.asked.get(row).is_some_and(|asked| *asked).then(|| self.results.found(&self.schedule, row))
    }

    fn project(&mut self, head: HeadRows) -> Result<()> {
        executor::check_head(&self.schedule, self.rows.len(), head)?;
        self.check_last()?;
        self.cancel.check()?;
        self.new_head(Some(head));
        // SAFETY: everything submitted has been waited for, so the device does not use the arena.
        unsafe { self.arena.edit(|words| executor::write_head(words, head)) }?;
        self.submit_head(head)?;
        self.queue.wait()?;
        self.check_order()?;
        self.measure_head(head)
    }

    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        let kind = self.begin(rows, head)?;
        for (i, segment) in self.schedule.segments().enumerate() {
            self.cancel.check().inspect_err(|_| self.forget())?;
            self.arena.to_device()?;
            match segment {
                Segment::Head => match head {
                    Some(head) => self.submit_head(head)?,
                    None => break,
                },
                // SAFETY: as in `submit`.
                _ => unsafe { self.queue.submit(&self.passes.kinds[kind].segments.commands[i..=i], true) }?,
            }
            self.queue.wait()?;
            self.arena.to_host()?;
            // SAFETY: the segment was waited for, and the next one comes after the watcher.
            let arena = bytemuck::cast_slice(unsafe { self.arena.bytes() }.unwrap_or_default());
            watch(segment, executor::watched_row(&self.schedule, arena, segment, rows.len()));
        }
        self.check_order()
    }

    fn next(&self, row: usize) -> u32 {
        self.results.next(row)
    }

    fn is_finite(&self, row: usize) -> bool {
        self.results.is_finite(row)
    }

    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        executor::check_logits(row, self.head_rows)?;
        self.check_last()?;
        match self.passes.fetch(self.head_rows).filter(|_| self.fetched <= row) {
            Some(fetch) => {
                self.arena.to_device()?;
                // SAFETY: as in `submit`.
                unsafe { self.queue.submit(&[fetch], true) }?;
                self.queue.wait()?;
                self.fetched = self.head_rows;
            }
            None => self.arena.to_host()?,
        }
        Ok(self.results.logits(&self.arena, &self.schedule, row))
    }

    fn prefill_rows(&self) -> usize {
        self.prefill_rows
    }

    fn chunk_rows(&self, most: usize, beside: usize) -> usize {
        self.passes.chunk_rows(most, beside)
    }

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }
}

impl Measure for Vulkan {
    fn submits(&self) -> u64 {
        self.submits
    }

    fn busy(&self) -> Duration {
        Duration::from_secs_f64(self.busy)
    }

    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<Timed>> {
        let kind = self.begin(rows, Some(head))?;
        self.profiler(kind, head).time_steps(repetitions)
    }

    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64> {
        let kind = self.begin(rows, Some(head))?;
        self.profiler(kind, head).time_segment(segment, replays)
    }

    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64> {
        self.settle()?;
        let i = executor::segment_buffer(&self.schedule, segment);
        Ceiling::bake(&self.gpu, &self.queue, &mut self.pipelines, &self.weights[i..=i], self.arena.address)?
            .measure(&self.queue)
    }

    fn measure_read_ceiling(&mut self) -> Result<f64> {
        if let Some(rate) = self.bytes_per_second {
            return Ok(rate);
        }
        self.settle()?;
        let rate = self.ceiling.measure(&self.queue)?;
        self.bytes_per_second = Some(rate);
        Ok(rate)
    }
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
