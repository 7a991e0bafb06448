//! Tools: functions that the model may ask the client to call.
//!
//! If the model's template accepts functions ([`CallSyntax::Marked`]), it gets them. Otherwise they are described in
//! the system text, and a call is JSON, one object a line: `{"name": "..", "parameters": {..}}`. A grammar restricts
//! replies to calls, text, or a JSON document of the requested form. The prompt always has all functions, regardless of
//! the tool choice, so that consecutive requests share its beginning in the cache.

use super::calls::CallDetector;
use super::dialogue::Prompt;
use super::fields::{Fields, shown};
use super::form::RequestedGrammar;
use super::once::warn_once;
use crate::engine::request::Request;
use crate::grammar::{self, Beside, Calls, Grammar};
use crate::sequence::reply::CallStart;
use crate::serve::http::ApiError;
use crate::text::CallSyntax;
use serde_json::{Map, Value, json};

/// The most functions of a request.
const MOST: usize = 128;

/// A function that a reply may call, by the names that the client gave it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Callable {
    pub name: String,
    /// The namespace that the function belongs to, if the client groups its functions.
    pub namespace: Option<String>,
    /// True for a custom tool of OpenAI's, which takes a text instead of an object.
    pub is_custom: bool,
}

impl Callable {
    /// The function's name as the model sees it in the prompt.
    pub fn told(&self) -> String {
        told(&self.name, self.namespace.as_deref())
    }
}

impl From<&str> for Callable {
    fn from(name: &str) -> Callable {
        Callable { name: name.to_owned(), ..Callable::default() }
    }
}

/// The name, with the namespace before it if there is one, as the model sees it in the prompt.
pub(super) fn told(name: &str, namespace: Option<&str>) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}.{name}"))
}

/// The functions of a request, and the choice among them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tools {
    functions: Vec<ToolFunction>,
    choice: ToolChoice,
    /// True if a reply may have several calls.
    parallel: bool,
    syntax: CallSyntax,
}

#[derive(Debug, Clone, PartialEq)]
struct ToolFunction {
    callable: Callable,
    description: Option<String>,
    /// The JSON schema of the function's arguments.
    parameters: Value,
    /// True if calls must satisfy the whole schema.
    strict: bool,
}

/// The client's `tool_choice`: whether a call is required, and of which functions.
#[derive(Debug, Clone, Default, PartialEq)]
struct ToolChoice {
    /// True if the reply must have a call.
    is_required: bool,
    /// Indices of the functions that may be called. `None`: all.
    only: Option<Vec<usize>>,
    /// True if the tool choice names a single function, which is then called once. The prompt does not depend on it.
    is_single: bool,
}

/// The format in which a request's `tools` name a function and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// The function's fields are in an object `function`, as in chat completions.
    Nested,
    /// The function's fields are next to `type`, as in OpenAI's Responses API.
    Flat,
    /// Next to the type, as in Anthropic's messages, with the parameters in `input_schema`, and an object as tool
    /// choice.
    Input,
}

/// Anthropic's tools that run on the client and are defined by their type alone: the type's prefix before its date, the
/// description and the properties.
const DATED: [(&str, &str, &str); 3] = [
    (
        "bash_2",
        "Runs a command in a shell that stays open from call to call.",
        r#"{"command": {"type": "string"}, "restart": {"type": "boolean"}}"#,
    ),
    (
        "text_editor_2",
        "Views and changes a text file.",
        r#"{"command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]}, "path": {"type": "string"},
        "view_range": {"type": "array", "items": {"type": "integer"}}, "file_text": {"type": "string"},
        "old_str": {"type": "string"}, "new_str": {"type": "string"}, "insert_line": {"type": "integer"}}"#,
    ),
    (
        "memory_2",
        "Views and changes the files of notes within /memories.",
        r#"{"command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
        "path": {"type": "string"}, "view_range": {"type": "array", "items": {"type": "integer"}},
        "file_text": {"type": "string"}, "old_str": {"type": "string"}, "new_str": {"type": "string"},
        "insert_line": {"type": "integer"}, "insert_text": {"type": "string"}, "old_path": {"type": "string"},
        "new_path": {"type": "string"}}"#,
    ),
];

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. `None`: no function may be called.
///
/// # Errors
/// 400: a tool is not valid, or two have the same name.
pub(super) fn read(fields: &Fields<'_>, layout: Layout, syntax: CallSyntax) -> Result<Option<Tools>, ApiError> {
    let mut functions = Vec::new();
    for tool in &fields.objects("tools")?.unwrap_or_default() {
        read_tool(tool, layout, None, &mut functions)?;
    }
    let mut parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
    let choice = read_choice(fields, layout, &functions, &mut parallel)?;
    let Some(choice) = choice else { return Ok(None) };
    let is_left = choice.only.as_ref().map_or(functions.len(), Vec::len) > 0;
    match (choice.is_required, is_left) {
        (true, false) => Err(fields.wrong("tool_choice", "is required without tools")),
        _ if functions.is_empty() => Ok(None),
        _ => Ok(Some(Tools { functions, choice, parallel, syntax })),
    }
}

