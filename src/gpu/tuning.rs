//! Tuning: which variant of a linear kernel a device runs fastest, measured once on the model's own weights and kept on
//! disk.

use super::bake::Queue;
use super::device::Gpu;
use super::dispatch::{Addresses, Dispatch};
use super::kernels::{Module, Pipelines, cache_directory};
use super::linear::{Family, Product, Target, Variant};
use super::lower::{Batch, lower};
use super::stamps::StampPool;
use crate::Result;
use crate::schedule::{Op, Schedule, Segment};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of weights that one measurement reads at most: several times any device's caches, and a fraction of a second on
/// an APU's memory.
const BYTES: u64 = 2 << 30;
/// Operations of one measurement at most.
const OPERATIONS: u64 = 2 << 40;
/// Measurements of each variant, of which the quickest counts.
const REPETITIONS: usize = 3;

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
        let mut known = file.as_ref().map(read).unwrap_or_default();
        let start = Instant::now();
        let mut measured = 0;
        for product in self.products(target, batch) {
            let family = family(product, target, self.schedule);
            let variants = target.variants(family, product);
            let variant = match known.get(&name(product)).filter(|v| variants.contains(v)) {
                Some(&v) => v,
                None => {
                    measured += 1;
                    match self.fastest(target, batch, product, &variants)? {
                        Some(v) => v,
                        None => continue,
                    }
                }
            };
            known.insert(name(product), variant);
            target.tuned.insert(product, variant);
        }
        if measured > 0 {
            log::info!("measured the kernels of {measured} matrix products in {:.2} s", start.elapsed().as_secs_f64());
            if let Some(file) = file {
                write(&file, &known);
            }
        }
        Ok(())
    }

    fn segments(&self) -> Vec<Segment> {
        self.schedule.segments().collect()
    }

    /// Every dispatch of a tunable kernel, with its product.
    fn dispatches(&self, target: &Target, batch: Batch) -> Vec<(Product, Dispatch)> {
        let lowered = self.segments().into_iter().flat_map(|s| lower(self.schedule, s, batch, target, self.addresses));
        lowered.filter_map(|d| Some((product(self.schedule, &d, batch)?, d))).collect()
    }

    fn products(&self, target: &Target, batch: Batch) -> Vec<Product> {
        let mut products = Vec::new();
        for (p, _) in self.dispatches(target, batch) {
            if !products.contains(&p) {
                products.push(p);
            }
        }
        products
    }

    /// The variant that reads a product's weights fastest, each dispatch behind the one before as in a pass.
    fn fastest(
        &mut self,
        target: &Target,
        batch: Batch,
        product: Product,
        variants: &[Variant],
    ) -> Result<Option<Variant>> {
        let bytes = (product.outputs * product.inputs * (1 + usize::from(product.gelu))) as u64;
        let operations = 2 * bytes * product.rows as u64;
        let count = BYTES.div_ceil(bytes).min(OPERATIONS.div_ceil(operations)).max(1) as usize;
        let mut best = None;
        for &variant in variants {
            let mut target = target.clone();
            target.tuned.insert(product, variant);
            let dispatches: Vec<Dispatch> = self
                .dispatches(&target, batch)
                .into_iter()
                .filter(|(p, _)| *p == product)
                .take(count)
                .map(|(_, d)| Dispatch { barrier: true, ..d })
                .collect();
            let seconds = self.time(&dispatches)? / dispatches.len() as f64;
            log::debug!(
                "{}: {variant:?} {:.1} us, {:.0} GB/s",
                name(product),
                seconds * 1e6,
                bytes as f64 / seconds / 1e9
            );
            if best.is_none_or(|(least, _)| seconds < least) {
                best = Some((seconds, variant));
            }
        }
        if let Some((seconds, variant)) = best {
            let (gb, tflop) = (bytes as f64 / seconds / 1e9, operations as f64 / seconds / 1e12);
            log::info!("{}: {variant:?}, {:.1} us, {gb:.0} GB/s, {tflop:.0} TFLOP/s", name(product), seconds * 1e6);
        }
        Ok(best.map(|b| b.1))
    }

    fn time(&mut self, dispatches: &[Dispatch]) -> Result<f64> {
        let Some(mut stamps) = StampPool::new(self.gpu, 1)? else { return Ok(f64::INFINITY) };
        let commands = self.queue.bake(&[dispatches], self.pipelines, Some(stamps.span(0)), &[])?;
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

/// The product of a dispatch of a tunable kernel.
fn product(schedule: &Schedule, dispatch: &Dispatch, batch: Batch) -> Option<Product> {
    let gelu = match dispatch.kernel.module {
        Module::LinearDotInt8 | Module::LinearMatrixInt8 => false,
        Module::LinearDotGeluInt8 => true,
        _ => return None,
    };
    let step = schedule.steps.get(dispatch.steps.start)?;
    let Op::Linear { weight, .. } = step.op else { return None };
    Some(Product::new(weight, batch.count(step.rows), gelu))
}

fn family(product: Product, target: &Target, schedule: &Schedule) -> Family {
    target.family(schedule.weights.format, product.rows)
}

/// As the file and the log name a product.
fn name(p: Product) -> String {
    format!("{}{} x {}, {} rows", if p.gelu { "2 x " } else { "" }, p.outputs, p.inputs, p.rows)
}

fn file(gpu: &Gpu) -> Option<PathBuf> {
    cache_directory().map(|d| d.join(format!("tuning-{}-{}.json", env!("CARGO_PKG_VERSION"), gpu.caps.cache_id)))
}

/// What an earlier start measured; nothing where the file cannot be read or understood.
fn read(file: &PathBuf) -> HashMap<String, Variant> {
    std::fs::read(file).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
}

/// Keeps what was measured. A failure costs only that the next start measures again.
fn write(file: &PathBuf, known: &HashMap<String, Variant>) {
    let sorted: std::collections::BTreeMap<_, _> = known.iter().collect();
    let text = serde_json::to_vec_pretty(&sorted).unwrap_or_default();
    if super::kernels::write_cache(file, &text).is_none() {
        log::warn!("the tuning file {} cannot be written: every start measures anew", file.display());
    }
}
