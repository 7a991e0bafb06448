//! Ollama's API, as used by Home Assistant and Ollama's own clients. Streams are lines of JSON.

use super::answer::ApiAnswer;
use super::calls::{self, CallDetector, Said, ToolCall};
use super::dialogue::{self, Dialogue, Prompt, Speaker};
use super::fields::Fields;
use super::run::{ParsedRequest, Wording};
use super::tools::{self, Layout};
use super::{Call, form, logprobs, messages, options};
use crate::engine::request::{CompleteReply, ReplyEnd, ReplyToken, Request};
use crate::sequence::prompt::encode_text;
use crate::serve::http::{ApiError, LastWords};
use crate::serve::model::Model;
use crate::serve::service::Defaults;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The content type of lines of JSON.
const LINES: &str = "application/x-ndjson";

/// The version of Ollama whose API this implements, because clients refuse older ones. Kiln's own version is in
/// `/props`.
const API_LEVEL: &str = "0.6.4";

/// The body of an error in the format of Ollama's API.
pub(super) fn error(e: &ApiError) -> Value {
    json!({"error": e.message})
}

/// Sends the version of the API.
///
/// # Errors
/// None.
pub(super) fn version(_: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    Ok(json!({"version": API_LEVEL}).into())
}

/// Lists the model, under its name and its aliases.
///
/// # Errors
/// 503: the model is loading.
pub(super) fn tags(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let model = call.service.model()?;
    let describe = |name: &str| {
        json!({
            "name": name, "model": name, "modified_at": written(model.loaded), "size": model.published.bytes,
            // Ollama's own client cuts twelve digits off without checking.
            "digest": model.identity.digest(), "details": details(&model), "capabilities": CAPABILITIES,
        })
    };
    Ok(json!({"models": call.service.names(&model).map(describe).collect::<Vec<Value>>()}).into())
}

/// Lists the model as loaded, which it stays until the server ends.
///
/// # Errors
/// 503: the model is loading.
pub(super) fn running(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let model = call.service.model()?;
    let memory = call.service.metrics.device_bytes();
    let on_device = if model.is_on_cpu { 0 } else { memory };
    let model = json!({
        "name": model.name, "model": model.name, "size": memory, "digest": model.identity.digest(),
        "details": details(&model),
        // The latest time that Ollama's clients can read, because the model stays loaded.
        "expires_at": "9999-12-31T23:59:59Z", "size_vram": on_device, "context_length": model.context,
    });
    Ok(json!({"models": [model]}).into())
}

/// Describes the model under one of its names.
///
/// # Errors
/// 400: a field is wrong. 404: the name is another model's. 503: the model is loading.
pub(super) fn show(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    // The second is Ollama's older name for the field.
    let asked = fields.text("model")?.or(fields.text("name")?).ok_or_else(|| fields.missing("model"))?;
    call.own_name(asked, &model)?;
    let (shape, family) = (&model.shape, model.shape.architecture.name);
    let mut info = json!({
        "general.architecture": family,
        "general.basename": model.name,
        "general.parameter_count": model.published.parameters,
    });
    for (key, value) in [
        ("attention.head_count", shape.local.heads),
        ("attention.head_count_kv", shape.local.kv_heads),
        ("attention.key_length", shape.local.head_dim),
        ("attention.sliding_window", shape.window()),
        ("block_count", shape.layers.len()),
        // The server's context, not the model's maximum.
        ("context_length", model.context),
        ("embedding_length", shape.hidden),
        ("feed_forward_length", shape.ffn),
    ] {
        info[format!("{family}.{key}")] = json!(value);
    }
    Ok(json!({
        "modelfile": "", "parameters": "", "template": "", "license": "", "modified_at": written(model.loaded),
        "details": details(&model),
        "model_info": info,
        "capabilities": CAPABILITIES,
    })
    .into())
}

