//! The lists of every kind of pass, and the choice of a pass's kind.

use crate::executor::offload::PassGroup;
use crate::executor::{HeadRows, Row};
use crate::lower::{PassKind, RowOrder, TokenSource};
use crate::replay::driver::{Driver, Stamps};
use crate::replay::needs::SLOTS;
use crate::replay::submit_pace::{PassLoad, SubmitPace};
use crate::schedule::{Extent, Segment};
use crate::{Error, Result};
use std::ops::Range;
use std::time::Duration;

/// The dispatches of a submit after those of the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// No dispatches follow the layers.
    None,
    /// The head follows, for one row.
    One,
    /// The head for all head rows of the schedule.
    All,
}

pub(super) const TAILS: [Tail; 3] = [Tail::None, Tail::One, Tail::All];

impl Tail {
    /// The tail that computes the logits of these head rows.
    pub(crate) fn of(head: Option<HeadRows>) -> Tail {
        match head {
            None => Tail::None,
            Some(h) if h.count > 1 => Tail::All,
            Some(_) => Tail::One,
        }
    }
}

/// Baked lists, and the stamps of their spans.
pub(crate) struct Stamped<D: Driver> {
    pub lists: Vec<D::Baked>,
    pub(super) stamps: Option<D::Stamps>,
}

impl<D: Driver> Default for Stamped<D> {
    fn default() -> Self {
        Stamped { lists: Vec::new(), stamps: None }
    }
}

impl<D: Driver> Stamped<D> {
    /// Seconds of the slowest span, and of all spans together. The lists must have been waited for. `None` without a
    /// clock.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub(crate) fn seconds(&mut self) -> Result<Option<(f64, f64)>> {
        let Some(stamps) = &mut self.stamps else { return Ok(None) };
        Ok(Some(stamps.read_spans()?.fold((0.0, 0.0), |(slowest, sum), s| (s.max(slowest), s + sum))))
    }
}

/// Work of a pass that one engine does without a change to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The device's lists, by their indices in [`BakedKind::segments`].
    Device(Range<usize>),
    /// A step that the offload computes.
    Offload(OffloadPiece),
}

/// A step that the offload computes, and its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OffloadPiece {
    /// The step's index in the schedule.
    pub step: usize,
    /// The rows that it runs for; `None`: all.
    pub half: Option<PassHalf>,
    /// Lists of the other half that run beside the step: they neither read the step's output nor write its input. They
    /// follow the device's work before the piece.
    pub beside: Range<usize>,
}

/// The first or the second half of a pass's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassHalf {
    First,
    Second,
}

impl PassHalf {
    pub(crate) const BOTH: [PassHalf; 2] = [PassHalf::First, PassHalf::Second];
}

/// The part of the pass that a list of [`BakedKind::segments`] computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListPart {
    pub segment: Segment,
    pub half: Option<PassHalf>,
    /// True if this list finishes its segment for all rows of the pass.
    pub ends: bool,
}

/// The baked lists of one kind of pass.
pub(crate) struct BakedKind<D: Driver> {
    pub kind: PassKind,
    /// Seconds of a pass with all rows of this kind, if measured by tuning. For a mixed kind, those of consecutive
    /// rows.
    pub seconds: Option<f64>,
    /// A whole pass in one list, per [`Tail`]. Replayed if it keeps to the submit budget.
    pub whole: [Stamped<D>; 3],
    /// The pass after one of this kind, with that one's next tokens as input, per slot of results. Its head covers all
    /// rows. `None` unless every row of the pass before has a next token.
    pub following: Option<[Stamped<D>; SLOTS]>,
    /// The pass segment by segment: embedding, then each layer, divided at an offload's step. Used while the pass's
    /// time is unknown or exceeds the submit budget, and with an offload.
    pub segments: Stamped<D>,
    /// The part of the pass that each of these lists computes.
    pub parts: Vec<ListPart>,
    /// Rows of the first half, if passes are divided.
    pub half: Option<usize>,
    /// The pieces in order: lists, and between them the offload's steps.
    pub pieces: Vec<Piece>,
    pub pace: SubmitPace,
    /// The time of the last pass, if it was one submit; else 0.
    pub last: Duration,
}

impl<D: Driver> BakedKind<D> {
    /// Segments per submit of a pass of these rows.
    pub(crate) fn per_submit(&self, rows: &[Row]) -> usize {
        if self.pace.covers(PassLoad::of(rows)) { self.pace.per_submit } else { 1 }
    }

