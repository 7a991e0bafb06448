//! Tuning: measures which tile of each product is fastest, which arithmetic computes it, whether matrix units make the
//! gated GELU, how rows of one sequence attend, whether relayed dispatches are faster, and how long a pass of each kind
//! takes, on the model's own weights. The choices are kept on disk ([`super::choices`]), each as soon as it is made.
//!
//! It asks what wins most first ([`super::agenda`]), and can stop before any measurement and go on later: what was measured is
//! remembered, and a call that goes on takes the same way through the same figures up to the first that is missing.
//!
//! A product's tiles are tried in the order in which they are expected to be fast, each alone, behind barriers, until trying
//! the next costs more than it may still win. Few rows read weights faster where few layers take turns, since the GPU
//! remembers their pages (shaders/relay.glsl), and not all tiles alike: so of few rows, passes decide between the best tiles.

use super::agenda::{self, Allowance, Key, Part, Question, take_way, way_of};
use super::choices::{Choices, Way, pass_name, product_name};
use super::testbed::{Testbed, depth};
pub use crate::executor::measure::Gain;
use crate::gpu::kernels::Kernel;
use crate::gpu::kernels::compiler::Readiness;
use crate::gpu::lower::arithmetic::Arithmetic;
use crate::gpu::lower::dispatch::{Addresses, Dispatch};
use crate::gpu::lower::layout::GpuLayout;
use crate::gpu::lower::target::{AttendBy, Target, Tile};
use crate::gpu::lower::{Lowering, PassKind, RowOrder};
use crate::schedule::{Schedule, Segment};
use crate::{Cancel, Error, Result};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// Longest pass that is run as a whole to judge something; of longer ones some layers stand for all.
const PASS_SECONDS: f64 = 30e-3;
/// The same between passes of an executor that works.
const SLICE_SECONDS: f64 = 12e-3;
/// Longest that a product's dispatches run alone, and most of them: enough weights that no cache holds them.
const ALONE_SECONDS: f64 = 6e-3;
const DISPATCHES: usize = 8;
/// Layers that stand for all of them, spread evenly.
const SAMPLE: usize = 8;
/// Most rows of a pass that reads weights most of the time: passes decide between its best tiles.
const FEW_ROWS: usize = 32;
/// Tiles within this factor of the best are judged again by passes, and at most so many. For 4 rows, a tile that was 0.6 %
/// behind another in eight layers was 4.3 % ahead of it in 62 (H200).
const NEAR: f64 = 1.05;
const MOST_NEAR: usize = 5;
/// Of tiles for many rows, those within this factor of the best count as equal, and the first of the list is chosen, which is
/// expected to be the fastest. A few runs do not show how a device does under a lasting load: on an H200 two tiles of gate and
/// up both took 641 us alone, and prefill with the second was a tenth slower.
const TIE: f64 = 1.03;
/// A way to multiply is tuned too if its pass takes no more than this times that of the best way, each with the tiles known
/// so far. Matrix units on bytes took 1.4 to 1.5 times as long for 512 rows, before and behind their tuning (H200).
const RIVAL: f64 = 1.2;
/// Runs that a measurement takes, about, and what it takes beside them.
const RUNS: f64 = 4.0;
const OVERHEAD: f64 = 1e-3;
/// Seconds that compiling a kernel takes with the others beside it, until some were compiled.
const COMPILE_SECONDS: f64 = 0.1;
/// How long a kernel is waited for at a time.
const WAIT: Duration = Duration::from_millis(20);
/// Dispatches of a layer that compute no product, about.
const OTHERS: f64 = 5.0;

/// Why an answer has not come: the allowance is used up, or it failed.
pub(super) enum Halt {
    /// It goes on from here.
    Paused,
    /// The device or the driver failed.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(e: Error) -> Halt {
        Halt::Failed(e)
    }
}

type Step<T> = std::result::Result<T, Halt>;

/// What one measurement is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Trial {
    /// A product alone, in a tile.
    Alone(Key, Tile),
    /// Layers of a pass with a product in a tile.
    Beside(PassKind, Key, Tile),
    /// Layers of a pass that multiplies in a way, before its tiles were tuned or behind that.
    Way(PassKind, Way, bool),
    /// A pass of one row, relayed or not.
    Relay(bool),
    /// A pass that attends in a way.
    Attend(PassKind, AttendBy),
    /// A part of a pass: its first layer, its layers, its head; as it is, or with what nothing was measured for.
    Whole(PassKind, usize, bool),
}

