//! Unique ids of requests and answers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// An id with the prefix `prefix` that is unique across processes.
pub(super) fn unique(prefix: &str) -> String {
    // Rust seeds each hasher from the system's entropy.
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}{:016x}{:08x}", *PROCESS, COUNT.fetch_add(1, Ordering::Relaxed))
}
