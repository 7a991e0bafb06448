//! `kiln batch`: runs the prompts of a file through one loaded model, as many at once as fit.

mod identity;
mod input;
mod line;
mod output;

use self::identity::LineHasher;
use self::input::InputLines;
use self::line::{Marks, Reader};
use self::output::OrderedOutput;
use super::drafts::DraftArgs;
use super::model::ModelArgs;
use super::reply::{ReplyArgs, reads_memory, reply_json};
use super::{face, is_same_file, note, progress, signals};
use crate::diagnose::status::Reporter;
use crate::display::counted;
use crate::engine::Options;
use crate::engine::core::{EngineMonitor, Figure};
use crate::engine::open::{OpenEngine, OpenReplies};
use crate::engine::request::{Event, ReplyEnd};
use crate::executor::ExecutorExt;
use crate::sequence::meter::DecodeMeter;
use crate::sequence::{Finish, SequenceLimits};
use crate::text::StopMatcher;
use crate::{Error, Result};
use indicatif::ProgressBar;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most sequences at once without --batch.
pub(super) const MOST_SEQUENCES: usize = 32;

/// Answers the prompts of a file, one JSON object a line, as many at once as fit.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/batch.txt"))]
pub struct BatchArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompts; -: standard input
    #[arg(value_name = "IN.jsonl")]
    input: PathBuf,
    /// Where the replies go; -: standard output. A file that an earlier run began is continued
    #[arg(help_heading = "Input and output", short, long, value_name = "OUT.jsonl")]
    output: PathBuf,
    /// Ask the lines again that failed in an earlier run, and put the answers in their places
    #[arg(help_heading = "Input and output", long)]
    retry_failed: bool,
    /// Most sequences at once [default: up to 32, as many as fit]
    #[arg(help_heading = "Sequences", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Tokens that the KV cache has room for, of all sequences together [default: all of their contexts, or as many as
    /// fit]
    #[arg(help_heading = "Sequences", long, value_name = "N")]
    kv_tokens: Option<usize>,
    #[command(flatten)]
    reply: ReplyArgs,
    #[command(flatten)]
    drafts: DraftArgs,
}

/// Runs the command.
///
/// # Errors
/// Input: the model, the input or the output is wrong. Failed: a line was not answered. Refused, Device: as for
/// loading.
pub fn run(args: &BatchArgs, json: bool) -> Result<()> {
    args.reply.sampler().validate()?;
    StopMatcher::new(&args.reply.stop)?;
    let files = args.model.files();
    let checkpoint = files.checkpoint()?;
    let shape = checkpoint.shape().clone();
    let text = match files.has_tokenizer() {
        true => Some((files.tokenizer_for(shape.vocab)?, files.template()?)),
        false => None,
    };
    args.reply.check_thinking(text.as_ref().map(|(_, template)| template))?;
    let name = files.name();
    let drafts = args.drafts.read()?.drafts(text.as_ref().map(|(tokenizer, _)| tokenizer))?;
    let options = Options { kv_tokens: args.kv_tokens, drafted: drafts.most, ..args.model.options() };
    let context = options.extent(&shape)?.context;
    let draft = args.drafts.model(&files, context)?;

    let identity = LineHasher::new(&files, &args.model, &args.reply, context)?;
    let mut input = InputLines::open(&args.input)?;
    // Reads a line first, so that an unreadable input leaves no output behind.
    input.read_ahead(1)?;
    if is_same_file(&args.input, &args.output) {
        return Err(Error::input("IN and OUT are the same file", "choose another file with -o"));
    }
    let output = match args.output == Path::new("-") {
        true => OrderedOutput::default(),
        false => OrderedOutput::open(&args.output, &mut input, &identity, args.retry_failed)?,
    };
    if output.written() > 0 {
        let again = match input.again() {
            0 => String::new(),
            lines => format!(", {lines} of which failed and are asked again"),
        };
        note(&format!("kiln: goes on after {}{again}", counted(output.written(), "line")));
    }
    // At most as many sequences as lines.
    let most = args.batch.map_or(MOST_SEQUENCES, |n| n as usize);
    let most = input.read_ahead(most)?;
    if most == 0 {
        // Without lines to answer the model is not loaded.
        let lines = counted(output.written(), "line");
        note(&match output.written() {
            0 => format!("kiln: {} has no lines: there is nothing to do", input.name()),
            _ => format!("kiln: nothing is left to do, [{lines}, {} failed]", output.failed()),
        });
        return conclude(&output, None);
    }
    let options = Options { sequences: most, head_rows: most, ..options };
    let (fewer, gauge) = (args.batch.is_none(), Gauge::default());
    let engine = args.model.open(checkpoint, draft, options, fewer, drafts, gauge.clone(), json)?;
    signals::catch(signals::stops().iter().copied());
    let _status = Reporter::start("batch", &name, &engine.hardware);
    let reader = Reader {
        defaults: &args.reply,
        limits: SequenceLimits { shape: &shape, context },
        text: text.as_ref().map(|(tokenizer, template)| (tokenizer, template)),
    };
    let style = if input.progress().is_some() { "{msg} {wide_bar} {percent} %, {eta} left" } else { "{msg}" };
    let bar = progress::bar(input.progress().map(|(_, length)| length), style, json);
    let replies = engine.replies();
    let lines = HashMap::new();
    // So that the device has a name.
    engine.run(|core| core.publish())?;
    let mut work = OpenLines { engine: &engine, replies, lines, output, gauge, model: name, first_failed: None, bar };
    if !work.bar.is_hidden() {
        work.measure();
    }
    let done = work.run(&mut input, &reader, &identity);
    // Answers to retried lines are kept even after a failure.
    let settled = work.output.settle();
    done.and(settled)?;
    work.bar.finish_and_clear();
    work.summarise()
}

