//! Encodes, decodes and checks a row of a matrix in its format.

use super::quantize::{GROUP_BYTES, INT4_LARGEST, LARGEST, quantize_group, quantize_row};
use super::{BadRow, WeightFormat};
use crate::model::blocks::BlockFormat;
use half::{bf16, f16};

/// One row of `cols` elements: `data` has its elements, and `scales` the [`WeightFormat::scale_bytes`] of its scales.
impl WeightFormat {
    /// Encodes a row of finite values. `data` is [`WeightFormat::row_bytes`] long; padding becomes zero.
    ///
    /// # Errors
    /// A value that the format cannot hold. The format is none of [`WeightFormat::MADE`].
    pub fn encode_row(self, row: &[f32], data: &mut [u8], scales: &mut [u8]) -> std::result::Result<(), BadRow> {
        match self {
            WeightFormat::Int8 => {
                let scale = quantize_row(row, bytemuck::cast_slice_mut(data));
                scales.copy_from_slice(&scale.to_le_bytes());
                Ok(())
            }
            WeightFormat::Int4 => {
                let groups = data.chunks_exact_mut(GROUP_BYTES).zip(scales.chunks_exact_mut(2));
                for ((out, scale), weights) in groups.zip(row.chunks(Self::GROUP)) {
                    // A partial last group ends in zeros.
                    let mut group = [0f32; Self::GROUP];
                    group[..weights.len()].copy_from_slice(weights);
                    scale.copy_from_slice(&quantize_group(&group, out)?.to_le_bytes());
                }
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
            WeightFormat::Blocks(_) => Err(format!("weights of which no {} is made", self.name().to_uppercase())),
        }
    }

    /// Decodes the first `out.len()` elements of a row, with padding or without. For formats of GGUF files, `data` is
    /// the whole row, and whole groups are decoded.
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
            WeightFormat::Int4 => BlockFormat::Q4_0.grouped().decode(data, scales, out),
            WeightFormat::Blocks(blocks) => blocks.grouped().decode(data, scales, out),
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

    /// Loops check every value before they decide: a loop that may stop early is not vectorised.
    pub(in crate::model) fn check_row(self, data: &[u8], scales: &[u8]) -> std::result::Result<(), BadRow> {
        match self {
            WeightFormat::Int8 => {
                let scale = int8_scale(scales);
                if !(scale.is_finite() && scale >= 0.0) {
                    return Err(format!("the scale {scale}"));
                }
            }
            WeightFormat::Int4 => {
                let scales = || scales.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32());
                let is_wrong = |scale: &f32| scale.is_nan() || scale.abs() > INT4_LARGEST;
                if scales().fold(false, |any, scale| any | is_wrong(&scale)) {
                    let scale = scales().find(is_wrong).unwrap_or(f32::NAN);
                    return Err(format!("the scale {scale}, where INT4 weights have at most {INT4_LARGEST}"));
                }
            }
            WeightFormat::Bf16 => {
                // All exponent bits set: an infinity or NaN.
                let special = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]) & 0x7F80 == 0x7F80;
                if data.chunks_exact(2).fold(false, |any, b| any | special(b)) {
                    return Err("a value that is not finite".into());
                }
            }
            WeightFormat::Blocks(blocks) => {
                let bounds = || blocks.grouped().bounds(scales);
                let is_wrong = |bound: &f32| bound.is_nan() || *bound > LARGEST;
                if bounds().fold(false, |any, bound| any | is_wrong(&bound)) {
                    let bound = bounds().find(is_wrong).unwrap_or(f32::NAN);
                    return Err(format!("the scale of weights of up to {bound}, where F16 has at most {LARGEST}"));
                }
            }
        }
        Ok(())
    }
}

fn int8_scale(scales: &[u8]) -> f32 {
    f32::from_le_bytes([scales[0], scales[1], scales[2], scales[3]])
}
