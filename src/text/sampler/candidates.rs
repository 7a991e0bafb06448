//! The candidates: tokens that may still be drawn after the filters.

use super::Edit;
use super::random::{SplitMix64, draw_by_weight};
use super::token_set::TokenSet;
use crate::schedule::choice::MOST_LISTED;
use std::cmp::Ordering;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f32,
    /// Proportional to the probability: without temperature in top-p, with it in the draw.
    pub(super) weight: f64,
}

/// Likeliest first; among equals, the lower id first. A total order, since no logit is NaN.
pub(super) fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// The tokens that may still be drawn.
#[derive(Debug, Clone)]
pub(super) struct Candidates {
    /// Sorted by [`likelier`] if fewer than the vocabulary are kept, else by id. It never outgrows its capacity.
    pub(super) list: Vec<Candidate>,
    /// The number of likeliest tokens that the filters need.
    keep: usize,
    /// The number of tokens at which the list is thinned.
    limit: usize,
    /// True if `keep` is the size of the vocabulary, so that no token is dropped.
    all: bool,
}

impl Candidates {
    /// `edits`: the most edited tokens that may be added to a pass's result.
    pub(super) fn new(keep: usize, vocab: usize, edits: usize) -> Self {
        let all = keep == vocab;
        // Room beyond `keep`, so that the list rarely needs thinning.
        let capacity = if all { vocab } else { (2 * keep).max(256).min(vocab.max(1)) };
        Self { list: Vec::with_capacity(capacity.max(MOST_LISTED + edits)), keep, limit: capacity, all }
    }

    /// Collects the `keep` likeliest allowed tokens of `logits`. Edited logits replace the originals.
    pub(super) fn collect(&mut self, logits: &[f32], edits: &[Edit], allowed: Option<&TokenSet>) {
        self.list.clear();
        let (list, keep, limit) = (&mut self.list, self.keep, self.limit);
        // A logit must exceed this to be kept. Ids ascend, so an equal one with a later id loses.
        let mut floor = f32::NEG_INFINITY;
        let mut offer = |id: u32, logit: f32| {
            if logit > floor && allowed.is_none_or(|allowed| allowed.contains(id)) {
                if list.len() == limit {
                    floor = thin_out(list, keep);
                    if logit <= floor {
                        return;
                    }
                }
                list.push(Candidate { id, logit, weight: 0.0 });
            }
        };
        let mut next = 0;
        for &Edit { id, logit, .. } in edits {
            (next..id).for_each(|id| offer(id, logits[id as usize]));
            offer(id, logit);
            next = id + 1;
        }
        (next..logits.len() as u32).for_each(|id| offer(id, logits[id as usize]));
        if !self.all {
            if self.list.len() > self.keep {
                thin_out(&mut self.list, self.keep);
            }
            self.list.sort_unstable_by(likelier);
        }
    }

    /// The largest logit; the list is not empty.
    fn peak(&self) -> f32 {
        self.list.iter().fold(f32::NEG_INFINITY, |peak, c| peak.max(c.logit))
    }

    /// Keeps the fewest likeliest tokens whose probabilities reach `top_p` of `total`, or of the list's own sum.
    /// Returns whether they reach it.
    pub(super) fn keep_top_p(&mut self, top_p: f32, total: Option<f64>) -> bool {
        if top_p >= 1.0 || self.list.is_empty() {
            return false;
        }
        let peak = f64::from(self.peak());
        let mut sum = 0.0;
        for candidate in &mut self.list {
            candidate.weight = libm::exp(f64::from(candidate.logit) - peak);
            sum += candidate.weight;
        }
        let enough = f64::from(top_p) * total.unwrap_or(sum);
        let (mut sum, mut sorted) = (0.0, 0);
        // The nucleus is usually small: sort the head of the list, then more only as needed.
        while sorted < self.list.len() {
            let rest = &mut self.list[sorted..];
            let head = (4 * sorted).max(256).min(rest.len());
            if head < rest.len() {
                rest.select_nth_unstable_by(head - 1, likelier);
            }
            rest[..head].sort_unstable_by(likelier);
            for candidate in &rest[..head] {
                sum += candidate.weight;
                sorted += 1;
                if sum >= enough {
                    self.list.truncate(sorted);
                    return true;
                }
            }
        }
        false
    }

    /// Keeps tokens with at least a fraction `min_p` of the largest probability. Returns the threshold as a logit.
    pub(super) fn keep_min_p(&mut self, min_p: f32) -> f64 {
        if min_p == 0.0 {
            return f64::NEG_INFINITY;
        }
        let least = f64::from(self.peak()) + libm::log(f64::from(min_p));
        self.list.retain(|c| f64::from(c.logit) >= least);
        least
    }

    /// Draws a token by its probability at `temperature`; `None` if there is none.
    pub(super) fn draw(&mut self, temperature: f32, random: &mut SplitMix64) -> Option<u32> {
        let peak = f64::from(self.peak());
        let mut total = 0.0;
        for candidate in &mut self.list {
            candidate.weight = libm::exp((f64::from(candidate.logit) - peak) / f64::from(temperature));
            total += candidate.weight;
        }
        draw_by_weight(self.list.iter().map(|c| (c.id, c.weight)), random.next_unit() * total)
    }
}

/// Cuts `list` down to its `keep` likeliest, unordered. Returns the least of their logits.
fn thin_out(list: &mut Vec<Candidate>, keep: usize) -> f32 {
    let least = list.select_nth_unstable_by(keep - 1, likelier).1.logit;
    list.truncate(keep);
    least
}
