//! The interactive chat of `kiln run`: a conversation on a terminal. Ctrl-C ends a reply, Ctrl-D the chat.

mod command;
mod file;
mod input;

use super::progress::LiveBar;
use super::reply::{Printer, ReplyArgs, ReplyEnergy, no_thoughts, rate, summary};
use super::terminal::{BAD, FAINT, error_has_color, for_terminal, painted};
use super::wrap::{columns, wrapped};
use super::{face, note, note_in, signals, stderr as messages};
use crate::display::counted;
use crate::engine::open::OpenEngine;
use crate::engine::request::{ReplyEnd, Request};
use crate::sequence::conversation::Fitted;
use crate::sequence::{Chooser, Conversation, Finish};
use crate::text::{ChatTemplate, Message, SamplerConfig, Tokenizer};
use crate::{Error, Result};
use command::SlashCommand;
use file::ChatFile;
use input::{PromptEditor, Typed};
use nix::sys::termios::{SetArg, tcgetattr, tcsetattr};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::ops::ControlFlow;
use std::path::Path;

/// A conversation with an engine, whose cache holds its keys and values.
struct Chat<'a> {
    args: &'a ReplyArgs,
    /// True if only replies are shown, without greetings and summaries.
    quiet: bool,
    engine: &'a OpenEngine,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    conversation: Conversation,
    /// Tokens of the conversation; 0 before the first message.
    used: usize,
    /// The file that the conversation was last loaded from or saved to.
    file: Option<ChatFile>,
    sampler: SamplerConfig,
    /// The chooser that the last reply ended with, which the next reply continues. `None`: a new one, made from
    /// `sampler`.
    chooser: Option<Chooser>,
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
    engine: &OpenEngine,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
) -> Result<()> {
    if !quiet {
        let device = engine.device()?;
        tell(&format!("{model} on {device}. Ctrl-C ends a reply, Ctrl-D or /bye the chat; /help lists more."));
    }
    let spent = ReplyEnergy::start(engine);
    let mut c = Chat {
        args,
        quiet,
        engine,
        tokenizer,
        template,
        conversation: Conversation::new(args.system.as_deref()),
        used: 0,
        file: None,
        sampler: args.sampler(),
        chooser: None,
        spent,
    };
    c.conversation.thinking = args.think.then_some(true);
    if let Err(e) = handle_signals() {
        log::warn!("Ctrl-C ends the chat, and a signal leaves the terminal as the chat has it: {e}");
    }
    let mut input = PromptEditor::open()?;
    loop {
        let prompt = c.prompt();
        match input.read(&prompt)? {
            Typed::Line(line) if line.trim().is_empty() => {}
            Typed::Line(line) => match c.take(&line) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                // An error in one line does not end the chat.
                Err(e @ Error::Input { .. }) => complain(&format!("kiln: {}", face::line(&e))),
                Err(e) => return Err(e),
            },
            Typed::Interrupt { kept: false } => tell("(Ctrl-D ends the chat)"),
            Typed::Interrupt { kept: true } => {
                tell("(Ctrl-C again clears the line; on an empty one Ctrl-D ends the chat)")
            }
            Typed::NotText => {
                complain("kiln: the line is not UTF-8; type it again, on a terminal that is set to UTF-8");
            }
            Typed::End => break,
        }
    }
    Ok(())
}

/// The width of standard error's terminal in columns, for line breaks.
fn error_columns() -> usize {
    if stderr().is_terminal() { columns() } else { usize::MAX }
}

/// Prints a message beside the conversation on standard error, wrapped at words on a terminal.
fn tell(text: &str) {
    let lines = wrapped(&for_terminal(text), error_columns());
    messages::write_line(&painted(FAINT, &lines, error_has_color()));
}

/// Prints an error to standard error as [`tell`] prints a message.
fn complain(text: &str) {
    note_in(BAD, &wrapped(text, error_columns()));
}

