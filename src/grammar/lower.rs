//! Lowers a JSON schema to one that llguidance enforces exactly: references become definitions, integers that it would
//! round become separate lexemes (`exact`), and conditions that it cannot enforce are left out and listed. Only
//! conditions are left out, so each document of the original schema also satisfies the lowered one.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value, json};

use super::references::{References, escape};
use super::source::takes;
use super::{exact, numbers, sizes};
use crate::display::quote;
use crate::{Error, Result};

mod embedded;
mod leaves;
mod library;
mod names;
mod unions;

pub(super) use embedded::lower_embedded;

/// Blanks between two parts of a document: a space, or a line's end with the indentation after it.
const BLANKS: &str = r"[ ]|\n[ \t]{0,40}";

/// The most references in a schema. llguidance follows them by recursion, and each may lead to the next.
const MOST_REFERENCES: usize = 1000;

/// The most optional properties of an object. After each of them any of the others may follow; the parser tracks all of
/// these and gives up where there are more.
const MOST_OPTIONAL: usize = 400;

/// The most conditions that are listed as left out.
const MOST_LISTED: usize = 64;
/// The most left-out conditions that an error names.
const MOST_NAMED: usize = 4;

/// The most comparisons to find out whether alternatives exclude each other.
const MOST_COMPARISONS: usize = 20_000;

/// A schema in the form that llguidance enforces, with notes on what is not enforced.
#[derive(Debug)]
pub(super) struct LoweredSchema {
    root: Value,
    definitions: Map<String, Value>,
    /// Regular expressions of numbers; the index is the number in the definition's name.
    exact: Vec<String>,
    pub ignored: Vec<Ignored>,
}

/// A condition that is left out of a schema.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ignored {
    keyword: String,
    /// A JSON pointer to the schema with the keyword.
    at: String,
    why: String,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ignored { keyword, at, why } = self;
        write!(f, "`{}` at #{} ({})", quote(keyword), quote(at), quote(why))
    }
}

impl LoweredSchema {
    /// # Errors
    /// Input: a condition was left out; the message names it. `whose`: a description of the schema.
    pub fn refuse_ignored(&self, whose: &str) -> Result<()> {
        if self.ignored.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = self.ignored.iter().take(MOST_NAMED).map(Ignored::to_string).collect();
        let more = match self.ignored.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(Error::input(
            format!("{whose} uses {}{more}", named.join(", ")),
            "leave it out of the schema, and ask for it in the prompt",
        ))
    }

    /// The schema, its definitions, and its numbers. `prefix` keeps the placeholders distinct from those of other
    /// schemas.
    pub fn into_parts(mut self, prefix: &str) -> (Value, Map<String, Value>, Vec<exact::NumberPattern>) {
        let mut all = Vec::new();
        for (i, regex) in self.exact.into_iter().enumerate() {
            let text = format!("{}{prefix}{i}.", exact::MARK);
            self.definitions.insert(exact_name(i), json!({"const": text}));
            all.push(exact::NumberPattern { text, regex });
        }
        (self.root, self.definitions, all)
    }

    /// The schema with its definitions, ready to compile with these blanks between the parts of documents, and its
    /// numbers.
    pub fn into_schema(self, prefix: &str, blanks: &JsonCompileOptions) -> (Value, Vec<exact::NumberPattern>) {
        let (root, definitions, numbers) = self.into_parts(prefix);
        let mut schema = if root.is_object() { root } else { json!({}) };
        schema["$defs"] = Value::Object(definitions);
        blanks.apply_to(&mut schema);
        (schema, numbers)
    }
}

fn exact_name(i: usize) -> String {
    format!("exact{i}")
}

/// Bounded blanks between two parts of a document.
pub(super) fn bounded_blanks() -> JsonCompileOptions {
    JsonCompileOptions { whitespace_pattern: Some(BLANKS.into()), ..JsonCompileOptions::default() }
}

