//! Measures whether attention is faster on the device or on a guest. This happens once, when everything else is loaded
//! and before the first sequence, at three depths each: for a single token, and for a prompt's chunk with the fewest
//! rows that are divided into halves and with the most. A chunk's time grows linearly with its rows, so the faster one
//! at both ends is faster between them. Passes of other kinds ([`PassKind::is_measured`]) are not predicted by these,
//! and stay on the device.
//!
//! Only the choice remains. The rows are of the first sequence, whose pages are released at the end. The cost is
//! bounded by the number of runs: two short passes that prove the guest, and then, for each of nine passes with and
//! without the guest, at most [`RUNS`] runs of the layers up to the first of each kind.

use super::Replay;
use super::driver::{Driver, Memory};
use super::guests::GuestLoader;
use super::passes::Piece;
use crate::Result;
use crate::executor::guest::{GuestKind, GuestPasses, PlacementTiming};
use crate::executor::{HeadRows, Row};
use crate::lower::PassKind;
use crate::lower::lowering::is_faster;
use crate::schedule::Segment;
use std::ops::Range;

/// Runs of each measured pass; the fastest counts.
const RUNS: usize = 2;
/// Rows of the first pass that proves a guest, on two pages; the second pass has one row.
const PROOF_ROWS: usize = 80;
/// Shares of the deepest position that a pass may stand at.
const DEPTHS: [f64; 3] = [0.125, 0.5, 1.0];

/// A clock in seconds from a fixed start.
type Now<'a> = &'a dyn Fn() -> f64;

impl<D: Driver> Replay<D> {
    /// Uses a guest from `loader` in the passes in which it is faster, measured by the clock `now`.
    ///
    /// # Errors
    /// Device: the device itself failed. Interrupted: the measurement was cancelled. A failure of the guest is no error.
    pub fn seat_if_faster(&mut self, kind: GuestKind, mut loader: GuestLoader, now: Now<'_>) -> Result<()> {
        self.seat.vacate();
        let guest = match loader() {
            Ok(guest) => guest,
            Err(e) => {
                log::warn!("attention stays on the GPU: {e}");
                self.seat.note_absent();
                return Ok(());
            }
        };
        let before = (self.pace.submits, self.pace.busy);
        let name = guest.name().to_owned();
        let cases = cases(self.passes.kinds.iter().map(|baked| baked.kind), self.schedule.extent.context);
        let device = self.time_layers(&cases, now)?;
        self.seat.try_out(kind, guest);
        self.rebake_all()?;
        // A lost guest has been logged.
        let with_guest = if self.stands_proof()? { self.time_layers(&cases, now)? } else { Vec::new() };
        if !self.seat.is_lost() {
            let timing = |((&(rows, depth), device), guest)| PlacementTiming { rows, depth, device, guest };
            let timings: Vec<_> = cases.iter().zip(device).zip(with_guest).map(timing).collect();
            let passes = faster(&timings);
            timings.iter().for_each(|t| log::info!("{}", in_words(t, &name)));
            log::info!("attention of {} is faster on {name}", passes.name());
            self.seat.keep(passes, timings, loader);
        }
        self.kv.pages.truncate(0, 0);
        self.flight.forget();
        (self.pace.submits, self.pace.busy) = before;
        self.rebake_all()
    }

    /// Rows of the first sequence after `depth` positions.
    fn rows_behind(&self, rows: usize, depth: usize) -> Vec<Row> {
        let vocab = self.schedule.shape.vocab;
        let row = |i: usize| Row { token: ((7 + 37 * i) % vocab) as u32, position: (depth + i) as u32, sequence: 0 };
        (0..rows).map(row).collect()
    }

    /// Runs two passes in which the device checks each step of the guest. Returns whether the guest passed.
    fn stands_proof(&mut self) -> Result<bool> {
        let extent = &self.schedule.extent;
        let rows = PROOF_ROWS.min(extent.max_rows).min(extent.context.saturating_sub(1)).max(1);
        for (rows, depth) in [(rows, 0), (1, rows)] {
            if depth < self.schedule.extent.context {
                let rows = self.rows_behind(rows, depth);
                self.run(&rows, Some(HeadRows { first: rows.len() - 1, count: 1 }), false)?;
            }
        }
        Ok(!self.seat.is_lost())
    }

    /// Estimated seconds of each pass's layers, from the layers up to the first of each kind. Ends early if the guest
    /// is lost.
    fn time_layers(&mut self, cases: &[(usize, usize)], now: Now<'_>) -> Result<Vec<f64>> {
        let has_guest = !self.seat.is_lost();
        let layers = &self.schedule.shape.layers;
        let firsts = layers.iter().filter_map(|kind| layers.iter().position(|other| other == kind));
        let measured = firsts.max().map_or(0, |last| last + 1);
        let share = layers.len() as f64 / measured.max(1) as f64;
        let mut seconds = Vec::with_capacity(cases.len());
        for &(rows, depth) in cases {
            self.kv.pages.truncate(0, 0);
            let rows = self.rows_behind(rows, depth);
            let mut best = f64::INFINITY;
            for _ in 0..RUNS {
                let kind = self.begin(&rows, None)?;
                let start = now();
                self.run_layers(kind, measured).inspect_err(|_| self.flight.forget())?;
                best = best.min(now() - start);
                if has_guest && self.seat.is_lost() {
                    return Ok(seconds);
                }
            }
            seconds.push(share * best);
        }
        Ok(seconds)
    }

