//! Reads the small, untrusted files of a model: a config, an index, a tokenizer, a chat template.

use std::io::ErrorKind;
use std::path::Path;

use crate::machine::regular::{self, Links, ReadFault};
use crate::{Error, Result};

/// The most bytes of a Git LFS pointer.
pub(crate) const MAX_POINTER: usize = 1024;

/// The bytes of a regular file of at most `max` bytes; `None` if there is no such file. `remedy` is for a file that is
/// too long.
///
/// # Errors
/// [`Error::Input`]: a link that leads nowhere, not a regular file, longer than `max`, unreadable, or a Git LFS
/// pointer.
pub(crate) fn read_bytes(path: &Path, max: usize, remedy: &str) -> Result<Option<Vec<u8>>> {
    match regular::read(path, Links::Follow, max as u64) {
        Ok(bytes) => refuse_pointer(path, &bytes).map(|()| Some(bytes)),
        Err(ReadFault::Io(e)) if e.kind() == ErrorKind::NotFound && !is_there(path) => Ok(None),
        Err(fault) => Err(refusal(path, &fault, remedy)),
    }
}

/// [`read_bytes`] for text.
///
/// # Errors
/// As [`read_bytes`]; also [`Error::Input`] for a file that is not UTF-8.
pub(crate) fn read(path: &Path, max: usize, remedy: &str) -> Result<Option<String>> {
    let text = read_bytes(path, max, remedy)?.map(String::from_utf8).transpose();
    text.map_err(|e| {
        let cause = format!("{} is not UTF-8: {}", path.display(), e.utf8_error());
        Error::input(cause, "give a model's own files")
    })
}

/// True if an entry of this name exists, also a dangling link, for which a read then reports an error.
pub(crate) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Refuses a Git LFS pointer, the few lines that a clone without Git LFS has in place of a large file. `bytes` are the
/// whole file, or the start of a longer one.
///
/// # Errors
/// [`Error::Input`] with the command that fetches the file.
pub(crate) fn refuse_pointer(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() <= MAX_POINTER && bytes.starts_with(b"version https://git-lfs.github.com/spec/") {
        let cause = format!("{} is a Git LFS pointer in place of the file", path.display());
        return Err(Error::input(cause, "run `git lfs pull` in its repository, or download the file"));
    }
    Ok(())
}

/// The error for a file that is refused.
pub(crate) fn refusal(path: &Path, fault: &ReadFault, remedy: &str) -> Error {
    match fault {
        ReadFault::Io(e) => Error::unreadable(path, e),
        ReadFault::Foreign => Error::input(format!("{} is another user's", path.display()), "give a model's own files"),
        ReadFault::Irregular => {
            Error::input(format!("{} is not a regular file", path.display()), "give a model's own files")
        }
        ReadFault::TooLong { length, max } => {
            Error::input(format!("{} has {length} bytes; at most {max} make sense", path.display()), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_regular_text_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        assert_eq!(read(&path, 4, "shorten it"), Ok(None));
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, 4, "shorten it"), Ok(Some("four".into())));
        let refusal = |path: &Path, max| read(path, max, "shorten it").unwrap_err().to_string();
        assert!(refusal(&path, 3).contains("has 4 bytes; at most 3 make sense; shorten it"));
        assert!(refusal(dir.path(), 4).contains("not a regular file"));
        assert!(refusal(&path.join("below"), 4).contains("cannot read"));
        std::fs::write(&path, [0xFF]).unwrap();
        assert!(refusal(&path, 4).contains("not UTF-8"));
        std::fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n").unwrap();
        let line = refusal(&path, 1000);
        assert!(line.contains("text is a Git LFS pointer in place of the file; run `git lfs pull`"), "{line}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let line = refusal(&link, 4);
        assert!(line.contains("link is a link to nowhere, which does not exist; copy or download"), "{line}");
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(refusal(&fifo, 4).contains("not a regular file"));
    }
}
