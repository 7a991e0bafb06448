//! The quantised formats of GGUF files: rows of blocks, each with its values and what they are scaled by.
//!
//! ```text
//! Q4_0   32 values   d f16, 16 bytes of values                       w = d (q - 8)
//! Q5_0   32 values   d f16, 4 bytes of high bits, 16 of low ones     w = d (q - 16)
//! Q8_0   32 values   d f16, 32 × i8                                  w = q d
//! Q4_K  256 values   d f16, m f16, 12 bytes of scales, 128 of values w = d s q - m n
//! Q6_K  256 values   128 bytes of low bits, 64 of high, 16 × i8, d   w = d s (q - 32)
//! ```
//!
//! Kiln runs them in a [`WeightFormat`] of the same values, in which elements and scales lie apart, so that a kernel loads
//! 16 bytes of elements at a time. Splitting a row into these planes loses nothing and adds no byte.

use half::f16;

use crate::model::format::{BadRow, WeightFormat};

/// A quantised format that only GGUF files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockFormat {
    /// 4 bits a value, one scale for 32.
    Q4_0,
    /// 5 bits a value, one scale for 32.
    Q5_0,
    /// 8 bits a value, one scale for 32.
    Q8_0,
    /// 4 bits a value, a scale and a minimum for 32.
    Q4K,
    /// 6 bits a value, a scale for 16.
    Q6K,
}

impl BlockFormat {
    /// Every format.
    pub const ALL: [BlockFormat; 5] =
        [BlockFormat::Q4_0, BlockFormat::Q5_0, BlockFormat::Q8_0, BlockFormat::Q4K, BlockFormat::Q6K];

    /// Its name: `q4_k`.
    pub fn name(self) -> &'static str {
        match self {
            BlockFormat::Q4_0 => "q4_0",
            BlockFormat::Q5_0 => "q5_0",
            BlockFormat::Q8_0 => "q8_0",
            BlockFormat::Q4K => "q4_k",
            BlockFormat::Q6K => "q6_k",
        }
    }

    /// The format with the same values that a matrix has on a device.
    pub fn kept_as(self) -> WeightFormat {
        match self {
            BlockFormat::Q4_0 => WeightFormat::Int4,
            BlockFormat::Q5_0 => WeightFormat::Q5_0,
            BlockFormat::Q8_0 => WeightFormat::Q8_0,
            BlockFormat::Q4K => WeightFormat::Q4K,
            BlockFormat::Q6K => WeightFormat::Q6K,
        }
    }

    /// Values of a block. A row is whole blocks.
    pub fn block(self) -> usize {
        match self {
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => WeightFormat::GROUP,
            BlockFormat::Q4K | BlockFormat::Q6K => WeightFormat::SUPER,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            BlockFormat::Q4_0 => 18,
            BlockFormat::Q5_0 => 22,
            BlockFormat::Q8_0 => 34,
            BlockFormat::Q4K => 144,
            BlockFormat::Q6K => 210,
        }
    }

    /// Bytes of a row of `cols` values.
    pub fn row_bytes(self, cols: usize) -> usize {
        cols / self.block() * self.block_bytes()
    }

    /// Splits a row of whole blocks into the elements and the scales of [`BlockFormat::kept_as`]: to `data` and `scales` go
    /// the bytes that [`WeightFormat::row_bytes`] and [`WeightFormat::scale_bytes`] say.
    ///
    /// # Errors
    /// A scale that is not finite, or so large that a weight could be past f16's range.
    ///
    /// # Panics
    /// If the three do not have the bytes of one number of blocks.
    pub fn split_row(self, blocks: &[u8], data: &mut [u8], scales: &mut [u8]) -> Result<(), BadRow> {
        let (count, format) = (blocks.len() / self.block_bytes(), self.kept_as());
        let cols = count * self.block();
        assert_eq!(blocks.len(), self.row_bytes(cols), "bytes of whole blocks");
        assert_eq!([data.len(), scales.len()], [format.row_bytes(cols), format.scale_bytes(cols)], "{cols} values");
        let blocks = blocks.chunks_exact(self.block_bytes());
        match self {
            BlockFormat::Q4_0 | BlockFormat::Q8_0 => {
                let places = data.chunks_exact_mut(self.block_bytes() - 2).zip(scales.chunks_exact_mut(2));
                for (block, (data, scale)) in blocks.zip(places) {
                    scale.copy_from_slice(&block[..2]);
                    data.copy_from_slice(&block[2..]);
                }
            }
            BlockFormat::Q5_0 => {
                let (low, high) = data.split_at_mut(cols / 2);
                let places = low.chunks_exact_mut(16).zip(high.chunks_exact_mut(4)).zip(scales.chunks_exact_mut(2));
                for (block, ((low, high), scale)) in blocks.zip(places) {
                    scale.copy_from_slice(&block[..2]);
                    low.copy_from_slice(&block[6..]);
                    high.fill(0);
                    // Bit i of the block's is value i's.
                    (0..32).for_each(|i| high[i % 4] |= (block[2 + i / 8] >> (i % 8) & 1) << (i / 4));
                }
            }
            BlockFormat::Q4K => {
                let places = data.chunks_exact_mut(128).zip(scales.chunks_exact_mut(16));
                blocks.zip(places).for_each(|(block, (data, scales))| split_q4_k(block, data, scales));
            }
            BlockFormat::Q6K => {
                let (low, rest) = data.split_at_mut(cols / 2);
                let (high, small) = rest.split_at_mut(cols / 4);
                let places = low.chunks_exact_mut(128).zip(high.chunks_exact_mut(64));
                let places = places.zip(small.chunks_exact_mut(16)).zip(scales.chunks_exact_mut(2));
                for (block, (((low, high), small), d)) in blocks.zip(places) {
                    split_q6_k(&block[..192], low, high);
                    small.copy_from_slice(&block[192..208]);
                    d.copy_from_slice(&block[208..]);
                }
            }
        }
        format.check_row(data, scales)
    }
}

