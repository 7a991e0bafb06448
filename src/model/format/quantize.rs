//! Quantises rows and groups of f32 to the elements and scales of INT8 and INT4.

use super::{BadRow, WeightFormat};
use half::f16;

/// 1.5 * 2^23. Adding it leaves no bits for a fraction, so that the addition rounds to nearest even, and subtracting it
/// again gives the rounded number. This avoids a call per weight on x86-64 before SSE 4.1.
const ROUND: f32 = 12_582_912.0;

/// The largest magnitude of finite values. The bits of non-negative floats order as integers do.
fn largest_magnitude(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |m: u32, w| m.max(w.to_bits() & 0x7FFF_FFFF)))
}

/// Quantises one row of finite values to INT8: `scale = max|w| / 127`, `q = round_half_even(w / scale)` clamped to
/// ±127. A row of zeros has scale 1. Returns the scale. `out` is at least as long as `row`; the rest of it is set to
/// zero.
///
/// A model has tens of billions of weights, so both loops are written for vector units.
pub(super) fn quantize_row(row: &[f32], out: &mut [i8]) -> f32 {
    let max = largest_magnitude(row);
    let scale = if max > 0.0 { max / 127.0 } else { 1.0 };
    for (o, &w) in out.iter_mut().zip(row) {
        let q = (w / scale).clamp(-127.0, 127.0);
        *o = ((q + ROUND) - ROUND) as i8;
    }
    out[row.len()..].fill(0);
    scale
}

/// The size of a group's elements in [`WeightFormat::Int4`], in bytes.
pub(super) const GROUP_BYTES: usize = WeightFormat::GROUP / 2;
/// The element that stands for zero in [`WeightFormat::Int4`], and the farthest from it.
pub(super) const INT4_ZERO: f32 = 8.0;
/// The largest magnitude of a scale of [`WeightFormat::Int4`]: eight times it is the largest f16.
pub(super) const INT4_LARGEST: f32 = LARGEST / INT4_ZERO;
/// The largest f16: matrix units multiply weights in f16.
pub(super) const LARGEST: f32 = 65504.0;
/// Starting scales of [`quantize_group`] beside -[`INT4_ZERO`], as the number of steps from zero to the weight of
/// largest magnitude. More steps than the format has clip that weight and resolve the others finer. For normal weights,
/// these and one iteration leave an error of 8.13 %, Q4_0 alone 8.39 %, and three times as many starts 8.12 %.
const INT4_STARTS: [f32; 3] = [-7.2, 7.2, -8.8];

/// A fit of one group's elements for a scale: the sums from which its error follows.
#[derive(Clone, Copy)]
struct GroupFit {
    /// `Σ x (q - 8)`.
    products: f32,
    /// `Σ (q - 8)²`.
    squares: f32,
}

impl GroupFit {
    /// Rounds the group to multiples of `1 / inverse`.
    fn new(group: &[f32; WeightFormat::GROUP], inverse: f32) -> GroupFit {
        // Eight partial sums of the products and eight of the squares, for vector units.
        let (mut products, mut squares) = ([0f32; 8], [0f32; 8]);
        for eight in group.chunks_exact(8) {
            for i in 0..8 {
                let q = int4_steps(eight[i], inverse);
                products[i] += eight[i] * q;
                squares[i] += q * q;
            }
        }
        GroupFit { products: products.iter().sum(), squares: squares.iter().sum() }
    }

    /// The decrease of the squared error against a group of zeros, with the scale `scale` for these elements.
    fn gain(self, scale: f32) -> f32 {
        scale * (2.0 * self.products - scale * self.squares)
    }

    /// The scale of least squares for these elements.
    fn scale(self) -> f32 {
        if self.squares > 0.0 { self.products / self.squares } else { 0.0 }
    }

    /// The fit with the smaller error, each with its scale of least squares.
    fn or_better(self, other: GroupFit) -> GroupFit {
        if other.gain(other.scale()) > self.gain(self.scale()) { other } else { self }
    }
}

/// `q - 8` for the weight `w`, by the inverse of its scale.
fn int4_steps(w: f32, inverse: f32) -> f32 {
    ((w * inverse).clamp(-INT4_ZERO, INT4_ZERO - 1.0) + ROUND) - ROUND
}

