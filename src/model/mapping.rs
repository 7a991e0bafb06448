//! Read-only bytes of a checkpoint: a mapped file, or bytes inside the executable. The one place of the model code that
//! needs `unsafe`.

use std::borrow::Cow;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::{Advice, Mmap, UncheckedAdvice};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::{Error, Result};

/// Bytes that live as long as this value. Cheap to read from several threads at once.
#[derive(Debug)]
pub(super) enum Mapping {
    /// A mapped file. Its pages are the page cache's; they count as file-backed, not as anonymous memory.
    File { map: Mmap, file: File },
    /// Bytes inside the executable, or in memory.
    Bytes(Cow<'static, [u8]>),
}

impl Mapping {
    /// Maps a regular file.
    pub(super) fn open(path: &Path) -> Result<Mapping> {
        // A FIFO would block at open, and a device has no length: look before opening.
        let metadata = std::fs::metadata(path).map_err(|e| Error::unreadable(path, &e))?;
        if !metadata.is_file() {
            return Err(Error::input(format!("{} is not a regular file", path.display()), "give a model's own files"));
        }
        if metadata.len() == 0 {
            let cause = format!("{} is empty", path.display());
            return Err(Error::input(cause, "download the file again, or export the model anew"));
        }
        let file = File::open(path).map_err(|e| Error::unreadable(path, &e))?;
        // SAFETY: the mapping is read-only and is only seen as `&[u8]`. Nothing in this process writes to the file.
        // Another process could: a change of content can at worst change a weight that is read afterwards, since
        // headers are copied out when they are parsed and ranges are checked against the mapped length, which is
        // fixed here. Truncation under a running load raises SIGBUS, as it does in every program that maps its
        // weights; the alternative, copying 27 GB through anonymous memory, is what the mapping is there to avoid.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::unreadable(path, &e))?;
        // Advice is advice: a filesystem that cannot take it changes nothing but speed.
        let _ = map.advise(Advice::Sequential);
        Ok(Mapping::File { map, file })
    }

    /// Asks the kernel to read `range` ahead of its use.
    pub(super) fn prefetch(&self, range: &Range<usize>) {
        if let Mapping::File { map, .. } = self {
            let _ = map.advise_range(Advice::WillNeed, range.start, range.len());
        }
    }

    /// Drops the pages of `range` from this process and from the page cache, but for the one that its end cuts: what
    /// follows is still to be read. They are read from the file again if they are needed again.
    pub(super) fn release(&self, range: &Range<usize>) {
        const PAGE: usize = 4096;
        let Mapping::File { map, file } = self else { return };
        let (start, end) = (range.start / PAGE * PAGE, range.end / PAGE * PAGE);
        if end <= start {
            return;
        }
        // SAFETY: DONTNEED on a read-only shared mapping of a file only unmaps clean pages; the next access maps the
        // same bytes of the file again, so every `&[u8]` into the mapping stays valid and unchanged.
        let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        if let (Ok(offset), Ok(len)) = (i64::try_from(start), i64::try_from(end - start)) {
            let _ = posix_fadvise(file, offset, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Mapping::File { map, .. } => map,
            Mapping::Bytes(bytes) => bytes,
        }
    }
}
