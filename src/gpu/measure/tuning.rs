//! Tuning: measures which tile of each product is fastest, which arithmetic computes it, whether matrix units make the
//! gated GELU, how rows of one sequence attend, whether relayed dispatches are faster, and how long a pass of each kind
//! takes. It runs once per device and driver, on the model's own weights. The choices are kept on disk
//! ([`super::choices`]).
//!
//! There are many kinds of pass, so the tiles of most are judged by some of their layers first. Few rows read weights
//! faster where few layers take turns, since the GPU remembers their pages (shaders/relay.glsl), and not all tiles alike:
//! so the tiles that come near the best are judged once more by whole passes. A kind tries of the tiles that a kind of
//! more rows has tried only those that were good there.

use super::choices::{Choices, Way, pass_name, product_name};
use super::timing::Timing;
use crate::Result;
use crate::executor::{self, HeadRows, Row};
use crate::gpu::device::Gpu;
use crate::gpu::kernels::pipelines::Pipelines;
use crate::gpu::lower::arithmetic::Arithmetic;
use crate::gpu::lower::dispatch::{Addresses, Dispatch};
use crate::gpu::lower::layout::{GpuLayout, STALLED};
use crate::gpu::lower::target::{Product, Target, Tile};
use crate::gpu::lower::{Lowering, PassKind, RowOrder};
use crate::gpu::memory::Buffer;
use crate::gpu::queue::Queue;
use crate::gpu::queue::record::Relay;
use crate::gpu::queue::stamps::StampPool;
use crate::schedule::{Schedule, Segment};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest pass in which tiles are judged. If passes take longer, a product's dispatches are timed alone.
const PASS_SECONDS: f64 = 30e-3;
/// Most dispatches of a product that are timed alone.
const DISPATCHES: usize = 8;
/// Layers that stand for all of them, spread evenly: enough weights that no cache holds them.
const SAMPLE: usize = 8;
/// Most rows of a pass that reads weights most of the time: whole passes decide between its best tiles.
const FEW_ROWS: usize = 32;
/// Positions before the rows of a measured pass: the window of a local layer. Behind no positions attention takes hardly
/// any time, and other tiles are the fastest beside it.
const DEPTH: usize = 1024;
/// Of the tiles that more rows have tried, fewer rows try this share, the best ones, and at least so many.
const PROMISING: usize = 3;
const LEAST_PROMISING: usize = 4;
/// Tiles within this factor of the best pass are judged again once the other products have their tiles, at most [`MOST_NEAR`].
/// For 4 rows, a tile that was 0.6 % behind another in eight layers was 4.3 % ahead of it in 62 (H200).
const NEAR: f64 = 1.04;
/// Most tiles that are judged again.
const MOST_NEAR: usize = 8;
/// The factor for one row, where all tiles that are so near are judged again: most of the time is spent in such passes.
const NEAR_ONE_ROW: f64 = 1.02;
/// Of tiles for many rows that are timed alone, those within this factor of the best count as equal, and the first of the list
/// is chosen, which is expected to be the fastest. A few runs do not show how a device does under a lasting load: on an H200 two
/// tiles of gate and up both took 641 us alone, and prefill with the second was a tenth slower.
const TIE: f64 = 1.03;
/// A way to multiply is not tuned if its pass with the usual tiles takes more than this times the pass of the best way so far with
/// tuned tiles. Matrix units on bytes took 1.4 to 1.5 times as long for 512 rows, before and behind their tuning (H200).
const HOPELESS_WAY: f64 = 1.35;
/// The same where matrix units make the gated GELU, whose usual tiles are slow by chance, by 40 % and more.
const HOPELESS_GATED: f64 = 1.5;
/// Slower than any measurement.
const NEVER: f64 = f64::INFINITY;

/// The key of a chosen tile: a product, and the arithmetic that computes it.
pub type Key = (Arithmetic, Product);

