//! Timestamps: start and end of spans of device work, by the device's clock.

use crate::Result;
use crate::vulkan::device::{Clock, Gpu, failure};
use ash::vk;
use std::rc::Rc;

/// A query pool with two timestamps per span.
pub struct StampPool {
    gpu: Rc<Gpu>,
    clock: Clock,
    pool: vk::QueryPool,
    ticks: Vec<u64>,
}

/// Where a command buffer's start and end are stamped.
#[derive(Debug, Clone, Copy)]
pub struct Stamps {
    /// The query pool.
    pub pool: vk::QueryPool,
    /// The start's query; the end's is the next.
    pub first: u32,
}

impl StampPool {
    /// A pool for `spans` spans; `None` where the queue has no timestamps.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn new(gpu: &Rc<Gpu>, spans: usize) -> Result<Option<StampPool>> {
        StampPool::with_stamps(gpu, 2 * spans)
    }

    /// A pool for `stamps` single stamps ([`StampPool::read_steps`]); `None` where the queue has no timestamps.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn with_stamps(gpu: &Rc<Gpu>, stamps: usize) -> Result<Option<StampPool>> {
        let Some(clock) = gpu.features.clock else { return Ok(None) };
        let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(stamps as u32);
        // SAFETY: the device is alive as long as `gpu`.
        let pool = unsafe { gpu.device.create_query_pool(&info, None) }.map_err(failure("create a query pool"))?;
        Ok(Some(StampPool { gpu: gpu.clone(), clock, pool, ticks: vec![0; stamps] }))
    }

    /// The queries, for a command buffer that stamps them one by one.
    pub fn queries(&self) -> vk::QueryPool {
        self.pool
    }

    /// The stamps of span `i`.
    pub fn span(&self, i: usize) -> Stamps {
        Stamps { pool: self.pool, first: 2 * i as u32 }
    }

    /// Each span's seconds, once the submit that stamps them all has been waited for. Allocates nothing.
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn read(&mut self) -> Result<impl Iterator<Item = f64> + '_> {
        self.fetch()?;
        Ok(self.ticks.chunks_exact(2).map(|t| self.clock.seconds(t[0], t[1])))
    }

    /// The seconds from each stamp to the next: one value fewer than stamps. As [`StampPool::read`].
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn read_steps(&mut self) -> Result<impl Iterator<Item = f64> + '_> {
        self.fetch()?;
        Ok(self.ticks.windows(2).map(|t| self.clock.seconds(t[0], t[1])))
    }

    /// Seconds from the first stamp to the last. As [`StampPool::read`].
    ///
    /// # Errors
    /// Device: the device was lost.
    pub fn elapsed(&mut self) -> Result<f64> {
        self.fetch()?;
        let (first, last) = (self.ticks.first().copied(), self.ticks.last().copied());
        Ok(self.clock.seconds(first.unwrap_or(0), last.unwrap_or(0)))
    }

    fn fetch(&mut self) -> Result<()> {
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the pool is this device's, and its queries have been written.
        unsafe { self.gpu.device.get_query_pool_results(self.pool, 0, &mut self.ticks, flags) }
            .map_err(failure("read timestamps"))
    }
}

impl Drop for StampPool {
    fn drop(&mut self) {
        if self.gpu.hung.get() {
            return;
        }
        // SAFETY: executors wait for the device before they drop their pools.
        unsafe { self.gpu.device.destroy_query_pool(self.pool, None) };
    }
}
