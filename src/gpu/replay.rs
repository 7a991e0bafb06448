//! The Vulkan executor: every pass replays command buffers that were baked when the model was loaded. A pass writes the
//! step state, submits, and waits; nothing is recorded, bound or allocated.

use super::arena;
use super::bake::Queue;
use super::ceiling::Ceiling;
use super::device::Gpu;
use super::dispatch::{Addresses, Dispatch};
use super::kernels::Pipelines;
use super::linear::{Target, Variant};
use super::lower::{Batch, Order, lower};
use super::memory::{Access, Buffer};
use super::profile::Profiler;
use super::record::Relay;
use super::stamps::StampPool;
use super::tuning::Tuner;
use super::upload::{self, STAGING_BYTES};
use crate::executor::{self, Executor, HeadRows, Row, Timed, Watch};
use crate::model::checkpoint::Checkpoint;
use crate::plan::{Plan, Purpose};
use crate::schedule::layout::StateLayout;
use crate::schedule::{Schedule, Segment};
use crate::sys::dma_buf::DmaBuf;
use crate::weights::Progress;
use crate::{Error, Result};
use ash::vk;
use std::rc::Rc;
use std::time::Duration;

/// Which kernels compute linear steps of INT8 weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kernels {
    /// The fastest that the device has instructions for.
    #[default]
    Auto,
    /// f32 arithmetic.
    Float,
    /// Packed integer dot products where few rows share a weight, f32 arithmetic else.
    Dot,
    /// Matrix units where there are enough rows for them, f32 arithmetic else; without such units, all f32.
    Matrix,
    /// As above, multiplying bytes where the matrix units can and whole rows are at hand.
    Bytes,
}

/// Settings of the executor beside the schedule's own.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The longest that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// Uploads and results pass through staging even where the host maps the device's memory: so that this path can be
    /// tested on drivers that map everything.
    pub staged: bool,
    /// The kernels to use.
    pub kernels: Kernels,
    /// The variant of linear kernels to use wherever it can be, instead of what is measured.
    pub variant: Option<Variant>,
    /// Whether dispatches are relayed ([`super::record`]), instead of what is measured.
    pub relay: Option<bool>,
    /// Where the arena's memory comes from.
    pub arena: arena::Source,
}

impl Default for Options {
    fn default() -> Self {
        // A quarter of amdgpu's shortest default lockup timeout.
        Options {
            submit_budget: Duration::from_millis(500),
            staged: false,
            kernels: Kernels::Auto,
            variant: None,
            relay: None,
            arena: arena::Source::Auto,
        }
    }
}

/// What the choice of kernels depends on before anything is measured.
fn target(gpu: &Gpu, options: Options) -> Target {
    let hardware = gpu.caps.kind != vk::PhysicalDeviceType::CPU;
    let (dot, matrix) = match options.kernels {
        Kernels::Auto => (gpu.caps.dot_accelerated, hardware),
        Kernels::Float => (false, false),
        Kernels::Dot => (true, false),
        Kernels::Matrix | Kernels::Bytes => (false, true),
    };
    let units = gpu.caps.matrix.filter(|_| matrix);
    let mut target = Target::new(gpu.caps.subgroup, dot, units);
    if options.kernels == Kernels::Bytes {
        target.bytes.insert(usize::MAX, true);
    }
    Target { forced: options.variant, relay: options.relay == Some(true), ..target }
}

/// Rows of a pass that are not divided further, however long they take.
const LEAST_PREFILL_ROWS: usize = 64;

/// What of a pass one submit runs behind the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Nothing.
    None,
    /// The head for one row.
    One,
    /// The head for as many rows as the schedule has.
    All,
}

const TAILS: [Tail; 3] = [Tail::None, Tail::One, Tail::All];

/// Command buffers with the stamps of their spans.
#[derive(Default)]
struct Stamped {
    commands: Vec<vk::CommandBuffer>,
    stamps: Option<StampPool>,
}

/// The command buffers of one kind of pass.
struct Baked {
    batch: Batch,
    /// A whole pass in one command buffer, for each tail: what is replayed where it keeps to the submit budget.
    whole: [Stamped; 3],
    /// Embed, then each layer: the pass in pieces, until its time is known or where it is past the budget.
    segments: Stamped,
    /// Segments that go into one submit, so that it stays within the budget: one until times are known.
    per_submit: usize,
}

