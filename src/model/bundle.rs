//! Bundles: a model in a directory with a manifest, which has the model's name and each file's length and checksum; and
//! symbolic links to bundles, which are switched atomically, and back if the new bundle's server does not answer.

use crate::machine::partial::parent_of;
use crate::machine::regular::{self, Links};
use crate::{Cancel, Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The file name of a bundle's manifest.
pub const MANIFEST: &str = "kiln-bundle.json";
/// The version of the manifest format that this build reads and writes.
const FORM: u32 = 1;
/// The most bytes that a manifest may have.
const MOST_BYTES: u64 = 1 << 20;
/// Bytes of a file that are read at a time.
const PIECE: usize = 4 << 20;

/// The manifest of a bundle: its model's name, and its files with their checksums.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the manifest's layout, [`FORM`].
    kiln_bundle: u32,
    /// The model's name.
    pub name: String,
    /// The bundle's files, without the manifest.
    pub files: Vec<Entry>,
}

/// A file of a bundle, with its length and its checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The file's name in the bundle's directory.
    pub file: String,
    /// The file's length in bytes.
    pub bytes: u64,
    /// The file's SHA-256, in hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// A manifest of the model `name` in these files.
    pub fn new(name: String, files: Vec<Entry>) -> Manifest {
        Manifest { kiln_bundle: FORM, name, files }
    }

    /// Reads a directory's manifest. `None` if it has none.
    ///
    /// # Errors
    /// Input: the manifest is damaged, or of another version.
    pub fn read(directory: &Path) -> Result<Option<Manifest>> {
        let path = directory.join(MANIFEST);
        let bytes = match regular::read(&path, Links::Follow, MOST_BYTES) {
            Err(regular::ReadFault::Io(e)) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            read => read.map_err(|e| damaged(&path, &e))?,
        };
        let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|e| damaged(&path, &e))?;
        if manifest.kiln_bundle != FORM {
            let cause = format!("{} is of form {}, and {FORM} is read", path.display(), manifest.kiln_bundle);
            return Err(Error::input(cause, "use the version of Kiln that made it, or make the bundle anew"));
        }
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
        match manifest.files.iter().find(|entry| !is_name(&entry.file) || entry.file == MANIFEST) {
            Some(entry) => Err(damaged(&path, &format!("{:?} is no file's name", entry.file))),
            None => Ok(Some(manifest)),
        }
    }

    /// Reads a directory's manifest and checks every file's length and checksum, and that there are no other files.
    ///
    /// # Errors
    /// Input: there is no manifest, or the files differ from it. Interrupted: `cancel` is set.
    pub fn verify(directory: &Path, cancel: &Cancel) -> Result<Manifest> {
        let place = directory.display();
        let Some(manifest) = Manifest::read(directory)? else {
            let cause = format!("{place} is no bundle: it has no {MANIFEST}");
            return Err(Error::input(cause, "make one with kiln bundle make"));
        };
        let wrong = |what: String| Error::input(what, "copy the bundle anew, or use another");
        for entry in directory.read_dir().map_err(|e| Error::unreadable(directory, &e))? {
            let name = entry.map_err(|e| Error::unreadable(directory, &e))?.file_name();
            let is_known = manifest.files.iter().any(|entry| name == *entry.file) || name == MANIFEST;
            if !is_known {
                return Err(wrong(format!("{place} has {}, which its manifest does not name", name.display())));
            }
        }
        for entry in &manifest.files {
            let path = directory.join(&entry.file);
            let (mut file, length) =
                regular::open(&path, Links::Follow).map_err(|e| wrong(format!("{}: {e}", path.display())))?;
            if length != entry.bytes {
                let (path, expected) = (path.display(), entry.bytes);
                return Err(wrong(format!("{path} has {length} bytes, and its manifest says {expected}")));
            }
            if sha256_of(&mut file, &path, &|| cancel.check(), |_, _| Ok(()))? != entry.sha256 {
                return Err(wrong(format!("{} is damaged: its sum is not its manifest's", path.display())));
            }
        }
        Ok(manifest)
    }
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::input(format!("{} is no manifest of a bundle: {why}", path.display()), "copy the bundle anew")
}

