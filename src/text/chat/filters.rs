//! Jinja's filters and tests for which MiniJinja's differ, or make more than they are charged for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::value::{Kwargs, Object, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::bounds::{Budget, weigh};
use super::format::percent_of;
use super::json::tojson;
use super::methods::{capitalize, center, replace, split_lines, strip, to_integer};
use super::python;
use super::python::{PyNumber, compare, contains, equal, fail, integer, is_blank, is_list, operate, text_of};

type Made = Result<Value, Error>;

/// Adds the filters and tests to an environment.
pub(super) fn add(e: &mut Environment, budget: &Arc<Budget>) {
    // MiniJinja's additions to Jinja, and filters that chat templates have no use for.
    for name in ["bool", "chain", "lines", "pprint", "split", "zip"] {
        e.remove_filter(name);
    }
    for name in ["filter", "test"] {
        e.remove_test(name);
    }
    add_filters_of_text(e, budget);
    add_filters_of_lists(e, budget);

    for name in ["int", "float", "abs", "round"] {
        e.add_filter(name, move |value: &Value, arguments: Rest<Value>| number_filter(name, value, &arguments));
    }
    for name in ["default", "d"] {
        e.add_filter(name, |value: Value, other: Option<Value>, boolean: Option<bool>, named: Kwargs| -> Made {
            let other = other.or(named.get("default_value")?).unwrap_or_else(|| Value::from(""));
            let boolean = boolean.or(named.get("boolean")?).unwrap_or(false);
            named.assert_all_used()?;
            Ok(if value.is_undefined() || boolean && !value.is_true() { other } else { value })
        });
    }
    let b = budget.clone();
    e.add_filter("tojson", move |value: &Value, arguments: Rest<Value>| tojson(&b, value, &arguments));
    add_tests(e, budget);
    e.add_function("joiner", |separator: Option<String>| {
        Value::from_object(Joiner {
            separator: separator.unwrap_or_else(|| ", ".into()),
            is_used: AtomicBool::new(false),
        })
    });
}

/// Returns its separator at each call except the first.
#[derive(Debug)]
struct Joiner {
    separator: String,
    is_used: AtomicBool,
}

impl Object for Joiner {
    fn call(self: &Arc<Self>, _: &State, arguments: &[Value]) -> Made {
        let () = from_args(arguments)?;
        Ok(Value::from(if self.is_used.swap(true, Ordering::Relaxed) { self.separator.as_str() } else { "" }))
    }
}

fn add_filters_of_text(e: &mut Environment, budget: &Arc<Budget>) {
    e.add_filter("string", |value: &Value| text_of(value));
    e.add_filter("upper", |value: &Value| text_of(value).to_uppercase());
    e.add_filter("lower", |value: &Value| text_of(value).to_lowercase());
    e.add_filter("capitalize", |value: &Value| capitalize(&text_of(value)));
    e.add_filter("title", |value: &Value| title_words(&text_of(value)));
    e.add_filter("wordcount", |value: &Value| {
        text_of(value).split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count()
    });
    for name in ["e", "escape", "forceescape"] {
        let b = budget.clone();
        e.add_filter(name, move |value: Value| -> Made {
            if value.is_safe() && name != "forceescape" { Ok(value) } else { escape(&b, &text_of(&value)) }
        });
    }
    let b = budget.clone();
    e.add_filter("trim", move |value: &Value, characters: Option<Arc<str>>| -> Made {
        strip(&b, &text_of(value), characters.as_deref(), (true, true)).map(Value::from)
    });
    let b = budget.clone();
    e.add_filter("replace", move |text: &Value, old: &Value, new: &Value, most: Option<i64>| -> Made {
        replace(&b, &text_of(text), &text_of(old), &text_of(new), most)
    });
    let b = budget.clone();
    e.add_filter("format", move |format: &Value, arguments: Rest<Value>| -> Made {
        percent_of(&b, &text_of(format), &arguments).map(Value::from)
    });
    let b = budget.clone();
    e.add_filter("center", move |value: &Value, width: Option<i64>, named: Kwargs| -> Made {
        let width = width.or(named.get("width")?).unwrap_or(80);
        center(&b, &text_of(value), width, ' ').map(Value::from)
    });
    e.add_filter("safe", |value: &Value| Value::from_safe_string(text_of(value)));
    let b = budget.clone();
    e.add_filter("indent", move |value: &Value, arguments: Rest<Value>| match value.as_str() {
        Some(text) => indent(&b, text, &arguments),
        None => fail(format!("{} is not indented", value.kind())),
    });
    e.add_filter("truncate", |value: &Value, arguments: Rest<Value>| match value.as_str() {
        Some(text) => truncate(text, &arguments),
        None if value.is_undefined() => truncate("", &arguments),
        None => fail(format!("{} is not truncated", value.kind())),
    });
}

