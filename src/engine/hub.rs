//! Models in the cache of the Hugging Face hub, by their ids: what `hf download ORG/NAME` has left there. Nothing is
//! downloaded.
//!
//! ```text
//! models--ORG--NAME/refs/main          the commit that was downloaded last
//! models--ORG--NAME/snapshots/COMMIT/  its files
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use nix::unistd::{Uid, User};

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
    let Some((organisation, name)) = id(path).filter(|_| !text_file::is_there(path)) else { return Ok(()) };
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

/// The cache's directory, by environment variables as the hub's own client takes them: with a home directory for `~`, and
/// with the values of variables, since neither systemd's `Environment=` nor a container's `-e` puts them in.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("HF_HUB_CACHE")
        .or_else(|| set("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| set("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
        .or_else(|| home(&variable).map(|home| home.join(".cache/huggingface/hub")))?;
    Some(expand_variables(&expand_home(cache, &variable), &variable))
}

/// The user's home directory: `$HOME`, else that of the system's list of users.
fn home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = variable("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    set.or_else(|| Some(User::from_uid(Uid::current()).ok()??.dir))
}

/// `path` with a home directory for a `~` or `~name` that it begins with, where there is such a user.
fn expand_home(path: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let mut parts = path.components();
    let Some(user) = parts.next().and_then(|first| first.as_os_str().to_str()?.strip_prefix('~')) else { return path };
    let found = match user {
        "" => home(variable),
        name => User::from_name(name).ok().flatten().map(|user| user.dir),
    };
    found.map_or_else(|| path.clone(), |home| home.join(parts.as_path()))
}

/// `path` with the values of the variables that it names, `$NAME` or `${NAME}`. One that is not set stays as it is.
fn expand_variables(path: &Path, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let (mut rest, mut expanded) = (path.as_os_str().as_bytes(), Vec::new());
    while let Some(at) = rest.iter().position(|b| *b == b'$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let braced = after.first() == Some(&b'{');
        let name = &after[usize::from(braced)..];
        let name = &name[..name.iter().position(|b| !is_name(b)).unwrap_or(name.len())];
        let taken = name.len() + if braced { 2 } else { 0 };
        let is_whole = !name.is_empty() && (!braced || after.get(taken - 1) == Some(&b'}'));
        let value = std::str::from_utf8(name).ok().filter(|_| is_whole).and_then(&variable);
        expanded.extend(before);
        rest = match value {
            Some(value) => {
                expanded.extend(value.as_bytes());
                &after[taken..]
            }
            None => {
                expanded.push(b'$');
                after
            }
        };
    }
    expanded.extend(rest);
    OsString::from_vec(expanded).into()
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
        let all = [
            ("HF_HUB_CACHE", "/a"),
            ("HUGGINGFACE_HUB_CACHE", "/e"),
            ("HF_HOME", "/b"),
            ("XDG_CACHE_HOME", "/c"),
            ("HOME", "/d"),
        ];
        let places = ["/a", "/e", "/b/hub", "/c/huggingface/hub", "/d/.cache/huggingface/hub"];
        for (from, wanted) in places.iter().enumerate() {
            assert_eq!(with(&all[from..]), Some(PathBuf::from(wanted)));
        }
        assert_eq!(with(&[("HF_HOME", ""), ("HOME", "/d")]), Some(PathBuf::from("/d/.cache/huggingface/hub")));
        // What os.path.expanduser and os.path.expandvars make of a value.
        let root = User::from_uid(Uid::from_raw(0)).unwrap().unwrap();
        let roots = root.dir.join("x").display().to_string();
        for (value, wanted) in [
            ("~", "/d"),
            ("~/x y", "/d/x y"),
            ("$HOME/x", "/d/x"),
            ("${HOME}/x/$DEEP", "/d/x//deep"),
            ("/a/~", "/a/~"),
            ("~no-such-user/x", "~no-such-user/x"),
            (&format!("~{}/x", root.name), &roots),
            ("/a/$UNSET/${UNSET}/${HOME", "/a/$UNSET/${UNSET}/${HOME"),
            ("/a/$/${}$", "/a/$/${}$"),
            ("$HOMEX/$HOME.x", "$HOMEX//d.x"),
        ] {
            for key in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
                assert_eq!(
                    with(&[(key, value), ("HOME", "/d"), ("DEEP", "/deep")]),
                    Some(PathBuf::from(wanted)),
                    "{value}"
                );
            }
        }
        assert_eq!(with(&[("HF_HOME", "~/b"), ("HOME", "/d")]), Some(PathBuf::from("/d/b/hub")));
        assert_eq!(with(&[("XDG_CACHE_HOME", "$HOME/c"), ("HOME", "/d")]), Some(PathBuf::from("/d/c/huggingface/hub")));
        // Without HOME the system's list of users has the home directory.
        let own = User::from_uid(Uid::current()).unwrap().unwrap().dir;
        assert_eq!(with(&[]), Some(own.join(".cache/huggingface/hub")));
        assert_eq!(with(&[("HF_HOME", "~/b")]), Some(own.join("b/hub")));
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
