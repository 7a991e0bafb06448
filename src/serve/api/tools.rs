//! Tools: functions that the model may ask the client to call.
//!
//! Gemma 3 has no tokens for calls. The functions are described in the system text, and a call is JSON, one object a line:
//! `{"name": "..", "parameters": {..}}`. A grammar keeps replies to that: either calls, or text that does not begin with `{`,
//! or a JSON document of the form that the request asks for.

use super::fields::{Fields, shown};
use super::form::RequestedGrammar;
use super::once::warn_once;
use super::run::unique;
use crate::grammar::{self, Beside, Calls, Grammar};
use crate::serve::http::ApiError;
use serde_json::{Value, json};

/// Most functions of a request.
const MOST: usize = 128;

/// The functions of a request, and whether the model has to call them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tools {
    functions: Vec<ToolFunction>,
    choice: ToolChoice,
    /// Several calls in one reply.
    parallel: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct ToolFunction {
    name: String,
    description: Option<String>,
    /// The schema of its arguments.
    parameters: Value,
    /// Whether a call has to keep to all of it.
    strict: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum ToolChoice {
    /// Calls or text, as the model likes.
    Auto,
    /// One call or more.
    Required,
    /// A call of this function.
    Named(String),
}

/// Where a function's name and parameters lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Within `function`, as in chat completions.
    Nested,
    /// Beside the type, as in responses.
    Flat,
    /// Beside the type, as in Anthropic's messages: the parameters are `input_schema`, and a choice is an object.
    Input,
}

impl Layout {
    /// The type of a tool that is a function, where it is given.
    fn kind(self) -> &'static str {
        if self == Layout::Input { "custom" } else { "function" }
    }
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. `None`: there are none to be called.
///
/// # Errors
/// 400: one is not understood.
pub(super) fn read(fields: &Fields<'_>, layout: Layout) -> Result<Option<Tools>, ApiError> {
    let tools = fields.objects("tools")?.unwrap_or_default();
    if tools.len() > MOST {
        return Err(fields.wrong("tools", format!("has {} functions, and at most {MOST} are taken", tools.len())));
    }
    let mut functions = Vec::new();
    for tool in &tools {
        match tool.text("type")? {
            // Ollama's and Anthropic's clients may leave it out.
            None => functions.push(ToolFunction::read(tool, layout)?),
            Some(kind) if kind == layout.kind() => functions.push(ToolFunction::read(tool, layout)?),
            // Those that other servers run themselves, which clients offer to every server.
            Some(kind) => {
                warn_once(&format!("tools of type {} are left out: functions are served", shown(&kind.into())))
            }
        }
    }
    let mut parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
    let choice = match fields.get("tool_choice") {
        None => Some(ToolChoice::Auto),
        Some(_) if layout == Layout::Input => {
            let Some(choice) = fields.object("tool_choice")? else { return Err(fields.missing("tool_choice")) };
            parallel = !choice.boolean("disable_parallel_tool_use")?.unwrap_or(false);
            let name = choice.text("name")?;
            match choice.text("type")?.ok_or_else(|| choice.missing("type"))? {
                "none" => None,
                "auto" => Some(ToolChoice::Auto),
                "any" => Some(ToolChoice::Required),
                "tool" => Some(ToolChoice::Named(name.ok_or_else(|| choice.missing("name"))?.to_owned())),
                _ => return Err(choice.wrong("type", "has to be auto, any, tool or none")),
            }
        }
        Some(Value::String(word)) => match word.as_str() {
            "none" => None,
            "auto" => Some(ToolChoice::Auto),
            "required" => Some(ToolChoice::Required),
            _ => return Err(fields.wrong("tool_choice", "has to be none, auto, required, or name a function")),
        },
        Some(_) => Some(ToolChoice::Named(read_named(fields, layout)?)),
    };
    match choice {
        Some(ToolChoice::Named(name)) if !functions.iter().any(|function| function.name == name) => {
            Err(fields.wrong("tool_choice", format!("names {}, and no tool has that name", json!(name))))
        }
        Some(ToolChoice::Required) if functions.is_empty() => {
            Err(fields.wrong("tool_choice", "is required without tools"))
        }
        Some(choice) if !functions.is_empty() => Ok(Some(Tools { functions, choice, parallel })),
        _ => Ok(None),
    }
}

