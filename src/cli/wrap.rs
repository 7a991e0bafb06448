//! Wraps lines at words on a terminal, which itself would break them within words. Continued lines hang below the text
//! of the first: behind a list's mark and below an indent.

use ratatui::crossterm::terminal;
use ratatui::text::Span;

/// Columns between tab stops.
const TAB: usize = 8;
/// Joins characters into one, as in the emoji of a family.
const JOINER: char = '\u{200d}';

/// Columns of the terminal now; the maximum if it does not report them.
pub(super) fn columns() -> usize {
    terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 1).unwrap_or(usize::MAX)
}

/// The least number of columns for text beside a name. With fewer the text stands below the name.
const BESIDE: usize = 24;
/// The indent of a text that is on the line below its name.
const BELOW: usize = 4;

/// A list of names with a text beside each, wrapped at `columns`.
pub(super) fn listed(rows: &[(String, &str)], columns: usize) -> String {
    let at = rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0) + 2;
    rows.iter().map(|(name, text)| entry(name, at, text, columns) + "\n").collect()
}

/// A name with the text beside it from column `at` on, or below it on a narrow terminal.
pub(super) fn entry(name: &str, at: usize, text: &str, columns: usize) -> String {
    let is_beside = at.saturating_add(BESIDE) <= columns && width(name) < at;
    let hang = if is_beside { at } else { BELOW.min(columns / 4) };
    let text = wrapped(text, columns.saturating_sub(hang).max(1));
    let text = text.replace('\n', &format!("\n{}", " ".repeat(hang)));
    match is_beside {
        true => format!("{name}{}{text}", " ".repeat(at - width(name))),
        false => format!("{}\n{}{text}", wrapped(name, columns), " ".repeat(hang)),
    }
}

/// Breaks the lines of a complete text at `columns`.
pub(super) fn wrapped(text: &str, columns: usize) -> String {
    let mut wrap = Wrap::default();
    let mut lines = wrap.push(text, columns).to_owned();
    lines += wrap.finish(columns);
    lines
}

/// Wraps text that arrives in pieces. A word is held back until it is complete, because only then its line is known.
#[derive(Default)]
pub(super) struct Wrap {
    /// Columns used in the current line.
    column: usize,
    /// The spaces before the word, if it stays on the line.
    spaces: String,
    word: String,
    /// Whether the word is wider than a line. The terminal breaks it then, since with a line end inside it could not be
    /// copied or opened as a link.
    is_wide: bool,
    /// True if the current line has a word, so that a blank precedes the next one.
    has_word: bool,
    /// The start of the current line, as far as it has come: it decides the indent of continued lines.
    lead: Lead,
    /// The indent of continued lines.
    hang: usize,
    out: String,
}

/// The start of a line, as far as it has come.
#[derive(Default, PartialEq, Eq)]
enum Lead {
    /// No word has come yet.
    #[default]
    Nothing,
    /// The mark of a list. The text after it determines the indent.
    Mark,
    /// The line starts with text.
    Text,
}

