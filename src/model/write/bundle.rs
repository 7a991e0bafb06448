//! Copies a model's files into a bundle, and writes its manifest.

use super::destination::{self, check_destination, check_space, write_file};
use super::{WriteMonitor, WriteSummary};
use crate::machine::free_bytes;
use crate::machine::partial::PartialDir;
use crate::machine::regular::{self, Links};
use crate::model::bundle::{Entry, MANIFEST, Manifest, PIECE, hex};
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Copies each file to its name in the new directory `dst`, and adds a manifest of the model `name`. `tensors`: the
/// model's number of tensors, for the summary.
///
/// # Errors
/// Input: `dst` exists, or a file cannot be read. Failed: there is not enough space, or a write fails. Interrupted:
/// `monitor.cancel` is set. After an error nothing is left behind.
pub fn bundle(
    name: String,
    files: &[(PathBuf, String)],
    tensors: usize,
    dst: &Path,
    monitor: &WriteMonitor,
) -> Result<WriteSummary> {
    check_destination(dst)?;
    let open = |path: &Path| {
        regular::open(path, Links::Follow).map_err(|e| {
            Error::input(format!("{} cannot be read: {e}", path.display()), "give a model whose files are there")
        })
    };
    let bytes = files.iter().map(|(path, _)| Ok(open(path)?.1)).sum::<Result<u64>>()?;
    let partial = PartialDir::create(dst).map_err(|e| Error::unwritable(dst, &e.kind().into()))?;
    check_space(partial.path(), bytes, free_bytes(partial.path())?)?;
    let (mut done, mut piece) = (0, vec![0; PIECE]);
    let mut entries = Vec::with_capacity(files.len());
    for (path, name) in files {
        let (mut from, to) = (open(path)?.0, partial.path().join(name));
        let unwritable = |e| Error::unwritable(&to, &e);
        let mut file = File::create_new(&to).map_err(unwritable)?;
        let (mut sum, mut bytes_of_it) = (Sha256::new(), 0);
        loop {
            monitor.check()?;
            let read = from.read(&mut piece).map_err(|e| Error::unreadable(path, &e))?;
            if read == 0 {
                break;
            }
            file.write_all(&piece[..read]).map_err(unwritable)?;
            sum.update(&piece[..read]);
            bytes_of_it += read as u64;
            (monitor.progress)(done + bytes_of_it, bytes);
        }
        file.sync_all().map_err(unwritable)?;
        done += bytes_of_it;
        entries.push(Entry { file: name.clone(), bytes: bytes_of_it, sha256: hex(sum) });
    }
    let manifest = serde_json::to_string_pretty(&Manifest::new(name, entries));
    let manifest =
        manifest.map_err(|e| Error::failed(format!("the manifest cannot be written: {e}"), "report this"))?;
    write_file(&partial.path().join(MANIFEST), (manifest + "\n").as_bytes())?;
    destination::commit(partial, dst)?;
    Ok(WriteSummary { tensors, bytes: done })
}
