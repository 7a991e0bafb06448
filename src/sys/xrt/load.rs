//! Opens shared objects by name or from memory.

use super::Missing;
use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Opens the first of the candidates that exists.
pub(super) fn open_first(candidates: &[PathBuf]) -> std::result::Result<Object, Missing> {
    for path in candidates {
        // SAFETY: libxrt's initialisers are those of an ordinary C++ library.
        match unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(object) => return Ok(object),
            Err(e) if is_absence(&reason(&e), path) => {}
            Err(e) => return Err(Missing::Unloadable(reason(&e))),
        }
    }
    Err(Missing::NotInstalled)
}

/// True if the loader's message tells that `path` itself is missing, and not a library that it needs.
fn is_absence(words: &str, path: &Path) -> bool {
    words.starts_with(&format!("{}: cannot open shared object file: No such file", path.display()))
}

/// The message of the dynamic loader, for an error.
fn reason(e: &libloading::Error) -> String {
    std::error::Error::source(e).map_or_else(|| e.to_string(), |source| source.to_string())
}

/// Opens a shared object whose file is in memory.
pub(super) fn open_bytes(bytes: &[u8]) -> std::result::Result<Object, String> {
    let failed = |e: &dyn std::fmt::Display| format!("the bridge cannot be laid in memory: {e}");
    let mut file = File::from(memfd_create("kiln_xrt.so", MFdFlags::MFD_CLOEXEC).map_err(|e| failed(&e))?);
    file.write_all(bytes).map_err(|e| failed(&e))?;
    // A new name each time: the loader treats objects of equal name as the same object.
    static LOADED: AtomicUsize = AtomicUsize::new(1);
    let own = "./".repeat(LOADED.fetch_add(1, Ordering::Relaxed));
    let path = format!("/proc/self/fd/{own}{}", file.as_raw_fd());
    // SAFETY: the bridge's only initialisers are those of its constants. Once loaded, it no longer needs its file.
    unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| format!("the bridge: {}", reason(&e)))
}
