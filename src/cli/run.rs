//! `kiln run`: answers a prompt, or chats on a terminal.

use super::drafts::DraftArgs;
use super::model::ModelArgs;
use super::progress::LiveBar;
use super::reply::{Printer, ReplyArgs, ReplyEnergy, rate, reply_json, roofline_share, summary};
use super::{chat, note, print, print_json, signals};
use crate::diagnose::status::Reporter;
use crate::display::counted;
use crate::engine::open::OpenEngine;
use crate::engine::request::ReplyEnd;
use crate::engine::{Options, default_chunk};
use crate::sequence::prompt::{encode_messages, encode_text};
use crate::sequence::{Conversation, Finish, SequenceLimits};
use crate::text::{ChatTemplate, StopMatcher, Tokenizer, parse_ids};
use crate::{Error, Result};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Answers a prompt from -p, -f and standard input, or --tokens; without one, on a terminal, chats.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/run.txt"))]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompt; the text of -f or standard input follows it on a line of its own
    #[arg(help_heading = "Prompt", short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A file with the prompt, instead of standard input; -: standard input, even a terminal
    #[arg(help_heading = "Prompt", short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The prompt as token ids, taken verbatim: no BOS is added
    #[arg(help_heading = "Prompt", long, value_name = "IDS", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["prompt", "file", "system", "raw", "think"])]
    tokens: Option<String>,
    #[command(flatten)]
    reply: ReplyArgs,
    /// Print the reply alone: no progress, greeting or summary; warnings and errors stay
    #[arg(help_heading = "Reply", short, long)]
    quiet: bool,
    #[command(flatten)]
    drafts: DraftArgs,
    /// Rows of a prefill pass
    #[arg(long, value_name = "N", hide = true)]
    chunk: Option<usize>,
}

/// The prompt as given.
enum GivenPrompt {
    Ids(Vec<u32>),
    Text(String),
    Chat,
}

fn read_prompt(args: &RunArgs, json: bool) -> Result<GivenPrompt> {
    if let Some(ids) = &args.tokens {
        return Ok(GivenPrompt::Ids(parse_ids(ids)?));
    }
    let behind = match &args.file {
        Some(file) => Some(super::read_file(file)?),
        None if std::io::stdin().is_terminal() => None,
        None => Some(super::read_stdin()?),
    };
    let text = match (args.prompt.clone(), behind) {
        (Some(prompt), Some(text)) if !text.is_empty() => format!("{prompt}\n{text}"),
        (Some(text), _) | (None, Some(text)) => text,
        (None, None) if json || args.reply.raw || !std::io::stdout().is_terminal() => {
            return Err(Error::input("there is no prompt", "give one with -p, with -f or on standard input"));
        }
        (None, None) => return Ok(GivenPrompt::Chat),
    };
    if text.trim().is_empty() {
        return Err(Error::input("the prompt is empty", "give some text with -p, with -f or on standard input"));
    }
    Ok(GivenPrompt::Text(text))
}

