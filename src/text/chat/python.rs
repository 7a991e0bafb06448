//! Python's rules for values where MiniJinja's differ: operators, comparison, slices, and text forms.
//!
//! Tuples are lists here.

use std::cmp::Ordering;
use std::fmt::Write;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::bounds::{Budget, weigh};
use super::format;

/// Python's white space, which includes the four ASCII separators.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub(super) fn fail<T>(what: impl Into<std::borrow::Cow<'static, str>>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, what))
}

/// A number. Booleans count as numbers too.
#[derive(Clone, Copy)]
pub(super) enum PyNumber {
    Int(i128),
    Float(f64),
}

impl PyNumber {
    pub(super) fn of(value: &Value) -> Option<PyNumber> {
        match value.kind() {
            ValueKind::Bool => Some(PyNumber::Int(value.is_true().into())),
            ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok().map(PyNumber::Int),
            ValueKind::Number => f64::try_from(value.clone()).ok().map(PyNumber::Float),
            _ => None,
        }
    }

    pub(super) fn float(self) -> f64 {
        match self {
            PyNumber::Int(number) => number as f64,
            PyNumber::Float(number) => number,
        }
    }
}

/// An integer as a value.
pub(super) fn integer(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number), Value::from)
}

pub(super) fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// Applies the operator with this sign.
pub(super) fn operate(budget: &Budget, sign: &str, a: &Value, b: &Value) -> Result<Value, Error> {
    match (sign, a.as_str(), b.as_str()) {
        ("~", ..) => return Ok(Value::from(text_of(a) + &text_of(b))),
        ("%", Some(text), _) => return format::percent(budget, text, b).map(Value::from),
        ("+", Some(a), Some(b)) => return Ok(Value::from([a, b].concat())),
        ("+", None, None) if is_list(a) && is_list(b) => return Ok(a.try_iter()?.chain(b.try_iter()?).collect()),
        ("*", ..) if a.as_str().is_some() || is_list(a) => return repeat(budget, a, b),
        ("*", ..) if b.as_str().is_some() || is_list(b) => return repeat(budget, b, a),
        _ => {}
    }
    let (Some(x), Some(y)) = (PyNumber::of(a), PyNumber::of(b)) else {
        return fail(format!("{sign} is not for {} and {}", a.kind(), b.kind()));
    };
    let is_zero = match y {
        PyNumber::Int(y) => y == 0,
        PyNumber::Float(y) => y == 0.0,
    };
    if is_zero && matches!(sign, "/" | "//" | "%") {
        return fail("division by zero");
    }
    if let (PyNumber::Int(x), PyNumber::Int(y)) = (x, y) {
        let power = || u32::try_from(y).ok().and_then(|y| x.checked_pow(y));
        let remainder = || x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r });
        let result = match sign {
            "+" => x.checked_add(y),
            "-" => x.checked_sub(y),
            "*" => x.checked_mul(y),
            "%" => remainder(),
            "//" => remainder().and_then(|r| x.checked_sub(r)?.checked_div(y)),
            "**" if y >= 0 => power(),
            _ => return float_operation(sign, x as f64, y as f64),
        };
        return match result {
            Some(number) => Ok(integer(number)),
            None => fail(format!("{sign} makes an integer of more than 128 bits")),
        };
    }
    float_operation(sign, x.float(), y.float())
}

fn float_operation(sign: &str, x: f64, y: f64) -> Result<Value, Error> {
    Ok(Value::from(match sign {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        "/" => x / y,
        "//" => (x / y).floor(),
        "%" => x - (x / y).floor() * y,
        _ if x == 0.0 && y < 0.0 => return fail("division by zero"),
        _ => match x.powf(y) {
            power if power.is_finite() || !x.is_finite() || !y.is_finite() => power,
            _ => return fail("the power is no float"),
        },
    }))
}

fn repeat(budget: &Budget, what: &Value, times: &Value) -> Result<Value, Error> {
    let Some(PyNumber::Int(times)) = PyNumber::of(times) else {
        return fail("only an integer repeats texts and lists");
    };
    let times = u64::try_from(times).unwrap_or(0);
    budget.make(weigh(what)?.saturating_mul(times))?;
    match what.as_str() {
        Some(text) => Ok(Value::from(text.repeat(times as usize))),
        None => {
            let items: Vec<Value> = what.try_iter()?.collect();
            Ok((0..times).flat_map(|_| items.iter().cloned()).collect())
        }
    }
}

/// Whether two values are equal.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (PyNumber::of(a), PyNumber::of(b)) {
        (Some(PyNumber::Int(a)), Some(PyNumber::Int(b))) => a == b,
        (Some(a), Some(b)) => a.float() == b.float(),
        _ => a == b,
    }
}

