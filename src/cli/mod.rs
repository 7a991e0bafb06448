//! The command line. Arguments are parsed here; each command has a module.

pub mod batch;
pub mod bench;
mod bench_table;
mod chat;
mod column;
pub mod compare;
pub mod completions;
pub mod drafts;
pub mod face;
#[cfg(feature = "init")]
mod init;
pub mod list;
pub mod logits;
pub mod model;
pub mod panics;
pub mod perplexity;
pub mod plan;
pub mod probe;
mod progress;
#[cfg(feature = "pull")]
pub mod pull;
mod reply;
pub mod run;
#[cfg(feature = "serve")]
pub mod serve;
mod signals;
#[cfg(feature = "serve")]
pub mod status;
pub mod stderr;
mod terminal;
pub mod tokenize;
pub mod top;
pub(crate) mod top_view;
pub mod tune;
pub mod usage;
mod wrap;
pub mod write;

use self::terminal::{BAD, STRONG, error_has_color, for_terminal, has_color, json_for_terminal, painted};
use crate::display::plain;
use crate::error::remedy_of_full;
use crate::machine::regular::{self, Links, ReadFault};
use crate::sys::output;
use crate::{Error, Result};
use clap::builder::styling::Style;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use signal_hook::consts::SIGPIPE;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read, StdoutLock, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Gemma 3 on Vulkan: a model is baked once, and replayed for every token.
#[derive(Debug, Parser)]
#[command(name = "kiln", version = crate::version::describe(), about, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = include_str!("help/kiln.txt"), mut_subcommands(usage::with_negative_numbers))]
pub struct Cli {
    /// Print one JSON object on standard output, and nothing else there; for an error one of its message, remedy and
    /// exit code
    #[arg(long, global = true)]
    pub json: bool,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer a prompt, or chat
    #[command(visible_alias = "chat")]
    Run(run::RunArgs),
    /// Answer the prompts of a file, many at once
    Batch(batch::BatchArgs),
    /// Answer other programs over HTTP
    #[cfg(feature = "serve")]
    Serve(Box<serve::ServeArgs>),
    /// Say whether a server is ready
    #[cfg(feature = "serve")]
    Status(status::StatusArgs),
    /// Print the logits after a list of tokens
    Logits(logits::LogitsArgs),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Run a model on two executors step by step, and find where their numbers differ
    Compare(compare::CompareArgs),
    /// Turn text into token ids, or ids into text
    Tokenize(tokenize::TokenizeArgs),
    /// Convert a checkpoint to INT8 or INT4
    Quantize(write::QuantizeArgs),
    /// Download a model of the Hugging Face hub into its cache, or copy one out of it
    #[cfg(feature = "pull")]
    Pull(pull::PullArgs),
    /// List the models in the hub's cache, and whether they fit this machine
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Make, check and put in place a model's files with a manifest of their sums
    Bundle(write::BundleArgs),
    /// Write a synthetic checkpoint of a given shape
    Forge(write::ForgeArgs),
    /// Measure prefill and decode beside the limits of the device
    Bench(bench::BenchArgs),
    /// Measure which of its kernels' tiles a GPU runs fastest, for a model
    Tune(tune::TuneArgs),
    /// Say whether a model fits a machine, how fast it can be at best, the place of each byte, and the schedule
    Plan(plan::PlanArgs),
    /// Check this machine: its devices, its faults, and the rates that it can reach
    Probe(probe::ProbeArgs),
    /// Watch GPU, NPU and running Kilns
    Top(top::TopArgs),
    /// Print a shell's completions
    Completions(completions::CompletionsArgs),
    /// Write the manual's pages
    Man(completions::ManArgs),
}

impl Command {
    /// Whether the command writes files for a long time. Such a command continues when the reader of its output is
    /// gone.
    fn writes(&self) -> bool {
        #[cfg(feature = "pull")]
        if let Command::Pull(_) = self {
            return true;
        }
        matches!(self, Command::Quantize(_) | Command::Forge(_) | Command::Bundle(_))
    }

    /// Whether the command is a server, whose log with `--json` consists of objects, and which never waits for the
    /// log's reader.
    pub fn is_server(&self) -> bool {
        #[cfg(feature = "serve")]
        if let Command::Serve(_) = self {
            return true;
        }
        false
    }
}

