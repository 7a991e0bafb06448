//! The input of `kiln batch`, read line by line as lines are needed.

use crate::{Error, Result};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The longest input line, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// The lines of the input, with their numbers from 0.
pub(super) struct InputLines {
    from: Box<dyn BufRead>,
    name: String,
    /// Lines that are answered again, before all others: the line's index, and the line.
    again: VecDeque<(usize, RawLine)>,
    /// Lines that were read before their turn.
    ahead: VecDeque<RawLine>,
    /// Empty lines and the line after them. Empty lines at the end of the input do not count.
    held: VecDeque<RawLine>,
    next: usize,
    /// Bytes read so far.
    read: u64,
    /// Total length in bytes; `None` if unknown.
    length: Option<u64>,
}

/// A line without its end.
pub(super) enum RawLine {
    Whole(Vec<u8>),
    /// A line longer than any prompt, cut off.
    TooLong(Vec<u8>),
}

impl RawLine {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            RawLine::Whole(bytes) | RawLine::TooLong(bytes) => bytes,
        }
    }

    pub(super) fn whole(&self) -> Result<&[u8]> {
        match self {
            RawLine::Whole(bytes) => Ok(bytes),
            RawLine::TooLong(_) => Err(Error::input("the line is longer than any prompt", "give at most 64 MiB")),
        }
    }
}

impl InputLines {
    pub(super) fn open(path: &Path) -> Result<InputLines> {
        let name = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
        let from: Box<dyn BufRead> = match path == Path::new("-") {
            true => Box::new(std::io::stdin().lock()),
            false => Box::new(BufReader::new(std::fs::File::open(path).map_err(|e| Error::unreadable(path, &e))?)),
        };
        let file = path.metadata().ok().filter(|found| found.is_file() && path != Path::new("-"));
        Ok(InputLines {
            from,
            name,
            again: VecDeque::new(),
            ahead: VecDeque::new(),
            held: VecDeque::new(),
            next: 0,
            read: 0,
            length: file.map(|file| file.len()),
        })
    }

    /// The input's name in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes read and total bytes; `None` if the total is unknown.
    pub(super) fn progress(&self) -> Option<(u64, u64)> {
        self.length.map(|length| (self.read, length))
    }

    /// The next line to answer, with its index: first those that are answered again.
    pub(super) fn next(&mut self) -> Result<Option<(usize, RawLine)>> {
        match self.again.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.pass(),
        }
    }

    /// Queues a line that is answered again.
    pub(super) fn ask_again(&mut self, index: usize, line: RawLine) {
        self.again.push_back((index, line));
    }

    /// The number of lines that are still to be answered again.
    pub(super) fn again(&self) -> usize {
        self.again.len()
    }

    /// The next line of the input, with its index.
    pub(super) fn pass(&mut self) -> Result<Option<(usize, RawLine)>> {
        let line = match self.ahead.pop_front() {
            Some(line) => Some(line),
            None => self.read()?,
        };
        Ok(line.map(|line| {
            self.next += 1;
            (self.next - 1, line)
        }))
    }

    /// Reads ahead until `most` lines wait for an answer or the input ends. Returns the number of waiting lines, at
    /// most `most`.
    pub(super) fn read_ahead(&mut self, most: usize) -> Result<usize> {
        while self.again.len() + self.ahead.len() < most {
            let Some(line) = self.read()? else { break };
            self.ahead.push_back(line);
        }
        Ok(most.min(self.again.len() + self.ahead.len()))
    }

    /// The next line of the input. Empty lines at its end do not count.
    fn read(&mut self) -> Result<Option<RawLine>> {
        while self.held.back().is_none_or(is_blank) {
            match self.read_line()? {
                Some(line) => self.held.push_back(line),
                None => self.held.clear(),
            }
            if self.held.is_empty() {
                return Ok(None);
            }
        }
        Ok(self.held.pop_front())
    }

    fn read_line(&mut self) -> Result<Option<RawLine>> {
        let is_first = self.read == 0;
        let unreadable = |e: std::io::Error| Error::unreadable(Path::new(&self.name), &e);
        let mut line = Vec::new();
        self.read += self.from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(unreadable)? as u64;
        if line.is_empty() {
            return Ok(None);
        }
        let is_whole = line.last() == Some(&b'\n') || (line.len() as u64) < MAX_LINE;
        if !is_whole {
            line.truncate(1 << 10);
            self.from.skip_until(b'\n').map_err(unreadable)?;
            return Ok(Some(RawLine::TooLong(line)));
        }
        // Some editors write a byte order mark before UTF-8.
        if is_first && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        line.pop_if(|byte| *byte == b'\n');
        line.pop_if(|byte| *byte == b'\r');
        Ok(Some(RawLine::Whole(line)))
    }
}

/// True if a line has nothing but blanks.
fn is_blank(line: &RawLine) -> bool {
    line.bytes().trim_ascii().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(usize, String)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut input = InputLines::open(file.path()).unwrap();
        let mut found = Vec::new();
        while let Some((index, line)) = input.next().unwrap() {
            found.push((index, String::from_utf8(line.bytes().to_vec()).unwrap()));
        }
        assert_eq!(input.progress(), Some((text.len() as u64, text.len() as u64)));
        found
    }

    /// Many editors end a file with an empty line, which used to count as a line that failed.
    #[test]
    fn empty_lines_at_the_end_are_none_and_others_count() {
        for text in ["", "\n", "\n \r\n\n"] {
            assert_eq!(lines(text), [], "{text:?}");
        }
        let expected = [(0, "a"), (1, ""), (2, " "), (3, "b")].map(|(index, line)| (index, line.to_owned()));
        for end in ["", "\n", "\n\n", "\n\n \n"] {
            assert_eq!(lines(&format!("\u{feff}a\n\n \r\nb{end}")), expected, "{end:?}");
        }
    }
}
