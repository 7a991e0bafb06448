//! Attention on the array: columns of four cores, each with the same program, a head of K and V at a time.
//!
//! A shim's first output sends a sequence's header and then K, its second V, both row by row as they lie in the pages of
//! the cache; the memory tile re-tiles them and gives them to all cores of its column. Of one token's attention the core
//! that the header names takes them, so a column's sequences are its cores' in turn. Of many tokens' all four do, each for
//! rows of its own, whose queries follow the header. What the cores leave, in f32 and undivided, the memory tile collects
//! from one after another.

use crate::pack::{Buffer, Design, Dimension, Tile};

/// Bytes of a unit of K or V, and of the header.
pub const UNIT: u32 = 8192;
/// Positions of a page of the cache.
pub const PAGE: u32 = 64;
/// Bytes of what a core leaves of a sequence: for each four queries the maximum, the sums and O, tiles of 4 x 4 f32. Many
/// tokens' quads begin [`prefill_quad`] bytes apart, those of one token's [`QUAD`].
pub const OUTPUT: u32 = 18_432;
/// Of four queries.
pub const QUAD: u32 = 66 * 64;
/// What a score may be after scaling, of either sign: the kernel's integers have room for no more.
pub const MOST: f32 = 16384.0;

/// 1.5 * 2^16: what is added to a score leaves 128 times the score in the lower half of the sum.
pub const MAGIC: u32 = 0x47C0_0000;

/// [`MAGIC`] less a maximum below all scores, -32,768: what a sequence of prefill starts with.
const FIRST: u32 = 0x4800_0000;

/// Dimensions of a head, and the design for heads of so many: memory tiles walk through units otherwise, cores run the same.
pub const NAMES: [(u32, &str); 3] = [(64, "attend_bf16_64"), (128, "attend_bf16_128"), (256, "attend_bf16_256")];

/// A design for heads of each size. Its own run is one of sixteen heads, of a page each.
pub fn designs() -> Vec<Design> {
    NAMES.map(|(head_dim, name)| design(head_dim, name)).to_vec()
}

fn design(head_dim: u32, name: &'static str) -> Design {
    const HEADS: u32 = 16;
    let page = 2 * PAGE * head_dim;
    let mut design = stream(head_dim, 4, 4);
    design.name = name;
    let (k, v) = (design.argument("k", HEADS * (UNIT + page)), design.argument("v", HEADS * page));
    let o = design.argument("o", HEADS * OUTPUT);
    for column in 0..4 {
        let (shim, heads) = (Tile::new(column, 0), HEADS / 4);
        let first = u32::from(column) * heads;
        design.receive(shim.input(0), o, first * OUTPUT, heads * OUTPUT);
        design.send(shim.output(0), k, first * (UNIT + page), heads * (UNIT + page));
        design.send(shim.output(1), v, first * page, heads * page);
    }
    design
}

/// The streams alone, with no arguments and transfers: so many columns of one to four cores.
pub fn stream(head_dim: u32, columns: u8, cores: u8) -> Design {
    let mut design = Design::new("attend_bf16", columns);
    design.cache = 2;
    for column in 0..columns {
        let (shim, memory) = (Tile::new(column, 0), Tile::new(column, 1));
        let ring = |tile: Tile, address: u32, bytes: u32, count: u8, empty: u8| Buffer {
            tile,
            address,
            bytes,
            count,
            empty,
            full: empty + 1,
        };
        let k_rows = design.buffer(ring(memory, 0, UNIT, 4, 0));
        let v_rows = design.buffer(ring(memory, 0x8000, UNIT, 4, 2));
        design.fill(k_rows, 0, &[]);
        design.fill(v_rows, 1, &[]);
        design.drain(k_rows, 0, &k_walk(head_dim));
        design.drain(v_rows, 1, &v_walk(head_dim));
        design.route(shim.output(0), memory.input(0));
        design.route(shim.output(1), memory.input(1));
        let mut left = Vec::new();
        for index in 0..cores {
            let core = Tile::new(column, 2 + index);
            design.run(core, "attend_bf16");
            design.constant(core, 0xA000, [constants(), own(index), prefill_constants()].concat());
            // As the kernel has them: its own memory starts at 0x70000 for it, its own locks at 48.
            let k_tiles = design.buffer(ring(core, 0, UNIT, 2, 0));
            let v_tiles = design.buffer(ring(core, 0x4000, UNIT, 2, 2));
            let o_tiles = design.buffer(ring(core, 0xB000, OUTPUT, 1, 4));
            design.fill(k_tiles, 0, &[]);
            design.fill(v_tiles, 1, &[]);
            design.drain(o_tiles, 0, &[]);
            design.route(memory.output(0), core.input(0));
            design.route(memory.output(1), core.input(1));
            design.route(core.output(0), memory.input(2 + index));
            let o = design.buffer(ring(memory, 0x10000 + 2 * OUTPUT * u32::from(index), OUTPUT, 2, 4 + 2 * index));
            design.fill(o, 2 + index, &[]);
            left.push(o);
        }
        design.drain_in_turn(&left, 2, &[]);
        design.route(memory.output(2), shim.input(0));
    }
    design
}