/// Adds the functions of a tool. Tools that run on other vendors' servers, which clients offer everywhere, are left
/// out.
fn read_tool(
    tool: &Fields<'_>,
    layout: Layout,
    namespace: Option<&str>,
    functions: &mut Vec<ToolFunction>,
) -> Result<(), ApiError> {
    let kind = tool.text("type")?;
    let function = match (kind, layout) {
        // Ollama's and Anthropic's clients may omit the type.
        (None, _) | (Some("function"), Layout::Nested | Layout::Flat) | (Some("custom"), Layout::Input) => {
            ToolFunction::read(tool, layout, namespace)?
        }
        (Some("namespace"), Layout::Nested | Layout::Flat) if namespace.is_none() => {
            let name = tool.required("name")?;
            let tools = tool.objects("tools")?.unwrap_or_default();
            return tools.iter().try_for_each(|tool| read_tool(tool, Layout::Flat, Some(name), functions));
        }
        (Some("custom"), _) => match ToolFunction::read_custom(tool, namespace)? {
            Some(function) => function,
            None => return Ok(()),
        },
        (Some(kind), _) => match DATED.iter().find(|(begin, ..)| layout == Layout::Input && kind.starts_with(begin)) {
            Some((_, description, properties)) => ToolFunction::read_dated(tool, description, properties)?,
            None => {
                warn_once(&format!("tools of type {} are left out: functions are served", shown(&kind.into())));
                return Ok(());
            }
        },
    };
    if functions.len() == MOST {
        let message = format!("tools has more than {MOST} functions, which are the most that are taken");
        return Err(ApiError::bad(message).param("tools").code("invalid_value"));
    }
    let told = function.callable.told();
    if functions.iter().any(|other| other.callable.told() == told) {
        let what = format!("is {}, as another tool's is: a call of it would be either's", shown(&told.into()));
        return Err(tool.wrong("name", what));
    }
    functions.push(function);
    Ok(())
}

