//! Deadlines as an [`Instant`] plus a duration of any length, without overflow.

use std::time::{Duration, Instant};

/// The longest deadline. An [`Instant`] cannot represent arbitrarily late times.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The moment `time` after `start`, or a century later if that is earlier.
pub(crate) fn later(start: Instant, time: Duration) -> Instant {
    start + time.min(FAR)
}

/// The moment `time` from now, or a century from now if that is earlier.
pub(crate) fn after(time: Duration) -> Instant {
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
