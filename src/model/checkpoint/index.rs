//! Finds each tensor of a shape in a checkpoint's files and checks its name, dimensions and encoding. The resulting
//! byte ranges can be decoded without further checks of the header.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use safetensors::Dtype;

use crate::display::quote;
use crate::model::checkpoint::archive::{Archive, FileDtype, TensorEntry};
use crate::model::checkpoint::encoding::{ByteRange, Encoding, GROUP, Scheme, f32_at};
use crate::model::checkpoint::keys::{self, SCALE_SUFFIX, ZERO_POINT_SUFFIX};
use crate::model::config::Quantization;
use crate::model::format::WeightFormat;
use crate::model::shape::Shape;
use crate::model::tensor::{self, Half, TensorId};
use crate::{Error, Result};

const REMEDY: &str = "download the model again, or export it anew";

/// The remedy for matrices that are quantised in an unsupported scheme.
const REMEDY_SCHEMES: &str = "use the model in BF16, in INT8 of llm-compressor (w8a8), or as a GGUF file";

/// A tensor of the model, located in the files.
#[derive(Debug)]
pub(crate) struct StoredTensor {
    /// The tensor's name in the file.
    pub(crate) name: String,
    /// The range of the elements' bytes, row-major without padding.
    pub(crate) elements: ByteRange,
    /// How the elements are encoded.
    pub(crate) encoding: Encoding,
    /// Which rows of the file's tensor are this matrix's, if the tensor has another matrix too.
    pub(crate) half: Option<Half>,
}

impl StoredTensor {
    /// The size of the matrix's or vector's elements in bytes.
    pub(crate) fn element_bytes(&self) -> usize {
        self.share(self.elements.range.len())
    }

    /// Bytes of the matrix's or vector's elements and scales.
    pub(crate) fn bytes(&self) -> usize {
        self.element_bytes() + self.encoding.scales().map_or(0, |scales| self.share(scales.range.len()))
    }

    /// The matrix's share of `bytes` of the file's tensor, which may hold two matrices.
    fn share(&self, bytes: usize) -> usize {
        if self.half.is_some() { bytes / 2 } else { bytes }
    }

    /// The rows of the file's tensor that are these rows of the matrix, which follow one another there.
    pub(crate) fn place(&self, rows: Range<usize>) -> Range<usize> {
        let start = self.half.map_or(rows.start, |half| half.place(rows.start));
        start..start + rows.len()
    }

    /// [`tensor::runs`] of rows of the matrix.
    pub(crate) fn runs(&self, rows: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        tensor::runs(self.half, rows, most)
    }
}

/// Finds and checks every tensor of `shape`. Sets [`Shape::tied`] to false if the files have a separate head.
pub(crate) fn find_tensors(
    shape: &mut Shape,
    quantization: &Quantization,
    files: &[Archive],
) -> Result<HashMap<TensorId, StoredTensor>> {
    let names = TensorNames::collect(files)?;
    let found = names.by_role(shape)?;
    if found.contains_key(&TensorId::Head) {
        shape.tied = false;
    }
    let mut tensors = HashMap::with_capacity(found.len());
    for id in TensorId::all(shape) {
        let stored =
            found.get(&id.holder()).ok_or_else(|| names.missing(id, files)).and_then(|&at| names.check(id, at, shape));
        // Matrices that such a scheme has left in floating point are read. A quantised one may look like one of another
        // scheme.
        let is_foreign = stored.as_ref().map_or(true, |stored| stored.encoding.source().is_quantized());
        if let Quantization::Other(scheme) = quantization
            && is_foreign
        {
            let cause = format!("{} is quantised by {scheme}, which Kiln does not read", files[0].label);
            return Err(Error::input(cause, REMEDY_SCHEMES));
        }
        tensors.insert(id, stored?);
    }
    Ok(tensors)
}

/// A tensor's file, and its index among that file's entries.
#[derive(Debug, Clone, Copy)]
struct At {
    file: usize,
    entry: usize,
}

/// The names of all tensors in all files.
struct TensorNames<'a> {
    files: &'a [Archive],
    all: HashMap<&'a str, At>,
}

