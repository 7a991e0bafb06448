//! Sessions: tokens that are brought into the cache, saved to a file with their keys and values, and loaded. The
//! engine's thread only copies them in memory, so a slow disk delays only the caller.

use super::format::{Contents, Fault, Identity, PrefixTable, ReadAt, SESSION, check_kind};
use crate::engine::core::Core;
use crate::engine::queue::{EngineHandle, ModelSide};
use crate::engine::request::{EngineError, Request};
use crate::executor::Executor;
use crate::machine::partial::PartialFile;
use crate::machine::regular;
use crate::sequence::Batch;
use crate::{Cancel, Error, Result};
use std::io::ErrorKind;
use std::path::Path;

/// The most attempts to put a session into the cache for saving, if other sequences take its pages at once.
const TRIES: usize = 8;

impl EngineHandle {
    /// Runs `tokens` as far as they are not cached, so that a prompt that begins with them continues from there.
    /// Returns the number of cached tokens. Running replies may evict them later if they need the room.
    ///
    /// # Errors
    /// As [`EngineHandle::submit`]. Interrupted: `cancel` is set.
    pub(crate) fn sync(
        &self,
        side: ModelSide<'_>,
        tokens: &[u32],
        cancel: &Cancel,
    ) -> std::result::Result<usize, EngineError> {
        side.limits.check(0, tokens).map_err(EngineError::Prompt)?;
        let sought = tokens.to_vec();
        let holds = move |core: &mut Core<'_>| core.batch.holder(core.executor.as_ref(), &sought).is_some();
        if self.run(side.model, holds)? {
            return Ok(tokens.len());
        }
        self.ask(side, Request::caching(tokens.to_vec()))?.until(cancel).kept()
    }

    /// Writes tokens with their keys and values to a file for [`EngineHandle::load`]. The file is complete or not
    /// written.
    ///
    /// # Errors
    /// As [`EngineHandle::sync`]. Input: another kind of file is at `path`. Refused: other sequences leave no room in
    /// the cache. Failed: the file cannot be written.
    pub(crate) fn save(
        &self,
        side: ModelSide<'_>,
        identity: Identity,
        tokens: &[u32],
        path: &Path,
        cancel: &Cancel,
    ) -> std::result::Result<(), EngineError> {
        check_place(path).map_err(EngineError::Reply)?;
        for _ in 0..TRIES {
            self.sync(side, tokens, cancel)?;
            let sought = tokens.to_vec();
            let copy = move |core: &mut Core<'_>| copy(&sought, identity, &core.batch, core.executor.as_mut());
            if let Some(bytes) = self.run(side.model, copy)?.map_err(EngineError::Reply)? {
                return write(path, &bytes).map_err(EngineError::Reply);
            }
        }
        let cause = "other sequences leave the session no room in the cache";
        Err(EngineError::Reply(Error::refused(cause, "save it once they have ended")))
    }

    /// Loads a file of [`EngineHandle::save`] into the cache of `model`, and returns its tokens. The continuation is
    /// the same as after the original tokens.
    ///
    /// # Errors
    /// Input: the file is not a session of this model on this device. Refused: all slots are in use. Failed: the engine
    /// has ended.
    pub(crate) fn load(&self, model: u64, identity: Identity, path: &Path) -> Result<Vec<u32>> {
        let bytes = SESSION.read(path, identity).map_err(|fault| unused(path, fault))?;
        let name = path.to_owned();
        let put_in =
            move |core: &mut Core<'_>| restore(&name, bytes, identity, &mut core.batch, core.executor.as_mut());
        self.run(model, put_in)??.ok_or_else(|| {
            Error::refused(
                "no place is free for the session: replies are under way in all",
                "load it once one has ended",
            )
        })
    }
}

/// Refuses a path with another kind of file.
///
/// # Errors
/// Input: there is such a file.
fn check_place(path: &Path) -> Result<()> {
    check_kind(path, SESSION).map_err(|fault| {
        let cause = format!("no session is saved to {}, which stays as it is: {fault}", path.display());
        Error::input(cause, "name another path, or remove it")
    })
}

/// The contents of a session's file. `None`: not all of `tokens` are cached.
///
/// # Errors
/// Refused: it would be too large. Device: it failed.
fn copy(tokens: &[u32], identity: Identity, batch: &Batch, executor: &mut dyn Executor) -> Result<Option<Vec<u8>>> {
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
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    check_place(path)?;
    PartialFile::write_whole(path, 0o600, bytes).map_err(|e| Error::unwritable(path, &e))
}

/// Loads a session into the cache. Returns its tokens; `None`: no slot is free.
///
/// # Errors
/// Input: the file is not a session of this model on this device. Device: it failed.
fn restore(
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
