//! The profile: times a pass's dispatches one by one, or one segment alone. It bakes lists with stamps from the
//! executor's dispatches, and frees them afterwards; the lists of ordinary passes stay without these stamps.

use crate::error::{Setting, text};
use crate::executor::KernelTiming;
use crate::lower::dispatch::{Dispatch, Edge};
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, Stamps};
use crate::replay::list::{List, Relay};
use crate::schedule::Segment;
use crate::{Error, Result};
use std::time::Duration;

/// The executor's queue, dispatches and counters, for timing its kernels.
pub struct Profiler<'a, D: Driver> {
    /// The queue that the kernels run on.
    pub queue: &'a mut DeviceQueue<D>,
    /// The dispatches of the pass, segment by segment.
    pub segments: Vec<(Segment, Vec<Dispatch>)>,
    /// The executor's relay counters; `None` if its dispatches are not relayed.
    pub relay: Option<Relay<'a, D>>,
    /// The longest time that one submit should keep the device busy.
    pub submit_budget: Duration,
}

impl<D: Driver> Profiler<'_, D> {
    /// Runs the pass whose step state is in the arena `repetitions` times. Each dispatch follows a barrier and is
    /// stamped. Returns every dispatch with its seconds in each run, from the end of the dispatch before to its own
    /// end. This includes the barrier, so that the times add up to the pass.
    ///
    /// # Errors
    /// Device: the device has no timestamps, or failed.
    pub fn time_steps(&mut self, repetitions: usize) -> Result<Vec<KernelTiming>> {
        // Each segment has its own stamps, since every driver supports small sets of them. They outlive the lists that
        // record them.
        let mut stamps = Vec::new();
        for (_, dispatches) in &self.segments {
            stamps.push(self.queue.driver.stamps(dispatches.len() + 1)?.ok_or_else(no_clock)?);
        }
        let mut lists = Vec::new();
        let timed = self.time_stamped(&mut stamps, &mut lists, repetitions);
        self.give_up(&lists);
        timed
    }

    /// Adds the lists that it bakes to `lists`, also if it fails.
    fn time_stamped(
        &mut self,
        stamps: &mut [D::Stamps],
        lists: &mut Vec<D::Baked>,
        repetitions: usize,
    ) -> Result<Vec<KernelTiming>> {
        for ((_, dispatches), stamps) in self.segments.iter().zip(&*stamps) {
            lists.push(bake_stamped(self.queue, dispatches, stamps)?);
        }
        let timed = |s: &Segment, d: &Dispatch| KernelTiming {
            segment: *s,
            steps: d.steps.clone(),
            kernel: d.kernel.module.name(),
            variant: variant(d),
            seconds: Vec::with_capacity(repetitions),
        };
        let mut timed: Vec<KernelTiming> =
            self.segments.iter().flat_map(|(s, ds)| ds.iter().map(|d| timed(s, d))).collect();
        // The first run warms up.
        for run in 0..=repetitions {
            for (i, &list) in lists.iter().enumerate() {
                // SAFETY: the list was just baked, and the memory that it uses lives until the wait.
                unsafe { self.queue.submit(&[list], i + 1 == self.segments.len()) }?;
            }
            self.queue.wait()?;
            let mut at = timed.iter_mut();
            for stamps in &mut *stamps {
                // The stamps and the dispatches are in the same order.
                for (seconds, timed) in stamps.read_steps()?.zip(&mut at) {
                    if run > 0 {
                        timed.seconds.push(seconds);
                    }
                }
            }
        }
        Ok(timed)
    }

    /// Seconds of `replays` back-to-back runs of one segment, by the device's clock.
    ///
    /// # Errors
    /// Device: the device has no timestamps, or failed.
    pub fn time_segment(&mut self, segment: Segment, replays: usize) -> Result<f64> {
        let found = self.segments.iter().position(|(s, _)| *s == segment);
        let dispatches = found.map(|i| self.segments.swap_remove(i).1).unwrap_or_default();
        // One run warms up and gives the number that fits the submit budget.
        let one = self.run_replays(&dispatches, 1, 1)?;
        let per_submit = (self.submit_budget.as_secs_f64() / one.max(1e-9)) as usize;
        self.run_replays(&dispatches, replays, per_submit.clamp(1, replays))
    }

    /// Seconds from the start of the first of `replays` runs to the end of the last, with `per_submit` runs in a
    /// submit.
    fn run_replays(&mut self, dispatches: &[Dispatch], replays: usize, per_submit: usize) -> Result<f64> {
        let pieces = replays.div_ceil(per_submit);
        let mut stamps = self.queue.driver.stamps(2 * pieces)?.ok_or_else(no_clock)?;
        let mut lists = Vec::new();
        let ran = self.run_pieces(dispatches, replays, per_submit, &stamps, &mut lists);
        self.give_up(&lists);
        ran?;
        stamps.fetch()?;
        Ok(stamps.seconds(0, 2 * pieces - 1))
    }

    /// Adds the lists that it bakes to `lists`, also if it fails.
    fn run_pieces(
        &mut self,
        dispatches: &[Dispatch],
        replays: usize,
        per_submit: usize,
        stamps: &D::Stamps,
        lists: &mut Vec<D::Baked>,
    ) -> Result<()> {
        for (i, first) in (0..replays).step_by(per_submit).enumerate() {
            let times = per_submit.min(replays - first);
            let mut list = List::new(self.relay, Some((stamps, 2 * i)));
            for _ in 0..times {
                for (i, d) in dispatches.iter().enumerate() {
                    list.dispatch(d, if i == 0 { Edge::Kernels } else { d.edge }, 0..0);
                }
            }
            lists.push(self.queue.driver.bake(&list.end(Some((stamps, 2 * i + 1))))?);
        }
        for (i, &list) in lists.iter().enumerate() {
            // SAFETY: the list was just baked, and the memory that it uses lives until the wait.
            unsafe { self.queue.submit(&[list], i + 1 == lists.len()) }?;
        }
        self.queue.wait()
    }

    /// Frees lists, after a wait: an error may have left some of them in flight.
    fn give_up(&self, lists: &[D::Baked]) {
        self.queue.driver.finish();
        self.queue.driver.free(lists);
    }
}

/// The constants and grid in which dispatches of one module differ, as text.
fn variant(d: &Dispatch) -> String {
    format!("workgroup {}, constants {:?}, groups {:?}", d.kernel.workgroup, d.kernel.constants, d.groups)
}

fn no_clock() -> Error {
    Error::device(
        "the device's queue has no timestamps to time kernels by",
        text!("leave out ", Setting::Kernels.the(), " and ", Setting::Layer.the()),
    )
}

/// Dispatches in order, each after the one before it, with a stamp before the first and after each.
fn bake_stamped<D: Driver>(
    queue: &mut DeviceQueue<D>,
    dispatches: &[Dispatch],
    stamps: &D::Stamps,
) -> Result<D::Baked> {
    let mut list = List::new(None, Some((stamps, 0)));
    for (i, d) in dispatches.iter().enumerate() {
        list.dispatch(d, Edge::Kernels, 0..0);
        list.stamp(stamps, i + 1);
    }
    queue.driver.bake(&list.end(None))
}