impl<'a> TensorNames<'a> {
    /// # Errors
    /// Input: two files have the same name.
    fn collect(files: &'a [Archive]) -> Result<TensorNames<'a>> {
        let mut all: HashMap<&str, At> = HashMap::new();
        for (file, archive) in files.iter().enumerate() {
            for (entry, tensor) in archive.header.entries.iter().enumerate() {
                if let Some(other) = all.insert(&tensor.name, At { file, entry }) {
                    let (a, b) = (&files[other.file].label, &archive.label);
                    let cause = format!("tensor {} is in {a} and in {b}", quote(&tensor.name));
                    return Err(Error::input(cause, "leave only one model's files in the directory"));
                }
            }
        }
        Ok(TensorNames { files, all })
    }

    fn entry(&self, at: At) -> &'a TensorEntry {
        &self.files[at.file].header.entries[at.entry]
    }

    /// Finds the tensors of the text model.
    ///
    /// # Errors
    /// Input: two names stand for the same tensor.
    fn by_role(&self, shape: &Shape) -> Result<HashMap<TensorId, At>> {
        let mut found: HashMap<TensorId, At> = HashMap::new();
        let mut beyond = 0;
        for (&name, &at) in &self.all {
            let Some(id) = keys::identify(name) else { continue };
            if matches!(id, TensorId::Layer(layer, _) if layer >= shape.layers.len()) {
                beyond += 1;
                continue;
            }
            match found.entry(id) {
                Entry::Vacant(slot) => {
                    slot.insert(at);
                }
                Entry::Occupied(slot) => {
                    let other = &self.entry(*slot.get()).name;
                    let (a, b) = if other.as_str() < name { (other.as_str(), name) } else { (name, other.as_str()) };
                    let cause = format!("{} and {} are the same tensor of the model", quote(a), quote(b));
                    return Err(Error::input(cause, "leave only one model's files in the directory"));
                }
            }
        }
        if beyond > 0 {
            log::warn!("{beyond} tensors belong to layers past the config's {}; they are not used", shape.layers.len());
        }
        Ok(found)
    }

    fn missing(&self, id: TensorId, files: &[Archive]) -> Error {
        let wanted = id.name();
        let closest = keys::closest(&wanted, self.all.keys().copied());
        let closest: Vec<String> = closest.into_iter().map(quote).collect();
        let count = files.len();
        let near = if closest.is_empty() {
            "the files hold no name like it".to_owned()
        } else {
            format!("the closest names there are {}", closest.join(", "))
        };
        let remedy = match id {
            TensorId::Head => "set tie_word_embeddings in config.json, or add the file that holds the head",
            _ => "add the file that holds it, or correct config.json",
        };
        let files = if count == 1 { "1 file".into() } else { format!("{count} files") };
        Error::input(format!("tensor {wanted} is missing from the model's {files}; {near}"), remedy)
    }

    /// Checks the dimensions and the encoding of one tensor.
    fn check(&self, id: TensorId, at: At, shape: &Shape) -> Result<StoredTensor> {
        let entry = self.entry(at);
        let [rows, cols] = id.file_rows(shape);
        let dtype = self.dtype(at)?;
        let scheme = self.scheme(at)?.filter(|_| !id.is_router());
        let native = native_format(dtype, cols).filter(|_| scheme.is_none() && !id.is_vector());
        let wanted = match native {
            Some(format) => id.file_dims(shape, format.file_shape(rows, cols)),
            None if id.is_vector() => vec![cols],
            None => id.file_dims(shape, vec![rows, cols]),
        };
        // The earlier engine groups the flattened tensor, and may have stored it flat.
        let flat = scheme.is_some() && entry.shape == [rows * cols];
        if entry.shape != wanted && !flat {
            return Err(self.wrong(at, &format!("has shape {}; config.json wants {wanted:?}", dims(&entry.shape))));
        }
        let encoding = match scheme {
            Some(scheme) => self.check_scheme(at, scheme, rows * cols)?,
            None => self.check_plain(id, at, dtype, shape)?,
        };
        let elements = ByteRange { file: at.file, range: entry.range.clone() };
        Ok(StoredTensor { name: entry.name.clone(), elements, encoding, half: id.half(shape) })
    }

