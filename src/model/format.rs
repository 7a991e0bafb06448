//! Weight formats. Besides the kernels, only this module knows a format: the bytes of a row on a device and in a file,
//! how a row of f32 is encoded and decoded, and the format's word on the command line.
//!
//! A type of GGUF files with scales of groups is data: a line in src/model/blocks.rs, and for a new layout of scales,
//! that layout in src/model/grouped.rs and shaders/weights.glsl. Any other format needs a variant here and in `rows`,
//! and kernels: its widening in shaders/weights.glsl, modules in src/lower/kernels/table.rs, and their use in
//! src/lower/arithmetic.rs.

mod quantize;
mod rows;

use safetensors::Dtype;

use crate::error::{Setting, text};
use crate::model::blocks::BlockFormat;
use crate::model::grouped::{Grouped, LOAD};
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::{Error, Result};

/// How the rows of a matrix are stored: elements, and scales if the format has them.
///
/// On a device each row is padded with zeros to a multiple of [`WeightFormat::ALIGN`] elements, so that a kernel can
/// read 16 bytes at a time. In a file rows have no padding. Scales are stored apart from the elements, in the order of
/// the rows and without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// i8 per element, one f32 scale per row: `w = q * scale`, q in -128..=127. Kiln writes -127..=127; llm-compressor
    /// also writes -128.
    Int8,
    /// 4 bits per element, one f16 scale per group of [`WeightFormat::GROUP`]: `w = scale * (q - 8)`, q in 0..=15. A
    /// group is 16 bytes: element j in the low half of byte j, element 16 + j in its high half. Only for rows of whole
    /// groups. Every weight is finite in f16.
    Int4,
    /// One bfloat16 per element, without scales.
    Bf16,
    /// A quantised type of GGUF files other than Q4_0, which is INT4, in the layout of [`BlockFormat::grouped`].
    Blocks(BlockFormat),
}

/// The format of a tensor in a checkpoint's files, or of most of its matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceFormat {
    /// One IEEE half per element.
    F16,
    /// One IEEE single per element.
    F32,
    /// A quantised format of GGUF files.
    Blocks(BlockFormat),
    /// One of Kiln's own formats. The quantisation schemes of the earlier engine count as INT8 and are converted to it.
    Native(WeightFormat),
}

impl SourceFormat {
    /// The format's name: `bf16`, `f16`, `f32`, `int8`, `int4`, `q4_k`.
    pub fn name(self) -> &'static str {
        match self {
            SourceFormat::F16 => "f16",
            SourceFormat::F32 => "f32",
            SourceFormat::Blocks(format) => format.name(),
            SourceFormat::Native(format) => format.name(),
        }
    }

    /// True if weights in this format have lost precision by quantisation.
    pub fn is_quantized(self) -> bool {
        match self {
            SourceFormat::F16 | SourceFormat::F32 => false,
            SourceFormat::Blocks(_) => true,
            SourceFormat::Native(format) => format.is_quantized(),
        }
    }
}

/// The fault of a row. Completes the sentence "the tensor holds …": `the value NaN`.
pub type BadRow = String;

/// Names, sizes, and possible conversions.
impl WeightFormat {
    /// Every weight format.
    pub const ALL: [WeightFormat; 2 + BlockFormat::ALL.len()] = {
        let mut all = [WeightFormat::Bf16; 2 + BlockFormat::ALL.len()];
        (all[0], all[1]) = (WeightFormat::Int8, WeightFormat::Int4);
        // From the second on: the first, Q4_0, is INT4.
        let mut block = 1;
        while block < BlockFormat::ALL.len() {
            all[2 + block] = WeightFormat::Blocks(BlockFormat::ALL[block]);
            block += 1;
        }
        all
    };

    /// The formats that Kiln converts other weights to, and that the user can request. The others only come from GGUF
    /// files.
    pub const MADE: [WeightFormat; 3] = [WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Bf16];

    /// The number of elements that a row's padded length is a multiple of, in every format.
    pub const ALIGN: usize = 16;

    /// The number of elements that share a scale in [`WeightFormat::Int4`].
    pub const GROUP: usize = LOAD;

