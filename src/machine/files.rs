//! sysfs, proc and device nodes, read from a root that tests replace. What stands in such a file is a claim: it may be
//! absent, empty, huge, binary, or gone while it is read, and each of these is a [`Fault`] that a check reports.

use crate::display::{is_obeyed, plain};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::str::FromStr;

/// More than any file that is read here has.
const MAX_BYTES: u64 = 256 << 10;
/// More entries than any directory that is read here has.
const MAX_ENTRIES: usize = 65_536;

/// Why a file says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not there, or is gone.
    #[error("{0} is absent")]
    Absent(String),
    /// It may not be read.
    #[error("{0} may not be read by this user")]
    Denied(String),
    /// It has no content.
    #[error("{0} is empty")]
    Empty(String),
    /// It is longer than such a file can be.
    #[error("{0} is longer than {max} KiB", max = MAX_BYTES >> 10)]
    TooLong(String),
    /// It holds something else than text.
    #[error("{0} holds no text")]
    Binary(String),
    /// It holds something else than was expected; second, what.
    #[error("{0} holds `{1}`")]
    Odd(String, String),
    /// Reading it failed; second, how.
    #[error("{0} cannot be read: {1}")]
    Failed(String, String),
}

/// What a file says, or why it says nothing.
pub type Reading<T> = std::result::Result<T, Fault>;

/// The files of a machine.
#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// This machine's.
    pub fn system() -> Files {
        Files { root: PathBuf::from("/") }
    }

    /// Those under `root`, as if it were `/`.
    pub fn under(root: impl Into<PathBuf>) -> Files {
        Files { root: root.into() }
    }

    /// Where `path` (absolute, as on the machine) lies.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether there is something at `path`.
    pub fn exists(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// The fault of the file.
    pub fn bytes(&self, path: &str) -> Reading<Vec<u8>> {
        let fault = |e: &std::io::Error| fault(path, e);
        let file = self.open(path).map_err(|e| fault(&e))?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| fault(&e))?;
        match bytes.len() as u64 {
            0 => Err(Fault::Empty(path.into())),
            n if n > MAX_BYTES => Err(Fault::TooLong(path.into())),
            _ => Ok(bytes),
        }
    }

    fn open(&self, path: &str) -> std::io::Result<File> {
        // Without waiting: a FIFO in the place of a file would never open.
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(self.at(path))
    }

    /// A file's text, without the white space around it.
    ///
    /// # Errors
    /// The fault of the file.
    pub fn text(&self, path: &str) -> Reading<String> {
        let text = String::from_utf8(self.bytes(path)?).map_err(|_| Fault::Binary(path.into()))?;
        if text.chars().any(|c| is_obeyed(c) && !matches!(c, '\n' | '\t' | '\r')) {
            return Err(Fault::Binary(path.into()));
        }
        match text.trim() {
            "" => Err(Fault::Empty(path.into())),
            text => Ok(text.to_owned()),
        }
    }

    /// A file that holds one value, such as a number or a name.
    ///
    /// # Errors
    /// The fault of the file, or that it holds something else.
    pub fn value<T: FromStr>(&self, path: &str) -> Reading<T> {
        let text = self.text(path)?;
        text.parse().map_err(|_| odd(path, &text))
    }

    /// A file that holds one number in hexadecimal, as in `0x15bf`.
    ///
    /// # Errors
    /// As [`Files::value`].
    pub fn hex(&self, path: &str) -> Reading<u64> {
        let text = self.text(path)?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| odd(path, &text))
    }

    /// The value of `key` in a file of `KEY=value` or `key value` lines.
    ///
    /// # Errors
    /// The fault of the file, or that it has no such key.
    pub fn field(&self, path: &str, key: &str) -> Reading<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(['=', ' ', ':', '\t']));
        value.map(|v| v.trim().to_owned()).ok_or_else(|| Fault::Absent(format!("{key} in {path}")))
    }

    /// The names in a directory that are text, in order.
    ///
    /// # Errors
    /// The fault of the directory.
    pub fn list(&self, path: &str) -> Reading<Vec<String>> {
        let entries = fs::read_dir(self.at(path)).map_err(|e| fault(path, &e))?;
        let names = entries.take(MAX_ENTRIES).filter_map(|e| e.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|n| !n.chars().any(is_obeyed)).collect();
        names.sort_by(|a, b| by_number(a, b));
        Ok(names)
    }

    /// What a symbolic link names, where that is text.
    ///
    /// # Errors
    /// The fault of the link.
    pub fn link(&self, path: &str) -> Reading<String> {
        let to = fs::read_link(self.at(path)).map_err(|e| fault(path, &e))?;
        to.to_str().map(str::to_owned).ok_or_else(|| odd(path, &to.display().to_string()))
    }

    /// The last part of what a symbolic link names, as in `amdgpu` for a device's `driver`.
    ///
    /// # Errors
    /// The fault of the link.
    pub fn target(&self, path: &str) -> Reading<String> {
        let to = self.link(path)?;
        to.rsplit('/').next().filter(|n| !n.is_empty()).map(str::to_owned).ok_or_else(|| odd(path, &to))
    }
}

