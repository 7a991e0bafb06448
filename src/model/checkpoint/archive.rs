//! One safetensors file, checked: a little-endian u64 (the header's length), a JSON header, the tensors' bytes.
//!
//! The header is parsed here and not by the safetensors crate because each way in which a file can be wrong has to
//! name the tensor and the numbers, a name given twice has to be found, and the end of the last tensor has to be
//! compared without an addition that can wrap.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::display::quote;
use crate::model::checkpoint::contents::Contents;
use crate::{Error, Result};

/// The longest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;

const REMEDY: &str = "download the file again, or export the model anew";

/// The type of a tensor's elements, as a file declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dtype {
    /// bfloat16
    Bf16,
    /// IEEE half
    F16,
    /// IEEE single
    F32,
    /// signed byte
    I8,
    /// unsigned byte
    U8,
    /// Another type of the format with its name; nothing that Kiln reads has it.
    Other(String),
}

impl Dtype {
    /// The type and the bytes of one element; `None` for a word that the format does not have, or one of less than a
    /// byte.
    fn parse(word: &str) -> Option<(Dtype, u64)> {
        Some(match word {
            "BF16" => (Dtype::Bf16, 2),
            "F16" => (Dtype::F16, 2),
            "F32" => (Dtype::F32, 4),
            "I8" => (Dtype::I8, 1),
            "U8" => (Dtype::U8, 1),
            "BOOL" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => (Dtype::Other(word.to_owned()), 1),
            "I16" | "U16" => (Dtype::Other(word.to_owned()), 2),
            "I32" | "U32" => (Dtype::Other(word.to_owned()), 4),
            "I64" | "U64" | "F64" | "C64" => (Dtype::Other(word.to_owned()), 8),
            _ => return None,
        })
    }

    /// The format's word: `BF16`.
    pub fn name(&self) -> &str {
        match self {
            Dtype::Bf16 => "BF16",
            Dtype::F16 => "F16",
            Dtype::F32 => "F32",
            Dtype::I8 => "I8",
            Dtype::U8 => "U8",
            Dtype::Other(name) => name,
        }
    }
}

/// One tensor of a file. Its byte range lies within the file and is as long as its type and shape say.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The tensor's name.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Dimensions, row-major. Their product does not overflow.
    pub shape: Vec<usize>,
    /// Bytes, from the start of the file.
    pub range: Range<usize>,
}

/// A checked header: the file's tensors by position, and its free-form metadata.
#[derive(Debug)]
pub struct Header {
    /// Tensors in the order of their bytes, without gap or overlap.
    pub entries: Vec<Entry>,
    /// `__metadata__`.
    pub metadata: HashMap<String, String>,
}

impl Header {
    /// Parses and checks the header of a file of `len` bytes, of which `head` holds the first: the header, or more.
    /// `label` names the file in errors.
    ///
    /// # Errors
    /// [`Error::Input`] that names the file, the tensor where there is one, and what was found and wanted.
    pub fn parse(label: &str, head: &[u8], len: usize) -> Result<Header> {
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
        let base = 8 + json.len();
        let mut entries = Vec::with_capacity(raw.tensors.len());
        for (name, tensor) in raw.tensors {
            entries.push(check_entry(&wrong, name, tensor, base)?);
        }
        entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
        check_cover(&wrong, &entries, base, len)?;
        Ok(Header { entries, metadata: raw.metadata })
    }
}