fn details(model: &Model) -> Value {
    let (published, family) = (&model.published, model.shape.architecture.name);
    json!({
        "parent_model": "", "format": published.format, "family": family, "families": [family],
        "parameter_size": published.size(), "quantization_level": published.quantization,
        "context_length": model.context, "embedding_length": model.shape.hidden,
    })
}

/// The model's capabilities in Ollama's terms.
const CAPABILITIES: [&str; 2] = ["completion", "tools"];

/// A time in RFC 3339 format.
fn written(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or_default().to_string()
}

/// Ollama's two paths that generate a reply: `/api/chat` and `/api/generate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Chat,
    Generate,
}

/// Answers `/api/chat` and `/api/generate`.
///
/// # Errors
/// 400: a field is wrong. 503: the model is loading.
pub(super) fn reply(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    let start = Instant::now();
    let kind = if call.request.path == "/api/chat" { Endpoint::Chat } else { Endpoint::Generate };
    let tools =
        if kind == Endpoint::Chat { tools::read(&fields, Layout::Nested, model.template.calls())? } else { None };
    let stream = fields.boolean("stream")?.unwrap_or(true);
    let form = tools::form_with(tools.as_ref(), form::read_ollama(&fields)?)?;
    let name = call.model_name(&fields, &model)?;
    let mut ask = read_options(&fields, &model, &call.service.defaults.get())?;
    ask.likelihoods = logprobs::read(&fields)?;
    let likely = ask.likelihoods.map(|_| model.clone());
    let mut words = OllamaWording { kind, model: name, start, likely, listener: CallDetector::default() };
    let prompt = match kind {
        Endpoint::Chat if fields.list("messages")?.unwrap_or_default().is_empty() => None,
        Endpoint::Chat => {
            let dialogue = call.complete(messages::read(&fields)?, &fields, tools.as_ref(), &model);
            Some(dialogue.encode_as_ollama(&fields, &model, "messages")?)
        }
        Endpoint::Generate => read_prompt(&fields, call, &model)?,
    };
    // A request without a prompt asks for the model to be loaded, and it is.
    let Some(prompt) = prompt else {
        return Ok(words.object("", &json!({"done": true, "done_reason": "load"})).into());
    };
    let forgotten = prompt.forgotten;
    words.listener = tools::give_prompt(&mut ask, prompt, tools.as_ref());
    Ok(ApiAnswer::replies(ParsedRequest { model, asks: vec![ask], form, stream, forgotten }, words))
}

/// The prompt from `prompt`, in the chat template unless `raw` is set. `None`: there is no text.
fn read_prompt(fields: &Fields<'_>, call: &Call<'_>, model: &Arc<Model>) -> Result<Option<Prompt>, ApiError> {
    let (text, system) = (fields.text("prompt")?.unwrap_or_default(), fields.text("system")?);
    let is_raw = fields.boolean("raw")?.unwrap_or(false);
    // Accepted without effect: there is a single exchange, and prompts are never cut.
    fields.boolean("truncate")?;
    if text.is_empty() {
        return Ok(None);
    }
    if is_raw {
        let tokens = encode_text(&model.tokenizer, text, model.limits());
        let tokens = tokens.map_err(|e| dialogue::refusal(&e, model, "prompt"))?;
        return Ok(Some(Prompt { tokens, ..Prompt::default() }));
    }
    let mut dialogue = Dialogue::default();
    if let Some(system) = system {
        dialogue.add_system(system);
    }
    dialogue.add(Speaker::User, text);
    call.complete(dialogue, fields, None, model).encode(model, "prompt").map(Some)
}

/// Reads the object `options` of a request: sampler settings and limits.
fn read_options(fields: &Fields<'_>, model: &Model, defaults: &Defaults) -> Result<Request, ApiError> {
    let none = Value::Object(Map::new());
    let given = match fields.object("options")? {
        Some(given) => given,
        None => Fields::of_body(&none)?,
    };
    let mut ask = options::read_lenient(&given, model.shape.vocab, defaults)?;
    // -2 is Ollama's word for a reply up to the end of the context.
    ask.limit = options::limit(&given, "num_predict", -2)?.unwrap_or(ask.limit);
    Ok(ask)
}

