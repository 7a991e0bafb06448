//! The destination of a write: checks that it is free and large enough, and gives it its name at the end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::display::bytes;
use crate::machine::partial::{PartialDir, parent_of};
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

pub(super) fn check_space(path: &Path, needed: u64, free: u64) -> Result<()> {
    if needed <= free {
        return Ok(());
    }
    let place = path.parent().unwrap_or(path).display();
    let cause = format!("the weights take {}, but {} are free in {place}", bytes(needed), bytes(free));
    Err(Error::failed(cause, format!("free {} there or choose another destination", bytes(needed - free))))
}

/// Syncs a complete directory to disk and renames it to `dst`. Fails if a directory of that name has appeared
/// meanwhile.
pub(super) fn commit(partial: PartialDir, dst: &Path) -> Result<()> {
    let sync = |path: &Path| File::open(path)?.sync_all();
    sync(partial.path()).map_err(|e| Error::unwritable(partial.path(), &e))?;
    check_destination(dst)?;
    partial.commit(dst).map_err(|e| Error::unwritable(dst, &e))?;
    let parent = parent_of(dst);
    sync(parent).map_err(|e| Error::unwritable(parent, &e))
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
