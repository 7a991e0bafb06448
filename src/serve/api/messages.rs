//! Reads the messages of chat completions in OpenAI's and Ollama's formats, and the parts of content in all APIs.

use super::dialogue::{Content, Dialogue};
use super::fields::{Fields, shown};
use crate::serve::http::ApiError;
use serde_json::{Value, json};

/// Types of parts that are not text, with the name used in the note that replaces them.
const UNREAD: [(&str, &str); 16] = [
    ("audio", "audio"),
    ("computer_screenshot", "a screenshot"),
    ("container_upload", "a file"),
    ("document", "a document"),
    ("file", "a file"),
    ("image", "an image"),
    ("image_file", "an image"),
    ("image_url", "an image"),
    ("input_audio", "audio"),
    ("input_file", "a file"),
    ("input_image", "an image"),
    ("input_video", "a video"),
    ("output_audio", "audio"),
    ("output_image", "an image"),
    ("video", "a video"),
    ("video_url", "a video"),
];

/// The types of content that are dropped from messages: thoughts of other models.
const SILENT: [&str; 5] = ["thinking", "redacted_thinking", "reasoning", "reasoning_text", "encrypted_content"];

/// Reads the messages of a chat completion in OpenAI's or Ollama's format.
///
/// # Errors
/// 400: there are none, or one is not valid.
pub(super) fn read(fields: &Fields<'_>) -> Result<Dialogue, ApiError> {
    let mut dialogue = Dialogue::default();
    list(fields)?.iter().try_for_each(|message| read_message(message, &mut dialogue))?;
    Ok(dialogue)
}

/// The list of messages.
///
/// # Errors
/// 400: there are none.
pub(super) fn list<'a>(fields: &Fields<'a>) -> Result<Vec<Fields<'a>>, ApiError> {
    let messages = fields.objects("messages")?.ok_or_else(|| fields.missing("messages"))?;
    match messages.is_empty() {
        true => Err(fields.wrong("messages", "is empty, and has to have a message")),
        false => Ok(messages),
    }
}

fn read_message(message: &Fields<'_>, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    let role = match message.required("role")? {
        // The older name.
        "function" => "tool",
        role => message.word("role", &["system", "developer", "user", "assistant", "tool"])?.unwrap_or(role),
    };
    let is_result = role == "tool";
    let content = if is_result { Some(result(message, "content")) } else { content(message, "content")? };
    let content = with_images(message, content)?;
    let function = message.object("function_call")?;
    match role {
        "tool" => {
            let id = message.text("tool_call_id")?.unwrap_or_default();
            let name = message.text("tool_name")?.or(message.text("name")?);
            dialogue.add_result(id, name, content.unwrap_or_default());
        }
        "assistant" => {
            let calls = message.objects("tool_calls")?.unwrap_or_default();
            let says_nothing = content.as_ref().is_none_or(|content| content.text.is_empty());
            if calls.is_empty() && function.is_none() || !says_nothing {
                // Clients send null for an answer that was not saved, for instance after a cancellation.
                let refusal = message.text("refusal")?.map(Content::from);
                dialogue.add_message(role, content.or(refusal).unwrap_or_default());
            }
            calls.iter().try_for_each(|call| read_call(call, dialogue))?;
            function.map_or(Ok(()), |function| read_function("", &function, dialogue))?;
        }
        _ => dialogue.add_message(role, content.ok_or_else(|| message.missing("content"))?),
    }
    Ok(())
}

/// Adds the images that Ollama keeps next to a message's text, and OpenAI's audio next to the assistant's.
fn with_images(message: &Fields<'_>, content: Option<Content>) -> Result<Option<Content>, ApiError> {
    let images = message.list("images")?.unwrap_or_default().len();
    let audio = message.object("audio")?.map(|audio| Part::Unread("audio", audio.at().to_owned()));
    if images == 0 && audio.is_none() {
        return Ok(content);
    }
    let notes = (0..images).map(|i| Part::Unread("an image", format!("{}[{i}]", message.path("images"))));
    let text = content.unwrap_or_default();
    Ok(Some(join(notes.chain(audio).chain([Part::Text(text.text)]), text.unread)))
}

fn read_call(call: &Fields<'_>, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    let id = call.text("id")?.unwrap_or_default();
    if let Some(custom) = call.object("custom")? {
        dialogue.add_call(id, custom.required("name")?, custom_arguments(custom.required("input")?));
        return Ok(());
    }
    let function = call.object("function")?.ok_or_else(|| call.missing("function"))?;
    read_function(id, &function, dialogue)
}

fn read_function(id: &str, function: &Fields<'_>, dialogue: &mut Dialogue) -> Result<(), ApiError> {
    dialogue.add_call(id, function.required("name")?, arguments(function, "arguments")?);
    Ok(())
}

