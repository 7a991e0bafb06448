//! From logits to the next token id.
//!
//! The steps and their order are llama.cpp's, so that settings carry over: bias, penalties, top-k, top-p, min-p,
//! temperature, draw. Each filter sees what the previous one left. So top-p's probabilities are those among the top-k,
//! and temperature affects neither top-p nor min-p.
//!
//! A sampler takes all logits, or a pass's summary of them ([`SampleResult`]): the likeliest tokens and the sums of
//! blocks. Both give the same token, within the rounding of those sums. So where nothing limits the tokens, a draw has
//! three stages: whether the token is one with an edited logit, then the block, then the token within it. Each stage
//! has its own random number, so that the rounding of a sum moves only the bounds between blocks.
//!
//! A seed gives the same tokens on every machine. The random numbers are SplitMix64's. Exponentials come from the
//! `libm` crate, since C libraries differ in the last bit.

mod candidates;
mod config;
mod random;
mod token_set;

use std::collections::VecDeque;

use crate::schedule::choice::{BLOCK, MOST_EDITS, MOST_TOP_K, SampleRequest, SampleResult, blocks};
use crate::{Error, Result};
use candidates::{Candidate, Candidates, likelier};
use random::{SplitMix64, draw_by_weight, draw_seed};

pub use config::SamplerConfig;
pub use token_set::TokenSet;

/// Latest tokens that the repetition penalty applies to, as in llama.cpp and Ollama.
const REPEAT_WINDOW: usize = 64;

/// A token whose logit a penalty or a bias changes.
#[derive(Debug, Clone, Copy)]
struct Edit {
    id: u32,
    /// True if the token occurred recently, so that the repetition penalty applies to it.
    repeated: bool,
    bias: f32,
    /// The amount that the presence and frequency penalties subtract.
    said: f32,
    /// The logit after penalties and bias.
    logit: f32,
}

/// The tokens that the filters need to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterScope {
    /// The filters need this many of the likeliest tokens.
    Top(usize),
    /// The sum of all tokens, or the largest logit.
    Nucleus,
    /// No filter is set: any token may be drawn.
    Open,
}

/// Chooses the tokens of one sequence. It allocates nothing after construction, unless penalties count the whole reply.
#[derive(Debug, Clone)]
pub struct Sampler {
    config: SamplerConfig,
    vocab: usize,
    seed: u64,
    random: SplitMix64,
    reach: FilterScope,
    /// The latest tokens of prompt and reply, at most [`REPEAT_WINDOW`], for the repetition penalty.
    history: VecDeque<u32>,
    /// The reply's tokens with their counts, by ascending id; empty if no penalty counts them.
    said: Vec<(u32, u32)>,
    /// The values of `history` and `said`, saved while a request is made for a token after a draft.
    aside: (VecDeque<u32>, Vec<(u32, u32)>),
    /// The tokens that may be chosen; `None` for all.
    allowed: Option<TokenSet>,
    /// The tokens that the penalty or a bias applies to, by ascending id.
    edits: Vec<Edit>,
    /// The edits that may be drawn, with their weights; then a block's tokens.
    drawn: Vec<(u32, f64)>,
    /// Each block's largest eligible logit and sum; later its weight.
    sums: Vec<(f32, f64)>,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler for logits of `vocab` entries.
    ///
    /// # Errors
    /// [`Error::Input`] as [`SamplerConfig::validate`], or for a bias of a token outside of the vocabulary.
    pub fn new(config: SamplerConfig, vocab: usize) -> Result<Self> {
        config.validate()?;
        if let Some((id, _)) = config.bias.iter().find(|(id, _)| *id as usize >= vocab) {
            let what = format!("a bias is given for token {id}, outside of the vocabulary of {vocab}");
            return Err(Error::input(what, "use ids from this model's tokenizer"));
        }
        let seed = config.seed.unwrap_or_else(draw_seed);
        let keep = match (config.temperature == 0.0, config.top_k as usize) {
            (true, _) => 1,
            (false, 0) => vocab,
            (false, top_k) => top_k.min(vocab),
        };
        let reach = match (keep < vocab || keep == 1, config.top_p < 1.0 || config.min_p > 0.0) {
            (true, _) => FilterScope::Top(keep),
            (false, true) => FilterScope::Nucleus,
            (false, false) => FilterScope::Open,
        };
        let edits = REPEAT_WINDOW + config.bias.len();
        Ok(Self {
            vocab,
            seed,
            random: SplitMix64(seed),
            reach,
            history: VecDeque::with_capacity(REPEAT_WINDOW),
            said: Vec::new(),
            aside: (VecDeque::with_capacity(REPEAT_WINDOW), Vec::new()),
            allowed: None,
            edits: Vec::with_capacity(edits),
            drawn: Vec::with_capacity(edits.max(BLOCK)),
            sums: Vec::with_capacity(blocks(vocab)),
            candidates: Candidates::new(keep, vocab, edits),
            config,
        })
    }

