//! What a program of the array is made of, and how it becomes configuration and instruction stream.
//!
//! A design says which core runs which kernel, what buffers a tile has, how data moves between them and what the host
//! asks for. Numbers of descriptors and wires between tiles follow from that.

use std::collections::BTreeMap;

use super::array::{CORE_CONTROL, Channel, Direction, Kind, PROGRAM, Tile};
use super::command::Command;
use super::container::{self, Contents};
use super::descriptor::{Descriptor, Dimension, LockUse};
use super::image;
use super::sequence::{self, Operation};
use super::stream::{self, Connection, Port};

/// A buffer of the host: an argument of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    pub name: &'static str,
    pub bytes: u32,
}

/// A buffer in a tile. Two locks guard it: `empty` is 1 while it can be filled, `full` while it can be read.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub tile: Tile,
    pub address: u32,
    pub bytes: u32,
    pub empty: u8,
    pub full: u8,
}

/// What a channel does again and again.
#[derive(Clone, Debug)]
pub struct Task {
    pub channel: Channel,
    pub descriptor: Descriptor,
}

/// What the host asks of a shim's channel: a part of an argument.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub channel: Channel,
    /// Index into [`Design::arguments`].
    pub argument: usize,
    pub offset: u32,
    pub bytes: u32,
}

