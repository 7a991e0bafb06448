//! Schemas within a grammar in Lark's syntax (`%json {..}`): each is lowered like a separate schema.

use llguidance::JsonCompileOptions;
use serde_json::Value;

use super::{bounded_blanks, exact, lower_whole, sizes};
use crate::{Error, Result};

const KEYWORD: &str = "%json";
/// The keyword with llguidance's options for the layout of documents.
const OPTIONS: &str = "x-guidance";

/// Lowers the schemas in a grammar. Returns the grammar and the schemas' numbers. `check` is called before each schema.
///
/// # Errors
/// Input: a schema is refused, or its layout options have an expression that is too large. Errors of `check`.
pub(in crate::grammar) fn lower_embedded(
    lark: &str,
    check: &dyn Fn() -> Result<()>,
) -> Result<(String, Vec<exact::NumberPattern>)> {
    let (mut text, mut exact, mut schemas) = (String::new(), Vec::new(), 0);
    let mut rest = lark;
    while let Some(c) = rest.chars().next() {
        let length = sizes::literal_or_comment(rest).unwrap_or(c.len_utf8());
        let Some(behind) = rest.strip_prefix(KEYWORD) else {
            text.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        };
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<Value>();
        let Some(Ok(schema)) = values.next() else {
            // Text that is not JSON is left for llguidance to refuse.
            text.push_str(KEYWORD);
            rest = behind;
            continue;
        };
        check()?;
        let (mut lowered, numbers) = lower_whole(&schema)?.into_schema(&format!("{schemas}-"), &bounded_blanks());
        if let Some(options) = schema.get(OPTIONS) {
            lay_out(&mut lowered, options)?;
        }
        schemas += 1;
        text.push_str(&format!("{KEYWORD} {lowered}"));
        exact.extend(numbers);
        rest = &behind[values.byte_offset()..];
    }
    // A placeholder text in the grammar itself would be replaced by a number.
    match exact.is_empty() || !lark.contains(exact::MARK) {
        true => Ok((text, exact)),
        false => Err(Error::input("the grammar has a text that stands for a number inside Kiln", "change the text")),
    }
}

/// Takes the whitespace options that a schema has under [`OPTIONS`].
fn lay_out(lowered: &mut Value, options: &Value) -> Result<()> {
    let wrong = |what: &str| Error::input(format!("`{OPTIONS}` of a schema of the grammar {what}"), "change it");
    let are_small = options.as_object().is_some_and(|all| all.values().filter_map(Value::as_str).all(sizes::is_small));
    if !are_small {
        return Err(wrong("is no object of small expressions"));
    }
    let mut asked: JsonCompileOptions = serde_json::from_value(options.clone()).map_err(|_| wrong("is not known"))?;
    if asked.whitespace_flexible && asked.whitespace_pattern.is_none() {
        asked.whitespace_pattern = Some(super::BLANKS.into());
    }
    asked.apply_to(lowered);
    Ok(())
}