/// Runs the command that the process's arguments name. Returns its exit code.
pub fn command_line() -> ExitCode {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    crate::sys::names::use_own_services();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    #[cfg(feature = "init")]
    if init::is_first() {
        return init::run(&arguments);
    }
    let json = usage::wants_json(&arguments);
    panics::guard(json, || run(&arguments, json))
}

/// `json`: also report errors from before the arguments are parsed as objects.
fn run(arguments: &[OsString], mut json: bool) -> ExitCode {
    let parsed = usage::command().try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        #[cfg(feature = "serve")]
        Ok(cli) => serve::config::apply(cli, arguments),
        #[cfg(not(feature = "serve"))]
        Ok(cli) => Ok(cli),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return exit(help(&e), false);
        }
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
        Err(e) => Err(usage::error(&e, arguments)),
    };
    let done = cli.and_then(|cli| {
        json = cli.json;
        log(cli.command.is_server(), json);
        main(cli)
    });
    exit(done, json)
}

/// Sends log records to standard error. A server's records are dropped if standard error has no reader. With `json`,
/// each is an object with its time.
fn log(is_server: bool, json: bool) {
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"));
    if let Some(unread) = is_server.then(|| stderr::drop_unread(json)).flatten() {
        builder.target(env_logger::Target::Pipe(unread));
    }
    let objects = is_server && json;
    builder.format(move |out, record| {
        // Libraries quote files in their logs.
        let (level, line) = (record.level(), plain(&record.args().to_string()));
        if objects {
            return writeln!(out, "{}", log_object(level.as_str(), &line));
        }
        let style = out.default_level_style(level);
        writeln!(out, "[{style}{level:<5}{style:#}] {line}")
    });
    builder.init();
}

/// Reports an error. Returns the exit code. If a signal stopped the command, ends the process by it.
fn exit(done: Result<()>, json: bool) -> ExitCode {
    let code = done.map_or_else(
        |e| {
            report(&e, json);
            e.exit_code()
        },
        |()| 0,
    );
    signals::end();
    // A driver may still compile a kernel that is not needed any more.
    crate::sys::exit::leave_abandoned(code);
    ExitCode::from(code)
}

/// A log record as a JSON object: time in seconds since 1970, level and message.
fn log_object(level: &str, message: &str) -> Value {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    json!({"time": time, "level": level.to_lowercase(), "message": message})
}

/// Runs the command. If the reader of standard output is gone, SIGPIPE ends the process, except for commands that write
/// files.
///
/// # Errors
/// Errors of the command.
fn main(cli: Cli) -> Result<()> {
    signals::prepare();
    let shows = !cli.command.writes();
    // Checked before the work, whose result could not be shown. The manual may be written to files instead.
    if shows && !matches!(cli.command, Command::Man(_)) {
        drop(stdout()?);
    }
    let done = run_command(cli);
    if shows {
        end_with_reader(&done);
    }
    done
}

/// Prints the requested help or version.
///
/// # Errors
/// As [`print`].
fn help(asked: &clap::Error) -> Result<()> {
    let done = match asked.kind() {
        // Subcommands have no separate version.
        ErrorKind::DisplayVersion => print(&Cli::command().render_version()),
        _ => stdout().and_then(|mut out| asked.print().and_then(|()| out.flush()).map_err(unwritten)),
    };
    end_with_reader(&done);
    done
}

/// Reports an error: a line on standard error and, with `json`, an object on standard output if nothing else is there.
fn report(e: &Error, json: bool) {
    note_in(BAD, &format!("kiln: {}", face::line(e)));
    if json {
        report_object(e);
    }
}

/// Prints an error as an object on standard output, if nothing has been printed there.
fn report_object(e: &Error) {
    if !PRINTED.load(Ordering::Relaxed) {
        // If standard output fails too, the line on standard error must do.
        let _ = print_json(&face::object(e));
    }
}

/// Ends the process by SIGPIPE if the output failed because its reader is gone.
fn end_with_reader(done: &Result<()>) {
    if done.is_err() && READER_GONE.load(Ordering::Relaxed) {
        // Not an error: ends without a message, as `ls` does in `ls | head`. Rust ignores the signal by default.
        let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
    }
}

