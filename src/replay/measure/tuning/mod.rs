//! Tuning: measures which tile of each product is fastest, which arithmetic computes it, whether matrix units compute
//! the gated GELU, the method of attention for rows of one sequence, whether relayed dispatches are faster, and the
//! time of a pass of each kind, on the model's own weights. The choices are stored on disk ([`super::choices`]), each
//! as soon as it is made.
//!
//! Questions with the largest benefit come first ([`super::agenda`]). Tuning can stop before any measurement and go on
//! later: results are remembered, and the next call repeats the same decisions from the same results up to the first
//! missing one.
//!
//! A product's tiles are tried in the order of expected speed, each alone, behind barriers, until the next trial costs
//! more than it may save. A product of few rows reads weights faster when few layers alternate, since the GPU caches
//! their page translations (shaders/relay.glsl), and tiles differ in this: so for few rows, passes decide between the
//! best tiles.

mod choose;
mod expected;
mod trials;

use self::expected::{OVERHEAD, RUNS, SLICE_SECONDS};

use super::agenda::{self, Allowance, PassProduct, Question, TileKey, take_way};
use super::bed::Testbed;
use super::choices::{Choices, ProductMethod, attend_name, product_name};
pub use crate::executor::measure::TuningGain;
use crate::lower::arithmetic::Arithmetic;
use crate::lower::dispatch::Addresses;
use crate::lower::kernels::Kernel;
use crate::lower::layout::GpuLayout;
use crate::lower::target::{AttendBy, AttendHeads, Target, Tile};
use crate::lower::{PassKind, RowOrder};
use crate::schedule::Schedule;
use crate::{Cancel, Error, Result};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// Longest pass, in seconds, that is run as a whole; for longer ones some layers represent all.
const PASS_SECONDS: f64 = 30e-3;
/// Number of layers that represent all, spread evenly.
const SAMPLE: usize = 8;

/// The reason why tuning stopped without an answer.
pub(super) enum Halt {
    /// The allowance of this call is used up: the next call goes on from here.
    Paused,
    /// The device or the driver failed.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(e: Error) -> Halt {
        Halt::Failed(e)
    }
}

type HaltResult<T> = std::result::Result<T, Halt>;

/// Candidates for a tile, each with the kernels that it needs.
type TileCandidates = Vec<(Tile, Vec<Kernel>)>;

/// The product or pass that one measurement times.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Trial {
    /// A product alone, in a tile.
    Alone(TileKey, Tile),
    /// Layers of a pass with a product in a tile.
    Beside(PassKind, TileKey, Tile),
    /// Layers of a pass with a method of products, before (`false`) or after its tiles were tuned.
    Way(PassKind, ProductMethod, bool),
    /// A pass of one row, relayed or not.
    Relay(bool),
    /// A pass with a method of attention for some heads.
    Attend(PassKind, AttendHeads, AttendBy),
    /// A part of a pass (its first layer, its layers, or its head), with the choices made or with defaults.
    Whole(PassKind, usize, bool),
}

/// The state of tuning between calls.
#[derive(Default)]
pub struct Tuning {
    choices: Choices,
    measured: HashMap<Trial, Option<f64>>,
    settled: HashSet<Question>,
    /// Products whose tile is settled, for all kinds of pass.
    settled_keys: HashSet<TileKey>,
    /// The methods of products, by the pass's rows.
    ways: HashMap<usize, Rc<Vec<ProductMethod>>>,
    /// The products of passes, by rows and method.
    parts: HashMap<(usize, Option<ProductMethod>), Rc<Vec<PassProduct>>>,
    /// The tiles of a product in the order of trials, each with its kernels.
    candidates: HashMap<TileKey, Rc<TileCandidates>>,
    /// Products whose first turn of trials is over, and that have untried tiles.
    begun: HashSet<TileKey>,
    /// The question whose kernels were requested last.
    asked: Option<Question>,
    /// The product whose kernels a rematch requested last.
    asked_tiles: Option<TileKey>,
    /// The ratio of a tile's measured to its modelled time.
    slower: HashMap<(Arithmetic, Tile), f64>,
    /// Number of kernels compiled for tuning, and the seconds spent waiting for them.
    waited: (usize, f64),
    /// The passes' seconds with default and with tuned choices.
    gains: Vec<TuningGain>,
}

/// The result of a call of [`Tuner::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// No question is open: all choices are made.
    Done,
    /// Questions are open, and the allowance is used up.
    Paused,
}