fn add_filters_of_lists(e: &mut Environment, budget: &Arc<Budget>) {
    for name in ["length", "count"] {
        e.add_filter(name, |value: &Value| -> Made {
            match (value.kind(), value.len()) {
                (ValueKind::Undefined, _) => Ok(Value::from(0)),
                (_, Some(length)) => Ok(Value::from(length)),
                (kind, None) => fail(format!("{kind} has no length")),
            }
        });
    }
    let b = budget.clone();
    e.add_filter("list", move |value: &Value| -> Made { items_of(&b, value).map(Value::from) });
    let b = budget.clone();
    e.add_filter(
        "join",
        move |items: &Value, between: Option<Value>, attribute: Option<Value>, named: Kwargs| -> Made {
            let between = between.or(named.get("d")?).map_or_else(String::new, |between| text_of(&between));
            let attribute = attribute.or(named.get("attribute")?);
            named.assert_all_used()?;
            b.join(items, &between)?;
            let texts = items_of(&b, items)?
                .into_iter()
                .map(|item| attribute_of(item, attribute.as_ref()).map(|item| text_of(&item)));
            Ok(Value::from(texts.collect::<Result<Vec<_>, _>>()?.join(&between)))
        },
    );
    let b = budget.clone();
    e.add_filter("sum", move |items: &Value, attribute: Option<Value>, start: Option<Value>, named: Kwargs| -> Made {
        let attribute = attribute.or(named.get("attribute")?);
        let start = start.or(named.get("start")?).unwrap_or_else(|| Value::from(0));
        named.assert_all_used()?;
        if start.as_str().is_some() {
            return fail("sum is not for texts");
        }
        items_of(&b, items)?.into_iter().try_fold(start, |sum, item| {
            b.make(weigh(&sum)?)?;
            operate(&b, "+", &sum, &attribute_of(item, attribute.as_ref())?)
        })
    });
    for name in ["batch", "slice"] {
        let b = budget.clone();
        e.add_filter(name, move |items: &Value, many: i64, fill: Option<Value>, named: Kwargs| -> Made {
            let fill = fill.or(named.get("fill_with")?);
            named.assert_all_used()?;
            let Some(many) = usize::try_from(many).ok().filter(|&many| many > 0) else { return fail("no parts") };
            b.make((many as u64).saturating_mul(64).saturating_add(weigh(items)?))?;
            let items = items_of(&b, items)?;
            Ok(Value::from(if name == "batch" { batch(&items, many, fill) } else { slices(&items, many, fill) }))
        });
    }
    for name in ["first", "last", "min", "max", "sort", "reverse"] {
        let b = budget.clone();
        e.add_filter(name, move |items: &Value, arguments: Rest<Value>| ordered(&b, name, items, &arguments));
    }
}

