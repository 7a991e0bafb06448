//! Function calls: the grammar of a reply that consists of calls, one JSON object a line, or of text or a document
//! instead.
//!
//! ```text
//! {"name": "..", "parameters": {..}}
//! ```
//!
//! A model with special tokens for calls writes them in another syntax ([`super::marked`]).
//!
//! The schema of a function's arguments is enforced in full only where `strict` is set. Otherwise the parts that the
//! grammar cannot enforce are left out and listed.

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value, json};

use super::source::takes;
use super::{exact, lower};
use crate::text::CallSyntax;
use crate::{Error, Result};

/// The functions that a reply may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Calls {
    /// In the order in which the prompt lists them.
    pub functions: Vec<Function>,
    /// A reply without a call: whether it is allowed, and in which form.
    pub beside: Beside,
    /// True if a reply may have more than one call.
    pub several: bool,
    /// The syntax in which the model writes calls.
    pub syntax: CallSyntax,
}

/// The form of a reply without a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Beside {
    /// Every reply has at least one call.
    Nothing,
    /// Text that begins neither with a blank nor with `{`.
    Text,
    /// A JSON document of this schema, which is enforced in full. Like calls it has no blanks between its parts.
    Document(Value),
}

/// A function that a reply may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The function's name, as the reply writes it.
    pub name: String,
    /// The JSON schema of the function's arguments.
    pub parameters: Value,
    /// True: a call satisfies the whole schema, or the request is refused. False: all or parts of the schema may be
    /// left out.
    pub strict: bool,
}

/// The grammar of calls in Lark's syntax, the numbers to put into it, and the parts of schemas that are not enforced.
pub(super) struct Lark {
    pub text: String,
    pub exact: Vec<exact::NumberPattern>,
    pub ignored: Vec<String>,
}

impl Calls {
    /// A cache key: equal for equal calls only.
    pub(super) fn key(&self) -> String {
        let of = |function: &Function| json!([function.name, function.parameters, function.strict]);
        let beside = match &self.beside {
            Beside::Nothing => json!(false),
            Beside::Text => json!(true),
            Beside::Document(schema) => json!([schema]),
        };
        let marks = match self.syntax {
            CallSyntax::Json => None,
            CallSyntax::Marked(marks) => Some(marks.call[0]),
        };
        json!([self.functions.iter().map(of).collect::<Value>(), beside, self.several, marks]).to_string()
    }

    /// True if at least one function is not [`Function::strict`], so that parts of its schema may be left out.
    pub(super) fn has_advice(&self) -> bool {
        self.functions.iter().any(|function| !function.strict)
    }

    /// The grammar. With `free` the schemas of functions that are not strict are left out. `check` is called before
    /// each function.
    ///
    /// # Errors
    /// Input: a strict schema uses an unsupported keyword, which the message names. Errors of `check`.
    pub(super) fn to_lark(&self, free: bool, check: &dyn Fn() -> Result<()>) -> Result<Lark> {
        let calls = if self.several { "call (\"\\n\" call)*" } else { "call" };
        let (start, exact) = match &self.beside {
            Beside::Nothing => (format!("start: {calls}\n"), vec![]),
            Beside::Text => (format!("start: TEXT | {calls}\nTEXT: /[^{{\\s](.|\\n)*/\n"), vec![]),
            Beside::Document(schema) => {
                let (schema, exact) = document(&no_call(schema)?)?;
                (format!("start: document | {calls}\ndocument: %json {schema}\n"), exact)
            }
        };
        let names: Vec<String> = (0..self.functions.len()).map(|i| format!("call_{i}")).collect();
        let mut lark = Lark { text: format!("{start}call: {}\n", names.join(" | ")), exact, ignored: vec![] };
        for (i, function) in self.functions.iter().enumerate() {
            check()?;
            let arguments = match free && !function.strict {
                true => Arguments::free("too large together with the other functions"),
                false => function.arguments(&format!("{i}-"))?,
            };
            lark.text
                .push_str(&format!("call_{i}: %json {}\n", function.call(arguments.schema, arguments.definitions)));
            lark.exact.extend(arguments.exact);
            let said = arguments.ignored.into_iter().map(|what| format!("{}: {what}", function.name));
            // The lines go into a log and into an HTTP header, so they must not have control characters.
            lark.ignored.extend(said.map(|line| line.replace(char::is_control, " ")));
        }
        Ok(lark)
    }
}

/// The schema of the document that a reply may have instead of calls, as it is compiled.
pub(super) fn document(schema: &Value) -> Result<(Value, Vec<exact::NumberPattern>)> {
    Ok(lower::lower_whole(schema)?.into_schema("document-", &no_blanks()))
}

