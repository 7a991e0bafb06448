//! Replies of `kiln run` and its chat: arguments, printing, and a summary.

use super::progress::LiveBar;
use super::terminal::{FAINT, error_has_color, for_terminal, painted};
use super::wrap::{self, Wrap};
use super::{face, print, stderr as messages};
use crate::diagnose::energy::{Energy, EnergyMark, EnergyMeter};
use crate::display::{counted, duration};
use crate::engine::open::{OpenEngine, OpenReplies};
use crate::engine::request::{Event, ReplyEnd, Request};
use crate::machine::caches;
use crate::machine::files::Files;
use crate::schedule::PassShape;
use crate::sequence::{Finish, Generation};
use crate::text::{ChatInput, ChatTemplate, Message, SamplerConfig};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::io::{IsTerminal, stderr};
use std::thread::{self, JoinHandle};

/// How tokens are sampled.
#[derive(Debug, Clone, clap::Args)]
pub struct SamplingArgs {
    /// Sampling temperature; 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.0, value_name = "T", value_parser = number)]
    pub(super) temp: f32,
    /// Sample among the K likeliest tokens; 0: all
    #[arg(long, default_value_t = 64, value_name = "K")]
    pub(super) top_k: u32,
    /// Sample among the likeliest tokens that make up this probability
    #[arg(long, default_value_t = 0.95, value_name = "P", value_parser = number)]
    pub(super) top_p: f32,
    /// Sample among tokens with at least this share of the likeliest one's probability
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = number)]
    pub(super) min_p: f32,
    /// Divide the logits of recent tokens by this; 1: off
    #[arg(long, default_value_t = 1.0, value_name = "R", value_parser = number)]
    pub(super) repeat_penalty: f32,
}

impl SamplingArgs {
    pub(super) fn config(&self) -> SamplerConfig {
        SamplerConfig {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            ..SamplerConfig::default()
        }
    }
}

/// How a reply is made.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplyArgs {
    /// Take the prompt as it is, without the chat template
    #[arg(help_heading = "Reply", long)]
    pub(super) raw: bool,
    /// A system message before the prompt
    #[arg(help_heading = "Reply", long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "raw")]
    pub(super) system: Option<String>,
    /// Let the model think before it answers; the thought goes to standard error
    #[arg(help_heading = "Reply", long, conflicts_with = "raw")]
    pub(super) think: bool,
    /// Most tokens to generate [default: until the model stops, or the context is full]
    #[arg(help_heading = "Reply", short, value_name = "N")]
    pub(super) n: Option<usize>,
    #[command(flatten, next_help_heading = "Sampling")]
    pub(super) sampling: SamplingArgs,
    /// Seed of the sampling [default: another one each time]
    #[arg(help_heading = "Sampling", long, value_name = "S")]
    pub(super) seed: Option<u64>,
    /// End the reply at this text; may be given several times
    #[arg(help_heading = "Reply", long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) stop: Vec<String>,
    /// Go on past the model's stop tokens
    #[arg(help_heading = "Reply", long)]
    pub(super) ignore_eos: bool,
}

impl ReplyArgs {
    pub(super) fn sampler(&self) -> SamplerConfig {
        SamplerConfig { seed: self.seed, ..self.sampling.config() }
    }

    /// Warns of options without effect: without a temperature the likeliest token is always taken.
    pub(super) fn warn_of_unused(&self) {
        let (s, d) = (&self.sampling, SamplerConfig::default());
        let given = [
            ("--top-k", s.top_k != d.top_k),
            ("--top-p", s.top_p != d.top_p),
            ("--min-p", s.min_p != d.min_p),
            ("--seed", self.seed.is_some()),
        ];
        let unused: Vec<&str> = given.into_iter().filter_map(|(name, is)| is.then_some(name)).collect();
        if self.sampling.temp == 0.0 && !unused.is_empty() {
            log::warn!("without a temperature the likeliest token is taken: give --temp for {}", unused.join(", "));
        }
    }

