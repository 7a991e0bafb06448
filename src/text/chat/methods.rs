//! Python's methods of strings, lists and dicts that templates use. None of them changes its value: transformers'
//! sandbox forbids the others.

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, FormatStyle, Value, filters, format_filter};

use super::bounds::Budget;
use super::filters::{check_format, joined_size, replace};
use super::python::fail;

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
            Ok(Value::from(list.try_iter()?.filter(|item| *item == what).count()))
        }
        "index" => {
            let (what,): (Value,) = from_args(arguments)?;
            let found = list.try_iter()?.position(|item| item == what);
            found.map_or_else(|| fail("the list does not have this item"), |i| Ok(Value::from(i)))
        }
        "copy" => from_args(arguments).map(|()| list.clone()),
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}

/// Python's `startswith` (`at_start`) or `endswith`, with one text or several.
fn has_end(text: &str, arguments: &[Value], at_start: bool) -> Result<Value, Error> {
    let (ends,): (Value,) = from_args(arguments)?;
    let ends: Vec<Value> = if ends.as_str().is_some() { vec![ends] } else { ends.try_iter()?.collect() };
    for end in &ends {
        let Some(end) = end.as_str() else { return fail("the start or end of a text is a text") };
        if if at_start { text.starts_with(end) } else { text.ends_with(end) } {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

/// Python's `split`, or `rsplit` at a separator.
fn split(text: &str, arguments: &[Value], from_right: bool) -> Result<Value, Error> {
    let (at, most, named): (Option<&str>, Option<i64>, Kwargs) = from_args(arguments)?;
    let (at, most) = (at.or(named.get("sep")?), most.or(named.get("maxsplit")?));
    named.assert_all_used()?;
    match at {
        Some("") => fail("the separator is empty"),
        Some(at) if from_right => {
            let most = most.and_then(|most| usize::try_from(most).ok()).map_or(usize::MAX, |most| most + 1);
            let mut parts: Vec<Value> = text.rsplitn(most, at).map(Value::from).collect();
            parts.reverse();
            Ok(Value::from(parts))
        }
        None if from_right && most.is_some() => fail("rsplit with a limit takes a separator"),
        at => {
            let at = at.map(Into::into);
            Ok(filters::split(&Value::from(text), at, most)?.try_iter()?.collect())
        }
    }
}

fn of_text(budget: &Budget, text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let all =
        |is: fn(char) -> bool| from_args(arguments).map(|()| Value::from(!text.is_empty() && text.chars().all(is)));
    let changed = |text: String| from_args(arguments).map(|()| Value::from(text));
    match name {
        "upper" => changed(text.to_uppercase()),
        "lower" | "casefold" => changed(text.to_lowercase()),
        "title" => changed(filters::title(text.into())),
        "capitalize" => {
            let mut characters = text.chars();
            let first = characters.next().map(char::to_uppercase).into_iter().flatten();
            changed(first.chain(characters.as_str().to_lowercase().chars()).collect())
        }
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isdigit" | "isdecimal" | "isnumeric" => all(char::is_numeric),
        "isspace" => all(char::is_whitespace),
        "isascii" => from_args(arguments).map(|()| Value::from(text.is_ascii())),
        "islower" | "isupper" => {
            let () = from_args(arguments)?;
            let (small, capital) = (text.contains(char::is_lowercase), text.contains(char::is_uppercase));
            Ok(Value::from(small != capital && small == (name == "islower")))
        }
        "strip" | "lstrip" | "rstrip" => {
            let (named,): (Option<&str>,) = from_args(arguments)?;
            budget.spend((text.len() as u64).saturating_mul(named.map_or(0, str::len) as u64) / 16)?;
            let is_out = |c: char| named.map_or_else(|| c.is_whitespace(), |named| named.contains(c));
            let text = if name == "rstrip" { text } else { text.trim_start_matches(is_out) };
            Ok(Value::from(if name == "lstrip" { text } else { text.trim_end_matches(is_out) }))
        }
        "removeprefix" | "removesuffix" => {
            let (end,): (&str,) = from_args(arguments)?;
            let rest = if name == "removeprefix" { text.strip_prefix(end) } else { text.strip_suffix(end) };
            Ok(Value::from(rest.unwrap_or(text)))
        }
        "replace" => {
            let (old, new, most): (&str, &str, Option<usize>) = from_args(arguments)?;
            replace(budget, text, old, new, most)
        }
        "split" | "rsplit" => split(text, arguments, name == "rsplit"),
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(arguments)?;
            let lines = text.split_inclusive('\n');
            let end: &[char] = if keep == Some(true) { &[] } else { &['\r', '\n'] };
            Ok(lines.map(|line| line.trim_end_matches(end)).collect())
        }
        "partition" | "rpartition" => {
            let (at,): (&str,) = from_args(arguments)?;
            let found = if name == "partition" { text.split_once(at) } else { text.rsplit_once(at) };
            Ok(match (found, name) {
                (Some((before, behind)), _) => [before, at, behind],
                (None, "partition") => [text, "", ""],
                (None, _) => ["", "", text],
            }
            .into_iter()
            .collect())
        }
        "join" => {
            let (items,): (Value,) = from_args(arguments)?;
            budget.make(joined_size(&items, text)?)?;
            let items: Vec<Value> = items.try_iter()?.collect();
            match items.iter().map(Value::as_str).collect::<Option<Vec<&str>>>() {
                Some(texts) => Ok(Value::from(texts.join(text))),
                None => fail("join is for texts"),
            }
        }
        "count" => {
            let (what,): (&str,) = from_args(arguments)?;
            Ok(Value::from(text.matches(what).count()))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (what,): (&str,) = from_args(arguments)?;
            let at = if name.starts_with('r') { text.rfind(what) } else { text.find(what) };
            match at {
                Some(at) => Ok(Value::from(text[..at].chars().count())),
                None if name.ends_with("find") => Ok(Value::from(-1)),
                None => fail("the text does not have this part"),
            }
        }
        "startswith" => has_end(text, arguments, true),
        "endswith" => has_end(text, arguments, false),
        "format" => {
            check_format(budget, text, arguments)?;
            format_filter(FormatStyle::StrFormat, text, arguments).map(Value::from)
        }
        _ => Err(ErrorKind::UnknownMethod.into()),
    }
}
