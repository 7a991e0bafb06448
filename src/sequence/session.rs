//! One sequence: its tokens, those of them in the KV cache, and its rows for the next pass.

use crate::Result;
use crate::executor::{Executor, ExecutorExt, HeadRows, Row};
use crate::schedule::Schedule;
use crate::sequence::counts;
use crate::sequence::prompt::SequenceLimits;
use std::ops::Range;

/// Runs one chunk of a prompt: the executor, the chunk's rows, and whether it is the last chunk.
pub type RunChunk<'a, E> = &'a mut dyn FnMut(&mut E, &[Row], bool) -> Result<()>;

/// A sequence on an executor.
///
/// A session runs no passes by itself: [`Session::propose`] returns the rows of its next tokens, which may share a pass
/// with other sequences' rows, and [`Session::commit`] records that the pass has run. Methods that take an executor do
/// both, for a sequence that runs alone.
#[derive(Debug, Clone)]
pub struct Session {
    sequence: u32,
    /// The tokens in the cache, followed by the pending ones, which no pass has run yet.
    tokens: Vec<u32>,
    /// The number of first `tokens` whose keys and values are in the cache.
    held: usize,
}

impl Session {
    /// An empty sequence with index `sequence` on an executor, with room for `context` tokens.
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

    /// The tokens in the cache, followed by the pending ones.
    pub(crate) fn all_tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The number of tokens that were added and have not run yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.held
    }

    /// The number of positions that the context has left for this sequence.
    pub fn room(&self, schedule: &Schedule) -> usize {
        schedule.extent.context - self.tokens.len()
    }

    /// Makes `tokens` the whole sequence. Keeps the longest cached prefix; the rest is pending, at least the last
    /// token. Returns the number of tokens kept.
    ///
    /// # Errors
    /// Input: there are no tokens, one is outside of the vocabulary, or they exceed the context. The sequence is
    /// unchanged then.
    pub fn replace(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<usize> {
        SequenceLimits::of(executor.schedule()).check(0, tokens)?;
        let shared = self.shared(executor, tokens);
        let kept = self.rewind(executor, shared);
        self.tokens.extend_from_slice(&tokens[kept..]);
        Ok(kept)
    }

    /// The number of first `tokens` that [`Session::replace`] would find in this sequence's cache.
    pub fn shared(&self, executor: &dyn Executor, tokens: &[u32]) -> usize {
        executor.pages().kept(self.sequence as usize, self.in_common(tokens))
    }

    fn append(&mut self, schedule: &Schedule, tokens: &[u32]) -> Result<()> {
        SequenceLimits::of(schedule).check(self.tokens.len(), tokens)?;
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Appends the rows of the next pending tokens to `rows`, at most `most`. Returns their number.
    pub fn propose(&mut self, most: usize, rows: &mut Vec<Row>) -> usize {
        let positions = self.next_positions(most);
        rows.extend(positions.clone().map(|at| Row {
            token: self.tokens[at],
            position: at as u32,
            sequence: self.sequence,
        }));
        positions.len()
    }

    /// The positions of the rows that [`Session::propose`] would return.
    pub fn next_positions(&self, most: usize) -> Range<usize> {
        self.held..self.held + self.pending().min(most)
    }

    /// Appends a token chosen by an executor; the context must have room for it. Returns its row.
    pub(crate) fn push_chosen(&mut self, token: u32) -> Row {
        let position = self.tokens.len();
        self.tokens.push(token);
        Row { token, position: position as u32, sequence: self.sequence }
    }

    /// Records that a pass with `count` proposed rows has run, so that their keys and values are cached.
    pub fn commit(&mut self, count: usize) {
        self.held += count;
    }

    /// Makes the last cached token pending again. The next pass writes the same keys and values.
    pub(crate) fn repeat_last(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Drops all cached tokens after the first `keep`, and all pending ones. Returns the number left: `keep`, or fewer
    /// if the next token would write to a shared page, or 0 if a local layer has lost keys that the next token would
    /// see.
    pub fn rewind<E: Executor + ?Sized>(&mut self, executor: &mut E, keep: usize) -> usize {
        let pages = executor.pages_mut();
        self.held = pages.kept(self.sequence as usize, keep.min(self.held));
        pages.truncate(self.sequence as usize, self.held);
        self.tokens.truncate(self.held);
        self.held
    }

    /// Gives back the sequence's pages. All of its tokens become pending.
    pub fn put_off(&mut self, executor: &mut dyn Executor) {
        executor.pages_mut().truncate(self.sequence as usize, 0);
        self.held = 0;
    }

    /// The number of first `tokens` whose pages another sequence can share ([`Session::begin_as`]).
    pub fn shareable(&self, executor: &dyn Executor, tokens: &[u32]) -> usize {
        executor.pages().shareable(self.sequence as usize, self.in_common(tokens))
    }

    /// Shares the pages of another sequence's common prefix with `tokens`, in whole pages. This sequence must be empty.
    pub fn begin_as(&mut self, executor: &mut dyn Executor, other: &Session, tokens: &[u32]) {
        let most = other.in_common(tokens);
        self.held = executor.pages_mut().share(other.sequence as usize, self.sequence as usize, most);
        self.tokens.extend_from_slice(&tokens[..self.held]);
    }

    /// Records that the cache holds exactly `tokens`, which must fit in the context.
    pub(crate) fn adopt(&mut self, tokens: &[u32]) {
        self.tokens.clear();
        self.tokens.extend_from_slice(tokens);
        self.held = tokens.len();
    }

    /// The length of the common prefix of the cached tokens and `tokens`, without the last of `tokens`.
    fn in_common(&self, tokens: &[u32]) -> usize {
        let same = self.tokens().iter().zip(tokens).take_while(|(held, wanted)| held == wanted).count();
        same.min(tokens.len().saturating_sub(1))
    }

    /// Appends `tokens` and runs them in chunks of [`ExecutorExt::rows_at`]. The executor's head row 0 then has the
    /// last token's logits.
    ///
    /// # Errors
    /// As [`Session::replace`]. Interrupted: it was cancelled. Device: the device failed. After an error the session
    /// holds only the tokens that it held before.
    pub fn prefill(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<()> {
        self.prefill_with(executor, tokens, &mut run_chunk)
    }

    /// As [`Session::prefill`], with each chunk run by `run(executor, rows, is the last chunk)`.
    ///
    /// # Errors
    /// As [`Session::prefill`], and errors of `run`, which may use one to end the prompt.
    pub fn prefill_with<E: Executor + ?Sized>(
        &mut self,
        executor: &mut E,
        tokens: &[u32],
        run: RunChunk<'_, E>,
    ) -> Result<()> {
        self.append(executor.schedule(), tokens)?;
        self.run_waiting(executor, run)
    }

    /// Runs the pending tokens. After an error the session holds the tokens it held before: a chunk without a head row
    /// may have failed unnoticed, so its keys and values are not trusted.
    fn run_waiting<E: Executor + ?Sized>(&mut self, executor: &mut E, run: RunChunk<'_, E>) -> Result<()> {
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
}

fn run_chunk<E: Executor + ?Sized>(executor: &mut E, rows: &[Row], last: bool) -> Result<()> {
    executor.forward(rows, last.then_some(HeadRows { first: rows.len() - 1, count: 1 }))
}

#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
