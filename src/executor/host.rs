//! An executor in the host's memory: passes, pages and results around the kernels that compute the steps
//! ([`PassKernels`]). The reference executor and the CPU executor differ only in these kernels.

use super::pages::PageChange;
use super::zeroed::{Zeroed, zeroed};
use super::{
    DeviceInfo, DraftRow, EngineKind, EngineSpan, Executor, HeadRows, KernelTiming, Measure, PageCopy, PageId, Pages,
    Row, RowResult, Stepwise, Submission, Tolerance, Watch,
};
use crate::machine::read_rate;
use crate::schedule::choice::SampleResult;
use crate::schedule::kv::{KvLayer, PAGE, Pool};
use crate::schedule::layout::StateLayout;
use crate::schedule::step::{Op, Rows};
use crate::schedule::{DRAFT_SEQUENCES, DRAFT_STEPS, Schedule, Segment, Step};
use crate::{Cancel, Result};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Kernels of the processor that compute single steps of a schedule.
pub trait StepKernels {
    /// The kernels' name, as shown to the user.
    fn device(&self) -> &str;

    /// Prepares for a pass. Called before its first step.
    fn begin(&mut self, state: &StepState) {
        let _ = state;
    }

    /// Runs one step over the state's rows.
    ///
    /// # Errors
    /// Device: the computation failed.
    fn run(&mut self, op: &Op, state: &StepState, arena: &mut [f32]) -> Result<()>;

    /// The error bound of a step, as in [`Stepwise::tolerance`].
    fn tolerance(&self, op: &Op) -> Tolerance;
}

/// Computes all steps of a pass. Owns the weights, and the pools of keys and values.
pub trait PassKernels: StepKernels {
    /// The bytes of a page of the KV cache.
    fn page(&mut self, pool: Pool, page: PageId) -> &mut [u8];

    /// The memory of a weight buffer, by its index in the schedule's layout.
    fn weights(&self, buffer: usize) -> Vec<&[u64]>;

    /// Reads words as products read weights. The result only keeps the compiler from leaving the reads out.
    fn read(words: &[u64]) -> f32;
}

/// The pass's state, as the steps read it.
pub struct StepState {
    /// The number of rows that the step works on.
    pub rows: usize,
    /// Index in the pass of the first head row, for steps of head rows; else 0.
    pub head_first: usize,
    /// The token id of each row of the pass.
    pub token: Vec<u32>,
    /// The position of each row in its sequence.
    pub position: Vec<u32>,
    /// The sequence of each row.
    pub sequence: Vec<u32>,
    /// For a draft: the row of the last pass whose state each row begins with.
    source: Vec<u32>,
    /// True if the step takes row i from row `source[i]` of the last pass.
    reads_source: bool,
    /// The word index at which the argmax results are written.
    pub next: usize,
    /// Word index of the flags that say whether each argmax is finite.
    pub finite: usize,
    /// The page tables of all sequences, for each pool.
    tables: [PageTables; 2],
}

/// The page tables of all sequences in one pool.
struct PageTables {
    /// Entries of a sequence, a power of two.
    entries: usize,
    /// First element in the pool of each entry's page, `[sequences][entries]`.
    starts: Vec<usize>,
    /// The number of elements in a page.
    page: usize,
}

impl PageTables {
    fn new(schedule: &Schedule, pool: Pool) -> PageTables {
        let (entries, layout) = (schedule.arena.tables[pool as usize].entries, schedule.kv.pool(pool));
        let page = layout.page_bytes as usize / schedule.extent.kv.bytes();
        PageTables { entries, starts: vec![0; schedule.extent.sequences * entries], page }
    }

    fn at(&self, sequence: usize, number: usize) -> usize {
        sequence * self.entries + (number & (self.entries - 1))
    }
}

impl StepState {
    /// The state for passes of `schedule`, whose pools have elements of its KV type.
    pub(crate) fn new(schedule: &Schedule) -> StepState {
        let layout = schedule.arena.state;
        let rows = || Vec::with_capacity(schedule.extent.max_rows);
        StepState {
            rows: 0,
            head_first: 0,
            token: rows(),
            position: rows(),
            sequence: rows(),
            source: Vec::with_capacity(layout.draft_rows),
            reads_source: false,
            next: layout.next(),
            finite: layout.finite(),
            tables: Pool::ALL.map(|pool| PageTables::new(schedule, pool)),
        }
    }

    /// Sets tokens, positions and sequences to those of a pass's rows.
    pub(crate) fn set_rows(&mut self, rows: &[Row]) {
        self.token.clear();
        self.token.extend(rows.iter().map(|r| r.token));
        self.position.clear();
        self.position.extend(rows.iter().map(|r| r.position));
        self.sequence.clear();
        self.sequence.extend(rows.iter().map(|r| r.sequence));
    }

