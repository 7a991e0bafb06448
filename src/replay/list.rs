//! A list of commands with the waits between the dispatches of a pass.
//!
//! A dispatch waits by an edge, or is relayed if its kernel supports that and the device runs it faster
//! ([`crate::replay::measure::tuning`]). A relayed dispatch starts beside the one before it and waits for that one's
//! workgroups by a counter (shaders/relay.glsl). That hides the dispatch's start and its first latency of memory and of
//! address translation. Independent dispatches share a counter, and wait for the same dispatch before them. On a device
//! whose edges are expensive and whose order of workgroups is unknown ([`Caps::relays_behind`]), a relayed dispatch
//! starts after the one before it, by an edge without a cache write-back: the counter makes the data visible, and no
//! workgroup spins on it.

use super::driver::{DeviceCommand, Driver, MemoryCopy};
use crate::lower::caps::Caps;
use crate::lower::dispatch::{Dispatch, Edge};
use crate::lower::kernels::Relaying;
use crate::lower::kernels::push::{ProductRelayPush, RelayPush, StagedRelayPush, word};
use crate::lower::layout::{GpuLayout, RELAY_COUNTERS, RELAY_STRIDE};
use std::ops::Range;

/// The relay counters in the arena: [`RELAY_COUNTERS`] of them.
pub struct Relay<'a, D: Driver> {
    /// The memory with the arena, in which the counters are.
    arena: &'a D::Memory,
    /// Bytes from the arena's start, where the step state lies, to the first counter.
    offset: u64,
    /// True if a relayed dispatch starts only when those before it have ended ([`Caps::relays_behind`]).
    behind: bool,
}

impl<D: Driver> Clone for Relay<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Relay<'_, D> {}

impl<'a, D: Driver> Relay<'a, D> {
    /// The relay counters in the arena of a device.
    pub fn new(arena: &'a D::Memory, layout: &GpuLayout, caps: &Caps) -> Relay<'a, D> {
        Relay { arena, offset: layout.scratch.relay, behind: caps.relays_behind }
    }
}

/// A span of stamps: the stamps and the span's index. Stamps `2 i` and `2 i + 1` are its start and its end.
pub type Span<'a, D> = (&'a <D as Driver>::Stamps, usize);

/// Commands in the order in which they run.
pub struct List<'a, D: Driver> {
    commands: Vec<DeviceCommand<'a, D>>,
    relay: Option<Relay<'a, D>>,
    /// The number of counters used since they were last set to 0.
    taken: usize,
    /// The counter shared by the last dispatches, if they are relayed.
    before: Option<Turn>,
}

/// Relayed dispatches that count themselves in the same counter.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Word of their counter; of the first stage's counter if there are several.
    counter: u32,
    /// Number of workgroups and stages that they wait for; 0 workgroups after an edge.
    waits_for: (u32, usize),
    /// Number of their workgroups, and of their stages.
    groups: u32,
    stages: usize,
}

/// How a dispatch waits for its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The dispatch needs no output of earlier ones, and does not wait.
    Nothing,
    /// The dispatch waits by a barrier.
    Edge,
    /// The dispatch waits for what the one before it waits for, and shares its counter.
    Beside,
    /// The dispatch waits until the counter of those before it has its final value.
    Turn,
}

/// `before`: stages of the relayed dispatches before, if any. `needs`: whether the dispatch reads their output.
/// `relays`: whether the dispatch can be relayed. `stages`: its own stages.
fn wait_of(before: Option<usize>, needs: bool, relays: bool, stages: usize) -> Wait {
    match (before, relays) {
        // Stages are counted one by one.
        (Some(1), true) if !needs && stages == 1 => Wait::Beside,
        (None, _) if !needs => Wait::Nothing,
        // Only relayed dispatches have waited for those before them, so a dispatch after one must wait.
        (_, true) => Wait::Turn,
        (_, false) => Wait::Edge,
    }
}