/// The Vulkan executor.
pub struct Vulkan {
    schedule: Schedule,
    options: Options,
    target: Target,
    // Dropped in this order: the queue waits for the device first.
    queue: Queue,
    pipelines: Pipelines,
    kinds: Vec<Baked>,
    /// The head for one row, and for `head_rows`.
    heads: [Stamped; 2],
    /// Copies of the logits to where the host reads them, for one row, and for `head_rows`.
    fetches: [vk::CommandBuffer; 2],
    weights: Vec<Buffer>,
    kv: Vec<Buffer>,
    arena: Buffer,
    /// Where the host reads logits and choices, if the arena's memory is not cached.
    readback: Option<Buffer>,
    /// Head rows of the last pass whose logits the host can read.
    fetched: usize,
    /// Head rows of the last pass.
    head_rows: usize,
    /// The read ceiling's command buffer, and its result once it was asked for.
    ceiling: Ceiling,
    bytes_per_second: Option<f64>,
    /// Rows of the last pass.
    rows: usize,
    /// Rows of a prompt that keep a layer within the submit budget, as far as is known.
    prefill_rows: usize,
    submits: u64,
    /// Seconds that the device has worked on passes.
    busy: f64,
    gpu: Rc<Gpu>,
}

impl Vulkan {
    /// Loads weights into the planned memory and bakes every kind of pass.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Device: the driver refuses or fails.
    pub fn load(
        gpu: &Rc<Gpu>,
        checkpoint: &Checkpoint,
        schedule: Schedule,
        plan: &Plan,
        options: Options,
        progress: &Progress,
    ) -> Result<Vulkan> {
        let queue = Queue::new(gpu)?;
        let weights = load_weights(gpu, checkpoint, &schedule, plan, options, &queue, progress)?;
        let kv = plan
            .regions
            .iter()
            .filter(|r| matches!(r.purpose, Purpose::Kv(_)))
            .map(|r| Buffer::new(gpu, r.bytes, r.heap, Access::Device))
            .collect::<Result<Vec<_>>>()?;
        let heap = planned(plan, Purpose::Arena)?;
        let arena = arena::allocate(gpu, options.arena, schedule.arena.bytes, heap)?;
        let readback = match arena.cached && !options.staged {
            true => None,
            false => Some(Buffer::new(gpu, readback_bytes(&schedule), planned(plan, Purpose::Staging)?, Access::Host)?),
        };
        let mut pipelines = Pipelines::new(gpu)?;
        let ceiling = Ceiling::bake(gpu, &queue, &mut pipelines, &weights, arena.address)?;
        let mut vulkan = Vulkan {
            pipelines,
            queue,
            options,
            target: target(gpu, options),
            kinds: Vec::new(),
            heads: [Stamped::default(), Stamped::default()],
            fetches: [vk::CommandBuffer::null(); 2],
            weights,
            kv,
            arena,
            readback,
            fetched: 0,
            head_rows: 0,
            ceiling,
            bytes_per_second: None,
            rows: 0,
            prefill_rows: schedule.extent.max_rows,
            submits: 0,
            busy: 0.0,
            gpu: gpu.clone(),
            schedule,
        };
        vulkan.bake()?;
        vulkan.pipelines.save();
        Ok(vulkan)
    }

