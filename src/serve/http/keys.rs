//! API keys from a file, with optional names. The file is read again when it changes.

use super::request::Client;
use crate::machine::regular::{self, Links};
use crate::machine::stamp::FileStamp;
use crate::{Error, Result};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// API keys. Clones share them. Debug output does not show them.
#[derive(Clone, Default)]
pub struct ApiKeys(Arc<KeyFile>);

#[derive(Default)]
struct KeyFile {
    /// The file that the keys are read from. `None`: the keys are fixed.
    path: Option<PathBuf>,
    state: RwLock<LoadedKeys>,
}

#[derive(Default)]
struct LoadedKeys {
    /// True if requests need a key, even if all keys were revoked since.
    needed: bool,
    keys: Vec<ApiKey>,
    /// Stamps of the file at the last read and at the last check.
    read: Option<FileStamp>,
    seen: Option<FileStamp>,
}

struct ApiKey {
    name: String,
    text: String,
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.with(|state| state.keys.len()))
    }
}

/// The largest file of keys, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// The remedy in the error for an invalid key file.
const REMEDY: &str = "write one key on each line, or `NAME: KEY`";

impl ApiKeys {
    /// Parses keys, one per line, as `KEY` or `NAME: KEY`. Empty lines, lines that begin with `#`, and blanks around
    /// names and keys are ignored. The name of a key without one is its line.
    ///
    /// # Errors
    /// Input: a key contains blanks, so that no request could send it.
    pub fn parse(text: &str) -> Result<ApiKeys> {
        let state = LoadedKeys { needed: true, keys: parse(text, "the text")?, ..LoadedKeys::default() };
        Ok(ApiKeys(Arc::new(KeyFile { path: None, state: RwLock::new(state) })))
    }

    /// Reads keys from a file in the format of [`ApiKeys::parse`].
    ///
    /// # Errors
    /// Input: the file cannot be read, is not a regular file of UTF-8 text, has an invalid line, or has no keys.
    pub fn read(path: &Path) -> Result<ApiKeys> {
        let (keys, read) = read(path)?;
        if keys.is_empty() {
            return Err(Error::input(format!("{} has no API keys", path.display()), REMEDY));
        }
        let state = RwLock::new(LoadedKeys { needed: true, keys, read, seen: read });
        Ok(ApiKeys(Arc::new(KeyFile { path: Some(path.to_owned()), state })))
    }

    /// Reads the file again. All clones have the new keys from then on. If the file has no keys any more, no key is
    /// valid.
    ///
    /// # Errors
    /// As [`ApiKeys::read`]. The keys stay as they were.
    pub fn reread(&self) -> Result<()> {
        let Some(path) = &self.0.path else { return Ok(()) };
        let read = read(path);
        let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        // A file that cannot be read is not tried again until it changes.
        state.read = state.seen;
        let (keys, stamp) = read?;
        if keys.is_empty() && !state.keys.is_empty() {
            log::warn!("{} has no API keys any more: no request that needs one is answered", path.display());
        }
        (state.keys, state.read, state.seen) = (keys, stamp, stamp);
        Ok(())
    }

    /// Reads the file again if it has changed and was the same at the last two checks, so that a file is not read while
    /// it is being written. Returns whether it was read.
    /// # Errors
    /// As [`ApiKeys::reread`].
    pub fn refresh(&self) -> Result<bool> {
        let Some(found) = self.0.path.as_ref().and_then(|path| path.metadata().ok()) else { return Ok(false) };
        let now = Some(FileStamp::of(&found));
        let (is_read, is_settled) = self.with(|state| (state.read == now, state.seen == now));
        self.0.state.write().unwrap_or_else(PoisonError::into_inner).seen = now;
        match !is_read && is_settled {
            true => self.reread().map(|()| true),
            false => Ok(false),
        }
    }

    /// Reads the key file again if it has changed, as [`ApiKeys::refresh`] does, and logs the result.
    pub fn follow(&self) {
        let name = self.path().unwrap_or(Path::new("")).display();
        match self.refresh() {
            // Already logged when the file was read.
            Ok(true) if self.with(|state| state.keys.is_empty()) => {}
            Ok(true) => log::warn!("{name} has changed, and its API keys hold from here on"),
            Ok(false) => {}
            Err(e) => log::error!("the API keys stay as they were: {e}"),
        }
    }

