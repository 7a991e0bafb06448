//! Read-only bytes of a checkpoint: a file, or bytes inside the executable.
//!
//! A file is read and not mapped. If it is cut short or its disk fails, a read returns an error; access to a mapping
//! would end the process with SIGBUS. Reading into a buffer that stays in a core's cache costs little more than a
//! mapping's page faults.

use std::borrow::Cow;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::machine::regular::{self, Links};
use crate::model::text_file::{MAX_POINTER, refusal, refuse_pointer};
use crate::{Error, Result};

const REMEDY: &str = "download the file again, or export the model anew";

/// Bytes that can be read from several threads at once.
#[derive(Debug)]
pub(crate) enum ByteSource {
    /// A file with its length when it was opened.
    File { path: PathBuf, file: File, len: usize },
    /// Bytes inside the executable, or in memory.
    Bytes(Cow<'static, [u8]>),
}

impl ByteSource {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`Error::Input`]: not a regular file, empty, cannot be opened, or a Git LFS pointer.
    pub(crate) fn open(path: &Path) -> Result<ByteSource> {
        let (file, len) = regular::open(path, Links::Follow).map_err(|fault| refusal(path, &fault, REMEDY))?;
        if len == 0 {
            let cause = format!("{} is empty", path.display());
            return Err(Error::input(cause, REMEDY));
        }
        let len = usize::try_from(len).map_err(|_| Error::unreadable(path, &ErrorKind::FileTooLarge.into()))?;
        let source = ByteSource::File { path: path.into(), file, len };
        if len <= MAX_POINTER {
            refuse_pointer(path, source.read(0..len, &mut Vec::new())?)?;
        }
        // Asks for a larger read-ahead. Asking for each block separately costs more if the page cache has it.
        source.advise(0..len, PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL);
        Ok(source)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            ByteSource::File { len, .. } => *len,
            ByteSource::Bytes(bytes) => bytes.len(),
        }
    }

    /// The bytes of `range`, which must be within the length. A file is read into `buffer`; other bytes are returned in
    /// place.
    ///
    /// # Errors
    /// [`Error::Failed`]: the file has become shorter, or its disk fails.
    pub(crate) fn read<'a>(&'a self, range: Range<usize>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        match self {
            ByteSource::Bytes(bytes) => Ok(&bytes[range]),
            ByteSource::File { path, file, .. } => {
                buffer.resize(range.len(), 0);
                file.read_exact_at(buffer, range.start as u64).map_err(|e| broken(path, &e))?;
                Ok(buffer)
            }
        }
    }

    /// Reads the bytes of `range` into memory that the caller keeps.
    ///
    /// # Errors
    /// As [`ByteSource::read`].
    pub(crate) fn read_owned(&self, range: Range<usize>) -> Result<Vec<u8>> {
        if let ByteSource::Bytes(bytes) = self {
            return Ok(bytes[range].to_vec());
        }
        let mut buffer = Vec::new();
        self.read(range, &mut buffer)?;
        Ok(buffer)
    }

    /// Drops the pages of `range` from the page cache. A last page that is only partly in `range` stays, since the
    /// bytes after it are still to be read. A dropped page can be read again from the disk.
    pub(crate) fn release(&self, range: &Range<usize>) {
        const PAGE: usize = 4096;
        self.advise(range.start / PAGE * PAGE..range.end / PAGE * PAGE, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    }

    /// Errors are ignored: without the advice only speed changes.
    fn advise(&self, range: Range<usize>, advice: PosixFadviseAdvice) {
        let ByteSource::File { file, .. } = self else { return };
        // A length of 0 would mean the whole rest of the file.
        if let (Ok(start), Ok(len @ 1..)) = (i64::try_from(range.start), i64::try_from(range.len())) {
            let _ = posix_fadvise(file, start, len, advice);
        }
    }
}

fn broken(path: &Path, e: &std::io::Error) -> Error {
    match e.kind() {
        ErrorKind::UnexpectedEof => Error::failed(
            format!("{} was cut short while it was read", path.display()),
            "leave a model's files alone while they are read; download the file again, or export the model anew",
        ),
        _ => Error::failed(format!("cannot read {}: {e}", path.display()), "check the disk that holds it"),
    }
}
