//! `kiln list`: the models in the hub's cache, and whether they fit here.

use super::column::column;
use super::{print, print_json};
use crate::diagnose::forecast::form::ModelForm;
use crate::display::{bytes, plain};
use crate::engine::{self, Device, ModelFiles, Opened};
use crate::hub::{Cache, Cached};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::path::Path;

/// Lists the models in the hub's cache.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/list.txt"))]
pub struct ListArgs {
    /// Whether they fit this device: auto, vulkan, vulkan:N, amdgpu, amdgpu:N, cpu
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: Device,
    /// Print the names alone, one a line, for scripts and completions
    #[arg(long)]
    names: bool,
}

/// The widest column of reasons why a model does not run here.
const MOST_WIDE: usize = 40;

/// One model of the list.
struct Line {
    model: Cached,
    bytes: u64,
    /// The format of most of its files' bytes, and the bytes needed to load it here; or why it cannot be loaded.
    read: std::result::Result<(&'static str, Result<u64>), String>,
}

impl Line {
    fn of(model: Cached, opened: &Opened) -> Line {
        let (bytes, read) = (model.bytes(), read(&model, opened));
        Line { model, bytes, read }
    }

    fn weights(&self) -> &str {
        self.read.as_ref().map_or("", |(weights, _)| weights)
    }

    /// A few words on whether the model fits.
    fn fits(&self) -> String {
        match &self.read {
            Ok((_, Ok(_))) => "fits".into(),
            Ok((_, Err(_))) => "too large".into(),
            Err(why) => why.clone(),
        }
    }

    fn to_json(&self) -> Value {
        let read = self.read.as_ref().ok();
        let needs = read.and_then(|(_, needs)| needs.as_ref().ok());
        let reason = match &self.read {
            Ok((_, Ok(_))) => None,
            Ok((_, Err(e))) => Some(e.parts().0.to_string()),
            Err(why) => Some(why.clone()),
        };
        json!({
            "name": self.model.name.to_string(), "path": self.model.path.display().to_string(), "bytes": self.bytes,
            "weights": read.map(|(weights, _)| weights), "fits": read.map(|(_, needs)| needs.is_ok()), "needs": needs,
            "reason": reason,
        })
    }
}

/// Runs the command.
///
/// # Errors
/// Input: there is no home directory. Device: there is no such device.
pub fn run(args: &ListArgs, as_json: bool) -> Result<()> {
    let Some(cache) = Cache::of_user() else {
        return Err(Error::input("there is no home directory with a cache of the Hugging Face hub", "set HF_HOME"));
    };
    let models = cache.models();
    if args.names {
        let names: Vec<String> = models.iter().map(|model| model.name.to_string()).collect();
        return match as_json {
            true => print_json(&json!({ "names": names })),
            false => print(&names.iter().map(|name| format!("{name}\n")).collect::<String>()),
        };
    }
    let partials = cache.partials();
    let opened = engine::open(args.device)?;
    let lines: Vec<Line> = models.into_iter().map(|model| Line::of(model, &opened)).collect();
    if as_json {
        let partials = partials.iter().map(|(repo, path, bytes)| {
            json!({"repository": repo.to_string(), "path": path.display().to_string(), "bytes": bytes})
        });
        return print_json(&json!({
            "cache": cache.root().display().to_string(), "device": opened.memory()?.device,
            "models": lines.iter().map(Line::to_json).collect::<Vec<_>>(), "partial": partials.collect::<Vec<_>>(),
        }));
    }
    let mut text = table(&lines, cache.root());
    for (repo, _, length) in &partials {
        text += &format!("{} of a download of {repo} that was cut off; `kiln pull` goes on with it\n", bytes(*length));
    }
    if lines.is_empty() && partials.is_empty() {
        text = format!("{} has no model; `kiln pull ORG/NAME` downloads one\n", cache.root().display());
    }
    print(&text)
}

/// A model's format, and whether it fits.
fn read(model: &Cached, opened: &Opened) -> std::result::Result<(&'static str, Result<u64>), String> {
    if let Some(missing) = model.missing() {
        let name = missing.file_name().unwrap_or_default().to_string_lossy();
        return Err(format!("{} is missing", plain(&name)));
    }
    let files = ModelFiles::from(Some(model.path.clone()));
    let short = |e: Error| {
        let why = plain(&e.parts().0.to_string());
        match why.split_once(" is of another ") {
            Some((_, other)) => format!("of another {other}"),
            None => why.replace(&model.path.display().to_string(), "it"),
        }
    };
    let weights = files.checkpoint().map_err(short)?.source().name();
    match ModelForm::fit_on(opened, &files) {
        Err(e @ Error::Refused { .. }) => Ok((weights, Err(e))),
        Err(e) => Err(short(e)),
        Ok(needs) => Ok((weights, Ok(needs))),
    }
}

fn table(lines: &[Line], root: &Path) -> String {
    let write = column(lines.iter().map(|line| line.bytes));
    let width = |of: &dyn Fn(&Line) -> usize, head: &str| lines.iter().map(of).max().unwrap_or(0).max(head.len());
    let name = width(&|line| line.model.name.to_string().len(), "name");
    let weights = width(&|line| line.weights().len(), "weights");
    let fits = width(&|line| line.fits().chars().count().min(MOST_WIDE), "here");
    let line = |words: [&str; 5]| {
        let [own, format, size, here, file] = words;
        format!("{own:name$}  {format:weights$}  {size:>9}  {here:fits$}  {file}\n")
    };
    let mut text = String::new();
    if !lines.is_empty() {
        text += &line(["name", "weights", "size", "here", &format!("file below {}", root.display())]);
    }
    for model in lines {
        let path = model.model.path.strip_prefix(root).unwrap_or(&model.model.path).display().to_string();
        let (own, size) = (model.model.name.to_string(), write(model.bytes));
        text += &line([&own, model.weights(), &size, &model.fits(), &path]);
    }
    text
}