impl<'a, D: Driver> List<'a, D> {
    /// A list that waits for everything submitted before it, from the time of `stamp` on.
    pub fn new(relay: Option<Relay<'a, D>>, stamp: Option<(&'a D::Stamps, usize)>) -> List<'a, D> {
        let mut list = List { commands: Vec::new(), relay, taken: RELAY_COUNTERS, before: None };
        list.commands.extend(stamp.map(|(stamps, number)| DeviceCommand::Stamp(stamps, number)));
        list.commands.push(DeviceCommand::Wait(Edge::Device));
        list
    }

    /// Adds a dispatch, which waits by `edge` for the dispatches before it. `ahead`: device addresses of the next
    /// product's weights, which a relayed product prefetches.
    pub fn dispatch(&mut self, d: &Dispatch, edge: Edge, ahead: Range<u64>) {
        let relaying = d.kernel.module.relaying();
        let relay = self.relay.filter(|_| relaying != Relaying::Never);
        let (groups, stages) = (d.groups.iter().product::<u32>(), d.kernel.stages());
        // Unless it is relayed, it uses no counter.
        let mut words = StagedRelayPush { turn: 0, before: 0, stages: 1, ahead_low: 0, ahead_high: 0, ahead_bytes: 0 };
        let before = self.before.map(|turn| turn.stages);
        let waits = wait_of(before, edge != Edge::None, relay.is_some(), stages);
        let turn = match (waits, relay, self.before) {
            (Wait::Beside, _, Some(turn)) => Some(Turn { groups: turn.groups + groups, ..turn }),
            (Wait::Turn, Some(relay), _) => Some(self.next_turn(relay, groups, stages)),
            (Wait::Nothing, ..) => None,
            _ => {
                self.wait(Edge::Kernels);
                None
            }
        };
        if let Some(turn) = turn {
            words = StagedRelayPush {
                turn: turn.counter,
                before: turn.waits_for.0,
                stages: word(turn.waits_for.1),
                ahead_low: ahead.start as u32,
                ahead_high: (ahead.start >> 32) as u32,
                ahead_bytes: u32::try_from(ahead.end - ahead.start).unwrap_or(u32::MAX),
            };
        }
        debug_assert!(turn.is_none() || relay.is_some(), "a counter for a dispatch that is never relayed");
        self.before = turn;
        debug_assert_eq!(d.push.fields(), d.kernel.module.push(), "the push constants are another kernel's");
        let push = match relaying {
            Relaying::Never => d.push,
            Relaying::Whole => d.push.followed_by(&RelayPush { turn: words.turn, before: words.before }),
            Relaying::Product => {
                let StagedRelayPush { turn, before, ahead_low, ahead_high, ahead_bytes, .. } = words;
                d.push.followed_by(&ProductRelayPush { turn, before, ahead_low, ahead_high, ahead_bytes })
            }
            Relaying::Staged => d.push.followed_by(&words),
        };
        self.commands.push(DeviceCommand::Run { kernel: d.kernel, push, groups: d.groups });
    }

    /// Records the time when the commands so far have ended.
    pub fn stamp(&mut self, stamps: &'a D::Stamps, number: usize) {
        self.commands.push(DeviceCommand::Stamp(stamps, number));
    }

    /// Adds copies of the dispatches' output.
    fn copy(&mut self, copies: impl IntoIterator<Item = MemoryCopy<'a, D>>) {
        let mut copies = copies.into_iter().map(DeviceCommand::Copy).peekable();
        if copies.peek().is_some() {
            self.wait(Edge::Fill);
            self.commands.extend(copies);
        }
    }

    /// The finished list of commands, whose writes the host can see afterwards.
    pub fn end(mut self, stamp: Option<(&'a D::Stamps, usize)>) -> Vec<DeviceCommand<'a, D>> {
        self.wait(Edge::Host);
        self.commands.extend(stamp.map(|(stamps, number)| DeviceCommand::Stamp(stamps, number)));
        self.commands
    }

    fn wait(&mut self, edge: Edge) {
        self.commands.push(DeviceCommand::Wait(edge));
    }

    /// A counter for a dispatch that waits for the previous ones' counter.
    fn next_turn(&mut self, relay: Relay<'a, D>, groups: u32, stages: usize) -> Turn {
        if self.taken + stages > RELAY_COUNTERS {
            self.reset(relay);
        }
        let (edge, waits_for) = match self.before {
            Some(turn) => (relay.behind.then_some(Edge::Relayed), (turn.groups, turn.stages)),
            None => (Some(Edge::Kernels), (0, 1)),
        };
        if let Some(edge) = edge {
            self.wait(edge);
        }
        let counter = relay.offset + self.taken as u64 * RELAY_STRIDE;
        self.taken += stages;
        debug_assert!(self.taken <= RELAY_COUNTERS, "more stages than there are counters");
        Turn { counter: word((counter / 4) as usize), waits_for, groups, stages }
    }

    /// Zeroes all counters, after every dispatch that uses them and before any later one.
    fn reset(&mut self, relay: Relay<'a, D>) {
        let bytes = RELAY_COUNTERS as u64 * RELAY_STRIDE;
        self.wait(Edge::Fill);
        self.commands.push(DeviceCommand::Fill(relay.arena, relay.offset..relay.offset + bytes));
        self.wait(Edge::Device);
        (self.taken, self.before) = (0, None);
    }
}

/// A list of dispatches, each part after the one before it, then copies of their output.
pub(super) fn list_of<'a, D: Driver>(
    parts: &[&[Dispatch]],
    relay: Option<Relay<'a, D>>,
    span: Option<Span<'a, D>>,
    copies: impl IntoIterator<Item = MemoryCopy<'a, D>>,
) -> Vec<DeviceCommand<'a, D>> {
    let dispatches = || parts.iter().flat_map(|part| part.iter().enumerate());
    let mut list = List::new(relay, span.map(|(stamps, i)| (stamps, 2 * i)));
    for ((i, d), ahead) in dispatches().zip(weights_ahead(dispatches().map(|(_, d)| d.weights.clone()))) {
        list.dispatch(d, if i == 0 { Edge::Kernels } else { d.edge }, ahead);
    }
    list.copy(copies);
    list.end(span.map(|(stamps, i)| (stamps, 2 * i + 1)))
}

