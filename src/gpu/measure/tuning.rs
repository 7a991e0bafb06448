//! Tuning: measures which tile of each product is fastest, whether matrix units are faster on s8 than on f16, and
//! whether relayed dispatches are faster. It runs once per device and driver, on the model's own weights. The choices
//! are kept on disk ([`super::choices`]).

use super::choices::{Choices, product_name};
use crate::Result;
use crate::executor::{self, HeadRows, Row};
use crate::gpu::device::Gpu;
use crate::gpu::kernels::pipelines::Pipelines;
use crate::gpu::lower::arithmetic::Arithmetic;
use crate::gpu::lower::dispatch::{Addresses, Dispatch};
use crate::gpu::lower::layout::{GpuLayout, STALLED};
use crate::gpu::lower::target::{Product, Target, Tile};
use crate::gpu::lower::{Lowering, PassKind};
use crate::gpu::memory::Buffer;
use crate::gpu::queue::Queue;
use crate::gpu::queue::record::Relay;
use crate::gpu::queue::stamps::StampPool;
use crate::schedule::{Op, Schedule, Segment};
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest pass in which tiles are judged. If passes take longer, a product's dispatches are timed alone.
const PASS_SECONDS: f64 = 30e-3;
/// Most dispatches of a product that are timed alone.
const DISPATCHES: usize = 8;
/// Tiles within this factor of the best pass are judged again once the other products have their tiles.
const NEAR: f64 = 1.02;
/// Stop after this many runs without a 1 % gain.
const REPETITIONS: usize = 3;
const GAIN: f64 = 0.99;
/// Stop after this many runs in any case.
const MOST_REPETITIONS: usize = 40;
/// Stop after two runs if the best of them takes more than this times the best tile so far.
const HOPELESS: f64 = 1.1;
/// Slower than any measurement.
const NEVER: f64 = f64::INFINITY;
/// How long a device works before the first measurement counts: clocks rise under load.
const WARM_UP: Duration = Duration::from_millis(500);

/// The key of a chosen tile: a product, and the arithmetic that computes it.
type Key = (Arithmetic, Product);

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
    /// Whether the device has been warmed up.
    pub warm: bool,
}

