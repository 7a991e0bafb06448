//! Python's two ways to format a text: `'%s' % x` and `'{}'.format(x)`. MiniJinja has them, and other rules for some values.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, FormatStyle, Value, format_filter};

use super::bounds::{Budget, weigh};
use super::python::{Number, fail, integer, is_list, text_of, write_repr};

/// `format % arguments`. A list is a tuple of arguments, unless there is one place for several.
pub(super) fn percent(budget: &Budget, format: &str, arguments: &Value) -> Result<String, Error> {
    let is_one = conversions(format).len() == 1 && arguments.len() != Some(1);
    let arguments = match is_list(arguments) && !is_one {
        true => arguments.try_iter()?.collect(),
        false => vec![arguments.clone()],
    };
    percent_of(budget, format, &arguments)
}

/// As [`percent`], of arguments one by one.
pub(super) fn percent_of(budget: &Budget, format: &str, arguments: &[Value]) -> Result<String, Error> {
    let is_map = matches!(arguments, [one] if one.kind() == ValueKind::Map);
    if is_map && format.contains("%(") {
        check_size(budget, format, arguments)?;
        return format_filter(FormatStyle::Printf, format, arguments);
    }
    let places = conversions(format);
    if places.len() < arguments.len() && !(is_map && places.is_empty()) {
        return fail("there are more arguments than places in the format");
    }
    check_size(budget, format, arguments)?;
    let mut plain = format.to_owned();
    let mut shown = Vec::new();
    for (&(at, conversion), value) in places.iter().zip(arguments) {
        shown.push(match (conversion, Number::of(value)) {
            ('r', _) => {
                plain.replace_range(at..=at, "s");
                let mut text = String::new();
                write_repr(&mut text, value);
                Value::from(text)
            }
            ('s', _) => Value::from(text_of(value)),
            ('d' | 'i' | 'u', Some(Number::Float(number))) if number.is_finite() => integer(number as i128),
            _ => value.clone(),
        });
    }
    format_filter(FormatStyle::Printf, &plain, &shown)
}

/// Where the conversions of a format in the style of `%` are, and which.
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
    check_size(budget, format, arguments)?;
    // A number with a specification is not its text.
    let has_specifications = format.contains(':');
    let shown = |value: Value| match Number::of(&value) {
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

/// Spends for what a format may make. Each field may be as wide as any number in the format; MiniJinja takes no width from
/// an argument.
fn check_size(budget: &Budget, format: &str, arguments: &[Value]) -> Result<(), Error> {
    let numbers = format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widest = numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).max().unwrap_or(0);
    let fields = format.matches(['%', '{']).count() as u64;
    let sizes = arguments.iter().try_fold(0, |sum, value| weigh(value).map(|size| sum + size))?;
    budget.make(fields.saturating_mul(sizes.saturating_mul(4).saturating_add(widest)) + format.len() as u64)?;
    Ok(())
}
