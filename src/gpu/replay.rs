//! The Vulkan executor: every pass replays command buffers that were baked when the model was loaded. A pass writes the
//! step state, submits, and waits; nothing is recorded, bound or allocated.

use super::bake::Queue;
use super::ceiling::Ceiling;
use super::device::Gpu;
use super::kernels::Pipelines;
use super::lower::{Addresses, Target, lower};
use super::memory::{Access, Buffer};
use super::profile::Profiler;
use super::stamps::StampPool;
use super::upload::{self, STAGING_BYTES};
use crate::executor::{self, Executor, HeadRows, Row, Timed, Watch};
use crate::model::checkpoint::Checkpoint;
use crate::plan::{Plan, Purpose};
use crate::schedule::{Schedule, Segment};
use crate::weights::Progress;
use crate::{Error, Result};
use ash::vk;
use std::rc::Rc;
use std::time::Duration;

/// Settings of the executor beside the schedule's own.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The longest that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// Uploads and results pass through staging even where the host maps the device's memory: so that this path can be
    /// tested on drivers that map everything.
    pub staged: bool,
}

impl Default for Options {
    fn default() -> Self {
        // A quarter of amdgpu's shortest default lockup timeout.
        Options { submit_budget: Duration::from_millis(500), staged: false }
    }
}

/// The command buffers of one pass size.
struct Baked {
    rows: usize,
    /// Embed, then each layer.
    body: Vec<vk::CommandBuffer>,
    /// Segments that go into one submit, so that it stays within the budget: one until times are known.
    per_submit: usize,
    /// A span a segment of the body.
    stamps: Option<StampPool>,
}

/// The Vulkan executor.
pub struct Vulkan {
    schedule: Schedule,
    options: Options,
    // Dropped in this order: the queue waits for the device first.
    queue: Queue,
    pipelines: Pipelines,
    sizes: Vec<Baked>,
    /// The head for one row, and for `head_rows`.
    heads: [vk::CommandBuffer; 2],
    /// A span for each of them.
    head_stamps: [Option<StampPool>; 2],
    weights: Vec<Buffer>,
    kv: Vec<Buffer>,
    arena: Buffer,
    /// Where the host reads logits and choices, if the arena's memory is not cached.
    readback: Option<Buffer>,
    /// The read ceiling's command buffer, and its result once it was asked for.
    ceiling: Ceiling,
    bytes_per_second: Option<f64>,
    /// Rows of the last pass.
    rows: usize,
    submits: u64,
    /// Seconds that the device has worked on passes.
    busy: f64,
    gpu: Rc<Gpu>,
}

