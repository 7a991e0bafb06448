//! A checkpoint: a model directory's files (or a model inside the executable) seen as validated tensors by role.
//!
//! Opening checks everything that can be checked without reading the weights: the config, every header, and that each
//! tensor of the model is there once with the wanted shape in a form that can be read. Reading hands out rows in the
//! layout of a [`WeightFormat`], from any number of threads at once.

pub mod archive;
mod contents;
mod encoding;
pub(crate) mod files;
mod index;
mod keys;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use half::bf16;

use crate::display::quote;
use crate::error::{Setting, text};
use crate::model::checkpoint::archive::Archive;
use crate::model::checkpoint::contents::Contents;
use crate::model::checkpoint::encoding::{Encoding, GROUP, Place, f32_at};
use crate::model::checkpoint::index::Stored;
use crate::model::format::quantize_row;
use crate::model::{Shape, TensorId, WeightFormat, config};
use crate::{Error, Result};

/// Bytes of a matrix that are read from a file at once: few enough to stay in a core's cache until they are put in place.
const READ: usize = 128 << 10;

/// The form that most bytes of a checkpoint's matrices have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// INT8 per row, or a scheme of the earlier engine that is converted to it.
    Int8,
}

impl Source {
    /// `bf16`, `f16`, `f32`, `int8`.
    pub fn name(self) -> &'static str {
        match self {
            Source::Bf16 => "bf16",
            Source::F16 => "f16",
            Source::F32 => "f32",
            Source::Int8 => "int8",
        }
    }
}

/// Validated, read-only tensors of one model. All methods may be called from several threads at once.
#[derive(Debug)]
pub struct Checkpoint {
    shape: Shape,
    source: Source,
    files: Vec<Archive>,
    tensors: HashMap<TensorId, Stored>,
}

impl Checkpoint {
    /// Opens a model directory: config.json, generation_config.json if there, and the weights, which are
    /// model.safetensors, else the shards that model.safetensors.index.json names, else every *.safetensors.
    ///
    /// # Errors
    /// [`Error::Input`]: no such directory or file, or one that is wrong; the message names the file, the tensor,
    /// what was found and what was wanted.
    pub fn open(dir: &Path) -> Result<Checkpoint> {
        let shape = files::read_shape(dir)?;
        let archives = files::open_archives(dir)?;
        Checkpoint::assemble(shape, archives)
    }