    /// How the executor's dispatches wait for each other, where not by barriers.
    fn relay(&self) -> Option<Relay> {
        self.target.relay.then(|| Relay::new(&self.arena, &self.schedule))
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            arena: self.arena.address,
            weights: self.weights.iter().map(|b| b.address).collect(),
            kv: self.kv.iter().map(|b| b.address).collect(),
        }
    }

    /// Measures what is faster on this device where there is a choice, for the passes that decode.
    fn tune(&mut self, target: &mut Target) -> Result<()> {
        if (!target.dot && target.units.is_none())
            || self.options.kernels != Kernels::Auto
            || self.options.variant.is_some()
        {
            return Ok(());
        }
        let addresses = self.addresses();
        // Zeros would be read and multiplied at less power, and so faster, than what a model computes.
        let layout = self.schedule.arena.state;
        let slots = layout.words()..(self.schedule.scratch.attend / 4) as usize;
        self.write_arena(|words| {
            for (i, word) in words[slots.clone()].iter_mut().enumerate() {
                // f16 pairs of 0.5 to 1 and small f32s, whichever they are read as.
                *word = 0x3800_3800 | (i as u32).wrapping_mul(0x9e37_79b9) >> 3 & 0x03ff_03ff;
            }
        })?;
        let most = self.schedule.extent.max_rows;
        let decodes =
            |b: &Batch| b.rows == 1 || b.order == Order::Apart || b.order == Order::Consecutive && b.rows == most;
        for batch in self.batches().into_iter().filter(decodes) {
            let batch = Batch { head_rows: batch.rows.min(batch.head_rows), ..batch };
            let row = Row { token: 0, position: 0, sequence: 0 };
            let head = HeadRows { first: 0, count: batch.head_rows };
            let rows = vec![row; batch.rows];
            self.write_arena(|words| executor::write_pass(words, layout, &rows, Some(head)))?;
            let mut tuner = Tuner {
                gpu: &self.gpu,
                queue: &self.queue,
                pipelines: &mut self.pipelines,
                schedule: &self.schedule,
                addresses: &addresses,
                arena: &mut self.arena,
            };
            tuner.tune(target, batch)?;
        }
        // Pad columns are zero.
        self.write_arena(|words| words[slots].fill(0))
    }

    /// The kinds of passes worth baking: a row; prompts, by powers of eight; batches, by powers of two; the largest pass.
    fn batches(&self) -> Vec<Batch> {
        let e = &self.schedule.extent;
        let prompts =
            [1, 8, 64].into_iter().filter(|&n| n < e.max_rows).chain([e.max_rows]).map(|n| (n, Order::Consecutive));
        let powers = (1..).map(|i| 1usize << i).take_while(|&n| n < e.sequences);
        let batches = powers.chain([e.sequences]).filter(|_| e.sequences > 1).map(|n| (n, Order::Apart));
        let any = [(e.max_rows, Order::Mixed)].into_iter().filter(|_| e.sequences > 1);
        prompts.chain(batches).chain(any).map(|(rows, order)| Batch { rows, head_rows: e.head_rows, order }).collect()
    }

    fn bake(&mut self) -> Result<()> {
        let mut target = self.target.clone();
        self.tune(&mut target)?;
        self.target = target.clone();
        let addresses = self.addresses();
        let head_rows = self.schedule.extent.head_rows;
        let one_row = Batch { rows: 1, head_rows: 1, order: Order::Consecutive };
        let head =
            |rows| lower(&self.schedule, Segment::Head, Batch { head_rows: rows, ..one_row }, &target, &addresses);
        let heads = [head(1), head(head_rows)];
        let relay = self.relay();
        for batch in self.batches() {
            let segments: Vec<Vec<Dispatch>> = self
                .schedule
                .segments()
                .filter(|&s| s != Segment::Head)
                .map(|s| lower(&self.schedule, s, batch, &target, &addresses))
                .collect();
            let mut pieces = Stamped { commands: Vec::new(), stamps: StampPool::new(&self.gpu, segments.len())? };
            for (i, dispatches) in segments.iter().enumerate() {
                let span = pieces.stamps.as_ref().map(|s| s.span(i));
                pieces.commands.push(self.queue.bake(&[dispatches], &mut self.pipelines, relay, span, &[])?);
            }
            let mut whole = Vec::new();
            // No more rows of logits than the pass has rows.
            let most = batch.rows.min(head_rows);
            let own_head = head(most);
            for tail in TAILS {
                if tail == Tail::All && most == 1 {
                    // Never asked for: one row is `Tail::One`.
                    whole.push(Stamped::default());
                    continue;
                }
                let (tail, rows): (&[Dispatch], _) = match tail {
                    Tail::None => (&[], 0),
                    Tail::One => (&heads[0], 1),
                    Tail::All => (&own_head, most),
                };
                let parts: Vec<&[Dispatch]> = segments.iter().map(Vec::as_slice).chain([tail]).collect();
                let stamps = StampPool::new(&self.gpu, 1)?;
                let span = stamps.as_ref().map(|s| s.span(0));
                let readback = if rows > 0 { self.state_readback() } else { Vec::new() };
                let commands = vec![self.queue.bake(&parts, &mut self.pipelines, relay, span, &readback)?];
                whole.push(Stamped { commands, stamps });
            }
            let whole = whole.try_into().map_err(|_| Error::failed("a tail is missing", "report this"))?;
            self.kinds.push(Baked { batch, whole, segments: pieces, per_submit: 1 });
        }
        for (i, dispatches) in heads.iter().enumerate() {
            let stamps = StampPool::new(&self.gpu, 1)?;
            let span = stamps.as_ref().map(|s| s.span(0));
            let readback = self.state_readback();
            let commands = vec![self.queue.bake(&[dispatches], &mut self.pipelines, relay, span, &readback)?];
            self.heads[i] = Stamped { commands, stamps };
            let rows = [1, head_rows][i];
            let logits = self.logits_readback(rows);
            self.fetches[i] = self.queue.bake(&[], &mut self.pipelines, None, None, &logits)?;
        }
        Ok(())
    }

    fn copy_back(&self, from: u64, to: u64, size: u64) -> Vec<(vk::Buffer, vk::Buffer, vk::BufferCopy)> {
        let region = vk::BufferCopy::default().src_offset(from).dst_offset(to).size(size);
        self.readback.iter().map(|r| (self.arena.handle, r.handle, region)).collect()
    }

    /// What every head copies to the readback buffer: the step state, with the choices in it.
    fn state_readback(&self) -> Vec<(vk::Buffer, vk::Buffer, vk::BufferCopy)> {
        self.copy_back(0, 0, state_bytes(&self.schedule))
    }

    /// What is copied when logits are looked at, behind the step state.
    fn logits_readback(&self, rows: usize) -> Vec<(vk::Buffer, vk::Buffer, vk::BufferCopy)> {
        let logits = self.schedule.logits;
        self.copy_back(logits.offset, state_bytes(&self.schedule), 4 * (rows * logits.stride) as u64)
    }

    /// Writes the arena, between passes.
    fn write_arena(&mut self, write: impl FnOnce(&mut [u32])) -> Result<()> {
        self.arena.to_host()?;
        write(bytemuck::cast_slice_mut(self.arena.bytes_mut().ok_or_else(unmapped)?));
        self.arena.to_device()
    }

    /// Waits for what was submitted, after which the host may read the arena.
    fn finish(&self) -> Result<()> {
        self.queue.wait()?;
        self.arena.to_host()
    }

    /// The arena as a dma-buf, for the devices that share it, where it is one.
    pub fn arena(&self) -> Option<&DmaBuf> {
        self.arena.dma_buf()
    }

    /// Index of the smallest baked kind that holds these rows.
    fn kind_for(&self, rows: &[Row]) -> usize {
        let fits = |k: &Baked| k.batch.rows >= rows.len() && k.batch.order.holds(rows);
        let fit = (0..self.kinds.len()).filter(|&i| fits(&self.kinds[i]));
        // Of the same size, the one that says most of its rows.
        fit.min_by_key(|&i| (self.kinds[i].batch.rows, self.kinds[i].batch.order == Order::Mixed)).unwrap_or(0)
    }

    /// Submits a pass, whole where it is known to keep to the budget, else in pieces that do.
    fn submit(&mut self, kind: usize, head: Option<HeadRows>) -> Result<()> {
        let k = &self.kinds[kind];
        let tail = tail(head);
        if k.per_submit >= k.segments.commands.len() {
            self.submits += 1;
            return self.queue.submit(&k.whole[tail as usize].commands, true);
        }
        let pieces = k.segments.commands.len().div_ceil(k.per_submit);
        for (i, piece) in k.segments.commands.chunks(k.per_submit).enumerate() {
            self.queue.submit(piece, head.is_none() && i + 1 == pieces)?;
        }
        self.submits += pieces as u64;
        head.map_or(Ok(()), |head| self.submit_head(head))
    }

    fn submit_head(&mut self, head: HeadRows) -> Result<()> {
        self.submits += 1;
        self.queue.submit(&self.heads[head_index(head)].commands, true)
    }

    /// Reads a pass's timestamps and sets how many segments fit the budget from the slowest of them.
    fn measure(&mut self, kind: usize, head: Option<HeadRows>) -> Result<()> {
        let budget = self.options.submit_budget.as_secs_f64();
        let k = &mut self.kinds[kind];
        let segments = k.segments.commands.len();
        let whole = k.per_submit >= segments;
        let stamped = if whole { &mut k.whole[tail(head) as usize] } else { &mut k.segments };
        let Some(stamps) = &mut stamped.stamps else { return Ok(()) };
        let (mut slowest, mut sum) = (1e-9f64, 0.0);
        for seconds in stamps.read()? {
            slowest = slowest.max(seconds);
            sum += seconds;
        }
        self.busy += sum;
        if !whole && let Some(head) = head {
            self.measure_head(head)?;
        }
        let k = &mut self.kinds[kind];
        if whole && sum <= budget {
            return Ok(());
        }
        let slowest = if whole { sum / segments as f64 } else { slowest };
        k.per_submit = ((budget / slowest) as usize).clamp(1, segments);
        // A layer is not cut, but its rows are: the deeper the context, the longer each takes.
        if slowest > budget / 2.0 && self.rows > LEAST_PREFILL_ROWS && self.rows >= self.prefill_rows {
            self.prefill_rows = (self.rows / 2).max(LEAST_PREFILL_ROWS);
            log::info!(
                "a layer of {} rows took {slowest:.2} s: {} at a time from now on",
                self.rows,
                self.prefill_rows
            );
        }
        Ok(())
    }

    /// Adds the time of a head that was submitted by itself to what the device was busy.
    fn measure_head(&mut self, head: HeadRows) -> Result<()> {
        if let Some(stamps) = &mut self.heads[head_index(head)].stamps {
            self.busy += stamps.read()?.sum::<f64>();
        }
        Ok(())
    }

    /// What times the kernels of a pass whose step state has been written.
    fn profiler(&mut self, rows: &[Row], head: HeadRows) -> Profiler<'_> {
        let addresses = self.addresses();
        let batch = self.kinds[self.kind_for(rows)].batch;
        let head_rows = if head_index(head) == 0 { 1 } else { batch.rows.min(batch.head_rows) };
        let batch = Batch { head_rows, ..batch };
        let lowered = |s| (s, lower(&self.schedule, s, batch, &self.target, &addresses));
        let segments = self.schedule.segments().map(lowered).collect();
        let relay = self.relay();
        Profiler { gpu: &self.gpu, queue: &self.queue, pipelines: &mut self.pipelines, segments, relay }
    }

    fn begin(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<usize> {
        executor::check_pass(&self.schedule, rows, head)?;
        self.rows = rows.len();
        self.new_head(head);
        let layout = self.schedule.arena.state;
        self.write_arena(|words| executor::write_pass(words, layout, rows, head))?;
        Ok(self.kind_for(rows))
    }

    /// Logits of an earlier head are gone.
    fn new_head(&mut self, head: Option<HeadRows>) {
        self.head_rows = head.map_or(0, |h| h.count);
        self.fetched = if self.readback.is_some() { 0 } else { self.head_rows };
    }

    /// Refuses a pass in which a relayed dispatch waited in vain.
    fn check_order(&self) -> Result<()> {
        // Where results are copied back, heads copy this with them.
        match self.head_rows > 0 && self.target.relay && self.results()[StateLayout::STALLED] != 0 {
            true => Err(Error::device(
                "the GPU did not start dispatches in the order that they were given in",
                "report this, with the driver's name and version",
            )),
            false => Ok(()),
        }
    }

    /// The memory that the host reads results from, as words.
    fn results(&self) -> &[u32] {
        bytemuck::cast_slice(self.readback.as_ref().unwrap_or(&self.arena).bytes().unwrap_or_default())
    }
}

