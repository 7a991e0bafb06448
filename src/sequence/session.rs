//! One sequence: the tokens whose keys and values are in the cache, prefill in chunks, and decode token by token.

use crate::Result;
use crate::executor::{Executor, HeadRows, Row};
use crate::sequence::counts;
use crate::sequence::prompt::Limits;

/// Runs one chunk of a prompt: the executor, the chunk's rows, and whether it is the last chunk.
pub type RunChunk<'a> = &'a mut dyn FnMut(&mut dyn Executor, &[Row], bool) -> Result<()>;

/// A sequence on an executor.
#[derive(Debug, Clone)]
pub struct Session {
    sequence: u32,
    tokens: Vec<u32>,
    /// One past the furthest position ever written to the KV rings. A ring of capacity c holds only the last c
    /// positions before it.
    written: usize,
}

impl Session {
    /// An empty sequence in KV slot `sequence`, with room for `context` tokens.
    pub fn new(sequence: u32, context: usize) -> Session {
        Session { sequence, tokens: Vec::with_capacity(context), written: 0 }
    }

    /// A sequence in KV slot `sequence` whose cache holds exactly `tokens`.
    pub(crate) fn resume(sequence: u32, tokens: Vec<u32>) -> Session {
        Session { sequence, written: tokens.len(), tokens }
    }

    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions left in the context.
    pub fn room(&self, executor: &dyn Executor) -> usize {
        executor.schedule().extent.context - self.tokens.len()
    }

    /// Makes `tokens` the whole sequence. Keeps the longest prefix that the cache holds and runs the rest, at least the
    /// last token. The executor's head row 0 then has the last token's logits. Returns how many tokens were kept.
    ///
    /// # Errors
    /// Input: there are no tokens, one is outside of the vocabulary, or they exceed the context; nothing is run then.
    /// Interrupted: it was cancelled. Device: the device failed. After an error the session holds no more than the prefix
    /// that was kept.
    pub fn sync(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<usize> {
        Limits::of(executor.schedule()).check(0, tokens)?;
        let same = self.tokens.iter().zip(tokens).take_while(|(held, wanted)| held == wanted).count();
        let kept = self.rewind(executor, same.min(tokens.len() - 1));
        self.prefill(executor, &tokens[kept..])?;
        Ok(kept)
    }

    /// Drops all but the first `keep` tokens. Returns how many are left: `keep` or fewer, and 0 if the ring of a local
    /// layer has lost keys that the next token would see.
    pub fn rewind(&mut self, executor: &dyn Executor, keep: usize) -> usize {
        let keep = keep.min(self.tokens.len());
        let schedule = executor.schedule();
        let window = schedule.shape.window;
        // A ring of capacity c holds the last c positions; position `keep` sees `window - 1` before it.
        let held = schedule.rings.iter().map(|r| r.capacity).min().unwrap_or(0);
        let enough = self.written <= held || self.written - keep + window <= held + 1;
        self.tokens.truncate(if enough { keep } else { 0 });
        if self.tokens.is_empty() {
            self.written = 0;
        }
        self.tokens.len()
    }

    /// Appends `tokens` in chunks of [`Executor::prefill_rows`]. The executor's head row 0 then has the last token's
    /// logits.
    ///
    /// # Errors
    /// As [`Session::sync`].
    pub fn prefill(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<()> {
        self.prefill_with(executor, tokens, &mut |executor, rows, last| {
            let head = last.then_some(HeadRows { first: rows.len() - 1, count: 1 });
            executor.forward(rows, head)
        })
    }

    /// Every prompt's chunks are made here. As [`Session::prefill`], with each chunk run by `run(executor, rows, is the last
    /// chunk)`.
    ///
    /// # Errors
    /// As [`Session::sync`], and the errors of `run`, which may end the prompt by one. The session then holds no more than before: a chunk without a head
    /// may have failed unnoticed, so its keys and values are not trusted.
    pub fn prefill_with(&mut self, executor: &mut dyn Executor, tokens: &[u32], run: RunChunk<'_>) -> Result<()> {
        Limits::of(executor.schedule()).check(self.tokens.len(), tokens)?;
        let held = self.tokens.len();
        let done = self.run_chunks(executor, tokens, run);
        if done.is_err() {
            self.rewind(executor, held);
        }
        done
    }

    fn run_chunks(&mut self, executor: &mut dyn Executor, tokens: &[u32], run: RunChunk<'_>) -> Result<()> {
        let mut left = tokens;
        while !left.is_empty() {
            let (chunk, rest) = left.split_at(left.len().min(executor.prefill_rows()));
            let rows: Vec<Row> = chunk.iter().zip(self.tokens.len()..).map(|(&t, p)| self.row(t, p)).collect();
            self.written = self.written.max(self.tokens.len() + chunk.len());
            run(executor, &rows, rest.is_empty())?;
            counts::count_prefilled(chunk.len());
            self.tokens.extend_from_slice(chunk);
            left = rest;
        }
        Ok(())
    }

    fn row(&self, token: u32, position: usize) -> Row {
        Row { token, position: position as u32, sequence: self.sequence }
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
        let row = self.row(token, self.tokens.len());
        let head = HeadRows { first: 0, count: 1 };
        // The pass that is started ahead writes one position more, even if it is discarded.
        self.written = self.written.max(self.tokens.len() + 1 + usize::from(ahead));
        match ahead {
            true => executor.forward_ahead(&[row], head)?,
            false => executor.forward(&[row], Some(head))?,
        }
        counts::count_decoded(1);
        self.tokens.push(token);
        Ok(())
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
