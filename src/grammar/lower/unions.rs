//! Finds out whether a schema's alternatives exclude each other, so that `anyOf` can replace `oneOf`.

use serde_json::{Map, Value};

use super::SchemaLowering;
use super::leaves::literals;

/// The deepest nesting of references and alternatives that is followed.
const DEEPEST: usize = 16;

impl<'s> SchemaLowering<'s> {
    /// True if each two of the schemas `parts` exclude each other. False if a cheap comparison cannot show it.
    pub(super) fn are_disjoint(&self, parts: &[Value]) -> bool {
        let mut pairs = parts.iter().enumerate().flat_map(|(i, a)| parts[i + 1..].iter().map(move |b| (a, b)));
        pairs.all(|(a, b)| self.excludes(a, b, DEEPEST))
    }

    fn excludes(&self, a: &Value, b: &Value, depth: usize) -> bool {
        let Some(left) = self.comparisons.get().checked_sub(1) else { return false };
        self.comparisons.set(left);
        let (Some(a), Some(b)) = (self.followed(a, "", depth), self.followed(b, "", depth)) else { return false };
        let (a, b) = match (a, b) {
            (Value::Bool(false), _) | (_, Value::Bool(false)) => return true,
            (Value::Object(a), Value::Object(b)) if depth > 0 => (a, b),
            _ => return false,
        };
        let all_exclude = |parts: &[Value], other: &Map<String, Value>| {
            parts.iter().all(|part| self.excludes(part, &Value::Object(other.clone()), depth - 1))
        };
        let alternatives =
            |schema: &Map<String, Value>| ["anyOf", "oneOf"].iter().find_map(|k| schema.get(*k)?.as_array().cloned());
        let literals_exclude = match (literals(a), literals(b)) {
            (Some(a), Some(b)) => a.iter().all(|value| !b.contains(value)),
            (Some(values), None) => values.iter().all(|value| !has_type(value, b)),
            (None, Some(values)) => values.iter().all(|value| !has_type(value, a)),
            (None, None) => false,
        };
        literals_exclude
            || types_exclude(a, b)
            || alternatives(a).is_some_and(|parts| all_exclude(&parts, b))
            || alternatives(b).is_some_and(|parts| all_exclude(&parts, a))
            || self.properties_exclude(a, b, depth)
    }

    /// True if `a` and `b` both have a property, required by one of them, whose two schemas exclude each other.
    fn properties_exclude(&self, a: &Map<String, Value>, b: &Map<String, Value>, depth: usize) -> bool {
        let is_object = |schema: &Map<String, Value>| schema.get("type").is_some_and(|name| name == "object");
        let names = |schema: &'_ Map<String, Value>| schema.get("required").and_then(Value::as_array).cloned();
        let property = |schema: &Map<String, Value>, name: &str| schema.get("properties")?.get(name).cloned();
        (is_object(a) || is_object(b))
            && [names(a), names(b)]
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .any(|name| match (property(a, &name), property(b, &name)) {
                    (Some(a), Some(b)) => self.excludes(&a, &b, depth - 1),
                    _ => false,
                })
    }

    /// The schema at the end of a chain of at most `most` references, which begins at the place `at`.
    pub(super) fn followed<'v>(&'v self, mut schema: &'v Value, at: &str, most: usize) -> Option<&'v Value> {
        let mut at = at.to_owned();
        for _ in 0..=most {
            let Some(Value::String(reference)) = schema.get("$ref") else { return Some(schema) };
            at = self.references.find(reference, &at)?;
            schema = self.whole.pointer(&at)?;
        }
        None
    }
}

/// The types that a schema allows; `None` for any.
fn types(schema: &Map<String, Value>) -> Option<Vec<&str>> {
    match schema.get("type")? {
        Value::String(name) => Some(vec![name]),
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

fn has_type(value: &Value, schema: &Map<String, Value>) -> bool {
    types(schema).is_none_or(|types| types.iter().any(|name| is_of_type(value, name)))
}

fn types_exclude(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let (Some(a), Some(b)) = (types(a), types(b)) else { return false };
    let is_number = |name: &str| matches!(name, "integer" | "number");
    a.iter().all(|a| b.iter().all(|b| a != b && !(is_number(a) && is_number(b))))
}

/// True if a value is of the JSON Schema type `name`.
pub(super) fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
