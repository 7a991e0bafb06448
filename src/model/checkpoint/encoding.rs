//! The encodings of tensors in files, and decoding their rows to f32.
//!
//! The encodings are Kiln's own weight formats ([`crate::model::format`]), plain floats, the quantised formats of GGUF
//! files ([`crate::model::blocks`]), and the three schemes of the earlier engine's layer-by-layer files; INT8 of
//! llm-compressor may have BF16 scales. In the earlier engine's files `<tensor>_scale` is stored beside the tensor, and
//! the file's `__metadata__` gives the scheme under the tensor's name:
//!
//! ```text
//! int8_symmetric   I8               one scale                     w = q * scale
//! int4_grouped     I8, -7..=7       one scale per 128 elements    w = q * scale[i / 128]   (i: row-major index)
//! int8_asymmetric  U8               [scale, zero point]           w = (q - zero) * scale
//! ```

use std::ops::Range;

use half::{bf16, f16};

use crate::model::blocks::BlockFormat;
use crate::model::format::{BadRow, SourceFormat, WeightFormat};

/// The number of elements that share a scale in `int4_grouped`.
pub(crate) const GROUP: usize = 128;

/// The format that the earlier engine's schemes count as, and that their matrices get unless another is requested.
const SCHEMES_COUNT_AS: SourceFormat = SourceFormat::Native(WeightFormat::Int8);

/// A scheme of the earlier engine, as its metadata spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Int8Symmetric,
    Int4Grouped,
    Int8Asymmetric,
}

impl Scheme {
    pub(crate) fn parse(word: &str) -> Option<Scheme> {
        match word.trim() {
            "int8_symmetric" => Some(Scheme::Int8Symmetric),
            "int4_grouped" => Some(Scheme::Int4Grouped),
            "int8_asymmetric" => Some(Scheme::Int8Asymmetric),
            _ => None,
        }
    }
}

/// A range of bytes in one of the checkpoint's files.
#[derive(Debug, Clone)]
pub(crate) struct ByteRange {
    /// The index of the file among the checkpoint's.
    pub(crate) file: usize,
    /// The range of bytes, from the start of the file.
    pub(crate) range: Range<usize>,
}

/// A tensor's encoding, with the scales that decoding needs.
#[derive(Debug, Clone)]
pub(crate) enum Encoding {
    /// A weight format of Kiln's, with the bytes of its scales if it has scales. A norm's vector has a format without
    /// scales.
    Native(WeightFormat, Option<ByteRange>),
    /// INT8 with a BF16 scale for each row, at these bytes: llm-compressor's.
    Int8Bf16(ByteRange),
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// A quantised format of GGUF files, with its scales among its values.
    Blocks(BlockFormat),
    /// Bytes in `int8_symmetric`, with the tensor's scale.
    Symmetric(f32),
    /// `int4_grouped`: one F32 scale per [`GROUP`] elements in these bytes.
    Grouped(ByteRange),
    /// Bytes in `int8_asymmetric`, with the tensor's scale and zero.
    Asymmetric {
        /// The difference between two neighbouring values.
        scale: f32,
        /// The value of a byte, possibly with a fraction, that means zero.
        zero: f32,
    },
}

impl Encoding {
    /// The format that a checkpoint of this encoding counts as.
    pub(crate) fn source(&self) -> SourceFormat {
        match self {
            Encoding::Native(format, _) => SourceFormat::Native(*format),
            Encoding::Int8Bf16(_) => SourceFormat::Native(WeightFormat::Int8),
            Encoding::F16 => SourceFormat::F16,
            Encoding::F32 => SourceFormat::F32,
            Encoding::Blocks(format) => SourceFormat::Blocks(*format),
            Encoding::Symmetric(_) | Encoding::Grouped(_) | Encoding::Asymmetric { .. } => SCHEMES_COUNT_AS,
        }
    }

    /// Bytes of the elements of a row of `cols`, without scales.
    pub(crate) fn row_bytes(&self, cols: usize) -> usize {
        match self {
            Encoding::Native(format, _) => format.file_row_bytes(cols),
            Encoding::F16 => 2 * cols,
            Encoding::F32 => 4 * cols,
            Encoding::Blocks(format) => format.row_bytes(cols),
            Encoding::Int8Bf16(_) | Encoding::Symmetric(_) | Encoding::Grouped(_) | Encoding::Asymmetric { .. } => cols,
        }
    }

    /// The bytes of the scales, if they are a separate tensor that has to be read.
    pub(crate) fn scales(&self) -> Option<&ByteRange> {
        match self {
            Encoding::Native(_, scales) => scales.as_ref(),
            Encoding::Int8Bf16(scales) | Encoding::Grouped(scales) => Some(scales),
            _ => None,
        }
    }

    /// Bytes of the scales of a row of `cols`; `None` if rows share scales, or have none.
    pub(crate) fn row_scale_bytes(&self, cols: usize) -> Option<usize> {
        match self {
            Encoding::Native(format, _) => Some(format.scale_bytes(cols)),
            Encoding::Int8Bf16(_) => Some(2),
            _ => None,
        }
    }

