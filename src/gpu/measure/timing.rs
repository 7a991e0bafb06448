//! Times command buffers on a device whose clocks are up.
//!
//! Clocks fall while a device has nothing to do, as while kernels are compiled, and take up to a second to rise again. An H100
//! then takes three times as long for a pass, and what is timed first looks three times as slow as it is.

use super::fastest::{Fastest, warm_up};
use crate::Result;
use crate::gpu::device::Gpu;
use crate::gpu::queue::Queue;
use crate::gpu::queue::stamps::StampPool;
use ash::vk;
use std::time::{Duration, Instant};

/// Stop after this many runs without a 1 % gain.
const REPETITIONS: usize = 3;
const GAIN: f64 = 0.99;
/// Stop after this many runs in any case.
const MOST_REPETITIONS: usize = 40;
/// Stop after two runs if the best of them takes more than this times the best of the others.
const HOPELESS: f64 = 1.1;
/// A device that had nothing to do for so long may have lowered its clocks.
const IDLE: Duration = Duration::from_millis(20);
/// Clocks are up where what was timed before takes at most this times as long as then.
const AS_FAST: f64 = 1.03;
/// Longest that clocks are waited for.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What was timed last, and when.
#[derive(Default)]
pub struct Timing {
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
    /// Seconds of one run.
    fn run(&mut self, queue: &Queue) -> Result<f64> {
        // SAFETY: the command buffer is waited for, each time.
        unsafe { queue.submit(&[self.commands], true) }?;
        queue.wait()?;
        Ok(self.stamps.read()?.sum())
    }
}

impl Timing {
    /// Brings the clocks up after an idle time: runs what was timed last until it is as fast as it was. The memory that this reads
    /// must be as it was then.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn warm_up(&mut self, gpu: &Gpu, queue: &Queue) -> Result<()> {
        let is_idle = self.worked.is_none_or(|worked| worked.elapsed() > IDLE);
        let Some(last) = self.last.as_mut().filter(|_| is_idle && !warm_up(gpu).is_zero()) else { return Ok(()) };
        let start = Instant::now();
        run_until_as_fast(last.best, || Ok((last.run(queue)?, start.elapsed())))?;
        self.worked = Some(Instant::now());
        Ok(())
    }

    /// Seconds of the fastest of several runs of a command buffer, which writes span 0 of `stamps`. `others`: seconds of the best
    /// of what it is compared with; what is hopelessly slower gets only two runs.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn time(
        &mut self,
        gpu: &Gpu,
        queue: &Queue,
        commands: vk::CommandBuffer,
        stamps: StampPool,
        others: f64,
    ) -> Result<f64> {
        let is_first = self.last.is_none();
        self.free(queue);
        let timed = self.last.insert(Timed { commands, stamps, best: f64::INFINITY });
        let warm_up = warm_up(gpu);
        if is_first && !warm_up.is_zero() {
            Fastest::of_runs(warm_up, || timed.run(queue))?;
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

    /// Frees what was timed last.
    pub fn free(&mut self, queue: &Queue) {
        if let Some(last) = self.last.take() {
            queue.free(&[last.commands]);
        }
    }
}

/// Calls `run` until it takes as long as `best`, or for [`PATIENCE`]. It returns its seconds, and the time since the first began.
fn run_until_as_fast(best: f64, mut run: impl FnMut() -> Result<(f64, Duration)>) -> Result<()> {
    loop {
        let (seconds, now) = run()?;
        if seconds <= AS_FAST * best || now >= PATIENCE {
            return Ok(());
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
        assert_eq!(waited(|_| 10e-3), PATIENCE);
        assert!(run_until_as_fast(3e-3, || Err(Error::device("lost", "restart"))).is_err());
    }
}
