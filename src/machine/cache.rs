//! Files that Kiln keeps between runs: the driver's pipeline cache, measurements, the chat's history. They are readable
//! for their user only. None is required: an unreadable one is ignored.

use super::partial::PartialFile;
use super::regular::{self, Links, ReadFault};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of Kiln's caches: `$KILN_CACHE_DIR`, else `kiln` in the user's cache directory. `None` without a home.
pub fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("KILN_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|d| d.join("kiln")))
        .or_else(|| variable("HOME").map(|d| d.join(".cache/kiln")))
}

/// Reads a file of the cache directory of at most `max` bytes. `None` if there is none, or if it is ignored, which is
/// logged: a link, not a regular file, another user's (a driver executes its cache's code), too long, or unreadable.
pub fn read(file: &Path, max: u64) -> Option<Vec<u8>> {
    match regular::read(file, Links::Refuse, max) {
        Ok(bytes) => Some(bytes),
        Err(ReadFault::Io(e)) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(fault) => {
            log::warn!("{} is not used: {fault}", file.display());
            None
        }
    }
}

/// Writes a file of the cache directory atomically, with mode 0600. An existing file of the name is replaced; the
/// target of a link stays unchanged. A missing directory is created, accessible to this user only.
///
/// # Errors
/// The system's. The old file then stays.
pub fn write(file: &Path, data: &[u8]) -> std::io::Result<()> {
    let directory = file.parent().ok_or_else(|| std::io::Error::from(ErrorKind::InvalidInput))?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    PartialFile::write_whole(file, 0o600, data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_link_in_a_caches_place_is_neither_read_nor_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (file, letter) = (dir.path().join("kiln/cache"), dir.path().join("letter"));
        let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
        write(&file, b"old").unwrap();
        assert_eq!((read(&file, 3), read(&file, 2)), (Some(b"old".to_vec()), None));
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));

        std::fs::write(&letter, "text").unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(&letter, &file).unwrap();
        assert_eq!(read(&file, 100), None);
        write(&file, b"new").unwrap();
        assert_eq!(std::fs::read(&letter).unwrap(), b"text");
        assert_eq!(read(&file, 100), Some(b"new".to_vec()));
        // No temporary file is left beside it.
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn another_users_cache_is_set_aside() {
        if !nix::unistd::geteuid().is_root() {
            println!("not tested: only root can make a file another user's");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cache");
        write(&file, b"own").unwrap();
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert_eq!(read(&file, 100), None);
    }

    /// Regression: opening a FIFO without a writer waited for one, and /dev/zero was read until memory ran out.
    #[test]
    fn what_is_no_cache_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cache");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read(&file, 100), None);
        write(&file, b"new").unwrap();
        assert_eq!(read(&file, 100), Some(b"new".to_vec()));
        assert_eq!(read(&file.join("below"), 100), None);
        assert!(write(&file.join("below"), b"").is_err());
    }
}