/// Lowers a schema.
///
/// # Errors
/// Input: it is not a schema, no document satisfies it, or it has too many references.
pub(super) fn lower(schema: &Value) -> Result<LoweredSchema> {
    match schema {
        Value::Object(_) | Value::Bool(true) => {}
        Value::Bool(false) => return Err(satisfied_by_none()),
        _ => return Err(Error::input("the JSON schema is neither an object nor true", "give an object")),
    }
    let references = count_references(schema);
    if references > MOST_REFERENCES {
        return Err(Error::input(
            format!("the JSON schema has {references} references, and {MOST_REFERENCES} are supported"),
            "use a smaller schema",
        ));
    }
    let optional = most_optional(schema);
    if optional > MOST_OPTIONAL {
        return Err(Error::input(
            format!(
                "the JSON schema has an object of {optional} properties that are not required, and {MOST_OPTIONAL} are \
                 supported"
            ),
            "use a smaller schema",
        ));
    }
    let mut lowering = SchemaLowering {
        whole: schema,
        references: References::of(schema),
        names: HashMap::new(),
        open: Vec::new(),
        exact: Vec::new(),
        has_marks: schema.to_string().contains(exact::MARK),
        few_remainders: few_remainders(schema),
        probed: HashMap::new(),
        ignored: Vec::new(),
        comparisons: Cell::new(MOST_COMPARISONS),
    };
    let root = lowering.schema(schema, "");
    if root == Value::Bool(false) {
        return Err(satisfied_by_none());
    }
    let mut definitions = Map::new();
    while let Some((place, name)) = lowering.open.pop() {
        let definition = schema.pointer(&place).map_or(Value::Bool(true), |part| lowering.schema(part, &place));
        definitions.insert(name, definition);
    }
    Ok(LoweredSchema { root, definitions, exact: lowering.exact, ignored: lowering.ignored })
}

fn satisfied_by_none() -> Error {
    Error::input("the JSON schema is false, which no document satisfies", "change it")
}

/// Lowers a schema that must be enforced in full.
///
/// # Errors
/// Input: as [`lower`], or a condition cannot be enforced; the message names it.
pub(super) fn lower_whole(schema: &Value) -> Result<LoweredSchema> {
    let lowered = lower(schema)?;
    lowered.refuse_ignored("the JSON schema")?;
    Ok(lowered)
}

/// Calls `visit` with each object in a value.
fn visit_objects<'v>(value: &'v Value, mut visit: impl FnMut(&'v Map<String, Value>)) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                visit(fields);
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}

/// True if all moduli of a schema together have few enough remainders, as if one number had to satisfy all of them.
fn few_remainders(schema: &Value) -> bool {
    const IN_PLACE: [&str; 6] = ["allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "$recursiveRef"];
    let (mut moduli, mut are_joined) = (Vec::new(), false);
    visit_objects(schema, |fields| {
        moduli.extend(fields.get("multipleOf").and_then(Value::as_number));
        are_joined |= IN_PLACE.iter().any(|keyword| fields.contains_key(*keyword));
    });
    numbers::are_few_remainders(&moduli, are_joined)
}

fn count_references(schema: &Value) -> usize {
    let mut count = 0;
    visit_objects(schema, |fields| count += usize::from(fields.get("$ref").is_some_and(Value::is_string)));
    count
}

/// The largest number of optional properties of an object in the schema.
fn most_optional(schema: &Value) -> usize {
    let mut most = 0;
    visit_objects(schema, |fields| {
        let Some(Value::Object(properties)) = fields.get("properties") else { return };
        let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
        most = most.max(properties.keys().filter(|name| !required.contains(name.as_str())).count());
    });
    most
}

/// The state of lowering a schema.
struct SchemaLowering<'s> {
    whole: &'s Value,
    references: References<'s>,
    /// Names of definitions, by the place that a reference leads to.
    names: HashMap<String, String>,
    /// Places and names of definitions that are not lowered yet.
    open: Vec<(String, String)>,
    exact: Vec<String>,
    /// True if the schema itself contains [`MARK`](exact::MARK), the prefix of placeholder texts.
    has_marks: bool,
    few_remainders: bool,
    /// The answers of [`SchemaLowering::takes`] so far: whether llguidance accepts a subschema, by the subschema's
    /// text.
    probed: HashMap<String, bool>,
    ignored: Vec<Ignored>,
    /// The number of comparisons of two alternatives that may still be made. At 0, alternatives count as overlapping.
    comparisons: Cell<usize>,
}

