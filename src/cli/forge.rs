//! `kiln forge`: a synthetic checkpoint at full size.

use crate::model::write::forge;
use std::path::PathBuf;

use serde_json::json;

use crate::Result;
use crate::model::{WeightFormat, presets};

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
    #[arg(long, default_value = "int8", value_parser = super::model::weights_parser(|_| true, false))]
    pub weights: WeightFormat,
    /// Another seed gives other weights
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
}

/// Runs the command; `json` asks for the summary as an object.
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) for an unknown name or a wrong config; else as [`forge::forge`].
pub fn run(args: &ForgeArgs, json: bool) -> Result<()> {
    let shape = presets::find(&args.shape)?;
    let format = args.weights;
    let more = [("weights", json!(format.name())), ("seed", json!(args.seed))];
    super::job::run(&args.shape, &args.output, &more, json, |watch| {
        forge::forge(&shape, &args.output, format, args.seed, watch)
    })
}
