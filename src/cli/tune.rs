//! `kiln tune`: measures all tiles of a model's kernels on a device, and reports the gain.

use super::model::ModelArgs;
use super::{print, print_json};
use crate::engine::Tune;
use crate::executor::ExecutorExt;
use crate::executor::measure::TuningGain;
use crate::{Error, Result};
use serde_json::json;
use std::time::Instant;

/// Measures which tiles of a model's kernels are fastest on a GPU, and keeps the choice for the next loads.
#[derive(Debug, Clone, clap::Args)]
pub struct TuneArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Sequences at once
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Rows of a prefill pass
    #[arg(long, value_name = "N", hide = true)]
    chunk: Option<usize>,
}

/// Runs the command.
///
/// # Errors
/// Input: the model or the arguments are wrong. Refused: the model does not fit. Device: there is no GPU, or it failed.
pub fn run(args: &TuneArgs, json: bool) -> Result<()> {
    let checkpoint = args.model.files().checkpoint()?;
    let mut options = args.model.tuned_options();
    options.sequences = args.batch as usize;
    options.head_rows = options.sequences;
    options.chunk = args.chunk;
    if options.vulkan.tune != Some(Tune::Now) {
        return Err(Error::input("kiln tune measures everything now", "leave out --tune"));
    }
    let start = Instant::now();
    let mut executor = args.model.load(&checkpoint, &options, json)?;
    let seconds = start.elapsed().as_secs_f64();
    if executor.is_on_cpu() {
        return Err(Error::device(
            "there is no GPU to tune: the CPU's executor has nothing to choose",
            "use --device vulkan, with a driver for a GPU",
        ));
    }
    let gains = executor.measure_gains()?;
    let (name, device) = (args.model.files().name(), executor.device());
    if json {
        let gains: Vec<_> = gains
            .iter()
            .map(|g| json!({"kind": g.kind, "rows": g.rows, "untuned_s": g.before, "tuned_s": g.after}))
            .collect();
        return print_json(&json!({"model": name, "device": device, "load_s": seconds, "passes": gains}));
    }
    print(&text(&name, device, seconds, &gains))
}

/// The report of a tuning run as text.
fn text(name: &str, device: &str, seconds: f64, gains: &[TuningGain]) -> String {
    let mut text = format!("{name} on {device}: loaded and tuned in {seconds:.1} s\n");
    if gains.is_empty() {
        text += "there is nothing to choose on this device\n";
    }
    let width = gains.iter().map(|g| g.kind.len()).max().unwrap_or(0);
    for TuningGain { kind, before, after, .. } in gains {
        let (share, before, after) = (100.0 * after / before, before * 1e3, after * 1e3);
        text +=
            &format!("a pass of {kind:<width$} {after:>9.3} ms, {share:.1} % of the {before:.3} ms of default tiles\n");
    }
    text
}
