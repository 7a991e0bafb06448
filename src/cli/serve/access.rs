//! The access log of `kiln serve`: a line of JSON for each request, without its text.

use crate::cli::note;
use crate::cli::terminal::json_for_terminal;
use crate::machine::partial::PartialFile;
use crate::serve::http::AccessRecord;
use crate::{Error, Result};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::UNIX_EPOCH;

/// The permissions of a new file: read by its owner and group.
const MODE: u32 = 0o640;

/// The destination of the lines: a file, or standard error.
pub(super) struct AccessLogFile {
    file: Option<(PathBuf, RwLock<File>)>,
    /// True if the last line could not be written, which was reported.
    fails: AtomicBool,
}

impl AccessLogFile {
    /// Opens a log that appends to the file at `path`; `-` is standard error.
    ///
    /// # Errors
    /// Input: the file cannot be written, or is not a regular file.
    pub fn open(path: &Path) -> Result<AccessLogFile> {
        let file = match path == Path::new("-") {
            true => None,
            false => Some((path.to_owned(), RwLock::new(open(path)?))),
        };
        Ok(AccessLogFile { file, fails: AtomicBool::new(false) })
    }

    /// Checks that lines can be written to the file at `path`. Leaves no new file behind, since one created by root
    /// could not be written by the server's user.
    ///
    /// # Errors
    /// As [`AccessLogFile::open`].
    pub fn try_out(path: &Path) -> Result<()> {
        match path == Path::new("-") || path.exists() {
            true => AccessLogFile::open(path).map(|_| ()),
            false => PartialFile::create(path, MODE).map(drop).map_err(|e| Error::unwritable(path, &e.kind().into())),
        }
    }

    /// Opens the file again, after log rotation has moved it.
    ///
    /// # Errors
    /// As [`AccessLogFile::open`]; lines go to the old file then.
    pub fn reopen(&self) -> Result<()> {
        let Some((path, file)) = &self.file else { return Ok(()) };
        let new = open(path)?;
        *file.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Writes a request's line. If that fails the line is lost, which is logged once.
    pub fn write(&self, access: &AccessRecord) {
        let line = line(access);
        let Some((path, file)) = &self.file else { return note(&line) };
        let file = file.read().unwrap_or_else(PoisonError::into_inner);
        // One write at the end of the file, so that lines of several threads do not mix.
        match (&*file).write_all((line + "\n").as_bytes()) {
            Ok(()) => self.fails.store(false, Ordering::Relaxed),
            Err(e) if !self.fails.swap(true, Ordering::Relaxed) => {
                log::error!("{} cannot be written, and requests are not noted there: {e}", path.display());
            }
            Err(_) => {}
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    // Opening a FIFO would wait for its reader.
    options.append(true).create(true).mode(MODE).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(path).map_err(|e| Error::unwritable(path, &e))?;
    match file.metadata().is_ok_and(|found| found.is_file()) {
        true => Ok(file),
        false => {
            let cause = format!("{} is no regular file, and no access log", path.display());
            Err(Error::input(cause, "name a file, or - for standard error"))
        }
    }
}

/// A request as a line.
fn line(access: &AccessRecord) -> String {
    let AccessRecord { id, peer, key, asked, status, begun, time, end, notes } = access;
    let (method, path) = asked.as_ref().map(|(method, path)| (method.to_string(), path)).unzip();
    let begun = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line: Map<String, Value> = Map::new();
    let fields = [
        ("time", json!(begun.as_millis() as f64 / 1e3)),
        ("id", json!(id)),
        ("peer", json!(peer.to_string())),
        ("key", json!(key)),
        ("method", json!(method)),
        ("path", json!(path)),
        ("status", json!(status)),
        ("end", json!(end.name())),
        ("seconds", json!(time.as_millis() as f64 / 1e3)),
    ];
    line.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    line.extend(notes.clone());
    json_for_terminal(&Value::Object(line).to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::http::{Method, Outcome, Peer};
    use std::time::{Duration, SystemTime};

    fn access(path: &str) -> AccessRecord {
        AccessRecord {
            id: "req_1".into(),
            peer: Peer::Tcp(([192, 0, 2, 1], 9).into()),
            key: Some("desk".into()),
            asked: Some((Method::Post, path.into())),
            status: Some(200),
            begun: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            time: Duration::from_millis(250),
            end: Outcome::Whole,
            notes: Map::from_iter([("reply_tokens".to_owned(), json!(3))]),
        }
    }

    #[test]
    fn a_request_is_one_line_whatever_its_path_and_the_file_may_be_moved_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access");
        let lines = AccessLogFile::open(&path).unwrap();
        lines.write(&access("/v1/a\n\u{9b}b"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() == 1 && !text.contains('\u{9b}'), "{text}");
        let expected = json!({
            "time": 1.5, "id": "req_1", "peer": "192.0.2.1:9", "key": "desk", "method": "POST", "path": "/v1/a\n\u{9b}b",
            "status": 200, "end": "whole", "seconds": 0.25, "reply_tokens": 3,
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        let moved = directory.path().join("access.1");
        std::fs::rename(&path, &moved).unwrap();
        lines.write(&access("/2"));
        lines.reopen().unwrap();
        lines.write(&access("/3"));
        let count = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((count(&moved), count(&path)), (2, 1));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(AccessLogFile::open(directory.path()).is_err());
        assert!(AccessLogFile::open(&directory.path().join("none/access")).is_err());
        let path = directory.path().join("access");
        AccessLogFile::try_out(&path).unwrap();
        assert!(!path.exists() && AccessLogFile::try_out(&directory.path().join("none/access")).is_err());
        assert!(AccessLogFile::try_out(Path::new("/dev/null")).is_err());
        let e = AccessLogFile::open(Path::new("/dev/null")).err().unwrap();
        assert!(e.to_string().contains("is no regular file, and no access log; name a file"), "{e}");
    }
}
