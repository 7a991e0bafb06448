//! Input of a chat: a line editor with a history, and messages of several lines.
//!
//! Enter sends. A message has several lines if a backslash ends a line, between `"""`, after Alt-Enter, and in a paste
//! that the terminal marks. In an unmarked paste each line is a message, answered in turn, and so is each line typed
//! during a reply. Ctrl-C discards no typed text, neither during a reply nor, the first time, at the prompt.

use super::{command, file};
use crate::cli::terminal::{FAINT, STRONG, for_terminal, has_color, painted};
use crate::machine::cache;
use crate::sys::interrupt::InterruptHandler;
use crate::{Error, Result};
use nix::errno::Errno;
use nix::libc::O_NOFOLLOW;
use nix::sys::termios::{
    FlushArg, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcflush, tcgetattr, tcsetattr,
};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, ColorMode, CompletionType, Config, Context, Editor, Helper, KeyCode, KeyEvent, Modifiers};
use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{ErrorKind, stdin};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest history that is read, in bytes. The editor keeps 100 lines of it.
const MAX_HISTORY: u64 = 16 << 20;
/// Terminals without support for editing: the editor reads their lines as they come.
const PLAIN: [&str; 3] = ["dumb", "cons25", "emacs"];
/// Three quotes, which enclose a message of several lines.
const QUOTES: &str = "\"\"\"";

/// Input that the user typed at the prompt.
pub(super) enum Typed {
    /// A message or a command.
    Line(String),
    /// The user pressed Ctrl-C.
    Interrupt {
        /// True if a line was typed, which the next prompt restores.
        kept: bool,
    },
    /// Bytes that are not UTF-8. Input after them is discarded.
    NotText,
    /// The user pressed Ctrl-D, or the terminal is closed.
    End,
}

/// The prompt and its history.
pub(super) struct PromptEditor {
    editor: Editor<EditorHelper, DefaultHistory>,
    history: Option<PathBuf>,
    /// The terminal's modes before the chat.
    modes: Termios,
    /// True if the terminal cannot be controlled, so that it edits lines itself.
    is_plain: bool,
    /// The line that Ctrl-C interrupted, which the next prompt restores.
    kept: String,
    /// Handlers of SIGINT at the prompt and outside of it. The editor's own handler would keep an event from between
    /// prompts until the next prompt, where a resize of the terminal would then discard typed text.
    handlers: [InterruptHandler; 2],
}

impl PromptEditor {
    /// Opens the terminal, and the history if there is a place for one.
    ///
    /// # Errors
    /// Failed: the terminal cannot be used.
    pub(super) fn open() -> Result<PromptEditor> {
        let unusable = |e: Errno| failed(ReadlineError::Io(e.into()));
        let modes = tcgetattr(stdin()).map_err(unusable)?;
        let between = InterruptHandler::installed().map_err(unusable)?;
        let colors = if has_color() { ColorMode::Enabled } else { ColorMode::Disabled };
        let config = Config::builder().completion_type(CompletionType::List).color_mode(colors).build();
        let mut editor = Editor::with_config(config).map_err(failed)?;
        let handlers = [InterruptHandler::installed().map_err(unusable)?, between];
        editor.set_helper(Some(EditorHelper::default()));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = cache::directory().map(|d| d.join("history"));
        // The editor opens any kind of file, so it is checked first.
        let history = history.filter(|path| path.symlink_metadata().is_err() || is_usable(path));
        if let Some(path) = &history {
            let _ = editor.load_history(path);
        }
        let is_plain =
            std::env::var("TERM").is_ok_and(|term| PLAIN.iter().any(|plain| term.eq_ignore_ascii_case(plain)));
        Ok(PromptEditor { editor, history, modes, is_plain, kept: String::new(), handlers })
    }

    /// Reads the next line or message of several lines.
    ///
    /// # Errors
    /// Failed: the terminal failed.
    pub(super) fn read(&mut self, prompt: &str) -> Result<Typed> {
        let [at_prompt, between] = &self.handlers;
        at_prompt.install();
        if self.is_plain {
            // The editor reports a failed terminal.
            let _ = tcsetattr(stdin(), SetArg::TCSANOW, &self.modes);
        }
        let before = std::mem::take(&mut self.kept);
        let read = self.editor.readline_with_initial(prompt, (&before, ""));
        between.install();
        self.keep_what_is_typed();
        let typed = self.editor.helper().map(|helper| helper.typed.take()).unwrap_or_default();
        match read {
            Ok(text) => {
                self.remember(&text);
                Ok(Typed::Line(message(&text)))
            }
            Err(ReadlineError::Interrupted) => {
                match typed == before {
                    // The second Ctrl-C clears the line, which stays in the history.
                    true => self.remember(&typed),
                    false => self.kept = typed,
                }
                Ok(Typed::Interrupt { kept: !self.kept.is_empty() })
            }
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                // Discards the rest of the line, which is not a complete message.
                let _ = tcflush(stdin(), FlushArg::TCIFLUSH);
                Ok(Typed::NotText)
            }
            Err(e) => Err(failed(e)),
        }
    }

    /// Makes the terminal keep typed text until the next prompt and show it there: an echo would appear within the
    /// reply, and Ctrl-C would discard the text before it. In line mode the terminal would cut off lines after 4095
    /// bytes.
    fn keep_what_is_typed(&self) {
        let mut modes = self.modes.clone();
        modes.local_flags.remove(LocalFlags::ECHO | LocalFlags::ECHONL);
        modes.local_flags.insert(LocalFlags::NOFLSH);
        if !self.is_plain {
            modes.local_flags.remove(LocalFlags::ICANON);
            modes.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
            modes.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        }
        // The next prompt reports a failed terminal.
        let _ = tcsetattr(stdin(), SetArg::TCSANOW, &modes);
    }

    /// Adds a line to the history, and at once to its file, because a terminal may close at any time. Lines that other
    /// chats have added to the file stay.
    fn remember(&mut self, text: &str) {
        if text.trim().is_empty() || !self.editor.add_history_entry(for_terminal(text)).unwrap_or(false) {
            return;
        }
        let Some(path) = &self.history else { return };
        let kept = create(path).is_ok() && self.editor.append_history(path).is_ok();
        if !kept {
            log::warn!("the history {} cannot be written", path.display());
            // Reported once.
            self.history = None;
        }
    }
}

