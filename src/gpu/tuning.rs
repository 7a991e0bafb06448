//! Tuning: which variant of a linear kernel a device runs fastest, measured once on the model's own weights and kept on
//! disk.

use super::bake::Queue;
use super::device::Gpu;
use super::dispatch::{Addresses, Dispatch};
use super::kernels::{Module, Pipelines, cache_directory};
use super::linear::{Family, Product, Target, Variant};
use super::lower::{Batch, lower};
use super::memory::Buffer;
use super::record::Relay;
use super::stamps::StampPool;
use crate::Result;
use crate::schedule::layout::StateLayout;
use crate::schedule::{Op, Schedule, Segment};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

/// Seconds of a measurement at most, and dispatches at least: as many layers as there is time for, because what the last
/// ones left in caches and address translation is not what a pass finds.
const SECONDS: f64 = 10e-3;
const DISPATCHES: usize = 4;
/// How much longer than the quickest a variant may take by itself to be judged in a pass, and how long a pass may take.
const NEAR: f64 = 1.1;
const PASS_SECONDS: f64 = 30e-3;
/// Measurements of each variant, of which the quickest counts.
const REPETITIONS: usize = 3;

/// What is kept of measurements: products' variants by name, by bytes of weights whether relayed dispatches help, and by
/// those and a pass's rows whether its products are of bytes.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Known {
    products: BTreeMap<String, Variant>,
    relay: BTreeMap<u64, bool>,
    bytes: BTreeMap<String, bool>,
}

/// What is measured for, and with what.
pub struct Tuner<'a> {
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
}

