//! Copies a model's files into a bundle, and writes its manifest.

use super::destination::{self, check_destination, check_space, write_file};
use super::{WriteMonitor, WriteSummary};
use crate::machine::free_bytes;
use crate::machine::partial::PartialDir;
use crate::machine::regular::{self, Links};
use crate::model::bundle::{Entry, MANIFEST, Manifest, sha256_of};
use crate::{Error, Result};
use std::fs::File;
use std::io::Write;
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
    let (mut done, mut entries) = (0, Vec::with_capacity(files.len()));
    for (path, name) in files {
        let (mut from, to) = (open(path)?.0, partial.path().join(name));
        let unwritable = |e| Error::unwritable(&to, &e);
        let mut file = File::create_new(&to).map_err(unwritable)?;
        let mut bytes_of_it = 0;
        let sha256 = sha256_of(&mut from, path, &|| monitor.check(), |piece, so_far| {
            bytes_of_it = so_far;
            file.write_all(piece).map_err(unwritable)?;
            (monitor.progress)(done + so_far, bytes);
            Ok(())
        })?;
        file.sync_all().map_err(unwritable)?;
        done += bytes_of_it;
        entries.push(Entry { file: name.clone(), bytes: bytes_of_it, sha256 });
    }
    let manifest = serde_json::to_string_pretty(&Manifest::new(name, entries));
    let manifest =
        manifest.map_err(|e| Error::failed(format!("the manifest cannot be written: {e}"), "report this"))?;
    write_file(&partial.path().join(MANIFEST), (manifest + "\n").as_bytes())?;
    destination::commit(partial, dst)?;
    Ok(WriteSummary { tensors, bytes: done })
}
