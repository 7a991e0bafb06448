//! Rate-limited log messages, because an event in one request usually happens in thousands.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most distinct lines that are remembered. Further ones are dropped, since their text comes from peers.
const MOST: usize = 256;

/// The distinct lines that were logged so far, at most [`MOST`].
struct Once(Mutex<BTreeSet<String>>);

impl Once {
    /// True at the first call with this line, while fewer than [`MOST`] lines were logged.
    fn is_new(&self, line: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < MOST && said.insert(line.to_owned())
    }
}

/// Logs each distinct warning once.
pub(super) fn warn_once(line: &str) {
    static SAID: Once = Once(Mutex::new(BTreeSet::new()));
    if SAID.is_new(line) {
        log::warn!("{line}");
    }
}

/// The least time between two log lines on failed requests.
const PAUSE: Duration = Duration::from_secs(1);

/// The time of the last line, and the number of lines dropped since.
#[derive(Default)]
struct Rarely(Mutex<(Option<Instant>, u64)>);

impl Rarely {
    /// The number of lines dropped since the last one if another may be logged at `now`, else `None`.
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

/// Logs a warning on a failed request, at most once a second.
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