impl Tuning {
    /// Tuning that starts with stored choices.
    pub fn new(choices: Choices) -> Tuning {
        Tuning { choices, ..Tuning::default() }
    }

    /// The gains, once all is tuned.
    pub fn gains(&self) -> &[TuningGain] {
        &self.gains
    }

    /// The choices for the next load.
    #[cfg(test)]
    pub fn into_choices(self) -> Choices {
        self.choices
    }

    /// The number of measurements made so far.
    pub fn measurements(&self) -> usize {
        self.measured.len()
    }
}

/// A call of tuning: its state, and the testbed that it measures on.
pub struct Tuner<'a> {
    /// The state of tuning between calls.
    pub tuning: &'a mut Tuning,
    /// The testbed on which measurements run.
    pub bed: &'a mut dyn Testbed,
    /// The schedule of the model that is tuned.
    pub schedule: &'a Schedule,
    /// The offsets of the arena's regions.
    pub layout: &'a GpuLayout,
    /// The device addresses of arena and weights.
    pub addresses: &'a Addresses,
    /// The kinds of pass that are tuned.
    pub kinds: &'a [PassKind],
    /// The longest time that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// True if relayed dispatches are tried.
    pub tries_relay: bool,
    /// The limits of this call: its end, its measurements and its waits.
    pub allowance: Allowance,
    /// The flag that ends the call early.
    pub cancel: &'a Cancel,
    /// Called after each question with the number of open ones and their estimated seconds.
    pub progress: &'a mut dyn FnMut(usize, f64),
}