/// What is timed to judge a product's tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judge {
    /// The product's dispatches, where passes are long.
    Alone,
    /// Passes of the sampled layers, so that caches hold what the other steps left there.
    Sample,
    /// Passes of all layers.
    Whole,
}

/// The parts of an executor that tuning measures with.
pub struct Tuner<'a> {
    /// The device.
    pub gpu: &'a Rc<Gpu>,
    /// Its queue.
    pub queue: &'a Queue,
    /// Its pipelines.
    pub pipelines: &'a mut Pipelines,
    /// The model.
    pub schedule: &'a Schedule,
    /// Offsets in the arena.
    pub layout: &'a GpuLayout,
    /// Device addresses of the buffers.
    pub addresses: &'a Addresses,
    /// The arena, whose first words are the step state.
    pub arena: &'a mut Buffer,
    /// The longest that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// Forces relay on or off. `None`: measured where it is tried, else off.
    pub relay: Option<bool>,
    /// The kind of pass that the step state was written for. `None` until something is measured.
    pub ready: Option<PassKind>,
    /// The tiles that were tried for passes of more rows, the fastest first. Keys have no rows.
    pub ranked: HashMap<Key, Vec<Tile>>,
    /// Times passes.
    pub timing: Timing,
    /// Time that the compiling of tiles' kernels took.
    pub compiling: Duration,
}

