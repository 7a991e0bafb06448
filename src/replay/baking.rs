//! Bakes every kind of pass when the model is loaded: in one list, and in pieces.

use super::driver::{Driver, MemoryCopy};
use super::list::Relay;
use super::pace::SubmitPace;
use super::passes::{BakedKind, Passes, Piece, Stamped, TAILS, Tail, kinds, tuned};
use super::queue::DeviceQueue;
use super::results::Results;
use crate::lower::dispatch::{Addresses, Dispatch};
use crate::lower::kernels::Kernel;
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::lower::{Lowering, PassKind, RowOrder, TokenSource};
use crate::plan::device::SLOTS;
use crate::replay::guests::SeatedGuest;
use crate::schedule::{Schedule, Segment};
use crate::{Error, Result};
use std::collections::HashSet;
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
    pub guest: Option<SeatedGuest>,
}

/// A pass in one list for each tail, and the one that follows it, per slot of results.
type WholePass<D> = ([Stamped<D>; 3], Option<[Stamped<D>; SLOTS]>);

/// A part of a segment.
enum SegmentPart {
    /// What the device runs.
    Device(Vec<Dispatch>),
    /// A step that the guest runs.
    Guest(usize),
}

impl<'a, D: Driver> Baking<'a, D> {
    /// The kernels of all kinds of pass.
    pub(crate) fn kernels(&self) -> HashSet<Kernel> {
        let extent = &self.schedule.extent;
        let mut kernels = HashSet::new();
        let mut add = |dispatches: Vec<Dispatch>| kernels.extend(dispatches.into_iter().map(|d| d.kernel));
        for kind in kinds(extent) {
            for part in self.schedule.segments().filter(|s| *s != Segment::Head).flat_map(|s| self.parts(s, kind)) {
                if let SegmentPart::Device(dispatches) = part {
                    add(dispatches);
                }
            }
            add(self.lower(Segment::Embed, PassKind { tokens: TokenSource::Next, ..kind }));
            add(self.head(kind.rows.min(kind.head_rows)));
        }
        for rows in [1, extent.head_rows] {
            add(self.head(rows));
            add(self.of_head(Segment::Choice, rows));
        }
        kernels
    }

