//! A client's conversation, and its conversion to the messages and functions that the model's chat template accepts: an
//! optional system message, then turns of the user and the assistant in alternation.
//!
//! Clients send more than that: several system messages, consecutive messages of one role, results of tools, images.
//! Parts of one turn are joined. If the last turn is the assistant's, the reply continues it. A message never changes
//! the conversion of those before it, so that the cache has the beginning of the next prompt.

use super::fields::Fields;
use super::tools::Tools;
use crate::sequence::Conversation;
use crate::sequence::prompt::{encode_messages, encode_unfinished};
use crate::serve::http::ApiError;
use crate::serve::model::Model;
use crate::text::calls::CallMarks;
use crate::text::{CallSyntax, ChatInput, Message};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The separator between messages that are joined into one.
const JOINT: &str = "\n\n";

/// The author of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant,
}

/// A message's content: its text, with a note in place of each image or other unreadable part.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Content {
    pub text: String,
    /// The error for the first content that the model cannot read, such as an image.
    pub unread: Option<ApiError>,
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content { text: text.to_owned(), unread: None }
    }
}

/// A text, a call or a result within a turn.
#[derive(Debug, Clone, PartialEq)]
enum Saying {
    Text(Speaker, String),
    /// A function call: its name and its arguments as JSON.
    Call(String, String),
    /// A function's result, with the function's name if known.
    Result(Option<String>, String),
}

impl Saying {
    fn speaker(&self) -> Speaker {
        match self {
            Saying::Text(speaker, _) => *speaker,
            Saying::Call(..) => Speaker::Assistant,
            Saying::Result(..) => Speaker::User,
        }
    }
}

/// A conversation that is read from a request, message by message.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Dialogue {
    system: Vec<String>,
    said: Vec<Saying>,
    /// The name of the called tool, by the id of the call.
    calls: HashMap<String, String>,
    /// The last turn with an unreadable part, by its number among all turns, with the error for the first such part.
    /// `None` also if the user's text follows that part.
    unread: Option<(usize, ApiError)>,
    /// The number of turns read so far.
    turns: usize,
    /// The functions, for a template that takes them.
    tools: Vec<Value>,
    /// Whether the model thinks before it answers, as in [`ChatInput::thinking`].
    thinking: Option<bool>,
}

/// A conversation as tokens, ready to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    /// The tokens up to the beginning of the reply.
    pub tokens: Vec<u32>,
    /// The assistant's last message, which the reply continues.
    pub begun: String,
    /// True if the reply may have a thought before its text of the requested form.
    pub thinks: bool,
    /// The number of oldest exchanges left out, so that the prompt fits into the context.
    pub forgotten: usize,
}

impl Dialogue {
    /// Adds system text. As in Ollama, empty text is ignored, because clients send it when there is none; blanks are
    /// kept. Before all turns it becomes the system message. Later it begins the user's next turn: the template has no
    /// other place for it there, and a change at the beginning would make the cache useless.
    pub fn add_system(&mut self, text: impl Into<String>) {
        let text = text.into();
        match (text.is_empty(), self.said.is_empty()) {
            (true, _) => {}
            (false, true) => self.system.push(text),
            (false, false) => self.add(Speaker::User, text.as_str()),
        }
    }

    /// Adds the server's system message `own` if the request has none, its tools, and whether to think.
    pub fn complete(&mut self, own: Option<String>, tools: Option<&Tools>, syntax: CallSyntax, thinking: Option<bool>) {
        self.thinking = thinking;
        if self.system.is_empty() {
            self.system.extend(own);
        }
        let Some(tools) = tools else { return };
        match syntax {
            CallSyntax::Json => self.system.push(tools.instructions()),
            CallSyntax::Marked(CallMarks { system, .. }) => {
                if self.system.is_empty() {
                    self.system.extend(system.map(str::to_owned));
                }
                self.tools = tools.declarations();
            }
        }
    }

    /// Adds content to a speaker's turn.
    pub fn add(&mut self, speaker: Speaker, content: impl Into<Content>) {
        let Content { text, unread } = content.into();
        match self.said.last_mut() {
            Some(Saying::Text(last, said)) if *last == speaker => said.extend([JOINT, text.as_str()]),
            _ => self.push(Saying::Text(speaker, text)),
        }
        self.note_unread(unread);
    }

    fn push(&mut self, saying: Saying) {
        let continues = self.said.last().is_some_and(|last| last.speaker() == saying.speaker());
        self.turns += usize::from(!continues);
        self.said.push(saying);
    }

    fn note_unread(&mut self, unread: Option<ApiError>) {
        let is_known = self.unread.as_ref().is_some_and(|(turn, _)| *turn == self.turns);
        if let Some(e) = unread.filter(|_| !is_known) {
            self.unread = Some((self.turns, e));
        }
    }