impl Tuner<'_> {
    /// Fills `target` for passes of each of `kinds`: from the file of this device and driver, or by measuring. Kinds of
    /// more rows come before those of fewer, but for the kind of one row, which is the first.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the device failed.
    pub fn tune(&mut self, target: &mut Target, kinds: impl Iterator<Item = PassKind>) -> Result<()> {
        if self.gpu.caps.clock.is_none() {
            return Ok(());
        }
        let mut choices = Choices::open(self.gpu);
        for kind in kinds {
            let (start, compiling) = (Instant::now(), self.compiling);
            let mut measured = 0;
            // Relay comes first, so that tiles are judged in passes as they will run.
            if kind.rows == 1 && self.relay.is_none() && self.gpu.caps.tries_relay {
                measured += self.choose_relay(target, kind, &mut choices)?;
            }
            measured += self.choose_way(target, kind, &mut choices)?;
            measured += self.choose_attention(target, kind, &mut choices)?;
            measured += self.time_kind(target, kind, &mut choices)?;
            if measured > 0 {
                let seconds = start.elapsed().as_secs_f64();
                let compiling = (self.compiling - compiling).as_secs_f64();
                log::info!(
                    "made {measured} choices for passes of {kind} by measurement in {seconds:.2} s, {compiling:.2} s of which \
                     went into compiling tiles"
                );
                choices.save();
            }
        }
        self.timing.free(self.queue);
        if self.ready.is_some() {
            // Measuring filled the slots, but pad columns must be zero. It may also have set the stall flag.
            let slots = self.slots();
            self.edit(|words| {
                words[slots].fill(0);
                words[STALLED] = 0;
            })?;
        }
        Ok(())
    }

    /// Edits the arena as words.
    fn edit(&mut self, edit: impl FnOnce(&mut [u32])) -> Result<()> {
        // SAFETY: every submit is waited for where it is made.
        unsafe { self.arena.edit(edit) }
    }

    /// The arena's words that hold slots and packed slots.
    fn slots(&self) -> Range<usize> {
        let first = self.schedule.arena.slots.iter().map(|(_, slot)| slot.offset).min().unwrap_or(0);
        (first / 4) as usize..(self.layout.scratch.attend / 4) as usize
    }

    /// Fills the arena as before a pass of this kind, whose rows begin at position [`Self::depth`].
    fn prepare(&mut self, kind: PassKind) -> Result<()> {
        let (slots, state) = (self.slots(), self.schedule.arena.state);
        if self.ready.is_none() {
            // Multiplying zeros takes less power, and is therefore faster than multiplying a model's data.
            self.edit(|words| {
                for (i, word) in words[slots].iter_mut().enumerate() {
                    // Pairs of f16 from 0.5 to 1. Read as f32 they are small numbers.
                    *word = 0x3800_3800 | (i as u32).wrapping_mul(0x9e37_79b9) >> 3 & 0x03ff_03ff;
                }
            })?;
        }
        if self.ready != Some(kind) {
            let depth = self.depth(kind);
            let row = |i: usize| match kind.order {
                RowOrder::Consecutive => Row { token: 0, position: (depth + i) as u32, sequence: 0 },
                _ => Row { token: 0, position: depth as u32, sequence: (i % self.schedule.extent.sequences) as u32 },
            };
            let rows: Vec<Row> = (0..kind.rows).map(row).collect();
            let head = HeadRows { first: 0, count: kind.head_rows };
            self.edit(|words| executor::write_pass(words, state, &rows, Some(head)))?;
            self.ready = Some(kind);
        }
        Ok(())
    }

    /// Fills `target` with the tile of each product of a pass. Returns how many products it measured.
    fn tune_products(&mut self, target: &mut Target, kind: PassKind, choices: &mut Choices) -> Result<usize> {
        let mut wanted = Vec::new();
        for key in self.products(target, kind) {
            let tiles = target.tiles(key.0, key.1);
            match choices.tile(&product_name(key, target.relay)).filter(|t| tiles.contains(t)) {
                Some(tile) => {
                    target.tuned.insert(key, tile);
                }
                None => wanted.push((key, self.promising(key, tiles))),
            }
        }
        self.compile(target, kind, &wanted)?;
        let mut measured = Vec::with_capacity(wanted.len());
        // Once passes are short they stay so.
        let mut whole = false;
        for (key, tiles) in wanted {
            whole = whole || self.estimate_pass(target, kind)? <= PASS_SECONDS;
            let by = if whole { Judge::Sample } else { Judge::Alone };
            let near = self.judge(target, kind, key, &tiles, by)?;
            measured.push((key, product_name(key, target.relay), near));
        }
        // Each product was judged while those after it had their usual tiles. Judge it again beside the chosen tiles.
        for (key, name, near) in &measured {
            if near.len() > 1 {
                let by = if kind.rows <= FEW_ROWS { Judge::Whole } else { Judge::Sample };
                self.judge(target, kind, *key, near, by)?;
            }
            if let Some(&tile) = target.tuned.get(key) {
                log::info!("{name}: {tile:?}");
                choices.set_tile(name.clone(), tile);
            }
        }
        Ok(measured.len())
    }

    /// Decides whether dispatches are relayed, by whole passes of one row. Returns the number of choices measured.
    fn choose_relay(&mut self, target: &mut Target, kind: PassKind, choices: &mut Choices) -> Result<usize> {
        let weights = self.schedule.weights.bytes();
        if let Some(relay) = choices.relay(weights) {
            target.relay = relay;
            return Ok(0);
        }
        // With the usual tiles, since a tile tuned with relay is not tuned without it. Relay makes the larger
        // difference.
        let mut seconds = [0.0; 2];
        for relay in [false, true] {
            target.relay = relay;
            seconds[usize::from(relay)] = self.estimate_pass(target, kind)?;
        }
        let stalled = self.take_stalled()?;
        target.relay = seconds[1] < seconds[0] && !stalled;
        if stalled {
            // It would stall again.
            self.timing.free(self.queue);
            log::info!("dispatches are not relayed: this device does not start them in order");
        }
        log::info!("a pass takes {:.3} ms, with relayed dispatches {:.3} ms", seconds[0] * 1e3, seconds[1] * 1e3);
        choices.set_relay(weights, target.relay);
        Ok(1)
    }

    /// Of the tiles of a product, those that were good for more rows, or were not tried there.
    fn promising(&self, key: Key, mut tiles: Vec<Tile>) -> Vec<Tile> {
        if let Some(ranked) = self.ranked.get(&without_rows(key)) {
            let kept = (ranked.len() / PROMISING).max(LEAST_PROMISING);
            tiles.retain(|tile| ranked.iter().position(|r| r == tile).is_none_or(|at| at < kept));
        }
        tiles
    }

    /// Decides how products are computed, by passes, and tunes the products. Returns the number of choices measured.
    fn choose_way(&mut self, target: &mut Target, kind: PassKind, choices: &mut Choices) -> Result<usize> {
        let weights = self.schedule.weights.bytes();
        let ways = self.ways(target, kind);
        if ways.len() > 1 && !target.chosen.contains_key(&kind.rows) {
            let Some(known) = choices.way(weights, kind.rows).filter(|way| ways.contains(way)) else {
                return self.measure_ways(target, kind, &ways, choices);
            };
            take_way(target, kind, known);
        }
        self.tune_products(target, kind, choices)
    }

    /// The ways that are worth measuring.
    fn ways(&self, target: &Target, kind: PassKind) -> Vec<Way> {
        // What only few of the weights can have, such as an INT8 head behind layers in INT4, changes no pass by much.
        let format = self.schedule.weights.format();
        let mut ways = Vec::new();
        for arithmetic in target.arithmetics(format, kind.rows) {
            let gated = Way { arithmetic, gated: true };
            let mut tried = target.clone();
            take_way(&mut tried, kind, gated);
            let is_gated = |(by, product): &Key| matches!(by, Arithmetic::Matrix(_)) && product.gelu;
            if self.products(&tried, kind).iter().any(is_gated) {
                ways.push(gated);
            }
            ways.push(Way { gated: false, ..gated });
        }
        ways
    }

    /// Compares ways, each with its own best tiles.
    fn measure_ways(
        &mut self,
        target: &mut Target,
        kind: PassKind,
        ways: &[Way],
        choices: &mut Choices,
    ) -> Result<usize> {
        let mut usual = Vec::with_capacity(ways.len());
        for &way in ways {
            take_way(target, kind, way);
            usual.push((self.estimate_pass(target, kind)?, way));
        }
        usual.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut measured, mut best) = (1, (NEVER, ways[0]));
        for (seconds, way) in usual {
            let hopeless = if way.gated { HOPELESS_GATED } else { HOPELESS_WAY };
            if seconds > hopeless * best.0 {
                log::info!("a pass of {kind} takes {:.3} ms by {way:?} with the usual tiles", seconds * 1e3);
                continue;
            }
            take_way(target, kind, way);
            measured += self.tune_products(target, kind, choices)?;
            let seconds = self.estimate_pass(target, kind)?;
            log::info!("a pass of {kind} takes {:.3} ms by {way:?}", seconds * 1e3);
            if seconds < best.0 {
                best = (seconds, way);
            }
        }
        take_way(target, kind, best.1);
        choices.set_way(self.schedule.weights.bytes(), kind.rows, best.1);
        Ok(measured)
    }

    /// Decides how rows of one sequence attend. Returns the number of choices measured.
    fn choose_attention(&mut self, target: &mut Target, kind: PassKind, choices: &mut Choices) -> Result<usize> {
        let ways = self.lowering(target, kind).attends();
        if ways.len() < 2 {
            return Ok(0);
        }
        let depth = self.depth(kind);
        let name = pass_name(self.schedule.weights.bytes(), kind, depth);
        if let Some(known) = choices.attend(&name).filter(|way| ways.contains(way)) {
            target.attend.insert(kind.rows, known);
            return Ok(0);
        }
        let mut best = (NEVER, ways[0]);
        for way in ways {
            target.attend.insert(kind.rows, way);
            let seconds = self.estimate_pass(target, kind)?;
            log::debug!("{name}: {:.3} ms by {way:?}", seconds * 1e3);
            if seconds < best.0 {
                best = (seconds, way);
            }
        }
        target.attend.insert(kind.rows, best.1);
        log::info!("{name}: attention by {:?}", best.1);
        choices.set_attend(name, best.1);
        Ok(1)
    }

    /// Measures how long a pass takes, by which passes of fewer rows choose a kind. Returns the number of measurements.
    fn time_kind(&mut self, target: &mut Target, kind: PassKind, choices: &mut Choices) -> Result<usize> {
        let depth = self.depth(kind);
        let name = pass_name(self.schedule.weights.bytes(), kind, depth);
        if let Some(known) = choices.seconds(&name) {
            target.seconds.insert((kind.rows, kind.order), known);
            return Ok(0);
        }
        let seconds = self.estimate_pass(target, kind)?;
        log::info!("{name}: a pass takes {:.3} ms", seconds * 1e3);
        target.seconds.insert((kind.rows, kind.order), seconds);
        choices.set_seconds(name, seconds);
        Ok(1)
    }

    /// The position of a measured pass's first row.
    fn depth(&self, kind: PassKind) -> usize {
        DEPTH.min(self.schedule.extent.context.saturating_sub(kind.rows))
    }

    /// The dispatches of a pass, segment by segment.
    fn pass(&self, target: &Target, kind: PassKind) -> Vec<Vec<Dispatch>> {
        self.schedule.segments().map(|s| self.lowering(target, kind).segment(s)).collect()
    }

    fn lowering<'t>(&'t self, target: &'t Target, kind: PassKind) -> Lowering<'t> {
        Lowering { schedule: self.schedule, layout: self.layout, addresses: self.addresses, target, kind }
    }

    /// The dispatches of a pass that compute one product.
    fn dispatches(&self, target: &Target, kind: PassKind, key: Key) -> Vec<Dispatch> {
        self.pass(target, kind).into_iter().flatten().filter(|d| d.product == Some(key)).collect()
    }

    /// The products of a pass that have tiles to choose from.
    fn products(&self, target: &Target, kind: PassKind) -> Vec<Key> {
        let mut products = Vec::new();
        for product in self.pass(target, kind).iter().flatten().filter_map(|d| d.product) {
            if !products.contains(&product) {
                products.push(product);
            }
        }
        products
    }

    /// Sets the fastest tile of a product, or of tiles for many rows that are timed alone the first that is as fast but for
    /// [`TIE`]. Returns the tiles that come near it.
    ///
    /// Where the product is timed alone, no tiles are returned.
    fn judge(&mut self, target: &mut Target, kind: PassKind, key: Key, tiles: &[Tile], by: Judge) -> Result<Vec<Tile>> {
        let mut judged = Vec::with_capacity(tiles.len());
        let mut best = NEVER;
        for &tile in tiles {
            target.tuned.insert(key, tile);
            let seconds = match by {
                Judge::Alone => self.time_alone(target, kind, key, best)?,
                Judge::Sample | Judge::Whole => self.time_pass(target, kind, best, by == Judge::Whole)?,
            };
            best = best.min(seconds);
            log::debug!("{}: {tile:?}, {by:?} {:.1} us", product_name(key, target.relay), seconds * 1e6);
            judged.push((seconds, tile));
        }
        let tie = if by == Judge::Alone && kind.rows > FEW_ROWS { TIE } else { 1.0 };
        let Some(tile) = first_within(&judged, tie) else { return Ok(Vec::new()) };
        target.tuned.insert(key, tile);
        judged.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.rank(key, judged.iter().map(|j| j.1));
        Ok(if by == Judge::Alone { Vec::new() } else { near(&judged, kind.rows) })
    }

    /// Keeps the order of a product's tiles for fewer rows. One row's say nothing of more.
    fn rank(&mut self, key: Key, judged: impl Iterator<Item = Tile>) {
        if key.1.rows == 1 {
            return;
        }
        let ranked = self.ranked.entry(without_rows(key)).or_default();
        let mut all: Vec<Tile> = judged.collect();
        // What was not tried again stays behind.
        let rest: Vec<Tile> = ranked.iter().filter(|tile| !all.contains(tile)).copied().collect();
        all.extend(rest);
        *ranked = all;
    }

    /// Compiles the pipelines of products' tiles in parallel. All together, so that the device is idle only once.
    fn compile(&mut self, target: &Target, kind: PassKind, wanted: &[(Key, Vec<Tile>)]) -> Result<()> {
        let mut kernels = Vec::new();
        for (key, tiles) in wanted {
            let mut tried = target.clone();
            for &tile in tiles {
                tried.tuned.insert(*key, tile);
                kernels.extend(self.dispatches(&tried, kind, *key).into_iter().map(|d| d.kernel));
            }
        }
        let start = Instant::now();
        let compiled = self.pipelines.get(&kernels).map(drop);
        self.compiling += start.elapsed();
        compiled
    }

    /// Mean seconds of a product's dispatches, each behind a barrier. `best`: see `others` of [`Tuner::time`].
    fn time_alone(&mut self, target: &Target, kind: PassKind, key: Key, best: f64) -> Result<f64> {
        let own = self.dispatches(target, kind, key).into_iter().take(DISPATCHES);
        let dispatches: Vec<_> = own.map(|d| Dispatch { barrier: true, ..d }).collect();
        // One dispatch says how many fit the submit budget.
        let one = self.time(kind, &[&dispatches[..1]], target.relay, NEVER)?;
        let count = ((self.submit_budget.as_secs_f64() / one.max(1e-9)) as usize).clamp(1, dispatches.len());
        Ok(self.time(kind, &[&dispatches[..count]], target.relay, count as f64 * best)? / count as f64)
    }

    /// Seconds of a pass. Of a long one they are estimated: the sampled layers stand for all, or the first one does where it
    /// takes long itself, since a submit has a budget.
    fn estimate_pass(&mut self, target: &Target, kind: PassKind) -> Result<f64> {
        let layers = self.schedule.shape.layers.len();
        let lower = |this: &Self, segment| this.lowering(target, kind).segment(segment);
        let first = lower(self, Segment::Layer(0));
        let mut layer = self.time(kind, &[&first], target.relay, NEVER)?;
        if layer * layers as f64 <= PASS_SECONDS {
            return self.time_pass(target, kind, NEVER, true);
        }
        let sample = sampled(layers);
        if layer * sample.len() as f64 <= PASS_SECONDS {
            let sample: Vec<_> = sample.into_iter().map(|i| lower(self, Segment::Layer(i))).collect();
            let parts: Vec<&[Dispatch]> = sample.iter().map(Vec::as_slice).collect();
            layer = self.time(kind, &parts, target.relay, NEVER)? / parts.len() as f64;
        }
        let head = lower(self, Segment::Head);
        Ok(layers as f64 * layer + self.time(kind, &[&head], target.relay, NEVER)?)
    }

    /// Seconds of a pass in one submit: of all layers or of the sampled ones. `best`: see `others` of [`Tuner::time`].
    fn time_pass(&mut self, target: &Target, kind: PassKind, best: f64, all: bool) -> Result<f64> {
        let sample = sampled(self.schedule.shape.layers.len());
        let is_in = |segment: &Segment| match segment {
            Segment::Layer(i) => all || sample.contains(i),
            Segment::Embed | Segment::Head => true,
            // Asked for by few passes.
            Segment::Choice => false,
        };
        let segments = self.schedule.segments().filter(is_in);
        let segments: Vec<_> = segments.map(|s| self.lowering(target, kind).segment(s)).collect();
        let parts: Vec<&[Dispatch]> = segments.iter().map(Vec::as_slice).collect();
        self.time(kind, &parts, target.relay, best)
    }

    /// Whether a relayed dispatch gave up waiting. Clears the flag.
    fn take_stalled(&mut self) -> Result<bool> {
        let mut stalled = false;
        self.edit(|words| stalled = std::mem::take(&mut words[STALLED]) != 0)?;
        Ok(stalled)
    }

    /// Seconds of the fastest of several runs of a pass's dispatches. `others`: seconds of the best tile so far,
    /// see [`Timing::time`].
    fn time(&mut self, kind: PassKind, parts: &[&[Dispatch]], relay: bool, others: f64) -> Result<f64> {
        let Some(stamps) = StampPool::new(self.gpu, 1)? else { return Ok(NEVER) };
        let relay = relay.then(|| Relay::new(self.arena, self.layout));
        let commands = self.queue.bake(parts, self.pipelines, relay, Some(stamps.span(0)), &[])?;
        // This runs what was timed last, so the arena must not have changed yet.
        self.timing.warm_up(self.queue)?;
        self.prepare(kind)?;
        self.timing.time(self.queue, commands, stamps, others)
    }
}

