//! A functional model of the array: it takes the packed bytes as the firmware does and runs them.
//!
//! It is written from AMD's register reference AM025 (registers and their fields), Xilinx/aie-rt and Xilinx/mlir-aie (what
//! locks, channels and streams do; the files) and the itineraries of the public LLVM backend (latencies), not from the
//! packer or the assembler's timings. It shares with them the disassembler alone, which the vectors of tests/suite hold to
//! account.
//!
//! # What it models
//!
//! - Cores: the instructions that the kernels use, to the cycle. A result is not visible before its latency; what reads
//!   too early gets the old value. Delay slots, hardware loops, the lock instruction's window.
//! - Locks with their values; DMA descriptors in up to four dimensions, chained, queued, repeated; circuit-switched
//!   routes; the shim's multiplexers; tokens of finished tasks.
//! - The image (container, boot image, commands) and the instruction stream with its patches and waits.
//!
//! What has no meaning on the array is a fault, by name: memory that nothing has written, an address out of range, a
//! route that leads nowhere, a descriptor that is not valid, a lock that overflows, a wait that nothing can end.
//!
//! # What it does not
//!
//! - Cycles of streams, DMA and memory banks: a channel moves a word a cycle, a wire has no delay. Results must not depend
//!   on that: programs run with slow cores and a slow host, too.
//! - Packets, compression, zero padding, iterations, broadcasts to cores, cascades, traces, neighbours' memory and locks:
//!   a fault says so.
//! - How `vmac.f` rounds inside: the model sums a tile's products and the accumulator in f64 and rounds once, to the
//!   nearest f32. AMD does not say what the core does. Sums that are exact in f32 have one answer; others have a bound.
//! - Ports of the register files and the distance from a loop register's write to the loop's end: the assembler's tests
//!   have them.

mod core;
mod dma;
mod image;
mod lock;
mod memory;
mod number;
mod sequence;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

pub use self::core::Latencies;
pub use self::memory::Memory;
pub use self::number::{narrow, widen};

use self::core::Core;
use self::dma::{Channel, Dma};
use self::lock::Locks;
use self::stream::Switch;

/// Why a run cannot go on.
pub type Fault = String;
/// Column and row.
pub type Place = (u32, u32);
/// A tile's input.
type Goal = (Place, u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Shim,
    Memory,
    Core,
}

pub fn kind(place: Place) -> Kind {
    match place.1 {
        0 => Kind::Shim,
        1 => Kind::Memory,
        _ => Kind::Core,
    }
}

pub struct Tile {
    pub memory: Memory,
    pub locks: Locks,
    pub switch: Switch,
    pub dma: Dma,
    pub core: Option<Core>,
}

/// A buffer of the host and the address at which the array sees it.
pub struct HostBuffer {
    pub address: u64,
    pub memory: Memory,
}

/// A shim's channel: place, whether it sends to the array, number.
type Task = (Place, bool, u32);

pub struct Machine {
    tiles: BTreeMap<Place, Tile>,
    pub host: Vec<HostBuffer>,
    /// Where the words of outputs go, as far as they have been followed since a switch was last written.
    routes: BTreeMap<(Place, u32), Rc<[Goal]>>,
    /// Tokens that have reached the firmware.
    tokens: Vec<Task>,
    cycles: u64,
    /// Cycles of streams and DMA to one of a core, and to one in which the host takes a word.
    pub core_period: u64,
    pub host_period: u64,
}

/// No program of the tests comes near.
const MOST_CYCLES: u64 = 200_000;

impl Machine {
    /// An array of so many columns after its reset.
    pub fn new(columns: u32, latencies: Latencies) -> Machine {
        let places = (0..columns).flat_map(|column| (0..6).map(move |row| (column, row)));
        let tile = |place: Place| {
            let (bytes, locks) = match kind(place) {
                Kind::Shim => (0, 16),
                Kind::Memory => (512 << 10, 64),
                Kind::Core => (64 << 10, 16),
            };
            Tile {
                memory: Memory::new(bytes),
                locks: Locks::new(locks),
                switch: Switch::new(kind(place)),
                dma: Dma::new(kind(place)),
                core: (kind(place) == Kind::Core).then(|| Core::new(latencies)),
            }
        };
        let tiles = places.map(|place| (place, tile(place))).collect();
        Machine {
            tiles,
            host: Vec::new(),
            routes: BTreeMap::new(),
            tokens: Vec::new(),
            cycles: 0,
            core_period: 1,
            host_period: 1,
        }
    }

    /// Gives the array a buffer of the host; it lies apart from all others.
    pub fn share(&mut self, memory: Memory) {
        let address = 0x1_0000_0000 * (self.host.len() as u64 + 1) + 0x1000;
        self.host.push(HostBuffer { address, memory });
    }

    /// Configures the array as the image in a container says.
    pub fn load_container(&mut self, container: &[u8]) -> Result<(), Fault> {
        self.load_image(image::of_container(container)?)
    }