    /// Most lists of a submit: with an offload, fewer than all.
    pub(crate) fn most_per_submit(&self) -> usize {
        self.segments.lists.len() - usize::from(self.pieces.len() > 1)
    }

    /// The range of a pass's rows in a half.
    pub(crate) fn rows_of(&self, half: Option<PassHalf>, rows: usize) -> Range<usize> {
        let middle = self.half.unwrap_or(rows).min(rows);
        match half {
            None => 0..rows,
            Some(PassHalf::First) => 0..middle,
            Some(PassHalf::Second) => middle..rows,
        }
    }

    /// True if a pass of these rows is short enough for one submit.
    pub(crate) fn is_whole(&self, rows: &[Row]) -> bool {
        self.per_submit(rows) >= self.segments.lists.len()
    }
}

/// The baked lists that draft tokens.
pub(super) struct BakedDraft<D: Driver> {
    /// The most rows that the lists draft for.
    pub rows: usize,
    /// A list for each number of steps, from one on.
    pub lists: Vec<D::Baked>,
    /// The time of each step of the last draft.
    pub step: Duration,
}

/// The baked lists of all passes and drafts.
pub(crate) struct Passes<D: Driver> {
    pub kinds: Vec<BakedKind<D>>,
    /// The head alone, for one row and for `head_rows`.
    pub(super) heads: [Stamped<D>; 2],
    /// Copies of the logits to memory that the host reads, for one row and for `head_rows`. `None` if the host reads
    /// the arena.
    pub(super) fetches: [Option<D::Baked>; 2],
    /// The lists that compute sample results, for one row and for `head_rows`, per slot of results: submitted after a
    /// head if a row has a sample request.
    pub(super) choices: Vec<[D::Baked; SLOTS]>,
    /// The lists that draft, in ascending order of their rows.
    pub(super) drafts: Vec<BakedDraft<D>>,
}

impl<D: Driver> Default for Passes<D> {
    fn default() -> Self {
        Passes {
            kinds: Vec::new(),
            heads: Default::default(),
            fetches: [None; 2],
            choices: Vec::new(),
            drafts: Vec::new(),
        }
    }
}

impl<D: Driver> Passes<D> {
    /// Index of the kind that these rows run as: among the kinds of their order, the smallest that holds them, or a
    /// larger one that was measured to take less time. So no pass takes longer than one with more rows. Mixed rows run
    /// as rows in any order if that kind is smaller.
    ///
    /// # Errors
    /// Input: no kind holds them.
    pub(crate) fn kind_for(&self, rows: &[Row]) -> Result<usize> {
        let of = |i: usize| (self.kinds[i].kind, self.kinds[i].seconds);
        kind_of(self.kinds.len(), of, rows).ok_or_else(|| {
            let what = "rows of one sequence that do not follow each other, in an executor for one sequence";
            Error::input(what, "give them in passes of their own, or load for several sequences")
        })
    }

    /// The number of a prompt's next rows, `most` at most, whose pass with `beside` rows of other sequences runs the
    /// most rows a second: either `most`, or at least half of that if it fills a smaller kind.
    pub(crate) fn chunk_rows(&self, most: usize, beside: usize) -> usize {
        let of = |i: usize| (self.kinds[i].kind, self.kinds[i].seconds);
        chunk_rows(self.kinds.len(), of, most, beside)
    }

    /// The list that computes the head by itself, for rows of a pass that has ended.
    pub(crate) fn head(&self, head: HeadRows) -> &Stamped<D> {
        &self.heads[usize::from(head.count > 1)]
    }

    /// The list of [`Passes::head`], whose timestamps can be read.
    pub(crate) fn head_mut(&mut self, head: HeadRows) -> &mut Stamped<D> {
        &mut self.heads[usize::from(head.count > 1)]
    }

    /// The list that computes the sample results of a pass whose results are in `slot`.
    pub(crate) fn choice(&self, head: HeadRows, slot: usize) -> D::Baked {
        self.choices[usize::from(head.count > 1)][slot]
    }

    /// The smallest lists that draft for at least `rows` rows.
    pub(super) fn draft(&mut self, rows: usize) -> Option<&mut BakedDraft<D>> {
        self.drafts.iter_mut().find(|draft| draft.rows >= rows)
    }