    /// Scales that the given rows of `cols` need, as a byte range in the tensor of scales: the rows' own, or those of
    /// every group that the rows touch.
    pub(crate) fn scales_of(&self, rows: &Range<usize>, cols: usize) -> Range<usize> {
        match (self, self.row_scale_bytes(cols)) {
            (_, Some(bytes)) => rows.start * bytes..rows.end * bytes,
            (Encoding::Grouped(_), _) => 4 * (rows.start * cols / GROUP)..4 * (rows.end * cols).div_ceil(GROUP),
            _ => 0..0,
        }
    }

    /// Decodes a row. For [`Encoding::Native`] and [`Encoding::Int8Bf16`], `scales` are the row's own. For
    /// [`Encoding::Grouped`], `scales` begin with any group, and `first` is the index of the row's first element from
    /// the start of that group.
    ///
    /// # Errors
    /// The fault of the stored values.
    pub(crate) fn decode_row(
        &self,
        bytes: &[u8],
        scales: &[u8],
        first: usize,
        out: &mut [f32],
    ) -> std::result::Result<(), BadRow> {
        match self {
            Encoding::Native(format, _) => format.decode_row(bytes, scales, out),
            Encoding::Int8Bf16(_) => WeightFormat::Int8.decode_row(bytes, &widen_scale(scales), out),
            Encoding::F16 => {
                let pairs = out.iter_mut().zip(bytes.chunks_exact(2));
                pairs.for_each(|(o, b)| *o = f16::from_le_bytes([b[0], b[1]]).to_f32());
            }
            Encoding::F32 => {
                let quads = out.iter_mut().zip(bytes.chunks_exact(4));
                quads.for_each(|(o, b)| *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            }
            Encoding::Blocks(blocks) => {
                let format = blocks.kept_as();
                let (mut data, mut scales) =
                    (vec![0; format.row_bytes(out.len())], vec![0; format.scale_bytes(out.len())]);
                blocks.split_row(bytes, &mut data, &mut scales)?;
                format.decode_row(&data, &scales, out);
            }
            Encoding::Symmetric(scale) => {
                out.iter_mut().zip(bytes).for_each(|(o, &q)| *o = f32::from(q as i8) * scale);
            }
            Encoding::Grouped(_) => decode_grouped(bytes, scales, first, out)?,
            Encoding::Asymmetric { scale, zero } => {
                out.iter_mut().zip(bytes).for_each(|(o, &q)| *o = (f32::from(q) - zero) * scale);
            }
        }
        check_finite(out)
    }
}

/// Checks every value before it decides: a loop that may stop early is not vectorised.
fn check_finite(values: &[f32]) -> std::result::Result<(), BadRow> {
    if values.iter().fold(true, |all, w| all & w.is_finite()) {
        return Ok(());
    }
    let value = values.iter().find(|w| !w.is_finite()).copied().unwrap_or(f32::NAN);
    Err(format!("the value {value}"))
}

/// Groups count the flattened tensor's elements, so a group may end anywhere in a row.
fn decode_grouped(bytes: &[u8], scales: &[u8], first: usize, out: &mut [f32]) -> std::result::Result<(), BadRow> {
    if let Some(&q) = bytes.iter().find(|&&q| !(-7..=7).contains(&(q as i8))) {
        return Err(format!("the value {}, where int4_grouped has -7 to 7", q as i8));
    }
    let mut at = 0;
    while at < out.len() {
        let index = first + at;
        let len = (GROUP - index % GROUP).min(out.len() - at);
        let scale = f32_at(scales, index / GROUP);
        let run = out[at..at + len].iter_mut().zip(&bytes[at..at + len]);
        run.for_each(|(o, &q)| *o = f32::from(q as i8) * scale);
        at += len;
    }
    Ok(())
}

/// A row's BF16 scale as the F32 scale of [`WeightFormat::Int8`], which holds it exactly.
pub(crate) fn widen_scale(scale: &[u8]) -> [u8; 4] {
    bf16::from_le_bytes([scale[0], scale[1]]).to_f32().to_le_bytes()
}

/// The f32 at `index` of little-endian bytes, at any alignment.
pub(crate) fn f32_at(bytes: &[u8], index: usize) -> f32 {
    let b = &bytes[index * 4..index * 4 + 4];
    f32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_count_the_flattened_tensor() {
        let none = ByteRange { file: 0, range: 0..0 };
        let scales: Vec<u8> = [1f32, 10.0, 100.0].iter().flat_map(|s| s.to_le_bytes()).collect();
        let mut out = [0f32; 200];
        Encoding::Grouped(none).decode_row(&[2; 200], &scales, 120, &mut out).unwrap();
        assert_eq!((out[7], out[8], out[135], out[136]), (2.0, 20.0, 20.0, 200.0));
    }
}
