//! Saves a session's tokens, keys and values to a file, and loads them. The engine's thread only copies them in memory,
//! so a slow disk delays only the caller.

use super::format::{Contents, Fault, Identity, PrefixTable, ReadAt, SESSION, check_kind};
use crate::executor::Executor;
use crate::machine::partial::PartialFile;
use crate::machine::regular;
use crate::sequence::Batch;
use crate::{Error, Result};
use std::io::ErrorKind;
use std::path::Path;

/// Refuses a path with another kind of file.
///
/// # Errors
/// Input: there is such a file.
pub(in crate::serve) fn check_place(path: &Path) -> Result<()> {
    check_kind(path, SESSION).map_err(|fault| {
        let cause = format!("no session is saved to {}, which stays as it is: {fault}", path.display());
        Error::input(cause, "name another path, or remove it")
    })
}

/// The contents of a session's file. `None`: not all of `tokens` are cached.
///
/// # Errors
/// Refused: it would be too large. Device: it failed.
pub(in crate::serve) fn copy(
    tokens: &[u32],
    identity: Identity,
    batch: &Batch,
    executor: &mut dyn Executor,
) -> Result<Option<Vec<u8>>> {
    let Some(prefix) = batch.holder(executor, tokens) else { return Ok(None) };
    let table = PrefixTable::new(&[prefix], executor);
    if !table.fits() {
        return Err(Error::refused("a session of more than 4 GiB is not saved", "save one of fewer tokens"));
    }
    let mut bytes = Vec::new();
    table.write(&mut bytes, SESSION, identity, executor).map_err(|fault| match fault {
        Fault::Engine(e) => e,
        fault => Error::failed(format!("the session cannot be copied: {fault}"), "report this"),
    })?;
    Ok(Some(bytes))
}

/// Writes the result of [`copy`]. The file is complete or not written.
///
/// # Errors
/// As [`check_place`]. Failed: it cannot be written.
pub(in crate::serve) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    check_place(path)?;
    PartialFile::write_whole(path, 0o600, bytes).map_err(|e| Error::unwritable(path, &e))
}

/// Reads a session's file.
///
/// # Errors
/// Input: the file is not a session of this model on this device.
pub(in crate::serve) fn read(path: &Path, identity: Identity) -> Result<Vec<u8>> {
    SESSION.read(path, identity).map_err(|fault| unused(path, fault))
}

/// Loads a session into the cache. Returns its tokens; `None`: no slot is free.
///
/// # Errors
/// As [`read`]. Device: it failed.
pub(in crate::serve) fn restore(
    path: &Path,
    bytes: Vec<u8>,
    identity: Identity,
    batch: &mut Batch,
    executor: &mut dyn Executor,
) -> Result<Option<Vec<u32>>> {
    let length = bytes.len() as u64;
    let put_in = || -> std::result::Result<_, Fault> {
        let read_at: ReadAt = Box::new(move |part, at| {
            let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..part.len()));
            part.copy_from_slice(rest.ok_or(Fault::Damaged)?);
            Ok(())
        });
        let mut contents = Contents::of(read_at, length, SESSION, identity, executor)?;
        let [stored] = contents.prefixes.as_slice() else { return Err(Fault::Damaged) };
        let has_room = contents.restore(stored, batch, executor)?;
        Ok(contents.prefixes.pop().filter(|_| has_room).map(|stored| stored.tokens))
    };
    put_in().map_err(|fault| unused(path, fault))
}

/// The error for a file that is not used.
fn unused(path: &Path, fault: Fault) -> Error {
    let remedy = match &fault {
        Fault::File(regular::ReadFault::Io(e)) if e.kind() == ErrorKind::NotFound => return Error::unreadable(path, e),
        Fault::Engine(e @ Error::Device { .. }) => return e.clone(),
        Fault::Stale => "open the engine as it was when the session was saved, or begin anew",
        _ => "name a file that a session was saved to",
    };
    Error::input(format!("{} is not taken for a session: {fault}", path.display()), remedy)
}