/// Excludes documents that look like a call (with both `name` and `parameters`), because the parser would then accept a
/// call with arbitrary arguments.
///
/// # Errors
/// Input: the schema itself allows a document with both properties.
fn no_call(schema: &Value) -> Result<Value> {
    let Value::Object(mut fields) = followed(schema) else {
        // `true` is the empty schema; `false` allows no document at all.
        return if *schema == Value::Bool(true) { no_call(&json!({})) } else { Ok(schema.clone()) };
    };
    let like_calls = || {
        Err(Error::input(
            "documents of the JSON schema may have `name` and `parameters`, as calls of the tools have",
            "give one of the two properties another name",
        ))
    };
    let listed = fields.get("enum").and_then(Value::as_array).into_iter().flatten().chain(fields.get("const"));
    if listed.into_iter().any(|value| value.get("name").is_some() && value.get("parameters").is_some()) {
        return like_calls();
    }
    if fields.contains_key("enum") || fields.contains_key("const") {
        return Ok(Value::Object(fields));
    }
    let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false))
        && fields.get("patternProperties").is_none_or(|patterns| *patterns == json!({}));
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    // A value that is not an object is refused when the schema is lowered.
    if let Some(properties) = properties.as_object_mut() {
        if !properties.contains_key("parameters") {
            if !is_closed {
                properties.insert("parameters".into(), Value::Bool(false));
            }
        } else if !is_closed || properties.contains_key("name") {
            return like_calls();
        }
    }
    Ok(Value::Object(fields))
}

/// The schema that a lone `$ref` leads to, with the definitions copied into it; `schema` itself if that is not possible.
/// Generators write recursive types as a lone `$ref`. A keyword beside a `$ref` that leads back to itself would be refused.
fn followed(schema: &Value) -> Value {
    const MOST: usize = 16;
    let mut found = schema;
    for _ in 0..MOST {
        let Value::Object(fields) = found else { break };
        let is_alone = !fields.keys().any(|keyword| keyword != "$ref" && lower::is_condition(keyword));
        let place = fields.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        let leads = place.filter(|_| is_alone && !fields.contains_key("$id")).and_then(|place| schema.pointer(place));
        let Some(target) = leads else { break };
        found = target;
    }
    let mut whole = found.clone();
    if let Value::Object(fields) = &mut whole
        && !fields.contains_key("$id")
    {
        for definitions in ["$defs", "definitions"] {
            schema.get(definitions).and_then(|parts| fields.insert(definitions.into(), parts.clone()));
        }
        return whole;
    }
    schema.clone()
}

/// The lowered schema of a function's arguments.
struct Arguments {
    schema: Value,
    definitions: Map<String, Value>,
    exact: Vec<exact::NumberPattern>,
    ignored: Vec<String>,
}

impl Arguments {
    /// Any object; `why` says why the function's own schema is not used.
    fn free(why: &str) -> Arguments {
        let ignored = vec![format!("the whole schema ({why})")];
        Arguments { schema: json!({"type": "object"}), definitions: Map::new(), exact: Vec::new(), ignored }
    }
}

impl Function {
    fn arguments(&self, prefix: &str) -> Result<Arguments> {
        let whose = format!("the schema of the function `{}`", crate::display::quote(&self.name));
        let mut parameters = self.parameters.clone();
        close(&mut parameters);
        let lowered = match lower::lower(&parameters) {
            Err(Error::Input { cause, remedy }) if self.strict => {
                return Err(Error::Input { cause: format!("{whose}: {cause}").into(), remedy });
            }
            Err(_) => return Ok(Arguments::free("cannot be used")),
            Ok(lowered) => lowered,
        };
        if self.strict {
            lowered.refuse_ignored(&whose)?;
        }
        let ignored = lowered.ignored.iter().map(ToString::to_string).collect();
        let (schema, definitions, exact) = lowered.into_parts(prefix);
        match takes(&self.call(schema.clone(), definitions.clone())) {
            true => Ok(Arguments { schema, definitions, exact, ignored }),
            false if self.strict => Err(Error::input(
                format!("{whose} cannot be used: it is too large, or no arguments satisfy it"),
                "change the schema",
            )),
            false => Ok(Arguments::free("too large, or no arguments satisfy it")),
        }
    }

    /// The schema of a call to this function.
    fn call(&self, arguments: Value, definitions: Map<String, Value>) -> Value {
        let mut schema = json!({
            "type": "object",
            "properties": {"name": {"const": self.name}, "parameters": arguments},
            "required": ["name", "parameters"],
            "additionalProperties": false,
            "$defs": definitions,
        });
        no_blanks().apply_to(&mut schema);
        schema
    }
}

/// No blanks between the parts of a document. Messages of later requests repeat calls in this form, so
/// that they match the KV cache, and the token limit is not spent on blanks. If two alternatives differed in their
/// blanks, the parser would follow only one of them.
fn no_blanks() -> JsonCompileOptions {
    JsonCompileOptions { whitespace_flexible: false, ..JsonCompileOptions::default() }
}

/// Restricts arguments to an object with only the properties that the function's schema names. By JSON schema's rules
/// other properties would be allowed, but functions do not accept them.
fn close(parameters: &mut Value) {
    const OTHERS: [&str; 7] =
        ["additionalProperties", "patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "$ref"];
    let Value::Object(schema) = parameters else { return };
    let may_be_object = match schema.get("type") {
        None | Some(Value::Null) => true,
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(_) => false,
    };
    if may_be_object {
        schema.insert("type".to_owned(), "object".into());
    }
    if schema.contains_key("properties") && !OTHERS.iter().any(|other| schema.contains_key(*other)) {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
}
