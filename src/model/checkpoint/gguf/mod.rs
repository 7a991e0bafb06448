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
pub use self::vocabulary::{GgufVocabulary, TokenKind, VocabularyToken};
use super::DataFile;
use super::byte_source::ByteSource;
use super::encoding::f32_at;
use super::index::StoredTensor;
use crate::model::architecture::Architecture;
use crate::model::config;
use crate::model::shape::Shape;
use crate::model::tensor::{Role, TensorId};
use crate::{Error, Result};
use metadata::TensorFacts;

/// Remedy for a matrix of an unsupported type.
const REMEDY_TYPES: &str = "use a file with Q2_K to Q6_K, Q4_0 to Q8_0, IQ4_NL, IQ4_XS, BF16, F16 or F32";

/// The least divisor of a frequency at which its pair counts as not rotated.
const STILL: f32 = 1e20;

/// A model's GGUF files with their checked headers.
#[derive(Debug)]
pub struct Gguf {
    /// The files in the order of their numbers. The first has the metadata.
    files: Vec<GgufFile>,
}

/// One file of a model, with its checked header.
#[derive(Debug)]
struct GgufFile {
    /// The file's name in messages.
    label: String,
    header: GgufHeader,
    bytes: ByteSource,
}

impl GgufFile {
    fn new(label: String, bytes: ByteSource) -> Result<GgufFile> {
        let header = GgufHeader::read(&label, &bytes)?;
        Ok(GgufFile { label, header, bytes })
    }

    /// The number under the key `split.KEY`, which files of a split model have.
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

    /// Checks that all files of a split model are present.
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
    /// [`Error::Input`] with the key: another architecture, an impossible size, or an unsupported feature that changes
    /// the forward pass.
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
        // Another architecture is refused as such, even if its tensors are unknown too.
        let family = self.family()?;
        let facts = TensorFacts {
            vocab: vocab.unwrap_or(usize::MAX),
            tied: tensor(TensorId::Head).is_none(),
            has_values: &|layer| tensor(TensorId::Layer(layer, Role::V)).is_some(),
            rotated: if family.config.rotated.is_some() { self.rotated_share()? } else { None },
        };
        let shape = metadata::read_shape(label, self.metadata(), family, &facts)?;
        match vocab {
            Some(_) => Ok(shape),
            None => {
                let cause = format!("{label} has no tensor token_embd.weight with a row for each token");
                Err(Error::input(cause, header::REMEDY))
            }
        }
    }

    /// The model's family.
    ///
    /// # Errors
    /// [`Error::Input`]: Kiln has no such family.
    pub fn family(&self) -> Result<&'static Architecture> {
        metadata::family(&self.files[0].label, self.metadata())
    }

    /// Share of the global layers' pairs that turn, by the divisors of their frequencies: 1 for the first ones, and so
    /// large for the others that these do not turn. `None` without such a tensor.
    fn rotated_share(&self) -> Result<Option<f32>> {
        let in_files = self.files.iter().flat_map(|file| file.header.tensors.iter().map(move |tensor| (file, tensor)));
        let Some((file, tensor)) = { in_files }.find(|(_, tensor)| tensor.name == metadata::ROPE_FREQS) else {
            return Ok(None);
        };
        let mut buffer = Vec::new();
        let bytes = file.bytes.read(tensor.range.clone(), &mut buffer)?;
        let divisors: Vec<f32> = (0..bytes.len() / 4).map(|i| f32_at(bytes, i)).collect();
        let turning = divisors.iter().take_while(|divisor| **divisor == 1.0).count();
        let is_sound = tensor.dtype == types::F32
            && matches!(tensor.shape[..], [len] if (1..=config::limit::HEAD_DIM / 2).contains(&len))
            && divisors[turning..].iter().all(|divisor| *divisor >= STILL);
        match is_sound {
            true => Ok(Some(turning as f32 / divisors.len() as f32)),
            false => {
                let cause = format!(
                    "{}: tensor {} is not the divisors of frequencies that Kiln computes",
                    file.label,
                    metadata::ROPE_FREQS
                );
                Err(Error::input(cause, header::REMEDY))
            }
        }
    }

    /// The tokens of the files' tokenizer, and how they merge.
    ///
    /// # Errors
    /// [`Error::Input`]: there is no tokenizer, it is of another kind than Gemma's, or its lists contradict each other.
    pub fn vocabulary(&self) -> Result<GgufVocabulary> {
        vocabulary::read(&self.files[0].label, self.metadata())
    }

    /// True if the files have a tokenizer.
    pub fn has_tokenizer(&self) -> bool {
        self.metadata().contains_key("tokenizer.ggml.model")
    }

    /// The chat template.
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
        if let Some(assumption) = metadata::assumption(&self.files[0].label, self.metadata(), shape.architecture) {
            log::warn!("{assumption}");
        }
        let tensors = tensors::find_tensors(&shape, &self.files)?;
        let files = self.files.into_iter().map(|file| DataFile { label: file.label, bytes: file.bytes });
        Ok((shape, tensors, files.collect()))
    }
}
