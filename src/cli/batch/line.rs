//! An input line of `kiln batch`: a prompt with its settings, in Kiln's own format or in that of OpenAI's batch API.

use crate::cli::reply::{ReplyArgs, SamplingArgs, no_thoughts};
use crate::engine::request::Request;
use crate::sequence::prompt::{encode_messages, encode_text};
use crate::sequence::{Conversation, Generation, SequenceLimits};
use crate::text::{ChatTemplate, Message, MessageContent, StopMatcher, Tokenizer};
use crate::{Error, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// The fields of a line. They are named like the options of `kiln run`, and default to those of the command line.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case", expecting = "an object")]
struct BatchLine {
    // Read by `Marks`.
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "custom_id")]
    _custom_id: Option<IgnoredAny>,
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    system: Option<String>,
    raw: Option<bool>,
    think: Option<bool>,
    n: Option<usize>,
    temp: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    seed: Option<u64>,
    stop: Option<Stops>,
    ignore_eos: Option<bool>,
}

/// A line of OpenAI's batch API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenAi {
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "custom_id")]
    _custom_id: Option<IgnoredAny>,
    method: Option<String>,
    url: Option<String>,
    body: ChatRequest,
}

/// A request for a chat completion.
#[derive(Debug, Deserialize)]
#[serde(expecting = "the body to be an object")]
struct ChatRequest {
    messages: Vec<Message>,
    enable_thinking: Option<bool>,
    reasoning_effort: Option<String>,
    max_completion_tokens: Option<usize>,
    max_tokens: Option<usize>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<Stops>,
    ignore_eos: Option<bool>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The path of requests in OpenAI's batch API.
const CHAT: &str = "/v1/chat/completions";
/// Fields of a body that do not influence the reply.
const IGNORED: [&str; 8] =
    ["model", "user", "metadata", "store", "service_tier", "stream_options", "prompt_cache_key", "safety_identifier"];

impl TryFrom<OpenAi> for BatchLine {
    type Error = Error;

    fn try_from(line: OpenAi) -> Result<BatchLine> {
        let body = line.body;
        if line.method.is_some_and(|method| method != "POST") || line.url.is_some_and(|url| url != CHAT) {
            return Err(Error::input("the line asks another path than a batch has", format!("give POST and {CHAT}")));
        }
        let changes_nothing = |(name, value): (&String, &Value)| match value {
            _ if IGNORED.contains(&name.as_str()) => true,
            Value::Null | Value::Bool(false) => true,
            Value::Number(number) if name == "n" => number.as_f64() == Some(1.0),
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Array(list) => list.is_empty(),
            Value::Object(object) => object.is_empty() || *value == json!({"type": "text"}),
            _ => false,
        };
        if let Some((name, _)) = body.others.iter().find(|other| !changes_nothing(*other)) {
            return Err(Error::input(
                format!("a batch does not serve {name} of a body"),
                "leave it out, or ask `kiln serve`",
            ));
        }
        let mut messages = body.messages;
        messages.iter_mut().filter(|m| m.role == "developer").for_each(|m| m.role = "system".into());
        Ok(BatchLine {
            messages: Some(messages),
            think: body.enable_thinking.or(body.reasoning_effort.map(|effort| effort != "none")),
            n: body.max_completion_tokens.or(body.max_tokens),
            temp: body.temperature,
            top_k: body.top_k,
            top_p: body.top_p,
            min_p: body.min_p,
            repeat_penalty: body.repetition_penalty,
            seed: body.seed.map(|seed| seed as u64),
            stop: body.stop,
            ignore_eos: body.ignore_eos,
            ..BatchLine::default()
        })
    }
}

/// A line's ids, which are returned with the answer, and whether the line is in the format of OpenAI's batch API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, expecting = "an object")]
pub(super) struct Marks {
    id: Value,
    custom_id: Value,
    #[serde(deserialize_with = "is_there")]
    body: bool,
}

fn is_there<'de, D: serde::Deserializer<'de>>(value: D) -> std::result::Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

impl Marks {
    /// The ids of a line, as far as it can be parsed.
    pub(super) fn of(line: &[u8]) -> Marks {
        let is_object = line.trim_ascii_start().starts_with(b"{");
        serde_json::from_slice(line).ok().filter(|_| is_object).unwrap_or_default()
    }