    /// Checks that the model can think, if it is to.
    ///
    /// # Errors
    /// Input: `template`, which is `None` where none is used, knows no thoughts.
    pub(super) fn check_thinking(&self, template: Option<&ChatTemplate>) -> Result<()> {
        match self.think && !template.is_some_and(ChatTemplate::thinks) {
            true => Err(no_thoughts("leave out --think")),
            false => Ok(()),
        }
    }

    /// The input of the chat template for messages.
    pub(super) fn input<'m>(&self, messages: &'m [Message]) -> ChatInput<'m> {
        ChatInput { thinking: self.think.then_some(true), ..messages.into() }
    }

    /// The request for a reply to `prompt`.
    pub(super) fn request(&self, prompt: Vec<u32>) -> Request {
        Request {
            sampler: self.sampler(),
            limit: self.n.unwrap_or(usize::MAX),
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            ..Request::new(prompt)
        }
    }
}

/// The error for a model that cannot be asked to think.
pub(super) fn no_thoughts(remedy: &'static str) -> Error {
    Error::input("the model's chat template knows no thoughts", remedy)
}

/// Parses a number. A value beyond the type's range is an error, since it would become infinite.
pub(super) fn number(word: &str) -> std::result::Result<f32, String> {
    let number: f32 = word.parse().map_err(|e| format!("{e}"))?;
    match number.is_infinite() && word.contains(|c: char| c.is_ascii_digit()) {
        true => Err("it is too large".into()),
        false => Ok(number),
    }
}

/// Prints a reply as it is generated.
pub(super) struct Printer {
    /// All text so far; `None` without a tokenizer: ids are printed.
    text: Option<String>,
    echo: bool,
    /// Line wrapping, if a terminal shows the reply.
    terminal: Option<Wrap>,
    thought: ThoughtPrinter,
    /// The progress bar, which is shown until the first token.
    bar: Option<LiveBar>,
}

impl Printer {
    /// A printer without text yet, of ids unless the reply has a text. Without `echo` it only collects the text, and
    /// if `quiet` the thought. It removes `bar` at the first token.
    pub(super) fn new(has_text: bool, echo: bool, quiet: bool, bar: Option<LiveBar>) -> Printer {
        let terminal = std::io::stdout().is_terminal().then(Wrap::default);
        let wrap = stderr().is_terminal().then(Wrap::default);
        let thought = ThoughtPrinter { text: String::new(), echo: echo && !quiet, terminal: wrap, is_open: false };
        Printer { text: has_text.then(String::new), echo, terminal, thought, bar }
    }

    /// Prints a reply's events to its end.
    ///
    /// # Errors
    /// The error that ended the reply. Failed: output could not be printed.
    pub(super) fn print(&mut self, reply: OpenReplies<'_>, spent: &mut ReplyEnergy) -> Result<ReplyEnd> {
        for event in reply {
            match event {
                (_, Event::Token(token)) => {
                    self.bar = None;
                    spent.note_token();
                    self.thought.push(&token.thought);
                    match self.text {
                        Some(_) => self.push(&token.text)?,
                        None => self.push(&format!("{} ", token.id))?,
                    }
                }
                (_, Event::End(end)) => {
                    self.bar = None;
                    self.push(&end.text)?;
                    self.thought.close();
                    if let Some(wrap) = self.terminal.as_mut().filter(|_| self.echo) {
                        print(wrap.finish(wrap::columns()))?;
                    }
                    return Ok(*end);
                }
                (_, Event::Failed(e)) => {
                    self.bar = None;
                    return Err(e.into());
                }
                (_, Event::Idle) => {}
            }
        }
        Err(Error::failed("the reply has no end", "report this"))
    }

