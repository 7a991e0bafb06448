//! An executor that only records its passes.

use super::{
    Chunk, DeviceInfo, Executor, HeadRows, KernelTiming, Measure, Pages, Row, RowResult, Submission, Watch, admit_pass,
    check_head,
};
use crate::model::{Shape, WeightFormat, presets};
use crate::schedule::{Extent, KvType, Schedule, Segment, Step};
use crate::{Cancel, Error, Result};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The rows and head rows of a pass.
pub type FakePass = (Vec<Row>, Option<HeadRows>);
/// Writes the logits of a row.
pub type LogitsOf = Box<dyn Fn(&Row, &mut [f32])>;
/// The most prompt rows of a pass, by the passes so far.
pub type PrefillRows = Box<dyn Fn(&[FakePass]) -> usize>;

/// Computes nothing: a row's next token and its logits are functions of the row.
pub struct FakeExecutor {
    pub schedule: Schedule,
    pub pages: Pages,
    /// The rows and head rows of each pass.
    pub passes: Vec<FakePass>,
    /// The next token of a row. The default is its token plus 1, modulo the vocabulary.
    pub next: fn(&Row) -> u32,
    /// Writes the logits of a row. By default all are equal.
    pub logits_of: LogitsOf,
    /// The positions of the rows whose logits were read.
    pub read: Vec<u32>,
    /// The number of head rows with finite logits.
    pub finite: usize,
    /// Whether a pass with head rows fails, as on a lost device.
    pub fails: bool,
    /// The number of passes after which the caller cancels.
    pub cancelled_after: usize,
    /// The most prompt rows of a pass, by the passes so far.
    pub prefill_rows: PrefillRows,
    /// The number of rows that it chooses for `(most, beside)`.
    pub chunk_rows: fn(usize, usize) -> usize,
    /// Whether it takes [`Submission::Next`].
    pub runs_ahead: bool,
    /// The number of passes in flight that were not gone on with.
    pub discarded: usize,
    /// The least time of a pass.
    pub pause: Duration,
    /// The device's read rate, and the number of measurements of it.
    pub ceiling: f64,
    pub reads: Rc<Cell<usize>>,
    /// The share of the read rate in the first measurements, and their number.
    pub first_read: f64,
    pub slow_reads: usize,
    /// The pass that was submitted after the last one.
    pub ahead: Option<Vec<Row>>,
    /// The head rows of the last pass, and their logits.
    pub heads: Vec<Row>,
    pub logits: Vec<f32>,
    /// The experts of each head row.
    pub experts: Vec<[u32; 2]>,
}

/// The window of local layers. With a chunk it spans at most two pages.
pub const WINDOW: usize = 9;
pub const CHUNK: usize = 8;
pub const CONTEXT: usize = 64;
pub const VOCAB: usize = 64;

impl FakeExecutor {
    pub fn new() -> FakeExecutor {
        FakeExecutor::of(CONTEXT, None)
    }

    /// An executor with another context and a KV cache of this many tokens.
    pub fn of(context: usize, kv_tokens: Option<usize>) -> FakeExecutor {
        let (kv, sequences) = (KvType::F16, 4);
        FakeExecutor::with(Extent { context, max_rows: CHUNK, head_rows: sequences, sequences, kv, kv_tokens })
    }

    pub fn with(extent: Extent) -> FakeExecutor {
        let full = presets::preset("gemma3-1b").unwrap();
        let layers = full.layers[..2].to_vec();
        let shape = Shape { layers, vocab: VOCAB, hidden: 32, ffn: 64, ..full.with_window(WINDOW) };
        let schedule = Schedule::build(&shape, extent, |_| WeightFormat::Int8);
        let max_rows = schedule.extent.max_rows;
        FakeExecutor {
            pages: Pages::new(&schedule),
            schedule,
            passes: Vec::new(),
            next: |row| (row.token + 1) % VOCAB as u32,
            logits_of: Box::new(|_, logits| logits.fill(1.0)),
            read: Vec::new(),
            finite: usize::MAX,
            fails: false,
            cancelled_after: usize::MAX,
            prefill_rows: Box::new(move |_| max_rows),
            chunk_rows: |most, _| most,
            runs_ahead: false,
            discarded: 0,
            pause: Duration::ZERO,
            ceiling: f64::MAX,
            reads: Rc::default(),
            first_read: 1.0,
            slow_reads: 1,
            ahead: None,
            heads: Vec::new(),
            logits: vec![0.0; VOCAB],
            experts: Vec::new(),
        }
    }

    /// Takes the token and position of every row run since the last call.
    pub fn take(&mut self) -> Vec<(u32, u32)> {
        self.passes.drain(..).flat_map(|(rows, _)| rows).map(|r| (r.token, r.position)).collect()
    }