    /// Restricts the choice to the tokens of `allowed`; `None` for all. Ids beyond this vocabulary are never chosen.
    pub fn allow(&mut self, allowed: Option<TokenSet>) {
        self.allowed = allowed;
    }

    /// The set of allowed tokens, to be changed between draws.
    pub fn allowed_mut(&mut self) -> Option<&mut TokenSet> {
        self.allowed.as_mut()
    }

    /// The seed of the random numbers: the configured one, or a random one.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets the tokens so far, and records a prompt's, for the repetition penalty.
    pub fn begin(&mut self, prompt: &[u32]) {
        self.history.clear();
        self.said.clear();
        prompt[prompt.len().saturating_sub(REPEAT_WINDOW)..].iter().for_each(|&id| self.remember(id));
    }

    /// Adds a chosen token to the history and to the counts that penalties need.
    fn accept(&mut self, id: u32) {
        self.remember(id);
        if self.config.counts() {
            match self.said.binary_search_by_key(&id, |(id, _)| *id) {
                Ok(at) => self.said[at].1 += 1,
                Err(at) => self.said.insert(at, (id, 1)),
            }
        }
    }

    fn remember(&mut self, id: u32) {
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
    /// has gone wrong. [`Error::Input`] when the biases leave no token of those that are allowed.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        if logits.len() != self.vocab {
            return Err(unusable(&format!("{} in number where the vocabulary has {}", logits.len(), self.vocab)));
        }
        // No branch per element, so that the compiler can vectorise it.
        if !logits.iter().fold(true, |all, &logit| all & is_sound(logit))
            && let Some(id) = logits.iter().position(|&logit| !is_sound(logit))
        {
            return Err(unusable(&format!("{} for token {id}", logits[id])));
        }
        self.mark();
        self.edit(|_, id| logits[id as usize]);
        let id = match self.reach {
            FilterScope::Open => {
                let temperature = f64::from(self.config.temperature);
                self.sums.clear();
                for (block, part) in logits.chunks(BLOCK).enumerate() {
                    collect_block(&mut self.drawn, block, part, &self.edits, self.allowed.as_ref());
                    let peak = self.drawn.iter().map(|(_, logit)| *logit).fold(f64::NEG_INFINITY, f64::max);
                    let sum = self.drawn.iter().map(|(_, logit)| libm::exp((logit - peak) / temperature)).sum();
                    self.sums.push((peak as f32, sum));
                }
                self.draw_open(|block| Some(&logits[block * BLOCK..((block + 1) * BLOCK).min(logits.len())]))
            }
            _ => {
                self.candidates.collect(logits, &self.edits, self.allowed.as_ref());
                self.choose(None)
            }
        };
        let id = id.ok_or_else(|| self.no_token(logits))?;
        self.accept(id);
        Ok(id)
    }

    /// The error when there is no token to choose. Either the biases forbid all that the logits and the set of allowed
    /// tokens leave, or the logits are at fault.
    fn no_token(&self, logits: &[f32]) -> Error {
        let is_allowed = |id: u32| self.allowed.as_ref().is_none_or(|allowed| allowed.contains(id));
        match (0..).zip(logits).any(|(id, logit)| *logit > f32::NEG_INFINITY && is_allowed(id)) {
            true if self.config.bias.is_empty() => {
                Error::input("the penalties forbid every token that may come next", "give smaller ones")
            }
            true => Error::input("the biases (`logit_bias`) forbid every token that may come next", "forbid fewer"),
            false => unusable("-inf for every token"),
        }
    }

    /// Fills `ask` with the summary that [`Sampler::sample_found`] needs, or with nothing if it could not decide.
    pub fn ask(&mut self, ask: &mut SampleRequest<'_>) {
        self.mark();
        let want = match self.reach {
            FilterScope::Top(keep) => keep,
            FilterScope::Nucleus => MOST_TOP_K,
            FilterScope::Open => 1,
        };
        let scale = match self.reach {
            FilterScope::Open => 1.0 / self.config.temperature,
            _ => 1.0,
        };
        if want > MOST_TOP_K || self.edits.len() > MOST_EDITS || !scale.is_finite() {
            return;
        }
        let unit = (self.reach == FilterScope::Open).then(|| {
            let mut random = self.random.clone();
            random.next_unit();
            random.next_unit() as f32
        });
        let allowed = self.allowed.as_ref().map(TokenSet::words);
        ask.set(want, scale, unit, self.edits.iter().map(|edit| edit.id), allowed);
    }

    /// True if each choice is the allowed token with the largest unchanged logit, so that the device can choose.
    pub fn takes_likeliest(&self) -> bool {
        self.reach == FilterScope::Top(1) && !self.config.edits()
    }

    /// Writes a request as [`Sampler::ask`] does, for the token after `drafted`, as if these had been chosen.
    pub fn ask_after(&mut self, drafted: &[u32], ask: &mut SampleRequest<'_>) {
        let random = self.random.clone();
        let (mut history, mut said) = std::mem::take(&mut self.aside);
        history.clone_from(&self.history);
        said.clone_from(&self.said);
        for &id in drafted {
            self.accept(id);
            for _ in 0..self.draws() {
                self.random.next();
            }
        }
        self.ask(ask);
        std::mem::swap(&mut self.history, &mut history);
        std::mem::swap(&mut self.said, &mut said);
        (self.random, self.aside) = (random, (history, said));
    }

    /// The number of random numbers that one choice consumes: 0, 1 or 3.
    fn draws(&self) -> usize {
        match self.reach {
            _ if self.config.temperature == 0.0 => 0,
            FilterScope::Open => 3,
            FilterScope::Top(_) | FilterScope::Nucleus => 1,
        }
    }

    /// Chooses the next token from the pass's result for [`Sampler::ask`] and records it: the same token as
    /// [`Sampler::sample`] chooses. `None`, with no random number drawn, if the result does not decide the choice or a
    /// logit is unsound.
    pub fn sample_found(&mut self, found: SampleResult<'_>) -> Option<u32> {
        if !found.is_sound() {
            return None;
        }
        self.mark();
        self.edit(|i, _| found.edited(i));
        let random = self.random.clone();
        let id = match self.reach {
            FilterScope::Open => {
                self.sums.clear();
                self.sums.extend(found.sums().take(blocks(self.vocab)).map(|(peak, sum)| (peak, f64::from(sum))));
                let (block, logits) = found.picked()?;
                let len = self.vocab.saturating_sub(block * BLOCK).min(BLOCK);
                self.draw_open(|wanted| (wanted == block).then_some(&logits[..len]))
            }
            _ => {
                let limits = self.gather(found)?;
                self.choose(Some(limits))
            }
        };
        match id {
            Some(id) => self.accept(id),
            None => self.random = random,
        }
        id
    }

    /// Fills `edits` from the history and the biases; their logits follow in `edit`.
    fn mark(&mut self) {
        let Self { config, history, said, edits, vocab, .. } = self;
        edits.clear();
        if config.repeat_penalty == 1.0 && config.bias.is_empty() && said.is_empty() {
            return;
        }
        let unchanged = Edit { id: 0, repeated: false, bias: 0.0, said: 0.0, logit: 0.0 };
        if config.repeat_penalty != 1.0 {
            let known = history.iter().filter(|id| (**id as usize) < *vocab);
            edits.extend(known.map(|&id| Edit { id, repeated: true, ..unchanged }));
            edits.sort_unstable_by_key(|edit| edit.id);
            edits.dedup_by_key(|edit| edit.id);
        }
        edits.extend(config.bias.iter().map(|&(id, bias)| Edit { id, bias, ..unchanged }));
        edits.extend(said.iter().map(|&(id, times)| {
            let said = config.presence_penalty + config.frequency_penalty * times as f32;
            Edit { id, said, ..unchanged }
        }));
        edits.sort_unstable_by_key(|edit| edit.id);
        edits.dedup_by(|later, first| {
            let same = later.id == first.id;
            if same {
                first.repeated |= later.repeated;
                first.bias += later.bias;
                first.said += later.said;
            }
            same
        });
    }

    /// Sets the edits' logits; `logit` returns the original one of edit `i` with its id.
    fn edit(&mut self, logit: impl Fn(usize, u32) -> f32) {
        let penalty = self.config.repeat_penalty;
        for (i, edit) in self.edits.iter_mut().enumerate() {
            let biased = (logit(i, edit.id) + edit.bias).min(f32::MAX);
            let changed = match (edit.repeated, biased > 0.0) {
                (false, _) => biased,
                (true, true) => biased / penalty,
                (true, false) => biased * penalty,
            };
            edit.logit = (changed - edit.said).min(f32::MAX);
        }
    }

    /// Fills the candidates from the pass's result and the edits, sorted. `None` if they cannot decide the choice.
    fn gather(&mut self, found: SampleResult<'_>) -> Option<Remainder> {
        let (vocab, floor) = (self.vocab, found.floor());
        let list = &mut self.candidates.list;
        list.clear();
        for (id, logit) in found.list()? {
            if id as usize >= vocab || !is_sound(logit) {
                return None;
            }
            list.push(Candidate { id, logit, weight: 0.0 });
        }
        let edits = eligible(&self.edits, self.allowed.as_ref());
        list.extend(edits.map(|edit| Candidate { id: edit.id, logit: edit.logit, weight: 0.0 }));
        list.sort_unstable_by(likelier);
        // Below the floor an unlisted token may be likelier than an edited one.
        list.truncate(list.partition_point(|c| c.logit >= floor));
        let complete = floor == f32::NEG_INFINITY;
        let peak = list.first()?.logit;
        match self.reach {
            FilterScope::Top(keep) => {
                let enough = complete || list.len() >= keep;
                list.truncate(keep);
                enough.then_some(Remainder { total: None, complete: true, floor })
            }
            _ => {
                let weight = |logit: f32| libm::exp(f64::from(logit) - f64::from(peak));
                let sums = found.sums().take(blocks(vocab)).filter(|(_, sum)| *sum > 0.0);
                let total: f64 = sums.map(|(largest, sum)| f64::from(sum) * weight(largest)).sum();
                let edits = eligible(&self.edits, self.allowed.as_ref());
                let edited: f64 = edits.map(|edit| weight(edit.logit)).sum();
                Some(Remainder { total: Some(total + edited), complete, floor })
            }
        }
    }

    /// Filters the candidates and draws one. `None` if there is no candidate, or if a filter needs tokens beyond
    /// `limits`.
    fn choose(&mut self, limits: Option<Remainder>) -> Option<u32> {
        let Self { config, candidates, random, reach, .. } = self;
        if config.temperature == 0.0 {
            return candidates.list.first().map(|c| c.id);
        }
        let limits = limits.unwrap_or(Remainder { total: None, complete: true, floor: f32::NEG_INFINITY });
        let is_cut = candidates.keep_top_p(config.top_p, limits.total);
        let least = candidates.keep_min_p(config.min_p);
        if !(is_cut || limits.complete || least > f64::from(limits.floor)) {
            return None;
        }
        if *reach == FilterScope::Nucleus && config.top_p >= 1.0 {
            // The same order as with all logits.
            candidates.list.sort_unstable_by_key(|c| c.id);
        }
        candidates.draw(config.temperature, random)
    }

    /// Draws from all tokens by the blocks' sums; `logits` returns the logits of the drawn block. `None` if there is no
    /// token, or if `logits` lacks the block.
    fn draw_open<'a>(&mut self, logits: impl FnOnce(usize) -> Option<&'a [f32]>) -> Option<u32> {
        let Self { sums, edits, drawn, allowed, random, config, .. } = self;
        let units = [random.next_unit(), random.next_unit(), random.next_unit()];
        let temperature = f64::from(config.temperature);
        let allowed = allowed.as_ref();
        let peak = sums.iter().map(|(peak, _)| *peak).chain(eligible(edits, allowed).map(|edit| edit.logit));
        let peak = f64::from(peak.fold(f32::NEG_INFINITY, f32::max));
        let weight = |logit: f64| libm::exp((logit - peak) / temperature);
        for (largest, sum) in sums.iter_mut() {
            *sum = if *sum > 0.0 { *sum * weight(f64::from(*largest)) } else { 0.0 };
        }
        drawn.clear();
        drawn.extend(eligible(edits, allowed).map(|edit| (edit.id, weight(f64::from(edit.logit)))));
        let edited: f64 = drawn.iter().map(|(_, weight)| weight).sum();
        let total: f64 = sums.iter().map(|(_, sum)| sum).sum();
        if units[0] * (edited + total) < edited {
            return draw_by_weight(drawn.iter().copied(), units[1] * edited);
        }
        let block = draw_by_weight(sums.iter().enumerate().map(|(block, (_, sum))| (block, *sum)), units[1] * total)?;
        collect_block(drawn, block, logits(block)?, edits, allowed);
        let peak = drawn.iter().map(|(_, logit)| *logit).fold(f64::NEG_INFINITY, f64::max);
        drawn.iter_mut().for_each(|(_, logit)| *logit = libm::exp((*logit - peak) / temperature));
        let total: f64 = drawn.iter().map(|(_, weight)| weight).sum();
        draw_by_weight(drawn.iter().copied(), units[2] * total)
    }
}

