//! Whether a model fits this machine.

use super::{Checks, Verdict};
use crate::display::bytes;
use crate::engine::{ModelFiles, Options};
use crate::machine::heaps::host_memory;
use crate::model::Shape;
use crate::plan::{Needs, Plan};
use crate::schedule::{Extent, KvType, Schedule};
use crate::vulkan::Gpu;
use crate::vulkan::memory::heaps;
use std::rc::Rc;

/// A model to check.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The name for output.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a Shape,
    /// Its files.
    pub files: &'a ModelFiles,
    /// Options that it will be loaded with.
    pub options: Options,
}

/// Checks whether the model fits the device, or the CPU without one.
pub(super) fn check(checks: &mut Checks, model: &Wanted<'_>, gpu: Option<&Rc<Gpu>>) {
    checks.group("model");
    let Some(extent) = checks.got("memory", Verdict::Fail, model.options.extent(model.shape)) else { return };
    // The CPU executor has its KV cache in f32.
    let kv = if gpu.is_some() { extent.kv } else { KvType::F32 };
    let schedule =
        Schedule::build(model.shape, Extent { kv, ..extent }, model.files.formats(model.options.weights, model.shape));
    let (memory, needs) = match gpu {
        Some(gpu) => {
            let staged = heaps::needs_staging(gpu);
            (heaps::describe(gpu), Needs::on_device(&schedule, staged))
        }
        None => (host_memory(), Needs::of(&schedule)),
    };
    checks.show("memory", Verdict::Fail, Plan::place(&schedule, &memory, needs), |plan| {
        let parts: Vec<String> = plan.sums().into_iter().map(|(kind, sum)| format!("{kind} {}", bytes(sum))).collect();
        let heaps: Vec<String> = memory.heaps.iter().map(|h| format!("{} in {}", bytes(h.available), h.name)).collect();
        format!(
            "{} ({}) needs {} ({}); free are {}",
            model.name,
            schedule.weights.format_names(),
            bytes(plan.bytes()),
            parts.join(" + "),
            heaps.join(" and ")
        )
    });
}