    /// Whether an id is neither a string nor a 64-bit integer. Other values would not be returned unchanged.
    fn are_odd(&self) -> bool {
        let is_odd = |mark: &Value| !(mark.is_null() || mark.is_string() || mark.is_i64() || mark.is_u64());
        is_odd(&self.id) || is_odd(&self.custom_id)
    }

    /// The fields that the output line starts with: its index, and the ids of the input line.
    pub(super) fn head(&self, index: usize, request: String) -> Map<String, Value> {
        let mut head = Map::from_iter([("index".into(), index.into()), ("request".into(), request.into())]);
        let marks = [("id", &self.id), ("custom_id", &self.custom_id)].into_iter().filter(|(_, mark)| !mark.is_null());
        head.extend(marks.map(|(name, mark)| (name.to_owned(), mark.clone())));
        if self.body {
            head.insert("response".into(), Value::Null);
        }
        head
    }

    /// The answer in the format of OpenAI's batch API; null if the line has another format.
    pub(super) fn response(
        &self,
        model: &str,
        [text, thought]: [Option<&str>; 2],
        g: &Generation,
        prompt: usize,
    ) -> Value {
        if !self.body {
            return Value::Null;
        }
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
            message["reasoning_content"] = thought.into();
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": g.finish.name()});
        let tokens = g.tokens.len();
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens});
        let body = json!({"object": "chat.completion", "model": model, "choices": [choice], "usage": usage});
        json!({"response": {"status_code": 200, "body": body}, "error": null})
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Several(Vec<String>),
}

const REMEDY: &str = r#"write a line such as {"prompt": "Hello", "n": 50}"#;

/// Everything needed to read lines.
pub(super) struct Reader<'a> {
    pub(super) defaults: &'a ReplyArgs,
    pub(super) limits: SequenceLimits<'a>,
    /// `None`: the model has no tokenizer, and lines give token ids.
    pub(super) text: Option<(&'a Tokenizer, &'a ChatTemplate)>,
}

