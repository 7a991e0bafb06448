//! The device's layout of fragments, found by running a small kernel: shaders/fragment.comp.

use crate::Result;
use crate::lower::dispatch::Dispatch;
use crate::lower::kernels::constants::FragmentConstants;
use crate::lower::kernels::push::{FragmentPush, Push};
use crate::lower::kernels::{Kernel, Module};
use crate::lower::units::Units;
use crate::vulkan::device::Gpu;
use crate::vulkan::memory::{Buffer, HostAccess, heaps};
use crate::vulkan::pipelines::Pipelines;
use crate::vulkan::queue::Queue;
use std::rc::Rc;

/// The kernel that finds the layout of fragments.
pub fn kernel(units: Units) -> Kernel {
    let Units { m, least_n: n, k, .. } = units;
    Kernel::new(Module::Fragment, units.subgroup, FragmentConstants { m, n, k })
}

/// Returns `units` with [`Units::row_lanes`] filled in by a run of shaders/fragment.comp. If the run fails, logs it and
/// returns `units` unchanged: products then use other kernels.
///
/// # Errors
/// Device: the device hangs.
pub fn find(gpu: &Rc<Gpu>, queue: &Queue, pipelines: &mut Pipelines, units: Units) -> Result<Units> {
    match run(gpu, queue, pipelines, units) {
        Ok(row_lanes) => {
            log::debug!("invocations that share a row of a matrix: {row_lanes:?}");
            Ok(Units { row_lanes, ..units })
        }
        Err(e) if gpu.hung.get() => Err(e),
        Err(e) => {
            log::warn!("how subgroups hold matrices is not known: {e}");
            Ok(units)
        }
    }
}

fn run(gpu: &Rc<Gpu>, queue: &Queue, pipelines: &mut Pipelines, units: Units) -> Result<Option<u32>> {
    let mut found = Buffer::new(gpu, 4, heaps::host_heap(gpu)?, HostAccess::Host)?;
    found.copy_from(&[0; 4])?;
    let push = Push::new(&FragmentPush { found: found.address });
    let dispatch = Dispatch::new(kernel(units), push, [1, 1, 1]);
    let commands = queue.bake(&[&[dispatch]], pipelines, None, None, &[])?;
    // SAFETY: the command buffer is waited for below.
    unsafe { queue.submit(&[commands], true) }?;
    queue.wait()?;
    queue.free(&[commands]);
    let mut bits = [0; 4];
    found.copy_to(&mut bits)?;
    let bits = u32::from_le_bytes(bits);
    Ok((bits != 0).then(|| 1 << bits.trailing_zeros()))
}
