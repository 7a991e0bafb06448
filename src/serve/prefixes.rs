//! The file in which a server keeps prefixes with their keys and values from one run to the next, so that they are not run
//! again after a start; and how a session of a program is kept, which has a file of the same format.

mod format;
pub(super) mod session;

pub(super) use format::Identity;

use crate::executor::Executor;
use crate::machine::partial::{Lock, PartialFile, lock_for};
use crate::machine::regular;
use crate::sequence::Batch;
use crate::{Error, Result};
use format::{Contents, Fault, PREFIXES, PrefixTable, check_kind};
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file of prefixes, which this process alone uses.
pub(super) struct PrefixFile {
    path: PathBuf,
    _lock: Lock,
}

impl PrefixFile {
    /// Tries whether a file of prefixes can be written at `path`. Leaves nothing there.
    ///
    /// # Errors
    /// As [`PrefixFile::take`]. Failed: it cannot be written.
    pub fn try_out(path: &Path) -> Result<()> {
        refuse_another(path)?;
        PartialFile::create(path, 0o600).map(drop).map_err(|e| Error::unwritable(path, &e.kind().into()))
    }

    /// Takes the file at `path`, which need not exist. `None`, which is logged: another process has it, or its directory
    /// cannot be written to.
    ///
    /// # Errors
    /// Input: there is something else at `path`, which would be lost.
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

    /// Puts the file's prefixes into free slots. A file that cannot be used is logged, and nothing of it is used.
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

    /// Returns how many prefixes were put into slots, and their tokens.
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

    /// Writes the prefixes that are worth keeping, what is there of `first` before the others. Leaves the file as it is
    /// where there are none. A file that cannot be written is logged, and stays as it was.
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
        match self.write(identity, &table, executor) {
            Ok(()) => {
                let (seconds, prefixes) = (start.elapsed().as_secs_f64(), table.prefixes);
                log::info!("{path}: prefixes written in {seconds:.2} s: {prefixes}");
            }
            Err(Fault::Engine(e @ Error::Device { .. })) => return Err(e),
            Err(fault) => log::warn!("{path}: the prefixes were not written: {fault}"),
        }
        Ok(())
    }

    fn write(
        &self,
        identity: Identity,
        table: &PrefixTable,
        executor: &mut dyn Executor,
    ) -> std::result::Result<(), Fault> {
        let mut file = BufWriter::new(PartialFile::create(&self.path, 0o600)?);
        table.write(&mut file, PREFIXES, identity, executor)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // Something else may have come there since the start.
        check_kind(&self.path, PREFIXES)?;
        Ok(file.commit(&self.path)?)
    }
}

/// Refuses what is at `path` and would be lost, if it is no file of prefixes.
fn refuse_another(path: &Path) -> Result<()> {
    check_kind(path, PREFIXES).map_err(|fault| {
        let cause = format!("{} is not used for prefixes, and stays as it is: {fault}", path.display());
        Error::input(cause, "name another path, or remove it")
    })
}

#[cfg(test)]
mod tests;
