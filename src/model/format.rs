//! Weight formats. Besides the kernels, only this file knows a format: the bytes of a row on a device and in a file,
//! how a row of f32 is encoded and decoded, and the format's word on the command line.
//!
//! A new format needs a variant here, and kernels: how shaders widen it (`widen` in shaders/common.glsl), modules in
//! src/gpu/kernels/table.rs, and which of them read it (src/gpu/lower/arithmetic.rs).

use half::{bf16, f16};
use safetensors::Dtype;

use crate::error::{Setting, text};
use crate::model::blocks::{self, BlockFormat};
use crate::model::shape::Shape;
use crate::model::tensor::{Role, TensorId};
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
    /// 4 bits per element, one f16 scale per group of [`WeightFormat::GROUP`]: `w = scale * (q - 8)`, q in 0..=15. A
    /// group is 16 bytes: element j in the low half of byte j, element 16 + j in its high half. Only for rows of whole
    /// groups. Every weight is finite in f16.
    Int4,
    /// bfloat16 per element, no scale.
    Bf16,
    /// GGUF's Q5_0: 5 bits per element, one f16 scale per group: `w = scale * (q - 16)`. A row has two parts: the low 4 bits
    /// in groups of the order of [`WeightFormat::Int4`], and 4 bytes for each group with the high bits, that of element 4 i +
    /// j in bit i of byte j. Only for rows of whole fours of groups, so that each begins at 16 bytes.
    Q5_0,
    /// GGUF's Q8_0: i8 per element, one f16 scale per group: `w = q * scale`, q in -128..=127. Only for rows of whole
    /// groups.
    Q8_0,
    /// GGUF's Q4_K: 4 bits per element, in groups of the order of [`WeightFormat::Int4`]: `w = d * s * q - m * n`, q in
    /// 0..=15. Of each [`WeightFormat::SUPER`] elements the scales are 16 bytes: d and m in f16, then for the eight groups, 4
    /// bits each in a u32, the low bits of s, the low bits of n, and the high two bits of s below those of n. Only for rows
    /// of whole [`WeightFormat::SUPER`].
    Q4K,
    /// GGUF's Q6_K: 6 bits per element: `w = d * s * (q - 32)`, with an i8 s per 16 elements, and as its scale an f16 d per
    /// [`WeightFormat::SUPER`]. A row has three parts: the low 4 bits in groups of the order of [`WeightFormat::Int4`]; 8
    /// bytes for each group with the high 2 bits, of element 16 i + 4 j + k at bit 2 j of byte 4 i + k; every s. Only for
    /// rows of whole [`WeightFormat::SUPER`].
    Q6K,
}

/// The format of a tensor in a checkpoint's files, or of most of its matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceFormat {
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// A quantised format of GGUF files.
    Blocks(BlockFormat),
    /// One of Kiln's own formats. The quantisation schemes of the earlier engine count as INT8 and are converted to it.
    Native(WeightFormat),
}

impl SourceFormat {
    /// `bf16`, `f16`, `f32`, `int8`, `int4`, `q4_k`.
    pub fn name(self) -> &'static str {
        match self {
            SourceFormat::F16 => "f16",
            SourceFormat::F32 => "f32",
            SourceFormat::Blocks(format) => format.name(),
            SourceFormat::Native(format) => format.name(),
        }
    }

    /// Whether making it lost precision.
    pub fn is_quantized(self) -> bool {
        match self {
            SourceFormat::F16 | SourceFormat::F32 => false,
            SourceFormat::Blocks(_) => true,
            SourceFormat::Native(format) => format.is_quantized(),
        }
    }
}

/// What is wrong with a row. Completes the sentence "the tensor holds …": `the value NaN`.
pub type BadRow = String;

