//! Generation: prompt in, tokens out, one at a time, until something ends it.

use crate::error::{Setting, Text, text};
use crate::executor::Executor;
use crate::reference;
use crate::sequence::session::Session;
use crate::text::{Sampler, SamplerConfig};
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

/// How the next token is chosen.
pub enum Chooser {
    /// The device's own argmax: of the logits only the chosen one is looked at.
    Greedy,
    /// A sampler over the logits.
    Sample(Box<Sampler>),
}

impl Chooser {
    /// The chooser for a configuration: the device's argmax wherever that is what it comes to.
    ///
    /// # Errors
    /// Input: a setting out of range.
    pub fn new(config: SamplerConfig, vocab: usize) -> Result<Chooser> {
        config.validate()?;
        if config.temperature == 0.0 && config.repeat_penalty == 1.0 {
            return Ok(Chooser::Greedy);
        }
        let sampler = Sampler::new(config, vocab)?;
        log::info!("sampling with seed {}", sampler.seed());
        Ok(Chooser::Sample(Box::new(sampler)))
    }

    /// The sampler's seed, with which it would draw the same again.
    pub fn seed(&self) -> Option<u64> {
        match self {
            Chooser::Greedy => None,
            Chooser::Sample(sampler) => Some(sampler.seed()),
        }
    }

    fn accept(&mut self, tokens: &[u32]) {
        if let Chooser::Sample(s) = self {
            tokens.iter().for_each(|&t| s.accept(t));
        }
    }

    fn choose(&mut self, executor: &mut dyn Executor) -> Result<u32> {
        match self {
            Chooser::Greedy if executor.is_finite(0) => Ok(executor.next(0)),
            Chooser::Greedy => Err(not_finite(executor.device())),
            Chooser::Sample(s) => s.sample(executor.logits(0)?),
        }
    }
}

/// Logits that are NaN or infinite: nothing can be made of them.
pub fn not_finite(device: &str) -> Error {
    let weights = Text::from("check the checkpoint's weights");
    let remedy = match device.starts_with(reference::NAME) {
        true => weights,
        false => text!(weights, ", and the device with ", Setting::Cpu, " beside it"),
    };
    Error::failed(format!("{device} computed logits that are not finite"), remedy)
}

/// What a generation did.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The tokens, without the stop token that ended them.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Time from the first prompt token to the first logits.
    pub prefill: Duration,
    /// Time of all decode passes and choices.
    pub decode: Duration,
    /// Decode passes: the first token comes from the prefill's logits.
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
}

/// Prefills `prompt` in `session` and decodes until a token of `stops`, `limit` tokens, a full context, or a break from
/// `on_token`, which is shown each token.
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
    session.prefill(executor, prompt)?;
    chooser.accept(prompt);
    let prefill = start.elapsed();

    // The last token is chosen from a full context, and needs no place in it.
    let limit = limit.min(session.room(executor) + 1);
    let mut g = Generation {
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
                Chooser::Greedy if more => session.decode_on(executor, id)?,
                _ => session.decode(executor, id)?,
            }
            g.passes += 1;
        }
    }
    g.decode = start.elapsed();
    g.full = g.finish == Finish::Length && session.room(executor) == 0;
    Ok(g)
}