impl Tuner<'_> {
    /// Fills `target` with the stored choices and defaults, so that passes can be baked without a measurement.
    pub fn recall(&mut self, target: &mut Target) {
        let weights = self.schedule.weights.bytes();
        if self.tries_relay {
            let default = target.figures.is_some_and(|figures| figures.relays);
            target.relay = self.tuning.choices.relay(weights).unwrap_or(default);
        }
        let untuned = target.clone();
        for kind in self.leads() {
            let ways = self.ways(&untuned, kind);
            let known = self.tuning.choices.way(weights, kind.rows).filter(|way| ways.contains(way));
            // Each number of rows has its own default, which does not follow from that of more rows.
            let usual = untuned.arithmetic(self.schedule.weights.format(), kind.rows, true);
            let usual = ways.iter().copied().find(|way| way.arithmetic == usual);
            if let Some(way) = known.or(usual) {
                take_way(target, kind, way);
            }
            if ways.len() < 2 || known.is_some() {
                self.tuning.settled.insert(Question::Way(kind));
                if self.tuning.choices.rivals(weights, kind.rows).is_empty() {
                    self.tuning.settled.insert(Question::Rematch(kind));
                }
            }
        }
        for kind in self.leads() {
            for part in self.parts(target, kind).iter() {
                let tiles = target.tiles(part.key.0, part.key.1);
                let name = product_name(part.key, target.relay);
                let tile = self.tuning.choices.tile(&name);
                let tried = self.tuning.choices.tried(&name).iter();
                let tried = tried.filter(|(tile, seconds)| tiles.contains(tile) && *seconds > 0.0);
                let tried = tried.map(|&(tile, seconds)| (Trial::Alone(part.key, tile), Some(seconds)));
                self.tuning.measured.extend(tried);
                if let Some(tile) = tile.filter(|tile| tiles.contains(tile)) {
                    target.tuned.insert(part.key, tile);
                    self.tuning.settled_keys.insert(part.key);
                } else if tiles.len() < 2 {
                    self.tuning.settled_keys.insert(part.key);
                }
            }
        }
        for &kind in self.kinds {
            let name = self.name(kind);
            let mut is_open = false;
            for (heads, ways) in self.lowering(target, kind).attends() {
                let known = self.tuning.choices.attend(&attend_name(&name, heads)).filter(|way| ways.contains(way));
                if let Some(way) = known {
                    target.attend.insert((kind.rows, heads), way);
                }
                is_open |= ways.len() > 1 && known.is_none();
            }
            if !is_open {
                self.tuning.settled.insert(Question::Attend(kind));
            }
            if let Some(seconds) = self.tuning.choices.seconds(&name) {
                target.seconds.insert((kind.rows, kind.order), seconds);
                self.tuning.settled.insert(Question::Seconds(kind));
            }
        }
        if !self.tries_relay || self.tuning.choices.relay(weights).is_some() {
            self.tuning.settled.insert(Question::Relay);
        }
    }

    /// One kind for each number of rows: all kinds of as many rows have its products.
    fn leads(&self) -> Vec<PassKind> {
        self.kinds.iter().copied().filter(|k| k.order == RowOrder::Consecutive).collect()
    }

    /// Answers questions as long as the allowance lasts. [`Tuner::recall`] must have been called. `target` changes with
    /// each answer.
    ///
    /// # Errors
    /// Device: the device failed. Interrupted: the call was cancelled.
    pub fn advance(&mut self, target: &mut Target) -> Result<Advance> {
        (self.tuning.asked, self.tuning.asked_tiles) = (None, None);
        self.tuning.begun.clear();
        let done = self.answer_all(target);
        match done {
            Ok(()) => Ok(Advance::Done),
            Err(Halt::Paused) => Ok(Advance::Paused),
            Err(Halt::Failed(e)) => Err(e),
        }
    }

    fn answer_all(&mut self, target: &mut Target) -> HaltResult<()> {
        loop {
            let open = self.open(target);
            let seconds = self.expected_seconds(target, &open);
            (self.progress)(open.len(), seconds);
            let Some(&(question, ..)) = open.first() else {
                if !self.tuning.begun.is_empty() {
                    // Every product has had its first turn: now all tiles are tried.
                    self.tuning.begun.clear();
                    self.allowance.tiles = usize::MAX;
                    continue;
                }
                return Ok(());
            };
            self.ask_for_kernels(target, &open);
            match question {
                Question::Relay => self.choose_relay(target)?,
                Question::Way(kind) => self.choose_way(target, kind)?,
                Question::Tile(kind, key) => self.choose_tile(target, kind, key)?,
                Question::Attend(kind) => self.choose_attention(target, kind)?,
                Question::Rematch(kind) => self.rematch(target, kind)?,
                Question::Seconds(kind) => self.time_kind(target, kind)?,
            }
            match question {
                Question::Tile(_, key) if self.tuning.begun.contains(&key) => {}
                Question::Tile(_, key) => drop(self.tuning.settled_keys.insert(key)),
                question => drop(self.tuning.settled.insert(question)),
            }
            self.tuning.choices.save();
        }
    }

    /// Measures the gain of the choices for each kind: passes with them and with defaults. Every question must be
    /// settled.
    ///
    /// # Errors
    /// As [`Tuner::advance`].
    pub fn compare(&mut self, target: &Target, untuned: &Target) -> Result<()> {
        let mut gains = Vec::new();
        for &kind in self.kinds {
            let mut seconds = |target: &Target, tuned| match self.whole_seconds(target, kind, tuned) {
                Ok(seconds) => Ok(seconds.unwrap_or(f64::INFINITY)),
                Err(Halt::Failed(e)) => Err(e),
                Err(Halt::Paused) => Ok(f64::INFINITY),
            };
            let (before, after) = (seconds(untuned, false)?, seconds(target, true)?);
            if before.is_finite() && after.is_finite() {
                gains.push(TuningGain { kind: kind.to_string(), rows: kind.rows, before, after });
            }
        }
        self.tuning.gains = gains;
        Ok(())
    }

    /// The questions worth their cost, by descending benefit: each with its possible benefit and its cost, in seconds.
    pub fn open(&mut self, target: &Target) -> Vec<(Question, f64, f64)> {
        let mut open: Vec<(Question, f64, f64)> = Vec::new();
        let mut counted = HashSet::new();
        for &kind in self.kinds {
            let parts = self.parts(target, kind);
            let (use_, pass) = (agenda::USE * self.share(kind), self.expected_pass(target, kind, &parts));
            let pass_run = RUNS * self.sampled_pass(pass) + OVERHEAD;
            let ways = self.ways(target, kind).len() as f64;
            let few = |question, gain: f64, runs: f64| (question, use_ * gain, runs * pass_run);
            let mut listed = Vec::new();
            if kind.rows == 1 {
                listed.push(few(Question::Relay, agenda::RELAY, 2.0));
            }
            let is_lead = kind.order == RowOrder::Consecutive;
            let way = few(Question::Way(kind), agenda::WAY, ways);
            // Tiles are tried after the method of products is chosen, or if that has no open question.
            let asks_way = is_lead && self.is_open(&way, pass);
            if asks_way {
                listed.push(way);
            } else if is_lead {
                for part in parts.iter() {
                    if self.tuning.settled_keys.contains(&part.key) {
                        continue;
                    }
                    let is_same = |o: &(Question, f64, f64)| matches!(o.0, Question::Tile(_, key) if key == part.key);
                    let worth = self.worth(target, kind, part, pass, None);
                    let each = self.trial_cost(part, self.expected(target, part));
                    let is_worth_it = worth * agenda::chance(1) > each;
                    if is_worth_it && !open.iter().any(is_same) && !self.tuning.begun.contains(&part.key) {
                        let cost = self.tile_cost(target, kind, part, worth, &mut counted);
                        listed.push((Question::Tile(kind, part.key), worth, cost));
                    }
                }
                listed.push(few(Question::Rematch(kind), agenda::REMATCH, 2.0));
            }
            listed.push(few(Question::Attend(kind), agenda::ATTEND, 6.0));
            listed.push(few(Question::Seconds(kind), agenda::SECONDS, 1.5));
            open.extend(listed.into_iter().filter(|o| self.is_open(o, pass)));
        }
        // Relay comes first, so that tiles are measured in the passes that will use them.
        let rank = |o: &(Question, f64, f64)| if o.0 == Question::Relay { f64::INFINITY } else { o.1 };
        open.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        open
    }

    /// Approximate seconds of answering everything: the open questions, and the tiles of kinds of pass whose method of
    /// products is still open.
    pub fn expected_seconds(&mut self, target: &Target, open: &[(Question, f64, f64)]) -> f64 {
        let unsettled: Vec<Question> = open.iter().map(|o| o.0).filter(|q| matches!(q, Question::Way(_))).collect();
        let ways: f64 = open.iter().filter(|o| matches!(o.0, Question::Way(_))).map(|o| o.2).sum();
        self.tuning.settled.extend(&unsettled);
        let rest: f64 = self.open(target).iter().map(|o| o.2).sum();
        self.tuning.settled.retain(|q| !unsettled.contains(q));
        ways + rest
    }

    /// Whether a question with this benefit and cost is open.
    fn is_open(&self, (question, worth, cost): &(Question, f64, f64), pass: f64) -> bool {
        let is_worth_it = worth > cost || matches!(question, Question::Tile(..));
        is_worth_it && !self.tuning.settled.contains(question) && self.is_allowed(question, pass)
    }

    /// True if a question may be measured now. While the KV cache is in use, none that runs attention or takes long
    /// may.
    fn is_allowed(&self, question: &Question, pass: f64) -> bool {
        match question {
            // A rematch tunes further products to the end.
            Question::Rematch(_) if self.allowance.tiles != usize::MAX => false,
            _ if !self.allowance.keeps_kv => true,
            Question::Relay | Question::Attend(_) | Question::Seconds(_) => false,
            Question::Way(_) | Question::Rematch(_) => pass / self.layers() as f64 <= SLICE_SECONDS,
            Question::Tile(..) => true,
        }
    }

    /// Requests the kernels of the first question, and then the kernels of the next question that has tiles.
    fn ask_for_kernels(&mut self, target: &Target, open: &[(Question, f64, f64)]) {
        let first = open.first().map(|o| o.0);
        if self.tuning.asked == first {
            return;
        }
        let mut kernels: Vec<Kernel> = Vec::new();
        for &(question, worth, _) in open.iter().filter(|o| matches!(o.0, Question::Tile(..))).take(2) {
            let Question::Tile(kind, key) = question else { continue };
            let Some(part) = self.parts(target, kind).iter().find(|p| p.key == key).cloned() else { continue };
            let expected = self.expected(target, &part);
            let most = self.allowance.tiles;
            for (i, (tile, of_tile)) in self.candidates(target, kind, &part).iter().take(most).enumerate() {
                if self.tuning.measured.contains_key(&Trial::Alone(key, *tile)) {
                    continue;
                }
                if i == 0 || worth * agenda::chance(i) > self.trial_cost(&part, expected) {
                    kernels.extend(of_tile);
                }
            }
        }
        self.bed.ask_for(&kernels);
        (self.tuning.asked, self.tuning.asked_tiles) = (first, None);
    }
}

/// `count` of `layers` layers, spread evenly.
fn sampled(layers: usize, count: usize) -> Vec<usize> {
    let count = layers.min(count);
    (0..count).map(|i| i * layers / count).collect()
}

#[cfg(test)]
mod tests {
    use super::sampled;

    #[test]
    fn sampled_layers_are_spread_and_none_comes_twice() {
        assert_eq!(sampled(62, 8), [0, 7, 15, 23, 31, 38, 46, 54]);
        assert_eq!(sampled(9, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sampled(3, 8), [0, 1, 2]);
        assert_eq!(sampled(62, 1), [0]);
        assert!(sampled(0, 8).is_empty());
    }
}