impl Reader<'_> {
    /// Reads the request of a line.
    ///
    /// # Errors
    /// Input: the line is not an object with these keys, a value is out of range, or the prompt does not fit the
    /// context.
    pub(super) fn read(&self, line: &[u8]) -> Result<Request> {
        match line.trim_ascii().first() {
            None => return Err(Error::input("the line is empty", REMEDY)),
            // serde would read an array as the fields' values in order.
            Some(b'[') => return Err(Error::input("the line is no JSON object", REMEDY)),
            Some(_) => {}
        }
        let unread = |e: serde_json::Error| {
            Error::input(format!("the line is not understood: {}", in_plain_words(&e.to_string())), REMEDY)
        };
        // A number outside of Rust's types fails here; later its id would be lost.
        let marks: Marks = serde_json::from_slice(line).map_err(unread)?;
        if marks.are_odd() {
            return Err(Error::input("the line's id is neither a text nor an integer of 64 bits", "give another one"));
        }
        let line: BatchLine = match marks.body {
            true => serde_json::from_slice::<OpenAi>(line).map_err(unread)?.try_into()?,
            false => serde_json::from_slice(line).map_err(unread)?,
        };
        let options = self.options(&line);
        options.sampler().validate()?;
        let tokenizer = self.text.map(|(tokenizer, _)| tokenizer);
        if tokenizer.is_none() && !options.stop.is_empty() {
            return Err(Error::input(
                "stop strings need a tokenizer, and the model directory has none",
                "leave out stop",
            ));
        }
        StopMatcher::new(&options.stop)?;
        if options.think && self.text.is_some_and(|(_, template)| !template.thinks()) {
            return Err(no_thoughts("leave out think"));
        }
        let prompt = self.encode(line, &options)?;
        Ok(options.request(prompt))
    }

    fn options(&self, line: &BatchLine) -> ReplyArgs {
        let d = self.defaults;
        ReplyArgs {
            raw: line.raw.unwrap_or(d.raw),
            think: line.think.unwrap_or(d.think),
            // An empty system message counts as none.
            system: line.system.clone().filter(|text| !text.is_empty()).or(d.system.clone()),
            n: line.n.or(d.n),
            sampling: SamplingArgs {
                temp: line.temp.unwrap_or(d.sampling.temp),
                top_k: line.top_k.unwrap_or(d.sampling.top_k),
                top_p: line.top_p.unwrap_or(d.sampling.top_p),
                min_p: line.min_p.unwrap_or(d.sampling.min_p),
                repeat_penalty: line.repeat_penalty.unwrap_or(d.sampling.repeat_penalty),
            },
            seed: line.seed.or(d.seed),
            stop: match &line.stop {
                Some(Stops::One(text)) => vec![text.clone()],
                Some(Stops::Several(texts)) => texts.clone(),
                None => d.stop.clone(),
            },
            ignore_eos: line.ignore_eos.unwrap_or(d.ignore_eos),
        }
    }

    fn encode(&self, line: BatchLine, options: &ReplyArgs) -> Result<Vec<u32>> {
        let with_text = || {
            let none = || Error::input("text needs a tokenizer, and the model directory has none", "give tokens");
            self.text.ok_or_else(none)
        };
        let clash = |what: &str| Err(Error::input(what.to_owned(), "leave it out"));
        if line.prompt.is_none() && line.raw.is_some() {
            return clash("raw goes with a prompt only");
        }
        if line.system.is_some() && (line.prompt.is_none() || options.raw) {
            return clash("system goes with a prompt in the chat template only");
        }
        if line.think == Some(true) && (line.tokens.is_some() || options.raw) {
            return clash("think goes with the chat template only");
        }
        let given = [line.prompt.is_some(), line.messages.is_some(), line.tokens.is_some()];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err(Error::input("the line has more than one of prompt, messages and tokens", "keep one"));
        }
        match (line.prompt, line.messages, line.tokens) {
            (Some(text), None, None) if options.raw => encode_text(with_text()?.0, &text, self.limits),
            (Some(text), None, None) => {
                let (tokenizer, template) = with_text()?;
                let mut conversation = Conversation::new(options.system.as_deref());
                conversation.ask(&text);
                encode_messages(tokenizer, template, options.input(conversation.messages()), self.limits)
            }
            (None, Some(mut messages), None) => {
                let (tokenizer, template) = with_text()?;
                messages.retain(|message| !(message.role == "system" && is_empty(&message.content)));
                encode_messages(tokenizer, template, options.input(&messages), self.limits)
            }
            (None, None, Some(ids)) => self.limits.check(0, &ids).map(|()| ids),
            _ => Err(Error::input("the line has none of prompt, messages and tokens", REMEDY)),
        }
    }
}

/// True if a message's content is empty.
fn is_empty(content: &MessageContent) -> bool {
    match content {
        MessageContent::Text(text) => text.is_empty(),
        MessageContent::Parts(parts) => {
            parts.iter().all(|part| part.kind == "text" && part.text.as_deref() == Some(""))
        }
    }
}

/// Replaces serde's Rust terms by JSON's.
fn in_plain_words(message: &str) -> String {
    const WORDS: [(&str, &str); 10] = [
        // serde sees only one line at a time.
        (" at line 1 column ", " at column "),
        ("expected value at", "it is no JSON at"),
        ("expected ident at", "it is no JSON at"),
        ("expected usize", "expected a whole number of 0 or more"),
        ("expected u64", "expected a whole number of 0 or more"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected f32", "expected a number"),
        ("data did not match any variant of untagged enum Stops", "stop is neither a text nor a list of texts"),
        (", expected one of `id`, `custom_id`, `prompt`", "; a line has `id`, `custom_id`, `prompt`"),
        (", expected one of `id`, `custom_id`, `method`", "; a line of OpenAI's has `custom_id`, `method`"),
    ];
    WORDS.iter().fold(message.to_owned(), |message, (theirs, plain)| message.replace(theirs, plain))
}
