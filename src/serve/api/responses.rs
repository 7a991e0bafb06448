//! `/v1/responses`, stateless: each request has its whole conversation.

use super::answer::ApiAnswer;
use super::calls::{CallDetector, Said, ToolCall};
use super::dialogue::{Content, Dialogue, Speaker};
use super::fields::{Fields, shown, wrong_kind};
use super::run::{self, ParsedRequest, Usage, Wording, unique};
use super::tools::{self, Layout, told};
use super::{Call, form, messages, options};
use crate::engine::request::{CompleteReply, ReplyEnd, ReplyToken};
use crate::sequence::Finish;
use crate::serve::http::{ApiError, LastWords};
use crate::serve::model::Model;
use crate::text::SamplerConfig;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::SystemTime;

/// The names of the limit on a response's tokens, the path's own first.
const LIMITS: [&str; 4] = ["max_output_tokens", "max_completion_tokens", "max_tokens", "n_predict"];

/// Types of items that are dropped: thoughts of other models, and tools run by OpenAI's servers, whose findings are in
/// the text that follows.
const SILENT: [&str; 9] = [
    "reasoning",
    "web_search_call",
    "file_search_call",
    "image_generation_call",
    "code_interpreter_call",
    "mcp_list_tools",
    "mcp_call",
    "compaction",
    "tool_search_call",
];

/// Answers a request.
///
/// # Errors
/// 400: a field is wrong. 503: the model is loading.
pub(super) fn respond(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    let name = call.model_name(&fields, &model)?;
    if fields.list("include")?.unwrap_or_default().contains(&json!("message.output_text.logprobs")) {
        return Err(fields.unserved("include", "a response has no logprobs; chat completions have"));
    }
    let tools = tools::read(&fields, Layout::Flat, model.template.calls())?;
    let mut ask = options::read(&fields, &LIMITS, model.shape.vocab, &call.service.defaults.get())?;
    let (stream, _) = options::stream(&fields)?;
    let text = fields.object("text")?;
    let mut form = None;
    if let Some(text) = &text
        && let Some(format) = text.object("format")?
    {
        form = form::read_format(&format, form::Nested::No)?;
    }
    let form = tools::form_with(tools.as_ref(), form)?;
    let dialogue = call.complete(read_input(&fields)?, &fields, tools.as_ref(), &model);
    let prompt = dialogue.encode_truncated(&fields, &model, "input")?;
    let forgotten = prompt.forgotten;
    let listener = tools::give_prompt(&mut ask, prompt, tools.as_ref());
    let response = Response {
        id: unique("resp_"),
        created: run::seconds(SystemTime::now()),
        model: name,
        settings: settings(&fields, &ask.sampler),
        listener,
        output: Vec::new(),
        open: None,
        usage: Usage::default(),
        finish: Finish::Stop,
        sequence: 0,
    };
    Ok(ApiAnswer::replies(ParsedRequest { model, asks: vec![ask], form, stream, forgotten }, response))
}
/// Reads `instructions` and `input` of a request to the dialogue.
fn read_input(fields: &Fields<'_>) -> Result<Dialogue, ApiError> {
    let mut dialogue = Dialogue::default();
    if let Some(text) = fields.text("instructions")? {
        dialogue.add_system(text);
    }
    match fields.get("input") {
        None => return Err(fields.missing("input")),
        Some(Value::String(text)) => dialogue.add(Speaker::User, text.as_str()),
        Some(Value::Array(items)) if items.is_empty() => return Err(fields.wrong("input", "is empty")),
        Some(Value::Array(_)) => {
            fields.objects("input")?.unwrap_or_default().iter().try_for_each(|item| read_item(item, &mut dialogue))?;
        }
        Some(value) => {
            return Err(wrong_kind(&fields.path("input"), value, "a text, or a list of items"));
        }
    }
    Ok(dialogue)
}

