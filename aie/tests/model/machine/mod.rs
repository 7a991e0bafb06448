//! A functional model of the array: it takes the packed bytes as the firmware does and runs them.
//!
//! It is written from AMD's register reference AM025 (registers and their fields), Xilinx/aie-rt and Xilinx/mlir-aie (what
//! locks, channels and streams do; the files) and the itineraries of the public LLVM backend (latencies), not from the
//! packer or the assembler's timings. It shares with them the disassembler alone, which the vectors of tests/suite hold to
//! account.
//!
//! # What it models
//!
//! - Cores: the instructions that the kernels use and some more, to the cycle. A result is not visible before its latency;
//!   what reads too early gets the old value. Delay slots, hardware loops, the lock instruction's window.
//! - Locks with their values; DMA descriptors in up to four dimensions, iterated, chained, queued, repeated;
//!   circuit-switched streams, to several ends too; the shim's multiplexers; tokens of finished tasks.
//! - The image (container, boot image, commands) and the instruction stream with its patches and waits.
//! - Cycles of streams and channels, as far as [`group`] says.
//!
//! What has no meaning on the array is a fault, by name: memory that nothing has written, an address out of range, a
//! route that leads nowhere, a descriptor that is not valid, a lock that overflows, a wait that nothing can end. So is
//! what real arrays sometimes bear, as far as the host cannot know that they will: a task more than a queue holds, and a
//! descriptor that is rewritten, unless a token has said that what was before is done; more descriptors in a direction of
//! a shim than real arrays bear; an address that is not an argument's.
//!
//! # What it does not
//!
//! - Cycles of memory banks, of the host's memory and of the firmware. Results must not depend on cycles that are not a
//!   core's: programs run with slow cores and a slow host, too. A wait of the stream lets all go on as far as it can.
//! - Packets, compression, zero padding, cascades, traces, neighbours' memory and locks: a fault says so.
//! - How `vmac.f` rounds inside: the model sums a tile's products and the accumulator in f64 and rounds once, to the
//!   nearest f32. AMD does not say what the core does. Sums that are exact in f32 have one answer; others have a bound.
//! - Ports of the register files and the distance from a loop register's write to the loop's end: the assembler's tests
//!   have them.

mod core;
mod descriptor;
mod dma;
mod group;
mod image;
mod lock;
mod memory;
mod number;
mod sequence;
mod stream;

pub use self::core::Latencies;
pub use self::dma::Traffic;
pub use self::memory::{HostMemory, Memory};
pub use self::number::{narrow, widen};

use self::core::Core;
use self::dma::{Channel, Dma};
use self::group::Group;
use self::lock::Locks;
use self::stream::Switch;

/// Why a run cannot go on.
pub type Fault = String;
/// Column and row.
pub type Place = (u32, u32);

const ROWS: u32 = 6;

/// An end of a stream: the input of a tile, by their indices, behind so many switches.
struct Goal {
    tile: usize,
    channel: usize,
    switches: u32,
}

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
    place: Place,
    memory: Memory,
    locks: Locks,
    switch: Switch,
    dma: Dma,
    core: Option<Core>,
    /// Whether the core may go on.
    awake: bool,
}

/// A buffer of the host and the address at which the array sees it.
pub struct HostBuffer {
    pub address: u64,
    pub memory: HostMemory,
}

/// A shim's channel: place, whether it sends to the array, number.
type Task = (Place, bool, u32);

pub struct Machine {
    /// Column by column, each from its shim up.
    tiles: Vec<Tile>,
    pub host: Vec<HostBuffer>,
    /// What a run's arguments are: a buffer of the host, and bytes from its start.
    pub arguments: Vec<(usize, u64)>,
    /// Tokens that have reached the firmware.
    tokens: Vec<Task>,
    cycle: u64,
    /// Whether something may move: since it last stood still, a register was written.
    stirred: bool,
    /// Cycles of streams and DMA to one of a core, and to one in which the host takes a word.
    pub core_period: u64,
    pub host_period: u64,
    /// Cycles from the start after which a program has gone astray.
    pub limit: u64,
}

