//! The tokens of a reply, with times and counts.

use crate::executor::{Executor, Measure};
use crate::schedule::PassShape;
use crate::{Error, Result};
use std::time::Duration;

/// The reason for which a reply ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finish {
    /// A stop token or a stop string ended the reply.
    Stop,
    /// The limit of tokens was reached, or the context is full.
    Length,
    /// The caller interrupted the generation, during the prompt or the reply.
    #[default]
    Interrupted,
}

impl Finish {
    /// The reason's name in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// A reply's tokens, with times and counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Generation {
    /// The number of the prompt's tokens.
    pub prompt: usize,
    /// The number of prompt tokens whose keys and values were in the cache, so that they did not run.
    pub kept: usize,
    /// The reply's tokens, without the stop token that ended them.
    pub tokens: Vec<u32>,
    /// The reason for which the reply ended.
    pub finish: Finish,
    /// Time from the first prompt token to the first logits, or to an interruption.
    pub prefill: Duration,
    /// Time of all decode passes and of choosing the tokens.
    pub decode: Duration,
    /// Decode passes. The first token needs none: it comes from the prefill's logits.
    pub passes: usize,
    /// The number of drafted tokens that passes verified.
    pub drafted: usize,
    /// The number of drafted tokens that were accepted into the reply.
    pub accepted: usize,
    /// Bytes of memory that the draft model read for this reply.
    pub draft_bytes: u64,
    /// The position of the first token that a decode pass ran.
    pub depth: usize,
    /// True if the reply ended because the context is full.
    pub full: bool,
}

impl Generation {
    /// A generation before its first pass, for a prompt of `prompt` tokens with `kept` of them cached.
    pub(crate) fn new(prompt: usize, kept: usize) -> Generation {
        Generation { prompt, kept, ..Generation::default() }
    }

    /// Tokens from decode passes: one per pass, plus the accepted drafted tokens.
    pub fn decoded(&self) -> usize {
        self.passes + self.accepted
    }

    /// The mean number of tokens per decode pass; `None` without a decode pass.
    pub fn tokens_per_pass(&self) -> Option<f64> {
        (self.passes > 0).then(|| self.decoded() as f64 / self.passes as f64)
    }

    /// Decode rate in tokens per second; `None` without a decode pass.
    pub fn rate(&self) -> Option<f64> {
        (self.passes > 0).then(|| self.decoded() as f64 / self.decode.as_secs_f64())
    }

    /// Bytes that the decode passes read, including those of drafts.
    fn bytes(&self, executor: &dyn Executor) -> u64 {
        let depth = self.depth + self.decoded() / 2;
        let of_rows = |rows| executor.schedule().cost(PassShape::Verify { sequences: 1, rows, depth }).memory_bytes();
        // Between the costs of the row counts next to the mean: rows share what an expert's weights cost.
        let mean = 1.0 + self.drafted as f64 / self.passes.max(1) as f64;
        let [less, more] = [mean.floor(), mean.ceil()].map(|rows| of_rows(rows as usize) as f64);
        let of_pass = less + (more - less) * mean.fract();
        (self.passes as f64 * of_pass) as u64 + self.draft_bytes
    }

    /// The decode rate as a share of the rate that the device's measured read rate allows; `None` without a decode
    /// pass.
    ///
    /// # Errors
    /// Device: it failed. Failed: the share is above 1, so the decode rate or the read rate is wrong.
    pub fn roofline_share(&self, executor: &mut dyn Measure) -> Result<Option<f64>> {
        let Some(rate) = self.rate() else { return Ok(None) };
        let bytes = self.bytes(executor) as f64 / self.decoded() as f64;
        let ceiling = executor.measure_read_ceiling()? / bytes;
        if rate > ceiling {
            return Err(Error::failed(
                format!("{rate:.1} tokens/s is above the measured ceiling of {ceiling:.1}: one of the two is wrong"),
                "run it again on an otherwise idle machine",
            ));
        }
        Ok(Some(rate / ceiling))
    }
}