/// Runs the command.
///
/// # Errors
/// Any error that keeps the prompt from being answered.
pub fn run(args: &RunArgs, json: bool) -> Result<()> {
    args.reply.sampler().validate()?;
    args.reply.warn_of_unused();
    StopMatcher::new(&args.reply.stop)?;
    let prompt = read_prompt(args, json)?;
    let files = args.model.files();
    let checkpoint = files.checkpoint()?;
    let shape = checkpoint.shape().clone();
    let tokenizer = match prompt {
        // Ids need no tokenizer, but with one the reply is text.
        GivenPrompt::Ids(_) if !files.has_tokenizer() => None,
        _ => Some(files.tokenizer_for(shape.vocab)?),
    };
    let template = match prompt {
        GivenPrompt::Text(_) if args.reply.raw => None,
        GivenPrompt::Ids(_) => None,
        _ => Some(files.template()?),
    };
    args.reply.check_thinking(template.as_ref())?;
    if tokenizer.is_none() && !args.reply.stop.is_empty() {
        return Err(Error::input("--stop needs a tokenizer, and the model directory has none", "leave out --stop"));
    }
    // Checks the user's input before the weights are loaded.
    let drafts = args.drafts.read()?.drafts(tokenizer.as_ref())?;
    let mut options = Options { chunk: args.chunk, drafted: drafts.most, ..args.model.options() };
    let draft = args.drafts.model(&files, options.extent(&shape)?.context)?;
    let mut ids = Vec::new();
    if !matches!(prompt, GivenPrompt::Chat) {
        let limits = SequenceLimits { shape: &shape, context: options.extent(&shape)?.context };
        ids = encode(args, &prompt, tokenizer.as_ref(), template.as_ref(), limits)?;
        // A larger chunk than the prompt would only take memory.
        options.chunk = Some(args.chunk.unwrap_or(default_chunk(&shape)).min(ids.len()));
    }
    let quiet = json || args.quiet;
    let engine = args.model.open(checkpoint, draft, options, false, drafts, (), quiet)?;
    let name = files.name();
    let _status = Reporter::start("run", &name, &engine.hardware);
    match (prompt, &tokenizer, &template) {
        (GivenPrompt::Chat, Some(tokenizer), Some(template)) => {
            chat::chat(&name, &args.reply, args.quiet, &engine, tokenizer, template)
        }
        _ => answer(args, json.then_some(name.as_str()), &engine, ids, tokenizer.as_ref()),
    }
}

/// The prompt's ids: as given, or those of the text, in the chat template if there is one.
fn encode(
    args: &RunArgs,
    prompt: &GivenPrompt,
    tokenizer: Option<&Tokenizer>,
    template: Option<&ChatTemplate>,
    limits: SequenceLimits<'_>,
) -> Result<Vec<u32>> {
    match (prompt, tokenizer, template) {
        (GivenPrompt::Ids(ids), ..) => limits.check(0, ids).map(|()| ids.clone()),
        (GivenPrompt::Text(text), Some(tokenizer), None) => encode_text(tokenizer, text, limits),
        (GivenPrompt::Text(text), Some(tokenizer), Some(template)) => {
            let mut conversation = Conversation::new(args.reply.system.as_deref());
            conversation.ask(text);
            encode_messages(tokenizer, template, args.reply.input(conversation.messages()), limits)
        }
        _ => Ok(Vec::new()),
    }
}

/// Prints the reply: text and a summary, or one JSON object with the model's name `json`. A signal ends the reply
/// early, and the process after the output.
fn answer(
    args: &RunArgs,
    json: Option<&str>,
    engine: &OpenEngine,
    ids: Vec<u32>,
    tokenizer: Option<&Tokenizer>,
) -> Result<()> {
    signals::catch(signals::stops().iter().copied());
    let bar = LiveBar::prefill(ids.len(), json.is_some() || args.quiet);
    let mut printer = Printer::new(tokenizer.is_some(), json.is_none(), args.quiet, bar);
    let mut spent = ReplyEnergy::start(engine);
    let reply = engine.submit(&args.reply.request(ids.clone()), tokenizer)?;
    let ReplyEnd { generation: g, chooser, .. } = printer.print(reply, &mut spent)?;
    let energy = spent.per_token();
    // After an interruption the user should not wait for a measurement.
    let is_measured = g.finish != Finish::Interrupted;
    if let Some(model) = json {
        let share = if is_measured { roofline_share(engine, &g) } else { None };
        let texts = [printer.text(), Some(printer.thought())];
        let mut reply = reply_json(model, &engine.device()?, &ids, texts, &g, chooser.seed());
        (reply["roofline_share"], reply["joules_per_token"]) = (json!(share), json!(energy));
        return print_json(&reply);
    }
    print("\n")?;
    if args.quiet {
        return Ok(());
    }
    let rate = if is_measured { rate(engine, &g) } else { None };
    let prompt = counted(g.prompt, "prompt token");
    note(&summary(engine, &prompt, &g, rate.as_deref(), energy, Some(&engine.device()?)));
    Ok(())
}