/// What tuning keeps between calls.
pub struct Tuning {
    choices: Choices,
    measured: HashMap<Trial, Option<f64>>,
    settled: HashSet<Question>,
    /// Products whose tile is settled, whatever kind of pass has them.
    settled_keys: HashSet<Key>,
    /// The products of passes, by rows and way.
    parts: HashMap<(usize, Option<Way>), Rc<Vec<Part>>>,
    /// The tiles of a product in the order in which they are tried, each with its kernels.
    candidates: HashMap<Key, Rc<Vec<(Tile, Vec<Kernel>)>>>,
    /// Ways that come near the best one.
    rivals: HashMap<PassKind, Vec<Way>>,
    /// The question whose kernels were asked for last.
    asked: Option<Question>,
    /// How much slower a tile was than the model has it, where it was measured.
    slower: HashMap<(Arithmetic, Tile), f64>,
    /// Kernels compiled for tuning, and the seconds that this was waited for.
    waited: (usize, f64),
    /// The passes' seconds without any choice, and with all of them.
    gains: Vec<Gain>,
}

/// What comes of a call of [`Tuner::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// There is nothing more to measure.
    Done,
    /// There is, once there is time for it.
    Paused,
}

impl Tuning {
    /// With the choices that were made before.
    pub fn new(choices: Choices) -> Tuning {
        Tuning {
            choices,
            measured: HashMap::new(),
            settled: HashSet::new(),
            settled_keys: HashSet::new(),
            parts: HashMap::new(),
            candidates: HashMap::new(),
            rivals: HashMap::new(),
            asked: None,
            slower: HashMap::new(),
            waited: (0, 0.0),
            gains: Vec::new(),
        }
    }

    /// What was gained, once all is tuned.
    pub fn gains(&self) -> &[Gain] {
        &self.gains
    }

    /// Measurements so far.
    pub fn measurements(&self) -> usize {
        self.measured.len()
    }
}

/// A call of tuning: what it keeps, and what it measures on.
pub struct Tuner<'a> {
    /// What it keeps.
    pub tuning: &'a mut Tuning,
    /// What it measures on.
    pub bed: &'a mut dyn Testbed,
    /// The model.
    pub schedule: &'a Schedule,
    /// Offsets in the arena.
    pub layout: &'a GpuLayout,
    /// Device addresses of the buffers.
    pub addresses: &'a Addresses,
    /// The kinds of pass that are tuned.
    pub kinds: &'a [PassKind],
    /// The longest that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// Whether relay is tried.
    pub tries_relay: bool,
    /// What this call may do.
    pub allowance: Allowance,
    /// Ends it early.
    pub cancel: &'a Cancel,
    /// Told after each question: how many there are left, and the seconds that they may take.
    pub progress: &'a mut dyn FnMut(usize, f64),
}

