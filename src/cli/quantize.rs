//! `kiln quantize`: a native INT8 model directory from any checkpoint.

use std::path::PathBuf;

use crate::Result;
use crate::model::WeightFormat;
use crate::model::write::quantize;

/// Write a native INT8 model directory.
#[derive(Debug, clap::Args)]
pub struct QuantizeArgs {
    /// Model directory to read (config.json, *.safetensors)
    #[arg(short, long, value_name = "SRC")]
    pub model: PathBuf,
    /// Model directory to create
    #[arg(short, long, value_name = "DST")]
    pub output: PathBuf,
    /// Form of the matrices
    #[arg(long, default_value = "int8", value_parser = super::model::weights_parser(WeightFormat::is_quantized, false))]
    pub weights: WeightFormat,
}

/// Runs the command; `json` asks for the summary as an object.
///
/// # Errors
/// As [`quantize::quantize`].
pub fn run(args: &QuantizeArgs, json: bool) -> Result<()> {
    super::job::run(&args.model.display().to_string(), &args.output, &[], json, |watch| {
        quantize::quantize(&args.model, &args.output, args.weights, watch)
    })
}
