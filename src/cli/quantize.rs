//! `kiln quantize`: a native INT8 or INT4 model directory from any checkpoint.

use std::path::PathBuf;

use crate::Result;
use crate::engine::ModelFiles;
use crate::model::WeightFormat;
use crate::model::write::quantize;

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
    #[arg(long, default_value = "int8", value_parser = super::model::weights_parser(WeightFormat::is_quantized, false))]
    pub weights: WeightFormat,
}

/// Runs the command; `json` asks for the summary as an object.
///
/// # Errors
/// Input: there is no source; else as [`quantize::quantize`].
pub fn run(args: &QuantizeArgs, json: bool) -> Result<()> {
    let model = ModelFiles::from(super::model::chosen(args.model.as_deref()));
    let source = model.directory()?;
    super::job::run(&source.display().to_string(), &args.output, &[], json, |watch| {
        quantize::quantize(source, &args.output, args.weights, watch)
    })
}