    /// Checks a tensor without a scheme, and returns its encoding.
    fn check_plain(&self, id: TensorId, at: At, dtype: Dtype, shape: &Shape) -> Result<Encoding> {
        let [rows, cols] = id.file_rows(shape);
        match (dtype, native_format(dtype, cols)) {
            (Dtype::F16, _) => Ok(Encoding::F16),
            (Dtype::F32, _) => Ok(Encoding::F32),
            (_, Some(format)) if !(id.is_never_quantized() && format.is_quantized()) => {
                let Some((dtype, wanted)) = format.file_scales(rows, cols) else {
                    return Ok(Encoding::Native(format, None));
                };
                self.native_scales(at, format, rows, (dtype, id.file_dims(shape, wanted)))
            }
            _ => Err(self.wrong(at, &format!("is {dtype}; wanted {}", readable_dtypes(id, cols)))),
        }
    }

    /// The encoding of a tensor in one of Kiln's formats with scales, or in llm-compressor's INT8: the latter's scales
    /// may be BF16, and may have a second dimension of 1.
    fn native_scales(
        &self,
        at: At,
        format: WeightFormat,
        rows: usize,
        (dtype, wanted): (Dtype, Vec<usize>),
    ) -> Result<Encoding> {
        let is_by_row = format == WeightFormat::Int8;
        let types: &[Dtype] = if is_by_row { &[dtype, Dtype::BF16] } else { &[dtype] };
        let (scales, shape, found) = self.scale(at, types)?;
        let is_column = is_by_row && shape.strip_suffix(&[1]) == Some(&wanted);
        if shape != wanted && !is_column {
            let per = if is_by_row { "row" } else { "group" };
            let what = format!("has scales of shape {}; wanted one per {per}, {wanted:?}", dims(shape));
            return Err(self.wrong(at, &what));
        }
        self.refuse_zero_points(at, rows)?;
        Ok(if found == dtype { Encoding::Native(format, Some(scales)) } else { Encoding::Int8Bf16(scales) })
    }

