//! A conversation as clients send it, and the messages and functions that the model's chat template takes of it: an optional
//! system message, then turns of the user and the assistant in alternation.
//!
//! Clients send more than that: several system messages, consecutive messages of one role, results of tools, images. What
//! belongs to one turn is joined. A conversation whose last turn is the assistant's is continued within that turn. Each
//! message leaves those before it as they are, so that the cache has the beginning of the next prompt.

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

/// What stands between messages that become one.
const JOINT: &str = "\n\n";

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant,
}

/// What a message says: its text, with a note for each image or the like in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Content {
    pub text: String,
    /// The refusal of the first part that the model cannot read.
    pub unread: Option<ApiError>,
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content { text: text.to_owned(), unread: None }
    }
}

/// One thing that is said in a turn.
#[derive(Debug, Clone, PartialEq)]
enum Saying {
    Text(Speaker, String),
    /// A call of a function: its name, and the JSON of its arguments.
    Call(String, String),
    /// What a function has returned, and its name where that is known.
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

/// A conversation as it is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Dialogue {
    system: Vec<String>,
    said: Vec<Saying>,
    /// Each call of a tool, by its id: the tool's name.
    calls: HashMap<String, String>,
    /// The last turn with a part that the model cannot read, by its number among all turns, and the refusal of the first such part.
    unread: Option<(usize, ApiError)>,
    /// Turns so far.
    turns: usize,
    /// The functions, for a template that takes them.
    tools: Vec<Value>,
}

/// A prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    /// Up to where the reply begins.
    pub tokens: Vec<u32>,
    /// The assistant's last message, which the reply goes on with.
    pub begun: String,
    /// The oldest exchanges that it is without, for want of room.
    pub forgotten: usize,
}

impl Dialogue {
    /// Adds system text. Empty text is none, as in Ollama: clients send it where nobody wrote any. Blanks are somebody's, and
    /// stay. Before all turns it is the system message's; later it begins the user's next turn, since the template has no other
    /// place for it there, and at the beginning it would change what the cache has.
    pub fn add_system(&mut self, text: impl Into<String>) {
        let text = text.into();
        match (text.is_empty(), self.said.is_empty()) {
            (true, _) => {}
            (false, true) => self.system.push(text),
            (false, false) => self.add(Speaker::User, text.as_str()),
        }
    }

    /// Adds what the server itself has to say: its own system message where the client begins with none, and the tools.
    pub fn complete(&mut self, own: Option<String>, tools: Option<&Tools>, syntax: CallSyntax) {
        if self.system.is_empty() {
            self.system.extend(own);
        }
        let Some(tools) = tools else { return };
        match syntax {
            CallSyntax::Json => self.system.push(tools.instructions()),
            CallSyntax::Marked(CallMarks { system, .. }) => {
                if self.system.is_empty() {
                    self.system.push((*system).to_owned());
                }
                self.tools = tools.declarations();
            }
        }
    }

    /// Adds what somebody says.
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

    /// Adds a message by its role.
    ///
    /// # Errors
    /// 400: there is no such role.
    pub fn add_message(&mut self, role: &str, content: Content, fields: &Fields<'_>) -> Result<(), ApiError> {
        match role {
            "system" | "developer" => {
                self.add_system(content.text);
                self.note_unread(content.unread);
            }
            "user" => self.add(Speaker::User, content),
            "assistant" => self.add(Speaker::Assistant, content),
            _ => {
                let what = format!("is {}, and has to be system, developer, user, assistant or tool", json!(role));
                return Err(fields.wrong("role", what));
            }
        }
        Ok(())
    }

    /// Adds a call of a tool that the assistant has made. `arguments` is JSON.
    pub fn add_call(&mut self, id: &str, name: &str, arguments: String) {
        self.calls.insert(id.to_owned(), name.to_owned());
        self.push(Saying::Call(name.to_owned(), arguments));
    }

    /// Adds what a tool has returned, which the model reads in the user's turn. `name` is the tool's, where the request names
    /// it; else the call of `id` does.
    pub fn add_result(&mut self, id: &str, name: Option<&str>, content: Content) {
        let name = name.or_else(|| self.calls.get(id).map(String::as_str)).map(str::to_owned);
        self.push(Saying::Result(name, content.text));
        self.note_unread(content.unread);
    }

