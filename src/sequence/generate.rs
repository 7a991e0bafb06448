//! Generation: takes a prompt and produces tokens one by one until a stop.

use crate::executor::{Executor, Measure};
use crate::schedule::Pass;
use crate::sequence::chooser::Chooser;
use crate::sequence::session::Session;
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop token or a stop string.
    Stop,
    /// The limit of tokens was reached, or the context is full.
    Length,
    /// The caller interrupted it, during the prompt or the reply.
    Interrupted,
}

impl Finish {
    /// Its word in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// A reply's tokens, with times and counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// How many of them were in the cache already and were not run.
    pub kept: usize,
    /// The reply's tokens, without the stop token that ended them.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Time from the first prompt token to the first logits, or to the interruption.
    pub prefill: Duration,
    /// Time of all decode passes and of choosing the tokens.
    pub decode: Duration,
    /// Decode passes. The first token needs none: it comes from the prefill's logits.
    pub passes: usize,
    /// Position of the first decode pass.
    pub depth: usize,
    /// Whether it ended because the context is full.
    pub full: bool,
}

impl Generation {
    /// Decode rate in tokens per second; `None` without a decode pass.
    pub fn rate(&self) -> Option<f64> {
        (self.passes > 0).then(|| self.passes as f64 / self.decode.as_secs_f64())
    }

    /// The decode rate as a share of the rate that the device's measured read rate allows; `None` without a decode
    /// pass.
    ///
    /// # Errors
    /// Device: it failed. Failed: the share is above 1, so the decode rate or the read rate is wrong.
    pub fn roofline_share(&self, executor: &mut dyn Measure) -> Result<Option<f64>> {
        let Some(rate) = self.rate() else { return Ok(None) };
        let depth = self.depth + self.passes / 2;
        let bytes = executor.schedule().cost(Pass::Decode { sequences: 1, depth }).memory_bytes();
        let ceiling = executor.measure_read_ceiling()? / bytes as f64;
        if rate > ceiling {
            return Err(Error::failed(
                format!("{rate:.1} tokens/s is above the measured ceiling of {ceiling:.1}: one of the two is wrong"),
                "run it again on an otherwise idle machine",
            ));
        }
        Ok(Some(rate / ceiling))
    }
}

/// Makes `session` hold `prompt` and nothing else, and decodes from there. Stops at a token of `stops`, after `limit`
/// tokens, at a full context, or when `on_token` breaks; `on_token` is called with each token. The part of the prompt
/// that the cache already holds is not run again.
///
/// # Errors
/// Input: the prompt is empty, is longer than the context, or has a token outside of the vocabulary. Failed: logits are
/// not finite. Device: the device failed. A pass that is cancelled is no error: it ends the reply as
/// [`Finish::Interrupted`], with the tokens so far.
pub fn generate(
    executor: &mut dyn Executor,
    session: &mut Session,
    prompt: &[u32],
    chooser: &mut Chooser,
    stops: &[u32],
    limit: usize,
    on_token: &mut dyn FnMut(u32) -> ControlFlow<Finish>,
) -> Result<Generation> {
    let mut g = Generation {
        prompt: prompt.len(),
        kept: 0,
        tokens: Vec::new(),
        finish: Finish::Interrupted,
        prefill: Duration::ZERO,
        decode: Duration::ZERO,
        passes: 0,
        depth: 0,
        full: false,
    };
    let start = Instant::now();
    let synced = unless_interrupted(session.sync(executor, prompt))?;
    g.prefill = start.elapsed();
    let Some(kept) = synced else { return Ok(g) };
    chooser.accept(&prompt[kept..]);
    (g.kept, g.depth, g.finish) = (kept, session.tokens().len(), Finish::Length);

    // The last token may be chosen when the context is full: it needs no position.
    let limit = limit.min(session.room(executor) + 1);
    g.tokens.reserve(limit.min(1 << 20));
    let start = Instant::now();
    while g.tokens.len() < limit {
        let id = chooser.choose(executor)?;
        if stops.contains(&id) {
            g.finish = Finish::Stop;
            break;
        }
        g.tokens.push(id);
        if let ControlFlow::Break(finish) = on_token(id) {
            g.finish = finish;
            break;
        }
        let more = g.tokens.len() + 1 < limit;
        if g.tokens.len() < limit {
            let decoded = match chooser {
                // The argmax is the next token, so the next pass can start before the host has it.
                Chooser::Greedy if more => session.decode_ahead(executor, id),
                _ => session.decode(executor, id),
            };
            if unless_interrupted(decoded)?.is_none() {
                g.finish = Finish::Interrupted;
                break;
            }
            g.passes += 1;
        }
    }
    g.decode = start.elapsed();
    g.full = g.finish == Finish::Length && session.room(executor) == 0;
    Ok(g)
}

/// The result of a pass; `None` if it was cancelled.
fn unless_interrupted<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::Interrupted { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}