/// The inverse of a scale; 0 for 0.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Quantises one group of finite values to INT4. Returns its scale.
///
/// `scale = max / -8`, where max is the value of largest magnitude, and `q = round(w / scale) + 8` clamped to 0..=15,
/// is llama.cpp's Q4_0. For that scale and a few others, elements are rounded by the scale, and the scale of least
/// squares follows from the elements; the best of these is refined once more. The result is used, in f16, if its error
/// is smaller than Q4_0's.
///
/// # Errors
/// A value that is too large.
pub(super) fn quantize_group(group: &[f32; WeightFormat::GROUP], out: &mut [u8]) -> std::result::Result<f16, BadRow> {
    let top = largest_magnitude(group);
    if top.is_nan() || top > INT4_LARGEST * INT4_ZERO {
        return Err(format!("a value of magnitude {top}, too large for INT4"));
    }
    let max = if group.iter().fold(false, |any, w| any | (*w == top)) { top } else { -top };
    let plain = f16::from_f32(max / -INT4_ZERO);
    let plain_fit = GroupFit::new(group, inverse(plain.to_f32()));
    let mut best = plain_fit;
    for steps in INT4_STARTS {
        best = best.or_better(GroupFit::new(group, steps * inverse(max)));
    }
    best = best.or_better(GroupFit::new(group, inverse(best.scale())));
    let rounded = f16::from_f32(best.scale());
    let by_rounded = GroupFit::new(group, inverse(rounded.to_f32()));
    let is_better =
        rounded.to_f32().abs() <= INT4_LARGEST && by_rounded.gain(rounded.to_f32()) > plain_fit.gain(plain.to_f32());
    let scale = if is_better { rounded } else { plain };
    let by = inverse(scale.to_f32());
    let q = group.map(|w| (int4_steps(w, by) + INT4_ZERO) as u8);
    let (low, high) = q.split_at(GROUP_BYTES);
    out.iter_mut().zip(low.iter().zip(high)).for_each(|(byte, (low, high))| *byte = low | high << 4);
    Ok(scale)
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

    /// Encodes one group and decodes it again.
    fn through_int4(group: &[f32]) -> (f16, [u8; GROUP_BYTES], Vec<f32>) {
        let (mut data, mut scale, mut out) = ([0xAA; GROUP_BYTES], [0xAA; 2], vec![0.0; group.len()]);
        WeightFormat::Int4.encode_row(group, &mut data, &mut scale).unwrap();
        WeightFormat::Int4.decode_row(&data, &scale, &mut out);
        (f16::from_le_bytes(scale), data, out)
    }

    #[test]
    fn weights_that_int4_can_hold_are_held() {
        for scale in [0.5, -0.5, 0.0137, 6e-8, 8188.0].map(f16::from_f32) {
            let q: Vec<u8> = (0..32).map(|i| (i * 7 % 16) as u8).collect();
            let row: Vec<f32> = q.iter().map(|&q| scale.to_f32() * (f32::from(q) - 8.0)).collect();
            let (found, data, out) = through_int4(&row);
            assert_eq!((found, &out), (scale, &row));
            for i in 0..16 {
                assert_eq!((data[i] & 15, data[i] >> 4), (q[i], q[16 + i]));
            }
        }
        let (scale, data, out) = through_int4(&[0.0; 32]);
        assert_eq!((scale.to_f32(), data, out), (0.0, [0x88; 16], vec![0.0; 32]));
    }

    #[test]
    fn int4_is_never_worse_than_the_largest_weight_over_eight() {
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let error = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
        let (mut ours, mut plain) = (0.0, 0.0);
        for i in 0..2000 {
            let row: Vec<f32> = (0..32).map(|_| (random() + random() + random()) * 2f32.powi(i % 40 - 30)).collect();
            let max = row.iter().fold(0f32, |m, w| if w.abs() > m.abs() { *w } else { m });
            let scale = f16::from_f32(max / -8.0).to_f32();
            let by = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            let q4_0: Vec<f32> = row.iter().map(|w| (w * by).round_ties_even().clamp(-8.0, 7.0) * scale).collect();
            let (a, b) = (error(&row, &through_int4(&row).2), error(&row, &q4_0));
            assert!(a <= b * 1.000_01, "{row:?}: {a} above {b}");
            // The smallest values become zeros in both.
            if i % 40 > 15 {
                let size = error(&row, &[0.0; 32]);
                (ours, plain) = (ours + a / size, plain + b / size);
            }
        }
        assert!(ours < 0.96 * plain, "{ours} of {plain}");
    }

    #[test]
    fn what_int4_cannot_hold_is_refused() {
        let encode = |w: f32| {
            let mut row = [0.1; 40];
            row[35] = w;
            WeightFormat::Int4.encode_row(&row, &mut [0; 32], &mut [0; 4])
        };
        assert!(encode(65504.0).is_ok() && encode(-65504.0).is_ok());
        for w in [65600.0, f32::MAX, -f32::MAX] {
            assert!(encode(w).unwrap_err().contains("too large for INT4"));
        }
        let check = |scale: f16| {
            let scales = [f16::ONE, scale].map(f16::to_le_bytes).concat();
            WeightFormat::Int4.copy_row(&[0; 32], &scales, &mut [0; 32], &mut [0; 4])
        };
        assert!(check(f16::from_f32(-8188.0)).is_ok());
        for scale in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY, f16::from_f32(8192.0)] {
            assert!(check(scale).unwrap_err().contains(&format!("the scale {scale}")));
        }
    }
}
