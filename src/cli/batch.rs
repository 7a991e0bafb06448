//! `kiln batch`: runs the prompts of a file through one loaded model, as many at once as fit.

mod identity;
mod input;
mod line;
mod output;

use self::identity::LineHasher;
use self::input::InputLines;
use self::line::{Marks, ParsedLine, Reader};
use self::output::OrderedOutput;
use super::drafts::DraftArgs;
use super::model::ModelArgs;
use super::reply::{ReplyArgs, reads_memory, reply_json};
use super::{face, note, progress, signals};
use crate::diagnose::status::Reporter;
use crate::display::counted;
use crate::engine::{self, Options};
use crate::executor::Measure;
use crate::sequence::meter::DecodeMeter;
use crate::sequence::{Batch, Finish, FinishedSequence, Reply, SequenceLimits};
use crate::text::{StopMatcher, Stopped};
use crate::{Error, Result};
use indicatif::ProgressBar;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The most sequences at once without --batch.
pub(super) const MOST_SEQUENCES: usize = 32;

/// Answers the prompts of a file, one JSON object a line, as many at once as fit.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = super::usage::BATCH)]
pub struct BatchArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompts; -: standard input
    #[arg(value_name = "IN.jsonl")]
    input: PathBuf,
    /// Where the replies go; -: standard output. A file that an earlier run began is continued
    #[arg(help_heading = "Input and output", short, long, value_name = "OUT.jsonl")]
    output: PathBuf,
    /// Ask again what failed in an earlier run, and put the answers in its place
    #[arg(help_heading = "Input and output", long)]
    retry_failed: bool,
    /// Most sequences at once [default: up to 32, as many as fit]
    #[arg(help_heading = "Sequences", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Tokens that the KV cache has room for, of all sequences together [default: all of their contexts, or what fits]
    #[arg(help_heading = "Sequences", long, value_name = "N", allow_negative_numbers = true)]
    kv_tokens: Option<usize>,
    #[command(flatten)]
    reply: ReplyArgs,
    #[command(flatten)]
    drafts: DraftArgs,
}

/// Runs the command.
///
/// # Errors
/// Input: the model, the input or the output is wrong. Failed: a line was not answered. Refused, Device: as for loading.
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
    let name = files.name();
    let mut drafts = args.drafts.read()?.drafts(text.as_ref().map(|(tokenizer, _)| tokenizer))?;
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
        true => OrderedOutput::stdout(),
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
    let opened = engine::open_for(&checkpoint, &options)?;
    let fewer = args.batch.is_none();
    let (mut executor, model) = args.model.load_on(&opened, &checkpoint, draft.as_ref(), &options, fewer, json)?;
    drafts.model = model;
    drop(checkpoint);
    signals::catch(signals::stops().iter().copied());
    let _status = Reporter::start("batch", &name, executor.hardware());
    let reader = Reader {
        defaults: &args.reply,
        limits: SequenceLimits { shape: &shape, context },
        text: text.as_ref().map(|(tokenizer, template)| (tokenizer, template)),
    };
    let slots = (0..executor.schedule().extent.sequences).map(|_| None).collect();
    let style = if input.progress().is_some() { "{msg} {wide_bar} {percent} %, {eta} left" } else { "{msg}" };
    let bar = progress::bar(input.progress().map(|(_, length)| length), style, json);
    let mut batch = Batch::new(executor.schedule());
    drafts.begin(&mut batch, context);
    let mut work = OpenLines { batch, slots, output, gauge: Gauge::default(), model: name, first_failed: None, bar };
    if !work.bar.is_hidden() {
        work.gauge.measure(executor.as_mut());
    }
    let done = work.run(&mut input, &reader, &identity, executor.as_mut());
    // Answers to retried lines are kept even after a failure.
    let settled = work.output.settle();
    done.and(settled)?;
    work.bar.finish_and_clear();
    work.summarise(executor.as_mut())
}

/// A running sequence, with the input line that it answers.
struct RunningLine {
    index: usize,
    request: String,
    marks: Marks,
    prompt: Vec<u32>,
    reply: Option<Reply>,
}

/// The lines being answered.
struct OpenLines {
    batch: Batch,
    /// Per slot of the batch.
    slots: Vec<Option<RunningLine>>,
    output: OrderedOutput,
    gauge: Gauge,
    model: String,
    /// A description of the first line that failed in this run.
    first_failed: Option<String>,
    bar: ProgressBar,
}

