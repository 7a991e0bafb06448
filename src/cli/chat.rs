//! The interactive chat of `kiln run`: a conversation on a terminal, with history. Ctrl-C ends a reply, Ctrl-D the chat.

use super::job::stops;
use super::reply::{Printer, ReplyArgs, catch_interrupts, roofline_share, summary};
use super::{face, note};
use crate::error::text;
use crate::executor::Executor;
use crate::machine::cache;
use crate::sequence::generate::{Chooser, generate};
use crate::sequence::session::{Session, larger_context};
use crate::text::{ChatTemplate, Message, Tokenizer};
use crate::{Error, Result};
use nix::sys::termios::{FlushArg, SetArg, tcflush, tcgetattr, tcsetattr};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{ErrorKind, Write, stdin, stdout};

/// A conversation and the session that holds its keys and values.
struct Conversation<'a> {
    args: &'a ReplyArgs,
    executor: &'a mut dyn Executor,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    messages: Vec<Message>,
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
    executor: &mut dyn Executor,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
) -> Result<()> {
    let schedule = executor.schedule();
    let session = Session::new(0, schedule.extent.context);
    let chooser = Chooser::new(args.sampler(), schedule.shape.vocab)?;
    note(&format!("{model} on {}. Ctrl-C ends a reply, Ctrl-D or /bye the chat.", executor.device()));
    let mut c = Conversation {
        args,
        executor,
        tokenizer,
        template,
        messages: args.system.iter().map(|s| Message::new("system", s)).collect(),
        session,
        chooser,
    };
    let terminal = |e: ReadlineError| Error::failed(format!("the terminal failed: {e}"), "give the prompt with -p");
    if let Err(e) = restore_at_signals() {
        log::warn!("a signal leaves the terminal as the prompt has it: {e}");
    }
    let mut editor = DefaultEditor::new().map_err(terminal)?;
    // Behind the editor, which installs a handler of its own and keeps it while replies are made.
    catch_interrupts();
    let history = cache::directory().map(|d| d.join("history"));
    if let Some(h) = &history {
        let _ = editor.load_history(h);
    }
    loop {
        match editor.readline("> ") {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) if line.trim() == "/bye" => break,
            Ok(line) => {
                let _ = editor.add_history_entry(&line);
                match c.exchange(&line) {
                    // What a prompt did wrong does not end the chat.
                    Err(e @ Error::Input { .. }) => note(&format!("kiln: {}", face::line(&e))),
                    done => done?,
                }
            }
            Err(ReadlineError::Interrupted) => note("(Ctrl-D ends the chat)"),
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                // What follows on the line is no message of its own.
                let _ = tcflush(stdin(), FlushArg::TCIFLUSH);
                note("\nkiln: what was typed is not UTF-8; type it again, on a terminal that is set to UTF-8");
            }
            Err(e) => return Err(terminal(e)),
        }
    }
    if let Some(h) = &history {
        let saved = h.parent().map(std::fs::create_dir_all).transpose().is_ok() && editor.save_history(h).is_ok();
        if !saved {
            log::warn!("the history {} cannot be written", h.display());
        }
    }
    Ok(())
}

/// Makes a signal that ends the process restore the terminal first: at the prompt it is the editor's, without echo and line
/// ends.
fn restore_at_signals() -> std::io::Result<()> {
    let modes = tcgetattr(stdin())?;
    // The editor and the reply have their own way with Ctrl-C.
    let mut signals = Signals::new(stops().into_iter().filter(|&signal| signal != SIGINT))?;
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            if tcgetattr(stdin()).is_ok_and(|now| now != modes) {
                let _ = tcsetattr(stdin(), SetArg::TCSANOW, &modes);
                // The editor has pastes marked.
                let _ = stdout().write_all(b"\x1b[?2004l\r\n").and_then(|()| stdout().flush());
            }
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

impl Conversation<'_> {
    /// Answers one line, and keeps both in the conversation if that succeeds.
    fn exchange(&mut self, line: &str) -> Result<()> {
        self.messages.push(Message::new("user", line));
        match self.reply() {
            Ok(text) => {
                self.messages.push(Message::new("assistant", text));
                Ok(())
            }
            Err(e) => {
                self.messages.pop();
                Err(e)
            }
        }
    }

    /// Answers the conversation's last message.
    fn reply(&mut self) -> Result<String> {
        let ids = self.fit()?;
        // What the cache already holds of the conversation is not run again; the last token always is, for its logits.
        let same = self.session.tokens().iter().zip(&ids).take_while(|(a, b)| a == b).count();
        let kept = self.session.rewind(self.executor, same.min(ids.len() - 1));

        let stops = self.args.stops(self.executor, Some(self.tokenizer));
        let mut printer = Printer::new(Some(self.tokenizer), &self.args.stop, true)?;
        let g = generate(
            self.executor,
            &mut self.session,
            &ids[kept..],
            &mut self.chooser,
            &stops,
            self.args.limit(),
            &mut |id| printer.push(id),
        )?;
        printer.finish()?;
        super::print("\n")?;
        let share = roofline_share(self.executor, &g);
        let prompt = format!("{} of {} prompt tokens new,", ids.len() - kept, ids.len());
        note(&summary(self.executor, &prompt, &g, share, false));
        Ok(printer.text)
    }

    /// The conversation's ids. Where they leave no room for a reply, the oldest exchanges are dropped, aloud, but only if
    /// the last message fits at all.
    fn fit(&mut self) -> Result<Vec<u32>> {
        let schedule = self.executor.schedule();
        let context = schedule.extent.context;
        let larger = larger_context(&schedule.shape, context);
        let most = context - context / 8;
        let first = usize::from(self.args.system.is_some());
        let exchanges = (self.messages.len() - first) / 2;
        for dropped in 0..=exchanges {
            let kept: Vec<Message> =
                self.messages[..first].iter().chain(&self.messages[first + 2 * dropped..]).cloned().collect();
            let text = self.template.render(&kept, true)?;
            if self.tokenizer.fewest_tokens(&text) > most {
                continue;
            }
            let ids = self.tokenizer.encode(&text, false)?;
            if ids.len() <= most {
                if dropped > 0 {
                    note(&format!(
                        "(the context is full: the {dropped} oldest of {exchanges} exchanges are forgotten)"
                    ));
                }
                self.messages = kept;
                return Ok(ids);
            }
        }
        Err(Error::input(
            format!(
                "the message is too long: a context of {context} takes {most} tokens and leaves the rest for the reply"
            ),
            larger.map_or("shorten it".into(), |larger| text!("shorten it, or start again and ", larger)),
        ))
    }
}
