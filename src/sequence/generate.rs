//! Generation: prompt in, tokens out, one at a time, until something ends it.

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
    /// As many tokens as asked for, or the context is full.
    Length,
    /// The caller broke it off.
    Interrupted,
}

impl Finish {
    /// The word of the JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// A reply's tokens, and what they took.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// How many of them the cache already held, so that they were not run.
    pub kept: usize,
    /// The reply's tokens, without the stop token that ended them.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Time from the first prompt token to the first logits.
    pub prefill: Duration,
    /// Time of all decode passes and choices.
    pub decode: Duration,
    /// Decode passes. The first token takes none: it comes from the prefill's logits.
    pub passes: usize,
    /// Position of the first decode pass.
    pub depth: usize,
    /// It ended because the context is full.
    pub full: bool,
}

impl Generation {
    /// Decode rate in tokens per second; `None` where there was no decode pass.
    pub fn rate(&self) -> Option<f64> {
        (self.passes > 0).then(|| self.passes as f64 / self.decode.as_secs_f64())
    }

    /// The decode rate's share of what the device's measured read rate allows; `None` without a decode pass.
    ///
    /// # Errors
    /// Device: it failed. Failed: the rate is above what was measured, so one of the two is wrong.
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

/// Makes `prompt` the whole of `session` and decodes behind it: until a token of `stops`, `limit` tokens, a full context, or a
/// break from `on_token`, which is shown each token. What the cache already holds of the prompt is not run again.
///
/// # Errors
/// Input: an empty prompt, a token outside of the vocabulary, a prompt past the context. Failed: logits that are not
/// finite. Device: the device failed.
pub fn generate(
    executor: &mut dyn Executor,
    session: &mut Session,
    prompt: &[u32],
    chooser: &mut Chooser,
    stops: &[u32],
    limit: usize,
    on_token: &mut dyn FnMut(u32) -> ControlFlow<Finish>,
) -> Result<Generation> {
    let start = Instant::now();
    let kept = session.sync(executor, prompt)?;
    chooser.accept(&prompt[kept..]);
    let prefill = start.elapsed();

    // The last token is chosen from a full context, and needs no place in it.
    let limit = limit.min(session.room(executor) + 1);
    let mut g = Generation {
        prompt: prompt.len(),
        kept,
        tokens: Vec::with_capacity(limit.min(1 << 20)),
        finish: Finish::Length,
        prefill,
        decode: Duration::ZERO,
        passes: 0,
        depth: session.tokens().len(),
        full: false,
    };
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
            match chooser {
                // The argmax is the next token, so its pass can start before it is known here.
                Chooser::Greedy if more => session.decode_ahead(executor, id)?,
                _ => session.decode(executor, id)?,
            }
            g.passes += 1;
        }
    }
    g.decode = start.elapsed();
    g.full = g.finish == Finish::Length && session.room(executor) == 0;
    Ok(g)
}
