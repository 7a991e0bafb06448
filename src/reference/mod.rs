//! The reference executor: interprets the schedule on the CPU in plain f32, KV included. Other executors are compared
//! with it, so each step reads like its formula.

mod choice;
mod ops;

use crate::error::{Setting, text};
use crate::executor::weights::{self, Progress};
use crate::executor::{self, Asks, Executor, HeadRows, Measure, PageId, Pages, Row, Timed, Watch};
use crate::model::checkpoint::Checkpoint;
use crate::schedule::choice::Found;
use crate::schedule::kv::{KvLayer, PAGE, Pool};
use crate::schedule::layout::{ArenaLayout, StateLayout, TableLayout, WeightLayout};
use crate::schedule::step::{Matrix, Rows, Vector, WeightBuffer};
use crate::schedule::{Schedule, Segment, Step};
use crate::{Cancel, Error, Result};
use std::time::{Duration, Instant};

/// Weight buffers in system memory, laid out as on a device.
pub(crate) struct Weights {
    /// One per buffer of the layout; u64, so that every tensor is aligned.
    buffers: Vec<Vec<u64>>,
    layout: WeightLayout,
}

impl Weights {
    fn bytes(&self, buffer: WeightBuffer) -> &[u8] {
        bytemuck::cast_slice(&self.buffers[self.layout.index(buffer)])
    }

    /// A norm's raw weights.
    pub(crate) fn vector(&self, v: Vector) -> &[f32] {
        let b = self.bytes(v.buffer);
        bytemuck::cast_slice(&b[v.offset as usize..v.offset as usize + 4 * v.len])
    }

    /// Row `r` of a matrix, decoded into `out`, `[cols]`.
    pub(crate) fn row(&self, m: Matrix, r: usize, out: &mut [f32]) {
        let b = self.bytes(m.buffer);
        let stride = m.format.row_bytes(m.cols);
        let at = m.offset as usize + r * stride;
        let scale_bytes = m.format.scale_bytes(m.cols);
        let scales = &b[m.scales as usize + r * scale_bytes..][..scale_bytes];
        m.format.decode_row(&b[at..at + stride], scales, out);
    }
}

/// The CPU executor.
pub struct Reference {
    schedule: Schedule,
    weights: Weights,
    arena: Vec<f32>,
    /// The pools of KV pages.
    kv: [Vec<f32>; 2],
    pages: Pages,
    rows: usize,
    head_rows: usize,
    /// Head rows of the last pass that asked for something.
    asked: Vec<bool>,
    device: String,
    cancel: Cancel,
}

impl Reference {
    /// Loads the checkpoint's weights into system memory and allocates the arena and the KV cache.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Refused: not enough memory. Interrupted: it was cancelled.
    pub fn load(checkpoint: &Checkpoint, schedule: Schedule, progress: &Progress) -> Result<Reference> {
        let mut buffers = Vec::with_capacity(schedule.weights.buffers.len());
        for layout in &schedule.weights.buffers {
            let mut buffer = zeroed(layout.bytes.div_ceil(8) as usize, "weights")?;
            weights::fill(checkpoint, layout, bytemuck::cast_slice_mut(&mut buffer), progress)?;
            buffers.push(buffer);
        }
        let layout = schedule.weights.clone();
        let pool = |pool| {
            let layout = schedule.kv.pool(pool);
            zeroed(layout.pages * (layout.page_bytes / 4) as usize, "KV cache")
        };
        let kv = [pool(Pool::Global)?, pool(Pool::Local)?];
        let pages = Pages::new(&schedule);
        let arena = zeroed((schedule.arena.bytes / 4) as usize, "arena")?;
        let threads = rayon::current_num_threads();
        let device = format!("CPU reference, {threads} thread{}", if threads == 1 { "" } else { "s" });
        let weights = Weights { buffers, layout };
        let cancel = progress.cancel.clone();
        let asked = vec![false; schedule.extent.head_rows];
        Ok(Reference { schedule, weights, arena, kv, pages, rows: 0, head_rows: 0, asked, device, cancel })
    }

    fn run(&mut self, segment: Segment) -> Result<()> {
        for i in self.schedule.steps_of(segment) {
            self.cancel.check().inspect_err(|_| (self.rows, self.head_rows) = (0, 0))?;
            self.run_step(i);
        }
        Ok(())
    }

    fn run_step(&mut self, i: usize) {
        let step = &self.schedule.steps[i];
        let state = StepState::read(&self.arena, &self.schedule.arena, step.rows);
        ops::run(&step.op, &state, &self.weights, &mut self.arena, &mut self.kv);
    }

