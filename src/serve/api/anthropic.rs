//! Anthropic's Messages API: `/v1/messages`, as its clients and coding agents call it.

use super::answer::ApiAnswer;
use super::calls::{CallDetector, Said, ToolCall};
use super::dialogue::{self, Content, Dialogue, Prompt};
use super::fields::{Fields, wrong_kind};
use super::messages::{self, Part};
use super::run::{ParsedRequest, Usage, Wording, unique};
use super::tools::{self, Layout, Tools};
use super::{Call, form, options};
use crate::engine::request::{CompleteReply, ReplyEnd, ReplyToken};
use crate::sequence::Finish;
use crate::serve::http::{ApiError, LastWords};
use crate::serve::model::Model;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers a request.
///
/// # Errors
/// 400: a field is wrong. 503: the model is loading.
pub(super) fn respond(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    let name = call.model_name(&fields, &model)?;
    let limit = fields.integer("max_tokens", 1..=i64::from(i32::MAX))?.ok_or_else(|| fields.missing("max_tokens"))?;
    let tools = tools::read(&fields, Layout::Input, model.template.calls())?;
    let mut ask = options::read(&fields, &[], model.shape.vocab, &call.service.defaults.get())?;
    ask.limit = limit as usize;
    ask.stop.extend(options::stops(&fields, "stop_sequences")?);
    let (stream, _) = options::stream(&fields)?;
    let form = tools::form_with(tools.as_ref(), form::read_anthropic(&fields)?)?;
    let prompt = read_prompt(call, &fields, tools.as_ref(), &model)?;
    let listener = tools::give_prompt(&mut ask, prompt, tools.as_ref());
    let answer = MessageWording {
        id: unique("msg_"),
        model: name,
        listener,
        content: Vec::new(),
        open: None,
        usage: Usage { prompt: ask.prompt.len(), ..Usage::default() },
        ending: None,
    };
    Ok(ApiAnswer::replies(ParsedRequest { model, asks: vec![ask], form, stream, forgotten: 0 }, answer))
}
/// Counts the prompt tokens of a request.
///
/// # Errors
/// As [`respond`].
pub(super) fn count(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    call.model_name(&fields, &model)?;
    let tools = tools::read(&fields, Layout::Input, model.template.calls())?;
    form::read_anthropic(&fields)?;
    Ok(json!({"input_tokens": read_prompt(call, &fields, tools.as_ref(), &model)?.tokens.len()}).into())
}

/// The body of an error in the format of Anthropic's API.
pub(super) fn error(e: &ApiError) -> Value {
    let kind = match e.status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        503 => "overloaded_error",
        504 => "timeout_error",
        status if status < 500 => "invalid_request_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": e.message}})
}

/// The prefix of a line that a coding agent puts into its system message for Anthropic's servers only. It differs in
/// each request, so with it no prompt could reuse the cache.
const BILLING: &str = "x-anthropic-billing-header:";

fn without_billing(part: &str) -> &str {
    match part.strip_prefix(BILLING) {
        Some(rest) => rest.split_once('\n').map_or("", |(_, behind)| behind),
        None => part,
    }
}

fn read_prompt(call: &Call<'_>, fields: &Fields<'_>, tools: Option<&Tools>, model: &Model) -> Result<Prompt, ApiError> {
    let mut dialogue = Dialogue::default();
    if let Some(parts) = messages::parts(fields, "system")? {
        let unbilled = |part: Part| match part {
            Part::Text(text) => Part::Text(without_billing(&text).to_owned()),
            other => other,
        };
        dialogue.add_message("system", messages::join(parts.into_iter().map(unbilled), None));
    }
    messages::list(fields)?.iter().try_for_each(|message| read_message(message, &mut dialogue))?;
    let dialogue = call.complete(dialogue, fields, tools, model);
    dialogue.encode(model, "messages").map_err(|e| in_anthropics_words(e, model))
}

