//! Estimates the cost and the benefit of tuning's trials, in seconds: a trial that costs more than it may save is left
//! out.

use super::{PASS_SECONDS, SAMPLE, TileCandidates, Trial, Tuner, sampled};
use crate::lower::arithmetic::Arithmetic;
use crate::lower::dispatch::Dispatch;
use crate::lower::kernels::Kernel;
use crate::lower::target::{Target, Tile};
use crate::lower::{Lowering, PassKind};
use crate::replay::driver::Readiness;
use crate::replay::measure::agenda::{self, PassProduct, TileKey, way_of};
use crate::replay::measure::bed::depth;
use crate::replay::measure::choices::pass_name;
use crate::schedule::Segment;
use std::collections::HashSet;
use std::rc::Rc;

/// Longest run of dispatches in a trial between two passes of an executor in use: a request that arrives meanwhile
/// waits for it.
pub(super) const SLICE_SECONDS: f64 = 12e-3;
/// Longest time, and the largest number, of a product's dispatches run alone: enough weights to exceed all caches.
const ALONE_SECONDS: f64 = 6e-3;
const DISPATCHES: usize = 8;
/// Approximate number of runs in a measurement.
pub(super) const RUNS: f64 = 4.0;
/// Seconds that a measurement takes beside its runs.
pub(super) const OVERHEAD: f64 = 1e-3;
/// Approximate runs for most tiles: slow ones get fewer.
const RUNS_OF_MOST: f64 = 2.5;
/// Seconds of compiling a kernel beside others, until some were measured.
const COMPILE_SECONDS: f64 = 0.1;
/// Approximate number of a layer's dispatches other than products.
const OTHERS: f64 = 5.0;

