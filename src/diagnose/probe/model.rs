//! Whether a model fits this machine.

use super::{Checks, Verdict};
use crate::display::bytes;
use crate::engine::{ModelFiles, Opened, Options};
use crate::model::Shape;
use crate::plan::{Needs, Plan};
use crate::schedule::{Extent, Schedule};

/// A model to check.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The model's name, as the probe prints it.
    pub name: &'a str,
    /// The model's shape.
    pub shape: &'a Shape,
    /// The model's files.
    pub files: &'a ModelFiles,
    /// The options with which the model would be loaded.
    pub options: Options,
}

/// Checks whether the model fits the device, or the CPU without one.
pub(super) fn check(checks: &mut Checks, model: &Wanted<'_>, opened: &Opened) {
    checks.group("model");
    let Some(extent) = checks.got("memory", Verdict::Fail, model.options.extent(model.shape)) else { return };
    let extent = Extent { kv: opened.kv(&model.options), ..extent };
    let schedule = Schedule::build(model.shape, extent, model.files.formats(model.options.weights, model.shape));
    let Some(memory) = checks.got("memory", Verdict::Fail, opened.memory()) else { return };
    let needs = Needs::of_executor(&schedule, opened.staged());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{self, Device};
    use crate::executor::weights::Progress;

    #[test]
    fn a_model_on_the_cpu_is_checked_with_the_kv_cache_that_it_gets_there() {
        let (files, options) = (ModelFiles::BuiltIn, Options { device: Device::Cpu, ..Options::default() });
        let shape = files.shape().unwrap();
        let mut checks = Checks::default();
        let wanted = Wanted { name: "demo", shape: &shape, files: &files, options };
        check(&mut checks, &wanted, &Opened { device: None, fallback: None });
        let executor = engine::load(&files.checkpoint().unwrap(), &options, &Progress::default()).unwrap();
        let kept = format!("KV cache {}", bytes(executor.schedule().kv_bytes()));
        assert!(checks.all[0].evidence.to_string().contains(&kept), "{kept}: {checks:?}");
    }
}