impl OpenLines {
    /// Answers the rest of the input.
    ///
    /// # Errors
    /// Failed: the output cannot be written. Input: the input cannot be read. Device: the device failed. Earlier
    /// answers are written.
    fn run(
        &mut self,
        input: &mut InputLines,
        reader: &Reader<'_>,
        identity: &LineHasher,
        executor: &mut dyn Measure,
    ) -> Result<()> {
        loop {
            while self.batch.room() > 0 && !signals::cancel().is_set() {
                let Some((index, line)) = input.next()? else { break };
                let (request, marks) = (identity.of(line.bytes()), Marks::of(line.bytes()));
                let asked = line.whole().and_then(|line| reader.read(line));
                let begun = asked.and_then(|asked| self.begin(executor, index, request.clone(), marks.clone(), asked));
                if let Err(e) = begun {
                    self.fail(index, request, &marks, &e)?;
                }
            }
            if self.batch.is_empty() {
                return Ok(());
            }
            self.step(executor)?;
            if let Some((read, _)) = input.progress() {
                self.bar.set_position(read);
            }
            while let Some(ended) = self.batch.take_ended() {
                self.end(executor, ended)?;
            }
        }
    }

    fn begin(
        &mut self,
        executor: &mut dyn Measure,
        index: usize,
        request: String,
        marks: Marks,
        asked: ParsedLine,
    ) -> Result<()> {
        let prompt = asked.request.prompt.clone();
        let slot = self.batch.join(executor, asked.request)?;
        self.slots[slot] = Some(RunningLine { index, request, marks, prompt, reply: asked.reply });
        Ok(())
    }

    fn step(&mut self, executor: &mut dyn Measure) -> Result<()> {
        let slots = &mut self.slots;
        let start = Instant::now();
        self.batch.step(executor, &mut |slot, token, _| {
            let reply = slots[slot].as_mut().and_then(|running| running.reply.as_mut());
            match reply.map(|reply| reply.push(token).1) {
                Some(Stopped::Yes) => ControlFlow::Break(Finish::Stop),
                _ => ControlFlow::Continue(()),
            }
        })?;
        self.gauge.meter.add(&self.batch, executor, start.elapsed());
        if !self.bar.is_hidden() {
            let (done, failed) = (self.output.written(), self.output.failed());
            self.bar.set_message(format!("{}, {failed} failed; {}", counted(done, "line"), self.gauge.line()));
        }
        Ok(())
    }

    /// Writes a reply. An interrupted one is left for the next run.
    fn end(&mut self, executor: &dyn Measure, ended: FinishedSequence) -> Result<()> {
        let Some(RunningLine { index, request, marks, prompt, reply }) = self.slots[ended.slot].take() else {
            return Ok(());
        };
        match ended.reply {
            Ok(g) if g.finish == Finish::Interrupted => Ok(()),
            Ok(g) => {
                let text = reply.map(|mut reply| {
                    reply.finish();
                    reply.text().to_owned()
                });
                let response = marks.response(&self.model, text.as_deref(), &g, prompt.len());
                let mut line = marks.head(index, request);
                // A single sequence has no roofline share or energy, because all sequences share the reading of
                // weights.
                let seed = ended.chooser.seed();
                let fields = reply_json(&self.model, executor.device(), &prompt, text.as_deref(), &g, seed);
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

    /// Prints the summary.
    ///
    /// # Errors
    /// Failed: a line was not answered.
    fn summarise(&mut self, executor: &mut dyn Measure) -> Result<()> {
        let (done, failed) = (self.output.written(), self.output.failed());
        let interrupted = signals::cancel().is_set();
        // After an interruption the user should not wait for a measurement.
        if self.gauge.ceiling.is_none() && self.gauge.meter.tokens > 0 && !interrupted {
            self.gauge.measure(executor);
        }
        let rate = self.gauge.line();
        note(&format!("[{}, {failed} failed; {rate}, {}]", counted(done, "line"), executor.device()));
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

/// A meter, and the device's measured best read rate in bytes per second; `None`: not measured.
#[derive(Default)]
struct Gauge {
    meter: DecodeMeter,
    ceiling: Option<f64>,
}

impl Gauge {
    /// Measures the device's best read rate, if the weights are read from memory.
    fn measure(&mut self, executor: &mut dyn Measure) {
        self.ceiling = if reads_memory(executor) { executor.measure_read_ceiling().ok() } else { None };
    }

    /// Tokens per second, with the share of the memory's ceiling.
    fn line(&self) -> String {
        let Some(rate) = self.meter.rate() else { return "no token decoded".into() };
        let rate = format!("{} decoded, {rate:.1} tokens/s", counted(self.meter.tokens, "token"));
        // Above one only with drafts.
        let drafts = self.meter.tokens_per_pass().filter(|tokens| *tokens > 1.0);
        let rate = drafts.map_or(rate.clone(), |tokens| format!("{rate}, {tokens:.2} tokens a pass"));
        match self.ceiling.and_then(|ceiling| self.meter.share(ceiling)) {
            Some(share) => format!("{rate} ({:.1} % of what its memory allows)", 100.0 * share),
            None => rate,
        }
    }
}

/// Whether both paths lead to the same file.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    identity(a).is_some() && identity(a) == identity(b)
}
