//! Instruction streams for one run of the array's firmware, made at run time. A stream starts transfers of the shims'
//! DMA channels over the host's buffers, and waits when a channel's queue is full.
//!
//! A channel of a shim has four descriptors of its own and queues four transfers; before a fifth the stream waits for
//! the first. So a channel's n-th transfer has descriptor n % 4, and the channels of a direction use eight of a shim's,
//! the most that work on real arrays. Columns alternate, so that a wait of one column does not delay earlier transfers
//! of another.
//!
//! A transfer's range can be changed in place. The stream is then equal to a new one.
//!
//! Source: the transactions of Xilinx/mlir-aie and the registers of AM025, as in `aie/src/pack`. That crate's tests run
//! streams of this module.

use std::ops::Range;

/// Transfers in a channel's queue, and its number of descriptors.
const DEPTH: usize = 4;
/// Words that start a transfer: a descriptor, its address, the channel's queue.
const START: usize = 12 + 12 + 6;
/// Most words between two parts of a transfer: the DMA's field has 20 bits.
pub const MOST_STEP: u64 = 1 << 20;
/// Most transfers of a stream. Streams of very many transfers have left arrays unusable (Xilinx/mlir-aie, issue 2224).
pub const MOST_TRANSFERS: usize = 512;

/// A DMA channel of a column's shim, the tile that connects the column with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShimChannel {
    /// Sends the host's bytes to the array: 0 or 1.
    Send(u8),
    /// Writes the array's output to the host's memory.
    Receive,
}

impl ShimChannel {
    /// The channel's index within its shim.
    fn index(self) -> usize {
        match self {
            ShimChannel::Send(number) => usize::from(number & 1),
            ShimChannel::Receive => 2,
        }
    }

    /// The offset of its queue in the shim's window.
    fn queue(self) -> u32 {
        match self {
            ShimChannel::Send(number) => 0x1_D214 + 8 * u32::from(number & 1),
            ShimChannel::Receive => 0x1_D204,
        }
    }
}

/// A transfer of a column's shim between a buffer of the host and the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShimTransfer {
    /// The column, from 0.
    pub column: u8,
    /// The shim's DMA channel that transfers the words.
    pub channel: ShimChannel,
    /// The index of the command's argument that is the buffer.
    pub argument: u32,
    /// Bytes from the buffer's start.
    pub offset: u64,
    /// Words of a part: a multiple of 512 if there are several.
    pub words: u32,
    /// Number of parts.
    pub parts: u32,
    /// Words from the start of a part to the next.
    pub step: u32,
}

impl ShimTransfer {
    /// A transfer of one part.
    pub fn whole(column: u8, channel: ShimChannel, argument: u32, offset: u64, bytes: u32) -> ShimTransfer {
        ShimTransfer { column, channel, argument, offset, words: bytes / 4, parts: 1, step: bytes / 4 }
    }

    /// The registers of its descriptor. A later instruction patches the address in.
    ///
    /// # Errors
    /// One line: a transfer that does not fit into a descriptor.
    fn descriptor(&self) -> Result<[u32; 8], String> {
        const PIECE: u32 = 512;
        let ShimTransfer { words, parts, step, .. } = *self;
        let all = u64::from(words) * u64::from(parts);
        if all == 0 || all > u64::from(u32::MAX) || !self.offset.is_multiple_of(4) {
            return Err(format!("a transfer of {parts} x {words} words from byte {}", self.offset));
        }
        let mut registers = [all as u32, 0, 0, 0, 2 << 30, AX_CACHE << 24, 0, 1 << 25];
        if parts > 1 {
            if !words.is_multiple_of(PIECE) || words / PIECE > 1023 || u64::from(step) > MOST_STEP || step == 0 {
                return Err(format!("a transfer of {parts} parts of {words} words, {step} apart"));
            }
            // Words of a piece, pieces of a part, and parts: steps are stored minus one.
            registers[3] = PIECE << 20;
            registers[4] |= (words / PIECE) << 20 | (PIECE - 1);
            registers[5] |= step - 1;
        }
        Ok(registers)
    }
}

/// The cache attributes of the shims' accesses to host memory.
const AX_CACHE: u32 = 2;

/// A stream, and its transfers' places in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionStream {
    words: Vec<u32>,
    transfers: Vec<ShimTransfer>,
    /// The index in `words` at which the start of each transfer is written.
    starts: Vec<usize>,
}

