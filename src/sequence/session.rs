//! One sequence: its tokens, which of them are in the KV cache, and the rows that the next pass takes for it.

use crate::Result;
use crate::executor::{Executor, HeadRows, Row};
use crate::schedule::Schedule;
use crate::sequence::counts;
use crate::sequence::prompt::Limits;

/// Runs one chunk of a prompt: the executor, the chunk's rows, and whether it is the last chunk.
pub type RunChunk<'a> = &'a mut dyn FnMut(&mut dyn Executor, &[Row], bool) -> Result<()>;

/// A sequence on an executor.
///
/// It does not run passes by itself: [`Session::propose`] gives the rows of its next tokens, which may share a pass with
/// other sequences' rows, and [`Session::commit`] says that the pass was run. The methods that take an executor do both,
/// for a sequence that runs alone.
#[derive(Debug, Clone)]
pub struct Session {
    sequence: u32,
    /// The tokens in the cache, then those that no pass has run yet.
    tokens: Vec<u32>,
    /// How many of `tokens` are in the cache.
    held: usize,
    /// One past the furthest position ever written to the KV rings. A ring of capacity c holds only the last c
    /// positions before it.
    written: usize,
}

impl Session {
    /// An empty sequence in KV slot `sequence`, with room for `context` tokens.
    pub fn new(sequence: u32, context: usize) -> Session {
        Session { sequence, tokens: Vec::with_capacity(context), held: 0, written: 0 }
    }