/// Names, sizes and what can be made from what.
impl WeightFormat {
    /// Every format.
    pub const ALL: [WeightFormat; 7] = [
        WeightFormat::Int8,
        WeightFormat::Int4,
        WeightFormat::Bf16,
        WeightFormat::Q5_0,
        WeightFormat::Q8_0,
        WeightFormat::Q4K,
        WeightFormat::Q6K,
    ];

    /// Those that Kiln makes of other weights, and that can be asked for. The others are what GGUF files have.
    pub const MADE: [WeightFormat; 3] = [WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Bf16];

    /// In every format, a row's padded length is a multiple of this many elements.
    pub const ALIGN: usize = 16;

    /// Elements that share a scale in [`WeightFormat::Int4`] and in [`WeightFormat::Q8_0`].
    pub const GROUP: usize = 32;

    /// Elements whose scales share a scale in [`WeightFormat::Q4K`] and [`WeightFormat::Q6K`].
    pub const SUPER: usize = 256;

    /// Its name, which for [`WeightFormat::MADE`] is its word on the command line: `int8`, `int4`, `bf16`, `q4_k`.
    pub fn name(self) -> &'static str {
        match self {
            WeightFormat::Int8 => "int8",
            WeightFormat::Int4 => "int4",
            WeightFormat::Bf16 => "bf16",
            WeightFormat::Q5_0 => BlockFormat::Q5_0.name(),
            WeightFormat::Q8_0 => BlockFormat::Q8_0.name(),
            WeightFormat::Q4K => BlockFormat::Q4K.name(),
            WeightFormat::Q6K => BlockFormat::Q6K.name(),
        }
    }

    /// The format with this word on the command line.
    pub fn parse(word: &str) -> Option<WeightFormat> {
        Self::MADE.into_iter().find(|format| format.name() == word)
    }

    /// Its description in the command line's help.
    pub fn description(self) -> &'static str {
        match self {
            WeightFormat::Int8 => {
                "One byte an element, quantised while loading if need be; INT4 and a GGUF file's quantised types stay"
            }
            WeightFormat::Int4 => {
                "Half a byte an element in groups of 32 with a scale; the embedding and the head in INT8"
            }
            WeightFormat::Bf16 => "As the BF16 checkpoint has them",
            WeightFormat::Q5_0 | WeightFormat::Q8_0 | WeightFormat::Q4K | WeightFormat::Q6K => {
                "As the GGUF file has them"
            }
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
            WeightFormat::Int8 | WeightFormat::Q8_0 => cols,
            WeightFormat::Int4 => cols.div_ceil(Self::GROUP) * GROUP_BYTES,
            WeightFormat::Bf16 => 2 * cols,
            WeightFormat::Q4K => cols / 2,
            // 4 bits and 1.
            WeightFormat::Q5_0 => cols / 8 * 5,
            // 4 bits, 2 bits, and a byte for 16.
            WeightFormat::Q6K => cols / 16 * 13,
        }
    }

    /// Elements in 16 bytes, which kernels load at a time; of [`WeightFormat::Q5_0`] and [`WeightFormat::Q6K`] in 16
    /// bytes of low bits.
    pub fn per_load(self) -> usize {
        match self {
            WeightFormat::Bf16 => 8,
            WeightFormat::Int8 | WeightFormat::Q8_0 => 16,
            WeightFormat::Int4 | WeightFormat::Q5_0 | WeightFormat::Q4K | WeightFormat::Q6K => 32,
        }
    }

    /// Bytes of a row's scales, on devices and in files; 0 without scales.
    pub fn scale_bytes(self, cols: usize) -> usize {
        match self {
            WeightFormat::Int8 => 4,
            WeightFormat::Int4 | WeightFormat::Q5_0 | WeightFormat::Q8_0 => 2 * cols.div_ceil(Self::GROUP),
            WeightFormat::Bf16 => 0,
            WeightFormat::Q4K => 16 * cols.div_ceil(Self::SUPER),
            WeightFormat::Q6K => 2 * cols.div_ceil(Self::SUPER),
        }
    }

    /// Bytes of a matrix on a device: its padded rows and their scales.
    pub fn matrix_bytes(self, rows: usize, cols: usize) -> u64 {
        rows as u64 * (self.row_bytes(cols) + self.scale_bytes(cols)) as u64
    }

    /// Whether making it from floating-point weights loses more precision than a float's rounding.
    pub fn is_quantized(self) -> bool {
        self != WeightFormat::Bf16
    }

    /// Bytes of a long row: what orders the formats by size.
    fn size(self) -> u64 {
        self.matrix_bytes(1, 1 << 16)
    }

    /// The next smaller format, to save memory; `None` for what a GGUF file has, of which no other is made.
    pub fn smaller(self) -> Option<WeightFormat> {
        let made = Self::MADE.into_iter().filter(|format| format.size() < self.size());
        made.max_by_key(|format| format.size()).filter(|_| Self::MADE.contains(&self))
    }

    /// Whether rows of `cols` elements can be kept in it.
    pub fn holds(self, cols: usize) -> bool {
        match self {
            WeightFormat::Int4 | WeightFormat::Q8_0 => cols.is_multiple_of(Self::GROUP),
            WeightFormat::Q5_0 => cols.is_multiple_of(4 * Self::GROUP),
            WeightFormat::Q4K | WeightFormat::Q6K => cols.is_multiple_of(Self::SUPER),
            WeightFormat::Int8 | WeightFormat::Bf16 => true,
        }
    }

    /// The format of a matrix where this one is asked for. `stored` is the matrix's format in its files, if there are any.
    ///
    /// With INT4, the embedding and the head are INT8, and so is a matrix whose rows are not whole groups. What a file has
    /// in a smaller quantised format stays as it is: widening it would only take memory. What a GGUF file has in a quantised
    /// type always stays: another format would lose some of it.
    pub fn of_matrix(self, id: TensorId, shape: &Shape, stored: Option<SourceFormat>) -> WeightFormat {
        let is_table = matches!(id, TensorId::Embedding | TensorId::Head);
        let format = match self {
            WeightFormat::Int4 if is_table || !self.holds(id.dims(shape)[1]) => WeightFormat::Int8,
            format => format,
        };
        match stored {
            Some(SourceFormat::Blocks(stored)) => stored.kept_as(),
            Some(SourceFormat::Native(stored)) if stored.is_quantized() && stored.size() < format.size() => stored,
            _ => format,
        }
    }

    /// Says which of a layer's matrices this format cannot hold; `None` if it holds all.
    pub fn exceptions(self, shape: &Shape) -> Option<String> {
        let dims = |role: Role| TensorId::Layer(0, role).dims(shape);
        let matrices = Role::ALL.into_iter().filter(|&role| !TensorId::Layer(0, role).is_vector());
        let list: Vec<&str> = matrices.filter(|&role| !self.holds(dims(role)[1])).map(Role::suffix).collect();
        let kept = WeightFormat::Int8.name().to_uppercase();
        let (format, group) = (self.name().to_uppercase(), Self::GROUP);
        (!list.is_empty()).then(|| {
            format!("{} stay {kept} in every layer: {format} takes rows of a multiple of {group}", list.join(", "))
        })
    }

    /// Refuses to make this format from `source`. `what` is the subject of the message.
    ///
    /// # Errors
    /// [`Error::Input`]: the source is quantised and this format is not, so it would take more memory for the same
    /// weights. Or it is a GGUF file's quantised type, which is kept in another format.
    pub fn check_source(self, source: SourceFormat, what: impl FnOnce() -> String) -> Result<()> {
        if let SourceFormat::Blocks(blocks) = source {
            if self == blocks.kept_as() {
                return Ok(());
            }
            let [from, to] = [blocks.name(), self.name()].map(str::to_uppercase);
            return Err(Error::input(format!("{} is {from}, of which no {to} is made", what()), "use a BF16 file"));
        }
        if self.is_quantized() || !source.is_quantized() {
            return Ok(());
        }
        let (from, to) = (source.name(), self.name());
        let cause = format!("{} is {} already and cannot be kept as {to}", what(), from.to_uppercase());
        let checkpoint = format!(", or the {} checkpoint", to.to_uppercase());
        Err(Error::input(cause, text!("use ", Setting::Weights(from), checkpoint)))
    }
}

