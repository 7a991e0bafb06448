//! Output to a terminal: colour if it is supported, and text from models or users made safe.

use std::borrow::Cow;
use std::io::{stderr, stdout};

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Color, Style};

use crate::display::is_obeyed;

/// The style of an error's first word.
pub(super) const BAD: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Red))).bold();
/// The style of warnings.
pub(super) const WARN: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Yellow))).bold();
/// The style of good results.
pub(super) const GOOD: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Green))).bold();
/// The style of names and headings.
pub(super) const STRONG: Style = Style::new().bold();
/// The style of secondary information beside a reply.
pub(super) const FAINT: Style = Style::new().dimmed();

/// Whether standard output shows colour. All of Kiln's colours depend on this function or the one for standard error;
/// clap and the log use the same library. NO_COLOR and CLICOLOR=0 forbid colour, CLICOLOR_FORCE forces it; otherwise it
/// takes a terminal that is not dumb, or with CI set any terminal.
pub(super) fn has_color() -> bool {
    AutoStream::choice(&stdout()) != ColorChoice::Never
}

/// True if text on standard error is shown in colour.
pub(super) fn error_has_color() -> bool {
    AutoStream::choice(&stderr()) != ColorChoice::Never
}

/// True if the terminal has neither cursor movement nor colour (`TERM=dumb`).
pub(super) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// A text in a style, if there is colour.
pub(super) fn painted(style: Style, text: &str, has_color: bool) -> Cow<'_, str> {
    match has_color && !text.is_empty() {
        true => format!("{style}{text}{style:#}").into(),
        false => text.into(),
    }
}

/// A model's text for a terminal. Control characters are escaped, as in `\u{1b}[2J`, except line ends, tabs, and the
/// marks of text written from right to left.
pub(super) fn for_terminal(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| is_obeyed(c) && !matches!(c, '\n' | '\t' | '\u{200e}' | '\u{200f}');
    if !text.contains(obeyed) {
        return text.into();
    }
    let shown = |c: char| if obeyed(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect::<String>().into()
}

/// Escapes control characters in JSON, which itself escapes only those below U+0020. The value stays the same.
pub(super) fn json_for_terminal(json: &str) -> Cow<'_, str> {
    if !json.contains(is_obeyed) {
        return json.into();
    }
    // All of these have four hex digits, and they occur only inside strings.
    let escape = |c: char| if is_obeyed(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    json.chars().map(escape).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_style_stands_around_its_text_where_there_is_colour() {
        assert_eq!(painted(BAD, "kiln:", true), "\u{1b}[1m\u{1b}[31mkiln:\u{1b}[0m");
        assert_eq!((painted(BAD, "kiln:", false), painted(BAD, "", true)), ("kiln:".into(), "".into()));
    }

    #[test]
    fn a_terminal_obeys_nothing_that_a_model_wrote() {
        assert_eq!(for_terminal("a\tb\nß\u{200f}"), "a\tb\nß\u{200f}");
        assert_eq!(for_terminal("\u{1b}[2J\r\u{9b}A\u{7f}\u{7}\u{202e}x"), r"\u{1b}[2J\r\u{9b}A\u{7f}\u{7}\u{202e}x");
    }

    #[test]
    fn json_for_a_terminal_is_the_same_value() {
        let value = serde_json::json!({"a\u{9b}": "\u{7f}\u{1b}[2J\n\u{202e}ß", "b": ["\u{2028}", 1]});
        let text = value.to_string();
        let shown = json_for_terminal(&text);
        assert!(!shown.contains(is_obeyed), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert_eq!(json_for_terminal("{\"a\":1}"), "{\"a\":1}");
    }
}
