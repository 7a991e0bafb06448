//! What a model needs against what is there.

use super::{Check, Checks, Verdict};
use crate::engine::{self, Options};
use crate::gpu::{self, Gpu};
use crate::machine::files::Files;
use crate::machine::memory_field;
use crate::machine::nodes::Node;
use crate::model::Shape;
use crate::plan::{Plan, bytes};
use crate::schedule::Schedule;
use std::rc::Rc;

/// A model that is to run here.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its name, as output gives it.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a Shape,
    /// How it is to be loaded.
    pub options: Options,
}

/// What the system keeps for itself where GTT is raised.
const SYSTEM_BYTES: u64 = 4 << 30;

/// Checks whether the model fits the device, or the CPU where there is none.
pub(super) fn check(files: &Files, model: &Wanted<'_>, gpu: Option<&Rc<Gpu>>) -> Vec<Check> {
    let mut checks = Checks::of("model");
    let extent = match model.options.extent(model.shape) {
        Ok(extent) => extent,
        Err(e) => {
            checks.error("memory", Verdict::Fail, &e);
            return checks.all;
        }
    };
    let schedule = Schedule::build(model.shape, extent);
    let (memory, staging) = match gpu {
        Some(gpu) => {
            let staged = gpu::memory::needs_staging(gpu);
            (gpu::memory::describe(gpu), if staged { gpu::replay::staging_bytes(&schedule) } else { 0 })
        }
        None => (engine::host_memory(), 0),
    };
    let needed = Plan::wanted(&schedule, staging).iter().fold(0u64, |sum, w| sum.saturating_add(w.1));
    match Plan::place(&schedule, &memory, staging) {
        Ok(plan) => {
            let parts: Vec<String> =
                plan.sums().into_iter().map(|(kind, sum)| format!("{kind} {}", bytes(sum))).collect();
            let heaps: Vec<String> =
                memory.heaps.iter().map(|h| format!("{} in {}", bytes(h.available), h.name)).collect();
            checks.ok(
                "memory",
                format!(
                    "{} needs {} ({}); free are {}",
                    model.name,
                    bytes(plan.bytes()),
                    parts.join(" + "),
                    heaps.join(" and ")
                ),
            );
        }
        Err(e) => {
            let (cause, remedy) = e.parts();
            let remedy = raised_gtt(files, needed).unwrap_or_else(|| remedy.to_owned());
            checks.fail("memory", cause, remedy);
        }
    }
    checks.all
}

/// The kernel parameter with which an APU's GTT would hold `needed` bytes beside its VRAM, if its RAM has so much.
fn raised_gtt(files: &Files, needed: u64) -> Option<String> {
    let text = files.text("/proc/meminfo").ok()?;
    let ram = memory_field(&text, "MemTotal")?;
    let gpu = Node::gpus(files).into_iter().find(Node::is_amdgpu)?;
    let (vram, _) = super::gpu::heap_of(files, &gpu, "vram").ok()?;
    let (gtt, _) = super::gpu::heap_of(files, &gpu, "gtt").ok()?;
    // A tenth more: not all of either heap is free for one program.
    let wanted = needed.saturating_add(needed / 10).saturating_sub(vram);
    let fits = wanted > gtt && wanted.checked_add(SYSTEM_BYTES)? <= ram;
    fits.then(|| {
        let pages = wanted.div_ceil(4096);
        format!("boot with ttm.pages_limit={pages} ttm.page_pool_size={pages}: GTT then holds {}", bytes(pages * 4096))
    })
}
