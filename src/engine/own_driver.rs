//! Whether `auto` runs an AMD GPU by amdgpu's own interface: if passes of the built-in model by it have the CPU's logits,
//! and take less time than by Vulkan.
//!
//! The answer is kept in the cache directory, since both drivers load the model for it: one file for each GPU and the
//! kernels of both. A start that did not outlive its trial is an answer, too.

use super::device::Opened;
#[cfg(feature = "testing")]
use super::device::open_in;
use super::{Device, Options, demo, load_on};
use crate::executor::measure::relative_rms;
use crate::executor::weights::Progress;
use crate::executor::{ExecutorExt, HeadRows, Row};
use crate::machine::cache;
#[cfg(feature = "testing")]
use crate::machine::files::Files;
use crate::model::checkpoint::Checkpoint;
use crate::replay::options::{ReplayOptions, Tune};
use crate::{Error, Result};
use std::cell::LazyCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The number of rows in the prompt's pass. [`PASSES`] passes of one row follow, and the fastest counts.
const PROMPT: usize = 16;
const PASSES: usize = 16;
/// Largest relative error of the logits. The model has 62 layers: f16 has up to 0.12, a wrong kernel about 1.
const MOST_ERROR: f64 = 0.25;

/// The contents of the file that records the trial of amdgpu: tried, or its result.
const TRIED: &str = "tried";
const TAKEN: &str = "taken";
const LEFT: &str = "left";
const MOST_BYTES: u64 = 64;

/// Whether amdgpu's own interface is to be used, and not Vulkan if that has the GPU too.
pub(super) fn is_better(own: &Opened, vulkan: Option<&Opened>) -> bool {
    let id = |opened: Option<&Opened>| {
        let device = opened.and_then(|opened| opened.device.as_ref());
        device.map_or_else(|| "none".into(), |device| device.caps().cache_id.clone())
    };
    let name = format!("driver-{}-{}", id(Some(own)), id(vulkan));
    let file = cache::directory().map(|directory| directory.join(name));
    let trial = LazyCell::new(|| DriverTrial::new(demo::checkpoint()?));
    let time = |opened| trial.as_ref().map_err(Error::clone)?.time(opened);
    decide(file, &|| time(own), vulkan.map(|vulkan| move || time(vulkan)))
}

/// As [`is_better`], with the file of the answer and the trials of the drivers: seconds of a pass.
fn decide(file: Option<PathBuf>, own: &dyn Fn() -> Result<f64>, vulkan: Option<impl Fn() -> Result<f64>>) -> bool {
    if let Some(word) = file.as_deref().and_then(known) {
        return word == TAKEN;
    }
    let keep = |word: &str| {
        let Some(file) = &file else { return false };
        let written = cache::write(file, word.as_bytes());
        written.inspect_err(|e| log::warn!("{} cannot be written: {e}", file.display())).is_ok()
    };
    // Without a file each start makes the trial, which is too long where Vulkan will do.
    if !keep(TRIED) && vulkan.is_some() {
        return false;
    }
    let is_better = match (own(), vulkan.map(|vulkan| vulkan())) {
        (Err(e), _) => {
            log::warn!("amdgpu's own interface is not used: {e}");
            false
        }
        (Ok(_), None) => true,
        (Ok(own), Some(Err(e))) => {
            log::warn!("Vulkan computes no pass, and amdgpu's own interface one in {:.3} ms: {e}", 1e3 * own);
            true
        }
        (Ok(own), Some(Ok(vulkan))) => {
            let [own_ms, vulkan_ms] = [own, vulkan].map(|seconds| 1e3 * seconds);
            log::info!("a pass takes {own_ms:.3} ms by amdgpu's own interface, {vulkan_ms:.3} ms by Vulkan");
            own < vulkan
        }
    };
    keep(if is_better { TAKEN } else { LEFT });
    is_better
}

fn known(file: &Path) -> Option<String> {
    String::from_utf8(cache::read(file, MOST_BYTES)?).ok()
}

/// A model's passes, whose logits on the CPU those of each driver are compared with.
struct DriverTrial {
    checkpoint: Checkpoint,
    right: Vec<f32>,
}

impl DriverTrial {
    fn new(checkpoint: Checkpoint) -> Result<DriverTrial> {
        let (right, _) = run(&Opened { device: None, fallback: None }, Device::Cpu, &checkpoint)?;
        Ok(DriverTrial { checkpoint, right })
    }