fn read_item(item: &Fields<'_>, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    let id = item.text("call_id")?.unwrap_or_default();
    match item.text("type")?.unwrap_or("message") {
        "message" => {
            let role = item.required("role")?;
            let content = messages::content(item, "content")?;
            // Clients that saved no answer, for example after a cancelled one, send null.
            let content = content.or_else(|| (role == "assistant").then(Content::default));
            let content = content.ok_or_else(|| item.missing("content"))?;
            item.word("role", &["system", "developer", "user", "assistant"])?;
            dialogue.add_message(role, content);
        }
        "function_call" => {
            let name = told(item.required("name")?, item.text("namespace")?);
            dialogue.add_call(id, &name, messages::arguments(item, "arguments")?);
        }
        "custom_tool_call" => {
            let name = told(item.required("name")?, item.text("namespace")?);
            dialogue.add_call(id, &name, messages::custom_arguments(item.required("input")?));
        }
        kind if SILENT.contains(&kind) => {}
        // Built-in tools that the client runs, such as a shell. Each has its own name for the arguments.
        kind if kind.ends_with("_call") => {
            let asked = ["action", "operation", "arguments", "input"].iter().find_map(|name| item.get(name));
            dialogue.add_call(id, kind, asked.map_or_else(|| "{}".to_owned(), Value::to_string));
        }
        kind if kind.ends_with("_output") => dialogue.add_result(id, None, messages::result(item, "output")),
        kind => {
            return Err(item.unserved("type", &format!("{} is no item that is read here", shown(&kind.into()))));
        }
    }
    Ok(())
}

/// The settings of the request that the response repeats.
fn settings(fields: &Fields<'_>, sampler: &SamplerConfig) -> Map<String, Value> {
    let given = |name: &str, default: Value| (name.to_owned(), fields.get(name).cloned().unwrap_or(default));
    Map::from_iter([
        given("instructions", Value::Null),
        given("max_output_tokens", Value::Null),
        given("metadata", json!({})),
        given("parallel_tool_calls", json!(true)),
        given("temperature", shortest(sampler.temperature)),
        given("top_p", shortest(sampler.top_p)),
        given("tool_choice", json!("auto")),
        given("tools", json!([])),
        given("user", Value::Null),
        ("text".to_owned(), {
            let format = fields.get("text").and_then(|text| text.get("format")).filter(|format| !format.is_null());
            json!({"format": format.cloned().unwrap_or_else(|| json!({"type": "text"}))})
        }),
        ("background".to_owned(), json!(false)),
        ("previous_response_id".to_owned(), Value::Null),
        ("reasoning".to_owned(), json!({"effort": null, "summary": null})),
        ("store".to_owned(), json!(false)),
        given("truncation", json!("disabled")),
    ])
}

