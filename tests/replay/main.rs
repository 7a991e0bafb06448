//! Promises of a device's executor that show in counters of the process, and in files that one load keeps for the next. The
//! tests run one at a time.

#[path = "../common/mod.rs"]
mod common;

mod baking;
mod improve;
mod matrix_tuning;
mod tuning;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the other tests: all of them share counters of the process, and its environment.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty directory for files that a load keeps for the next one.
struct KeptFiles {
    directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl KeptFiles {
    fn new() -> KeptFiles {
        let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
        // SAFETY: the other tests of this process wait for `alone`; none reads the environment meanwhile.
        unsafe { std::env::set_var("KILN_CACHE_DIR", directory.path()) };
        KeptFiles { directory, _alone }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for KeptFiles {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { std::env::remove_var("KILN_CACHE_DIR") };
    }
}
