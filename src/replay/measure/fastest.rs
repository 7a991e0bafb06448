//! The fastest of several runs of a list on a device that raises its clocks under load.

use crate::Result;
use crate::lower::caps::Caps;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, Stamps};
use std::time::{Duration, Instant};

/// The least number of runs.
const REPETITIONS: usize = 5;
/// A run is a gain if it takes less than this times the last gain.
const GAIN: f64 = 0.99;
/// Longest wait for further gains, as a multiple of the warm-up.
const PATIENCE: u32 = 4;

/// Time without a gain after which a device counts as warm. An idle GPU takes a while to raise its clocks; a CPU's are
/// constant.
pub fn warm_up(caps: &Caps) -> Duration {
    if caps.is_cpu() { Duration::ZERO } else { Duration::from_millis(300) }
}

/// Seconds of a run of a list, by the device's clock (span 0 of `stamps`) if it has one.
pub(super) fn seconds<D: Driver>(
    queue: &DeviceQueue<D>,
    list: D::Baked,
    stamps: Option<&mut D::Stamps>,
) -> Result<f64> {
    let start = Instant::now();
    // SAFETY: each run of the list is waited for.
    unsafe { queue.run(list) }?;
    let elapsed = start.elapsed().as_secs_f64();
    let stamped = match stamps {
        Some(stamps) => stamps.read_spans()?.sum(),
        None => elapsed,
    };
    // The device's clock may be too coarse for a short run.
    Ok(if stamped > 0.0 { stamped } else { elapsed })
}

/// The fastest of runs that continue until there was no gain for as long as a device takes to warm up.
pub(super) struct Fastest {
    warm_up: Duration,
    seconds: f64,
    runs: usize,
    /// Seconds of the last gain, and when it ended, counted from the start of the first run.
    gained: (f64, Duration),
}

impl Fastest {
    /// The seconds of the fastest run. `run` is repeated until it gets no faster.
    pub(super) fn of_runs(warm_up: Duration, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
        let start = Instant::now();
        let mut fastest = Fastest::new(warm_up);
        while fastest.goes_on(start.elapsed()) {
            let seconds = run()?;
            fastest.add(seconds, start.elapsed());
        }
        Ok(fastest.seconds)
    }

    pub(super) fn new(warm_up: Duration) -> Fastest {
        Fastest { warm_up, seconds: f64::INFINITY, runs: 0, gained: (f64::INFINITY, Duration::ZERO) }
    }

    /// Adds a run of `seconds`, which ended at the time `now`.
    pub(super) fn add(&mut self, seconds: f64, now: Duration) {
        if seconds < GAIN * self.gained.0 {
            self.gained = (seconds, now);
        }
        self.seconds = self.seconds.min(seconds);
        self.runs += 1;
    }

    /// True if another run may still be faster.
    pub(super) fn goes_on(&self, now: Duration) -> bool {
        let rises = now < self.gained.1 + self.warm_up && now < self.warm_up * PATIENCE;
        self.runs < REPETITIONS || rises
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARM_UP: Duration = Duration::from_millis(300);

    /// Seconds of the fastest run of a device whose runs take `seconds(now)`, and when the last one ended.
    fn fastest(warm_up: Duration, seconds: impl Fn(Duration) -> f64) -> (f64, Duration) {
        let (mut now, mut fastest) = (Duration::ZERO, Fastest::new(warm_up));
        while fastest.goes_on(now) {
            let taken = seconds(now);
            now += Duration::from_secs_f64(taken);
            fastest.add(taken, now);
        }
        (fastest.seconds, now)
    }

    #[test]
    fn a_device_that_raises_its_clock_late_is_waited_for() {
        let rising = |now: Duration| match now.as_millis() {
            0..250 => 9e-3,
            250..500 => 6e-3,
            _ => 3e-3,
        };
        assert_eq!(fastest(WARM_UP, rising).0, 3e-3);
    }

    #[test]
    fn a_device_is_measured_no_longer_than_it_gains() {
        let (seconds, taken) = fastest(WARM_UP, |_| 3e-3);
        assert_eq!(seconds, 3e-3);
        assert!((300..310).contains(&taken.as_millis()), "{taken:?}");
        // The total gain is too small to count.
        let (_, taken) = fastest(WARM_UP, |now| 10e-3 / (1.0 + 0.01 * now.as_secs_f64()));
        assert!((300..320).contains(&taken.as_millis()), "{taken:?}");
        // Each run gains a little.
        let (_, taken) = fastest(WARM_UP, |now| 10e-3 / (1.0 + now.as_secs_f64()));
        assert!((1200..1220).contains(&taken.as_millis()), "{taken:?}");
        // A slow device with runs of seconds each, and a device with constant clocks.
        assert_eq!(fastest(WARM_UP, |_| 2.0), (2.0, Duration::from_secs(10)));
        assert_eq!(fastest(Duration::ZERO, |_| 0.5), (0.5, Duration::from_millis(2500)));
    }
}
