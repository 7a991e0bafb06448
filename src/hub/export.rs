//! Copies a model's files out of the cache into a plain folder, for a machine without a network.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{MSDOS_SUPER_MAGIC, statfs};

use super::cache::Cached;
use super::sum::FileSum;
use crate::display::{bytes, quote};
use crate::machine::free_bytes;
use crate::machine::partial::PartialFile;
use crate::machine::regular::{self, Links};
use crate::model::bundle::sha256_of;
use crate::model::write::WriteMonitor;
use crate::{Error, Result};

/// The name of the checksum file, which `sha256sum -c` reads.
pub const SUMS: &str = "SHA256SUMS";
/// The most bytes of a file on a FAT32 file system.
const FAT_LIMIT: u64 = u32::MAX as u64;
/// Extensions of files that belong to a model.
const MODELS: [&str; 4] = ["gguf", "jinja", "json", "safetensors"];
/// The longest checksum file that is read, in bytes.
const MAX_SUMS: u64 = 1 << 20;

/// Copies the files of `model` into `dir`, creates it if needed, reads the copies back, and writes their checksums
/// beside them. A file that already exists with the same bytes stays. Returns the copy's path for `-m`.
///
/// # Errors
/// Input: `dir` has another model's files, or a file of the same name with other bytes. Failed: there is no room, a
/// file is too long for the file system, the cache's copy is damaged, or a copy reads back differently. Interrupted.
pub fn export(model: &Cached, dir: &Path, monitor: &WriteMonitor) -> Result<PathBuf> {
    let files = named(model)?;
    DirBuilder::new().recursive(true).create(dir).map_err(|e| Error::unwritable(dir, &e))?;
    check_folder(dir, &files)?;
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    check_room(dir, &files)?;
    let (mut done, mut sums) = (0, String::new());
    for file in &files {
        let target = dir.join(&file.name);
        let progress = |of_it: u64| (monitor.progress)(done + of_it, total);
        let sum = match target.symlink_metadata() {
            Ok(_) => file.compare(&target, monitor, &progress)?,
            Err(_) => file.copy(&target, monitor, &progress)?,
        };
        sums += &format!("{sum}  {}\n", file.name);
        done += file.bytes;
    }
    let path = dir.join(SUMS);
    PartialFile::write_whole(&path, 0o666, sums.as_bytes()).map_err(|e| Error::unwritable(&path, &e))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Error::unwritable(dir, &e))?;
    let is_directory = model.path.is_dir();
    Ok(if is_directory { dir.to_owned() } else { files.first().map_or(dir.to_owned(), |first| dir.join(&first.name)) })
}

/// A file that the export copies, and its name there.
struct ExportFile {
    from: PathBuf,
    /// The file's name in the folder that is written.
    name: String,
    bytes: u64,
}

/// The model's files with their names in the folder.
fn named(model: &Cached) -> Result<Vec<ExportFile>> {
    let of = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let name =
            name.ok_or_else(|| Error::input(format!("{} is no UTF-8", path.display()), "give it another name"))?;
        let opened = regular::open(path, Links::Follow);
        let (_, bytes) = opened.map_err(|e| {
            Error::input(format!("{} cannot be read: {e}", path.display()), format!("pull {} again", model.name))
        })?;
        Ok(ExportFile { from: path.clone(), name, bytes })
    };
    model.files.iter().map(of).collect()
}

/// Refuses a folder that has another model's files, so that the folder can be given to `-m`.
fn check_folder(dir: &Path, files: &[ExportFile]) -> Result<()> {
    let is_ours = |name: &str| files.iter().any(|file| file.name == name);
    let other = |name: String| {
        let cause = format!("{} has {}, which is none of the model's files", dir.display(), quote(&name));
        Err(Error::input(cause, "name a folder of its own"))
    };
    for entry in dir.read_dir().map_err(|e| Error::unreadable(dir, &e))? {
        let name = entry.map_err(|e| Error::unreadable(dir, &e))?.file_name();
        let is_model = Path::new(&name).extension().is_some_and(|end| MODELS.iter().any(|model| end == *model));
        let name = name.to_string_lossy();
        if is_model && !name.starts_with('.') && !is_ours(&name) {
            return other(name.into_owned());
        }
    }
    let path = dir.join(SUMS);
    match regular::read(&path, Links::Refuse, MAX_SUMS) {
        Err(regular::ReadFault::Io(e)) if e.kind() == ErrorKind::NotFound => Ok(()),
        Ok(text) if String::from_utf8_lossy(&text).lines().all(|line| line.get(66..).is_some_and(is_ours)) => Ok(()),
        _ => {
            let cause = format!("{} is of other files", path.display());
            Err(Error::input(cause, "name a folder of its own, or remove it"))
        }
    }
}

