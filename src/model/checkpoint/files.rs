//! Finds the files of a model directory: the config and the weights.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::display::quote;
use crate::error::text;
use crate::model::checkpoint::archive::Archive;
use crate::model::checkpoint::gguf;
use crate::model::config::Quantization;
use crate::model::shape::Shape;
use crate::model::{config, json, text_file};
use crate::{Error, Result};

/// The single weight file, which takes precedence as in transformers.
const SINGLE: &str = "model.safetensors";
/// The index of a sharded checkpoint.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The largest index that is read, in bytes. The 27B's has 100 KB.
const MAX_INDEX_BYTES: usize = 64 << 20;

const TEXT_REMEDY: &str = "take the file from the model's original download";

/// Reads the shape, and how another program has quantised the matrices, from a model directory's config.json and, if
/// there, generation_config.json.
pub(crate) fn read_config(dir: &Path) -> Result<(Shape, Quantization)> {
    let metadata = std::fs::metadata(dir).map_err(|e| Error::unreadable(dir, &e))?;
    if !metadata.is_dir() {
        let cause = format!("{} is not a directory", dir.display());
        return Err(Error::input(
            cause,
            "give a GGUF file, or the model's directory, which holds config.json and *.safetensors",
        ));
    }
    let path = dir.join("config.json");
    let Some(text) = text_file::read(&path, config::MAX_CONFIG_BYTES, TEXT_REMEDY)? else {
        let cause = format!("{} has no config.json", dir.display());
        let models = gguf::list(dir).into_iter().take(4).map(|path| quote(&path.display().to_string()));
        return Err(match models.collect::<Vec<_>>() {
            none if none.is_empty() => {
                Error::input(cause, "give the model's directory, which holds config.json and *.safetensors")
            }
            models => Error::input(cause, format!("give one of its GGUF files: {}", models.join(", "))),
        });
    };
    let generation = text_file::read(&dir.join("generation_config.json"), config::MAX_CONFIG_BYTES, TEXT_REMEDY)?;
    config::parse_model(&text, generation.as_deref()).map_err(|e| within(dir, e))
}

/// Opens and checks the directory's weight files, in the order of their names.
pub(crate) fn open_archives(dir: &Path) -> Result<Vec<Archive>> {
    let single = dir.join(SINGLE);
    let index = dir.join(INDEX);
    if single.exists() {
        return Ok(vec![Archive::open(&single)?]);
    }
    if let Some(text) = text_file::read(&index, MAX_INDEX_BYTES, TEXT_REMEDY)? {
        return open_indexed(dir, &index, &text);
    }
    let paths = list_safetensors(dir)?;
    if paths.is_empty() {
        let cause = format!("{} has no *.safetensors file", dir.display());
        return Err(Error::input(cause, "give the model's directory, which holds config.json and *.safetensors"));
    }
    paths.iter().map(|path| Archive::open(path)).collect()
}

/// Opens each shard of an index once, and checks that every tensor is where the index says.
fn open_indexed(dir: &Path, path: &Path, text: &str) -> Result<Vec<Archive>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    const REMEDY: &str = "download the missing files, or remove the index to read every *.safetensors";
    let wrong = |what: String| Error::input(format!("{}: {what}", path.display()), REMEDY);
    let parsed = json::parse(text.as_bytes()).and_then(serde_json::from_value);
    let index: Index = parsed.map_err(|e| wrong(quote(&format!("not a valid index: {e}"))))?;
    let shards: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    if shards.is_empty() {
        return Err(wrong("it names no shard".into()));
    }
    let mut archives = Vec::with_capacity(shards.len());
    let mut held: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for shard in shards {
        // Only a plain name: an index must not reach outside the model's directory.
        let mut components = Path::new(shard).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            return Err(wrong(format!("it names the shard {}, outside the model's directory", quote(shard))));
        }
        let file = dir.join(shard);
        if !file.exists() {
            return Err(wrong(format!("it names the shard {}, which is not there", quote(shard))));
        }
        let archive = Archive::open(&file)?;
        held.insert(shard, archive.header.entries.iter().map(|e| e.name.clone()).collect());
        archives.push(archive);
    }
    for (tensor, shard) in &index.weight_map {
        if !held.get(shard.as_str()).is_some_and(|names| names.contains(tensor)) {
            return Err(wrong(format!("tensor {} is not in {}", quote(tensor), quote(shard))));
        }
    }
    Ok(archives)
}

/// Every *.safetensors of the directory, by name. Hidden files are skipped: they may be writes in progress.
fn list_safetensors(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| Error::unreadable(dir, &e))? {
        let path = entry.map_err(|e| Error::unreadable(dir, &e))?.path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if path.extension().is_some_and(|e| e == "safetensors") && !hidden {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Puts the directory before the error's cause.
fn within(dir: &Path, error: Error) -> Error {
    match error {
        Error::Input { cause, remedy } => Error::Input { cause: text!(format!("{}: ", dir.display()), cause), remedy },
        other => other,
    }
}
