//! Writes queries in the cores' format: bf16, in tiles of eight dimensions by four queries.

/// The elements of a query that are stored together: a tile has this many of each of several queries.
pub const TILE: usize = 8;
/// A tile of zeros, for a missing query and past a query's elements.
const ABSENT: &[f32; TILE] = &[0.0; TILE];

/// The queries of a layer, as the caller stores them, and the factor to apply to them.
#[derive(Clone, Copy)]
pub struct Queries<'q> {
    /// The query of a row and a query head: `head_dim` elements, or fewer whole tiles, to be padded with zeros.
    pub of: &'q dyn Fn(usize, usize) -> &'q [f32],
    /// The factor of queries: the layer's scale times log2(e), since the cores compute powers of two.
    pub scale: f32,
}

/// The bits of a value in bf16, rounded to nearest, in the upper half of a word.
fn round(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    // Keeps a NaN whose payload is only in the lower half from being rounded to infinity.
    if value.is_nan() { bits | 1 << 22 } else { rounded }
}

/// Writes four queries of `head_dim` elements to a unit, missing ones as zeros. Their first tile begins at word `first`
/// of the core's order, and each next one `step` words later. `walk` gives each word's place in memory; `WALKED`
/// consecutive words of the walk are adjacent.
pub(super) fn write_quad<const WALKED: usize>(
    queries: [Option<&[f32]>; 4],
    (head_dim, scale): (usize, f32),
    walk: &[usize],
    (first, step): (usize, usize),
    to: &mut [u8],
) {
    let tiles = queries.map(|query| query.unwrap_or_default().as_chunks::<TILE>().0);
    for index in 0..head_dim / TILE {
        let [a, b, c, d] = tiles.map(|tiles| tiles.get(index).unwrap_or(ABSENT));
        let pair = |low: &[f32; TILE], high: &[f32; TILE]| {
            let mut pairs = [0; TILE];
            for ((pair, low), high) in pairs.iter_mut().zip(low).zip(high) {
                *pair = round(low * scale) >> 16 | round(high * scale) & 0xFFFF_0000;
            }
            pairs
        };
        let mut words = [[0; 2]; TILE];
        for ((words, low), high) in words.iter_mut().zip(pair(a, b)).zip(pair(c, d)) {
            *words = [low, high];
        }
        let walk = &walk[first + index * step..][..2 * TILE];
        for (words, place) in words.as_flattened().chunks_exact(WALKED).zip(walk.iter().step_by(WALKED)) {
            let to = to[4 * place..][..4 * WALKED].as_chunks_mut().0;
            to.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        }
    }
}