    /// Adds a piece of the reply.
    fn push(&mut self, piece: &str) -> Result<()> {
        if let Some(text) = &mut self.text {
            text.push_str(piece);
        }
        if piece.is_empty() || !self.echo {
            return Ok(());
        }
        self.thought.close();
        match &mut self.terminal {
            Some(wrap) => print(wrap.push(&for_terminal(piece), wrap::columns())),
            None => print(piece),
        }
    }

    /// All text so far; `None` without a tokenizer.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The text of the reply's thought so far.
    pub(super) fn thought(&self) -> &str {
        &self.thought.text
    }
}

/// Prints the model's thoughts on standard error, dimmed and with an empty line behind each, so that standard output
/// has the answer alone.
struct ThoughtPrinter {
    /// All text so far.
    text: String,
    echo: bool,
    /// Line wrapping, if standard error is a terminal.
    terminal: Option<Wrap>,
    /// True while a thought is on the screen and has not ended.
    is_open: bool,
}

impl ThoughtPrinter {
    /// Adds a piece of a thought.
    fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.echo && !piece.is_empty() {
            self.is_open = true;
            match &mut self.terminal {
                Some(wrap) => write_faint(wrap.push(&for_terminal(piece), wrap::columns())),
                None => write_faint(piece),
            }
        }
    }

    /// Ends a thought that was shown.
    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            if let Some(wrap) = &mut self.terminal {
                write_faint(wrap.finish(wrap::columns()));
            }
            messages::write(b"\n\n");
        }
    }
}

fn write_faint(text: &str) {
    messages::write(painted(FAINT, text, error_has_color()).as_bytes());
}

/// The decode rate's share of the roofline. `None` without a decode pass, or if it cannot be measured: beside other
/// work the ceiling may come out too low, and a reply is not a benchmark.
pub(super) fn roofline_share(engine: &OpenEngine, g: &Generation) -> Option<f64> {
    engine.roofline_share(g).unwrap_or_else(|e| {
        log::debug!("no share of the roofline: {}", face::line(&e));
        None
    })
}

/// The decode rate as text. If the weights exceed the caches, with the share of the memory's ceiling where that can be
/// measured. `None` without a decode pass.
pub(super) fn rate(engine: &OpenEngine, g: &Generation) -> Option<String> {
    let rate = format!("{:.1} tokens/s", g.rate()?);
    let share = if reads_memory(engine) { roofline_share(engine, g) } else { None };
    Some(share.map_or(rate.clone(), |share| format!("{rate} ({:.1} % of what its memory allows)", 100.0 * share)))
}

/// True if a pass reads more bytes than the device's caches have, so that its rate is that of memory.
pub(super) fn reads_memory(engine: &OpenEngine) -> bool {
    /// The largest cache of any GPU, that of AMD's MI300X. Vulkan does not report cache sizes.
    const GPU_CACHE: u64 = 256 << 20;
    let caches = if engine.is_on_cpu { caches::bytes(&Files::system()) } else { GPU_CACHE };
    engine.schedule.cost(PassShape::Decode { sequences: 1, depth: 0 }).memory_bytes() > caches
}

/// Measures the energy of a reply's tokens after the first. The meter opens on another thread during the first pass,
/// because opening a GPU's library takes longer than many a token.
pub(super) struct ReplyEnergy {
    opening: Option<JoinHandle<Option<EnergyMeter>>>,
    /// `None` if no energy can be read, or the meter is not open yet.
    meter: Option<EnergyMeter>,
    /// The number of the reply's tokens so far.
    tokens: usize,
    /// Energy and number of tokens when the meter was first available.
    first: Option<(EnergyMark, usize)>,
}

impl ReplyEnergy {
    /// Begins to measure the energy of an engine.
    pub(super) fn start(engine: &OpenEngine) -> ReplyEnergy {
        let with_gpu = !engine.is_on_cpu;
        let open = move || EnergyMeter::start(&Files::system(), with_gpu);
        let opening = thread::Builder::new().name("energy".into()).spawn(open).ok();
        ReplyEnergy { opening, meter: None, tokens: 0, first: None }
    }

