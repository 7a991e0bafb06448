//! Weight formats. Besides the kernels, only this file knows a format: the bytes of a row on a device and in a file,
//! how a row of f32 is encoded and decoded, and the format's word on the command line.
//!
//! A new format needs a variant here, and kernels: how shaders widen it (`widen` in shaders/common.glsl), modules in
//! src/gpu/kernels/table.rs, and which of them read it (src/gpu/lower/arithmetic.rs).

use half::bf16;
use safetensors::Dtype;

use crate::error::{Setting, text};
use crate::{Error, Result};

/// How the rows of a matrix are stored: elements, and scales if the format has them.
///
/// On a device each row is padded with zeros to a multiple of [`WeightFormat::ALIGN`] elements, so that a kernel can
/// read 16 bytes at a time. In a file rows have no padding. Scales are stored apart from the elements, in the order of
/// the rows and without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// i8 per element, one f32 scale per row: `w = q * scale`, q in -127..=127.
    Int8,
    /// bfloat16 per element, no scale.
    Bf16,
}

/// The format of a tensor in a checkpoint's files, or of most of its matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceFormat {
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// One of Kiln's own formats. The quantisation schemes of the earlier engine count as INT8 and are converted to it.
    Native(WeightFormat),
}

impl SourceFormat {
    /// `bf16`, `f16`, `f32`, `int8`.
    pub fn name(self) -> &'static str {
        match self {
            SourceFormat::F16 => "f16",
            SourceFormat::F32 => "f32",
            SourceFormat::Native(format) => format.name(),
        }
    }

    /// Whether making it lost precision.
    pub fn is_quantized(self) -> bool {
        matches!(self, SourceFormat::Native(format) if format.is_quantized())
    }
}

/// What is wrong with a row. Completes the sentence "the tensor holds …": `the value NaN`.
pub type BadRow = String;

/// Names, sizes and what can be made from what.
impl WeightFormat {
    /// Every format.
    pub const ALL: [WeightFormat; 2] = [WeightFormat::Int8, WeightFormat::Bf16];

    /// In every format, a row's padded length is a multiple of this many elements.
    pub const ALIGN: usize = 16;

    /// Its word on the command line: `int8`, `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            WeightFormat::Int8 => "int8",
            WeightFormat::Bf16 => "bf16",
        }
    }

    /// The format with this word on the command line.
    pub fn parse(word: &str) -> Option<WeightFormat> {
        Self::ALL.into_iter().find(|format| format.name() == word)
    }

    /// Its description in the command line's help.
    pub fn description(self) -> &'static str {
        match self {
            WeightFormat::Int8 => "One byte an element, quantised while loading if need be",
            WeightFormat::Bf16 => "As the BF16 checkpoint has them",
        }
    }

    /// Elements of a row of `cols`, padding included.
    pub fn padded(cols: usize) -> usize {
        cols.next_multiple_of(Self::ALIGN)
    }

    /// Bytes of the elements of a padded row, as on devices.
    pub fn row_bytes(self, cols: usize) -> usize {
        self.file_row_bytes(Self::padded(cols))
    }

    /// Bytes of the elements of a row without padding, as in files: the first bytes of the padded row.
    pub fn file_row_bytes(self, cols: usize) -> usize {
        match self {
            WeightFormat::Int8 => cols,
            WeightFormat::Bf16 => 2 * cols,
        }
    }

    /// Bytes of a row's scales, on devices and in files; 0 without scales.
    pub fn scale_bytes(self, _cols: usize) -> usize {
        match self {
            WeightFormat::Int8 => 4,
            WeightFormat::Bf16 => 0,
        }
    }

    /// Bytes of a matrix on a device: its padded rows and their scales.
    pub fn matrix_bytes(self, rows: usize, cols: usize) -> u64 {
        rows as u64 * (self.row_bytes(cols) + self.scale_bytes(cols)) as u64
    }

    /// Whether making it from floating-point weights loses more precision than a float's rounding.
    pub fn is_quantized(self) -> bool {
        match self {
            WeightFormat::Int8 => true,
            WeightFormat::Bf16 => false,
        }
    }

    /// The next smaller format, to save memory.
    pub fn smaller(self) -> Option<WeightFormat> {
        let bytes = |format: WeightFormat| format.matrix_bytes(1, 1 << 16);
        Self::ALL.into_iter().filter(|format| bytes(*format) < bytes(self)).max_by_key(|format| bytes(*format))
    }

    /// Refuses to make this format from `source`. `what` is the subject of the message.
    ///
    /// # Errors
    /// [`Error::Input`]: the source is quantised and this format is not, so it would take more memory for the same
    /// weights.
    pub fn check_source(self, source: SourceFormat, what: impl FnOnce() -> String) -> Result<()> {
        if self.is_quantized() || !source.is_quantized() {
            return Ok(());
        }
        let (from, to) = (source.name(), self.name());
        let cause = format!("{} is {} already and cannot be kept as {to}", what(), from.to_uppercase());
        let checkpoint = format!(", or the {} checkpoint", to.to_uppercase());
        Err(Error::input(cause, text!("use ", Setting::Weights(from), checkpoint)))
    }
}

