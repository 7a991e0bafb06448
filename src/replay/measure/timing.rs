//! Times lists while keeping the device's clocks up.
//!
//! Clocks fall while a device is idle, for example while kernels are compiled, and take up to a second to rise again.
//! On an H100 a pass then takes three times as long, and the first of several candidates would look three times as slow
//! as it is.

use super::fastest::{Fastest, seconds};
use crate::Result;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::Driver;
use std::time::{Duration, Instant};

/// If there is time, the warm-up before the first measurement must be without gain for this many times as long: later
/// measurements are compared with it.
const PATIENCE: u32 = 3;
/// Stop after this many consecutive runs without one below `GAIN` times the best.
const REPETITIONS: usize = 3;
/// The same for runs of at least [`LONG`], in which beginning and end matter less.
const REPETITIONS_OF_LONG: usize = 1;
const LONG: f64 = 8e-3;
const GAIN: f64 = 0.99;
/// Stop after this many runs in any case.
const MOST_REPETITIONS: usize = 40;
/// Stop after two runs if the best of them takes more than this times the best candidate.
const HOPELESS: f64 = 1.1;
/// Stop after one run of at least [`LONG`] if it takes more than this times the best candidate.
const QUITE_HOPELESS: f64 = 1.25;
/// A device that was idle for this long may have lowered its clocks.
const IDLE: Duration = Duration::from_millis(20);
/// Clocks are up once a run takes at most this times the best time measured before.
const AS_FAST: f64 = 1.03;
/// Longest wait for clocks to rise.
const LONGEST_WAIT: Duration = Duration::from_millis(1500);

/// Times lists, one after the other. Keeps the last one to warm the device up with.
pub struct Timing<D: Driver> {
    warm_up: Duration,
    last: Option<TimedList<D>>,
    /// End of the device's last work.
    worked: Option<Instant>,
    /// Time spent waiting for clocks since they may have fallen.
    waited: Duration,
    /// The runs before the first measurement, and their total time. `None` once clocks are up.
    rise: Option<(Fastest, Duration)>,
}

/// A list, the stamps that it writes as span 0, and the seconds of its fastest run.
struct TimedList<D: Driver> {
    list: D::Baked,
    stamps: D::Stamps,
    best: f64,
}

impl<D: Driver> TimedList<D> {
    fn run(&mut self, queue: &DeviceQueue<D>) -> Result<f64> {
        seconds(queue, self.list, Some(&mut self.stamps))
    }
}

impl<D: Driver> Timing<D> {
    /// A timer for a device that takes `warm_up` to raise its clocks ([`super::fastest::warm_up`]); zero if its clocks
    /// are constant.
    pub fn new(warm_up: Duration) -> Timing<D> {
        let rise = (!warm_up.is_zero()).then(|| (Fastest::new(warm_up), Duration::ZERO));
        Timing { warm_up, last: None, worked: None, waited: Duration::ZERO, rise }
    }

