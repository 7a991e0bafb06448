//! The quantised formats of GGUF files: rows of blocks, each with its values and their scales.
//!
//! ```text
//! Q4_0    32 values   d f16, 16 bytes of values                            w = d (q - 8)
//! Q4_1    32 values   d f16, m f16, 16 bytes of values                     w = d q + m
//! Q5_0    32 values   d f16, 4 bytes of high bits, 16 of low ones          w = d (q - 16)
//! Q5_1    32 values   d f16, m f16, 4 bytes of high bits, 16 of low ones   w = d q + m
//! Q8_0    32 values   d f16, 32 × i8                                       w = d q
//! Q2_K   256 values   16 × (s, n), 64 bytes of values, d f16, m f16        w = d s q - m n
//! Q3_K   256 values   32 bytes of high bits, 64 of low, 12 of s, d f16     w = d (s - 32) (q - 4)
//! Q4_K   256 values   d f16, m f16, 12 bytes of (s, n), 128 of values      w = d s q - m n
//! Q5_K   256 values   as Q4_K, with 32 bytes of high bits before the low   w = d s q - m n
//! Q6_K   256 values   128 bytes of low bits, 64 of high, 16 × i8 s, d f16  w = d s (q - 32)
//! IQ4_NL  32 values   d f16, 16 bytes of values                            w = d table[q]
//! IQ4_XS 256 values   d f16, 2 bytes of high bits of s, 4 of low ones, 128 w = d (s - 32) table[q]
//! ```
//!
//! Kiln runs them in a [`WeightFormat`] of the same values, with elements and scales stored separately ([`Grouped`]),
//! so that a kernel loads 16 bytes of elements at a time. Splitting a row into these planes is lossless, and pads it to
//! 16 bytes.

use crate::model::format::{BadRow, WeightFormat};
use crate::model::grouped::{Grouped, LOAD, SUPER, Scales};

