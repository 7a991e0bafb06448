//! `kiln run`: answers a prompt, or chats on a terminal.

use super::chat;
use super::model::ModelArgs;
use super::{print, print_json};
use crate::executor::Executor;
use crate::generate::{Chooser, Finish, Generation, generate};
use crate::schedule::Pass;
use crate::session::Session;
use crate::text::{ChatTemplate, Message, SamplerConfig, StopMatcher, Stopped, StreamDecoder, Tokenizer, parse_ids};
use crate::{Error, Result};
use serde_json::json;
use signal_hook::consts::SIGINT;
use std::io::{IsTerminal, Read};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// Answers a prompt from -p, --tokens or standard input; without one, on a terminal, chats.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// The prompt
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// The prompt as token ids, taken verbatim: no BOS is added
    #[arg(long, value_name = "IDS", allow_hyphen_values = true, conflicts_with_all = ["prompt", "system", "raw"])]
    tokens: Option<String>,
    /// A system message before the prompt
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "raw")]
    pub(super) system: Option<String>,
    /// Take the prompt as it is, without the chat template
    #[arg(long)]
    raw: bool,
    /// Most tokens to generate [default: until the model stops, or the context is full]
    #[arg(short, value_name = "N")]
    n: Option<usize>,
    /// Sampling temperature; 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.0, value_name = "T", allow_negative_numbers = true)]
    temp: f32,
    /// Sample among the K likeliest tokens; 0: all
    #[arg(long, default_value_t = 64, value_name = "K")]
    top_k: u32,
    /// Sample among the likeliest tokens that make up this probability
    #[arg(long, default_value_t = 0.95, value_name = "P", allow_negative_numbers = true)]
    top_p: f32,
    /// Sample among tokens with at least this share of the likeliest one's probability
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true)]
    min_p: f32,
    /// Divide the logits of recent tokens by this; 1: off
    #[arg(long, default_value_t = 1.0, value_name = "R", allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Seed of the sampling [default: another one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// End the reply at this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) stop: Vec<String>,
    /// Go on past the model's stop tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Rows of a prefill pass
    #[arg(long, value_name = "N", hide = true)]
    chunk: Option<usize>,
}

