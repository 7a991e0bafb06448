//! Reads the small files of a model, none of which is trusted: a config, an index, a tokenizer, a chat template.

use std::io::ErrorKind;
use std::path::Path;

use crate::machine::regular::{self, Fault, Links};
use crate::{Error, Result};

/// The bytes of a regular file of at most `max` bytes; `None` if there is no such file. `remedy` says what to do about
/// a file that is too long.
///
/// # Errors
/// [`Error::Input`]: not a regular file, longer than `max`, or unreadable.
pub(crate) fn read_bytes(path: &Path, max: usize, remedy: &str) -> Result<Option<Vec<u8>>> {
    match regular::read(path, Links::Follow, max as u64) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Fault::Io(e)) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(refusal(path, &fault, remedy)),
    }
}

/// As [`read_bytes`], for text.
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

/// The error for a file that is not read.
pub(crate) fn refusal(path: &Path, fault: &Fault, remedy: &str) -> Error {
    match fault {
        Fault::Io(e) => Error::unreadable(path, e),
        Fault::Foreign => Error::input(format!("{} is another user's", path.display()), "give a model's own files"),
        Fault::Irregular => {
            Error::input(format!("{} is not a regular file", path.display()), "give a model's own files")
        }
        Fault::TooLong { length, max } => {
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
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(refusal(&fifo, 4).contains("not a regular file"));
    }
}