fn add_tests(e: &mut Environment, budget: &Arc<Budget>) {
    for (sign, names) in [
        ("==", ["==", "eq", "equalto"]),
        ("!=", ["!=", "ne", "ne"]),
        ("<", ["<", "lt", "lessthan"]),
        ("<=", ["<=", "le", "le"]),
        (">", [">", "gt", "greaterthan"]),
        (">=", [">=", "ge", "ge"]),
    ] {
        for name in names {
            let b = budget.clone();
            e.add_test(name, move |a: &Value, b_: &Value| -> Result<bool, Error> {
                b.scan(b_)?;
                compare(sign, a, b_)
            });
        }
    }
    let b = budget.clone();
    e.add_test("in", move |item: &Value, container: &Value| -> Result<bool, Error> {
        b.scan(container)?;
        contains(container, item)
    });
    let has_items = |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Map) || is_list(value)
    };
    e.add_test("sequence", has_items);
    e.add_test("iterable", has_items);
    for (name, rest) in [("even", 0), ("odd", 1)] {
        let b = budget.clone();
        e.add_test(name, move |value: &Value| -> Result<bool, Error> {
            Ok(equal(&operate(&b, "%", value, &Value::from(2))?, &Value::from(rest)))
        });
    }
    let b = budget.clone();
    e.add_test("divisibleby", move |value: &Value, by: &Value| -> Result<bool, Error> {
        Ok(equal(&operate(&b, "%", value, by)?, &Value::from(0)))
    });
    e.add_test("number", |value: &Value| PyNumber::of(value).is_some());
    e.add_test("integer", |value: &Value| value.kind() == ValueKind::Number && value.is_integer());
    e.add_test("callable", |value: &Value| {
        value.kind() == ValueKind::Plain
            && !value.as_object().is_some_and(|object| object.type_name().contains("Namespace"))
    });
    for (name, upper) in [("lower", false), ("upper", true)] {
        e.add_test(name, move |value: &Value| {
            let text = text_of(value);
            text.contains(char::is_lowercase) != upper && text.contains(char::is_uppercase) == upper
        });
    }
}

/// The items of a value, charged. The characters of a text take more memory than the text.
fn items_of(budget: &Budget, value: &Value) -> Result<Vec<Value>, Error> {
    if let Some(text) = value.as_str() {
        budget.split(text)?;
    }
    if value.is_none() {
        return fail("none has no items");
    }
    Ok(value.try_iter()?.collect())
}

/// The attribute `attribute`, such as `a.b.0`, of an item.
fn attribute_of(mut item: Value, attribute: Option<&Value>) -> Made {
    let path = attribute.map(text_of).unwrap_or_default();
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let key = name.parse::<usize>().map_or_else(|_| Value::from(name), Value::from);
        item = item.get_item(&key)?;
    }
    Ok(item)
}

/// Filters that select or sort items.
fn ordered(budget: &Budget, name: &str, value: &Value, arguments: &[Value]) -> Made {
    let mut items = items_of(budget, value)?;
    match name {
        "first" => return from_args(arguments).map(|()| items.into_iter().next().unwrap_or_default()),
        "last" => return from_args(arguments).map(|()| items.pop().unwrap_or_default()),
        "reverse" => {
            let () = from_args(arguments)?;
            items.reverse();
            return Ok(match value.as_str() {
                Some(_) => Value::from(items.iter().filter_map(Value::as_str).collect::<String>()),
                None => Value::from(items),
            });
        }
        _ => {}
    }
    let (named, positional) = match arguments.split_last() {
        Some((last, others)) if last.is_kwargs() => (from_args::<(Kwargs,)>(std::slice::from_ref(last))?.0, others),
        _ => (Kwargs::from_iter([] as [(&str, Value); 0]), arguments),
    };
    // `min` and `max` have no order to reverse.
    let (reverse, case_sensitive, attribute): (Option<bool>, Option<bool>, Option<Value>) = match name {
        "sort" => from_args(positional)?,
        _ => from_args(positional).map(|(case_sensitive, attribute)| (None, case_sensitive, attribute))?,
    };
    let reverse = if name == "sort" { reverse.or(named.get("reverse")?).unwrap_or(false) } else { name == "max" };
    let case_sensitive = case_sensitive.or(named.get("case_sensitive")?).unwrap_or(false);
    let attribute = attribute.or(named.get("attribute")?);
    named.assert_all_used()?;
    let mut keyed = Vec::new();
    for item in items {
        keyed.push((sort_key(&item, attribute.as_ref(), case_sensitive)?, item));
    }
    // Items that cannot be compared are an error even if the sort would not compare them.
    if let Some((first, _)) = keyed.first().cloned() {
        for (key, _) in &keyed {
            python::order(&first, key)?;
        }
    }
    keyed.sort_by(|(a, _), (b, _)| if reverse { b.cmp(a) } else { a.cmp(b) });
    let mut sorted = keyed.into_iter().map(|(_, item)| item);
    Ok(if name == "sort" { sorted.collect() } else { sorted.next().unwrap_or_default() })
}

