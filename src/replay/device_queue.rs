//! A driver's queue as replay uses it: counts submits in flight, and waits for them in order.

use super::driver::{DeviceCommand, Driver, Memory, MemoryCopy, SIGNALS, unmapped};
use super::list::{Relay, Span, list_of};
use crate::lower::dispatch::{Dispatch, Edge};
use crate::{Error, Result};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time per submit before the device counts as hung. A CPU driver on a small machine may take minutes for a layer of a
/// large model. amdgpu resets a ring after 2 s by default, and finishes that within seconds.
const GPU_DEADLINE: Duration = Duration::from_secs(10);
const CPU_DEADLINE: Duration = Duration::from_secs(600);

/// A wait may wake up this long after its signal. So [`DeviceQueue::wait_promptly`] polls the signal from this long
/// before the expected end on.
const WAKING: Duration = Duration::from_micros(300);

/// A driver and its submits in flight. Signals are waited for in the order of their submits.
pub struct DeviceQueue<D: Driver> {
    /// The driver that submits work to the device.
    pub driver: D,
    deadline: Duration,
    /// The number of submits that each signal reports the end of.
    submits: [Cell<u32>; SIGNALS],
    /// The number of submits that no signal follows yet.
    open: Cell<u32>,
    /// Signals submitted, and signals waited for, since the start.
    signals: Cell<usize>,
    waits: Cell<usize>,
}

impl<D: Driver> DeviceQueue<D> {
    /// A queue for `driver` to which nothing was submitted.
    pub fn new(driver: D) -> DeviceQueue<D> {
        let deadline = if driver.caps().is_cpu() { CPU_DEADLINE } else { GPU_DEADLINE };
        let (submits, open) = Default::default();
        DeviceQueue { driver, deadline, submits, open, signals: Cell::new(0), waits: Cell::new(0) }
    }

