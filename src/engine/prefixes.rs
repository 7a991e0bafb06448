//! Files of prefixes with their keys and values, so that they need not run again after a start: those that a server
//! keeps between runs, and saved sessions, in the same format.

mod format;
mod session;

pub(crate) use format::Identity;

use crate::executor::Executor;
use crate::machine::partial::{Lock, PartialFile, lock_for};
use crate::machine::regular;
use crate::sequence::Batch;
use crate::{Error, Result};
use format::{Contents, Fault, PREFIXES, PrefixTable, check_kind};
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file of prefixes, locked for this process.
pub(crate) struct PrefixFile {
    path: PathBuf,
    _lock: Lock,
}

impl PrefixFile {
    /// Checks that a file of prefixes can be written at `path`. Leaves no file behind.
    ///
    /// # Errors
    /// As [`PrefixFile::take`]. Failed: it cannot be written.
    pub fn try_out(path: &Path) -> Result<()> {
        refuse_another(path)?;
        PartialFile::create(path, 0o600).map(drop).map_err(|e| Error::unwritable(path, &e.kind().into()))
    }

    /// Locks the file at `path`, which need not exist. `None`, with a log message: another process has it, or its
    /// directory is not writable.
    ///
    /// # Errors
    /// Input: another kind of file is at `path`.
    pub fn take(path: &Path) -> Result<Option<PrefixFile>> {
        refuse_another(path)?;
        Ok(match lock_for(path, 0o600) {
            Ok(lock) => Some(PrefixFile { path: path.to_owned(), _lock: lock }),
            Err(e) => {
                let why = match e.kind() {
                    ErrorKind::WouldBlock => "another server uses it".to_owned(),
                    _ => format!("its lock cannot be had: {e}"),
                };
                log::warn!("{} is not used for prefixes: {why}", path.display());
                None
            }
        })
    }

    /// Loads the file's prefixes into free slots. A file that cannot be used is logged and ignored.
    ///
    /// # Errors
    /// Device: it failed.
    pub fn load(&self, identity: Identity, batch: &mut Batch, executor: &mut dyn Executor) -> Result<()> {
        let (start, path) = (Instant::now(), self.path.display());
        match self.read(identity, batch, executor) {
            Ok((prefixes, tokens)) => {
                let seconds = start.elapsed().as_secs_f64();
                log::info!("{path}: {prefixes} prefixes of {tokens} tokens were read in {seconds:.2} s");
            }
            Err(Fault::File(regular::ReadFault::Io(e))) if e.kind() == ErrorKind::NotFound => {}
            Err(Fault::Engine(e @ Error::Device { .. })) => return Err(e),
            Err(fault) => {
                batch.forget(executor);
                log::warn!("{path} is not used for prefixes: {fault}");
            }
        }
        Ok(())
    }

    /// Returns the number of prefixes loaded and their tokens.
    fn read(
        &self,
        identity: Identity,
        batch: &mut Batch,
        executor: &mut dyn Executor,
    ) -> std::result::Result<(usize, usize), Fault> {
        let contents = Contents::open(&self.path, PREFIXES, identity, executor)?;
        let (mut count, mut tokens) = (0, 0);
        for prefix in &contents.prefixes {
            if contents.restore(prefix, batch, executor)? {
                (count, tokens) = (count + 1, tokens + prefix.tokens.len());
            }
        }
        Ok((count, tokens))
    }

    /// Writes the prefixes worth keeping, with the cached part of `first` before the others. Leaves the file as it is
    /// if there are none. A failed write is logged, and the old file stays.
    ///
    /// # Errors
    /// Device: it failed.
    pub fn save(&self, identity: Identity, batch: &Batch, first: &[u32], executor: &mut dyn Executor) -> Result<()> {
        let (start, path) = (Instant::now(), self.path.display());
        let prefixes = batch.prefixes(executor, first);
        let Some(table) =
            (0..prefixes.len()).map(|from| PrefixTable::new(&prefixes[from..], executor)).find(PrefixTable::fits)
        else {
            return Ok(());
        };
        let mut write = || -> std::result::Result<(), Fault> {
            let mut file = BufWriter::new(PartialFile::create(&self.path, 0o600)?);
            table.write(&mut file, PREFIXES, identity, executor)?;
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            // Another file may have been put there since the start.
            check_kind(&self.path, PREFIXES)?;
            Ok(file.commit(&self.path)?)
        };
        match write() {
            Ok(()) => {
                let (seconds, prefixes) = (start.elapsed().as_secs_f64(), table.prefixes);
                log::info!("{path}: prefixes written in {seconds:.2} s: {prefixes}");
            }
            Err(Fault::Engine(e @ Error::Device { .. })) => return Err(e),
            Err(fault) => log::warn!("{path}: the prefixes were not written: {fault}"),
        }
        Ok(())
    }
}

/// Refuses to overwrite a file at `path` that is not a file of prefixes.
fn refuse_another(path: &Path) -> Result<()> {
    check_kind(path, PREFIXES).map_err(|fault| {
        let cause = format!("{} is not used for prefixes, and stays as it is: {fault}", path.display());
        Error::input(cause, "name another path, or remove it")
    })
}

#[cfg(test)]
mod tests;