/// The sort key of an item: itself, or its attributes.
fn sort_key(item: &Value, attributes: Option<&Value>, case_sensitive: bool) -> Made {
    let plain = |value: Value| match (value.as_str(), PyNumber::of(&value)) {
        (Some(text), _) if !case_sensitive => Value::from(text.to_lowercase()),
        (_, Some(PyNumber::Int(number))) => integer(number),
        _ => value,
    };
    let Some(attributes) = attributes.map(text_of) else { return Ok(plain(item.clone())) };
    let keys = attributes.split(',').map(|name| attribute_of(item.clone(), Some(&Value::from(name))).map(plain));
    keys.collect::<Result<Vec<_>, _>>().map(Value::from)
}

fn batch(items: &[Value], many: usize, fill: Option<Value>) -> Vec<Vec<Value>> {
    let mut batches: Vec<Vec<Value>> = items.chunks(many).map(<[Value]>::to_vec).collect();
    if let (Some(last), Some(fill)) = (batches.last_mut(), fill) {
        last.resize(many, fill);
    }
    batches
}

fn slices(items: &[Value], many: usize, fill: Option<Value>) -> Vec<Vec<Value>> {
    let (each, longer) = (items.len() / many, items.len() % many);
    let mut rest = items;
    let cut = |i: usize| {
        let (slice, behind) = rest.split_at(each + usize::from(i < longer));
        rest = behind;
        let filled = fill.clone().filter(|_| longer > 0 && i >= longer);
        slice.iter().cloned().chain(filled).collect()
    };
    (0..many).map(cut).collect()
}

/// Text with HTML's special characters escaped.
fn escape(budget: &Budget, text: &str) -> Made {
    budget.make(text.len() as u64 + 5 * text.matches(['&', '<', '>', '\'', '"']).count() as u64)?;
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            _ => escaped.push(c),
        }
    }
    Ok(Value::from_safe_string(escaped))
}

