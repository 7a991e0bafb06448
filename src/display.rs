//! How numbers and text from elsewhere are written in messages and tables.

use std::borrow::Cow;

/// Bytes as a person reads them, in decimal units as bandwidths and file sizes are: `27.0 GB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// A count and its noun, such as `1 token` or `2 tokens`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// How to write two sums of bytes, one beside its limit: to the byte where they would read the same otherwise.
pub(crate) fn writer(needed: u64, limit: u64) -> fn(u64) -> String {
    match bytes(needed) == bytes(limit) {
        true => |n| format!("{n} B"),
        false => bytes,
    }
}

/// Whether a terminal obeys a character instead of showing it: control characters, breaks of lines and paragraphs, and
/// what turns the direction of text, so that it reads as something else.
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text that a device or a file chose, on one line and without what a terminal obeys.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).collect()
}

/// Text that a model wrote, for a terminal: what a terminal obeys is spelled out, as in `\u{1b}[2J`, except for line ends,
/// tabs, and the marks that text written from right to left has.
pub(crate) fn for_terminal(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| is_obeyed(c) && !matches!(c, '\n' | '\t' | '\u{200e}' | '\u{200f}');
    if !text.contains(obeyed) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Escapes in JSON what a terminal obeys. JSON itself escapes only characters below U+0020. The value stays the same.
pub(crate) fn json_for_terminal(json: &str) -> Cow<'_, str> {
    if !json.contains(is_obeyed) {
        return json.into();
    }
    // Each of them has four hex digits. They are inside of strings: between values there are none of them.
    let escape = |c: char| if is_obeyed(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    json.chars().map(escape).collect::<String>().into()
}

/// A name or value from a file as an error message quotes it: at most 160 characters.
pub(crate) fn quote(text: &str) -> String {
    const MAX: usize = 160;
    match text.char_indices().nth(MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
