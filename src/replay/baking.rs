//! Bakes the lists of every kind of pass when the model is loaded: as a whole, and in pieces.

use super::device_queue::DeviceQueue;
use super::driver::{Driver, MemoryCopy};
use super::list::Relay;
use super::passes::{
    BakedDraft, BakedKind, ListPart, OffloadPiece, PassHalf, Passes, Piece, Stamped, TAILS, Tail, group, kinds, sizes,
    tuned,
};
use super::results::Results;
use super::submit_pace::SubmitPace;
use crate::executor::offload::{Offload, OffloadStep};
use crate::lower::dispatch::{Addresses, Dispatch};
use crate::lower::kernels::Kernel;
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::lower::{Lowering, PassKind, RowOrder, TokenSource};
use crate::replay::needs::SLOTS;
use crate::schedule::{DRAFT_STEPS, Schedule, Segment};
use crate::{Error, Result};
use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

/// The parts that passes are baked from.
pub(crate) struct Baking<'a, D: Driver> {
    pub queue: &'a mut DeviceQueue<D>,
    pub schedule: &'a Schedule,
    pub layout: &'a GpuLayout,
    pub addresses: &'a Addresses,
    pub target: &'a Target,
    pub relay: Option<Relay<'a, D>>,
    pub arena: &'a D::Memory,
    pub results: &'a Results<D>,
    /// The offload that computes attention in place of the device; `None` if there is none.
    pub offload: Option<&'a dyn Offload>,
}

/// A pass in one list for each tail, and its following pass in one list for each slot of results.
type WholePass<D> = ([Stamped<D>; 3], Option<[Stamped<D>; SLOTS]>);

/// The steps of a segment that one engine runs without a change to the other.
enum SegmentPart {
    /// Dispatches that the device runs.
    Device(Vec<Dispatch>),
    /// The index of a step that the offload runs.
    Offload(usize),
}

impl<'a, D: Driver> Baking<'a, D> {
    /// The kernels that passes of any kind dispatch.
    pub(crate) fn kernels(&self) -> HashSet<Kernel> {
        let extent = &self.schedule.extent;
        let mut kernels = HashSet::new();
        let mut add = |dispatches: Vec<Dispatch>| kernels.extend(dispatches.into_iter().map(|d| d.kernel));
        for kind in kinds(extent) {
            self.in_pieces(kind).lists.into_iter().for_each(&mut add);
            add(self.lower(Segment::Embed, PassKind { tokens: TokenSource::Next, ..kind }));
            add(self.head(kind.rows.min(kind.head_rows)));
        }
        for rows in [1, extent.head_rows] {
            add(self.head(rows));
            add(self.of_head(Segment::Choice, rows));
        }
        for rows in self.draft_rows() {
            [0, 1].into_iter().for_each(|step| add(self.draft_step(rows, step)));
        }
        kernels
    }

    /// Bakes anew the kinds of pass whose number of rows, or of rows in the first half, is in `rows`, and the kinds
    /// whose head differs from the head for `old`. None of their lists may be in flight.
    ///
    /// # Errors
    /// As [`Baking::bake`]. `passes` are then unchanged.
    pub(crate) fn rebake(&mut self, passes: &mut Passes<D>, rows: &[usize], old: &Target) -> Result<()> {
        let heads = |this: &Self, target: &Target, rows| {
            let kind = PassKind { rows: 1, head_rows: rows, order: RowOrder::Consecutive, tokens: TokenSource::Host };
            let Baking { schedule, layout, addresses, .. } = *this;
            Lowering { schedule, layout, addresses, target, kind }.segment(Segment::Head)
        };
        let has_moved = |this: &Self, rows| heads(this, this.target, rows) != heads(this, old, rows);
        for baked in &mut passes.kinds {
            let kind = baked.kind;
            let head_rows = kind.rows.min(kind.head_rows);
            let has_new = rows.contains(&kind.rows) || baked.half.is_some_and(|half| rows.contains(&half));
            if has_new || has_moved(self, 1) || has_moved(self, head_rows) {
                let new = self.kind(kind)?;
                let old = std::mem::replace(baked, new);
                (baked.pace, baked.last) = (old.pace, old.last);
                let following = old.following.iter().flatten();
                let stamped = old.whole.iter().chain(following).chain([&old.segments]);
                stamped.for_each(|s| self.queue.driver.free(&s.lists));
            }
        }
        for (i, rows) in [1, self.schedule.extent.head_rows].into_iter().enumerate() {
            if has_moved(self, rows) {
                let head = self.head(rows);
                let new = self.list(&[&head], Some(self.state_copy(0)))?;
                let old = std::mem::replace(&mut passes.heads[i], new);
                self.queue.driver.free(&old.lists);
            }
        }
        Ok(())
    }

