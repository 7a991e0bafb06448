//! Python's two ways to format text, `'%s' % x` and `'{}'.format(x)`. MiniJinja implements both, with other rules for
//! some values.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, FormatStyle, Value, format_filter};

use super::bounds::{Budget, weigh};
use super::python::{PyNumber, fail, integer, is_list, text_of, write_repr};

/// `format % arguments`. A list counts as a tuple of arguments, unless the format has a single conversion.
pub(super) fn percent(budget: &Budget, format: &str, arguments: &Value) -> Result<String, Error> {
    let is_one = conversions(format).len() == 1 && arguments.len() != Some(1);
    let arguments = match is_list(arguments) && !is_one {
        true => arguments.try_iter()?.collect(),
        false => vec![arguments.clone()],
    };
    percent_of(budget, format, &arguments)
}

/// As [`percent`], with separate arguments.
pub(super) fn percent_of(budget: &Budget, format: &str, arguments: &[Value]) -> Result<String, Error> {
    let is_map = matches!(arguments, [one] if one.kind() == ValueKind::Map);
    if is_map && format.contains("%(") {
        check_size(budget, format, [format].into_iter(), arguments, Uses::InEachField)?;
        return format_filter(FormatStyle::Printf, format, arguments);
    }
    let places = conversions(format);
    if places.len() < arguments.len() && !(is_map && places.is_empty()) {
        return fail("there are more arguments than places in the format");
    }
    let specifications = places.iter().map(|&(at, _)| {
        let flags = format[..at].rfind('%').unwrap_or(0);
        &format[flags..at]
    });
    check_size(budget, format, specifications, arguments, Uses::Once)?;
    let mut plain = format.to_owned();
    let mut shown = Vec::new();
    for (&(at, conversion), value) in places.iter().zip(arguments) {
        shown.push(match (conversion, PyNumber::of(value)) {
            ('r', _) => {
                plain.replace_range(at..=at, "s");
                let mut text = String::new();
                write_repr(&mut text, value);
                Value::from(text)
            }
            ('s', _) => Value::from(text_of(value)),
            ('d' | 'i' | 'u', Some(PyNumber::Float(number))) if number.is_finite() => integer(number as i128),
            _ => value.clone(),
        });
    }
    format_filter(FormatStyle::Printf, &plain, &shown)
}

/// The byte offset and letter of each conversion in a `%` format, except `%%`.
fn conversions(format: &str) -> Vec<(usize, char)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = format[at..].find('%') {
        let flags = at + start + 1;
        let is_flag = |c: char| matches!(c, '-' | '+' | ' ' | '#' | '.' | '0'..='9');
        let Some((place, conversion)) = format[flags..].char_indices().find(|(_, c)| !is_flag(*c)) else { break };
        if conversion != '%' {
            found.push((flags + place, conversion));
        }
        at = flags + place + conversion.len_utf8();
    }
    found
}

/// `format.format(arguments)`.
pub(super) fn braces(budget: &Budget, format: &str, arguments: &[Value]) -> Result<String, Error> {
    let fields = format.split('{').skip(1).map(|field| field.split('}').next().unwrap_or_default());
    check_size(budget, format, fields, arguments, Uses::InEachField)?;
    // With a specification a number is not formatted as its `str`.
    let has_specifications = format.contains(':');
    let shown = |value: Value| match PyNumber::of(&value) {
        Some(_) if has_specifications => value,
        _ => Value::from(text_of(&value)),
    };
    let arguments: Vec<Value> = (arguments.iter())
        .map(|value| match value.is_kwargs() {
            true => {
                let names = value.try_iter().into_iter().flatten();
                let pairs = names.filter_map(|name| Some((name.to_string(), value.get_item(&name).ok()?)));
                // A field may look into a list or a map.
                let pairs =
                    pairs.map(|(name, item)| (name, if format.contains(['[', '.']) { item } else { shown(item) }));
                Value::from(pairs.collect::<Kwargs>())
            }
            false if format.contains(['[', '.']) => value.clone(),
            false => shown(value.clone()),
        })
        .collect();
    format_filter(FormatStyle::StrFormat, format, &arguments)
}

/// How often a format may use an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uses {
    Once,
    InEachField,
}

/// Charges for the largest text that a format may make. A field may be as wide as any number in the specifications
/// `within` it; MiniJinja takes no width from an argument.
fn check_size<'f>(
    budget: &Budget,
    format: &str,
    within: impl Iterator<Item = &'f str>,
    arguments: &[Value],
    uses: Uses,
) -> Result<(), Error> {
    let numbers = within.flat_map(|text| text.split(|c: char| !c.is_ascii_digit())).filter(|digits| !digits.is_empty());
    let widest = numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).max().unwrap_or(0);
    let fields = format.matches(['%', '{']).count() as u64;
    let (mut sum, mut largest) = (0u64, 0);
    for value in arguments {
        // Values other than text are written with quotes and escapes.
        let size = weigh(value)?.saturating_mul(if value.as_str().is_some() { 1 } else { 4 });
        (sum, largest) = (sum.saturating_add(size), size.max(largest));
    }
    let written = if uses == Uses::Once { sum } else { fields.saturating_mul(largest) };
    let padding = fields.saturating_mul(widest);
    budget.make(written.saturating_add(padding).saturating_add(format.len() as u64))?;
    Ok(())
}