impl Machine {
    /// An array of so many columns after its reset.
    pub fn new(columns: u32, latencies: Latencies) -> Machine {
        let places = (0..columns).flat_map(|column| (0..ROWS).map(move |row| (column, row)));
        let tile = |place: Place| {
            let (bytes, locks) = match kind(place) {
                Kind::Shim => (0, 16),
                Kind::Memory => (512 << 10, 64),
                Kind::Core => (64 << 10, 16),
            };
            Tile {
                place,
                memory: Memory::new(bytes),
                locks: Locks::new(locks),
                switch: Switch::new(kind(place)),
                dma: Dma::new(kind(place)),
                core: (kind(place) == Kind::Core).then(|| Core::new(latencies)),
                awake: false,
            }
        };
        Machine {
            tiles: places.map(tile).collect(),
            host: Vec::new(),
            arguments: Vec::new(),
            tokens: Vec::new(),
            cycle: 0,
            stirred: true,
            core_period: 1,
            host_period: 1,
            // None of the small programs comes near.
            limit: 200_000,
        }
    }

    /// Gives the array a buffer of the host, which is the next argument; it lies apart from all others.
    pub fn share(&mut self, memory: HostMemory) {
        let address = 0x1_0000_0000 * (self.host.len() as u64 + 1) + 0x1000;
        self.arguments.push((self.host.len(), 0));
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
                    let found =
                        self.arguments.get(argument).ok_or_else(|| format!("there is no argument {argument}"))?;
                    let target = self.host[found.0].address + found.1 + offset;
                    let place = place_of(address);
                    let dma = &mut self.tile_mut(place)?.dma;
                    dma.patch(address & 0xFFFFF, target).map_err(|fault| format!("tile {place:?}: {fault}"))?;
                }
                sequence::Operation::Wait { place, output, channel } => self.wait((place, output, channel))?,
            }
        }
        self.settle()?;
        self.tiles.iter_mut().for_each(|tile| tile.dma.end_run());
        // The next run's wait would take it for its own.
        match self.tokens.first() {
            Some(token) => Err(format!("a token is left that nothing has waited for: {token:?}")),
            None => Ok(()),
        }
    }

    /// Runs until nothing moves any more: each group of columns that streams join on a thread of its own.
    pub fn settle(&mut self) -> Result<(), Fault> {
        if !std::mem::take(&mut self.stirred) {
            return Ok(());
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut rest = self.tiles.as_mut_slice();
        let mut first_column = 0;
        while !rest.is_empty() {
            let joined = |column: &[Tile]| column.iter().any(|tile| tile.switch.joins_columns());
            let mut columns = 1;
            while joined(&rest[..columns * ROWS as usize]) && columns * (ROWS as usize) < rest.len() {
                columns += 1;
            }
            let (tiles, others) = rest.split_at_mut(columns * ROWS as usize);
            groups.push(Group {
                tiles,
                first_column,
                host: &self.host,
                cycle: self.cycle,
                core_period: self.core_period,
                host_period: self.host_period,
                tokens: Vec::new(),
            });
            (rest, first_column) = (others, first_column + columns as u32);
        }
        let limit = self.limit;
        let outcomes: Vec<Result<(), Fault>> = match groups.as_mut_slice() {
            [group] => vec![group.settle(limit)],
            groups => std::thread::scope(|scope| {
                let threads: Vec<_> = groups.iter_mut().map(|group| scope.spawn(|| group.settle(limit))).collect();
                threads.into_iter().map(|thread| thread.join().map_err(|_| "the model panicked".to_string())?).collect()
            }),
        };
        for group in groups {
            self.cycle = self.cycle.max(group.cycle);
            self.tokens.extend(group.tokens);
        }
        outcomes.into_iter().collect()
    }

    /// What a tile's memory holds.
    pub fn memory(&self, place: Place) -> Result<&Memory, Fault> {
        Ok(&self.tile(place)?.memory)
    }

    /// What a tile's channel has moved so far.
    pub fn traffic(&self, place: Place, output: bool, number: u32) -> Result<Traffic, Fault> {
        let channel = self.tile(place)?.dma.channel(output, number);
        channel.map(|channel| channel.traffic).ok_or_else(|| format!("there is no channel {number}"))
    }

    /// Cycles so far, of all that moves.
    pub fn cycles(&self) -> u64 {
        self.cycle
    }

    /// Cycles of a core in which it did not wait for a lock.
    pub fn busy_cycles(&self, place: Place) -> Result<u64, Fault> {
        Ok(self.tile(place)?.core.as_ref().map_or(0, Core::cycles))
    }

    fn wait(&mut self, task: Task) -> Result<(), Fault> {
        self.settle()?;
        let Some(index) = self.tokens.iter().position(|token| *token == task) else {
            return Err(format!("deadlock: {}", self.waiting()));
        };
        let (place, output, number) = self.tokens.remove(index);
        self.tile_mut(place)?.dma.know(output, number);
        Ok(())
    }

    /// Changes the bits of `mask` of a register, or a word of memory.
    fn write(&mut self, address: u32, mask: u32, value: u32) -> Result<(), Fault> {
        let place = place_of(address);
        let offset = address & 0xFFFFF;
        let kind = kind(place);
        self.stirred = true;
        let tile = self.tile_mut(place)?;
        let unknown = || format!("tile {place:?} has no register at {offset:#x} in this model");
        let switches = match (kind, offset) {
            (Kind::Core, 0..0x10000) if mask == u32::MAX => return tile.memory.write_word(u64::from(offset), value),
            (Kind::Shim, 0x1F000 | 0x1F004) => Some(tile.switch.multiplex(offset == 0x1F004, mask, value)),
            (Kind::Shim | Kind::Core, 0x3F000..0x3F200) => Some(tile.switch.write(offset - 0x3F000, value)),
            (Kind::Memory, 0xB0000..0xB0200) => Some(tile.switch.write(offset - 0xB0000, value)),
            _ => None,
        };
        if switches.is_some() {
            let channels = self.tiles.iter_mut().flat_map(|tile| &mut tile.dma.channels);
            channels.for_each(|channel| channel.goals = None);
        }
        let tile = self.tile_mut(place)?;
        // Whatever was written, whoever waits looks again.
        tile.awake = tile.core.is_some();
        tile.dma.wake();
        let written = match (kind, offset) {
            _ if switches.is_some() => switches.unwrap_or(Ok(())),
            (Kind::Core, 0x20000..0x24000) if mask == u32::MAX => {
                tile.core.as_mut().ok_or_else(unknown)?.write_program(offset - 0x20000, value)
            }
            (Kind::Core, 0x32000) => tile.core.as_mut().ok_or_else(unknown)?.control(mask, value),
            (Kind::Shim, 0x14000..0x14100) | (Kind::Core, 0x1F000..0x1F100) | (Kind::Memory, 0xC0000..0xC0400) => {
                tile.locks.set((offset & 0x3FF) / 16, value)
            }
            _ => tile.dma.write(offset, mask, value).ok_or_else(unknown)?,
        };
        written.map_err(|fault| format!("tile {place:?}: {fault}"))
    }

    fn index((column, row): Place) -> Option<usize> {
        (row < ROWS).then_some((column * ROWS + row) as usize)
    }

    fn tile(&self, place: Place) -> Result<&Tile, Fault> {
        let tile = Machine::index(place).and_then(|index| self.tiles.get(index));
        tile.ok_or_else(|| format!("there is no tile {place:?}"))
    }

    fn tile_mut(&mut self, place: Place) -> Result<&mut Tile, Fault> {
        let tile = Machine::index(place).and_then(|index| self.tiles.get_mut(index));
        tile.ok_or_else(|| format!("there is no tile {place:?}"))
    }

    /// Who waits for what.
    fn waiting(&self) -> String {
        let cores = self.tiles.iter().filter_map(|tile| {
            let lock = tile.core.as_ref()?.waits_for()?;
            Some(format!("core {:?} for lock {lock}", tile.place))
        });
        let channels = self.tiles.iter().flat_map(|tile| {
            let busy = tile.dma.channels.iter().filter_map(Channel::waits_for);
            busy.map(|what| format!("tile {:?}'s {what}", tile.place))
        });
        cores.chain(channels).collect::<Vec<_>>().join(", ")
    }
}

/// The tile of an address.
fn place_of(address: u32) -> Place {
    (address >> 25, address >> 20 & 31)
}