    /// Bakes every kind of pass.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the driver refuses.
    pub(crate) fn bake(&mut self) -> Result<Passes<D>> {
        let extent = &self.schedule.extent;
        let mut passes = Passes::default();
        for kind in kinds(extent) {
            passes.kinds.push(self.kind(kind)?);
        }
        for (i, rows) in [1, extent.head_rows].into_iter().enumerate() {
            let head = self.head(rows);
            passes.heads[i] = self.list(&[&head], Some(self.state_copy(0)))?;
            let choice = self.of_head(Segment::Choice, rows);
            // A choice writes the next tokens of sample requests to the step state, which is copied again.
            let mut choice_to = |slot| {
                let copies = [self.results.found_copy(self.arena, self.schedule, rows), self.state_copy(slot)];
                self.queue.bake(&[&choice], None, None, copies)
            };
            passes.choices.push([choice_to(0)?, choice_to(1)?]);
            let logits = self.results.logits_copy(self.arena, self.schedule, rows);
            passes.fetches[i] = logits.map(|copy| self.queue.bake(&[], None, None, [copy])).transpose()?;
        }
        for rows in self.draft_rows() {
            let steps: Vec<_> = (0..DRAFT_STEPS).map(|step| self.draft_step(rows, step)).collect();
            let steps: Vec<&[Dispatch]> = steps.iter().map(Vec::as_slice).collect();
            let lists = (1..=DRAFT_STEPS).map(|count| {
                let copy = self.results.draft_copy(self.arena, self.schedule);
                self.queue.bake(&steps[..count], self.relay, None, copy)
            });
            let lists = lists.collect::<Result<_>>()?;
            passes.drafts.push(BakedDraft { rows, lists, step: Duration::ZERO });
        }
        Ok(passes)
    }

    /// Most rows of each kind of draft that is baked; none without a drafter.
    fn draft_rows(&self) -> Vec<usize> {
        self.schedule.drafter.as_ref().map_or_else(Vec::new, |drafter| sizes(drafter.rows).collect())
    }

    /// A step of a draft of `rows` rows. All but the first begin with the token and the state that the step before has
    /// left.
    fn draft_step(&self, rows: usize, step: usize) -> Vec<Dispatch> {
        let order = if rows == 1 { RowOrder::Consecutive } else { RowOrder::Apart };
        let tokens = step.checked_sub(1).map_or(TokenSource::Host, TokenSource::Drafted);
        let Baking { schedule, layout, addresses, target, .. } = *self;
        let kind = PassKind { rows, head_rows: rows, order, tokens };
        let steps = schedule.steps_of(Segment::Draft);
        let lowering = Lowering { schedule, layout, addresses, target, kind };
        lowering.lower(steps.start + usize::from(step > 0)..steps.end)
    }

    fn kind(&mut self, kind: PassKind) -> Result<BakedKind<D>> {
        let (mut whole, mut following) = (Default::default(), None);
        // A pass with an offload is never one submit.
        let is_offloaded = self.is_offloaded(kind);
        if !is_offloaded {
            (whole, following) = self.whole(kind)?;
        }
        let PassInPieces { lists, parts, pieces, half } = self.in_pieces(kind);
        // A relay's counters are addressed from the step state of all rows, which half a pass does not have.
        let segments = self.each(&lists, self.relay.filter(|_| half.is_none()))?;
        // The other orders have the products of consecutive rows.
        let has_own = matches!(kind.order, RowOrder::Consecutive | RowOrder::Apart);
        let order = if has_own { kind.order } else { RowOrder::Consecutive };
        // Kinds are compared by their times, so either all times count or none.
        let measured = |k: PassKind| self.target.seconds.contains_key(&(k.rows, k.order));
        let seconds = self.target.seconds.get(&(kind.rows, order)).copied();
        let seconds = seconds.filter(|_| !is_offloaded && tuned(&self.schedule.extent).all(measured));
        Ok(BakedKind {
            kind,
            seconds,
            whole,
            following,
            segments,
            parts,
            half,
            pieces,
            pace: SubmitPace::default(),
            last: Duration::ZERO,
        })
    }

    /// A pass without the head, in pieces: embedding, then layer by layer.
    fn in_pieces(&self, kind: PassKind) -> PassInPieces {
        let half = kind.half().filter(|_| self.is_offloaded(kind));
        let mut pass = PassInPieces { lists: Vec::new(), parts: Vec::new(), pieces: Vec::new(), half };
        pass.pieces = match half {
            None => self.chain(kind, None, &mut pass).pieces(),
            Some(_) => {
                let [first, second] = PassHalf::BOTH.map(|half| self.chain(kind, Some(half), &mut pass));
                first.beside(&second)
            }
        };
        pass
    }