    /// A checkpoint inside the executable, checked exactly as one on disk.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_static(config_json: &str, safetensors: &'static [u8]) -> Result<Checkpoint> {
        Checkpoint::from_bytes(config_json, safetensors)
    }

    /// A checkpoint in memory, checked exactly as one on disk.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_bytes(config_json: &str, safetensors: impl Into<Cow<'static, [u8]>>) -> Result<Checkpoint> {
        let shape = config::parse(config_json, None)?;
        let archive = Archive::new("the built-in model".into(), Contents::Bytes(safetensors.into()))?;
        Checkpoint::assemble(shape, vec![archive])
    }

    fn assemble(mut shape: Shape, files: Vec<Archive>) -> Result<Checkpoint> {
        let tensors = index::find_tensors(&mut shape, &files)?;
        let source = dominant_source(&tensors);
        Ok(Checkpoint { shape, source, files, tensors })
    }

    /// The model's shape. [`Shape::tied`] is false if the files hold a head of their own, whatever the config says:
    /// transformers 5 does not tie two tensors that are both in the checkpoint either.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The form that most bytes of the matrices have in the files.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Bytes of all of the model's tensors in the scales included: what a load reads.
    pub fn stored_bytes(&self) -> u64 {
        self.tensors.values().map(|t| (t.place.range.len() + t.scales().map_or(0, |s| s.range.len())) as u64).sum()
    }

    /// Reads rows of a matrix into `data`, in `format`'s layout (rows of [`WeightFormat::row_bytes`] bytes, zero
    /// padding), and each row's scale into `scales`.
    ///
    /// A source that is INT8 per row already is copied; any other is decoded to f32 and quantised by
    /// [`quantize_row`]. Into [`WeightFormat::Bf16`], F16 and F32 are rounded to nearest, ties to even.
    ///
    /// # Errors
    /// [`Error::Input`] naming the tensor and the row: a value or scale that is not finite or out of its range; an
    /// INT8 source wanted as BF16. [`Error::Failed`]: the file was cut short, or its disk fails.
    ///
    /// # Panics
    /// If `id` is a vector, `rows` is not within the matrix, `data` is not `rows.len() * row_bytes(cols)` bytes, or
    /// `scales` is not `rows.len()` long where the format has scales. These are the caller's to keep.
    pub fn read_rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [f32],
    ) -> Result<()> {
        let tensor = self.stored(id);
        let [height, cols] = id.dims(&self.shape);
        let stride = format.row_bytes(cols);
        assert!(!id.is_vector(), "{id:?} is a vector");
        assert!(rows.start <= rows.end && rows.end <= height, "rows {rows:?} of {height}");
        assert_eq!(data.len(), rows.len() * stride, "bytes for {} rows of {id:?}", rows.len());
        assert!(format.scale_bytes() == 0 || scales.len() == rows.len(), "one scale per row");
        let step = (READ / (cols * tensor.encoding.element_bytes())).max(1);
        let (mut buffers, mut scratch) = (Buffers::default(), Vec::new());
        for (block, out) in data.chunks_mut(step * stride).enumerate() {
            let first = rows.start + block * step;
            let run = self.read_run(tensor, first..first + out.len() / stride, cols, &mut buffers)?;
            for (i, out) in out.chunks_exact_mut(stride).enumerate() {
                match format {
                    WeightFormat::Int8 => scales[block * step + i] = self.put_int8(&run, i, out, &mut scratch)?,
                    WeightFormat::Bf16 => self.put_bf16(&run, i, out, &mut scratch)?,
                }
            }
        }
        Ok(())
    }

    /// A norm's weights as they are kept (w; RMSNorm multiplies by 1 + w), decoded from whatever form they have.
    ///
    /// # Errors
    /// [`Error::Input`] naming the tensor that holds a value which is not finite.
    ///
    /// # Panics
    /// If `id` is a matrix.
    pub fn read_vector(&self, id: TensorId) -> Result<Vec<f32>> {
        assert!(id.is_vector(), "{id:?} is a matrix");
        let [_, len] = id.dims(&self.shape);
        let mut out = vec![0f32; len];
        let mut buffers = Buffers::default();
        self.decode_row(&self.read_run(self.stored(id), 0..1, len, &mut buffers)?, 0, &mut out)?;
        Ok(out)
    }

    /// Drops these rows' pages from memory and from the page cache, once they are no longer needed: a load that
    /// leaves 27 GB of them behind pushes out everything else. They can still be read again, from the disk.
    pub fn release(&self, id: TensorId, rows: Range<usize>) {
        let tensor = self.stored(id);
        let [height, cols] = id.dims(&self.shape);
        assert!(rows.start <= rows.end && rows.end <= height, "rows {rows:?} of {height}");
        let bytes = cols * tensor.encoding.element_bytes();
        let start = tensor.place.range.start;
        self.files[tensor.place.file].bytes.release(&(start + rows.start * bytes..start + rows.end * bytes));
    }

    /// The tensor behind `id`. Opening has found every tensor of the shape, so only a layer that the model does not
    /// have can miss.
    fn stored(&self, id: TensorId) -> &Stored {
        let id = if id == TensorId::Head && self.shape.tied { TensorId::Embedding } else { id };
        self.tensors.get(&id).unwrap_or_else(|| panic!("the model has no {id:?}"))
    }

    /// Reads rows of `cols` elements, and the scales that they need.
    fn read_run<'a>(
        &'a self,
        tensor: &'a Stored,
        rows: Range<usize>,
        cols: usize,
        buffers: &'a mut Buffers,
    ) -> Result<Run<'a>> {
        let part = |place: &Place, unit: usize, units: Range<usize>| {
            let start = place.range.start;
            (place.file, start + unit * units.start..start + unit * units.end)
        };
        let elements = rows.start * cols..rows.end * cols;
        let groups = elements.start / GROUP..elements.end.div_ceil(GROUP);
        let (file, range) = part(&tensor.place, tensor.encoding.element_bytes(), elements);
        let bytes = self.files[file].bytes.read(range, &mut buffers.elements)?;
        let scales = match &tensor.encoding {
            Encoding::Int8Rows(place) => Some(part(place, 4, rows.clone())),
            Encoding::Grouped(place) => Some(part(place, 4, groups)),
            _ => None,
        };
        let scales = match scales {
            Some((file, range)) => self.files[file].bytes.read(range, &mut buffers.scales)?,
            None => &[],
        };
        Ok(Run { tensor, first: rows.start, cols, bytes, scales })
    }

    fn decode_row(&self, run: &Run, i: usize, out: &mut [f32]) -> Result<()> {
        let (scales, first) = match &run.tensor.encoding {
            Encoding::Int8Rows(_) => (&run.scales[i * 4..i * 4 + 4], 0),
            // The scales begin with the group that holds the run's first element.
            _ => (run.scales, run.first * run.cols % GROUP + i * run.cols),
        };
        run.tensor.encoding.decode(run.row(i), scales, first, out).map_err(|what| self.bad_row(run, i, &what))
    }

    /// Puts row `i` of a run into `out`, and returns its scale.
    fn put_int8(&self, run: &Run, i: usize, out: &mut [u8], scratch: &mut Vec<f32>) -> Result<f32> {
        if let Encoding::Int8Rows(_) = &run.tensor.encoding {
            let scale = f32_at(run.scales, i);
            if !(scale.is_finite() && scale >= 0.0) {
                return Err(self.bad_row(run, i, &format!("the scale {scale}")));
            }
            let bytes = run.row(i);
            if bytes.contains(&(i8::MIN as u8)) {
                return Err(self.bad_row(run, i, "the value -128, where INT8 weights have -127 to 127"));
            }
            out[..run.cols].copy_from_slice(bytes);
            out[run.cols..].fill(0);
            return Ok(scale);
        }
        scratch.resize(run.cols, 0.0);
        self.decode_row(run, i, scratch)?;
        Ok(quantize_row(scratch, bytemuck::cast_slice_mut(out)))
    }

    /// Puts row `i` of a run into `out`.
    fn put_bf16(&self, run: &Run, i: usize, out: &mut [u8], scratch: &mut Vec<f32>) -> Result<()> {
        let encoding = &run.tensor.encoding;
        if encoding.source() == Source::Int8 {
            let cause = format!("tensor {} is INT8 already and cannot be kept as BF16", quote(&run.tensor.name));
            return Err(Error::input(cause, text!("use ", Setting::Weights("int8"), ", or the BF16 checkpoint")));
        }
        let (elements, padding) = out.split_at_mut(run.cols * 2);
        padding.fill(0);
        if matches!(encoding, Encoding::Bf16) {
            let bytes = run.row(i);
            // All exponent bits set: an infinity or no number. Every value is looked at, as vector units like it.
            let special = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]) & 0x7F80 == 0x7F80;
            if bytes.chunks_exact(2).fold(false, |any, b| any | special(b)) {
                return Err(self.bad_row(run, i, "a value that is not finite"));
            }
            elements.copy_from_slice(bytes);
            return Ok(());
        }
        scratch.resize(run.cols, 0.0);
        self.decode_row(run, i, scratch)?;
        for (o, w) in elements.chunks_exact_mut(2).zip(scratch.iter()) {
            let rounded = bf16::from_f32(*w);
            if !rounded.is_finite() {
                return Err(self.bad_row(run, i, &format!("the value {w}, too large for BF16")));
            }
            o.copy_from_slice(&rounded.to_le_bytes());
        }
        Ok(())
    }

    fn bad_row(&self, run: &Run, i: usize, what: &str) -> Error {
        let (tensor, row) = (run.tensor, run.first + i);
        let file = &self.files[tensor.place.file].label;
        let cause = format!("{file}: tensor {} holds {what} in row {row}", quote(&tensor.name));
        Error::input(cause, "download the file again, or export the model anew")
    }
}