fn run_command(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Run(args) => run::run(&args, cli.json),
        Command::Batch(args) => batch::run(&args, cli.json),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args, cli.json),
        #[cfg(feature = "serve")]
        Command::Status(args) => status::run(&args, cli.json),
        Command::Logits(args) => logits::run(&args, cli.json),
        Command::Perplexity(args) => perplexity::run(&args, cli.json),
        Command::Compare(args) => compare::run(&args, cli.json),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Quantize(args) => write::quantize(&args, cli.json),
        #[cfg(feature = "pull")]
        Command::Pull(args) => pull::run(&args, cli.json),
        Command::List(args) => list::run(&args, cli.json),
        Command::Bundle(args) => write::bundle(&args, cli.json),
        Command::Forge(args) => write::forge(&args, cli.json),
        Command::Bench(args) => bench::run(&args, cli.json),
        Command::Tune(args) => tune::run(&args, cli.json),
        Command::Plan(args) => plan::run(&args, cli.json),
        Command::Probe(args) => probe::run(&args, cli.json),
        Command::Top(args) => top::run(&args, cli.json),
        Command::Completions(args) => completions::complete(&args),
        Command::Man(args) => completions::write_manual(&args),
    }
}

/// The largest input, in bytes. A larger one fits no context.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Reads a file as text; `-` is standard input.
///
/// # Errors
/// Input: it cannot be read, is not UTF-8, or is longer than any prompt.
fn read_file(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return read_stdin();
    }
    // Any kind of file, because shells pass a command's output as a named pipe.
    let unreadable = |e| Error::unreadable(path, &e);
    let file = File::open(path).map_err(unreadable)?;
    read_from(file, &path.display().to_string(), MAX_INPUT_BYTES, unreadable).map(without_mark)
}

/// Reads standard input as text. Prints a hint if nothing arrives, because an inherited pipe may stay open.
///
/// # Errors
/// As [`read_file`].
fn read_stdin() -> Result<String> {
    /// Milliseconds without input after which a hint is printed.
    const PATIENCE: u16 = 2000;
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    if poll(&mut polled, PollTimeout::from(PATIENCE)) == Ok(0) {
        note("kiln: waiting for standard input; `</dev/null` gives none");
    }
    read_from(stdin.lock(), "standard input", MAX_INPUT_BYTES, unreadable_input).map(without_mark)
}

/// Reads a regular file of at most `most` bytes. `what` is its kind in errors.
///
/// # Errors
/// Input: it cannot be read, is not regular, or is too long.
fn read_regular(path: &Path, most: u64, what: &str, remedy: &'static str) -> Result<Vec<u8>> {
    regular::read(path, Links::Follow, most).map_err(|fault| match fault {
        ReadFault::Io(e) => Error::unreadable(path, &e),
        fault => Error::input(format!("{} is no {what}: {fault}", path.display()), remedy),
    })
}

/// As [`read_regular`], for text.
///
/// # Errors
/// As [`read_regular`]; also Input: it is not UTF-8.
fn read_regular_text(path: &Path, most: u64, what: &str, remedy: &'static str) -> Result<String> {
    let text = String::from_utf8(read_regular(path, most, what, remedy)?);
    text.map_err(|e| not_utf_8(&path.display().to_string(), e.utf8_error().valid_up_to()))
}

fn read_from(input: impl Read, name: &str, most: u64, unreadable: impl Fn(io::Error) -> Error) -> Result<String> {
    let mut bytes = Vec::new();
    input.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(Error::input(format!("{name} is longer than any prompt"), "give at most 64 MiB of text"));
    }
    String::from_utf8(bytes).map_err(|e| not_utf_8(name, e.utf8_error().valid_up_to()))
}

/// Removes the byte order mark that some editors write before UTF-8.
fn without_mark(text: String) -> String {
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

fn unreadable_input(e: std::io::Error) -> Error {
    Error::input(format!("cannot read standard input: {e}"), "give the text as an argument")
}

fn not_utf_8(name: &str, position: usize) -> Error {
    Error::input(format!("{name} is not UTF-8 at byte {position}"), "convert it to UTF-8 first")
}

/// True if both paths lead to the same file.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    identity(a).is_some() && identity(a) == identity(b)
}

