//! The device that tuning measures on: a real one's queue, or in tests a modelled device with its own clock.

use super::timing::Timing;
use crate::Result;
use crate::executor::{self, HeadRows, Row};
use crate::lower::caps::DeviceKind;
use crate::lower::dispatch::Dispatch;
use crate::lower::kernels::Kernel;
use crate::lower::layout::GpuLayout;
use crate::lower::{PassKind, RowOrder};
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, KernelCompiler, Readiness};
use crate::replay::list::Relay;
use crate::schedule::Schedule;
use crate::schedule::layout::StateLayout;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Positions before the rows of a measured pass: the window of a local layer. After no positions attention takes hardly
/// any time, and other tiles are the fastest beside it.
const DEPTH: usize = 1024;

/// The position of a measured pass's first row.
pub fn depth(schedule: &Schedule, kind: PassKind) -> usize {
    DEPTH.min(schedule.extent.context.saturating_sub(kind.rows))
}

/// The device that tuning measures on.
pub trait Testbed {
    /// The time since a fixed start.
    fn now(&self) -> Duration;

    /// Begins to compile `kernels` in the background, in this order. Earlier requests that have not begun are dropped.
    fn ask_for(&mut self, kernels: &[Kernel]);

    /// The least ready state of the requested kernels.
    fn readiness(&mut self, kernels: &[Kernel]) -> Readiness;

    /// Waits until another requested kernel is compiled, for about `most` at most.
    ///
    /// # Errors
    /// Device: the device failed.
    fn wait(&mut self, most: Duration) -> Result<()>;

    /// Seconds of the fastest of several runs of a pass's dispatches in one submit. `others`: seconds of the best
    /// candidate so far; slower ones get fewer runs. `None`: the device's clocks are not up yet, and the time of this
    /// call is over.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the device failed.
    fn time(&mut self, kind: PassKind, parts: &[&[Dispatch]], relay: bool, others: f64) -> Result<Option<f64>>;

    /// Whether a relayed dispatch gave up waiting since the last call.
    ///
    /// # Errors
    /// Device: the device failed.
    fn take_timeout(&mut self) -> Result<bool>;
}

/// A device's queue, with the executor's parts that runs need.
pub struct QueueBed<'a, D: Driver> {
    /// The queue on which measurements run.
    pub queue: &'a mut DeviceQueue<D>,
    /// The schedule of the model that is tuned.
    pub schedule: &'a Schedule,
    /// The offsets of the arena's regions.
    pub layout: &'a GpuLayout,
    /// The arena, whose first words are the step state.
    pub arena: &'a mut D::Memory,
    /// The timer of lists of commands.
    pub timing: &'a mut Timing<D>,
    /// The time at which tuning began.
    pub start: Instant,
    /// The longest wait of one call for the device's clocks. `None`: no limit.
    pub patience: Option<Duration>,
    /// True if the activations are filled first, since no pass has written any.
    pub fills: bool,
    /// The kind of pass that the step state was written for. `None` until something is measured.
    pub ready: Option<PassKind>,
}

impl<D: Driver> QueueBed<'_, D> {
    /// Edits the arena as words.
    fn edit(&mut self, edit: impl FnOnce(&mut [u32])) -> Result<()> {
        self.queue.edit(self.arena, edit)
    }

    /// The arena's words that hold slots and packed slots.
    fn slots(&self) -> Range<usize> {
        let first = self.schedule.arena.slots.iter().map(|(_, slot)| slot.offset).min().unwrap_or(0);
        (first / 4) as usize..(self.layout.scratch.attend / 4) as usize
    }

    /// Fills the arena as before a pass of this kind.
    fn prepare(&mut self, kind: PassKind) -> Result<()> {
        let (slots, state) = (self.slots(), self.schedule.arena.state);
        if self.ready.is_none() && self.fills {
            // Multiplying zeros takes less power, and is therefore faster than multiplying a model's data.
            self.edit(|words| {
                for (i, word) in words[slots].iter_mut().enumerate() {
                    // Pairs of f16 from 0.5 to 1. Read as f32 they are small numbers.
                    *word = 0x3800_3800 | (i as u32).wrapping_mul(0x9e37_79b9) >> 3 & 0x03ff_03ff;
                }
            })?;
        }
        if self.ready != Some(kind) {
            let depth = depth(self.schedule, kind);
            let row = |i: usize| match kind.order {
                RowOrder::Consecutive => Row { token: 0, position: (depth + i) as u32, sequence: 0 },
                _ => Row { token: 0, position: depth as u32, sequence: (i % self.schedule.extent.sequences) as u32 },
            };
            let rows: Vec<Row> = (0..kind.rows).map(row).collect();
            let head = HeadRows { first: 0, count: kind.head_rows };
            self.edit(|words| executor::write_pass(words, state, &rows, Some(head)))?;
            self.ready = Some(kind);
        }
        Ok(())
    }

    /// Restores the arena for passes.
    ///
    /// # Errors
    /// Device: the device failed.
    pub fn finish(&mut self) -> Result<()> {
        if self.fills {
            self.queue.driver.compiler().request(&[]);
        }
        if self.ready.is_none() {
            return Ok(());
        }
        // A measurement may have set the timeout flag. If it filled the slots, pad columns must be zeroed again.
        let slots = if self.fills { self.slots() } else { 0..0 };
        self.edit(|words| {
            words[slots].fill(0);
            words[StateLayout::RELAY_TIMEOUT] = 0;
        })
    }
}

impl<D: Driver> Testbed for QueueBed<'_, D> {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn ask_for(&mut self, kernels: &[Kernel]) {
        self.queue.driver.compiler().request(kernels);
    }

    fn readiness(&mut self, kernels: &[Kernel]) -> Readiness {
        let mut compiler = self.queue.driver.compiler();
        let all: Vec<Readiness> = kernels.iter().map(|&k| compiler.readiness(k)).collect();
        let of = |wanted| all.contains(&wanted).then_some(wanted);
        let [left_out, unasked, not_yet] = [Readiness::LeftOut, Readiness::Unasked, Readiness::NotYet].map(of);
        left_out.or(unasked).or(not_yet).unwrap_or(Readiness::Ready)
    }

    fn wait(&mut self, most: Duration) -> Result<()> {
        // The clocks of a GPU with its own power supply fall within this time, and take up to a second to rise.
        let apart = self.queue.driver.caps().kind == DeviceKind::Discrete;
        if !apart || !self.timing.keep_warm(self.queue, most)? {
            self.queue.driver.compiler().wait(most);
        }
        Ok(())
    }

    fn time(&mut self, kind: PassKind, parts: &[&[Dispatch]], relay: bool, others: f64) -> Result<Option<f64>> {
        let Some(stamps) = self.queue.driver.stamps(2)? else { return Ok(Some(f64::INFINITY)) };
        // The warm-up runs the last timed list, so the arena must not have changed yet.
        if !self.timing.warm_up(self.queue, self.patience)? {
            return Ok(None);
        }
        let relay = relay.then(|| Relay::new(self.arena, self.layout, self.queue.driver.caps()));
        let list = self.queue.bake(parts, relay, Some((&stamps, 0)), None)?;
        self.prepare(kind)?;
        self.timing.time(self.queue, list, stamps, others, self.patience)
    }

    fn take_timeout(&mut self) -> Result<bool> {
        let mut timed_out = false;
        self.edit(|words| timed_out = std::mem::take(&mut words[StateLayout::RELAY_TIMEOUT]) != 0)?;
        Ok(timed_out)
    }
}
