//! The download of one file: continues where an earlier one stopped, and renames the file only after its checksum
//! matched.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::name::Repo;
use super::super::sum::FileSum;
use super::client::{HubClient, Trouble};
use super::listing::RepoFile;
use super::settings::Patience;
use super::{PullWatch, check, refusal};
use crate::display::{bytes, plain};
use crate::machine::regular::{self, Links, ReadFault};
use crate::{Error, Result};

/// The number of bytes that are read from the network at a time.
const PIECE: usize = 256 << 10;
/// The number of full downloads of a file after which a wrong checksum is an error.
const WHOLES: u32 = 2;
/// The longest wait that is accepted from a server.
const LONGEST_ASKED: Duration = Duration::from_secs(600);
/// Interval at which a wait checks for cancellation.
const LOOK: Duration = Duration::from_millis(50);

/// The download of one file and its destination.
pub(super) struct BlobFetch<'a> {
    pub(super) client: &'a HubClient,
    pub(super) repo: &'a Repo,
    pub(super) patience: Patience,
    pub(super) watch: &'a dyn PullWatch,
    pub(super) file: &'a RepoFile,
    /// The URL that the file is downloaded from.
    pub(super) url: String,
    /// The path of the file in the cache, once it is complete.
    pub(super) blob: PathBuf,
    /// The path of the file in the cache while it is downloaded.
    pub(super) partial: PathBuf,
    /// Bytes of the other files that are already here, for the progress.
    pub(super) before: u64,
    pub(super) total: u64,
}

/// The reason why a file could not be downloaded.
pub(super) enum FetchFault {
    /// The hub's etag differs from the listing's: the file was replaced meanwhile.
    Changed,
    /// The download cannot continue, for this reason.
    Error(Error),
}

impl From<Error> for FetchFault {
    fn from(e: Error) -> FetchFault {
        FetchFault::Error(e)
    }
}

/// The bytes of a file that were downloaded so far, with their checksum.
struct Come {
    file: File,
    bytes: u64,
    sum: FileSum,
}

