//! Files that Kiln keeps between runs: the driver's pipeline cache, measurements, the chat's history.

use std::path::{Path, PathBuf};

/// The directory of Kiln's caches: `$KILN_CACHE_DIR`, else `kiln` in the user's cache directory. `None` without a home.
pub fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("KILN_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|d| d.join("kiln")))
        .or_else(|| variable("HOME").map(|d| d.join(".cache/kiln")))
}

/// Writes a file of the cache directory atomically. `None` if it failed.
pub fn write(file: &Path, data: &[u8]) -> Option<()> {
    std::fs::create_dir_all(file.parent()?).ok()?;
    let part = file.with_extension(format!("{}.part", std::process::id()));
    let written = std::fs::write(&part, data).and_then(|()| std::fs::rename(&part, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written.ok()
}