    /// A sequence in KV slot `sequence` whose cache holds exactly `tokens`.
    pub(crate) fn resume(sequence: u32, tokens: Vec<u32>) -> Session {
        Session { sequence, held: tokens.len(), written: tokens.len(), tokens }
    }

    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..self.held]
    }

    /// How many tokens wait for a pass.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.held
    }

    /// Positions left in the context.
    pub fn room(&self, schedule: &Schedule) -> usize {
        schedule.extent.context - self.tokens.len()
    }

    /// Makes `tokens` the whole sequence. Keeps the longest prefix that the cache holds; the rest waits for passes, at
    /// least the last token. Returns how many tokens were kept.
    ///
    /// # Errors
    /// Input: there are no tokens, one is outside of the vocabulary, or they exceed the context; nothing is changed then.
    pub fn replace(&mut self, schedule: &Schedule, tokens: &[u32]) -> Result<usize> {
        Limits::of(schedule).check(0, tokens)?;
        let kept = self.rewind(schedule, self.shared(schedule, tokens));
        self.tokens.extend_from_slice(&tokens[kept..]);
        Ok(kept)
    }

    /// How many of `tokens` [`Session::replace`] would keep.
    pub fn shared(&self, schedule: &Schedule, tokens: &[u32]) -> usize {
        let same = self.tokens().iter().zip(tokens).take_while(|(held, wanted)| held == wanted).count();
        self.rewound(schedule, same.min(tokens.len().saturating_sub(1)))
    }

    /// Appends a token, which waits for a pass.
    ///
    /// # Errors
    /// Input: it is outside of the vocabulary, or the context is full.
    pub fn push(&mut self, schedule: &Schedule, token: u32) -> Result<()> {
        self.append(schedule, &[token])
    }

    fn append(&mut self, schedule: &Schedule, tokens: &[u32]) -> Result<()> {
        Limits::of(schedule).check(self.tokens.len(), tokens)?;
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Appends to `rows` those of the next waiting tokens, `most` at most. Returns how many. With `ahead` the pass may
    /// be followed by one that the executor starts by itself ([`Executor::forward_ahead`]).
    pub fn propose(&mut self, most: usize, ahead: bool, rows: &mut Vec<Row>) -> usize {
        let count = self.pending().min(most);
        let positions = self.held..self.held + count;
        // The pass that is started ahead writes one position more, even if it is discarded.
        self.written = self.written.max(positions.end + usize::from(ahead));
        rows.extend(positions.map(|at| Row { token: self.tokens[at], position: at as u32, sequence: self.sequence }));
        count
    }

    /// Appends a token that an executor chose, where there is room for it. Returns the row that runs it, which may be
    /// started ahead.
    pub(crate) fn push_chosen(&mut self, token: u32) -> Row {
        let position = self.tokens.len();
        self.tokens.push(token);
        self.written = self.written.max(position + 2);
        Row { token, position: position as u32, sequence: self.sequence }
    }

    /// The pass with the last `count` rows proposed was run: their keys and values are in the cache.
    pub fn commit(&mut self, count: usize) {
        self.held += count;
    }

    /// Drops all but the first `keep` tokens of those in the cache. Returns how many are left: `keep` or fewer, and 0 if
    /// the ring of a local layer has lost keys that the next token would see.
    pub fn rewind(&mut self, schedule: &Schedule, keep: usize) -> usize {
        self.held = self.rewound(schedule, keep);
        self.tokens.truncate(self.held);
        if self.held == 0 {
            self.written = 0;
        }
        self.held
    }

    /// What [`Session::rewind`] would return.
    fn rewound(&self, schedule: &Schedule, keep: usize) -> usize {
        let keep = keep.min(self.held);
        let window = schedule.shape.window;
        // A ring of capacity c holds the last c positions; position `keep` sees `window - 1` before it.
        let ring = schedule.rings.iter().map(|r| r.capacity).min().unwrap_or(0);
        // No pass is started ahead past the context's end.
        let written = self.written.min(schedule.extent.context);
        let enough = written <= ring || written - keep + window <= ring + 1;
        if enough { keep } else { 0 }
    }

    /// [`Session::replace`], and runs what waits. The executor's head row 0 then has the last token's logits. Returns how
    /// many tokens were kept.
    ///
    /// # Errors
    /// As [`Session::replace`]. Interrupted: it was cancelled. Device: the device failed. After an error the session holds
    /// no more than the prefix that was kept.
    pub fn sync(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<usize> {
        let kept = self.replace(executor.schedule(), tokens)?;
        self.run_waiting(executor, &mut run_chunk)?;
        Ok(kept)
    }

    /// Appends `tokens` and runs them in chunks of [`Executor::prefill_rows`]. The executor's head row 0 then has the
    /// last token's logits.
    ///
    /// # Errors
    /// As [`Session::sync`].
    pub fn prefill(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<()> {
        self.prefill_with(executor, tokens, &mut run_chunk)
    }

    /// As [`Session::prefill`], with each chunk run by `run(executor, rows, is the last chunk)`.
    ///
    /// # Errors
    /// As [`Session::sync`], and the errors of `run`, which may end the prompt by one.
    pub fn prefill_with(&mut self, executor: &mut dyn Executor, tokens: &[u32], run: RunChunk<'_>) -> Result<()> {
        self.append(executor.schedule(), tokens)?;
        self.run_waiting(executor, run)
    }

    /// Runs what waits. After an error the session holds what it held before: a chunk without a head may have failed
    /// unnoticed, so its keys and values are not trusted.
    fn run_waiting(&mut self, executor: &mut dyn Executor, run: RunChunk<'_>) -> Result<()> {
        let held = self.held;
        let mut rows = Vec::new();
        while self.pending() > 0 {
            rows.clear();
            let count = self.propose(executor.prefill_rows(), false, &mut rows);
            if let Err(e) = run(executor, &rows, count == self.pending()) {
                self.rewind(executor.schedule(), held);
                return Err(e);
            }
            counts::count_prefilled(count);
            self.commit(count);
        }
        Ok(())
    }

    /// Runs one token. The executor's head row 0 then has its logits. Allocates nothing.
    ///
    /// # Errors
    /// Input: the context is full. Interrupted: it was cancelled. Device: the device failed.
    pub fn decode(&mut self, executor: &mut dyn Executor, token: u32) -> Result<()> {
        self.step(executor, token, false)
    }

    /// As [`Session::decode`], through [`Executor::forward_ahead`]: for a caller that decodes the argmax next.
    ///
    /// # Errors
    /// As [`Session::decode`].
    pub fn decode_ahead(&mut self, executor: &mut dyn Executor, token: u32) -> Result<()> {
        self.step(executor, token, true)
    }

    fn step(&mut self, executor: &mut dyn Executor, token: u32, ahead: bool) -> Result<()> {
        self.push(executor.schedule(), token)?;
        let row = Row { token, position: self.held as u32, sequence: self.sequence };
        self.written = self.written.max(self.held + 1 + usize::from(ahead));
        let head = HeadRows { first: 0, count: 1 };
        let run = match ahead {
            true => executor.forward_ahead(&[row], head),
            false => executor.forward(&[row], Some(head)),
        };
        if run.is_err() {
            self.tokens.truncate(self.held);
            return run;
        }
        counts::count_decoded(1);
        self.commit(1);
        Ok(())
    }
}

fn run_chunk(executor: &mut dyn Executor, rows: &[Row], last: bool) -> Result<()> {
    executor.forward(rows, last.then_some(HeadRows { first: rows.len() - 1, count: 1 }))
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
