//! What tells a file from what it was, without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file's device, inode and length, and when its contents and its names last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    place: (u64, u64),
    bytes: u64,
    times: [i64; 4],
}

impl FileStamp {
    /// Of a file that is open, or was looked up.
    pub fn of(metadata: &Metadata) -> FileStamp {
        FileStamp {
            place: (metadata.dev(), metadata.ino()),
            bytes: metadata.size(),
            times: [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()],
        }
    }

    /// Of the file that a path leads to. `None`: there is none that can be looked up.
    pub fn at(path: &Path) -> Option<FileStamp> {
        path.metadata().ok().as_ref().map(FileStamp::of)
    }
}