/// Writes lines to standard error without control characters, because paths and models may have any name. Errors are
/// ignored: the work continues without a reader.
pub fn note(lines: &str) {
    note_in(STRONG, lines);
}

/// Prints a note as [`note`] does, with the program's name in a style before it.
fn note_in(style: Style, lines: &str) {
    let lines = for_terminal(lines);
    match lines.split_once(':').filter(|(name, _)| matches!(*name, "kiln" | "kiln serve")) {
        Some((name, rest)) if error_has_color() => {
            stderr::write_line(&format!("{}{rest}", painted(style, &format!("{name}:"), true)));
        }
        _ => stderr::write_line(&lines),
    }
}

/// Writes to standard output and flushes it. Control characters are escaped on a terminal, but not in a pipe.
///
/// # Errors
/// Failed: the reader is gone or the disk is full.
fn print(text: &str) -> Result<()> {
    let out = stdout()?;
    match out.is_terminal() {
        true => print_to(out, &for_terminal(text)),
        false => print_to(out, text),
    }
}

/// As [`print`]. If standard output shows colour, `paint` colours each line.
///
/// # Errors
/// As [`print`].
fn print_in_color(text: &str, paint: impl Fn(&str) -> String) -> Result<()> {
    if !has_color() {
        return print(text);
    }
    let painted: String = for_terminal(text).lines().map(|line| paint(line) + "\n").collect();
    print_to(stdout()?, &painted)
}

/// Columns of standard output, for line breaks; the maximum if it is not a terminal.
fn output_columns() -> usize {
    if io::stdout().is_terminal() { wrap::columns() } else { usize::MAX }
}

/// Standard output.
///
/// # Errors
/// Failed: it was closed when the process started.
fn stdout() -> Result<StdoutLock<'static>> {
    match output::is_closed() {
        true => Err(Error::failed("cannot write standard output: it is closed", "give it a file, a pipe or /dev/null")),
        false => Ok(std::io::stdout().lock()),
    }
}

/// True after a write to standard output failed because its reader has ended, such as `head`.
static READER_GONE: AtomicBool = AtomicBool::new(false);

/// True after the first write to standard output.
static PRINTED: AtomicBool = AtomicBool::new(false);

fn print_to(mut out: impl Write, text: &str) -> Result<()> {
    PRINTED.store(true, Ordering::Relaxed);
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(unwritten)
}

fn unwritten(e: std::io::Error) -> Error {
    READER_GONE.fetch_or(e.kind() == io::ErrorKind::BrokenPipe, Ordering::Relaxed);
    let remedy = remedy_of_full(e.kind()).unwrap_or("check the program that reads it");
    Error::failed(format!("cannot write standard output: {e}"), remedy)
}

/// Prints a JSON object and a newline. Control characters are escaped.
///
/// # Errors
/// As [`print`].
fn print_json(value: &serde_json::Value) -> Result<()> {
    print(&format!("{}\n", json_for_terminal(&value.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_file_may_begin_with_a_byte_order_mark() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prompt");
        std::fs::write(&path, "\u{feff}When do you open?\u{feff}").unwrap();
        assert_eq!(read_file(&path).unwrap(), "When do you open?\u{feff}");
    }

    #[test]
    fn only_a_prompt_has_a_longest_text() {
        let read = |bytes: &[u8], most| read_from(bytes, "standard input", most, unreadable_input);
        let long = "€".repeat((MAX_INPUT_BYTES / 3 + 1) as usize);
        assert!(read(long.as_bytes(), u64::MAX).unwrap() == long);
        let refused = read(long.as_bytes(), MAX_INPUT_BYTES).unwrap_err();
        assert!(refused.to_string().contains("longer than any prompt"), "{refused}");
        for (bytes, position) in
            [(&b"ab\xff"[..], 2), (b"ab\xe2\x82", 2), (&[b"a".repeat(70_000), vec![0xe2, b'a']].concat(), 70_000)]
        {
            let error = read(bytes, u64::MAX).unwrap_err();
            assert!(error.to_string().contains(&format!("not UTF-8 at byte {position};")), "{error}");
        }
    }
}