/// Passes of as many rows as `kind` multiply so.
fn take_way(target: &mut Target, kind: PassKind, way: Way) {
    target.chosen.insert(kind.rows, way.arithmetic);
    target.gated.insert(kind.rows, way.gated);
}

/// A product's key for any number of rows.
fn without_rows((arithmetic, product): Key) -> Key {
    (arithmetic, Product { rows: 0, ..product })
}

/// Of what was judged, seconds first, the first that took no more than `tie` times the least.
fn first_within<T: Copy>(judged: &[(f64, T)], tie: f64) -> Option<T> {
    let least = judged.iter().map(|j| j.0).min_by(f64::total_cmp)?;
    judged.iter().find(|j| j.0 <= tie * least).map(|j| j.1)
}

/// Of what was judged, seconds first, the fastest first, what is to be judged again, in passes of `rows` rows.
fn near<T: Copy>(judged: &[(f64, T)], rows: usize) -> Vec<T> {
    let (factor, most) = if rows == 1 { (NEAR_ONE_ROW, judged.len()) } else { (NEAR, MOST_NEAR) };
    let Some(&(best, _)) = judged.first() else { return Vec::new() };
    judged.iter().take(most).take_while(|j| j.0 < factor * best).map(|j| j.1).collect()
}

/// The layers that stand for `layers` layers.
fn sampled(layers: usize) -> Vec<usize> {
    let count = layers.min(SAMPLE);
    (0..count).map(|i| i * layers / count).collect()
}