    /// Adds a message of a role: system, developer or user, else the assistant.
    pub fn add_message(&mut self, role: &str, content: Content) {
        match role {
            "system" | "developer" => {
                self.add_system(content.text);
                self.note_unread(content.unread);
            }
            "user" => {
                // Each later request has the unreadable part again, so that it must not be refused once the user goes
                // on.
                if content.unread.is_none() && !content.text.is_empty() {
                    self.unread = None;
                }
                self.add(Speaker::User, content);
            }
            _ => self.add(Speaker::Assistant, content),
        }
    }

    /// Adds the assistant's call of a tool. `arguments` is JSON.
    pub fn add_call(&mut self, id: &str, name: &str, arguments: String) {
        self.calls.insert(id.to_owned(), name.to_owned());
        self.push(Saying::Call(name.to_owned(), arguments));
    }

    /// Adds a tool's result, which belongs to the user's turn. `name` is the tool's name if the request has it;
    /// otherwise it is taken from the call `id`.
    pub fn add_result(&mut self, id: &str, name: Option<&str>, content: Content) {
        let name = name.or_else(|| self.calls.get(id).map(String::as_str)).map(str::to_owned);
        self.push(Saying::Result(name, content.text));
        self.note_unread(content.unread);
    }

    /// The messages and functions for a template.
    ///
    /// # Errors
    /// 400: the user's newest turn, or a turn after it, has a part that is not text.
    pub fn into_messages(self, syntax: CallSyntax) -> Result<(Vec<Message>, Vec<Value>), ApiError> {
        let ends_in_reply = self.said.last().is_some_and(|last| last.speaker() == Speaker::Assistant);
        let newest = self.turns - usize::from(ends_in_reply && self.turns > 1);
        if let Some((_, e)) = self.unread.filter(|(turn, _)| *turn >= newest) {
            return Err(e);
        }
        let system = (!self.system.is_empty()).then(|| self.system.join(JOINT));
        // The template puts the system message into the user's turn; without one it becomes the user's message.
        if self.said.is_empty() {
            return Ok((system.map(|text| Message::new("user", text)).into_iter().collect(), self.tools));
        }
        // The template requires the user to begin, but some clients let the assistant greet first.
        let opens = self.said.first().is_some_and(|first| first.speaker() == Speaker::Assistant);
        let greeted = opens.then(|| Message::new("user", ""));
        let mut messages: Vec<Message> =
            system.map(|text| Message::new("system", text)).into_iter().chain(greeted).collect();
        match syntax {
            CallSyntax::Json => write_turns(self.said, &mut messages),
            CallSyntax::Marked(_) => write_native(self.said, &mut messages),
        }
        Ok((messages, self.tools))
    }

    /// Encodes the prompt, up to the beginning of the reply.
    ///
    /// # Errors
    /// 400 for `param`: the conversation exceeds the context, or the template refuses it. 400: as in
    /// [`Dialogue::into_messages`].
    pub fn encode(self, model: &Model, param: &str) -> Result<Prompt, ApiError> {
        let begun = match self.said.last() {
            Some(Saying::Text(Speaker::Assistant, text)) => text.clone(),
            _ => String::new(),
        };
        let thinking = self.thinking;
        let (messages, tools) = self.into_messages(model.template.calls())?;
        let is_unfinished = messages.last().is_some_and(|last| last.role == "assistant" && last.tool_calls.is_empty());
        let encode = if is_unfinished { encode_unfinished } else { encode_messages };
        let input = ChatInput { messages: &messages, tools: &tools, thinking };
        let tokens = encode(&model.tokenizer, &model.template, input, model.limits());
        let thinks = thinking == Some(true) && !is_unfinished;
        Ok(Prompt { tokens: tokens.map_err(|e| refusal(&e, model, param))?, begun, thinks, forgotten: 0 })
    }

    /// As [`Dialogue::encode`]. With `truncation: "auto"` in `fields` the oldest exchanges are dropped if the reply
    /// would have less than an eighth of the context, as in the chat of `kiln run`.
    ///
    /// # Errors
    /// As [`Dialogue::encode`]; with `truncation: "auto"` also if the last message is the assistant's.
    pub fn encode_truncated(self, fields: &Fields<'_>, model: &Model, param: &str) -> Result<Prompt, ApiError> {
        if fields.word("truncation", &["auto", "disabled"])? != Some("auto") {
            return self.encode(model, param);
        }
        self.encode_fitting(model, param)?
            .ok_or_else(|| fields.wrong("truncation", "is auto, and then the last message has to be the user's"))
    }

