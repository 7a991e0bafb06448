//! The choice of a repository's files to download for a name.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::super::name::{Choice, HubName};
use super::super::variant::{Variant, choose as choose_variants, listed};
use super::blob::FetchFault;
use super::listing::{Listing, RepoFile};
use crate::display::{bytes, nearest, quote};
use crate::model::checkpoint::files::INDEX;
use crate::model::json;
use crate::{Error, Result};

/// The file with all weights. It is preferred to an index of shards, as in transformers.
const SINGLE: &str = "model.safetensors";
/// Extensions and names of the other files that programs read from a model directory.
const ENDS: [&str; 2] = [".json", ".jinja"];
const NAMES: [&str; 1] = ["tokenizer.model"];

/// The files of a repository that a download consists of.
pub(super) struct ChosenFiles {
    pub(super) files: Vec<RepoFile>,
    /// The path of the file that names the model; `None` if the directory does.
    pub(super) path: Option<String>,
    /// The model's name for `-m`; `None` for a file that is not a model.
    pub(super) model: Option<HubName>,
}

/// Chooses the files for `name`. `fetch` downloads an index of weights and returns its bytes.
///
/// # Errors
/// Input: there is no such model, or several fit the name; the message lists them. Errors of `fetch`.
pub(super) fn choose(
    listing: &Listing,
    name: &HubName,
    fetch: impl FnOnce(&RepoFile) -> std::result::Result<Vec<u8>, FetchFault>,
) -> std::result::Result<ChosenFiles, FetchFault> {
    let variants = Variant::all(listing.files.iter().map(|file| file.path.as_str()));
    let has_set = listing.find("config.json").is_some() && listing.files.iter().any(is_weights);
    let found = choose_variants(&variants, &name.choice);
    match (&name.choice, found.as_slice()) {
        (Choice::Only, _) if has_set => set(listing, name, fetch),
        (_, [one]) => Ok(ChosenFiles {
            files: one.files.iter().map(|path| part(listing, path)).collect::<Result<_>>()?,
            path: Some(one.first().to_owned()),
            model: Some(one.name(&name.repo, &variants)),
        }),
        (Choice::File(path), _) => match listing.find(path) {
            Some(file) => Ok(ChosenFiles { files: vec![file.clone()], path: Some(path.clone()), model: None }),
            None => Err(without_file(listing, name, path).into()),
        },
        _ => Err(unclear(listing, name, &variants, &found).into()),
    }
}

/// The listed file at `path`, one of a split model's.
fn part(listing: &Listing, path: &str) -> Result<RepoFile> {
    listing.find(path).cloned().ok_or_else(|| {
        let cause = format!("the repository does not have {}, a part of the model", quote(path));
        Error::input(cause, "choose another file of it")
    })
}

/// The files of a model directory with weights in safetensors.
fn set(
    listing: &Listing,
    name: &HubName,
    fetch: impl FnOnce(&RepoFile) -> std::result::Result<Vec<u8>, FetchFault>,
) -> std::result::Result<ChosenFiles, FetchFault> {
    let is_beside = |path: &str| ENDS.iter().any(|end| path.ends_with(end)) || NAMES.contains(&path);
    let mut files: Vec<RepoFile> =
        listing.files.iter().filter(|file| !file.path.contains('/') && is_beside(&file.path)).cloned().collect();
    match (listing.find(SINGLE), listing.find(INDEX)) {
        (Some(single), _) => files.push(single.clone()),
        (None, Some(index)) => {
            let shards = shards(&fetch(index)?);
            let shards =
                shards.map_err(|e| Error::input(format!("{INDEX} of {}: {e}", name.repo), "choose another model"))?;
            files.extend(shards.iter().map(|path| part(listing, path)).collect::<Result<Vec<_>>>()?);
        }
        (None, None) => files.extend(listing.files.iter().filter(|file| is_weights(file)).cloned()),
    }
    Ok(ChosenFiles { files, path: None, model: Some(name.clone()) })
}