impl InstructionStream {
    /// The stream of these transfers over `columns` columns. Each column's transfers start in their order, and columns
    /// alternate. If a transfer needs others to end, these must come before the next transfer that waits for its
    /// channel. The run ends when all received data has arrived.
    ///
    /// # Errors
    /// One line: a transfer that does not fit into a descriptor, a column out of range, or too many transfers.
    pub fn new(columns: u8, transfers: &[ShimTransfer]) -> Result<InstructionStream, String> {
        let ordered = in_turn(columns, transfers)?;
        let mut stream = InstructionStream { words: Vec::new(), starts: Vec::new(), transfers: ordered };
        // Six rows, of which one is of memory tiles; generation 3 of devices; version 0.1.
        stream.words = vec![6 << 24 | 3 << 16 | 1 << 8, 1 << 8 | u32::from(columns), 0, 0];
        let mut operations = 0;
        let mut of_channels = vec![[const { Vec::<usize>::new() }; 3]; usize::from(columns)];
        for index in 0..stream.transfers.len() {
            let transfer = stream.transfers[index];
            let started = &mut of_channels[usize::from(transfer.column)][transfer.channel.index()];
            if let Some(oldest) = started.len().checked_sub(DEPTH) {
                stream.wait(started[oldest], transfer);
                operations += 1;
            }
            let number = started.len() % DEPTH;
            started.push(stream.words.len());
            stream.start(transfer, number)?;
            operations += 3;
        }
        for (column, channels) in (0u8..).zip(&of_channels) {
            if let Some(last) = channels[ShimChannel::Receive.index()].last() {
                let received = ShimTransfer::whole(column, ShimChannel::Receive, 0, 0, 0);
                stream.wait(*last, received);
                operations += 1;
            }
        }
        stream.words[2] = operations;
        stream.words[3] = 4 * stream.words.len() as u32;
        Ok(stream)
    }

    /// The words in the firmware's format.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The instruction stream as bytes, little-endian.
    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Changes the stream's words in place to those for other transfers, and returns their ranges. `None`: the sequence
    /// of columns and channels differs, so that a new stream must be made. The stream is unchanged then.
    ///
    /// # Errors
    /// As [`InstructionStream::new`].
    pub fn patch(&mut self, columns: u8, transfers: &[ShimTransfer]) -> Result<Option<Vec<Range<usize>>>, String> {
        let ordered = in_turn(columns, transfers)?;
        let place = |transfer: &ShimTransfer| (transfer.column, transfer.channel);
        if self.words[1] & 0xFF != u32::from(columns) || !self.transfers.iter().map(place).eq(ordered.iter().map(place))
        {
            return Ok(None);
        }
        let registers = ordered.iter().map(ShimTransfer::descriptor).collect::<Result<Vec<_>, _>>()?;
        let mut changed = Vec::new();
        for (index, (transfer, registers)) in ordered.into_iter().zip(registers).enumerate() {
            if transfer != self.transfers[index] {
                let at = self.starts[index];
                self.transfers[index] = transfer;
                self.words[at + 4..at + 12].copy_from_slice(&registers);
                let address = [transfer.argument, 0, transfer.offset as u32, (transfer.offset >> 32) as u32];
                self.words[at + 20..at + 24].copy_from_slice(&address);
                changed.push(at..at + START);
            }
        }
        Ok(Some(changed))
    }

    /// Adds the words that start a transfer by descriptor `number` of its channel.
    fn start(&mut self, transfer: ShimTransfer, number: usize) -> Result<(), String> {
        let window = u32::from(transfer.column) << 25;
        let descriptor = (DEPTH * transfer.channel.index() + number) as u32;
        let registers = window | (0x1_D000 + 32 * descriptor);
        self.starts.push(self.words.len());
        self.words.extend([1, 0, registers, 16 + 32]);
        self.words.extend(transfer.descriptor()?);
        let (low, high) = (transfer.offset as u32, (transfer.offset >> 32) as u32);
        self.words.extend([0x81, 48, 0, 0, 0, 0, registers + 4, 0, transfer.argument, 0, low, high]);
        self.words.extend([0, 0, window | transfer.channel.queue(), 0, descriptor, 24]);
        Ok(())
    }

    /// Makes the transfer that starts at word `start` issue a token, and waits for it. `of` is a transfer of the same
    /// channel.
    fn wait(&mut self, start: usize, of: ShimTransfer) {
        self.words[start + START - 2] |= 1 << 31;
        let (is_output, number) = match of.channel {
            ShimChannel::Send(number) => (1, u32::from(number & 1)),
            ShimChannel::Receive => (0, 0),
        };
        // The last word also counts tiles: one row, one column.
        self.words.extend([0x80, 16, u32::from(of.column) << 16 | is_output, number << 24 | 1 << 16 | 1 << 8]);
    }
}

/// The transfers in the order of their start: each column's own order, and columns in turn.
fn in_turn(columns: u8, transfers: &[ShimTransfer]) -> Result<Vec<ShimTransfer>, String> {
    if let Some(other) = transfers.iter().find(|transfer| transfer.column >= columns) {
        return Err(format!("a transfer of column {}, of {columns} columns", other.column));
    }
    if transfers.len() > MOST_TRANSFERS {
        return Err(format!("a stream of {} transfers, and at most {MOST_TRANSFERS}", transfers.len()));
    }
    let mut of_columns: Vec<_> =
        (0..columns).map(|column| transfers.iter().filter(move |transfer| transfer.column == column)).collect();
    let mut ordered = Vec::with_capacity(transfers.len());
    while ordered.len() < transfers.len() {
        ordered.extend(of_columns.iter_mut().filter_map(|transfers| transfers.next()));
    }
    Ok(ordered)
}
