//! The engine: loads a model into an executor, and answers requests with it.
//!
//! [`load`] goes from a model's files and [`Options`] to a loaded executor: it builds the schedule, plans every byte of
//! it, and loads it into the executor on a device, the CPU executor or the reference executor. `model_thread` is the
//! life of a loaded model on its thread, `core` the loop over its requests, `queue` the way to it from other threads,
//! and `open` an engine with a single model.

#[cfg(any(feature = "cli", feature = "serve"))]
mod chunk_pace;
#[cfg(any(feature = "cli", feature = "serve"))]
pub mod core;
#[cfg(any(feature = "cli", feature = "serve"))]
pub(crate) mod deadline;
pub mod demo;
pub(crate) mod device;
#[cfg(any(feature = "cli", feature = "serve"))]
mod draft;
mod files;
#[cfg(any(feature = "cli", feature = "serve"))]
mod identity;
#[cfg(any(feature = "cli", feature = "serve"))]
pub(crate) mod model_thread;
#[cfg(feature = "npu")]
mod offloads;
#[cfg(any(feature = "cli", feature = "serve"))]
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
pub mod open;
#[cfg(feature = "amdgpu")]
mod own_driver;
#[cfg(any(feature = "cli", feature = "serve"))]
#[cfg_attr(not(feature = "serve"), allow(dead_code, unused_imports))]
pub(crate) mod prefixes;
#[cfg(any(feature = "cli", feature = "serve"))]
// A server alone reloads and unloads models.
#[cfg_attr(not(feature = "serve"), allow(dead_code))]
pub mod queue;
#[cfg(any(feature = "cli", feature = "serve"))]
pub mod request;
#[cfg(any(feature = "cli", feature = "serve"))]
mod turns;

pub use crate::machine::nodes::DriverApi;
pub use crate::replay::options::{ReplayOptions, Tune};
pub use device::Device;
pub(crate) use device::{Fallback, Opened, open};
#[cfg(any(feature = "cli", feature = "serve"))]
pub use draft::{DraftFiles, ModelWithDrafts};
#[cfg(any(feature = "cli", feature = "serve"))]
pub(crate) use draft::{
    check_context as check_draft_context, draft_options, load_after_draft, with_drafter, without as without_draft,
};
pub use files::ModelFiles;
#[cfg(all(feature = "npu", feature = "testing"))]
pub use offloads::load as load_offload;
#[cfg(all(feature = "amdgpu", feature = "testing"))]
pub use own_driver::trial_in;

use crate::cpu::Cpu;
use crate::display;
use crate::error::{Setting, text};
use crate::executor::weights::Progress;
use crate::executor::{ExecutorExt, Measure, Stepwise};
use crate::lower::limits::MAX_GROUPS;
use crate::machine::threads;
use crate::model::checkpoint::Checkpoint;
use crate::model::{Shape, WeightFormat};
use crate::plan::{Needs, Plan};
use crate::reference::Reference;
#[cfg(not(feature = "npu"))]
use crate::replay::Replay;
use crate::replay::driver::Driver;
use crate::schedule::{Extent, KvType, Schedule};
use crate::sys::memory;
use crate::{Error, Result};
use std::time::Instant;

/// How to load a model. `None` means the default.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The device that the model is to run on.
    pub device: Device,
    /// Format of the matrices on the device; [`WeightFormat::of_matrix`] says which matrices keep another one.
    pub weights: WeightFormat,
    /// Positions of a sequence. Default: 4096, or the model's maximum if smaller.
    pub context: Option<usize>,
    /// Rows of the largest prefill pass. Default: 512, of a mixture of experts 1024, or the context if smaller.
    pub chunk: Option<usize>,
    /// Sequences that have a KV cache at the same time.
    pub sequences: usize,
    /// Most rows of logits that the head makes at a time.
    pub head_rows: usize,
    /// Most drafted tokens of a sequence that a pass verifies ([`crate::sequence::draft`]).
    pub drafted: usize,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Tokens that the KV cache has room for, all sequences together. Default: as many as their contexts have, or as
    /// fit on the device if those are fewer.
    pub kv_tokens: Option<usize>,
    /// Threads of the CPU executor. Default: one a core.
    pub threads: Option<usize>,
    /// Whether the NPU computes the attention of a GPU's passes.
    pub npu: NpuUse,
    /// The executor that computes attention in place of a GPU, other than the NPU.
    pub offload: Option<OffloadKind>,
    /// The settings of an executor on a GPU, by Vulkan or amdgpu.
    pub vulkan: ReplayOptions,
}