/// The values of 16 bytes' halves in INT4's order: byte i has value i of `half` of 32 bytes in its low half, and value
/// 16 + i in its high half. `shift` is 0 for the bytes' low halves, 4 for their high ones.
fn put_halves(bytes: &[u8], shift: u32, out: &mut [u8]) {
    let (first, second) = bytes.split_at(16);
    let pairs = first.iter().zip(second);
    out.iter_mut().zip(pairs).for_each(|(o, (a, b))| *o = (a >> shift & 15) | (b >> shift & 15) << 4);
}

/// Of each 64 values in a file the first 32 are in the low halves of 32 bytes, the others in their high halves.
fn split_q4_k(block: &[u8], data: &mut [u8], scales: &mut [u8]) {
    for (out, bytes) in data.chunks_exact_mut(32).zip(block[16..].chunks_exact(32)) {
        let (low, high) = out.split_at_mut(16);
        put_halves(bytes, 0, low);
        put_halves(bytes, 4, high);
    }
    let mut words = [0u32; 3];
    for i in 0..8 {
        let (s, n) = q4_k_scale(&block[4..16], i);
        let parts = [s & 15, n & 15, s >> 4 | n >> 4 << 2];
        words.iter_mut().zip(parts).for_each(|(word, part)| *word |= u32::from(part) << (4 * i));
    }
    scales[..4].copy_from_slice(&block[..4]);
    scales[4..].chunks_exact_mut(4).zip(words).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
}

/// The scale and the minimum of the 32 values with index `i` in a file, 6 bits each. The first four have the low 6 bits of
/// a byte each; of the others the low 4 bits are in the last four bytes, and the high 2 in what is left of the first eight.
fn q4_k_scale(packed: &[u8], i: usize) -> (u8, u8) {
    match i {
        0..4 => (packed[i] & 63, packed[i + 4] & 63),
        _ => {
            let (scale, minimum) = (packed[i - 4] >> 6, packed[i] >> 6);
            (packed[i + 4] & 15 | scale << 4, packed[i + 4] >> 4 | minimum << 4)
        }
    }
}