impl Tuner<'_> {
    /// Fills `target` with what is known, so that passes can be baked without a measurement.
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
            // Each kind has an entry of its own: that of more rows says nothing of it.
            let usual = untuned.arithmetic(self.schedule.weights.format(), kind.rows, true);
            let usual = ways.iter().copied().find(|way| way.arithmetic == usual);
            if let Some(way) = known.or(usual) {
                take_way(target, kind, way);
            }
            if ways.len() < 2 || known.is_some() {
                self.tuning.settled.extend([Question::Way(kind), Question::Rematch(kind)]);
            }
        }
        for kind in self.leads() {
            for part in self.parts(target, kind).iter() {
                let tiles = target.tiles(part.key.0, part.key.1);
                let tile = self.tuning.choices.tile(&product_name(part.key, target.relay));
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
            let attends = self.lowering(target, kind).attends();
            let known = self.tuning.choices.attend(&name).filter(|way| attends.contains(way));
            if let Some(way) = known {
                target.attend.insert(kind.rows, way);
            }
            if attends.len() < 2 || known.is_some() {
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

    /// A kind of each number of rows: its products are those of all kinds of as many.
    fn leads(&self) -> Vec<PassKind> {
        self.kinds.iter().copied().filter(|k| k.order == RowOrder::Consecutive).collect()
    }

    /// Answers questions as long as the allowance lasts. [`Tuner::recall`] comes first. `target` changes with each answer.
    ///
    /// # Errors
    /// Device: the device failed. Interrupted: it was cancelled.
    pub fn advance(&mut self, target: &mut Target) -> Result<Advance> {
        self.tuning.asked = None;
        let done = self.answer_all(target);
        match done {
            Ok(()) => Ok(Advance::Done),
            Err(Halt::Paused) => Ok(Advance::Paused),
            Err(Halt::Failed(e)) => Err(e),
        }
    }

    fn answer_all(&mut self, target: &mut Target) -> Step<()> {
        loop {
            let open = self.open(target);
            let seconds = open.iter().map(|o| o.2).sum();
            (self.progress)(open.len(), seconds);
            let Some(&(question, ..)) = open.first() else {
                self.keep_ways(target);
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
            self.tuning.settled.insert(question);
            if let Question::Tile(_, key) = question {
                self.tuning.settled_keys.insert(key);
            }
            self.tuning.choices.save();
        }
    }

    /// Keeps the ways to multiply that are not worth another comparison.
    fn keep_ways(&mut self, target: &Target) {
        if self.allowance.keeps_kv || self.tuning.rivals.is_empty() {
            return;
        }
        let weights = self.schedule.weights.bytes();
        for (kind, _) in self.tuning.rivals.drain() {
            if let Some(way) = way_of(target, kind) {
                self.tuning.choices.set_way(weights, kind.rows, way);
            }
        }
        self.tuning.choices.save();
    }

    /// Measures what the choices have gained, kind by kind: passes with them beside passes without any. Everything must be
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
                gains.push(Gain { kind: kind.to_string(), rows: kind.rows, before, after });
            }
        }
        self.tuning.gains = gains;
        Ok(())
    }

    /// The questions that are worth their time, what wins most first: each with what it may win and what it may cost, in
    /// seconds.
    pub fn open(&mut self, target: &Target) -> Vec<(Question, f64, f64)> {
        let mut open: Vec<(Question, f64, f64)> = Vec::new();
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
            if is_lead {
                listed.push(few(Question::Way(kind), agenda::WAY, ways));
            }
            if is_lead && self.tuning.settled.contains(&Question::Way(kind)) {
                for part in parts.iter().filter(|p| !self.tuning.settled_keys.contains(&p.key)) {
                    let is_same = |o: &(Question, f64, f64)| matches!(o.0, Question::Tile(_, key) if key == part.key);
                    if !open.iter().any(is_same) {
                        let worth = self.worth(target, kind, part, pass, None);
                        listed.push((Question::Tile(kind, part.key), worth, self.tile_cost(target, part, worth)));
                    }
                }
                listed.push(few(Question::Rematch(kind), agenda::REMATCH, 2.0));
            }
            listed.push(few(Question::Attend(kind), agenda::ATTEND, 6.0));
            listed.push(few(Question::Seconds(kind), agenda::SECONDS, 1.5));
            open.extend(listed.into_iter().filter(|(q, worth, cost)| {
                !self.tuning.settled.contains(q) && *worth > *cost && *cost > 0.0 && self.is_allowed(q, pass)
            }));
        }
        // Relay comes first, so that tiles are judged in passes as they will run.
        let rank = |o: &(Question, f64, f64)| if o.0 == Question::Relay { f64::INFINITY } else { o.1 };
        open.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        open
    }

    /// Whether a question may be asked now: while the KV cache holds something, none that runs attention or takes long.
    fn is_allowed(&self, question: &Question, pass: f64) -> bool {
        match question {
            _ if !self.allowance.keeps_kv => true,
            Question::Relay | Question::Attend(_) | Question::Seconds(_) => false,
            Question::Way(_) | Question::Rematch(_) => pass / self.layers() as f64 <= SLICE_SECONDS,
            Question::Tile(..) => true,
        }
    }

    /// Asks for the kernels of the first question, and behind them for those of the next one that has tiles.
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
            for (i, (_, of_tile)) in self.candidates(target, kind, &part).iter().enumerate() {
                if i == 0 || worth * agenda::chance(i) > self.trial_cost(&part, expected) {
                    kernels.extend(of_tile);
                }
            }
        }
        self.bed.ask_for(&kernels);
        self.tuning.asked = first;
    }

    /// The seconds of an hour's use that a product's tile may save. `best`: seconds of its best tile so far.
    fn worth(&self, target: &Target, kind: PassKind, part: &Part, pass: f64, best: Option<f64>) -> f64 {
        let seconds = best.unwrap_or_else(|| self.expected(target, part));
        let part_of_pass = (part.segments.len() as f64 * seconds / pass).min(1.0);
        let floor = target.figures.filter(|f| f.is_known).map(|f| f.least_seconds(part.key.0, part.key.1));
        let spread = floor.map_or(agenda::SPREAD, |floor| 1.0 - floor / seconds);
        let spread = spread.clamp(agenda::LEAST_SPREAD, agenda::MOST_SPREAD);
        agenda::USE * self.share(kind) * part_of_pass * spread
    }

    /// The share of all passes' time that passes of as many rows take.
    fn share(&self, kind: PassKind) -> f64 {
        let extent = &self.schedule.extent;
        self.kinds.iter().filter(|k| k.rows == kind.rows).map(|&k| agenda::share(extent, k)).sum()
    }

    /// Seconds that trying a product's tiles takes, about.
    fn tile_cost(&self, target: &Target, part: &Part, worth: f64) -> f64 {
        let tiles = target.tiles(part.key.0, part.key.1).len();
        let each = self.trial_cost(part, self.expected(target, part));
        let paying = (0..tiles).take_while(|&i| i == 0 || worth * agenda::chance(i) > each).count();
        paying as f64 * each
    }

    /// Seconds that trying a tile takes that is not compiled.
    fn trial_cost(&self, part: &Part, expected: f64) -> f64 {
        self.compile_seconds() + OVERHEAD + RUNS * expected * self.count(part, expected) as f64
    }

    fn compile_seconds(&self) -> f64 {
        let (kernels, seconds) = self.tuning.waited;
        (COMPILE_SECONDS * 16.0 + seconds) / (16.0 + kernels as f64)
    }

    /// Dispatches of a product that are timed alone.
    fn count(&self, part: &Part, expected: f64) -> usize {
        ((ALONE_SECONDS / expected.max(1e-9)) as usize).clamp(1, part.segments.len().min(DISPATCHES))
    }

    /// Seconds of a product alone in its present tile: measured, or by the cost model.
    fn expected(&self, target: &Target, part: &Part) -> f64 {
        let Some(tile) = target.tile(part.key.0, part.key.1) else { return 1e-6 };
        let measured = self.tuning.measured.get(&Trial::Alone(part.key, tile)).copied().flatten();
        measured.unwrap_or_else(|| self.modelled(target, part.key, tile))
    }

    fn modelled(&self, target: &Target, key: Key, tile: Tile) -> f64 {
        target.modelled_seconds(key.0, key.1, tile).unwrap_or_else(|| key.1.weight_bytes() / 50e9 + 5e-6)
    }

    /// Seconds of a pass, about.
    fn expected_pass(&self, target: &Target, kind: PassKind, parts: &[Part]) -> f64 {
        let products: f64 = parts.iter().map(|p| p.segments.len() as f64 * self.expected(target, p)).sum();
        let dispatch = target.figures.map_or(5e-6, |f| f.dispatch);
        products + self.layers() as f64 * OTHERS * dispatch * (1.0 + kind.rows as f64 / 32.0)
    }

    /// Seconds of what is run of a pass that takes so long.
    fn sampled_pass(&self, pass: f64) -> f64 {
        if pass <= self.longest() { pass } else { pass / self.layers() as f64 * self.sample(pass).len() as f64 }
    }

    /// Longest pass that is run as a whole.
    fn longest(&self) -> f64 {
        if self.allowance.keeps_kv { SLICE_SECONDS } else { PASS_SECONDS }
    }

    /// The layers that stand for all in a pass that takes so long.
    fn sample(&self, pass: f64) -> Vec<usize> {
        let layers = self.layers();
        let fit = (self.longest() * layers as f64 / pass.max(1e-9)) as usize;
        sampled(layers, fit.clamp(1, SAMPLE))
    }

    fn layers(&self) -> usize {
        self.schedule.shape.layers.len()
    }

    fn name(&self, kind: PassKind) -> String {
        pass_name(self.schedule.weights.bytes(), kind, depth(self.schedule, kind))
    }

    fn lowering<'t>(&'t self, target: &'t Target, kind: PassKind) -> Lowering<'t> {
        Lowering { schedule: self.schedule, layout: self.layout, addresses: self.addresses, target, kind }
    }

    /// The products of a pass that have tiles to choose from.
    fn parts(&mut self, target: &Target, kind: PassKind) -> Rc<Vec<Part>> {
        let at = (kind.rows, way_of(target, kind));
        if let Some(parts) = self.tuning.parts.get(&at) {
            return parts.clone();
        }
        let mut parts: Vec<Part> = Vec::new();
        for segment in self.schedule.segments() {
            for key in self.lowering(target, kind).segment(segment).into_iter().filter_map(|d| d.product) {
                match parts.iter_mut().find(|p| p.key == key) {
                    Some(part) => part.segments.push(segment),
                    None => parts.push(Part { key, segments: vec![segment] }),
                }
            }
        }
        let parts = Rc::new(parts);
        self.tuning.parts.insert(at, parts.clone());
        parts
    }

    /// The tiles of a product in the order in which they are tried: the present one, then by the cost model and by how they
    /// did with other rows.
    fn candidates(&mut self, target: &Target, kind: PassKind, part: &Part) -> Rc<Vec<(Tile, Vec<Kernel>)>> {
        if let Some(known) = self.tuning.candidates.get(&part.key) {
            return known.clone();
        }
        let key = part.key;
        let mut tiles = target.tiles(key.0, key.1);
        let is_listed = target.figures.is_none_or(|f| f.is_listed) && matches!(key.0, Arithmetic::Matrix(_));
        if !is_listed {
            let rank = |tile: &Tile| {
                let slower = self.tuning.slower.get(&(key.0, *tile)).copied().unwrap_or(1.0);
                slower * self.modelled(target, key, *tile)
            };
            tiles.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        }
        let present = target.tile(key.0, key.1);
        tiles.sort_by_key(|tile| Some(*tile) != present);
        let mut tried = target.clone();
        let mut kernels = |tile| {
            tried.tuned.insert(key, tile);
            self.dispatches(&tried, kind, key, &part.segments[..1]).into_iter().map(|d| d.kernel).collect()
        };
        let all: Vec<_> = tiles.into_iter().map(|tile| (tile, kernels(tile))).collect();
        let all = Rc::new(all);
        self.tuning.candidates.insert(key, all.clone());
        all
    }

    /// The dispatches of segments that compute a product.
    fn dispatches(&self, target: &Target, kind: PassKind, key: Key, segments: &[Segment]) -> Vec<Dispatch> {
        let lowering = self.lowering(target, kind);
        let all = segments.iter().flat_map(|&segment| lowering.segment(segment));
        all.filter(|d| d.product == Some(key)).collect()
    }

    /// Chooses the tile of a product of a kind of pass.
    fn choose_tile(&mut self, target: &mut Target, kind: PassKind, key: Key) -> Step<()> {
        let parts = self.parts(target, kind);
        let Some(part) = parts.iter().find(|p| p.key == key) else { return Ok(()) };
        let pass = self.expected_pass(target, kind, &parts);
        let candidates = self.candidates(target, kind, part);
        let name = product_name(key, target.relay);
        let mut judged: Vec<(f64, Tile)> = Vec::new();
        let mut best = f64::INFINITY;
        for (i, (tile, kernels)) in candidates.iter().enumerate() {
            let is_known = self.tuning.measured.contains_key(&Trial::Alone(key, *tile));
            if !is_known && best.is_finite() {
                let compiled = self.bed.readiness(kernels) == Readiness::Ready;
                let cost = self.trial_cost(part, best) - if compiled { self.compile_seconds() } else { 0.0 };
                // Later ones may be compiled already, as parts of this one.
                if self.worth(target, kind, part, pass, Some(best)) * agenda::chance(i) < cost {
                    continue;
                }
            }
            let Some(seconds) = self.time_alone(target, kind, part, *tile, kernels, best)? else { continue };
            log::debug!("{name}: {tile:?}, alone {:.1} us", seconds * 1e6);
            best = best.min(seconds);
            judged.push((seconds, *tile));
            let slower = seconds / self.modelled(target, key, *tile);
            self.tuning.slower.insert((key.0, *tile), slower);
        }
        let first = judged.first().copied();
        let many = kind.rows > FEW_ROWS;
        let Some(chosen) = first_within(&judged, if many { TIE } else { 1.0 }) else { return Ok(()) };
        judged.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut near: Vec<Tile> =
            judged.iter().take(MOST_NEAR).take_while(|j| j.0 < NEAR * best).map(|j| j.1).collect();
        // What the lists were made with is the best beside others more often than it is alone.
        if let Some((seconds, tile)) = first
            && seconds < 1.15 * best
            && !near.contains(&tile)
        {
            near.push(tile);
        }
        let chosen = if many || near.len() < 2 { chosen } else { self.judge_beside(target, kind, part, &near)? };
        log::info!("{name}: {chosen:?}, of {} tiles that were tried", judged.len());
        target.tuned.insert(key, chosen);
        self.tuning.choices.set_tile(name, chosen);
        Ok(())
    }

    /// The best of a few tiles by passes, or the first where passes take too long to tell.
    fn judge_beside(&mut self, target: &Target, kind: PassKind, part: &Part, near: &[Tile]) -> Step<Tile> {
        let mut best = (f64::INFINITY, near[0]);
        let parts = self.parts(target, kind);
        let pass = self.expected_pass(target, kind, &parts);
        let is_of_head = part.segments[0] == Segment::Head;
        if is_of_head || self.sampled_pass(pass) > self.longest() {
            return Ok(near[0]);
        }
        let worth = self.worth(target, kind, part, pass, None) * (NEAR - 1.0);
        if worth < near.len() as f64 * RUNS * self.sampled_pass(pass) {
            return Ok(near[0]);
        }
        let mut tried = target.clone();
        for &tile in near {
            tried.tuned.insert(part.key, tile);
            let seconds = self.time_layers(Trial::Beside(kind, part.key, tile), &tried, kind, pass, best.0)?;
            if seconds.is_some_and(|s| s < best.0) {
                best = (seconds.unwrap_or(f64::INFINITY), tile);
            }
        }
        Ok(best.1)
    }

    /// Decides whether dispatches are relayed, by passes of one row.
    fn choose_relay(&mut self, target: &mut Target) -> Step<()> {
        let Some(&kind) = self.kinds.iter().find(|k| k.rows == 1) else { return Ok(()) };
        let weights = self.schedule.weights.bytes();
        let pass = {
            let parts = self.parts(target, kind);
            self.expected_pass(target, kind, &parts)
        };
        // With the usual tiles, since a tile tuned with relay is not tuned without it. Relay makes the larger difference.
        let mut seconds = [f64::INFINITY; 2];
        let mut tried = target.clone();
        for relay in [false, true] {
            tried.relay = relay;
            let timed = self.time_layers(Trial::Relay(relay), &tried, kind, pass, f64::INFINITY)?;
            seconds[usize::from(relay)] = timed.unwrap_or(f64::INFINITY);
        }
        let stalled = self.bed.take_stalled()?;
        if stalled {
            log::info!("dispatches are not relayed: this device does not start them in order");
        }
        log::info!("a pass takes {:.3} ms, with relayed dispatches {:.3} ms", seconds[0] * 1e3, seconds[1] * 1e3);
        target.relay = seconds[1] < seconds[0] && !stalled;
        self.tuning.choices.set_relay(weights, target.relay);
        // Tiles that were chosen with the other answer are not those of this one.
        target.tuned.clear();
        self.tuning.settled_keys.clear();
        self.tuning.settled.retain(|q| !matches!(q, Question::Tile(..)));
        self.recall(target);
        Ok(())
    }

    /// The ways to multiply that are worth measuring.
    fn ways(&self, target: &Target, kind: PassKind) -> Vec<Way> {
        // What only few of the weights can have, such as an INT8 head behind layers in INT4, changes no pass by much.
        let format = self.schedule.weights.format();
        let mut ways = Vec::new();
        let sampled: Vec<Segment> = [Segment::Layer(0), Segment::Layer(self.layers() / 2)].into();
        for arithmetic in target.arithmetics(format, kind.rows) {
            let gated = Way { arithmetic, gated: true };
            let mut tried = target.clone();
            take_way(&mut tried, kind, gated);
            let lowering = self.lowering(&tried, kind);
            let products = sampled.iter().flat_map(|&s| lowering.segment(s)).filter_map(|d| d.product);
            let is_gated = |(by, product): Key| matches!(by, Arithmetic::Matrix(_)) && product.gelu;
            if products.into_iter().any(is_gated) {
                ways.push(gated);
            }
            ways.push(Way { gated: false, ..gated });
        }
        ways
    }

    /// Takes the way that is the fastest with the tiles known so far. Ways that come near it are tuned later.
    fn choose_way(&mut self, target: &mut Target, kind: PassKind) -> Step<()> {
        let mut timed = Vec::new();
        let best = self.fastest_way(target, kind, &self.ways(target, kind), false, &mut timed)?;
        let Some((seconds, way)) = best else { return Ok(()) };
        log::info!("a pass of {kind} by {way:?} takes {:.3} ms for some layers", seconds * 1e3);
        take_way(target, kind, way);
        let rivals: Vec<Way> = timed.iter().filter(|t| t.0 < RIVAL * seconds).map(|t| t.1).collect();
        if rivals.len() < 2 {
            self.tuning.choices.set_way(self.schedule.weights.bytes(), kind.rows, way);
            self.tuning.settled.insert(Question::Rematch(kind));
        } else {
            self.tuning.rivals.insert(kind, rivals);
        }
        Ok(())
    }

    /// Tunes the ways that came near the best one too, and compares them.
    fn rematch(&mut self, target: &mut Target, kind: PassKind) -> Step<()> {
        let rivals = self.tuning.rivals.get(&kind).cloned().unwrap_or_default();
        for &way in &rivals {
            let mut tried = target.clone();
            take_way(&mut tried, kind, way);
            for part in self.parts(&tried, kind).iter() {
                if !self.tuning.settled_keys.contains(&part.key) {
                    self.ask_for_tiles(&tried, kind, part);
                    self.choose_tile(&mut tried, kind, part.key)?;
                    self.tuning.settled_keys.insert(part.key);
                    if let Some(&tile) = tried.tuned.get(&part.key) {
                        target.tuned.insert(part.key, tile);
                    }
                }
            }
        }
        if let Some((seconds, way)) = self.fastest_way(target, kind, &rivals, true, &mut Vec::new())? {
            log::info!("a pass of {kind} by {way:?} takes {:.3} ms for some layers, tuned", seconds * 1e3);
            take_way(target, kind, way);
            self.tuning.choices.set_way(self.schedule.weights.bytes(), kind.rows, way);
        }
        self.tuning.rivals.remove(&kind);
        Ok(())
    }

    fn ask_for_tiles(&mut self, target: &Target, kind: PassKind, part: &Part) {
        let candidates = self.candidates(target, kind, part);
        if candidates.iter().any(|(tile, _)| self.tuning.measured.contains_key(&Trial::Alone(part.key, *tile))) {
            return;
        }
        let kernels: Vec<Kernel> = candidates.iter().flat_map(|c| c.1.clone()).collect();
        self.bed.ask_for(&kernels);
        self.tuning.asked = None;
    }

    /// The fastest of some ways, with its seconds. `timed` takes all of them.
    fn fastest_way(
        &mut self,
        target: &Target,
        kind: PassKind,
        ways: &[Way],
        tuned: bool,
        timed: &mut Vec<(f64, Way)>,
    ) -> Step<Option<(f64, Way)>> {
        let parts = self.parts(target, kind);
        let pass = self.expected_pass(target, kind, &parts);
        let mut tried = target.clone();
        let mut best = f64::INFINITY;
        for &way in ways {
            take_way(&mut tried, kind, way);
            let seconds = self.time_layers(Trial::Way(kind, way, tuned), &tried, kind, pass, best)?;
            if let Some(seconds) = seconds {
                best = best.min(seconds);
                timed.push((seconds, way));
            }
        }
        Ok(timed.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0)))
    }

    /// Decides how rows of one sequence attend.
    fn choose_attention(&mut self, target: &mut Target, kind: PassKind) -> Step<()> {
        let name = self.name(kind);
        let parts = self.parts(target, kind);
        let pass = self.expected_pass(target, kind, &parts);
        let mut tried = target.clone();
        let mut best: Option<(f64, AttendBy)> = None;
        for way in self.lowering(target, kind).attends() {
            tried.attend.insert(kind.rows, way);
            let others = best.map_or(f64::INFINITY, |b| b.0);
            let seconds = self.time_layers(Trial::Attend(kind, way), &tried, kind, pass, others)?;
            if let Some(seconds) = seconds.filter(|s| *s < others) {
                best = Some((seconds, way));
            }
        }
        if let Some((_, way)) = best {
            target.attend.insert(kind.rows, way);
            log::info!("{name}: attention by {way:?}");
            self.tuning.choices.set_attend(name, way);
        }
        Ok(())
    }

    /// Measures how long a pass takes.
    fn time_kind(&mut self, target: &mut Target, kind: PassKind) -> Step<()> {
        let name = self.name(kind);
        if let Some(seconds) = self.whole_seconds(target, kind, true)? {
            log::info!("{name}: a pass takes {:.3} ms", seconds * 1e3);
            target.seconds.insert((kind.rows, kind.order), seconds);
            self.tuning.choices.set_seconds(name, seconds);
        }
        Ok(())
    }

    /// Seconds of a pass. Of a long one they are estimated: some layers stand for all.
    fn whole_seconds(&mut self, target: &Target, kind: PassKind, tuned: bool) -> Step<Option<f64>> {
        let layers = self.layers();
        let lower = |this: &Self, i: usize| this.lowering(target, kind).segment(Segment::Layer(i));
        let time = |this: &mut Self, part: usize, dispatches: Vec<Vec<Dispatch>>| {
            let trial = Trial::Whole(kind, part, tuned);
            let parts: Vec<&[Dispatch]> = dispatches.iter().map(Vec::as_slice).collect();
            this.measure(trial, kind, &parts, target.relay, f64::INFINITY, 0.0)
        };
        let first = vec![lower(self, 0)];
        let Some(first) = time(self, 0, first)? else { return Ok(None) };
        if first * layers as f64 <= PASS_SECONDS {
            let all = self.schedule.segments().filter(|s| *s != Segment::Choice);
            let all = all.map(|s| self.lowering(target, kind).segment(s)).collect();
            return time(self, 1, all);
        }
        let sample = sampled(layers, ((PASS_SECONDS / first) as usize).clamp(1, SAMPLE));
        let count = sample.len();
        let sample = sample.into_iter().map(|i| lower(self, i)).collect();
        let Some(sample) = time(self, 2, sample)? else { return Ok(None) };
        let head = vec![self.lowering(target, kind).segment(Segment::Head)];
        let Some(head) = time(self, 3, head)? else { return Ok(None) };
        Ok(Some(layers as f64 * sample / count as f64 + head))
    }

    /// Mean seconds of a product's dispatches in a tile, each behind a barrier. `best`: of the tiles so far.
    fn time_alone(
        &mut self,
        target: &Target,
        kind: PassKind,
        part: &Part,
        tile: Tile,
        kernels: &[Kernel],
        best: f64,
    ) -> Step<Option<f64>> {
        let trial = Trial::Alone(part.key, tile);
        if let Some(&known) = self.tuning.measured.get(&trial) {
            return Ok(known);
        }
        self.await_kernels(&trial, kernels)?;
        if let Some(&known) = self.tuning.measured.get(&trial) {
            return Ok(known);
        }
        let expected = if best.is_finite() { best } else { self.expected(target, part) };
        let count = self.count(part, expected);
        let mut tried = target.clone();
        tried.tuned.insert(part.key, tile);
        let own = self.dispatches(&tried, kind, part.key, &part.segments[..count]);
        let own: Vec<Dispatch> = own.into_iter().take(count).map(|d| Dispatch { barrier: true, ..d }).collect();
        let (cost, others) = (RUNS * expected * count as f64, best * own.len() as f64);
        let seconds = self.measure(trial.clone(), kind, &[&own], target.relay, others, cost)?;
        let each = seconds.map(|s| s / own.len() as f64);
        self.tuning.measured.insert(trial, each);
        Ok(each)
    }

    /// Waits for the kernels of a trial. One that does not come is left out.
    fn await_kernels(&mut self, trial: &Trial, kernels: &[Kernel]) -> Step<()> {
        let start = self.bed.now();
        loop {
            self.cancel.check()?;
            match self.bed.readiness(kernels) {
                Readiness::Ready => break,
                Readiness::LeftOut => {
                    self.tuning.measured.insert(trial.clone(), None);
                    return Ok(());
                }
                Readiness::Unasked => self.bed.ask_for(kernels),
                Readiness::NotYet if !self.allowance.waits || self.is_over(0.0) => return Err(Halt::Paused),
                Readiness::NotYet => self.bed.wait(WAIT),
            }
        }
        let (count, seconds) = self.tuning.waited;
        self.tuning.waited = (count + kernels.len(), seconds + (self.bed.now() - start).as_secs_f64());
        Ok(())
    }

    /// Whether the time is over before something that takes so many seconds ends.
    fn is_over(&self, seconds: f64) -> bool {
        self.allowance.until.is_some_and(|until| self.bed.now().as_secs_f64() + seconds > until.as_secs_f64())
    }

    /// Seconds of layers of a pass, and of its head where that is run as a whole. `pass`: its expected seconds.
    fn time_layers(
        &mut self,
        trial: Trial,
        target: &Target,
        kind: PassKind,
        pass: f64,
        best: f64,
    ) -> Step<Option<f64>> {
        if let Some(&known) = self.tuning.measured.get(&trial) {
            return Ok(known);
        }
        let sample = if pass <= self.longest() { (0..self.layers()).collect() } else { self.sample(pass) };
        let lowering = self.lowering(target, kind);
        let keeps_kv = self.allowance.keeps_kv;
        let layers = sample.into_iter().map(|i| {
            let mut all = lowering.segment(Segment::Layer(i));
            all.retain(|d| !keeps_kv || !uses_kv(d));
            all
        });
        let layers: Vec<Vec<Dispatch>> = layers.collect();
        let parts: Vec<&[Dispatch]> = layers.iter().map(Vec::as_slice).collect();
        self.measure(trial, kind, &parts, target.relay, best, RUNS * self.sampled_pass(pass))
    }

    /// Measures, unless the allowance is used up. `cost`: the seconds that it takes, about.
    fn measure(
        &mut self,
        trial: Trial,
        kind: PassKind,
        parts: &[&[Dispatch]],
        relay: bool,
        others: f64,
        cost: f64,
    ) -> Step<Option<f64>> {
        if let Some(&known) = self.tuning.measured.get(&trial) {
            return Ok(known);
        }
        self.cancel.check()?;
        if self.allowance.measurements == 0 || self.is_over(cost) {
            return Err(Halt::Paused);
        }
        let Some(seconds) = self.bed.time(kind, parts, relay, others)? else { return Err(Halt::Paused) };
        self.allowance.measurements -= 1;
        self.tuning.measured.insert(trial, Some(seconds));
        Ok(Some(seconds))
    }
}

