//! The vector add on the array: c = a + b, 4096 bf16 values, 1024 of them in each of four columns.
//!
//! In each column the shim's two outputs go straight to the core's two inputs, past the memory tile, and the core's
//! first output to the shim's first input.

use crate::pack::{Buffer, Design, Tile};

/// Of a column: 1024 values of 2 bytes.
const BYTES: u32 = 2048;
const COLUMNS: u8 = 4;

pub fn design() -> Design {
    let mut design = Design::new("vector_add_bf16", COLUMNS);
    let [a, b, c] = ["a", "b", "c"].map(|name| design.argument(name, u32::from(COLUMNS) * BYTES));
    for column in 0..COLUMNS {
        let (shim, core) = (Tile::new(column, 0), Tile::new(column, 2));
        design.run(core, "vector_add_bf16");

        // As the kernel has them: its own memory starts at 0x70000 for it, its own locks at 48.
        let a_in = design.buffer(Buffer { tile: core, address: 0x0000, bytes: BYTES, count: 1, empty: 0, full: 1 });
        let b_in = design.buffer(Buffer { tile: core, address: 0x4000, bytes: BYTES, count: 1, empty: 2, full: 3 });
        let c_out = design.buffer(Buffer { tile: core, address: 0x8000, bytes: BYTES, count: 1, empty: 4, full: 5 });
        design.fill(a_in, 0, &[]);
        design.fill(b_in, 1, &[]);
        design.drain(c_out, 0, &[]);

        design.route(shim.output(0), core.input(0));
        design.route(shim.output(1), core.input(1));
        design.route(core.output(0), shim.input(0));

        let part = u32::from(column) * BYTES;
        design.send(shim.output(0), a, part, BYTES);
        design.send(shim.output(1), b, part, BYTES);
        design.receive(shim.input(0), c, part, BYTES);
    }
    design
}
