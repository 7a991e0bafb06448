//! What the host asks for in a run: transfers in their order, and waits between them.
//!
//! A shim has few descriptors and its channels short queues. Where one is used up, the oldest transfer that holds it gives
//! a token when it is done, and the stream waits for that token before it goes on. So what a transfer needs to end must
//! come before whatever has to wait for it.

use super::array::{Channel, Direction, Kind};
use super::descriptor::{Descriptor, Dimension};
use super::design::{Design, Transfer};
use super::sequence::Operation;

/// Tasks that a channel takes before the first of them is known to be done.
const QUEUE: usize = 4;
/// Descriptors that the transfers of one direction take of a shim: real arrays hang with more.
const OF_A_DIRECTION: usize = 8;

/// A step of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Starts a transfer, by its index, with a descriptor of the shim.
    Start { transfer: usize, descriptor: u8, token: bool },
    /// Waits for the oldest token of the channel that has not been waited for.
    Wait(Channel),
}

/// A transfer under way: its place among the steps, its channel and its descriptor.
struct Started {
    step: usize,
    channel: Channel,
    descriptor: u8,
}

impl Started {
    /// Whether it holds a descriptor of this channel's shim.
    fn is_beside(&self, channel: Channel) -> bool {
        self.channel.tile == channel.tile
    }
}

/// The steps of a run: each transfer once a descriptor and a place in the queue are free, and at the end a wait for each
/// that fills a buffer of the host.
pub fn plan(transfers: &[Transfer]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut started: Vec<Started> = Vec::new();
    for (index, Transfer { channel, .. }) in transfers.iter().enumerate() {
        let descriptor = loop {
            let queued = started.iter().filter(|other| other.channel == *channel).count();
            let of_direction =
                |other: &&Started| other.is_beside(*channel) && other.channel.direction == channel.direction;
            let free = (0..channel.tile.map().descriptor_count)
                .find(|number| !started.iter().any(|other| other.is_beside(*channel) && other.descriptor == *number));
            let full = started.iter().filter(of_direction).count() >= OF_A_DIRECTION;
            match free {
                Some(number) if queued < QUEUE && !full => break number,
                _ if queued >= QUEUE => wait(&mut steps, &mut started, |other| other.channel == *channel),
                _ if full => wait(&mut steps, &mut started, |other| of_direction(&other)),
                _ => wait(&mut steps, &mut started, |other| other.is_beside(*channel)),
            }
        };
        started.push(Started { step: steps.len(), channel: *channel, descriptor });
        steps.push(Step::Start { transfer: index, descriptor, token: false });
    }
    while started.iter().any(fills) {
        wait(&mut steps, &mut started, fills);
    }
    steps
}

fn fills(started: &Started) -> bool {
    started.channel.direction == Direction::Input
}

/// Waits for the oldest transfer of those: it gives a token, and its descriptor is free.
fn wait(steps: &mut Vec<Step>, started: &mut Vec<Started>, of: impl Fn(&Started) -> bool) {
    let Some(oldest) = started.iter().position(of) else { return };
    let Started { step, channel, .. } = started.remove(oldest);
    if let Step::Start { token, .. } = &mut steps[step] {
        *token = true;
    }
    steps.push(Step::Wait(channel));
}

/// The operations of a run.
///
/// # Errors
/// One line, where a transfer does not fit into a descriptor.
pub fn operations(design: &Design) -> Result<Vec<Operation>, String> {
    let mut operations = Vec::new();
    for step in plan(&design.transfers) {
        match step {
            Step::Wait(channel) => operations.push(Operation::Wait { channel }),
            Step::Start { transfer, descriptor, token } => {
                start(&mut operations, &design.transfers[transfer], descriptor, token, design.cache)?;
            }
        }
    }
    Ok(operations)
}

fn start(
    operations: &mut Vec<Operation>,
    transfer: &Transfer,
    number: u8,
    token: bool,
    cache: u8,
) -> Result<(), String> {
    let channel = transfer.channel;
    let descriptor = Descriptor {
        words: transfer.bytes / 4,
        dimensions: transfer.walk.clone(),
        iteration: transfer.iteration,
        cache,
        ..Descriptor::default()
    };
    let words = descriptor.encode(Kind::Shim).map_err(|error| format!("{channel}: {error}"))?;
    let repeats = transfer.times.checked_sub(1).filter(|repeats| *repeats < 256);
    let repeats = repeats.ok_or_else(|| format!("{channel}: a transfer moves 1 to 256 times"))?;
    let address = channel.tile.descriptor(number);
    operations.push(Operation::Block { address, words });
    operations.push(Operation::Patch {
        address: address + 4,
        argument: transfer.argument as u32,
        offset: u64::from(transfer.offset),
    });
    let value = u32::from(token) << 31 | u32::from(repeats) << 16 | u32::from(number);
    operations.push(Operation::Write { address: channel.queue(), value });
    Ok(())
}

/// The bytes of the host's buffer behind `offset` that a transfer comes to.
pub(super) fn reach(transfer: &Transfer) -> u64 {
    let (_, last) = super::design::extent(&transfer.walk);
    let words = if transfer.walk.is_empty() { u64::from(transfer.bytes / 4) } else { last + 1 };
    let further = transfer.iteration.map_or(0, |Dimension { count, step }| {
        let starts = u64::from(count).min(u64::from(transfer.times)).max(1);
        (starts - 1) * u64::from(step)
    });
    4 * (words + further)
}
