//! A timer of command buffers, which keeps the device's clocks up.
//!
//! Clocks fall while a device has nothing to do, as while kernels are compiled, and take up to a second to rise again. An H100
//! then takes three times as long for a pass, and what is timed first looks three times as slow as it is.

use super::fastest::{Fastest, seconds};
use crate::Result;
use crate::gpu::queue::Queue;
use crate::gpu::queue::stamps::StampPool;
use ash::vk;
use std::time::{Duration, Instant};

/// Times the warm-up that the first measurement must have gained nothing: the others are compared with it.
const FIRST_PATIENCE: u32 = 3;
/// Stop after this many runs in a row of which none took less than `GAIN` times the best.
const REPETITIONS: usize = 3;
const GAIN: f64 = 0.99;
/// Stop after this many runs in any case.
const MOST_REPETITIONS: usize = 40;
/// Stop after two runs if the best of them takes more than this times the best of the others.
const HOPELESS: f64 = 1.1;
/// A device that had nothing to do for so long may have lowered its clocks.
const IDLE: Duration = Duration::from_millis(20);
/// Clocks are up once a run takes at most this times the best time measured before.
const AS_FAST: f64 = 1.03;
/// Longest that clocks are waited for.
const LONGEST_WAIT: Duration = Duration::from_millis(1500);

/// Times command buffers, one after the other. Keeps the last one, to warm the device up with.
pub struct Timing {
    warm_up: Duration,
    last: Option<Timed>,
    /// When the device last worked.
    worked: Option<Instant>,
}

/// A command buffer, the stamps that it writes as span 0, and the seconds of its fastest run.
struct Timed {
    commands: vk::CommandBuffer,
    stamps: StampPool,
    best: f64,
}

impl Timed {
    fn run(&mut self, queue: &Queue) -> Result<f64> {
        seconds(queue, self.commands, Some(&mut self.stamps))
    }
}

impl Timing {
    /// For a device that takes `warm_up` to raise its clocks ([`super::fastest::warm_up`]). Zero: it has none to raise.
    pub fn new(warm_up: Duration) -> Timing {
        Timing { warm_up, last: None, worked: None }
    }

    /// Brings the clocks up after an idle time: runs what was timed last until it is about as fast as it was. The memory that
    /// this uses must be as it was then.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn warm_up(&mut self, queue: &Queue) -> Result<()> {
        let is_idle = self.worked.is_none_or(|worked| worked.elapsed() > IDLE);
        if self.warm_up.is_zero() || !is_idle {
            return Ok(());
        }
        let Some(last) = &mut self.last else { return Ok(()) };
        let start = Instant::now();
        let seconds = run_until_as_fast(last.best, || Ok((last.run(queue)?, start.elapsed())))?;
        if seconds > AS_FAST * last.best {
            log::debug!("clocks are low: {:.1} us for what took {:.1} us", seconds * 1e6, last.best * 1e6);
        }
        self.worked = Some(Instant::now());
        Ok(())
    }

    /// Seconds of the fastest of several runs of a command buffer, which writes span 0 of `stamps`. `others`: seconds of the best
    /// of what it is compared with; what is hopelessly slower gets only two runs.
    ///
    /// The command buffer is kept, and freed by the next call of this or by [`Timing::free`]. Until then what it uses must live.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn time(&mut self, queue: &Queue, commands: vk::CommandBuffer, stamps: StampPool, others: f64) -> Result<f64> {
        let is_first = self.last.is_none();
        self.free(queue);
        let timed = self.last.insert(Timed { commands, stamps, best: f64::INFINITY });
        if is_first && !self.warm_up.is_zero() {
            // Only the clocks matter here.
            Fastest::of_runs(FIRST_PATIENCE * self.warm_up, || timed.run(queue))?;
        }
        let (mut same, mut runs) = (0, 0);
        while same < REPETITIONS && runs < MOST_REPETITIONS {
            let seconds = timed.run(queue)?;
            same = if seconds < GAIN * timed.best { 0 } else { same + 1 };
            timed.best = timed.best.min(seconds);
            runs += 1;
            if runs > 1 && timed.best > HOPELESS * others {
                break;
            }
        }
        self.worked = Some(Instant::now());
        Ok(timed.best)
    }

    /// Frees what was timed last. What is timed next is the first again.
    pub fn free(&mut self, queue: &Queue) {
        if let Some(last) = self.last.take() {
            queue.free(&[last.commands]);
        }
    }
}

/// Calls `run` until it takes at most [`AS_FAST`] times `best`, or for [`LONGEST_WAIT`]. `run` returns its seconds, and the time
/// since the first call. Returns the seconds of the last call.
fn run_until_as_fast(best: f64, mut run: impl FnMut() -> Result<(f64, Duration)>) -> Result<f64> {
    loop {
        let (seconds, now) = run()?;
        if seconds <= AS_FAST * best || now >= LONGEST_WAIT {
            return Ok(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// How long a device is waited for whose runs took 3 ms at best, and take `seconds(now)`.
    fn waited(seconds: impl Fn(Duration) -> f64) -> Duration {
        let mut now = Duration::ZERO;
        let run = || {
            let taken = seconds(now);
            now += Duration::from_secs_f64(taken);
            Ok((taken, now))
        };
        run_until_as_fast(3e-3, run).unwrap();
        now
    }

    #[test]
    fn clocks_are_waited_for_until_a_run_is_as_fast_as_it_was() {
        assert_eq!(waited(|_| 3.05e-3), Duration::from_secs_f64(3.05e-3));
        let rising = |now: Duration| if now.as_millis() < 700 { 10e-3 } else { 3e-3 };
        assert_eq!(waited(rising), Duration::from_millis(703));
        assert_eq!(waited(|_| 10e-3), LONGEST_WAIT);
        assert!(run_until_as_fast(3e-3, || Err(Error::device("lost", "restart"))).is_err());
    }
}
