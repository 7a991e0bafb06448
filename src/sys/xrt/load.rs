//! Shared objects, opened by name or out of memory.

use super::Missing;
use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first that is there.
pub(super) fn open_first(candidates: &[PathBuf]) -> std::result::Result<Object, Missing> {
    for path in candidates {
        // SAFETY: libxrt's initialisers are those of any C++ library.
        match unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(object) => return Ok(object),
            Err(e) if is_absence(&reason(&e), path) => {}
            Err(e) => return Err(Missing::Unloadable(reason(&e))),
        }
    }
    Err(Missing::NotInstalled)
}

/// Whether the loader's words say that `path` itself, and not something that it needs, is not there.
fn is_absence(words: &str, path: &Path) -> bool {
    words.starts_with(&format!("{}: cannot open shared object file: No such file", path.display()))
}

/// What the loader said.
fn reason(e: &libloading::Error) -> String {
    std::error::Error::source(e).map_or_else(|| e.to_string(), |source| source.to_string())
}

/// A shared object out of memory.
pub(super) fn open_bytes(bytes: &[u8]) -> std::result::Result<Object, String> {
    let failed = |e: &dyn std::fmt::Display| format!("the bridge cannot be laid in memory: {e}");
    let mut file = File::from(memfd_create("kiln_xrt.so", MFdFlags::MFD_CLOEXEC).map_err(|e| failed(&e))?);
    file.write_all(bytes).map_err(|e| failed(&e))?;
    // By a name of its own each time: the loader takes what it has loaded under the same name for the same.
    static LOADED: AtomicUsize = AtomicUsize::new(1);
    let own = "./".repeat(LOADED.fetch_add(1, Ordering::Relaxed));
    let path = format!("/proc/self/fd/{own}{}", file.as_raw_fd());
    // SAFETY: the bridge has no initialisers but those of its constants. Once loaded it needs its file no more.
    unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| format!("the bridge: {}", reason(&e)))
}