    /// Runs the begun pass up to the end of the first `layers` layers. Between them it waits only for a guest.
    fn run_layers(&mut self, kind: usize, layers: usize) -> Result<()> {
        self.memory.arena.to_device()?;
        let end = self.schedule.steps_of(Segment::Layer(layers.saturating_sub(1))).end;
        for i in 0..self.passes.kinds[kind].pieces.len() {
            self.cancel.check()?;
            let baked = &self.passes.kinds[kind];
            // A piece's lists are those of consecutive layers.
            let is_before = |list: &usize| !matches!(baked.parts[*list].segment, Segment::Layer(l) if l >= layers);
            let up_to = |lists: Range<usize>| lists.start..lists.start + lists.take_while(is_before).count();
            match baked.pieces[i].clone() {
                Piece::Guest(piece) => {
                    let beside = up_to(piece.beside.clone());
                    match piece.step < end {
                        true => self.run_guest(kind, &piece, beside)?,
                        false => self.submit_beside(kind, beside)?,
                    }
                }
                Piece::Device(lists) => {
                    for list in up_to(lists) {
                        // SAFETY: as in `Replay::submit`.
                        unsafe { self.queue.submit(&baked.segments.lists[list..=list], false) }?;
                    }
                }
            }
        }
        self.queue.drain()
    }
}

/// Rows and depths of the measured passes among these kinds: one row, and of the kinds of more rows the one with the
/// fewest and the one with the most.
fn cases(kinds: impl Iterator<Item = PassKind>, context: usize) -> Vec<(usize, usize)> {
    let measured: Vec<usize> = kinds.filter(|kind| kind.is_measured()).map(|kind| kind.rows).collect();
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

/// The passes that take less time with the guest at every depth.
fn faster(timings: &[PlacementTiming]) -> GuestPasses {
    let all = |is_decode: bool| {
        let mut of = timings.iter().filter(|t| (t.rows == 1) == is_decode).peekable();
        of.peek().is_some() && of.all(|t| is_faster(t.guest, t.device))
    };
    GuestPasses { decode: all(true), prefill: all(false), others: false }
}

fn in_words(t: &PlacementTiming, guest: &str) -> String {
    let PlacementTiming { rows, depth, device, guest: with } = *t;
    let [device, with] = [device, with].map(|seconds| 1e3 * seconds);
    format!("layers of {rows} rows behind {depth} tokens: {device:.2} ms, with {guest} {with:.2} ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::RowOrder;
    use crate::machine::nodes::DriverApi;
    use crate::replay::guests::SeatedGuest;
    use crate::replay::passes::kinds;
    use crate::schedule::{Extent, KvType};

    /// No measurement predicts passes of several sequences and undivided chunks.
    #[test]
    fn what_was_not_measured_stays_on_the_device() {
        let extent =
            Extent { context: 4096, max_rows: 512, head_rows: 8, sequences: 8, kv: KvType::F16, kv_tokens: None };
        let attends = |passes, kind| SeatedGuest { kind: GuestKind::Npu(DriverApi::Kernel), passes }.attends_in(kind);
        for kind in kinds(&extent) {
            let is_alone = kind.order == RowOrder::Consecutive;
            let (is_token, is_long) = (is_alone && kind.rows == 1, is_alone && kind.rows > 64);
            for (decode, prefill) in [(true, true), (true, false), (false, true), (false, false)] {
                let passes = GuestPasses { decode, prefill, others: false };
                assert_eq!(attends(passes, kind), is_token && decode || is_long && prefill, "{kind}: {passes:?}");
            }
            assert!(attends(GuestPasses::ALL, kind), "{kind}");
        }
    }

    /// A chunk is measured if it is divided, with the fewest rows and with the most.
    #[test]
    fn what_is_measured_is_a_token_and_chunks_that_are_divided() {
        let of = |max_rows, context| {
            let (head_rows, sequences, kv) = (4, 4, KvType::F16);
            let extent = Extent { context, max_rows, head_rows, sequences, kv, kv_tokens: None };
            cases(kinds(&extent).into_iter(), context)
        };
        let token = [(1, 511), (1, 2047), (1, 4095)];
        let chunks = [(128, 496), (128, 1984), (128, 3968), (512, 448), (512, 1792), (512, 3584)];
        assert_eq!(of(512, 4096), [&token[..], &chunks].concat());
        assert_eq!(of(100, 4096), [&token[..], &[(100, 499), (100, 1998), (100, 3996)]].concat());
        assert_eq!(of(64, 4096), token, "a chunk that is not divided");
        assert_eq!(of(1, 1), [(1, 0)]);
    }

    #[test]
    fn a_guest_is_faster_where_it_is_so_at_every_depth_and_by_more_than_runs_differ() {
        let timing = |rows, guest| PlacementTiming { rows, depth: 0, device: 1.0, guest };
        let of = |decode: [f64; 3], prefill: [f64; 3]| {
            let timings: Vec<_> =
                decode.map(|s| timing(1, s)).into_iter().chain(prefill.map(|s| timing(512, s))).collect();
            let GuestPasses { decode, prefill, others } = faster(&timings);
            assert!(!others, "nobody measures them");
            (decode, prefill)
        };
        assert_eq!(of([0.9; 3], [0.9; 3]), (true, true));
        assert_eq!(of([1.1; 3], [0.9; 3]), (false, true));
        assert_eq!(of([0.9; 3], [0.5, 0.5, 1.1]), (true, false));
        assert_eq!(of([0.99; 3], [f64::NAN; 3]), (false, false));
        assert_eq!(faster(&[]), GuestPasses::NONE);
        assert_eq!(faster(&[timing(1, 0.5)]), GuestPasses { decode: true, ..GuestPasses::NONE });
    }
}