/// Index of the baked head that makes these rows.
fn head_index(head: HeadRows) -> usize {
    usize::from(head.count > 1)
}

fn tail(head: Option<HeadRows>) -> Tail {
    match head {
        None => Tail::None,
        Some(h) if h.count > 1 => Tail::All,
        Some(_) => Tail::One,
    }
}

fn state_bytes(schedule: &Schedule) -> u64 {
    (4 * schedule.arena.state.words() as u64).next_multiple_of(crate::schedule::layout::ALIGN)
}

fn readback_bytes(schedule: &Schedule) -> u64 {
    state_bytes(schedule) + 4 * (schedule.extent.head_rows * schedule.logits.stride) as u64
}

/// Bytes to plan for memory that the host maps beside the arena: where uploads pass through it while loading, and results
/// come back through it afterwards.
pub fn staging_bytes(schedule: &Schedule) -> u64 {
    STAGING_BYTES.max(readback_bytes(schedule))
}

fn unmapped() -> Error {
    Error::device("the arena's memory is not mapped", "update the driver, or use `--device cpu`")
}

fn planned(plan: &Plan, purpose: Purpose) -> Result<usize> {
    plan.heap(purpose).ok_or_else(|| Error::device(format!("the plan has no {}", purpose.kind()), "report this"))
}