/// Reads the file at `path` to its end, and returns its SHA-256 in hexadecimal digits. Calls `check` before each read.
/// Calls `each` after it, with the bytes read and the number of bytes so far.
///
/// # Errors
/// Input: the file cannot be read. Otherwise those of `check` and `each`.
pub(crate) fn sha256_of(
    file: &mut impl Read,
    path: &Path,
    check: &dyn Fn() -> Result<()>,
    mut each: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<String> {
    let (mut sum, mut done, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        check()?;
        let read = file.read(&mut piece).map_err(|e| Error::unreadable(path, &e))?;
        if read == 0 {
            return Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        sum.update(&piece[..read]);
        done += read as u64;
        each(&piece[..read], done)?;
    }
}

/// The path of the link to the previous bundle: that of `link` with `.previous` after it.
fn previous_of(link: &Path) -> PathBuf {
    let mut name = OsString::from(link);
    name.push(".previous");
    name.into()
}

/// The target of a link; `None` if nothing exists there.
///
/// # Errors
/// Input: the path is not a link.
fn target_of(link: &Path) -> Result<Option<PathBuf>> {
    match link.read_link() {
        Ok(target) => Ok(Some(target)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(_) => {
            let cause = format!("{} is no link", link.display());
            Err(Error::input(cause, "name a link to a bundle, or one to be made"))
        }
    }
}

/// Makes `link` lead to `target`, atomically: a reader finds the old target or the new one.
fn turn(link: &Path, target: &Path) -> Result<()> {
    let mut name = OsString::from(link);
    name.push(format!(".new-{}", std::process::id()));
    let new = PathBuf::from(name);
    let _ = std::fs::remove_file(&new);
    symlink(target, &new).and_then(|()| std::fs::rename(&new, link)).map_err(|e| Error::unwritable(link, &e))
}

/// Makes `link` lead to the bundle at `directory`, and keeps the old target as `LINK.previous`. Returns the target of
/// `LINK.previous`. If the link already leads there, nothing changes.
///
/// # Errors
/// Input: `link` is not a link. Failed: the link cannot be written.
pub fn use_bundle(directory: &Path, link: &Path) -> Result<Option<PathBuf>> {
    // A link such as LINK.previous stands for its target. A path with a trailing slash also names the target, so
    // slashes are removed.
    let directory = directory.canonicalize().map_err(|e| Error::unreadable(directory, &e))?;
    let link = &link.components().collect::<PathBuf>();
    let folder = parent_of(link).canonicalize().map_err(|e| Error::unreadable(parent_of(link), &e))?;
    if folder.starts_with(&directory) {
        let cause = format!("{} lies in the bundle itself", link.display());
        return Err(Error::input(cause, "name a link in another folder"));
    }
    // A relative target, so that link and bundle can be moved together.
    let target = directory.strip_prefix(&folder).map_or(directory.as_path(), |beside| beside);
    let old = target_of(link)?;
    if old.as_deref() == Some(target) {
        return Ok(previous_of(link).read_link().ok());
    }
    if let Some(old) = &old {
        turn(&previous_of(link), old)?;
    }
    turn(link, target)?;
    Ok(old)
}

/// Switches `link` from `bad` back to its previous target. Returns its target; `None` if no previous target is kept. A
/// link that no longer leads to `bad` stays unchanged.
///
/// # Errors
/// Failed: the link cannot be written.
pub fn roll_back(link: &Path, bad: &Path) -> Result<Option<PathBuf>> {
    let previous = previous_of(link);
    let Ok(now) = link.read_link() else { return Ok(None) };
    if now != bad {
        return Ok(Some(now));
    }
    let Ok(good) = previous.read_link() else { return Ok(None) };
    turn(link, &good)?;
    std::fs::remove_file(&previous).map_err(|e| Error::unwritable(&previous, &e))?;
    Ok(Some(good))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_what_its_manifest_says_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let verify = || Manifest::verify(dir.path(), &Cancel::default());
        let refused = |word: &str| {
            let e = verify().unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(word), "{e}");
        };
        refused("is no bundle");
        std::fs::write(at("weights"), "abc").unwrap();
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let entry = |file: &str| Entry { file: file.into(), bytes: 3, sha256: sum.into() };
        let write = |manifest: &Manifest| {
            std::fs::write(at(MANIFEST), serde_json::to_vec(manifest).unwrap()).unwrap();
        };
        let whole = Manifest::new("m".into(), vec![entry("weights")]);
        write(&whole);
        assert_eq!(verify().unwrap(), whole);
        std::fs::write(at("weights"), "abd").unwrap();
        refused("is damaged");
        std::fs::write(at("weights"), "ab").unwrap();
        refused("2 bytes");
        std::fs::write(at("weights"), "abc").unwrap();
        std::fs::write(at("other"), "").unwrap();
        refused("does not name");
        std::fs::remove_file(at("other")).unwrap();
        assert!(matches!(
            Manifest::verify(dir.path(), &{
                let cancel = Cancel::default();
                cancel.set();
                cancel
            }),
            Err(Error::Interrupted { .. })
        ));
        for name in ["../weights", "", ".hidden", MANIFEST] {
            write(&Manifest::new("m".into(), vec![entry(name)]));
            refused("no file's name");
        }
        write(&Manifest { kiln_bundle: 2, ..whole });
        refused("form 2");
        std::fs::write(at(MANIFEST), "{").unwrap();
        refused("no manifest");
    }

    #[test]
    fn a_link_is_turned_and_turned_back() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let link = at("current");
        for name in ["a", "b"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        assert_eq!(use_bundle(&at("a"), &link).unwrap(), None);
        let leads = || link.read_link().unwrap();
        assert_eq!((leads(), roll_back(&link, Path::new("a")).unwrap()), ("a".into(), None));
        assert_eq!(use_bundle(&at("b"), &link).unwrap(), Some("a".into()));
        assert_eq!(use_bundle(&at("b"), &link).unwrap(), Some("a".into()), "which keeps the one before");
        assert_eq!(roll_back(&link, Path::new("c")).unwrap(), Some("b".into()), "somebody has turned it from there");
        assert_eq!((roll_back(&link, Path::new("b")).unwrap(), leads()), (Some("a".into()), "a".into()));
        assert_eq!(roll_back(&link, Path::new("a")).unwrap(), None);
        // By the previous link, and named with slashes, as shells complete them.
        use_bundle(&at("b/"), &at("current/")).unwrap();
        assert_eq!(use_bundle(&at("current.previous"), &link).unwrap(), Some("b".into()));
        assert_eq!((leads(), previous_of(&link).read_link().unwrap()), ("a".into(), "b".into()));
        assert_eq!(use_bundle(&link, &link).unwrap(), Some("b".into()));
        assert!(use_bundle(&at("b"), &at("b/link")).unwrap_err().to_string().contains("in the bundle itself"));
        std::fs::remove_file(previous_of(&link)).unwrap();
        assert!(use_bundle(&at("b"), &at("a")).unwrap_err().to_string().contains("is no link"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing else is left");
    }
}