impl SchemaLowering<'_> {
    fn ignore(&mut self, keyword: &str, at: &str, why: impl Into<String>) {
        let ignored = Ignored { keyword: keyword.into(), at: at.into(), why: why.into() };
        if self.ignored.len() < MOST_LISTED && !self.ignored.contains(&ignored) {
            self.ignored.push(ignored);
        }
    }

    /// True if llguidance can compile `schema` without changes.
    fn takes(&mut self, schema: Value) -> bool {
        let key = schema.to_string();
        if let Some(known) = self.probed.get(&key) {
            return *known;
        }
        let is_taken = takes(&schema);
        self.probed.insert(key, is_taken);
        is_taken
    }

    /// Lowers the schema at the place `at`.
    fn schema(&mut self, schema: &Value, at: &str) -> Value {
        match schema {
            Value::Bool(_) => schema.clone(),
            Value::Object(fields) if fields.get("not").is_some_and(holds_always) => Value::Bool(false),
            Value::Object(fields) => self.object(fields, at),
            _ => {
                let (holder, name) = at.rsplit_once('/').unwrap_or(("", at));
                self.ignore(name, holder, "is no schema");
                Value::Bool(true)
            }
        }
    }

    fn part(&mut self, part: &Value, at: &str, key: &str) -> Value {
        self.schema(part, &format!("{at}/{}", escape(key)))
    }

    fn list(&mut self, parts: &[Value], at: &str, keyword: &str) -> Value {
        let parts = parts.iter().enumerate();
        parts.map(|(i, part)| self.schema(part, &format!("{at}/{keyword}/{i}"))).collect()
    }

    fn map(&mut self, parts: &Map<String, Value>, at: &str, keyword: &str) -> Value {
        let at = format!("{at}/{keyword}");
        parts.iter().map(|(name, part)| (name.clone(), self.part(part, &at, name))).collect::<Map<_, _>>().into()
    }

    fn object(&mut self, fields: &Map<String, Value>, at: &str) -> Value {
        let types = self.types(fields, at);
        let mut out = Map::new();
        if let Some(types) = &types {
            out.insert("type".into(), if types.len() == 1 { json!(types[0]) } else { json!(types) });
        }
        for (keyword, value) in fields {
            if value.is_null() && keyword != "const" {
                if is_condition(keyword) {
                    self.ignore(keyword, at, "is null");
                }
            } else if let Some(lowered) = self.keyword(fields, keyword, value, at) {
                let keyword = match keyword.as_str() {
                    "items" if value.is_array() => "prefixItems",
                    "additionalItems" => "items",
                    "unevaluatedProperties" => "additionalProperties",
                    "oneOf" => "anyOf",
                    other => other,
                };
                match keyword {
                    "allOf" => join(&mut out, lowered),
                    // Both lists of alternatives must hold.
                    "anyOf" if out.contains_key("anyOf") => {
                        let other = out.remove("anyOf");
                        join(&mut out, json!([{"anyOf": other}, {"anyOf": lowered}]));
                    }
                    _ => drop(out.insert(keyword.into(), lowered)),
                }
            }
        }
        self.hold_names(fields, &mut out, at);
        self.check_leaves(fields, types.as_deref(), &mut out, at);
        self.hold_numbers(types.as_deref(), out, at)
    }

    /// The types that a schema allows; `None` for any.
    fn types(&mut self, fields: &Map<String, Value>, at: &str) -> Option<Vec<String>> {
        const ALL: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
        let named = match fields.get("type")? {
            Value::Null => return None,
            Value::Array(names) => names.clone(),
            name => vec![name.clone()],
        };
        let mut types = Vec::new();
        for name in &named {
            match name.as_str().filter(|name| ALL.contains(name)) {
                Some(name) if types.iter().any(|other| other == name) => {}
                Some(name) => types.push(name.to_owned()),
                None => self.ignore("type", at, format!("{name} is no type")),
            }
        }
        (!types.is_empty()).then_some(types)
    }

    /// Lowers a keyword's value. `None`: the keyword is left out.
    fn keyword(&mut self, fields: &Map<String, Value>, keyword: &str, value: &Value, at: &str) -> Option<Value> {
        let mut wrong = |why: &str| {
            self.ignore(keyword, at, why);
            None
        };
        match (keyword, value) {
            // Already handled by `types`, or handled by `hold_names`.
            ("type" | "propertyNames", _) => None,
            ("properties", Value::Object(parts)) => Some(self.map(parts, at, keyword)),
            ("patternProperties", Value::Object(parts)) => {
                let all: Map<String, Value> = parts.keys().map(|key| (key.clone(), Value::Bool(true))).collect();
                let are_small = parts.keys().all(|pattern| sizes::is_small(pattern));
                if !are_small || !self.takes(json!({"type": "object", "patternProperties": all})) {
                    self.ignore(keyword, at, "patterns overlap, or are not supported");
                    return None;
                }
                Some(self.map(parts, at, keyword))
            }
            ("properties" | "patternProperties", _) => wrong("is no object"),
            ("items", Value::Array(parts)) => Some(self.list(parts, at, keyword)),
            // Means nothing without a list of items.
            ("additionalItems", _) if !fields.get("items").is_some_and(Value::is_array) => None,
            ("items" | "additionalItems" | "additionalProperties", part) => Some(self.part(part, at, keyword)),
            ("unevaluatedProperties", part) => {
                const OTHERS: [&str; 6] = ["additionalProperties", "allOf", "anyOf", "oneOf", "$ref", "if"];
                match OTHERS.iter().any(|other| fields.contains_key(*other)) {
                    true if part == &Value::Bool(true) => None,
                    true => wrong("stands beside other schemas"),
                    // Without other schemas beside it the same as additionalProperties.
                    false => Some(self.part(part, at, keyword)),
                }
            }
            ("prefixItems" | "allOf" | "anyOf" | "oneOf", Value::Array(parts)) if !parts.is_empty() => {
                if keyword == "oneOf" && !self.are_disjoint(parts) {
                    self.ignore(keyword, at, "more than one of them may hold");
                }
                Some(self.list(parts, at, keyword))
            }
            ("prefixItems" | "allOf" | "anyOf" | "oneOf", _) => wrong("is no list of schemas"),
            ("$ref", Value::String(reference)) => match self.references.find(reference, at) {
                Some(place) => Some(format!("#/$defs/{}", self.name(place)).into()),
                None => {
                    self.ignore(keyword, at, format!("{} leads to no part of the schema", quote(reference)));
                    None
                }
            },
            ("$ref", _) => wrong("is no text"),
            ("const", _) => Some(value.clone()),
            ("enum", Value::Array(values)) if !values.is_empty() => Some(value.clone()),
            ("enum", _) => wrong("is no list of values"),
            ("required", Value::Array(names)) if names.iter().all(Value::is_string) => Some(value.clone()),
            ("required", _) => wrong("is no list of names"),
            ("pattern" | "format", Value::String(_)) => Some(value.clone()),
            ("pattern" | "format", _) => wrong("is no text"),
            _ if COUNTS.contains(&keyword) => match value.as_number().and_then(numbers::as_integer) {
                Some(count @ 0..=LARGEST_COUNT) => Some(json!(count as u64)),
                // An upper bound that no reply reaches.
                Some(count) if count > 0 && keyword.starts_with("max") => None,
                Some(count) if count > 0 => wrong("is more than a reply can have"),
                _ => wrong("is no count"),
            },
            ("minimum" | "maximum" | "multipleOf", Value::Number(_)) => Some(value.clone()),
            ("exclusiveMinimum" | "exclusiveMaximum", Value::Number(_) | Value::Bool(_)) => Some(value.clone()),
            ("minimum" | "maximum" | "multipleOf" | "exclusiveMinimum" | "exclusiveMaximum", _) => {
                wrong("is no number")
            }
            _ if is_condition(keyword) && !says_nothing(keyword, value, fields) => wrong("is not supported"),
            // Annotations and unknown keywords.
            _ => None,
        }
    }

    /// The name of the definition for a place.
    fn name(&mut self, place: String) -> String {
        if let Some(name) = self.names.get(&place) {
            return name.clone();
        }
        let name = format!("d{}", self.names.len());
        self.names.insert(place.clone(), name.clone());
        self.open.push((place, name.clone()));
        name
    }
}