    /// As [`Dialogue::encode`]. With Ollama's `truncate: true` in `fields`, and if the last message is the user's, the
    /// oldest exchanges are dropped if the reply would have too little room.
    ///
    /// # Errors
    /// As [`Dialogue::encode`].
    pub fn encode_as_ollama(self, fields: &Fields<'_>, model: &Model, param: &str) -> Result<Prompt, ApiError> {
        let truncates = fields.boolean("truncate")?.unwrap_or(false);
        let is_asked = self.said.last().is_some_and(|last| last.speaker() == Speaker::User);
        match truncates && is_asked {
            true => self.encode_fitting(model, param)?.ok_or_else(|| fields.wrong(param, "has no question at its end")),
            false => self.encode(model, param),
        }
    }

    /// Encodes the prompt, and drops the oldest exchanges if the reply would have less than an eighth of the context.
    /// `None`: the last message is not the user's.
    fn encode_fitting(self, model: &Model, param: &str) -> Result<Option<Prompt>, ApiError> {
        let refused = |e| refusal(&e, model, param);
        let thinking = self.thinking;
        let (messages, tools) = self.into_messages(model.template.calls())?;
        let mut conversation = match model.template.calls() {
            CallSyntax::Json => Conversation::from_messages(messages).map_err(refused)?,
            CallSyntax::Marked(_) => Conversation::with_tools(messages, tools),
        };
        conversation.thinking = thinking;
        if !conversation.is_asked() {
            return Ok(None);
        }
        let fitted = conversation.fit(&model.tokenizer, &model.template, model.limits()).map_err(refused)?;
        let thinks = thinking == Some(true);
        Ok(Some(Prompt { tokens: fitted.ids, begun: String::new(), thinks, forgotten: fitted.dropped }))
    }
}

/// Writes alternating turns, for a template without a call syntax. Calls are written as the model writes them.
fn write_turns(said: Vec<Saying>, messages: &mut Vec<Message>) {
    let mut turn: Option<(Speaker, String)> = None;
    let mut was_call = false;
    let mut end = |(speaker, text): (Speaker, String)| messages.push(Message::new(role(speaker), text));
    for saying in said {
        let (speaker, is_call) = (saying.speaker(), matches!(saying, Saying::Call(..)));
        let text = match saying {
            Saying::Text(_, text) => text,
            Saying::Call(name, arguments) => format!("{{\"name\":{},\"parameters\":{arguments}}}", json!(name)),
            Saying::Result(name, text) => {
                let name = name.map(|name| format!(" of {name}")).unwrap_or_default();
                format!("Result{name}:\n{text}")
            }
        };
        match &mut turn {
            Some((last, begun)) if *last == speaker => {
                begun.push_str(if was_call && is_call { "\n" } else { JOINT });
                begun.push_str(&text);
            }
            _ => turn.replace((speaker, text)).into_iter().for_each(&mut end),
        }
        was_call = is_call;
    }
    turn.into_iter().for_each(end);
}

/// Writes calls and results as separate messages, for a template with a call syntax.
fn write_native(said: Vec<Saying>, messages: &mut Vec<Message>) {
    for saying in said {
        match saying {
            Saying::Text(speaker, text) => messages.push(Message::new(role(speaker), text)),
            Saying::Call(name, arguments) => {
                // Templates iterate over the arguments' names. Other text from a model becomes a single value.
                let object = serde_json::from_str(&arguments).ok().filter(Value::is_object);
                let arguments = object.unwrap_or_else(|| json!({"value": arguments}));
                let call = json!({"type": "function", "function": {"name": name, "arguments": arguments}});
                match messages.last_mut().filter(|last| last.role == "assistant") {
                    Some(last) => last.tool_calls.push(call),
                    None => messages.push(Message { tool_calls: vec![call], ..Message::new("assistant", "") }),
                }
            }
            Saying::Result(name, text) => {
                // Templates that print a result's name refuse a result without one.
                let name = Some(name.unwrap_or_else(|| "function".to_owned()));
                messages.push(Message { name, ..Message::new("tool", text) });
            }
        }
    }
}

fn role(speaker: Speaker) -> &'static str {
    match speaker {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
    }
}

/// The error for a prompt. For one that is too long it has OpenAI's code and wording, which gateways and agents look
/// for to shorten the conversation or to use another model.
pub(super) fn refusal(e: &crate::Error, model: &Model, param: &str) -> ApiError {
    let mut e = ApiError::from(e).param(param);
    let context = model.context;
    let lengths = [format!("longer than the context of {context}"), format!("too long: a context of {context}")];
    let is_length = lengths.iter().any(|words| e.message.contains(words));
    if !is_length {
        return e.code("invalid_value");
    }
    e.message.push_str(&format!(". This model's maximum context length is {context} tokens."));
    e.code(TOO_LONG)
}

/// OpenAI's code for a prompt that is longer than the context.
pub(super) const TOO_LONG: &str = "context_length_exceeded";