    /// Counts a token of the reply, and takes the energy meter once it is open.
    pub(super) fn note_token(&mut self) {
        self.tokens += 1;
        if let Some(opened) = self.opening.take_if(|opening| opening.is_finished()) {
            self.meter = opened.join().ok().flatten();
        }
        if self.first.is_none() {
            self.first = self.meter.as_ref().map(|meter| (meter.mark(), self.tokens));
        }
    }

    /// The mean energy per token of the reply that has ended. The next reply is measured from 0. `None` if unknown.
    pub(super) fn per_token(&mut self) -> Option<Energy> {
        let tokens = std::mem::take(&mut self.tokens);
        let (first, before) = self.first.take()?;
        self.meter.as_ref()?.mark().since(first)?.per(tokens - before)
    }
}

/// A reply as an object. `text` is null without a tokenizer, and `thought` without a thought. The roofline share and the
/// energy are null until they are set.
pub(super) fn reply_json(
    model: &str,
    device: &str,
    prompt: &[u32],
    [text, thought]: [Option<&str>; 2],
    g: &Generation,
    seed: Option<u64>,
) -> Value {
    json!({
        "model": model,
        "device": device,
        "prompt_tokens": prompt,
        "tokens": g.tokens,
        "text": text,
        "thought": thought.filter(|thought| !thought.is_empty()),
        "finish": g.finish.name(),
        "seed": seed,
        "prefill_s": g.prefill.as_secs_f64(),
        "decode_s": g.decode.as_secs_f64(),
        "decode_tok_s": g.rate(),
        "drafted": g.drafted,
        "accepted": g.accepted,
        "tokens_per_pass": g.tokens_per_pass(),
        "roofline_share": Value::Null,
        "joules_per_token": Value::Null,
    })
}

/// A summary of a reply in one line. `prompt` describes the prompt, `rate` is the result of [`rate`], and `energy` that
/// of [`ReplyEnergy::per_token`]. The line ends with the device's name, if given.
pub(super) fn summary(
    engine: &OpenEngine,
    prompt: &str,
    g: &Generation,
    rate: Option<&str>,
    energy: Option<Energy>,
    device: Option<&str>,
) -> String {
    let (tokens, prefill) = (g.tokens.len(), duration(g.prefill.as_secs_f64()));
    let interrupted = g.finish == Finish::Interrupted;
    let mut line = match interrupted && tokens == 0 {
        true => format!("[the prompt of {} ran for {prefill}", counted(g.prompt, "token")),
        false => format!("[{prompt} in {prefill}, {}", counted(tokens, "token")),
    };
    // The first token comes from the prefill, and the last may need no pass.
    if g.decoded() != tokens && g.passes > 0 {
        line += &format!(", {} of them decoded", g.decoded());
    }
    if g.passes > 0 {
        line += &format!(" in {}", duration(g.decode.as_secs_f64()));
    }
    if let Some(rate) = rate {
        line += &format!(", {rate}");
    }
    if let Some(energy) = energy {
        line += &format!(", {}", energy.per_token_words());
    }
    if let Some(tokens) = g.tokens_per_pass().filter(|_| g.drafted > 0) {
        let drafted = counted(g.drafted, "drafted token");
        line += &format!(", {} of {drafted} accepted, {tokens:.2} tokens a pass", g.accepted);
    }
    if g.full {
        let limits = engine.limits();
        let larger = limits.larger_context();
        let remedy = larger.map_or("the model has no larger one".into(), |larger| face::words(&larger));
        line += &format!(", stopped: the context of {} is full, {remedy}", limits.context);
    }
    if interrupted {
        line += ", interrupted";
    }
    if let Some(device) = device {
        line += &format!(", {device}");
    }
    line + "]"
}
