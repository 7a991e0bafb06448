//! A machine's checks, and whether a model fits it, without an engine.

use crate::Result;
use crate::diagnose::forecast;
use crate::diagnose::probe::{self, ProbeOptions};
use crate::machine::files::Files;

pub use crate::diagnose::forecast::ForecastOptions;

/// Checks of this machine: the object that `kiln probe --json` prints. `measures`: a GPU is measured too, which takes
/// seconds, and wakes one that is suspended.
pub fn probe_json(measures: bool) -> String {
    let files = Files::system();
    let report = probe::run(&ProbeOptions::of_machine(&files, measures), &|_| ());
    report.to_json(&|words| words.to_string()).to_string()
}

/// Whether a model fits a machine, and where each byte goes: the object that `kiln plan --json` prints. `fits` says
/// whether it does.
///
/// # Errors
/// Input: the model is wrong, or the machine is unknown. Device: this machine has no such device.
pub fn plan_json(asked: &ForecastOptions) -> Result<String> {
    Ok(forecast::to_json(asked)?.to_string())
}
