//! One sequence: its tokens, which of them are in the KV cache, and the rows that the next pass takes for it.

use crate::Result;
use crate::executor::{Executor, HeadRows, Row};
use crate::schedule::Schedule;
use crate::sequence::counts;
use crate::sequence::prompt::SequenceLimits;
use std::ops::Range;

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
}

impl Session {
    /// An empty sequence, `sequence` of an executor's, with room for `context` tokens.
    pub fn new(sequence: u32, context: usize) -> Session {
        Session { sequence, tokens: Vec::with_capacity(context), held: 0 }
    }

    /// A sequence in KV slot `sequence` whose cache holds exactly `tokens`.
    pub(crate) fn resume(sequence: u32, tokens: Vec<u32>) -> Session {
        Session { sequence, held: tokens.len(), tokens }
    }

    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..self.held]
    }

    /// The tokens in the cache, then those that wait for a pass.
    pub(crate) fn all_tokens(&self) -> &[u32] {
        &self.tokens
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
    pub fn replace(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<usize> {
        SequenceLimits::of(executor.schedule()).check(0, tokens)?;
        let shared = self.shared(executor, tokens);
        let kept = self.rewind(executor, shared);
        self.tokens.extend_from_slice(&tokens[kept..]);
        Ok(kept)
    }

    /// How many of `tokens` [`Session::replace`] would keep.
    pub fn shared(&self, executor: &dyn Executor, tokens: &[u32]) -> usize {
        executor.pages().kept(self.sequence as usize, self.in_common(tokens))
    }

    /// Appends a token, which waits for a pass.
    ///
    /// # Errors
    /// Input: it is outside of the vocabulary, or the context is full.
    pub fn push(&mut self, schedule: &Schedule, token: u32) -> Result<()> {
        self.append(schedule, &[token])
    }

    fn append(&mut self, schedule: &Schedule, tokens: &[u32]) -> Result<()> {
        SequenceLimits::of(schedule).check(self.tokens.len(), tokens)?;
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Appends to `rows` those of the next waiting tokens, `most` at most. Returns how many.
    pub fn propose(&mut self, most: usize, rows: &mut Vec<Row>) -> usize {
        let positions = self.next_positions(most);
        rows.extend(positions.clone().map(|at| Row {
            token: self.tokens[at],
            position: at as u32,
            sequence: self.sequence,
        }));
        positions.len()
    }

    /// The positions of the rows that [`Session::propose`] gives.
    pub fn next_positions(&self, most: usize) -> Range<usize> {
        self.held..self.held + self.pending().min(most)
    }

    /// Appends a token that an executor chose, where there is room for it. Returns the row that runs it.
    pub(crate) fn push_chosen(&mut self, token: u32) -> Row {
        let position = self.tokens.len();
        self.tokens.push(token);
        Row { token, position: position as u32, sequence: self.sequence }
    }

    /// The pass with the last `count` rows proposed was run: their keys and values are in the cache.
    pub fn commit(&mut self, count: usize) {
        self.held += count;
    }

    /// The last token in the cache waits for a pass again, which writes the same keys and values.
    pub(crate) fn repeat_last(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Drops all but the first `keep` tokens of those in the cache. Returns how many are left: `keep`, or fewer if the next
    /// token would write to a page that others share, or 0 if a local layer has lost keys that the next token would see.
    pub fn rewind(&mut self, executor: &mut dyn Executor, keep: usize) -> usize {
        let pages = executor.pages_mut();
        self.held = pages.kept(self.sequence as usize, keep.min(self.held));
        pages.truncate(self.sequence as usize, self.held);
        self.tokens.truncate(self.held);
        self.held
    }

    /// Gives back the sequence's pages: all of its tokens wait for passes again.
    pub fn put_off(&mut self, executor: &mut dyn Executor) {
        executor.pages_mut().truncate(self.sequence as usize, 0);
        self.held = 0;
    }

    /// How many of `tokens` another sequence can share with this one ([`Session::begin_as`]).
    pub fn shareable(&self, executor: &dyn Executor, tokens: &[u32]) -> usize {
        executor.pages().shareable(self.sequence as usize, self.in_common(tokens))
    }

    /// Makes the sequence, which must be empty, begin as another one does, as far as `tokens` do and by whole pages.
    pub fn begin_as(&mut self, executor: &mut dyn Executor, other: &Session, tokens: &[u32]) {
        let most = other.in_common(tokens);
        self.held = executor.pages_mut().share(other.sequence as usize, self.sequence as usize, most);
        self.tokens.extend_from_slice(&tokens[..self.held]);
    }

    /// The cache holds `tokens`, at most as many as the context has room for, and nothing waits.
    pub(crate) fn adopt(&mut self, tokens: &[u32]) {
        self.tokens.clear();
        self.tokens.extend_from_slice(tokens);
        self.held = tokens.len();
    }

    /// How many of the first of `tokens` this sequence holds too, at most all but the last.
    fn in_common(&self, tokens: &[u32]) -> usize {
        let same = self.tokens().iter().zip(tokens).take_while(|(held, wanted)| held == wanted).count();
        same.min(tokens.len().saturating_sub(1))
    }

    /// [`Session::replace`], and runs what waits. The executor's head row 0 then has the last token's logits. Returns how
    /// many tokens were kept.
    ///
    /// # Errors
    /// As [`Session::replace`]. Interrupted: it was cancelled. Device: the device failed. After an error the session holds
    /// no more than the prefix that was kept.
    pub fn sync(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<usize> {
        let kept = self.replace(executor, tokens)?;
        self.run_waiting(executor, &mut run_chunk)?;
        Ok(kept)
    }

    /// Appends `tokens` and runs them in chunks of [`Executor::rows_at`]. The executor's head row 0 then has the
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
            let count = self.propose(executor.rows_at(self.held), &mut rows);
            if let Err(e) = run(executor, &rows, count == self.pending()) {
                self.rewind(executor, held);
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