/// For each dispatch of a series, the weights of the next later dispatch that has any.
fn weights_ahead(weights: impl DoubleEndedIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut next = 0..0;
    let of = |own: Range<u64>| if own.is_empty() { next.clone() } else { std::mem::replace(&mut next, own) };
    let mut ahead: Vec<_> = weights.rev().map(of).collect();
    ahead.reverse();
    ahead
}

#[cfg(test)]
mod tests {
    use super::super::driver::{HostAccess, MemorySource};
    use super::super::fake::{RecordingDriver, words};
    use super::*;
    use crate::lower::kernels::constants::{NoConstants, Specialization};
    use crate::lower::kernels::push::{NormPush, Push, PushBlock, ReadPush};
    use crate::lower::kernels::{Kernel, Module};

    #[test]
    fn a_dispatch_waits_for_all_that_it_may_need() {
        let needs = |before| wait_of(before, true, true, 1);
        let needs_nothing = |before| wait_of(before, false, true, 1);
        assert_eq!((needs(None), needs(Some(1)), needs(Some(4))), (Wait::Turn, Wait::Turn, Wait::Turn));
        // The new dispatch runs beside those before, which have not waited for each other; with stages, its workgroups
        // would be counted several times.
        assert_eq!((needs_nothing(None), needs_nothing(Some(1))), (Wait::Nothing, Wait::Beside));
        assert_eq!((needs_nothing(Some(4)), wait_of(Some(1), false, true, 4)), (Wait::Turn, Wait::Turn));
        // A dispatch that is never relayed waits for the whole chain before it.
        let never = |before, needs| wait_of(before, needs, false, 1);
        assert_eq!(
            (never(Some(1), false), never(Some(1), true), never(None, true)),
            (Wait::Edge, Wait::Edge, Wait::Edge)
        );
        assert_eq!(never(None, false), Wait::Nothing);
    }

    #[test]
    fn each_dispatch_has_the_weights_of_the_product_behind_it() {
        let ahead = weights_ahead([0..0, 8..12, 0..0, 0..0, 4..8, 16..20, 0..0].into_iter());
        assert_eq!(ahead, [8..12, 4..8, 4..8, 4..8, 16..20, 0..0, 0..0]);
        assert!(weights_ahead(std::iter::empty()).is_empty());
    }