impl Args {
    pub(super) fn sampler(&self) -> SamplerConfig {
        SamplerConfig {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            seed: self.seed,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.n.unwrap_or(usize::MAX)
    }

    /// The tokens at which a reply ends: what the model's config and its tokenizer name.
    pub(super) fn stops(&self, executor: &dyn Executor, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
        if self.ignore_eos {
            return Vec::new();
        }
        let mut stops = executor.schedule().shape.eos.clone();
        stops.extend(tokenizer.map(Tokenizer::stop_ids).unwrap_or_default());
        stops
    }
}

/// Set by Ctrl-C while a reply is under way.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes Ctrl-C end the reply instead of the program; a second one, before the first took effect, ends the program.
fn catch_interrupts() {
    let caught = signal_hook::flag::register_conditional_shutdown(SIGINT, 130, INTERRUPTED.clone())
        .and_then(|_| signal_hook::flag::register(SIGINT, INTERRUPTED.clone()));
    if let Err(e) = caught {
        log::warn!("Ctrl-C ends the program, not the reply: {e}");
    }
}

/// What the prompt was given as.
enum Prompt {
    Ids(Vec<u32>),
    Text(String),
    Chat,
}

fn read_prompt(args: &Args, json: bool) -> Result<Prompt> {
    if let Some(ids) = &args.tokens {
        return Ok(Prompt::Ids(parse_ids(ids)?));
    }
    let text = match &args.prompt {
        Some(text) => text.clone(),
        None if std::io::stdin().is_terminal() => {
            if json || args.raw || !std::io::stdout().is_terminal() {
                return Err(Error::input("there is no prompt", "give one with -p or on standard input"));
            }
            return Ok(Prompt::Chat);
        }
        None => read_stdin()?,
    };
    if text.trim().is_empty() {
        return Err(Error::input("the prompt is empty", "give some text with -p or on standard input"));
    }
    Ok(Prompt::Text(text))
}

fn read_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|e| Error::input(format!("cannot read standard input: {e}"), "give the prompt with -p"))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::input(format!("standard input is not UTF-8 at byte {at}"), "convert it to UTF-8 first")
    })
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the prompt from being answered.
pub fn run(args: &Args, json: bool) -> Result<()> {
    args.sampler().validate()?;
    let prompt = read_prompt(args, json)?;
    let checkpoint = args.model.checkpoint()?;
    let vocab = checkpoint.shape().vocab;
    let text = match (&prompt, &args.model.model) {
        // Ids need no tokenizer; with one, they still get text.
        (Prompt::Ids(_), Some(dir)) if !dir.join("tokenizer.json").exists() => None,
        _ => Some(args.model.text(vocab)?),
    };
    if text.is_none() && !args.stop.is_empty() {
        return Err(Error::input("--stop needs a tokenizer, and the model directory has none", "leave out --stop"));
    }
    let options = crate::engine::Options { chunk: args.chunk, ..args.model.options() };
    // What the user gave is judged before the weights are loaded.
    let ids = match (&prompt, &text) {
        (Prompt::Ids(ids), _) => ids.clone(),
        (Prompt::Text(t), Some((tokenizer, template))) => encode(args, t, tokenizer, template)?,
        _ => Vec::new(),
    };
    if !matches!(prompt, Prompt::Chat) {
        check_prompt(&ids, vocab, options.extent(checkpoint.shape())?.context)?;
    }
    let mut executor = args.model.load(&checkpoint, &options)?;
    drop(checkpoint);
    catch_interrupts();
    match (prompt, &text) {
        (Prompt::Chat, Some((tokenizer, template))) => chat::chat(args, executor.as_mut(), tokenizer, template),
        _ => answer(args, json, executor.as_mut(), &ids, text.as_ref().map(|t| &t.0)),
    }
}

/// Judges a prompt before any weight is loaded.
pub(super) fn check_prompt(ids: &[u32], vocab: usize, context: usize) -> Result<()> {
    if ids.is_empty() {
        return Err(Error::input("the prompt is empty", "give at least one token"));
    }
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
        return Err(Error::input(
            format!("token id {id} is outside of the vocabulary of {vocab}"),
            "use ids from this model's tokenizer",
        ));
    }
    if ids.len() > context {
        return Err(Error::input(
            format!("the prompt of {} tokens is longer than the context of {context}", ids.len()),
            "shorten it, or raise --ctx",
        ));
    }
    Ok(())
}

fn encode(args: &Args, text: &str, tokenizer: &Tokenizer, template: &ChatTemplate) -> Result<Vec<u32>> {
    if args.raw {
        return tokenizer.encode(text, !text.starts_with("<bos>"));
    }
    let mut messages: Vec<Message> = args.system.iter().map(|s| Message::new("system", s)).collect();
    messages.push(Message::new("user", text));
    tokenizer.encode(&template.render(&messages, true)?, false)
}

/// Turns tokens into text on its way to the user: decoded, held back where it might begin a stop string.
pub(super) struct Printer {
    decoder: Option<StreamDecoder>,
    stops: StopMatcher,
    /// All text so far.
    pub(super) text: String,
    echo: bool,
    failure: Option<Error>,
}

impl Printer {
    pub(super) fn new(tokenizer: Option<&Tokenizer>, stops: &[String], echo: bool) -> Result<Printer> {
        let decoder = tokenizer.map(|t| t.stream(true));
        Ok(Printer { decoder, stops: StopMatcher::new(stops)?, text: String::new(), echo, failure: None })
    }

    fn emit(text: &mut String, echo: bool, failure: &mut Option<Error>, piece: &str) {
        text.push_str(piece);
        if echo && failure.is_none() && !piece.is_empty() {
            *failure = print(piece).err();
        }
    }