impl Tuner<'_> {
    /// Fills `target` for passes of each of `batches`: from the file of this device and driver, or by measuring. The step
    /// state must say that as many rows are live.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the device failed.
    pub fn tune(&mut self, target: &mut Target, batch: Batch) -> Result<()> {
        if self.gpu.caps.clock.is_none() {
            return Ok(());
        }
        let file = file(self.gpu);
        let mut known: Known = file.as_deref().map(read).unwrap_or_default();
        let start = Instant::now();
        let mut measured = 0;
        // First, so that variants are judged in passes as they will run.
        if batch.rows == 1 {
            measured += self.choose_relay(target, batch, &mut known)?;
        }
        measured += self.choose_bytes(target, batch, &mut known)?;
        measured += self.tune_products(target, batch, &mut known)?;
        if measured > 0 {
            log::info!("made {measured} choices of kernels by measurement in {:.2} s", start.elapsed().as_secs_f64());
            if let Some(file) = file {
                write(&file, &known);
            }
        }
        Ok(())
    }

    /// Fills `target` with the variant of each product of a pass; returns how many it measured.
    fn tune_products(&mut self, target: &mut Target, batch: Batch, known: &mut Known) -> Result<usize> {
        let mut measured = 0;
        for (family, product) in self.products(target, batch) {
            let name = name(family, product, target.relay);
            let variants = target.variants(family, product);
            let variant = match known.products.get(&name).filter(|v| variants.contains(v)) {
                Some(&v) => v,
                None => {
                    measured += 1;
                    match self.fastest(target, batch, (family, product), &variants)? {
                        Some(v) => v,
                        None => continue,
                    }
                }
            };
            known.products.insert(name, variant);
            target.tuned.insert((family, product), variant);
        }
        Ok(measured)
    }

    /// Decides whether dispatches are relayed, by whole passes of a row. Returns how much it measured.
    fn choose_relay(&mut self, target: &mut Target, batch: Batch, known: &mut Known) -> Result<usize> {
        let weights = self.schedule.weights.bytes();
        if let Some(&relay) = known.relay.get(&weights) {
            target.relay = relay;
            return Ok(0);
        }
        let (seconds, measured) = self.compare(target, batch, known, |target, relay| target.relay = relay)?;
        let stalled = self.take_stalled();
        target.relay = seconds[1] < seconds[0] && !stalled;
        if stalled {
            log::info!("dispatches are not relayed: this device does not start them in order");
        }
        log::info!("a pass takes {:.3} ms, with relayed dispatches {:.3} ms", seconds[0] * 1e3, seconds[1] * 1e3);
        known.relay.insert(weights, target.relay);
        Ok(measured)
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
        let ([half, bytes], measured) = self.compare(target, batch, known, set)?;
        log::info!("a pass of {} rows takes {:.3} ms, by bytes {:.3} ms", batch.rows, half * 1e3, bytes * 1e3);
        target.bytes.insert(batch.rows, bytes < half);
        known.bytes.insert(name, bytes < half);
        Ok(measured)
    }

    /// Seconds of a pass without and with something, each with its products' best variants, and how much was measured.
    fn compare(
        &mut self,
        target: &mut Target,
        batch: Batch,
        known: &mut Known,
        set: impl Fn(&mut Target, bool),
    ) -> Result<([f64; 2], usize)> {
        let mut measured = 1;
        let mut seconds = [0.0; 2];
        for (on, seconds) in [false, true].into_iter().zip(&mut seconds) {
            set(target, on);
            measured += self.tune_products(target, batch, known)?;
            *seconds = self.time_pass(target, batch)?;
        }
        Ok((seconds, measured))
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

    /// The variant that computes a product fastest: the best few by themselves, each dispatch behind the one before, are
    /// judged in a whole pass, where caches and address translation hold what other steps left there.
    fn fastest(
        &mut self,
        target: &Target,
        batch: Batch,
        key: (Family, Product),
        variants: &[Variant],
    ) -> Result<Option<Variant>> {
        let (family, product) = key;
        let name = name(family, product, target.relay);
        let bytes = (product.outputs * product.inputs * (1 + usize::from(product.gelu))) as f64;
        let with = |variant| {
            let mut target = target.clone();
            target.tuned.insert(key, variant);
            target
        };
        let mut alone = Vec::new();
        let mut count = DISPATCHES;
        // The first twice: its first run says how many dispatches fit.
        for (i, &variant) in variants.first().into_iter().chain(variants).enumerate() {
            let dispatches: Vec<Dispatch> = self
                .dispatches(&with(variant), batch)
                .into_iter()
                .filter(|(k, _)| *k == key)
                .take(count)
                .map(|(_, d)| Dispatch { barrier: true, ..d })
                .collect();
            let seconds = self.time(&[&dispatches], target.relay)? / dispatches.len() as f64;
            log::debug!("{name}: {variant:?} {:.1} us, {:.0} GB/s", seconds * 1e6, bytes / seconds / 1e9);
            match i {
                0 => count = ((SECONDS / seconds) as usize).max(DISPATCHES),
                _ => alone.push((seconds, variant)),
            }
        }
        alone.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(&(seconds, quickest)) = alone.first() else { return Ok(None) };
        let tera = 2e-12 * bytes * product.rows as f64 / seconds;
        let gb = bytes / seconds / 1e9;
        log::info!("{name}: {quickest:?}, {:.1} us, {gb:.0} GB/s, {tera:.0} TFLOP/s", seconds * 1e6);
        let near: Vec<Variant> = alone.iter().filter(|a| a.0 < NEAR * seconds).map(|a| a.1).collect();
        let mut best = (self.time_pass(&with(quickest), batch)?, quickest);
        if near.len() == 1 || best.0 > PASS_SECONDS {
            return Ok(Some(quickest));
        }
        for &variant in &near[1..] {
            let seconds = self.time_pass(&with(variant), batch)?;
            if seconds < best.0 {
                best = (seconds, variant);
            }
        }
        log::info!("{name}: {:?}, in a pass of {:.3} ms", best.1, best.0 * 1e3);
        Ok(Some(best.1))
    }

    /// Seconds of a whole pass.
    fn time_pass(&mut self, target: &Target, batch: Batch) -> Result<f64> {
        let segments: Vec<Vec<Dispatch>> =
            self.segments().iter().map(|&s| lower(self.schedule, s, batch, target, self.addresses)).collect();
        self.time(&segments.iter().map(Vec::as_slice).collect::<Vec<_>>(), target.relay)
    }

    /// Whether a dispatch waited in vain since this was last asked.
    fn take_stalled(&mut self) -> bool {
        let words: Option<&mut [u32]> = self.arena.bytes_mut().map(bytemuck::cast_slice_mut);
        words.is_some_and(|w| std::mem::take(&mut w[StateLayout::STALLED]) != 0)
    }

    /// Seconds of dispatches, the quickest of some runs.
    fn time(&mut self, parts: &[&[Dispatch]], relay: bool) -> Result<f64> {
        let Some(mut stamps) = StampPool::new(self.gpu, 1)? else { return Ok(f64::INFINITY) };
        let relay = relay.then(|| Relay::new(self.arena, self.schedule));
        let commands = self.queue.bake(parts, self.pipelines, relay, Some(stamps.span(0)), &[])?;
        let mut best = f64::INFINITY;
        for _ in 0..REPETITIONS {
            self.queue.submit(&[commands], true)?;
            self.queue.wait()?;
            best = best.min(stamps.read()?.sum());
        }
        self.queue.free(&[commands]);
        Ok(best)
    }
}

/// The family and product of a dispatch of a tunable kernel.
fn product(schedule: &Schedule, dispatch: &Dispatch, batch: Batch) -> Option<(Family, Product)> {
    let (family, gelu) = match dispatch.kernel.module {
        Module::LinearDotInt8 => (Family::Dot, false),
        Module::LinearDotGeluInt8 => (Family::Dot, true),
        Module::LinearMatrixInt8 => (Family::Matrix, false),
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
    cache_directory().map(|d| d.join(format!("tuning-{}-{}.json", env!("CARGO_PKG_VERSION"), gpu.caps.cache_id)))
}

/// What an earlier start measured; nothing where the file cannot be read or understood.
fn read(file: &Path) -> Known {
    std::fs::read(file).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
}

/// Keeps what was measured. A failure costs only that the next start measures again.
fn write(file: &Path, known: &Known) {
    let text = serde_json::to_vec_pretty(known).unwrap_or_default();
    if super::kernels::write_cache(file, &text).is_none() {
        log::warn!("the tuning file {} cannot be written: every start measures anew", file.display());
    }
}