/// Of each 128 values in a file: 64 bytes have the low 4 bits of value l and of value 64 + l, and 32 bytes the high 2 bits
/// of the values l, 32 + l, 64 + l and 96 + l.
fn split_q6_k(block: &[u8], low: &mut [u8], high: &mut [u8]) {
    let (from_low, from_high) = block.split_at(128);
    high.fill(0);
    for group in 0..8 {
        let (half, part) = (group / 4, group % 4);
        put_halves(&from_low[64 * half + 32 * (part % 2)..][..32], 4 * (part as u32 / 2), &mut low[16 * group..][..16]);
        let (bits, out) = (&from_high[32 * half..][..32], &mut high[8 * group..][..8]);
        for (i, bits) in bits.iter().enumerate() {
            out[i / 16 * 4 + i % 4] |= (bits >> (2 * part) & 3) << (i % 16 / 4 * 2);
        }
    }
}

fn f16_at(bytes: &[u8], index: usize) -> f32 {
    f16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
}

/// The factors of the 32 values with index `i` of a Q4_K block's 16 bytes of scales, to multiply by and to subtract.
fn q4_k_factors(scales: &[u8], i: usize) -> (f32, f32) {
    let part = |word: usize| {
        let b = &scales[4 + 4 * word..];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]]) >> (4 * i) & 15
    };
    let (s, n, high) = (part(0), part(1), part(2));
    (f16_at(scales, 0) * (s | (high & 3) << 4) as f32, f16_at(scales, 1) * (n | (high & 12) << 2) as f32)
}

/// Decodes a row of [`WeightFormat::Q5_0`].
pub(super) fn decode_q5_0(data: &[u8], scales: &[u8], out: &mut [f32]) {
    let (low, high) = data.split_at(data.len() / 20 * 16);
    let groups = out.chunks_exact_mut(WeightFormat::GROUP).zip(low.chunks_exact(16)).zip(high.chunks_exact(4));
    for (i, ((out, low), high)) in groups.enumerate() {
        let d = f16_at(scales, i);
        for (j, o) in out.iter_mut().enumerate() {
            let q = (low[j % 16] >> (j / 16 * 4) & 15) | (high[j % 4] >> (j / 4) & 1) << 4;
            *o = d * (f32::from(q) - 16.0);
        }
    }
}

/// Decodes a row of [`WeightFormat::Q8_0`].
pub(super) fn decode_q8_0(data: &[u8], scales: &[u8], out: &mut [f32]) {
    let groups = out.chunks_mut(WeightFormat::GROUP).zip(data.chunks(WeightFormat::GROUP));
    for (i, (out, bytes)) in groups.enumerate() {
        let d = f16_at(scales, i);
        out.iter_mut().zip(bytes).for_each(|(o, q)| *o = f32::from(*q as i8) * d);
    }
}

/// Decodes a row of [`WeightFormat::Q4K`], in the order of the formula.
pub(super) fn decode_q4_k(data: &[u8], scales: &[u8], out: &mut [f32]) {
    let groups = out.chunks_exact_mut(WeightFormat::GROUP).zip(data.chunks_exact(16));
    for (i, (out, bytes)) in groups.enumerate() {
        let (scale, minimum) = q4_k_factors(&scales[i / 8 * 16..][..16], i % 8);
        let (low, high) = out.split_at_mut(16);
        low.iter_mut().zip(bytes).for_each(|(o, b)| *o = scale * f32::from(b & 15) - minimum);
        high.iter_mut().zip(bytes).for_each(|(o, b)| *o = scale * f32::from(b >> 4) - minimum);
    }
}

