//! Reads that go on while another device reads.

use super::ceiling::read;
use crate::Result;
use crate::executor::measure::MemoryReader;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, HostAccess, Memory, MemorySource, SIGNALS};

/// Continuous reads of a buffer: while the host learns that one read has ended, the next is in flight.
pub struct SteadyRead<D: Driver> {
    lists: [D::Baked; SIGNALS],
    /// The list whose read is the next to end.
    oldest: usize,
    /// Dropped before the memory: dropping it waits for submits in flight.
    queue: DeviceQueue<D>,
    buffer: D::Memory,
    _sink: D::Memory,
}

impl<D: Driver> SteadyRead<D> {
    /// Prepares reads of a buffer of `bytes` in one of the driver's heaps.
    ///
    /// # Errors
    /// Refused, Device: there is not enough memory, or the driver refuses.
    pub fn new(driver: D, bytes: u64, heap: usize) -> Result<SteadyRead<D>> {
        let mut queue = DeviceQueue::new(driver);
        let allocate = |bytes| queue.driver.allocate(bytes, heap, HostAccess::None, MemorySource::Ordinary);
        let (sink, buffer) = (allocate(64)?, allocate(bytes)?);
        let dispatch = [read(&buffer, sink.address())];
        // Two lists, since a list in flight is not submitted again.
        let mut bake = || queue.bake(&[&dispatch], None, None, None);
        Ok(SteadyRead { lists: [bake()?, bake()?], oldest: 0, queue, buffer, _sink: sink })
    }
}

impl<D: Driver> MemoryReader for SteadyRead<D> {
    fn name(&self) -> &'static str {
        "the GPU"
    }

    fn bytes(&self) -> u64 {
        self.buffer.size()
    }

    fn start(&mut self) -> Result<()> {
        self.oldest = 0;
        // SAFETY: no submit is in flight, and each list is waited for before it is submitted again.
        self.lists.iter().try_for_each(|list| unsafe { self.queue.submit(&[*list], true) })
    }

    fn poll(&mut self) -> Result<bool> {
        if !self.queue.is_done()? {
            return Ok(false);
        }
        self.queue.wait()?;
        let list = self.lists[self.oldest];
        self.oldest = (self.oldest + 1) % self.lists.len();
        // SAFETY: this list's last submit was just waited for.
        unsafe { self.queue.submit(&[list], true) }?;
        Ok(true)
    }

    fn stop(&mut self) -> Result<()> {
        self.queue.drain()
    }
}