/// The arguments of a custom tool's call, which consist of a text.
pub(super) fn custom_arguments(input: &str) -> String {
    json!({"input": input}).to_string()
}

/// A call's arguments as JSON: an object, or as in OpenAI's API its text. A text that is not an object, such as some
/// models write, becomes a JSON string. `null` is a call without arguments.
///
/// # Errors
/// 400: the arguments are another value.
pub(super) fn arguments(fields: &Fields<'_>, name: &str) -> Result<String, ApiError> {
    match fields.get(name).unwrap_or(&Value::Null) {
        Value::Null => Ok("{}".to_owned()),
        Value::String(text) => Ok(match serde_json::from_str::<Value>(text) {
            Ok(value @ Value::Object(_)) => match has_long_number(text) {
                true => without_blanks(text),
                false => value.to_string(),
            },
            // Some clients send empty text for no arguments.
            Err(_) if text.trim().is_empty() => "{}".to_owned(),
            _ => Value::from(text.as_str()).to_string(),
        }),
        value @ Value::Object(_) => Ok(value.to_string()),
        _ => Err(fields.wrong(name, "has to be a text or an object")),
    }
}

/// True if a JSON text may have a number that does not fit 64 bits, which parsing would round.
fn has_long_number(json: &str) -> bool {
    const DIGITS: usize = 18;
    json.as_bytes().chunk_by(|a, b| a.is_ascii_digit() && b.is_ascii_digit()).any(|run| run.len() > DIGITS)
}

/// Removes blanks between the tokens of a JSON text, because the model writes calls without them.
fn without_blanks(json: &str) -> String {
    let (mut in_text, mut is_escaped) = (false, false);
    let is_part = |c: &char| {
        let was_escaped = is_escaped;
        is_escaped = in_text && *c == '\\' && !was_escaped;
        in_text ^= *c == '"' && !was_escaped;
        in_text || !c.is_ascii_whitespace()
    };
    json.chars().filter(is_part).collect()
}

/// Reads content: a text or parts. Text parts are joined; other parts are replaced by a note.
///
/// # Errors
/// 400: it is another value, or a part is not valid.
pub(super) fn content(fields: &Fields<'_>, name: &str) -> Result<Option<Content>, ApiError> {
    Ok(parts(fields, name)?.map(|parts| join(parts, None)))
}

/// Reads the result of a tool. Programs pass on any value: a text, parts, nothing, or a number or an object, which
/// stands in the prompt as JSON.
pub(super) fn result(fields: &Fields<'_>, name: &str) -> Content {
    let part = |value: &Value, at: String| match Fields::of(value, at).and_then(|part| Part::read(&part)) {
        Ok(part) => part,
        Err(_) => Part::Text(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    };
    let path = fields.path(name);
    let parts: Vec<Part> = match fields.get(name) {
        None => Vec::new(),
        Some(Value::Array(parts)) => {
            parts.iter().enumerate().map(|(i, value)| part(value, format!("{path}[{i}]"))).collect()
        }
        Some(value) => vec![part(value, path)],
    };
    join(parts, None)
}

/// Reads the parts of content. A plain text is a single part.
///
/// # Errors
/// As [`content`].
pub(super) fn parts(fields: &Fields<'_>, name: &str) -> Result<Option<Vec<Part>>, ApiError> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(vec![Part::Text(text.clone())])),
        Some(Value::Array(_)) => {
            fields.objects(name)?.unwrap_or_default().iter().map(Part::read).collect::<Result<_, _>>().map(Some)
        }
        // The result of a computer tool is a single part.
        Some(Value::Object(_)) => {
            let part = fields.object(name)?.map(|part| Part::read(&part)).transpose()?;
            Ok(part.map(|part| vec![part]))
        }
        Some(_) => Err(fields.wrong(name, "has to be a text, or a list of parts")),
    }
}