    /// The file that the keys are read from, if any.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// True if `other` is a clone that shares these keys. False for equal keys of another origin.
    pub(super) fn are(&self, other: &ApiKeys) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn with<T>(&self, see: impl FnOnce(&LoadedKeys) -> T) -> T {
        see(&self.0.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if requests need a key.
    pub fn are_needed(&self) -> bool {
        self.with(|state| state.needed)
    }

    /// True if `given` is a valid key. The time taken reveals only the keys' lengths.
    pub fn has(&self, given: &str) -> bool {
        self.name_of(given).is_some()
    }

    /// The name of the key `given`, if valid. The time taken reveals only the keys' lengths.
    pub fn name_of(&self, given: &str) -> Option<String> {
        self.with(|state| {
            let (mut found, mut at) = (Choice::from(0), 0_u64);
            for (i, key) in (0_u64..).zip(&state.keys) {
                let is_it = key.text.as_bytes().ct_eq(given.as_bytes());
                at.conditional_assign(&i, is_it);
                found |= is_it;
            }
            bool::from(found).then(|| state.keys.get(at as usize).map(|key| key.name.clone())).flatten()
        })
    }

    /// The client that a key stands for. `None`: it is the only key, and no `others` connect without one.
    pub(super) fn client(&self, given: &str, others: bool) -> Option<Client> {
        static NUMBERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let is_one = others || self.with(|state| state.keys.len() > 1);
        (is_one && self.has(given)).then(|| Client::Key(NUMBERS.hash_one(given)))
    }
}

fn read(path: &Path) -> Result<(Vec<ApiKey>, Option<FileStamp>)> {
    let name = path.display();
    // Taken before reading, so that a change in between is found later.
    let stamp = FileStamp::at(path);
    let bytes = regular::read(path, Links::Follow, MOST_BYTES).map_err(|fault| match fault {
        regular::ReadFault::Io(e) => Error::unreadable(path, &e),
        fault => Error::input(format!("{name} is not used for API keys: {fault}"), "give a file with one key a line"),
    })?;
    let text = String::from_utf8(bytes).map_err(|_| Error::input(format!("{name} is not UTF-8"), REMEDY))?;
    Ok((parse(text.strip_prefix('\u{feff}').unwrap_or(&text), &name.to_string())?, stamp))
}

fn parse(text: &str, whose: &str) -> Result<Vec<ApiKey>> {
    let lines = (1..).zip(text.lines()).map(|(number, line)| (number, line.trim()));
    let parse = |(number, line): (usize, &str)| {
        let named = line.split_once(':').filter(|(name, key)| key.starts_with(char::is_whitespace) && !name.is_empty());
        let (name, key) = match named {
            Some((name, key)) => (name.trim().to_owned(), key.trim()),
            None => (format!("line {number}"), line),
        };
        match key.is_empty() || key.contains(char::is_whitespace) {
            true => Err(Error::input(format!("line {number} of {whose} is no API key: it has blanks"), REMEDY)),
            false => Ok(ApiKey { name, text: key.to_owned() }),
        }
    };
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<(String, String)> {
        parse(text, "it").unwrap().into_iter().map(|key| (key.name, key.text)).collect()
    }

    #[test]
    fn a_line_is_a_key_or_a_name_and_a_key() {
        let own = |name: &str, key: &str| (name.to_owned(), key.to_owned());
        assert_eq!(
            named(" abc \r\n# x: y\n\nthe desk:  sk-1:2\nsk:3\n"),
            [own("line 1", "abc"), own("the desk", "sk-1:2"), own("line 5", "sk:3"),]
        );
        for wrong in ["a b", "desk: a b", "x\ny z", "desk: a # note"] {
            let e = ApiKeys::parse(wrong).unwrap_err().to_string();
            assert!(e.contains("is no API key: it has blanks; write one key"), "{e}");
            assert!(!e.contains(wrong), "an error quotes no key: {e}");
        }
    }

    #[test]
    fn the_name_of_a_key_is_found_and_no_other_is_right() {
        let keys = ApiKeys::parse("first: aaaa\nsecond: bbbb\ncccc").unwrap();
        let name = |given: &str| keys.name_of(given);
        assert_eq!(name("aaaa").as_deref(), Some("first"));
        assert_eq!(name("bbbb").as_deref(), Some("second"));
        assert_eq!(name("cccc").as_deref(), Some("line 3"));
        assert_eq!((name("aaa"), name("aaaaa"), name(""), name("first")), (None, None, None, None));
        assert!(keys.are_needed() && !ApiKeys::default().are_needed());
    }

    #[test]
    fn a_file_that_changed_is_read_once_it_stays_as_it_is_and_an_empty_one_revokes_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let write = |text: &str| {
            // A new file with another inode, as written by editors and configuration tools.
            let new = directory.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &path).unwrap();
        };
        write("old\nboth");
        let keys = ApiKeys::read(&path).unwrap();
        assert!(!keys.refresh().unwrap() && !keys.refresh().unwrap());
        write("both\nnew");
        assert!(!keys.refresh().unwrap() && keys.has("old"), "it may be half written");
        assert!(keys.refresh().unwrap() && !keys.refresh().unwrap());
        assert_eq!(["old", "both", "new"].map(|key| keys.has(key)), [false, true, true]);
        // An invalid file leaves the keys as they are, and is reported once.
        write("a b");
        assert!(!keys.refresh().unwrap() && keys.refresh().is_err());
        assert!(!keys.refresh().unwrap() && keys.has("new"));
        std::fs::remove_file(&path).unwrap();
        assert!(!keys.refresh().unwrap() && !keys.refresh().unwrap() && keys.has("new"));
        write("# nobody\n");
        assert!(!keys.refresh().unwrap() && keys.refresh().unwrap());
        assert!(keys.are_needed() && !keys.has("new") && !keys.has(""));
        write("again");
        keys.reread().unwrap();
        assert!(keys.has("again") && !keys.refresh().unwrap());
    }
}