    /// Bakes anew the kinds of pass of as many rows as `rows` names, and those whose head is not what it was for `old`.
    /// Nothing of them may be under way.
    ///
    /// # Errors
    /// As [`Baking::bake`]. `passes` are as they were then.
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
            if rows.contains(&kind.rows) || has_moved(self, 1) || has_moved(self, head_rows) {
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
            // The tokens that rows have asked for stand in the step state.
            let mut choice_to = |slot| {
                let copies = [self.results.found_copy(self.arena, self.schedule, rows), self.state_copy(slot)];
                self.queue.bake(&[&choice], None, None, copies)
            };
            passes.choices.push([choice_to(0)?, choice_to(1)?]);
            let logits = self.results.logits_copy(self.arena, self.schedule, rows);
            passes.fetches[i] = logits.map(|copy| self.queue.bake(&[], None, None, [copy])).transpose()?;
        }
        Ok(passes)
    }

    fn kind(&mut self, kind: PassKind) -> Result<BakedKind<D>> {
        let (mut whole, mut following) = (Default::default(), None);
        // No pass with a guest is one submit.
        if !self.guest.is_some_and(|guest| guest.attends_in(kind)) {
            (whole, following) = self.whole(kind)?;
        }
        let (mut ends, mut pieces, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for segment in self.schedule.segments().filter(|s| *s != Segment::Head) {
            for part in self.parts(segment, kind) {
                match (part, pieces.last_mut()) {
                    (SegmentPart::Guest(step), _) => pieces.push(Piece::Guest(step)),
                    (SegmentPart::Device(dispatches), last) => {
                        match last {
                            Some(Piece::Device(lists)) => lists.end += 1,
                            _ => pieces.push(Piece::Device(parts.len()..parts.len() + 1)),
                        }
                        parts.push(dispatches);
                        ends.push(None);
                    }
                }
            }
            // A guest's step is never a segment's last.
            if let Some(end) = ends.last_mut() {
                *end = Some(segment);
            }
        }
        let parts: Vec<&[Dispatch]> = parts.iter().map(Vec::as_slice).collect();
        let segments = self.each(&parts)?;
        // These have the products of consecutive rows.
        let has_own = matches!(kind.order, RowOrder::Consecutive | RowOrder::Apart);
        let order = if has_own { kind.order } else { RowOrder::Consecutive };
        // Kinds are compared by their times: all are measured, or none counts.
        let measured = |k: PassKind| self.target.seconds.contains_key(&(k.rows, k.order));
        let seconds = self.target.seconds.get(&(kind.rows, order)).copied();
        let seconds = seconds.filter(|_| tuned(&self.schedule.extent).all(measured));
        Ok(BakedKind {
            kind,
            seconds,
            whole,
            following,
            segments,
            ends,
            pieces,
            pace: SubmitPace::default(),
            last: Duration::ZERO,
        })
    }

    /// A pass in one list for each tail, and the pass that follows one of its kind, if it can.
    fn whole(&mut self, kind: PassKind) -> Result<WholePass<D>> {
        // No more rows of logits than the pass has rows.
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

    /// A segment's parts: what the device runs of it, and between them the steps that the guest runs.
    fn parts(&self, segment: Segment, kind: PassKind) -> Vec<SegmentPart> {
        let steps = &self.schedule.steps;
        let guest = self.guest.filter(|guest| guest.attends_in(kind));
        let is_guests = |at: &usize| guest.is_some_and(|guest| guest.kind.takes(&steps[*at]));
        let of = self.schedule.steps_of(segment);
        let mut parts = Vec::new();
        let mut at = of.start;
        while at < of.end {
            if is_guests(&at) {
                parts.push(SegmentPart::Guest(at));
                at += 1;
                continue;
            }
            // The piece that this is a part of lasts from one guest's step to the next.
            let piece = (0..at).rev().find(is_guests).map_or(0, |step| step + 1)
                ..(at..steps.len()).find(is_guests).unwrap_or(steps.len());
            let end = piece.end.min(of.end);
            let Baking { schedule, layout, addresses, target, .. } = *self;
            parts
                .push(SegmentPart::Device(Lowering { schedule, layout, addresses, target, kind }.part(piece, at..end)));
            at = end;
        }
        parts
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

    /// All parts in one list and one span.
    fn list(&mut self, parts: &[&[Dispatch]], copy: Option<MemoryCopy<'a, D>>) -> Result<Stamped<D>> {
        let stamps = self.queue.driver.stamps(2)?;
        let lists = vec![self.queue.bake(parts, self.relay, stamps.as_ref().map(|s| (s, 0)), copy)?];
        Ok(Stamped { lists, stamps })
    }

    /// One list and one span per part.
    fn each(&mut self, parts: &[&[Dispatch]]) -> Result<Stamped<D>> {
        let stamps = self.queue.driver.stamps(2 * parts.len())?;
        let mut lists = Vec::with_capacity(parts.len());
        for (i, part) in parts.iter().enumerate() {
            lists.push(self.queue.bake(&[part], self.relay, stamps.as_ref().map(|s| (s, i)), None)?);
        }
        Ok(Stamped { lists, stamps })
    }
}

/// The parts of a pass; `head` may be empty.
fn whole_pass<'a>(embed: &'a [Dispatch], layers: &'a [Vec<Dispatch>], head: &'a [Dispatch]) -> Vec<&'a [Dispatch]> {
    let head = (!head.is_empty()).then_some(head);
    [embed].into_iter().chain(layers.iter().map(Vec::as_slice)).chain(head).collect()
}
