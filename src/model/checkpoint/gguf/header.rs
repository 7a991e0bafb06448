//! The header of one GGUF file, checked: magic, version, counts, metadata, tensors.
//!
//! ```text
//! "GGUF"  version u32  tensors u64  keys u64
//! keys × { name, type u32, value }
//! tensors × { name, dimensions u32, dimensions × u64 (the row's length first), type u32, offset u64 }
//! padding to the alignment, then each tensor's bytes, each padded to the alignment
//! ```
//!
//! All numbers are little-endian. A text is its length as u64, then UTF-8. An array is its elements' type as u32, their
//! count as u64, then the elements. The key `general.alignment` gives the alignment; without it, it is 32.
//!
//! A count or a length is accepted only if the file has enough bytes for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::types::GgmlType;
use crate::display::quote;
use crate::model::checkpoint::byte_source::ByteSource;
use crate::{Error, Result};

/// The longest header that is read, in bytes. Gemma 3's has 6 MB, most of it the tokenizer.
const MAX_HEADER: usize = 64 << 20;
/// The number of bytes that are first read of a file.
const FIRST_READ: usize = 1 << 20;
/// Most keys, and most tensors: far above any model's.
const MAX_ENTRIES: u64 = 1 << 16;
/// Bytes of the smallest key with its value, and of the smallest tensor's entry.
const SMALLEST_KEY: u64 = 13;
const SMALLEST_TENSOR: u64 = 24;
const MAX_DIMENSIONS: u32 = 4;
const DEFAULT_ALIGNMENT: u64 = 32;

pub(super) const REMEDY: &str = "download the file again, or export the model anew";

/// The type of a value, or of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// An unsigned integer of this many bytes.
    Unsigned(usize),
    /// A signed integer of this many bytes.
    Signed(usize),
    /// An IEEE single.
    F32,
    /// An IEEE double.
    F64,
    /// A boolean in one byte, 0 or 1.
    Bool,
    /// A text in UTF-8.
    Text,
}

impl ValueType {
    /// The kind with this number; arrays have 9.
    fn of(code: u32) -> Option<ValueType> {
        Some(match code {
            0 => ValueType::Unsigned(1),
            1 => ValueType::Signed(1),
            2 => ValueType::Unsigned(2),
            3 => ValueType::Signed(2),
            4 => ValueType::Unsigned(4),
            5 => ValueType::Signed(4),
            6 => ValueType::F32,
            7 => ValueType::Bool,
            8 => ValueType::Text,
            10 => ValueType::Unsigned(8),
            11 => ValueType::Signed(8),
            12 => ValueType::F64,
            _ => return None,
        })
    }

    /// Bytes of a value; of a text, those of its length.
    fn bytes(self) -> usize {
        match self {
            ValueType::Unsigned(bytes) | ValueType::Signed(bytes) => bytes,
            ValueType::F32 => 4,
            ValueType::F64 | ValueType::Text => 8,
            ValueType::Bool => 1,
        }
    }

    /// The number in `bytes`, which has the kind's size. `None` for a text, and for a bool that is neither 0 nor 1.
    fn number(self, bytes: &[u8]) -> Option<MetadataValue> {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(eight);
        Some(match self {
            ValueType::Unsigned(_) => MetadataValue::Unsigned(word),
            ValueType::Signed(bytes) => {
                let unused = 64 - 8 * bytes as u32;
                MetadataValue::Signed((word << unused) as i64 >> unused)
            }
            ValueType::F32 => MetadataValue::Float(f64::from(f32::from_bits(word as u32))),
            ValueType::F64 => MetadataValue::Float(f64::from_bits(word)),
            ValueType::Bool if word <= 1 => MetadataValue::Bool(word == 1),
            ValueType::Bool | ValueType::Text => return None,
        })
    }
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    /// An unsigned integer of any size.
    Unsigned(u64),
    /// A signed integer of any size.
    Signed(i64),
    /// A float of either size.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A text in UTF-8.
    Text(String),
    /// An array of values of one kind.
    Array(MetadataArray),
}