/// The order of two values; `None` if one is NaN.
pub(super) fn order(a: &Value, b: &Value) -> Result<Option<Ordering>, Error> {
    match (PyNumber::of(a), PyNumber::of(b)) {
        (Some(PyNumber::Int(a)), Some(PyNumber::Int(b))) => return Ok(Some(a.cmp(&b))),
        (Some(a), Some(b)) => return Ok(a.float().partial_cmp(&b.float())),
        _ => {}
    }
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return Ok(Some(a.cmp(b)));
    }
    if !is_list(a) || !is_list(b) {
        return fail(format!("{} and {} have no order", a.kind(), b.kind()));
    }
    for (a, b) in a.try_iter()?.zip(b.try_iter()?) {
        if !equal(&a, &b) {
            return order(&a, &b);
        }
    }
    Ok(a.len().partial_cmp(&b.len()))
}

/// Applies the comparison operator with this sign.
pub(super) fn compare(sign: &str, a: &Value, b: &Value) -> Result<bool, Error> {
    Ok(match sign {
        "==" => equal(a, b),
        "!=" => !equal(a, b),
        "<" => order(a, b)? == Some(Ordering::Less),
        ">" => order(a, b)? == Some(Ordering::Greater),
        "<=" => order(a, b)?.is_some_and(Ordering::is_le),
        _ => order(a, b)?.is_some_and(Ordering::is_ge),
    })
}

/// `item in container`.
pub(super) fn contains(container: &Value, item: &Value) -> Result<bool, Error> {
    match (container.kind(), container.as_str(), item.as_str()) {
        (_, Some(text), Some(part)) => Ok(text.contains(part)),
        (ValueKind::Undefined, ..) => Ok(false),
        (ValueKind::Map, ..) if is_list(item) || item.kind() == ValueKind::Map => fail("lists and maps are no keys"),
        (ValueKind::Map, ..) => Ok(container.get_item(item).is_ok_and(|found| !found.is_undefined())),
        (ValueKind::Seq | ValueKind::Iterable, ..) => Ok(container.try_iter()?.any(|each| equal(&each, item))),
        (kind, ..) => fail(format!("{} cannot be in {kind}", item.kind())),
    }
}

/// `value[start:stop:step]`.
pub(super) fn slice(budget: &Budget, value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    budget.scan(value)?;
    let length = match (value.kind(), value.as_str()) {
        (_, Some(text)) => text.chars().count() as i128,
        (ValueKind::Seq | ValueKind::Iterable, _) => value.len().unwrap_or(0) as i128,
        (ValueKind::Undefined, _) => return Err(ErrorKind::UndefinedError.into()),
        _ => return Ok(Value::UNDEFINED),
    };
    let number = |value: &Value| match PyNumber::of(value) {
        Some(PyNumber::Int(number)) => Ok(Some(number.clamp(i64::MIN.into(), i64::MAX.into()))),
        None if value.is_none() => Ok(None),
        _ => fail("a slice is not by integers"),
    };
    let step = number(step)?.unwrap_or(1);
    if step == 0 {
        return fail("a slice by steps of 0");
    }
    let (first, end) = if step > 0 { (0, length) } else { (length - 1, -1) };
    let place = |given: Option<i128>, none: i128| match given {
        Some(at) => (if at < 0 { at + length } else { at }).clamp(first.min(end), first.max(end)),
        None => none,
    };
    let (start, stop) = (place(number(start)?, first), place(number(stop)?, end));
    let many = (stop - start).max(0) as usize;
    Ok(match (value.as_str(), step) {
        (Some(text), 1) => Value::from(text.chars().skip(start as usize).take(many).collect::<String>()),
        (Some(text), _) => {
            budget.split(text)?;
            let characters: Vec<char> = text.chars().collect();
            Value::from(taken(&characters, start, stop, step).collect::<String>())
        }
        (None, _) => {
            let items: Vec<Value> = value.try_iter()?.collect();
            Value::from(taken(&items, start, stop, step).collect::<Vec<_>>())
        }
    })
}

/// The items from `start` on, in steps, until `stop`.
fn taken<T: Clone>(items: &[T], start: i128, stop: i128, step: i128) -> impl Iterator<Item = T> {
    let places = std::iter::successors(Some(start), move |at| Some(at + step));
    let inside = places.take_while(move |&at| if step > 0 { at < stop } else { at > stop });
    inside.filter_map(|at| items.get(at as usize).cloned())
}

/// Python's `str`.
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

/// Python's `repr`.
pub(super) fn write_repr(out: &mut String, value: &Value) {
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
            _ if (c.is_control() || is_blank(c) || code == 0xad) && c != ' ' && code <= 0xff => {
                write!(out, "\\x{code:02x}")
            }
            _ if is_blank(c) && c != ' '
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
