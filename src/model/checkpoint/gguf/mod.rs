//! GGUF files: one file holds a model's shape, its tensors, its tokenizer and its chat template, and may be split into
//! several. Nothing in them is trusted.

mod header;
mod metadata;
mod tensors;
mod types;
mod vocabulary;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use self::header::{GgufHeader, MetadataArray, MetadataValue, TensorInfo, ValueType};
pub use self::types::GgmlType;
pub use self::vocabulary::{TokenKind, VocabularyToken};
use super::DataFile;
use super::byte_source::ByteSource;
use super::index::StoredTensor;
use crate::model::shape::Shape;
use crate::model::tensor::TensorId;
use crate::{Error, Result};

/// Remedy for a matrix in a type that is not read.
const REMEDY_TYPES: &str = "use a file with Q2_K to Q6_K, Q4_0 to Q8_0, IQ4_NL, IQ4_XS, BF16, F16 or F32";

/// A model's GGUF files with their checked headers.
#[derive(Debug)]
pub struct Gguf {
    /// In the order of their numbers. The first has the metadata.
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

    /// A number of the keys that files of a split model have.
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
    /// Opens a file. If it is the first of a split model, `NAME-00001-of-0000N.gguf`, the others beside it too.
    ///
    /// # Errors
    /// [`Error::Input`]: a file is missing, or its header is wrong. The message names the file, the key or tensor, and what
    /// was found and wanted.
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
    /// [`Error::Input`] naming the key: another architecture, a size that no Gemma 3 can have, or an unsupported feature
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
        // Another architecture is refused as such, whatever its tensors are.
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
    /// [`Error::Input`]: it is no text.
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

/// The paths of the files of the model whose first file is `path`: `path` alone, unless its name says that there are more.
///
/// # Errors
/// [`Error::Input`]: `path` is a part of a split model, but not the first.
pub fn parts(path: &Path) -> Result<Vec<PathBuf>> {
    let alone = || Ok(vec![path.to_owned()]);
    let Some((stem, no, count)) = path.file_name().and_then(|name| split_name(name.to_str()?)) else { return alone() };
    let part = |i: u32| path.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf"));
    if no != 1 {
        let cause = format!("{} is part {no} of a split model", path.display());
        return Err(Error::input(cause, format!("give the first: {}", part(1).display())));
    }
    Ok((1..=count).map(part).collect())
}

/// The models that a directory has as GGUF files: each whole file, and the first of each split one, in the order of their
/// names. A model's part for images is not one.
pub fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_model = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_first = split_name(name).is_none_or(|(_, no, _)| no == 1);
        name.ends_with(".gguf") && !name.starts_with(['.']) && !name.starts_with("mmproj") && is_first
    };
    let mut models: Vec<PathBuf> = entries.filter(is_model).collect();
    models.sort();
    models
}

/// A file's name without what says that it is a GGUF file, or a part of one.
pub fn stem(name: &str) -> &str {
    split_name(name).map_or_else(|| name.strip_suffix(".gguf").unwrap_or(name), |(stem, _, _)| stem)
}

/// The stem, number and count in the name of a part: `STEM-00001-of-00003.gguf`.
fn split_name(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, no) = rest.rsplit_once('-')?;
    let number = |digits: &str| {
        let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse::<u32>().ok()).flatten()
    };
    let (no, count) = (number(no)?, number(count)?);
    (1..=count).contains(&no).then_some((stem, no, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_part_says_which_and_of_how_many() {
        assert_eq!(split_name("a-b-00002-of-00003.gguf"), Some(("a-b", 2, 3)));
        for name in ["a.gguf", "a-00004-of-00003.gguf", "a-00000-of-00003.gguf", "a-2-of-3.gguf", "a-00002-of-00003"] {
            assert_eq!(split_name(name), None, "{name}");
        }
        assert_eq!((stem("a-00001-of-00003.gguf"), stem("b.Q8_0.gguf"), stem("c")), ("a", "b.Q8_0", "c"));
        let names = parts(Path::new("/m/a-00001-of-00002.gguf")).unwrap();
        assert_eq!(names, [PathBuf::from("/m/a-00001-of-00002.gguf"), PathBuf::from("/m/a-00002-of-00002.gguf")]);
        let line = parts(Path::new("/m/a-00002-of-00002.gguf")).unwrap_err().to_string();
        assert!(line.contains("part 2") && line.contains("give the first: /m/a-00001-of-00002.gguf"), "{line}");
    }
}