/// A matrix of this format in a safetensors file.
impl WeightFormat {
    /// Element type.
    pub fn file_dtype(self) -> Dtype {
        match self {
            WeightFormat::Int8 => Dtype::I8,
            WeightFormat::Bf16 => Dtype::BF16,
        }
    }

    /// The format whose elements have the type `dtype`.
    pub fn from_file_dtype(dtype: Dtype) -> Option<WeightFormat> {
        Self::ALL.into_iter().find(|format| format.file_dtype() == dtype)
    }

    /// Dimensions of the tensor that holds the elements of a `[rows, cols]` matrix.
    pub fn file_shape(self, rows: usize, cols: usize) -> Vec<usize> {
        vec![rows, cols]
    }

    /// Element type and dimensions of the tensor that holds the scales; `None` without scales.
    pub fn file_scales(self, rows: usize, _cols: usize) -> Option<(Dtype, Vec<usize>)> {
        match self {
            WeightFormat::Int8 => Some((Dtype::F32, vec![rows])),
            WeightFormat::Bf16 => None,
        }
    }
}

/// One row of `cols` elements: `data` has its elements, and `scales` the [`WeightFormat::scale_bytes`] of its scales.
impl WeightFormat {
    /// Encodes a row of finite values. `data` is [`WeightFormat::row_bytes`] long; padding becomes zero.
    ///
    /// # Errors
    /// A value that the format cannot hold.
    pub fn encode_row(self, row: &[f32], data: &mut [u8], scales: &mut [u8]) -> std::result::Result<(), BadRow> {
        match self {
            WeightFormat::Int8 => {
                let scale = quantize_row(row, bytemuck::cast_slice_mut(data));
                scales.copy_from_slice(&scale.to_le_bytes());
                Ok(())
            }
            WeightFormat::Bf16 => {
                let (elements, padding) = data.split_at_mut(2 * row.len());
                padding.fill(0);
                for (out, w) in elements.chunks_exact_mut(2).zip(row) {
                    let rounded = bf16::from_f32(*w);
                    if !rounded.is_finite() {
                        return Err(format!("the value {w}, too large for BF16"));
                    }
                    out.copy_from_slice(&rounded.to_le_bytes());
                }
                Ok(())
            }
        }
    }

    /// Decodes the first `out.len()` elements of a row, with padding or without.
    pub fn decode_row(self, data: &[u8], scales: &[u8], out: &mut [f32]) {
        match self {
            WeightFormat::Int8 => {
                let scale = int8_scale(scales);
                out.iter_mut().zip(data).for_each(|(o, &q)| *o = f32::from(q as i8) * scale);
            }
            WeightFormat::Bf16 => {
                let pairs = out.iter_mut().zip(data.chunks_exact(2));
                pairs.for_each(|(o, b)| *o = bf16::from_le_bytes([b[0], b[1]]).to_f32());
            }
        }
    }

    /// Copies a row and its scales from a file. `data` gets the elements and zeros as padding.
    ///
    /// # Errors
    /// A value or scale that the format does not allow.
    pub fn copy_row(
        self,
        file_data: &[u8],
        file_scales: &[u8],
        data: &mut [u8],
        scales: &mut [u8],
    ) -> std::result::Result<(), BadRow> {
        self.check_row(file_data, file_scales)?;
        let (elements, padding) = data.split_at_mut(file_data.len());
        elements.copy_from_slice(file_data);
        padding.fill(0);
        scales.copy_from_slice(file_scales);
        Ok(())
    }