/// Whether the NPU computes attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NpuUse {
    /// On the NPU by this driver interface, in the kinds of pass that are measured to be faster there. Without an NPU
    /// the same as [`NpuUse::Off`].
    Auto(DriverApi),
    /// The NPU is not used.
    Off,
    /// On the NPU by this driver interface; loading fails without it.
    Require(DriverApi),
}

/// The executors that can compute attention in place of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffloadKind {
    /// The reference executor's formulas.
    Reference,
    /// The CPU executor's kernels.
    Cpu,
    /// The NPU's program, through this driver interface.
    Npu(DriverApi),
}

impl Default for Options {
    fn default() -> Self {
        Options {
            device: Device::Auto,
            weights: WeightFormat::Int8,
            context: None,
            chunk: None,
            sequences: 1,
            head_rows: 1,
            drafted: 0,
            kv: KvType::F16,
            kv_tokens: None,
            threads: None,
            npu: NpuUse::Off,
            offload: None,
            vulkan: ReplayOptions::default(),
        }
    }
}

/// Default context, in positions, for models that have as many.
pub const DEFAULT_CONTEXT: usize = 4096;
/// Most rows of a pass. Kernels use a workgroup per row, and every Vulkan device allows this many workgroups.
pub const MAX_ROWS: usize = MAX_GROUPS;
/// Most rows of a pass that verifies drafts of several sequences; twice as many as there are sequences if that is more.
const MOST_VERIFIED: usize = 64;
/// Default rows of a prefill chunk.
pub const DEFAULT_CHUNK: usize = 512;
/// Default rows of a prefill chunk of a mixture of experts: 512 rows already read nearly all experts, each for a few rows.
const MIXTURE_CHUNK: usize = 1024;

/// The default rows of a prefill chunk of a model.
pub fn default_chunk(shape: &Shape) -> usize {
    if shape.experts.is_some() { MIXTURE_CHUNK } else { DEFAULT_CHUNK }
}

impl Options {
    /// The sizes to build the schedule for.
    ///
    /// # Errors
    /// Input: a size of zero, or a context beyond the model's.
    pub fn extent(&self, shape: &Shape) -> Result<Extent> {
        let context = self.context.unwrap_or(DEFAULT_CONTEXT.min(shape.max_context));
        if context == 0 || context > shape.max_context {
            return Err(Error::input(
                format!("a context of {context} tokens is not in 1..={}, the model's range", shape.max_context),
                text!("choose another ", Setting::Context),
            ));
        }
        if self.chunk == Some(0) {
            return Err(Error::input("a prefill chunk of 0 rows", text!("choose a ", Setting::Chunk, " of 1 or more")));
        }
        // Expert rows have a workgroup each, too.
        let most_rows = MAX_ROWS / shape.experts.map_or(1, |experts| experts.used);
        if self.sequences == 0 || self.sequences > most_rows {
            return Err(Error::input(
                format!("a batch of {} sequences is not in 1..={most_rows}", self.sequences),
                text!("choose another ", Setting::Batch),
            ));
        }
        if let Some(tokens) = self.kv_tokens.filter(|&tokens| tokens < context) {
            return Err(Error::input(
                format!("a KV cache of {tokens} tokens has no room for a context of {context}"),
                text!("choose a larger ", Setting::KvTokens, ", or a smaller ", Setting::Context),
            ));
        }
        let chunk = self.chunk.unwrap_or(default_chunk(shape)).min(context).min(most_rows);
        // A draft and the row before it are head rows of one pass, and so are those of several sequences.
        let verified = self.drafted.saturating_add(1).min(context).min(most_rows);
        let most = MOST_VERIFIED.max(2 * self.sequences);
        let together = if self.drafted > 0 { self.sequences.saturating_mul(verified).min(most) } else { 1 };
        let max_rows = chunk.max(self.sequences).max(verified);
        Ok(Extent {
            context,
            max_rows,
            head_rows: self.head_rows.max(verified).max(together).min(max_rows),
            sequences: self.sequences,
            kv: self.kv,
            kv_tokens: self.kv_tokens,
        })
    }
}

/// Builds the schedule, plans its memory, loads the weights, and bakes.
///
/// # Errors
/// Input: the checkpoint or the options are wrong. Refused: it does not fit. Interrupted: it was cancelled. Device:
/// there is no such device, or it failed.
pub fn load(checkpoint: &Checkpoint, options: &Options, progress: &Progress) -> Result<Box<dyn Measure>> {
    Ok(load_on(&open_for(checkpoint, options)?, checkpoint, options, progress)?)
}

/// Opens the device that [`load`] runs on.
///
/// # Errors
/// As [`load`].
pub(crate) fn open_for(checkpoint: &Checkpoint, options: &Options) -> Result<Opened> {
    check(checkpoint, options)?;
    open(options.device)
}