/// Reads the tool choice. `None`: no function may be called.
fn read_choice(
    fields: &Fields<'_>,
    layout: Layout,
    functions: &[ToolFunction],
    parallel: &mut bool,
) -> Result<Option<ToolChoice>, ApiError> {
    const NAME: &str = "tool_choice";
    let required = ToolChoice { is_required: true, ..ToolChoice::default() };
    let word = |word: &str| match word {
        "none" => Some(None),
        "auto" => Some(Some(ToolChoice::default())),
        "required" | "any" => Some(Some(required.clone())),
        _ => None,
    };
    let choice = match fields.get(NAME) {
        None => return Ok(Some(ToolChoice::default())),
        Some(Value::String(text)) if layout != Layout::Input => {
            let wrong = || fields.wrong(NAME, "has to be none, auto, required, or name a function");
            return word(text).ok_or_else(wrong);
        }
        Some(value) => Fields::of(value, fields.path(NAME))?,
    };
    let find = |name: &str, namespace: Option<&str>| {
        let full = told(name, namespace);
        let position = |is_it: &dyn Fn(&Callable) -> bool| functions.iter().position(|one| is_it(&one.callable));
        let wrong = || fields.wrong(NAME, format!("names {}, and no tool has that name", shown(&full.as_str().into())));
        // A name without its namespace is accepted if it is unique.
        let found = position(&|callable| callable.told() == full);
        found.or_else(|| position(&|callable| namespace.is_none() && callable.name == name)).ok_or_else(wrong)
    };
    if layout == Layout::Input {
        *parallel = !choice.boolean("disable_parallel_tool_use")?.unwrap_or(false);
        choice.text("name")?;
    }
    match choice.text("type")? {
        None if layout == Layout::Input => Err(choice.missing("type")),
        Some("allowed_tools") if layout != Layout::Input => {
            let list = choice.object("allowed_tools")?.unwrap_or_else(|| choice.clone());
            let is_required = match list.text("mode")?.unwrap_or("auto") {
                "auto" => false,
                "required" => true,
                _ => return Err(list.wrong("mode", "has to be auto or required")),
            };
            let mut only = Vec::new();
            for tool in list.objects("tools")?.ok_or_else(|| list.missing("tools"))? {
                // Tools that run on other vendors' servers were left out, so they are skipped here too.
                if let None | Some("function" | "custom") = tool.text("type")? {
                    let (name, namespace) = read_name(&tool)?;
                    only.push(find(name, namespace)?);
                }
            }
            Ok(Some(ToolChoice { is_required, only: Some(only), is_single: false }))
        }
        None | Some("function" | "custom" | "tool") => {
            let (name, namespace) = read_name(&choice)?;
            Ok(Some(ToolChoice { is_required: true, only: Some(vec![find(name, namespace)?]), is_single: true }))
        }
        Some(kind) => word(kind).ok_or_else(|| match layout {
            Layout::Input => choice.wrong("type", "has to be auto, any, tool or none"),
            _ => choice.unserved("type", &format!("{} is no function", shown(&kind.into()))),
        }),
    }
}

/// The object with a function's name: `function` or `custom`, or the one with the type.
fn holder_of<'v>(tool: &Fields<'v>) -> Result<Fields<'v>, ApiError> {
    let custom = tool.object("custom")?;
    Ok(tool.object("function")?.or(custom).unwrap_or_else(|| tool.clone()))
}

/// The name and namespace of a function.
fn read_name<'v>(choice: &Fields<'v>) -> Result<(&'v str, Option<&'v str>), ApiError> {
    let holder = holder_of(choice)?;
    Ok((holder.required("name")?, holder.text("namespace")?))
}

impl ToolFunction {
    fn read(tool: &Fields<'_>, layout: Layout, namespace: Option<&str>) -> Result<ToolFunction, ApiError> {
        let holder = match layout {
            Layout::Nested => tool.object("function")?.ok_or_else(|| tool.missing("function"))?,
            Layout::Flat | Layout::Input => tool.clone(),
        };
        let schema = if layout == Layout::Input { "input_schema" } else { "parameters" };
        let parameters = holder.object(schema)?.and_then(|_| holder.get(schema)).cloned();
        ToolFunction::of(&holder, namespace, parameters)
    }

    fn of(holder: &Fields<'_>, namespace: Option<&str>, parameters: Option<Value>) -> Result<ToolFunction, ApiError> {
        let name = holder.required("name")?;
        if name.is_empty() {
            return Err(holder.wrong("name", "is empty"));
        }
        let none = || json!({"type": "object", "properties": {}});
        Ok(ToolFunction {
            callable: Callable { namespace: namespace.map(str::to_owned), ..name.into() },
            description: holder.text("description")?.map(str::to_owned),
            parameters: parameters.filter(|schema| schema != &json!({})).unwrap_or_else(none),
            strict: holder.boolean("strict")?.unwrap_or(false),
        })
    }

