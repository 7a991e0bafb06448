//! The memory that every pass reads its weights from and works in.

use super::device_queue::DeviceQueue;
use super::driver::{Driver, HostAccess, Memory, MemorySource, unmapped};
use super::list::Relay;
use super::needs::STAGING_BYTES;
use super::options::ReplayOptions;
use super::upload;
use crate::executor::weights::Progress;
use crate::lower::dispatch::Addresses;
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::model::checkpoint::Checkpoint;
use crate::plan::{Plan, Purpose};
use crate::schedule::Schedule;
use crate::{Error, Result};

/// The device's memory with the weights and the activations.
pub(super) struct ModelMemory<D: Driver> {
    pub weights: Vec<D::Memory>,
    pub arena: D::Memory,
}

impl<D: Driver> ModelMemory<D> {
    /// Allocates both, loads the weights and clears the arena.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Interrupted: it was cancelled. Device: the driver refuses or fails.
    pub fn load(
        queue: &mut DeviceQueue<D>,
        checkpoint: &Checkpoint,
        schedule: &Schedule,
        plan: &Plan,
        options: ReplayOptions,
        progress: &Progress,
    ) -> Result<ModelMemory<D>> {
        let weights = load_weights(queue, checkpoint, schedule, plan, options, progress)?;
        let (bytes, heap) = (GpuLayout::new(schedule).bytes, planned(plan, Purpose::Arena)?);
        let mut arena = queue.driver.allocate(bytes, heap, HostAccess::Host, options.arena)?;
        // SAFETY: no baked list uses the arena yet.
        unsafe { arena.bytes_mut() }.ok_or_else(unmapped)?.fill(0);
        Ok(ModelMemory { weights, arena })
    }

    /// The device addresses of weights and arena, which kernels use.
    pub fn addresses(&self) -> Addresses {
        Addresses::new(self.arena.address(), self.weights.iter().map(|b| b.address()).collect())
    }

    /// The relay of a target that has one; its counters are in the arena.
    pub fn relay<'a>(&'a self, target: &Target, layout: &GpuLayout, driver: &D) -> Option<Relay<'a, D>> {
        target.relay.then(|| Relay::new(&self.arena, layout, driver.caps()))
    }
}

/// The index of the heap that the plan has chosen for `purpose`.
pub(super) fn planned(plan: &Plan, purpose: Purpose) -> Result<usize> {
    plan.heap(purpose).ok_or_else(|| Error::device(format!("the plan has no {}", purpose.kind()), "report this"))
}

fn load_weights<D: Driver>(
    queue: &mut DeviceQueue<D>,
    checkpoint: &Checkpoint,
    schedule: &Schedule,
    plan: &Plan,
    options: ReplayOptions,
    progress: &Progress,
) -> Result<Vec<D::Memory>> {
    let mut staging = None;
    let mut buffers = Vec::with_capacity(schedule.weights.buffers.len());
    for layout in &schedule.weights.buffers {
        let heap = planned(plan, Purpose::Weights(layout.buffer))?;
        let mut buffer = queue.driver.allocate(layout.bytes, heap, HostAccess::Device, MemorySource::Ordinary)?;
        if options.staged {
            buffer.hide();
        }
        if !buffer.is_mapped() && staging.is_none() {
            let heap = planned(plan, Purpose::Staging)?;
            staging = Some(queue.driver.allocate(STAGING_BYTES, heap, HostAccess::Host, MemorySource::Ordinary)?);
        }
        upload::upload(checkpoint, layout, &mut buffer, staging.as_mut(), queue, progress)?;
        buffers.push(buffer);
    }
    Ok(buffers)
}