    fn begin(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        executor::admit_pass(&self.schedule, &mut self.pages, rows, head)?;
        self.rows = rows.len();
        self.head_rows = head.map_or(0, |h| h.count);
        self.asked.fill(false);
        let words = bytemuck::cast_slice_mut(&mut self.arena);
        executor::write_pass(words, self.schedule.arena.state, rows, head);
        let start = |pool, page| page as u64 * (self.schedule.kv.pool(pool).page_bytes / 4);
        executor::write_tables(words, &self.schedule.arena, &mut self.pages, start);
        Ok(())
    }

    /// A page's bytes.
    fn page(&mut self, pool: Pool, page: PageId) -> &mut [u8] {
        let bytes = self.schedule.kv.pool(pool).page_bytes as usize;
        &mut bytemuck::cast_slice_mut(&mut self.kv[pool as usize])[page as usize * bytes..][..bytes]
    }
}

/// A zeroed vector. Refused if it cannot be allocated. The system gives its pages as they are written to, so what is never
/// used of a KV cache takes no memory.
fn zeroed<T: bytemuck::Zeroable>(len: usize, what: &str) -> Result<Vec<T>> {
    let zeroed = bytemuck::allocation::try_zeroed_slice_box(len).map_err(|()| {
        Error::refused(
            format!(
                "{} of system memory for the {what} cannot be had",
                crate::display::bytes(size_of::<T>() as u64 * len as u64)
            ),
            text!("close other programs or use a smaller model or ", Setting::Context),
        )
    })?;
    Ok(zeroed.into_vec())
}

/// The part of the step state that one step reads.
pub(crate) struct StepState {
    /// Rows that the step works on.
    pub rows: usize,
    /// Index in the pass of the first head row.
    pub head_first: usize,
    pub token: Vec<u32>,
    pub position: Vec<u32>,
    pub sequence: Vec<u32>,
    /// Word index of the argmax results.
    pub next: usize,
    /// Word index of the flags that say whether each argmax is finite.
    pub finite: usize,
    /// The sequences' page tables, by pool.
    pub tables: [TableLayout; 2],
}

impl StepState {
    fn read(arena: &[f32], arena_layout: &ArenaLayout, rows: Rows) -> StepState {
        let (layout, tables) = (arena_layout.state, arena_layout.tables);
        let words: &[u32] = bytemuck::cast_slice(&arena[..layout.words()]);
        let live = words[StateLayout::ROWS] as usize;
        let array = |at: usize| words[at..at + live].to_vec();
        let (rows, head_first) = match rows {
            Rows::Pass => (live, 0),
            Rows::Head => (words[StateLayout::HEAD_ROWS] as usize, words[StateLayout::HEAD_FIRST] as usize),
        };
        StepState {
            rows,
            head_first,
            token: array(layout.token()),
            position: array(layout.position()),
            sequence: array(layout.sequence()),
            next: layout.next(),
            finite: layout.finite(),
            tables,
        }
    }

    /// Index in the layer's pool of row `r`'s sequence's K (`half` 0) or V (1) of a head at position `p`.
    pub fn kv_at(&self, arena: &[f32], kv: &KvLayer, r: usize, half: usize, head: usize, p: usize) -> usize {
        let word = self.tables[kv.pool as usize].word(self.sequence[r] as usize, p / PAGE);
        let page = u64::from(arena[word].to_bits()) | u64::from(arena[word + 1].to_bits()) << 32;
        page as usize + kv.element_at(half, head, p)
    }
}

impl Executor for Reference {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn is_reference(&self) -> bool {
        true
    }

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    fn forward(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        self.forward_watched(rows, head, &mut |_, _| {})
    }

    fn forward_choosing(&mut self, rows: &[Row], head: HeadRows, asks: Asks<'_>) -> Result<()> {
        (asks.meanwhile)();
        self.forward(rows, Some(head))?;
        let words: &mut [u32] = bytemuck::cast_slice_mut(&mut self.arena);
        let words = &mut words[executor::asks_in(&self.schedule)];
        executor::write_asks(words, &self.schedule, head, asks.fill, &mut self.asked);
        match self.asked.contains(&true) {
            true => self.run(Segment::Choice),
            false => Ok(()),
        }
    }

    fn read_page(&mut self, pool: Pool, page: PageId, bytes: &mut [u8]) -> Result<()> {
        executor::check_page(&self.schedule, pool, page, bytes.len())?;
        bytes.copy_from_slice(self.page(pool, page));
        Ok(())
    }

    fn write_page(&mut self, pool: Pool, page: PageId, bytes: &[u8]) -> Result<()> {
        executor::check_page(&self.schedule, pool, page, bytes.len())?;
        self.page(pool, page).copy_from_slice(bytes);
        Ok(())
    }