/// A matrix of this format, one of [`WeightFormat::MADE`], in a safetensors file.
impl WeightFormat {
    /// Element type.
    pub fn file_dtype(self) -> Dtype {
        match self {
            WeightFormat::Int8 | WeightFormat::Q8_0 => Dtype::I8,
            WeightFormat::Int4 | WeightFormat::Q5_0 | WeightFormat::Q4K | WeightFormat::Q6K => Dtype::U8,
            WeightFormat::Bf16 => Dtype::BF16,
        }
    }

    /// The format whose elements have the type `dtype`.
    pub fn from_file_dtype(dtype: Dtype) -> Option<WeightFormat> {
        Self::MADE.into_iter().find(|format| format.file_dtype() == dtype)
    }

    /// Dimensions of the tensor that holds the elements of a `[rows, cols]` matrix.
    pub fn file_shape(self, rows: usize, cols: usize) -> Vec<usize> {
        match self {
            WeightFormat::Int8 | WeightFormat::Q8_0 | WeightFormat::Bf16 => vec![rows, cols],
            WeightFormat::Int4 | WeightFormat::Q5_0 | WeightFormat::Q4K | WeightFormat::Q6K => {
                vec![rows, self.file_row_bytes(cols)]
            }
        }
    }

    /// Element type and dimensions of the tensor that holds the scales; `None` without scales.
    pub fn file_scales(self, rows: usize, cols: usize) -> Option<(Dtype, Vec<usize>)> {
        match self {
            WeightFormat::Int8 => Some((Dtype::F32, vec![rows])),
            WeightFormat::Int4 | WeightFormat::Q5_0 | WeightFormat::Q8_0 => {
                Some((Dtype::F16, vec![rows, cols.div_ceil(Self::GROUP)]))
            }
            WeightFormat::Q4K | WeightFormat::Q6K => Some((Dtype::U8, vec![rows, self.scale_bytes(cols)])),
            WeightFormat::Bf16 => None,
        }
    }
}

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
                    // A last group that is not whole ends in zeros.
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
            WeightFormat::Q5_0 | WeightFormat::Q8_0 | WeightFormat::Q4K | WeightFormat::Q6K => {
                Err(format!("weights of which no {} is made", self.name().to_uppercase()))
            }
        }
    }

    /// Decodes the first `out.len()` elements of a row, with padding or without. Of the formats that
    /// GGUF files have whole groups are decoded, and `data` is the whole row.
    pub fn decode_row(self, data: &[u8], scales: &[u8], out: &mut [f32]) {
        match self {
            WeightFormat::Int8 => {
                let scale = int8_scale(scales);
                out.iter_mut().zip(data).for_each(|(o, &q)| *o = f32::from(q as i8) * scale);
            }
            WeightFormat::Int4 => {
                let groups = data.chunks_exact(GROUP_BYTES).zip(scales.chunks_exact(2));
                for (out, (bytes, scale)) in out.chunks_mut(Self::GROUP).zip(groups) {
                    let scale = f16::from_le_bytes([scale[0], scale[1]]).to_f32();
                    let weight = |q: u8| scale * (f32::from(q) - INT4_ZERO);
                    let (low, high) = out.split_at_mut(out.len().min(GROUP_BYTES));
                    low.iter_mut().zip(bytes).for_each(|(o, b)| *o = weight(b & 15));
                    high.iter_mut().zip(bytes).for_each(|(o, b)| *o = weight(b >> 4));
                }
            }
            WeightFormat::Bf16 => {
                let pairs = out.iter_mut().zip(data.chunks_exact(2));
                pairs.for_each(|(o, b)| *o = bf16::from_le_bytes([b[0], b[1]]).to_f32());
            }
            WeightFormat::Q5_0 => blocks::decode_q5_0(data, scales, out),
            WeightFormat::Q8_0 => blocks::decode_q8_0(data, scales, out),
            WeightFormat::Q4K => blocks::decode_q4_k(data, scales, out),
            WeightFormat::Q6K => blocks::decode_q6_k(data, scales, out),
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
    pub(super) fn check_row(self, data: &[u8], scales: &[u8]) -> std::result::Result<(), BadRow> {
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
            WeightFormat::Q5_0 | WeightFormat::Q8_0 | WeightFormat::Q4K | WeightFormat::Q6K => {
                let bounds = || blocks::block_bounds(self, scales);
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

/// 1.5 * 2^23. Adding it leaves no bits for a fraction, so that the addition rounds to nearest even, and subtracting it
/// again gives the rounded number. This avoids a call per weight on x86-64 before SSE 4.1.
const ROUND: f32 = 12_582_912.0;

/// The largest magnitude of finite values. The bits of non-negative floats order as integers do.
fn largest_magnitude(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |m: u32, w| m.max(w.to_bits() & 0x7FFF_FFFF)))
}

fn int8_scale(scales: &[u8]) -> f32 {
    f32::from_le_bytes([scales[0], scales[1], scales[2], scales[3]])
}

/// Quantises one row of finite values to INT8: `scale = max|w| / 127`, `q = round_half_even(w / scale)` clamped to
/// ±127. A row of zeros has scale 1. Returns the scale. `out` is at least as long as `row`; the rest of it is set to
/// zero.
///
/// A model has tens of billions of weights, so both loops are written for vector units.
fn quantize_row(row: &[f32], out: &mut [i8]) -> f32 {
    let max = largest_magnitude(row);
    let scale = if max > 0.0 { max / 127.0 } else { 1.0 };
    for (o, &w) in out.iter_mut().zip(row) {
        let q = (w / scale).clamp(-127.0, 127.0);
        *o = ((q + ROUND) - ROUND) as i8;
    }
    out[row.len()..].fill(0);
    scale
}

/// Bytes of a group's elements in [`WeightFormat::Int4`].
const GROUP_BYTES: usize = WeightFormat::GROUP / 2;
/// The element that means zero in [`WeightFormat::Int4`], and the farthest from it.
const INT4_ZERO: f32 = 8.0;
/// The largest magnitude of a scale of [`WeightFormat::Int4`]: eight of it are the largest f16.
const INT4_LARGEST: f32 = LARGEST / INT4_ZERO;
/// The largest f16: matrix units multiply weights in f16.
const LARGEST: f32 = 65504.0;
/// From zero to the weight of largest magnitude, in steps of the scales that [`quantize_group`] starts from beside
/// -[`INT4_ZERO`]. More steps than there are cut that weight off and divide the others finer. Of normal weights these and
/// one turn leave an error of 8.13 %, Q4_0 alone 8.39 %, and three times as many starts 8.12 %.
const INT4_STARTS: [f32; 3] = [-7.2, 7.2, -8.8];

/// One group's elements for a scale: the sums that its error follows from.
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
        // Eight sums of each, for vector units.
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

    /// How far the squared error is below that of a group of zeros, with the scale `scale` for these elements.
    fn gain(self, scale: f32) -> f32 {
        scale * (2.0 * self.products - scale * self.squares)
    }

    /// The scale of least squares for these elements.
    fn scale(self) -> f32 {
        if self.squares > 0.0 { self.products / self.squares } else { 0.0 }
    }

    /// The one with the smaller error, each with its scale of least squares.
    fn or_better(self, other: GroupFit) -> GroupFit {
        if other.gain(other.scale()) > self.gain(self.scale()) { other } else { self }
    }
}

/// `q - 8` for the weight `w`, by the inverse of its scale.
fn int4_steps(w: f32, inverse: f32) -> f32 {
    ((w * inverse).clamp(-INT4_ZERO, INT4_ZERO - 1.0) + ROUND) - ROUND
}

/// The inverse of a scale; 0 of 0.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Quantises one group of finite values to INT4. Returns its scale.
///
/// `scale = max / -8`, where max is the value of largest magnitude, and `q = round(w / scale) + 8` clamped to 0..=15, is
/// what others call Q4_0. From that scale and from a few others, elements are chosen for the scale, and the scale of least
/// squares for the elements; from the best of these once more. The best is taken, in f16, if its error is smaller than
/// Q4_0's.
///
/// # Errors
/// A value that is too large.
fn quantize_group(group: &[f32; WeightFormat::GROUP], out: &mut [u8]) -> std::result::Result<f16, BadRow> {
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
            // The smallest are zeros in either.
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

    /// Checks each description's promise, so that it holds for a new format too.
    #[test]
    fn every_format_keeps_its_promises() {
        let cols = 72;
        let row: Vec<f32> = (0..cols).map(|i| (i as f32 - 30.0) / 64.0).collect();
        for format in WeightFormat::MADE {
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
            // Half a step: of INT4 an eighth of the largest value.
            let bound = if format == WeightFormat::Int4 { 0.65 / 16.0 } else { 0.01 };
            assert!(error < bound, "{format:?}: {error}");
        }
    }

    #[test]
    fn only_a_quantised_format_is_made_from_a_quantised_source() {
        let int8 = SourceFormat::Native(WeightFormat::Int8);
        let int4 = SourceFormat::Native(WeightFormat::Int4);
        for source in [SourceFormat::F16, SourceFormat::F32, SourceFormat::Native(WeightFormat::Bf16), int8, int4] {
            assert!(WeightFormat::Int8.check_source(source, String::new).is_ok());
            assert!(WeightFormat::Int4.check_source(source, String::new).is_ok());
            assert_eq!(WeightFormat::Bf16.check_source(source, String::new).is_ok(), ![int8, int4].contains(&source));
        }
        let line = WeightFormat::Bf16.check_source(int8, || "x".into()).unwrap_err().to_string();
        let wanted = "x is INT8 already and cannot be kept as bf16; use the weight format int8, or the BF16 checkpoint";
        assert_eq!(line, wanted);
        assert_eq!(WeightFormat::Bf16.smaller(), Some(WeightFormat::Int8));
        assert_eq!(WeightFormat::Int8.smaller(), Some(WeightFormat::Int4));
        for format in WeightFormat::ALL.into_iter().filter(|f| ![WeightFormat::Int8, WeightFormat::Bf16].contains(f)) {
            assert_eq!(format.smaller(), None);
        }
    }

    /// Whatever is asked for, also of the embedding.
    #[test]
    fn a_gguf_files_quantised_types_stay() {
        let shape = crate::model::presets::preset("27b").unwrap();
        for blocks in BlockFormat::ALL {
            let source = SourceFormat::Blocks(blocks);
            for asked in WeightFormat::MADE {
                assert_eq!(asked.of_matrix(TensorId::Embedding, &shape, Some(source)), blocks.kept_as());
            }
            for format in WeightFormat::ALL {
                let result = format.check_source(source, || "x".into());
                assert_eq!(result.is_ok(), format == blocks.kept_as(), "{format:?} of {blocks:?}");
            }
            let bf16 = WeightFormat::Bf16.check_source(source, || "x".into()).unwrap_err().to_string();
            assert!(bf16.contains(", of which no BF16 is made; use a BF16 file"), "{bf16}");
        }
    }
}
