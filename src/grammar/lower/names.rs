//! `propertyNames`, which schemas of dictionaries have: names are any texts, texts of a pattern, or the values of an
//! enumeration.

use serde_json::{Map, Value, json};

use super::{MOST_OPTIONAL, SchemaLowering, is_condition};
use crate::grammar::sizes;

/// The longest chain of references from `propertyNames` to its schema.
const MOST_STEPS: usize = 8;

/// The names that an object's properties may have.
enum PropertyNames {
    Any,
    Listed(Vec<String>),
    Matching(String),
}

impl SchemaLowering<'_> {
    /// Lowers `propertyNames` to `properties` or `patternProperties`. `additionalProperties` is the schema of each
    /// property.
    pub(super) fn hold_names(&mut self, fields: &Map<String, Value>, out: &mut Map<String, Value>, at: &str) {
        let Some(schema) = fields.get("propertyNames").filter(|schema| !schema.is_null()) else { return };
        let why = match self.names_of(schema, &format!("{at}/propertyNames")) {
            Some(PropertyNames::Any) => return,
            None => "is not supported",
            Some(_) if ["properties", "patternProperties"].iter().any(|name| fields.contains_key(*name)) => {
                "stands beside `properties`"
            }
            Some(PropertyNames::Listed(names)) if names.len() > MOST_OPTIONAL => "has too many names",
            Some(PropertyNames::Listed(names)) => {
                let each = self.each_property(fields, at);
                let properties: Map<String, Value> = names.into_iter().map(|name| (name, each.clone())).collect();
                out.insert("properties".into(), properties.into());
                out.insert("additionalProperties".into(), false.into());
                return;
            }
            Some(PropertyNames::Matching(pattern)) => {
                let is_held = sizes::is_small(&pattern)
                    && self.takes(json!({"type": "object", "patternProperties": {pattern.clone(): true}}));
                if is_held {
                    let each = self.each_property(fields, at);
                    out.insert("patternProperties".into(), json!({pattern: each}));
                    out.insert("additionalProperties".into(), false.into());
                    return;
                }
                "is not supported"
            }
        };
        self.ignore("propertyNames", at, why);
    }

    /// The schema of each property, as a reference, so that its size does not multiply with the names.
    fn each_property(&mut self, fields: &Map<String, Value>, at: &str) -> Value {
        match fields.get("additionalProperties") {
            Some(Value::Object(_)) => {
                json!({"$ref": format!("#/$defs/{}", self.name(format!("{at}/additionalProperties")))})
            }
            Some(Value::Bool(false)) => Value::Bool(false),
            _ => Value::Bool(true),
        }
    }

    /// The names that a schema allows. `None`: it has conditions that are not supported here.
    fn names_of(&self, schema: &Value, at: &str) -> Option<PropertyNames> {
        let fields = match self.followed(schema, at, MOST_STEPS)? {
            Value::Bool(true) => return Some(PropertyNames::Any),
            Value::Object(fields) => fields,
            _ => return None,
        };
        // Every name is a text.
        let is_kept = |(name, value): &(&String, &Value)| is_condition(name) && *value != &json!(null);
        let conditions: Vec<(&str, &Value)> = fields
            .iter()
            .filter(is_kept)
            .filter(|(name, value)| *name != "type" || *value != &json!("string"))
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        match conditions.as_slice() {
            [] => Some(PropertyNames::Any),
            [("const", Value::String(name))] => Some(PropertyNames::Listed(vec![name.clone()])),
            [("enum", Value::Array(values))] => {
                let names = values.iter().filter_map(Value::as_str).map(str::to_owned);
                Some(PropertyNames::Listed(names.collect()))
            }
            [("pattern", Value::String(pattern))] => Some(PropertyNames::Matching(pattern.clone())),
            lengths if lengths.iter().all(|(name, value)| name.ends_with("Length") && value.is_u64()) => {
                let most = count("maxLength").map(|most| most.to_string()).unwrap_or_default();
                Some(PropertyNames::Matching(format!(r"^[\s\S]{{{},{most}}}$", count("minLength").unwrap_or(0))))
            }
            _ => None,
        }
    }
}