    /// Configures the array as an image says.
    pub fn load_image(&mut self, image: &[u8]) -> Result<(), Fault> {
        for write in image::writes(image)? {
            self.write(write.address, write.mask, write.value)?;
        }
        Ok(())
    }

    /// Does one run of an instruction stream.
    pub fn run(&mut self, stream: &[u8]) -> Result<(), Fault> {
        for operation in sequence::operations(stream)? {
            match operation {
                sequence::Operation::Write { address, mask, value } => self.write(address, mask, value)?,
                sequence::Operation::Patch { address, argument, offset } => {
                    let buffer = self.host.get(argument).ok_or_else(|| format!("there is no argument {argument}"))?;
                    let target = buffer.address + offset;
                    self.write(address, u32::MAX, target as u32)?;
                    self.write(address + 4, 0xFFFF, (target >> 32) as u32)?;
                }
                sequence::Operation::Wait { place, output, channel } => self.wait((place, output, channel))?,
            }
        }
        // The next run's wait would take it for its own.
        match self.tokens.first() {
            Some(token) => Err(format!("a token is left that nothing has waited for: {token:?}")),
            None => Ok(()),
        }
    }

    /// Runs until nothing moves any more.
    pub fn settle(&mut self) -> Result<(), Fault> {
        while self.step()? {
            self.check_end()?;
        }
        Ok(())
    }

    /// What a tile's memory holds.
    pub fn memory(&self, place: Place) -> Result<&Memory, Fault> {
        Ok(&self.tile(place)?.memory)
    }

    fn wait(&mut self, task: Task) -> Result<(), Fault> {
        loop {
            if let Some(index) = self.tokens.iter().position(|token| *token == task) {
                self.tokens.remove(index);
                return Ok(());
            }
            if !self.step()? {
                return Err(format!("deadlock: {}", self.waiting()));
            }
            self.check_end()?;
        }
    }

    fn check_end(&self) -> Result<(), Fault> {
        if self.cycles > MOST_CYCLES {
            return Err(format!("it runs on for more than {MOST_CYCLES} cycles"));
        }
        Ok(())
    }

    /// One cycle of everything; whether anything moved.
    fn step(&mut self) -> Result<bool, Fault> {
        self.cycles += 1;
        let busy = |tile: &Tile| !tile.dma.is_idle() || tile.core.as_ref().is_some_and(|core| !core.is_off());
        let busy = self.tiles.iter().filter(|(_, tile)| busy(tile));
        let places: Vec<Place> = busy.map(|(place, _)| *place).collect();
        let mut moved = false;
        for place in places {
            let named = |fault: Fault| format!("tile {place:?}: {fault}");
            moved |= self.step_core(place).map_err(named)?;
            for channel in 0..self.tile(place)?.dma.channels.len() {
                moved |= self.step_channel(place, channel).map_err(named)?;
            }
        }
        Ok(moved)
    }

    fn step_core(&mut self, place: Place) -> Result<bool, Fault> {
        let idles = !self.cycles.is_multiple_of(self.core_period);
        let tile = self.tile_mut(place)?;
        let Tile { memory, locks, core: Some(core), .. } = tile else { return Ok(false) };
        // A core whose turn it is not may yet go on.
        if idles { Ok(!core.is_off()) } else { core.step(memory, locks) }
    }

    fn step_channel(&mut self, place: Place, index: usize) -> Result<bool, Fault> {
        let tile = self.tile_mut(place)?;
        if !tile.dma.begin(index, &mut tile.locks)? {
            return Ok(false);
        }
        let (output, number) = (tile.dma.channels[index].output, tile.dma.channels[index].number);
        let waits_for_host = kind(place) == Kind::Shim && !output && !self.cycles.is_multiple_of(self.host_period);
        let tile = self.tile_mut(place)?;
        if waits_for_host {
            // A channel whose turn it is not may yet go on.
            return Ok(!tile.dma.channels[index].words.is_empty());
        }
        if tile.dma.channels[index].is_moving() {
            let moved = if output { self.send(place, index)? } else { self.receive(place, index)? };
            if !moved {
                return Ok(false);
            }
        }
        let tile = self.tile_mut(place)?;
        if tile.dma.finish(index, &mut tile.locks)? {
            self.send_token(place)?;
            self.tokens.push((place, output, number));
        }
        Ok(true)
    }

