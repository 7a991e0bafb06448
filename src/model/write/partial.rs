//! A directory that gets its name only when it is complete.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::display::bytes;
use crate::{Error, Result};

/// Refuses a destination that exists, before any work is done.
///
/// # Errors
/// [`Error::Input`].
pub(crate) fn check_destination(dst: &Path) -> Result<()> {
    if std::fs::symlink_metadata(dst).is_ok() || dst.file_name().is_none() {
        let cause = format!("{} exists already", dst.display());
        return Err(Error::input(cause, "choose another destination, or remove it first"));
    }
    Ok(())
}

/// Free bytes on the filesystem of `path`.
pub(super) fn free_bytes(path: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path).map_err(|e| Error::unwritable(path, &e.into()))?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

pub(super) fn check_space(path: &Path, needed: u64, free: u64) -> Result<()> {
    if needed <= free {
        return Ok(());
    }
    let place = path.parent().unwrap_or(path).display();
    let cause = format!("the weights take {}, but {} are free in {place}", bytes(needed), bytes(free));
    Err(Error::failed(cause, format!("free {} there or choose another destination", bytes(needed - free))))
}

const PARTIAL_PREFIX: &str = ".kiln-";
const PARTIAL_SUFFIX: &str = ".partial";

/// A hidden directory beside the destination. It is renamed to the destination once complete, and removed if dropped
/// before.
pub(super) struct PartialDir {
    directory: tempfile::TempDir,
}

impl PartialDir {
    pub(super) fn create(dst: &Path) -> Result<PartialDir> {
        let directory = tempfile::Builder::new()
            .prefix(PARTIAL_PREFIX)
            .suffix(PARTIAL_SUFFIX)
            .permissions(std::fs::Permissions::from_mode(0o777))
            .tempdir_in(parent_of(dst))
            .map_err(|e| Error::unwritable(dst, &e.kind().into()))?;
        warn_of_leftovers(parent_of(dst));
        Ok(PartialDir { directory })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Renames the directory to `dst`. Fails if a directory of that name has appeared meanwhile.
    pub(super) fn commit(self, dst: &Path) -> Result<()> {
        let sync = |path: &Path| File::open(path)?.sync_all();
        sync(self.path()).map_err(|e| Error::unwritable(self.path(), &e))?;
        check_destination(dst)?;
        std::fs::rename(self.path(), dst).map_err(|e| Error::unwritable(dst, &e))?;
        // Renamed, so there is nothing left to remove.
        let _ = self.directory.keep();
        let parent = parent_of(dst);
        sync(parent).map_err(|e| Error::unwritable(parent, &e))
    }
}

/// Warns of directories that killed writes left behind: they are hidden, and may be large.
fn warn_of_leftovers(parent: &Path) {
    // A running write touches its directory with each file that it begins.
    let old = |e: &std::fs::DirEntry| e.metadata().ok()?.modified().ok()?.elapsed().ok();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let partial = name.starts_with(PARTIAL_PREFIX) && name.ends_with(PARTIAL_SUFFIX);
        if partial && old(&entry).is_some_and(|age| age > Duration::from_secs(3600)) {
            log::warn!("{} is left of a write that was cut off: remove it", entry.path().display());
        }
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Writes a small file and flushes it to the disk.
pub(super) fn write_file(path: &Path, contents: &[u8]) -> Result<()> {
    let write = || {
        let file = File::create_new(path)?;
        file.write_all_at(contents, 0)?;
        file.sync_all()
    };
    write().map_err(|e| Error::unwritable(path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_refused_with_both_sums() {
        let line = check_space(Path::new("/x/y"), 27_000_000_000, 12_500_000_000).unwrap_err().to_string();
        assert!(line.contains("take 27.0 GB, but 12.5 GB are free in /x; free 14.5 GB"), "{line}");
        assert!(check_space(Path::new("/x/y"), 5, 5).is_ok());
    }
}