/// Formats replies in the format of Ollama's API.
struct OllamaWording {
    kind: Endpoint,
    /// The model's name in the answer.
    model: String,
    start: Instant,
    /// The model with the tokenizer, if likelihoods are requested.
    likely: Option<Arc<Model>>,
    listener: CallDetector,
}

impl OllamaWording {
    /// A line of a streamed answer, or a whole answer, with `text` and the fields of `more`.
    fn object(&self, text: &str, more: &Value) -> Value {
        let mut object = json!({"model": self.model, "created_at": written(SystemTime::now())});
        match self.kind {
            Endpoint::Chat => object["message"] = json!({"role": "assistant", "content": text}),
            Endpoint::Generate => object["response"] = text.into(),
        }
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more.clone());
        }
        object
    }

    fn said(&self, said: Vec<Said>, thought: &str, more: &Value) -> Value {
        let (text, calls) = calls::split(said);
        let mut object = self.object(&text, more);
        if !thought.is_empty() {
            let within = if self.kind == Endpoint::Chat { &mut object["message"] } else { &mut object };
            within["thinking"] = thought.into();
        }
        if !calls.is_empty() {
            let call = |call: &ToolCall| json!({"id": call.id, "function": {"name": call.called.told(), "arguments": call.input()}});
            object["message"]["tool_calls"] = calls.iter().map(call).collect();
        }
        object
    }

    /// Adds the tokens' likelihoods to an answer, or to a line of a stream, if requested.
    fn add_logprobs(&self, object: &mut Value, tokens: &[ReplyToken]) {
        let Some(model) = &self.likely else { return };
        let entry = |token: &ReplyToken| Some(logprobs::entry(&model.tokenizer, token, token.likelihood.as_ref()?));
        object["logprobs"] = tokens.iter().filter_map(entry).collect();
    }

    /// The fields that only the last line of a streamed answer has: counts and durations.
    fn ending(&self, end: &ReplyEnd) -> Value {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        json!({
            "done": true, "done_reason": end.generation.finish.name(), "total_duration": nanos(self.start.elapsed()),
            "load_duration": 0, "prompt_eval_count": end.generation.prompt, "prompt_eval_duration": nanos(end.prefill),
            "eval_count": end.generation.tokens.len(), "eval_duration": nanos(end.decode),
        })
    }
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

impl Wording for OllamaWording {
    fn whole(&mut self, replies: Vec<CompleteReply>) -> Value {
        let whole = replies.into_iter().find_map(|mut reply| Some((reply.end.take()?, reply)));
        let Some((end, reply)) = whole else { return Value::Null };
        let said = self.listener.push_last(&reply.text);
        let mut answer = self.said(said, &reply.thought, &self.ending(&end));
        self.add_logprobs(&mut answer, &reply.tokens);
        answer
    }

    fn content_type(&self) -> &'static str {
        LINES
    }

    fn begin(&mut self) -> String {
        String::new()
    }

    fn token(&mut self, _: usize, token: ReplyToken) -> String {
        let said = self.listener.push(&token.text);
        if said.is_empty() && token.thought.is_empty() && self.likely.is_none() {
            return String::new();
        }
        let mut answer = self.said(said, &token.thought, &json!({"done": false}));
        self.add_logprobs(&mut answer, &[token]);
        line(&answer)
    }

    fn end(&mut self, _: usize, end: ReplyEnd) -> String {
        let said = self.listener.push_last(&end.text);
        line(&self.said(said, "", &self.ending(&end)))
    }

    fn finish(&mut self) -> String {
        String::new()
    }

    fn last_words(&self) -> LastWords {
        |e| line(&error(e))
    }

    /// Lines of JSON have no comments, so a line without text is sent.
    fn idle(&mut self) -> String {
        line(&self.object("", &json!({"done": false})))
    }
}