    /// Reads the rows of a pass or of a draft from the arena's words.
    fn read_rows(&mut self, words: &[u32], layout: StateLayout) {
        let rows = words[StateLayout::ROWS] as usize;
        let read = |array: &mut Vec<u32>, first: usize, count: usize| {
            array.clear();
            array.extend_from_slice(&words[first..first + count]);
        };
        read(&mut self.token, layout.token(), rows);
        read(&mut self.position, layout.position(), rows);
        read(&mut self.sequence, layout.sequence(), rows);
        read(&mut self.source, layout.source(), rows.min(layout.draft_rows));
    }

    /// Selects the rows that the next step computes: those that `rows` names, where `head` are the head rows.
    pub(super) fn set_step(&mut self, rows: Rows, head: HeadRows) {
        self.reads_source = rows == Rows::DraftSource;
        (self.rows, self.head_first) = match rows {
            Rows::Pass | Rows::Draft | Rows::DraftSource => (self.token.len(), 0),
            Rows::Head => (head.count, head.first),
            Rows::Expert(used) => (used * self.token.len(), 0),
        };
    }

    /// The row that a gathering step reads for its row `r`.
    pub fn read_row(&self, r: usize) -> usize {
        if self.reads_source { self.source[r] as usize } else { self.head_first + r }
    }

    /// Applies a changed entry of a page table.
    pub(crate) fn set_page(&mut self, change: &PageChange) {
        let table = &mut self.tables[change.pool as usize];
        let at = table.at(change.sequence, change.number);
        table.starts[at] = change.page as usize * table.page;
    }

    /// The page with positions `PAGE * number ..` of row `r`'s sequence.
    pub fn page_id(&self, pool: Pool, r: usize, number: usize) -> PageId {
        (self.page_at(pool, r, number) / self.tables[pool as usize].page) as PageId
    }

    /// First element in the pool of the page with positions `PAGE * number ..` of row `r`'s sequence.
    pub fn page_at(&self, pool: Pool, r: usize, number: usize) -> usize {
        let table = &self.tables[pool as usize];
        table.starts[table.at(self.sequence[r] as usize, number)]
    }

    /// Index in the layer's pool of row `r`'s sequence's K (`half` 0) or V (1) of a head at position `p`.
    pub fn kv_at(&self, kv: &KvLayer, r: usize, half: usize, head: usize, p: usize) -> usize {
        self.page_at(kv.pool, r, p / PAGE) + kv.element_at(half, head, p)
    }
}

/// An executor whose steps are computed by `S`.
pub struct HostExecutor<S> {
    schedule: Schedule,
    steps: S,
    arena: Zeroed<f32>,
    pages: Pages,
    state: StepState,
    /// Rows of the last pass, and its first head row and number of head rows.
    rows: usize,
    head: HeadRows,
    /// Head rows of the last pass, whose states a draft begins with.
    states: Option<HeadRows>,
    /// Tokens of the last draft, and whether each one's logit is finite; empty after a pass.
    drafted: Vec<(u32, bool)>,
    /// Per head row of the last pass, whether it had a sample request.
    asked: Vec<bool>,
    submitted: PendingWork,
    cancel: Cancel,
}

/// The submitted work. It runs when the host waits for it: until then the host sends the results of the pass before.
enum PendingWork {
    Nothing,
    Pass,
    Head,
    /// A draft of so many tokens for each row.
    Draft(usize),
}

/// Stands for a pass without head rows.
const NONE: HeadRows = HeadRows { first: 0, count: 0 };

impl<S: PassKernels> HostExecutor<S> {
    /// An executor of `schedule`, with an arena of its own.
    ///
    /// # Errors
    /// Refused: not enough memory.
    pub(crate) fn new(schedule: Schedule, steps: S, cancel: Cancel) -> Result<HostExecutor<S>> {
        let arena = zeroed((schedule.arena.bytes / 4) as usize, "arena")?;
        let (pages, state) = (Pages::new(&schedule), StepState::new(&schedule));
        let asked = vec![false; schedule.extent.head_rows];
        Ok(HostExecutor {
            schedule,
            steps,
            arena,
            pages,
            state,
            rows: 0,
            head: NONE,
            states: None,
            drafted: Vec::with_capacity(DRAFT_STEPS * DRAFT_SEQUENCES),
            asked,
            submitted: PendingWork::Nothing,
            cancel,
        })
    }

    fn run(&mut self, segment: Segment) -> Result<()> {
        self.run_all(self.schedule.steps_of(segment))
    }