impl Tuner<'_> {
    /// Fills `target` for passes of each of `kinds`: from the file of this device and driver, or by measuring.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the device failed.
    pub fn tune(&mut self, target: &mut Target, kinds: impl Iterator<Item = PassKind>) -> Result<()> {
        if self.gpu.caps.clock.is_none() {
            return Ok(());
        }
        let mut choices = Choices::open(self.gpu);
        for kind in kinds {
            let start = Instant::now();
            let mut measured = 0;
            // Relay comes first, so that tiles are judged in passes as they will run.
            if kind.rows == 1 && self.relay.is_none() && self.gpu.caps.tries_relay {
                measured += self.choose_relay(target, kind, &mut choices)?;
            }
            measured += self.choose_s8(target, kind, &mut choices)?;
            measured += self.tune_products(target, kind, &mut choices)?;
            if measured > 0 {
                let seconds = start.elapsed().as_secs_f64();
                log::info!(
                    "made {measured} choices of kernels for {} rows by measurement in {seconds:.2} s",
                    kind.rows
                );
                choices.save();
            }
        }
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
        self.schedule.arena.state.words()..(self.layout.scratch.attend / 4) as usize
    }

    /// Fills the arena as before a pass of this kind.
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
            let rows = vec![Row { token: 0, position: 0, sequence: 0 }; kind.rows];
            let head = HeadRows { first: 0, count: kind.head_rows };
            self.edit(|words| executor::write_pass(words, state, &rows, Some(head)))?;
            self.ready = Some(kind);
        }
        Ok(())
    }

    /// Fills `target` with the tile of each product of a pass. Returns how many products it measured.
    fn tune_products(&mut self, target: &mut Target, kind: PassKind, choices: &mut Choices) -> Result<usize> {
        let mut measured = Vec::new();
        for key in self.products(target, kind) {
            let tiles = target.tiles(key.0, key.1);
            let name = product_name(key, target.relay);
            match choices.tile(&name).filter(|t| tiles.contains(t)) {
                Some(tile) => {
                    target.tuned.insert(key, tile);
                }
                None => {
                    let near = self.judge(target, kind, key, &tiles)?;
                    measured.push((key, name, near));
                }
            }
        }
        // Each product was judged while those after it had their usual tiles. Judge it again beside the chosen tiles.
        for (key, name, near) in &measured {
            if near.len() > 1 {
                self.judge(target, kind, *key, near)?;
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
        let seconds = self.time_both(target, kind, |target, relay| target.relay = relay)?;
        let stalled = self.take_stalled()?;
        target.relay = seconds[1] < seconds[0] && !stalled;
        if stalled {
            log::info!("dispatches are not relayed: this device does not start them in order");
        }
        log::info!("a pass takes {:.3} ms, with relayed dispatches {:.3} ms", seconds[0] * 1e3, seconds[1] * 1e3);
        choices.set_relay(weights, target.relay);
        Ok(1)
    }

    /// Decides whether matrix units multiply s8 or f16, by whole passes. Does nothing if they cannot do both. Returns
    /// the number of choices measured.
    fn choose_s8(&mut self, target: &mut Target, kind: PassKind, choices: &mut Choices) -> Result<usize> {
        let can = |op: &Op| matches!(op, Op::Linear { weight, .. } if target.can_use_s8(weight.format, kind.rows));
        if target.s8.contains_key(&kind.rows) || !self.schedule.steps.iter().any(|s| can(&s.op)) {
            return Ok(0);
        }
        let weights = self.schedule.weights.bytes();
        if let Some(s8) = choices.s8(weights, kind.rows) {
            target.s8.insert(kind.rows, s8);
            return Ok(0);
        }
        let set = |target: &mut Target, s8| {
            target.s8.insert(kind.rows, s8);
        };
        // Compare each operand type with its own best tiles.
        let mut measured = 1;
        for s8 in [false, true] {
            set(target, s8);
            measured += self.tune_products(target, kind, choices)?;
        }
        let [f16, s8] = self.time_both(target, kind, set)?;
        log::info!("a pass of {} rows takes {:.3} ms in f16, {:.3} ms in s8", kind.rows, f16 * 1e3, s8 * 1e3);
        set(target, s8 < f16);
        choices.set_s8(weights, kind.rows, s8 < f16);
        Ok(measured)
    }

    /// Seconds of a pass with a setting off and on. Times whole passes or, if either takes too long, estimates both.
    fn time_both(&mut self, target: &mut Target, kind: PassKind, set: impl Fn(&mut Target, bool)) -> Result<[f64; 2]> {
        let mut seconds = [0.0; 2];
        for on in [false, true] {
            set(target, on);
            seconds[usize::from(on)] = self.estimate_pass(target, kind)?;
        }
        if seconds.iter().all(|&s| s <= PASS_SECONDS) {
            for on in [false, true] {
                set(target, on);
                seconds[usize::from(on)] = self.time_whole(target, kind, NEVER)?;
            }
        }
        Ok(seconds)
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

    /// Sets the fastest tile of a product and returns the tiles that come near it.
    ///
    /// Whole passes are timed, so that caches and address translation hold what the other steps left there. If passes
    /// take too long, the product is timed alone and no tiles are returned.
    fn judge(&mut self, target: &mut Target, kind: PassKind, key: Key, tiles: &[Tile]) -> Result<Vec<Tile>> {
        let whole = self.estimate_pass(target, kind)? <= PASS_SECONDS;
        self.compile(target, kind, key, tiles)?;
        let mut judged = Vec::with_capacity(tiles.len());
        let mut best = NEVER;
        for &tile in tiles {
            target.tuned.insert(key, tile);
            let seconds = match whole {
                true => self.time_whole(target, kind, best)?,
                false => self.time_alone(target, kind, key, best)?,
            };
            best = best.min(seconds);
            let what = if whole { "a pass" } else { "alone" };
            log::debug!("{}: {tile:?}, {what} {:.1} us", product_name(key, target.relay), seconds * 1e6);
            judged.push((seconds, tile));
        }
        judged.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(&(_, tile)) = judged.first() else { return Ok(Vec::new()) };
        target.tuned.insert(key, tile);
        let near = judged.iter().take_while(|j| whole && j.0 < NEAR * best);
        Ok(near.map(|j| j.1).collect())
    }

    /// Compiles the pipelines of a product's tiles in parallel.
    fn compile(&mut self, target: &mut Target, kind: PassKind, key: Key, tiles: &[Tile]) -> Result<()> {
        let mut kernels = Vec::new();
        for &tile in tiles {
            target.tuned.insert(key, tile);
            kernels.extend(self.dispatches(target, kind, key).into_iter().map(|d| d.kernel));
        }
        self.pipelines.get(&kernels).map(drop)
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

    /// Estimated seconds of a pass: its first layer times the number of layers. A whole pass may exceed the submit
    /// budget.
    fn estimate_pass(&mut self, target: &Target, kind: PassKind) -> Result<f64> {
        let first = self.lowering(target, kind).segment(Segment::Layer(0));
        Ok(self.schedule.shape.layers.len() as f64 * self.time(kind, &[&first], target.relay, NEVER)?)
    }

    /// Seconds of a whole pass, in one submit. `best`: see `others` of [`Tuner::time`].
    fn time_whole(&mut self, target: &Target, kind: PassKind, best: f64) -> Result<f64> {
        let segments = self.pass(target, kind);
        self.time(kind, &segments.iter().map(Vec::as_slice).collect::<Vec<_>>(), target.relay, best)
    }

    /// Whether a relayed dispatch gave up waiting. Clears the flag.
    fn take_stalled(&mut self) -> Result<bool> {
        let mut stalled = false;
        self.edit(|words| stalled = std::mem::take(&mut words[STALLED]) != 0)?;
        Ok(stalled)
    }

    /// Seconds of the fastest of several runs of a pass's dispatches. `others`: seconds of the best tile so far; a
    /// hopelessly slower tile gets only two runs.
    fn time(&mut self, kind: PassKind, parts: &[&[Dispatch]], relay: bool, others: f64) -> Result<f64> {
        self.prepare(kind)?;
        let Some(mut stamps) = StampPool::new(self.gpu, 1)? else { return Ok(NEVER) };
        let relay = relay.then(|| Relay::new(self.arena, self.layout));
        let commands = self.queue.bake(parts, self.pipelines, relay, Some(stamps.span(0)), &[])?;
        let start = Instant::now();
        let (mut best, mut same, mut runs) = (NEVER, 0, 0);
        while same < REPETITIONS && runs < MOST_REPETITIONS || !self.warm && start.elapsed() < WARM_UP {
            // SAFETY: the command buffer is waited for below, each time.
            unsafe { self.queue.submit(&[commands], true) }?;
            self.queue.wait()?;
            let seconds: f64 = stamps.read()?.sum();
            same = if seconds < GAIN * best { 0 } else { same + 1 };
            best = best.min(seconds);
            runs += 1;
            if runs > 1 && best > HOPELESS * others {
                break;
            }
        }
        self.warm = true;
        self.queue.free(&[commands]);
        Ok(best)
    }
}