    /// Adds the lists of all rows of a pass or of half of them. Returns these lists with the offload's steps
    /// between them.
    fn chain(&self, kind: PassKind, half: Option<PassHalf>, pass: &mut PassInPieces) -> Chain {
        let PassInPieces { lists, parts, .. } = pass;
        let none = |lists: &[Vec<Dispatch>]| lists.len()..lists.len();
        let mut chain = Chain { half, lists: vec![none(lists)], steps: Vec::new() };
        for segment in self.schedule.segments().filter(|s| *s != Segment::Head) {
            for part in self.parts(segment, kind, half) {
                match part {
                    SegmentPart::Offload(step) => {
                        chain.steps.push(step);
                        chain.lists.push(none(lists));
                    }
                    SegmentPart::Device(dispatches) => {
                        lists.push(dispatches);
                        parts.push(ListPart { segment, half, ends: false });
                        chain.lists.last_mut().into_iter().for_each(|of| of.end += 1);
                    }
                }
            }
            // An offload's step is never a segment's last. The pass's last rows are in the second half.
            if half != Some(PassHalf::First) {
                parts.last_mut().into_iter().for_each(|part| part.ends = true);
            }
        }
        chain
    }

    /// A pass in one list for each tail, and the list of its following pass if one can follow.
    fn whole(&mut self, kind: PassKind) -> Result<WholePass<D>> {
        // At most as many rows of logits as the pass has rows.
        let most = kind.rows.min(kind.head_rows);
        let layers = self.schedule.segments().filter(|s| matches!(s, Segment::Layer(_)));
        let layers: Vec<_> = layers.map(|s| self.lower(s, kind)).collect();
        let heads = [Vec::new(), self.head(1), self.head(most)];
        let embed = |tokens| PassKind { tokens, ..kind };
        let given = self.lower(Segment::Embed, embed(TokenSource::Host));
        let mut whole = <[Stamped<D>; 3]>::default();
        for (tail, stamped) in TAILS.into_iter().zip(&mut whole) {
            // Passes of one row never use `Tail::All`.
            if tail != Tail::All || most > 1 {
                let copy = (tail != Tail::None).then(|| self.state_copy(0));
                *stamped = self.list(&whole_pass(&given, &layers, &heads[tail as usize]), copy)?;
            }
        }
        let rows = kind.rows.min(self.schedule.extent.sequences);
        let follows = most >= rows && (kind.rows == 1 || kind.order == RowOrder::Apart);
        let following = follows.then(|| {
            let chosen = self.lower(Segment::Embed, embed(TokenSource::Next));
            let parts = whole_pass(&chosen, &layers, &heads[Tail::All as usize]);
            Ok::<_, Error>([self.list(&parts, Some(self.state_copy(0)))?, self.list(&parts, Some(self.state_copy(1)))?])
        });
        Ok((whole, following.transpose()?))
    }

    /// A segment's parts, for all rows or half of them: the device's dispatches, and between them the offload's steps.
    fn parts(&self, segment: Segment, kind: PassKind, half: Option<PassHalf>) -> Vec<SegmentPart> {
        let steps = &self.schedule.steps;
        let runs = self.is_offloaded(kind);
        let is_offloaded = |at: &usize| runs && OffloadStep::accepts(&steps[*at]);
        let of = self.schedule.steps_of(segment);
        let Baking { schedule, layout, addresses, target, .. } = *self;
        let (kind, addresses) = match half {
            Some(half) => of_half(kind, half, addresses, layout),
            None => (kind, addresses.clone()),
        };
        let lowering = Lowering { schedule, layout, addresses: &addresses, target, kind };
        let mut parts = Vec::new();
        let mut at = of.start;
        while at < of.end {
            if is_offloaded(&at) {
                parts.push(SegmentPart::Offload(at));
                at += 1;
                continue;
            }
            // The device's piece around this step extends between the offload's steps before and after it.
            let piece = (0..at).rev().find(is_offloaded).map_or(0, |step| step + 1)
                ..(at..steps.len()).find(is_offloaded).unwrap_or(steps.len());
            let end = piece.end.min(of.end);
            parts.push(SegmentPart::Device(lowering.part(piece, at..end)));
            at = end;
        }
        parts
    }

    /// True if the offload computes steps in passes of this kind.
    fn is_offloaded(&self, kind: PassKind) -> bool {
        self.offload.is_some_and(|offload| offload.runs_in(group(kind)))
    }

    fn lower(&self, segment: Segment, kind: PassKind) -> Vec<Dispatch> {
        let Baking { schedule, layout, addresses, target, .. } = *self;
        Lowering { schedule, layout, addresses, target, kind }.segment(segment)
    }