    /// Seconds of a pass of one row on a device.
    ///
    /// # Errors
    /// Device: it fails, or has other logits than the CPU.
    fn time(&self, opened: &Opened) -> Result<f64> {
        let (own, seconds) = run(opened, Device::Auto, &self.checkpoint)?;
        let error = relative_rms(&own, &self.right);
        if error.is_nan() || error > MOST_ERROR {
            let cause = format!("its logits differ from the CPU's by {error:.3} of their size");
            return Err(Error::device(cause, "report this"));
        }
        Ok(seconds)
    }
}

/// The trial that `auto` makes of a device: seconds of a pass.
///
/// # Errors
/// Device: as of a device that `auto` leaves.
#[cfg(feature = "testing")]
pub fn trial_in(files: &Files, device: Device, checkpoint: Checkpoint) -> Result<f64> {
    DriverTrial::new(checkpoint)?.time(&open_in(files, device)?)
}

/// The logits behind the prompt and behind a pass of one row, and the least seconds of such a pass.
fn run(opened: &Opened, device: Device, checkpoint: &Checkpoint) -> Result<(Vec<f32>, f64)> {
    let vulkan = ReplayOptions { tune: Some(Tune::Off), ..ReplayOptions::default() };
    let (context, chunk) = (Some(PROMPT + PASSES), Some(PROMPT));
    let options = Options { device, context, chunk, vulkan, ..Options::default() };
    let mut executor = load_on(opened, checkpoint, &options, &Progress::default())?;
    let vocab = executor.schedule().shape.vocab;
    let row = |at: usize| Row { token: (37 * at * at % vocab) as u32, position: at as u32, sequence: 0 };
    let prompt: Vec<Row> = (0..PROMPT).map(row).collect();
    executor.forward(&prompt, Some(HeadRows { first: PROMPT - 1, count: 1 }))?;
    let mut logits = executor.logits(0)?.to_vec();
    let mut least = f64::INFINITY;
    for at in PROMPT..PROMPT + PASSES {
        let start = Instant::now();
        executor.forward(&[row(at)], Some(HeadRows { first: 0, count: 1 }))?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    logits.extend_from_slice(executor.logits(0)?);
    Ok((logits, least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn fails() -> Result<f64> {
        Err(Error::device("it hangs", "see"))
    }

    /// The answer for seconds of a pass, `None`: it fails. The second is Vulkan's, if that has the GPU.
    #[test]
    fn amdgpus_own_interface_is_taken_where_its_passes_are_right_and_faster() {
        let of = |seconds: Option<f64>| seconds.map_or_else(fails, Ok);
        for (own, vulkan, is_taken) in [
            (Some(1.0), Some(Some(2.0)), true),
            (Some(2.0), Some(Some(1.0)), false),
            (Some(1.0), Some(Some(1.0)), false),
            (None, Some(Some(2.0)), false),
            (Some(1.0), Some(None), true),
            (Some(1.0), None, true),
            (None, None, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let (file, trials) = (dir.path().join("kiln/driver"), Cell::new(0));
            for _ in 0..2 {
                let tried = || {
                    trials.set(trials.get() + 1);
                    of(own)
                };
                assert_eq!(decide(Some(file.clone()), &tried, vulkan.map(|s| move || of(s))), is_taken, "{own:?}");
            }
            assert_eq!(trials.get(), 1, "the answer is kept");
            assert_eq!(known(&file).unwrap(), if is_taken { TAKEN } else { LEFT });
        }
    }

    /// What hangs the machine or ends the process is not tried again.
    #[test]
    fn a_trial_that_did_not_end_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("driver");
        let own = || {
            assert_eq!(known(&file).as_deref(), Some(TRIED));
            panic!("the process ends");
        };
        let decided = || decide(Some(file.clone()), &own, None::<fn() -> Result<f64>>);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(decided)).is_err());
        assert!(!decided());
    }

    #[test]
    fn without_a_file_for_the_answer_nothing_is_tried_beside_vulkan() {
        let never = || panic!("a trial");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for file in [None, Some(dir.path().join("file/below"))] {
            assert!(!decide(file.clone(), &never, Some(never)));
            assert!(decide(file.clone(), &|| Ok(1.0), None::<fn() -> Result<f64>>));
            assert!(!decide(file, &fails, None::<fn() -> Result<f64>>));
        }
    }
}
