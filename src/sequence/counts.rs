//! Counts of all tokens that this process has run, for status reports. A token counts once it is part of its sequence;
//! discarded results do not count.

use std::sync::atomic::{AtomicU64, Ordering};

static PREFILLED: AtomicU64 = AtomicU64::new(0);
static DECODED: AtomicU64 = AtomicU64::new(0);
static SEQUENCES: AtomicU64 = AtomicU64::new(0);
static EXPERTS_USED: AtomicU64 = AtomicU64::new(0);
static EXPERTS: AtomicU64 = AtomicU64::new(0);

/// Counts since the process began, over all sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCounters {
    /// The number of prompt tokens that ran.
    pub prefilled: u64,
    /// The number of reply tokens that were decoded.
    pub decoded: u64,
    /// Sequences that took tokens from the last pass; 0 when none is running.
    pub sequences: u64,
    /// Experts of the last layer that decode passes used, each pass by itself.
    pub experts_used: u64,
    /// The number of experts that those passes could have used at most.
    pub experts: u64,
}

/// The counts of this process so far.
pub fn read() -> TokenCounters {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    TokenCounters {
        prefilled: load(&PREFILLED),
        decoded: load(&DECODED),
        sequences: load(&SEQUENCES),
        experts_used: load(&EXPERTS_USED),
        experts: load(&EXPERTS),
    }
}

/// Adds a prompt's chunk of `tokens` tokens to the counts.
pub(crate) fn count_prefilled(tokens: usize) {
    PREFILLED.fetch_add(tokens as u64, Ordering::Relaxed);
}

/// Counts a pass from which each of `sequences` sequences took one decoded token.
pub(crate) fn count_decoded(sequences: usize) {
    DECODED.fetch_add(sequences as u64, Ordering::Relaxed);
    SEQUENCES.store(sequences as u64, Ordering::Relaxed);
}

/// Counts a decode pass in which the last layer used `used` of `of` experts.
pub(crate) fn count_experts(used: usize, of: usize) {
    EXPERTS_USED.fetch_add(used as u64, Ordering::Relaxed);
    EXPERTS.fetch_add(of as u64, Ordering::Relaxed);
}

/// Counts a pass over drafts, from which `sequences` sequences took `tokens` tokens together.
pub(crate) fn count_verified(sequences: usize, tokens: usize) {
    DECODED.fetch_add(tokens as u64, Ordering::Relaxed);
    SEQUENCES.store(sequences as u64, Ordering::Relaxed);
}

/// Resets the number of sequences after the last one has ended.
pub(crate) fn note_idle() {
    SEQUENCES.store(0, Ordering::Relaxed);
}
