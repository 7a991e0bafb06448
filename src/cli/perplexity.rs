//! `kiln perplexity`: measures how well a model predicts a text.

use super::model::ModelArgs;
use super::{note, print, print_json, progress, read_file, signals};
use crate::diagnose::perplexity::{DEFAULT_WINDOW, HEAD_ROWS, Losses, check, measure};
use crate::diagnose::status::Reporter;
use crate::display::duration;
use crate::engine::{DEFAULT_CHUNK, Options};
use crate::executor::ExecutorExt;
use crate::{Error, Result};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Measures perplexity as llama.cpp does: windows of --ctx tokens (default 512) that do not overlap, BOS first in each,
/// and the second half of each scored.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/perplexity.txt"))]
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
    // As in llama.cpp: editors end a file with a line end that is not part of the text.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    if text.is_empty() {
        return Err(Error::input(format!("{} is empty", args.file.display()), "give a text of many tokens"));
    }
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
    signals::catch(signals::stops().iter().copied());
    let mut executor = args.model.load(&checkpoint, &options, json)?;
    drop(checkpoint);

    let name = files.name();
    let _status = Reporter::start("perplexity", &name, executor.hardware());
    let windows = tokens.len() / window;
    let style = "{bar:40} {pos} of {len} windows, {eta} left: {msg}";
    let bar = progress::bar(Some(windows as u64), style, json);
    let start = Instant::now();
    let mut so_far = (0, Losses::default());
    let measured = measure(executor.as_mut(), &tokens, tokens[0], window, &mut |losses| {
        so_far = (so_far.0 + 1, *losses);
        bar.inc(1);
        bar.set_message(format!("{:.4} ± {:.4}", losses.perplexity(), losses.error()));
    });
    bar.finish_and_clear();
    if let (Err(Error::Interrupted { .. }), (done @ 1.., losses), false) = (&measured, so_far, json) {
        let figure = figure(&losses);
        note(&format!("[interrupted after {done} of {windows} windows, which have a {figure}]"));
        return Ok(());
    }
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
    print(&format!("{}\n", figure(&losses)))?;
    let (device, time) = (executor.device(), duration(seconds));
    note(&format!("[{} tokens scored in {windows} windows of {window}, in {time}, {device}]", losses.count));
    Ok(())
}

/// The perplexity with its error.
fn figure(losses: &Losses) -> String {
    format!("perplexity {:.4} ± {:.4}", losses.perplexity(), losses.error())
}