    /// Bakes dispatches into a list that may be replayed any number of times. Each part waits for the one before it, and the
    /// first for everything submitted before. The host sees what the list writes once it is waited for. `copies` come at the
    /// end.
    ///
    /// # Errors
    /// Device: a kernel cannot be compiled, or the driver refuses.
    pub fn bake<'a>(
        &mut self,
        parts: &[&[Dispatch]],
        relay: Option<Relay<'a, D>>,
        span: Option<Span<'a, D>>,
        copies: impl IntoIterator<Item = MemoryCopy<'a, D>>,
    ) -> Result<D::Baked> {
        self.driver.bake(&list_of(parts, relay, span, copies))
    }

    /// Submits baked lists in order. With `signal`, their end can be waited for.
    ///
    /// # Errors
    /// Device: the device was lost, or too many signals are in flight.
    ///
    /// # Safety
    /// As [`Driver::submit`].
    pub unsafe fn submit(&self, lists: &[D::Baked], signal: bool) -> Result<()> {
        if signal && self.under_way() == SIGNALS {
            return Err(Error::device("more passes are under way than can be waited for", "report this"));
        }
        let next = self.signals.get() % SIGNALS;
        // SAFETY: as the caller promises. The signal is not in flight.
        unsafe { self.driver.submit(lists, signal.then_some(next)) }?;
        self.open.set(self.open.get() + 1);
        if signal {
            self.submits[next].set(self.open.take());
            self.signals.set(self.signals.get() + 1);
        }
        Ok(())
    }

    /// The number of signals that were submitted, and not waited for.
    pub fn under_way(&self) -> usize {
        self.signals.get() - self.waits.get()
    }

    /// True if all submitted work was waited for.
    pub fn is_idle(&self) -> bool {
        self.under_way() == 0 && !self.is_open()
    }

    /// Waits for everything submitted. If an error left submits without a signal, submits one.
    ///
    /// # Errors
    /// As [`DeviceQueue::wait`].
    pub fn drain(&self) -> Result<()> {
        while self.under_way() > 0 {
            self.wait()?;
        }
        if self.is_open() {
            self.close()?;
            self.wait()?;
        }
        Ok(())
    }

    /// True if the last submit has no signal after it, so that it cannot be waited for yet.
    pub fn is_open(&self) -> bool {
        self.open.get() > 0
    }

    /// Submits a signal for earlier submits without one.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn close(&self) -> Result<()> {
        // SAFETY: there is no list, only the signal.
        unsafe { self.submit(&[], true) }
    }

    /// Whether the work before the oldest signal in flight is done, so that [`DeviceQueue::wait`] returns at once.
    /// There must be a signal in flight.
    ///
    /// # Errors
    /// Device: the device was lost.
    #[cfg(feature = "npu")]
    pub fn is_done(&self) -> Result<bool> {
        self.driver.is_done(self.waits.get() % SIGNALS)
    }

    /// Waits for the oldest signal in flight; there must be one.
    ///
    /// # Errors
    /// Device: the device was lost, or did not finish within one deadline per submit.
    pub fn wait(&self) -> Result<()> {
        let signal = self.waits.get() % SIGNALS;
        self.driver.wait(signal, self.deadline * self.submits[signal].get())?;
        self.waits.set(self.waits.get() + 1);
        Ok(())
    }

    /// [`DeviceQueue::wait`] with a short reaction time, for a device that idles until the host has seen the end. The
    /// last submit takes about `expected`; the wait sleeps for most of that and then polls.
    ///
    /// # Errors
    /// As [`DeviceQueue::wait`].
    pub fn wait_promptly(&self, expected: Duration) -> Result<()> {
        // A CPU driver needs the CPU that polling would use.
        if !self.driver.caps().is_cpu() && !self.driver.is_hung() {
            let start = Instant::now();
            std::thread::sleep(expected.saturating_sub(WAKING));
            let signal = self.waits.get() % SIGNALS;
            while start.elapsed() < expected + WAKING && !self.driver.is_done(signal)? {
                std::hint::spin_loop();
            }
        }
        self.wait()
    }

    /// Runs a list once, and waits for it and all submits in flight.
    ///
    /// # Errors
    /// As [`DeviceQueue::wait`].
    ///
    /// # Safety
    /// As [`Driver::submit`].
    pub unsafe fn run(&self, list: D::Baked) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.submit(&[list], true) }?;
        self.wait()
    }

    /// Copies between memories, after everything submitted before, and waits. The host sees the copied bytes.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn copy<'a>(&mut self, copies: impl IntoIterator<Item = MemoryCopy<'a, D>>) -> Result<()> {
        let mut commands = vec![DeviceCommand::Wait(Edge::Device)];
        commands.extend(copies.into_iter().map(DeviceCommand::Copy));
        commands.push(DeviceCommand::Wait(Edge::Host));
        let list = self.driver.bake(&commands)?;
        // SAFETY: the list was just baked; the caller holds the memories that it copies between.
        unsafe { self.run(list) }?;
        self.driver.free(&[list]);
        Ok(())
    }

    /// Runs `edit` on the words of mapped memory while the device is idle.
    ///
    /// # Errors
    /// Device: the memory is not mapped, or a submit is in flight.
    pub fn edit(&self, memory: &mut D::Memory, edit: impl FnOnce(&mut [u32])) -> Result<()> {
        if !self.is_idle() {
            return Err(Error::device("the host writes memory that the device may use", "report this"));
        }
        // SAFETY: everything submitted has been waited for.
        let bytes = unsafe { memory.bytes_mut() };
        edit(bytemuck::cast_slice_mut(bytes.ok_or_else(unmapped)?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::driver::{HostAccess, MemorySource};
    use super::super::fake::RecordingDriver;
    use super::*;

    fn submit(queue: &DeviceQueue<RecordingDriver>, signal: bool) -> Result<()> {
        // SAFETY: the lists are empty.
        unsafe { queue.submit(&[7], signal) }
    }

    #[test]
    fn the_host_edits_memory_only_while_nothing_is_under_way() {
        let queue = DeviceQueue::new(RecordingDriver::new());
        let mut memory = queue.driver.allocate(64, 0, HostAccess::Host, MemorySource::Ordinary).unwrap();
        let mut edit = |queue: &DeviceQueue<RecordingDriver>| queue.edit(&mut memory, |words| words[0] += 1);
        edit(&queue).unwrap();
        for signal in [false, true] {
            submit(&queue, signal).unwrap();
            assert!(edit(&queue).is_err(), "with signal: {signal}");
            queue.drain().unwrap();
            edit(&queue).unwrap();
        }
        // SAFETY: no submit is in flight.
        assert_eq!(unsafe { memory.bytes() }.unwrap()[0], 3);
    }

    /// Signals are waited for in the order of their submits, each with a deadline for the submits that it covers.
    #[test]
    fn a_wait_has_a_deadline_for_each_submit_that_it_covers() {
        let queue = DeviceQueue::new(RecordingDriver::new());
        for signal in [false, false, true, true] {
            submit(&queue, signal).unwrap();
        }
        assert!(submit(&queue, true).is_err(), "a third signal");
        queue.driver.take_said();
        queue.wait().unwrap();
        submit(&queue, true).unwrap();
        queue.drain().unwrap();
        let want = ["wait for 0, 30 s", "submit [7], signal Some(0)", "wait for 1, 10 s", "wait for 0, 10 s"];
        assert_eq!(queue.driver.take_said(), want);
        // A submit that an error left without a signal gets one.
        submit(&queue, false).unwrap();
        queue.drain().unwrap();
        let want = ["submit [7], signal None", "submit [], signal Some(1)", "wait for 1, 20 s"];
        assert_eq!(queue.driver.take_said(), want);
        assert!(queue.is_idle());
    }

    #[test]
    fn a_copy_is_waited_for_and_its_list_is_given_up() {
        let mut queue = DeviceQueue::new(RecordingDriver::new());
        let memory = |queue: &DeviceQueue<RecordingDriver>| {
            queue.driver.allocate(64, 0, HostAccess::Host, MemorySource::Ordinary).unwrap()
        };
        let (from, to) = (memory(&queue), memory(&queue));
        queue.copy([MemoryCopy::new(&from, &to, 64)]).unwrap();
        let want = ["wait Device, copy 64, wait Host", "submit [7], signal Some(0)", "wait for 0, 10 s", "free [7]"];
        assert_eq!(queue.driver.take_said(), want);
    }
}
