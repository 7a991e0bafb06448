//! Reads by streams that the executable makes, on the model: all that is said to be read is, through every channel, at a
//! word a cycle.

use crate::kernels::output;
use crate::machine::{Fault, HostMemory, Latencies, Machine};
use crate::npu::reads::{CHANNELS, COLUMNS, ReadLayout, SUMS_BYTES, UNIT_BYTES, pattern};
use crate::npu::stream::{InstructionStream, ShimChannel, ShimTransfer};

/// An array with the program, as it is checked in.
fn machine() -> Machine {
    let mut machine = Machine::new(COLUMNS as u32, Latencies::default());
    machine.limit = 10_000_000;
    machine.load_container(&output("read_sum", "xclbin")).unwrap_or_else(|fault| panic!("{fault}"));
    (0..3).for_each(|_| machine.share(HostMemory::new(4)));
    machine
}

/// Runs a stream: the sums.
fn run(machine: &mut Machine, layout: &ReadLayout, transfers: &[ShimTransfer], data: &[u8]) -> Result<Vec<u8>, Fault> {
    machine.host[0].memory = HostMemory::of(&layout.headers());
    machine.host[1].memory = HostMemory::of(data);
    machine.host[2].memory = HostMemory::of(&[0; SUMS_BYTES]);
    machine.run(&InstructionStream::new(COLUMNS as u8, transfers)?.bytes())?;
    machine.host[2].memory.bytes().ok_or_else(|| "not all came back".into())
}

fn layout(channels: usize, units: usize, passes: u32) -> ReadLayout {
    ReadLayout::new(channels, channels * units * UNIT_BYTES, passes).unwrap_or_else(|error| panic!("{error}"))
}

/// Any number of channels, one run behind another in the same array.
#[test]
fn every_byte_is_read_through_the_channel_that_is_to_read_it() {
    let mut machine = machine();
    for (seed, (channels, units, passes)) in
        [(1, 1, 1), (2, 3, 1), (8, 2, 5), (4, 1, 6), (3, 2, 1), (5, 1, 1), (7, 2, 2), (1, 5, 2)].into_iter().enumerate()
    {
        let layout = layout(channels, units, passes);
        let data = pattern(channels * units * UNIT_BYTES, seed as u32);
        assert_eq!(layout.bytes(), (data.len() * passes as usize) as u64);
        let sums = run(&mut machine, &layout, &layout.transfers(), &data);
        assert!(sums == Ok(layout.sums(&data)), "{layout:?}: {:?}", sums.err());
    }
}

/// At least 98 % of a word a cycle on each channel, with what a second channel waits for at first: its ring is full before
/// the core has the header and a unit of the first channel.
#[test]
fn channels_read_a_word_a_cycle() {
    for channels in [1, 2, 4, 8] {
        let (mut machine, layout) = (machine(), layout(channels, 8, 3));
        let data = pattern(channels * 8 * UNIT_BYTES, 9);
        let sums = run(&mut machine, &layout, &layout.transfers(), &data);
        assert!(sums == Ok(layout.sums(&data)), "{:?}", sums.err());
        for index in 0..CHANNELS {
            let (column, number) = ((index % COLUMNS) as u32, (index / COLUMNS) as u32);
            let traffic = machine.traffic((column, 0), true, number).unwrap_or_else(|fault| panic!("{fault}"));
            let header = if number == 0 && index < channels { UNIT_BYTES / 4 } else { 0 };
            let words = if index < channels { 24 * UNIT_BYTES / 4 } else { 0 };
            assert_eq!(traffic.words, (words + header) as u64, "{channels} channels: {index}");
            let rate = traffic.words as f64 / (traffic.last - traffic.first + 1) as f64;
            assert!(words == 0 || rate >= 0.98, "{channels} channels: {index} has {rate:.4} words a cycle");
        }
    }
}

/// What is not read, through whichever channel, or is read by another or twice: the sums differ, or the run does not end.
#[test]
fn what_is_not_read_shows() {
    let layout = layout(CHANNELS, 2, 1);
    let data = pattern(CHANNELS * 2 * UNIT_BYTES, 3);
    let whole = layout.transfers();
    let is_data = |transfer: &&ShimTransfer| transfer.argument == 1;
    assert_eq!(whole.iter().filter(is_data).count(), CHANNELS);
    let mut changed: Vec<(String, Vec<ShimTransfer>)> = Vec::new();
    for (index, transfer) in whole.iter().enumerate().filter(|(_, transfer)| transfer.argument == 1) {
        let mut with = |what: &str, change: &dyn Fn(&mut Vec<ShimTransfer>)| {
            let mut transfers = whole.clone();
            change(&mut transfers);
            changed.push((format!("{:?}, column {}: {what}", transfer.channel, transfer.column), transfers));
        };
        with("left out", &|transfers| {
            transfers.remove(index);
        });
        with("a unit short", &|transfers| transfers[index].words -= UNIT_BYTES as u32 / 4);
        with("a word short", &|transfers| transfers[index].words -= 1);
        with("a word off", &|transfers| transfers[index].offset ^= 4);
        with("the neighbour's part", &|transfers| transfers[index].offset ^= 2 * UNIT_BYTES as u64);
        with("by the other channel", &|transfers| {
            transfers[index].channel = match transfers[index].channel {
                ShimChannel::Send(number) => ShimChannel::Send(1 - number),
                ShimChannel::Receive => ShimChannel::Receive,
            };
        });
    }
    for (what, transfers) in changed {
        let sums = run(&mut machine(), &layout, &transfers, &data);
        assert!(sums != Ok(layout.sums(&data)), "{what}: the sums are the same");
    }
}

#[test]
fn what_no_channel_reads_is_refused_in_one_line() {
    for (channels, bytes, passes) in [
        (0, 0, 1),
        (9, 9 * UNIT_BYTES, 1),
        (2, 3 * UNIT_BYTES, 1),
        (3, 4 * UNIT_BYTES, 1),
        (1, UNIT_BYTES, 0),
        (1, 0, 1),
    ] {
        let refused = ReadLayout::new(channels, bytes, passes);
        let wanted = format!("{passes} reads of {bytes} bytes by {channels} channels");
        assert_eq!(refused, Err(wanted));
    }
}
