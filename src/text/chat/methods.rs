//! Python's methods of strings, lists and dicts that change nothing: transformers' sandbox forbids the others.

use std::ops::Range;

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Value};

use super::bounds::Budget;
use super::format;
use super::python::{PyNumber, equal, fail, is_blank, is_list};

/// Calls a method that MiniJinja does not know.
pub(super) fn call(budget: &Budget, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    match (value.kind(), value.as_str()) {
        (_, Some(text)) => of_text(budget, text, name, arguments),
        (ValueKind::Map, _) => of_map(value, name, arguments),
        (ValueKind::Seq | ValueKind::Iterable, _) => of_list(value, name, arguments),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn of_map(map: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let pair = |key: Value| map.get_item(&key).map(|item| Value::from(vec![key, item]));
    match name {
        "get" => {
            let (key, default): (Value, Option<Value>) = from_args(arguments)?;
            let found = map.get_item(&key).unwrap_or_default();
            Ok(if found.is_undefined() { default.unwrap_or_else(|| Value::from(())) } else { found })
        }
        "keys" | "values" | "items" | "copy" => {
            let () = from_args(arguments)?;
            match name {
                "keys" => Ok(map.try_iter()?.collect()),
                "values" => map.try_iter()?.map(|key| map.get_item(&key)).collect::<Result<Value, _>>(),
                "items" => map.try_iter()?.map(pair).collect::<Result<Value, _>>(),
                _ => Ok(map.clone()),
            }
        }
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn of_list(list: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    match name {
        "count" => {
            let (what,): (Value,) = from_args(arguments)?;
            Ok(Value::from(list.try_iter()?.filter(|item| equal(item, &what)).count()))
        }
        "index" => {
            let (what, start, end): (Value, Option<i64>, Option<i64>) = from_args(arguments)?;
            let range = places(list.len().unwrap_or(0), start, end);
            let found =
                list.try_iter()?.enumerate().take(range.end).skip(range.start).find(|(_, item)| equal(item, &what));
            found.map_or_else(|| fail("the list does not have this item"), |(i, _)| Ok(Value::from(i)))
        }
        "copy" => from_args(arguments).map(|()| list.clone()),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

/// The range from `start` to `end` in a sequence of `length` items, by the rules of Python's slices: negative indices
/// count from the end.
fn places(length: usize, start: Option<i64>, end: Option<i64>) -> Range<usize> {
    let place = |at: i64| match usize::try_from(at) {
        Ok(at) => at.min(length),
        Err(_) => length.saturating_sub(at.unsigned_abs() as usize),
    };
    let end = end.map_or(length, place);
    // A start after the end finds nothing, not even an empty text.
    start.filter(|&at| at > length as i64).map_or_else(|| start.map_or(0, place)..end, |_| length + 1..end)
}

/// The part of a text from `start` to `end`, and its first character's number.
fn part(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(&str, usize)> {
    if start.is_none() && end.is_none() {
        return Some((text, 0));
    }
    let range = places(text.chars().count(), start, end);
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    (range.start <= range.end).then(|| (&text[byte(range.start)..byte(range.end)], range.start))
}

/// Python's `title`: each letter that follows no letter becomes a capital.
pub(super) fn title(text: &str) -> String {
    let mut inside = false;
    let mut titled = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            titled.extend(c.to_lowercase());
        } else {
            titled.extend(to_title(c));
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    titled
}

/// Title case of a character: `ß` becomes `Ss`.
fn to_title(c: char) -> impl Iterator<Item = char> {
    let mut capitals = c.to_uppercase();
    let first = capitals.next();
    first.into_iter().chain(capitals.flat_map(char::to_lowercase))
}

/// Python's `capitalize`: the first character in title case, all others in lower case.
pub(super) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(to_title).into_iter().flatten();
    first.chain(characters.as_str().to_lowercase().chars()).collect()
}

/// Centres a text in `width` characters.
pub(super) fn center(budget: &Budget, text: &str, width: i64, fill: char) -> Result<String, Error> {
    let missing = (width - text.chars().count() as i64).max(0);
    let left = missing / 2 + (missing & width & 1);
    pad(budget, text, left, missing - left, fill)
}

fn pad(budget: &Budget, text: &str, left: i64, right: i64, fill: char) -> Result<String, Error> {
    let (left, right) = (left.max(0) as u64, right.max(0) as u64);
    budget.make(left.saturating_add(right).saturating_mul(4).saturating_add(text.len() as u64))?;
    let fill = |many| std::iter::repeat_n(fill, many as usize);
    Ok(fill(left).chain(text.chars()).chain(fill(right)).collect())
}

/// Removes characters from the ends of a text: white space unless others are given.
pub(super) fn strip<'t>(
    budget: &Budget,
    text: &'t str,
    named: Option<&str>,
    (left, right): (bool, bool),
) -> Result<&'t str, Error> {
    budget.strip(text, named.unwrap_or_default())?;
    let is_out = |c: char| named.map_or_else(|| is_blank(c), |named| named.contains(c));
    let text = if left { text.trim_start_matches(is_out) } else { text };
    Ok(if right { text.trim_end_matches(is_out) } else { text })
}

/// Python's `split` and `rsplit`.
fn split(text: &str, at: Option<&str>, most: i64, from_right: bool) -> Result<Vec<Value>, Error> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
    let Some(at) = at else { return Ok(split_at_blanks(text, most, from_right)) };
    if at.is_empty() {
        return fail("the separator is empty");
    }
    let mut parts: Vec<&str> =
        if from_right { text.rsplitn(most, at).collect() } else { text.splitn(most, at).collect() };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

fn split_at_blanks(text: &str, most: usize, from_right: bool) -> Vec<Value> {
    let mut parts = Vec::new();
    let trim =
        |text| if from_right { str::trim_end_matches(text, is_blank) } else { str::trim_start_matches(text, is_blank) };
    let mut rest = trim(text);
    while !rest.is_empty() {
        let end = if from_right {
            rest.char_indices().rev().find(|(_, c)| is_blank(*c)).map(|(at, c)| at + c.len_utf8())
        } else {
            rest.find(is_blank)
        };
        let Some(end) = end.filter(|_| parts.len() + 1 < most) else { break };
        let (first, last) = rest.split_at(end);
        let (part, others) = if from_right { (last, first) } else { (first, last) };
        parts.push(Value::from(part));
        rest = trim(others);
    }
    if !rest.is_empty() {
        parts.push(Value::from(rest));
    }
    if from_right {
        parts.reverse();
    }
    parts
}

pub(super) fn split_lines(text: &str, keep_ends: bool) -> Vec<Value> {
    let is_end =
        |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let behind = &rest[end..];
        let mark = if behind.starts_with("\r\n") { 2 } else { behind.chars().next().map_or(0, char::len_utf8) };
        lines.push(Value::from(&rest[..if keep_ends { end + mark } else { end }]));
        rest = &behind[mark..];
    }
    lines
}

/// Replaces the first `most` occurrences in a text, or all.
pub(super) fn replace(budget: &Budget, text: &str, old: &str, new: &str, most: Option<i64>) -> Result<Value, Error> {
    budget.replace(text, old, new)?;
    Ok(Value::from(match most.and_then(|most| usize::try_from(most).ok()) {
        Some(most) => text.replacen(old, new, most),
        None => text.replace(old, new),
    }))
}

/// Joins texts. As in Python, other items are an error.
fn join(budget: &Budget, between: &str, items: &Value) -> Result<Value, Error> {
    budget.join(items, between)?;
    let mut texts = Vec::new();
    for item in items.try_iter()? {
        match item.as_str() {
            Some(text) => texts.push(text.to_owned()),
            None => return fail(format!("join is for texts, not {}", item.kind())),
        }
    }
    Ok(Value::from(texts.join(between)))
}

/// Whether a text begins or ends with one of the given texts.
fn has_end(text: &str, arguments: &[Value], at_start: bool) -> Result<Value, Error> {
    let (ends, start, end): (Value, Option<i64>, Option<i64>) = from_args(arguments)?;
    let Some((text, _)) = part(text, start, end) else { return Ok(Value::from(false)) };
    let ends: Vec<Value> = if is_list(&ends) { ends.try_iter()?.collect() } else { vec![ends] };
    for end in &ends {
        let Some(end) = end.as_str() else { return fail("the start or end of a text is a text") };
        if if at_start { text.starts_with(end) } else { text.ends_with(end) } {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

/// The fill character of a method, by default a space.
fn filling(given: Option<&str>) -> Result<char, Error> {
    let mut characters = given.unwrap_or(" ").chars();
    match (characters.next(), characters.next()) {
        (Some(fill), None) => Ok(fill),
        _ => fail("what fills a text up is one character"),
    }
}

fn of_text(budget: &Budget, text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let all =
        |is: fn(char) -> bool| from_args(arguments).map(|()| Value::from(!text.is_empty() && text.chars().all(is)));
    let changed = |text: String| from_args(arguments).map(|()| Value::from(text));
    match name {
        "upper" => changed(text.to_uppercase()),
        "lower" => changed(text.to_lowercase()),
        "casefold" => changed(text.to_lowercase().replace('ß', "ss")),
        "title" => changed(title(text)),
        "capitalize" => changed(capitalize(text)),
        "swapcase" => changed(
            text.chars()
                .map(|c| if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() })
                .collect(),
        ),
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isdigit" | "isdecimal" | "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_blank),
        "isascii" => from_args(arguments).map(|()| Value::from(text.is_ascii())),
        "islower" | "isupper" => {
            let () = from_args(arguments)?;
            let (small, capital) = (text.contains(char::is_lowercase), text.contains(char::is_uppercase));
            Ok(Value::from(small != capital && small == (name == "islower")))
        }
        "istitle" => {
            from_args(arguments).map(|()| Value::from(text.chars().any(char::is_uppercase) && text == title(text)))
        }
        "isidentifier" => {
            let () = from_args(arguments)?;
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            Ok(Value::from(text.chars().all(is_name) && text.starts_with(|c: char| is_name(c) && !c.is_numeric())))
        }
        "strip" | "lstrip" | "rstrip" => {
            let (named,): (Option<&str>,) = from_args(arguments)?;
            strip(budget, text, named, (name != "rstrip", name != "lstrip")).map(Value::from)
        }
        "removeprefix" | "removesuffix" => {
            let (end,): (&str,) = from_args(arguments)?;
            let rest = if name == "removeprefix" { text.strip_prefix(end) } else { text.strip_suffix(end) };
            Ok(Value::from(rest.unwrap_or(text)))
        }
        "replace" => {
            let (old, new, most, named): (&str, &str, Option<i64>, Kwargs) = from_args(arguments)?;
            let most = most.or(named.get("count")?);
            named.assert_all_used()?;
            replace(budget, text, old, new, most)
        }
        "split" | "rsplit" => {
            budget.split(text)?;
            let (at, most, named): (Option<&str>, Option<i64>, Kwargs) = from_args(arguments)?;
            let (at, most) = (at.or(named.get("sep")?), most.or(named.get("maxsplit")?));
            named.assert_all_used()?;
            split(text, at, most.unwrap_or(-1), name == "rsplit").map(Value::from)
        }
        "splitlines" => {
            budget.split(text)?;
            let (keep, named): (Option<bool>, Kwargs) = from_args(arguments)?;
            let keep = keep.or(named.get("keepends")?);
            named.assert_all_used()?;
            Ok(Value::from(split_lines(text, keep.unwrap_or(false))))
        }
        "partition" | "rpartition" => {
            let (at,): (&str,) = from_args(arguments)?;
            if at.is_empty() {
                return fail("the separator is empty");
            }
            let found = if name == "partition" { text.split_once(at) } else { text.rsplit_once(at) };
            Ok(Value::from(
                match (found, name) {
                    (Some((before, behind)), _) => [before, at, behind],
                    (None, "partition") => [text, "", ""],
                    (None, _) => ["", "", text],
                }
                .map(Value::from)
                .to_vec(),
            ))
        }
        "join" => {
            let (items,): (Value,) = from_args(arguments)?;
            join(budget, text, &items)
        }
        "count" | "find" | "rfind" | "index" | "rindex" => {
            let (what, start, end): (&str, Option<i64>, Option<i64>) = from_args(arguments)?;
            let inside = part(text, start, end);
            if name == "count" {
                return Ok(Value::from(inside.map_or(0, |(text, _)| text.matches(what).count())));
            }
            let found = inside.and_then(|(text, first)| {
                let at = if name.starts_with('r') { text.rfind(what) } else { text.find(what) };
                at.map(|at| first + text[..at].chars().count())
            });
            match found {
                Some(at) => Ok(Value::from(at)),
                None if name.ends_with("find") => Ok(Value::from(-1)),
                None => fail("the text does not have this part"),
            }
        }
        "startswith" => has_end(text, arguments, true),
        "endswith" => has_end(text, arguments, false),
        "center" | "ljust" | "rjust" => {
            let (width, fill): (i64, Option<&str>) = from_args(arguments)?;
            let (fill, missing) = (filling(fill)?, width - text.chars().count() as i64);
            let padded = match name {
                "center" => center(budget, text, width, fill),
                "ljust" => pad(budget, text, 0, missing, fill),
                _ => pad(budget, text, missing, 0, fill),
            };
            padded.map(Value::from)
        }
        "zfill" => {
            let (width,): (i64,) = from_args(arguments)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            let zeros = pad(budget, digits, width - text.chars().count() as i64, 0, '0')?;
            Ok(Value::from(format!("{sign}{zeros}")))
        }
        "expandtabs" => {
            let (size,): (Option<i64>,) = from_args(arguments)?;
            expand_tabs(budget, text, size.unwrap_or(8)).map(Value::from)
        }
        "format" => format::braces(budget, text, arguments).map(Value::from),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

fn expand_tabs(budget: &Budget, text: &str, size: i64) -> Result<String, Error> {
    let size = usize::try_from(size).unwrap_or(0);
    budget.make((text.matches('\t').count() as u64).saturating_mul(size as u64).saturating_add(text.len() as u64))?;
    let mut column = 0usize;
    let mut expanded = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => {
                let blanks = column.checked_rem(size).map_or(0, |over| size - over);
                expanded.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            _ => {
                expanded.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Ok(expanded)
}

/// Python's `int`: the integer that a text spells in a base, or a number truncated.
pub(super) fn to_integer(value: &Value, base: u32) -> Option<i128> {
    match (PyNumber::of(value), value.as_str()) {
        (Some(PyNumber::Int(number)), _) => Some(number),
        (Some(PyNumber::Float(number)), _) => number.is_finite().then_some(number as i128),
        (None, Some(text)) => {
            let text = text.trim_matches(is_blank).replace('_', "");
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            let prefix = match base {
                16 => "0x",
                8 => "0o",
                _ => "0b",
            };
            let bare = digits.to_lowercase();
            let bare = bare.strip_prefix(prefix).filter(|_| matches!(base, 2 | 8 | 16)).unwrap_or(&bare);
            let exact = i128::from_str_radix(&format!("{sign}{bare}"), base).ok();
            exact.or_else(|| text.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| n as i128))
        }
        _ => None,
    }
}