#[cfg(test)]
mod tests {
    use super::{MOST_NEAR, NEVER, first_within, near, sampled};

    #[test]
    fn the_first_of_equals_is_chosen() {
        let judged = [(1.04, 'a'), (1.02, 'b'), (1.0, 'c'), (NEVER, 'd')];
        assert_eq!((first_within(&judged, 1.0), first_within(&judged, 1.03)), (Some('c'), Some('b')));
        assert_eq!(first_within(&[(NEVER, 'a')], 1.03), Some('a'));
        assert_eq!(first_within::<char>(&[], 1.0), None);
    }

    #[test]
    fn near_tiles_are_few_but_for_one_row() {
        let judged: Vec<(f64, usize)> =
            (0..20).map(|i| (1.0 + 0.001 * i as f64, i)).chain([(1.03, 20), (1.05, 21)]).collect();
        assert_eq!(near(&judged, 1), Vec::from_iter(0..20));
        assert_eq!(near(&judged, 2), Vec::from_iter(0..MOST_NEAR));
        assert_eq!((near(&judged[19..], 1), near(&judged[19..], 32)), (vec![19, 20], vec![19, 20, 21]));
        assert_eq!(near(&[(NEVER, 'a')], 2), []);
        assert_eq!(near::<char>(&[], 2), []);
    }

    #[test]
    fn sampled_layers_are_spread_and_none_comes_twice() {
        assert_eq!(sampled(62), [0, 7, 15, 23, 31, 38, 46, 54]);
        assert_eq!(sampled(9), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sampled(3), [0, 1, 2]);
        assert!(sampled(0).is_empty());
    }
}