/// The name in `{"type": "function", "function": {"name": ".."}}`.
fn read_named(fields: &Fields<'_>, layout: Layout) -> Result<String, ApiError> {
    let Some(choice) = fields.object("tool_choice")? else { return Err(fields.missing("tool_choice")) };
    if let Some(kind) = choice.text("type")?.filter(|kind| *kind != "function") {
        return Err(choice.unserved("type", &format!("{} is no function", json!(kind))));
    }
    let holder = match layout {
        Layout::Nested => choice.object("function")?.ok_or_else(|| choice.missing("function"))?,
        Layout::Flat | Layout::Input => choice,
    };
    Ok(holder.text("name")?.ok_or_else(|| holder.missing("name"))?.to_owned())
}

impl ToolFunction {
    fn read(tool: &Fields<'_>, layout: Layout) -> Result<ToolFunction, ApiError> {
        let holder = match layout {
            Layout::Nested => tool.object("function")?.ok_or_else(|| tool.missing("function"))?,
            Layout::Flat | Layout::Input => tool.clone(),
        };
        let name = holder.text("name")?.ok_or_else(|| holder.missing("name"))?;
        if name.is_empty() {
            return Err(holder.wrong("name", "is empty"));
        }
        let none = || json!({"type": "object", "properties": {}});
        let schema = if layout == Layout::Input { "input_schema" } else { "parameters" };
        let parameters = holder.object(schema)?.and_then(|_| holder.get(schema)).cloned();
        Ok(ToolFunction {
            name: name.to_owned(),
            description: holder.text("description")?.map(str::to_owned),
            parameters: parameters.filter(|schema| schema != &json!({})).unwrap_or_else(none),
            strict: holder.boolean("strict")?.unwrap_or(false),
        })
    }

    /// As the grammar of calls takes it.
    fn callable(&self) -> grammar::Function {
        let ToolFunction { name, parameters, strict, .. } = self;
        grammar::Function { name: name.clone(), parameters: parameters.clone(), strict: *strict }
    }

    fn description(&self) -> Value {
        json!({"name": self.name, "description": self.description, "parameters": self.parameters})
    }
}

impl Tools {
    /// What the model is told, in the words that Gemma 3's makers recommend.
    pub fn instructions(&self) -> String {
        let functions: Vec<Value> = self.functions.iter().map(ToolFunction::description).collect();
        let several = if self.is_parallel() { " To invoke several, write each on a line of its own." } else { "" };
        let duty = match &self.choice {
            ToolChoice::Auto => "If you decide to invoke any of the functions, you".to_owned(),
            ToolChoice::Required => "You MUST invoke at least one of the functions. You".to_owned(),
            ToolChoice::Named(name) => format!("You MUST invoke the function {name}. You"),
        };
        format!(
            "You have access to functions. {duty} MUST put it in the format of\n\
             {{\"name\": function name, \"parameters\": dictionary of argument name and its value}}\n\n\
             You SHOULD NOT include any other text in the response if you call a function.{several}\n{}",
            Value::Array(functions)
        )
    }

    fn is_parallel(&self) -> bool {
        self.parallel && !matches!(self.choice, ToolChoice::Named(_))
    }

    /// The functions that a reply may call.
    fn callable(&self) -> impl Iterator<Item = &ToolFunction> {
        self.functions.iter().filter(|function| match &self.choice {
            ToolChoice::Named(name) => function.name == *name,
            ToolChoice::Auto | ToolChoice::Required => true,
        })
    }

    /// The form of a reply that may be `beside` where it may be without calls.
    fn form(&self, beside: Beside) -> RequestedGrammar {
        let calls = Calls {
            functions: self.callable().map(ToolFunction::callable).collect(),
            beside: if self.choice == ToolChoice::Auto { beside } else { Beside::Nothing },
            several: self.is_parallel(),
        };
        RequestedGrammar::new(Grammar::Calls(calls), "tools".into())
    }
}