/// A line that is being answered.
struct RunningLine {
    index: usize,
    request: String,
    marks: Marks,
    prompt: Vec<u32>,
    text: String,
    thought: String,
}

/// The lines being answered.
struct OpenLines<'a> {
    engine: &'a OpenEngine,
    replies: OpenReplies<'a>,
    /// The lines in progress, by the numbers of their replies in `replies`.
    lines: HashMap<usize, RunningLine>,
    output: OrderedOutput,
    gauge: Gauge,
    model: String,
    /// A description of the first line that failed in this run.
    first_failed: Option<String>,
    bar: ProgressBar,
}

impl OpenLines<'_> {
    /// Answers the rest of the input.
    ///
    /// # Errors
    /// Failed: the output cannot be written. Input: the input cannot be read. Device: the device failed. Earlier
    /// answers are written.
    fn run(&mut self, input: &mut InputLines, reader: &Reader<'_>, identity: &LineHasher) -> Result<()> {
        let tokenizer = reader.text.map(|(tokenizer, _)| tokenizer);
        loop {
            while self.lines.len() < self.engine.schedule.extent.sequences && !signals::cancel().is_set() {
                let Some((index, line)) = input.next()? else { break };
                let (request, marks) = (identity.of(line.bytes()), Marks::of(line.bytes()));
                let asked = line.whole().and_then(|line| reader.read(line));
                let begun = asked.and_then(|asked| {
                    let number = self.replies.add(&asked, tokenizer)?;
                    Ok((number, asked.prompt))
                });
                match begun {
                    Ok((number, prompt)) => {
                        let line =
                            RunningLine { index, request, marks, prompt, text: String::new(), thought: String::new() };
                        self.lines.insert(number, line);
                    }
                    // The engine has failed, and not this line.
                    Err(e) if self.engine.has_failed() => return Err(e),
                    Err(e) => self.fail(index, request, &marks, &e)?,
                }
            }
            let Some((number, event)) = self.replies.next() else { return Ok(()) };
            self.take(number, event, tokenizer.is_some())?;
            if let Some((read, _)) = input.progress() {
                self.bar.set_position(read);
            }
            if !self.bar.is_hidden() {
                let (done, failed) = (self.output.written(), self.output.failed());
                self.bar.set_message(format!("{}, {failed} failed; {}", counted(done, "line"), self.gauge.line()));
            }
        }
    }

    /// Takes an event of a line's reply. Writes the reply at its end. An interrupted one is left for the next run.
    fn take(&mut self, number: usize, event: Event, has_text: bool) -> Result<()> {
        let end = match event {
            Event::Token(token) => {
                if let Some(line) = self.lines.get_mut(&number) {
                    line.text.push_str(&token.text);
                    line.thought.push_str(&token.thought);
                }
                return Ok(());
            }
            Event::Idle => return Ok(()),
            Event::End(end) => Ok(end),
            Event::Failed(e) => match Error::from(e) {
                // The device failed, and not this line.
                e @ Error::Device { .. } => return Err(e),
                e if self.engine.has_failed() => return Err(e),
                e => Err(e),
            },
        };
        let Some(RunningLine { index, request, marks, prompt, mut text, thought }) = self.lines.remove(&number) else {
            return Ok(());
        };
        match end {
            Ok(end) if end.generation.finish == Finish::Interrupted => Ok(()),
            Ok(end) => {
                let ReplyEnd { text: rest, generation: g, chooser, .. } = *end;
                text.push_str(&rest);
                let texts = [has_text.then_some(text.as_str()), Some(thought.as_str())];
                let response = marks.response(&self.model, texts, &g, prompt.len());
                let mut line = marks.head(index, request);
                // A single sequence has no roofline share or energy, because all sequences share the reading of
                // weights.
                let fields = reply_json(&self.model, &self.gauge.device(), &prompt, texts, &g, chooser.seed());
                line.extend([fields, response].into_iter().filter_map(|object| object.as_object().cloned()).flatten());
                self.output.put(index, line.into())
            }
            Err(e) => self.fail(index, request, &marks, &e),
        }
    }

    fn fail(&mut self, index: usize, request: String, marks: &Marks, e: &Error) -> Result<()> {
        self.first_failed.get_or_insert_with(|| format!("line {}: {}", index + 1, face::line(e)));
        let mut line = marks.head(index, request);
        line.insert("error".into(), face::object(e)["error"].take());
        self.output.put(index, line.into())
    }

    /// Measures the device's best read rate, if the weights are read from memory.
    fn measure(&mut self) {
        let measured = || self.engine.run(|core| core.executor.measure_read_ceiling()).ok()?.ok();
        self.gauge.ceiling = if reads_memory(self.engine) { measured() } else { None };
    }

    /// Prints the summary.
    ///
    /// # Errors
    /// Failed: a line was not answered. Device: it failed.
    fn summarise(&mut self) -> Result<()> {
        let (done, failed) = (self.output.written(), self.output.failed());
        let interrupted = signals::cancel().is_set();
        self.engine.run(|core| core.publish())?;
        // After an interruption the user should not wait for a measurement.
        if self.gauge.ceiling.is_none() && self.gauge.meter().tokens > 0 && !interrupted {
            self.measure();
        }
        let rate = self.gauge.line();
        note(&format!("[{}, {failed} failed; {rate}, {}]", counted(done, "line"), self.gauge.device()));
        if interrupted {
            note(match self.output.is_kept() {
                true => "kiln: interrupted; the same command goes on from here",
                false => "kiln: interrupted",
            });
            return Ok(());
        }
        conclude(&self.output, self.first_failed.as_deref())
    }
}