    fn head(&self, rows: usize) -> Vec<Dispatch> {
        self.of_head(Segment::Head, rows)
    }

    fn of_head(&self, segment: Segment, rows: usize) -> Vec<Dispatch> {
        let kind = PassKind { rows: 1, head_rows: rows, order: RowOrder::Consecutive, tokens: TokenSource::Host };
        self.lower(segment, kind)
    }

    fn state_copy(&self, slot: usize) -> MemoryCopy<'a, D> {
        self.results.state_copy(self.arena, self.schedule, slot)
    }

    /// Bakes all dispatches of `parts` in one list, whose start and end are stamped.
    fn list(&mut self, parts: &[&[Dispatch]], copy: Option<MemoryCopy<'a, D>>) -> Result<Stamped<D>> {
        let stamps = self.queue.driver.stamps(2)?;
        let lists = vec![self.queue.bake(parts, self.relay, stamps.as_ref().map(|s| (s, 0)), copy)?];
        Ok(Stamped { lists, stamps })
    }

    /// Bakes each of `parts` in a list of its own, whose start and end are stamped.
    fn each(&mut self, parts: &[Vec<Dispatch>], relay: Option<Relay<'a, D>>) -> Result<Stamped<D>> {
        let stamps = self.queue.driver.stamps(2 * parts.len())?;
        let mut lists = Vec::with_capacity(parts.len());
        for (i, part) in parts.iter().enumerate() {
            lists.push(self.queue.bake(&[part], relay, stamps.as_ref().map(|s| (s, i)), None)?);
        }
        Ok(Stamped { lists, stamps })
    }
}

/// A pass without its head, divided into the device's lists and the offload's steps.
struct PassInPieces {
    lists: Vec<Vec<Dispatch>>,
    /// The segment and the rows that each list computes.
    parts: Vec<ListPart>,
    pieces: Vec<Piece>,
    /// Rows of the first half, if the pass is divided.
    half: Option<usize>,
}

/// The sequence of work for all rows of a pass or for half of them: groups of lists, with a step of the offload
/// between two groups.
struct Chain {
    half: Option<PassHalf>,
    /// The indices of the device's lists before, between and after the offload's steps.
    lists: Vec<Range<usize>>,
    steps: Vec<usize>,
}

impl Chain {
    /// The pieces of an undivided pass.
    fn pieces(self) -> Vec<Piece> {
        let Chain { half, lists, steps } = self;
        let mut lists = lists.into_iter().map(Piece::Device);
        let mut pieces: Vec<Piece> = lists.next().into_iter().collect();
        for (step, lists) in steps.into_iter().zip(lists) {
            pieces.extend([Piece::Offload(OffloadPiece { step, half, beside: 0..0 }), lists]);
        }
        pieces.retain(|piece| !matches!(piece, Piece::Device(lists) if lists.is_empty()));
        pieces
    }

    /// The pieces of a divided pass whose second half is `second`. The halves alternate: beside each offload's step of
    /// one half, the next lists of the other run.
    fn beside(&self, second: &Chain) -> Vec<Piece> {
        let halves = [self, second];
        let mut pieces = vec![Piece::Device(self.lists[0].clone())];
        for i in 0..self.steps.len() {
            // The second half's lists before its step, then the first half's after its own.
            let beside = [second.lists[i].clone(), self.lists[i + 1].clone()];
            let offloaded = |(chain, beside): (&Chain, _)| {
                Piece::Offload(OffloadPiece { step: chain.steps[i], half: chain.half, beside })
            };
            pieces.extend(halves.into_iter().zip(beside).map(offloaded));
        }
        pieces.extend(second.lists.last().cloned().map(Piece::Device));
        pieces
    }
}

/// The kind of pass and the addresses that half of a pass's rows are lowered for; the addresses point at the half's
/// step state and rows of slots.
pub(super) fn of_half(
    kind: PassKind,
    half: PassHalf,
    addresses: &Addresses,
    layout: &GpuLayout,
) -> (PassKind, Addresses) {
    let rows = kind.half().unwrap_or(kind.rows);
    let first_row = if half == PassHalf::First { 0 } else { rows };
    (PassKind { rows, ..kind }, addresses.of_rows(first_row, layout.halves[half as usize]))
}

/// The dispatches of the embedding, of each layer and of the head, which may be empty.
fn whole_pass<'a>(embed: &'a [Dispatch], layers: &'a [Vec<Dispatch>], head: &'a [Dispatch]) -> Vec<&'a [Dispatch]> {
    let head = (!head.is_empty()).then_some(head);
    [embed].into_iter().chain(layers.iter().map(Vec::as_slice)).chain(head).collect()
}
