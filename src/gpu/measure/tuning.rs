//! Tuning: which variant of a linear kernel a device runs fastest, measured once on the model's own weights and kept on
//! disk.

use crate::Result;
use crate::executor::{self, HeadRows, Row};
use crate::gpu::device::Gpu;
use crate::gpu::kernels::pipelines::Pipelines;
use crate::gpu::kernels::{Module, fingerprint};
use crate::gpu::lower::dispatch::{Addresses, Dispatch};
use crate::gpu::lower::linear::{Family, Product, Target, Variant};
use crate::gpu::lower::{Batch, lower};
use crate::gpu::memory::Buffer;
use crate::gpu::queue::Queue;
use crate::gpu::queue::record::Relay;
use crate::gpu::queue::stamps::StampPool;
use crate::machine::cache;
use crate::schedule::layout::StateLayout;
use crate::schedule::{Op, Schedule, Segment};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Variants are judged in whole passes where those take no longer, else by so many dispatches of their own
/// at most.
const PASS_SECONDS: f64 = 30e-3;
const DISPATCHES: usize = 8;
/// How much longer than the best a pass with a variant may take, for that to be judged again when the others are chosen.
const NEAR: f64 = 1.02;
/// Measurements in a row that must not be quicker, by `GAIN`, than the ones before; of all the quickest counts. And how many
/// there are at most.
const REPETITIONS: usize = 3;
const GAIN: f64 = 0.99;
const MOST_REPETITIONS: usize = 40;
/// No measurement is this slow.
const NEVER: f64 = f64::INFINITY;
/// How much longer than the best so far a measurement may take, for its like to follow.
const HOPELESS: f64 = 1.1;
/// How long a device works before anything is measured: clocks rise under load.
const WARM_UP: Duration = Duration::from_millis(500);

/// To be raised when what a choice means changes elsewhere than in the kernels: how they are judged, or laid out in groups.
const VERSION: u32 = 1;

/// What is kept of measurements: products' variants by name, by bytes of weights whether relayed dispatches help, and by
/// those and a pass's rows whether its products are of bytes.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Known {
    products: BTreeMap<String, Variant>,
    relay: BTreeMap<u64, bool>,
    bytes: BTreeMap<String, bool>,
}

/// What is measured for, and with what.
pub(crate) struct Tuner<'a> {
    /// The device.
    pub gpu: &'a Rc<Gpu>,
    /// Its queue.
    pub queue: &'a Queue,
    /// Its pipelines.
    pub pipelines: &'a mut Pipelines,
    /// The model.
    pub schedule: &'a Schedule,
    /// Where the device sees the model's weights.
    pub addresses: &'a Addresses,
    /// The arena, whose first words are the step state.
    pub arena: &'a mut Buffer,
    /// The longest that one submit should keep the device busy.
    pub submit_budget: Duration,
    /// Whether dispatches are relayed, where that is not to be measured.
    pub relay: Option<bool>,
    /// The pass that the step state is of; none until something is measured.
    pub ready: Option<Batch>,
    /// Whether the device has worked for a while.
    pub warm: bool,
}