impl Drop for PromptEditor {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), SetArg::TCSANOW, &self.modes);
    }
}

/// The first line of a history file.
const MARK: &[u8] = b"#V2\n";

/// Whether a history can be read and added to; a file of another kind is left alone. Bytes that are not UTF-8 are
/// replaced, because the editor would stop there. Control characters are escaped, because the editor shows lines
/// unchanged.
fn is_usable(path: &Path) -> bool {
    let Some(bytes) = cache::read(path, MAX_HISTORY) else { return false };
    if !bytes.is_empty() && !bytes.starts_with(MARK) {
        log::warn!("{} is no history of a chat, and is left as it is", path.display());
        return false;
    }
    let text = String::from_utf8_lossy(&bytes);
    let shown = for_terminal(&text);
    shown.as_bytes() == bytes || cache::write(path, shown.as_bytes()).is_ok()
}

/// Creates the history if there is none. The editor itself would truncate an existing file, and so lose the first line
/// of another chat that starts at the same time.
fn create(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(O_NOFOLLOW).open(path).map(drop)
}

fn failed(e: ReadlineError) -> Error {
    Error::failed(format!("the terminal failed: {e}"), "give the prompt with -p")
}

/// Whether the text is complete, so that Enter sends it. Otherwise Enter begins a new line.
fn is_whole(text: &str) -> bool {
    match text.trim_start().strip_prefix(QUOTES) {
        Some(quoted) => quoted.trim_end().ends_with(QUOTES),
        None => !text.ends_with('\\'),
    }
}

/// The message in the typed text, without enclosing quotes and trailing backslashes.
fn message(text: &str) -> String {
    let quoted = text.trim().strip_prefix(QUOTES).and_then(|rest| rest.strip_suffix(QUOTES));
    match quoted {
        Some(inner) => {
            let inner = inner.strip_prefix('\n').unwrap_or(inner);
            inner.strip_suffix('\n').unwrap_or(inner).to_owned()
        }
        None => text.replace("\\\n", "\n"),
    }
}

/// Callbacks of the editor: whether a text is complete, completion of commands and files, and the typed text.
#[derive(Default)]
struct EditorHelper {
    /// The line as it was last edited, because the editor does not return it after an interrupt.
    typed: RefCell<String>,
}

impl Helper for EditorHelper {}

impl Highlighter for EditorHelper {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        // The editor calls this only if there is colour.
        let (used, mark) = prompt.split_at(prompt.len().saturating_sub("> ".len()));
        painted(FAINT, used, true) + painted(STRONG, mark, true)
    }
}

impl Hinter for EditorHelper {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        line.clone_into(&mut self.typed.borrow_mut());
        None
    }
}

impl Validator for EditorHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match is_whole(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for EditorHelper {
    type Candidate = String;

    fn complete(&self, line: &str, end: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let Some(begun) = line.get(..end).filter(|begun| begun.starts_with('/')) else { return Ok((0, Vec::new())) };
        Ok(match command::begun_file(begun) {
            Some(name) => (end - name.len(), file::completions(name)),
            None => (0, command::names().filter(|name| name.starts_with(begun)).map(str::to_owned).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_or_open_quotes_go_on_to_the_next_line() {
        for (text, sent) in [
            ("one", Some("one")),
            ("one\\", None),
            ("one\\\ntwo", Some("one\ntwo")),
            ("one\\ ", Some("one\\ ")),
            ("C:\\new", Some("C:\\new")),
            ("\"\"\"", None),
            ("\"\"\"one", None),
            ("\"\"\"one\"\"\"", Some("one")),
            ("\"\"\"\n  one\\\n\ntwo\n\"\"\" ", Some("  one\\\n\ntwo")),
            ("\"\"\"\"\"\"", Some("")),
            ("\"\"", Some("\"\"")),
            ("say \"\"\"", Some("say \"\"\"")),
        ] {
            assert_eq!(is_whole(text).then(|| message(text)).as_deref(), sent, "{text:?}");
        }
    }
}
