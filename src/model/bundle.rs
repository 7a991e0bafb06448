//! Bundles: a model in a directory with a manifest, which has the model's name and each file's length and sum; and links to
//! them, which are turned to another bundle at once, and back where that one does not answer.

use crate::machine::partial::parent_of;
use crate::machine::regular::{self, Links};
use crate::{Cancel, Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The manifest's name.
pub const MANIFEST: &str = "kiln-bundle.json";
/// The form of manifests that this version reads and writes.
const FORM: u32 = 1;
/// Most bytes of a manifest.
const MOST_BYTES: u64 = 1 << 20;
/// Bytes of a file that are read at a time.
pub(crate) const PIECE: usize = 4 << 20;

/// What a bundle is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORM`].
    kiln_bundle: u32,
    /// The model's name.
    pub name: String,
    /// All files but the manifest.
    pub files: Vec<Entry>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name in the directory.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Its sum, in hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// That of the model `name` in these files.
    pub fn new(name: String, files: Vec<Entry>) -> Manifest {
        Manifest { kiln_bundle: FORM, name, files }
    }

    /// Reads a directory's. `None`: it has none.
    ///
    /// # Errors
    /// Input: it is damaged, or of another form.
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

    /// Reads a directory's, and all that it names: each file has its length and its sum, and there are no others.
    ///
    /// # Errors
    /// Input: there is no manifest, or something is not as it says. Interrupted: `cancel` is set.
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
            let (mut sum, mut piece) = (Sha256::new(), vec![0; PIECE]);
            loop {
                cancel.check()?;
                match file.read(&mut piece).map_err(|e| Error::unreadable(&path, &e))? {
                    0 => break,
                    n => sum.update(&piece[..n]),
                }
            }
            if hex(sum) != entry.sha256 {
                return Err(wrong(format!("{} is damaged: its sum is not its manifest's", path.display())));
            }
        }
        Ok(manifest)
    }
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::input(format!("{} is no manifest of a bundle: {why}", path.display()), "copy the bundle anew")
}

/// A sum in hexadecimal digits.
pub(crate) fn hex(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where the link before it is kept.
fn previous_of(link: &Path) -> PathBuf {
    let mut name = OsString::from(link);
    name.push(".previous");
    name.into()
}

/// Where a link leads; `None` where there is nothing.
///
/// # Errors
/// Input: there is something else.
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

/// Makes `link` lead to `target`, at once: whoever follows it finds the old one or the new one.
fn turn(link: &Path, target: &Path) -> Result<()> {
    let mut name = OsString::from(link);
    name.push(format!(".new-{}", std::process::id()));
    let new = PathBuf::from(name);
    let _ = std::fs::remove_file(&new);
    symlink(target, &new).and_then(|()| std::fs::rename(&new, link)).map_err(|e| Error::unwritable(link, &e))
}

/// Makes `link` lead to the bundle at `directory`, and keeps where it led as `LINK.previous`. Returns where that leads then; one
/// that leads there already changes nothing.
///
/// # Errors
/// Input: there is something else at `link`. Failed: it cannot be written.
pub fn use_bundle(directory: &Path, link: &Path) -> Result<Option<PathBuf>> {
    // A link is no bundle: named as one, such as LINK.previous, it stands for where it leads. A path that ends with a slash is
    // what the link leads to.
    let directory = directory.canonicalize().map_err(|e| Error::unreadable(directory, &e))?;
    let link = &link.components().collect::<PathBuf>();
    let folder = parent_of(link).canonicalize().map_err(|e| Error::unreadable(parent_of(link), &e))?;
    if folder.starts_with(&directory) {
        let cause = format!("{} lies in the bundle itself", link.display());
        return Err(Error::input(cause, "name a link in another folder"));
    }
    // Beside it, the link holds wherever both are moved.
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

/// Makes `link` lead away from `bad` to where it led before. Returns where it leads; `None` where no link before it is kept. Where
/// somebody has turned it from `bad` meanwhile it stays.
///
/// # Errors
/// Failed: it cannot be written.
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
        // By the link before it, and named as shells complete them.
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
