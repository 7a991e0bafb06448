//! Reads sysfs, proc and device nodes under a root that tests replace. A file's content is a claim: it may be absent,
//! empty, huge, binary, or vanish during the read. Each of these is a [`FileFault`] that a check reports.

use crate::display::{is_obeyed, plain};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Limit on a file's size, far above the files read here.
const MAX_BYTES: u64 = 256 << 10;
/// Limit on a directory's entries, far above the directories read here.
const MAX_ENTRIES: usize = 65_536;

/// The reason why a file could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The file does not exist, or its device is gone.
    #[error("{0} is absent")]
    Absent(String),
    /// The user has no permission to read the file.
    #[error("{0} may not be read by this user")]
    Denied(String),
    /// The file is empty.
    #[error("{0} is empty")]
    Empty(String),
    /// The file is longer than the limit.
    #[error("{0} is longer than {max} KiB", max = MAX_BYTES >> 10)]
    TooLong(String),
    /// The content is not text.
    #[error("{0} holds no text")]
    Binary(String),
    /// The content has another form than expected. The second field quotes it.
    #[error("{0} holds `{1}`")]
    Odd(String, String),
    /// The read failed. The second field is the system's error.
    #[error("{0} cannot be read: {1}")]
    Failed(String, String),
}

/// A file's content, or the reason why it could not be used.
pub type Reading<T> = std::result::Result<T, FileFault>;

/// The files of a machine: this one's, or those of a test below another root.
#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// The files of this machine.
    pub fn system() -> Files {
        Files { root: PathBuf::from("/") }
    }

    /// Files under `root`, as if it were `/`.
    pub fn under(root: impl Into<PathBuf>) -> Files {
        Files { root: root.into() }
    }

    /// True for the files of the machine that Kiln runs on, false for those below another root.
    pub fn are_the_systems(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The real path of `path`, an absolute path on the described machine.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether `path` exists, a dangling symbolic link included.
    pub fn exists(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// The file is absent, denied or otherwise unusable ([`FileFault`]).
    pub fn bytes(&self, path: &str) -> Reading<Vec<u8>> {
        let fault = |e: &std::io::Error| fault(path, e);
        let file = self.open(path).map_err(|e| fault(&e))?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| fault(&e))?;
        match bytes.len() as u64 {
            0 => Err(FileFault::Empty(path.into())),
            n if n > MAX_BYTES => Err(FileFault::TooLong(path.into())),
            _ => Ok(bytes),
        }
    }

    fn open(&self, path: &str) -> std::io::Result<File> {
        // Non-blocking: opening a FIFO here would otherwise hang.
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(self.at(path))
    }

    /// A file's text, without the white space around it.
    ///
    /// # Errors
    /// The fault of the file.
    pub fn text(&self, path: &str) -> Reading<String> {
        let text = String::from_utf8(self.bytes(path)?).map_err(|_| FileFault::Binary(path.into()))?;
        if text.chars().any(|c| is_obeyed(c) && !matches!(c, '\n' | '\t' | '\r')) {
            return Err(FileFault::Binary(path.into()));
        }
        match text.trim() {
            "" => Err(FileFault::Empty(path.into())),
            text => Ok(text.to_owned()),
        }
    }

    /// Reads a file that holds one value, such as a number or a name.
    ///
    /// # Errors
    /// The fault of the file; [`FileFault::Odd`] if it does not parse.
    pub fn value<T: FromStr>(&self, path: &str) -> Reading<T> {
        let text = self.text(path)?;
        text.parse().map_err(|_| odd(path, &text))
    }

    /// Reads a file that holds one hexadecimal number, as in `0x15bf`.
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
    /// The fault of the file; [`FileFault::Absent`] if it has no such key.
    pub fn field(&self, path: &str, key: &str) -> Reading<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(['=', ' ', ':', '\t']));
        value.map(|v| v.trim().to_owned()).ok_or_else(|| FileFault::Absent(format!("{key} in {path}")))
    }

    /// The names in a directory, in order. Names that are not UTF-8 are left out.
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

    /// The target of a symbolic link, if it is UTF-8.
    ///
    /// # Errors
    /// The fault of the link.
    pub fn link(&self, path: &str) -> Reading<String> {
        let to = fs::read_link(self.at(path)).map_err(|e| fault(path, &e))?;
        to.to_str().map(str::to_owned).ok_or_else(|| odd(path, &to.display().to_string()))
    }

    /// The last component of a symbolic link's target, as in `amdgpu` for a device's `driver`.
    ///
    /// # Errors
    /// The fault of the link.
    pub fn target(&self, path: &str) -> Reading<String> {
        let to = self.link(path)?;
        to.rsplit('/').next().filter(|n| !n.is_empty()).map(str::to_owned).ok_or_else(|| odd(path, &to))
    }
}

/// Orders by name, then by trailing number: `card2` before `card10`.
fn by_number(a: &str, b: &str) -> std::cmp::Ordering {
    let split = |s: &str| {
        let stem = s.trim_end_matches(|c: char| c.is_ascii_digit());
        (stem.to_owned(), s[stem.len()..].parse::<u64>().unwrap_or(0), s.to_owned())
    };
    split(a).cmp(&split(b))
}

fn fault(path: &str, e: &std::io::Error) -> FileFault {
    match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => FileFault::Absent(path.into()),
        ErrorKind::PermissionDenied => FileFault::Denied(path.into()),
        // The errors of sysfs files whose device is gone.
        _ if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => FileFault::Absent(path.into()),
        _ => FileFault::Failed(path.into(), e.to_string()),
    }
}

/// A [`FileFault::Odd`] that quotes the content, shortened and on one line.
fn odd(path: &str, text: &str) -> FileFault {
    FileFault::Odd(path.into(), plain(&text.chars().take(40).collect::<String>()))
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
        assert_eq!(files.value::<u64>("/absent"), Err(FileFault::Absent(name("/absent"))));
        assert_eq!(files.value::<u64>("/number/below"), Err(FileFault::Absent(name("/number/below"))));
        assert_eq!(files.value::<u64>("/empty"), Err(FileFault::Empty(name("/empty"))));
        assert_eq!(files.value::<u64>("/blank"), Err(FileFault::Empty(name("/blank"))));
        assert_eq!(files.value::<u64>("/huge"), Err(FileFault::TooLong(name("/huge"))));
        assert_eq!(files.text("/binary"), Err(FileFault::Binary(name("/binary"))));
        assert_eq!(files.text("/escape"), Err(FileFault::Binary(name("/escape"))));
        assert_eq!(files.text("/turned"), Err(FileFault::Binary(name("/turned"))));
        assert_eq!(files.value::<u64>("/word"), Err(FileFault::Odd(name("/word"), "forty-two lines".into())));
        assert!(matches!(files.text("/"), Err(FileFault::Failed(..))), "a directory");
    }

    #[test]
    fn neither_a_pipe_nor_an_endless_file_holds_a_reader_up() {
        let (dir, files) = files();
        nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(files.text("/pipe"), Err(FileFault::Empty("/pipe".into())));
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("endless")).unwrap();
        assert_eq!(files.text("/endless"), Err(FileFault::TooLong("/endless".into())));
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        assert!(matches!(files.text("/loop"), Err(FileFault::Failed(..))));
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
        assert_eq!(files.list("/none"), Err(FileFault::Absent("/none".into())));
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