    fn run_all(&mut self, steps: Range<usize>) -> Result<()> {
        for i in steps {
            // The results of a pass in part are lost.
            self.cancel.check().and_then(|()| self.run_step(i)).inspect_err(|_| {
                (self.rows, self.head, self.states) = (0, NONE, None);
            })?;
        }
        Ok(())
    }

    fn run_step(&mut self, i: usize) -> Result<()> {
        let step = &self.schedule.steps[i];
        self.state.set_step(step.rows, self.head);
        self.steps.run(&step.op, &self.state, &mut self.arena)?;
        if let Op::Route { chosen, kept: Some(word), .. } = step.op {
            for head in 0..self.head.count {
                let from = chosen.row(self.head.first + head) as usize / 4;
                self.arena.copy_within(from..from + chosen.width, word + head * chosen.width);
            }
        }
        Ok(())
    }

    fn begin(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        super::admit_pass(&self.schedule, &mut self.pages, rows, head)?;
        (self.rows, self.head, self.states) = (rows.len(), head.unwrap_or(NONE), head);
        self.enter(|words, layout| super::write_pass(words, layout, rows, head));
        Ok(())
    }

    fn begin_draft(&mut self, rows: &[DraftRow]) {
        let states = self.states.unwrap_or(NONE);
        self.head = HeadRows { first: 0, count: rows.len() };
        self.enter(|words, layout| super::write_draft(words, layout, rows, states));
    }

    /// Enters a pass or a draft, whose rows `write` writes into the step state.
    fn enter(&mut self, write: impl FnOnce(&mut [u32], StateLayout)) {
        self.drafted.clear();
        self.asked.fill(false);
        let (words, layout) = (bytemuck::cast_slice_mut(&mut self.arena), self.schedule.arena.state);
        write(words, layout);
        self.state.read_rows(words, layout);
        for change in self.pages.take_changes() {
            self.state.set_page(&change);
        }
        self.steps.begin(&self.state);
    }

    /// Runs the drafter's step `count` times, each with the tokens of the one before.
    fn draft(&mut self, count: usize) -> Result<()> {
        let steps = self.schedule.steps_of(Segment::Draft);
        let (next, finite) = (self.state.next, self.state.finite);
        for i in 0..count {
            // The first step alone takes a state of the model.
            self.run_all(steps.start + usize::from(i > 0)..steps.end)?;
            for (row, token) in self.state.token.iter_mut().enumerate() {
                *token = self.arena[next + row].to_bits();
                self.drafted.push((*token, self.arena[finite + row].to_bits() != 0));
            }
        }
        Ok(())
    }
}

impl<S: PassKernels> Executor for HostExecutor<S> {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device_info(&self) -> DeviceInfo<'_> {
        let name = self.steps.device();
        DeviceInfo { name, hardware: name, is_cpu: true }
    }

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    fn copy_page(&mut self, pool: Pool, page: PageId, copy: PageCopy<'_>) -> Result<()> {
        super::check_page(&self.schedule, pool, page, copy.len())?;
        let held = self.steps.page(pool, page);
        match copy {
            PageCopy::Read(bytes) => bytes.copy_from_slice(held),
            PageCopy::Write(bytes) => held.copy_from_slice(bytes),
        }
        Ok(())
    }

    fn submit(&mut self, work: Submission<'_>) -> Result<bool> {
        match work {
            Submission::Pass { rows, head, .. } => {
                self.begin(rows, head)?;
                self.submitted = PendingWork::Pass;
            }
            Submission::Head(head) => {
                super::check_head(&self.schedule, self.rows, head)?;
                (self.head, self.states) = (head, Some(head));
                self.drafted.clear();
                self.asked.fill(false);
                super::write_head(bytemuck::cast_slice_mut(&mut self.arena), head);
                self.submitted = PendingWork::Head;
            }
            Submission::Samples(fill) => {
                let words: &mut [u32] = bytemuck::cast_slice_mut(&mut self.arena);
                let words = &mut words[super::asks_in(&self.schedule)];
                super::write_asks(words, &self.schedule, self.head, fill, &mut self.asked);
            }
            Submission::Draft { rows, count } => {
                if !super::check_draft(&self.schedule, &self.pages, rows, count, self.states)? {
                    return Ok(false);
                }
                self.begin_draft(rows);
                self.submitted = PendingWork::Draft(count);
            }
            Submission::Next { .. } | Submission::Resume => return Ok(false),
        }
        Ok(true)
    }

    fn wait(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.submitted, PendingWork::Nothing) {
            PendingWork::Nothing => return Ok(()),
            PendingWork::Pass => self.run_all(0..self.schedule.steps_of(Segment::Head).start)?,
            PendingWork::Head => {}
            PendingWork::Draft(count) => return self.draft(count),
        }
        if self.head.count > 0 {
            self.run(Segment::Head)?;
        }
        match self.asked.contains(&true) {
            true => self.run(Segment::Choice),
            false => Ok(()),
        }
    }

    fn result(&self, row: usize) -> RowResult<'_> {
        if let Some(&(next, is_finite)) = self.drafted.get(row) {
            return RowResult { next, is_finite, found: None, experts: &[] };
        }
        let state = self.schedule.arena.state;
        let word = |at: usize| self.arena[at + row].to_bits();
        let found = || super::slot_row(&self.arena, self.schedule.found, row);
        let asked = self.asked.get(row).is_some_and(|asked| *asked);
        RowResult {
            next: word(state.next()),
            is_finite: word(state.finite()) != 0,
            found: asked.then(|| SampleResult::new(bytemuck::cast_slice(found()))),
            experts: state.experts_of(bytemuck::cast_slice(&self.arena), row),
        }
    }

    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        super::check_logits(row, self.head.count)?;
        Ok(super::slot_row(&self.arena, self.schedule.logits, row))
    }
}

