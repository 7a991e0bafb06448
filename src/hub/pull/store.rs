//! The layout of a repository in the cache: the same as the hub's own client uses.

use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::Cache;
use super::super::cache::{PARTIAL, etag_of_partial, folder};
use super::super::name::Repo;
use super::listing::RepoFile;
use super::{PullWatch, check};
use crate::display::bytes;
use crate::machine::free_bytes;
use crate::machine::partial::{Lock, PartialFile, lock_for, parent_of};
use crate::{Error, Result};

/// Interval at which a lock that another process holds is tried again.
const LOOK: Duration = Duration::from_millis(200);

/// The directories of one repository in the cache.
pub(super) struct Store {
    dir: PathBuf,
    locks: PathBuf,
}

impl Store {
    pub(super) fn new(cache: &Cache, repo: &Repo) -> Store {
        Store { dir: cache.repo_dir(repo), locks: cache.root().join(".locks").join(folder(repo)) }
    }

    /// Creates the repository's directories in the cache.
    pub(super) fn prepare(&self) -> Result<()> {
        [&self.dir.join("blobs"), &self.dir.join("refs"), &self.locks].into_iter().try_for_each(|dir| make(dir))
    }

    /// The path at which the cache stores a complete file.
    pub(super) fn blob(&self, file: &RepoFile) -> PathBuf {
        self.dir.join("blobs").join(&file.etag)
    }

    /// The path at which the cache stores a file that is being downloaded.
    pub(super) fn partial(&self, file: &RepoFile) -> PathBuf {
        self.dir.join("blobs").join(format!("{}.{PARTIAL}", file.etag))
    }

    /// The directory with links to a commit's files, by their names.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir.join("snapshots").join(commit)
    }

    /// The file at a path of a commit.
    pub(super) fn path(&self, commit: &str, path: &str) -> PathBuf {
        self.snapshot(commit).join(path)
    }

    /// True if the cache has all bytes of the file.
    pub(super) fn has(&self, file: &RepoFile) -> bool {
        self.blob(file).metadata().is_ok_and(|found| found.is_file() && found.len() == file.bytes)
    }

    /// Refuses a download for which the file system has no room.
    ///
    /// # Errors
    /// Failed: too little room.
    pub(super) fn check_space(&self, wanted: u64) -> Result<()> {
        let free = free_bytes(&self.dir)?;
        if wanted <= free {
            return Ok(());
        }
        let (place, lacking) = (self.dir.display(), bytes(wanted - free));
        let cause = format!("{} are to come, and {} are free in {place}", bytes(wanted), bytes(free));
        Err(Error::failed(cause, format!("free {lacking} there, or set HF_HOME to a place with more room")))
    }

    /// Locks a file by the lock that the hub's own client uses, and waits while another process holds it. `None` on a
    /// file system without locks.
    ///
    /// # Errors
    /// Failed: the lock cannot be created. Interrupted.
    pub(super) fn lock(&self, file: &RepoFile, watch: &dyn PullWatch) -> Result<Option<Lock>> {
        let path = self.locks.join(&file.etag);
        let mut has_told = false;
        loop {
            check(watch)?;
            match lock_for(&path, 0o666) {
                Ok(lock) => return Ok(Some(lock)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)) => {
                    return Ok(None);
                }
                Err(e) => return Err(Error::unwritable(&path, &e)),
            }
            if !has_told {
                watch.say(&format!("another process fetches {}, and is waited for", file.name()));
                has_told = true;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Links a file's bytes to its path in a commit.
    ///
    /// # Errors
    /// Failed: the link cannot be written.
    pub(super) fn link(&self, commit: &str, file: &RepoFile) -> Result<()> {
        let (path, depth) = (self.path(commit, &file.path), file.path.split('/').count() + 1);
        let target = Path::new(&"../".repeat(depth)).join("blobs").join(&file.etag);
        make(parent_of(&path))?;
        place(&self.blob(file), &path, &target, link_to).map_err(|e| Error::unwritable(&path, &e))
    }

    /// Writes the commit to `refs/main`, as the one downloaded last.
    ///
    /// # Errors
    /// Failed: the ref cannot be written.
    pub(super) fn set_main(&self, commit: &str) -> Result<()> {
        let path = self.dir.join("refs/main");
        PartialFile::write_whole(&path, 0o666, commit.as_bytes()).map_err(|e| Error::unwritable(&path, &e))
    }

    /// Partial files of interrupted downloads, with their lengths. Files that another process is downloading are left
    /// out.
    pub(super) fn partials(&self) -> Vec<(PathBuf, u64)> {
        let entries = std::fs::read_dir(self.dir.join("blobs")).into_iter().flatten().flatten();
        let partial = |path: PathBuf| {
            let is_free = lock_for(&self.locks.join(etag_of_partial(&path)?), 0o666).is_ok();
            is_free.then(|| Some((path.clone(), path.metadata().ok()?.len()))).flatten()
        };
        let mut partials: Vec<_> = entries.filter_map(|entry| partial(entry.path())).collect();
        partials.sort();
        partials
    }
}

/// Makes the path `at` a symbolic link to `target`.
fn link_to(target: &Path, at: &Path) -> std::io::Result<()> {
    symlink(target, at)
}

/// Creates a directory with all its parents.
fn make(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).create(dir).map_err(|e| Error::unwritable(dir, &e))
}

/// Links `path` to `target`, which leads to `blob`. On a file system without links the blob is moved to `path`, as the
/// hub's own client does.
fn place(
    blob: &Path,
    path: &Path,
    target: &Path,
    link: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    if path.read_link().is_ok_and(|found| found == target) {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.{PARTIAL}", std::process::id()));
    let new = PathBuf::from(name);
    match link(target, &new) {
        Ok(()) => std::fs::rename(&new, path),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS)) => {
            match OpenOptions::new().read(true).open(blob) {
                // An earlier download has already moved it there.
                Err(e) if e.kind() == ErrorKind::NotFound && path.exists() => Ok(()),
                _ => std::fs::rename(blob, path),
            }
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lies_where_the_hubs_own_client_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&Cache::at(dir.path()), &Repo::new("org", "a").unwrap());
        let file = RepoFile { path: "BF16/a.gguf".into(), bytes: 3, etag: "0".repeat(64) };
        store.prepare().unwrap();
        assert!(!store.has(&file));
        std::fs::write(store.blob(&file), "abc").unwrap();
        assert!(store.has(&file));
        for commit in ["c", "d", "c"] {
            store.link(commit, &file).unwrap();
            store.set_main(commit).unwrap();
        }
        let path = dir.path().join("models--org--a/snapshots/c/BF16/a.gguf");
        assert_eq!(path.read_link().unwrap(), Path::new("../../../blobs").join(&file.etag));
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(std::fs::read(dir.path().join("models--org--a/refs/main")).unwrap(), b"c");
        assert!(store.check_space(u64::MAX).unwrap_err().to_string().contains("set HF_HOME"));
    }

    #[test]
    fn where_there_are_no_links_the_bytes_are_there_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let (blob, path) = (dir.path().join("blob"), dir.path().join("a.gguf"));
        std::fs::write(&blob, "abc").unwrap();
        let none = |_: &Path, _: &Path| Err(std::io::Error::from_raw_os_error(libc::EPERM));
        place(&blob, &path, Path::new("blob"), none).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        place(&blob, &path, Path::new("blob"), none).unwrap();
        assert!(place(&blob, &dir.path().join("b.gguf"), Path::new("blob"), none).is_err());
    }
}
