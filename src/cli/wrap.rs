//! Breaks lines between words at a terminal's edge, where the terminal itself would break them within a word.

use ratatui::crossterm::terminal;
use ratatui::text::Span;

/// Columns from one tab stop to the next.
const TAB: usize = 8;
/// Joins characters into one, as in the emoji of a family.
const JOINER: char = '\u{200d}';

/// Columns of the terminal now; without an end where it does not say.
pub(super) fn columns() -> usize {
    terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 1).unwrap_or(usize::MAX)
}

/// A whole text for a terminal of so many columns.
pub(super) fn wrapped(text: &str, columns: usize) -> String {
    let mut wrap = Wrap::default();
    let mut lines = wrap.push(text, columns).to_owned();
    lines += wrap.finish(columns);
    lines
}

/// Text that comes in pieces, on a terminal. A word is held back until it is whole: only then is known on which line it
/// goes.
#[derive(Default)]
pub(super) struct Wrap {
    /// Columns of the current line that are taken.
    column: usize,
    /// What stands before the word, if that goes on the same line.
    spaces: String,
    word: String,
    /// Whether the word is wider than a line. The terminal breaks it then: with a line end in it, it would not be copied or
    /// followed as one.
    is_wide: bool,
    out: String,
}

impl Wrap {
    /// Takes a piece of the text, and yields what can be shown on a terminal of `columns`.
    pub(super) fn push(&mut self, piece: &str, columns: usize) -> &str {
        self.begin(columns);
        for c in piece.chars() {
            match c {
                '\n' => {
                    self.place(columns);
                    self.end_line();
                }
                ' ' | '\t' => {
                    self.place(columns);
                    self.spaces.push(c);
                }
                _ => {
                    if self.may_break_before(c) {
                        self.place(columns);
                    }
                    self.word.push(c);
                    if self.is_wide || width(&self.word) > columns {
                        self.pour(columns);
                    }
                }
            }
        }
        &self.out
    }

    /// Yields what is held back. The next text begins a line.
    pub(super) fn finish(&mut self, columns: usize) -> &str {
        self.begin(columns);
        self.place(columns);
        (self.column, self.spaces) = (0, String::new());
        &self.out
    }

    fn begin(&mut self, columns: usize) {
        self.out.clear();
        // A terminal that became narrower has broken the line.
        if self.column > columns {
            self.column %= columns;
        }
    }

    /// Whether a line may end between the word so far and `c`. Scripts of wide characters have no spaces; their lines do not
    /// begin with what closes a sentence or a bracket, nor end with what opens one.
    fn may_break_before(&self, c: char) -> bool {
        let Some(last) = self.word.chars().last() else { return false };
        let (before, behind) = (width(last.encode_utf8(&mut [0; 4])), width(c.encode_utf8(&mut [0; 4])));
        let is_part = behind == 0 || last == JOINER || ('\u{1f3fb}'..='\u{1f3ff}').contains(&c);
        let closes = !c.is_alphanumeric() && (behind < 2 || "、。，．！？；：）」』】〉》〕・ー".contains(c));
        !is_part && before.max(behind) > 1 && !closes && !"（「『【〈《〔([{".contains(last)
    }

    /// Puts the word, which is whole, on this line or on the next.
    fn place(&mut self, columns: usize) {
        if !self.is_wide && !self.word.is_empty() {
            self.choose_line(width(&self.word), columns);
            self.put(columns);
        }
        self.is_wide = false;
    }

    /// Puts what there is of a word that is wider than a line.
    fn pour(&mut self, columns: usize) {
        if !self.is_wide {
            self.is_wide = true;
            self.choose_line(columns, columns);
        }
        self.put(columns);
    }

    /// Ends the line, if `width` columns do not fit on it.
    fn choose_line(&mut self, width: usize, columns: usize) {
        let spaces = self.spaces.chars().fold(self.column, after_space) - self.column;
        if self.column > 0 && self.column.saturating_add(spaces).saturating_add(width) > columns {
            self.end_line();
        }
        self.column = self.spaces.chars().fold(self.column, after_space);
        self.out += &self.spaces;
        self.spaces.clear();
    }

    fn put(&mut self, columns: usize) {
        let width = width(&self.word);
        self.column += width;
        // A terminal goes on to its next line with the character after the last column.
        if self.column > columns {
            self.column = (self.column - 1) % columns + 1;
        }
        self.out += &self.word;
        self.word.clear();
    }

    /// Spaces at its end are left out.
    fn end_line(&mut self) {
        self.spaces.clear();
        self.out.push('\n');
        self.column = 0;
    }
}

/// The column after a space or a tab at `column`.
fn after_space(column: usize, space: char) -> usize {
    if space == '\t' { (column / TAB + 1) * TAB } else { column + 1 }
}

/// Columns that a text takes.
fn width(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text in pieces of one character, which must give the same as all of it at once.
    fn lines(text: &str, columns: usize) -> String {
        let mut wrap = Wrap::default();
        let mut shown = String::new();
        for c in text.chars() {
            shown += wrap.push(c.encode_utf8(&mut [0; 4]), columns);
        }
        shown += wrap.finish(columns);
        assert_eq!(shown, wrapped(text, columns), "{text:?}");
        shown
    }

    #[test]
    fn no_word_is_cut_in_two() {
        for (text, columns, shown) in [
            ("The aquarium opens at nine.", 20, "The aquarium opens\nat nine."),
            // A word may end in the last column.
            ("one two three", 7, "one two\nthree"),
            ("one  two\n\n  three four ", 9, "one  two\n\n  three\nfour"),
            ("a\tb\tc", 10, "a\tb\nc"),
            // Wide characters take two columns, and lines may end between them.
            ("你好世界你好世界", 7, "你好世\n界你好\n世界"),
            ("你好世。界「好」", 6, "你好\n世。界\n「好」"),
            ("ab你c", 3, "ab\n你c"),
            // Characters of several code points stay whole.
            ("abc 👩\u{200d}👩\u{200d}👧 e\u{301}", 6, "abc 👩\u{200d}👩\u{200d}👧\ne\u{301}"),
            // The terminal breaks what is wider than a line.
            ("see https://example.org/a/b and", 10, "see\nhttps://example.org/a/b and"),
            ("https://ab.cd/ef x", 10, "https://ab.cd/ef x"),
            ("", 10, ""),
            ("one two", usize::MAX, "one two"),
        ] {
            assert_eq!(lines(text, columns), shown, "{text:?} in {columns}");
        }
    }

    #[test]
    fn a_resize_counts_from_the_next_word() {
        let mut wrap = Wrap::default();
        assert_eq!(wrap.push("one two three ", 20), "one two three");
        // Of thirteen columns, a terminal of ten has three on its second line.
        assert_eq!(wrap.push("four fives ", 10), " four\nfives");
        assert_eq!(wrap.push("six seven ", 20), " six seven");
    }
}