/// Refuses files that the file system cannot hold.
fn check_room(dir: &Path, files: &[ExportFile]) -> Result<()> {
    let missing = || files.iter().filter(|file| dir.join(&file.name).symlink_metadata().is_err());
    let is_fat = statfs(dir).is_ok_and(|found| found.filesystem_type() == MSDOS_SUPER_MAGIC);
    if let Some(long) = missing().find(|file| is_fat && file.bytes > FAT_LIMIT) {
        return Err(too_long(dir, long));
    }
    let (wanted, free) = (missing().map(|file| file.bytes).sum::<u64>(), free_bytes(dir)?);
    if wanted <= free {
        return Ok(());
    }
    let (place, lacking) = (dir.display(), bytes(wanted - free));
    let cause = format!("the files take {}, and {} are free in {place}", bytes(wanted), bytes(free));
    Err(Error::failed(cause, format!("free {lacking} there, or choose another place")))
}

fn too_long(dir: &Path, file: &ExportFile) -> Error {
    let cause = format!(
        "{} has {}, and FAT32, as {} has it, takes no file of 4 GiB",
        file.name,
        bytes(file.bytes),
        dir.display()
    );
    Error::failed(cause, "format the stick as exFAT (`mkfs.exfat`), or take one that is")
}

impl ExportFile {
    /// The checksum in the name of the cache's blob; `None` if the name is not a checksum.
    fn etag(&self) -> Option<String> {
        let target = self.from.read_link().ok()?;
        let name = target.file_name()?.to_str()?.to_owned();
        FileSum::like(&name, 0).map(|_| name)
    }

    /// Copies the file and reads the copy back. Returns its SHA-256.
    fn copy(&self, target: &Path, monitor: &WriteMonitor, progress: &dyn Fn(u64)) -> Result<String> {
        let unwritable = |e: std::io::Error| Error::unwritable(target, &e);
        let mut from = self.open()?;
        let mut to = PartialFile::create(target, 0o666).map_err(unwritable)?;
        let etag = self.etag();
        let mut own = etag.as_ref().and_then(|etag| FileSum::like(etag, self.bytes));
        let sum = sha256_of(&mut from, &self.from, &|| monitor.cancel.check(), |piece, done| {
            to.write_all(piece).map_err(unwritable)?;
            if let Some(own) = &mut own {
                own.update(piece);
            }
            progress(done);
            Ok(())
        })?;
        if let (Some(etag), Some(own)) = (etag, own)
            && own.digits() != etag
        {
            let cause = format!("{} is damaged: its sum is not that of its name", self.from.display());
            return Err(Error::failed(cause, "remove what the link leads to, and pull the model again"));
        }
        to.sync().map_err(unwritable)?;
        to.commit(target).map_err(unwritable)?;
        match sum_of(target, monitor, &|_| ())? == sum {
            true => Ok(sum),
            false => {
                let cause = format!("{} does not read back as it was written", target.display());
                Err(Error::failed(cause, "the medium is faulty, or smaller than it says; take another"))
            }
        }
    }

    /// Compares a file that already exists with the cache's. Returns its SHA-256.
    fn compare(&self, target: &Path, monitor: &WriteMonitor, progress: &dyn Fn(u64)) -> Result<String> {
        let other = || {
            let cause = format!("{} exists already, with other bytes", target.display());
            Error::input(cause, "remove it, or name another folder")
        };
        if target.metadata().map_or(0, |found| found.len()) != self.bytes {
            return Err(other());
        }
        let sum = sum_of(target, monitor, progress)?;
        match sum == sum_of(&self.from, monitor, &|_| ())? {
            true => Ok(sum),
            false => Err(other()),
        }
    }

