//! The choices of tuning, each by trials: a product's tile, the arithmetic of a kind of pass, its method of attention,
//! and relaying.

use super::expected::RUNS;
use super::{HaltResult, Question, Trial, Tuner};
use crate::lower::PassKind;
use crate::lower::arithmetic::Arithmetic;
use crate::lower::kernels::Kernel;
use crate::lower::target::{AttendBy, Target, Tile};
use crate::replay::driver::Readiness;
use crate::replay::measure::agenda::{self, PassProduct, TileKey, take_way};
use crate::replay::measure::choices::{ProductMethod, attend_name, product_name};
use crate::schedule::Segment;
use std::rc::Rc;

/// Most rows of a pass whose time is mainly reading weights: passes decide between its best tiles.
const FEW_ROWS: usize = 32;
/// Tiles within this factor of the best, at most `MOST_NEAR`, are compared again by passes. For 4 rows, a tile that was
/// 0.6 % behind another in eight layers was 4.3 % ahead of it in 62 (H200).
const NEAR: f64 = 1.05;
const MOST_NEAR: usize = 5;
/// Tiles for many rows within this factor of the best count as equal, and the first of the list, which is expected to
/// be the fastest, is chosen. A few runs do not show a device's speed under lasting load: on an H200 two tiles of gate
/// and up both took 641 us alone, and prefill with the second was a tenth slower.
const TIE: f64 = 1.03;
/// A method is tuned too if its pass takes at most this times that of the best method, each with the tiles known so
/// far. Matrix units on bytes took 1.4 to 1.5 times as long for 512 rows, before and after their tuning (H200).
const RIVAL: f64 = 1.2;