/// Queries that a core has in a sequence of many tokens.
pub const fn prefill_rows(head_dim: u32) -> u32 {
    4096 / head_dim
}

/// Bytes from one of their quads to the next.
pub const fn prefill_quad(head_dim: u32) -> u32 {
    18 * head_dim
}

/// Words of a row: two dimensions each.
fn walk(head_dim: u32, tile: u32) -> [Dimension; 4] {
    let row = head_dim / 2;
    let steps = UNIT / 4 / (16 * row);
    [
        Dimension { count: tile, step: 1 },
        Dimension { count: 16, step: row },
        Dimension { count: row / tile, step: tile },
        Dimension { count: steps, step: 16 * row },
    ]
}

/// Rows of K as tiles of 4 positions by 8 dimensions: 16 positions of 8 dimensions, then of the next 8.
pub fn k_walk(head_dim: u32) -> [Dimension; 4] {
    walk(head_dim, 4)
}

/// Rows of V as tiles of 8 positions by 4 dimensions, likewise.
pub fn v_walk(head_dim: u32) -> [Dimension; 4] {
    walk(head_dim, 2)
}

/// A core's number in its column, and room up to the prefill kernel's constants.
fn own(index: u8) -> Vec<u32> {
    let mut words = vec![0; 16];
    words[0] = u32::from(index);
    words
}

/// 2^f is nearly 1 + f - f (1 - f) (BEND + TILT f). Of f in 128ths, m, the bits of a bf16 are those of its exponent and
/// m + m u / 2^14, where u is the sum of three terms in 2^18ths, of which that of m^2 is TILT's.
fn prefill_constants() -> Vec<u32> {
    const TILT: f64 = 1.0 / 16.0;
    const BEND: f64 = 0.312;
    let pair = |value: u32| value << 16 | value & 0xFFFF;
    let all = |word: u32| vec![word; 16];
    let scale = f64::from(1 << 18);
    [
        // Bits of 1.5 * 2^16 as 127 of an exponent's bits would have them, and of 1.5 * 2^23: scores in 128ths, and whole.
        all(MAGIC - 127 * 128),
        all(0x4B40_0000),
        all((-BEND * scale).round() as i32 as u32),
        all(pair(0x007F)),
        all(pair(((BEND - TILT) / 128.0 * scale).round() as u32)),
        all(0),
        all(0),
        // Positions 0 to 7 of four queries.
        (0..16).map(|word| pair(word / 2)).collect(),
        all(pair(0x8000)),
        all(FIRST),
        all(MAGIC - 16 * 128),
    ]
    .concat()
}

/// What the core's memory holds for the kernel: vectors of 64 bytes, in the kernel's order.
fn constants() -> Vec<u32> {
    // 2^f = CONSTANT + g * (SQUARE * g) of g = 1 + f, where f is in [0, 1) and the inner product a bf16.
    const CONSTANT: f32 = 0.668_64;
    const SQUARE: f32 = 0.332_031_25;
    let bf16 = |value: f32| value.to_bits() >> 16;
    let pair = |value: u32| value << 16 | value;
    let all = |word: u32| vec![word; 16];
    let halves = |low: u32, high: u32| [vec![low; 8], vec![high; 8]].concat();
    [
        all(0xC000_0000), // what is not seen: below whatever is
        all(MAGIC + 128 * 16),
        all(MAGIC - 128 * 126),
        all(pair(0xFF80)),
        all(pair(0x007F)),
        all(pair(bf16(1.0))),
        halves(pair(bf16(SQUARE)), 0),
        halves(0, pair(bf16(SQUARE))),
        all(CONSTANT.to_bits()),
        all(0x7FFF_FFFF),
        all(0x8000_0000),
        all(0xFFFF_FF80),
        all(128 * 255),
        all((-128i32 * 255) as u32),
        all(MAGIC),
        all(0),
    ]
    .concat()
}
