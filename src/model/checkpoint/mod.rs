//! A checkpoint: validated tensors by role, from a model directory's files, from GGUF files, or from inside the
//! executable.
//!
//! Opening checks everything except the weights: the config, every header, and that each tensor of the model is there
//! once, with the right shape and in a known encoding. Reading returns rows in the layout of a [`WeightFormat`], from
//! any number of threads at once.

pub mod archive;
mod byte_source;
mod encoding;
pub(crate) mod files;
pub mod gguf;
mod index;
mod keys;
#[cfg(any(test, feature = "testing"))]
mod testing;

pub(crate) use keys::SCALE_SUFFIX;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use self::archive::Archive;
use self::byte_source::ByteSource;
use self::encoding::{Encoding, GROUP};
use self::gguf::Gguf;
use self::index::StoredTensor;
use crate::display::quote;
use crate::error::{Setting, text};
use crate::model::architecture::{GEMMA4, NormWeights};
use crate::model::config::{self, Quantization};
use crate::model::format::{BadRow, SourceFormat, WeightFormat};
use crate::model::shape::{LayerKind, Shape};
use crate::model::tensor::TensorId;
use crate::{Error, Result};

/// Bytes of a matrix read from a file at once: few enough to stay in a core's cache until they are converted.
const READ: usize = 128 << 10;

/// Validated, read-only tensors of one model. All methods may be called from several threads at once.
#[derive(Debug)]
pub struct Checkpoint {
    shape: Shape,
    source: SourceFormat,
    files: Vec<DataFile>,
    tensors: HashMap<TensorId, StoredTensor>,
    norms: NormWeights,
    /// The draft model that was opened with this one.
    drafter: Option<Box<Checkpoint>>,
}

/// A file of weights with the position of its data, without the header.
#[derive(Debug)]
struct DataFile {
    /// The name in messages.
    label: String,
    bytes: ByteSource,
}

impl Checkpoint {
    /// Opens a model: a GGUF file ([`Gguf::open`]), or a directory with config.json, generation_config.json if there,
    /// and the weights. These are model.safetensors, else the shards of model.safetensors.index.json, else every
    /// *.safetensors.
    ///
    /// # Errors
    /// [`Error::Input`]: a directory or file is missing or wrong. The message has the file, the tensor, and the found
    /// and expected values.
    pub fn open(path: &Path) -> Result<Checkpoint> {
        if path.is_file() {
            return Checkpoint::from_gguf(Gguf::open(path)?);
        }
        let (shape, quantization) = files::read_config(path)?;
        let archives = files::open_archives(path)?;
        Checkpoint::assemble(shape, &quantization, archives)
    }

