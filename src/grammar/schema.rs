//! JSON schemas: what is bounded before they are compiled, and how a refusal is worded.

use llguidance::JsonCompileOptions;
use serde_json::{Value, json};

use crate::display::quote;
use crate::{Error, Result};

/// Blanks between two parts of a document: one, or a line's end and the indentation behind it.
const BLANKS: &str = r"[ ]|\n[ \t]{0,40}";

/// References in a schema. Each may lead to the next, and llguidance follows them by recursion.
const MOST_REFERENCES: usize = 1000;

/// The schema of any object.
pub(super) fn any_object() -> Value {
    json!({"type": "object"})
}

/// The schema as it is compiled, with white space bounded.
///
/// # Errors
/// Input: it is no schema, or has too many references.
pub(super) fn prepare(schema: &Value) -> Result<Value> {
    let mut prepared = match schema {
        Value::Object(_) => schema.clone(),
        Value::Bool(true) => json!({}),
        Value::Bool(false) => {
            return Err(Error::input("the JSON schema is false, which no document satisfies", "change it"));
        }
        _ => return Err(Error::input("the JSON schema is neither an object nor true", "give an object")),
    };
    let references = count_references(schema);
    if references > MOST_REFERENCES {
        return Err(Error::input(
            format!("the JSON schema has {references} references, and {MOST_REFERENCES} are supported"),
            "use a smaller schema",
        ));
    }
    bound_blanks(&mut prepared);
    Ok(prepared)
}

/// Bounds the white space between two parts of a schema's documents. A Lark grammar that embeds a schema bounds none by itself.
pub fn bound_blanks(schema: &mut Value) {
    let options = JsonCompileOptions { whitespace_pattern: Some(BLANKS.into()), ..JsonCompileOptions::default() };
    // In place of options that the schema itself may bring.
    options.apply_to(schema);
}

fn count_references(schema: &Value) -> usize {
    let (mut count, mut open) = (0, vec![schema]);
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                count += usize::from(fields.contains_key("$ref"));
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    count
}

/// The error for a schema that llguidance refuses with `reason`.
pub(super) fn refusal(reason: &str) -> Error {
    let named = reason.split_once("Unimplemented keys: [").and_then(|(_, rest)| rest.split_once(']'));
    match named {
        Some((keywords, _)) => Error::input(
            format!("the JSON schema uses {}, which is not supported", keywords.replace('"', "`")),
            "leave it out of the schema, and ask for it in the prompt",
        ),
        None => Error::input(format!("the JSON schema cannot be used: {}", quote(reason)), "change the schema"),
    }
}