impl MetadataValue {
    /// The value as an unsigned integer, if it is one that is not negative.
    pub fn as_unsigned(&self) -> Option<u64> {
        match self {
            MetadataValue::Unsigned(n) => Some(*n),
            MetadataValue::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// The value as a float, if it is one.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            MetadataValue::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// The value as a text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            MetadataValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as an array, if it is one.
    pub fn as_array(&self) -> Option<&MetadataArray> {
        match self {
            MetadataValue::Array(array) => Some(array),
            _ => None,
        }
    }

    /// The value as text for an error message, shortened if it is long.
    pub(super) fn excerpt(&self) -> String {
        match self {
            MetadataValue::Unsigned(n) => n.to_string(),
            MetadataValue::Signed(n) => n.to_string(),
            MetadataValue::Float(x) => x.to_string(),
            MetadataValue::Bool(b) => b.to_string(),
            // Quotes, so that the message does not seem to lack a word.
            MetadataValue::Text(text) if text.is_empty() => "\"\"".to_owned(),
            MetadataValue::Text(text) => quote(text),
            MetadataValue::Array(array) => format!("a list of {}", array.len()),
        }
    }
}

/// Values of one kind in the file's encoding. A tokenizer's arrays have hundreds of thousands of values, so they stay
/// in the header's bytes, which all arrays share.
#[derive(Clone)]
pub struct MetadataArray {
    kind: ValueType,
    len: usize,
    head: Arc<Vec<u8>>,
    /// The range in `head` of the array's values.
    range: Range<usize>,
}

impl fmt::Debug for MetadataArray {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Array({:?}, {:?})", self.kind, self.bytes())
    }
}

impl PartialEq for MetadataArray {
    fn eq(&self, other: &MetadataArray) -> bool {
        (self.kind, self.len, self.bytes()) == (other.kind, other.len, other.bytes())
    }
}

impl MetadataArray {
    fn bytes(&self) -> &[u8] {
        &self.head[self.range.clone()]
    }

    /// The number of values in the array.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the array has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The numbers and bools; empty for an array of texts.
    pub fn numbers(&self) -> impl Iterator<Item = MetadataValue> {
        let bytes = if self.kind == ValueType::Text { &[][..] } else { self.bytes() };
        bytes.chunks_exact(self.kind.bytes()).filter_map(|value| self.kind.number(value))
    }

    /// The texts; empty for an array of another kind.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let mut rest = if self.kind == ValueType::Text { self.bytes() } else { &[] };
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<8>()?;
            let (text, after) = after.split_at_checked(u64::from_le_bytes(*length) as usize)?;
            rest = after;
            std::str::from_utf8(text).ok()
        })
    }
}

/// One tensor of a file. Its bytes lie within the file, and their number follows from type and shape.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// The tensor's name.
    pub name: String,
    /// The type of the tensor's elements.
    pub dtype: GgmlType,
    /// The tensor's dimensions, row-major.
    pub shape: Vec<usize>,
    /// The range of the tensor's bytes, from the start of the file.
    pub range: Range<usize>,
}

/// The header of a GGUF file, which was checked.
#[derive(Debug)]
pub struct GgufHeader {
    /// The metadata of the file: values by their keys.
    pub metadata: HashMap<String, MetadataValue>,
    /// Tensors in the order of their bytes, without overlap.
    pub tensors: Vec<TensorInfo>,
}

impl GgufHeader {
    /// Parses and checks the header of a file of `len` bytes. `head` is the start of the file and contains at least the
    /// header. `label` names the file in errors.
    ///
    /// # Errors
    /// [`Error::Input`] with the file, the key or tensor if there is one, and the found and expected values.
    pub fn parse(label: &str, head: &[u8], len: usize) -> Result<GgufHeader> {
        let head = Arc::new(head.to_vec());
        Self::try_parse(&head, len.max(head.len())).map_err(|fault| fault.into_error(label))
    }

    /// Reads the header of `bytes`.
    ///
    /// # Errors
    /// As [`GgufHeader::parse`]. [`Error::Failed`]: the file was cut short, or its disk fails.
    pub(super) fn read(label: &str, bytes: &ByteSource) -> Result<GgufHeader> {
        let most = bytes.len().min(MAX_HEADER);
        let mut size = most.min(FIRST_READ);
        loop {
            let head = Arc::new(bytes.read_owned(0..size)?);
            match Self::try_parse(&head, bytes.len()) {
                Err(ParseFault::More) if size < most => size = most.min(4 * size),
                parsed => return parsed.map_err(|fault| fault.into_error(label)),
            }
        }
    }

    fn try_parse(head: &Arc<Vec<u8>>, len: usize) -> Parsed<GgufHeader> {
        let mut cursor = Cursor { head, at: 0, len };
        if cursor.take(4, || "its magic".into())? != b"GGUF" {
            return Err(ParseFault::Foreign);
        }
        let version = cursor.u32(|| "its version".into())?;
        match version {
            2 | 3 => {}
            _ if (1..=3).contains(&version.swap_bytes()) => {
                return Err(ParseFault::Wrong("it is a big-endian GGUF file".into()));
            }
            _ => return Err(ParseFault::Wrong(format!("it is GGUF version {version}; versions 2 and 3 are read"))),
        }
        let tensors = cursor.u64(|| "its number of tensors".into())?;
        let keys = cursor.u64(|| "its number of keys".into())?;
        cursor.check_count(keys, SMALLEST_KEY, "keys")?;
        let metadata = parse_metadata(&mut cursor, keys)?;
        cursor.check_count(tensors, SMALLEST_TENSOR, "tensors")?;
        let tensors = parse_tensors(&mut cursor, tensors, alignment(&metadata)?)?;
        Ok(GgufHeader { metadata, tensors })
    }
}

