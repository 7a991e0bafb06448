//! The interactive chat of `kiln run`: a conversation on a terminal. Ctrl-C ends a reply, Ctrl-D the chat.

mod command;
mod input;

use super::progress::LiveBar;
use super::reply::{Printer, ReplyArgs, ReplyEnergy, rate, summary};
use super::tokenize::parse_messages;
use super::wrap::{columns, wrapped};
use super::{face, note, signals};
use crate::display::counted;
use crate::executor::Measure;
use crate::machine::regular::{self, Links};
use crate::sequence::conversation::Fitted;
use crate::sequence::draft::Drafts;
use crate::sequence::{Batch, Chooser, Conversation, Finish, SequenceLimits, SequenceRequest, generate};
use crate::text::{ChatTemplate, Tokenizer};
use crate::{Error, Result};
use command::SlashCommand;
use input::{PromptEditor, Typed};
use nix::sys::termios::{SetArg, tcgetattr, tcsetattr};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdin, stdout};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// How often a chat looks whether a line was typed, where the device has something to do until then.
const TYPING: Duration = Duration::from_millis(1);

/// A conversation and the batch of one sequence that holds its keys and values.
struct Chat<'a> {
    args: &'a ReplyArgs,
    /// Whether the replies alone are shown.
    quiet: bool,
    executor: &'a mut dyn Measure,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    conversation: Conversation,
    batch: Batch,
    chooser: Chooser,
    spent: ReplyEnergy,
}

/// Chats until the input ends. If `quiet`, shows no greeting and no summaries.
///
/// # Errors
/// The terminal or the device fails.
pub(super) fn chat(
    model: &str,
    args: &ReplyArgs,
    quiet: bool,
    drafts: &Drafts,
    executor: &mut dyn Measure,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
) -> Result<()> {
    let schedule = executor.schedule();
    let mut batch = Batch::new(schedule);
    drafts.begin(&mut batch, schedule.extent.context);
    let chooser = Chooser::new(args.sampler(), schedule.shape.vocab)?;
    if !quiet {
        let device = executor.device();
        tell(&format!("{model} on {device}. Ctrl-C ends a reply, Ctrl-D or /bye the chat; /help lists more."));
    }
    let spent = ReplyEnergy::start(executor);
    let mut c = Chat {
        args,
        quiet,
        executor,
        tokenizer,
        template,
        conversation: Conversation::new(args.system.as_deref()),
        batch,
        chooser,
        spent,
    };
    if let Err(e) = handle_signals() {
        log::warn!("Ctrl-C ends the chat, and a signal leaves the terminal as the chat has it: {e}");
    }
    let mut input = PromptEditor::open()?;
    loop {
        match read(&mut input, c.executor)? {
            Typed::Line(line) if line.trim().is_empty() => {}
            Typed::Line(line) => match c.take(&line) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                // An error in a line does not end the chat.
                Err(e @ Error::Input { .. }) => tell(&format!("kiln: {}", face::line(&e))),
                Err(e) => return Err(e),
            },
            Typed::Interrupt => note("(Ctrl-D ends the chat)"),
            Typed::NotText => {
                tell("\nkiln: what was typed is not UTF-8; type it again, on a terminal that is set to UTF-8");
            }
            Typed::End => break,
        }
    }
    Ok(())
}

/// Most bytes of a conversation that is loaded. More fits no context.
const MOST_LOADED: u64 = 64 << 20;

/// Says something on standard error, its words whole where that is a terminal.
fn tell(text: &str) {
    note(&wrapped(text, if stderr().is_terminal() { columns() } else { usize::MAX }));
}

