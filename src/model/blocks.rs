//! The quantised formats of GGUF files: rows of blocks, each with its values and what they are scaled by.
//!
//! ```text
//! Q4_0   32 values   d f16, 16 bytes of values                       w = d (q - 8)
//! Q8_0   32 values   d f16, 32 × i8                                  w = q d
//! Q4_K  256 values   d f16, m f16, 12 bytes of scales, 128 of values w = d s q - m n
//! Q6_K  256 values   128 bytes of low bits, 64 of high, 16 × i8, d   w = d s (q - 32)
//! ```
//!
//! Decoding computes in f32, in the order of the formulas, as ggml's own Python package does.

use half::f16;

/// A quantised format that only GGUF files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockFormat {
    /// 4 bits a value, one scale for 32.
    Q4_0,
    /// 8 bits a value, one scale for 32.
    Q8_0,
    /// 4 bits a value, a scale and a minimum for 32.
    Q4K,
    /// 6 bits a value, a scale for 16.
    Q6K,
}

impl BlockFormat {
    /// Every format.
    pub const ALL: [BlockFormat; 4] = [BlockFormat::Q4_0, BlockFormat::Q8_0, BlockFormat::Q4K, BlockFormat::Q6K];

    /// Its name: `q4_k`.
    pub fn name(self) -> &'static str {
        match self {
            BlockFormat::Q4_0 => "q4_0",
            BlockFormat::Q8_0 => "q8_0",
            BlockFormat::Q4K => "q4_k",
            BlockFormat::Q6K => "q6_k",
        }
    }

    /// Values of a block. A row is whole blocks.
    pub fn block(self) -> usize {
        match self {
            BlockFormat::Q4_0 | BlockFormat::Q8_0 => 32,
            BlockFormat::Q4K | BlockFormat::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            BlockFormat::Q4_0 => 18,
            BlockFormat::Q8_0 => 34,
            BlockFormat::Q4K => 144,
            BlockFormat::Q6K => 210,
        }
    }

    /// Bytes of a row of `cols` values.
    pub fn row_bytes(self, cols: usize) -> usize {
        cols / self.block() * self.block_bytes()
    }

    /// Decodes a row of whole blocks. Values are not finite where a scale is not.
    ///
    /// # Panics
    /// If `blocks` does not have the bytes of `out`'s values.
    pub fn decode_row(self, blocks: &[u8], out: &mut [f32]) {
        assert_eq!(blocks.len(), self.row_bytes(out.len()), "bytes of {} values", out.len());
        let decode = match self {
            BlockFormat::Q4_0 => decode_q4_0,
            BlockFormat::Q8_0 => decode_q8_0,
            BlockFormat::Q4K => decode_q4_k,
            BlockFormat::Q6K => decode_q6_k,
        };
        let blocks = blocks.chunks_exact(self.block_bytes());
        blocks.zip(out.chunks_exact_mut(self.block())).for_each(|(block, out)| decode(block, out));
    }
}

fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Value j is in the low half of byte j, value 16 + j in its high half.
fn decode_q4_0(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    let (low, high) = out.split_at_mut(16);
    for ((byte, low), high) in block[2..].iter().zip(low).zip(high) {
        *low = d * (f32::from(byte & 15) - 8.0);
        *high = d * (f32::from(byte >> 4) - 8.0);
    }
}

fn decode_q8_0(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    out.iter_mut().zip(&block[2..]).for_each(|(o, q)| *o = f32::from(*q as i8) * d);
}

/// Of each 64 values the first 32 are in the low halves of 32 bytes, the others in their high halves.
fn decode_q4_k(block: &[u8], out: &mut [f32]) {
    let (d, m, packed) = (f16_at(block, 0), f16_at(block, 2), &block[4..16]);
    for (i, (group, bytes)) in out.chunks_exact_mut(64).zip(block[16..].chunks_exact(32)).enumerate() {
        let (low, high) = group.split_at_mut(32);
        for (half, out, shift) in [(2 * i, low, 0), (2 * i + 1, high, 4)] {
            let (s, n) = q4_k_scale(packed, half);
            let (d, m) = (d * f32::from(s), m * f32::from(n));
            out.iter_mut().zip(bytes).for_each(|(o, byte)| *o = d * f32::from(byte >> shift & 15) - m);
        }
    }
}

/// The scale and the minimum of the 32 values with index `i`, 6 bits each. The first four have the low 6 bits of a byte
/// each; of the others the low 4 bits are in the last four bytes, and the high 2 in what is left of the first eight.
fn q4_k_scale(packed: &[u8], i: usize) -> (u8, u8) {
    match i {
        0..4 => (packed[i] & 63, packed[i + 4] & 63),
        _ => {
            let (scale, minimum) = (packed[i - 4] >> 6, packed[i] >> 6);
            (packed[i + 4] & 15 | scale << 4, packed[i + 4] >> 4 | minimum << 4)
        }
    }
}

/// Of each 128 values: 64 bytes have the low 4 bits of value l and of value 64 + l, and 32 bytes the high 2 bits of the
/// values l, 32 + l, 64 + l and 96 + l.
fn decode_q6_k(block: &[u8], out: &mut [f32]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, d) = (&rest[..16], f16_at(rest, 16));
    for (i, o) in out.iter_mut().enumerate() {
        let (half, at) = (i / 128, i % 128);
        let low = low[64 * half + at % 64] >> (4 * (at / 64)) & 15;
        let high = high[32 * half + at % 32] >> (2 * (at / 32)) & 3;
        let scale = d * f32::from(scales[i / 16] as i8);
        *o = scale * (f32::from(low | high << 4) - 32.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::gguf::GgmlType;

    /// A block in which each value is told apart by its place.
    #[test]
    fn each_value_is_found_in_its_place() {
        let one = f16::from_f32(1.0).to_le_bytes();
        let decode = |format: BlockFormat, block: &[u8]| {
            let mut out = vec![0.0; format.block()];
            format.decode_row(block, &mut out);
            out
        };
        let mut block = [&one[..], &[0x88; 16]].concat();
        block[2 + 5] = 0x1F;
        let values = decode(BlockFormat::Q4_0, &block);
        assert_eq!((values[5], values[16 + 5], values[0]), (7.0, -7.0, 0.0));

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

    #[test]
    fn sizes_are_those_of_the_file_format() {
        for format in BlockFormat::ALL {
            let name = format.name().to_uppercase();
            let of_name = (0..64).filter_map(GgmlType::of).find(|t| t.name == name).unwrap();
            assert_eq!((format.block(), format.block_bytes()), (of_name.block, of_name.block_bytes), "{name}");
            assert_eq!(format.row_bytes(1024), 1024 / format.block() * format.block_bytes());
        }
    }
}