/// Facts about the tokens that are not candidates.
#[derive(Debug, Clone, Copy)]
struct Remainder {
    /// The sum of all tokens' probabilities, relative to the likeliest; `None` if the candidates are all tokens.
    total: Option<f64>,
    /// True if the tokens at hand suffice for the filters. False if a token outside them could still be drawn.
    complete: bool,
    /// The logit of every token outside the list is below this.
    floor: f32,
}

/// True for a logit that is a number or −∞, as opposed to NaN or +∞.
fn is_sound(logit: f32) -> bool {
    logit < f32::INFINITY // and so not NaN
}

/// The edited tokens that may be drawn: `allowed` contains them, and no bias forbids them.
fn eligible<'a>(edits: &'a [Edit], allowed: Option<&'a TokenSet>) -> impl Iterator<Item = &'a Edit> {
    let is_allowed = move |id: u32| allowed.is_none_or(|allowed| allowed.contains(id));
    edits.iter().filter(move |edit| edit.logit > f32::NEG_INFINITY && is_allowed(edit.id))
}

/// Fills `out` with a block's tokens that may be drawn and their logits, without the edits.
fn collect_block(out: &mut Vec<(u32, f64)>, block: usize, logits: &[f32], edits: &[Edit], allowed: Option<&TokenSet>) {
    out.clear();
    let mut edits = edits[edits.partition_point(|edit| (edit.id as usize) < block * BLOCK)..].iter().peekable();
    for (id, &logit) in ((block * BLOCK) as u32..).zip(logits) {
        let is_edited = edits.next_if(|edit| edit.id == id).is_some();
        if !is_edited && logit > f32::NEG_INFINITY && allowed.is_none_or(|allowed| allowed.contains(id)) {
            out.push((id, f64::from(logit)));
        }
    }
}

fn unusable(what: &str) -> Error {
    Error::failed(format!("the model's logits are unusable: {what}"), "check the model's files")
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
