//! Measures whether attention is faster on the device or on an offload. This happens once, when everything else is
//! loaded and before the first sequence, at three depths each: for a single token, and for a prompt's chunk with the
//! fewest rows that are divided into halves and with the most. A chunk's time grows linearly with its rows, so the
//! faster one at both ends is faster between them. Passes of other kinds
//! ([`PassGroup::Others`](crate::executor::offload::PassGroup)) are not predicted by these, and stay on the device.
//!
//! Only the choice remains. The rows are of the first sequence, whose pages are released at the end. The cost is
//! bounded by the number of runs: two short passes that prove the offload, and then, for each of nine passes with and
//! without it, at most [`RUNS`] runs of the layers up to the first of each kind.

use super::checked::{CheckedOffload, OffloadLoader};
use crate::Result;
use crate::executor::offload::{Offload, OffloadedPasses, PlacementTiming};
use crate::executor::{Measure, Row};
use crate::lower::lowering::is_faster;
use std::any::Any;

/// Runs of each measured pass; the fastest counts.
const RUNS: usize = 2;
/// Rows of the first pass that proves an offload, on two pages; the second pass has one row.
const PROOF_ROWS: usize = 80;
/// The positions at which attention is measured, as shares of the deepest one.
const DEPTHS: [f64; 3] = [0.125, 0.5, 1.0];

/// A clock in seconds from a fixed start.
pub type Now<'a> = &'a dyn Fn() -> f64;

/// An executor that gives steps of its passes to an offload.
pub trait OffloadOwner: Measure {
    /// Rows of the kinds of pass that are measured: one, and those of chunks that are divided into halves.
    fn measured_rows(&self) -> Vec<usize>;

    /// Gives steps to `offload` from the next pass on, or to none.
    ///
    /// # Errors
    /// Device: the device failed or was lost.
    fn set_offload(&mut self, offload: Option<Box<dyn Offload>>) -> Result<()>;

    /// Takes the offload back; [`OffloadOwner::set_offload`] follows.
    fn take_offload(&mut self) -> Option<Box<dyn Offload>>;

    /// Runs the first `layers` layers of a pass, and returns their time by the clock `now`. The pass counts for
    /// nothing, and its results are lost.
    ///
    /// # Errors
    /// As [`Executor::submit`](crate::Executor::submit).
    fn time_layers(&mut self, rows: &[Row], layers: usize, now: Now<'_>) -> Result<f64>;
}

/// Gives an executor's steps to an offload from `load` in the passes in which it is faster, measured by the clock
/// `now`.
///
/// # Errors
/// Device: the device itself failed. Interrupted: the measurement was cancelled. A failure of the offload is no error.
pub fn place(owner: &mut dyn OffloadOwner, mut load: OffloadLoader, now: Now<'_>) -> Result<()> {
    let failures = owner.offload().map_or(0, |report| report.failures);
    owner.set_offload(None)?;
    let raw = match load() {
        Ok(raw) => raw,
        Err(e) => {
            log::warn!("attention stays on the GPU: {e}");
            let absent = CheckedOffload::on_trial(owner.schedule(), None, failures + 1);
            return owner.set_offload(Some(Box::new(absent)));
        }
    };
    let name = raw.name().to_owned();
    let cases = cases(&owner.measured_rows(), owner.schedule().extent.context);
    let device = time_cases(owner, &cases, now)?;
    let on_trial = CheckedOffload::on_trial(owner.schedule(), Some(raw), failures);
    owner.set_offload(Some(Box::new(on_trial)))?;
    // A lost offload has been logged.
    let offload = if stands_proof(owner)? { time_cases(owner, &cases, now)? } else { Vec::new() };
    owner.pages_mut().truncate(0, 0);
    let is_there = is_there(owner);
    let Some(checked) = owner.take_offload() else { return Ok(()) };
    let Ok(mut checked) = (checked as Box<dyn Any>).downcast::<CheckedOffload>() else { return Ok(()) };
    if is_there {
        let timing = |((&(rows, depth), device), offload)| PlacementTiming { rows, depth, device, offload };
        let timings: Vec<_> = cases.iter().zip(device).zip(offload).map(timing).collect();
        let passes = faster(&timings);
        timings.iter().for_each(|t| log::info!("{}", in_words(t, &name)));
        log::info!("attention of {} is faster on {name}", passes.name());
        checked.keep(passes, timings, load);
    }
    owner.set_offload(Some(checked))
}

/// True if the owner has an offload that computes attention and has not failed.
fn is_there(owner: &dyn OffloadOwner) -> bool {
    owner.offload().is_some_and(|report| report.attends.any())
}

/// Rows of the first sequence after `depth` positions.
fn rows_behind(owner: &dyn OffloadOwner, rows: usize, depth: usize) -> Vec<Row> {
    let vocab = owner.schedule().shape.vocab;
    let row = |i: usize| Row { token: ((7 + 37 * i) % vocab) as u32, position: (depth + i) as u32, sequence: 0 };
    (0..rows).map(row).collect()
}

/// Runs two passes in which the device checks each step of the offload. Returns whether the offload passed.
fn stands_proof(owner: &mut dyn OffloadOwner) -> Result<bool> {
    let (extent, layers) = (owner.schedule().extent, owner.schedule().shape.layers.len());
    let rows = PROOF_ROWS.min(extent.max_rows).min(extent.context.saturating_sub(1)).max(1);
    for (rows, depth) in [(rows, 0), (1, rows)] {
        if depth < extent.context && is_there(owner) {
            owner.time_layers(&rows_behind(owner, rows, depth), layers, &|| 0.0)?;
        }
    }
    Ok(is_there(owner))
}

/// Estimated seconds of each pass's layers, from the layers up to the first of each kind. Ends early if the offload is
/// lost.
fn time_cases(owner: &mut dyn OffloadOwner, cases: &[(usize, usize)], now: Now<'_>) -> Result<Vec<f64>> {
    let has_offload = is_there(owner);
    let layers = &owner.schedule().shape.layers;
    let firsts = layers.iter().filter_map(|kind| layers.iter().position(|other| other == kind));
    let measured = firsts.max().map_or(0, |last| last + 1);
    let share = layers.len() as f64 / measured.max(1) as f64;
    let mut seconds = Vec::with_capacity(cases.len());
    for &(rows, depth) in cases {
        owner.pages_mut().truncate(0, 0);
        let rows = rows_behind(owner, rows, depth);
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            best = best.min(owner.time_layers(&rows, measured, now)?);
            if has_offload && !is_there(owner) {
                return Ok(seconds);
            }
        }
        seconds.push(share * best);
    }
    Ok(seconds)
}