impl Tuner<'_> {
    /// The seconds of an hour's use that a product's tile may save. `best`: seconds of its best tile so far.
    pub(super) fn worth(
        &self,
        target: &Target,
        kind: PassKind,
        part: &PassProduct,
        pass: f64,
        best: Option<f64>,
    ) -> f64 {
        let seconds = best.unwrap_or_else(|| self.expected(target, part));
        let part_of_pass = (part.segments.len() as f64 * seconds / pass).min(1.0);
        let floor = target.figures.filter(|f| f.is_known).map(|f| f.least_seconds(part.key.0, part.key.1));
        let spread = floor.map_or(agenda::SPREAD, |floor| 1.0 - floor / seconds);
        let spread = spread.clamp(agenda::LEAST_SPREAD, agenda::MOST_SPREAD);
        agenda::USE * self.share(kind) * part_of_pass * spread
    }

    /// The share of passes of as many rows in the time of all passes.
    pub(super) fn share(&self, kind: PassKind) -> f64 {
        let extent = &self.schedule.extent;
        self.kinds.iter().filter(|k| k.rows == kind.rows).map(|&k| agenda::share(extent, k)).sum()
    }

    /// Approximate seconds of trying a product's tiles. `counted`: kernels whose compiling is counted elsewhere.
    pub(super) fn tile_cost(
        &mut self,
        target: &Target,
        kind: PassKind,
        part: &PassProduct,
        worth: f64,
        counted: &mut HashSet<Kernel>,
    ) -> f64 {
        let expected = self.expected(target, part);
        let run = OVERHEAD + RUNS_OF_MOST * expected * self.count(part, expected) as f64;
        let each = self.trial_cost(part, expected);
        let compile = self.compile_seconds();
        let candidates = self.candidates(target, kind, part);
        let paying = candidates.iter().enumerate().filter(|(i, _)| *i == 0 || worth * agenda::chance(*i) > each);
        let cost = |(_, (_, kernels)): (usize, &(Tile, Vec<Kernel>))| {
            let new = kernels.iter().filter(|k| counted.insert(**k)).count();
            run + compile * new as f64
        };
        paying.map(cost).sum()
    }

    /// Approximate seconds of trying a tile that is not compiled.
    pub(super) fn trial_cost(&self, part: &PassProduct, expected: f64) -> f64 {
        self.compile_seconds() + OVERHEAD + RUNS * expected * self.count(part, expected) as f64
    }

    pub(super) fn compile_seconds(&self) -> f64 {
        let (kernels, seconds) = self.tuning.waited;
        (COMPILE_SECONDS * 16.0 + seconds) / (16.0 + kernels as f64)
    }

    /// Number of dispatches of a product that are timed alone.
    pub(super) fn count(&self, part: &PassProduct, expected: f64) -> usize {
        ((ALONE_SECONDS / expected.max(1e-9)) as usize).clamp(1, part.segments.len().min(DISPATCHES))
    }

    /// Seconds of a product alone in its present tile: measured, or by the cost model.
    pub(super) fn expected(&self, target: &Target, part: &PassProduct) -> f64 {
        let Some(tile) = target.tile(part.key.0, part.key.1) else { return 1e-6 };
        let measured = self.tuning.measured.get(&Trial::Alone(part.key, tile)).copied().flatten();
        measured.unwrap_or_else(|| self.modelled(target, part.key, tile))
    }

    pub(super) fn modelled(&self, target: &Target, key: TileKey, tile: Tile) -> f64 {
        target.modelled_seconds(key.0, key.1, tile).unwrap_or_else(|| key.1.weight_bytes() / 50e9 + 5e-6)
    }

    /// The approximate seconds of a pass, before it is measured.
    pub(super) fn expected_pass(&self, target: &Target, kind: PassKind, parts: &[PassProduct]) -> f64 {
        let products: f64 = parts.iter().map(|p| p.segments.len() as f64 * self.expected(target, p)).sum();
        let dispatch = target.figures.map_or(5e-6, |f| f.dispatch);
        products + self.layers() as f64 * OTHERS * dispatch * (1.0 + kind.rows as f64 / 32.0)
    }

    /// Seconds of the part that is run of a pass of `pass` seconds.
    pub(super) fn sampled_pass(&self, pass: f64) -> f64 {
        if pass <= self.longest() { pass } else { pass / self.layers() as f64 * self.sample(pass).len() as f64 }
    }

    /// Longest pass that is run as a whole, in seconds.
    pub(super) fn longest(&self) -> f64 {
        let most = if self.allowance.keeps_kv { SLICE_SECONDS } else { PASS_SECONDS };
        most.min(self.submit_budget.as_secs_f64())
    }

    /// The layers that represent all in a pass of `pass` seconds.
    pub(super) fn sample(&self, pass: f64) -> Vec<usize> {
        let layers = self.layers();
        let fit = (self.longest() * layers as f64 / pass.max(1e-9)) as usize;
        sampled(layers, fit.clamp(1, SAMPLE))
    }

    pub(super) fn layers(&self) -> usize {
        self.schedule.shape.layers.len()
    }

    pub(super) fn name(&self, kind: PassKind) -> String {
        pass_name(self.schedule.weights.bytes(), kind, depth(self.schedule, kind))
    }

    pub(super) fn lowering<'t>(&'t self, target: &'t Target, kind: PassKind) -> Lowering<'t> {
        Lowering { schedule: self.schedule, layout: self.layout, addresses: self.addresses, target, kind }
    }

    /// The products of a pass that have tiles to choose from.
    pub(super) fn parts(&mut self, target: &Target, kind: PassKind) -> Rc<Vec<PassProduct>> {
        let at = (kind.rows, way_of(target, kind));
        if let Some(parts) = self.tuning.parts.get(&at) {
            return parts.clone();
        }
        let mut parts: Vec<PassProduct> = Vec::new();
        for segment in self.schedule.segments() {
            for key in self.lowering(target, kind).segment(segment).into_iter().filter_map(|d| d.tuned()) {
                match parts.iter_mut().find(|p| p.key == key) {
                    Some(part) => part.segments.push(segment),
                    None => parts.push(PassProduct { key, segments: vec![segment] }),
                }
            }
        }
        let parts = Rc::new(parts);
        self.tuning.parts.insert(at, parts.clone());
        parts
    }

    /// The tiles of a product in the order of trials: the present one, then by the cost model corrected by the tile's
    /// speed with other rows.
    pub(super) fn candidates(&mut self, target: &Target, kind: PassKind, part: &PassProduct) -> Rc<TileCandidates> {
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
        let of = |tried: &Target, segments: &[Segment]| -> Vec<Kernel> {
            self.dispatches(tried, kind, key, segments).into_iter().map(|d| d.kernel).collect()
        };
        // A product's kernel depends on the form of its output, too, which the weights of the next one decide.
        let mut forms = HashSet::new();
        let segments: Vec<Segment> =
            part.segments.iter().copied().filter(|s| forms.insert(of(&tried, std::slice::from_ref(s)))).collect();
        let mut kernels = |tile| {
            tried.tuned.insert(key, tile);
            of(&tried, &segments)
        };
        let mut all: TileCandidates = tiles.into_iter().map(|tile| (tile, kernels(tile))).collect();
        all.retain(|(_, kernels)| self.bed.readiness(kernels) != Readiness::LeftOut);
        let all = Rc::new(all);
        self.tuning.candidates.insert(key, all.clone());
        all
    }

    /// The dispatches of segments that compute a product.
    pub(super) fn dispatches(
        &self,
        target: &Target,
        kind: PassKind,
        key: TileKey,
        segments: &[Segment],
    ) -> Vec<Dispatch> {
        let lowering = self.lowering(target, kind);
        let all = segments.iter().flat_map(|&segment| lowering.segment(segment));
        all.filter(|d| d.product == Some(key)).collect()
    }
}
