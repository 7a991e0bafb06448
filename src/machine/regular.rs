//! Opens and reads untrusted regular files. Other kinds of file in their place would block a reader or fill its memory:
//! a FIFO without a writer, /dev/zero, a sparse file of terabytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The reason why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadFault {
    /// The system's error, such as that there is no such file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A directory, a device, a FIFO or a socket.
    #[error("it is not a regular file")]
    Irregular,
    /// Kiln's own file by its path, but another user's.
    #[error("it belongs to another user")]
    Foreign,
    /// A file that is longer than the limit, in bytes.
    #[error("it has {length} bytes; at most {max} make sense")]
    TooLong {
        /// The file's length in bytes.
        length: u64,
        /// The largest accepted length in bytes.
        max: u64,
    },
}

/// Whether symbolic links to the file are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Links are followed. A model's files may be links, as in the cache of the Hugging Face hub.
    Follow,
    /// Links are refused, and so are other users' files: there is no reason for either among Kiln's own files.
    Refuse,
}

/// Opens a regular file. Returns it with its length in bytes.
pub(crate) fn open(path: &Path, links: Links) -> Result<(File, u64), ReadFault> {
    // Checked before opening, since opening a device may act on it, and after it, since the path may then name another
    // file. Without O_NONBLOCK, opening a FIFO would wait for its writer.
    let before = match links {
        Links::Follow => path.metadata()?,
        Links::Refuse => path.symlink_metadata()?,
    };
    if !before.is_file() {
        return Err(ReadFault::Irregular);
    }
    let no_links = if links == Links::Refuse { libc::O_NOFOLLOW } else { 0 };
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | no_links).open(path)?;
    let opened = file.metadata()?;
    if !opened.is_file() {
        return Err(ReadFault::Irregular);
    }
    if links == Links::Refuse && !is_trusted(opened.uid()) {
        return Err(ReadFault::Foreign);
    }
    Ok((file, opened.len()))
}

/// True if a file's owner is this user or root, so that its contents are trusted.
pub(crate) fn is_trusted(owner: u32) -> bool {
    [nix::unistd::geteuid().as_raw(), 0].contains(&owner)
}

/// The bytes of a regular file of at most `max` bytes.
pub(crate) fn read(path: &Path, links: Links, max: u64) -> Result<Vec<u8>, ReadFault> {
    let (file, length) = open(path, links)?;
    if length > max {
        return Err(ReadFault::TooLong { length, max });
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // The limit holds even if the file grows meanwhile.
    file.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        length if length > max => Err(ReadFault::TooLong { length, max }),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_but_a_regular_file_of_sane_length_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("four"), "four").unwrap();
        symlink("four", at("link")).unwrap();
        symlink("/dev/zero", at("endless")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
        let read = |name: &str, links, max| read(&at(name), links, max);
        for links in [Links::Follow, Links::Refuse] {
            assert_eq!(read("four", links, 4).unwrap(), b"four");
            assert!(matches!(read("four", links, 3), Err(ReadFault::TooLong { length: 4, max: 3 })));
            assert!(matches!(read("sparse", links, 1 << 20), Err(ReadFault::TooLong { length: 0x100_0000_0000, .. })));
            for name in ["fifo", "endless", "."] {
                assert!(matches!(read(name, links, 4), Err(ReadFault::Irregular)), "{name}");
            }
            assert!(matches!(read("absent", links, 4), Err(ReadFault::Io(e)) if e.kind() == io::ErrorKind::NotFound));
        }
        assert_eq!(read("link", Links::Follow, 4).unwrap(), b"four");
        assert!(matches!(read("link", Links::Refuse, 4), Err(ReadFault::Irregular)));
    }
}