    /// The list that copies the logits of `rows` rows to the host. `None` if the host reads the arena.
    pub(crate) fn fetch(&self, rows: usize) -> Option<D::Baked> {
        self.fetches[usize::from(rows > 1)]
    }
}

/// A larger kind is used only if it takes less than this share of the smallest one's time: estimates vary by the rest
/// from run to run.
const CHEAPER: f64 = 0.99;

/// Fewest rows of a mixed kind, if passes may have as many: fewer rows take hardly less time.
const LEAST_MIXED: usize = 32;
/// Rows whose time equals the fixed time of a pass, if nothing was measured.
const UNMEASURED: usize = 64;

/// The search of [`Passes::kind_for`]; `count` and `of` as for [`cheapest`].
fn kind_of(count: usize, of: impl Fn(usize) -> (PassKind, Option<f64>), rows: &[Row]) -> Option<usize> {
    let best = |order: RowOrder| order.holds(rows).then(|| cheapest(count, &of, order, rows.len())).flatten();
    let own = [RowOrder::Consecutive, RowOrder::Apart].into_iter().find_map(best);
    own.or_else(|| [RowOrder::Mixed, RowOrder::Any].into_iter().filter_map(best).min_by_key(|&i| of(i).0.rows))
}

/// Among `count` kinds, the smallest of an order that holds `rows` rows, or a larger one that takes less time. `of`
/// returns a kind and its seconds, if measured.
fn cheapest(
    count: usize,
    of: impl Fn(usize) -> (PassKind, Option<f64>),
    order: RowOrder,
    rows: usize,
) -> Option<usize> {
    let fit = (0..count).filter(|&i| of(i).0.order == order && of(i).0.rows >= rows);
    let smallest = fit.clone().min_by_key(|&i| of(i).0.rows)?;
    let (kind, Some(seconds)) = of(smallest) else { return Some(smallest) };
    // For a single sequence, only passes of one row can be started ahead.
    if kind.rows == 1 {
        return Some(smallest);
    }
    let cheaper = fit.filter_map(|i| Some((of(i).1.filter(|&s| s < CHEAPER * seconds)?, i)));
    Some(cheaper.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(smallest, |(_, i)| i))
}

/// The search of [`Passes::chunk_rows`]; `count` and `of` as for [`cheapest`].
fn chunk_rows(count: usize, of: impl Fn(usize) -> (PassKind, Option<f64>), most: usize, beside: usize) -> usize {
    let sizes = (0..count).map(|i| of(i).0).filter(|kind| kind.order == RowOrder::Mixed).map(|kind| kind.rows);
    let filled = sizes.filter_map(|rows| rows.checked_sub(beside)).filter(|&chunk| chunk < most && most <= 2 * chunk);
    let rate = |chunk: usize| {
        let rows = chunk + beside;
        let (kind, seconds) = of(cheapest(count, &of, RowOrder::Mixed, rows)?);
        // All kinds are measured, or none is.
        Some(rows as f64 / seconds.unwrap_or((kind.rows + UNMEASURED) as f64))
    };
    let better = |best: usize, chunk: usize| if rate(chunk) > rate(best) { chunk } else { best };
    filled.fold(most, better)
}

/// Powers of two below `most`, then `most`.
pub(super) fn sizes(most: usize) -> impl Iterator<Item = usize> {
    (0..).map(|i| 1usize << i).take_while(move |&n| n < most).chain([most])
}

/// The kinds of pass that are baked, by powers of two: rows of one sequence, rows of different sequences, both mixed,
/// and rows in any order. Of the last there are as many as of mixed ones, for several prompts, and smaller ones if
/// drafts of several sequences may be verified. A number of sequences that is no power of two runs in the next larger
/// kind, whose kernels are tuned anyway.
pub(crate) fn kinds(e: &Extent) -> Vec<PassKind> {
    let prompts = sizes(e.max_rows).map(|n| (n, RowOrder::Consecutive));
    let batches = sizes(e.sequences.next_power_of_two().min(e.max_rows)).filter(|&n| n > 1);
    let batches = batches.filter(|_| e.sequences > 1).map(|n| (n, RowOrder::Apart));
    let least = LEAST_MIXED.min(e.max_rows);
    let mixed = sizes(e.max_rows).filter(|&n| n >= least).map(|n| (n, RowOrder::Mixed));
    let drafts = sizes(e.head_rows).filter(|&n| n > 1 && n < e.max_rows && e.head_rows > e.sequences);
    let mut any: Vec<usize> = drafts.chain(sizes(e.max_rows).filter(|&n| n >= least)).collect();
    any.sort_unstable();
    any.dedup();
    let several = mixed.chain(any.into_iter().map(|n| (n, RowOrder::Any))).filter(|_| e.sequences > 1);
    let kind = |(rows, order)| PassKind { rows, head_rows: e.head_rows, order, tokens: TokenSource::Host };
    prompts.chain(batches).chain(several).map(kind).collect()
}

