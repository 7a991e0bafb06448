//! Estimates the time of tuning a model on a device, without measurements.

use super::agenda::Allowance;
use super::bed::Testbed;
use super::choices::Choices;
use super::tuning::{Tuner, Tuning};
use crate::lower::PassKind;
use crate::lower::caps::Caps;
use crate::lower::dispatch::{Addresses, Dispatch};
use crate::lower::figures::Figures;
use crate::lower::kernels::Kernel;
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::lower::units::RDNA3;
use crate::replay::driver::Readiness;
use crate::replay::options::ReplayOptions;
use crate::replay::tuned_kinds;
use crate::schedule::Schedule;
use crate::{Cancel, Result};
use std::time::Duration;

/// Seconds of tuning everything for a schedule on one of [`crate::machine::profile`]'s machines, by its name; `None`
/// for another.
pub fn seconds_on(machine: &str, schedule: &Schedule) -> Option<f64> {
    // The name without its carve-out.
    let figures = Figures::named(machine.split(':').next().unwrap_or(machine))?;
    let target = Target { figures: Some(figures), ..Target::new(RDNA3.subgroup, true, Some(RDNA3)) };
    Some(seconds(target, Choices::unkept(), schedule, false))
}

/// Seconds of tuning the open questions for a schedule on a device. `None` if the device is not tuned.
pub fn seconds_here(caps: &Caps, schedule: &Schedule) -> Option<f64> {
    let options = ReplayOptions::default();
    let target = options.target(caps);
    options.tunes(&target)?;
    if !caps.has_clock {
        return None;
    }
    Some(seconds(target, Choices::open(caps), schedule, caps.tries_relay))
}

fn seconds(mut target: Target, choices: Choices, schedule: &Schedule, tries_relay: bool) -> f64 {
    let (layout, addresses) = (GpuLayout::new(schedule), Addresses::new(0, Vec::new()));
    let weights = vec![0; schedule.weights.buffers.len()];
    let kinds: Vec<PassKind> = tuned_kinds(&schedule.extent).collect();
    let mut tuner = Tuner {
        tuning: &mut Tuning::new(choices),
        bed: &mut NoBed,
        schedule,
        layout: &layout,
        addresses: &Addresses { weights, ..addresses },
        kinds: &kinds,
        submit_budget: ReplayOptions::default().submit_budget,
        tries_relay,
        allowance: Allowance::ALL,
        cancel: &Cancel::default(),
        progress: &mut |_, _| {},
    };
    tuner.recall(&mut target);
    let open = tuner.open(&target);
    tuner.expected_seconds(&target, &open)
}

/// A testbed that measures nothing, for estimates alone.
struct NoBed;

impl Testbed for NoBed {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn ask_for(&mut self, _: &[Kernel]) {}

    fn readiness(&mut self, _: &[Kernel]) -> Readiness {
        Readiness::Unasked
    }

    fn wait(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn time(&mut self, _: PassKind, _: &[&[Dispatch]], _: bool, _: f64) -> Result<Option<f64>> {
        Ok(None)
    }

    fn take_timeout(&mut self) -> Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{WeightFormat, presets};
    use crate::schedule::{Extent, KvType};

    #[test]
    fn a_larger_model_takes_longer_and_a_faster_machine_less() {
        let on = |machine, shape| {
            let kv = KvType::F16;
            let extent = Extent { context: 4096, max_rows: 512, head_rows: 1, sequences: 1, kv, kv_tokens: None };
            let shape = presets::preset(shape).unwrap();
            seconds_on(machine, &Schedule::build(&shape, extent, |_| WeightFormat::Int8))
        };
        let [small, large] = ["gemma3-1b", "gemma3-27b"].map(|shape| on("780m", shape).unwrap());
        assert!(small < large, "{small} and {large} s");
        assert!(on("8060s:16", "gemma3-27b").unwrap() < large);
        assert_eq!(on("xyz", "gemma3-1b"), None);
    }
}