/// As [`load`], on a machine with these files.
///
/// # Errors
/// As [`load`].
#[cfg(feature = "testing")]
pub fn load_in(
    files: &crate::machine::files::Files,
    checkpoint: &Checkpoint,
    options: &Options,
) -> Result<Box<dyn Measure>> {
    Ok(load_on(&device::open_in(files, options.device)?, checkpoint, options, &Progress::default())?)
}

/// Checks the options against the checkpoint before anything is opened or loaded.
fn check(checkpoint: &Checkpoint, options: &Options) -> Result<Extent> {
    refuse_drafter(checkpoint.shape())?;
    checkpoint.check_format(options.weights)?;
    checkpoint.drafter().map_or(Ok(()), |drafter| drafter.check_format(options.weights))?;
    let required = matches!(options.npu, NpuUse::Require(_));
    if options.offload.is_some() || required {
        if cfg!(not(feature = "npu")) {
            return Err(no_support());
        }
        if !required && options.device.is_host() {
            return Err(no_device_for_guest());
        }
        if options.drafted > 0 {
            let cause = "passes whose attention is not on the GPU verify no drafts";
            let guest = if required { text!("use ", Setting::NoNpu) } else { "leave out the guest".into() };
            return Err(Error::input(cause, text!(guest, ", or leave out what makes drafts", Setting::Draft.aside())));
        }
    }
    options.extent(checkpoint.shape())
}

/// Refuses a drafter in the place of a model.
///
/// # Errors
/// Input: it is a drafter.
pub(crate) fn refuse_drafter(shape: &Shape) -> Result<()> {
    match shape.backbone {
        None => Ok(()),
        Some(_) => Err(Error::input(
            format!("this is {}, which only drafts for a model", shape.architecture.title),
            text!("give the model, and this one as ", Setting::Draft),
        )),
    }
}

/// Checks that this machine has an NPU that Kiln has programs for.
///
/// # Errors
/// Device: there is none, or this build has no support of it.
#[cfg(feature = "cli")]
pub(crate) fn check_npu() -> Result<()> {
    #[cfg(feature = "npu")]
    return crate::npu::offload::find(&crate::machine::files::Files::system()).map(drop);
    #[cfg(not(feature = "npu"))]
    Err(no_support())
}

fn no_support() -> Error {
    Error::device("this build has no NPU support", text!("use ", Setting::NoNpu, ", or build with the feature npu"))
}

fn no_device_for_guest() -> Error {
    Error::input(
        "only a device of Vulkan or amdgpu has a guest",
        text!("leave out the guest, or do not use ", Setting::Cpu),
    )
}

/// As [`load`], for running the executor step by step.
///
/// # Errors
/// As [`load`].
pub fn load_stepwise(checkpoint: &Checkpoint, options: &Options, progress: &Progress) -> Result<Box<dyn Stepwise>> {
    Ok(load_on(&open_for(checkpoint, options)?, checkpoint, options, progress)?)
}

/// The two traits that all executors implement, as one trait object.
trait AnyExecutor: Measure + Stepwise {}

impl<E: Measure + Stepwise> AnyExecutor for E {}

/// As [`load`], on a device that [`open`] gave.
fn load_on(
    opened: &Opened,
    checkpoint: &Checkpoint,
    options: &Options,
    progress: &Progress,
) -> Result<Box<dyn AnyExecutor>> {
    let extent = check(checkpoint, options)?;
    if let Some(exceptions) = options.weights.exceptions(checkpoint.shape()) {
        log::warn!("{exceptions}");
    }
    threads::start()?;
    let start = Instant::now();
    let executor: Box<dyn AnyExecutor> = match &opened.device {
        Some(device) => {
            let load = || {
                let (schedule, plan) = place(opened, checkpoint, extent, options)?;
                progress.add_to_total(schedule.weights.bytes());
                for (kind, bytes) in plan.sums() {
                    log::info!("{kind}: {}", display::bytes(bytes));
                }
                device.load(PlacedModel { checkpoint, schedule, plan, options, progress })
            };
            load().map_err(|e| if device.caps().is_cpu() { or_on_the_cpu(e) } else { e })?
        }
        // Here the device is `auto`, which has taken the CPU.
        None if options.offload.is_some() => return Err(no_device_for_guest()),
        None if matches!(options.npu, NpuUse::Require(_)) => {
            let cause = "without a device of Vulkan or amdgpu nothing of a model runs on the NPU";
            return Err(Error::device(cause, text!("use ", Setting::NoNpu)));
        }
        None => {
            let (schedule, _) = place(opened, checkpoint, extent, options)?;
            progress.add_to_total(schedule.weights.bytes());
            match options.device {
                Device::Reference => Box::new(Reference::load(checkpoint, schedule, progress)?),
                _ => Box::new(Cpu::load(checkpoint, schedule, options.threads, progress)?),
            }
        }
    };
    // Each thread's read buffers.
    memory::give_back_freed();
    let (seconds, loaded) = (start.elapsed().as_secs_f64(), progress.done());
    log::info!(
        "loaded {} of weights ({}) in {} on {}; context {}, chunks of {}, KV {} for {}",
        display::bytes(loaded),
        executor.schedule().weights.format_names(),
        display::time_of(loaded, seconds),
        executor.device(),
        extent.context,
        extent.max_rows,
        display::bytes(executor.schedule().kv_bytes()),
        display::counted(executor.schedule().kv.tokens(), "token"),
    );
    if let Some(Fallback::Unusable(why)) = &opened.fallback {
        log::warn!("running on the CPU: {why}");
    }
    Ok(executor)
}