    /// Some versions of llm-compressor write the zero points of symmetric scales, which are all 0.
    fn refuse_zero_points(&self, at: At, rows: usize) -> Result<()> {
        let name = format!("{}{ZERO_POINT_SUFFIX}", self.entry(at).name);
        let Some(&zero) = self.all.get(name.as_str()) else { return Ok(()) };
        let (entry, mut buffer) = (self.entry(zero), Vec::new());
        self.dtype(zero)?;
        if entry.shape.iter().product::<usize>() != rows {
            return Err(self.wrong(zero, &format!("has shape {}; wanted one per row, [{rows}]", dims(&entry.shape))));
        }
        match self.files[zero.file].bytes.read(entry.range.clone(), &mut buffer)?.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => {
                let cause =
                    format!("{}: tensor {} has zero points", self.files[at.file].label, quote(&self.entry(at).name));
                Err(Error::input(cause, REMEDY_SCHEMES))
            }
        }
    }

    /// The earlier engine's scheme for a tensor, from its file's metadata.
    fn scheme(&self, at: At) -> Result<Option<Scheme>> {
        let name = self.entry(at).name.as_str();
        let metadata = &self.files[at.file].header.metadata;
        let Some(word) = metadata.get(name).or_else(|| metadata.get(keys::without_layer_prefix(name))) else {
            return Ok(None);
        };
        match Scheme::parse(word) {
            Some(scheme) => Ok(Some(scheme)),
            None => Err(self.wrong(at, &format!("has the unknown scheme {}", quote(word)))),
        }
    }

    /// Checks the element type and scales of a tensor of `elements` in a scheme.
    fn check_scheme(&self, at: At, scheme: Scheme, elements: usize) -> Result<Encoding> {
        let (wanted, count) = match scheme {
            Scheme::Int8Symmetric => (Dtype::I8, 1),
            Scheme::Int4Grouped => (Dtype::I8, elements.div_ceil(GROUP)),
            Scheme::Int8Asymmetric => (Dtype::U8, 2),
        };
        let dtype = self.dtype(at)?;
        if dtype != wanted {
            return Err(self.wrong(at, &format!("is {dtype}; its scheme wants {wanted}")));
        }
        let (scales, shape, _) = self.scale(at, &[Dtype::F32])?;
        if scales.range.len() / 4 != count {
            let what = format!("has scales of shape {}; its scheme wants {count} of them", dims(shape));
            return Err(self.wrong(at, &what));
        }
        let (range, mut buffer) = (scales.range.clone(), Vec::new());
        let bytes = self.files[scales.file].bytes.read(range.start..range.end.min(range.start + 8), &mut buffer)?;
        let first = f32_at(bytes, 0);
        if scheme != Scheme::Int4Grouped && !(first.is_finite() && first >= 0.0) {
            return Err(self.wrong(at, &format!("has the scale {first}")));
        }
        match scheme {
            Scheme::Int8Symmetric => Ok(Encoding::Symmetric(first)),
            Scheme::Int4Grouped => Ok(Encoding::Grouped(scales)),
            Scheme::Int8Asymmetric => {
                let zero = f32_at(bytes, 1);
                if !zero.is_finite() {
                    return Err(self.wrong(at, &format!("has the zero point {zero}")));
                }
                Ok(Encoding::Asymmetric { scale: first, zero })
            }
        }
    }

    /// Bytes, shape and type of a tensor's scales, which must be of one of these types.
    fn scale(&self, at: At, types: &[Dtype]) -> Result<(ByteRange, &'a [usize], Dtype)> {
        let name = format!("{}{SCALE_SUFFIX}", self.entry(at).name);
        let Some(&scale) = self.all.get(name.as_str()) else {
            let what = format!("is {}, but its scales {} are missing", self.entry(at).dtype, quote(&name));
            return Err(self.wrong(at, &what));
        };
        let entry = self.entry(scale);
        let found = self.dtype(scale)?;
        if !types.contains(&found) {
            let types: Vec<String> = types.iter().map(Dtype::to_string).collect();
            return Err(self.wrong(scale, &format!("is {found}; scales are {}", types.join(" or "))));
        }
        Ok((ByteRange { file: scale.file, range: entry.range.clone() }, &entry.shape, found))
    }

    /// The type of a tensor that the model needs. Refuses unknown types.
    fn dtype(&self, at: At) -> Result<Dtype> {
        match &self.entry(at).dtype {
            FileDtype::Known(dtype) => Ok(*dtype),
            unknown => Err(self.wrong(at, &format!("has the unknown type {unknown}"))),
        }
    }

    fn wrong(&self, at: At, what: &str) -> Error {
        let cause = format!("{}: tensor {} {what}", self.files[at.file].label, quote(&self.entry(at).name));
        Error::input(cause, REMEDY)
    }
}

/// The format of a matrix whose elements have the type `dtype`, in rows of `cols`.
fn native_format(dtype: Dtype, cols: usize) -> Option<WeightFormat> {
    WeightFormat::from_file_dtype(dtype).filter(|format| format.holds(cols))
}

/// The element types that a tensor of the model may have, in rows of `cols`, for an error: `BF16, F16, F32 or I8 with
/// scales`.
fn readable_dtypes(id: TensorId, cols: usize) -> String {
    let formats = |quantized: bool| {
        let is_such = move |format: &WeightFormat| format.is_quantized() == quantized && format.holds(cols);
        let formats = WeightFormat::MADE.into_iter().filter(is_such);
        formats.map(move |format| format!("{}{}", format.file_dtype(), if quantized { " with scales" } else { "" }))
    };
    let mut names: Vec<String> = formats(false).chain(["F16".into(), "F32".into()]).collect();
    if !id.is_never_quantized() {
        names.extend(formats(true));
    }
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

/// A shape from a file as text, with at most its first eight dimensions.
fn dims(shape: &[usize]) -> String {
    if shape.len() > 8 { format!("{:?}… ({} dimensions)", &shape[..8], shape.len()) } else { format!("{shape:?}") }
}
