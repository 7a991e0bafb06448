//! Reads text files that are not trusted: a config, an index, a token list.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::{Error, Result};

/// The text of a regular file of at most `max` bytes; `None` if there is no such file. `remedy` says what to do about
/// a file that is too long.
///
/// # Errors
/// [`Error::Input`]: not a regular file, longer than `max`, not UTF-8, or unreadable.
pub(crate) fn read(path: &Path, max: usize, remedy: &str) -> Result<Option<String>> {
    // Checked before opening: opening a FIFO would wait for its writer.
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::unreadable(path, &e)),
    };
    if !metadata.is_file() {
        return Err(Error::input(format!("{} is not a regular file", path.display()), "give a model's own files"));
    }
    if metadata.len() > max as u64 {
        let cause = format!("{} has {} bytes; at most {max} make sense", path.display(), metadata.len());
        return Err(Error::input(cause, remedy));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|e| Error::unreadable(path, &e))?;
    // The limit holds even if the file has grown since it was checked.
    file.take(max as u64).read_to_string(&mut text).map_err(|e| Error::unreadable(path, &e))?;
    Ok(Some(text))
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
        assert!(refusal(&path, 4).contains("cannot read"));
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(refusal(&fifo, 4).contains("not a regular file"));
    }
}
