//! Commands that write a model for minutes: `kiln forge`, a synthetic checkpoint at full size; `kiln quantize`, a
//! native INT8 or INT4 model directory; `kiln bundle`, a model in a directory with a manifest.

use super::model::{chosen, weights_parser};
use super::{print, print_json, progress, signals};
use crate::display::{counted, moved};
use crate::engine::ModelFiles;
use crate::model::bundle::{Manifest, use_bundle};
use crate::model::write::{self, WriteMonitor, WriteSummary};
use crate::model::{TensorId, WeightFormat, presets};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Write a synthetic checkpoint, for tests and benchmarks.
#[derive(Debug, clap::Args)]
pub struct ForgeArgs {
    /// gemma3-270m, gemma3-1b, gemma3-4b, gemma3-12b, gemma3-27b, or a config.json
    #[arg(long, value_name = "NAME|FILE")]
    pub shape: String,
    /// Model directory to create
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Form of the matrices
    #[arg(long, default_value = "int8", value_parser = weights_parser(|_| true))]
    pub weights: WeightFormat,
    /// Another seed gives other weights
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// Runs the command; `json` asks for the summary as an object.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) for an unknown name or a wrong config; else as [`write::forge::forge`].
pub fn forge(args: &ForgeArgs, json: bool) -> Result<()> {
    let shape = presets::find(&args.shape)?;
    let format = args.weights;
    let more = [("weights", json!(format.name())), ("seed", json!(args.seed))];
    write(&args.shape, &args.output, &more, json, |watch| {
        write::forge::forge(&shape, &args.output, format, args.seed, watch)
    })
}

/// Write a native INT8 or INT4 model directory.
#[derive(Debug, clap::Args)]
pub struct QuantizeArgs {
    /// Model directory to read (config.json, *.safetensors), or its name in the hub's cache [default: $KILN_MODEL]
    #[arg(short, long, value_name = "SRC")]
    pub model: Option<PathBuf>,
    /// Model directory to create
    #[arg(short, long, value_name = "DST")]
    pub output: PathBuf,
    /// Form of the matrices. Those that SRC has in a smaller form stay as they are
    #[arg(long, default_value = "int8", value_parser = weights_parser(WeightFormat::is_quantized))]
    pub weights: WeightFormat,
}

/// Runs the command; `json` asks for the summary as an object.
///
/// # Errors
/// Input: there is no source; else as [`write::quantize::quantize`].
pub fn quantize(args: &QuantizeArgs, json: bool) -> Result<()> {
    let model = ModelFiles::from(chosen(args.model.as_deref()));
    let source = model.directory()?;
    write(&source.display().to_string(), &args.output, &[], json, |watch| {
        write::quantize::quantize(source, &args.output, args.weights, watch)
    })
}

/// Makes, checks and puts in place bundles: a model's files with a manifest of their sums.
#[derive(Debug, clap::Args)]
pub struct BundleArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Copy a model's files into a new bundle
    Make {
        /// Model directory, GGUF file, or the model's name in the hub's cache [default: $KILN_MODEL]
        #[arg(short, long, value_name = "SRC")]
        model: Option<PathBuf>,
        /// Directory to create
        #[arg(short, long, value_name = "DST")]
        output: PathBuf,
        /// The model's name on servers [default: its own]
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        name: Option<String>,
    },
    /// Check each file of a bundle against its manifest
    Check {
        /// The bundle
        bundle: PathBuf,
    },
    /// Check a bundle, and make a link lead to it in the place of another, which LINK.previous keeps
    Use {
        /// The bundle
        bundle: PathBuf,
        /// The link, which servers have as their model
        link: PathBuf,
    },
}

/// Runs the command.
///
/// # Errors
/// Input: the model, the bundle or the link is not valid. Failed: a file cannot be written.
pub fn bundle(args: &BundleArgs, as_json: bool) -> Result<()> {
    match &args.what {
        What::Make { model, output, name } => make(model.as_deref(), output, name.as_deref(), as_json),
        What::Check { bundle } => {
            let manifest = check(bundle)?;
            let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
            if as_json {
                let (name, files) = (&manifest.name, manifest.files.len());
                return print_json(
                    &json!({"bundle": bundle.display().to_string(), "name": name, "files": files, "bytes": bytes}),
                );
            }
            let (files, size) = (counted(manifest.files.len(), "file"), crate::display::bytes(bytes));
            print(&format!("{} is whole: {}, {files}, {size}\n", bundle.display(), manifest.name))
        }
        What::Use { bundle, link } => {
            let manifest = check(bundle)?;
            let old = use_bundle(bundle, link)?;
            if as_json {
                let [link, bundle] = [link, bundle].map(|path| path.display().to_string());
                let old = old.map(|old| old.display().to_string());
                return print_json(&json!({"link": link, "bundle": bundle, "name": manifest.name, "previous": old}));
            }
            let before = old.map(|old| format!("; before it, {}", old.display())).unwrap_or_default();
            print(&format!("{} leads to {}{before}\n", link.display(), bundle.display()))
        }
    }
}

fn check(bundle: &Path) -> Result<Manifest> {
    signals::catch(signals::stops().iter().copied());
    Manifest::verify(bundle, &signals::cancel())
}

fn make(model: Option<&Path>, output: &Path, name: Option<&str>, as_json: bool) -> Result<()> {
    let model = ModelFiles::from(chosen(model));
    let Some(files) = model.to_bundle()? else {
        return Err(Error::input("the built-in model has no files to bundle", "give a model with -m"));
    };
    let tensors = TensorId::all(model.checkpoint()?.shape()).count();
    let name = name.map_or_else(|| model.name(), str::to_owned);
    write(&name.clone(), output, &[], as_json, |watch| write::bundle::bundle(name, &files, tensors, output, watch))
}

/// Runs a write and prints its summary on stdout. The summary is a line or, with `json`, an object of `source`,
/// `destination`, `tensors`, `bytes`, `seconds` and the keys of `more`. A progress bar shows on stderr if that is a
/// terminal.
///
/// A signal ends the write in an orderly way, and a second one ends the process at once.
fn write(
    source: &str,
    destination: &Path,
    more: &[(&str, Value)],
    json: bool,
    job: impl FnOnce(&WriteMonitor) -> Result<WriteSummary>,
) -> Result<()> {
    signals::catch(signals::stops().iter().copied());
    let style = "{bar:40} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
    let begin = Instant::now();
    let (written, seconds) = (watched(style, json, job)?, begin.elapsed().as_secs_f64());
    if json {
        let mut object = json!({
            "source": source,
            "destination": destination.display().to_string(),
            "tensors": written.tensors,
            "bytes": written.bytes,
            "seconds": seconds,
        });
        for (key, value) in more {
            object[*key] = value.clone();
        }
        return print_json(&object);
    }
    let (place, tensors) = (destination.display(), counted(written.tensors, "tensor"));
    print(&format!("wrote {place}: {tensors}, {}\n", moved(written.bytes, seconds)))
}

/// Runs a write with a progress bar, until it is done or a signal ends it.
pub(super) fn watched<T>(style: &str, json: bool, job: impl FnOnce(&WriteMonitor) -> T) -> T {
    let bar = progress::bar(None, style, json);
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let done = job(&WriteMonitor { progress: &progress, cancel: &signals::cancel() });
    bar.finish_and_clear();
    done
}