    /// Reads a tool that takes a text. `None`: the text must follow a grammar, which is not supported.
    fn read_custom(tool: &Fields<'_>, namespace: Option<&str>) -> Result<Option<ToolFunction>, ApiError> {
        let holder = holder_of(tool)?;
        let format = holder.object("format")?.map(|format| format.text("type")).transpose()?.flatten();
        if format.is_some_and(|format| format != "text") {
            warn_once("custom tools whose input has a grammar are left out: those of text are served");
            return Ok(None);
        }
        let parameters = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
        let mut function = ToolFunction::of(&holder, namespace, Some(parameters))?;
        function.callable.is_custom = true;
        Ok(Some(function))
    }

    fn read_dated(tool: &Fields<'_>, description: &str, properties: &str) -> Result<ToolFunction, ApiError> {
        let properties: Value = serde_json::from_str(properties).map_err(|_| ApiError::internal())?;
        let parameters = json!({"type": "object", "properties": properties});
        let function = ToolFunction::of(tool, None, Some(parameters))?;
        Ok(ToolFunction { description: Some(description.to_owned()), ..function })
    }

    /// The function in the form of the grammar of calls.
    fn to_grammar(&self) -> grammar::Function {
        let ToolFunction { callable, parameters, strict, .. } = self;
        grammar::Function { name: callable.told(), parameters: parameters.clone(), strict: *strict }
    }
}

impl Tools {
    /// The description of the tools for the model, in the wording that the makers of Gemma 3 recommend.
    pub fn instructions(&self) -> String {
        let describe = |function: &ToolFunction| json!({"name": function.callable.told(), "description": function.description, "parameters": function.parameters});
        let functions: Vec<Value> = self.functions.iter().map(describe).collect();
        let several = if self.parallel { " To invoke several, write each on a line of its own." } else { "" };
        format!(
            "You have access to functions. If you decide to invoke any of the functions, you MUST put it in the format of\n\
             {{\"name\": function name, \"parameters\": dictionary of argument name and its value}}\n\n\
             You SHOULD NOT include any other text in the response if you call a function.{several}\n{}",
            Value::Array(functions)
        )
    }

    /// The functions in the form of chat templates.
    pub fn declarations(&self) -> Vec<Value> {
        let describe = |function: &ToolFunction| {
            let description = function.description.as_deref().unwrap_or_default();
            let parameters = declared(&function.parameters);
            let function =
                json!({"name": function.callable.told(), "description": description, "parameters": parameters});
            json!({"type": "function", "function": function})
        };
        self.functions.iter().map(describe).collect()
    }

    /// The functions that the tool choice allows the reply to call.
    fn callable(&self) -> impl Iterator<Item = &ToolFunction> {
        let is_allowed = |number: &usize| self.choice.only.as_ref().is_none_or(|only| only.contains(number));
        self.functions.iter().enumerate().filter(move |(number, _)| is_allowed(number)).map(|(_, function)| function)
    }

    /// The form of a reply with tools, which may be `beside` if no call is required.
    fn form(&self, beside: Beside) -> RequestedGrammar {
        let calls = Calls {
            functions: self.callable().map(ToolFunction::to_grammar).collect(),
            beside: if self.choice.is_required { Beside::Nothing } else { beside },
            several: self.parallel && !self.choice.is_single,
            syntax: self.syntax,
        };
        RequestedGrammar::new(Grammar::Calls(calls), "tools".into())
    }

    /// The texts or tokens with which a call begins in a reply.
    fn starts(&self) -> CallStart {
        match self.syntax {
            CallSyntax::Json => {
                let begin = |function: &ToolFunction| {
                    format!("{{\"name\":{},\"parameters\":", Value::from(function.callable.told()))
                };
                CallStart::First(self.callable().map(begin).collect())
            }
            CallSyntax::Marked(marks) => CallStart::Anywhere(marks.call[0]),
        }
    }
}

/// Sets a request's prompt. Returns the detector of calls in the reply.
pub(super) fn give_prompt(ask: &mut Request, prompt: Prompt, tools: Option<&Tools>) -> CallDetector {
    (ask.prompt, ask.begun, ask.thinks) = (prompt.tokens, prompt.begun, prompt.thinks);
    let Some(tools) = tools else { return CallDetector::default() };
    ask.calls = tools.starts();
    let callable = tools.callable().map(|function| function.callable.clone()).collect();
    CallDetector::new(callable, tools.syntax).going_on(&ask.begun)
}

