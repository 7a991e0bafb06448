//! Reading the host's memory through up to two channels of each of four columns, and nothing else: a core adds up what
//! comes, so that the host can tell that all of it came.
//!
//! In each column the shim's two outputs go straight to the core's two inputs, past the memory tile, and the core's first
//! output to the shim's first input. How much is read, and through which channels, is what the host's stream and the
//! headers say.

use crate::pack::{Buffer, Design, Tile};

/// Bytes of a unit of a stream, and of the header.
pub const UNIT: u32 = 8192;
/// Bytes of a column's sums: 16 words of each stream.
pub const SUMS: u32 = 128;
const COLUMNS: u8 = 4;

/// Its own run reads a unit through each channel.
pub fn design() -> Design {
    let mut design = Design::new("read_sum", COLUMNS);
    design.cache = 2;
    let headers = design.argument("headers", u32::from(COLUMNS) * UNIT);
    let data = design.argument("data", 2 * u32::from(COLUMNS) * UNIT);
    let sums = design.argument("sums", u32::from(COLUMNS) * SUMS);
    for column in 0..COLUMNS {
        let (shim, core, index) = (Tile::new(column, 0), Tile::new(column, 2), u32::from(column));
        design.run(core, "read_sum");

        // As the kernel has them: its own memory starts at 0x70000 for it, its own locks at 48.
        let a = design.buffer(Buffer { tile: core, address: 0x0000, bytes: UNIT, count: 2, empty: 0, full: 1 });
        let b = design.buffer(Buffer { tile: core, address: 0x4000, bytes: UNIT, count: 2, empty: 2, full: 3 });
        let left = design.buffer(Buffer { tile: core, address: 0x8000, bytes: SUMS, count: 1, empty: 4, full: 5 });
        design.fill(a, 0, &[]);
        design.fill(b, 1, &[]);
        design.drain(left, 0, &[]);

        design.route(shim.output(0), core.input(0));
        design.route(shim.output(1), core.input(1));
        design.route(core.output(0), shim.input(0));

        design.receive(shim.input(0), sums, index * SUMS, SUMS);
        design.send(shim.output(0), headers, index * UNIT, UNIT);
        design.send(shim.output(0), data, 2 * index * UNIT, UNIT);
        design.send(shim.output(1), data, (2 * index + 1) * UNIT, UNIT);
    }
    design
}
