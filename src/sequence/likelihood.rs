//! The likelihood of chosen tokens.

use super::chooser::Chooser;
use crate::Result;
use crate::executor::Executor;
use std::cmp::Ordering;

/// The most alternatives to a token whose likelihoods are reported.
pub const MOST_TOP: usize = 20;

/// A token's log-probability by the model alone: without temperature, penalties, biases and masks.
#[derive(Debug, Clone, PartialEq)]
pub struct Likelihood {
    /// The natural logarithm of the chosen token's probability.
    pub logprob: f32,
    /// The likeliest tokens with their log-probabilities, the likeliest first; among equals the lower id first.
    pub top: Vec<(u32, f32)>,
}

impl Likelihood {
    /// The likelihood of `token` by `logits` `[vocab]`, and of the `top` likeliest ones.
    pub fn of(logits: &[f32], token: u32, top: usize) -> Likelihood {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| libm::exp(f64::from(logit - largest))).sum();
        let normaliser = libm::log(sum);
        let logprob = |logit: f32| (f64::from(logit - largest) - normaliser) as f32;
        let mut likeliest: Vec<(u32, f32)> = Vec::with_capacity(top + 1);
        for (id, &logit) in logits.iter().enumerate() {
            if likeliest.len() == top && likeliest.last().is_none_or(|last| logit <= last.1) {
                continue;
            }
            let at = likeliest.partition_point(|other| other.1.total_cmp(&logit) != Ordering::Less);
            likeliest.insert(at, (id as u32, logit));
            likeliest.truncate(top);
        }
        Likelihood {
            logprob: logits.get(token as usize).map_or(f32::NEG_INFINITY, |&logit| logprob(logit)),
            top: likeliest.into_iter().map(|(id, logit)| (id, logprob(logit))).collect(),
        }
    }
}

/// A chooser that reports the likelihood of its choices.
#[derive(Clone)]
pub struct ReportingChooser {
    pub(super) chooser: Chooser,
    pub(super) top: usize,
    pub(super) last: Option<Likelihood>,
}

impl ReportingChooser {
    /// Chooses the token of a head row, and records its likelihood.
    pub(super) fn choose(&mut self, executor: &mut dyn Executor, row: usize) -> Result<u32> {
        let token = self.chooser.choose(executor, row)?;
        self.last = Some(Likelihood::of(executor.logits(row)?, token, self.top));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihoods_are_the_logarithms_of_a_softmax_and_the_likeliest_come_in_order() {
        let logits = [1.0, 3.0, f32::NEG_INFINITY, 3.0, 2.0];
        let sum: f64 = [1.0f64, 3.0, 3.0, 2.0].map(f64::exp).iter().sum();
        let expected = |logit: f64| (logit - sum.ln()) as f32;
        let found = Likelihood::of(&logits, 4, 3);
        let near = |a: f32, b: f32| (a - b).abs() < 1e-6;
        assert!(near(found.logprob, expected(2.0)), "{found:?}");
        assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3, 4]);
        assert!(near(found.top[0].1, expected(3.0)) && near(found.top[2].1, expected(2.0)), "{found:?}");
        assert!(Likelihood::of(&logits, 2, 0).top.is_empty());
        assert_eq!(Likelihood::of(&logits, 2, 0).logprob, f32::NEG_INFINITY);
        // Large logits do not overflow, and more alternatives are requested than there are tokens.
        let large = Likelihood::of(&[3e38, 3e38], 0, 9);
        assert!(near(large.logprob, -std::f32::consts::LN_2) && large.top.len() == 2, "{large:?}");
    }
}