/// The reason why a header is not parsed.
enum ParseFault {
    /// The header exceeds the bytes read so far.
    More,
    /// The file is not a GGUF file.
    Foreign,
    /// The header is not valid, for this reason.
    Wrong(String),
}

type Parsed<T> = std::result::Result<T, ParseFault>;

impl ParseFault {
    fn into_error(self, label: &str) -> Error {
        let (what, remedy) = match self {
            ParseFault::More => (format!("its header has more than {MAX_HEADER} bytes"), REMEDY),
            ParseFault::Foreign => ("it is no GGUF file".into(), "give a GGUF file, or a model's directory"),
            ParseFault::Wrong(what) => (what, REMEDY),
        };
        Error::input(format!("{label}: {what}"), remedy)
    }
}

/// A position in a header that is read from front to back.
struct Cursor<'a> {
    /// The first bytes of the file, with the header.
    head: &'a Arc<Vec<u8>>,
    /// The offset of the next byte to read.
    at: usize,
    /// Length of the file, at least that of `head`.
    len: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> u64 {
        (self.len - self.at) as u64
    }

    /// The next bytes. `what` names them in errors.
    fn take(&mut self, count: u64, what: impl Fn() -> String) -> Parsed<&'a [u8]> {
        let left = self.left();
        if count > left {
            return Err(ParseFault::Wrong(format!(
                "{} takes {count} bytes, but {left} are left; it is truncated",
                what()
            )));
        }
        let end = self.at + count as usize;
        let bytes = self.head.get(self.at..end).ok_or(ParseFault::More)?;
        self.at = end;
        Ok(bytes)
    }

    fn u32(&mut self, what: impl Fn() -> String) -> Parsed<u32> {
        Ok(self.take(4, what)?.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    fn u64(&mut self, what: impl Fn() -> String) -> Parsed<u64> {
        Ok(self.take(8, what)?.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    fn text(&mut self, what: impl Fn() -> String) -> Parsed<&'a str> {
        let length = self.u64(&what)?;
        let bytes = self.take(length, &what)?;
        std::str::from_utf8(bytes).map_err(|e| ParseFault::Wrong(format!("{} is not UTF-8: {e}", what())))
    }

    /// Refuses a count that does not fit in the rest of the file.
    fn check_count(&self, count: u64, smallest: u64, what: &str) -> Parsed<()> {
        let room = self.left() / smallest;
        if count > room {
            return Err(ParseFault::Wrong(format!(
                "it claims {count} {what}, and has room for {room}; it is truncated"
            )));
        }
        if count > MAX_ENTRIES {
            return Err(ParseFault::Wrong(format!("it has {count} {what}; at most {MAX_ENTRIES} make sense")));
        }
        Ok(())
    }
}

fn parse_metadata(cursor: &mut Cursor, keys: u64) -> Parsed<HashMap<String, MetadataValue>> {
    let mut metadata = HashMap::new();
    for i in 0..keys {
        let key = cursor.text(|| format!("the name of key {i}"))?;
        match metadata.entry(key.to_owned()) {
            Entry::Vacant(slot) => {
                slot.insert(parse_value(cursor, key)?);
            }
            Entry::Occupied(_) => return Err(ParseFault::Wrong(format!("the key {} is there twice", quote(key)))),
        }
    }
    Ok(metadata)
}

fn parse_value(cursor: &mut Cursor, key: &str) -> Parsed<MetadataValue> {
    const ARRAY: u32 = 9;
    let what = || format!("the value of {}", quote(key));
    let wrong = |of: &str, code: u32| ParseFault::Wrong(format!("{}{of} has the unknown type {code}", what()));
    match cursor.u32(what)? {
        ARRAY => match cursor.u32(what)? {
            ARRAY => Err(ParseFault::Wrong(format!("{} is a list of lists, which no model has", what()))),
            code => parse_array(cursor, ValueType::of(code).ok_or_else(|| wrong(", a list,", code))?, what),
        },
        code => match ValueType::of(code).ok_or_else(|| wrong("", code))? {
            ValueType::Text => Ok(MetadataValue::Text(cursor.text(what)?.to_owned())),
            kind => {
                let number = kind.number(cursor.take(kind.bytes() as u64, what)?);
                number.ok_or_else(|| ParseFault::Wrong(format!("{} is neither true nor false", what())))
            }
        },
    }
}

fn parse_array(cursor: &mut Cursor, kind: ValueType, what: impl Fn() -> String) -> Parsed<MetadataValue> {
    let count = cursor.u64(&what)?;
    let least = count.checked_mul(kind.bytes() as u64).filter(|bytes| *bytes <= cursor.left());
    let Some(least) = least else {
        let left = cursor.left();
        let cause = format!("{} claims {count} elements, but {left} bytes are left; it is truncated", what());
        return Err(ParseFault::Wrong(cause));
    };
    let start = cursor.at;
    if kind == ValueType::Text {
        for i in 0..count {
            cursor.text(|| format!("element {i} of {}", what()))?;
        }
    } else {
        cursor.take(least, &what)?;
    }
    let array = MetadataArray { kind, len: count as usize, head: cursor.head.clone(), range: start..cursor.at };
    if kind == ValueType::Bool && array.bytes().iter().any(|b| *b > 1) {
        return Err(ParseFault::Wrong(format!("an element of {} is neither true nor false", what())));
    }
    Ok(MetadataValue::Array(array))
}

fn alignment(metadata: &HashMap<String, MetadataValue>) -> Parsed<u64> {
    let Some(value) = metadata.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    let power = value.as_unsigned().filter(|n| n.is_power_of_two() && *n <= 1 << 30);
    power.ok_or_else(|| ParseFault::Wrong(format!("general.alignment is {}; wanted a power of two", value.excerpt())))
}

/// A tensor's entry before its byte range is checked.
struct Claim {
    name: String,
    dtype: GgmlType,
    shape: Vec<usize>,
    /// The size of the tensor in bytes.
    bytes: usize,
    /// Offset from the start of the tensors' bytes.
    offset: u64,
}

fn parse_tensors(cursor: &mut Cursor, count: u64, alignment: u64) -> Parsed<Vec<TensorInfo>> {
    let (mut claims, mut names) = (Vec::new(), HashMap::new());
    for i in 0..count {
        let claim = parse_tensor(cursor, i)?;
        if names.insert(claim.name.clone(), ()).is_some() {
            return Err(ParseFault::Wrong(format!("tensor {} is there twice", quote(&claim.name))));
        }
        claims.push(claim);
    }
    // No sum overflows: a file is shorter than 2^63 bytes, and the alignment is small.
    let base = (cursor.at as u64).next_multiple_of(alignment);
    // Tensors follow one another, each padded to the alignment.
    let (len, mut next) = (cursor.len as u64, 0u64);
    let mut tensors = Vec::with_capacity(claims.len());
    for Claim { name, dtype, shape, bytes, offset } in claims {
        if offset != next {
            let cause = format!("tensor {} lies at byte {offset} of the data; wanted {next}", quote(&name));
            return Err(ParseFault::Wrong(cause));
        }
        let start = base + offset;
        let Some(end) = start.checked_add(bytes as u64).filter(|end| *end <= len) else {
            let cause = format!(
                "tensor {} has {bytes} bytes from byte {offset} of the data, and the file has {} of data; it is truncated",
                quote(&name),
                len.saturating_sub(base)
            );
            return Err(ParseFault::Wrong(cause));
        };
        next = (offset + bytes as u64).next_multiple_of(alignment);
        tensors.push(TensorInfo { name, dtype, shape, range: start as usize..end as usize });
    }
    Ok(tensors)
}

fn parse_tensor(cursor: &mut Cursor, index: u64) -> Parsed<Claim> {
    let name = cursor.text(|| format!("the name of tensor {index}"))?;
    let what = || format!("the entry of tensor {}", quote(name));
    let wrong = |what: String| ParseFault::Wrong(format!("tensor {} {what}", quote(name)));
    let dimensions = cursor.u32(what)?;
    if dimensions > MAX_DIMENSIONS {
        return Err(wrong(format!("has {dimensions} dimensions; at most {MAX_DIMENSIONS} make sense")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let size = cursor.u64(what)?;
        shape.push(usize::try_from(size).map_err(|_| wrong(format!("has a dimension of {size}")))?);
    }
    shape.reverse();
    let code = cursor.u32(what)?;
    let dtype = GgmlType::of(code).ok_or_else(|| wrong(format!("has the unknown type {code}")))?;
    let bytes = dtype.bytes(&shape).map_err(wrong)?;
    let offset = cursor.u64(what)?;
    Ok(Claim { name: name.to_owned(), dtype, shape, bytes, offset })
}