/// Decodes a row of [`WeightFormat::Q6K`], in the order of the formula.
pub(super) fn decode_q6_k(data: &[u8], scales: &[u8], out: &mut [f32]) {
    let cols = data.len() / 13 * 16;
    let (low, rest) = data.split_at(cols / 2);
    let (high, small) = rest.split_at(cols / 4);
    let groups = out.chunks_exact_mut(WeightFormat::GROUP).zip(low.chunks_exact(16)).zip(high.chunks_exact(8));
    for (i, ((out, low), high)) in groups.enumerate() {
        let d = f16_at(scales, i / 8);
        let factors = [2 * i, 2 * i + 1].map(|j| d * f32::from(small[j] as i8));
        for (j, o) in out.iter_mut().enumerate() {
            let q = (low[j % 16] >> (j / 16 * 4) & 15) | (high[j / 16 * 4 + j % 4] >> (j % 16 / 4 * 2) & 3) << 4;
            *o = factors[j / 16] * (f32::from(q) - 32.0);
        }
    }
}

/// The largest magnitude that a weight may have with the scales of each block of a row of `format`, or NaN; 0 for formats
/// that are no block format's.
pub(super) fn block_bounds(format: WeightFormat, scales: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let bytes = match format {
        WeightFormat::Q4K => 16,
        _ => 2,
    };
    scales.chunks_exact(bytes).map(move |scale| {
        let d = f16_at(scale, 0).abs();
        match format {
            WeightFormat::Q5_0 => 16.0 * d,
            WeightFormat::Q8_0 => 128.0 * d,
            WeightFormat::Q4K => 63.0 * 15.0 * d + 63.0 * f16_at(scale, 1).abs(),
            WeightFormat::Q6K => 128.0 * 32.0 * d,
            WeightFormat::Int8 | WeightFormat::Int4 | WeightFormat::Bf16 => 0.0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::gguf::GgmlType;

    /// A row's values by way of the planes.
    fn decode(format: BlockFormat, blocks: &[u8]) -> Vec<f32> {
        let cols = blocks.len() / format.block_bytes() * format.block();
        let kept = format.kept_as();
        let (mut data, mut scales) = (vec![0xAA; kept.row_bytes(cols)], vec![0xAA; kept.scale_bytes(cols)]);
        format.split_row(blocks, &mut data, &mut scales).unwrap();
        let mut out = vec![0.0; cols];
        kept.decode_row(&data, &scales, &mut out);
        out
    }

    /// A block in which each value is told apart by its place.
    #[test]
    fn each_value_is_found_in_its_place() {
        let one = f16::from_f32(1.0).to_le_bytes();
        let mut block = [&one[..], &[0x88; 16]].concat();
        block[2 + 5] = 0x1F;
        let values = decode(BlockFormat::Q4_0, &block);
        assert_eq!((values[5], values[16 + 5], values[0]), (7.0, -7.0, 0.0));

        // Value 21 alone has its high bit.
        let block = [&one[..], &(1u32 << 21).to_le_bytes(), &[0x30; 16]].concat();
        let values = decode(BlockFormat::Q5_0, &[&block[..], &block, &block, &block].concat());
        let wanted: Vec<f32> = (0..32)
            .map(|i| {
                if i == 21 {
                    3.0
                } else if i < 16 {
                    -16.0
                } else {
                    -13.0
                }
            })
            .collect();
        assert_eq!(values, wanted.repeat(4));

        let block = [&one[..], &(0..32).map(|i| (i as u8).wrapping_sub(16)).collect::<Vec<_>>()].concat();
        let wanted: Vec<f32> = (-16..16).map(|i| i as f32).collect();
        assert_eq!(decode(BlockFormat::Q8_0, &block), wanted);

        // Scales 33 to 40, minima 1 to 8.
        let (scales, minima): (Vec<u8>, Vec<u8>) = ((33..41).collect(), (1..9).collect());
        let mut packed = [0u8; 12];
        for i in 0..4 {
            packed[i] = scales[i] | scales[i + 4] >> 4 << 6;
            packed[i + 4] = minima[i] | minima[i + 4] >> 4 << 6;
            packed[i + 8] = scales[i + 4] & 15 | minima[i + 4] << 4;
        }
        let block = [&one[..], &one, &packed, &[0x21; 128]].concat();
        let values = decode(BlockFormat::Q4K, &block);
        for (i, value) in values.iter().enumerate() {
            let (half, q) = (i / 32, 1.0 + (i / 32 % 2) as f32);
            assert_eq!(*value, f32::from(scales[half]) * q - f32::from(minima[half]), "{i}");
        }

        let mut block = [&[0u8; 192][..], &(0..16).map(|i| i as u8).collect::<Vec<_>>(), &one].concat();
        // Value 128 + 64 + 7: 15 in the high half of its low bits, 2 in its high bits.
        block[64 + 7] = 0xF0;
        block[128 + 32 + 7] = 2 << 4;
        let values = decode(BlockFormat::Q6K, &block);
        assert_eq!((values[199], values[198]), (12.0 * 15.0, 12.0 * -32.0));
    }

    /// A row of several blocks is each of them by itself.
    #[test]
    fn blocks_do_not_depend_on_their_place_in_a_row() {
        let mut state = 1u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for format in BlockFormat::ALL {
            let mut blocks: Vec<u8> = (0..4 * format.block_bytes()).map(|_| byte()).collect();
            for (i, block) in blocks.chunks_exact_mut(format.block_bytes()).enumerate() {
                let d = f16::from_f32(0.5 + i as f32).to_le_bytes();
                match format {
                    BlockFormat::Q4K => block[..4].copy_from_slice(&[d, d].concat()),
                    BlockFormat::Q6K => block[208..].copy_from_slice(&d),
                    BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => block[..2].copy_from_slice(&d),
                }
            }
            let alone = |block: &[u8]| decode(format, &block.repeat(4))[..format.block()].to_vec();
            let apart: Vec<f32> = blocks.chunks_exact(format.block_bytes()).flat_map(alone).collect();
            assert!(apart.iter().any(|w| *w > 1.0) && apart.iter().any(|w| *w < -1.0), "{format:?}");
            assert_eq!(decode(format, &blocks), apart, "{format:?}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_file_format() {
        for format in BlockFormat::ALL {
            let name = format.name().to_uppercase();
            let of_name = (0..64).filter_map(GgmlType::of).find(|t| t.name == name).unwrap();
            assert_eq!((format.block(), format.block_bytes()), (of_name.block, of_name.block_bytes), "{name}");
            assert_eq!(format.row_bytes(1024), 1024 / format.block() * format.block_bytes());
            // On a device it takes the bytes of the file.
            assert_eq!(format.kept_as().matrix_bytes(3, 1024), 3 * format.row_bytes(1024) as u64, "{name}");
        }
    }

    #[test]
    fn scales_past_the_range_of_f16_are_refused() {
        let check = |format: BlockFormat, at: usize, scale: f32| {
            let mut block = vec![0u8; format.block_bytes()];
            block[at..at + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
            let kept = format.kept_as();
            let (cols, block) = (4 * format.block(), block.repeat(4));
            format.split_row(&block, &mut vec![0; kept.row_bytes(cols)], &mut vec![0; kept.scale_bytes(cols)])
        };
        for (format, at, most) in [
            (BlockFormat::Q4_0, 0, 8188.0),
            (BlockFormat::Q5_0, 0, 4094.0),
            (BlockFormat::Q8_0, 0, 511.75),
            (BlockFormat::Q4K, 0, 69.25),
            (BlockFormat::Q4K, 2, 1039.0),
            (BlockFormat::Q6K, 208, 15.99),
        ] {
            for scale in [most, -most, 0.0] {
                assert_eq!(check(format, at, scale), Ok(()), "{format:?}: {scale}");
            }
            for scale in [1.01 * most, -1.01 * most, f32::INFINITY, f32::NAN] {
                let line = check(format, at, scale).unwrap_err();
                assert!(line.starts_with("the scale"), "{format:?}: {line}");
            }
        }
    }
}