/// Rewords the error for a prompt that is too long, so that Anthropic's clients recognise it and shorten the
/// conversation.
fn in_anthropics_words(e: ApiError, model: &Model) -> ApiError {
    let tokens = e.message.split_once(" tokens").and_then(|(before, _)| before.rsplit(' ').next());
    match tokens.filter(|_| e.code == Some(dialogue::TOO_LONG)).and_then(|tokens| tokens.parse::<usize>().ok()) {
        Some(tokens) => {
            let message = format!("prompt is too long: {tokens} tokens > {} maximum; {}", model.context, e.message);
            ApiError { message, ..e }
        }
        None => e,
    }
}

fn read_message(message: &Fields<'_>, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    let role = message.word("role", &["user", "assistant", "system"])?.ok_or_else(|| message.missing("role"))?;
    match message.get("content") {
        // Clients that saved no answer, for example after a cancelled one, send null.
        None if role == "assistant" => dialogue.add_message(role, Content::default()),
        None => return Err(message.missing("content")),
        Some(Value::String(text)) => dialogue.add_message(role, text.as_str().into()),
        Some(Value::Array(_)) => read_blocks(&message.objects("content")?.unwrap_or_default(), role, dialogue)?,
        Some(value) => return Err(wrong_kind(&message.path("content"), value, "a text, or a list of blocks")),
    }
    Ok(())
}

/// Whether blocks belong to tools that run on Anthropic's servers. Their findings are in the text that follows.
fn is_a_services(kind: &str) -> bool {
    matches!(kind, "server_tool_use" | "mcp_tool_use") || kind.ends_with("_tool_result")
}