    fn open(&self) -> Result<File> {
        let opened = regular::open(&self.from, Links::Follow);
        opened.map(|(file, _)| file).map_err(|e| {
            let cause = format!("{} cannot be read: {e}", self.from.display());
            Error::input(cause, "pull the model again")
        })
    }
}

/// The SHA-256 of a file. The page cache is dropped first, if the kernel agrees, so that the medium itself is read.
fn sum_of(path: &Path, monitor: &WriteMonitor, progress: &dyn Fn(u64)) -> Result<String> {
    let (mut file, _) = regular::open(path, Links::Follow)
        .map_err(|e| Error::input(format!("{} cannot be read: {e}", path.display()), "check the path"))?;
    // Advice only: if the kernel ignores it, the cached pages are compared.
    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    sha256_of(&mut file, path, &|| monitor.cancel.check(), |_, done| {
        progress(done);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;
    use crate::hub::name::HubName;
    use std::os::unix::fs::symlink;

    /// A model in a cache, whose files lie under their checksums.
    fn cached(cache: &Path, names: &[&str], text: &str) -> Cached {
        let dir = cache.join("snapshots/c");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir_all(cache.join("blobs")).unwrap();
        let sum = sha256_of(&mut text.as_bytes(), &dir, &|| Ok(()), |_, _| Ok(())).unwrap();
        let blob = format!("blobs/{sum}");
        std::fs::write(cache.join(&blob), text).unwrap();
        let files: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
        files.iter().for_each(|file| symlink(format!("../../{blob}"), file).unwrap());
        let path = if names.len() == 1 { files[0].clone() } else { dir };
        Cached { name: HubName::parse("org/a").unwrap(), path, files }
    }

    fn run(model: &Cached, dir: &Path) -> std::result::Result<PathBuf, String> {
        let monitor = WriteMonitor { progress: &|_, _| (), cancel: &Cancel::default() };
        export(model, dir, &monitor).map_err(|e| e.to_string())
    }

    #[test]
    fn a_models_files_come_out_of_the_cache_with_their_sums() {
        let (cache, stick) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let model = cached(cache.path(), &["a-Q8_0.gguf"], "hello\n");
        let dir = stick.path().join("models/a");
        // Twice: existing files stay.
        for _ in 0..2 {
            assert_eq!(run(&model, &dir), Ok(dir.join("a-Q8_0.gguf")));
        }
        let sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(std::fs::read_to_string(dir.join(SUMS)).unwrap(), format!("{sum}  a-Q8_0.gguf\n"));
        assert_eq!(std::fs::read_to_string(dir.join("a-Q8_0.gguf")).unwrap(), "hello\n");
        assert!(!dir.join("a-Q8_0.gguf").is_symlink());
        // Files with other bytes, another model's files, and other checksums stay too.
        std::fs::write(dir.join("a-Q8_0.gguf"), "jello\n").unwrap();
        assert!(run(&model, &dir).unwrap_err().contains("exists already, with other bytes"));
        let other = stick.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("note.txt"), "").unwrap();
        std::fs::write(other.join(SUMS), format!("{sum}  b.gguf\n")).unwrap();
        assert!(run(&model, &other).unwrap_err().contains("is of other files"));
        std::fs::remove_file(other.join(SUMS)).unwrap();
        std::fs::write(other.join("b.gguf"), "").unwrap();
        assert!(run(&model, &other).unwrap_err().contains("has b.gguf, which is none of the model's files"));
        std::fs::remove_file(other.join("b.gguf")).unwrap();
        assert!(run(&model, &other).is_ok());
    }

    #[test]
    fn a_damaged_copy_in_the_cache_goes_nowhere() {
        let (cache, stick) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let model = cached(cache.path(), &["config.json", "model.safetensors"], "hello\n");
        let blob = std::fs::canonicalize(&model.files[0]).unwrap();
        std::fs::write(&blob, "jello\n").unwrap();
        let dir = stick.path().join("a");
        assert!(run(&model, &dir).unwrap_err().contains("is damaged"));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing is left");
        std::fs::write(&blob, "hello\n").unwrap();
        assert_eq!(run(&model, &dir), Ok(dir.clone()));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 3);
    }
}
