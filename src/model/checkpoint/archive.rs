//! One safetensors file, checked: a little-endian u64 (the header's length), a JSON header, the tensors' bytes.
//!
//! The safetensors crate checks the header: element types, sizes, and that tensors follow one another without gap or
//! overlap. This module checks the rest: a name given twice, and the length of a file of which only the header is read.
//! It also accepts element types newer than the crate, and its errors name the tensor and the numbers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};
use serde::de::value::{Error as UnknownWord, StrDeserializer};
use serde::de::{Deserialize, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use crate::display::quote;
use crate::model::checkpoint::byte_source::ByteSource;
use crate::{Error, Result};

/// The longest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;
/// Most tensors of a file. Each needs several times its header text in memory; Gemma 3 27B has 1,247.
const MAX_TENSORS: usize = 1 << 16;
/// The most dimensions that a tensor may have.
const MAX_DIMENSIONS: usize = 64;

const REMEDY: &str = "download the file again, or export the model anew";

/// A tensor's element type, as its file declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDtype {
    /// A type that safetensors defines.
    Known(Dtype),
    /// A word that the crate does not know. Such a tensor is accepted unless the model needs it.
    Unknown(String),
}

impl fmt::Display for FileDtype {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            FileDtype::Known(dtype) => dtype.fmt(f),
            FileDtype::Unknown(word) => f.write_str(&quote(word)),
        }
    }
}

/// One tensor of a file. Its byte range lies within the file. If its type is known, the range is as long as type and
/// shape say.
#[derive(Debug, Clone)]
pub struct TensorEntry {
    /// The tensor's name.
    pub name: String,
    /// The type of the tensor's elements.
    pub dtype: FileDtype,
    /// The tensor's dimensions, row-major.
    pub shape: Vec<usize>,
    /// The range of the tensor's bytes, from the start of the file.
    pub range: Range<usize>,
}

/// A checked header: the file's tensors by position, and its free-form metadata.
#[derive(Debug)]
pub struct SafetensorsHeader {
    /// Tensors in the order of their bytes, without gap or overlap.
    pub entries: Vec<TensorEntry>,
    /// The file's `__metadata__`.
    pub metadata: HashMap<String, String>,
}

impl SafetensorsHeader {
    /// Parses and checks the header of a file of `len` bytes. `head` is the start of the file and contains at least the
    /// header. `label` names the file in errors.
    ///
    /// # Errors
    /// [`Error::Input`] with the file, the tensor if there is one, and the found and expected values.
    pub fn parse(label: &str, head: &[u8], len: usize) -> Result<SafetensorsHeader> {
        let wrong = |what: String| Error::input(format!("{label}: {what}"), REMEDY);
        let Some((length, rest)) = head.split_first_chunk::<8>() else {
            return Err(wrong(format!("{len} bytes are too few for a safetensors file; it is truncated")));
        };
        let length = u64::from_le_bytes(*length);
        if length > MAX_HEADER {
            return Err(wrong(format!("a header of {length} bytes; the format allows {MAX_HEADER}")));
        }
        let Some(json) = rest.get(..length as usize) else {
            let cause = format!("its header has {length} bytes, but {} are left; it is truncated", len - 8);
            return Err(wrong(cause));
        };
        let raw: RawHeader =
            serde_json::from_slice(json).map_err(|e| wrong(quote(&format!("its header is not valid: {e}"))))?;
        raw.check(8 + json.len(), len).map_err(wrong)
    }
}

/// The contents of a header before they are checked.
struct RawHeader {
    tensors: HashMap<String, RawTensor>,
    metadata: HashMap<String, String>,
}

#[derive(serde::Deserialize)]
struct RawTensor {
    dtype: String,
    #[serde(deserialize_with = "dimensions")]
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// Reads a shape of limited length: it is copied, and would need many times its text.
fn dimensions<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<usize>, D::Error> {
    struct Dimensions;

    impl<'de> Visitor<'de> for Dimensions {
        type Value = Vec<usize>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list of dimensions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Vec<usize>, A::Error> {
            let mut shape = Vec::new();
            while let Some(dimension) = list.next_element()? {
                if shape.len() == MAX_DIMENSIONS {
                    return Err(A::Error::custom(format_args!("a tensor has more than {MAX_DIMENSIONS} dimensions")));
                }
                shape.push(dimension);
            }
            Ok(shape)
        }
    }

    deserializer.deserialize_seq(Dimensions)
}

impl RawTensor {
    fn dtype(&self) -> FileDtype {
        let word: StrDeserializer<UnknownWord> = self.dtype.as_str().into_deserializer();
        Dtype::deserialize(word).map_or_else(|_| FileDtype::Unknown(self.dtype.clone()), FileDtype::Known)
    }

