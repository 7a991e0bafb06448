//! The identity of a model's files: a hash over samples of them, and their stamps.

use super::{ModelFiles, demo};
use crate::machine::regular::{self, Links};
use crate::machine::stamp::FileStamp;
use crate::model::bundle::MANIFEST;
use crate::model::checkpoint::gguf;
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes hashed at a time. A file longer than this is identified by its length and three such parts: at its beginning,
/// in the middle, and at the end.
const PART: u64 = 1 << 20;

impl ModelFiles {
    /// Adds the identity of the files that the model's replies depend on to `hash`. Their location does not matter.
    ///
    /// # Errors
    /// Input: a file cannot be read.
    pub(crate) fn add_to(&self, hash: &mut Sha256) -> Result<()> {
        match self {
            ModelFiles::BuiltIn => {
                add_parts(hash, demo::WEIGHTS_FILE);
                Ok(())
            }
            ModelFiles::BuiltInDraft => {
                add_parts(hash, demo::DRAFT_WEIGHTS_FILE);
                Ok(())
            }
            ModelFiles::Directory(directory) => {
                model_files(directory)?.iter().try_for_each(|path| add_file(hash, path))
            }
            ModelFiles::Gguf(file) => gguf::parts(file)?.iter().try_for_each(|path| add_file(hash, path)),
        }
    }

    /// The files that a reply depends on, with their names in a bundle; `None` for a built-in model. All GGUF files
    /// have the same name there, so that a link to one bundle can be turned to another.
    ///
    /// # Errors
    /// Input: a directory cannot be read, or the file is no first part.
    pub fn to_bundle(&self) -> Result<Option<Vec<(PathBuf, String)>>> {
        let named = |path: PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            let unnamed = || Error::input(format!("{} is no UTF-8", path.display()), "give it another name");
            Ok::<_, Error>((path.clone(), name.ok_or_else(unnamed)?))
        };
        match self {
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => Ok(None),
            ModelFiles::Directory(directory) => {
                let files = model_files(directory)?.into_iter().filter(|path| !path.ends_with(MANIFEST));
                files.map(named).collect::<Result<_>>().map(Some)
            }
            ModelFiles::Gguf(file) => {
                let parts = gguf::parts(file)?;
                let count = parts.len();
                let name = |i| match count {
                    1 => "model.gguf".to_owned(),
                    _ => format!("model-{:05}-of-{count:05}.gguf", i + 1),
                };
                Ok(Some(parts.into_iter().enumerate().map(|(i, path)| (path, name(i))).collect()))
            }
        }
    }

    /// The stamps of the model's files, which change when a file is replaced. Empty for a built-in model; `None` if a
    /// file cannot be looked up.
    pub fn stamps(&self) -> Option<Vec<FileStamp>> {
        let files = match self {
            ModelFiles::BuiltIn | ModelFiles::BuiltInDraft => return Some(Vec::new()),
            ModelFiles::Directory(directory) => model_files(directory).ok()?,
            ModelFiles::Gguf(file) => gguf::parts(file).ok()?,
        };
        files.iter().map(|path| FileStamp::at(path)).collect()
    }
}

/// The files of a model directory that a reply depends on, by name.
fn model_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |e| Error::unreadable(directory, &e);
    let mut paths = Vec::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if ["json", "jinja", "safetensors"].iter().any(|kind| path.extension().is_some_and(|e| e == *kind)) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Adds a file that is part of the executable, sampled as in [`add_file`].
fn add_parts(hash: &mut Sha256, bytes: &[u8]) {
    let part = bytes.len().min(PART as usize);
    let last = bytes.len() - part;
    hash.update((bytes.len() as u64).to_le_bytes());
    [0, last / 2, last].into_iter().for_each(|at| hash.update(&bytes[at..at + part]));
}

fn add_file(hash: &mut Sha256, path: &Path) -> Result<()> {
    // A directory or device under this name was not loaded either.
    let Ok((file, length)) = regular::open(path, Links::Follow) else { return Ok(()) };
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    hash.update((name.len() as u64).to_le_bytes());
    hash.update(name);
    hash.update(length.to_le_bytes());
    let mut part = vec![0; length.min(PART) as usize];
    let last = length - part.len() as u64;
    for at in [0, last / 2, last] {
        file.read_exact_at(&mut part, at).map_err(|e| Error::unreadable(path, &e))?;
        hash.update(&part);
    }
    Ok(())
}