    /// Whether the pass after the last one is in flight.
    pub fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    fn last(&self) -> &[Row] {
        let ahead = usize::from(self.is_ahead());
        &self.passes[self.passes.len() - 1 - ahead].0
    }
}

impl Executor for FakeExecutor {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device_info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: "none", hardware: "none", is_cpu: false }
    }

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    fn submit(&mut self, work: Submission<'_>) -> Result<bool> {
        match work {
            Submission::Pass { rows, head, .. } => {
                if self.passes.len() >= self.cancelled_after {
                    let cancel = Cancel::default();
                    cancel.set();
                    cancel.check()?;
                }
                let ahead = self.ahead.take();
                if ahead.as_deref() != Some(rows) {
                    self.discarded += usize::from(ahead.is_some());
                    admit_pass(&self.schedule, &mut self.pages, rows, head)?;
                    self.passes.push((rows.to_vec(), head));
                }
                std::thread::sleep(self.pause);
                self.heads.clear();
                self.heads.extend(head.map_or(&[][..], |h| &rows[h.first..][..h.count]));
            }
            Submission::Head(head) => {
                let rows = self.last();
                check_head(&self.schedule, rows.len(), head)?;
                self.heads = rows[head.first..][..head.count].to_vec();
            }
            Submission::Samples(_) | Submission::Draft { .. } => return Ok(false),
            Submission::Resume => match self.ahead.take() {
                Some(ahead) => self.heads = ahead,
                None => return Ok(false),
            },
            Submission::Next { .. } => {
                let follow = |row: &Row| Row { token: (self.next)(row), position: row.position + 1, ..*row };
                let next: Vec<Row> = self.heads.iter().map(follow).collect();
                let is_ready = |row: &Row| self.pages.is_ready(row.sequence as usize, row.position as usize);
                if !self.runs_ahead || !next.iter().all(is_ready) {
                    return Ok(false);
                }
                self.passes.push((next.clone(), Some(HeadRows { first: 0, count: next.len() })));
                self.ahead = Some(next);
            }
        }
        Ok(true)
    }

    fn wait(&mut self) -> Result<()> {
        match self.fails && !self.heads.is_empty() {
            true => Err(Error::device("it is lost", "run it again")),
            false => Ok(()),
        }
    }

    fn result(&self, row: usize) -> RowResult<'_> {
        RowResult {
            next: self.heads.get(row).map_or(0, self.next),
            is_finite: row < self.finite,
            found: None,
            experts: self.experts.get(row).map_or(&[], |of| of),
        }
    }

    fn logits(&mut self, row: usize) -> Result<&[f32]> {
        self.read.push(self.heads[row].position);
        (self.logits_of)(&self.heads[row], &mut self.logits);
        Ok(&self.logits)
    }

    fn chunk(&self, chunk: Chunk) -> usize {
        let most = chunk.most.min((self.prefill_rows)(&self.passes));
        chunk.beside.map_or(most, |beside| (self.chunk_rows)(most, beside))
    }
}

impl Measure for FakeExecutor {
    fn submits(&self) -> u64 {
        3 * self.passes.len() as u64
    }

    fn busy(&self) -> Duration {
        Duration::from_micros(20) * self.passes.len() as u32
    }

    fn forward_watched(&mut self, _: &[Row], _: Option<HeadRows>, _: Watch<'_>) -> Result<()> {
        unreachable!("a fake executor has nothing to watch")
    }

    fn time_steps(&mut self, _: &[Row], _: HeadRows, repetitions: usize) -> Result<Vec<KernelTiming>> {
        let timed = |(i, s): (usize, &Step)| KernelTiming {
            segment: s.segment,
            steps: i..i + 1,
            kernel: "noted",
            variant: String::new(),
            seconds: vec![1.0; repetitions],
        };
        Ok(self.schedule.steps.iter().enumerate().map(timed).collect())
    }

    fn time_segment(&mut self, _: Segment, _: &[Row], _: HeadRows, replays: usize) -> Result<f64> {
        Ok(replays as f64)
    }

    fn measure_segment_ceiling(&mut self, _: Segment) -> Result<f64> {
        Ok(self.ceiling)
    }

    fn measure_read_ceiling(&mut self) -> Result<f64> {
        self.reads.set(self.reads.get() + 1);
        Ok(if self.reads.get() <= self.slow_reads { self.first_read * self.ceiling } else { self.ceiling })
    }
}

/// Tokens at consecutive positions, in the form of [`FakeExecutor::take`].
pub fn at(first: u32, tokens: &[u32]) -> Vec<(u32, u32)> {
    tokens.iter().copied().zip(first..).collect()
}
