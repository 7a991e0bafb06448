//! The interactive chat of `kiln run`: a conversation on a terminal, with a history of prompts. Ctrl-C ends a reply,
//! Ctrl-D the chat.

use super::job::stops;
use super::reply::{Printer, ReplyArgs, catch_interrupts, roofline_share, summary};
use super::{face, note};
use crate::executor::Measure;
use crate::machine::cache;
use crate::sequence::conversation::Fitted;
use crate::sequence::{Chooser, Conversation, Limits, Session, generate};
use crate::text::{ChatTemplate, Tokenizer};
use crate::{Error, Result};
use nix::sys::termios::{FlushArg, SetArg, tcflush, tcgetattr, tcsetattr};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{ErrorKind, Write, stdin, stdout};
use tempfile::NamedTempFile;

/// Largest history that is read, in bytes.
const MAX_HISTORY: u64 = 16 << 20;

/// A conversation and the session that holds its keys and values.
struct Chat<'a> {
    args: &'a ReplyArgs,
    executor: &'a mut dyn Measure,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    conversation: Conversation,
    session: Session,
    chooser: Chooser,
}

/// Chats until the input ends.
///
/// # Errors
/// The terminal or the device fails.
pub(super) fn chat(
    model: &str,
    args: &ReplyArgs,
    executor: &mut dyn Measure,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
) -> Result<()> {
    let schedule = executor.schedule();
    let session = Session::new(0, schedule.extent.context);
    let chooser = Chooser::new(args.sampler(), schedule.shape.vocab)?;
    note(&format!("{model} on {}. Ctrl-C ends a reply, Ctrl-D or /bye the chat.", executor.device()));
    let mut c = Chat {
        args,
        executor,
        tokenizer,
        template,
        conversation: Conversation::new(args.system.as_deref()),
        session,
        chooser,
    };
    let terminal = |e: ReadlineError| Error::failed(format!("the terminal failed: {e}"), "give the prompt with -p");
    if let Err(e) = restore_at_signals() {
        log::warn!("a signal leaves the terminal as the prompt has it: {e}");
    }
    let mut editor = DefaultEditor::new().map_err(terminal)?;
    // After creating the editor: it installs its own handler and keeps it while replies are made.
    catch_interrupts();
    let history = cache::directory().map(|d| d.join("history"));
    // The editor opens whatever has the name, so it is checked first.
    if let Some(h) = history.as_ref().filter(|h| cache::read(h, MAX_HISTORY).is_some()) {
        let _ = editor.load_history(h);
    }
    let mut typed = false;
    loop {
        match editor.readline("> ") {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) if line.trim() == "/bye" => break,
            Ok(line) => {
                typed |= editor.add_history_entry(&line).unwrap_or(false);
                match c.exchange(&line) {
                    // An error in a prompt does not end the chat.
                    Err(e @ Error::Input { .. }) => note(&format!("kiln: {}", face::line(&e))),
                    done => done?,
                }
            }
            Err(ReadlineError::Interrupted) => note("(Ctrl-D ends the chat)"),
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                // Discard the rest of the line, which is not a message.
                let _ = tcflush(stdin(), FlushArg::TCIFLUSH);
                note("\nkiln: what was typed is not UTF-8; type it again, on a terminal that is set to UTF-8");
            }
            Err(e) => return Err(terminal(e)),
        }
    }
    if let Some(h) = &history {
        // The editor writes nothing if nothing was typed.
        let save = |new: &mut NamedTempFile| editor.save_history(new.path()).map_err(std::io::Error::other);
        if typed && let Err(e) = cache::write_with(h, save) {
            log::warn!("the history {} cannot be written: {e}", h.display());
        }
    }
    Ok(())
}

/// Makes signals that end the process restore the terminal first. At the prompt the editor has switched off echo and
/// line ends.
fn restore_at_signals() -> std::io::Result<()> {
    let modes = tcgetattr(stdin())?;
    // The editor and the reply handle Ctrl-C themselves.
    let mut signals = Signals::new(stops().into_iter().filter(|&signal| signal != SIGINT))?;
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
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
    /// Answers one line. Keeps both in the conversation if that succeeds.
    fn exchange(&mut self, line: &str) -> Result<()> {
        self.conversation.ask(line);
        let text = self.reply().inspect_err(|_| self.conversation.retract())?;
        self.conversation.answer(&text);
        Ok(())
    }

    /// Answers the conversation's last message.
    fn reply(&mut self) -> Result<String> {
        let limits = Limits::of(self.executor.schedule());
        let Fitted { ids, exchanges, dropped } = self.conversation.fit(self.tokenizer, self.template, limits)?;
        if dropped > 0 {
            note(&format!("(the context is full: the {dropped} oldest of {exchanges} exchanges are forgotten)"));
        }
        let stops = self.args.stops(limits.shape, Some(self.tokenizer));
        let mut printer = Printer::new(Some(self.tokenizer), &self.args.stop, true)?;
        let g = generate(
            self.executor,
            &mut self.session,
            &ids,
            &mut self.chooser,
            &stops,
            self.args.limit(),
            &mut |id| printer.push(id),
        )?;
        printer.finish()?;
        super::print("\n")?;
        let share = roofline_share(self.executor, &g);
        let prompt = format!("{} of {} prompt tokens new,", g.prompt - g.kept, g.prompt);
        note(&summary(self.executor, &prompt, &g, share, false));
        Ok(printer.text().unwrap_or_default().to_owned())
    }
}