/// Reads what is typed. The device has the time until then for what makes later passes faster.
///
/// # Errors
/// The terminal or the device fails.
fn read(input: &mut PromptEditor, executor: &mut dyn Measure) -> Result<Typed> {
    let Some(mut pause) = executor.improve()? else { return input.read() };
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("terminal".into()).spawn_scoped(scope, || input.read());
        let reader = reader.map_err(|e| Error::failed(format!("cannot start a thread: {e}"), "end other programs"))?;
        while !reader.is_finished() {
            std::thread::sleep(pause.max(TYPING));
            match executor.improve()? {
                Some(next) => pause = next,
                None => break,
            }
        }
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Makes Ctrl-C end a reply, and signals that end the process restore the terminal first: at the prompt the editor has
/// switched off echo and line ends. A second Ctrl-C in a reply ends the process.
fn handle_signals() -> std::io::Result<()> {
    let modes = tcgetattr(stdin())?;
    let mut signals = Signals::new(signals::stops())?;
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        if let Some(signal) = signals.forever().find(|&signal| signal != SIGINT || signals::interrupt()) {
            if tcgetattr(stdin()).is_ok_and(|now| now != modes) {
                let _ = tcsetattr(stdin(), SetArg::TCSANOW, &modes);
                // Switch off bracketed paste, which the editor has switched on.
                let _ = stdout().write_all(b"\x1b[?2004l\r\n").and_then(|()| stdout().flush());
            }
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

impl Chat<'_> {
    /// Obeys a command, or answers a message. Breaks where the chat ends.
    fn take(&mut self, line: &str) -> Result<ControlFlow<()>> {
        match command::parse(line)? {
            None => self.exchange(line)?,
            Some(SlashCommand::Help) => tell(&command::help()),
            Some(SlashCommand::Clear) => {
                self.conversation.clear();
                self.forget()?;
                note("(the conversation begins anew)");
            }
            Some(SlashCommand::System("")) => {
                self.conversation.set_system(None);
                note("(there is no system message now)");
            }
            Some(SlashCommand::System(text)) => {
                self.conversation.set_system(Some(text));
                note("(the system message is replaced)");
            }
            Some(SlashCommand::Load(file)) => self.load(Path::new(file))?,
            Some(SlashCommand::Save(file)) => self.save(Path::new(file))?,
            Some(SlashCommand::Exit) => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Forgets what the repetition penalty remembers of another conversation.
    fn forget(&mut self) -> Result<()> {
        self.chooser = Chooser::new(self.args.sampler(), self.executor.schedule().shape.vocab)?;
        Ok(())
    }

    /// Goes on with the conversation of a file, its system message included. Where its last message is the user's, that is
    /// answered.
    ///
    /// # Errors
    /// Input, so that the chat goes on, with the conversation that it had: the file cannot be read, or is no conversation.
    /// Else as for a reply.
    fn load(&mut self, path: &Path) -> Result<()> {
        let remedy = "give the name of a file that /save has written";
        let bytes = regular::read(path, Links::Follow, MOST_LOADED)
            .map_err(|e| Error::input(format!("cannot read {}: {e}", path.display()), remedy))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::input(format!("{} is no text in UTF-8", path.display()), remedy))?;
        let conversation = Conversation::from_messages(parse_messages(&text)?)?;
        if !conversation.messages().is_empty() {
            // What the template refuses would fail at every later message.
            self.template.render_for(self.tokenizer, conversation.messages(), true)?;
        }
        self.conversation = conversation;
        self.forget()?;
        tell(&format!("({} from {})", counted(self.conversation.messages().len(), "message"), path.display()));
        if self.conversation.is_asked() { self.answer() } else { Ok(()) }
    }

    /// Writes the conversation to a new file. A file that exists is left alone: a slip of the finger costs nothing.
    ///
    /// # Errors
    /// Input, so that the chat goes on: the file exists, or cannot be written.
    fn save(&self, path: &Path) -> Result<()> {
        let unsaved = |e: std::io::Error| match e.kind() {
            ErrorKind::AlreadyExists => {
                Error::input(format!("{} exists already", path.display()), "choose another name behind /save")
            }
            _ => Error::input(
                format!("cannot write {}: {e}", path.display()),
                "choose a name behind /save where files can be written",
            ),
        };
        let messages = self.conversation.messages();
        let text = serde_json::to_string_pretty(messages).map_err(|e| unsaved(e.into()))? + "\n";
        let mut file = File::create_new(path).map_err(unsaved)?;
        file.write_all(text.as_bytes()).map_err(|e| {
            // Half a conversation is of no use.
            let _ = std::fs::remove_file(path);
            unsaved(e)
        })?;
        let count = messages.len();
        tell(&format!("({} in {})", counted(count, "message"), path.display()));
        Ok(())
    }

    /// Answers one message. Keeps both in the conversation if there is an answer.
    fn exchange(&mut self, line: &str) -> Result<()> {
        self.conversation.ask(line);
        self.answer()
    }

    /// Answers the conversation's last message, or removes it if there is no answer.
    fn answer(&mut self) -> Result<()> {
        // One that came after the last reply.
        signals::forget();
        let replied = self.reply();
        // A Ctrl-C has ended the reply and ends nothing else.
        signals::forget();
        match &replied {
            Ok(Some(text)) => self.conversation.answer(text),
            Ok(None) | Err(_) => self.conversation.retract(),
        }
        replied.map(drop)
    }

    /// Answers the conversation's last message. `None` if that was interrupted before the first token.
    fn reply(&mut self) -> Result<Option<String>> {
        let schedule = self.executor.schedule();
        let limits = SequenceLimits::of(schedule);
        let Fitted { ids, exchanges, dropped } = self.conversation.fit(self.tokenizer, self.template, limits)?;
        if dropped > 0 {
            let exchanges = counted(exchanges, "exchange");
            tell(&format!("(the context is full: {dropped} of {exchanges} forgotten, the oldest first)"));
        }
        let stops = self.args.stops(limits.shape, Some(self.tokenizer));
        let held = self.batch.shared(self.executor, &ids);
        let bar = LiveBar::prefill(ids.len() - held, self.quiet);
        let mut printer = Printer::new(Some(self.tokenizer), &self.args.stop, true, bar)?;
        let request = SequenceRequest {
            prompt: ids,
            chooser: self.chooser.clone(),
            stops,
            limit: self.args.limit(),
            reuse: true,
        };
        let spent = &mut self.spent;
        let (g, chooser) = generate(self.executor, &mut self.batch, request, &mut |id| {
            spent.note_token();
            printer.push(id)
        })?;
        let energy = spent.per_token();
        self.chooser = chooser;
        printer.finish()?;
        super::print("\n")?;
        if !self.quiet {
            let rate = rate(self.executor, &g);
            let prompt = format!("{} of {} prompt tokens new,", g.prompt - g.kept, g.prompt);
            tell(&summary(self.executor, &prompt, &g, rate.as_deref(), energy, false));
        }
        let answered = g.finish != Finish::Interrupted || !g.tokens.is_empty();
        Ok(printer.text().filter(|_| answered).map(str::to_owned))
    }
}