    /// The messages for a template, and the functions.
    ///
    /// # Errors
    /// 400: the newest turn of the user, or what follows it, has a part that is no text.
    pub fn into_messages(self, syntax: CallSyntax) -> Result<(Vec<Message>, Vec<Value>), ApiError> {
        let ends_in_reply = self.said.last().is_some_and(|last| last.speaker() == Speaker::Assistant);
        let newest = self.turns - usize::from(ends_in_reply && self.turns > 1);
        if let Some((_, e)) = self.unread.filter(|(turn, _)| *turn >= newest) {
            return Err(e);
        }
        let system = (!self.system.is_empty()).then(|| self.system.join(JOINT));
        // The template has no turn for the system: its text stands before the user's. Alone, it is the user's.
        if self.said.is_empty() {
            return Ok((system.map(|text| Message::new("user", text)).into_iter().collect(), self.tools));
        }
        // It begins with the user. Some clients let the assistant greet first.
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

    /// The prompt, up to where the reply begins.
    ///
    /// # Errors
    /// 400 for `param`: the conversation exceeds the context, or the template refuses it. 400: as for [`Dialogue`], a part is no
    /// text.
    pub fn encode(self, model: &Model, param: &str) -> Result<Prompt, ApiError> {
        let begun = match self.said.last() {
            Some(Saying::Text(Speaker::Assistant, text)) => text.clone(),
            _ => String::new(),
        };
        let (messages, tools) = self.into_messages(model.template.calls())?;
        let is_unfinished = messages.last().is_some_and(|last| last.role == "assistant" && last.tool_calls.is_empty());
        let encode = if is_unfinished { encode_unfinished } else { encode_messages };
        let input = ChatInput { messages: &messages, tools: &tools };
        let tokens = encode(&model.tokenizer, &model.template, input, model.limits());
        Ok(Prompt { tokens: tokens.map_err(|e| refusal(&e, model, param))?, begun, forgotten: 0 })
    }

    /// As [`Dialogue::encode`]. With `truncation: "auto"` in `fields` it is without the oldest exchanges where they leave the
    /// reply less than an eighth of the context, as in the chat of `kiln run`.
    ///
    /// # Errors
    /// As [`Dialogue::encode`]; with `truncation: "auto"` also where the last message is the assistant's.
    pub fn encode_truncated(self, fields: &Fields<'_>, model: &Model, param: &str) -> Result<Prompt, ApiError> {
        match fields.text("truncation")?.unwrap_or("disabled") {
            "disabled" => return self.encode(model, param),
            "auto" => {}
            other => {
                return Err(fields.wrong("truncation", format!("is {}, and has to be auto or disabled", json!(other))));
            }
        }
        self.encode_fitting(model, param)?
            .ok_or_else(|| fields.wrong("truncation", "is auto, and then the last message has to be the user's"))
    }

    /// As [`Dialogue::encode`], as Ollama's `truncate` in `fields` has it: where it is true, and the last message the user's, it is
    /// without the oldest exchanges where they leave the reply too little.
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

    /// The prompt without the oldest exchanges where they leave the reply less than an eighth of the context. `None`: the last
    /// message is not the user's.
    fn encode_fitting(self, model: &Model, param: &str) -> Result<Option<Prompt>, ApiError> {
        let refused = |e| refusal(&e, model, param);
        let (messages, tools) = self.into_messages(model.template.calls())?;
        let mut conversation = match model.template.calls() {
            CallSyntax::Json => Conversation::from_messages(messages).map_err(refused)?,
            CallSyntax::Marked(_) => Conversation::with_tools(messages, tools),
        };
        if !conversation.is_asked() {
            return Ok(None);
        }
        let fitted = conversation.fit(&model.tokenizer, &model.template, model.limits()).map_err(refused)?;
        Ok(Some(Prompt { tokens: fitted.ids, begun: String::new(), forgotten: fitted.dropped }))
    }
}

/// Writes turns in alternation, for a template that knows no calls. Calls stand as the model writes them.
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

/// Writes messages with calls and results of their own, for a template that knows them.
fn write_native(said: Vec<Saying>, messages: &mut Vec<Message>) {
    for saying in said {
        match saying {
            Saying::Text(speaker, text) => messages.push(Message::new(role(speaker), text)),
            Saying::Call(name, arguments) => {
                // Templates look for names in them. What some model has written instead of an object is one value.
                let object = serde_json::from_str(&arguments).ok().filter(Value::is_object);
                let arguments = object.unwrap_or_else(|| json!({"value": arguments}));
                let call = json!({"type": "function", "function": {"name": name, "arguments": arguments}});
                match messages.last_mut().filter(|last| last.role == "assistant") {
                    Some(last) => last.tool_calls.push(call),
                    None => messages.push(Message { tool_calls: vec![call], ..Message::new("assistant", "") }),
                }
            }
            Saying::Result(name, text) => {
                // A template that names results refuses one without a name.
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

/// The error for a prompt. One that is too long has OpenAI's code for it.
pub(super) fn refusal(e: &crate::Error, model: &Model, param: &str) -> ApiError {
    let e = ApiError::from(e).param(param);
    let context = model.context;
    let lengths = [format!("longer than the context of {context}"), format!("too long: a context of {context}")];
    let is_length = lengths.iter().any(|words| e.message.contains(words));
    e.code(if is_length { TOO_LONG } else { "invalid_value" })
}

/// OpenAI's code of a prompt that is longer than the context.
pub(super) const TOO_LONG: &str = "context_length_exceeded";