    /// Loops look at every value before they decide: a loop that may stop early is not vectorised.
    fn check_row(self, data: &[u8], scales: &[u8]) -> std::result::Result<(), BadRow> {
        match self {
            WeightFormat::Int8 => {
                let scale = int8_scale(scales);
                if !(scale.is_finite() && scale >= 0.0) {
                    return Err(format!("the scale {scale}"));
                }
                if data.contains(&(i8::MIN as u8)) {
                    return Err("the value -128, where INT8 weights have -127 to 127".into());
                }
            }
            WeightFormat::Bf16 => {
                // All exponent bits set: an infinity or NaN.
                let special = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]) & 0x7F80 == 0x7F80;
                if data.chunks_exact(2).fold(false, |any, b| any | special(b)) {
                    return Err("a value that is not finite".into());
                }
            }
        }
        Ok(())
    }
}

fn int8_scale(scales: &[u8]) -> f32 {
    f32::from_le_bytes([scales[0], scales[1], scales[2], scales[3]])
}

/// Quantises one row of finite values to INT8: `scale = max|w| / 127`, `q = round_half_even(w / scale)` clamped to
/// ±127. A row of zeros has scale 1. Returns the scale. `out` is at least as long as `row`; the rest of it is set to
/// zero.
///
/// A model has tens of billions of weights, so both loops are written for vector units. The bits of non-negative floats
/// order as integers do. Adding 1.5 * 2^23 leaves no bits for a fraction, so that the addition rounds to nearest even;
/// this avoids a call per weight on x86-64 before SSE 4.1.
fn quantize_row(row: &[f32], out: &mut [i8]) -> f32 {
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
        // A row whose scale is 1, so that its values are the quotients.
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

    /// Checks each description's promise, so that it holds for a new format too.
    #[test]
    fn every_format_keeps_its_promises() {
        let cols = 72;
        let row: Vec<f32> = (0..cols).map(|i| (i as f32 - 30.0) / 64.0).collect();
        for format in WeightFormat::ALL {
            assert_eq!(WeightFormat::parse(format.name()), Some(format));
            assert_eq!(WeightFormat::from_file_dtype(format.file_dtype()), Some(format));
            let bits = |(dtype, shape): (Dtype, Vec<usize>)| shape.iter().product::<usize>() * dtype.bitsize();
            let elements = bits((format.file_dtype(), format.file_shape(3, cols)));
            assert_eq!(elements, 3 * 8 * format.file_row_bytes(cols), "{format:?}");
            assert_eq!(format.file_scales(3, cols).map_or(0, bits), 3 * 8 * format.scale_bytes(cols), "{format:?}");

            let (bytes, scale_bytes) = (format.row_bytes(cols), format.scale_bytes(cols));
            let (mut data, mut scales) = (vec![0xAA; bytes], vec![0xAA; scale_bytes]);
            format.encode_row(&row, &mut data, &mut scales).unwrap();
            let (elements, padding) = data.split_at(format.file_row_bytes(cols));
            assert!(padding.iter().all(|b| *b == 0), "{format:?}");
            let (mut copied, mut copied_scales) = (vec![0xAA; bytes], vec![0xAA; scale_bytes]);
            format.copy_row(elements, &scales, &mut copied, &mut copied_scales).unwrap();
            assert_eq!((&copied, &copied_scales), (&data, &scales), "{format:?}");
            let mut decoded = vec![0.0; cols];
            format.decode_row(&data, &scales, &mut decoded);
            let error = row.iter().zip(&decoded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error < 0.01, "{format:?}: {error}");
        }
    }

    #[test]
    fn only_a_quantised_format_is_made_from_a_quantised_source() {
        let int8 = SourceFormat::Native(WeightFormat::Int8);
        for source in [SourceFormat::F16, SourceFormat::F32, SourceFormat::Native(WeightFormat::Bf16), int8] {
            assert!(WeightFormat::Int8.check_source(source, String::new).is_ok());
            assert_eq!(WeightFormat::Bf16.check_source(source, String::new).is_ok(), source != int8);
        }
        let line = WeightFormat::Bf16.check_source(int8, || "x".into()).unwrap_err().to_string();
        let wanted = "x is INT8 already and cannot be kept as bf16; use the weight format int8, or the BF16 checkpoint";
        assert_eq!(line, wanted);
        assert_eq!(WeightFormat::Bf16.smaller(), Some(WeightFormat::Int8));
        assert_eq!(WeightFormat::Int8.smaller(), None);
    }
}