    pub(super) fn push(&mut self, id: u32) -> ControlFlow<Finish> {
        if let Some(decoder) = &mut self.decoder {
            let (piece, stopped) = self.stops.push(decoder.push(id));
            Self::emit(&mut self.text, self.echo, &mut self.failure, piece);
            if stopped == Stopped::Yes {
                return ControlFlow::Break(Finish::Stop);
            }
        }
        if self.failure.is_some() || INTERRUPTED.swap(false, Ordering::Relaxed) {
            return ControlFlow::Break(Finish::Interrupted);
        }
        ControlFlow::Continue(())
    }

    /// Emits what was held back, unless a stop string was found.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(decoder) = &mut self.decoder {
            let (piece, stopped) = self.stops.push(decoder.finish());
            Self::emit(&mut self.text, self.echo, &mut self.failure, piece);
            if stopped == Stopped::No {
                let rest = self.stops.finish();
                Self::emit(&mut self.text, self.echo, &mut self.failure, rest);
            }
        }
        INTERRUPTED.store(false, Ordering::Relaxed);
        self.failure.take().map_or(Ok(()), Err)
    }
}

fn answer(
    args: &Args,
    json: bool,
    executor: &mut dyn Executor,
    ids: &[u32],
    tokenizer: Option<&Tokenizer>,
) -> Result<()> {
    let schedule = executor.schedule();
    let mut session = Session::new(0, schedule.extent.context);
    let mut chooser = Chooser::new(args.sampler(), schedule.shape.vocab)?;
    let stops = args.stops(executor, tokenizer);
    let mut printer = Printer::new(tokenizer, &args.stop, !json)?;
    let g = generate(executor, &mut session, ids, &mut chooser, &stops, args.limit(), &mut |id| {
        if tokenizer.is_none() && !json {
            // Without a tokenizer the ids are the answer.
            if let Err(e) = print(&format!("{id} ")) {
                printer.failure = Some(e);
            }
        }
        printer.push(id)
    })?;
    printer.finish()?;
    let share = roofline_share(executor, &g)?;
    if json {
        return print_json(&json!({
            "model": args.model.name(),
            "device": executor.device(),
            "prompt_tokens": ids,
            "tokens": g.tokens,
            "text": tokenizer.map(|_| &printer.text),
            "finish": g.finish.name(),
            "prefill_s": g.prefill.as_secs_f64(),
            "decode_s": g.decode.as_secs_f64(),
            "decode_tok_s": g.rate(),
            "roofline_share": share,
        }));
    }
    print("\n")?;
    eprintln!("{}", summary(executor, ids.len(), &g, share));
    Ok(())
}

/// The decode rate's share of what this device's measured read rate allows; `None` without a decode pass.
pub(super) fn roofline_share(executor: &mut dyn Executor, g: &Generation) -> Result<Option<f64>> {
    let Some(rate) = g.rate() else { return Ok(None) };
    let depth = g.depth + g.passes / 2;
    let bytes = executor.schedule().cost(Pass::Decode { sequences: 1, depth }).bytes();
    let ceiling = executor.measure_read_ceiling()? / bytes as f64;
    Ok(Some(rate / ceiling))
}

/// One line on what a reply took.
pub(super) fn summary(executor: &dyn Executor, prompt: usize, g: &Generation, share: Option<f64>) -> String {
    let rate = match (g.rate(), share) {
        (Some(rate), Some(share)) => {
            format!(", {rate:.1} tokens/s ({:.1} % of what its memory allows)", 100.0 * share)
        }
        _ => String::new(),
    };
    format!(
        "[{} prompt tokens in {:.2} s, {} tokens in {:.2} s{rate}, {}]",
        prompt,
        g.prefill.as_secs_f64(),
        g.tokens.len(),
        g.decode.as_secs_f64(),
        executor.device()
    )
}
