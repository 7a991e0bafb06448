//! An executor that only records its passes.

use crate::executor::{Executor, HeadRows, Pages, Row, Watch, admit_pass};
use crate::model::{Shape, WeightFormat, presets};
use crate::schedule::{Extent, KvType, Schedule};
use crate::{Cancel, Error, Result};

/// Computes nothing: the argmax of a row is its token plus 1, modulo the vocabulary, and all logits are equal.
pub struct RecordingExecutor {
    pub schedule: Schedule,
    pub pages: Pages,
    /// The rows of each pass, and whether it had head rows.
    pub passes: Vec<(Vec<Row>, bool)>,
    /// Whether a pass with head rows fails, as on a lost device.
    pub fails: bool,
    /// The number of passes after which the caller cancels.
    pub cancelled_after: usize,
    /// The most prompt rows of a pass, and the number that it chooses for `(most, beside)`.
    pub prefill_rows: usize,
    pub chunk_rows: fn(usize, usize) -> usize,
    /// Whether [`Executor::forward_ahead`] starts the next pass.
    pub runs_ahead: bool,
    /// The number of passes that ran ahead and were discarded.
    pub discarded: usize,
    /// The rows of the pass that runs ahead.
    ahead: Option<Vec<Row>>,
    /// The next token of each head row.
    next: Vec<u32>,
    /// The logits of every head row.
    logits: [f32; VOCAB],
}

/// The window of local layers. With a chunk it spans at most two pages.
pub const WINDOW: usize = 9;
pub const CHUNK: usize = 8;
pub const CONTEXT: usize = 64;
pub const VOCAB: usize = 64;

impl RecordingExecutor {
    pub fn new() -> RecordingExecutor {
        RecordingExecutor::of(CONTEXT, None)
    }

    /// An executor with another context and a KV cache of this many tokens.
    pub fn of(context: usize, kv_tokens: Option<usize>) -> RecordingExecutor {
        let full = presets::preset("gemma3-1b").unwrap();
        let layers = full.layers[..2].to_vec();
        let shape = Shape { layers, vocab: VOCAB, hidden: 32, ffn: 64, window: WINDOW, ..full };
        let extent = Extent { context, max_rows: CHUNK, head_rows: 4, sequences: 4, kv: KvType::F16, kv_tokens };
        let schedule = Schedule::build(&shape, extent, |_| WeightFormat::Int8);
        RecordingExecutor {
            pages: Pages::new(&schedule),
            schedule,
            passes: Vec::new(),
            fails: false,
            cancelled_after: usize::MAX,
            prefill_rows: CHUNK,
            chunk_rows: |most, _| most,
            runs_ahead: false,
            discarded: 0,
            ahead: None,
            next: Vec::new(),
            logits: [1.0; VOCAB],
        }
    }

    /// Takes the token and position of every row run since the last call.
    pub fn take(&mut self) -> Vec<(u32, u32)> {
        self.passes.drain(..).flat_map(|(rows, _)| rows).map(|r| (r.token, r.position)).collect()
    }
}

impl Executor for RecordingExecutor {
    crate::executor_methods!(own);

    fn forward(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        if self.passes.len() >= self.cancelled_after {
            let cancel = Cancel::default();
            cancel.set();
            cancel.check()?;
        }
        let ahead = self.ahead.take();
        if ahead.as_deref() != Some(rows) {
            self.discarded += usize::from(ahead.is_some());
            admit_pass(&self.schedule, &mut self.pages, rows, head)?;
            self.passes.push((rows.to_vec(), head.is_some()));
        }
        let heads = head.map_or(&[][..], |h| &rows[h.first..][..h.count]);
        self.next = heads.iter().map(|row| (row.token + 1) % self.schedule.shape.vocab as u32).collect();
        match self.fails && head.is_some() {
            true => Err(Error::device("it is lost", "run it again")),
            false => Ok(()),
        }
    }

    fn forward_ahead(&mut self, rows: &[Row], head: HeadRows) -> Result<()> {
        self.forward(rows, Some(head))?;
        let follow = |(row, &token): (&Row, &u32)| Row { token, position: row.position + 1, ..*row };
        let next: Vec<Row> = rows.iter().zip(&self.next).map(follow).collect();
        let is_ready = |row: &Row| self.pages.is_ready(row.sequence as usize, row.position as usize);
        if self.runs_ahead && next.iter().all(is_ready) {
            self.passes.push((next.clone(), true));
            self.ahead = Some(next);
        }
        Ok(())
    }

    fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    fn project(&mut self, _: HeadRows) -> Result<()> {
        Ok(())
    }

    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, _: Watch<'_>) -> Result<()> {
        self.forward(rows, head)
    }

    fn next(&self, row: usize) -> u32 {
        self.next[row]
    }

    fn is_finite(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize) -> Result<&[f32]> {
        Ok(&self.logits)
    }

    fn prefill_rows(&self) -> usize {
        self.prefill_rows
    }

    fn chunk_rows(&self, most: usize, beside: usize) -> usize {
        (self.chunk_rows)(most, beside)
    }
}

/// Tokens at consecutive positions, in the form of [`RecordingExecutor::take`].
pub fn at(first: u32, tokens: &[u32]) -> Vec<(u32, u32)> {
    tokens.iter().copied().zip(first..).collect()
}
