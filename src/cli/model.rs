//! Arguments for the model and how to load it, and loading with a progress bar.

use super::progress::{self, LiveBar};
use super::{note, signals};
use crate::Result;
use crate::display::counted;
use crate::engine::core::{CoreSettings, EngineMonitor};
use crate::engine::open::OpenEngine;
use crate::engine::{
    self, Device, DraftFiles, Fallback, ModelFiles, ModelWithDrafts, NpuUse, Opened, Options, ReplayOptions, Tune,
};
use crate::executor::Measure;
use crate::executor::weights::Progress;
use crate::machine::nodes::DriverApi;
use crate::model::checkpoint::Checkpoint;
use crate::model::{FileMix, WeightFormat};
use crate::schedule::KvType;
use crate::sequence::draft::Drafts;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The model, its device, and its form.
#[derive(Debug, Clone, clap::Args)]
pub struct ModelArgs {
    /// Model directory (config.json, *.safetensors, tokenizer.json), a GGUF file, or a model in the hub's cache:
    /// ORG/NAME, or ORG/NAME:QUANT for the GGUF file of a type; demo: the built-in model [default: $KILN_MODEL, else
    /// demo]
    #[arg(help_heading = "Model", short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Where to run: auto, vulkan, vulkan:N (N as `vulkaninfo --summary` counts), amdgpu, amdgpu:N (an AMD GPU without
    /// Vulkan, N of /dev/dri/renderDN), cpu, reference (plain f32, to compare with)
    #[arg(help_heading = "Device", long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    /// Form of the matrices on the device
    #[arg(help_heading = "Model", long, default_value = "int8", value_parser = weights_parser(|_| true).map(WeightsArg::Made))]
    pub weights: WeightsArg,
    /// Form of keys and values in the cache. The NPU multiplies bf16, which has as many bytes and fewer bits. The
    /// reference keeps f32
    #[arg(help_heading = "Model", long, default_value = "f16", value_parser = one_of(&KV_TYPES))]
    pub kv: KvType,
    /// Longest sequence, in tokens [default: 4096, or the model's maximum if smaller]
    #[arg(help_heading = "Model", long, alias = "context", value_name = "N")]
    pub ctx: Option<usize>,
    /// Threads on the CPU [default: one a core]
    #[arg(help_heading = "Device", long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// When the GPU is measured to choose among its kernels' tiles [default: auto; bench and tune: now]
    #[arg(help_heading = "Device", long, value_name = "WHEN", value_parser = one_of(&TUNE))]
    pub tune: Option<Tune>,
    /// Whether attention runs on the NPU: auto measures at the start, and puts that of decode or prefill there where it
    /// is faster; require, or no value: on the NPU, whatever it costs; off: never, and probe runs nothing on it
    #[arg(help_heading = "Device", long, default_value = "auto", value_enum, num_args = 0..=1, default_missing_value = "require")]
    pub npu: NpuArg,
    /// How the NPU is reached
    #[arg(help_heading = "Device", long, default_value = "kernel", value_parser = one_of(&NPU_APIS))]
    pub npu_api: DriverApi,
}

/// The model given by -m, else by `$KILN_MODEL`. An empty variable counts as unset.
pub(super) fn chosen(model: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os("KILN_MODEL").filter(|v| !v.is_empty()).map(PathBuf::from);
    model.map(Path::to_owned).or_else(variable)
}

fn value_of(format: WeightFormat) -> PossibleValue {
    PossibleValue::new(format.name()).help(format.description())
}

/// A parser of `--weights` for the formats that `among` accepts.
pub(super) fn weights_parser(among: impl Fn(WeightFormat) -> bool) -> impl TypedValueParser<Value = WeightFormat> {
    let formats = WeightFormat::MADE.into_iter().filter(|format| among(*format));
    PossibleValuesParser::new(formats.map(value_of)).try_map(|word| WeightFormat::parse(&word).ok_or("no such format"))
}

/// Values of `--weights`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightsArg {
    /// A format that matrices are loaded in.
    Made(WeightFormat),
    /// A mix of types as in a GGUF file. Only a plan of a model without a file accepts it.
    File(FileMix),
}

impl WeightsArg {
    /// The format to load. The mix of a file has no other format.
    pub fn made(self) -> WeightFormat {
        match self {
            WeightsArg::Made(format) => format,
            WeightsArg::File(_) => WeightFormat::Int8,
        }
    }

    /// The mix of types, if the value is one.
    pub fn mix(self) -> Option<FileMix> {
        match self {
            WeightsArg::Made(_) => None,
            WeightsArg::File(mix) => Some(mix),
        }
    }
}

/// A parser of `--weights` that also accepts the mixes of files.
pub(super) fn file_weights_parser() -> impl TypedValueParser<Value = WeightsArg> {
    let made = WeightFormat::MADE.into_iter().map(value_of);
    let mixes = FileMix::ALL.into_iter().map(|mix| PossibleValue::new(mix.name));
    let short = FileMix::SHORT.into_iter().map(|(word, _)| PossibleValue::new(word).hide(true));
    PossibleValuesParser::new(made.chain(mixes).chain(short)).try_map(|word| {
        let made = WeightFormat::parse(&word).map(WeightsArg::Made);
        made.or_else(|| FileMix::of_name(&word).map(WeightsArg::File)).ok_or("no such format")
    })
}

