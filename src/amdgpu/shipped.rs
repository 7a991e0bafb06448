//! Whether a model's passes have all of their kernels among those that ship.

use super::device::{RenderDevice, by_others};
use crate::lower::Lowering;
use crate::lower::dispatch::Addresses;
use crate::lower::layout::GpuLayout;
use crate::lower::target::{Product, Target};
use crate::lower::units::MatrixUnits;
use crate::model::WeightFormat;
use crate::replay::options::ReplayOptions;
use crate::replay::tuned_kinds;
use crate::schedule::Schedule;
use crate::{Error, Result};
use std::collections::HashSet;

/// Lanes of a wave that hold a row of a matrix: replay finds this number on the GPU.
const ROW_LANES: u32 = 1;

/// Refuses a model for which kernels are missing, before it is loaded.
///
/// # Errors
/// Device: there is no code for a format of its weights, or for its sizes.
pub fn check(device: &RenderDevice, schedule: &Schedule, options: &ReplayOptions) -> Result<()> {
    let set = device.code()?;
    let has = |format: &WeightFormat| {
        let product =
            Product { format: *format, outputs: 64, inputs: 256, rows: 64, gelu: false, blocks: false, experts: 0 };
        set.get(&Target::new(device.caps.subgroup, false, None).f32(product).0).is_ok()
    };
    if let Some(format) = schedule.weights.formats().into_iter().find(|format| !has(format)) {
        let (format, chip) = (format.name(), device.chip.name());
        let cause = format!("this executable has no kernels for weights in {format} on {chip}");
        return Err(Error::device(cause, by_others()));
    }
    let mut target = options.target(&device.caps);
    target.units = target.units.map(|units| MatrixUnits { row_lanes: Some(ROW_LANES), ..units });
    let (layout, addresses) = (GpuLayout::new(schedule), Addresses::new(0, vec![0; schedule.weights.buffers.len()]));
    let mut seen = HashSet::new();
    for kind in tuned_kinds(&schedule.extent) {
        let lowering = Lowering { schedule, layout: &layout, addresses: &addresses, target: &target, kind };
        for dispatch in schedule.segments().flat_map(|segment| lowering.segment(segment)) {
            if seen.insert(dispatch.kernel) {
                set.get(&dispatch.kernel)?;
            }
        }
    }
    Ok(())
}
