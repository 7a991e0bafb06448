//! The grammar of calls that a model writes between special tokens, in Lark's syntax.
//!
//! Values follow a schema's types, enumerations, object properties and list items. Other conditions are not enforced
//! but listed.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::calls::{Beside, Calls, Lark, document};
use super::vocabulary::Vocabulary;
use crate::display::quote;
use crate::text::calls::CallMarks;
use crate::{Error, Result};

/// Keywords that are enforced, and annotations.
const HELD: [&str; 15] = [
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "oneOf",
    "$ref",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
];
/// The deepest nesting of schemas that is followed.
const DEEPEST: usize = 32;
/// The most bytes of a grammar's text.
const LARGEST: usize = 1 << 20;

/// Rules shared by all grammars of calls. Text ends at the next special token.
const RULES: &str = r#"text: TEXT
TEXT: /(.|\n)+/
WORD: /[^,:{}\[\]<\s]+/
NUMBER: /-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?/
INTEGER: /-?(0|[1-9][0-9]{0,18})/
any: string | NUMBER | "true" | "false" | "null" | list | object
list: "[" (any ("," any)*)? "]"
object: "{" (key ":" any ("," key ":" any)*)? "}"
key: WORD | string
"#;

/// The grammar of `calls`.
///
/// # Errors
/// Input: a strict schema uses an unsupported keyword, which the message names, or the grammar is too large.
pub(super) fn to_lark(calls: &Calls, marks: &CallMarks, vocabulary: &Vocabulary) -> Result<Lark> {
    let several = if calls.several { "call+" } else { "call" };
    let (start, exact) = match &calls.beside {
        Beside::Nothing => (format!("start: {several}\n"), Vec::new()),
        Beside::Text => (format!("start: text | text? {several}\n"), Vec::new()),
        Beside::Document(schema) => {
            let (schema, exact) = document(schema)?;
            (format!("start: document | {several}\ndocument: %json {schema}\n"), exact)
        }
    };
    let mark = vocabulary.mark(marks.quote);
    let mut rules = MarkedRules { text: start, quote: &mark, root: &Value::Null, count: 0, ignored: BTreeSet::new() };
    rules.text.push_str(RULES);
    // In a vocabulary without the token the quote is ordinary text, which a string must not contain.
    let inner = if mark.starts_with('<') { "TEXT" } else { "/[^<]+/" };
    rules.text.push_str(&format!("string: {mark} {mark} | {mark} {inner} {mark}\n"));
    let names: Vec<String> = (0..calls.functions.len()).map(|i| format!("call_{i}")).collect();
    rules.text.push_str(&format!("call: {}\n", names.join(" | ")));
    let [open, close] = marks.call.map(|mark| vocabulary.mark(mark));
    let mut ignored = Vec::new();
    for (name, function) in names.iter().zip(&calls.functions) {
        rules.root = &function.parameters;
        let arguments = rules.object(&function.parameters, DEEPEST);
        let begin = Value::from(format!("call:{}", function.name));
        rules.text.push_str(&format!("{name}: {open} {begin} {arguments} {close}\n"));
        let unheld = std::mem::take(&mut rules.ignored);
        if let Some(keyword) = unheld.first().filter(|_| function.strict) {
            return Err(Error::input(
                format!(
                    "the schema of the function `{}` has `{keyword}`, which its calls cannot be held to",
                    quote(&function.name)
                ),
                "leave it out, or do not ask for strict",
            ));
        }
        ignored.extend(unheld.into_iter().map(|keyword| format!("{}: {}", function.name, quote(&keyword))));
        if rules.text.len() > LARGEST {
            return Err(Error::input("the schemas of the functions are too large together", "use smaller ones"));
        }
    }
    Ok(Lark { text: rules.text, exact, ignored })
}

/// A Lark grammar under construction, to which rules are added.
struct MarkedRules<'s> {
    text: String,
    /// The quote around strings: a special token or its spelling.
    quote: &'s str,
    /// The schema that references are resolved in.
    root: &'s Value,
    /// The number of numbered rules so far.
    count: usize,
    /// Keywords in the schemas that the grammar does not enforce, as listed to the client.
    ignored: BTreeSet<String>,
}

impl<'s> MarkedRules<'s> {
    /// Adds a rule. Returns its name.
    fn rule(&mut self, body: &str) -> String {
        self.count += 1;
        let name = format!("rule_{}", self.count);
        self.text.push_str(&format!("{name}: {body}\n"));
        name
    }