    /// A checkpoint inside the executable, checked like one on disk.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_static(config_json: &str, safetensors: &'static [u8]) -> Result<Checkpoint> {
        Checkpoint::from_bytes(config_json, safetensors)
    }

    /// A checkpoint in memory, checked like one on disk.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_bytes(config_json: &str, safetensors: impl Into<Cow<'static, [u8]>>) -> Result<Checkpoint> {
        let (shape, quantization) = config::parse_model(config_json, None)?;
        let archive = Archive::new("the built-in model".into(), ByteSource::Bytes(safetensors.into()))?;
        Checkpoint::assemble(shape, &quantization, vec![archive])
    }

    fn assemble(mut shape: Shape, quantization: &Quantization, files: Vec<Archive>) -> Result<Checkpoint> {
        let tensors = index::find_tensors(&mut shape, quantization, &files)?;
        let files = files.into_iter().map(|file| DataFile { label: file.label, bytes: file.bytes }).collect();
        let norms = shape.architecture.norms;
        Ok(Checkpoint { shape, source: dominant_source(&tensors), files, tensors, norms, drafter: None })
    }

    /// A checkpoint of opened GGUF files.
    ///
    /// # Errors
    /// [`Error::Input`]: the files are not a text model that Kiln runs, or a tensor is missing or wrong. The message
    /// has the file, the key or tensor, and the found and expected values.
    pub fn from_gguf(gguf: Gguf) -> Result<Checkpoint> {
        let (shape, tensors, files) = gguf.into_parts()?;
        let (source, norms) = (dominant_source(&tensors), NormWeights::OneAdded);
        Ok(Checkpoint { shape, source, files, tensors, norms, drafter: None })
    }

    /// The model's shape. [`Shape::tied`] is false if the files have a separate head, whatever the config says.
    /// Transformers 5 does not tie two tensors that are both in the checkpoint either.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The same model with one that drafts for it ([`Shape::backbone`]), from its keys and values.
    ///
    /// # Errors
    /// [`Error::Input`]: the drafter is another model's, or is no drafter.
    pub fn with_drafter(self, drafter: Checkpoint) -> Result<Checkpoint> {
        check_drafter(&self.shape, &drafter.shape)?;
        Ok(Checkpoint { drafter: Some(Box::new(drafter)), ..self })
    }

    /// The model that drafts for this one.
    pub fn drafter(&self) -> Option<&Checkpoint> {
        self.drafter.as_deref()
    }

    /// The format of most bytes of the matrices in the files.
    pub fn source(&self) -> SourceFormat {
        self.source
    }

    /// The format of a tensor in the files.
    ///
    /// # Panics
    /// If the model has no such tensor.
    pub fn stored_as(&self, id: TensorId) -> SourceFormat {
        self.stored(id).encoding.source()
    }

    /// The format of each matrix on a device if the user requests `asked`. It may differ: a quantised matrix may keep
    /// the file's format ([`WeightFormat::of_matrix`]).
    pub fn formats(&self, asked: WeightFormat) -> impl Fn(TensorId) -> WeightFormat + '_ {
        move |id| asked.of_matrix(id, &self.shape, Some(self.stored_as(id)))
    }

    /// Checks that every matrix can be read in its format for `format` ([`Checkpoint::formats`]).
    ///
    /// # Errors
    /// [`Error::Input`]: as [`WeightFormat::check_source`].
    pub fn check_format(&self, format: WeightFormat) -> Result<()> {
        let check = |source: SourceFormat, what: &dyn Fn() -> String| match source {
            SourceFormat::Blocks(_) => Ok(()),
            _ => format.check_source(source, what),
        };
        check(self.source, &|| "the checkpoint".into())?;
        TensorId::all(&self.shape).filter(|id| !id.is_vector()).try_for_each(|id| {
            let tensor = self.stored(id);
            check(tensor.encoding.source(), &|| format!("tensor {}", quote(&tensor.name)))
        })
    }

    /// Bytes of the model's tensors in the files, scales included; a load reads this much.
    pub fn stored_bytes(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.bytes() as u64).sum()
    }

    /// Reads rows of a matrix in `format`. Elements go to `data`, [`WeightFormat::row_bytes`] per row, and scales to
    /// `scales`, [`WeightFormat::scale_bytes`] per row.
    ///
    /// Rows that the file has in `format` are copied; blocks of a GGUF file's quantised types are split. Other rows are
    /// decoded to f32 and encoded.
    ///
    /// # Errors
    /// [`Error::Input`] with the tensor and the row: a value or scale is not finite or out of range, or `format` cannot
    /// be made from the source. [`Error::Failed`]: the file was cut short, or its disk fails.
    ///
    /// # Panics
    /// If `id` is a vector, `rows` is not within the matrix, or `data` or `scales` does not have the length of the
    /// rows.
    pub fn read_rows(
        &self,
        id: TensorId,
        rows: Range<usize>,
        format: WeightFormat,
        data: &mut [u8],
        scales: &mut [u8],
    ) -> Result<()> {
        let tensor = self.stored(id);
        let [height, cols] = id.dims(&self.shape);
        let (stride, scale_bytes) = (format.row_bytes(cols), format.scale_bytes(cols));
        assert!(!id.is_vector(), "{id:?} is a vector");
        assert!(rows.start <= rows.end && rows.end <= height, "rows {rows:?} of {height}");
        assert_eq!(data.len(), rows.len() * stride, "bytes for {} rows of {id:?}", rows.len());
        assert_eq!(scales.len(), rows.len() * scale_bytes, "bytes for the scales of {} rows of {id:?}", rows.len());
        format.check_source(tensor.encoding.source(), || format!("tensor {}", quote(&tensor.name)))?;
        let step = (READ / tensor.encoding.row_bytes(cols)).max(1);
        let (mut buffers, mut decoded) = (ReadBuffers::default(), vec![0f32; cols]);
        let (mut split, mut split_scales) = (Vec::new(), Vec::new());
        for part in tensor.runs(rows.clone(), step) {
            let (first, count) = (part.start - rows.start, part.len());
            let out = &mut data[first * stride..][..count * stride];
            let scales = &mut scales[first * scale_bytes..][..count * scale_bytes];
            let run = self.read_run(tensor, part, cols, &mut buffers)?;
            if let Encoding::Blocks(blocks) = &tensor.encoding {
                // First into ordinary memory: `data` may be a GPU's, which is slow to write in small parts, and very
                // slow to read.
                split.resize(count * stride, 0);
                split_scales.resize(count * scale_bytes, 0);
                let parts = split.chunks_exact_mut(stride).zip(split_scales.chunks_exact_mut(scale_bytes));
                for (i, (data, scales)) in parts.enumerate() {
                    let put = blocks.split_row(run.row(i), data, scales);
                    put.map_err(|what| self.bad_row(&run, i, &what))?;
                }
                out.copy_from_slice(&split);
                scales.copy_from_slice(&split_scales);
                continue;
            }
            for (i, out) in out.chunks_exact_mut(stride).enumerate() {
                let scales = &mut scales[i * scale_bytes..(i + 1) * scale_bytes];
                let put = match &tensor.encoding {
                    Encoding::Native(native, _) if *native == format => {
                        format.copy_row(run.row(i), run.row_scales(i), out, scales)
                    }
                    Encoding::Int8Bf16(_) if format == WeightFormat::Int8 => {
                        format.copy_row(run.row(i), &encoding::widen_scale(run.row_scales(i)), out, scales)
                    }
                    _ => run.decode_row(i, &mut decoded).and_then(|()| format.encode_row(&decoded, out, scales)),
                };
                put.map_err(|what| self.bad_row(&run, i, &what))?;
            }
        }
        Ok(())
    }

    /// A vector in f32, decoded from any encoding; of a norm the weights w (RMSNorm multiplies by 1 + w).
    ///
    /// # Errors
    /// [`Error::Input`] with the tensor: a value is not finite.
    ///
    /// # Panics
    /// If `id` is a matrix.
    pub fn read_vector(&self, id: TensorId) -> Result<Vec<f32>> {
        assert!(id.is_vector(), "{id:?} is a matrix");
        let [_, len] = id.dims(&self.shape);
        let mut out = vec![0f32; len];
        let mut buffers = ReadBuffers::default();
        let run = self.read_run(self.stored(id), 0..1, len, &mut buffers)?;
        run.decode_row(0, &mut out).map_err(|what| self.bad_row(&run, 0, &what))?;
        if id.is_norm() && self.norms == NormWeights::OneAdded {
            // If 1 was added in f32 without rounding, this restores w without rounding.
            out.iter_mut().for_each(|w| *w -= 1.0);
        }
        Ok(out)
    }

    /// Drops these rows' pages from memory and from the page cache. A load that leaves 27 GB of them behind pushes out
    /// everything else. The rows can be read again from the disk.
    pub fn release(&self, id: TensorId, rows: Range<usize>) {
        let tensor = self.stored(id);
        let [height, cols] = id.dims(&self.shape);
        assert!(rows.start <= rows.end && rows.end <= height, "rows {rows:?} of {height}");
        let bytes = tensor.encoding.row_bytes(cols);
        let start = tensor.elements.range.start;
        for part in tensor.runs(rows.clone(), rows.len()) {
            let Range { start: first, end } = tensor.place(part);
            self.files[tensor.elements.file].bytes.release(&(start + first * bytes..start + end * bytes));
        }
    }

    /// The tensor of `id`. Opening has found every tensor of the shape, so only the layer of another model can be
    /// missing.
    fn stored(&self, id: TensorId) -> &StoredTensor {
        let id = if id == TensorId::Head && self.shape.tied { TensorId::Embedding } else { id };
        self.tensors.get(&id).unwrap_or_else(|| panic!("the model has no {id:?}"))
    }

    /// Reads rows of `cols` elements that follow one another in their file, with the scales that they need.
    fn read_run<'a>(
        &'a self,
        tensor: &'a StoredTensor,
        rows: Range<usize>,
        cols: usize,
        buffers: &'a mut ReadBuffers,
    ) -> Result<StoredRows<'a>> {
        let part = |of: &encoding::ByteRange, part: Range<usize>| {
            let start = of.range.start;
            (&self.files[of.file].bytes, start + part.start..start + part.end)
        };
        let rows = tensor.place(rows);
        let row_bytes = tensor.encoding.row_bytes(cols);
        let (source, range) = part(&tensor.elements, rows.start * row_bytes..rows.end * row_bytes);
        let bytes = source.read(range, &mut buffers.elements)?;
        let scales = match tensor.encoding.scales() {
            Some(all) => {
                let (source, range) = part(all, tensor.encoding.scales_of(&rows, cols));
                source.read(range, &mut buffers.scales)?
            }
            None => &[],
        };
        Ok(StoredRows { tensor, first: rows.start, cols, bytes, scales })
    }

    fn bad_row(&self, run: &StoredRows, i: usize, what: &str) -> Error {
        let (tensor, row) = (run.tensor, run.first + i);
        let file = &self.files[tensor.elements.file].label;
        let cause = format!("{file}: tensor {} holds {what} in row {row}", quote(&tensor.name));
        Error::input(cause, "download the file again, or export the model anew")
    }
}

