//! Finds the files of a model directory: the config and the weights.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::display::quote;
use crate::error::text;
use crate::model::checkpoint::archive::Archive;
use crate::model::checkpoint::gguf;
use crate::model::config::Quantization;
use crate::model::shape::Shape;
use crate::model::text_file::is_there;
use crate::model::{config, json, text_file};
use crate::{Error, Result};

/// The single weight file, which takes precedence as in transformers.
const SINGLE: &str = "model.safetensors";
/// The file name of the index of a sharded checkpoint.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The config and the weights of a LoRA adapter's directory.
const ADAPTER_CONFIG: &str = "adapter_config.json";
const ADAPTER: &str = "adapter_model.safetensors";
/// The largest index that is read, in bytes. The 27B's has 100 KB.
const MAX_INDEX_BYTES: usize = 64 << 20;

const TEXT_REMEDY: &str = "take the file from the model's original download";

/// Reads the shape, and the quantisation by another program, from a model directory's config.json and, if present,
/// generation_config.json.
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
        refuse_adapter(dir)?;
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
    if is_there(&single) {
        return Ok(vec![Archive::open(&single)?]);
    }
    if let Some(text) = text_file::read(&index, MAX_INDEX_BYTES, TEXT_REMEDY)? {
        return open_indexed(dir, &index, &text);
    }
    let paths = list(dir, |name| name.ends_with(".safetensors"))?;
    if paths.iter().all(|path| path.ends_with(ADAPTER)) {
        refuse_adapter(dir)?;
    }
    if paths.is_empty() {
        return Err(without_weights(dir)?);
    }
    paths.iter().map(|path| Archive::open(path)).collect()
}

/// Refuses a directory with a LoRA adapter, naming the adapter's base model.
///
/// # Errors
/// [`Error::Input`]: it has an adapter.
fn refuse_adapter(dir: &Path) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Adapter {
        base_model_name_or_path: Option<String>,
    }
    let Some(text) = text_file::read(&dir.join(ADAPTER_CONFIG), config::MAX_CONFIG_BYTES, TEXT_REMEDY)? else {
        return Ok(());
    };
    let base = serde_json::from_str(&text).ok().and_then(|adapter: Adapter| adapter.base_model_name_or_path);
    let base = base.map_or_else(String::new, |base| format!(", {}", quote(&base)));
    let cause = format!("{} is a LoRA adapter, not a model", dir.display());
    let remedy =
        format!("merge it into its base model{base} (`merge_and_unload` of peft), and give the merged directory");
    Err(Error::input(cause, remedy))
}

/// The error for a directory with a config and no *.safetensors file.
fn without_weights(dir: &Path) -> Result<Error> {
    let pickles = list(dir, |name| name.starts_with("pytorch_model") && name.ends_with(".bin"))?;
    let pickle = pickles.first().and_then(|path| path.file_name()).map(|name| quote(&name.to_string_lossy()));
    let models = gguf::list(dir);
    let has_none = format!("{} has no *.safetensors file", dir.display());
    Ok(match (pickle, models.first()) {
        (_, Some(model)) => {
            Error::input(has_none, format!("give its GGUF file: {}", quote(&model.display().to_string())))
        }
        (Some(pickle), None) => Error::input(
            format!("{has_none}, and {pickle} is a pickle, which Kiln does not run"),
            "save the model as safetensors (`save_pretrained` of transformers), or download it in that form",
        ),
        _ => Error::input(has_none, "give the model's directory, which holds config.json and *.safetensors"),
    })
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
        if !is_there(&file) {
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

/// The directory's files whose names are `wanted`, by name. Hidden files are skipped: they may be incomplete.
fn list(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| Error::unreadable(dir, &e))? {
        let path = entry.map_err(|e| Error::unreadable(dir, &e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if wanted(&name) && !name.starts_with('.') {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Puts the directory's path before the cause of an error.
fn within(dir: &Path, error: Error) -> Error {
    match error {
        Error::Input { cause, remedy } => Error::Input { cause: text!(format!("{}: ", dir.display()), cause), remedy },
        other => other,
    }
}
