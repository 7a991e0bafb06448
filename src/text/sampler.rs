//! From logits to the next token id.
//!
//! The steps and their order are llama.cpp's, so that settings carry over: repetition penalty, top-k, top-p, min-p,
//! temperature, draw. Each filter sees what the previous one left. So top-p's probabilities are those among the top-k,
//! and temperature affects neither top-p nor min-p.
//!
//! A seed gives the same tokens on every machine. The random numbers are SplitMix64's. Exponentials come from the
//! `libm` crate, since C libraries differ in the last bit.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};

use crate::error::{Setting, text};
use crate::{Error, Result};

/// Latest tokens that the repetition penalty applies to, as in llama.cpp and Ollama.
const REPEAT_WINDOW: usize = 64;

/// How the next token is chosen. The default is what Gemma 3 was tuned for: temperature 1, top-k 64, top-p 0.95.
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
    /// The seed of the draws. `None`: each sampler picks a random one.
    pub seed: Option<u64>,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 64, top_p: 0.95, min_p: 0.0, repeat_penalty: 1.0, seed: None }
    }
}

impl SamplerConfig {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
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
            top_p > 0.0 && top_p <= 1.0,
            "top-p",
            Setting::TopP,
            top_p,
            "a number above 0, up to 1 to keep all tokens",
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
        )
    }
}

/// Chooses the tokens of one sequence. It allocates nothing after construction.
#[derive(Debug, Clone)]
pub struct Sampler {
    config: SamplerConfig,
    vocab: usize,
    seed: u64,
    random: SplitMix64,
    /// The latest tokens, at most [`REPEAT_WINDOW`].
    history: VecDeque<u32>,
    /// The distinct ids of `history` with their penalised logits, by ascending id.
    penalised: Vec<(u32, f32)>,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler for logits of `vocab` entries.
    ///
    /// # Errors
    /// [`Error::Input`] as [`SamplerConfig::validate`].
    pub fn new(config: SamplerConfig, vocab: usize) -> Result<Self> {
        config.validate()?;
        let seed = config.seed.unwrap_or_else(draw_seed);
        let keep = match (config.temperature == 0.0, config.top_k as usize) {
            (true, _) => 1,
            (false, 0) => vocab,
            (false, top_k) => top_k.min(vocab),
        };
        Ok(Self {
            vocab,
            seed,
            random: SplitMix64(seed),
            history: VecDeque::with_capacity(REPEAT_WINDOW),
            penalised: Vec::with_capacity(REPEAT_WINDOW),
            candidates: Candidates::new(keep, vocab),
            config,
        })
    }

    /// The seed in use, configured or random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Records a token that was not sampled, such as the prompt's, for the repetition penalty.
    pub fn accept(&mut self, id: u32) {
        if self.history.len() == REPEAT_WINDOW {
            self.history.pop_front();
        }
        self.history.push_back(id);
    }

    /// Chooses the next token from `logits` `[vocab]` and records it. A logit of −∞ is never chosen. Among equal logits
    /// the lower id comes first.
    ///
    /// # Errors
    /// [`Error::Failed`] when there are not `vocab` logits, any is NaN or +∞, or all are −∞: the model's computation
    /// has gone wrong.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        if logits.len() != self.vocab {
            return Err(unusable(&format!("{} in number where the vocabulary has {}", logits.len(), self.vocab)));
        }
        let sound = |logit: f32| logit < f32::INFINITY; // and so not NaN
        // No branch per element, so that the compiler can vectorise it.
        if !logits.iter().fold(true, |all, &logit| all & sound(logit))
            && let Some(id) = logits.iter().position(|&logit| !sound(logit))
        {
            return Err(unusable(&format!("{} for token {id}", logits[id])));
        }
        self.penalise(logits);
        self.candidates.collect(logits, &self.penalised);
        let id = self.choose().ok_or_else(|| unusable("-inf for every token"))?;
        self.accept(id);
        Ok(id)
    }

    /// Fills `penalised` from `history`.
    fn penalise(&mut self, logits: &[f32]) {
        self.penalised.clear();
        let penalty = self.config.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        for &id in &self.history {
            if let Some(&logit) = logits.get(id as usize) {
                let logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
                self.penalised.push((id, logit.min(f32::MAX)));
            }
        }
        self.penalised.sort_unstable_by_key(|&(id, _)| id);
        self.penalised.dedup_by_key(|&mut (id, _)| id);
    }

    fn choose(&mut self) -> Option<u32> {
        let Self { config, candidates, random, .. } = self;
        if config.temperature == 0.0 {
            return candidates.list.first().map(|c| c.id);
        }
        candidates.keep_top_p(config.top_p);
        candidates.keep_min_p(config.min_p);
        candidates.draw(config.temperature, random)
    }
}

