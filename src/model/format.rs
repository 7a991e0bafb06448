//! A weight format is one description: bytes, layout, decode rule, shader variant. Nothing else knows it.

/// How a matrix's elements are kept on a device.
///
/// Rows are padded with zeros to a multiple of [`WeightFormat::ALIGN`] elements, so that a kernel reads 16 bytes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// i8 per element, one f32 scale per row: `w = q * scale`, q in -127..=127.
    Int8,
    /// bfloat16 per element, no scale.
    Bf16,
}

impl WeightFormat {
    /// Elements that a row's padded length is a multiple of, in every format.
    pub const ALIGN: usize = 16;

    /// The word of the command line: `int8`, `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            WeightFormat::Int8 => "int8",
            WeightFormat::Bf16 => "bf16",
        }
    }

    /// Bytes of one element.
    pub fn element_bytes(self) -> usize {
        match self {
            WeightFormat::Int8 => 1,
            WeightFormat::Bf16 => 2,
        }
    }

    /// Elements of a row of `cols` with its padding.
    pub fn padded(cols: usize) -> usize {
        cols.next_multiple_of(Self::ALIGN)
    }

    /// Bytes of a padded row of `cols` elements, without its scale.
    pub fn row_bytes(self, cols: usize) -> usize {
        Self::padded(cols) * self.element_bytes()
    }

    /// Bytes of a row's scale.
    pub fn scale_bytes(self) -> usize {
        match self {
            WeightFormat::Int8 => 4,
            WeightFormat::Bf16 => 0,
        }
    }

    /// Bytes of a matrix: its padded rows and their scales.
    pub fn matrix_bytes(self, rows: usize, cols: usize) -> u64 {
        rows as u64 * (self.row_bytes(cols) + self.scale_bytes()) as u64
    }

    /// Decodes the first `out.len()` elements of a row. `row` holds at least that many elements in this format;
    /// `scale` is the row's, and is ignored by formats without one.
    pub fn decode_row(self, row: &[u8], scale: f32, out: &mut [f32]) {
        match self {
            WeightFormat::Int8 => {
                for (o, &q) in out.iter_mut().zip(row) {
                    *o = f32::from(q as i8) * scale;
                }
            }
            WeightFormat::Bf16 => {
                for (o, b) in out.iter_mut().zip(row.chunks_exact(2)) {
                    *o = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
                }
            }
        }
    }
}

/// Quantises one row of finite values to INT8: `scale = max|w| / 127`, `q = round_half_even(w / scale)` clamped to
/// ±127; a row of zeros has scale 1. Returns the scale. `out` is as long as `row` or longer; what is beyond is set to
/// zero.
///
/// A model has tens of billions of weights, so both loops are written for vector units: the bits of non-negative
/// floats order as integers do, and adding 1.5 * 2^23 leaves no bits for a fraction, so that the addition rounds (to
/// nearest even, as every f32 operation here) and spares a call per weight on x86-64 before SSE 4.1.
pub fn quantize_row(row: &[f32], out: &mut [i8]) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let max = f32::from_bits(row.iter().fold(0, |m: u32, w| m.max(w.to_bits() & 0x7FFF_FFFF)));
    let scale = if max > 0.0 { max / 127.0 } else { 1.0 };
    for (o, &w) in out.iter_mut().zip(row) {
        let q = (w / scale).clamp(-127.0, 127.0);
        *o = ((q + ROUND) - ROUND) as i8;
    }
    out[row.len()..].fill(0);
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even_at_every_half() {
        // A row whose scale is 1: its values are their own quotients.
        let mut row: Vec<f32> = (-254..=254).map(|i| i as f32 / 2.0).collect();
        row.extend((-254..=254).flat_map(|i| [(i as f32 / 2.0).next_up(), (i as f32 / 2.0).next_down()]));
        row.iter_mut().for_each(|w| *w = w.clamp(-127.0, 127.0));
        let mut q = vec![99i8; row.len() + 3];
        assert_eq!(quantize_row(&row, &mut q), 1.0);
        for (w, q) in row.iter().zip(&q) {
            assert_eq!(f32::from(*q), w.round_ties_even(), "{w}");
        }
        assert_eq!(q[row.len()..], [0; 3]);
    }

    #[test]
    fn the_smallest_rows_stay_in_range() {
        for row in [[0.0, -0.0], [1e-45, -1e-45], [3e-43, 1e-44], [f32::MAX, -f32::MAX]] {
            let mut q = [0i8; 2];
            let scale = quantize_row(&row, &mut q);
            assert!(scale.is_finite() && scale >= 0.0);
            assert!(q.iter().all(|q| *q != i8::MIN), "{row:?}: {q:?}");
        }
    }
}