    fn found(&self, row: usize) -> Option<Found<'_>> {
        let found = || executor::slot_row(&self.arena, self.schedule.found, row);
        self.asked.get(row).is_some_and(|asked| *asked).then(|| Found::new(bytemuck::cast_slice(found())))
    }

    fn project(&mut self, head: HeadRows) -> Result<()> {
        executor::check_head(&self.schedule, self.rows, head)?;
        self.head_rows = head.count;
        self.asked.fill(false);
        executor::write_head(bytemuck::cast_slice_mut(&mut self.arena), head);
        self.run(Segment::Head)
    }

    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        self.begin(rows, head)?;
        for segment in self.schedule.segments() {
            if segment == Segment::Head && head.is_none() {
                break;
            }
            self.run(segment)?;
            watch(segment, executor::watched_row(&self.schedule, &self.arena, segment, rows.len()));
        }
        Ok(())
    }

    fn next(&self, row: usize) -> u32 {
        self.arena[self.schedule.arena.state.next() + row].to_bits()
    }

    fn is_finite(&self, row: usize) -> bool {
        self.arena[self.schedule.arena.state.finite() + row].to_bits() != 0
    }

    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        executor::check_logits(row, self.head_rows)?;
        Ok(executor::slot_row(&self.arena, self.schedule.logits, row))
    }
}

impl Measure for Reference {
    fn submits(&self) -> u64 {
        0
    }

    fn busy(&self) -> Duration {
        Duration::ZERO
    }

    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<Timed>> {
        self.begin(rows, Some(head))?;
        let steps = self.schedule.steps.iter().enumerate().filter(|(_, s)| s.segment != Segment::Choice);
        let timed = |(i, s): (usize, &Step)| Timed {
            segment: s.segment,
            steps: i..i + 1,
            kernel: s.op.name(),
            variant: String::new(),
            seconds: Vec::with_capacity(repetitions),
        };
        let mut timed: Vec<Timed> = steps.map(timed).collect();
        for run in 0..=repetitions {
            for (i, t) in timed.iter_mut().enumerate() {
                let start = Instant::now();
                self.run_step(i);
                if run > 0 {
                    t.seconds.push(start.elapsed().as_secs_f64());
                }
            }
        }
        Ok(timed)
    }

    fn time_segment(&mut self, segment: Segment, rows: &[Row], head: HeadRows, replays: usize) -> Result<f64> {
        self.begin(rows, Some(head))?;
        self.run(segment)?;
        let start = Instant::now();
        (0..replays).try_for_each(|_| self.run(segment))?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64> {
        let buffer = &self.weights.buffers[executor::segment_buffer(&self.schedule, segment)];
        Ok(crate::machine::read_rate(&[buffer]))
    }

    fn measure_read_ceiling(&mut self) -> Result<f64> {
        let buffers: Vec<&[u64]> = self.weights.buffers.iter().map(Vec::as_slice).collect();
        Ok(crate::machine::read_rate(&buffers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Role, TensorId, WeightFormat};
    use crate::schedule::{Extent, KvType};
    use std::path::Path;

    /// Mixed weight formats compute nearly the same logits as one format.
    #[test]
    fn formats_may_be_mixed() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny");
        let checkpoint = Checkpoint::open(&golden).unwrap();
        let logits = |formats: &dyn Fn(TensorId) -> WeightFormat| {
            let extent =
                Extent { context: 16, max_rows: 4, head_rows: 1, sequences: 1, kv: KvType::F32, kv_tokens: None };
            let schedule = Schedule::build(checkpoint.shape(), extent, formats);
            let mut reference = Reference::load(&checkpoint, schedule, &Progress::default()).unwrap();
            let rows: Vec<Row> = (0..4).map(|i| Row { token: 2 + 7 * i, position: i, sequence: 0 }).collect();
            reference.forward(&rows, Some(HeadRows { first: 3, count: 1 })).unwrap();
            reference.logits(0).unwrap().to_vec()
        };
        let bf16 = logits(&|_| WeightFormat::Bf16);
        let mixed = logits(&|id| match id {
            TensorId::Layer(_, Role::Down) | TensorId::Layer(1, _) => WeightFormat::Int8,
            _ => WeightFormat::Bf16,
        });
        let square = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>();
        let error = square(&mut bf16.iter().zip(&mixed).map(|(a, b)| a - b)) / square(&mut bf16.iter().copied());
        assert!(error > 0.0 && error.sqrt() < 0.05, "{}", error.sqrt());
    }
}
