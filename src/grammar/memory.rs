//! Accounting of the memory that grammars hold: compiled grammars, and the parser states of replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, Result};

/// The most bytes of all compiled grammars and all replies' parsers together. A usual schema takes 0.3 MB, and each
/// reply with it as much again.
const MOST_BYTES: usize = 256 << 20;

/// Bytes and replies of all grammars in memory. Clones share one set of counters.
#[derive(Clone)]
pub(super) struct GrammarMemory(Arc<Counters>);

struct Counters {
    most: usize,
    bytes: AtomicUsize,
    replies: AtomicUsize,
}

impl Default for GrammarMemory {
    fn default() -> GrammarMemory {
        GrammarMemory::of(MOST_BYTES)
    }
}

impl GrammarMemory {
    /// Counters with a limit of `most` bytes.
    pub fn of(most: usize) -> GrammarMemory {
        GrammarMemory(Arc::new(Counters { most, bytes: AtomicUsize::new(0), replies: AtomicUsize::new(0) }))
    }

    /// True while the grammars in memory take less than the limit, so that one more may be compiled.
    pub fn has_room(&self) -> bool {
        self.held() < self.0.most
    }

    /// Bytes that all compiled grammars and all replies' parsers take now.
    pub fn held(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Counts a compiled grammar's bytes until the result is dropped.
    pub fn hold(&self, bytes: usize) -> HeldBytes {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        HeldBytes { memory: self.clone(), bytes }
    }

    /// Registers a reply, with 0 bytes at first.
    pub fn begin_reply(&self) -> ReplyBytes {
        self.0.replies.fetch_add(1, Ordering::Relaxed);
        ReplyBytes(self.hold(0))
    }
}

/// A number of bytes that is added to [`GrammarMemory`], and taken off again when this is dropped.
pub(super) struct HeldBytes {
    memory: GrammarMemory,
    bytes: usize,
}

impl HeldBytes {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.memory.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The bytes of one reply's parser, counted in [`GrammarMemory`] while the reply runs.
pub(super) struct ReplyBytes(HeldBytes);

impl ReplyBytes {
    /// Sets the reply's bytes.
    ///
    /// # Errors
    /// Refused: all together hold too much, and this reply more than its share. A reply within its share is never
    /// refused; whenever the limit is exceeded, some reply is above its share.
    pub fn set(&mut self, bytes: usize) -> Result<()> {
        let HeldBytes { memory, bytes: before } = &mut self.0;
        let counters = &memory.0;
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        let all = counters.bytes.fetch_sub(*before, Ordering::Relaxed) - *before;
        *before = bytes;
        let share = counters.most / counters.replies.load(Ordering::Relaxed).max(1);
        match all > counters.most && bytes > share {
            true => Err(Error::refused(
                format!("the replies' grammars hold {} MB, of which this one holds {}", all >> 20, bytes >> 20),
                "use a simpler grammar, or ask for fewer replies at a time",
            )),
            false => Ok(()),
        }
    }
}

impl Drop for ReplyBytes {
    fn drop(&mut self) {
        self.0.memory.0.replies.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_that_holds_most_ends_and_those_that_hold_little_go_on() {
        let memory = GrammarMemory::of(1000);
        let compiled = memory.hold(300);
        let (mut large, mut small) = (memory.begin_reply(), memory.begin_reply());
        large.set(600).unwrap();
        // The limit is 1,000 bytes for all.
        assert!(small.set(200).is_ok());
        assert_eq!(memory.held(), 1100);
        assert!(!memory.has_room());
        assert!(matches!(large.set(601), Err(Error::Refused { .. })));
        assert!(small.set(210).is_ok());
        drop(large);
        assert_eq!(memory.held(), 510);
        assert!(small.set(700).is_ok(), "300 and 700 fit");
        drop((compiled, small));
        assert_eq!(memory.held(), 0);
    }
}
