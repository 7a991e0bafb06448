//! GGUF files: one file, possibly split into several, holds a model's shape, its tensors, its tokenizer and its chat
//! template. All of its content is untrusted.

mod header;
mod metadata;
mod mix;
mod names;
mod tensors;
mod types;
mod vocabulary;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

pub use self::header::{GgufHeader, MetadataArray, MetadataValue, TensorInfo, ValueType};
pub use self::names::{list, models, parts, split_name, stem};
pub use self::types::GgmlType;
pub use self::vocabulary::{TokenKind, VocabularyToken};
use super::DataFile;
use super::byte_source::ByteSource;
use super::index::StoredTensor;
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::{Error, Result};

/// Remedy for a matrix of an unsupported type.
const REMEDY_TYPES: &str = "use a file with Q2_K to Q6_K, Q4_0 to Q8_0, IQ4_NL, IQ4_XS, BF16, F16 or F32";

/// A model's GGUF files with their checked headers.
#[derive(Debug)]
pub struct Gguf {
    /// The files in the order of their numbers. The first has the metadata.
    files: Vec<GgufFile>,
}

/// One file.
#[derive(Debug)]
struct GgufFile {
    /// Its name in messages.
    label: String,
    header: GgufHeader,
    bytes: ByteSource,
}

impl GgufFile {
    fn new(label: String, bytes: ByteSource) -> Result<GgufFile> {
        let header = GgufHeader::read(&label, &bytes)?;
        Ok(GgufFile { label, header, bytes })
    }

    /// The number in a key that files of a split model have.
    fn split(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.header.metadata.get(&format!("split.{key}")) else { return Ok(None) };
        let cause = || format!("{}: split.{key} is {}; wanted a whole number", self.label, value.excerpt());
        value.as_unsigned().map(Some).ok_or_else(|| Error::input(cause(), header::REMEDY))
    }

    /// Checks that this is file `index` of a model that is split into `count` files.
    fn check_split(&self, index: u64, count: u64) -> Result<()> {
        let found = (self.split("no")?, self.split("count")?);
        match found {
            (Some(no), Some(of)) if (no, of) == (index, count) => Ok(()),
            _ => {
                let cause = format!("{} is not part {} of {count} of a split model", self.label, index + 1);
                Err(Error::input(cause, "download the parts again, and leave their names as they are"))
            }
        }
    }
}

impl Gguf {
    /// Opens a file. If it is the first of a split model, `NAME-00001-of-0000N.gguf`, also opens the others beside it.
    ///
    /// # Errors
    /// [`Error::Input`]: a file is missing, or its header is wrong. The message has the file, the key or tensor, and
    /// the found and expected values.
    pub fn open(path: &Path) -> Result<Gguf> {
        let mut files = Vec::new();
        for (index, path) in parts(path)?.into_iter().enumerate() {
            let file = GgufFile::new(path.display().to_string(), ByteSource::open(&path)?)?;
            files.push(file);
            let count = files[0].split("count")?.unwrap_or(1);
            if count > 1 || files.len() > 1 {
                files[index].check_split(index as u64, count)?;
            }
        }
        Gguf::new(files)
    }

    /// Opens a file in memory.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Gguf> {
        Gguf::new(vec![GgufFile::new("the GGUF file".into(), ByteSource::Bytes(bytes.into()))?])
    }

    /// Checks that all parts of a split model are there.
    fn new(files: Vec<GgufFile>) -> Result<Gguf> {
        let first = &files[0];
        let (parts, tensors) = (files.len() as u64, files.iter().map(|f| f.header.tensors.len() as u64).sum::<u64>());
        let wanted = (first.split("count")?.unwrap_or(1).max(1), first.split("tensors.count")?.unwrap_or(tensors));
        if (parts, tensors) == wanted {
            return Ok(Gguf { files });
        }
        let cause = format!(
            "{} says that the model has {} parts with {} tensors, and there are {parts} with {tensors}",
            first.label, wanted.0, wanted.1
        );
        Err(Error::input(cause, "download the parts again, and leave their names as they are"))
    }

    fn metadata(&self) -> &HashMap<String, MetadataValue> {
        &self.files[0].header.metadata
    }

    /// The model's shape.
    ///
    /// # Errors
    /// [`Error::Input`] with the key: another architecture, a size that no Gemma 3 can have, or an unsupported feature
    /// that changes the forward pass.
    pub fn shape(&self) -> Result<Shape> {
        let tensor = |id: TensorId| {
            let name = tensors::name(id);
            self.files.iter().flat_map(|file| &file.header.tensors).find(move |tensor| tensor.name == name)
        };
        let vocab = tensor(TensorId::Embedding).and_then(|tensor| match tensor.shape[..] {
            [rows, _] if (1..=crate::model::config::limit::VOCAB).contains(&rows) => Some(rows),
            _ => None,
        });
        let label = &self.files[0].label;
        let tied = tensor(TensorId::Head).is_none();
        // Another architecture is refused as such, even if its tensors are unknown too.
        let shape = metadata::read_shape(label, self.metadata(), vocab.unwrap_or(usize::MAX), tied)?;
        match vocab {
            Some(_) => Ok(shape),
            None => {
                let cause = format!("{label} has no tensor token_embd.weight with a row for each token");
                Err(Error::input(cause, header::REMEDY))
            }
        }
    }

    /// The tokens of its tokenizer, indexed by id.
    ///
    /// # Errors
    /// [`Error::Input`]: there is no tokenizer, it is of another kind than Gemma 3's, or its lists contradict each other.
    pub fn tokens(&self) -> Result<Vec<VocabularyToken>> {
        vocabulary::read_tokens(&self.files[0].label, self.metadata())
    }

    /// Whether it has a tokenizer.
    pub fn has_tokenizer(&self) -> bool {
        self.metadata().contains_key("tokenizer.ggml.model")
    }

    /// Its chat template.
    ///
    /// # Errors
    /// [`Error::Input`]: the key is not a text.
    pub fn chat_template(&self) -> Result<Option<&str>> {
        const KEY: &str = "tokenizer.chat_template";
        let Some(value) = self.metadata().get(KEY) else { return Ok(None) };
        let cause = || format!("{}: {KEY} is {}; wanted text", self.files[0].label, value.excerpt());
        value.as_text().map(Some).ok_or_else(|| Error::input(cause(), header::REMEDY))
    }

    /// The shape, its tensors, and the files that have them.
    pub(super) fn into_parts(self) -> Result<(Shape, HashMap<TensorId, StoredTensor>, Vec<DataFile>)> {
        let shape = self.shape()?;
        if let Some(assumption) = metadata::assumption(&self.files[0].label, self.metadata()) {
            log::warn!("{assumption}");
        }
        let tensors = tensors::find_tensors(&shape, &self.files)?;
        let files = self.files.into_iter().map(|file| DataFile { label: file.label, bytes: file.bytes });
        Ok((shape, tensors, files.collect()))
    }
}
