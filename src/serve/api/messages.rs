//! Turns the messages of a request into a conversation that Gemma's chat template takes: an optional system message, then
//! turns of the user and the assistant in alternation.
//!
//! Clients send more than that: several system messages, consecutive messages of one role, results of tools. What belongs
//! to one turn is joined. A conversation whose last turn is the assistant's is continued within that turn.

use super::fields::Fields;
use super::tools::Tools;
use crate::sequence::Conversation;
use crate::sequence::prompt::{encode_messages, encode_unfinished};
use crate::serve::http::ApiError;
use crate::serve::model::Model;
use crate::text::Message;
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

/// A conversation as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Dialogue {
    system: Vec<String>,
    turns: Vec<(Speaker, String)>,
    /// Each call of a tool, by its id: the tool's name.
    calls: HashMap<String, String>,
}

impl Speaker {
    fn role(self) -> &'static str {
        match self {
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        }
    }
}

impl Dialogue {
    /// Adds text to the system message. Empty text is none, as in Ollama: clients send it where nobody wrote any. Blanks
    /// are somebody's, and stay.
    pub fn add_system(&mut self, text: impl Into<String>) {
        self.system.extend(Some(text.into()).filter(|text| !text.is_empty()));
    }

    /// Adds what the server itself has to say: its own system message where the client has none, and the tools.
    pub fn complete_system(&mut self, own: Option<String>, tools: Option<&Tools>) {
        if self.system.is_empty() {
            self.system.extend(own);
        }
        self.system.extend(tools.map(Tools::instructions));
    }

    /// Adds what somebody says.
    pub fn add(&mut self, speaker: Speaker, text: &str) {
        match self.turns.last_mut().filter(|(last, _)| *last == speaker) {
            Some((_, said)) => said.extend([JOINT, text]),
            None => self.turns.push((speaker, text.to_owned())),
        }
    }

    /// Adds a message by its role.
    ///
    /// # Errors
    /// 400: there is no such role.
    pub fn add_message(&mut self, role: &str, text: &str, fields: &Fields<'_>) -> Result<(), ApiError> {
        match role {
            "system" | "developer" => self.add_system(text),
            "user" => self.add(Speaker::User, text),
            "assistant" => self.add(Speaker::Assistant, text),
            _ => {
                let what = format!("is {}, and has to be system, developer, user, assistant or tool", json!(role));
                return Err(fields.wrong("role", what));
            }
        }
        Ok(())
    }

    /// Adds a call of a tool that the assistant has made, as the model writes calls.
    pub fn add_call(&mut self, id: &str, name: &str, arguments: Value) {
        self.calls.insert(id.to_owned(), name.to_owned());
        self.add(Speaker::Assistant, &json!({"name": name, "parameters": arguments}).to_string());
    }

    /// Adds what a tool has returned, which the model reads in the user's turn. `name` is the tool's, where the request names
    /// it; else the call of `id` does.
    pub fn add_result(&mut self, id: &str, name: Option<&str>, text: &str) {
        let called = || self.calls.get(id).map(String::as_str);
        let name = name.or_else(called).map(|name| format!(" of {name}")).unwrap_or_default();
        self.add(Speaker::User, &format!("Result{name}:\n{text}"));
    }

    /// The messages for the template.
    fn into_messages(self) -> Vec<Message> {
        let system = (!self.system.is_empty()).then(|| self.system.join(JOINT));
        // The template has no turn for the system: its text stands before the user's. Alone, it is the user's.
        if self.turns.is_empty() {
            return system.map(|text| Message::new("user", text)).into_iter().collect();
        }
        // It begins with the user. Some clients let the assistant greet first.
        let opens = self.turns.first().is_some_and(|(speaker, _)| *speaker == Speaker::Assistant);
        let greeted = opens.then(|| (Speaker::User, String::new()));
        let turns = greeted.into_iter().chain(self.turns).map(|(speaker, text)| Message::new(speaker.role(), text));
        system.map(|text| Message::new("system", text)).into_iter().chain(turns).collect()
    }