    fn dispatch<B: PushBlock>(module: Module, groups: u32, edge: Edge) -> Dispatch {
        let kernel = Kernel { module, workgroup: 32, constants: NoConstants {}.constants() };
        Dispatch { edge, ..Dispatch::new(kernel, Push::new(&B::zeroed()), [groups, 1, 1]) }
    }

    /// Commands between two edges may run side by side; an edge separates all commands before and after it.
    #[test]
    fn a_list_waits_for_what_came_before_and_ends_where_the_host_sees_it() {
        let read = |groups, edge| dispatch::<ReadPush>(Module::Read, groups, edge);
        let first = [read(1, Edge::None), read(2, Edge::None), read(3, Edge::Kernels)];
        let driver = RecordingDriver::new();
        let memory = driver.allocate(64, 0, HostAccess::Host, MemorySource::Ordinary).unwrap();
        let stamps = driver.stamps(4).unwrap().unwrap();
        let copies = [16, 32].map(|bytes| MemoryCopy::<RecordingDriver>::new(&memory, &memory, bytes));
        let list = list_of(&[&first, &[read(4, Edge::None)]], None, Some((&stamps, 1)), copies);
        let want = "stamp 2, wait Device, wait Kernels, read 1, read 2, wait Kernels, read 3, wait Kernels, read 4, \
                    wait Fill, copy 16, copy 32, wait Host, stamp 3";
        assert_eq!(words(&list).join(", "), want);
        assert_eq!(words(&list_of::<RecordingDriver>(&[], None, None, [])).join(", "), "wait Device, wait Host");
    }

    /// Counters are zeroed before their first use, and once they are used up.
    #[test]
    fn relayed_dispatches_wait_by_counters_and_others_by_edges() {
        let driver = RecordingDriver::new();
        let arena = driver.allocate(64, 0, HostAccess::Host, MemorySource::Ordinary).unwrap();
        let relay_by = |behind| Some(Relay::<RecordingDriver> { arena: &arena, offset: 1 << 20, behind });
        let relay = || relay_by(false);
        let norm = |groups| dispatch::<NormPush>(Module::RmsNorm, groups, Edge::Kernels);
        let list =
            list_of(&[&[norm(5), norm(6), dispatch::<ReadPush>(Module::Read, 7, Edge::None)]], relay(), None, []);
        let fill = format!("fill {}", RELAY_COUNTERS as u64 * RELAY_STRIDE);
        let begin = format!("wait Fill, {fill}, wait Device, wait Kernels");
        let want = format!("wait Device, {begin}, rms_norm 5, rms_norm 6, wait Kernels, read 7, wait Host");
        assert_eq!(words(&list).join(", "), want);
        // Behind each other: an edge without a write-back, and the same counters.
        let behind = list_of(&[&[norm(5), norm(6)]], relay_by(true), None, []);
        let want = format!("wait Device, {begin}, rms_norm 5, wait Relayed, rms_norm 6, wait Host");
        assert_eq!(words(&behind).join(", "), want);
        let pushes = |list: &[DeviceCommand<'_, RecordingDriver>]| -> Vec<Vec<u8>> {
            let pushes = list.iter().filter_map(|command| match command {
                DeviceCommand::Run { push, .. } => Some(push.bytes().to_vec()),
                _ => None,
            });
            pushes.take(2).collect()
        };
        assert_eq!(pushes(&behind), pushes(&list));
        // Each waits for the workgroups of the one before it, by that one's counter.
        let turns = list.iter().filter_map(|command| match command {
            DeviceCommand::Run { kernel, push, .. } if kernel.module == Module::RmsNorm => {
                let words: &[u32] = bytemuck::cast_slice(&push.bytes()[size_of::<NormPush>()..]);
                Some((words[0], words[1]))
            }
            _ => None,
        });
        let counter = |i: u64| ((1 << 20) + i * RELAY_STRIDE) as u32 / 4;
        assert_eq!(turns.collect::<Vec<_>>(), [(counter(0), 0), (counter(1), 5)]);
        let many: Vec<Dispatch> = (0..RELAY_COUNTERS as u32 + 1).map(norm).collect();
        let list = words(&list_of(&[&many], relay(), None, []));
        assert_eq!(list.iter().filter(|word| **word == fill).count(), 2);
        assert_eq!(list[list.len() - 6..list.len() - 2].join(", "), begin);
    }
}
