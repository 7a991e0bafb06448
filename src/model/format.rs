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

/// Quantises one row to INT8: `scale = max|w| / 127`, `q = round_half_even(w / scale)` clamped to ±127; a row of
/// zeros has scale 1. Returns the scale. `out` is as long as `row` or longer; what is beyond is set to zero.
pub fn quantize_row(row: &[f32], out: &mut [i8]) -> f32 {
    let max = row.iter().fold(0f32, |m, w| m.max(w.abs()));
    let scale = if max > 0.0 { max / 127.0 } else { 1.0 };
    for (o, &w) in out.iter_mut().zip(row) {
        *o = (w / scale).round_ties_even().clamp(-127.0, 127.0) as i8;
    }
    out[row.len()..].fill(0);
    scale
}