    /// The layout of a format with scales of groups; `None` for other formats.
    pub fn grouped(self) -> Option<Grouped> {
        match self {
            WeightFormat::Int4 => Some(BlockFormat::Q4_0.grouped()),
            WeightFormat::Blocks(blocks) => Some(blocks.grouped()),
            WeightFormat::Int8 | WeightFormat::Bf16 => None,
        }
    }

    /// The format's name; of [`WeightFormat::MADE`] the word on the command line: `int8`, `int4`, `bf16`, `q4_k`.
    pub fn name(self) -> &'static str {
        match self {
            WeightFormat::Int8 => "int8",
            WeightFormat::Int4 => "int4",
            WeightFormat::Bf16 => "bf16",
            WeightFormat::Blocks(blocks) => blocks.name(),
        }
    }

    /// The format with this word on the command line.
    pub fn parse(word: &str) -> Option<WeightFormat> {
        Self::MADE.into_iter().find(|format| format.name() == word)
    }

    /// The format's description in the command line's help.
    pub fn description(self) -> &'static str {
        match self {
            WeightFormat::Int8 => {
                "One byte an element, quantised while loading if need be; INT4 and a GGUF file's quantised types stay"
            }
            WeightFormat::Int4 => {
                "Half a byte an element in groups of 32 with a scale; the embedding and the head in INT8"
            }
            WeightFormat::Bf16 => "As the BF16 checkpoint has them",
            WeightFormat::Blocks(_) => "As the GGUF file has them",
        }
    }

    /// Elements of a row of `cols`, padding included.
    pub fn padded(cols: usize) -> usize {
        cols.next_multiple_of(Self::ALIGN)
    }

    /// Bytes of the elements of a padded row, as on devices.
    pub fn row_bytes(self, cols: usize) -> usize {
        self.grouped().map_or_else(|| self.file_row_bytes(Self::padded(cols)), |grouped| grouped.row_bytes(cols))
    }

    /// Bytes of the elements of a row without padding, as in files: the first bytes of the padded row.
    pub fn file_row_bytes(self, cols: usize) -> usize {
        match self {
            WeightFormat::Int8 => cols,
            WeightFormat::Bf16 => 2 * cols,
            WeightFormat::Int4 | WeightFormat::Blocks(_) => self.row_bytes(cols),
        }
    }

    /// Elements that kernels load at a time: 16 bytes, or a load of a format with scales of groups ([`LOAD`]).
    pub fn per_load(self) -> usize {
        match self {
            WeightFormat::Bf16 => 8,
            WeightFormat::Int8 => 16,
            WeightFormat::Int4 | WeightFormat::Blocks(_) => LOAD,
        }
    }

    /// Bytes of a row's scales that lie beside the rows, on devices and in files; 0 without such scales.
    pub fn scale_bytes(self, cols: usize) -> usize {
        match self.grouped() {
            Some(grouped) => grouped.scale_bytes(cols),
            None if self == WeightFormat::Int8 => 4,
            None => 0,
        }
    }

    /// Bytes of a matrix on a device: its padded rows and their scales.
    pub fn matrix_bytes(self, rows: usize, cols: usize) -> u64 {
        rows as u64 * (self.row_bytes(cols) + self.scale_bytes(cols)) as u64
    }

    /// True if conversion from floats loses more precision than a float's rounding.
    pub fn is_quantized(self) -> bool {
        self != WeightFormat::Bf16
    }

    /// Bits of a weight in a long row, its scales included.
    pub fn bits(self) -> f64 {
        (8 * self.size()) as f64 / f64::from(1 << 16)
    }

    /// Bytes of a long row, by which formats are ordered.
    fn size(self) -> u64 {
        self.matrix_bytes(1, 1 << 16)
    }

    /// The next smaller format, to save memory; `None` for a GGUF file's types, which are not converted.
    pub fn smaller(self) -> Option<WeightFormat> {
        let made = Self::MADE.into_iter().filter(|format| format.size() < self.size());
        made.max_by_key(|format| format.size()).filter(|_| Self::MADE.contains(&self))
    }

    /// True if rows of `cols` elements can be stored in this format.
    pub fn holds(self, cols: usize) -> bool {
        self.grouped().is_none_or(|grouped| grouped.holds(cols))
    }

    /// The format of a matrix if this one is requested. `stored` is the matrix's format in its files, if there are any.
    ///
    /// A router is BF16. With INT4, the embedding and the head are INT8, and so is a matrix whose rows are not whole
    /// groups. A matrix
    /// that the file has in a smaller quantised format keeps it: a wider one would only take memory. A matrix in a
    /// quantised type of a GGUF file always keeps it: another format would lose precision.
    pub fn of_matrix(self, id: TensorId, shape: &Shape, stored: Option<SourceFormat>) -> WeightFormat {
        if id.is_router() {
            return WeightFormat::Bf16;
        }
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

    /// Names the layers' matrices that this format cannot hold; `None` if it holds all.
    pub fn exceptions(self, shape: &Shape) -> Option<String> {
        let mut list: Vec<&str> = Vec::new();
        for id in TensorId::all(shape).filter(|id| !id.is_never_quantized()) {
            if let TensorId::Layer(_, role) = id
                && !self.holds(id.dims(shape)[1])
                && !list.contains(&role.suffix())
            {
                list.push(role.suffix());
            }
        }
        let kept = WeightFormat::Int8.name().to_uppercase();
        let (format, group) = (self.name().to_uppercase(), Self::GROUP);
        (!list.is_empty()).then(|| {
            format!("{} stay {kept} in every layer: {format} takes rows of a multiple of {group}", list.join(", "))
        })
    }

    /// Checks that `source` can be converted to this format. `what` is the subject of the message.
    ///
    /// # Errors
    /// [`Error::Input`]: the source is quantised and this format is not, so it would take more memory for the same
    /// weights. Or it is a GGUF file's quantised type, which keeps its own format.
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
    /// The element type with which a safetensors file stores this format.
    pub fn file_dtype(self) -> Dtype {
        match self {
            WeightFormat::Int8 => Dtype::I8,
            WeightFormat::Int4 | WeightFormat::Blocks(_) => Dtype::U8,
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
            WeightFormat::Int8 | WeightFormat::Bf16 => vec![rows, cols],
            WeightFormat::Int4 | WeightFormat::Blocks(_) => vec![rows, self.file_row_bytes(cols)],
        }
    }

    /// Element type and dimensions of the tensor that holds the scales; `None` without scales.
    pub fn file_scales(self, rows: usize, cols: usize) -> Option<(Dtype, Vec<usize>)> {
        match self {
            WeightFormat::Int8 => Some((Dtype::F32, vec![rows])),
            WeightFormat::Int4 => Some((Dtype::F16, vec![rows, cols.div_ceil(Self::GROUP)])),
            WeightFormat::Blocks(_) => Some((Dtype::U8, vec![rows, self.scale_bytes(cols)])),
            WeightFormat::Bf16 => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks each description's promise, also for formats that are added later.
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
            // Half a step: for INT4 an eighth of the largest value.
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

    /// Whatever format is requested, also for the embedding.
    #[test]
    fn a_gguf_files_quantised_types_stay() {
        let shape = crate::model::presets::preset("27b").unwrap();
        for blocks in BlockFormat::ALL {
            let source = SourceFormat::Blocks(blocks);
            for asked in WeightFormat::MADE {
                assert_eq!(asked.of_matrix(TensorId::Embedding, &shape, Some(source)), blocks.kept_as());
            }
            let listed = WeightFormat::ALL.into_iter().filter(|format| *format == blocks.kept_as());
            assert_eq!(listed.count(), 1, "{blocks:?}");
            for format in WeightFormat::ALL {
                let result = format.check_source(source, || "x".into());
                assert_eq!(result.is_ok(), format == blocks.kept_as(), "{format:?} of {blocks:?}");
            }
            let bf16 = WeightFormat::Bf16.check_source(source, || "x".into()).unwrap_err().to_string();
            assert!(bf16.contains(", of which no BF16 is made; use a BF16 file"), "{bf16}");
        }
    }
}