/// Joins the form of tools with the one that the request asks for elsewhere: a reply has calls, or that form.
///
/// # Errors
/// 400: that form is a Lark grammar, whose texts may look like calls.
pub(super) fn form_with(
    tools: Option<&Tools>,
    form: Option<RequestedGrammar>,
) -> Result<Option<RequestedGrammar>, ApiError> {
    match (tools, form) {
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
            // Where there has to be a call, there is no document.
            let joined = tools.form(Beside::Document(schema));
            Ok(Some(RequestedGrammar { beside: (tools.choice == ToolChoice::Auto).then(|| Box::new(form)), ..joined }))
        }
        (Some(tools), None) => Ok(Some(tools.form(Beside::Text))),
        (None, form) => Ok(form),
    }
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    pub id: String,
    pub name: String,
    /// An object.
    pub arguments: Value,
}

impl ToolCall {
    /// As chat completions have it.
    pub fn to_json(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments.to_string()});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

/// What a reply says with a piece of its text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Said {
    pub text: String,
    pub calls: Vec<ToolCall>,
}

/// Tells calls from text in a reply that comes in pieces. Without tools, all is text.
#[derive(Debug, Clone)]
pub(super) struct CallDetector {
    state: DetectorState,
    /// The functions that are called.
    names: Vec<String>,
    /// Text of a call that is not complete, or a beginning before it is known of what.
    held: String,
    /// Calls so far.
    pub calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DetectorState {
    Undecided,
    Text,
    Calls,
}

impl CallDetector {
    pub fn new(tools: Option<&Tools>) -> CallDetector {
        let names = tools.map(|tools| tools.callable().map(|function| function.name.clone()).collect());
        CallDetector::of(names.unwrap_or_default())
    }

    /// Of calls of these functions.
    pub fn of(names: Vec<String>) -> CallDetector {
        let state = if names.is_empty() { DetectorState::Text } else { DetectorState::Undecided };
        CallDetector { state, names, held: String::new(), calls: 0 }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, piece: &str) -> Said {
        if self.state == DetectorState::Text {
            return Said { text: piece.to_owned(), calls: Vec::new() };
        }
        self.held.push_str(piece);
        if self.state == DetectorState::Undecided {
            match self.begins_call() {
                None => return Said::default(),
                Some(true) => self.state = DetectorState::Calls,
                Some(false) => self.state = DetectorState::Text,
            }
        }
        match self.state {
            DetectorState::Calls if piece.contains('}') => self.take_calls(),
            DetectorState::Calls => Said::default(),
            _ => Said { text: std::mem::take(&mut self.held), calls: Vec::new() },
        }
    }

    /// Whether what is held begins a call, as the grammar writes it. `None`: it may yet. A document that begins otherwise is
    /// heard as it comes.
    fn begins_call(&self) -> Option<bool> {
        const NAME: &str = "{\"name\":";
        const PARAMETERS: &str = ",\"parameters\":";
        let held = self.held.trim_start();
        let Some(rest) = held.strip_prefix(NAME) else { return (!NAME.starts_with(held)).then_some(false) };
        let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        match names.next() {
            Some(Ok(name)) if self.names.contains(&name) => {
                let rest = &rest[names.byte_offset()..];
                let begins = rest.starts_with(PARAMETERS);
                (begins || !PARAMETERS.starts_with(rest)).then_some(begins)
            }
            Some(Err(e)) if e.is_eof() => None,
            None => None,
            Some(_) => Some(false),
        }
    }

    /// Takes the complete calls of what is held. What is no call is text, and so is all that follows.
    fn take_calls(&mut self) -> Said {
        let mut said = Said::default();
        let mut values = serde_json::Deserializer::from_str(&self.held).into_iter::<Value>();
        let mut done = 0;
        while let Some(Ok(value)) = values.next() {
            let Some(call) = as_call(&value).filter(|call| self.names.contains(&call.name)) else {
                self.state = DetectorState::Text;
                break;
            };
            said.calls.push(call);
            done = values.byte_offset();
        }
        self.held.drain(..done);
        if self.state == DetectorState::Text {
            said.text = std::mem::take(&mut self.held);
        }
        self.calls += said.calls.len();
        said
    }

