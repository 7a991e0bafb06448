//! The device's layout of fragments, found by running a small kernel: shaders/fragment.comp.

use crate::Result;
use crate::lower::dispatch::Dispatch;
use crate::lower::kernels::constants::FragmentConstants;
use crate::lower::kernels::push::{FragmentPush, Push};
use crate::lower::kernels::{Kernel, Module};
use crate::lower::units::MatrixUnits;
use crate::replay::device_queue::DeviceQueue;
use crate::replay::driver::{Driver, Memory};

/// The kernel that finds the layout of fragments.
pub fn kernel(units: MatrixUnits) -> Kernel {
    let MatrixUnits { m, least_n: n, k, .. } = units;
    Kernel::new(Module::Fragment, units.subgroup, FragmentConstants { m, n, k })
}

/// Returns `units` with [`MatrixUnits::row_lanes`] from a run of shaders/fragment.comp, which writes to `found`, at
/// least one word that the host maps. If the run fails, logs that and returns `units` unchanged: products then use
/// other kernels.
///
/// # Errors
/// Device: the device hangs.
pub fn find<D: Driver>(queue: &mut DeviceQueue<D>, found: &mut D::Memory, units: MatrixUnits) -> Result<MatrixUnits> {
    match run(queue, found, units) {
        Ok(row_lanes) => {
            log::debug!("invocations that share a row of a matrix: {row_lanes:?}");
            Ok(MatrixUnits { row_lanes, ..units })
        }
        Err(e) if queue.driver.is_hung() => Err(e),
        Err(e) => {
            log::warn!("how subgroups hold matrices is not known: {e}");
            Ok(units)
        }
    }
}

fn run<D: Driver>(queue: &mut DeviceQueue<D>, found: &mut D::Memory, units: MatrixUnits) -> Result<Option<u32>> {
    found.copy_from(&[0; 4])?;
    let push = Push::new(&FragmentPush { found: found.address() });
    let dispatch = Dispatch::new(kernel(units), push, [1, 1, 1]);
    let list = queue.bake(&[&[dispatch]], None, None, None)?;
    // SAFETY: the list was just baked, and the caller holds the memory.
    unsafe { queue.run(list) }?;
    queue.driver.free(&[list]);
    let mut bits = [0; 4];
    found.copy_to(&mut bits)?;
    let bits = u32::from_le_bytes(bits);
    Ok((bits != 0).then(|| 1 << bits.trailing_zeros()))
}
