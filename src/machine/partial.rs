//! Files and directories that get their name only when they are complete.
//!
//! Until then each is hidden beside its destination, and locked. The lock ends with the process, in whatever way that
//! ends. So the next process can recognise the leftovers of a dead one, and removes them.

use super::regular::is_trusted;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tempfile::{Builder, NamedTempFile, TempDir};

const PREFIX: &str = ".kiln-";
const SUFFIX: &str = ".partial";

/// A directory that is renamed to its destination once complete, and removed if dropped before.
pub(crate) struct PartialDir {
    directory: TempDir,
    // Dropped last: the directory stays locked while it is removed.
    _lock: Option<Lock>,
}

impl PartialDir {
    /// A new directory beside `destination`. Removes leftovers of dead processes there.
    pub(crate) fn create(destination: &Path) -> Result<PartialDir> {
        let parent = parent_of(destination);
        remove_leftovers(parent);
        let make = || builder(0o777).tempdir_in(parent);
        let (directory, _lock) = create_locked(make, TempDir::path)?;
        Ok(PartialDir { directory, _lock })
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Renames the directory to `destination`, which must not exist or be an empty directory.
    pub(crate) fn commit(self, destination: &Path) -> Result<()> {
        std::fs::rename(self.path(), destination)?;
        // Renamed, so there is nothing left to remove.
        let _ = self.directory.keep();
        Ok(())
    }
}

/// A file that replaces its destination once complete, and is removed if dropped before.
pub(crate) struct PartialFile {
    file: NamedTempFile,
    // Dropped last: the file stays locked while it is removed.
    _lock: Option<Lock>,
}

impl PartialFile {
    /// A new file beside `destination`, of `mode` less the umask. Removes leftovers of dead processes there.
    pub(crate) fn create(destination: &Path, mode: u32) -> Result<PartialFile> {
        let parent = parent_of(destination);
        remove_leftovers(parent);
        let make = || builder(mode).tempfile_in(parent);
        let (file, _lock) = create_locked(make, NamedTempFile::path)?;
        Ok(PartialFile { file, _lock })
    }

    /// Writes `bytes` to `destination` atomically. An existing file of the name is replaced; the target of a link stays
    /// unchanged.
    pub(crate) fn write_whole(destination: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut partial = PartialFile::create(destination, mode)?;
        partial.write_all(bytes)?;
        partial.commit(destination)
    }

    /// Syncs the written bytes to disk.
    #[cfg(feature = "cli")]
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.as_file().sync_all()
    }

    /// Renames the file to `destination`. A file of that name is replaced.
    pub(crate) fn commit(self, destination: &Path) -> Result<()> {
        self.file.persist(destination).map_err(|e| e.error)?;
        Ok(())
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

/// The directory that a path lies in.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Names and permissions of incomplete files and directories. The umask applies, as for any new file.
fn builder(mode: u32) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX).permissions(Permissions::from_mode(mode));
    builder
}

/// Marks a file or directory as in use by a living process.
pub(crate) type Lock = Flock<File>;

/// The lock of a file for use by one process at a time, on `PATH.lock` beside it, which stays there, with `mode` less
/// the umask. The lock ends with the process.
///
/// # Errors
/// The system's; `WouldBlock` if another process has the lock.
#[cfg(any(feature = "cli", feature = "pull", feature = "serve"))]
pub(crate) fn lock_for(path: &Path, mode: u32) -> Result<Lock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    lock(Path::new(&name), OpenOptions::new().write(true).create(true).truncate(false).mode(mode))
}

/// Creates by `make` and locks. Without a lock on a file system without locks, where nothing counts as a leftover.
fn create_locked<T>(make: impl Fn() -> Result<T>, path: impl Fn(&T) -> &Path) -> Result<(T, Option<Lock>)> {
    loop {
        let made = make()?;
        // Until it is locked, another process may treat it as a leftover: it is then locked or gone, and is created
        // again.
        match lock(path(&made), OpenOptions::new().read(true)) {
            Ok(lock) if is_at(&lock, path(&made)) => return Ok((made, Some(lock))),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::NotFound) => {}
            Err(_) => return Ok((made, None)),
        }
    }
}