/// Checks that a model drafts for another one: it reads that one's keys and values, and has its tokens.
///
/// # Errors
/// [`Error::Input`], with the first size that differs.
pub fn check_drafter(model: &Shape, drafter: &Shape) -> Result<()> {
    let remedy = || text!("give the drafter that was made for the model, or leave out ", Setting::Draft);
    let Some(backbone) = drafter.backbone else {
        return Err(Error::input("the draft model is a model of its own, and no drafter", remedy()));
    };
    let title = model.architecture.title;
    if *model.architecture != GEMMA4 {
        let cause = format!("the draft model is {}, which drafts for no {title}", drafter.architecture.title);
        return Err(Error::input(cause, remedy()));
    }
    let of = |kind: LayerKind| [model.attention(kind), drafter.attention(kind)];
    let heads = |kind: LayerKind, what: &'static str| {
        let [model, drafter] = of(kind);
        [(what, model.kv_heads, drafter.kv_heads), ("a head's width", model.head_dim, drafter.head_dim)]
    };
    let sizes = [("the width", model.hidden, backbone), ("the vocabulary", model.vocab, drafter.vocab)];
    let heads = [heads(LayerKind::Local, "local KV heads"), heads(LayerKind::Global, "global KV heads")];
    let window = ("the window", model.window(), drafter.window());
    let differs = sizes.into_iter().chain(heads.into_iter().flatten()).chain([window]).find(|(_, a, b)| a != b);
    if let Some((what, model, drafter)) = differs {
        let cause =
            format!("the drafter is another model's: {what} is {model} in the model and {drafter} in the drafter");
        return Err(Error::input(cause, remedy()));
    }
    match LayerKind::ALL.into_iter().find(|kind| of(*kind)[0].rope != of(*kind)[1].rope) {
        Some(kind) => {
            let cause = format!("the drafter is another model's: its {} layers turn by another RoPE", kind.name());
            Err(Error::input(cause, remedy()))
        }
        None => Ok(()),
    }
}

