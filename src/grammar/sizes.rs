//! Estimates a grammar's size before it is compiled, by multiplying nested repeats. Compiling a grammar that repeats
//! too much would take unbounded time and memory.

use crate::{Error, Result};

/// The most copies of parts in an expanded regular expression.
const LARGEST_REGEX: u64 = 20_000;
/// The most copies of parts in an expanded Lark grammar, and the most repeats of one part.
const LARGEST_LARK: u64 = 200_000;
/// The most brackets open at once in a Lark grammar, whose parser is recursive.
const DEEPEST_LARK: usize = 200;

/// Counts parts including their copies: for each open bracket all of its parts, and its last part.
struct Counter(Vec<(u64, u64)>);

impl Counter {
    fn new() -> Counter {
        Counter(vec![(0, 0)])
    }

    fn part(&mut self, copies: u64) {
        if let Some((all, last)) = self.0.last_mut() {
            *all = all.saturating_add(copies);
            *last = copies;
        }
    }

    fn open(&mut self) {
        self.0.push((0, 0));
    }

    fn close(&mut self) {
        if self.0.len() > 1
            && let Some((inner, _)) = self.0.pop()
        {
            self.part(inner.max(1));
        }
    }

    fn repeat(&mut self, times: u64) {
        if let Some((all, last)) = self.0.last_mut() {
            let more = last.saturating_mul(times.saturating_sub(1));
            (*all, *last) = (all.saturating_add(more), last.saturating_add(more));
        }
    }

    fn count(mut self) -> u64 {
        while self.0.len() > 1 {
            self.close();
        }
        self.0.last().map_or(0, |(all, _)| *all)
    }
}

/// The number of parts of a regular expression, including copies.
fn regex_copies(regex: &str) -> u64 {
    let mut counter = Counter::new();
    let mut chars = regex.char_indices();
    let mut in_class = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
                if !in_class {
                    counter.part(1);
                }
            }
            ']' if in_class => {
                in_class = false;
                counter.part(1);
            }
            _ if in_class => {}
            '[' => in_class = true,
            '(' => counter.open(),
            ')' => counter.close(),
            '*' | '+' | '?' | '|' => {}
            '{' => match braces(&regex[at..]) {
                Some((times, length)) => {
                    counter.repeat(times);
                    chars.by_ref().take(length - 1).for_each(drop);
                }
                None => counter.part(1),
            },
            _ => counter.part(1),
        }
    }
    counter.count()
}

/// Parses `{n}`, `{n,}` or `{n,m}`: the largest number, and the length in bytes.
fn braces(text: &str) -> Option<(u64, usize)> {
    let inner = text.strip_prefix('{')?.split_once('}')?.0;
    let is_digits = |part: &str| part.trim().bytes().all(|byte| byte.is_ascii_digit());
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    if low.trim().is_empty() && high.trim().is_empty() || !is_digits(low) || !is_digits(high) {
        return None;
    }
    // A number that overflows is larger than any limit.
    let number = |part: &str| if part.trim().is_empty() { 0 } else { part.trim().parse().unwrap_or(u64::MAX) };
    Some((number(low).max(number(high)), inner.len() + 2))
}

/// True if a regular expression, with its repeats expanded, has at most [`LARGEST_REGEX`] parts.
pub(super) fn is_small(regex: &str) -> bool {
    regex_copies(regex) <= LARGEST_REGEX
}

/// The error for an operator between terminals. An intersection with a complement takes gigabytes for 60 bytes of text:
/// the states of the two are multiplied, and llguidance's fuel does not count their size.
fn unsupported(operator: &str, kind: &str) -> Error {
    Error::input(
        format!("the grammar uses {operator}, and {kind} of terminals are not supported"),
        "write the terminal as one regular expression",
    )
}

/// Refuses a Lark grammar with too deep nesting, too many repeats, intersections or complements.
///
/// # Errors
/// Input: the grammar has one of these.
pub(super) fn check_lark(lark: &str) -> Result<()> {
    let (mut counter, mut depth, mut deepest) = (Counter::new(), 0_usize, 0);
    let mut largest_regex = 0;
    let mut rest = lark;
    while let Some(c) = rest.chars().next() {
        let whole = literal_or_comment(rest);
        let mut length = whole.unwrap_or(c.len_utf8());
        match c {
            '#' => {}
            '/' if rest.starts_with("//") => {}
            '"' => counter.part(1),
            '<' if whole.is_some() => counter.part(1),
            '/' => {
                let copies = regex_copies(rest[..length].trim_matches('/'));
                largest_regex = largest_regex.max(copies);
                counter.part(copies.max(1));
            }
            '(' | '[' => counter.open(),
            ')' | ']' => counter.close(),
            '{' => {
                if let Some((times, bytes)) = braces(rest) {
                    counter.repeat(times);
                    length = bytes;
                }
            }
            '~' => {
                let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
                let behind = rest[1..].trim_start();
                let low = digits(behind);
                if low.is_empty() {
                    return Err(unsupported("`~`", "complements"));
                }
                let high = behind[low.len()..].trim_start().strip_prefix("..").map(|high| digits(high.trim_start()));
                let number = |text: &str| if text.is_empty() { 0 } else { text.parse().unwrap_or(u64::MAX) };
                counter.repeat(number(&low).max(high.as_deref().map_or(0, number)).max(1));
            }
            '&' => return Err(unsupported("`&`", "intersections")),
            c if c.is_alphanumeric() || c == '_' => {
                length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                counter.part(1);
            }
            _ => {}
        }
        match c {
            '(' | '[' | '{' if length == 1 => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
        rest = &rest[length..];
    }
    if deepest > DEEPEST_LARK {
        return Err(Error::input(
            format!("the grammar has {deepest} brackets within each other, and {DEEPEST_LARK} are supported"),
            "give inner parts rules of their own",
        ));
    }
    for (what, copies, most) in
        [("the grammar", counter.count(), LARGEST_LARK), ("a regular expression of it", largest_regex, LARGEST_REGEX)]
    {
        if copies > most {
            return Err(Error::input(
                format!("{what} repeats its parts {copies} times, and {most} are supported"),
                "repeat less",
            ));
        }
    }
    Ok(())
}

/// The length in bytes of the string, regular expression, special token or comment at the beginning of `lark`, by the
/// rules of llguidance's lexer; `None` if there is none. One of these may contain the marks of another.
pub(super) fn literal_or_comment(lark: &str) -> Option<usize> {
    let line = || lark.find('\n').unwrap_or(lark.len());
    match lark.as_bytes().first() {
        Some(b'"') => Some(literal(lark, '"')),
        Some(b'#') => Some(line()),
        Some(b'/') if lark.starts_with("//") => Some(line()),
        Some(b'<') => {
            let end = lark[1..].find(|c: char| c == '<' || c == '>' || c.is_whitespace())? + 1;
            (end > 1 && lark[end..].starts_with('>')).then_some(end + 1)
        }
        Some(b'/') => Some(literal(lark, '/')),
        _ => None,
    }
}

/// The length in bytes of a literal between two `mark`s.
fn literal(text: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == mark && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}
