//! The array of tiles: what each kind has, and at which addresses of its window.
//!
//! Source: AMD's register reference AM025 and the device tables of Xilinx/mlir-aie (both public); tests hold the
//! addresses against configurations of independent make.

use std::fmt;

/// Columns that a partition can have, of the five of the device: the first has no shim DMA.
pub const COLUMNS: u8 = 4;
/// Rows: shim, memory tile, four cores.
pub const ROWS: u8 = 6;
/// Rows of memory tiles.
pub const MEMORY_ROWS: u8 = 1;

/// A place of the partition, whose columns count from 0 wherever the driver puts it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tile {
    pub column: u8,
    pub row: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Row 0: the way to and from the host's memory.
    Shim,
    /// Row 1: 512 KiB.
    Memory,
    /// A core with 64 KiB.
    Core,
}

/// Where a kind of tile has what a configuration writes. Offsets are bytes from the start of the tile's window.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Bytes of data memory; it starts the window.
    pub memory: u32,
    /// The first lock; the next is 16 bytes on.
    pub locks: u32,
    pub lock_count: u8,
    /// The first buffer descriptor; the next is 32 bytes on.
    pub descriptors: u32,
    pub descriptor_count: u8,
    /// Control of the first channel that writes memory; its queue is 4 bytes on, the next channel 8.
    pub inputs: u32,
    /// The same of those that read memory.
    pub outputs: u32,
    pub channels: u8,
    /// The first master port of the stream switch; the next is 4 bytes on.
    pub masters: u32,
    pub slaves: u32,
}

/// A core's program memory: 16 KiB.
pub const PROGRAM: u32 = 0x20000;
/// Bit 0 enables a core, bit 1 holds it in reset.
pub const CORE_CONTROL: u32 = 0x32000;
/// What the shim's south ports carry to the array: 1 in a port's two bits is DMA.
pub const SHIM_MUX: u32 = 0x1F000;
/// What they carry from it.
pub const SHIM_DEMUX: u32 = 0x1F004;

const SHIM: Map = Map {
    memory: 0,
    locks: 0x14000,
    lock_count: 16,
    descriptors: 0x1D000,
    descriptor_count: 16,
    inputs: 0x1D200,
    outputs: 0x1D210,
    channels: 2,
    masters: 0x3F000,
    slaves: 0x3F100,
};

const MEMORY: Map = Map {
    memory: 0x80000,
    locks: 0xC0000,
    lock_count: 64,
    descriptors: 0xA0000,
    descriptor_count: 48,
    inputs: 0xA0600,
    outputs: 0xA0630,
    channels: 6,
    masters: 0xB0000,
    slaves: 0xB0100,
};

const CORE: Map = Map {
    memory: 0x10000,
    locks: 0x1F000,
    lock_count: 16,
    descriptors: 0x1D000,
    descriptor_count: 16,
    inputs: 0x1DE00,
    outputs: 0x1DE10,
    channels: 2,
    masters: 0x3F000,
    slaves: 0x3F100,
};

impl Kind {
    pub fn map(self) -> &'static Map {
        match self {
            Kind::Shim => &SHIM,
            Kind::Memory => &MEMORY,
            Kind::Core => &CORE,
        }
    }
}

impl Tile {
    pub const fn new(column: u8, row: u8) -> Tile {
        Tile { column, row }
    }

    pub fn kind(self) -> Kind {
        match self.row {
            0 => Kind::Shim,
            1 => Kind::Memory,
            _ => Kind::Core,
        }
    }

    pub fn map(self) -> &'static Map {
        self.kind().map()
    }

    /// The address of an offset of the tile's window: a column is 32 MiB, a row 1 MiB.
    pub fn address(self, offset: u32) -> u32 {
        u32::from(self.column) << 25 | u32::from(self.row) << 20 | offset
    }

    pub fn lock(self, lock: u8) -> u32 {
        self.address(self.map().locks + 16 * u32::from(lock))
    }

    pub fn descriptor(self, descriptor: u8) -> u32 {
        self.address(self.map().descriptors + 32 * u32::from(descriptor))
    }

    /// The channel that writes what comes by stream into memory (S2MM).
    pub fn input(self, number: u8) -> Channel {
        Channel { tile: self, direction: Direction::Input, number }
    }

    /// The channel that sends memory by stream (MM2S).
    pub fn output(self, number: u8) -> Channel {
        Channel { tile: self, direction: Direction::Output, number }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    Input,
    Output,
}

/// A DMA channel of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Channel {
    pub tile: Tile,
    pub direction: Direction,
    pub number: u8,
}

impl Channel {
    /// The address of the control register.
    pub fn control(self) -> u32 {
        let map = self.tile.map();
        let first = if self.direction == Direction::Input { map.inputs } else { map.outputs };
        self.tile.address(first + 8 * u32::from(self.number))
    }

    /// The address of the queue of tasks.
    pub fn queue(self) -> u32 {
        self.control() + 4
    }

    /// The descriptors that the channel can use: those of a memory tile are split between even and odd channels
    /// (the constants of mlir-aie's AIERT.cpp).
    pub fn descriptors(self) -> std::ops::Range<u8> {
        let count = self.tile.map().descriptor_count;
        match (self.tile.kind(), self.number % 2) {
            (Kind::Memory, 0) => 0..count / 2,
            (Kind::Memory, _) => count / 2..count,
            _ => 0..count,
        }
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            Kind::Shim => "shim",
            Kind::Memory => "memory tile",
            Kind::Core => "core",
        };
        write!(f, "{kind} ({}, {})", self.column, self.row)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.direction == Direction::Input { "input" } else { "output" };
        write!(f, "{direction} {} of {}", self.number, self.tile)
    }
}