    /// The prompt's tokens, up to where the reply begins.
    ///
    /// # Errors
    /// 400 for `param`: the conversation exceeds the context, or the template refuses it.
    pub fn encode(self, model: &Model, param: &str) -> Result<Vec<u32>, ApiError> {
        let messages = self.into_messages();
        let is_unfinished = messages.last().is_some_and(|message| message.role == Speaker::Assistant.role());
        let encode = if is_unfinished { encode_unfinished } else { encode_messages };
        let tokens = encode(&model.tokenizer, &model.template, &messages, model.limits());
        tokens.map_err(|e| refusal(&e, model, param))
    }

    /// As [`Dialogue::encode`]. With `truncation: "auto"` in `fields` it is without the oldest exchanges where they leave the
    /// reply less than an eighth of the context, as in the chat of `kiln run`. Also how many exchanges that are.
    ///
    /// # Errors
    /// As [`Dialogue::encode`]; with `truncation: "auto"` also where the last message is the assistant's.
    pub fn encode_truncated(
        self,
        fields: &Fields<'_>,
        model: &Model,
        param: &str,
    ) -> Result<(Vec<u32>, usize), ApiError> {
        match fields.text("truncation")?.unwrap_or("disabled") {
            "disabled" => return self.encode(model, param).map(|tokens| (tokens, 0)),
            "auto" => {}
            other => {
                return Err(fields.wrong("truncation", format!("is {}, and has to be auto or disabled", json!(other))));
            }
        }
        self.encode_fitting(model, param)?
            .ok_or_else(|| fields.wrong("truncation", "is auto, and then the last message has to be the user's"))
    }

    /// As [`Dialogue::encode`], as Ollama's `truncate` in `fields` has it: where it is true, and the last message the user's, it is
    /// without the oldest exchanges where they leave the reply too little. Also how many exchanges that are.
    ///
    /// # Errors
    /// As [`Dialogue::encode`].
    pub fn encode_as_ollama(
        self,
        fields: &Fields<'_>,
        model: &Model,
        param: &str,
    ) -> Result<(Vec<u32>, usize), ApiError> {
        let truncates = fields.boolean("truncate")?.unwrap_or(false);
        let is_asked = self.turns.last().is_some_and(|(speaker, _)| *speaker == Speaker::User);
        match truncates && is_asked {
            true => self.encode_fitting(model, param)?.ok_or_else(|| fields.wrong(param, "has no question at its end")),
            false => self.encode(model, param).map(|tokens| (tokens, 0)),
        }
    }