/// Declares the formats. A line has a format and its name, the values of a block and the block's bytes, the byte offset
/// in a block of the f16 scale that scales the others, and the layout on a device.
macro_rules! block_formats {
    ($($(#[$doc:meta])* $format:ident = $name:literal, $values:ident in $bytes:literal, $scales_at:literal,
        $grouped:expr;)*) => {
        /// A quantised format that only GGUF files have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BlockFormat {
            $($(#[$doc])* $format,)*
        }

        impl BlockFormat {
            /// Every block format.
            pub const ALL: [BlockFormat; 12] = [$(BlockFormat::$format),*];

            /// The format's name, such as `q4_k`.
            pub fn name(self) -> &'static str {
                match self { $(BlockFormat::$format => $name,)* }
            }

            /// The layout on a device of matrices in this format.
            pub const fn grouped(self) -> Grouped {
                match self { $(BlockFormat::$format => $grouped,)* }
            }

            /// Values of a block. A row is whole blocks.
            pub fn block(self) -> usize {
                match self { $(BlockFormat::$format => $values,)* }
            }

            /// The size of a block in bytes.
            pub fn block_bytes(self) -> usize {
                match self { $(BlockFormat::$format => $bytes,)* }
            }

            /// Byte offset in a block of the f16 scale that scales the others.
            pub fn scales_at(self) -> usize {
                match self { $(BlockFormat::$format => $scales_at,)* }
            }

            /// Puts the elements of a block into its bytes of the planes. Each format has its own loop, for which all
            /// of its properties are constants.
            fn split_block(self, block: &[u8], first: &mut [u8], second: &mut [u8]) {
                match self { $(BlockFormat::$format => split(const { BlockFormat::$format }, block, first, second),)* }
            }
        }
    };
}

block_formats! {
    /// 4 bits per value, one scale for 32.
    Q4_0 = "q4_0", LOAD in 18, 0, grouped(4, 0, 8, false, Scales::Half);
    /// 4 bits per value, one scale and one offset for 32.
    Q4_1 = "q4_1", LOAD in 20, 0, grouped(4, 0, 0, false, Scales::HalfOffset);
    /// 5 bits per value, one scale for 32.
    Q5_0 = "q5_0", LOAD in 22, 0, grouped(4, 1, 16, false, Scales::Half);
    /// 5 bits per value, one scale and one offset for 32.
    Q5_1 = "q5_1", LOAD in 24, 0, grouped(4, 1, 0, false, Scales::HalfOffset);
    /// 8 bits per value, one scale for 32.
    Q8_0 = "q8_0", LOAD in 34, 0, grouped(8, 0, 0, false, Scales::Half);
    /// 2 bits per value, a scale and a minimum for 16.
    Q2K = "q2_k", SUPER in 84, 80, grouped(2, 0, 0, false, Scales::FourOffset);
    /// 3 bits per value, a scale for 16.
    Q3K = "q3_k", SUPER in 110, 108, grouped(2, 1, 4, false, Scales::SixBy16);
    /// 4 bits per value, a scale and a minimum for 32.
    Q4K = "q4_k", SUPER in 144, 0, grouped(4, 0, 0, false, Scales::SixOffset);
    /// 5 bits per value, a scale and a minimum for 32.
    Q5K = "q5_k", SUPER in 176, 0, grouped(4, 1, 0, false, Scales::SixOffset);
    /// 6 bits per value, a scale for 16.
    Q6K = "q6_k", SUPER in 210, 208, grouped(4, 2, 32, false, Scales::Bytes);
    /// A 4-bit index into a table per value, one scale for 32.
    Iq4Nl = "iq4_nl", LOAD in 18, 0, grouped(4, 0, 0, true, Scales::Half);
    /// A 4-bit index into a table per value, a scale of 6 bits for 32.
    Iq4Xs = "iq4_xs", SUPER in 136, 0, grouped(4, 0, 0, true, Scales::Six);
}

/// [`BlockFormat::split_block`] of a format that is constant.
#[inline(always)]
fn split(format: BlockFormat, block: &[u8], first: &mut [u8], second: &mut [u8]) {
    let grouped = format.grouped();
    for load in 0..format.block() / LOAD {
        let part = |bytes: usize| load * bytes..(load + 1) * bytes;
        let planes = (&mut first[part(grouped.first_bytes())], &mut second[part(grouped.second_bytes())]);
        grouped.put(format.elements(block, load), planes.0, planes.1);
    }
}

const fn grouped(low: usize, high: usize, zero: u8, table: bool, scales: Scales) -> Grouped {
    Grouped { low, high, zero, table, scales }
}

impl BlockFormat {
    /// The format that matrices of this one have on a device, with the same values.
    pub fn kept_as(self) -> WeightFormat {
        match self {
            BlockFormat::Q4_0 => WeightFormat::Int4,
            other => WeightFormat::Blocks(other),
        }
    }

    /// Whether a second f16 follows that scale: the scale of offsets.
    pub fn has_offset(self) -> bool {
        matches!(self.grouped().scales, Scales::HalfOffset | Scales::SixOffset | Scales::FourOffset)
    }

    /// The size of a row of `cols` values in bytes.
    pub fn row_bytes(self, cols: usize) -> usize {
        cols / self.block() * self.block_bytes()
    }

    /// Splits a row of whole blocks into the elements and the scales of [`BlockFormat::kept_as`]: `data` receives
    /// [`WeightFormat::row_bytes`] bytes, and `scales` [`WeightFormat::scale_bytes`].
    ///
    /// # Errors
    /// A scale that is not finite, or so large that a weight could exceed f16's range.
    ///
    /// # Panics
    /// If the lengths are not those of the same number of whole blocks.
    pub fn split_row(self, blocks: &[u8], data: &mut [u8], scales: &mut [u8]) -> Result<(), BadRow> {
        let (count, format, grouped) = (blocks.len() / self.block_bytes(), self.kept_as(), self.grouped());
        let cols = count * self.block();
        assert_eq!(blocks.len(), self.row_bytes(cols), "bytes of whole blocks");
        assert_eq!([data.len(), scales.len()], [format.row_bytes(cols), format.scale_bytes(cols)], "{cols} values");
        let [first, second, small] = grouped.planes(data, cols);
        // Bytes per block of each plane, of the small scales, and of the scales beside the rows.
        let sizes = [first.len(), second.len(), small.len(), scales.len()].map(|bytes| bytes / count.max(1));
        for (i, block) in blocks.chunks_exact(self.block_bytes()).enumerate() {
            let own = |j: usize| i * sizes[j]..(i + 1) * sizes[j];
            self.split_block(block, &mut first[own(0)], &mut second[own(1)]);
            self.split_scales(block, &mut small[own(2)], &mut scales[own(3)]);
        }
        format.check_row(data, scales)
    }

    /// The elements of the `load`-th 32 values of a block, each in a byte of a word.
    #[inline(always)]
    fn elements(self, block: &[u8], load: usize) -> [u32; LOAD / 4] {
        // Loops over words, since closures over arrays are not always inlined. `bits`: some bits of each of 32 bytes.
        let bits = |at: usize, shift: usize, mask: u32| -> [u32; 8] {
            let mut q = words::<8>(&block[at..]);
            for word in &mut q {
                *word = *word >> shift & (mask * ONES);
            }
            q
        };
        // 16 bytes, with values 0 to 15 in their low halves.
        let halves = |at: usize| -> [u32; 8] {
            let (w, mut q) = (words::<4>(&block[at..]), [0; 8]);
            for i in 0..4 {
                q[i] = w[i] & (15 * ONES);
                q[4 + i] = w[i] >> 4 & (15 * ONES);
            }
            q
        };
        // A word with one bit of each value: four bits become bit 4 of four bytes.
        let with_word = |at: usize, mut q: [u32; 8]| -> [u32; 8] {
            let [word] = words(&block[at..]);
            for (i, q) in q.iter_mut().enumerate() {
                *q |= (((word >> (4 * i) & 15) * 0x0020_4081) & ONES) << 4;
            }
            q
        };
        let with = |mut q: [u32; 8], high: [u32; 8], shift: usize| -> [u32; 8] {
            for i in 0..8 {
                q[i] |= high[i] << shift;
            }
            q
        };
        let (half, part) = (load / 4, load % 4);
        match self {
            BlockFormat::Q4_0 | BlockFormat::Iq4Nl => halves(2),
            BlockFormat::Q4_1 => halves(4),
            BlockFormat::Q5_0 => with_word(2, halves(6)),
            BlockFormat::Q5_1 => with_word(4, halves(8)),
            BlockFormat::Q8_0 => words(&block[2..]),
            BlockFormat::Q2K => bits(16 + LOAD * half, 2 * part, 3),
            BlockFormat::Q3K => with(bits(32 + LOAD * half, 2 * part, 3), bits(0, load, 1), 2),
            BlockFormat::Q4K => bits(16 + LOAD * (load / 2), 4 * (load % 2), 15),
            BlockFormat::Q5K => with(bits(48 + LOAD * (load / 2), 4 * (load % 2), 15), bits(16, load, 1), 4),
            BlockFormat::Q6K => {
                let low = bits(64 * half + LOAD * (part % 2), 4 * (part / 2), 15);
                with(low, bits(128 + LOAD * half, 2 * part, 3), 4)
            }
            BlockFormat::Iq4Xs => halves(8 + 16 * load),
        }
    }

    /// Puts the scales of a block after its row, and beside the rows.
    fn split_scales(self, block: &[u8], small: &mut [u8], beside: &mut [u8]) {
        let at = self.scales_at();
        match self {
            BlockFormat::Q4K | BlockFormat::Q5K => {
                beside[..4].copy_from_slice(&block[..4]);
                let mut words = [0u32; 3];
                for i in 0..8 {
                    let (s, n) = q4_k_scale(&block[4..16], i);
                    let parts = [s & 15, n & 15, s >> 4 | n >> 4 << 2];
                    words.iter_mut().zip(parts).for_each(|(word, part)| *word |= u32::from(part) << (4 * i));
                }
                beside[4..].chunks_exact_mut(4).zip(words).for_each(|(o, word)| o.copy_from_slice(&word.to_le_bytes()));
            }
            BlockFormat::Q3K => {
                beside.copy_from_slice(&block[at..at + 2]);
                let mut words = [0u32; 3];
                for i in 0..16 {
                    let s = u32::from(q3_k_scale(&block[96..108], i));
                    words[i / 8] |= (s & 15) << (i % 8 * 4);
                    words[2] |= (s >> 4) << (2 * i);
                }
                small.chunks_exact_mut(4).zip(words).for_each(|(o, word)| o.copy_from_slice(&word.to_le_bytes()));
            }
            // The scales are copied unchanged.
            _ => {
                beside.copy_from_slice(&block[at..at + beside.len()]);
                let from = if self == BlockFormat::Q6K { 192 } else { 0 };
                small.copy_from_slice(&block[from..from + small.len()]);
            }
        }
    }
}

/// A word of four bytes, each of them 1.
const ONES: u32 = 0x0101_0101;

/// The first `N` words of a byte string, little-endian.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (bytes, mut words) = (&bytes[..4 * N], [0; N]);
    for i in 0..N {
        words[i] = u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
    }
    words
}