impl Tuner<'_> {
    /// Chooses the tile of a product of a kind of pass.
    pub(super) fn choose_tile(&mut self, target: &mut Target, kind: PassKind, key: TileKey) -> HaltResult<()> {
        let parts = self.parts(target, kind);
        let Some(part) = parts.iter().find(|p| p.key == key) else { return Ok(()) };
        let pass = self.expected_pass(target, kind, &parts);
        let candidates = self.candidates(target, kind, part);
        let name = product_name(key, target.relay);
        let mut judged: Vec<(f64, Tile)> = Vec::new();
        let mut best = f64::INFINITY;
        for (i, (tile, kernels)) in candidates.iter().enumerate() {
            if judged.len() >= self.allowance.tiles {
                self.tuning.begun.insert(key);
                break;
            }
            let is_known = self.tuning.measured.contains_key(&Trial::Alone(key, *tile));
            if !is_known && best.is_finite() {
                let compiled = self.bed.readiness(kernels) == Readiness::Ready;
                let cost = self.trial_cost(part, best) - if compiled { self.compile_seconds() } else { 0.0 };
                // Continue, not break: later tiles may already be compiled for another trial.
                if self.worth(target, kind, part, pass, Some(best)) * agenda::chance(i) < cost {
                    continue;
                }
            }
            let timed = self.time_alone(target, kind, part, *tile, kernels, best);
            if timed.is_err() && !self.allowance.keeps_kv && !judged.is_empty() {
                self.tuning.choices.set_tried(name.clone(), &judged);
                self.tuning.choices.save();
            }
            let Some(seconds) = timed? else { continue };
            log::debug!("{name}: {tile:?}, alone {:.1} us", seconds * 1e6);
            best = best.min(seconds);
            judged.push((seconds, *tile));
            let slower = seconds / self.modelled(target, key, *tile);
            self.tuning.slower.insert((key.0, *tile), slower);
        }
        if self.tuning.begun.contains(&key) {
            let best = judged.iter().min_by(|a, b| a.0.total_cmp(&b.0));
            target.tuned.extend(best.map(|&(_, tile)| (key, tile)));
            self.tuning.choices.set_tried(name, &judged);
            return Ok(());
        }
        let first = judged.first().copied();
        let many = kind.rows > FEW_ROWS;
        let Some(chosen) = first_within(&judged, if many { TIE } else { 1.0 }) else { return Ok(()) };
        judged.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut near: Vec<Tile> =
            judged.iter().take(MOST_NEAR).take_while(|j| j.0 < NEAR * best).map(|j| j.1).collect();
        // The present tile is the best beside others more often than it is alone.
        if let Some((seconds, tile)) = first
            && seconds < 1.15 * best
            && !near.contains(&tile)
        {
            near.push(tile);
        }
        let beside = if many || near.len() < 2 { Ok(chosen) } else { self.judge_beside(target, kind, part, &near) };
        if beside.is_err() && !self.allowance.keeps_kv {
            self.tuning.choices.set_tried(name.clone(), &judged);
            self.tuning.choices.save();
        }
        let chosen = beside?;
        log::info!("{name}: {chosen:?}, of {} tiles that were tried", judged.len());
        target.tuned.insert(key, chosen);
        self.tuning.choices.set_tile(name, chosen);
        Ok(())
    }

    /// The best of a few tiles by passes, or the first if passes take too long.
    pub(super) fn judge_beside(
        &mut self,
        target: &Target,
        kind: PassKind,
        part: &PassProduct,
        near: &[Tile],
    ) -> HaltResult<Tile> {
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
    pub(super) fn choose_relay(&mut self, target: &mut Target) -> HaltResult<()> {
        let Some(&kind) = self.kinds.iter().find(|k| k.rows == 1) else { return Ok(()) };
        let weights = self.schedule.weights.bytes();
        let pass = {
            let parts = self.parts(target, kind);
            self.expected_pass(target, kind, &parts)
        };
        // Measured with default tiles, since a tile tuned with relay is not tuned without it. Relay makes the larger
        // difference.
        let mut seconds = [f64::INFINITY; 2];
        let mut tried = target.clone();
        for relay in [false, true] {
            tried.relay = relay;
            let timed = self.time_layers(Trial::Relay(relay), &tried, kind, pass, f64::INFINITY)?;
            seconds[usize::from(relay)] = timed.unwrap_or(f64::INFINITY);
        }
        let timed_out = self.bed.take_timeout()?;
        if timed_out {
            log::info!("dispatches are not relayed: this device does not start them in order");
        }
        log::info!("a pass takes {:.3} ms, with relayed dispatches {:.3} ms", seconds[0] * 1e3, seconds[1] * 1e3);
        target.relay = seconds[1] < seconds[0] && !timed_out;
        self.tuning.choices.set_relay(weights, target.relay);
        // Tiles are tuned for one answer only.
        target.tuned.clear();
        self.tuning.settled_keys.clear();
        self.recall(target);
        Ok(())
    }

    /// The methods of products that are worth measuring.
    pub(super) fn ways(&mut self, target: &Target, kind: PassKind) -> Rc<Vec<ProductMethod>> {
        if let Some(known) = self.tuning.ways.get(&kind.rows) {
            return known.clone();
        }
        let ways = Rc::new(self.find_ways(target, kind));
        self.tuning.ways.insert(kind.rows, ways.clone());
        ways
    }

    fn find_ways(&self, target: &Target, kind: PassKind) -> Vec<ProductMethod> {
        // A format of only few of the weights, such as an INT8 head after layers in INT4, changes a pass's time little.
        let format = self.schedule.weights.format();
        let mut ways = Vec::new();
        let sampled: Vec<Segment> = [Segment::Layer(0), Segment::Layer(self.layers() / 2)].into();
        for arithmetic in target.arithmetics(format, kind.rows) {
            let gated = ProductMethod { arithmetic, gated: true };
            let is_gated = |(by, product): TileKey| matches!(by, Arithmetic::Matrix(_)) && product.gelu;
            let gates = |tried: &Target| {
                let lowering = self.lowering(tried, kind);
                let products = sampled.iter().flat_map(|&s| lowering.segment(s)).filter_map(|d| d.tuned());
                products.into_iter().any(is_gated)
            };
            let mut tried = target.clone();
            take_way(&mut tried, kind, gated);
            let can = gates(&tried);
            // The first method of an arithmetic is the default without a measurement.
            tried.gated.remove(&kind.rows);
            let is_usual = can && gates(&tried);
            ways.extend(is_usual.then_some(gated));
            ways.push(ProductMethod { gated: false, ..gated });
            ways.extend((can && !is_usual).then_some(gated));
        }
        ways
    }

    /// Sets the method that is the fastest with the tiles known so far. Methods that come near it are tuned later.
    pub(super) fn choose_way(&mut self, target: &mut Target, kind: PassKind) -> HaltResult<()> {
        let mut timed = Vec::new();
        let ways = self.ways(target, kind);
        let best = self.fastest_way(target, kind, &ways, false, &mut timed)?;
        let Some((seconds, way)) = best else { return Ok(()) };
        log::info!("a pass of {kind} by {way:?} takes {:.3} ms for some layers", seconds * 1e3);
        take_way(target, kind, way);
        let rivals: Vec<ProductMethod> = timed.iter().filter(|t| t.0 < RIVAL * seconds).map(|t| t.1).collect();
        let weights = self.schedule.weights.bytes();
        self.tuning.choices.set_way(weights, kind.rows, way);
        if rivals.len() < 2 {
            self.tuning.settled.insert(Question::Rematch(kind));
        } else {
            self.tuning.choices.set_rivals(weights, kind.rows, rivals);
        }
        Ok(())
    }

    /// Tunes the methods that came near the best one too, and compares them.
    pub(super) fn rematch(&mut self, target: &mut Target, kind: PassKind) -> HaltResult<()> {
        let weights = self.schedule.weights.bytes();
        let rivals = self.tuning.choices.rivals(weights, kind.rows).to_vec();
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
            self.tuning.choices.set_way(weights, kind.rows, way);
        }
        self.tuning.choices.set_rivals(weights, kind.rows, Vec::new());
        Ok(())
    }

    /// Requests the kernels of a product's untried tiles, once.
    pub(super) fn ask_for_tiles(&mut self, target: &Target, kind: PassKind, part: &PassProduct) {
        if self.tuning.asked_tiles == Some(part.key) {
            return;
        }
        let candidates = self.candidates(target, kind, part);
        let is_new = |tile: &Tile| !self.tuning.measured.contains_key(&Trial::Alone(part.key, *tile));
        let kernels: Vec<Kernel> = candidates.iter().filter(|c| is_new(&c.0)).flat_map(|c| c.1.clone()).collect();
        self.bed.ask_for(&kernels);
        (self.tuning.asked, self.tuning.asked_tiles) = (None, Some(part.key));
    }

    /// The fastest of some methods, with its seconds. All measured ones are appended to `timed`.
    pub(super) fn fastest_way(
        &mut self,
        target: &Target,
        kind: PassKind,
        ways: &[ProductMethod],
        tuned: bool,
        timed: &mut Vec<(f64, ProductMethod)>,
    ) -> HaltResult<Option<(f64, ProductMethod)>> {
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

    /// Chooses the method of attention for rows of one sequence, for one kind of heads after the other.
    pub(super) fn choose_attention(&mut self, target: &mut Target, kind: PassKind) -> HaltResult<()> {
        let name = self.name(kind);
        let parts = self.parts(target, kind);
        let pass = self.expected_pass(target, kind, &parts);
        let attends = self.lowering(target, kind).attends();
        for (heads, ways) in attends.into_iter().filter(|(_, ways)| ways.len() > 1) {
            let mut tried = target.clone();
            let mut best: Option<(f64, AttendBy)> = None;
            for way in ways {
                tried.attend.insert((kind.rows, heads), way);
                let others = best.map_or(f64::INFINITY, |b| b.0);
                let seconds = self.time_layers(Trial::Attend(kind, heads, way), &tried, kind, pass, others)?;
                if let Some(seconds) = seconds.filter(|s| *s < others) {
                    best = Some((seconds, way));
                }
            }
            if let Some((_, way)) = best {
                target.attend.insert((kind.rows, heads), way);
                let name = attend_name(&name, heads);
                log::info!("{name}: attention by {way:?}");
                self.tuning.choices.set_attend(name, way);
            }
        }
        Ok(())
    }

    /// Measures the time of a pass.
    pub(super) fn time_kind(&mut self, target: &mut Target, kind: PassKind) -> HaltResult<()> {
        let name = self.name(kind);
        if let Some(seconds) = self.whole_seconds(target, kind, true)? {
            log::info!("{name}: a pass takes {:.3} ms", seconds * 1e3);
            target.seconds.insert((kind.rows, kind.order), seconds);
            self.tuning.choices.set_seconds(name, seconds);
        }
        Ok(())
    }
}

/// The first entry whose seconds are at most `tie` times the least.
fn first_within<T: Copy>(judged: &[(f64, T)], tie: f64) -> Option<T> {
    let least = judged.iter().map(|j| j.0).min_by(f64::total_cmp)?;
    judged.iter().find(|j| j.0 <= tie * least).map(|j| j.1)
}

#[cfg(test)]
mod tests {
    use super::first_within;

    #[test]
    fn the_first_of_equals_is_chosen() {
        let judged = [(1.04, 'a'), (1.02, 'b'), (1.0, 'c'), (f64::INFINITY, 'd')];
        assert_eq!((first_within(&judged, 1.0), first_within(&judged, 1.03)), (Some('c'), Some('b')));
        assert_eq!(first_within(&[(f64::INFINITY, 'a')], 1.03), Some('a'));
        assert_eq!(first_within::<char>(&[], 1.0), None);
    }
}
