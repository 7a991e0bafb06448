//! Detects whether a file has changed, without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file's device, inode and length, and the times of the last change of its contents and of its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    place: (u64, u64),
    bytes: u64,
    times: [i64; 4],
}

impl FileStamp {
    /// The stamp of a file with this metadata.
    pub fn of(metadata: &Metadata) -> FileStamp {
        FileStamp {
            place: (metadata.dev(), metadata.ino()),
            bytes: metadata.size(),
            times: [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()],
        }
    }

    /// The stamp of the file that a path leads to. `None` if the file cannot be looked up.
    pub fn at(path: &Path) -> Option<FileStamp> {
        path.metadata().ok().as_ref().map(FileStamp::of)
    }
}
