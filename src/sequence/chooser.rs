//! Chooses the next token of one sequence.

use crate::error::{Setting, Text, text};
use crate::executor::Executor;
use crate::text::{Sampler, SamplerConfig};
use crate::{Error, Result};

/// Chooses the next token from a head row of the executor.
#[derive(Clone)]
pub enum Chooser {
    /// Takes the device's argmax. No logits are fetched.
    Greedy,
    /// Samples from the logits.
    Sample(Box<Sampler>),
}

impl Chooser {
    /// Creates the chooser for a configuration. It is greedy if the configuration always takes the largest logit.
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

    /// The sampler's seed, which makes it draw the same tokens again. `None` if greedy.
    pub fn seed(&self) -> Option<u64> {
        match self {
            Chooser::Greedy => None,
            Chooser::Sample(sampler) => Some(sampler.seed()),
        }
    }

    /// Adds the prompt's tokens, for the repetition penalty.
    pub fn accept(&mut self, tokens: &[u32]) {
        if let Chooser::Sample(s) = self {
            tokens.iter().for_each(|&t| s.accept(t));
        }
    }

    /// Chooses the next token from head row `row`, and adds it for the repetition penalty.
    ///
    /// # Errors
    /// Failed: the logits are not finite. Device: it failed.
    #[inline]
    pub fn choose(&mut self, executor: &mut dyn Executor, row: usize) -> Result<u32> {
        match self {
            Chooser::Greedy if executor.is_finite(row) => Ok(executor.next(row)),
            Chooser::Greedy => Err(not_finite(executor)),
            Chooser::Sample(s) => s.sample(executor.logits(row)?),
        }
    }
}

/// The error for logits that are NaN or infinite.
pub fn not_finite(executor: &dyn Executor) -> Error {
    let weights = Text::from("check the checkpoint's weights");
    let remedy = match executor.is_reference() {
        true => weights,
        false => text!(weights, ", and the device with ", Setting::Cpu, " beside it"),
    };
    Error::failed(format!("{} computed logits that are not finite", executor.device()), remedy)
}