/// A thread's memory for what is read from a file.
#[derive(Default)]
struct Buffers {
    elements: Vec<u8>,
    scales: Vec<u8>,
}

/// Rows of one tensor as they are stored.
struct Run<'a> {
    tensor: &'a Stored,
    /// Index of its first row.
    first: usize,
    cols: usize,
    bytes: &'a [u8],
    /// F32, little-endian: a row each for [`Encoding::Int8Rows`], from the first row's first group on for
    /// [`Encoding::Grouped`].
    scales: &'a [u8],
}

impl Run<'_> {
    /// The bytes of one row's elements.
    fn row(&self, i: usize) -> &[u8] {
        let len = self.cols * self.tensor.encoding.element_bytes();
        &self.bytes[i * len..(i + 1) * len]
    }
}

/// The source that most bytes of matrices have.
fn dominant_source(tensors: &HashMap<TensorId, Stored>) -> Source {
    let bytes = |source: Source| -> usize {
        let of_source = |(id, t): &(&TensorId, &Stored)| !id.is_vector() && t.encoding.source() == source;
        tensors.iter().filter(of_source).map(|(_, t)| t.place.range.len()).sum()
    };
    let sources = [Source::Bf16, Source::F16, Source::F32, Source::Int8];
    sources.into_iter().max_by_key(|source| bytes(*source)).unwrap_or(Source::Bf16)
}