/// Makes Ctrl-C end a reply. Signals that end the process restore the terminal first, because the editor switches off
/// echo and line ends at the prompt. A second Ctrl-C in a reply ends the process.
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
    /// The prompt, with the conversation's tokens and the size of the context.
    fn prompt(&self) -> String {
        let context = self.engine.limits().context;
        if self.quiet { "> ".into() } else { format!("{}/{context} > ", self.used) }
    }

    /// Executes a command or answers a message. Breaks at the end of the chat.
    fn take(&mut self, line: &str) -> Result<ControlFlow<()>> {
        match command::parse(line)? {
            None => {
                self.conversation.ask(line);
                self.answer(None)?;
            }
            Some(SlashCommand::Help) => note(&command::help(error_columns())),
            Some(SlashCommand::Regenerate) => self.regenerate()?,
            Some(SlashCommand::Undo) => self.undo()?,
            Some(SlashCommand::Clear) => {
                self.conversation.clear();
                self.used = 0;
                tell("(the conversation begins anew)");
            }
            Some(SlashCommand::System(text)) => {
                self.conversation.set_system(Some(text));
                self.count()?;
                tell(if text.is_empty() {
                    "(there is no system message now)"
                } else {
                    "(the system message is replaced)"
                });
            }
            Some(SlashCommand::Temperature(temperature)) => self.heat(temperature)?,
            Some(SlashCommand::Think(on)) => self.think(on)?,
            Some(SlashCommand::Load(path)) => self.load(&path)?,
            Some(SlashCommand::Save(path)) => self.save(path.as_deref())?,
            Some(SlashCommand::Exit) => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Counts the conversation's tokens.
    ///
    /// # Errors
    /// Input: the template refuses the messages.
    fn count(&mut self) -> Result<()> {
        self.used = match self.conversation.turns() {
            0 => 0,
            _ => {
                let rendered = self.template.render_for(self.tokenizer, self.conversation.messages(), false)?;
                self.tokenizer.encode_rendered(&rendered)?.len()
            }
        };
        Ok(())
    }

    /// Sets the sampling temperature, or prints it if none is given.
    fn heat(&mut self, temperature: Option<f32>) -> Result<()> {
        if let Some(temperature) = temperature {
            let sampler = SamplerConfig { temperature, ..self.sampler.clone() };
            sampler.validate()?;
            (self.sampler, self.chooser) = (sampler, None);
        }
        let kind = if self.sampler.temperature == 0.0 { ": always the likeliest token" } else { "" };
        tell(&format!("(the temperature is {}{kind})", self.sampler.temperature));
        Ok(())
    }

    /// Sets whether the model thinks before it answers, or says whether it does.
    ///
    /// # Errors
    /// Input: the model cannot be asked to.
    fn think(&mut self, on: Option<bool>) -> Result<()> {
        if on == Some(true) && !self.template.thinks() {
            return Err(no_thoughts("use another model, such as Gemma 4"));
        }
        if let Some(on) = on {
            self.conversation.thinking = on.then_some(true);
        }
        tell(match self.conversation.thinking {
            Some(true) => "(the model thinks before it answers)",
            _ => "(the model answers without thinking first)",
        });
        Ok(())
    }

    /// Removes the user's last message and its answer.
    ///
    /// # Errors
    /// Input: there is none.
    fn undo(&mut self) -> Result<()> {
        let Some(message) = self.conversation.undo() else { return Err(nothing_said()) };
        self.count()?;
        tell(&format!("(taken back: {})", excerpt(&message)));
        Ok(())
    }

    /// Answers the last message again. The old answer stays until there is a new one.
    ///
    /// # Errors
    /// Input: there is no message. Otherwise as for a reply.
    fn regenerate(&mut self) -> Result<()> {
        if !self.conversation.is_asked() && self.conversation.turns() == 0 {
            return Err(nothing_said());
        }
        if self.sampler.temperature == 0.0 {
            tell("(at a temperature of 0 the answer stays the same; `/temp 1` lets it vary)");
        }
        let before = self.conversation.take_answer();
        self.answer(before)
    }

    /// Continues the conversation in a file, including its system message. If its last message is the user's, answers
    /// it.
    ///
    /// # Errors
    /// Input: the file cannot be read or is not a conversation; the chat keeps its old one then. Otherwise as for a
    /// reply.
    fn load(&mut self, path: &Path) -> Result<()> {
        let (conversation, file) = file::load(path)?;
        if !conversation.messages().is_empty() {
            // Messages that the template refuses would make every later reply fail.
            self.template.render_for(self.tokenizer, conversation.messages(), true)?;
        }
        (self.conversation, self.file) = (conversation, file);
        self.count()?;
        let last = self.conversation.messages().iter().rfind(|message| message.role == "user");
        let last = last.map_or(String::new(), |message| format!("; last asked: {}", excerpt(message)));
        tell(&format!("({} from {}{last})", self.extent(), path.display()));
        if self.conversation.is_asked() { self.answer(None) } else { Ok(()) }
    }

    /// Writes the conversation to a file, by default to its own.
    ///
    /// # Errors
    /// As [`file::save`].
    fn save(&mut self, path: Option<&Path>) -> Result<()> {
        let file = file::save(self.conversation.messages(), path, self.file.as_ref())?;
        tell(&format!("({} in {})", self.extent(), file.path().display()));
        self.file = Some(file);
        Ok(())
    }

    /// The number of turns in the conversation as text.
    fn extent(&self) -> String {
        let turns = counted(self.conversation.turns(), "turn");
        let has_system = self.conversation.messages().first().is_some_and(|first| first.role == "system");
        if has_system { format!("{turns} and a system message") } else { turns }
    }

    /// Answers the conversation's last message. If there is no answer, puts back the one `before`, or removes the
    /// message.
    fn answer(&mut self, before: Option<Message>) -> Result<()> {
        match (self.attempt(), before) {
            (Ok(Some(text)), _) => self.conversation.answer(&text),
            (failed, before) => {
                match before {
                    Some(before) => self.conversation.put_back(before),
                    None => self.conversation.retract(),
                }
                self.count()?;
                failed?;
            }
        }
        Ok(())
    }

    /// Makes a reply as [`Chat::reply`] does. Ctrl-C ends only the reply, and not the chat.
    fn attempt(&mut self) -> Result<Option<String>> {
        // Discards a Ctrl-C from after the last reply.
        signals::forget();
        let replied = self.reply();
        signals::forget();
        replied
    }

    /// Answers the conversation's last message. `None` if it was interrupted before the answer's first token.
    fn reply(&mut self) -> Result<Option<String>> {
        let fitted = self.conversation.fit(self.tokenizer, self.template, self.engine.limits())?;
        let Fitted { ids, exchanges, dropped } = fitted;
        if dropped > 0 {
            let exchanges = counted(exchanges, "exchange");
            tell(&format!("(the context is full: {dropped} of {exchanges} forgotten, the oldest first)"));
        }
        let prompt = ids.clone();
        let held = self.engine.run(move |core| core.batch.shared(core.executor.as_mut(), &prompt))?;
        let bar = LiveBar::prefill(ids.len() - held, self.quiet);
        let mut printer = Printer::new(true, true, self.quiet, bar);
        let request =
            Request { sampler: self.sampler.clone(), chooser: self.chooser.clone(), ..self.args.request(ids) };
        let reply = self.engine.submit(&request, Some(self.tokenizer))?;
        let ReplyEnd { generation: g, chooser, thought_tokens, .. } = printer.print(reply, &mut self.spent)?;
        let energy = self.spent.per_token();
        self.chooser = Some(chooser);
        super::print("\n")?;
        if !self.quiet {
            let rate = rate(self.engine, &g);
            let prompt = format!("{} of {} prompt tokens new,", g.prompt - g.kept, g.prompt);
            tell(&summary(self.engine, &prompt, &g, rate.as_deref(), energy, None));
        }
        self.used = g.prompt + g.tokens.len() - thought_tokens;
        let answered = g.finish != Finish::Interrupted || g.tokens.len() > thought_tokens;
        Ok(printer.text().filter(|_| answered).map(str::to_owned))
    }
}

/// The error for commands that need a message.
fn nothing_said() -> Error {
    Error::input("nothing has been asked yet", "type a message, or /load a conversation")
}

/// The beginning of a message, as one line.
fn excerpt(message: &Message) -> String {
    /// The most characters of the excerpt.
    const MOST: usize = 60;
    // The first text is the role.
    let line = message.texts().into_iter().skip(1).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
