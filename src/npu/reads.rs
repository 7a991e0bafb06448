//! Reads through some of the shims' channels, with sums by which the host verifies them: the inputs and expected
//! results of the program `read_sum`.
//!
//! The core of a column adds up the words that arrive. The host knows the sums beforehand, so equal sums prove that all
//! data arrived.

use super::stream::{InstructionStream, ShimChannel, ShimTransfer};

/// Bytes of a unit of a stream, and of a column's header.
pub const UNIT_BYTES: usize = 8192;
/// The number of columns of the array that the program uses.
pub const COLUMNS: usize = 4;
/// The number of DMA channels that read: two in each column.
pub const CHANNELS: usize = 2 * COLUMNS;
/// The number of sums of a channel: word i is added to sum i modulo this.
const LANES: usize = 16;
/// Bytes of a column's sums: those of its first stream, then those of its second.
const COLUMN_BYTES: usize = 2 * 4 * LANES;
/// Bytes of the buffer of headers.
pub const HEADERS_BYTES: usize = COLUMNS * UNIT_BYTES;
/// Bytes of the buffer of sums.
pub const SUMS_BYTES: usize = COLUMNS * COLUMN_BYTES;

/// The index of the program's first argument, the headers. The data and the sums follow.
const HEADERS: u32 = 0;
const DATA: u32 = 1;
const SUMS: u32 = 2;

/// The division of a buffer among DMA channels: each reads an equal range, `passes` times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLayout {
    channels: usize,
    part: usize,
    passes: u32,
}

impl ReadLayout {
    /// The layout of reading `bytes` by `channels` channels: first channels of all columns, then second ones.
    ///
    /// # Errors
    /// One line: too many channels, parts that are not whole units or exceed a transfer, or no pass.
    pub fn new(channels: usize, bytes: usize, passes: u32) -> Result<ReadLayout, String> {
        let part = bytes / channels.max(1);
        let units = (part / UNIT_BYTES) as u64 * u64::from(passes);
        let is_whole = part * channels == bytes && part.is_multiple_of(UNIT_BYTES);
        if !(1..=CHANNELS).contains(&channels) || !is_whole || !(1..=u64::from(u32::MAX)).contains(&units) {
            return Err(format!("{passes} reads of {bytes} bytes by {channels} channels"));
        }
        Ok(ReadLayout { channels, part, passes })
    }

    /// Bytes that a run reads, without headers.
    pub fn bytes(&self) -> u64 {
        self.part as u64 * self.channels as u64 * u64::from(self.passes)
    }

    /// The number of columns that read.
    fn columns(&self) -> usize {
        self.channels.min(COLUMNS)
    }

    /// The column of each channel, and the channel's index in that column.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.channels).map(|index| (index % COLUMNS, index / COLUMNS))
    }

    /// The DMA transfers of a run: headers and data to the array, and sums to memory.
    pub fn transfers(&self) -> Vec<ShimTransfer> {
        let mut transfers = Vec::new();
        for column in 0..self.columns() {
            let at = |bytes: usize| (column * bytes) as u64;
            let whole = |channel, argument, bytes: usize| {
                ShimTransfer::whole(column as u8, channel, argument, at(bytes), bytes as u32)
            };
            transfers.push(whole(ShimChannel::Receive, SUMS, COLUMN_BYTES));
            transfers.push(whole(ShimChannel::Send(0), HEADERS, UNIT_BYTES));
        }
        for _ in 0..self.passes {
            for (index, (column, number)) in self.places().enumerate() {
                let (channel, offset) = (ShimChannel::Send(number as u8), (index * self.part) as u64);
                transfers.push(ShimTransfer::whole(column as u8, channel, DATA, offset, self.part as u32));
            }
        }
        transfers
    }

    /// The instruction stream of one run.
    ///
    /// # Errors
    /// As [`InstructionStream::new`].
    pub fn stream(&self) -> Result<InstructionStream, String> {
        InstructionStream::new(COLUMNS as u8, &self.transfers())
    }

    /// The headers of all columns: the number of units of each stream.
    pub fn headers(&self) -> Vec<u8> {
        let units = (self.part / UNIT_BYTES) as u32 * self.passes;
        let mut headers = vec![0; HEADERS_BYTES];
        for (column, number) in self.places() {
            headers[column * UNIT_BYTES + 4 * number..][..4].copy_from_slice(&units.to_le_bytes());
        }
        headers
    }

    /// The sums after a run over `data` that starts from zeros.
    pub fn sums(&self, data: &[u8]) -> Vec<u8> {
        let mut sums = vec![0; SUMS_BYTES];
        for ((column, number), part) in self.places().zip(data.chunks_exact(self.part)) {
            let mut lanes = [0u32; LANES];
            for words in part.chunks_exact(4 * LANES) {
                for (lane, word) in lanes.iter_mut().zip(words.chunks_exact(4)) {
                    *lane = lane.wrapping_add(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                }
            }
            let bytes = lanes.iter().flat_map(|lane| lane.wrapping_mul(self.passes).to_le_bytes());
            sums[column * COLUMN_BYTES + 4 * LANES * number..].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        }
        sums
    }
}

/// Number of channels whose sums differ from `expected`.
pub fn wrong_channels(found: &[u8], expected: &[u8]) -> usize {
    let streams = |sums| <[u8]>::chunks_exact(sums, 4 * LANES);
    streams(found).zip(streams(expected)).filter(|(found, expected)| found != expected).count()
}

/// `bytes` bytes of distinct words that depend on `seed`.
pub fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    let word = |index: u32| index.wrapping_add(seed).wrapping_mul(0x9E37_79B1).rotate_left(13) ^ seed;
    (0..(bytes / 4) as u32).flat_map(|index| word(index).to_le_bytes()).collect()
}
