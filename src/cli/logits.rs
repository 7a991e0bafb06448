//! `kiln logits`: the logits of a list of tokens, and the hidden rows.

use super::model::{ModelArgs, one_of};
use super::{print, print_json, signals};
use crate::engine::{ModelFiles, OffloadKind};
use crate::executor::{ExecutorExt, HeadRows, Measure, Row};
use crate::machine::partial::PartialFile;
use crate::machine::regular::{self, Links};
use crate::model::write::header;
use crate::sequence::chooser::not_finite;
use crate::sequence::{SequenceLimits, Session};
use crate::text::parse_ids;
use crate::{Error, Result};
use serde_json::json;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Runs the tokens and prints the last position's logits.
#[derive(Debug, Clone, clap::Args)]
pub struct LogitsArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids, taken verbatim
    #[arg(help_heading = "Input and output", long, value_name = "IDS", allow_hyphen_values = true)]
    tokens: String,
    /// Every position's logits into --out, not only the last's
    #[arg(help_heading = "Input and output", long, requires = "out")]
    all: bool,
    /// Rows of a prefill pass; 1: token by token [default: 512, or the context if smaller]
    #[arg(help_heading = "Input and output", long, value_name = "N")]
    chunk: Option<usize>,
    /// Executor that attends in place of a Vulkan device, between its submits
    #[arg(long, value_name = "EXECUTOR", hide = true, value_parser = one_of(&GUESTS))]
    guest: Option<OffloadKind>,
    /// Write F32 tensors `logits` [n or 1, vocab] and `hidden` [layers + 2, hidden_size] here
    #[arg(help_heading = "Input and output", long, value_name = "F.safetensors")]
    out: Option<PathBuf>,
}

/// Values of `--guest`.
const GUESTS: [(&str, OffloadKind, &str); 2] =
    [("reference", OffloadKind::Reference, "The formulas"), ("cpu", OffloadKind::Cpu, "The CPU executor's kernels")];
/// Rows of logits per pass with --all.
const HEAD_ROWS: usize = 8;

/// Runs the command.
///
/// # Errors
/// Input: the model or the ids are wrong. Failed: the output cannot be written. Refused, Device: as for loading.
/// Interrupted: a signal stopped it.
pub fn run(args: &LogitsArgs, json: bool) -> Result<()> {
    let ids = parse_ids(&args.tokens)?;
    let checkpoint = args.model.files().checkpoint()?;
    let head_rows = if args.all { HEAD_ROWS } else { 1 };
    // A larger chunk than the prompt would only take memory.
    let chunk = args.chunk.map(|c| c.min(ids.len().max(1)));
    let options = crate::engine::Options { chunk, head_rows, offload: args.guest, ..args.model.options() };
    let context = options.extent(checkpoint.shape())?.context;
    SequenceLimits { shape: checkpoint.shape(), context }.check(0, &ids)?;
    // From here on an output file may have to be removed.
    signals::catch(signals::stops().iter().copied());
    let path = args.out.as_deref().map(|path| replaced(path, &args.model.files())).transpose()?;
    let mut out = path.as_deref().map(|path| LogitsFile::create(path, &checkpoint, &ids, args.all)).transpose()?;
    let mut executor = args.model.load(&checkpoint, &options, json)?;
    drop(checkpoint);

    let mut session = Session::new(0, executor.schedule().extent.context);
    let mut hidden: Vec<f32> = Vec::new();
    let mut last_row = 0;
    session.prefill_with(executor.as_mut(), &ids, &mut |executor, rows, last| {
        last_row = rows.len() - 1;
        let head = last.then_some(HeadRows { first: last_row, count: 1 });
        match last && args.out.is_some() {
            true => executor.forward_watched(rows, head, &mut |_, row| hidden.extend_from_slice(row))?,
            false => executor.forward(rows, head)?,
        }
        match &mut out {
            Some(out) if args.all => write_all(executor, rows, out),
            Some(out) if last => out.write(executor.logits(0)?),
            _ => Ok(()),
        }
    })?;
    if let Some(mut out) = out {
        out.write(&hidden)?;
        out.finish()?;
    }
    if args.all {
        executor.project(HeadRows { first: last_row, count: 1 })?;
    }
    let device = executor.device().to_owned();
    if !executor.logits(0)?.iter().all(|x| x.is_finite()) {
        return Err(not_finite(executor.as_ref()));
    }
    let logits = executor.logits(0)?;
    let position = ids.len() - 1;
    if json {
        return print_json(&json!({
            "device": device,
            "vocab": logits.len(),
            "position": position,
            "logits": logits,
        }));
    }
    print(&top(&device, position, logits))
}