/// Opens a file or a directory with `options`, and locks it; `WouldBlock` if another process has locked it.
fn lock(path: &Path, options: &mut OpenOptions) -> Result<Lock> {
    // Neither follows a link nor waits for a FIFO: the name may be of either.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = options.custom_flags(flags).open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e): (File, Errno)| e.into())
}

/// True if `path` still names the file that `lock` locks.
fn is_at(lock: &Lock, path: &Path) -> bool {
    let same = |named: std::fs::Metadata| {
        lock.metadata().is_ok_and(|locked| (locked.dev(), locked.ino()) == (named.dev(), named.ino()))
    };
    path.symlink_metadata().is_ok_and(same)
}

/// Removes leftovers of this user's dead processes in a directory: they are hidden, and may be as large as a model.
fn remove_leftovers(directory: &Path) {
    if !keeps_names(directory) {
        return;
    }
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX)) {
            let path = entry.path();
            match remove_left(&path) {
                Ok(true) => log::info!("removed {}, left of a write that was cut off", path.display()),
                Ok(false) => {}
                Err(e) => log::warn!("{}, left of a write that was cut off, cannot be removed: {e}", path.display()),
            }
        }
    }
}

/// Whether only this user can rename the user's files in a directory. Elsewhere a name does not identify the writer.
fn keeps_names(directory: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    directory.metadata().is_ok_and(|d| {
        // With a umask of 002 a user's own directories are writable by the user's own group.
        let own_group = d.gid() == nix::unistd::getegid().as_raw();
        let writable_by_others = d.mode() & if own_group { 0o002 } else { 0o022 } != 0;
        is_trusted(d.uid()) && (!writable_by_others || d.mode() & STICKY != 0)
    })
}

/// Removes `path` if it is this user's and no process writes it. Returns whether it did.
fn remove_left(path: &Path) -> Result<bool> {
    // Held until the removal, so that no other process removes it too.
    let Ok(lock) = lock(path, OpenOptions::new().read(true)) else { return Ok(false) };
    let found = lock.metadata()?;
    if found.uid() != nix::unistd::geteuid().as_raw() || !is_at(&lock, path) {
        return Ok(false);
    }
    match found.is_dir() {
        true => std::fs::remove_dir_all(path)?,
        false => std::fs::remove_file(path)?,
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Files in progress are kept when other processes start; leftovers of this user are removed, and nothing else.
    #[test]
    fn only_what_a_dead_process_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        // A dead process holds no lock.
        std::fs::create_dir(at(".kiln-dead.partial")).unwrap();
        std::fs::write(at(".kiln-dead.partial/model.safetensors"), "x").unwrap();
        std::fs::write(at(".kiln-gone.partial"), "x").unwrap();
        std::fs::write(at("other.partial"), "x").unwrap();
        std::fs::create_dir(at("elsewhere")).unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at(".kiln-link.partial")).unwrap();
        nix::unistd::mkfifo(&at(".kiln-pipe.partial"), nix::sys::stat::Mode::S_IRWXU).unwrap();

        let mut first = PartialFile::create(&at("file"), 0o666).unwrap();
        let second = PartialDir::create(&at("model")).unwrap();
        let third = PartialFile::create(&at("file"), 0o666).unwrap();
        let alive = [first.file.path(), second.path(), third.file.path()];
        let mut expected: Vec<String> =
            alive.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        expected.extend([".kiln-link.partial", "elsewhere", "other.partial"].map(String::from));
        expected.sort();
        assert_eq!(names(place.path()), expected);

        // In a directory whose files others can rename, a name does not identify the writer.
        std::fs::write(at(".kiln-dead.partial"), "x").unwrap();
        for (mode, kept) in [(0o777, true), (0o1777, false)] {
            std::fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
            drop(PartialFile::create(&at("file"), 0o666).unwrap());
            assert_eq!(at(".kiln-dead.partial").exists(), kept, "{mode:o}");
        }

        first.write_all(b"done").unwrap();
        first.commit(&at("file")).unwrap();
        second.commit(&at("model")).unwrap();
        drop(third);
        assert_eq!(names(place.path()), [".kiln-link.partial", "elsewhere", "file", "model", "other.partial"]);
        assert_eq!(std::fs::read(at("file")).unwrap(), b"done");
    }
}
