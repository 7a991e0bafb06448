//! One sequence: its KV slot and what it holds, prefill in chunks, and decoding token by token.

use crate::error::{Setting, Text, text};
use crate::executor::{Executor, HeadRows, Row};
use crate::model::Shape;
use crate::{Error, Result};

/// Runs one chunk of a prefill: the executor, its rows, and whether it is the last.
pub type RunChunk<'a> = &'a mut dyn FnMut(&mut dyn Executor, &[Row], bool) -> Result<()>;

/// A sequence on an executor.
#[derive(Debug, Clone)]
pub struct Session {
    sequence: u32,
    tokens: Vec<u32>,
    /// One past the furthest position ever written to the KV rings: what lies a ring's capacity behind it is gone.
    written: usize,
}

impl Session {
    /// An empty sequence in KV slot `sequence`, with room for `context` tokens.
    pub fn new(sequence: u32, context: usize) -> Session {
        Session { sequence, tokens: Vec::with_capacity(context), written: 0 }
    }

    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets what is behind the first `keep` tokens. Returns how many are kept: none where a local layer's ring no
    /// longer holds the keys that the next token would see.
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

    fn rows(&self, tokens: &[u32]) -> Vec<Row> {
        let row = |(i, &token)| Row { token, position: (self.tokens.len() + i) as u32, sequence: self.sequence };
        tokens.iter().enumerate().map(row).collect()
    }

    /// Runs `tokens` behind those already there, in chunks of the schedule's size; then the executor's head row 0 holds
    /// the last one's logits.
    ///
    /// # Errors
    /// Input: no tokens, a token outside of the vocabulary, or more than the context holds: nothing is run then.
    pub fn prefill(&mut self, executor: &mut dyn Executor, tokens: &[u32]) -> Result<()> {
        self.prefill_watched(executor, tokens, &mut |executor, rows, last| {
            let head = last.then_some(HeadRows { first: rows.len() - 1, count: 1 });
            executor.forward(rows, head)
        })
    }

    /// As [`Session::prefill`], with each chunk run by `run(executor, rows, is the last chunk)`.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn prefill_watched(&mut self, executor: &mut dyn Executor, tokens: &[u32], run: RunChunk<'_>) -> Result<()> {
        self.check(executor, tokens)?;
        let mut left = tokens;
        while !left.is_empty() {
            let (part, rest) = left.split_at(left.len().min(executor.prefill_rows()));
            let rows = self.rows(part);
            self.written = self.written.max(self.tokens.len() + part.len());
            run(executor, &rows, rest.is_empty())?;
            self.tokens.extend_from_slice(part);
            left = rest;
        }
        Ok(())
    }

    fn check(&self, executor: &dyn Executor, tokens: &[u32]) -> Result<()> {
        let s = executor.schedule();
        check_tokens(tokens, self.tokens.len(), &s.shape, s.extent.context)
    }

    /// Positions left in the context.
    pub fn room(&self, executor: &dyn Executor) -> usize {
        executor.schedule().extent.context - self.tokens.len()
    }

    /// Runs one token; then the executor's head row 0 holds its logits. Allocates nothing.
    ///
    /// # Errors
    /// Input: the context is full. Device: the device failed.
    pub fn decode(&mut self, executor: &mut dyn Executor, token: u32) -> Result<()> {
        self.step(executor, token, false)
    }

    /// As [`Session::decode`], by [`Executor::forward_on`]: for a caller that means to decode the choice next.
    ///
    /// # Errors
    /// As [`Session::decode`].
    pub fn decode_on(&mut self, executor: &mut dyn Executor, token: u32) -> Result<()> {
        self.step(executor, token, true)
    }

    fn step(&mut self, executor: &mut dyn Executor, token: u32, on: bool) -> Result<()> {
        let row = Row { token, position: self.tokens.len() as u32, sequence: self.sequence };
        let head = HeadRows { first: 0, count: 1 };
        // The pass that follows may write a position that is never asked for.
        self.written = self.written.max(self.tokens.len() + 1 + usize::from(on));
        match on {
            true => executor.forward_on(&[row], head)?,
            false => executor.forward(&[row], Some(head))?,
        }
        self.tokens.push(token);
        Ok(())
    }
}

/// Judges tokens that are to follow `used` ones in a context.
///
/// # Errors
/// Input: none, one outside of the vocabulary, or more than the context holds.
pub fn check_tokens(tokens: &[u32], used: usize, shape: &Shape, context: usize) -> Result<()> {
    if tokens.is_empty() {
        return Err(Error::input("the prompt is empty", "give at least one token"));
    }
    if let Some(id) = tokens.iter().find(|&&t| t as usize >= shape.vocab) {
        return Err(Error::input(
            format!("token id {id} is outside of the vocabulary of {}", shape.vocab),
            "use ids from this model's tokenizer",
        ));
    }
    let total = used + tokens.len();
    if total > context {
        return Err(too_long(&format!("{total} tokens"), shape, context));
    }
    Ok(())
}

/// A prompt of so many tokens, in words, is longer than the context.
pub fn too_long(prompt: &str, shape: &Shape, context: usize) -> Error {
    let larger = larger_context(shape, context).map_or(Text::default(), |larger| text!(", or ", larger));
    Error::input(format!("the prompt of {prompt} is longer than the context of {context}"), text!("shorten it", larger))
}

/// What gives a larger context than `context`, where the model has one.
pub fn larger_context(shape: &Shape, context: usize) -> Option<Text> {
    let up_to = format!(" (up to {})", shape.max_context);
    (context < shape.max_context).then(|| text!("raise ", Setting::Context.the(), up_to))
}