/// A number with the fewest digits that identify it; a direct conversion to f64 would show f32's rounding.
pub(super) fn shortest(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// The type of a message's part.
const TEXT: &str = "output_text";
/// The type of a thought's part.
const THOUGHT: &str = "reasoning_text";

/// A message or a thought that is being streamed.
struct TextItem {
    /// The type of the item's single content part: [`TEXT`] or [`THOUGHT`].
    kind: &'static str,
    id: String,
    text: String,
}

impl TextItem {
    fn object(&self, status: &str, content: Value) -> Value {
        let mut item = json!({"type": "message", "id": self.id, "status": status, "content": content});
        match self.kind {
            THOUGHT => (item["type"], item["summary"]) = ("reasoning".into(), json!([])),
            _ => item["role"] = "assistant".into(),
        }
        item
    }

    fn part(&self) -> Value {
        match self.kind {
            THOUGHT => json!({"type": THOUGHT, "text": self.text}),
            _ => json!({"type": TEXT, "text": self.text, "annotations": [], "logprobs": []}),
        }
    }
}

/// Formats replies as a response of OpenAI's Responses API.
struct Response {
    id: String,
    created: u64,
    model: String,
    settings: Map<String, Value>,
    listener: CallDetector,
    /// The output items that are complete.
    output: Vec<Value>,
    open: Option<TextItem>,
    usage: Usage,
    finish: Finish,
    /// The `sequence_number` of the next event.
    sequence: u64,
}

impl Response {
    fn object(&self, status: &str, error: Value) -> Value {
        let is_done = matches!(status, "completed" | "incomplete");
        let incomplete = if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        let mut object = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "error": error,
            "incomplete_details": incomplete, "model": self.model, "output": self.output,
        });
        let usage = json!({
            "input_tokens": self.usage.prompt,
            "input_tokens_details": {"cached_tokens": self.usage.cached},
            "output_tokens": self.usage.reply,
            "output_tokens_details": {"reasoning_tokens": self.usage.thought},
            "total_tokens": self.usage.prompt + self.usage.reply,
        });
        object["usage"] = if is_done { usage } else { Value::Null };
        if let Value::Object(map) = &mut object {
            map.extend(self.settings.clone());
        }
        object
    }

    /// The `status` of a response that has ended.
    fn status(&self) -> &'static str {
        if self.finish == Finish::Length { "incomplete" } else { "completed" }
    }

    fn event(&mut self, kind: &str, mut data: Value) -> String {
        data["type"] = kind.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        format!("event: {kind}\ndata: {data}\n\n")
    }

    /// An event about the only part of a text item.
    fn part_event(&mut self, item: &TextItem, name: &str, field: &str, value: Value) -> String {
        let index = self.output.len();
        let mut data = json!({"item_id": item.id, "output_index": index, "content_index": 0, field: value});
        if name.starts_with(TEXT) {
            data["logprobs"] = json!([]);
        }
        self.event(&format!("response.{name}"), data)
    }

    /// The event that begins an output item in a streamed answer.
    fn start(&mut self, item: Value) -> String {
        self.event("response.output_item.added", json!({"output_index": self.output.len(), "item": item}))
    }

    /// Ends the item in progress; `item` is its complete form.
    fn stop(&mut self, item: Value) -> String {
        let done = json!({"output_index": self.output.len(), "item": item});
        self.output.push(item);
        self.event("response.output_item.done", done)
    }

    /// Adds text to an item of parts of type `kind`, and begins one if none is in progress.
    fn say(&mut self, kind: &'static str, text: &str) -> String {
        let is_other = self.open.as_ref().is_some_and(|item| item.kind != kind);
        let mut events = if is_other { self.close() } else { String::new() };
        let mut item = self.open.take().unwrap_or_else(|| {
            let item = TextItem { kind, id: unique(if kind == TEXT { "msg_" } else { "rs_" }), text: String::new() };
            events += &self.start(item.object("in_progress", json!([])));
            events += &self.part_event(&item, "content_part.added", "part", item.part());
            item
        });
        if !text.is_empty() {
            item.text.push_str(text);
            events += &self.part_event(&item, &format!("{kind}.delta"), "delta", text.into());
        }
        self.open = Some(item);
        events
    }

    /// Ends the text item in progress.
    fn close(&mut self) -> String {
        let Some(item) = self.open.take() else { return String::new() };
        let text = self.part_event(&item, &format!("{}.done", item.kind), "text", item.text.as_str().into());
        let part = self.part_event(&item, "content_part.done", "part", item.part());
        text + &part + &self.stop(item.object(self.status(), json!([item.part()])))
    }

    /// Adds a call of a function or of a custom tool.
    fn call(&mut self, call: &ToolCall) -> String {
        let mut events = self.close();
        let (index, is_custom) = (self.output.len(), call.called.is_custom);
        let (kind, field, input, id) = match is_custom {
            true => ("custom_tool_call", "input", call.custom_input(), unique("ctc_")),
            false => ("function_call", "arguments", call.arguments.clone(), unique("fc_")),
        };
        let item = |status: &str, input: &str| {
            let mut item = json!({
                "type": kind, "id": id, "call_id": call.id, "name": call.called.name, field: input, "status": status,
            });
            if let Some(namespace) = &call.called.namespace {
                item["namespace"] = namespace.as_str().into();
            }
            item
        };
        events += &self.start(item("in_progress", ""));
        let part = if is_custom { "custom_tool_call_input" } else { "function_call_arguments" };
        let delta = json!({"item_id": id, "output_index": index, "delta": input});
        events += &self.event(&format!("response.{part}.delta"), delta);
        let done = json!({"item_id": id, "output_index": index, "name": call.called.name, field: input});
        events += &self.event(&format!("response.{part}.done"), done);
        events + &self.stop(item("completed", &input))
    }

    fn add(&mut self, said: Vec<Said>) -> String {
        let say = |part| match part {
            Said::Text(text) => self.say(TEXT, &text),
            Said::Call(call) => self.call(&call),
        };
        said.into_iter().map(say).collect()
    }
}

impl Wording for Response {
    fn whole(&mut self, replies: Vec<CompleteReply>) -> Value {
        self.replay(replies);
        self.object(self.status(), Value::Null)
    }

    fn begin(&mut self) -> String {
        let response = json!({"response": self.object("in_progress", Value::Null)});
        self.event("response.created", response.clone()) + &self.event("response.in_progress", response)
    }

    fn token(&mut self, _: usize, token: ReplyToken) -> String {
        let thought = if token.thought.is_empty() { String::new() } else { self.say(THOUGHT, &token.thought) };
        let said = self.listener.push(&token.text);
        thought + &self.add(said)
    }

