//! What a program of the array is made of, and how it becomes configuration and instruction stream.
//!
//! A design says which core runs which kernel, what buffers a tile has, how data moves between them and what the host
//! asks for. Numbers of descriptors and wires between tiles follow from that.
//!
//! Buffers come in rings. A channel that fills a ring has a descriptor for each of its buffers, chained in a circle, and
//! so has the one that drains it; two locks count what is empty and what is full, and nothing else keeps the two apart.
//! One output may be led to many inputs: the switches give each of them every word.

use std::collections::BTreeMap;

use super::array::{CORE_CONTROL, Channel, Direction, Kind, PROGRAM, Tile};
use super::command::Command;
use super::container::{self, Contents};
use super::descriptor::{Descriptor, Dimension, LockUse};
use super::image;
use super::run;
use super::sequence::{self, Operation};
use super::stream::{self, Connection, Port};

/// A buffer of the host: an argument of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    pub name: &'static str,
    pub bytes: u32,
}

/// A ring of buffers in a tile, one behind another. The lock `empty` counts those that can be filled, `full` those that
/// can be read.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub tile: Tile,
    /// Of the first.
    pub address: u32,
    /// Of one.
    pub bytes: u32,
    pub count: u8,
    pub empty: u8,
    pub full: u8,
}

/// What a channel does again and again: its descriptors, each after the one before and the first after the last.
#[derive(Clone, Debug)]
pub struct Task {
    pub channel: Channel,
    pub descriptors: Vec<Descriptor>,
}

/// Words that a tile's memory holds from the start, so that cores with one kernel can differ.
#[derive(Clone, Debug)]
pub struct Constant {
    pub tile: Tile,
    pub address: u32,
    pub words: Vec<u32>,
}

/// What the host asks of a shim's channel: a part of an argument, once or several times.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub channel: Channel,
    /// Index into [`Design::arguments`].
    pub argument: usize,
    pub offset: u32,
    /// What moves each time.
    pub bytes: u32,
    /// The order in which its words move, innermost first; none is one after another.
    pub walk: Vec<Dimension>,
    /// How often: up to 256.
    pub times: u16,
    /// How much further it starts each time, and after how many it starts over.
    pub iteration: Option<Dimension>,
}