    /// Sends a word, where all that it goes to have room.
    fn send(&mut self, place: Place, index: usize) -> Result<bool, Fault> {
        let number = self.tile(place)?.dma.channels[index].number;
        if !self.routes.contains_key(&(place, number)) {
            let goals = stream::goals(&self.tiles, place, number)?;
            self.routes.insert((place, number), goals.into());
        }
        let goals = Rc::clone(&self.routes[&(place, number)]);
        for &(goal, input) in goals.iter() {
            if self.tile(goal)?.dma.input(input)?.words.len() >= dma::ROOM {
                return Ok(false);
            }
        }
        let address = self.tile(place)?.dma.channels[index].address();
        let word = self.memory_of(place, address)?.read_word()?;
        for &(goal, input) in goals.iter() {
            self.tile_mut(goal)?.dma.input_mut(input)?.words.push_back(word);
        }
        self.tile_mut(place)?.dma.channels[index].advance();
        Ok(true)
    }

    fn receive(&mut self, place: Place, index: usize) -> Result<bool, Fault> {
        let channel = &mut self.tile_mut(place)?.dma.channels[index];
        let Some(word) = channel.words.pop_front() else { return Ok(false) };
        let address = channel.address();
        channel.advance();
        self.memory_of(place, address)?.write_word(word)?;
        Ok(true)
    }

    /// The memory that a tile's DMA reaches at an address, from there on.
    fn memory_of(&mut self, place: Place, address: u64) -> Result<memory::Cursor<'_>, Fault> {
        match kind(place) {
            Kind::Shim => {
                let holds = |buffer: &&mut HostBuffer| {
                    (buffer.address..buffer.address + buffer.memory.len() as u64).contains(&address)
                };
                let buffer = self.host.iter_mut().find(holds);
                let buffer = buffer.ok_or_else(|| format!("the host has no memory at {address:#x}"))?;
                Ok(buffer.memory.at(address - buffer.address))
            }
            Kind::Memory if !(0x80000..0x100000).contains(&address) => {
                Err(format!("a neighbour's memory, {address:#x}, is not modelled"))
            }
            Kind::Memory => Ok(self.tile_mut(place)?.memory.at(address - 0x80000)),
            Kind::Core => Ok(self.tile_mut(place)?.memory.at(address)),
        }
    }

    /// A token leaves by the shim's first south port.
    fn send_token(&self, place: Place) -> Result<(), Fault> {
        if kind(place) != Kind::Shim {
            return Err("tokens of other tiles than shims are not modelled".into());
        }
        self.tile(place)?.switch.token_leaves()
    }

    /// Changes the bits of `mask` of a register, or a word of memory.
    fn write(&mut self, address: u32, mask: u32, value: u32) -> Result<(), Fault> {
        let place = (address >> 25, address >> 20 & 31);
        let offset = address & 0xFFFFF;
        let kind = kind(place);
        self.routes.clear();
        let tile = self.tile_mut(place)?;
        let unknown = || format!("tile {place:?} has no register at {offset:#x} in this model");
        match (kind, offset) {
            (Kind::Core, 0..0x10000) if mask == u32::MAX => tile.memory.at(u64::from(offset)).write_word(value),
            (Kind::Core, 0x20000..0x24000) if mask == u32::MAX => {
                tile.core.as_mut().ok_or_else(unknown)?.write_program(offset - 0x20000, value)
            }
            (Kind::Core, 0x32000) => tile.core.as_mut().ok_or_else(unknown)?.control(mask, value),
            (Kind::Shim, 0x1F000 | 0x1F004) => tile.switch.multiplex(offset == 0x1F004, mask, value),
            (Kind::Shim, 0x14000..0x14100) | (Kind::Core, 0x1F000..0x1F100) | (Kind::Memory, 0xC0000..0xC0400) => {
                tile.locks.set((offset & 0x3FF) / 16, value)
            }
            (Kind::Shim | Kind::Core, 0x3F000..0x3F200) => tile.switch.write(offset - 0x3F000, value),
            (Kind::Memory, 0xB0000..0xB0200) => tile.switch.write(offset - 0xB0000, value),
            _ => tile.dma.write(offset, mask, value).ok_or_else(unknown)?,
        }
        .map_err(|fault| format!("tile {place:?}: {fault}"))
    }

    fn tile(&self, place: Place) -> Result<&Tile, Fault> {
        self.tiles.get(&place).ok_or_else(|| format!("there is no tile {place:?}"))
    }

    fn tile_mut(&mut self, place: Place) -> Result<&mut Tile, Fault> {
        self.tiles.get_mut(&place).ok_or_else(|| format!("there is no tile {place:?}"))
    }

    /// Who waits for what.
    fn waiting(&self) -> String {
        let cores = self.tiles.iter().filter_map(|(place, tile)| {
            let lock = tile.core.as_ref()?.waits_for()?;
            Some(format!("core {place:?} for lock {lock}"))
        });
        let channels = self.tiles.iter().flat_map(|(place, tile)| {
            let busy = tile.dma.channels.iter().filter_map(Channel::waits_for);
            busy.map(move |what| format!("tile {place:?}'s {what}"))
        });
        cores.chain(channels).collect::<Vec<_>>().join(", ")
    }
}

/// Words on their way.
type Words = VecDeque<u32>;