    /// The prompt's tokens without the oldest exchanges where they leave the reply less than an eighth of the context, and how
    /// many those are. `None`: the last message is not the user's.
    fn encode_fitting(self, model: &Model, param: &str) -> Result<Option<(Vec<u32>, usize)>, ApiError> {
        let refused = |e| refusal(&e, model, param);
        let mut conversation = Conversation::from_messages(self.into_messages()).map_err(refused)?;
        if !conversation.is_asked() {
            return Ok(None);
        }
        let fitted = conversation.fit(&model.tokenizer, &model.template, model.limits()).map_err(refused)?;
        Ok(Some((fitted.ids, fitted.dropped)))
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

/// Reads the messages of a chat completion, as OpenAI and Ollama write them.
///
/// # Errors
/// 400: there are none, or one is not understood.
pub(super) fn read(fields: &Fields<'_>) -> Result<Dialogue, ApiError> {
    let messages = fields.objects("messages")?.ok_or_else(|| fields.missing("messages"))?;
    if messages.is_empty() {
        return Err(fields.wrong("messages", "is empty, and has to have a message"));
    }
    let mut dialogue = Dialogue::default();
    for message in &messages {
        read_message(message, &mut dialogue)?;
    }
    Ok(dialogue)
}

fn read_message(message: &Fields<'_>, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    let role = message.text("role")?.ok_or_else(|| message.missing("role"))?;
    for name in ["images", "audio", "function_call"] {
        if message.get(name).is_some_and(|value| value != &json!([])) {
            return Err(message.unserved(name, "the model reads text alone"));
        }
    }
    let content = content(message, "content")?;
    match role {
        "tool" => {
            let id = message.text("tool_call_id")?.unwrap_or_default();
            let name = message.text("tool_name")?.or(message.text("name")?);
            dialogue.add_result(id, name, &content.ok_or_else(|| message.missing("content"))?);
            Ok(())
        }
        "assistant" => {
            let calls = message.objects("tool_calls")?.unwrap_or_default();
            match content {
                Some(text) if calls.is_empty() || !text.is_empty() => dialogue.add(Speaker::Assistant, &text),
                None if calls.is_empty() => return Err(message.missing("content")),
                _ => {}
            }
            calls.iter().try_for_each(|call| read_call(call, dialogue))
        }
        _ => dialogue.add_message(role, &content.ok_or_else(|| message.missing("content"))?, message),
    }
}

fn read_call(call: &Fields<'_>, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    let function = call.object("function")?.ok_or_else(|| call.missing("function"))?;
    let name = function.text("name")?.ok_or_else(|| function.missing("name"))?;
    let arguments = function.get("arguments").ok_or_else(|| function.missing("arguments"))?;
    let arguments =
        read_arguments(arguments).ok_or_else(|| function.wrong("arguments", "has to be a text or an object"))?;
    dialogue.add_call(call.text("id")?.unwrap_or_default(), name, arguments);
    Ok(())
}

/// The arguments of a call: an object, or as OpenAI has it, the text of one. A text that is none stays as it is: it is what
/// some model has written.
pub(super) fn read_arguments(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => {
            let object = serde_json::from_str(text).ok().filter(Value::is_object);
            Some(object.unwrap_or_else(|| value.clone()))
        }
        Value::Object(_) => Some(value.clone()),
        _ => None,
    }
}

/// Reads content: text, or parts of text. Parts are joined as they are.
///
/// # Errors
/// 400: it is neither, or a part is an image or the like.
pub(super) fn content(fields: &Fields<'_>, name: &str) -> Result<Option<String>, ApiError> {
    Ok(parts(fields, name)?.map(|parts| parts.concat()))
}

/// Reads the parts of content, of which a text is the only one.
///
/// # Errors
/// As [`content`].
pub(super) fn parts(fields: &Fields<'_>, name: &str) -> Result<Option<Vec<String>>, ApiError> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(vec![text.clone()])),
        Some(Value::Array(_)) => {
            fields.objects(name)?.unwrap_or_default().iter().map(part).collect::<Result<_, _>>().map(Some)
        }
        Some(_) => Err(fields.wrong(name, "has to be a text, or a list of parts")),
    }
}