fn write_all(executor: &mut dyn Measure, rows: &[Row], out: &mut LogitsFile) -> Result<()> {
    let step = executor.schedule().extent.head_rows;
    for first in (0..rows.len()).step_by(step) {
        let count = step.min(rows.len() - first);
        executor.project(HeadRows { first, count })?;
        for r in 0..count {
            out.write(executor.logits(r)?)?;
        }
    }
    Ok(())
}

/// The ten likeliest tokens as text.
fn top(device: &str, position: usize, logits: &[f32]) -> String {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_unstable_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let mut text = format!("position {position}, {} logits, on {device}\n      id     logit\n", logits.len());
    for &id in order.iter().take(10) {
        text += &format!("{id:>8} {:>9.4}\n", logits[id]);
    }
    text
}

/// The path that writing to `path` would replace: a regular file, with links followed, or nothing. Refuses a device
/// node, a pipe or a socket, because replacing it would break it for all its users. Refuses a file of the model, and
/// any other file that this command has not written.
fn replaced(path: &Path, model: &ModelFiles) -> Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(found) if !found.is_file() => {
            let what = format!("{} is no regular file", path.display());
            Err(Error::input(what, "give --out the path of a file to write"))
        }
        Ok(found) if is_part_of(model, &found) => {
            let what = format!("{} is a file of the model itself", path.display());
            Err(Error::input(what, "give --out another path"))
        }
        Ok(found) if !is_replaceable(&found) => {
            let what = format!("{} is there, and has no logits of an earlier run", path.display());
            Err(Error::input(what, "give --out another path, or remove it"))
        }
        Ok(found) => Ok(found),
        Err(_) => Ok(path.into()),
    }
}

/// True if a file is empty, or was written by this command before, so that it may be replaced.
fn is_replaceable(path: &Path) -> bool {
    /// The longest header in bytes, with a margin.
    const MOST: u64 = 4096;
    let read = || {
        let (mut file, length) = regular::open(path, Links::Follow).ok()?;
        if length == 0 {
            return Some(true);
        }
        let mut size = [0; 8];
        file.read_exact(&mut size).ok()?;
        let size = Some(u64::from_le_bytes(size)).filter(|size| *size <= MOST)?;
        let mut header = Vec::new();
        file.take(size).read_to_end(&mut header).ok()?;
        let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&header).ok()?;
        Some(header.keys().all(|name| ["logits", "hidden", "__metadata__"].contains(&name.as_str())))
    };
    read().unwrap_or(false)
}

/// True if `file` is one of the model's files, by whatever path.
fn is_part_of(model: &ModelFiles, file: &Path) -> bool {
    let files = model.to_bundle().ok().flatten().unwrap_or_default();
    files.iter().any(|(path, _)| super::is_same_file(path, file))
}

/// A safetensors file written from front to back, so that the logits need not all be in memory. It gets its name when
/// it is complete.
struct LogitsFile {
    path: PathBuf,
    file: BufWriter<PartialFile>,
}

impl LogitsFile {
    fn create(path: &Path, checkpoint: &crate::model::Checkpoint, ids: &[u32], all: bool) -> Result<LogitsFile> {
        let shape = checkpoint.shape();
        let (rows, layers) = (if all { ids.len() } else { 1 }, shape.layers.len() + 2);
        let header = header::encode_f32(&[("logits", &[rows, shape.vocab]), ("hidden", &[layers, shape.hidden])])?;
        let file = PartialFile::create(path, 0o666).map_err(|e| Error::unwritable(path, &e.kind().into()))?;
        let mut out = LogitsFile { path: path.into(), file: BufWriter::new(file) };
        out.put(&header)?;
        Ok(out)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::unwritable(&self.path, &e))
    }

    fn write(&mut self, values: &[f32]) -> Result<()> {
        self.put(bytemuck::cast_slice(values))
    }

    fn finish(self) -> Result<()> {
        let file = self.file.into_inner().map_err(|e| Error::unwritable(&self.path, e.error()))?;
        file.commit(&self.path).map_err(|e| Error::unwritable(&self.path, &e))
    }
}
