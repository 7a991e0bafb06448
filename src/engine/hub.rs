//! Models in the cache of the Hugging Face hub, by their ids: what `hf download ORG/NAME` has left there. Nothing is
//! downloaded.
//!
//! ```text
//! models--ORG--NAME/refs/main          the commit that was downloaded last
//! models--ORG--NAME/snapshots/COMMIT/  its files
//! ```

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use crate::model::text_file;
use crate::{Error, Result};

/// The longest ref that is read, in bytes. A commit's name has 40.
const MAX_REF: usize = 256;

/// The directory that has the files of the model with the id `word`; `None` if `word` is no id, or the cache does not have
/// the model.
pub(super) fn find(word: &Path) -> Option<PathBuf> {
    find_in(&cache(|name| std::env::var_os(name))?, word)
}

/// Says what to do about an id that is neither a path nor in the cache.
///
/// # Errors
/// [`Error::Input`] with the command that downloads the model.
pub(super) fn check(path: &Path) -> Result<()> {
    let Some((organisation, name)) = id(path).filter(|_| !path.exists()) else { return Ok(()) };
    let place = cache(|name| std::env::var_os(name)).map_or_else(String::new, |dir| format!(" ({})", dir.display()));
    Err(Error::input(
        format!("{organisation}/{name} is no path, and is not in the cache of the Hugging Face hub{place}"),
        format!("check the path, or run `hf download {organisation}/{name}`"),
    ))
}

/// The name of the model whose snapshot `dir` is.
pub(super) fn name(dir: &Path) -> Option<String> {
    let snapshots = dir.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "snapshots"))?;
    let model = snapshots.parent()?.file_name()?.to_str()?.strip_prefix("models--")?;
    Some(model.rsplit_once("--").map_or(model, |(_, name)| name).to_owned())
}

/// The cache's directory, by environment variables as the hub's own client takes them.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/huggingface/hub")))
}

/// The organisation and the name in an id.
fn id(word: &Path) -> Option<(&str, &str)> {
    let (organisation, name) = word.to_str()?.split_once('/')?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(allowed);
    (plain(organisation) && plain(name)).then_some((organisation, name))
}

fn find_in(cache: &Path, word: &Path) -> Option<PathBuf> {
    let (organisation, name) = id(word)?;
    let model = cache.join(format!("models--{organisation}--{name}"));
    let commit = text_file::read(&model.join("refs/main"), MAX_REF, "download the model again").ok()??;
    let commit = Path::new(commit.trim());
    // Only a plain name: a ref must not reach outside the model's snapshots.
    let mut parts = commit.components();
    let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    Some(model.join("snapshots").join(commit)).filter(|snapshot| is_plain && snapshot.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_where_it_was_downloaded_to() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("models--google--gemma-3-27b-it");
        let snapshot = model.join("snapshots/0123abcd");
        let found = |word: &str| find_in(dir.path(), Path::new(word));
        assert_eq!(found("google/gemma-3-27b-it"), None);
        std::fs::create_dir_all(model.join("refs")).unwrap();
        std::fs::write(model.join("refs/main"), "0123abcd\n").unwrap();
        assert_eq!(found("google/gemma-3-27b-it"), None, "the ref's snapshot is not there");
        std::fs::create_dir_all(&snapshot).unwrap();
        assert_eq!(found("google/gemma-3-27b-it"), Some(snapshot.clone()));
        assert_eq!(name(&snapshot).as_deref(), Some("gemma-3-27b-it"));
        for other in
            ["google/gemma-3-4b-it", "gemma-3-27b-it", "google/../google/gemma-3-27b-it", "google/", "/google/x"]
        {
            assert_eq!(found(other), None, "{other}");
        }
        for commit in ["..", "", "/", "../snapshots/0123abcd", "0123abcd/.."] {
            std::fs::write(model.join("refs/main"), commit).unwrap();
            assert_eq!(found("google/gemma-3-27b-it"), None, "{commit}");
        }
        assert_eq!(name(dir.path()), None);
    }

    #[test]
    fn the_cache_is_where_the_hubs_client_keeps_it() {
        let with = |set: &[(&str, &str)]| {
            cache(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
        };
        let all = [("HF_HUB_CACHE", "/a"), ("HF_HOME", "/b"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/d")];
        for (from, wanted) in ["/a", "/b/hub", "/c/huggingface/hub", "/d/.cache/huggingface/hub"].iter().enumerate() {
            assert_eq!(with(&all[from..]), Some(PathBuf::from(wanted)));
        }
        assert_eq!(with(&[("HF_HOME", ""), ("HOME", "/d")]), Some(PathBuf::from("/d/.cache/huggingface/hub")));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn an_id_that_is_nowhere_says_what_to_run() {
        let line = check(Path::new("no-such-org/no-such-model")).unwrap_err().to_string();
        assert!(line.contains("`hf download no-such-org/no-such-model`"), "{line}");
        for path in ["/no/such", "no-such", "./no/such", "no/such/model", "src/model"] {
            assert!(check(Path::new(path)).is_ok(), "{path}");
        }
    }
}
