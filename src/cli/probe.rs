//! `kiln probe`: describes this machine, finds what is wrong with it, and measures it.

use super::model::{ModelArgs, Npu};
use super::progress::{self, LiveBar};
use super::{face, print, print_json};
use crate::diagnose::probe::{Report, Request, Wanted, run as probe};
use crate::engine::{Device, ModelFiles, Options};
use crate::machine::files::Files;
use crate::model::Shape;
use crate::vulkan::Choice;
use crate::{Error, Result};
use std::fmt::Write;

/// Checks GPU, NPU, memory sharing and system, and measures what the device reaches. With -m, --ctx or --weights,
/// whether the model fits.
#[derive(Debug, Clone, clap::Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Leave out what is measured
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
///
/// # Errors
/// Input: the model is wrong. Failed: no Vulkan device, or not the chosen one, can run Kiln, or the model does not fit;
/// the checks are printed all the same. Device: an NPU is required.
pub fn run(args: &ProbeArgs, json: bool) -> Result<()> {
    args.model.check_npu()?;
    let shape = read_shape(&args.model)?;
    let model = args.model.files();
    let name = model.name();
    // Settings that are wrong on any machine are refused before this one is checked.
    shape.as_ref().map(|shape| args.model.options().extent(shape)).transpose()?;
    let files = Files::system();
    let request = Request {
        files: &files,
        vulkan: match args.model.device {
            Device::Cpu | Device::Reference => None,
            Device::Vulkan(n) => Some(n.map_or(Choice::Best, Choice::Index)),
            Device::Auto => Some(Choice::Best),
        },
        auto: args.model.device == Device::Auto,
        measure: !args.quick,
        npu: (args.model.npu != Npu::Off).then_some(args.model.npu_api.api()),
        model: shape.as_ref().map(|shape| Wanted { name: &name, shape, files: &model, options: args.model.options() }),
    };
    let bar = progress::is_shown(json).then(LiveBar::spinner);
    let report = probe(&request, &|what| bar.iter().for_each(|bar| bar.say(what)));
    drop(bar);
    match json {
        true => print_json(&report.to_json(&face::words))?,
        false => print(&to_text(&report))?,
    }
    conclude(&report)
}

/// Shape of the model to check: the one given, or the built-in model if options for loading are given.
fn read_shape(args: &ModelArgs) -> Result<Option<Shape>> {
    let is_asked =
        args.files() != ModelFiles::BuiltIn || args.ctx.is_some() || args.weights != Options::default().weights;
    is_asked.then(|| args.files().shape()).transpose()
}

/// The command's result: an error if Kiln or the model cannot run.
fn conclude(report: &Report) -> Result<()> {
    if let Some((chosen, others)) = report.instead() {
        return Err(Error::failed(
            format!("Kiln cannot run on vulkan:{chosen}, which was chosen"),
            format!("choose another with --device: {others}"),
        ));
    }
    if report.device.is_none() {
        return Err(Error::failed(
            "no Vulkan device can run Kiln",
            "see the failed checks above for what each lacks; `--device cpu` runs on the CPU, slowly",
        ));
    }
    match report.unfit() {
        Some(check) => Err(Error::failed(check.evidence.clone(), check.remedy.clone().unwrap_or_default())),
        None => Ok(()),
    }
}

fn to_text(report: &Report) -> String {
    let mut t = String::new();
    let width = report.checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    for c in &report.checks {
        // Writing to a String cannot fail.
        let _ = writeln!(t, "{:<4}  {:<width$}  {}", c.verdict.name(), c.name, face::words(&c.evidence));
        if let Some(remedy) = &c.remedy {
            let _ = writeln!(t, "      {:<width$}  -> {}", "", face::words(remedy));
        }
    }
    let _ = writeln!(t, "\n{}", report.summary());
    t
}
