//! Values as Python writes them. Tuples are lists here.

use std::fmt::Write;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

pub(super) fn fail<T>(what: impl Into<std::borrow::Cow<'static, str>>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, what))
}

/// Python's `str`: the text of a value as a template prints it.
pub(super) fn text_of(value: &Value) -> String {
    let mut text = String::new();
    write_text(&mut text, value);
    text
}

fn write_text(out: &mut String, value: &Value) {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => write_repr(out, value),
    }
}

/// Python's `repr`: a value with quotes around texts, as in lists that a template prints.
fn write_repr(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&float_text(f64::try_from(value.clone()).unwrap_or_default()));
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(out, &item);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(out, &key);
                out.push_str(": ");
                write_repr(out, &value.get_item(&key).unwrap_or_default());
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

fn write_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        let code = u32::from(c);
        // Writing to a String does not fail.
        let _ = match c {
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            _ if c == quote => write!(out, "\\{c}"),
            _ if (c.is_control() || c.is_whitespace() || code == 0xad) && c != ' ' && code <= 0xff => {
                write!(out, "\\x{code:02x}")
            }
            _ if c.is_whitespace() && c != ' '
                || matches!(code, 0x200b..=0x200f | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff) =>
            {
                write!(out, "\\u{code:04x}")
            }
            _ => out.write_char(c),
        };
    }
    out.push(quote);
}

/// Python's text of a float: the shortest one that reads back as the same float.
pub(super) fn float_text(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .into();
    }
    if number == 0.0 || (1e-4..1e16).contains(&number.abs()) {
        return format!("{number:?}");
    }
    // Python's exponent has a sign and two digits.
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}