impl Vulkan {
    /// Loads weights into the planned memory and bakes every pass size.
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
        let mut arena = Buffer::new(gpu, schedule.arena.bytes, planned(plan, Purpose::Arena)?, Access::Host)?;
        arena.bytes_mut().ok_or_else(unmapped)?.fill(0);
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
            sizes: Vec::new(),
            heads: [vk::CommandBuffer::null(); 2],
            head_stamps: [None, None],
            weights,
            kv,
            arena,
            readback,
            ceiling,
            bytes_per_second: None,
            rows: 0,
            submits: 0,
            busy: 0.0,
            gpu: gpu.clone(),
            schedule,
        };
        vulkan.bake()?;
        vulkan.pipelines.save();
        Ok(vulkan)
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            arena: self.arena.address,
            weights: self.weights.iter().map(|b| b.address).collect(),
            kv: self.kv.iter().map(|b| b.address).collect(),
        }
    }

    /// Pass sizes worth baking: one row, powers of eight, the largest.
    fn pass_sizes(&self) -> Vec<usize> {
        let max = self.schedule.extent.max_rows;
        let mut sizes: Vec<usize> = [1, 8, 64].into_iter().filter(|&n| n < max).collect();
        sizes.push(max);
        sizes
    }

    fn bake(&mut self) -> Result<()> {
        let target = Target { subgroup: self.gpu.caps.subgroup };
        let addresses = self.addresses();
        let head_rows = self.schedule.extent.head_rows;
        for rows in self.pass_sizes() {
            let segments: Vec<Segment> = self.schedule.segments().filter(|&s| s != Segment::Head).collect();
            let stamps = StampPool::new(&self.gpu, segments.len())?;
            let mut baked = Baked { rows, body: Vec::new(), per_submit: 1, stamps };
            for (i, &segment) in segments.iter().enumerate() {
                let dispatches = lower(&self.schedule, segment, rows, head_rows, target, &addresses);
                let span = baked.stamps.as_ref().map(|s| s.span(i));
                baked.body.push(self.queue.bake(&dispatches, &mut self.pipelines, span, &[])?);
            }
            self.sizes.push(baked);
        }
        for (i, rows) in [1, head_rows].into_iter().enumerate() {
            if i == 1 && rows == 1 {
                self.heads[1] = self.heads[0];
                break;
            }
            let dispatches = lower(&self.schedule, Segment::Head, 1, rows, target, &addresses);
            let readback = self.readback_regions(rows);
            self.head_stamps[i] = StampPool::new(&self.gpu, 1)?;
            let span = self.head_stamps[i].as_ref().map(|s| s.span(0));
            self.heads[i] = self.queue.bake(&dispatches, &mut self.pipelines, span, &readback)?;
        }
        Ok(())
    }

    /// What the head copies to the readback buffer: the step state, then the logits.
    fn readback_regions(&self, rows: usize) -> Vec<(vk::Buffer, vk::Buffer, vk::BufferCopy)> {
        let Some(readback) = &self.readback else { return Vec::new() };
        let state = state_bytes(&self.schedule);
        let logits = self.schedule.logits;
        let copy = |from, to, size| {
            let region = vk::BufferCopy::default().src_offset(from).dst_offset(to).size(size);
            (self.arena.handle, readback.handle, region)
        };
        vec![copy(0, 0, state), copy(logits.offset, state, 4 * (rows * logits.stride) as u64)]
    }

    fn arena_words(&mut self) -> Result<&mut [u32]> {
        Ok(bytemuck::cast_slice_mut(self.arena.bytes_mut().ok_or_else(unmapped)?))
    }

    /// Index of the smallest baked size that holds `rows`.
    fn size_for(&self, rows: usize) -> usize {
        self.sizes.iter().position(|s| s.rows >= rows).unwrap_or(self.sizes.len() - 1)
    }

    /// Submits the body, in pieces that keep to the budget, and the head behind it.
    fn submit(&mut self, size: usize, head: Option<HeadRows>) -> Result<()> {
        let s = &self.sizes[size];
        let pieces = s.body.len().div_ceil(s.per_submit);
        for (i, piece) in s.body.chunks(s.per_submit).enumerate() {
            self.queue.submit(piece, head.is_none() && i + 1 == pieces)?;
        }
        self.submits += pieces as u64;
        if let Some(head) = head {
            self.submit_head(head)?;
        }
        Ok(())
    }

    /// Index of the baked head that makes `head`'s rows.
    fn head_for(&self, head: HeadRows) -> usize {
        // Where only one row can be asked for, the second is the first.
        usize::from(head.count > 1)
    }

    fn submit_head(&mut self, head: HeadRows) -> Result<()> {
        let commands = [self.heads[self.head_for(head)]];
        self.submits += 1;
        self.queue.submit(&commands, true)
    }

    /// Reads the body's timestamps and sets how many segments fit the budget from the slowest of them.
    fn measure(&mut self, size: usize) -> Result<()> {
        let budget = self.options.submit_budget.as_secs_f64();
        let s = &mut self.sizes[size];
        let Some(stamps) = &mut s.stamps else { return Ok(()) };
        let mut slowest = 1e-9;
        for seconds in stamps.read()? {
            self.busy += seconds;
            slowest = seconds.max(slowest);
        }
        if slowest > budget && s.per_submit > 1 {
            log::warn!("one layer took {slowest:.2} s, more than a submit should: use a smaller --chunk");
        }
        s.per_submit = ((budget / slowest) as usize).clamp(1, s.body.len());
        Ok(())
    }

    /// Adds the head's time to what the device was busy.
    fn measure_head(&mut self, head: HeadRows) -> Result<()> {
        let i = self.head_for(head);
        if let Some(stamps) = &mut self.head_stamps[i] {
            self.busy += stamps.read()?.sum::<f64>();
        }
        Ok(())
    }

    /// What times the kernels of a pass whose step state has been written: the dispatches that the pass is replayed by.
    fn profiler(&mut self, rows: usize, head: HeadRows) -> Profiler<'_> {
        let (target, addresses) = (Target { subgroup: self.gpu.caps.subgroup }, self.addresses());
        let rows = self.sizes[self.size_for(rows)].rows;
        let head_rows = if self.head_for(head) == 0 { 1 } else { self.schedule.extent.head_rows };
        let lowered = |s| (s, lower(&self.schedule, s, rows, head_rows, target, &addresses));
        let segments = self.schedule.segments().map(lowered).collect();
        Profiler { gpu: &self.gpu, queue: &self.queue, pipelines: &mut self.pipelines, segments }
    }

    fn begin(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<usize> {
        executor::check_pass(&self.schedule, rows, head)?;
        self.rows = rows.len();
        let layout = self.schedule.arena.state;
        executor::write_pass(self.arena_words()?, layout, rows, head);
        Ok(self.size_for(rows.len()))
    }

    /// The memory that the host reads results from, as f32, and the byte offset of the logits in it.
    fn results(&self) -> (&[f32], usize) {
        let (buffer, at) = match &self.readback {
            Some(b) => (b, state_bytes(&self.schedule)),
            None => (&self.arena, self.schedule.logits.offset),
        };
        (bytemuck::cast_slice(buffer.bytes().unwrap_or_default()), at as usize)
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
        let size = self.begin(rows, head)?;
        self.submit(size, head)?;
        self.queue.wait()?;
        self.measure(size)?;
        head.map_or(Ok(()), |h| self.measure_head(h))
    }

    fn project(&mut self, head: HeadRows) -> Result<()> {
        executor::check_head(&self.schedule, self.rows, head)?;
        executor::write_head(self.arena_words()?, head);
        self.submit_head(head)?;
        self.queue.wait()?;
        self.measure_head(head)
    }

    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        let size = self.begin(rows, head)?;
        for (i, segment) in self.schedule.segments().enumerate() {
            match segment {
                Segment::Head => match head {
                    Some(head) => self.submit_head(head)?,
                    None => break,
                },
                _ => self.queue.submit(&self.sizes[size].body[i..=i], true)?,
            }
            self.queue.wait()?;
            let arena = bytemuck::cast_slice(self.arena.bytes().ok_or_else(unmapped)?);
            watch(segment, executor::watched_row(&self.schedule, arena, segment, rows.len()));
        }
        Ok(())
    }

    fn next(&self, row: usize) -> u32 {
        self.results().0[self.schedule.arena.state.next() + row].to_bits()
    }

    fn logits(&self, row: usize) -> &[f32] {
        let (floats, at) = self.results();
        let logits = self.schedule.logits;
        &floats[at / 4 + row * logits.stride..][..logits.width]
    }

    fn submits(&self) -> u64 {
        self.submits
    }

    fn busy(&self) -> Duration {
        Duration::from_secs_f64(self.busy)
    }

    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<Timed>> {
        self.begin(rows, Some(head))?;
        self.profiler(rows.len(), head).time_steps(repetitions)
    }

    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64> {
        self.begin(rows, Some(head))?;
        self.profiler(rows.len(), head).time_segment(segment, replays)
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