    fn end(&mut self, choice: usize, end: ReplyEnd) -> String {
        self.usage.add(choice, 1, &end);
        self.finish = end.generation.finish;
        let said = self.listener.push_last(&end.text);
        let mut events = self.add(said);
        // An empty reply becomes a message without text.
        if self.output.is_empty() && self.open.is_none() {
            events += &self.say(TEXT, "");
        }
        events + &self.close()
    }

    fn finish(&mut self) -> String {
        let status = self.status();
        let response = json!({"response": self.object(status, Value::Null)});
        self.event(&format!("response.{status}"), response)
    }

    fn fail(&mut self, e: &ApiError) -> String {
        let error = json!({"code": "server_error", "message": e.message});
        let response = json!({"response": self.object("failed", error)});
        self.event("response.failed", response)
    }

    fn last_words(&self) -> LastWords {
        LAST_WORDS
    }

    /// Codex ends a stream without events after 5 minutes, and comments are no events. `response.in_progress` may be
    /// repeated until the first output.
    fn idle(&mut self) -> String {
        if self.open.is_some() || !self.output.is_empty() {
            return ":\n\n".into();
        }
        let response = json!({"response": self.object("in_progress", Value::Null)});
        self.event("response.in_progress", response)
    }
}

/// The event for an error when the state of the response is lost.
pub(super) const LAST_WORDS: LastWords = |e| {
    let error = json!({"type": "error", "code": e.code, "message": e.message, "param": e.param});
    format!("event: error\ndata: {error}\n\n")
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::api::tests::{end, token};
    use crate::text::CallSyntax;

    fn response() -> Response {
        Response {
            id: "resp_1".into(),
            created: 0,
            model: "demo".into(),
            settings: Map::new(),
            listener: CallDetector::new(vec!["f".into(), "g".into()], CallSyntax::Json),
            output: Vec::new(),
            open: None,
            usage: Usage::default(),
            finish: Finish::Stop,
            sequence: 0,
        }
    }

    #[test]
    fn a_response_that_says_nothing_yet_is_said_to_be_in_progress() {
        let mut response = response();
        let mut events = response.begin() + &response.idle() + &response.idle();
        events += &response.token(0, token("Hi"));
        let numbers: Vec<u64> = events
            .lines()
            .filter_map(|line| {
                serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok()?["sequence_number"].as_u64()
            })
            .collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "{events}");
        assert_eq!(events.matches("event: response.in_progress").count(), 3, "{events}");
        assert_eq!(response.idle(), ":\n\n");
    }

    #[test]
    fn a_thought_is_an_item_before_the_message() {
        let mut response = response();
        let thoughts = ["Let me", " see."].map(|thought| ReplyToken { thought: thought.into(), ..token("") });
        let mut events: String = thoughts.into_iter().map(|token| response.token(0, token)).collect();
        events += &response.token(0, token("Hi"));
        events += &(response.end(0, ReplyEnd { thought_tokens: 2, ..end() }) + &response.finish());
        let names: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
        let delta = "reasoning_text.delta";
        let begun = ["output_item.added", "content_part.added", delta, delta];
        let thought = [&begun[..], &["reasoning_text.done", "content_part.done", "output_item.done"]].concat();
        assert!(names.starts_with(&thought), "{names:?}");
        assert_eq!(response.output[0]["content"], json!([{"type": "reasoning_text", "text": "Let me see."}]));
        assert_eq!(response.output[1]["content"][0]["text"], "Hi");
        let whole = response.object("completed", Value::Null);
        assert_eq!(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
    }

    #[test]
    fn calls_are_items_of_their_own() {
        let mut response = response();
        let mut events = response.begin();
        for piece in ["{\"name\":\"f\",", "\"parameters\":{\"a\":1}}", "\n{\"name\":\"g\",\"parameters\":{}}"] {
            events += &response.token(0, token(piece));
        }
        events += &(response.end(0, end()) + &response.finish());
        let names: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
        let call =
            ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"];
        assert_eq!(names, [&["created", "in_progress"][..], &call, &call, &["completed"]].concat());
        let items: Vec<(&Value, &Value)> =
            response.output.iter().map(|item| (&item["name"], &item["arguments"])).collect();
        assert_eq!(items, [(&json!("f"), &json!("{\"a\":1}")), (&json!("g"), &json!("{}"))]);
    }
}