/// A random seed of 53 bits: many readers of JSON keep no more of a number. The standard library's hash keys come from the
/// system's randomness.
fn draw_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() >> 11
}

fn unusable(what: &str) -> Error {
    Error::failed(format!("the model's logits are unusable: {what}"), "check the model's files")
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
    /// Proportional to the probability: without temperature in top-p, with it in the draw.
    weight: f64,
}

/// Likeliest first; among equals, the lower id first. A total order, since no logit is NaN.
fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// The tokens that may still be drawn.
#[derive(Debug, Clone)]
struct Candidates {
    /// Sorted by [`likelier`] if fewer than the vocabulary are kept, else by id. It never outgrows its capacity.
    list: Vec<Candidate>,
    /// How many to keep at most.
    keep: usize,
    /// Whether `keep` is the whole vocabulary.
    all: bool,
}

impl Candidates {
    fn new(keep: usize, vocab: usize) -> Self {
        let all = keep == vocab;
        // Room beyond `keep`, so that the list rarely needs thinning.
        let capacity = if all { vocab } else { (2 * keep).max(256).min(vocab.max(1)) };
        Self { list: Vec::with_capacity(capacity), keep, all }
    }

    /// Takes the `keep` likeliest of `logits`. Those in `penalised` (ascending ids) replace the originals.
    fn collect(&mut self, logits: &[f32], penalised: &[(u32, f32)]) {
        self.list.clear();
        let limit = self.list.capacity();
        let (list, keep) = (&mut self.list, self.keep);
        // A logit must exceed this to be kept. Ids ascend, so an equal one with a later id loses.
        let mut floor = f32::NEG_INFINITY;
        let mut offer = |id: u32, logit: f32| {
            if logit > floor {
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
        for &(id, logit) in penalised {
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

    /// Keeps the fewest likeliest tokens whose probabilities reach the sum `top_p`.
    fn keep_top_p(&mut self, top_p: f32) {
        if top_p >= 1.0 || self.list.is_empty() {
            return;
        }
        let peak = f64::from(self.peak());
        let mut total = 0.0;
        for candidate in &mut self.list {
            candidate.weight = libm::exp(f64::from(candidate.logit) - peak);
            total += candidate.weight;
        }
        let enough = f64::from(top_p) * total;
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
                    return;
                }
            }
        }
    }

    /// Keeps tokens with at least a fraction `min_p` of the largest probability.
    fn keep_min_p(&mut self, min_p: f32) {
        if min_p > 0.0 {
            let least = f64::from(self.peak()) + libm::log(f64::from(min_p));
            self.list.retain(|c| f64::from(c.logit) >= least);
        }
    }

    /// Draws a token by its probability at `temperature`; `None` if there is none.
    fn draw(&mut self, temperature: f32, random: &mut SplitMix64) -> Option<u32> {
        let peak = f64::from(self.peak());
        let mut total = 0.0;
        for candidate in &mut self.list {
            candidate.weight = libm::exp((f64::from(candidate.logit) - peak) / f64::from(temperature));
            total += candidate.weight;
        }
        let mut left = random.next_unit() * total;
        let mut drawn = None;
        for candidate in self.list.iter().filter(|c| c.weight > 0.0) {
            // If rounding leaves a remainder at the end, the last one is drawn.
            drawn = Some(candidate.id);
            left -= candidate.weight;
            if left < 0.0 {
                break;
            }
        }
        drawn
    }
}

/// Cuts `list` down to its `keep` likeliest, unordered. Returns the least of their logits.
fn thin_out(list: &mut Vec<Candidate>, keep: usize) -> f32 {
    let least = list.select_nth_unstable_by(keep - 1, likelier).1.logit;
    list.truncate(keep);
    least
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), with the constants of
/// Vigna's public reference <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), from the upper 53 bits.
    fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