/// The names of the shards that an index file lists.
fn shards(bytes: &[u8]) -> std::result::Result<BTreeSet<String>, String> {
    #[derive(Deserialize)]
    struct WeightIndex {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index = json::parse(bytes).and_then(serde_json::from_value::<WeightIndex>);
    let index = index.map_err(|e| quote(&format!("not a valid index: {e}")))?;
    Ok(index.weight_map.into_values().collect())
}

fn is_weights(file: &RepoFile) -> bool {
    file.path.ends_with(".safetensors") && !file.path.contains('/')
}

/// The error for a missing file; suggests the most similar name.
fn without_file(listing: &Listing, name: &HubName, path: &str) -> Error {
    let like = nearest(path, listing.files.iter().map(|file| file.path.as_str()));
    let variants = Variant::all(listing.files.iter().map(|file| file.path.as_str()));
    let remedy = match like {
        Some(like) => format!("the one most like it is {}", quote(like)),
        None => format!("it has {}", all(listing, name, &variants)),
    };
    Error::input(format!("{} has no file {}", name.repo, quote(path)), remedy)
}

/// The error for a name that fits none or several of a repository's models.
fn unclear(listing: &Listing, name: &HubName, variants: &[Variant], found: &[&Variant]) -> Error {
    let repo = &name.repo;
    let first = match found.first().or(variants.first().as_ref()) {
        None => {
            let has_set = listing.files.iter().any(is_weights);
            let cause = format!(
                "{repo} has no GGUF file{}",
                if has_set { "" } else { ", and no config.json with *.safetensors" }
            );
            let remedy = match (&name.choice, has_set) {
                (Choice::Quant(_), true) => {
                    format!("pull {repo}, whose *.safetensors become INT8 or INT4 while they load")
                }
                _ => "choose another repository, such as one whose name ends with -GGUF".into(),
            };
            return Error::input(cause, remedy);
        }
        Some(variant) => variant.name(repo, variants),
    };
    let usual =
        variants.iter().find(|variant| variant.label().is_some_and(|label| label.eq_ignore_ascii_case("Q4_K_M")));
    let (cause, several) = match &name.choice {
        Choice::Quant(quant) if found.is_empty() => (format!("{repo} has no {quant}: it has "), variants.to_vec()),
        _ => (format!("{name} may be any of {} models: ", found.len()), found.iter().map(|&one| one.clone()).collect()),
    };
    let example = match (&name.choice, usual) {
        (Choice::Quant(_), _) | (_, None) => first,
        (_, Some(usual)) => usual.name(repo, variants),
    };
    Error::input(cause + &all(listing, name, &several), format!("name one, as in {example}"))
}

/// A list of the repository's models with their sizes, for an error message.
fn all(listing: &Listing, name: &HubName, variants: &[Variant]) -> String {
    let size = |variant: &Variant| {
        let of = |path: &String| listing.find(path).map_or(0, |file| file.bytes);
        format!(" ({})", bytes(variant.files.iter().map(of).sum()))
    };
    match variants.is_empty() {
        true => "no GGUF file".into(),
        false => listed(&name.repo, variants, size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(paths: &[&str]) -> Listing {
        let file = |path: &&str| RepoFile { path: (*path).into(), bytes: 1_000_000, etag: "0".repeat(64) };
        Listing { commit: "0".repeat(40), files: paths.iter().map(file).collect(), architecture: None }
    }

    fn chosen(paths: &[&str], word: &str, index: &str) -> std::result::Result<String, String> {
        let name = HubName::parse(word).unwrap();
        match choose(&listing(paths), &name, |_| Ok(index.as_bytes().to_vec())) {
            Ok(chosen) => Ok(chosen.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>().join(" ")),
            Err(FetchFault::Error(e)) => Err(e.to_string()),
            Err(FetchFault::Changed) => panic!("nothing has changed"),
        }
    }

    #[test]
    fn a_gguf_file_comes_whole_and_alone() {
        let files = [
            "README.md",
            "g-Q4_K_M.gguf",
            "g-Q8_0-00001-of-00002.gguf",
            "g-Q8_0-00002-of-00002.gguf",
            "mmproj-F16.gguf",
        ];
        let ask = |word: &str| chosen(&files, word, "");
        assert_eq!(ask("o/g:q4_k_m").unwrap(), "g-Q4_K_M.gguf");
        assert_eq!(ask("o/g:Q8_0").unwrap(), "g-Q8_0-00001-of-00002.gguf g-Q8_0-00002-of-00002.gguf");
        assert_eq!(ask("o/g/g-Q4_K_M.gguf").unwrap(), "g-Q4_K_M.gguf");
        assert_eq!(ask("o/g/README.md").unwrap(), "README.md");
        assert_eq!(ask("o/g/mmproj-F16.gguf").unwrap(), "mmproj-F16.gguf");
        let wanted = "o/g may be any of 2 models: Q4_K_M (1.0 MB), Q8_0 (2.0 MB); name one, as in o/g:Q4_K_M";
        assert_eq!(ask("o/g").unwrap_err(), wanted);
        let wanted = "o/g has no Q2_K: it has Q4_K_M (1.0 MB), Q8_0 (2.0 MB); name one, as in o/g:Q4_K_M";
        assert_eq!(ask("o/g:Q2_K").unwrap_err(), wanted);
        let wanted = "o/g has no file g-Q4_K_S.gguf; the one most like it is g-Q4_K_M.gguf";
        assert_eq!(ask("o/g/g-Q4_K_S.gguf").unwrap_err(), wanted);
        assert_eq!(chosen(&files[..2], "o/g", "").unwrap(), "g-Q4_K_M.gguf");
        let line = chosen(&files[..3], "o/g:Q8_0", "").unwrap_err();
        assert!(line.contains("does not have g-Q8_0-00002-of-00002.gguf"), "{line}");
        assert!(chosen(&["README.md"], "o/g", "").unwrap_err().contains("no GGUF file, and no config.json"));
    }

    #[test]
    fn a_directory_of_safetensors_comes_with_all_that_reads_it() {
        let files = [
            "README.md",
            "config.json",
            "tokenizer.json",
            "tokenizer.model",
            "chat_template.jinja",
            "original/params.json",
            "onnx/model.onnx",
            "model.safetensors.index.json",
            "model-1.safetensors",
            "model-2.safetensors",
            "consolidated.safetensors",
        ];
        let index =
            r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}"#;
        let beside = "config.json tokenizer.json tokenizer.model chat_template.jinja model.safetensors.index.json";
        let ask = |index: &str| chosen(&files, "o/g", index);
        assert_eq!(ask(index).unwrap(), format!("{beside} model-1.safetensors model-2.safetensors"));
        assert!(ask("{}").unwrap_err().contains("not a valid index"));
        let line = ask(r#"{"weight_map": {"a": "../x"}}"#).unwrap_err();
        assert!(line.contains("does not have ../x"), "{line}");
        assert_eq!(
            chosen(&["config.json", "model.safetensors", "x.safetensors"], "o/g", "").unwrap(),
            "config.json model.safetensors"
        );
        let line = chosen(&files, "o/g:Q4_K_M", "").unwrap_err();
        assert!(line.contains("o/g has no GGUF file; pull o/g"), "{line}");
    }
}
