//! `kiln pull`: downloads a model of the Hugging Face hub into its cache, and exports it to a plain folder.

use super::{note, print, print_json, progress, signals};
use crate::display::{bytes, counted};
use crate::hub::export::{SUMS, export};
use crate::hub::name::HubName;
use crate::hub::pull::{PullSettings, PullWatch, Pulled, pull};
use crate::hub::{Cache, Cached};
use crate::{Cancel, Error, Result};
use indicatif::ProgressBar;
use serde_json::json;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Downloads a model into the hub's cache, where other tools find it too.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/pull.txt"))]
pub struct PullArgs {
    /// The model: ORG/NAME, ORG/NAME:QUANT for the GGUF file of a type, or ORG/NAME/FILE
    #[arg(value_name = "MODEL")]
    name: String,
    /// Copy the model's files into this folder, with their sums, for a machine without a network; files in the cache
    /// are not downloaded again
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// As [`pull`] and [`export`]. Input: the name is not a model's.
pub fn run(args: &PullArgs, as_json: bool) -> Result<()> {
    let Some(name) = HubName::parse(&args.name) else {
        let cause = format!("{:?} names no model of the hub", args.name);
        return Err(Error::input(cause, "give ORG/NAME, ORG/NAME:QUANT or ORG/NAME/FILE"));
    };
    signals::catch(signals::stops().iter().copied());
    let begin = Instant::now();
    let watch = TerminalWatch::new(as_json);
    let here = args.export.as_ref().and_then(|_| Cache::of_user()?.find(&name).ok());
    let pulled = match here {
        Some(model) => Pulled {
            path: model.path.clone(),
            bytes: model.bytes(),
            files: model.files,
            model: Some(model.name),
            fetched: 0,
        },
        None => pull(&name, &PullSettings::of_user()?, &watch)?,
    };
    watch.bar.finish_and_clear();
    let copy = args.export.as_deref().map(|dir| copy(&name, &pulled, dir, as_json)).transpose()?;
    let seconds = begin.elapsed().as_secs_f64();
    let path = copy.as_ref().unwrap_or(&pulled.path);
    if as_json {
        let files: Vec<String> = pulled.files.iter().map(|file| file.display().to_string()).collect();
        return print_json(&json!({
            "model": pulled.model.map(|model| model.to_string()), "path": pulled.path.display().to_string(), "files": files,
            "bytes": pulled.bytes, "fetched": pulled.fetched, "seconds": seconds,
            "export": copy.map(|copy| copy.display().to_string()),
        }));
    }
    print(&format!("{}\n", path.display()))?;
    note(&summary(&pulled, args.export.as_deref(), path, seconds));
    Ok(())
}

fn copy(name: &HubName, pulled: &Pulled, dir: &Path, as_json: bool) -> Result<PathBuf> {
    let model = Cached {
        name: pulled.model.clone().unwrap_or_else(|| name.clone()),
        path: pulled.path.clone(),
        files: pulled.files.clone(),
    };
    let style = "copying {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}";
    super::write::watched(style, as_json, |monitor| export(&model, dir, monitor))
}

/// The result, and a command to continue with.
fn summary(pulled: &Pulled, export: Option<&Path>, path: &Path, seconds: f64) -> String {
    let (files, size) = (counted(pulled.files.len(), "file"), bytes(pulled.bytes));
    let done = match (pulled.fetched, export) {
        (_, Some(dir)) => format!(
            "{files}, {size}, copied and read back; `sha256sum -c {SUMS}` in {} checks them again",
            dir.display()
        ),
        (0, None) => format!("{files}, {size}, were here already"),
        (fetched, None) => format!("{files}, {size}; {} came in {seconds:.0} s", bytes(fetched)),
    };
    let next = match (&pulled.model, export) {
        (None, _) => String::new(),
        (Some(_), Some(_)) => format!("\nkiln: next: kiln run -m {}", path.display()),
        (Some(model), None) => format!("\nkiln: next: kiln run -m {model}"),
    };
    format!("kiln: {done}{next}")
}

/// Shows a download on the terminal.
struct TerminalWatch {
    bar: ProgressBar,
    has_begun: Cell<bool>,
    cancel: Cancel,
}

impl TerminalWatch {
    fn new(as_json: bool) -> TerminalWatch {
        let style = "{wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
        TerminalWatch {
            bar: progress::bar(Some(0), style, as_json),
            has_begun: Cell::new(false),
            cancel: signals::cancel(),
        }
    }
}

impl PullWatch for TerminalWatch {
    fn progress(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        if !self.has_begun.replace(true) {
            // Earlier bytes must not count in the rate.
            self.bar.reset_eta();
        }
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| note(&format!("kiln: {line}")));
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}
