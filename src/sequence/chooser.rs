//! The choice of the next token of a sequence.

use super::guide::{Guide, Guided};
use super::likelihood::{Likelihood, ReportingChooser};
use crate::error::{Setting, Text, text};
use crate::executor::{Executor, ExecutorExt};
use crate::schedule::choice::SampleRequest;
use crate::text::{Sampler, SamplerConfig, TokenSet};
use crate::{Error, Result};
use std::fmt;
use std::time::Duration;

/// Chooses the next token from a head row of the executor.
#[derive(Clone)]
pub enum Chooser {
    /// Takes the device's argmax. No logits are fetched.
    Greedy,
    /// Samples from the pass's summary of the logits, or else from all logits.
    Sample(Box<Sampler>),
    /// Chooses as the inner chooser and reports the token's likelihood. Fetches the logits of each token.
    Report(Box<ReportingChooser>),
    /// Chooses as the inner chooser, among the tokens that a guide allows.
    Guide(Box<Guided>),
    /// Takes given tokens, and then chooses as the inner chooser. With a report it scores a text.
    Forced(Box<ForcedTokens>),
}

/// Given tokens, and the chooser for the tokens after them.
#[derive(Clone)]
pub struct ForcedTokens {
    given: std::vec::IntoIter<u32>,
    then: Chooser,
}

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chooser(seed: {:?})", self.seed())
    }
}

impl Chooser {
    /// Creates the chooser for a configuration. It is greedy if the configuration always takes the largest logit.
    ///
    /// # Errors
    /// Input: a setting out of range.
    pub fn new(config: SamplerConfig, vocab: usize) -> Result<Chooser> {
        config.validate()?;
        if config.is_argmax() {
            return Ok(Chooser::Greedy);
        }
        let sampler = Sampler::new(config, vocab)?;
        log::info!("sampling with seed {}", sampler.seed());
        Ok(Chooser::Sample(Box::new(sampler)))
    }

    /// The sampler's seed, with which it draws the same tokens again. `None` if greedy.
    pub fn seed(&self) -> Option<u64> {
        match self {
            Chooser::Greedy => None,
            Chooser::Sample(sampler) => Some(sampler.seed()),
            Chooser::Report(reported) => reported.chooser.seed(),
            Chooser::Guide(guided) => guided.chooser.seed(),
            Chooser::Forced(following) => following.then.seed(),
        }
    }

    /// This chooser, restricted to the tokens that `guide` allows, for a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// As [`Chooser::allow`].
    pub fn guided(self, guide: impl Guide + 'static, vocab: usize) -> Result<Chooser> {
        Ok(Chooser::Guide(Box::new(Guided::new(self, guide, vocab)?)))
    }

    /// This chooser, as it is after the tokens `given` were chosen.
    pub fn following(self, given: Vec<u32>) -> Chooser {
        Chooser::Forced(Box::new(ForcedTokens { given: given.into_iter(), then: self }))
    }

    /// This chooser with a report on each choice: its likelihood, and those of the `top` likeliest tokens.
    pub fn reporting(self, top: usize) -> Chooser {
        Chooser::Report(Box::new(ReportingChooser { chooser: self, top, last: None }))
    }

    /// Takes the likelihood of the last chosen token. `None` without reports, or if already taken.
    pub fn take_likelihood(&mut self) -> Option<Likelihood> {
        match self {
            Chooser::Report(reported) => reported.last.take(),
            Chooser::Guide(guided) => guided.chooser.take_likelihood(),
            Chooser::Forced(following) => following.then.take_likelihood(),
            Chooser::Greedy | Chooser::Sample(_) => None,
        }
    }

    /// Restricts the choice to a set of tokens from now on. A greedy chooser takes the likeliest of them.
    ///
    /// # Errors
    /// None for a chooser that samples already; else as [`Chooser::new`].
    pub fn allow(&mut self, allowed: TokenSet) -> Result<()> {
        if let Chooser::Greedy = self {
            *self = Chooser::Sample(Box::new(Sampler::new(SamplerConfig::greedy(), allowed.vocab())?));
        }
        match self {
            Chooser::Greedy => {}
            Chooser::Sample(sampler) => sampler.allow(Some(allowed)),
            Chooser::Report(reported) => reported.chooser.allow(allowed)?,
            Chooser::Guide(guided) => guided.chooser.allow(allowed)?,
            Chooser::Forced(following) => following.then.allow(allowed)?,
        }
        Ok(())
    }

    /// The set of allowed tokens, to be changed between passes; `None` if all are allowed.
    pub fn allowed_mut(&mut self) -> Option<&mut TokenSet> {
        match self {
            Chooser::Greedy => None,
            Chooser::Sample(sampler) => sampler.allowed_mut(),
            Chooser::Report(reported) => reported.chooser.allowed_mut(),
            Chooser::Guide(guided) => guided.chooser.allowed_mut(),
            Chooser::Forced(following) => following.then.allowed_mut(),
        }
    }