/// The buffers that a thread reads a file into.
#[derive(Default)]
struct ReadBuffers {
    elements: Vec<u8>,
    scales: Vec<u8>,
}

/// Rows of one tensor in their stored encoding.
struct StoredRows<'a> {
    tensor: &'a StoredTensor,
    /// Index of the first of these rows in the file's tensor.
    first: usize,
    cols: usize,
    bytes: &'a [u8],
    /// The bytes of the scales of these rows ([`Encoding::scales_of`]).
    scales: &'a [u8],
}

impl StoredRows<'_> {
    /// The bytes of the elements of row `i`.
    fn row(&self, i: usize) -> &[u8] {
        let len = self.tensor.encoding.row_bytes(self.cols);
        &self.bytes[i * len..(i + 1) * len]
    }

    /// The bytes of one row's scales, or of all rows' if rows share scales.
    fn row_scales(&self, i: usize) -> &[u8] {
        match self.tensor.encoding.row_scale_bytes(self.cols) {
            Some(len) => &self.scales[i * len..(i + 1) * len],
            None => self.scales,
        }
    }

    fn decode_row(&self, i: usize, out: &mut [f32]) -> std::result::Result<(), BadRow> {
        // The scales begin with the group of the first row's first element.
        let first = self.first * self.cols % GROUP + i * self.cols;
        self.tensor.encoding.decode_row(self.row(i), self.row_scales(i), first, out)
    }
}

/// The format of most bytes of the matrices.
fn dominant_source(tensors: &HashMap<TensorId, StoredTensor>) -> SourceFormat {
    let mut bytes: BTreeMap<SourceFormat, usize> = BTreeMap::new();
    for (_, tensor) in tensors.iter().filter(|(id, _)| !id.is_vector()) {
        *bytes.entry(tensor.encoding.source()).or_default() += tensor.element_bytes();
    }
    let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
    most.map_or(SourceFormat::F32, |(source, _)| source)
}
