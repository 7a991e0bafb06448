//! The Hugging Face hub: models in the cache that its own client fills, found by their hub names, and downloads into
//! it.
//!
//! ```text
//! models--ORG--NAME/blobs/ETAG              a file's bytes, by its SHA-256 or its id in Git
//! models--ORG--NAME/blobs/ETAG.incomplete   the bytes downloaded so far
//! models--ORG--NAME/snapshots/COMMIT/PATH   a link to its bytes
//! models--ORG--NAME/refs/main               the commit that was downloaded last
//! .locks/models--ORG--NAME/ETAG.lock        held while the file is downloaded
//! ```
//!
//! Other tools read and write the same layout: transformers, llama.cpp and the hub's own `hf`.

mod cache;
#[cfg(feature = "cli")]
pub mod export;
pub mod name;
mod place;
#[cfg(feature = "pull")]
pub mod pull;
#[cfg(any(feature = "cli", feature = "pull"))]
mod sum;
mod variant;

pub(crate) use cache::has_safetensors;
pub use cache::{Cache, Cached};

use std::path::{Path, PathBuf};

use crate::model::text_file;
use crate::{Error, Result};
use name::HubName;

/// The directory or the GGUF file of the model called `word`; `None` if the cache has no such model.
pub(crate) fn find(word: &Path) -> Option<PathBuf> {
    let name = HubName::parse_beside_paths(word.to_str()?)?;
    Cache::of_user()?.find(&name).ok().map(|model| model.path)
}

/// Explains a name that is neither a path nor in the cache.
///
/// # Errors
/// [`Error::Input`]: lists the cached models of that repository and gives the command that downloads the model.
pub(crate) fn check(path: &Path) -> Result<()> {
    let name = path.to_str().filter(|_| !text_file::is_there(path)).and_then(HubName::parse_beside_paths);
    let Some(name) = name else { return Ok(()) };
    match Cache::of_user() {
        Some(cache) => cache.find(&name).map(drop),
        None => Err(Error::input(
            format!("{name} is no path, and there is no home directory with a cache of the Hugging Face hub"),
            "check the path, or set HF_HOME",
        )),
    }
}

/// The name of the model whose snapshot `dir` is.
pub(crate) fn name_of_snapshot(dir: &Path) -> Option<String> {
    let snapshots = dir.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "snapshots"))?;
    let model = snapshots.parent()?.file_name()?.to_str()?.strip_prefix("models--")?;
    Some(model.rsplit_once("--").map_or(model, |(_, name)| name).to_owned())
}

/// The command that downloads a model.
fn pull_command(name: &HubName) -> String {
    match cfg!(feature = "pull") {
        true => format!("`kiln pull {name}`"),
        false => format!("`hf download {}`", name.repo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nowhere_says_what_to_run() {
        for word in
            ["no-such-org/no-such-model", "no-such-org/no-such-model:Q4_K_M", "no-such-org/no-such-model/a.gguf"]
        {
            let line = check(Path::new(word)).unwrap_err().to_string();
            let command = pull_command(&HubName::parse(word).unwrap());
            assert!(line.contains(&command), "{line}");
        }
        for path in ["/no/such", "no-such", "./no/such", "no/such/model", "src/model"] {
            assert!(check(Path::new(path)).is_ok(), "{path}");
        }
    }
}