    /// True if the next token can be chosen without waiting. If a guide is not ready, waits for it for `patience` at
    /// most.
    pub fn is_ready(&mut self, patience: Duration) -> bool {
        match self {
            Chooser::Greedy | Chooser::Sample(_) => true,
            Chooser::Report(reported) => reported.chooser.is_ready(patience),
            Chooser::Guide(guided) => guided.is_ready(patience),
            Chooser::Forced(following) => !following.given.as_slice().is_empty() || following.then.is_ready(patience),
        }
    }

    /// Requests from the next pass the results that [`Chooser::choose`] needs in addition to the argmax.
    pub fn ask(&mut self, ask: &mut SampleRequest<'_>) {
        match self {
            Chooser::Greedy => {}
            Chooser::Sample(sampler) => sampler.ask(ask),
            Chooser::Report(reported) => reported.chooser.ask(ask),
            Chooser::Guide(guided) => guided.ask(ask),
            Chooser::Forced(following) if following.given.as_slice().is_empty() => following.then.ask(ask),
            Chooser::Forced(_) => {}
        }
    }

    /// As [`Chooser::ask`], for the token after `drafted`, as if these had been chosen. Requests nothing if that
    /// depends on the choices themselves; the logits are used then.
    pub fn ask_after(&mut self, drafted: &[u32], ask: &mut SampleRequest<'_>) {
        match self {
            _ if drafted.is_empty() => self.ask(ask),
            Chooser::Sample(sampler) => sampler.ask_after(drafted, ask),
            Chooser::Report(reported) => reported.chooser.ask_after(drafted, ask),
            // A guide cannot be rewound, and given tokens need only the logits.
            Chooser::Greedy | Chooser::Guide(_) | Chooser::Forced(_) => {}
        }
    }

    /// Whether each choice is the token that the pass returns as the row's next
    /// ([`RowResult::next`](crate::executor::RowResult::next)): the likeliest of all, or of the requested tokens. A
    /// guide may still replace it.
    pub fn takes_likeliest(&self) -> bool {
        match self {
            Chooser::Greedy => true,
            Chooser::Sample(sampler) => sampler.takes_likeliest(),
            // A report needs the logits.
            Chooser::Report(_) => false,
            Chooser::Guide(guided) => guided.chooser.takes_likeliest(),
            Chooser::Forced(_) => false,
        }
    }

    /// True if the likelihood of each chosen token is reported.
    pub fn reports(&self) -> bool {
        match self {
            Chooser::Greedy | Chooser::Sample(_) => false,
            Chooser::Report(_) => true,
            Chooser::Guide(guided) => guided.chooser.reports(),
            Chooser::Forced(following) => following.then.reports(),
        }
    }

    /// Begins a reply to a prompt, whose tokens count for the repetition penalty. Tokens of earlier replies count only
    /// if they are part of the prompt.
    pub fn begin(&mut self, prompt: &[u32]) {
        match self {
            Chooser::Greedy => {}
            Chooser::Sample(s) => s.begin(prompt),
            Chooser::Report(reported) => reported.chooser.begin(prompt),
            Chooser::Guide(guided) => guided.begin(prompt),
            Chooser::Forced(following) => {
                following.then.begin(&[prompt, following.given.as_slice()].concat());
            }
        }
    }

    /// Chooses the next token from head row `row`, and records it for the repetition penalty.
    ///
    /// # Errors
    /// Failed: the logits are not finite. Device: it failed.
    #[inline(always)]
    pub fn choose(&mut self, executor: &mut dyn Executor, row: usize) -> Result<u32> {
        if let Chooser::Greedy = self {
            let result = executor.result(row);
            if result.is_finite {
                return Ok(result.next);
            }
        }
        self.choose_by_logits(executor, row)
    }

    // Out of line, so that the greedy path, for which the device waits, stays short.
    #[inline(never)]
    fn choose_by_logits(&mut self, executor: &mut dyn Executor, row: usize) -> Result<u32> {
        match self {
            Chooser::Greedy => Err(not_finite(executor)),
            Chooser::Sample(s) => match executor.found(row).and_then(|found| s.sample_found(found)) {
                Some(token) => Ok(token),
                // The summary does not decide the choice.
                None => s.sample(executor.logits(row)?),
            },
            Chooser::Report(reported) => reported.choose(executor, row),
            Chooser::Guide(guided) => guided.choose(executor, row),
            Chooser::Forced(following) => match following.given.next() {
                Some(token) => Ok(token),
                None => following.then.choose(executor, row),
            },
        }
    }
}

/// The error for logits that are NaN or infinite.
pub fn not_finite(executor: &dyn Executor) -> Error {
    let weights = Text::from("check the checkpoint's weights");
    let remedy = match executor.is_on_cpu() {
        true => weights,
        false => text!(weights, ", and the device with ", Setting::Cpu, " beside it"),
    };
    Error::failed(format!("{} computed logits that are not finite", executor.device()), remedy)
}