fn load_weights(
    gpu: &Rc<Gpu>,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    plan: &Plan,
    options: Options,
    queue: &Queue,
    progress: &Progress,
) -> Result<Vec<Buffer>> {
    let mut staging = None;
    let mut buffers = Vec::with_capacity(schedule.weights.buffers.len());
    for layout in &schedule.weights.buffers {
        let heap = planned(plan, Purpose::Weights(layout.buffer))?;
        let mut buffer = Buffer::new(gpu, layout.bytes, heap, Access::Device)?;
        if options.staged {
            buffer.hide();
        }
        if buffer.bytes().is_none() && staging.is_none() {
            staging = Some(Buffer::new(gpu, STAGING_BYTES, planned(plan, Purpose::Staging)?, Access::Host)?);
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
        let kind = self.begin(rows, head)?;
        self.submit(kind, head)?;
        self.finish()?;
        self.check_order()?;
        crate::status::count_pass(rows.len(), head);
        self.measure(kind, head)
    }

    fn project(&mut self, head: HeadRows) -> Result<()> {
        executor::check_head(&self.schedule, self.rows, head)?;
        self.new_head(Some(head));
        self.write_arena(|words| executor::write_head(words, head))?;
        self.submit_head(head)?;
        self.finish()?;
        self.measure_head(head)
    }

    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        let kind = self.begin(rows, head)?;
        for (i, segment) in self.schedule.segments().enumerate() {
            self.arena.to_device()?;
            match segment {
                Segment::Head => match head {
                    Some(head) => self.submit_head(head)?,
                    None => break,
                },
                _ => self.queue.submit(&self.kinds[kind].segments.commands[i..=i], true)?,
            }
            self.finish()?;
            let arena = bytemuck::cast_slice(self.arena.bytes().ok_or_else(unmapped)?);
            watch(segment, executor::watched_row(&self.schedule, arena, segment, rows.len()));
        }
        Ok(())
    }

    fn next(&self, row: usize) -> u32 {
        self.results()[self.schedule.arena.state.next() + row]
    }

    fn is_finite(&self, row: usize) -> bool {
        self.results()[self.schedule.arena.state.finite() + row] != 0
    }

    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        executor::check_logits(row, self.head_rows)?;
        if self.fetched <= row {
            let all = self.head_rows > 1;
            self.arena.to_device()?;
            self.queue.submit(&[self.fetches[usize::from(all)]], true)?;
            self.finish()?;
            self.fetched = self.head_rows;
        }
        let logits = self.schedule.logits;
        let at = match self.readback {
            Some(_) => state_bytes(&self.schedule),
            None => logits.offset,
        } as usize;
        let floats: &[f32] = bytemuck::cast_slice(self.results());
        Ok(&floats[at / 4 + row * logits.stride..][..logits.width])
    }

    fn prefill_rows(&self) -> usize {
        self.prefill_rows
    }

    fn submits(&self) -> u64 {
        self.submits
    }

    fn busy(&self) -> Duration {
        Duration::from_secs_f64(self.busy)
    }

    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<Timed>> {
        self.begin(rows, Some(head))?;
        self.profiler(rows, head).time_steps(repetitions)
    }

    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64> {
        self.begin(rows, Some(head))?;
        self.profiler(rows, head).time_segment(segment, replays)
    }

    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64> {
        let i = executor::segment_buffer(&self.schedule, segment);
        Ceiling::bake(&self.gpu, &self.queue, &mut self.pipelines, &self.weights[i..=i], self.arena.address)?
            .measure(&self.queue)
    }

    fn measure_read_ceiling(&mut self) -> Result<f64> {
        if let Some(rate) = self.bytes_per_second {
            return Ok(rate);
        }
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
