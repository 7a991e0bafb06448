//! Filters and tests that differ from MiniJinja's, or that can make much of little.

use std::borrow::Cow;
use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, FormatStyle, State, Value, filters, format_filter};

use super::bounds::{Budget, Excess, weigh};
use super::json::tojson;
use super::python::{fail, text_of};

/// Adds the filters and tests to an environment.
pub(super) fn add(e: &mut Environment, budget: &Arc<Budget>) {
    e.add_filter("string", |value: &Value| text_of(value));
    for name in ["length", "count"] {
        e.add_filter(name, |value: &Value| -> Result<usize, Error> {
            match (value.kind(), value.len()) {
                (ValueKind::Undefined, _) => Ok(0),
                (_, Some(length)) => Ok(length),
                (kind, None) => fail(format!("{kind} has no length")),
            }
        });
    }
    let b = budget.clone();
    e.add_filter("tojson", move |value: &Value, arguments: Rest<Value>| tojson(&b, value, &arguments));
    for name in ["iterable", "sequence"] {
        e.add_test(name, |value: &Value| {
            use ValueKind::{Iterable, Map, Seq, String, Undefined};
            matches!(value.kind(), Undefined | String | Map | Seq | Iterable)
        });
    }
    let b = budget.clone();
    e.add_filter("replace", move |text: &Value, old: &Value, new: &Value, most: Option<usize>| {
        replace(&b, &text_of(text), &text_of(old), &text_of(new), most)
    });
    let b = budget.clone();
    e.add_filter(REMAINDER, move |left: &Value, right: &Value| remainder(&b, left, right));
    add_checked(e, budget);
}

/// The filter that replaces the operator `%`.
pub(super) const REMAINDER: &str = "%";

/// `left % right`: a format with its arguments, or a remainder with the sign of the divisor.
fn remainder(budget: &Budget, left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(format) = left.as_str() {
        // A list counts as a tuple of arguments, unless the format has a single conversion.
        let is_one = format.replace("%%", "").matches('%').count() == 1 && right.len() != Some(1);
        let arguments = match right.kind() {
            ValueKind::Seq | ValueKind::Iterable if !is_one => right.try_iter()?.collect(),
            _ => vec![right.clone()],
        };
        check_format(budget, format, &arguments)?;
        return format_filter(FormatStyle::Printf, format, &arguments).map(Value::from);
    }
    if left.is_integer() && right.is_integer() {
        let (a, b) = (i128::try_from(left.clone())?, i128::try_from(right.clone())?);
        let Some(rest) = a.checked_rem(b) else { return fail("a remainder of a division by zero") };
        let rest = if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest };
        return Ok(i64::try_from(rest).map_or_else(|_| Value::from(rest), Value::from));
    }
    let (a, b) = (f64::try_from(left.clone())?, f64::try_from(right.clone())?);
    Ok(Value::from(a - (a / b).floor() * b))
}

/// Replaces the first `most` occurrences in a text, or all.
pub(super) fn replace(budget: &Budget, text: &str, old: &str, new: &str, most: Option<usize>) -> Result<Value, Error> {
    let made = (text.matches(old).count() as u64).saturating_mul(new.len() as u64);
    budget.make((text.len() as u64).saturating_add(made))?;
    Ok(Value::from(most.map_or_else(|| text.replace(old, new), |most| text.replacen(old, new, most))))
}

/// Adds MiniJinja's own filters, each behind a check of the size of its result.
fn add_checked(e: &mut Environment, budget: &Arc<Budget>) {
    type Check = fn(&Budget, &[Value]) -> Result<(), Excess>;
    e.add_filter("unchecked join", filters::join);
    e.add_filter("unchecked indent", filters::indent);
    e.add_filter("unchecked trim", filters::trim);
    e.add_filter("unchecked batch", filters::batch);
    e.add_filter("unchecked slice", filters::slice);
    e.add_filter("unchecked format", filters::format);
    let checks: [(&str, &str, Check); 6] = [
        ("join", "unchecked join", |budget, all| match all {
            [items, between, ..] => budget.make(joined_size(items, &text_of(between))?),
            _ => Ok(()),
        }),
        ("indent", "unchecked indent", |budget, all| {
            let (text, width) = (text_at(all, 0), number_at(all, 1, "width"));
            let lines = text.matches('\n').count() as u64 + 1;
            budget.make(lines.saturating_mul(width).saturating_add(text.len() as u64))
        }),
        // Each character at an end is compared with all of the given ones.
        ("trim", "unchecked trim", |budget, all| {
            let [text, characters] = [0, 1].map(|i| text_at(all, i).len() as u64);
            budget.spend(text.saturating_mul(characters) / 16)
        }),
        ("batch", "unchecked batch", parts_size),
        ("slice", "unchecked slice", parts_size),
        ("format", "unchecked format", |budget, all| match all {
            [format, arguments @ ..] => check_format(budget, &text_of(format), arguments),
            [] => Ok(()),
        }),
    ];
    for (name, unchecked, check) in checks {
        let b = budget.clone();
        e.add_filter(name, move |state: &State, arguments: Rest<Value>| -> Result<Value, Error> {
            check(&b, &arguments)?;
            state.apply_filter(unchecked, &arguments)
        });
    }
}

/// Checks a division of a list into parts of a number, or into a number of parts.
fn parts_size(budget: &Budget, all: &[Value]) -> Result<(), Excess> {
    let items = all.first().map_or(Ok(0), weigh)?;
    budget.make(number_at(all, 1, "").saturating_mul(64).saturating_add(items))
}

fn text_at(all: &[Value], i: usize) -> Cow<'_, str> {
    match all.get(i) {
        Some(value) => value.as_str().map_or_else(|| text_of(value).into(), Cow::from),
        None => Cow::default(),
    }
}

/// The argument at index `i` of `all`, or the one with this name; 0 if there is neither.
fn number_at(all: &[Value], i: usize, name: &str) -> u64 {
    let named =
        || all.last().and_then(|last| from_args::<(Kwargs,)>(std::slice::from_ref(last)).ok()?.0.get(name).ok());
    all.get(i).and_then(|value| u64::try_from(value.clone()).ok()).or_else(named).unwrap_or(0)
}

/// The size of the text that joining `items` makes, with `between` between each two.
pub(super) fn joined_size(items: &Value, between: &str) -> Result<u64, Excess> {
    let separators = (items.len().unwrap_or(0) as u64).saturating_mul(between.len() as u64);
    Ok(weigh(items)?.saturating_add(separators))
}

/// Checks the largest text that a format may make. A field may be as wide as any number in the format; MiniJinja takes
/// no width from an argument.
pub(super) fn check_format(budget: &Budget, format: &str, arguments: &[Value]) -> Result<(), Excess> {
    let fields: Vec<&str> = format.split(['%', '{']).skip(1).collect();
    // A specification is the text up to the field's letter or bracket.
    let numbers = fields.iter().flat_map(|field| {
        let end = field.find(|c: char| c == '}' || c == ' ' || c.is_ascii_alphabetic()).unwrap_or(field.len());
        field[..end].split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty())
    });
    let padding = numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
    let mut largest = 0;
    for value in arguments {
        // Values other than text are written with quotes and escapes.
        largest = largest.max(weigh(value)?.saturating_mul(if value.as_str().is_some() { 1 } else { 4 }));
    }
    let written = (fields.len() as u64).saturating_mul(largest);
    budget.make(written.saturating_add(padding).saturating_add(format.len() as u64))
}