/// A schema in the form that templates can read: they look only at a single `type` of each property.
fn declared(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return json!({"type": "string"}) };
    let mut declared = Map::new();
    for (name, value) in fields {
        let value = match (name.as_str(), value) {
            ("properties", Value::Object(all)) => {
                all.iter().map(|(name, schema)| (name.clone(), self::declared(schema))).collect()
            }
            ("items", schema @ Value::Object(_)) => self::declared(schema),
            ("type", Value::Array(_)) => continue,
            _ => value.clone(),
        };
        declared.insert(name.clone(), value);
    }
    let parts = ["anyOf", "oneOf", "allOf"].iter().filter_map(|name| fields.get(*name)?.as_array()).flatten();
    let types = fields.get("type").and_then(Value::as_array).into_iter().flatten();
    let mut kinds = types.chain(parts.filter_map(|part| part.get("type"))).filter_map(Value::as_str);
    if !declared.contains_key("type") {
        let shape = if declared.contains_key("properties") { "object" } else { "string" };
        let kind = kinds.find(|kind| *kind != "null").unwrap_or(shape);
        declared.insert("type".into(), kind.into());
    }
    declared.entry("description").or_insert_with(|| "".into());
    Value::Object(declared)
}

/// Combines the form of tools with the form requested elsewhere: a reply has calls or that form.
///
/// # Errors
/// 400: the form is a Lark grammar, whose texts may look like calls.
pub(super) fn form_with(
    tools: Option<&Tools>,
    form: Option<RequestedGrammar>,
) -> Result<Option<RequestedGrammar>, ApiError> {
    // If no function may be called, the tools are described in the prompt only.
    match (tools.filter(|tools| tools.callable().next().is_some()), form) {
        (Some(tools), Some(form)) => {
            let schema = match &form.grammar {
                Grammar::JsonSchema(schema) => schema.clone(),
                Grammar::JsonObject => json!({"type": "object"}),
                Grammar::Lark(_) | Grammar::Calls(_) => {
                    let message = format!(
                        "{} is a Lark grammar, which goes without tools only; a JSON schema goes with them",
                        form.param
                    );
                    return Err(ApiError::bad(message).param(form.param).code("invalid_value"));
                }
            };
            // If a call is required, the reply cannot be a document.
            let joined = tools.form(Beside::Document(schema));
            Ok(Some(RequestedGrammar { beside: (!tools.choice.is_required).then(|| Box::new(form)), ..joined }))
        }
        (Some(tools), None) => Ok(Some(tools.form(Beside::Text))),
        (None, form) => Ok(form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weather() -> Value {
        json!({"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {
            "type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "required": ["city"],
            "$defs": {"city": {"type": "string"}}}}})
    }

    fn read_as(body: Value, layout: Layout) -> Result<Option<Tools>, String> {
        read(&Fields::of_body(&body).unwrap(), layout, CallSyntax::Json).map_err(|e| e.param.unwrap())
    }

    fn tools(body: Value) -> Result<Option<Tools>, String> {
        read_as(body, Layout::Nested)
    }

    #[test]
    fn a_choice_decides_what_a_reply_may_be() {
        let time = json!({"type": "function", "function": {"name": "time", "strict": true}});
        let calls = |choice: Value, parallel: bool| {
            let body = json!({"tools": [weather(), time], "tool_choice": choice, "parallel_tool_calls": parallel});
            tools(body).unwrap().map(|tools| match tools.form(Beside::Text).grammar {
                Grammar::Calls(calls) => calls,
                other => panic!("{other:?}"),
            })
        };
        let start = |calls: Option<Calls>| {
            let Calls { functions, beside, several, .. } = calls.unwrap();
            (beside == Beside::Text, several, functions.len())
        };
        assert_eq!(calls(json!("none"), true), None);
        assert_eq!(start(calls(json!(null), true)), (true, true, 2));
        assert_eq!(start(calls(json!("auto"), false)), (true, false, 2));
        assert_eq!(start(calls(json!("required"), true)), (false, true, 2));
        let named = calls(json!({"type": "function", "function": {"name": "time"}}), true);
        assert_eq!(start(named.clone()), (false, false, 1));
        assert_eq!(
            (&named.unwrap().functions[0].name[..], calls(json!("auto"), true).unwrap().functions[0].strict),
            ("time", false)
        );
        // A function without parameters takes an empty object.
        let all = calls(json!("auto"), true).unwrap();
        assert_eq!(all.functions[1].parameters, json!({"type": "object", "properties": {}}));
        assert!(all.functions[1].strict && all.functions[0].parameters["$defs"].is_object());
        let told = tools(json!({"tools": [weather()]})).unwrap().unwrap().instructions();
        assert!(told.contains("\"name\":\"weather\"") && told.contains("The weather."), "{told}");
    }

    #[test]
    fn each_wrong_tool_is_named() {
        for (body, param) in [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [1]}), "tools[0]"),
            (json!({"tools": [{"type": 1}]}), "tools[0].type"),
            (json!({"tools": [{"type": "web_search"}], "tool_choice": "required"}), "tool_choice"),
            (json!({"tools": [weather()], "tool_choice": {"type": "web_search"}}), "tool_choice.type"),
            (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
            (json!({"tools": [{"type": "function", "function": {}}]}), "tools[0].function.name"),
            (json!({"tools": [{"function": {"name": "f", "parameters": 1}}]}), "tools[0].function.parameters"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tools": [weather()], "tool_choice": "maybe"}), "tool_choice"),
            (json!({"tools": [weather()], "tool_choice": 1}), "tool_choice"),
            (json!({"tools": [weather()], "tool_choice": {"type": "function"}}), "tool_choice.name"),
            (json!({"tools": [weather()], "tool_choice": {"function": {"name": "f"}}}), "tool_choice"),
            (json!({"parallel_tool_calls": "no"}), "parallel_tool_calls"),
            (json!({"tools": [weather(), weather()]}), "tools[1].name"),
        ] {
            assert_eq!(tools(body.clone()), Err(param.into()), "{body}");
        }
        assert_eq!(tools(json!({"tools": [], "tool_choice": "auto"})), Ok(None));
        let grammar = json!({"type": "custom", "name": "x", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}});
        let beside = tools(json!({"tools": [{"type": "web_search"}, weather(), grammar]}));
        assert_eq!(beside, tools(json!({"tools": [weather()]})), "tools of other types are left out");
        assert_eq!(tools(json!({"tools": [{"type": "web_search"}]})), Ok(None));
    }

    fn names(tools: &Tools) -> Vec<String> {
        tools.callable().map(|function| function.callable.told()).collect()
    }

    /// Only allowed tools are called, but the prompt has all tools.
    #[test]
    fn allowed_tools_are_called_and_all_are_told() {
        let nested = |name: &str| json!({"type": "function", "function": {"name": name}});
        let flat = |name: &str| json!({"type": "function", "name": name});
        type Written<'a> = &'a dyn Fn(&str) -> Value;
        let layouts: [(Layout, Written<'_>); 2] = [(Layout::Nested, &nested), (Layout::Flat, &flat)];
        for (layout, tool) in layouts {
            let all = json!([tool("f"), tool("g"), tool("h")]);
            let read = |choice: Value| read_as(json!({"tools": all, "tool_choice": choice}), layout);
            let told = read(json!("auto")).unwrap().unwrap().instructions();
            for (mode, is_required) in [("auto", false), ("required", true)] {
                let list = json!({"mode": mode, "tools": [tool("g"), {"type": "web_search"}, tool("h")]});
                let mut beside = list.clone();
                beside["type"] = "allowed_tools".into();
                for choice in [json!({"type": "allowed_tools", "allowed_tools": list}), beside] {
                    let tools = read(choice).unwrap().unwrap();
                    assert_eq!((names(&tools), tools.choice.is_required), (vec!["g".into(), "h".into()], is_required));
                    assert_eq!(tools.instructions(), told);
                }
            }
            let of = |mode: &str, tools: Value| read(json!({"type": "allowed_tools", "mode": mode, "tools": tools}));
            assert_eq!(of("auto", json!([tool("third")])), Err("tool_choice".into()));
            assert_eq!(of("sometimes", json!([tool("f")])), Err("tool_choice.mode".into()));
            assert_eq!(of("auto", json!(null)), Err("tool_choice.tools".into()));
            assert_eq!(of("required", json!([])), Err("tool_choice".into()));
            // If no function may be called, the reply is text.
            let none = of("auto", json!([])).unwrap().unwrap();
            assert_eq!((none.instructions(), form_with(Some(&none), None).unwrap()), (told, None));
        }
    }

    #[test]
    fn functions_of_namespaces_are_told_apart_and_custom_tools_take_a_text() {
        let f = json!({"type": "function", "name": "f"});
        let custom = json!({"type": "custom", "name": "note", "description": "N", "format": {"type": "text"}});
        let space = |name: &str| json!({"type": "namespace", "name": name, "description": "", "tools": [f, custom]});
        let all = json!([f, space("a"), space("b"), custom]);
        let read =
            |choice: Value| read_as(json!({"tools": all, "tool_choice": choice}), Layout::Flat).map(Option::unwrap);
        let tools = read(json!("auto")).unwrap();
        assert_eq!(names(&tools), ["f", "a.f", "a.note", "b.f", "b.note", "note"]);
        let b = Callable { name: "note".into(), namespace: Some("b".into()), is_custom: true };
        assert_eq!(tools.functions[4].callable, b);
        let choice = |choice: Value| names(&read(choice).unwrap());
        assert_eq!(choice(json!({"type": "function", "name": "f", "namespace": "b"})), ["b.f"]);
        assert_eq!(choice(json!({"type": "custom", "name": "note"})), ["note"]);
        assert_eq!(choice(json!({"type": "function", "name": "b.f"})), ["b.f"]);
        let twice = json!({"tools": [space("a"), space("a")]});
        assert_eq!(read_as(twice, Layout::Flat), Err("tools[1].tools[0].name".into()));
        let nested = json!({"tools": [{"type": "custom", "custom": {"name": "note"}}]});
        let nested = read_as(nested, Layout::Nested).unwrap().unwrap();
        assert!(
            nested.functions[0].callable.is_custom && nested.functions[0].parameters["required"] == json!(["input"])
        );
    }

    #[test]
    fn anthropics_dated_tools_are_functions_where_the_client_runs_them() {
        let tools = json!([
            {"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"type": "memory_20250818", "name": "memory"}, {"type": "computer_20250124", "name": "computer"},
            {"type": "web_search_20250305", "name": "web_search"}, {"type": "code_execution_20250825", "name": "code"},
            {"type": "custom", "name": "own", "input_schema": {"type": "object"}}, {"name": "plain"},
        ]);
        let tools = read_as(json!({"tools": tools}), Layout::Input).unwrap().unwrap();
        assert_eq!(names(&tools), ["bash", "str_replace_based_edit_tool", "memory", "own", "plain"]);
        assert!(DATED.iter().all(|(.., properties)| serde_json::from_str::<Value>(properties).is_ok()));
        assert!(tools.functions[0].parameters["properties"]["command"].is_object());
    }

    #[test]
    fn templates_find_one_type_in_each_schema() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": ["null", "integer"]}, "b": {"anyOf": [{"type": "null"}, {"type": "number"}]}, "c": {"enum": ["x"]},
            "d": {"type": "array", "items": {}}, "e": {"properties": {"f": true}},
        }});
        let declared = declared(&schema);
        let kind = |name: &str| declared["properties"][name]["type"].as_str().unwrap().to_owned();
        assert_eq!(["a", "b", "c", "d", "e"].map(kind), ["integer", "number", "string", "array", "object"]);
        assert_eq!(declared["properties"]["e"]["properties"]["f"]["type"], "string");
        assert_eq!(declared["properties"]["d"]["items"]["type"], "string");
    }
}