/// A checkpoint with the schedule and the memory plan for its device.
struct PlacedModel<'a> {
    checkpoint: &'a Checkpoint,
    schedule: Schedule,
    plan: Plan,
    options: &'a Options,
    progress: &'a Progress,
}

/// Loads a model into the executor on a device by this driver, with the offload that the options ask for.
fn load_replay<D: Driver>(driver: D, model: PlacedModel<'_>) -> Result<Box<dyn AnyExecutor>> {
    #[cfg(feature = "npu")]
    return Ok(Box::new(offloads::load_replay(driver, model)?));
    #[cfg(not(feature = "npu"))]
    {
        let PlacedModel { checkpoint, schedule, plan, options, progress } = model;
        Ok(Box::new(Replay::load(None, driver, checkpoint, schedule, &plan, options.vulkan, progress)?))
    }
}

/// The options with the largest number of sequences, up to the number in `options`, whose KV cache fits on the device
/// beside the model, with a row of logits for each. At least 1, even if that does not fit.
///
/// # Errors
/// Input: the options are wrong.
#[cfg(any(feature = "cli", feature = "serve"))]
fn most_sequences(opened: &Opened, checkpoint: &Checkpoint, options: &Options) -> Result<Options> {
    let of = |sequences| Options { sequences, head_rows: sequences, ..*options };
    check(checkpoint, &of(options.sequences))?;
    let fits = |&sequences: &usize| {
        let options = of(sequences);
        check(checkpoint, &options).is_ok_and(|extent| place(opened, checkpoint, extent, &options).is_ok())
    };
    let more: Vec<usize> = (2..=options.sequences).collect();
    Ok(of(if fits(&options.sequences) { options.sequences } else { 1 + more.partition_point(fits) }))
}

/// Adds the CPU to the remedies of a refusal: the CPU executor needs no second copy of the weights for a driver.
fn or_on_the_cpu(e: Error) -> Error {
    match e {
        Error::Refused { cause, remedy } if !remedy.names(Setting::Cpu) => {
            Error::refused(cause, text!(remedy, ", or use ", Setting::Cpu))
        }
        e => e,
    }
}

/// The schedule, and where each of its bytes goes on this device.
///
/// # Errors
/// Refused: it does not fit.
fn place(opened: &Opened, checkpoint: &Checkpoint, extent: Extent, options: &Options) -> Result<(Schedule, Plan)> {
    let drafter_formats = checkpoint.drafter().map(|drafter| (drafter.shape(), drafter.formats(options.weights)));
    let drafter = drafter_formats.as_ref().map(|(shape, formats)| (*shape, formats as &dyn Fn(_) -> _));
    let staged = opened.staged().map(|needed| needed || options.vulkan.staged);
    Plan::fit(Extent { kv: opened.kv(options), ..extent }, &opened.memory()?, |extent| {
        let formats = checkpoint.formats(options.weights);
        let schedule = Schedule::build_with(checkpoint.shape(), extent, formats, drafter);
        let needs = Needs::of_executor(&schedule, staged);
        (schedule, needs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The error must name the option that was given, which is the NPU and not a guest.
    #[test]
    fn drafts_beside_an_npu_that_is_required_are_refused_by_the_names_of_both() {
        let checkpoint = Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny")).unwrap();
        let options = Options { npu: NpuUse::Require(DriverApi::Kernel), drafted: 4, ..Options::default() };
        let e = check(&checkpoint, &options).unwrap_err();
        assert!(e.exit_code() == 2 && e.names(Setting::NoNpu) && e.names(Setting::Draft), "{e}");
        assert!(!e.parts().1.to_string().contains("guest"), "{e}");
    }
}