    /// Brings the clocks up after an idle time: runs the last timed list until it is about as fast as it was, for
    /// `most` at most. The memory that it uses must be unchanged. Returns whether the clocks are up.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn warm_up(&mut self, queue: &DeviceQueue<D>, most: Option<Duration>) -> Result<bool> {
        let is_idle = self.worked.is_none_or(|worked| worked.elapsed() > IDLE);
        if self.warm_up.is_zero() || !is_idle && self.waited.is_zero() {
            return Ok(true);
        }
        let Some(last) = &mut self.last else { return Ok(true) };
        let start = Instant::now();
        let wait = LONGEST_WAIT.saturating_sub(self.waited);
        let wait = most.map_or(wait, |most| most.min(wait));
        let seconds = run_until_as_fast(last.best, wait, || Ok((last.run(queue)?, start.elapsed())))?;
        self.worked = Some(Instant::now());
        self.waited += start.elapsed();
        let is_up = seconds <= AS_FAST * last.best;
        if is_up || self.waited >= LONGEST_WAIT {
            if !is_up {
                log::debug!("clocks are low: {:.1} us for what took {:.1} us", seconds * 1e6, last.best * 1e6);
            }
            self.waited = Duration::ZERO;
            return Ok(true);
        }
        Ok(false)
    }

    /// Seconds of the fastest of several runs of a list, which writes span 0 of `stamps`. `others`: seconds of the best
    /// candidate so far; a list that is much slower is run only once or twice. `None`: clocks did not rise within
    /// `most`.
    ///
    /// The list is kept until the next call or [`Timing::free`] frees it. Until then the memory that it uses must live.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn time(
        &mut self,
        queue: &DeviceQueue<D>,
        list: D::Baked,
        stamps: D::Stamps,
        others: f64,
        most: Option<Duration>,
    ) -> Result<Option<f64>> {
        self.free_last(queue);
        let timed = self.last.insert(TimedList { list, stamps, best: f64::INFINITY });
        let start = Instant::now();
        if let Some((fastest, before)) = &mut self.rise {
            // The first runs only warm up the clocks.
            while fastest.goes_on(*before + start.elapsed()) {
                if most.is_some_and(|most| start.elapsed() >= most) {
                    *before += start.elapsed();
                    self.worked = Some(Instant::now());
                    return Ok(None);
                }
                let seconds = timed.run(queue)?;
                fastest.add(seconds, *before + start.elapsed());
            }
            self.rise = None;
        }
        timed.best = fastest_of(others, || timed.run(queue))?;
        self.worked = Some(Instant::now());
        Ok(Some(timed.best))
    }

    /// Keeps the clocks up for about `time` while the host waits for something else, by running the last timed list.
    /// Returns whether there was one.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn keep_warm(&mut self, queue: &DeviceQueue<D>, time: Duration) -> Result<bool> {
        let Some(last) = self.last.as_mut().filter(|_| !self.warm_up.is_zero()) else { return Ok(false) };
        let start = Instant::now();
        while start.elapsed() < time {
            last.run(queue)?;
        }
        self.worked = Some(Instant::now());
        Ok(true)
    }

    /// Lengthens the wait for clocks before the first measurement: a device may take a second to raise them.
    pub fn be_patient(&mut self) {
        self.rise = self.rise.take().map(|_| (Fastest::new(PATIENCE * self.warm_up), Duration::ZERO));
    }

    /// Frees the last timed list. The next measurement counts as the first again.
    pub fn free(&mut self, queue: &DeviceQueue<D>) {
        self.free_last(queue);
        self.rise = Timing::<D>::new(self.warm_up).rise;
    }

    fn free_last(&mut self, queue: &DeviceQueue<D>) {
        if let Some(last) = self.last.take() {
            queue.driver.free(&[last.list]);
        }
    }
}

/// Seconds of the fastest of several runs; `others` as for [`Timing::time`].
pub(super) fn fastest_of(others: f64, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let (mut best, mut same, mut runs) = (f64::INFINITY, 0, 0);
    loop {
        let seconds = run()?;
        same = if seconds < GAIN * best { 0 } else { same + 1 };
        best = best.min(seconds);
        runs += 1;
        let enough = if best < LONG { REPETITIONS } else { REPETITIONS_OF_LONG };
        let hopeless = runs > 1 && best > HOPELESS * others || best >= LONG && best > QUITE_HOPELESS * others;
        if same >= enough || runs >= MOST_REPETITIONS || hopeless {
            return Ok(best);
        }
    }
}

/// Calls `run` until it takes at most [`AS_FAST`] times `best`, or for `longest`. `run` returns its seconds, and the
/// time since the first call. Returns the seconds of the last call.
fn run_until_as_fast(best: f64, longest: Duration, mut run: impl FnMut() -> Result<(f64, Duration)>) -> Result<f64> {
    loop {
        let (seconds, now) = run()?;
        if seconds <= AS_FAST * best || now >= longest {
            return Ok(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// Time of waiting for a device whose best run took 3 ms and whose run at time `now` takes `seconds(now)`.
    fn waited(seconds: impl Fn(Duration) -> f64) -> Duration {
        let mut now = Duration::ZERO;
        let run = || {
            let taken = seconds(now);
            now += Duration::from_secs_f64(taken);
            Ok((taken, now))
        };
        run_until_as_fast(3e-3, LONGEST_WAIT, run).unwrap();
        now
    }

    #[test]
    fn clocks_are_waited_for_until_a_run_is_as_fast_as_it_was() {
        assert_eq!(waited(|_| 3.05e-3), Duration::from_secs_f64(3.05e-3));
        let rising = |now: Duration| if now.as_millis() < 700 { 10e-3 } else { 3e-3 };
        assert_eq!(waited(rising), Duration::from_millis(703));
        assert_eq!(waited(|_| 10e-3), LONGEST_WAIT);
        assert!(run_until_as_fast(3e-3, LONGEST_WAIT, || Err(Error::device("lost", "restart"))).is_err());
    }

    #[test]
    fn what_is_slower_than_the_others_gets_fewer_runs() {
        let runs = |seconds: f64, others: f64| {
            let mut runs = 0;
            let run = || {
                runs += 1;
                Ok(seconds)
            };
            assert_eq!(fastest_of(others, run).unwrap(), seconds);
            runs
        };
        assert_eq!((runs(1e-3, f64::INFINITY), runs(1e-3, 0.95e-3), runs(1e-3, 0.5e-3)), (4, 4, 2));
        assert_eq!((runs(20e-3, f64::INFINITY), runs(20e-3, 18e-3), runs(20e-3, 15e-3)), (2, 2, 1));
    }
}
