//! `kiln probe`: describes this machine, finds faults, and measures it.

use super::model::{ModelArgs, NpuArg};
use super::progress::{self, LiveBar};
use super::terminal::{BAD, GOOD, WARN, painted};
use super::wrap::{entry, wrapped};
use super::{face, note, output_columns, print_in_color, print_json};
use crate::diagnose::forecast::{ForecastOptions, ForecastView};
use crate::diagnose::probe::{ProbeOptions, ProbeReport, Wanted, run as probe};
use crate::diagnose::report;
use crate::engine::{Device, ModelFiles, Options};
use crate::machine::files::Files;
use crate::machine::profile::THIS;
use crate::model::Shape;
use crate::{Error, Result};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Checks GPU, NPU, memory sharing and system, and measures the device's rates. With -m, --ctx or --weights,
/// whether the model fits.
#[derive(Debug, Clone, clap::Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Leave out the measurements
    #[arg(long)]
    quick: bool,
    /// Wake GPUs up that are asleep (`--device vulkan` and `amdgpu` do too): otherwise neither they nor Vulkan are asked
    #[arg(long)]
    wake: bool,
    /// Write all of it to a new file for a helper elsewhere, with a plan of the model, the kernel's words on
    /// GPU and NPU, and Kiln's files here; names of users and machines are taken out
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Input: the model is wrong. Failed: no GPU, or not the chosen one, can run Kiln, or the model does not fit;
/// the checks are printed all the same. Device: an NPU is required.
pub fn run(args: &ProbeArgs, json: bool) -> Result<()> {
    args.model.check_npu()?;
    // Checked before the machine is measured.
    if let Some(path) = args.report.as_deref().filter(|path| path.symlink_metadata().is_ok()) {
        return Err(report::taken(path));
    }
    let shape = read_shape(&args.model)?;
    let model = args.model.files();
    let name = model.name();
    // Settings that are wrong on every machine are refused first.
    shape.as_ref().map(|shape| args.model.options().extent(shape)).transpose()?;
    let files = Files::system();
    let request = ProbeOptions {
        files: &files,
        device: args.model.device,
        measure: !args.quick,
        npu: (args.model.npu != NpuArg::Off).then_some(args.model.npu_api),
        wakes: args.wake || !(args.model.device == Device::Auto || args.model.device.is_host()),
        model: shape.as_ref().map(|shape| Wanted { name: &name, shape, files: &model, options: args.model.options() }),
    };
    let bar = progress::is_shown(json).then(LiveBar::spinner);
    let report = probe(&request, &|what| bar.iter().for_each(|bar| bar.say(what)));
    if let Some(path) = &args.report {
        bar.iter().for_each(|bar| bar.say("the report"));
        write_report(path, &files, &report, &args.model)?;
    }
    drop(bar);
    match json {
        true => print_json(&report.to_json(&face::words))?,
        false => print_in_color(&to_text(&report, output_columns()), painted_check)?,
    }
    conclude(&report)
}

/// Writes the file for `--report`.
///
/// # Errors
/// Input: the file exists already. Failed: it cannot be written.
fn write_report(path: &Path, files: &Files, report: &ProbeReport, model: &ModelArgs) -> Result<()> {
    let asked = ForecastOptions {
        files: model.files(),
        shape: None,
        mix: None,
        machine: THIS.into(),
        ram: None,
        draft: None,
        options: model.options(),
        with_schedule: false,
    };
    // A plan of this machine would ask Vulkan as well.
    let plan = check_known(report).and_then(|()| ForecastView::of(&asked, &face::words));
    let plan = plan.map_or_else(|e| face::object(&e), |view| view.to_json());
    let whole = report::gather(files, report.to_json(&face::words), plan);
    let text = serde_json::to_string_pretty(&whole);
    let text = text.map_err(|e| Error::failed(format!("the report is no JSON: {e}"), "report this"))? + "\n";
    let mut file = report::create_new(path)?;
    file.write_all(text.as_bytes()).map_err(|e| {
        // An incomplete report is of no use.
        let _ = std::fs::remove_file(path);
        Error::unwritable(path, &e)
    })?;
    note(&format!("kiln: the report is in {}; look at it before you give it away", path.display()));
    Ok(())
}

/// The shape of the model to check: the given one, or the built-in model's if loading options are given.
fn read_shape(args: &ModelArgs) -> Result<Option<Shape>> {
    let is_asked =
        args.files() != ModelFiles::BuiltIn || args.ctx.is_some() || args.weights.made() != Options::default().weights;
    is_asked.then(|| args.files().shape()).transpose()
}

/// An error if a GPU was left asleep.
fn check_known(report: &ProbeReport) -> Result<()> {
    report.unknown().map_or(Ok(()), |(cause, remedy)| Err(Error::failed(cause, remedy)))
}

/// The command's result: an error if Kiln or the model cannot run here, or if that is unknown.
fn conclude(report: &ProbeReport) -> Result<()> {
    check_known(report)?;
    if let Some((chosen, others)) = report.instead() {
        return Err(Error::failed(
            format!("Kiln cannot run on {chosen}, which was chosen"),
            format!("choose another with --device: {others}"),
        ));
    }
    if report.device.is_none() {
        return Err(Error::failed(
            "no GPU can run Kiln",
            "see the failed checks above for what each lacks; `--device cpu` runs on the CPU, slowly",
        ));
    }
    match report.unfit() {
        Some(check) => Err(Error::failed(check.evidence.clone(), check.remedy.clone().unwrap_or_default())),
        None => Ok(()),
    }
}

/// A line of the text, with its verdict in colour.
fn painted_check(line: &str) -> String {
    let verdict = line.split("  ").next().unwrap_or_default();
    let style = match verdict.trim_end() {
        "ok" => GOOD,
        "warn" => WARN,
        "fail" => BAD,
        _ => return line.to_owned(),
    };
    format!("{}{}", painted(style, verdict, true), &line[verdict.len()..])
}

/// The checks as text, wrapped at `columns`.
fn to_text(report: &ProbeReport, columns: usize) -> String {
    let mut t = String::new();
    let width = report.checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    for c in &report.checks {
        // Writing to a String cannot fail.
        let name = format!("{:<4}  {}", c.verdict.name(), c.name);
        let _ = writeln!(t, "{}", entry(&name, width + 8, &face::words(&c.evidence), columns));
        if let Some(remedy) = &c.remedy {
            let remedy = format!("-> {}", face::words(remedy));
            let _ = writeln!(t, "{}", entry("", width + 8, &remedy, columns).trim_start_matches('\n'));
        }
    }
    let _ = writeln!(t, "\n{}", wrapped(&report.summary(), columns));
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_gpu_was_left_asleep_it_is_not_concluded_that_none_can_run_kiln() {
        let asleep = vec!["renderD128".to_owned()];
        let report = ProbeReport {
            checks: Vec::new(),
            choice: Device::Cpu,
            device: None,
            fit: Vec::new(),
            on_cpu: false,
            asleep,
        };
        let e = conclude(&report).unwrap_err();
        assert_eq!(
            (face::line(&e).as_str(), e.exit_code()),
            (
                "whether Kiln can run here is not known: Vulkan was not asked, which would wake renderD128 up; ask again \
                 with --wake",
                1
            )
        );
    }
}