/// Rows and depths of the measured passes among these: one row, and of more rows the fewest and the most.
fn cases(measured: &[usize], context: usize) -> Vec<(usize, usize)> {
    let more = || measured.iter().copied().filter(|rows| *rows > 1);
    let rows = [1].into_iter().chain(more().min()).chain(more().max());
    let at = |rows: usize| {
        let deepest = context.saturating_sub(rows);
        DEPTHS.map(|share| (rows, (share * deepest as f64) as usize))
    };
    let mut cases: Vec<_> = rows.flat_map(at).collect();
    cases.sort_unstable();
    cases.dedup();
    cases
}

/// The passes that take less time with the offload at every depth.
fn faster(timings: &[PlacementTiming]) -> OffloadedPasses {
    let all = |is_decode: bool| {
        let mut of = timings.iter().filter(|t| (t.rows == 1) == is_decode).peekable();
        of.peek().is_some() && of.all(|t| is_faster(t.offload, t.device))
    };
    OffloadedPasses { decode: all(true), prefill: all(false), others: false }
}

fn in_words(t: &PlacementTiming, name: &str) -> String {
    let PlacementTiming { rows, depth, device, offload: with } = *t;
    let [device, with] = [device, with].map(|seconds| 1e3 * seconds);
    format!("layers of {rows} rows behind {depth} tokens: {device:.2} ms, with {name} {with:.2} ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::RowOrder;
    use crate::replay::{pass_group as group, pass_kinds as kinds};
    use crate::schedule::{Extent, KvType};

    /// No measurement predicts passes of several sequences and undivided chunks.
    #[test]
    fn what_was_not_measured_stays_on_the_device() {
        let extent =
            Extent { context: 4096, max_rows: 512, head_rows: 8, sequences: 8, kv: KvType::F16, kv_tokens: None };
        for kind in kinds(&extent) {
            let is_alone = kind.order == RowOrder::Consecutive;
            let (is_token, is_long) = (is_alone && kind.rows == 1, is_alone && kind.rows > 64);
            for (decode, prefill) in [(true, true), (true, false), (false, true), (false, false)] {
                let passes = OffloadedPasses { decode, prefill, others: false };
                assert_eq!(passes.contain(group(kind)), is_token && decode || is_long && prefill, "{kind}: {passes:?}");
            }
            assert!(OffloadedPasses::ALL.contain(group(kind)), "{kind}");
        }
    }

    /// A chunk is measured if it is divided, with the fewest rows and with the most.
    #[test]
    fn what_is_measured_is_a_token_and_chunks_that_are_divided() {
        let of = |max_rows, context| {
            let (head_rows, sequences, kv) = (4, 4, KvType::F16);
            let extent = Extent { context, max_rows, head_rows, sequences, kv, kv_tokens: None };
            let kinds = kinds(&extent).into_iter();
            cases(&kinds.filter(|kind| kind.is_measured()).map(|kind| kind.rows).collect::<Vec<_>>(), context)
        };
        let token = [(1, 511), (1, 2047), (1, 4095)];
        let chunks = [(128, 496), (128, 1984), (128, 3968), (512, 448), (512, 1792), (512, 3584)];
        assert_eq!(of(512, 4096), [&token[..], &chunks].concat());
        assert_eq!(of(100, 4096), [&token[..], &[(100, 499), (100, 1998), (100, 3996)]].concat());
        assert_eq!(of(64, 4096), token, "a chunk that is not divided");
        assert_eq!(of(1, 1), [(1, 0)]);
    }

    #[test]
    fn an_offload_is_faster_where_it_is_so_at_every_depth_and_by_more_than_runs_differ() {
        let timing = |rows, offload| PlacementTiming { rows, depth: 0, device: 1.0, offload };
        let of = |decode: [f64; 3], prefill: [f64; 3]| {
            let timings: Vec<_> =
                decode.map(|s| timing(1, s)).into_iter().chain(prefill.map(|s| timing(512, s))).collect();
            let OffloadedPasses { decode, prefill, others } = faster(&timings);
            assert!(!others, "no measurement covers them");
            (decode, prefill)
        };
        assert_eq!(of([0.9; 3], [0.9; 3]), (true, true));
        assert_eq!(of([1.1; 3], [0.9; 3]), (false, true));
        assert_eq!(of([0.9; 3], [0.5, 0.5, 1.1]), (true, false));
        assert_eq!(of([0.99; 3], [f64::NAN; 3]), (false, false));
        assert_eq!(faster(&[]), OffloadedPasses::NONE);
        assert_eq!(faster(&[timing(1, 0.5)]), OffloadedPasses { decode: true, ..OffloadedPasses::NONE });
    }
}