impl Wrap {
    /// Adds a piece of text. Returns the text to show on a terminal with `columns` columns.
    pub(super) fn push(&mut self, piece: &str, columns: usize) -> &str {
        self.begin(columns);
        for c in piece.chars() {
            match c {
                '\n' => {
                    self.place(columns);
                    self.spaces.clear();
                    self.out.push('\n');
                    self.start_line();
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

    /// Returns the rest of the text. The next piece begins a new line.
    pub(super) fn finish(&mut self, columns: usize) -> &str {
        self.begin(columns);
        self.place(columns);
        self.spaces.clear();
        self.start_line();
        &self.out
    }

    fn begin(&mut self, columns: usize) {
        self.out.clear();
        // The terminal has become narrower and has broken the line itself.
        if self.column > columns {
            self.column %= columns;
        }
    }

    /// Whether a line may end between the word so far and `c`. Scripts of wide characters have no spaces; their lines
    /// do not begin with closing punctuation or end with an opening bracket.
    fn may_break_before(&self, c: char) -> bool {
        let Some(last) = self.word.chars().last() else { return false };
        let (before, behind) = (width(last.encode_utf8(&mut [0; 4])), width(c.encode_utf8(&mut [0; 4])));
        let is_part = behind == 0 || last == JOINER || ('\u{1f3fb}'..='\u{1f3ff}').contains(&c);
        let closes = !c.is_alphanumeric() && (behind < 2 || "、。，．！？；：）」』】〉》〕・ー".contains(c));
        !is_part && before.max(behind) > 1 && !closes && !"（「『【〈《〔([{".contains(last)
    }

    /// Puts a complete word on this line or on the next.
    fn place(&mut self, columns: usize) {
        if !self.is_wide && !self.word.is_empty() {
            self.choose_line(width(&self.word), columns);
            self.put(columns);
        }
        self.is_wide = false;
    }

    /// Writes the characters that have come of a word that is wider than a line.
    fn pour(&mut self, columns: usize) {
        if !self.is_wide {
            self.is_wide = true;
            self.choose_line(columns, columns);
        }
        self.put(columns);
    }

    /// Begins a continued line if `width` columns do not fit on this one.
    fn choose_line(&mut self, width: usize, columns: usize) {
        let start = self.spaces.chars().fold(self.column, after_space);
        // A word wider than a line would not fit below its list mark either.
        let stays = !self.has_word || self.lead == Lead::Mark && self.is_wide;
        self.note_lead(start);
        if !stays && start.saturating_add(width) > columns {
            self.go_on(width, columns);
            return;
        }
        self.column = start;
        self.out += &self.spaces;
        self.spaces.clear();
    }

    /// Records the indent for continued lines, if the word to be put at `start` determines it.
    fn note_lead(&mut self, start: usize) {
        if self.lead == Lead::Text {
            return;
        }
        let is_mark = self.lead == Lead::Nothing && !self.is_wide && is_mark(&self.word);
        self.hang = start;
        self.lead = if is_mark { Lead::Mark } else { Lead::Text };
    }

    fn put(&mut self, columns: usize) {
        let width = width(&self.word);
        self.column += width;
        // A terminal moves to its next line only with the character after the last column.
        if self.column > columns {
            self.column = (self.column - 1) % columns + 1;
        }
        self.out += &self.word;
        self.word.clear();
        self.has_word = true;
    }

    /// Begins a continued line for a word of `width` columns. Trailing spaces are dropped.
    fn go_on(&mut self, width: usize, columns: usize) {
        // On a narrow terminal little would fit beside the indent.
        let hangs = self.hang <= columns / 2 && self.hang.saturating_add(width) <= columns;
        self.column = if hangs { self.hang } else { 0 };
        self.spaces.clear();
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', self.column));
        self.has_word = false;
    }

    fn start_line(&mut self) {
        (self.column, self.hang, self.lead, self.has_word) = (0, 0, Lead::Nothing, false);
    }
}

/// True if a line that starts with this word is a list item, as in Markdown.
fn is_mark(word: &str) -> bool {
    let number = word.strip_suffix(['.', ')']).unwrap_or_default();
    matches!(word, "-" | "*" | "+" | "•" | "–")
        || (1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
}

/// The column after a space or tab at `column`.
fn after_space(column: usize, space: char) -> usize {
    if space == '\t' { (column / TAB + 1) * TAB } else { column + 1 }
}

/// The width of a text in columns.
fn width(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps the text character by character, and checks that the result is the same as for the whole text.
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
            ("one  two\n\n  three four ", 9, "one  two\n\n  three\n  four"),
            ("a\tb\tc", 10, "a\tb\nc"),
            // Wide characters take two columns, and lines may end between them.
            ("你好世界你好世界", 7, "你好世\n界你好\n世界"),
            ("你好世。界「好」", 6, "你好\n世。界\n「好」"),
            ("ab你c", 3, "ab\n你c"),
            // Characters of several code points stay whole.
            ("abc 👩\u{200d}👩\u{200d}👧 e\u{301}", 6, "abc 👩\u{200d}👩\u{200d}👧\ne\u{301}"),
            // Words wider than a line are left for the terminal to break.
            ("see https://example.org/a/b and", 10, "see\nhttps://example.org/a/b and"),
            ("https://ab.cd/ef x", 10, "https://ab.cd/ef x"),
            ("", 10, ""),
            ("one two", usize::MAX, "one two"),
        ] {
            assert_eq!(lines(text, columns), shown, "{text:?} in {columns}");
        }
    }

    /// Continued lines of a list item used to begin in the first column, like the next item.
    #[test]
    fn what_goes_on_below_a_line_hangs_where_its_text_begins() {
        for (text, columns, shown) in [
            ("- one two three\n- four", 9, "- one two\n  three\n- four"),
            ("* one two three four", 9, "* one two\n  three\n  four"),
            ("10. one two three", 11, "10. one two\n    three"),
            ("  2)  one two", 10, "  2)  one\ntwo"),
            ("  2)  one two", 12, "  2)  one\n      two"),
            ("• one two\nthree four", 7, "• one\n  two\nthree\nfour"),
            // Not a list.
            ("1984. one two", 9, "1984. one\ntwo"),
            ("-5 degrees here", 10, "-5 degrees\nhere"),
            // A mark alone, and a word wider than the rest of the line.
            ("-\n- https://example.org/a", 12, "-\n- https://example.org/a"),
            ("- see https://example.org/a", 12, "- see\nhttps://example.org/a"),
            ("- abcdefgh ij", 9, "-\nabcdefgh\n  ij"),
            ("- 你好世界你好", 7, "- 你好\n  世界\n  你好"),
        ] {
            assert_eq!(lines(text, columns), shown, "{text:?} in {columns}");
        }
    }

    #[test]
    fn a_text_stands_beside_its_name_or_below_it() {
        assert_eq!(entry("-n", 6, "one two three four five six", 30), "-n    one two three four five\n      six");
        assert_eq!(entry("--name", 8, "one two three four", 20), "--name\n    one two three\n    four");
        assert_eq!(entry("--longer", 4, "one two", 40), "--longer\n    one two");
        assert_eq!(entry("-n", 4, "one two", usize::MAX), "-n  one two");
        assert_eq!(listed(&[("a".into(), "x"), ("bcd".into(), "y")], 80), "a    x\nbcd  y\n");
    }

    #[test]
    fn a_resize_counts_from_the_next_word() {
        let mut wrap = Wrap::default();
        assert_eq!(wrap.push("one two three ", 20), "one two three");
        // Of thirteen columns a terminal with ten has three on its second line.
        assert_eq!(wrap.push("four fives ", 10), " four\nfives");
        assert_eq!(wrap.push("six seven ", 20), " six seven");
    }
}