/// The group that passes of a kind are given to an offload with.
pub(crate) fn group(kind: PassKind) -> PassGroup {
    match kind.is_measured() {
        true if kind.rows == 1 => PassGroup::Decode,
        true => PassGroup::Prefill,
        false => PassGroup::Others,
    }
}

/// The kinds of pass that are tuned: one row, then consecutive rows and rows apart, the largest first. The other kinds
/// have the products of consecutive rows.
pub(crate) fn tuned(e: &Extent) -> impl Iterator<Item = PassKind> {
    let mut kinds = kinds(e);
    kinds.retain(|k| matches!(k.order, RowOrder::Consecutive | RowOrder::Apart));
    kinds.sort_by_key(|k| (k.rows != 1, std::cmp::Reverse(k.rows)));
    kinds.into_iter().map(|k| PassKind { head_rows: k.rows.min(k.head_rows), ..k })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::KvType;

    fn extent(max_rows: usize, sequences: usize) -> Extent {
        Extent { context: 1024, max_rows, head_rows: sequences, sequences, kv: KvType::F16, kv_tokens: None }
    }

    fn rows_of(kinds: &[PassKind], order: RowOrder) -> Vec<usize> {
        kinds.iter().filter(|k| k.order == order).map(|k| k.rows).collect()
    }

    /// The kind that a pass of `rows` rows runs as; `seconds` gives a kind's time.
    fn chosen(
        kinds: &[PassKind],
        seconds: impl Fn(&PassKind) -> Option<f64>,
        rows: usize,
        order: RowOrder,
    ) -> PassKind {
        kinds[cheapest(kinds.len(), |i| (kinds[i], seconds(&kinds[i])), order, rows).unwrap()]
    }

    #[test]
    fn kinds_are_powers_of_two_and_the_largest_pass() {
        let all = kinds(&extent(100, 5));
        assert_eq!(rows_of(&all, RowOrder::Consecutive), [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(rows_of(&all, RowOrder::Apart), [2, 4, 8]);
        assert_eq!(
            (rows_of(&all, RowOrder::Mixed), rows_of(&all, RowOrder::Any)),
            (vec![32, 64, 100], vec![32, 64, 100])
        );
        let few = kinds(&extent(5, 5));
        assert_eq!(rows_of(&few, RowOrder::Apart), [2, 4, 5], "no more rows than the slots have");
        assert_eq!(rows_of(&few, RowOrder::Mixed), [5]);
        let alone = kinds(&extent(1, 1));
        assert_eq!((alone.len(), alone[0].rows), (1, 1));
        let tuned: Vec<usize> = tuned(&extent(100, 5)).map(|k| k.rows).collect();
        assert_eq!(tuned, [1, 100, 64, 32, 16, 8, 8, 4, 4, 2, 2], "one row, then downwards");
    }

    /// With the times of an H200, on which three and four rows took longer than sixteen.
    #[test]
    fn no_pass_takes_longer_than_one_of_more_rows() {
        let all = kinds(&extent(64, 64));
        let times = [(1, 7.6), (2, 9.0), (4, 12.3), (8, 9.9), (16, 11.2), (32, 13.9), (64, 13.0)];
        let seconds = |k: &PassKind| match k.order {
            RowOrder::Apart => times.iter().find(|t| t.0 == k.rows).map(|t| t.1),
            RowOrder::Consecutive => Some(1.0),
            RowOrder::Mixed | RowOrder::Any => None,
        };
        let run = |rows| chosen(&all, seconds, rows, RowOrder::Apart);
        let rows: Vec<usize> = (2..=64).map(|rows| run(rows).rows).collect();
        assert_eq!(rows[..8], [2, 8, 8, 8, 8, 8, 8, 16]);
        assert_eq!(rows[32 - 2], 64);
        let taken: Vec<f64> = (2..=64).map(|rows| seconds(&run(rows)).unwrap()).collect();
        assert!(taken.is_sorted_by(|a, b| *b > CHEAPER * a), "{taken:?}");
        // An equal time to within the error is no reason to run more rows.
        let alike = |k: &PassKind| Some(if k.rows == 8 { 0.995 } else { 1.0 });
        assert_eq!(chosen(&all, alike, 3, RowOrder::Apart).rows, 4);
        // A pass of one row can be started ahead, and one of two rows of a sequence cannot.
        assert_eq!(chosen(&all, |k| Some(1.0 / k.rows as f64), 1, RowOrder::Consecutive).rows, 1);
        assert_eq!(chosen(&all, |_| None, 33, RowOrder::Consecutive).rows, 64);
    }

    /// A chunk is cut if its rest would nearly double a pass, but not if a pass takes as long either way.
    #[test]
    fn a_chunk_fills_a_kind_or_goes_on_to_the_next_for_enough_rows() {
        let all = kinds(&extent(512, 32));
        let run = |seconds: &dyn Fn(usize) -> Option<f64>, most, beside| {
            chunk_rows(all.len(), |i| (all[i], seconds(all[i].rows)), most, beside)
        };
        for (most, beside, taken) in [
            (480, 32, 480),
            (481, 31, 481),
            (100, 32, 96),
            (4, 32, 4),
            (300, 20, 236),
            (450, 20, 450),
            (200, 32, 200),
            (10, 31, 10),
            (1, 31, 1),
        ] {
            assert_eq!(run(&|_| None, most, beside), taken, "{most} rows beside {beside}");
        }
        // Equal times for all rows, and times proportional to the rows.
        assert_eq!((run(&|_| Some(0.1), 100, 32), run(&|_| Some(0.1), 7, 30)), (100, 7));
        let linear = |rows| Some(rows as f64 * 1e-3);
        assert_eq!((run(&linear, 400, 32), run(&linear, 100, 32), run(&linear, 480, 32)), (224, 96, 480));
    }

    #[test]
    fn rows_run_as_the_first_kind_of_order_that_they_stand_in() {
        let row = |sequence, position| Row { token: 0, position, sequence };
        let chunk = |sequence, count| (0..count).map(move |i| row(sequence, 60 + i)).collect::<Vec<_>>();
        let then = |first: &[Row], rows: &[Row]| [first, rows].concat();
        let with = |head_rows| {
            let kinds = kinds(&Extent { head_rows, ..extent(512, 4) });
            move |rows: &[Row]| {
                let kind = kinds[kind_of(kinds.len(), |i| (kinds[i], None), rows).unwrap()];
                (kind.order, kind.rows)
            }
        };
        let of = with(4);
        assert_eq!(of(&[row(3, 9)]), (RowOrder::Consecutive, 1));
        assert_eq!(of(&chunk(1, 5)), (RowOrder::Consecutive, 8));
        assert_eq!(of(&[row(1, 5), row(0, 6), row(2, 7)]), (RowOrder::Apart, 4));
        assert_eq!(of(&then(&chunk(1, 2), &[row(0, 0)])), (RowOrder::Mixed, 32));
        assert_eq!(of(&then(&chunk(1, 7), &[row(2, 3), row(0, 3), row(3, 70)])), (RowOrder::Mixed, 32));
        // A row of the chunk's sequence after it, two of another's, and a chunk that is not first.
        let in_any_order = [
            then(&chunk(1, 7), &[row(2, 3), row(1, 67)]),
            then(&chunk(1, 7), &[row(2, 3), row(2, 4)]),
            then(&[row(0, 3)], &chunk(1, 7)),
        ];
        assert_eq!(in_any_order.clone().map(|rows| of(&rows)), [(RowOrder::Any, 32); 3]);
        let prompts = then(&chunk(1, 30), &then(&chunk(2, 30), &chunk(3, 5)));
        assert_eq!(of(&prompts), (RowOrder::Any, 128));
        // With drafts of several sequences there are smaller kinds for rows in any order.
        let of = with(32);
        assert_eq!(in_any_order.map(|rows| of(&rows)), [(RowOrder::Any, 16), (RowOrder::Any, 16), (RowOrder::Any, 8)]);
        assert_eq!(of(&then(&chunk(1, 2), &[row(0, 0)])), (RowOrder::Any, 4));
        assert_eq!(of(&then(&chunk(1, 20), &[row(0, 0)])), (RowOrder::Mixed, 32));
        assert_eq!(of(&[row(1, 5), row(0, 6), row(2, 7)]), (RowOrder::Apart, 4));
    }
}
