//! Messages as input of chat templates.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The input of a chat template.
#[derive(Debug, Clone, Copy)]
pub struct ChatInput<'a> {
    /// The messages of the conversation, oldest first.
    pub messages: &'a [Message],
    /// The functions that the model may call, as OpenAI describes them: `{"type": "function", "function": {..}}`. Empty
    /// for a template without a syntax of calls ([`ChatTemplate::calls`](super::ChatTemplate::calls)).
    pub tools: &'a [Value],
    /// Whether the model is to think before it answers. `None`: as the template does without the setting.
    pub thinking: Option<bool>,
}

impl<'a> From<&'a [Message]> for ChatInput<'a> {
    fn from(messages: &'a [Message]) -> Self {
        Self { messages, tools: &[], thinking: None }
    }
}

impl<'a> From<&'a Vec<Message>> for ChatInput<'a> {
    fn from(messages: &'a Vec<Message>) -> Self {
        messages.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [Message; N]> for ChatInput<'a> {
    fn from(messages: &'a [Message; N]) -> Self {
        messages.as_slice().into()
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with role and content")]
pub struct Message {
    /// `system` (first message only), `user` or `assistant`; where the template has a syntax of calls, `tool` too.
    pub role: String,
    /// The content of the message.
    pub content: MessageContent,
    /// The name of the function whose result a `tool` message is.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The assistant's calls in OpenAI's format, with arguments as objects.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: MessageContent::Text(text.into()), ..Self::default() }
    }

    /// All text chosen by the message's author.
    pub(crate) fn texts(&self) -> Vec<&str> {
        let mut texts = vec![self.role.as_str()];
        texts.extend(self.name.as_deref());
        match &self.content {
            MessageContent::Text(text) => texts.push(text),
            MessageContent::Parts(parts) => texts.extend(parts.iter().flat_map(ContentPart::texts).map(String::as_str)),
        }
        self.tool_calls.iter().for_each(|call| texts_of(call, &mut texts));
        texts
    }

    /// Applies `change` to each of [`Message::texts`].
    pub(super) fn change_texts(&mut self, change: &mut dyn FnMut(&mut String)) {
        change(&mut self.role);
        self.name.as_mut().into_iter().for_each(&mut *change);
        match &mut self.content {
            MessageContent::Text(text) => change(text),
            MessageContent::Parts(parts) => parts.iter_mut().for_each(|part| {
                let texts = [&mut part.text, &mut part.source_lang_code, &mut part.target_lang_code];
                texts.into_iter().flatten().for_each(&mut *change);
            }),
        }
        self.tool_calls.iter_mut().for_each(|call| change_texts_of(call, change));
    }
}

/// Adds all strings in a value, including object keys.
pub(super) fn texts_of<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(values) => values.iter().for_each(|value| texts_of(value, texts)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            texts.push(name);
            texts_of(value, texts);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Applies `change` to each of [`texts_of`].
pub(super) fn change_texts_of(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| change_texts_of(value, change)),
        Value::Object(fields) => {
            let changed = std::mem::take(fields).into_iter().map(|(mut name, mut value)| {
                change(&mut name);
                change_texts_of(&mut value, change);
                (name, value)
            });
            *fields = changed.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The content of a message: the OpenAI API allows text or parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "the content of a message is text, or a list of parts such as {\"type\": \"text\", \"text\": ..}"
)]
pub enum MessageContent {
    /// Plain text.
    Text(String),
    /// Parts, which Gemma's template joins without a separator.
    Parts(Vec<ContentPart>),
}

impl Default for MessageContent {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PartFields")]
pub struct ContentPart {
    /// `text`. Others, such as `image`, are refused.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The language that the text is in, such as `en` or `de-DE`: TranslateGemma's template wants it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_lang_code: Option<String>,
    /// The language that TranslateGemma translates the text to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_lang_code: Option<String>,
}

impl ContentPart {
    /// All text chosen by the message's author.
    fn texts(&self) -> impl Iterator<Item = &String> + Clone {
        [&self.text, &self.source_lang_code, &self.target_lang_code].into_iter().flatten()
    }
}

/// A part as it comes in a request. A part of another type has other fields; they are ignored, so that the refusal can
/// name the type.
#[derive(Deserialize)]
struct PartFields {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    source_lang_code: Option<String>,
    target_lang_code: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

impl TryFrom<PartFields> for ContentPart {
    type Error = &'static str;

    fn try_from(fields: PartFields) -> std::result::Result<Self, Self::Error> {
        let PartFields { kind, text, source_lang_code, target_lang_code, others } = fields;
        match kind == "text" && !others.is_empty() {
            true => Err("a text part has a type and a text"),
            false => Ok(ContentPart { kind, text, source_lang_code, target_lang_code }),
        }
    }
}