/// The command's result: an error if a line failed, with the message of the `first` one.
///
/// # Errors
/// Failed: a line was not answered.
fn conclude(output: &OrderedOutput, first: Option<&str>) -> Result<()> {
    if output.failed() == 0 {
        return Ok(());
    }
    let first = first.map_or(String::new(), |first| format!(" ({first})"));
    let cause = format!("{} of {} failed{first}", output.failed(), counted(output.written(), "line"));
    let remedy = match output.is_kept() {
        true => {
            "look at the `error` of those lines of the output; the same command with --retry-failed asks them again"
        }
        false => "look at the `error` of those lines of the output",
    };
    Err(Error::failed(cause, remedy))
}

/// The figures of all passes, which the engine publishes.
#[derive(Clone, Default)]
struct Gauge {
    /// The speed of decoding so far and the device's name, for the progress bar's thread.
    published: Arc<Mutex<(DecodeMeter, String)>>,
    /// The device's measured best read rate in bytes per second; `None`: not measured.
    ceiling: Option<f64>,
}

impl EngineMonitor for Gauge {
    fn note(&self, figure: Figure<'_>) {
        if let Figure::Second(core, meter) = figure {
            let (all, device) = &mut *self.published();
            all.merge(meter);
            core.executor.device().clone_into(device);
        }
    }
}

impl Gauge {
    fn published(&self) -> MutexGuard<'_, (DecodeMeter, String)> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meter(&self) -> DecodeMeter {
        self.published().0
    }

    /// The device's name, including the offload for attention.
    fn device(&self) -> String {
        self.published().1.clone()
    }

    /// Tokens per second, with the share of the memory's ceiling.
    fn line(&self) -> String {
        let meter = self.meter();
        let Some(rate) = meter.rate() else { return "no token decoded".into() };
        let rate = format!("{} decoded, {rate:.1} tokens/s", counted(meter.tokens, "token"));
        // Above one only with drafts.
        let drafts = meter.tokens_per_pass().filter(|tokens| *tokens > 1.0);
        let rate = drafts.map_or(rate.clone(), |tokens| format!("{rate}, {tokens:.2} tokens a pass"));
        match self.ceiling.and_then(|ceiling| meter.share(ceiling)) {
            Some(share) => format!("{rate} ({:.1} % of what its memory allows)", 100.0 * share),
            None => rate,
        }
    }
}
