//! The directories of the Hugging Face hub's own client, found by the environment variables that this client reads.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// The directory of downloaded models; `None` without a home directory.
pub fn cache() -> Option<PathBuf> {
    cache_by(|name| std::env::var_os(name))
}

/// The file in which the client's login stores the token; `None` without a home directory.
#[cfg(feature = "pull")]
pub fn token_file() -> Option<PathBuf> {
    token_file_by(|name| std::env::var_os(name))
}

/// Expands `~` and variables in the value, because neither systemd's `Environment=` nor a container's `-e` does.
fn cache_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| set(&variable, name);
    let cache = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE"));
    let cache = cache.or_else(|| own(&variable).map(|own| own.join("hub")))?;
    Some(expand(cache, &variable))
}

/// The file with the user's access token, found by environment variables as [`cache_by`] finds the cache.
#[cfg(feature = "pull")]
fn token_file_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let file = set(&variable, "HF_TOKEN_PATH").or_else(|| own(&variable).map(|own| own.join("token")))?;
    Some(expand(file, &variable))
}

/// The root of all of the client's files.
fn own(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    set(&variable, "HF_HOME")
        .or_else(|| set(&variable, "XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
        .or_else(|| home(&variable).map(|home| home.join(".cache/huggingface")))
}

/// The value of a variable as a path. An empty value counts as unset.
fn set(variable: impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn expand(path: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    expand_variables(&expand_home(path, &variable), &variable)
}

/// The user's home directory: `$HOME`, else the one in the user database.
fn home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = variable("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    set.or_else(|| Some(User::from_uid(Uid::current()).ok()??.dir))
}

/// Replaces a leading `~` or `~name` by the user's home directory, if the user exists.
fn expand_home(path: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let mut parts = path.components();
    let Some(user) = parts.next().and_then(|first| first.as_os_str().to_str()?.strip_prefix('~')) else { return path };
    let found = match user {
        "" => home(variable),
        name => User::from_name(name).ok().flatten().map(|user| user.dir),
    };
    found.map_or_else(|| path.clone(), |home| home.join(parts.as_path()))
}

/// Replaces `$NAME` and `${NAME}` by the variables' values. Unset variables stay as they are.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_hubs_client_keeps_it() {
        let with = |set: &[(&str, &str)]| {
            cache_by(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
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
        // The results of Python's os.path.expanduser and os.path.expandvars.
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
        // Without HOME the home directory comes from the user database.
        let own = User::from_uid(Uid::current()).unwrap().unwrap().dir;
        assert_eq!(with(&[]), Some(own.join(".cache/huggingface/hub")));
        assert_eq!(with(&[("HF_HOME", "~/b")]), Some(own.join("b/hub")));
    }
}
