//! Queries as cores have them: in bf16, in tiles of eight dimensions by four queries.

/// Elements of a head's tile.
pub const TILE: usize = 8;
/// A tile of a query that is none, and of what lies behind its elements.
const ABSENT: &[f32; TILE] = &[0.0; TILE];

/// How the queries of a layer are read.
#[derive(Clone, Copy)]
pub struct Queries<'q> {
    /// Those of a row and a query head: `head_dim` elements, or fewer tiles, behind which it is zero.
    pub of: &'q dyn Fn(usize, usize) -> &'q [f32],
    /// What they are multiplied by: the layer's scale, and the logarithm of e to base 2, since a score is a power of two's
    /// exponent.
    pub scale: f32,
}

/// The bits of a value in bf16, rounded to the nearest, in the upper half of a word.
fn round(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    // A payload in the lower half alone would be rounded to infinity.
    if value.is_nan() { bits | 1 << 22 } else { rounded }
}

/// Writes four queries of `head_dim` elements to a unit, those that are not there as zeros. Their first tile begins at the
/// word `first` of what a core is to have, the next ones `step` words apart. `WALKED` words at a time are next to each other in
/// memory, as `walk` has them.
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
