//! What the log says once, or rarely: what happens to one request happens to thousands, and the log is not to be filled by it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most lines that are kept in mind. What comes after them is not said: peers choose the words.
const MOST: usize = 256;

/// Lines that were said.
struct Once(Mutex<BTreeSet<String>>);

impl Once {
    /// Whether a line is to be said now.
    fn is_new(&self, line: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < MOST && said.insert(line.to_owned())
    }
}

/// Warns in the log, of each thing once.
pub(super) fn warn_once(line: &str) {
    static SAID: Once = Once(Mutex::new(BTreeSet::new()));
    if SAID.is_new(line) {
        log::warn!("{line}");
    }
}

/// How often the log says that requests fail.
const PAUSE: Duration = Duration::from_secs(1);

/// When a line was last said, and how many were left out since.
#[derive(Default)]
struct Rarely(Mutex<(Option<Instant>, u64)>);

impl Rarely {
    /// Whether a line is to be said at `now`: how many before it were not.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            state.1 += 1;
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }
}

/// Warns in the log of a request that failed, once a second at most.
pub(super) fn warn_rarely(line: impl FnOnce() -> String) {
    static FAILED: Rarely = Rarely(Mutex::new((None, 0)));
    match FAILED.admit(Instant::now()) {
        Some(0) => log::warn!("{}", line()),
        Some(others) => log::warn!("{} (and {others} more since the last such line)", line()),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_said_once_and_no_more_than_so_many() {
        let once = Once(Mutex::default());
        assert!(once.is_new("a") && !once.is_new("a") && once.is_new("b"));
        let said = (0..2 * MOST).filter(|i| once.is_new(&i.to_string())).count();
        assert_eq!(said, MOST - 2);
        assert!(!once.is_new("a"));
    }

    #[test]
    fn of_many_lines_at_once_one_is_said_and_the_others_are_counted() {
        let (rarely, start) = (Rarely::default(), Instant::now());
        let said = [0, 10, 999, 1000, 1001, 5000].map(|ms| rarely.admit(start + Duration::from_millis(ms)));
        assert_eq!(said, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