fn part(part: &Fields<'_>) -> Result<String, ApiError> {
    match part.text("type")?.ok_or_else(|| part.missing("type"))? {
        "text" | "input_text" | "output_text" => {
            part.text("text")?.map(str::to_owned).ok_or_else(|| part.missing("text"))
        }
        "refusal" => part.text("refusal")?.map(str::to_owned).ok_or_else(|| part.missing("refusal")),
        kind => {
            Err(part.unserved("type", &format!("a part of type {} is no text, and the model reads text", json!(kind))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(messages: Value) -> Result<Vec<(String, String)>, String> {
        let body = json!({"messages": messages});
        let dialogue = read(&Fields::of_body(&body).unwrap()).map_err(|e| e.param.unwrap())?;
        let text = |message: &Message| message.texts().skip(1).collect::<String>();
        Ok(dialogue.into_messages().iter().map(|message| (message.role.clone(), text(message))).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(pairs.iter().map(|(role, text)| (role.to_string(), text.to_string())).collect())
    }

    #[test]
    fn messages_of_one_role_become_one_and_all_system_text_comes_first() {
        let given = json!([
            {"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
            {"role": "developer", "content": "D"}, {"role": "user", "content": [{"type": "text", "text": "c"},
            {"type": "text", "text": "d"}]}, {"role": "assistant", "content": "x"}, {"role": "user", "content": ""},
        ]);
        let expected = [("system", "S\n\nD"), ("user", "a\n\nb\n\ncd"), ("assistant", "x"), ("user", "")];
        assert_eq!(messages(given), pairs(&expected));
        let greeted = json!([{"role": "system", "content": "S"}, {"role": "assistant", "content": "Hello"}]);
        assert_eq!(messages(greeted), pairs(&[("system", "S"), ("user", ""), ("assistant", "Hello")]));
        let alone = json!([{"role": "system", "content": "S"}, {"role": "system", "content": "T"}]);
        assert_eq!(messages(alone), pairs(&[("user", "S\n\nT")]));
    }

    #[test]
    fn an_empty_system_text_is_none_and_blanks_are_somebodys() {
        let dialogue = |system: Value| {
            let body = json!({"messages": [{"role": "system", "content": system}, {"role": "user", "content": "a"}]});
            let mut dialogue = read(&Fields::of_body(&body).unwrap()).unwrap();
            dialogue.complete_system(Some("own".into()), None);
            dialogue.system
        };
        for empty in [json!(""), json!([]), json!([{"type": "text", "text": ""}])] {
            assert_eq!(dialogue(empty.clone()), ["own"], "{empty}");
        }
        assert_eq!(dialogue(json!(" \n")), [" \n"]);
        let given = json!([{"role": "system", "content": "S"}, {"role": "developer", "content": ""}, {"role": "user", "content": "a"}]);
        assert_eq!(messages(given), pairs(&[("system", "S"), ("user", "a")]), "no blank lines");
    }

    #[test]
    fn calls_of_tools_and_their_results_are_text() {
        let given = json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
                {"id": "2", "function": {"name": "g", "arguments": {}}}]},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "tool", "name": "f", "content": [{"type": "text", "text": "one"}]},
        ]);
        let expected = [
            ("user", "q"),
            ("assistant", "{\"name\":\"f\",\"parameters\":{\"a\":1}}\n\n{\"name\":\"g\",\"parameters\":{}}"),
            ("user", "Result of g:\ntwo\n\nResult of f:\none"),
        ];
        assert_eq!(messages(given), pairs(&expected));
    }

    #[test]
    fn as_many_messages_as_a_body_holds_take_no_more_time_each() {
        let count = 50_000;
        let mut given = vec![json!({"role": "user", "content": "a"}); count];
        given.extend((0..count).map(|i| {
            let function = json!({"name": "f", "arguments": {}});
            json!({"role": "assistant", "tool_calls": [{"id": i.to_string(), "function": function}]})
        }));
        given.extend(vec![json!({"role": "tool", "tool_call_id": "none", "content": "b"}); count]);
        let messages = messages(given.into()).unwrap();
        let lengths: Vec<usize> = messages.iter().map(|(_, text)| text.len()).collect();
        let call = "{\"name\":\"f\",\"parameters\":{}}";
        let each = ["a", call, "Result:\nb"].map(|text| (text.len() + JOINT.len()) * count - JOINT.len());
        assert_eq!(lengths, each);
    }

    #[test]
    fn each_wrong_message_is_named() {
        for (given, param) in [
            (json!([]), "messages"),
            (json!(null), "messages"),
            (json!("hi"), "messages"),
            (json!(["hi"]), "messages[0]"),
            (json!([{"content": "a"}]), "messages[0].role"),
            (json!([{"role": 1, "content": "a"}]), "messages[0].role"),
            (json!([{"role": "user", "content": "a"}, {"role": "wizard", "content": "a"}]), "messages[1].role"),
            (json!([{"role": "user"}]), "messages[0].content"),
            (json!([{"role": "user", "content": 1}]), "messages[0].content"),
            (json!([{"role": "assistant", "content": null}]), "messages[0].content"),
            (json!([{"role": "tool", "tool_call_id": "1"}]), "messages[0].content"),
            (json!([{"role": "user", "content": ["a"]}]), "messages[0].content[0]"),
            (json!([{"role": "user", "content": [{"text": "a"}]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
                "messages[0].content[0].type",
            ),
            (json!([{"role": "user", "content": [{"type": "input_audio"}]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": "a", "images": ["x"]}]), "messages[0].images"),
            (json!([{"role": "assistant", "tool_calls": [{}]}]), "messages[0].tool_calls[0].function"),
            (
                json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}]),
                "messages[0].tool_calls[0].function.arguments",
            ),
        ] {
            assert_eq!(messages(given.clone()), Err(param.into()), "{given}");
        }
    }
}