impl BlobFetch<'_> {
    /// Downloads the missing bytes, checks the checksum, and renames the file. Returns the bytes downloaded.
    ///
    /// # Errors
    /// The hub refuses the file or cannot be reached, the checksum is wrong, or a write fails. The partial file stays
    /// for the next attempt, unless its checksum is wrong.
    pub(super) fn run(&self) -> std::result::Result<u64, FetchFault> {
        let mut fetched = 0;
        for whole in 1..=WHOLES {
            let mut come = self.open()?;
            if come.bytes > 0 {
                let (done, name) = (bytes(come.bytes), self.file.name());
                self.watch.say(&format!("{name} goes on after {done} of {}", bytes(self.file.bytes)));
            }
            fetched += self.fill(&mut come)?;
            come.file.sync_all().map_err(|e| self.unwritable(&e))?;
            // The checksum covers the bytes of this process. Where locks do not work, another process may have written
            // as well.
            let length = come.file.metadata().map_err(|e| self.unwritable(&e))?.len();
            if length == self.file.bytes && come.sum.digits() == self.file.etag {
                std::fs::rename(&self.partial, &self.blob).map_err(|e| Error::unwritable(&self.blob, &e))?;
                return Ok(fetched);
            }
            // A checksum does not tell which bytes are wrong.
            std::fs::remove_file(&self.partial).map_err(|e| Error::unwritable(&self.partial, &e))?;
            if whole < WHOLES {
                self.watch.say(&format!("{} came with a wrong sum, and is fetched anew", self.file.name()));
            }
        }
        let cause = format!("{} came {WHOLES} times with another sum than the hub names", self.file.path);
        let remedy = "check the proxy if there is one, and the machine's memory and disk; then pull it again";
        Err(Error::failed(cause, remedy).into())
    }

    /// Opens the partial file, and hashes the bytes of an earlier download.
    fn open(&self) -> Result<Come> {
        match regular::open(&self.partial, Links::Refuse) {
            Ok(_) => {}
            Err(ReadFault::Io(e)) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(fault) => {
                let cause = format!("{} cannot be gone on with: {fault}", self.partial.display());
                return Err(Error::input(cause, "remove it"));
            }
        }
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).append(true).create(true).open(&self.partial).map_err(|e| self.unwritable(&e))?;
        if file.metadata().map_err(|e| self.unwritable(&e))?.len() > self.file.bytes {
            self.watch
                .say(&format!("more has come of {} than the hub says it has; it is fetched anew", self.file.name()));
            file.set_len(0).map_err(|e| self.unwritable(&e))?;
        }
        let cause = format!("{} has a sum of an unknown kind", self.file.path);
        let mut sum =
            FileSum::like(&self.file.etag, self.file.bytes).ok_or_else(|| Error::failed(cause, "check HF_ENDPOINT"))?;
        let (mut piece, mut read) = (vec![0; PIECE], 0u64);
        loop {
            check(self.watch)?;
            match file.read(&mut piece).map_err(|e| Error::unreadable(&self.partial, &e))? {
                0 => return Ok(Come { file, bytes: read, sum }),
                n => {
                    sum.update(&piece[..n]);
                    read += n as u64;
                }
            }
        }
    }

    /// Requests the missing bytes until the file is complete. Each byte gained resets the count of failures.
    fn fill(&self, come: &mut Come) -> std::result::Result<u64, FetchFault> {
        let (start, mut failures) = (come.bytes, 0);
        while come.bytes < self.file.bytes {
            let before = come.bytes;
            let trouble = match self.ask(come)? {
                Ok(()) if come.bytes == self.file.bytes => break,
                Ok(()) => Trouble::Passing { why: "the connection ended early".into(), after: None },
                Err(trouble) => trouble,
            };
            if come.bytes > before {
                failures = 0;
            }
            failures += 1;
            self.wait_after(trouble, failures)?;
        }
        Ok(come.bytes - start)
    }

    /// Waits before the next request, or returns the error if there is none.
    fn wait_after(&self, trouble: Trouble, failures: u32) -> Result<()> {
        match wait(&self.patience, &trouble, failures, self.watch)? {
            true => Ok(()),
            false => Err(refusal(
                self.client,
                self.repo,
                trouble,
                &format!("cannot fetch {}", self.file.path),
                "the same command goes on where this one stopped",
            )),
        }
    }

    /// Requests the bytes that are still missing, and appends them to the file.
    fn ask(&self, come: &mut Come) -> std::result::Result<std::result::Result<(), Trouble>, FetchFault> {
        let answer = match self.client.get(&self.url, come.bytes) {
            Ok(answer) => answer,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let passing = |why: String| Ok(Err(Trouble::Passing { why, after: None }));
        // Only the hub's own etag counts; the etag of a storage host may be anything.
        let is_other = |etag: &String| FileSum::like(etag, 0).is_some() && *etag != self.file.etag;
        if answer.linked.etag.as_ref().is_some_and(is_other) {
            return Err(FetchFault::Changed);
        }
        // A server without ranges sends the file from its beginning; the bytes already here are skipped.
        let mut over = match (answer.status, answer.range()) {
            (200, _) => come.bytes,
            (206, Some((from, whole))) if from <= come.bytes && whole.is_none_or(|whole| whole == self.file.bytes) => {
                come.bytes - from
            }
            (status, _) => return passing(format!("the answer to a request for the rest is none ({status})")),
        };
        let (mut reader, mut piece) = (answer.into_reader(), vec![0; PIECE]);
        while come.bytes < self.file.bytes {
            check(self.watch)?;
            let read = match reader.read(&mut piece) {
                Ok(0) => return Ok(Ok(())),
                Ok(read) => read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) if self.watch.cancel().is_set() => return Ok(Err(Trouble::Cancelled)),
                Err(e) => return passing(format!("the connection is cut: {}", plain(&e.to_string()))),
            };
            let passed = over.min(read as u64);
            over -= passed;
            // Bytes beyond the file's length are dropped.
            let left = (self.file.bytes - come.bytes).min(read as u64 - passed) as usize;
            let new = &piece[passed as usize..passed as usize + left];
            come.file.write_all(new).map_err(|e| self.unwritable(&e))?;
            come.sum.update(new);
            come.bytes += left as u64;
            self.watch.progress(self.before + come.bytes, self.total);
        }
        Ok(Ok(()))
    }

    fn unwritable(&self, e: &std::io::Error) -> Error {
        Error::unwritable(&self.partial, e)
    }
}

/// Waits before a request is repeated after `failures` failures in a row. Returns `false` if it must not be repeated.
///
/// # Errors
/// Interrupted.
pub(super) fn wait(patience: &Patience, trouble: &Trouble, failures: u32, watch: &dyn PullWatch) -> Result<bool> {
    check(watch)?;
    let Trouble::Passing { why, after } = trouble else { return Ok(false) };
    if failures > patience.retries {
        return Ok(false);
    }
    let doubled = patience.first_wait.saturating_mul(1 << (failures - 1).min(16)).min(patience.longest_wait);
    let asked = after.map(Duration::from_secs);
    if asked.is_some_and(|asked| asked > LONGEST_ASKED) {
        return Ok(false);
    }
    let pause = asked.map_or(doubled, |asked| asked.max(patience.first_wait));
    watch.say(&format!("{why}; asking again in {} s", pause.as_secs_f64().ceil()));
    let begin = std::time::Instant::now();
    while begin.elapsed() < pause {
        check(watch)?;
        std::thread::sleep(LOOK.min(pause));
    }
    Ok(true)
}

/// The length of a partial file; 0 without one.
pub(super) fn come_of(partial: &Path) -> u64 {
    partial.symlink_metadata().map_or(0, |found| found.len())
}