/// `card2` before `card10`.
fn by_number(a: &str, b: &str) -> std::cmp::Ordering {
    let split = |s: &str| {
        let stem = s.trim_end_matches(|c: char| c.is_ascii_digit());
        (stem.to_owned(), s[stem.len()..].parse::<u64>().unwrap_or(0), s.to_owned())
    };
    split(a).cmp(&split(b))
}

fn fault(path: &str, e: &std::io::Error) -> Fault {
    match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Fault::Absent(path.into()),
        ErrorKind::PermissionDenied => Fault::Denied(path.into()),
        // What a file of sysfs answers whose device is gone.
        _ if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => Fault::Absent(path.into()),
        _ => Fault::Failed(path.into(), e.to_string()),
    }
}

/// What a file holds instead, shortened and on one line.
fn odd(path: &str, text: &str) -> Fault {
    Fault::Odd(path.into(), plain(&text.chars().take(40).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn files() -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::under(dir.path());
        (dir, files)
    }

    #[test]
    fn whatever_a_file_holds_is_a_value_or_a_fault() {
        let (dir, files) = files();
        let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        put("number", b"42\n");
        put("empty", b"");
        put("blank", b" \n\n");
        put("huge", &vec![b'1'; MAX_BYTES as usize + 1]);
        put("binary", b"\xff\xfe\x00");
        put("escape", b"\x1b[31mred");
        put("turned", "a\u{202e}b".as_bytes());
        put("word", b"forty-two\nlines");
        let name = |n: &str| n.to_owned();
        assert_eq!(files.value::<u64>("/number"), Ok(42));
        assert_eq!(files.value::<u64>("/absent"), Err(Fault::Absent(name("/absent"))));
        assert_eq!(files.value::<u64>("/number/below"), Err(Fault::Absent(name("/number/below"))));
        assert_eq!(files.value::<u64>("/empty"), Err(Fault::Empty(name("/empty"))));
        assert_eq!(files.value::<u64>("/blank"), Err(Fault::Empty(name("/blank"))));
        assert_eq!(files.value::<u64>("/huge"), Err(Fault::TooLong(name("/huge"))));
        assert_eq!(files.text("/binary"), Err(Fault::Binary(name("/binary"))));
        assert_eq!(files.text("/escape"), Err(Fault::Binary(name("/escape"))));
        assert_eq!(files.text("/turned"), Err(Fault::Binary(name("/turned"))));
        assert_eq!(files.value::<u64>("/word"), Err(Fault::Odd(name("/word"), "forty-two lines".into())));
        assert!(matches!(files.text("/"), Err(Fault::Failed(..))), "a directory");
    }

    #[test]
    fn neither_a_pipe_nor_an_endless_file_holds_a_reader_up() {
        let (dir, files) = files();
        nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(files.text("/pipe"), Err(Fault::Empty("/pipe".into())));
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("endless")).unwrap();
        assert_eq!(files.text("/endless"), Err(Fault::TooLong("/endless".into())));
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        assert!(matches!(files.text("/loop"), Err(Fault::Failed(..))));
    }

    #[test]
    fn names_come_in_the_order_of_their_numbers() {
        let (dir, files) = files();
        for name in ["renderD128", "card10", "card2", "version"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let odd = std::ffi::OsStr::from_bytes(b"\xff");
        fs::create_dir(dir.path().join(odd)).unwrap();
        assert_eq!(files.list("/").unwrap(), ["card2", "card10", "renderD128", "version"]);
        assert_eq!(files.list("/none"), Err(Fault::Absent("/none".into())));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let (dir, files) = files();
        fs::write(dir.path().join("uevent"), "DRIVER=amdgpu\nPCI_ID=1002:1900\nPCI_SLOT_NAME=0000:c5:00.0\n").unwrap();
        assert_eq!(files.field("/uevent", "PCI_ID").unwrap(), "1002:1900");
        assert!(files.field("/uevent", "PCI").is_err());
        fs::write(dir.path().join("vendor"), "0x1002\n").unwrap();
        assert_eq!(files.hex("/vendor"), Ok(0x1002));
    }
}
