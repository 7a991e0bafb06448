//! The `tojson` of transformers: Python's `json.dumps`, which neither sorts keys nor escapes HTML's special characters.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, Value};

use super::bounds::{Budget, Excess, weigh};
use super::python::{fail, float_text};

/// The layout of JSON text.
struct Style {
    ensure_ascii: bool,
    /// The indentation of one level; `None` for a single line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The largest indent of JSON text, in spaces.
const MAX_INDENT: usize = 16;

/// `value | tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(budget: &Budget, value: &Value, arguments: &[Value]) -> Result<Value, Error> {
    type Arguments = (Option<Value>, Option<Value>, Option<Value>, Option<Value>, Kwargs);
    let (ensure_ascii, indent, separators, sort_keys, named): Arguments = from_args(arguments)?;
    let one = |given: Option<Value>, name: &str| -> Result<Value, Error> {
        Ok(given.or(named.get(name)?).unwrap_or_else(|| Value::from(())))
    };
    let ensure_ascii = one(ensure_ascii, "ensure_ascii")?.is_true();
    let indent = one(indent, "indent")?;
    let separators = one(separators, "separators")?;
    let sort_keys = one(sort_keys, "sort_keys")?.is_true();
    named.assert_all_used()?;

    let indent = match indent.as_str() {
        Some(text) => Some(text.to_owned()),
        None if indent.is_none() => None,
        None => match usize::try_from(indent)? {
            by if by > MAX_INDENT => return Err(Excess::Indent.into()),
            by => Some(" ".repeat(by)),
        },
    };
    if indent.as_ref().is_some_and(|by| by.len() > MAX_INDENT) {
        return Err(Excess::Indent.into());
    }
    let (item_separator, key_separator) = match separators.is_none() {
        true => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        false => match separators.try_iter()?.collect::<Vec<_>>().as_slice() {
            [item, key] if item.as_str().is_some() && key.as_str().is_some() => (item.to_string(), key.to_string()),
            _ => return fail("the separators of JSON are two texts"),
        },
    };
    // The worst case: a character becomes six, and an item gets its separators and an indented line.
    let widest = 6 + indent.as_ref().map_or(0, String::len) + item_separator.len() + key_separator.len();
    budget.make(weigh(value)?.saturating_mul(widest as u64))?;
    let style = Style { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut text = String::new();
    style.write(&mut text, value, 0)?;
    Ok(Value::from(text))
}

impl Style {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number_text(value)),
            ValueKind::String => self.write_text(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_items(out, ('[', ']'), depth, &items, |out, item| self.write(out, item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut pairs = Vec::new();
                for key in value.try_iter()? {
                    pairs.push((key_text(&key)?, value.get_item(&key)?));
                }
                if self.sort_keys {
                    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.write_items(out, ('{', '}'), depth, &pairs, |out, (key, item)| {
                    self.write_text(out, key);
                    out.push_str(&self.key_separator);
                    self.write(out, item, depth + 1)
                })?;
            }
            kind => return fail(format!("JSON has no {kind}")),
        }
        Ok(())
    }

    fn write_items<T>(
        &self,
        out: &mut String,
        (open, close): (char, char),
        depth: usize,
        items: &[T],
        mut write: impl FnMut(&mut String, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = self.indent.as_ref().filter(|_| !items.is_empty()) {
                out.push('\n');
                out.extend(std::iter::repeat_n(indent.as_str(), depth));
            }
        };
        out.push(open);
        for (i, item) in items.iter().enumerate() {
            out.push_str(if i > 0 { &self.item_separator } else { "" });
            line(out, depth + 1);
            write(out, item)?;
        }
        line(out, depth);
        out.push(close);
        Ok(())
    }

    fn write_text(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            // Writing to a String does not fail.
            let _ = match c {
                '"' | '\\' => write!(out, "\\{c}"),
                '\n' => out.write_str("\\n"),
                '\r' => out.write_str("\\r"),
                '\t' => out.write_str("\\t"),
                '\x08' => out.write_str("\\b"),
                '\x0c' => out.write_str("\\f"),
                '\0'..='\x1f' => write!(out, "\\u{:04x}", u32::from(c)),
                _ if self.ensure_ascii && !matches!(c, ' '..='~') => {
                    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
                }
                _ => out.write_char(c),
            };
        }
        out.push('"');
    }
}

fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()).unwrap_or_default() {
        number if number.is_nan() => "NaN".into(),
        number if number.is_infinite() => if number > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        number => float_text(number),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.to_string()),
        ValueKind::Number => Ok(number_text(key)),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        kind => fail(format!("a key of JSON is no {kind}")),
    }
}
