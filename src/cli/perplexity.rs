//! `kiln perplexity`: how well a model predicts a text.

use super::model::ModelArgs;
use super::{note, print, print_json, read_file};
use crate::diagnose::perplexity::{DEFAULT_WINDOW, HEAD_ROWS, check, measure};
use crate::diagnose::status::Reporter;
use crate::engine::{DEFAULT_CHUNK, Options};
use crate::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

/// Measures perplexity as llama.cpp does: windows of --ctx tokens (default 512) that do not overlap, BOS first in each,
/// and the second half of each scored.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = super::usage::PERPLEXITY)]
#[command(mut_arg("ctx", |ctx| ctx.help("Tokens of a window [default: 512, or the model's maximum if smaller]")))]
pub struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The text, in UTF-8; -: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// Input: the model, the text or the window is wrong. Failed: logits are not finite. Refused, Device: as for loading.
pub fn run(args: &PerplexityArgs, json: bool) -> Result<()> {
    let files = args.model.files();
    let text = read_file(&args.file)?;
    // As llama.cpp does: editors put a line end there that is not part of the text.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let checkpoint = files.checkpoint()?;
    let shape = checkpoint.shape();
    let window = args.model.ctx.unwrap_or(DEFAULT_WINDOW.min(shape.max_context));
    let options = Options {
        context: Some(window),
        chunk: Some(DEFAULT_CHUNK),
        head_rows: HEAD_ROWS.min(window),
        ..args.model.options()
    };
    options.extent(shape)?;
    let tokenizer = files.tokenizer_for(shape.vocab)?;
    let tokens = tokenizer.encode_verbatim(text)?;
    check(&tokens, window)?;
    let mut executor = args.model.load(&checkpoint, &options, json)?;
    drop(checkpoint);

    let name = files.name();
    let _status = Reporter::start("perplexity", &name, executor.hardware());
    let windows = tokens.len() / window;
    let bar = progress_bar(windows);
    let start = Instant::now();
    let measured = measure(executor.as_mut(), &tokens, tokens[0], window, &mut |losses| {
        bar.inc(1);
        bar.set_message(format!("{:.4} ± {:.4}", losses.perplexity(), losses.error()));
    });
    bar.finish_and_clear();
    let (losses, seconds) = (measured?, start.elapsed().as_secs_f64());
    let (perplexity, error) = (losses.perplexity(), losses.error());
    if !perplexity.is_finite() {
        let cause = format!("the mean loss of {:.1} nats a token is beyond any model's", losses.mean());
        return Err(Error::failed(cause, "check the checkpoint's weights, and that its tokenizer is its own"));
    }
    if json {
        return print_json(&json!({
            "model": name,
            "device": executor.device(),
            "context": window,
            "tokens": tokens.len(),
            "windows": windows,
            "scored": losses.count,
            "mean_nll": losses.mean(),
            "perplexity": perplexity,
            "error": error,
            "seconds": seconds,
        }));
    }
    print(&format!("perplexity {perplexity:.4} ± {error:.4}\n"))?;
    let device = executor.device();
    note(&format!("[{} tokens scored in {windows} windows of {window}, in {seconds:.2} s, {device}]", losses.count));
    Ok(())
}

fn progress_bar(windows: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(windows as u64);
    match ProgressStyle::with_template("{bar:40} {pos} of {len} windows, {eta} left: {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