#[derive(Clone, Debug)]
pub struct Design {
    pub name: &'static str,
    pub columns: u8,
    pub arguments: Vec<Argument>,
    /// Cores, and the kernels that they run: names of files without `.s`.
    pub programs: Vec<(Tile, &'static str)>,
    pub buffers: Vec<Buffer>,
    pub tasks: Vec<Task>,
    pub connections: Vec<Connection>,
    /// The shim's channels that are in use.
    pub shim_channels: Vec<Channel>,
    pub transfers: Vec<Transfer>,
    /// What was wrong as it was described; [`Design::pack`] says it.
    pub(super) errors: Vec<String>,
}

/// A design as bytes.
pub struct Packed {
    pub configuration: Vec<Command>,
    pub operations: Vec<Operation>,
    /// The partition's image, for the driver.
    pub image: Vec<u8>,
    /// The instruction stream of one run.
    pub sequence: Vec<u8>,
    /// The image in a container, for libxrt.
    pub container: Vec<u8>,
    /// What is where, for a reader.
    pub listing: String,
}

impl Design {
    pub fn new(name: &'static str, columns: u8) -> Design {
        Design {
            name,
            columns,
            arguments: Vec::new(),
            programs: Vec::new(),
            buffers: Vec::new(),
            tasks: Vec::new(),
            connections: Vec::new(),
            shim_channels: Vec::new(),
            transfers: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// A buffer of the host, for [`Design::send`] and [`Design::receive`].
    pub fn argument(&mut self, name: &'static str, bytes: u32) -> usize {
        self.arguments.push(Argument { name, bytes });
        self.arguments.len() - 1
    }

    /// Has a core run a kernel.
    pub fn run(&mut self, core: Tile, kernel: &'static str) {
        self.programs.push((core, kernel));
    }

    /// A buffer in a tile; it starts empty.
    pub fn buffer(&mut self, buffer: Buffer) -> Buffer {
        self.buffers.push(buffer);
        buffer
    }

    /// Fills a buffer, each time that it is empty, from what comes on an input. `walk` is the order in which the words
    /// are written, innermost first.
    pub fn fill(&mut self, buffer: Buffer, input: u8, walk: &[Dimension]) {
        self.move_buffer(buffer, buffer.tile.input(input), walk, buffer.empty, buffer.full);
    }

    /// Sends a buffer on an output, each time that it is full. `walk` is the order in which the words are read.
    pub fn drain(&mut self, buffer: Buffer, output: u8, walk: &[Dimension]) {
        self.move_buffer(buffer, buffer.tile.output(output), walk, buffer.full, buffer.empty);
    }

    fn move_buffer(&mut self, buffer: Buffer, channel: Channel, walk: &[Dimension], acquire: u8, release: u8) {
        let counts = walk.iter().map(|dimension| u64::from(dimension.count));
        let steps = walk.iter().map(|dimension| u64::from(dimension.count.max(1) - 1) * u64::from(dimension.step));
        let (words, last) = (counts.fold(1, u64::saturating_mul), steps.fold(0, u64::saturating_add));
        let bytes = buffer.bytes;
        if !walk.is_empty() && (words != u64::from(bytes / 4) || last >= words) {
            let error = format!("{channel}: the walk has {words} words up to word {last}, the buffer {bytes} bytes");
            self.errors.push(error);
        }
        // A memory tile's DMA sees its neighbours' memory and locks: its own come second.
        let (memory, first) = if buffer.tile.kind() == Kind::Memory { (0x80000, 64) } else { (0, 0) };
        let descriptor = Descriptor {
            address: buffer.address.saturating_add(memory),
            words: buffer.bytes / 4,
            dimensions: walk.to_vec(),
            acquire: Some(LockUse { lock: acquire.saturating_add(first), value: -1 }),
            release: Some(LockUse { lock: release.saturating_add(first), value: 1 }),
            next: None,
        };
        self.tasks.push(Task { channel, descriptor });
    }

    /// Leads an output to an input of another tile of the column.
    pub fn route(&mut self, from: Channel, to: Channel) {
        match stream::route(from, to, &self.connections) {
            Ok(hops) => self.connections.extend(hops),
            Err(error) => self.errors.push(error),
        }
        self.shim_channels.extend([from, to].into_iter().filter(|channel| channel.tile.kind() == Kind::Shim));
    }

    /// Has a shim's output send the host's buffer, `bytes` from `offset` on.
    pub fn send(&mut self, channel: Channel, argument: usize, offset: u32, bytes: u32) {
        self.transfer(Direction::Output, Transfer { channel, argument, offset, bytes });
    }

    /// Has a shim's input fill it. A run ends when all that it receives is there.
    pub fn receive(&mut self, channel: Channel, argument: usize, offset: u32, bytes: u32) {
        self.transfer(Direction::Input, Transfer { channel, argument, offset, bytes });
    }

    fn transfer(&mut self, direction: Direction, transfer: Transfer) {
        if transfer.channel.direction != direction {
            self.errors.push(format!("{}: outputs send, inputs receive", transfer.channel));
        }
        self.transfers.push(transfer);
    }

    /// The design's bytes. `code` gives a kernel's program memory by name.
    ///
    /// # Errors
    /// One line for the first thing that is wrong: it names the tile.
    pub fn pack(&self, code: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Packed, String> {
        self.check()?;
        let configuration = self.configuration(code)?;
        let operations = self.operations()?;
        let listing = super::listing::write(self)?;
        let image = image::pack(&configuration);
        let container = container::pack(&Contents {
            kernel: self.name,
            instance: "kiln",
            arguments: &self.arguments.iter().map(|argument| argument.name).collect::<Vec<_>>(),
            columns: self.columns,
            image_id: container::identity(&image),
            image: &image,
        });
        let sequence = sequence::pack(self.columns, &operations);
        Ok(Packed { configuration, operations, image, sequence, container, listing })
    }

    /// Locks, and what they start with.
    pub fn locks(&self) -> impl Iterator<Item = (Tile, u8, u32)> {
        self.buffers.iter().flat_map(|buffer| [(buffer.tile, buffer.empty, 1), (buffer.tile, buffer.full, 0)])
    }

    /// What sets the partition up: programs, locks, descriptors, streams, and then the cores.
    fn configuration(&self, code: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Vec<Command>, String> {
        let mut commands = Vec::new();
        for (tile, kernel) in &self.programs {
            let mut code = code(kernel).ok_or_else(|| format!("there is no kernel {kernel}"))?;
            code.resize(code.len().next_multiple_of(16), 0);
            let words =
                code.chunks(4).map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)));
            commands.push(Command::block(tile.address(PROGRAM), words.collect()));
        }
        for (tile, _) in &self.programs {
            let control = tile.address(CORE_CONTROL);
            commands.extend([Command::mask_write(control, 2, 2), Command::mask_write(control, 2, 0)]);
        }
        commands.extend(self.locks().map(|(tile, lock, value)| Command::write(tile.lock(lock), value)));
        commands.extend(self.start_tasks()?);
        for connection in &self.connections {
            commands.extend(connection.commands()?);
        }
        commands.extend(self.shim_channels.iter().filter_map(|channel| stream::multiplex(*channel)));
        for shim in self.shims() {
            // Tokens of tasks that are done leave by the shim's first south port.
            commands.extend(Connection { tile: shim, from: Port::Control, to: Port::South(0) }.commands()?);
        }
        for (tile, _) in &self.programs {
            commands.push(Command::mask_write(tile.address(CORE_CONTROL), 1, 1));
        }
        Ok(commands)
    }

    /// The shims that the host asks for transfers.
    fn shims(&self) -> Vec<Tile> {
        let mut shims: Vec<Tile> = self.transfers.iter().map(|transfer| transfer.channel.tile).collect();
        shims.sort();
        shims.dedup();
        shims
    }

    /// The tasks with their descriptors' numbers.
    ///
    /// # Errors
    /// One line, where a tile has too few descriptors.
    pub fn numbered_tasks(&self) -> Result<Vec<(u8, &Task)>, String> {
        let mut numbers = Numbers::default();
        self.tasks.iter().map(|task| Ok((numbers.next(task.channel)?, task))).collect()
    }

    /// The same of the transfers of a run.
    ///
    /// # Errors
    /// One line, where a shim has too few descriptors.
    pub fn numbered_transfers(&self) -> Result<Vec<(u8, &Transfer)>, String> {
        let mut numbers = Numbers::default();
        self.transfers.iter().map(|transfer| Ok((numbers.next(transfer.channel)?, transfer))).collect()
    }

    fn start_tasks(&self) -> Result<Vec<Command>, String> {
        let mut commands = Vec::new();
        for (number, Task { channel, descriptor }) in self.numbered_tasks()? {
            let descriptor = Descriptor { next: Some(number), ..descriptor.clone() };
            let words = descriptor.encode(channel.tile.kind()).map_err(|error| format!("{channel}: {error}"))?;
            commands.push(Command::block(channel.tile.descriptor(number), words));
            commands.push(Command::write(channel.queue(), u32::from(number)));
            // No bit of the mask: the register is touched and stays, as the public tools have it.
            commands.push(Command::mask_write(channel.control(), 0, 1));
        }
        Ok(commands)
    }

    /// What the host asks for in one run: all transfers at once, then a wait for each that fills a buffer.
    fn operations(&self) -> Result<Vec<Operation>, String> {
        let mut operations = Vec::new();
        let mut waits = Vec::new();
        for (number, transfer) in self.numbered_transfers()? {
            let channel = transfer.channel;
            let descriptor = Descriptor { words: transfer.bytes / 4, ..Descriptor::default() };
            let words = descriptor.encode(Kind::Shim).map_err(|error| format!("{channel}: {error}"))?;
            let address = channel.tile.descriptor(number);
            operations.push(Operation::Block { address, words });
            operations.push(Operation::Patch {
                address: address + 4,
                argument: transfer.argument as u32,
                offset: u64::from(transfer.offset),
            });
            let token = u32::from(channel.direction == Direction::Input) << 31;
            operations.push(Operation::Write { address: channel.queue(), value: token | u32::from(number) });
            if channel.direction == Direction::Input {
                waits.push(Operation::Wait { channel });
            }
        }
        operations.extend(waits);
        Ok(operations)
    }
}

/// Gives out the descriptors of each tile.
#[derive(Default)]
struct Numbers(BTreeMap<(Tile, u8), u8>);

impl Numbers {
    fn next(&mut self, channel: Channel) -> Result<u8, String> {
        let range = channel.descriptors();
        let taken = self.0.entry((channel.tile, range.start)).or_insert(0);
        let number = range.start + *taken;
        if number >= range.end {
            return Err(format!("{channel}: {} has no descriptor left", channel.tile));
        }
        *taken += 1;
        Ok(number)
    }
}