/// Adds a message's content blocks to the dialogue. Consecutive text blocks are joined.
fn read_blocks(blocks: &[Fields<'_>], role: &str, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    if blocks.iter().all(|block| block.text("type").is_ok_and(|kind| kind.is_some_and(is_a_services))) && role == "user"
    {
        dialogue.add_message(role, Content::default());
        return Ok(());
    }
    let mut parts: Vec<Part> = Vec::new();
    let say = |parts: &mut Vec<Part>, dialogue: &mut Dialogue| {
        let content = messages::join(parts.drain(..), None);
        if content != Content::default() {
            dialogue.add_message(role, content);
        }
    };
    for block in blocks {
        match (block.required("type")?, role) {
            ("tool_use", "assistant") => {
                say(&mut parts, dialogue);
                dialogue.add_call(block.required("id")?, block.required("name")?, messages::arguments(block, "input")?);
            }
            ("tool_result", "user") => {
                say(&mut parts, dialogue);
                let mut result = messages::result(block, "content");
                if block.boolean("is_error")?.unwrap_or(false) {
                    result.text.insert_str(0, "Error: ");
                }
                dialogue.add_result(block.required("tool_use_id")?, None, result);
            }
            (kind, _) if is_a_services(kind) => {}
            _ => parts.push(Part::read(block)?),
        }
    }
    say(&mut parts, dialogue);
    Ok(())
}

/// Formats replies as messages of Anthropic's API.
struct MessageWording {
    id: String,
    model: String,
    listener: CallDetector,
    /// The content blocks of the answer that are complete.
    content: Vec<Value>,
    /// The block in progress: its type, `text` or `thinking`, and its text.
    open: Option<(&'static str, String)>,
    usage: Usage,
    /// The reason for the end, and the stop text if one ended it.
    ending: Option<(&'static str, Option<String>)>,
}

impl MessageWording {
    fn object(&self) -> Value {
        let (reason, stop) = self.ending.clone().unzip();
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": self.content,
            "stop_reason": reason, "stop_sequence": stop.flatten(), "usage": self.usage(),
        })
    }

    fn usage(&self) -> Value {
        json!({
            "input_tokens": self.usage.prompt - self.usage.cached, "cache_read_input_tokens": self.usage.cached,
            "cache_creation_input_tokens": 0, "output_tokens": self.usage.reply,
        })
    }

    /// The event that begins a content block in a streamed answer.
    fn start(&self, block: &Value) -> String {
        event("content_block_start", json!({"index": self.content.len(), "content_block": block}))
    }

    fn delta(&self, delta: &Value) -> String {
        event("content_block_delta", json!({"index": self.content.len(), "delta": delta}))
    }

    /// Ends the block in progress; `block` is its complete form.
    fn stop(&mut self, block: Value) -> String {
        let stop = event("content_block_stop", json!({"index": self.content.len()}));
        self.content.push(block);
        stop
    }

    /// Adds text to a block of type `kind`, and begins one if none is in progress.
    fn say(&mut self, kind: &'static str, text: &str) -> String {
        let closed =
            if self.open.as_ref().is_some_and(|(open, _)| *open != kind) { self.close() } else { String::new() };
        let start = if self.open.is_none() { self.start(&block(kind, "")) } else { String::new() };
        self.open.get_or_insert((kind, String::new())).1.push_str(text);
        closed + &start + &self.delta(&json!({"type": format!("{kind}_delta"), kind: text}))
    }

    /// Ends the content block in progress, if there is one, and returns its events.
    fn close(&mut self) -> String {
        let Some((kind, text)) = self.open.take() else { return String::new() };
        self.stop(block(kind, &text))
    }

    /// Adds a block with a function call.
    fn call(&mut self, call: &ToolCall) -> String {
        let name = call.called.told();
        let block = |input: &Value| json!({"type": "tool_use", "id": call.id, "name": name, "input": input});
        let closed = self.close();
        let start = self.start(&block(&json!({})));
        let delta = self.delta(&json!({"type": "input_json_delta", "partial_json": call.arguments}));
        closed + &start + &delta + &self.stop(block(&call.input()))
    }

    fn add(&mut self, said: Vec<Said>) -> String {
        let say = |part| match part {
            Said::Text(text) => self.say("text", &text),
            Said::Call(call) => self.call(&call),
        };
        said.into_iter().map(say).collect()
    }
}

/// A block of text. A thought has a signature, by which Anthropic's servers know their own.
fn block(kind: &str, text: &str) -> Value {
    let mut block = json!({"type": kind, kind: text});
    if kind == "thinking" {
        block["signature"] = "".into();
    }
    block
}

fn event(kind: &str, mut data: Value) -> String {
    data["type"] = kind.into();
    format!("event: {kind}\ndata: {data}\n\n")
}

impl Wording for MessageWording {
    fn whole(&mut self, replies: Vec<CompleteReply>) -> Value {
        self.replay(replies);
        self.object()
    }

    fn begin(&mut self) -> String {
        event("message_start", json!({"message": self.object()})) + &self.idle()
    }

    fn token(&mut self, _: usize, token: ReplyToken) -> String {
        let thought = if token.thought.is_empty() { String::new() } else { self.say("thinking", &token.thought) };
        let said = self.listener.push(&token.text);
        thought + &self.add(said)
    }

    fn end(&mut self, choice: usize, end: ReplyEnd) -> String {
        self.usage = Usage::default();
        self.usage.add(choice, 1, &end);
        let said = self.listener.push_last(&end.text);
        let events = self.add(said) + &self.close();
        self.ending = Some(match (end.generation.finish, end.stop) {
            (Finish::Length, _) => ("max_tokens", None),
            _ if self.listener.calls > 0 => ("tool_use", None),
            (_, Some(stop)) => ("stop_sequence", Some(stop)),
            (_, None) => ("end_turn", None),
        });
        events
    }

    fn finish(&mut self) -> String {
        let (reason, stop) = self.ending.clone().unzip();
        let delta = json!({"stop_reason": reason, "stop_sequence": stop.flatten()});
        event("message_delta", json!({"delta": delta, "usage": self.usage()})) + &event("message_stop", json!({}))
    }

    fn last_words(&self) -> LastWords {
        |e| format!("event: error\ndata: {}\n\n", error(e))
    }

    fn idle(&mut self) -> String {
        event("ping", json!({}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::Generation;
    use crate::serve::api::tests::{end, token};
    use crate::text::CallSyntax;

    fn answer(has_tools: bool) -> MessageWording {
        MessageWording {
            id: "msg_1".into(),
            model: "demo".into(),
            listener: CallDetector::new(
                if has_tools { vec!["f".into(), "g".into()] } else { Vec::new() },
                CallSyntax::Json,
            ),
            content: Vec::new(),
            open: None,
            usage: Usage { prompt: 3, ..Usage::default() },
            ending: None,
        }
    }

    fn parts(events: &str) -> Vec<Value> {
        let parts = events.split("\n\n").filter_map(|event| event.split_once("data: "));
        parts.map(|(_, data)| serde_json::from_str(data).unwrap()).collect()
    }

    #[test]
    fn calls_are_blocks_of_their_own() {
        let mut answer = answer(true);
        let mut events = answer.begin();
        for piece in ["{\"name\":\"f\",", "\"parameters\":{\"a\":1}}", "\n{\"name\":\"g\",\"parameters\":{}}"] {
            events += &answer.token(0, token(piece));
        }
        events += &(answer.end(0, end()) + &answer.finish());
        let parts = parts(&events);
        let kinds: Vec<&str> = parts.iter().map(|part| part["type"].as_str().unwrap()).collect();
        let block = ["content_block_start", "content_block_delta", "content_block_stop"];
        let all = [&["message_start", "ping"][..], &block, &block, &["message_delta", "message_stop"]].concat();
        assert_eq!(kinds, all);
        assert_eq!(
            (&parts[2]["content_block"]["name"], &parts[2]["content_block"]["input"]),
            (&json!("f"), &json!({}))
        );
        assert_eq!((&parts[3]["delta"]["partial_json"], &parts[5]["index"]), (&json!("{\"a\":1}"), &json!(1)));
        assert_eq!(parts[8]["delta"]["stop_reason"], "tool_use");
        assert_eq!(answer.content[0]["input"], json!({"a": 1}));
    }

    #[test]
    fn a_thought_is_a_block_before_the_text() {
        let mut answer = answer(false);
        let thoughts = ["Let me", " see."].map(|thought| ReplyToken { thought: thought.into(), ..token("") });
        let mut events: String = thoughts.into_iter().map(|token| answer.token(0, token)).collect();
        events += &(answer.token(0, token("Hi")) + &answer.end(0, end()));
        let parts = parts(&events);
        let kinds = parts.iter().map(|part| part["delta"]["type"].as_str().unwrap_or_default());
        assert_eq!(kinds.collect::<Vec<_>>(), ["", "thinking_delta", "thinking_delta", "", "", "text_delta", ""]);
        assert_eq!((&parts[0]["index"], &parts[4]["index"]), (&json!(0), &json!(1)));
        let thought = json!({"type": "thinking", "thinking": "Let me see.", "signature": ""});
        assert_eq!(answer.content, [thought, json!({"type": "text", "text": "Hi"})]);
    }

    #[test]
    fn text_is_one_block_and_the_end_says_why() {
        for (finish, stop, reason) in [
            (Finish::Stop, None, "end_turn"),
            (Finish::Length, None, "max_tokens"),
            (Finish::Stop, Some("###"), "stop_sequence"),
        ] {
            let mut answer = answer(false);
            let generation = Generation { finish, ..end().generation };
            let end = ReplyEnd { text: "!".into(), generation, stop: stop.map(str::to_owned), ..end() };
            let reply = CompleteReply {
                text: "Hi you!".into(),
                thought: String::new(),
                tokens: vec![token("Hi"), token(" you")],
                end: Some(end),
            };
            let whole = answer.whole(vec![reply]);
            assert_eq!(whole["content"], json!([{"type": "text", "text": "Hi you!"}]));
            assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!(reason), &json!(stop)));
            let usage = json!({"input_tokens": 2, "cache_read_input_tokens": 1, "cache_creation_input_tokens": 0, "output_tokens": 2});
            assert_eq!(whole["usage"], usage);
        }
    }
}