/// Values of `--tune`, each with its word and description.
const TUNE: [(&str, Tune, &str); 4] = [
    (
        "auto",
        Tune::Auto,
        "For at most 3 s before the first token, on the choices that gain most; the rest in idle moments of a server or a chat",
    ),
    ("now", Tune::Now, "All of it before the first token"),
    ("idle", Tune::Idle, "Only in idle moments of a server or a chat"),
    ("off", Tune::Off, "Never; earlier measurements are used"),
];
/// Values of `--kv`.
const KV_TYPES: [(&str, KvType, &str); 2] = [("f16", KvType::F16, "IEEE half"), ("bf16", KvType::Bf16, "bfloat16")];
/// Values of `--npu-api`.
const NPU_APIS: [(&str, DriverApi, &str); 2] =
    [("kernel", DriverApi::Kernel, "The kernel's amdxdna interface"), ("xrt", DriverApi::Xrt, "libxrt")];

/// A parser that accepts only the words of a table, and gives the value beside the word.
pub(super) fn one_of<T: Copy + Send + Sync>(
    words: &'static [(&'static str, T, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let parser = PossibleValuesParser::new(words.iter().map(|(word, _, help)| PossibleValue::new(*word).help(*help)));
    let value = |word: String| words.iter().find(|(known, ..)| *known == word).map(|(_, value, _)| *value);
    parser.try_map(move |word| value(word).ok_or("no such word"))
}

/// Values of `--npu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NpuArg {
    /// On the NPU where that is measured to be faster
    Auto,
    /// Never
    Off,
    /// On the NPU or not at all
    Require,
}

/// Models of at least this size show a progress bar while they load.
const SHOW_PROGRESS_BYTES: u64 = 256 << 20;

impl ModelArgs {
    /// The model's files.
    pub fn files(&self) -> ModelFiles {
        chosen(self.model.as_deref()).into()
    }

    /// The engine's options for these arguments.
    pub fn options(&self) -> Options {
        let vulkan = ReplayOptions { tune: self.tune, ..ReplayOptions::default() };
        Options {
            device: self.device,
            weights: self.weights.made(),
            kv: self.kv,
            context: self.ctx,
            threads: self.threads.map(usize::from),
            npu: match self.npu {
                NpuArg::Auto => NpuUse::Auto(self.npu_api),
                NpuArg::Off => NpuUse::Off,
                NpuArg::Require => NpuUse::Require(self.npu_api),
            },
            vulkan,
            ..Options::default()
        }
    }

    /// As [`ModelArgs::options`], but with all tuning done before the first token, unless the arguments say otherwise.
    pub(super) fn tuned_options(&self) -> Options {
        let mut options = self.options();
        options.vulkan.tune.get_or_insert(Tune::Now);
        options
    }

    /// Checks that `--npu require` can be met: there is an NPU, with a program for it.
    ///
    /// # Errors
    /// Device: there is no such NPU.
    pub fn check_npu(&self) -> Result<()> {
        match self.npu {
            NpuArg::Require => engine::check_npu(),
            NpuArg::Auto | NpuArg::Off => Ok(()),
        }
    }

    /// Loads the model. Shows a progress bar on a terminal for a large model, unless `json` is set. Caught signals end
    /// the load, and later any pass.
    ///
    /// # Errors
    /// As [`engine::load`]. Device: `--npu require` cannot be met.
    pub fn load(&self, checkpoint: &Checkpoint, options: &Options, json: bool) -> Result<Box<dyn Measure>> {
        self.check_npu()?;
        let opened = engine::open_for(checkpoint, options)?;
        self.load_on(&opened, checkpoint, None, options, false, json).map(|(executor, _)| executor)
    }

    /// Opens an engine of the model, with its draft model if there is one. With `fewer` it has as many of the sequences
    /// as fit. `monitor` gets its figures.
    ///
    /// # Errors
    /// As [`ModelArgs::load`].
    #[allow(clippy::too_many_arguments)]
    pub(super) fn open(
        &self,
        checkpoint: Checkpoint,
        draft: Option<DraftFiles>,
        options: Options,
        fewer: bool,
        drafts: Drafts,
        monitor: impl EngineMonitor + Send + 'static,
        json: bool,
    ) -> Result<OpenEngine> {
        self.check_npu()?;
        let args = self.clone();
        let load = move || {
            let checkpoint = engine::with_drafter(checkpoint, draft.as_ref())?;
            let opened = engine::open_for(&checkpoint, &options)?;
            args.load_on(&opened, &checkpoint, draft.as_ref(), &options, fewer, json)
        };
        OpenEngine::open(load, CoreSettings { gap: None, kept: u64::MAX, drafts }, monitor)
    }

    /// As [`ModelArgs::load`], on an open device and after the draft model, if there is one. With `fewer` the model
    /// gets as many of the sequences as fit.
    ///
    /// # Errors
    /// As [`ModelArgs::load`].
    pub(super) fn load_on(
        &self,
        opened: &Opened,
        checkpoint: &Checkpoint,
        draft: Option<&DraftFiles>,
        options: &Options,
        fewer: bool,
        json: bool,
    ) -> Result<ModelWithDrafts> {
        self.check_npu()?;
        let progress = Arc::new(Progress::new(signals::cancel()));
        let is_long = checkpoint.stored_bytes() >= SHOW_PROGRESS_BYTES || options.vulkan.tune == Some(Tune::Now);
        let bar = (is_long && progress::is_shown(json)).then(|| {
            let style = "loading {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}{msg}";
            let loaded = progress.clone();
            LiveBar::start(progress::bar(Some(0), style, json), move |bar| {
                bar.set_length(loaded.total());
                bar.set_position(loaded.done());
                if let Some((open, seconds)) = loaded.tuning() {
                    bar.set_message(format!(
                        ", tuning: {} left, about {seconds:.0} s",
                        counted(open as usize, "choice")
                    ));
                }
            })
        });
        let loaded = engine::load_after_draft(opened, checkpoint, draft, options, fewer, &progress)?;
        drop(bar);
        if opened.fallback == Some(Fallback::NoGpu) {
            note("kiln: there is no GPU; running on the CPU");
        }
        Ok(loaded)
    }
}