/// Whether a dispatch reads or writes the KV cache.
fn uses_kv(d: &Dispatch) -> bool {
    ["attend", "attend_matrix", "head_prepare"].contains(&d.kernel.module.source())
}

/// Of what was judged, seconds first, the first that took no more than `tie` times the least.
fn first_within<T: Copy>(judged: &[(f64, T)], tie: f64) -> Option<T> {
    let least = judged.iter().map(|j| j.0).min_by(f64::total_cmp)?;
    judged.iter().find(|j| j.0 <= tie * least).map(|j| j.1)
}

/// `count` of `layers` layers that stand for all.
fn sampled(layers: usize, count: usize) -> Vec<usize> {
    let count = layers.min(count);
    (0..count).map(|i| i * layers / count).collect()
}

#[cfg(test)]
mod tests {
    use super::{first_within, sampled};

    #[test]
    fn the_first_of_equals_is_chosen() {
        let judged = [(1.04, 'a'), (1.02, 'b'), (1.0, 'c'), (f64::INFINITY, 'd')];
        assert_eq!((first_within(&judged, 1.0), first_within(&judged, 1.03)), (Some('c'), Some('b')));
        assert_eq!(first_within(&[(f64::INFINITY, 'a')], 1.03), Some('a'));
        assert_eq!(first_within::<char>(&[], 1.0), None);
    }

    #[test]
    fn sampled_layers_are_spread_and_none_comes_twice() {
        assert_eq!(sampled(62, 8), [0, 7, 15, 23, 31, 38, 46, 54]);
        assert_eq!(sampled(9, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sampled(3, 8), [0, 1, 2]);
        assert_eq!(sampled(62, 1), [0]);
        assert!(sampled(0, 8).is_empty());
    }
}