    /// The rule for a value of a schema.
    fn value(&mut self, schema: &'s Value, depth: usize) -> String {
        let (Value::Object(fields), Some(depth)) = (schema, depth.checked_sub(1)) else { return "any".into() };
        for keyword in fields.keys().filter(|keyword| !HELD.contains(&keyword.as_str())) {
            self.ignored.insert(keyword.clone());
        }
        if let Some(target) = fields.get("$ref") {
            let place = target.as_str().and_then(|place| place.strip_prefix('#'));
            return match place.and_then(|place| self.root.pointer(place)) {
                Some(found) => self.value(found, depth),
                None => "any".into(),
            };
        }
        let listed =
            fields.get("enum").and_then(Value::as_array).cloned().or_else(|| Some(vec![fields.get("const")?.clone()]));
        if let Some(listed) = listed.filter(|listed| !listed.is_empty()) {
            let written: Vec<String> = listed.iter().map(|value| self.written(value)).collect();
            return self.rule(&written.join(" | "));
        }
        if let Some(parts) = ["anyOf", "oneOf"].iter().find_map(|name| fields.get(*name)?.as_array()) {
            let parts: Vec<String> = parts.iter().map(|part| self.value(part, depth)).collect();
            return if parts.is_empty() { "any".into() } else { self.rule(&parts.join(" | ")) };
        }
        let kinds: Vec<&str> = match fields.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if fields.contains_key("properties") => vec!["object"],
            _ => return "any".into(),
        };
        let kinds: Vec<String> = kinds.into_iter().map(|kind| self.of_type(kind, schema, fields, depth)).collect();
        if kinds.is_empty() { "any".into() } else { self.rule(&kinds.join(" | ")) }
    }

    fn of_type(&mut self, kind: &str, schema: &'s Value, fields: &'s Map<String, Value>, depth: usize) -> String {
        match kind.to_ascii_lowercase().as_str() {
            "string" => "string".into(),
            "integer" => "INTEGER".into(),
            "number" => "NUMBER".into(),
            "boolean" => "(\"true\" | \"false\")".into(),
            "null" => "\"null\"".into(),
            "array" => match fields.get("items") {
                Some(items) => {
                    let item = self.value(items, depth);
                    format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
                }
                None => "list".into(),
            },
            "object" => self.object(schema, depth),
            _ => "any".into(),
        }
    }

    /// The rule for an object of a schema, with its properties sorted by name, as chat templates write them.
    fn object(&mut self, schema: &'s Value, depth: usize) -> String {
        let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty()) else {
            // A function without parameters gets an empty object.
            let is_closed = schema.get("properties").is_some();
            return if is_closed { "\"{\" \"}\"".into() } else { "object".into() };
        };
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|other| other == name));
        let mut names: Vec<&'s String> = properties.keys().collect();
        names.sort_by_key(|name| name.to_lowercase());
        // Built from the last property to the first: `behind` continues after another property, `first` begins the
        // object.
        let (mut behind, mut first) = ("\"\"".to_owned(), "\"\"".to_owned());
        for name in names.into_iter().rev() {
            let value = self.value(&properties[name], depth);
            let pair = format!("{} {value}", Value::from(format!("{name}:")));
            let (left_out_behind, left_out_first) = match is_required(name) {
                true => (String::new(), String::new()),
                false => (format!(" | {behind}"), format!(" | {first}")),
            };
            let next = format!("{pair} {behind}{left_out_first}");
            behind = self.rule(&format!("\",\" {pair} {behind}{left_out_behind}"));
            first = self.rule(&next);
        }
        format!("\"{{\" {first} \"}}\"")
    }

    /// A constant in the syntax of calls.
    fn written(&self, value: &Value) -> String {
        let quote = self.quote;
        match value {
            Value::String(text) if text.is_empty() => format!("{quote} {quote}"),
            Value::String(text) => format!("{quote} {} {quote}", Value::from(text.as_str())),
            Value::Array(values) => {
                let values: Vec<String> = values.iter().map(|value| self.written(value)).collect();
                format!("\"[\" {} \"]\"", values.join(" \",\" "))
            }
            Value::Object(fields) => {
                let pair = |(name, value): (&String, &Value)| {
                    format!("{} {}", Value::from(format!("{name}:")), self.written(value))
                };
                format!("\"{{\" {} \"}}\"", fields.iter().map(pair).collect::<Vec<_>>().join(" \",\" "))
            }
            other => Value::from(other.to_string()).to_string(),
        }
    }
}