impl<S: PassKernels> Stepwise for HostExecutor<S> {
    fn begin_pass(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        self.begin(rows, head)
    }

    fn run_steps(&mut self, steps: Range<usize>) -> Result<()> {
        self.run_all(steps)
    }

    fn ranges(&self) -> Result<Vec<Range<usize>>> {
        Ok((0..self.schedule.steps_of(Segment::Head).end).map(|step| step..step + 1).collect())
    }

    fn access_arena(&mut self, access: &mut dyn FnMut(&mut [f32])) -> Result<()> {
        access(&mut self.arena);
        Ok(())
    }

    fn read_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &mut [u8]) -> Result<()> {
        let part = super::page_part(&self.schedule, layer, page, bytes.len())?;
        bytes.copy_from_slice(&self.steps.page(layer.pool, page)[part]);
        Ok(())
    }

    fn write_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> Result<()> {
        let part = super::page_part(&self.schedule, layer, page, bytes.len())?;
        self.steps.page(layer.pool, page)[part].copy_from_slice(bytes);
        Ok(())
    }

    fn tolerance(&self, step: usize) -> Tolerance {
        self.steps.tolerance(&self.schedule.steps[step].op)
    }
}

impl<S: PassKernels> Measure for HostExecutor<S> {
    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()> {
        self.begin(rows, head)?;
        for segment in self.schedule.segments() {
            if segment == Segment::Head && head.is_none() {
                break;
            }
            self.run(segment)?;
            watch(segment, super::watched_row(&self.schedule, &self.arena, segment, rows.len()));
        }
        Ok(())
    }

    fn submits(&self) -> u64 {
        0
    }

    fn busy(&self) -> Duration {
        Duration::ZERO
    }

    fn time_steps(&mut self, rows: &[Row], head: HeadRows, repetitions: usize) -> Result<Vec<KernelTiming>> {
        self.begin(rows, Some(head))?;
        let steps = self.schedule.steps.iter().enumerate().filter(|(_, s)| s.segment.is_in_all());
        let timed = |(i, s): (usize, &Step)| KernelTiming {
            segment: s.segment,
            steps: i..i + 1,
            kernel: s.op.name(),
            variant: String::new(),
            seconds: Vec::with_capacity(repetitions),
        };
        let mut timed: Vec<KernelTiming> = steps.map(timed).collect();
        for run in 0..=repetitions {
            for (i, t) in timed.iter_mut().enumerate() {
                let start = Instant::now();
                self.run_step(i)?;
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

    fn timeline(&mut self, rows: &[Row], head: HeadRows) -> Result<Vec<EngineSpan>> {
        self.begin(rows, Some(head))?;
        let segments: Vec<Segment> = self.schedule.segments().filter(|s| *s != Segment::Head).collect();
        segments.iter().try_for_each(|segment| self.run(*segment))?;
        self.begin(rows, Some(head))?;
        let origin = Instant::now();
        let mut spans = Vec::with_capacity(segments.len());
        for segment in segments {
            let start = origin.elapsed().as_secs_f64();
            self.run(segment)?;
            let end = origin.elapsed().as_secs_f64();
            spans.push(EngineSpan { engine: EngineKind::Device, segment, rows: 0..rows.len(), start, end });
        }
        Ok(spans)
    }

    fn measure_segment_ceiling(&mut self, segment: Segment) -> Result<f64> {
        Ok(read_rate(&self.steps.weights(super::segment_buffer(&self.schedule, segment)), S::read))
    }

    fn measure_read_ceiling(&mut self) -> Result<f64> {
        let buffers = 0..self.schedule.weights.buffers.len();
        let buffers: Vec<&[u64]> = buffers.flat_map(|buffer| self.steps.weights(buffer)).collect();
        Ok(read_rate(&buffers, S::read))
    }
}