    /// Takes the last piece of text: what is held and became no call is text.
    pub fn push_last(&mut self, piece: &str) -> Said {
        let mut said = self.push(piece);
        let held = std::mem::take(&mut self.held);
        if self.calls == 0 || !held.trim().is_empty() {
            said.text.push_str(&held);
        }
        said
    }
}

fn as_call(value: &Value) -> Option<ToolCall> {
    // Beside tools a reply may be an object of a form of its own.
    value.as_object().filter(|call| call.len() == 2)?;
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = value.get("parameters").filter(|arguments| arguments.is_object())?.clone();
    Some(ToolCall { id: unique("call_"), name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weather() -> Value {
        json!({"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {
            "type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "required": ["city"],
            "$defs": {"city": {"type": "string"}}}}})
    }

    fn tools(body: Value) -> Result<Option<Tools>, String> {
        read(&Fields::of_body(&body).unwrap(), Layout::Nested).map_err(|e| e.param.unwrap())
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
            let Calls { functions, beside, several } = calls.unwrap();
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
        // A function without parameters takes an object of none.
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
            (json!({"tools": [weather()], "tool_choice": {"type": "function"}}), "tool_choice.function"),
            (json!({"tools": [weather()], "tool_choice": {"function": {"name": "f"}}}), "tool_choice"),
            (json!({"parallel_tool_calls": "no"}), "parallel_tool_calls"),
        ] {
            assert_eq!(tools(body.clone()), Err(param.into()), "{body}");
        }
        assert_eq!(tools(json!({"tools": [], "tool_choice": "auto"})), Ok(None));
        let beside = tools(json!({"tools": [{"type": "web_search"}, weather(), {"type": "custom", "name": "x"}]}));
        assert_eq!(beside, tools(json!({"tools": [weather()]})), "tools of other types are left out");
        assert_eq!(tools(json!({"tools": [{"type": "web_search"}]})), Ok(None));
    }

    /// Hears `text` in pieces of `length` bytes: the text, and the calls' names and arguments.
    fn hear(text: &str, length: usize) -> (String, Vec<(String, String)>) {
        let mut listener = CallDetector::of(vec!["f".into(), "g".into()]);
        let (mut heard, mut calls) = (String::new(), Vec::new());
        let pieces: Vec<&str> =
            text.as_bytes().chunks(length).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
        let (last, first) = pieces.split_last().unwrap_or((&"", &[]));
        let mut all: Vec<Said> = first.iter().map(|piece| listener.push(piece)).collect();
        all.push(listener.push_last(last));
        for said in all {
            heard.push_str(&said.text);
            calls.extend(said.calls.into_iter().map(|call| (call.name, call.arguments.to_string())));
        }
        assert_eq!(listener.calls, calls.len());
        (heard, calls)
    }

    #[test]
    fn calls_are_heard_in_any_pieces_and_text_stays_text() {
        let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        let two = "{\"name\":\"f\",\"parameters\":{\"a\":{\"b\":\"}\"}}}\n{\"name\":\"g\",\"parameters\":{}}";
        for length in [1, 3, 7, 1000] {
            let calls = vec![call("f", "{\"a\":{\"b\":\"}\"}}"), call("g", "{}")];
            assert_eq!(hear(two, length), (String::new(), calls));
            for text in [
                "Hello {you}",
                "  hi",
                "",
                " \n",
                "{\"name\":\"f\",\"para",
                "{\"no\":1} call",
                "{no}",
                // Documents of a form of their own, which begin as calls do.
                "{\"name\":\"h\",\"parameters\":{}}",
                "{\"name\":\"f\",\"parameters\":{},\"more\":1}",
                "{\"name\":\"f\",\"parameters\":1}",
                "{\"name\": \"f\", \"parameters\": {}}",
                "{\"name\":1}",
            ] {
                assert_eq!(hear(text, length), (text.to_owned(), vec![]), "{length}");
            }
            // A second call that the limit of tokens cuts off.
            let (text, calls) = hear("{\"name\":\"f\",\"parameters\":{}}\n{\"na", length);
            assert_eq!((text.trim_start(), calls.len()), ("{\"na", 1));
        }
        assert_eq!(CallDetector::new(None).push("{\"name\":\"f\",\"parameters\":{}}").calls, []);
    }
}