/// Capitalises each word. A word also begins after a hyphen or an opening bracket.
fn title_words(text: &str) -> String {
    let ends = |c: char| is_blank(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    let word = |word: &str| {
        let mut characters = word.chars();
        let first = characters.next().map(char::to_uppercase).into_iter().flatten();
        first.chain(characters.as_str().to_lowercase().chars()).collect::<String>()
    };
    text.split_inclusive(ends).map(word).collect()
}

/// `indent(width=4, first=False, blank=False)`.
fn indent(budget: &Budget, text: &str, arguments: &[Value]) -> Made {
    let (width, first, blank, named): (Option<Value>, Option<bool>, Option<bool>, Kwargs) = from_args(arguments)?;
    let width = width.or(named.get("width")?).unwrap_or_else(|| Value::from(4));
    let first = first.or(named.get("first")?).unwrap_or(false);
    let blank = blank.or(named.get("blank")?).unwrap_or(false);
    named.assert_all_used()?;
    let by = match (width.as_str(), PyNumber::of(&width)) {
        (Some(by), _) => by.to_owned(),
        (None, Some(PyNumber::Int(width))) => {
            let width = u64::try_from(width).unwrap_or(0);
            budget.make(width)?;
            " ".repeat(width as usize)
        }
        _ => return fail("the width of an indent is an integer or a text"),
    };
    let lines = text.matches('\n').count() as u64 + 1;
    budget.make(lines.saturating_mul(by.len() as u64).saturating_add(text.len() as u64))?;
    let mut indented = String::new();
    // A line end is appended, so that a text ending in one has an empty last line.
    let lines = split_lines(&format!("{text}\n"), false);
    for (i, line) in lines.iter().filter_map(Value::as_str).enumerate() {
        indented.push_str(if i > 0 { "\n" } else { "" });
        if if i == 0 { first } else { blank || !line.is_empty() } {
            indented.push_str(&by);
        }
        indented.push_str(line);
    }
    Ok(Value::from(indented))
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`.
fn truncate(text: &str, arguments: &[Value]) -> Made {
    type Positional = (Option<usize>, Option<bool>, Option<String>, Option<usize>, Kwargs);
    let (length, kill, end, leeway, named): Positional = from_args(arguments)?;
    let length = length.or(named.get("length")?).unwrap_or(255);
    let kill = kill.or(named.get("killwords")?).unwrap_or(false);
    let end: String = end.or(named.get("end")?).unwrap_or_else(|| "...".into());
    let leeway = leeway.or(named.get("leeway")?).unwrap_or(5);
    named.assert_all_used()?;
    let Some(kept) = length.checked_sub(end.chars().count()) else { return fail("the length is less than the end's") };
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::from(text));
    }
    let cut: String = text.chars().take(kept).collect();
    let words = if kill { cut.as_str() } else { cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words) };
    Ok(Value::from(format!("{words}{end}")))
}

fn number_filter(name: &str, value: &Value, arguments: &[Value]) -> Made {
    if value.is_undefined() {
        return Err(ErrorKind::UndefinedError.into());
    }
    match name {
        "int" => {
            let (default, base, named): (Option<Value>, Option<u32>, Kwargs) = from_args(arguments)?;
            let default = default.or(named.get("default")?).unwrap_or_else(|| Value::from(0));
            let base = base.or(named.get("base")?).unwrap_or(10);
            named.assert_all_used()?;
            if !(2..=36).contains(&base) {
                return fail("the base of an integer is from 2 to 36");
            }
            Ok(to_integer(value, base).map_or(default, integer))
        }
        "float" => {
            let (default, named): (Option<Value>, Kwargs) = from_args(arguments)?;
            let default = default.or(named.get("default")?).unwrap_or_else(|| Value::from(0.0));
            named.assert_all_used()?;
            let spelled = || value.as_str().and_then(|text| text.trim_matches(is_blank).replace('_', "").parse().ok());
            Ok(PyNumber::of(value).map(PyNumber::float).or_else(spelled).map_or(default, Value::from))
        }
        "abs" => {
            let () = from_args(arguments)?;
            match PyNumber::of(value) {
                Some(PyNumber::Int(number)) => Ok(integer(number.saturating_abs())),
                Some(PyNumber::Float(number)) => Ok(Value::from(number.abs())),
                None => fail(format!("{} has no absolute value", value.kind())),
            }
        }
        _ => round(value, arguments),
    }
}

/// `round(precision=0, method='common')`. `common` rounds halves to even, as Python does.
fn round(value: &Value, arguments: &[Value]) -> Made {
    let (precision, method, named): (Option<i32>, Option<String>, Kwargs) = from_args(arguments)?;
    let precision = precision.or(named.get("precision")?).unwrap_or(0);
    let method: String = method.or(named.get("method")?).unwrap_or_else(|| "common".into());
    named.assert_all_used()?;
    let (number, scale) = match PyNumber::of(value) {
        Some(PyNumber::Int(number)) if method == "common" && precision >= 0 => return Ok(integer(number)),
        Some(number) => (number.float(), 10f64.powi(precision)),
        None => return fail(format!("{} cannot be rounded", value.kind())),
    };
    Ok(Value::from(match method.as_str() {
        // The nearest decimal to the float's exact value.
        "common" if precision > 0 => format!("{number:.*}", precision.min(300) as usize).parse().unwrap_or(number),
        "common" => (number * scale).round_ties_even() / scale,
        "ceil" => (number * scale).ceil() / scale,
        "floor" => (number * scale).floor() / scale,
        _ => return Err(Error::new(ErrorKind::InvalidOperation, "method must be common, ceil or floor")),
    }))
}
