//! A flag by which one thread ends another's work early: loading, passes, a write.

use crate::error::Text;
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that ends loading, passes, or a write early. Clones are the same flag, and any thread may set it.
///
/// Work that finds it set fails with [`Error::Interrupted`].
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Sets the flag. It stays set until [`Cancel::clear`].
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Clears the flag, so that the next work runs.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// True once the flag was set, after which work should stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if the flag is set.
    ///
    /// # Errors
    /// Interrupted.
    pub fn check(&self) -> Result<()> {
        self.check_or("interrupted")
    }

    /// [`Cancel::check`] with another cause.
    pub(crate) fn check_or(&self, cause: impl Into<Text>) -> Result<()> {
        match self.is_set() {
            true => Err(Error::interrupted(cause, "start it again")),
            false => Ok(()),
        }
    }
}

/// Wraps the plain flag that a signal handler sets.
impl From<Arc<AtomicBool>> for Cancel {
    fn from(flag: Arc<AtomicBool>) -> Cancel {
        Cancel(flag)
    }
}
