//! How a tensor's elements are kept in a file, and how a row of them becomes f32. What a device keeps is
//! [`crate::model::WeightFormat`]'s business.
//!
//! Besides the plain types and Kiln's own INT8 (I8 elements, one F32 scale per row) there are the three schemes of the
//! earlier engine's layer-by-layer files, where `<tensor>_scale` lies beside the tensor and the file's `__metadata__`
//! gives the scheme under the tensor's name:
//!
//! ```text
//! int8_symmetric   I8               one scale                     w = q * scale
//! int4_grouped     I8, -7..=7       one scale per 128 elements    w = q * scale[i / 128]   (i: row-major index)
//! int8_asymmetric  U8               [scale, zero point]           w = (q - zero) * scale
//! ```

use std::ops::Range;

use half::{bf16, f16};

/// Elements that share a scale in `int4_grouped`.
pub(crate) const GROUP: usize = 128;

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

/// Bytes in one of the checkpoint's files.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Index into the checkpoint's files.
    pub(crate) file: usize,
    /// Bytes from the start of the file.
    pub(crate) range: Range<usize>,
}

/// How elements are kept, with what decoding them takes.
#[derive(Debug, Clone)]
pub(crate) enum Encoding {
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// Kiln's INT8: i8, and one F32 scale per row at this place.
    Int8Rows(Place),
    /// `int8_symmetric`, with its scale.
    Symmetric(f32),
    /// `int4_grouped`: one F32 scale per [`GROUP`] elements at this place.
    Grouped(Place),
    /// `int8_asymmetric`.
    Asymmetric {
        /// Step between two values.
        scale: f32,
        /// The byte (or fraction of it) that means zero.
        zero: f32,
    },
}

impl Encoding {
    /// Bytes of one element.
    pub(crate) fn element_bytes(&self) -> usize {
        match self {
            Encoding::F32 => 4,
            Encoding::Bf16 | Encoding::F16 => 2,
            _ => 1,
        }
    }

    /// Decodes a run of elements whose first has index `first` from the start of a group. `scales` are the bytes of the
    /// encoding's scales: the row's own for [`Encoding::Int8Rows`], that group's and those behind it for
    /// [`Encoding::Grouped`].
    /// Returns what is wrong with the stored values, if anything is.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        scales: &[u8],
        first: usize,
        out: &mut [f32],
    ) -> std::result::Result<(), String> {
        match self {
            Encoding::Bf16 => {
                let pairs = out.iter_mut().zip(bytes.chunks_exact(2));
                pairs.for_each(|(o, b)| *o = bf16::from_le_bytes([b[0], b[1]]).to_f32());
            }
            Encoding::F16 => {
                let pairs = out.iter_mut().zip(bytes.chunks_exact(2));
                pairs.for_each(|(o, b)| *o = f16::from_le_bytes([b[0], b[1]]).to_f32());
            }
            Encoding::F32 => {
                let quads = out.iter_mut().zip(bytes.chunks_exact(4));
                quads.for_each(|(o, b)| *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            }
            Encoding::Int8Rows(_) => {
                let scale = f32_at(scales, 0);
                out.iter_mut().zip(bytes).for_each(|(o, &q)| *o = f32::from(q as i8) * scale);
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

/// Looks at every value before it decides, since a loop that may stop early is not one for vector units.
fn check_finite(values: &[f32]) -> std::result::Result<(), String> {
    if values.iter().fold(true, |all, w| all & w.is_finite()) {
        return Ok(());
    }
    let value = values.iter().find(|w| !w.is_finite()).copied().unwrap_or(f32::NAN);
    Err(format!("the value {value}"))
}

/// A group may end anywhere in a row: groups count the flattened tensor's elements.
fn decode_grouped(bytes: &[u8], scales: &[u8], first: usize, out: &mut [f32]) -> std::result::Result<(), String> {
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

/// The f32 at `index` of little-endian bytes of any alignment.
pub(crate) fn f32_at(bytes: &[u8], index: usize) -> f32 {
    let b = &bytes[index * 4..index * 4 + 4];
    f32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_count_the_flattened_tensor() {
        let place = Place { file: 0, range: 0..0 };
        let scales: Vec<u8> = [1f32, 10.0, 100.0].iter().flat_map(|s| s.to_le_bytes()).collect();
        let mut out = [0f32; 200];
        Encoding::Grouped(place).decode(&[2; 200], &scales, 120, &mut out).unwrap();
        assert_eq!((out[7], out[8], out[135], out[136]), (2.0, 20.0, 20.0, 200.0));
    }
}