impl Tuner<'_> {
    /// Fills `target` for passes of each of `batches`: from the file of this device and driver, or by measuring.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the device failed.
    pub(crate) fn tune(&mut self, target: &mut Target, batches: impl Iterator<Item = Batch>) -> Result<()> {
        if self.gpu.caps.clock.is_none() {
            return Ok(());
        }
        let file = file(self.gpu);
        let mut known: Known = file.as_deref().map(read).unwrap_or_default();
        for batch in batches {
            let start = Instant::now();
            let mut measured = 0;
            // First, so that variants are judged in passes as they will run.
            if batch.rows == 1 && self.relay.is_none() {
                measured += self.choose_relay(target, batch, &mut known)?;
            }
            measured += self.choose_bytes(target, batch, &mut known)?;
            measured += self.tune_products(target, batch, &mut known)?;
            if measured == 0 {
                continue;
            }
            let seconds = start.elapsed().as_secs_f64();
            log::info!("made {measured} choices of kernels for {} rows by measurement in {seconds:.2} s", batch.rows);
            if let Some(file) = &file {
                write(file, &known);
            }
        }
        if self.ready.is_some() {
            // Pad columns are zero, and what a variant waited for in vain is no pass's fault.
            let slots = self.slots();
            self.arena.write(|words| {
                words[slots].fill(0);
                words[StateLayout::STALLED] = 0;
            })?;
        }
        Ok(())
    }

    /// The words of the arena's slots.
    fn slots(&self) -> Range<usize> {
        self.schedule.arena.state.words()..(self.schedule.scratch.attend / 4) as usize
    }

    /// Makes the arena what a pass would find there.
    fn prepare(&mut self, batch: Batch) -> Result<()> {
        let (slots, layout) = (self.slots(), self.schedule.arena.state);
        if self.ready.is_none() {
            // Zeros would be read and multiplied at less power, and so faster, than what a model computes.
            self.arena.write(|words| {
                for (i, word) in words[slots].iter_mut().enumerate() {
                    // f16 pairs of 0.5 to 1 and small f32s, whichever they are read as.
                    *word = 0x3800_3800 | (i as u32).wrapping_mul(0x9e37_79b9) >> 3 & 0x03ff_03ff;
                }
            })?;
        }
        if self.ready != Some(batch) {
            let rows = vec![Row { token: 0, position: 0, sequence: 0 }; batch.rows];
            let head = HeadRows { first: 0, count: batch.head_rows };
            self.arena.write(|words| executor::write_pass(words, layout, &rows, Some(head)))?;
            self.ready = Some(batch);
        }
        Ok(())
    }

    /// Fills `target` with the variant of each product of a pass; returns how many it measured.
    fn tune_products(&mut self, target: &mut Target, batch: Batch, known: &mut Known) -> Result<usize> {
        let mut measured = Vec::new();
        for key in self.products(target, batch) {
            let variants = target.variants(key.0, key.1);
            let name = name(key.0, key.1, target.relay);
            match known.products.get(&name).filter(|v| variants.contains(v)) {
                Some(&v) => {
                    target.tuned.insert(key, v);
                }
                None => {
                    let near = self.judge(target, batch, key, &variants)?;
                    measured.push((key, name, near));
                }
            }
        }
        // Each was judged among the usual variants of those that came after it: once more, among those chosen.
        for (key, name, near) in &measured {
            if near.len() > 1 {
                self.judge(target, batch, *key, near)?;
            }
            if let Some(&variant) = target.tuned.get(key) {
                log::info!("{name}: {variant:?}");
                known.products.insert(name.clone(), variant);
            }
        }
        Ok(measured.len())
    }

    /// Decides whether dispatches are relayed, by whole passes of a row. Returns how much it measured.
    fn choose_relay(&mut self, target: &mut Target, batch: Batch, known: &mut Known) -> Result<usize> {
        let weights = self.schedule.weights.bytes();
        if let Some(&relay) = known.relay.get(&weights) {
            target.relay = relay;
            return Ok(0);
        }
        // By the usual variants: what is tuned for one way is not for the other, and the difference is larger than theirs.
        let seconds = self.time_both(target, batch, |target, relay| target.relay = relay)?;
        let stalled = self.take_stalled()?;
        target.relay = seconds[1] < seconds[0] && !stalled;
        if stalled {
            log::info!("dispatches are not relayed: this device does not start them in order");
        }
        log::info!("a pass takes {:.3} ms, with relayed dispatches {:.3} ms", seconds[0] * 1e3, seconds[1] * 1e3);
        known.relay.insert(weights, target.relay);
        Ok(1)
    }

    /// Decides whether a pass's matrix products are of bytes, where they can be, by whole passes. Returns how much it
    /// measured.
    fn choose_bytes(&mut self, target: &mut Target, batch: Batch, known: &mut Known) -> Result<usize> {
        let weights = &self.schedule.weights;
        if !target.can_use_bytes(weights.format, batch.rows) || target.bytes.contains_key(&batch.rows) {
            return Ok(0);
        }
        let name = format!("{} bytes of weights, {} rows", weights.bytes(), batch.rows);
        if let Some(&bytes) = known.bytes.get(&name) {
            target.bytes.insert(batch.rows, bytes);
            return Ok(0);
        }
        let set = |target: &mut Target, bytes| {
            target.bytes.insert(batch.rows, bytes);
        };
        // Each way with its products' best variants.
        let mut measured = 1;
        for bytes in [false, true] {
            set(target, bytes);
            measured += self.tune_products(target, batch, known)?;
        }
        let [half, bytes] = self.time_both(target, batch, set)?;
        log::info!("a pass of {} rows takes {:.3} ms, by bytes {:.3} ms", batch.rows, half * 1e3, bytes * 1e3);
        target.bytes.insert(batch.rows, bytes < half);
        known.bytes.insert(name, bytes < half);
        Ok(measured)
    }

    /// Seconds of a pass without and with something: of both as a whole or, where either takes too long, as estimated.
    fn time_both(&mut self, target: &mut Target, batch: Batch, set: impl Fn(&mut Target, bool)) -> Result<[f64; 2]> {
        let mut seconds = [0.0; 2];
        for on in [false, true] {
            set(target, on);
            seconds[usize::from(on)] = self.estimate_pass(target, batch)?;
        }
        if seconds.iter().all(|&s| s <= PASS_SECONDS) {
            for on in [false, true] {
                set(target, on);
                seconds[usize::from(on)] = self.time_whole(target, batch, NEVER)?;
            }
        }
        Ok(seconds)
    }

    fn segments(&self) -> Vec<Segment> {
        self.schedule.segments().collect()
    }

    /// Every dispatch of a tunable kernel, with its family and product.
    fn dispatches(&self, target: &Target, batch: Batch) -> Vec<((Family, Product), Dispatch)> {
        let lowered = self.segments().into_iter().flat_map(|s| lower(self.schedule, s, batch, target, self.addresses));
        lowered.filter_map(|d| Some((product(self.schedule, &d, batch)?, d))).collect()
    }

    fn products(&self, target: &Target, batch: Batch) -> Vec<(Family, Product)> {
        let mut products = Vec::new();
        for (p, _) in self.dispatches(target, batch) {
            if !products.contains(&p) {
                products.push(p);
            }
        }
        products
    }

    /// Sets the variant of a product that is fastest in a whole pass, where caches and address translation hold what other
    /// steps left there, or by itself where passes take too long. Returns those that come near it in a pass.
    fn judge(
        &mut self,
        target: &mut Target,
        batch: Batch,
        key: (Family, Product),
        variants: &[Variant],
    ) -> Result<Vec<Variant>> {
        let whole = self.estimate_pass(target, batch)? <= PASS_SECONDS;
        self.compile(target, batch, key, variants)?;
        let mut judged = Vec::with_capacity(variants.len());
        let mut best = NEVER;
        for &variant in variants {
            target.tuned.insert(key, variant);
            let seconds = match whole {
                true => self.time_whole(target, batch, best)?,
                false => self.time_alone(target, batch, key, best)?,
            };
            best = best.min(seconds);
            let what = if whole { "a pass" } else { "alone" };
            log::debug!("{}: {variant:?}, {what} {:.1} us", name(key.0, key.1, target.relay), seconds * 1e6);
            judged.push((seconds, variant));
        }
        judged.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(&(_, variant)) = judged.first() else { return Ok(Vec::new()) };
        target.tuned.insert(key, variant);
        let near = judged.iter().take_while(|j| whole && j.0 < NEAR * best);
        Ok(near.map(|j| j.1).collect())
    }

    /// Compiles what passes with each of a product's variants are made of, all of it side by side.
    fn compile(
        &mut self,
        target: &mut Target,
        batch: Batch,
        key: (Family, Product),
        variants: &[Variant],
    ) -> Result<()> {
        let mut kernels = Vec::new();
        for &variant in variants {
            target.tuned.insert(key, variant);
            let own = self.dispatches(target, batch).into_iter().filter(|(k, _)| *k == key);
            kernels.extend(own.map(|(_, d)| d.kernel));
        }
        self.pipelines.get(&kernels).map(drop)
    }

    /// Seconds of a product, each dispatch behind the one before; `others` as in [`Tuner::time`].
    fn time_alone(&mut self, target: &Target, batch: Batch, key: (Family, Product), others: f64) -> Result<f64> {
        let own = self.dispatches(target, batch).into_iter().filter(|(k, _)| *k == key).take(DISPATCHES);
        let dispatches: Vec<_> = own.map(|(_, d)| Dispatch { barrier: true, ..d }).collect();
        // One says how many a submit has time for.
        let one = self.time(batch, &[&dispatches[..1]], target.relay, NEVER)?;
        let count = ((self.submit_budget.as_secs_f64() / one.max(1e-9)) as usize).clamp(1, dispatches.len());
        let others = count as f64 * others;
        Ok(self.time(batch, &[&dispatches[..count]], target.relay, others)? / count as f64)
    }

    /// Seconds of a pass, by its first layer: no submit should keep a device as long as a whole one may.
    fn estimate_pass(&mut self, target: &Target, batch: Batch) -> Result<f64> {
        let first = lower(self.schedule, Segment::Layer(0), batch, target, self.addresses);
        Ok(self.schedule.shape.layers.len() as f64 * self.time(batch, &[&first], target.relay, NEVER)?)
    }

    /// Seconds of a whole pass, in one submit; `others` as in [`Tuner::time`].
    fn time_whole(&mut self, target: &Target, batch: Batch, others: f64) -> Result<f64> {
        let lower = |s| lower(self.schedule, s, batch, target, self.addresses);
        let segments: Vec<Vec<Dispatch>> = self.segments().into_iter().map(lower).collect();
        self.time(batch, &segments.iter().map(Vec::as_slice).collect::<Vec<_>>(), target.relay, others)
    }

    /// Whether a dispatch waited in vain since this was last asked.
    fn take_stalled(&mut self) -> Result<bool> {
        let mut stalled = false;
        self.arena.write(|words| stalled = std::mem::take(&mut words[StateLayout::STALLED]) != 0)?;
        Ok(stalled)
    }

    /// Seconds of dispatches of a pass, the quickest of some runs: of a few only where the first are hopelessly slower than
    /// `others`.
    fn time(&mut self, batch: Batch, parts: &[&[Dispatch]], relay: bool, others: f64) -> Result<f64> {
        self.prepare(batch)?;
        let Some(mut stamps) = StampPool::new(self.gpu, 1)? else { return Ok(f64::INFINITY) };
        let relay = relay.then(|| Relay::new(self.arena, self.schedule));
        let commands = self.queue.bake(parts, self.pipelines, relay, Some(stamps.span(0)), &[])?;
        let start = Instant::now();
        let (mut best, mut same, mut runs) = (f64::INFINITY, 0, 0);
        while same < REPETITIONS && runs < MOST_REPETITIONS || !self.warm && start.elapsed() < WARM_UP {
            self.queue.submit(&[commands], true)?;
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

/// The family and product of a dispatch of a tunable kernel.
fn product(schedule: &Schedule, dispatch: &Dispatch, batch: Batch) -> Option<(Family, Product)> {
    let (family, gelu) = match dispatch.kernel.module {
        Module::LinearDotInt8 => (Family::Dot, false),
        Module::LinearDotGeluInt8 => (Family::Dot, true),
        Module::LinearMatrixInt8 | Module::LinearFragmentInt8 | Module::LinearFragmentTallInt8 => {
            (Family::Matrix, false)
        }
        Module::LinearBytesInt8 | Module::LinearBytesNarrowInt8 => (Family::Bytes, false),
        _ => return None,
    };
    let step = schedule.steps.get(dispatch.steps.start)?;
    let Op::Linear { weight, .. } = step.op else { return None };
    Some((family, Product::new(weight, batch.count(step.rows), gelu)))
}

/// As the file and the log name a product.
fn name(family: Family, p: Product, relay: bool) -> String {
    let by = if family == Family::Bytes { ", by bytes" } else { "" };
    let relayed = if relay { ", relayed" } else { "" };
    format!("{}{} x {}, {} rows{by}{relayed}", if p.gelu { "2 x " } else { "" }, p.outputs, p.inputs, p.rows)
}

fn file(gpu: &Gpu) -> Option<PathBuf> {
    let name = format!("tuning-{VERSION}-{:016x}-{}.json", fingerprint(), gpu.caps.cache_id);
    cache::directory().map(|directory| directory.join(name))
}

/// What an earlier start measured; nothing where the file cannot be read or understood.
fn read(file: &Path) -> Known {
    std::fs::read(file).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
}

/// Keeps what was measured. A failure costs only that the next start measures again.
fn write(file: &Path, known: &Known) {
    let text = serde_json::to_vec_pretty(known).unwrap_or_default();
    if cache::write(file, &text).is_none() {
        log::warn!("the tuning file {} cannot be written: every start measures anew", file.display());
    }
}