/// Adds `parts` to the schemas that must all hold.
fn join(out: &mut Map<String, Value>, parts: Value) {
    let Value::Array(parts) = parts else { return };
    match out.get_mut("allOf") {
        Some(Value::Array(all)) => all.extend(parts),
        _ => drop(out.insert("allOf".into(), parts.into())),
    }
}

/// The largest count of characters, items or properties that is passed on to llguidance.
const LARGEST_COUNT: i128 = 1 << 24;

const COUNTS: [&str; 6] = ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

/// True if a keyword restricts documents. False for annotations, such as `title`.
pub(super) fn is_condition(keyword: &str) -> bool {
    const HELD: [&str; 20] = [
        "type",
        "enum",
        "properties",
        "patternProperties",
        "additionalProperties",
        "items",
        "prefixItems",
        "additionalItems",
        "required",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ];
    const OTHERS: [&str; 16] = [
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
    ];
    HELD.contains(&keyword) || COUNTS.contains(&keyword) || OTHERS.contains(&keyword)
}

/// True for the schemas `{}` and `true`, which every document satisfies. Other such schemas are not recognised.
fn holds_always(schema: &Value) -> bool {
    schema == &json!({}) || schema == &json!(true)
}

/// True if a keyword with this value excludes no document, such as `not: false`.
fn says_nothing(keyword: &str, value: &Value, fields: &Map<String, Value>) -> bool {
    let is_empty = value == &json!({}) || value == &json!([]);
    match keyword {
        "uniqueItems" | "not" => value == &json!(false),
        "unevaluatedItems" => is_empty || value == &json!(true),
        "dependentRequired" | "dependentSchemas" | "dependencies" => is_empty,
        "if" => !["then", "else"].iter().any(|branch| fields.contains_key(*branch)),
        "then" | "else" => !fields.contains_key("if"),
        "minContains" | "maxContains" => !fields.contains_key("contains"),
        _ => false,
    }
}