/// The scale and the minimum of the 32 values with index `i` in a file, 6 bits each. The first four are the low 6
/// bits of a byte each; of the others, the low 4 bits are in the last four bytes, and the high 2 in the spare bits of
/// the first eight.
fn q4_k_scale(packed: &[u8], i: usize) -> (u8, u8) {
    match i {
        0..4 => (packed[i] & 63, packed[i + 4] & 63),
        _ => {
            let (scale, minimum) = (packed[i - 4] >> 6, packed[i] >> 6);
            (packed[i + 4] & 15 | scale << 4, packed[i + 4] >> 4 | minimum << 4)
        }
    }
}

/// The scale of the 16 values with index `i`, 6 bits: the low 4 in the halves of the first eight bytes, the high 2 in
/// the last four.
fn q3_k_scale(packed: &[u8], i: usize) -> u8 {
    let (quarter, j) = (i / 4, i % 4);
    packed[i % 8] >> (i / 8 * 4) & 15 | (packed[8 + j] >> (2 * quarter) & 3) << 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::gguf::GgmlType;
    use half::f16;

    /// A row's values, decoded from the planes.
    fn decode(format: BlockFormat, blocks: &[u8]) -> Vec<f32> {
        let cols = blocks.len() / format.block_bytes() * format.block();
        let kept = format.kept_as();
        let (mut data, mut scales) = (vec![0xAA; kept.row_bytes(cols)], vec![0xAA; kept.scale_bytes(cols)]);
        format.split_row(blocks, &mut data, &mut scales).unwrap();
        let mut out = vec![0.0; cols];
        kept.decode_row(&data, &scales, &mut out);
        out
    }

    /// A block in which each value identifies its place.
    #[test]
    fn each_value_is_found_in_its_place() {
        let one = f16::from_f32(1.0).to_le_bytes();
        let mut block = [&one[..], &[0x88; 16]].concat();
        block[2 + 5] = 0x1F;
        let values = decode(BlockFormat::Q4_0, &block);
        assert_eq!((values[5], values[16 + 5], values[0]), (7.0, -7.0, 0.0));

        // Only value 21 has its high bit set.
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

    /// A row of several blocks equals the blocks one by one.
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
                let at = format.scales_at();
                block[at..at + 2].copy_from_slice(&d);
                if format.has_offset() {
                    block[at + 2..at + 4].copy_from_slice(&d);
                }
            }
            let alone = |block: &[u8]| decode(format, &block.repeat(4))[..format.block()].to_vec();
            let apart: Vec<f32> = blocks.chunks_exact(format.block_bytes()).flat_map(alone).collect();
            // Only with an added offset can every weight be nonnegative.
            let is_added = format.grouped().scales == Scales::HalfOffset;
            assert!(apart.iter().any(|w| *w > 1.0) && (is_added || apart.iter().any(|w| *w < -1.0)), "{format:?}");
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
            // On a device it takes the bytes of the file, with rows padded to 16.
            for cols in [1024, 5376] {
                let (device, file) = (format.kept_as().matrix_bytes(3, cols), 3 * format.row_bytes(cols) as u64);
                assert!((file..file + 3 * 16).contains(&device), "{name}: {device} bytes of {file}");
                assert!(cols != 1024 || device == file, "{name}");
            }
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
            (BlockFormat::Q4_1, 0, 4366.0),
            (BlockFormat::Q4_1, 2, 65504.0),
            (BlockFormat::Q5_1, 0, 2113.0),
            (BlockFormat::Q2K, 80, 1455.0),
            (BlockFormat::Q2K, 82, 4366.0),
            (BlockFormat::Q3K, 108, 511.5),
            (BlockFormat::Q5K, 0, 33.53),
            (BlockFormat::Q5K, 2, 1039.0),
            (BlockFormat::Iq4Nl, 0, 515.5),
            (BlockFormat::Iq4Xs, 0, 16.11),
        ] {
            for scale in [0.999 * most, -0.999 * most, 0.0] {
                assert_eq!(check(format, at, scale), Ok(()), "{format:?}: {scale}");
            }
            for scale in [1.01 * most, -1.01 * most, f32::INFINITY, f32::NAN] {
                let line = check(format, at, scale).unwrap_err();
                assert!(line.starts_with("the scale"), "{format:?}: {line}");
            }
        }
    }
}