/// Type, shape and offsets of one tensor agree; its range is moved from the data section to the file.
fn check_entry(wrong: &dyn Fn(String) -> Error, name: String, raw: RawTensor, base: usize) -> Result<Entry> {
    let quoted = quote(&name);
    let Some((dtype, size)) = Dtype::parse(&raw.dtype) else {
        return Err(wrong(format!("tensor {quoted} has the unknown type {}", quote(&raw.dtype))));
    };
    let bytes = raw.shape.iter().try_fold(size, |product, n| product.checked_mul(*n));
    let Some(bytes) = bytes else {
        return Err(wrong(format!("the size of tensor {quoted}, shape {:?}, overflows", Brief(&raw.shape))));
    };
    let [start, end] = raw.data_offsets;
    if end.checked_sub(start) != Some(bytes) {
        let cause = format!(
            "tensor {quoted} is at bytes {start}..{end}, but {} of shape {:?} has {bytes}",
            dtype.name(),
            Brief(&raw.shape)
        );
        return Err(wrong(cause));
    }
    let place = |offset: u64| usize::try_from(offset).ok().and_then(|o| o.checked_add(base));
    let shape = raw.shape.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<Vec<_>>>();
    match (place(start), place(end), shape) {
        (Some(start), Some(end), Some(shape)) => Ok(Entry { name, dtype, shape, range: start..end }),
        _ => Err(wrong(format!("tensor {quoted} lies at byte {end}, past any file"))),
    }
}

/// The tensors, sorted by place, follow one another from the header to the end of the file.
fn check_cover(wrong: &dyn Fn(String) -> Error, entries: &[Entry], base: usize, len: usize) -> Result<()> {
    let end = entries.iter().map(|e| e.range.end).max().unwrap_or(base);
    if end > len {
        let cause = format!(
            "its tensors take {} bytes, but {} are there; it is truncated",
            end - base,
            len.saturating_sub(base)
        );
        return Err(wrong(cause));
    }
    let mut next = base;
    let mut previous = "the header";
    for entry in entries {
        if entry.range.start < next {
            return Err(wrong(format!("tensors {} and {} overlap", quote(previous), quote(&entry.name))));
        }
        if entry.range.start > next {
            let gap = entry.range.start - next;
            return Err(wrong(format!("{gap} bytes before tensor {} belong to no tensor", quote(&entry.name))));
        }
        next = entry.range.end;
        previous = &entry.name;
    }
    if next < len {
        return Err(wrong(format!("{} bytes after the last tensor belong to no tensor", len - next)));
    }
    Ok(())
}

/// The first dimensions of a shape; a hostile header may give thousands.
struct Brief<'a>(&'a [u64]);

impl fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..8) {
            Some(first) if self.0.len() > 8 => write!(f, "{first:?}…"),
            _ => write!(f, "{:?}", self.0),
        }
    }
}

/// A header as it stands in the file.
struct RawHeader {
    tensors: HashMap<String, RawTensor>,
    metadata: HashMap<String, String>,
}

#[derive(serde::Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(RawVisitor)
    }
}

/// Reads the header's map key by key, since a map type would silently keep the last of two equal names.
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
                header.metadata = map.next_value()?;
                continue;
            }
            match header.tensors.entry(key) {
                Slot::Vacant(slot) => {
                    slot.insert(map.next_value()?);
                }
                Slot::Occupied(slot) => {
                    return Err(A::Error::custom(format_args!("tensor {} is there twice", quote(slot.key()))));
                }
            }
        }
        Ok(header)
    }
}

/// A checked file and its bytes.
#[derive(Debug)]
pub(crate) struct Archive {
    /// The file's name in messages.
    pub(crate) label: String,
    /// What it holds.
    pub(crate) header: Header,
    /// Its bytes; every entry's range lies within.
    pub(crate) bytes: Contents,
}

impl Archive {
    /// Opens a file and checks its header.
    pub(crate) fn open(path: &Path) -> Result<Archive> {
        Archive::new(path.display().to_string(), Contents::open(path)?)
    }

    /// Checks the header of bytes that are there already.
    pub(crate) fn new(label: String, bytes: Contents) -> Result<Archive> {
        let (len, mut buffer) = (bytes.len(), Vec::new());
        let length = bytes.read(0..len.min(8), &mut buffer)?.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let end = len.min(8 + length.min(MAX_HEADER) as usize);
        let header = Header::parse(&label, bytes.read(0..end, &mut buffer)?, len)?;
        Ok(Archive { label, header, bytes })
    }
}
