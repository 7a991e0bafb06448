//! `kiln plan`: whether a model fits, the rates the machine allows, the use of memory, and the schedule.

mod table;

use super::model::{ModelArgs, file_weights_parser};
use super::terminal::{BAD, GOOD, painted};
use super::{face, output_columns, print_in_color, print_json};
use crate::diagnose::forecast::machine::MOST_RAM;
use crate::diagnose::forecast::{ForecastOptions, ForecastView};
use crate::engine::Options;
use crate::machine::profile::THIS;
use crate::{Error, Result};

/// Plans a model for a machine; of a model directory, config.json and the headers of the weights are read.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_arg("weights", with_mixes))]
pub struct PlanArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Plan a model by name, or by its config.json, without its directory
    #[arg(help_heading = "Model", long, value_name = "NAME|FILE", conflicts_with = "model")]
    shape: Option<String>,
    /// The machine to plan for: this, 780m, 890m or 8060s; with GiB of carve-out as in 780m:4
    #[arg(help_heading = "Machine", long, default_value = THIS, value_name = "MACHINE")]
    machine: String,
    /// GiB of RAM of a machine by name, its carve-out included: 32, 32GB and 32GiB are the same [default: 96 of a 780m,
    /// 64 of an 890m, 128 of an 8060s]
    #[arg(help_heading = "Machine", long, value_name = "N", value_parser = parse_ram)]
    ram: Option<u64>,
    /// Sequences at once
    #[arg(help_heading = "Sequences", long, default_value_t = 1, value_name = "N")]
    batch: usize,
    /// Tokens that the KV cache has room for, of all sequences together [default: all of their contexts, or as many as
    /// fit]
    #[arg(help_heading = "Sequences", long, value_name = "N")]
    kv_tokens: Option<usize>,
    /// Plan a smaller model beside it that drafts, by name, by its config.json, as -m, or demo
    #[arg(help_heading = "Drafts", long, value_name = "NAME|MODEL")]
    draft: Option<String>,
    /// Print every step of a decode pass with its operands' sizes, bytes and operations
    #[arg(long)]
    schedule: bool,
}

/// Extends `--weights` by the mixes of files.
fn with_mixes(weights: clap::Arg) -> clap::Arg {
    let help =
        "Form of the matrices on the device; with --shape also the mix of types of a GGUF file, as llama.cpp makes it";
    weights.value_parser(file_weights_parser()).ignore_case(true).help(help)
}

/// Runs the command.
///
/// # Errors
/// Input: the model is wrong, the machine is unknown, or a mix was given for a model with files. Refused: it does not
/// fit. Device: this machine has no such device, or an NPU is required and missing.
pub fn run(args: &PlanArgs, json: bool) -> Result<()> {
    if args.machine == THIS {
        args.model.check_npu()?;
    }
    let mix = args.model.weights.mix();
    if let Some(mix) = mix.filter(|_| args.shape.is_none()) {
        let cause = format!("{} is a mix of types of a file, and a model's files have their own", mix.name);
        return Err(Error::input(cause, "leave out --weights, or name a --shape"));
    }
    let asked = ForecastOptions {
        files: args.model.files(),
        shape: args.shape.clone(),
        mix,
        machine: args.machine.clone(),
        ram: args.ram,
        draft: args.draft.clone(),
        options: Options { sequences: args.batch, kv_tokens: args.kv_tokens, ..args.model.options() },
        with_schedule: args.schedule,
    };
    let view = ForecastView::of(&asked, &face::words)?;
    match json {
        true => print_json(&view.to_json())?,
        false => print_in_color(&table::of(&view, output_columns()), painted_verdict)?,
    }
    view.placed.map(drop)
}

/// A line of the tables, with the verdict in colour.
fn painted_verdict(line: &str) -> String {
    let verdicts = [("fits;", GOOD), ("does not fit:", BAD)];
    let found = verdicts.iter().find_map(|(verdict, style)| Some((*verdict, *style, line.strip_prefix(verdict)?)));
    found.map_or(line.to_owned(), |(verdict, style, rest)| format!("{}{rest}", painted(style, verdict, true)))
}

/// Parses GiB of RAM. Modules sold as 16 GB have 16 GiB, so both units mean the same.
///
/// # Errors
/// The fault of the word.
fn parse_ram(word: &str) -> std::result::Result<u64, String> {
    let lower = word.trim().to_ascii_lowercase();
    let number = ["gib", "gb", "g"].into_iter().find_map(|unit| lower.strip_suffix(unit)).unwrap_or(&lower);
    let gib = number.trim_end().parse().ok().filter(|gib| (1..=MOST_RAM).contains(gib));
    gib.ok_or_else(|| format!("it is no whole number of GiB from 1 to {MOST_RAM}, as in 32 or 32GB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_is_a_whole_number_of_gib_by_any_of_its_names() {
        for word in ["32", "32GiB", "32GB", "32G", "32 GiB", "32gb", " 32 "] {
            assert_eq!(parse_ram(word), Ok(32), "{word}");
        }
        for word in
            ["", "x", "GiB", "0", "-1", "1.5", "32MB", "32TB", "1025", "99999999999999999999", "0x20", "NaN", "32GBGB"]
        {
            assert!(parse_ram(word).is_err_and(|said| said.contains("32GB")), "{word}");
        }
    }
}
