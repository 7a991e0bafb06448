//! Deadlines: a moment so long after another. However long a user asks for, the sum is a moment that [`Instant`] holds.

use std::time::{Duration, Instant};

/// As far ahead as a deadline lies. A later one could not be told from none, and an [`Instant`] does not hold any.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The moment `time` after `start`, or one that nobody lives to see.
pub(super) fn later(start: Instant, time: Duration) -> Instant {
    start + time.min(FAR)
}

/// The moment `time` from now, or one that nobody lives to see.
pub(super) fn after(time: Duration) -> Instant {
    later(Instant::now(), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_has_a_deadline() {
        let now = Instant::now();
        assert_eq!(later(now, Duration::from_secs(5)) - now, Duration::from_secs(5));
        assert!(later(now, Duration::MAX) > now + Duration::from_secs(1 << 31));
        assert!(after(Duration::from_secs(u64::MAX)) > now);
    }
}