#[derive(Clone, Debug)]
pub struct Design {
    pub name: &'static str,
    /// The file that describes it, without `.rs`.
    pub source: &'static str,
    pub columns: u8,
    pub arguments: Vec<Argument>,
    /// Cores, and the kernels that they run: names of files without `.s`.
    pub programs: Vec<(Tile, &'static str)>,
    pub constants: Vec<Constant>,
    pub buffers: Vec<Buffer>,
    pub tasks: Vec<Task>,
    pub connections: Vec<Connection>,
    /// The shim's channels that are in use.
    pub shim_channels: Vec<Channel>,
    pub transfers: Vec<Transfer>,
    /// AxCache of the shims' accesses to the host's memory.
    pub cache: u8,
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
            source: name,
            columns,
            arguments: Vec::new(),
            programs: Vec::new(),
            constants: Vec::new(),
            buffers: Vec::new(),
            tasks: Vec::new(),
            connections: Vec::new(),
            shim_channels: Vec::new(),
            transfers: Vec::new(),
            cache: 0,
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

    /// Has a tile's memory hold words from the start.
    pub fn constant(&mut self, tile: Tile, address: u32, words: Vec<u32>) {
        self.constants.push(Constant { tile, address, words });
    }

    /// A ring of buffers in a tile; all start empty.
    pub fn buffer(&mut self, buffer: Buffer) -> Buffer {
        self.buffers.push(buffer);
        buffer
    }

    /// Fills a ring's buffers in turn, each when it is empty, from what comes on an input. `walk` is the order in which
    /// the words of one are written, innermost first.
    pub fn fill(&mut self, buffer: Buffer, input: u8, walk: &[Dimension]) {
        self.task(buffer.tile.input(input), &[buffer], walk);
    }

    /// Sends a ring's buffers in turn on an output, each when it is full. `walk` is the order in which the words of one
    /// are read.
    pub fn drain(&mut self, buffer: Buffer, output: u8, walk: &[Dimension]) {
        self.task(buffer.tile.output(output), &[buffer], walk);
    }

    /// The same of several rings of a tile: the first buffer of each, then the second of each, and so on.
    pub fn drain_in_turn(&mut self, buffers: &[Buffer], output: u8, walk: &[Dimension]) {
        match buffers {
            [first, rest @ ..] if rest.iter().all(|ring| (ring.tile, ring.count) == (first.tile, first.count)) => {
                self.task(first.tile.output(output), buffers, walk);
            }
            _ => self.errors.push(format!("output {output}: rings in turn are of one tile and as long as each other")),
        }
    }

    fn task(&mut self, channel: Channel, rings: &[Buffer], walk: &[Dimension]) {
        let mut descriptors = Vec::new();
        for index in 0..rings.first().map_or(0, |ring| ring.count) {
            for ring in rings {
                descriptors.push(self.describe(*ring, index, channel, walk));
            }
        }
        self.tasks.push(Task { channel, descriptors });
    }

    /// The descriptor of one buffer of a ring.
    fn describe(&mut self, ring: Buffer, index: u8, channel: Channel, walk: &[Dimension]) -> Descriptor {
        let bytes = ring.bytes;
        if !walk.is_empty() {
            let (words, last) = extent(walk);
            if words != u64::from(bytes / 4) || last >= words {
                let error =
                    format!("{channel}: the walk has {words} words up to word {last}, the buffer {bytes} bytes");
                self.errors.push(error);
            }
        }
        let (acquire, release) = match channel.direction {
            Direction::Input => (ring.empty, ring.full),
            Direction::Output => (ring.full, ring.empty),
        };
        // A memory tile's DMA sees its neighbours' memory and locks: its own come second.
        let (memory, first) = if ring.tile.kind() == Kind::Memory { (0x80000, 64) } else { (0, 0) };
        let address = ring.address.saturating_add(u32::from(index).saturating_mul(bytes));
        Descriptor {
            address: address.saturating_add(memory),
            words: bytes / 4,
            dimensions: walk.to_vec(),
            acquire: Some(LockUse { lock: acquire.saturating_add(first), value: -1 }),
            release: Some(LockUse { lock: release.saturating_add(first), value: 1 }),
            ..Descriptor::default()
        }
    }

    /// Leads an output to an input of another tile of the column. An output with several routes gives each all its words.
    pub fn route(&mut self, from: Channel, to: Channel) {
        match stream::route(from, to, &self.connections) {
            Ok(hops) => self.connections.extend(hops),
            Err(error) => self.errors.push(error),
        }
        for channel in [from, to] {
            if channel.tile.kind() == Kind::Shim && !self.shim_channels.contains(&channel) {
                self.shim_channels.push(channel);
            }
        }
    }

    /// Has a shim's output send the host's buffer, `bytes` from `offset` on.
    pub fn send(&mut self, channel: Channel, argument: usize, offset: u32, bytes: u32) {
        self.transfer_once(Direction::Output, channel, argument, offset, bytes);
    }

    /// Has a shim's input fill it. A run ends when all that it receives is there.
    pub fn receive(&mut self, channel: Channel, argument: usize, offset: u32, bytes: u32) {
        self.transfer_once(Direction::Input, channel, argument, offset, bytes);
    }

    fn transfer_once(&mut self, direction: Direction, channel: Channel, argument: usize, offset: u32, bytes: u32) {
        if channel.direction != direction {
            self.errors.push(format!("{channel}: outputs send, inputs receive"));
        }
        self.transfer(Transfer { channel, argument, offset, bytes, walk: Vec::new(), times: 1, iteration: None });
    }

    /// Has a shim's channel send or receive, in whatever order and however often.
    pub fn transfer(&mut self, transfer: Transfer) {
        self.transfers.push(transfer);
    }

    /// The design's bytes. `code` gives a kernel's program memory by name.
    ///
    /// # Errors
    /// One line for the first thing that is wrong: it names the tile.
    pub fn pack(&self, code: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Packed, String> {
        self.check()?;
        let configuration = self.configuration(code)?;
        let operations = run::operations(self)?;
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
        let of = |ring: &Buffer| [(ring.tile, ring.empty, u32::from(ring.count)), (ring.tile, ring.full, 0)];
        self.buffers.iter().flat_map(of)
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
        for Constant { tile, address, words } in &self.constants {
            commands.push(Command::block(tile.address(*address), words.clone()));
        }
        commands.extend(self.locks().map(|(tile, lock, value)| Command::write(tile.lock(lock), value)));
        commands.extend(self.start_tasks()?);
        for connection in &self.connections {
            for command in connection.commands()? {
                // A slave port that several masters take is enabled once.
                if !commands.contains(&command) {
                    commands.push(command);
                }
            }
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

    /// The shims whose channels are in use.
    fn shims(&self) -> Vec<Tile> {
        let mut shims: Vec<Tile> = self.shim_channels.iter().map(|channel| channel.tile).collect();
        shims.sort();
        shims.dedup();
        shims
    }

    /// The tasks with their descriptors' numbers.
    ///
    /// # Errors
    /// One line, where a tile has too few descriptors.
    pub fn numbered_tasks(&self) -> Result<Vec<(Vec<u8>, &Task)>, String> {
        let mut numbers = Numbers::default();
        let mut number = |task: &Task| -> Result<Vec<u8>, String> {
            task.descriptors.iter().map(|_| numbers.next(task.channel)).collect()
        };
        self.tasks.iter().map(|task| Ok((number(task)?, task))).collect()
    }

    fn start_tasks(&self) -> Result<Vec<Command>, String> {
        let mut commands = Vec::new();
        for (numbers, Task { channel, descriptors }) in self.numbered_tasks()? {
            let nexts = numbers.iter().cycle().skip(1);
            for ((descriptor, number), next) in descriptors.iter().zip(&numbers).zip(nexts) {
                let descriptor = Descriptor { next: Some(*next), ..descriptor.clone() };
                let words = descriptor.encode(channel.tile.kind()).map_err(|error| format!("{channel}: {error}"))?;
                commands.push(Command::block(channel.tile.descriptor(*number), words));
            }
            let first = numbers.first().ok_or_else(|| format!("{channel}: a ring of no buffers"))?;
            commands.push(Command::write(channel.queue(), u32::from(*first)));
            // No bit of the mask: the register is touched and stays, as the public tools have it.
            commands.push(Command::mask_write(channel.control(), 0, 1));
        }
        Ok(commands)
    }
}

/// The words of a walk, and the last of memory that it comes to.
pub(super) fn extent(walk: &[Dimension]) -> (u64, u64) {
    let counts = walk.iter().map(|dimension| u64::from(dimension.count));
    let steps = walk.iter().map(|dimension| u64::from(dimension.count.max(1) - 1) * u64::from(dimension.step));
    (counts.fold(1, u64::saturating_mul), steps.fold(0, u64::saturating_add))
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