    /// The tensor for the crate's checks. A tensor of an unknown type counts as its bytes.
    fn info(&self) -> TensorInfo {
        let (start, end) = self.data_offsets;
        match self.dtype() {
            FileDtype::Known(dtype) => TensorInfo { dtype, shape: self.shape.clone(), data_offsets: self.data_offsets },
            FileDtype::Unknown(_) => {
                TensorInfo { dtype: Dtype::U8, shape: vec![end.saturating_sub(start)], data_offsets: self.data_offsets }
            }
        }
    }
}

impl RawHeader {
    /// Checks the tensors of a file of `len` bytes whose data begin at byte `base`.
    fn check(self, base: usize, len: usize) -> std::result::Result<SafetensorsHeader, String> {
        let mut tensors: Vec<(String, RawTensor)> = self.tensors.into_iter().collect();
        tensors.sort_by(|(a, x), (b, y)| (x.data_offsets, a).cmp(&(y.data_offsets, b)));
        let infos: Vec<(String, TensorInfo)> = tensors.iter().map(|(name, raw)| (name.clone(), raw.info())).collect();
        let checked = Metadata::new(None, infos.clone()).map_err(|e| explain(&infos, &e))?;
        let (wanted, there) = (checked.data_len(), len.saturating_sub(base));
        if wanted > there {
            return Err(format!("its tensors take {wanted} bytes, but {there} are there; it is truncated"));
        }
        if wanted < there {
            return Err(format!("{} bytes after the last tensor belong to no tensor", there - wanted));
        }
        let entry = |(name, raw): (String, RawTensor)| {
            let (start, end) = raw.data_offsets;
            TensorEntry { name, dtype: raw.dtype(), shape: raw.shape, range: base + start..base + end }
        };
        Ok(SafetensorsHeader { entries: tensors.into_iter().map(entry).collect(), metadata: self.metadata })
    }
}

/// Explains the crate's refusal of a tensor, with its numbers. `tensors` are sorted by offset.
fn explain(tensors: &[(String, TensorInfo)], error: &SafeTensorError) -> String {
    let mut previous = ("the header", 0);
    for (name, info) in tensors {
        let quoted = quote(name);
        let (start, end) = info.data_offsets;
        let (dtype, shape) = (info.dtype, Brief(&info.shape));
        if i64::try_from(end).is_err() {
            return format!("tensor {quoted} lies at byte {end}, past any file");
        }
        let bits = info.shape.iter().try_fold(dtype.bitsize(), |product, n| product.checked_mul(*n));
        let Some(bits) = bits else { return format!("the size of tensor {quoted}, shape {shape:?}, overflows") };
        if !bits.is_multiple_of(8) {
            return format!("tensor {quoted}, {dtype} of shape {shape:?}, ends within a byte");
        }
        if end.checked_sub(start) != Some(bits / 8) {
            return format!(
                "tensor {quoted} is at bytes {start}..{end}, but {dtype} of shape {shape:?} has {}",
                bits / 8
            );
        }
        if start < previous.1 {
            return format!("tensors {} and {quoted} overlap", quote(previous.0));
        }
        if start > previous.1 {
            return format!("{} bytes before tensor {quoted} belong to no tensor", start - previous.1);
        }
        previous = (name, end);
    }
    quote(&format!("its header is not valid: {error}"))
}

/// The first dimensions of a shape, since an untrusted header may have thousands.
struct Brief<'a>(&'a [usize]);

impl fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..8) {
            Some(first) if self.0.len() > 8 => write!(f, "{first:?}…"),
            _ => write!(f, "{:?}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(RawVisitor)
    }
}

/// The free-form texts of a header, limited in number like tensors.
struct Texts(HashMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Texts, A::Error> {
        let mut texts = HashMap::new();
        while let Some((name, text)) = map.next_entry()? {
            if texts.len() == MAX_TENSORS {
                return Err(A::Error::custom(format_args!("it has more than {MAX_TENSORS} texts of metadata")));
            }
            texts.insert(name, text);
        }
        Ok(Texts(texts))
    }
}

/// Reads the header's map key by key. A map type would silently keep the last of two equal names.
struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RawHeader, A::Error> {
        let mut header = RawHeader { tensors: HashMap::new(), metadata: HashMap::new() };
        while let Some(key) = map.next_key::<String>()? {
            if key == "__metadata__" {
                header.metadata = map.next_value::<Texts>()?.0;
                continue;
            }
            if header.tensors.len() == MAX_TENSORS {
                return Err(A::Error::custom(format_args!("it has more than {MAX_TENSORS} tensors")));
            }
            match header.tensors.entry(key) {
                Entry::Vacant(slot) => {
                    slot.insert(map.next_value()?);
                }
                Entry::Occupied(slot) => {
                    return Err(A::Error::custom(format_args!("tensor {} is there twice", quote(slot.key()))));
                }
            }
        }
        Ok(header)
    }
}

/// A checked file with its bytes.
#[derive(Debug)]
pub(crate) struct Archive {
    /// The file's name in messages.
    pub(crate) label: String,
    /// The checked header of the file.
    pub(crate) header: SafetensorsHeader,
    /// The bytes. Every entry's range is within them.
    pub(crate) bytes: ByteSource,
}

impl Archive {
    /// Opens a file and checks its header. Nothing else is read.
    pub(crate) fn open(path: &Path) -> Result<Archive> {
        Archive::new(path.display().to_string(), ByteSource::open(path)?)
    }

    /// Checks the header of bytes in memory or of an open file.
    pub(crate) fn new(label: String, bytes: ByteSource) -> Result<Archive> {
        let (len, mut buffer) = (bytes.len(), Vec::new());
        let length = bytes.read(0..len.min(8), &mut buffer)?.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let end = len.min(8 + length.min(MAX_HEADER) as usize);
        let header = SafetensorsHeader::parse(&label, bytes.read(0..end, &mut buffer)?, len)?;
        Ok(Archive { label, header, bytes })
    }
}