/// A part of a message's content: text, or a kind that the model cannot read.
pub(super) enum Part {
    Text(String),
    /// Content that the model cannot read: the name of its kind, and its path in the request.
    Unread(&'static str, String),
}

impl Part {
    /// Reads a part.
    ///
    /// # Errors
    /// 400: its type is unknown, or it lacks its text.
    pub fn read(part: &Fields<'_>) -> Result<Part, ApiError> {
        let kind = part.required("type")?;
        let text = |name: &str| Ok(Part::Text(part.required(name)?.to_owned()));
        if SILENT.contains(&kind) {
            return Ok(Part::Text(String::new()));
        }
        if let Some((_, name)) = UNREAD.iter().find(|(unread, _)| *unread == kind) {
            return Ok(match readable(part)? {
                Some(text) => Part::Text(text),
                None => Part::Unread(name, part.at().to_owned()),
            });
        }
        match kind {
            "text" | "input_text" | "output_text" | "summary_text" => text("text"),
            "refusal" => text("refusal"),
            "search_result" => Ok(Part::Text(readable(part)?.unwrap_or_default())),
            "tool_reference" => text("tool_name"),
            kind => Err(part.unserved("type", &format!("{} is no part that is read here", shown(&kind.into())))),
        }
    }
}

/// The text of Anthropic's documents and search results, if they are text.
fn readable(part: &Fields<'_>) -> Result<Option<String>, ApiError> {
    let source = match part.get("source") {
        Some(Value::Object(_)) => part.object("source")?,
        _ => None,
    };
    let kind = source.as_ref().map(|source| source.text("type")).transpose()?.flatten();
    let text = match (kind, &source) {
        (Some("text"), Some(source)) => source.text("data")?.map(Content::from),
        (Some("content"), Some(source)) => content(source, "content")?,
        (None, _) if part.get("content").is_some() => content(part, "content")?,
        _ => None,
    };
    let title = part.text("title")?.map(|title| format!("{title}\n")).unwrap_or_default();
    Ok(text.filter(|text| text.unread.is_none()).map(|text| title + &text.text))
}

/// Joins the parts of a message's content.
pub(super) fn join(parts: impl IntoIterator<Item = Part>, mut unread: Option<ApiError>) -> Content {
    let mut text = String::new();
    let mut was_note = false;
    for part in parts {
        let (said, is_note) = match part {
            Part::Text(said) => (said, false),
            Part::Unread(name, at) => {
                let message = format!(
                    "{at} is {name}, and the model reads text alone; leave it out, or say in words what it shows"
                );
                unread.get_or_insert(ApiError::bad(message).param(at).code("unsupported_parameter"));
                (format!("[{name}, which is left out]"), true)
            }
        };
        if (is_note || was_note) && !text.is_empty() && !said.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        was_note = is_note;
        text.push_str(&said);
    }
    Content { text, unread }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{CallSyntax, Message};

    fn messages(messages: Value) -> Result<Vec<(String, String)>, String> {
        let body = json!({"messages": messages});
        let dialogue = read(&Fields::of_body(&body).unwrap()).map_err(|e| e.param.unwrap())?;
        let messages = dialogue.into_messages(CallSyntax::Json).map_err(|e| e.param.unwrap())?.0;
        let text = |message: &Message| message.texts()[1..].concat();
        Ok(messages.iter().map(|message| (message.role.clone(), text(message))).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(pairs.iter().map(|(role, text)| (role.to_string(), text.to_string())).collect())
    }

    #[test]
    fn messages_of_one_role_become_one_and_system_text_stays_where_it_is() {
        let given = json!([
            {"role": "system", "content": "S"}, {"role": "developer", "content": "T"}, {"role": "user", "content": "a"},
            {"role": "user", "content": "b"}, {"role": "developer", "content": "D"},
            {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
            {"role": "assistant", "content": "x"}, {"role": "system", "content": "E"}, {"role": "user", "content": ""},
            {"role": "assistant", "content": null}, {"role": "system", "content": "F"},
        ]);
        let expected = [
            ("system", "S\n\nT"),
            ("user", "a\n\nb\n\nD\n\ncd"),
            ("assistant", "x"),
            ("user", "E\n\n"),
            ("assistant", ""),
            ("user", "F"),
        ];
        let all = messages(given.clone()).unwrap();
        assert_eq!(Ok(all.clone()), pairs(&expected));
        // Later messages do not change the conversion of earlier ones.
        for end in [6, 7, 9, 10] {
            let earlier = messages(given.as_array().unwrap()[..end].into()).unwrap();
            assert!(all.starts_with(&earlier), "{earlier:?}");
        }
        let greeted = json!([{"role": "system", "content": "S"}, {"role": "assistant", "content": "Hello"}]);
        assert_eq!(messages(greeted), pairs(&[("system", "S"), ("user", ""), ("assistant", "Hello")]));
        let alone = json!([{"role": "system", "content": "S"}, {"role": "system", "content": "T"}]);
        assert_eq!(messages(alone), pairs(&[("user", "S\n\nT")]));
    }

    #[test]
    fn an_empty_system_text_is_none_and_blanks_are_somebodys() {
        let first = |system: Value| {
            let body = json!({"messages": [{"role": "system", "content": system}, {"role": "user", "content": "a"}]});
            let mut dialogue = read(&Fields::of_body(&body).unwrap()).unwrap();
            dialogue.complete(Some("own".into()), None, CallSyntax::Json, None);
            dialogue.into_messages(CallSyntax::Json).unwrap().0[0].texts()[1].to_owned()
        };
        for empty in [json!(""), json!([]), json!([{"type": "text", "text": ""}])] {
            assert_eq!(first(empty.clone()), "own", "{empty}");
        }
        assert_eq!(first(json!(" \n")), " \n");
        let given = json!([{"role": "system", "content": "S"}, {"role": "developer", "content": ""}, {"role": "user", "content": "a"}]);
        assert_eq!(messages(given), pairs(&[("system", "S"), ("user", "a")]), "no blank lines");
    }

    /// All kinds of parts that are not text, in all roles: a note in an earlier turn and before text of the user, a
    /// refusal with the path in the newest.
    #[test]
    fn what_is_no_text_is_a_note_in_an_earlier_turn_and_refused_in_the_newest() {
        for (kind, name) in UNREAD {
            let note = format!("[{name}, which is left out]");
            let content = json!([{"type": "text", "text": "Look."}, {"type": kind, (kind): {"url": "data:"}}]);
            let said = |messages: Value| self::messages(messages);
            for role in ["user", "tool", "system"] {
                let newest = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": role, "content": content}]);
                assert_eq!(said(newest.clone()), Err("messages[2].content[1]".into()), "{kind}");
                // Neither the beginning of an answer nor a message without text changes that.
                let with = |more: Value| {
                    let mut newest = newest.clone();
                    newest.as_array_mut().unwrap().push(more);
                    said(newest)
                };
                for more in [json!({"role": "assistant", "content": "c"}), json!({"role": "user", "content": ""})] {
                    assert_eq!(with(more), Err("messages[2].content[1]".into()), "{kind}");
                }
                // The user goes on without it.
                let text = with(json!({"role": "user", "content": "c"})).unwrap()[2].1.clone();
                assert!(text.ends_with(&format!("Look.\n{note}\n\nc")), "{text}");
                let mut earlier = newest;
                earlier
                    .as_array_mut()
                    .unwrap()
                    .extend([json!({"role": "assistant", "content": "c"}), json!({"role": "user", "content": "d"})]);
                let text = said(earlier).unwrap()[2].1.clone();
                assert!(text.ends_with(&format!("Look.\n{note}")), "{text}");
            }
            let assistants = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": content}, {"role": "user", "content": "b"}]);
            assert_eq!(said(assistants).unwrap()[1].1, format!("Look.\n{note}"));
        }
        let images = json!({"role": "user", "content": "a", "images": ["x", "y"]});
        assert_eq!(messages(json!([images])), Err("messages[0].images[0]".into()));
        let earlier = json!([images, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
        let note = "[an image, which is left out]";
        assert_eq!(messages(earlier).unwrap()[0].1, format!("{note}\n{note}\na"));
        // The text of a document is read.
        let document = json!({"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}});
        assert_eq!(messages(json!([{"role": "user", "content": [document]}])), pairs(&[("user", "T\nD")]));
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
            ("assistant", "{\"name\":\"f\",\"parameters\":{\"a\":1}}\n{\"name\":\"g\",\"parameters\":{}}"),
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
        let each = [("a", 2), (call, 1), ("Result:\nb", 2)];
        let each = each.map(|(text, joint)| (text.len() + joint) * count - joint);
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
            (json!([{"role": "user", "content": ["a"]}]), "messages[0].content[0]"),
            (json!([{"role": "user", "content": [{"text": "a"}]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
            (json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]), "messages[0].content[0]"),
            (json!([{"role": "user", "content": [{"type": "hologram"}]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": "a", "images": "x"}]), "messages[0].images"),
            (json!([{"role": "assistant", "tool_calls": [{}]}]), "messages[0].tool_calls[0].function"),
            (
                json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}]),
                "messages[0].tool_calls[0].function.arguments",
            ),
        ] {
            assert_eq!(messages(given.clone()), Err(param.into()), "{given}");
        }
    }

    #[test]
    fn arguments_keep_their_digits_and_lose_their_blanks() {
        for (given, expected) in [
            (json!("{\"a\": 1}"), "{\"a\":1}"),
            (json!({"a": [1, "x y"]}), "{\"a\":[1,\"x y\"]}"),
            (json!("{ \"a\" : \"\\u00e4 \\\" b\" }"), "{\"a\":\"\u{e4} \\\" b\"}"),
            (
                json!("{\"n\": 123456789012345678901234567890, \"s\": \"a \\\" b\"}"),
                "{\"n\":123456789012345678901234567890,\"s\":\"a \\\" b\"}",
            ),
            (json!("{\"n\": 18446744073709551615}"), "{\"n\":18446744073709551615}"),
            (json!(""), "{}"),
            (json!("no JSON"), "\"no JSON\""),
            (json!("[1]"), "\"[1]\""),
        ] {
            let body = json!({"arguments": given});
            assert_eq!(arguments(&Fields::of_body(&body).unwrap(), "arguments").unwrap(), expected);
        }
    }
}
