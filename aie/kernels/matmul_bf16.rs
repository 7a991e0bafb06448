//! The matrix product on the array: C = A B, A of 64 x 128 bf16, B of 128 x 64 bf16, C of 64 x 64 f32, on one core.
//!
//! The host's matrices are row by row. They pass through the memory tile, which sends A and B to the core as the
//! kernel's tiles and writes C's tiles back to rows. A word is 2 bf16 or 1 f32.

use crate::pack::{Buffer, Design, Dimension, Tile};

const A_BYTES: u32 = 64 * 128 * 2;
const B_BYTES: u32 = 128 * 64 * 2;
const C_BYTES: u32 = 64 * 64 * 4;

/// Words of a row of A: 128 bf16.
const A_ROW: u32 = 64;
/// Of B: 64 bf16.
const B_ROW: u32 = 32;
/// Of C: 64 f32.
const C_ROW: u32 = 64;

pub fn design() -> Design {
    let mut design = Design::new("matmul_bf16", 1);
    let a = design.argument("a", A_BYTES);
    let b = design.argument("b", B_BYTES);
    let c = design.argument("c", C_BYTES);
    let (shim, memory, core) = (Tile::new(0, 0), Tile::new(0, 1), Tile::new(0, 2));
    design.run(core, "matmul_bf16");

    // Rows in the memory tile.
    let a_rows = design.buffer(Buffer { tile: memory, address: 0x0000, bytes: A_BYTES, count: 1, empty: 0, full: 1 });
    let b_rows = design.buffer(Buffer { tile: memory, address: 0x4000, bytes: B_BYTES, count: 1, empty: 2, full: 3 });
    let c_rows = design.buffer(Buffer { tile: memory, address: 0x8000, bytes: C_BYTES, count: 1, empty: 4, full: 5 });
    // Tiles in the core, as the kernel has them: its own memory starts at 0x70000 for it, its own locks at 48.
    let a_tiles = design.buffer(Buffer { tile: core, address: 0x0000, bytes: A_BYTES, count: 1, empty: 0, full: 1 });
    let b_tiles = design.buffer(Buffer { tile: core, address: 0x4000, bytes: B_BYTES, count: 1, empty: 2, full: 3 });
    let c_tiles = design.buffer(Buffer { tile: core, address: 0x8000, bytes: C_BYTES, count: 1, empty: 4, full: 5 });

    design.fill(a_rows, 0, &[]);
    design.fill(b_rows, 1, &[]);
    design.drain(a_rows, 0, &tiles([4, 4, 16, 16], A_ROW));
    design.drain(b_rows, 1, &tiles([2, 8, 16, 16], B_ROW));
    design.fill(a_tiles, 0, &[]);
    design.fill(b_tiles, 1, &[]);
    design.drain(c_tiles, 0, &[]);
    design.fill(c_rows, 2, &tiles([4, 4, 16, 16], C_ROW));
    design.drain(c_rows, 2, &[]);

    design.route(shim.output(0), memory.input(0));
    design.route(shim.output(1), memory.input(1));
    design.route(memory.output(0), core.input(0));
    design.route(memory.output(1), core.input(1));
    design.route(core.output(0), memory.input(2));
    design.route(memory.output(2), shim.input(0));

    design.send(shim.output(0), a, 0, A_BYTES);
    design.send(shim.output(1), b, 0, B_BYTES);
    design.receive(shim.input(0), c, 0, C_BYTES);
    design
}

/// The walk that takes a matrix tile by tile: words of a tile's row, its rows, the tiles of a row of tiles, these rows.
fn tiles([words, rows, across, down]: [u32; 4], row: u32) -> [Dimension; 4] {
    [
        Dimension { count: words, step: 1 },
        Dimension { count: rows, step: row },
        Dimension { count: across, step: words },
        Dimension { count: down, step: rows * row },
    ]
}
