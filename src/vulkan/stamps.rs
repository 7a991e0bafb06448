//! Timestamps: the times at which the device's work has ended, by its clock.

use crate::Result;
use crate::replay::driver::Stamps;
use crate::vulkan::device::{Clock, Gpu, failure};
use ash::vk;
use std::rc::Rc;

/// A query pool with a query for each stamp.
pub struct StampPool {
    gpu: Rc<Gpu>,
    clock: Clock,
    pool: vk::QueryPool,
    ticks: Vec<u64>,
}

impl StampPool {
    /// A pool for `count` stamps; `None` if the queue has no timestamps.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub(super) fn new(gpu: &Rc<Gpu>, count: usize) -> Result<Option<StampPool>> {
        let Some(clock) = gpu.features.clock else { return Ok(None) };
        let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count as u32);
        // SAFETY: the device is alive as long as `gpu`.
        let pool = unsafe { gpu.device.create_query_pool(&info, None) }.map_err(failure("create a query pool"))?;
        Ok(Some(StampPool { gpu: gpu.clone(), clock, pool, ticks: vec![0; count] }))
    }

    /// The pool of timestamp queries.
    pub(super) fn queries(&self) -> vk::QueryPool {
        self.pool
    }
}

impl Stamps for StampPool {
    fn count(&self) -> usize {
        self.ticks.len()
    }

    fn fetch(&mut self) -> Result<()> {
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the pool is this device's, and its queries have been written.
        unsafe { self.gpu.device.get_query_pool_results(self.pool, 0, &mut self.ticks, flags) }
            .map_err(failure("read timestamps"))
    }

    fn seconds(&self, from: usize, to: usize) -> f64 {
        self.clock.seconds(self.ticks[from], self.ticks[to])
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
