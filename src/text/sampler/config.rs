//! Settings of the sampler, with their ranges.

use crate::error::{Setting, text};
use crate::{Error, Result};

/// Settings of the sampler. The default is what Gemma 3 was tuned for: temperature 1, top-k 64, top-p 0.95.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerConfig {
    /// Divides the logits before the draw; 0 always takes the likeliest token. Finite, at least 0.
    pub temperature: f32,
    /// Only this many of the likeliest tokens remain; 0 keeps all.
    pub top_k: u32,
    /// Only the fewest likeliest tokens whose probabilities reach this sum remain. In (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Only tokens with at least this fraction of the largest probability remain. In [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// For tokens among the last 64 of the sequence, positive logits are divided by this and others multiplied. Finite,
    /// above 0; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted from the logits of tokens that occur in the reply. Finite; 0 changes nothing.
    pub presence_penalty: f32,
    /// Subtracted from the logits of the reply's tokens, once per occurrence. Finite; 0 changes nothing.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens; −∞ forbids one. Several biases for one token add up.
    pub bias: Vec<(u32, f32)>,
    /// The seed of the draws. `None`: each sampler picks a random one.
    pub seed: Option<u64>,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 64,
            top_p: 0.95,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplerConfig {
    /// Settings that always choose the likeliest token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Adds a bias of −∞ for each of the tokens.
    #[cfg(any(feature = "cli", feature = "serve", test))]
    pub(crate) fn forbid(&mut self, ids: &[u32]) {
        self.bias.extend(ids.iter().map(|&id| (id, f32::NEG_INFINITY)));
    }

    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::Input`] naming the first option out of range.
    pub fn validate(&self) -> Result<()> {
        let check = |holds: bool, name: &str, setting: Setting, value: f32, range: &str| match holds {
            true => Ok(()),
            false => Err(Error::input(text!(name, setting.aside(), format!(" is {value}")), format!("give {range}"))),
        };
        let Self { temperature, top_p, min_p, repeat_penalty, .. } = *self;
        check(
            temperature.is_finite() && temperature >= 0.0,
            "the temperature",
            Setting::Temperature,
            temperature,
            "0 for the likeliest token, or a number above it",
        )?;
        check(
            (0.0..=1.0).contains(&top_p),
            "top-p",
            Setting::TopP,
            top_p,
            "a number from 0, which keeps the likeliest token, to 1, which keeps all",
        )?;
        check(
            (0.0..=1.0).contains(&min_p),
            "min-p",
            Setting::MinP,
            min_p,
            "a number from 0, which keeps all tokens, to 1",
        )?;
        check(
            repeat_penalty.is_finite() && repeat_penalty > 0.0,
            "the repetition penalty",
            Setting::RepeatPenalty,
            repeat_penalty,
            "a number above 0, with 1 for none",
        )?;
        for (name, value) in [("presence", self.presence_penalty), ("frequency", self.frequency_penalty)] {
            if !value.is_finite() {
                return Err(Error::input(format!("the {name} penalty is {value}"), "give a number, with 0 for none"));
            }
        }
        match self.bias.iter().find(|(_, bias)| bias.is_nan() || *bias == f32::INFINITY) {
            Some((id, bias)) => {
                Err(Error::input(format!("the bias of token {id} is {bias}"), "give a number, or -inf"))
            }
            None => Ok(()),
        }
    }

    /// True if the choice is always the token with the largest logit: temperature 0, without bias or penalties.
    pub fn is_argmax(&self) -> bool {
        self.temperature == 0.0 && !self.edits()
    }

    /// True if a bias or a penalty changes logits.
    pub(super) fn edits(&self) -> bool {
        self.penalizes() || !self.bias.is_empty()
    }

    /// True if any penalty for earlier occurrences of a token is set.
    pub(crate) fn penalizes(&self) -> bool {
        self.repeat_penalty != 1.0 || self.counts()
    }

    /// Whether penalties need to know how often each token occurred in the reply.
    pub(super) fn counts(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}
