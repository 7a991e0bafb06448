//! Chat messages rendered into the text that the model was tuned on.
//!
//! The template comes with the model, so it is a program from elsewhere. It runs in MiniJinja without files or a clock,
//! and with bounded steps and output. It sees the same variables and functions as in transformers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use minijinja::{Environment, ErrorKind, Value};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Gemma 3's own format, for directories without a template.
const GEMMA: &str = include_str!("gemma.jinja");

/// Limit on a template's steps: about a second. Gemma's template takes some thirty per message.
const FUEL: u64 = 20_000_000;

/// Limit on a template's output in bytes. The longest context is about a megabyte of text.
const MAX_OUTPUT: usize = 64 << 20;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system` (first message only), `user` or `assistant`.
    pub role: String,
    /// The message's content.
    pub content: MessageContent,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: MessageContent::Text(text.into()) }
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

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentPart {
    /// `text`. Templates also know `image`; Gemma's writes a placeholder for it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The fields of `tokenizer_config.json` that a template depends on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenizerConfig {
    chat_template: Option<Templates>,
    bos_token: Option<SpecialToken>,
    eos_token: Option<SpecialToken>,
    pad_token: Option<SpecialToken>,
    unk_token: Option<SpecialToken>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "chat_template is text or a list of {\"name\", \"template\"}")]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a special token is text or an object with its content")]
enum SpecialToken {
    Text(String),
    Object { content: String },
}

impl SpecialToken {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { content: text } => text,
        }
    }
}

/// A model's chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// `bos_token` and the like.
    special_tokens: BTreeMap<&'static str, String>,
}

impl ChatTemplate {
    /// The template of a model directory: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`, else
    /// Gemma 3's own. If the config names several templates, `default` is taken.
    ///
    /// # Errors
    /// [`Error::Input`] when one of these files exists but cannot be read or understood.
    pub fn open(dir: &Path) -> Result<Self> {
        let read = |name: &str| -> Result<Option<Vec<u8>>> {
            let path = dir.join(name);
            match std::fs::read(&path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(Error::unreadable(&path, &e)),
            }
        };
        Self::from_files(read("chat_template.jinja")?.as_deref(), read("tokenizer_config.json")?.as_deref())
    }

    /// As [`open`](Self::open), from the contents of `chat_template.jinja` and `tokenizer_config.json`, where they exist.
    ///
    /// # Errors
    /// [`Error::Input`] when they cannot be understood.
    pub fn from_files(chat_template: Option<&[u8]>, tokenizer_config: Option<&[u8]>) -> Result<Self> {
        let remedy = "use the tokenizer_config.json that came with the model";
        let config: TokenizerConfig = match tokenizer_config {
            Some(bytes) => serde_json::from_slice(bytes)
                .map_err(|e| Error::input(format!("tokenizer_config.json is not understood: {e}"), remedy))?,
            None => TokenizerConfig::default(),
        };
        let (name, source) = match (chat_template, config.chat_template) {
            (Some(bytes), _) => {
                let source = std::str::from_utf8(bytes).map_err(|e| {
                    Error::input(
                        format!("chat_template.jinja is not UTF-8: {e}"),
                        "use the one that came with the model",
                    )
                })?;
                ("chat_template.jinja", source.to_owned())
            }
            (None, Some(templates)) => ("tokenizer_config.json's chat_template", pick(templates)?),
            (None, None) => ("the built-in chat template", GEMMA.to_owned()),
        };
        let token = |token: Option<SpecialToken>, gemma: &str| token.map_or(gemma.to_owned(), SpecialToken::into_text);
        let special_tokens = BTreeMap::from([
            ("bos_token", token(config.bos_token, "<bos>")),
            ("eos_token", token(config.eos_token, "<eos>")),
            ("pad_token", token(config.pad_token, "<pad>")),
            ("unk_token", token(config.unk_token, "<unk>")),
        ]);
        Ok(Self { environment: compile(name, source)?, special_tokens })
    }

    /// Renders `messages`. `add_generation_prompt` appends the opening of the model's turn. The result contains
    /// `<bos>`: encode it without adding another.
    ///
    /// # Errors
    /// [`Error::Input`] when there are no messages, when the template rejects them (for example, roles must alternate),
    /// or when it fails or exceeds its bounds.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        validate(messages)?;
        let template = self.environment.get_template(TEMPLATE).map_err(|e| describe(&e))?;
        let context = minijinja::context! {
            messages,
            add_generation_prompt,
            ..Value::from_serialize(&self.special_tokens)
        };
        let mut out = Bounded(Vec::new());
        template.render_captured_to(context, &mut out).map_err(|e| describe(&e))?;
        String::from_utf8(out.0)
            .map_err(|e| Error::input(format!("the chat template wrote text that is not UTF-8: {e}"), TEMPLATE_REMEDY))
    }
}

/// The template's name in the environment. It has no file extension, so that nothing is escaped.
const TEMPLATE: &str = "chat template";

const TEMPLATE_REMEDY: &str = "use the chat template that came with the model";

/// Of several named templates, the one called `default`; or the only one.
fn pick(templates: Templates) -> Result<String> {
    let mut named = match templates {
        Templates::One(source) => return Ok(source),
        Templates::Named(named) => named,
    };
    let index = match named.iter().position(|t| t.name == "default") {
        Some(index) => index,
        None if named.len() == 1 => 0,
        None => {
            return Err(Error::input(
                format!("tokenizer_config.json has {} chat templates, none of them named default", named.len()),
                "put the one to use into chat_template.jinja",
            ));
        }
    };
    Ok(named.swap_remove(index).template)
}

fn compile(name: &str, source: String) -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    // As transformers configures Jinja. Jinja itself turns every line end into "\n".
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("trim", trim);
    environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(message)))
    });
    environment
        .add_template_owned(TEMPLATE, source.replace("\r\n", "\n"))
        .map_err(|e| Error::input(format!("{name} does not compile: {e}"), TEMPLATE_REMEDY))?;
    Ok(environment)
}

/// A template's message through `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// An error of a template: the message it raised on purpose, or where it failed.
fn describe(error: &minijinja::Error) -> Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return Error::input(format!("the chat template rejects the messages: {message}"), "correct the messages");
        }
        source = cause.source();
    }
    let cause = match error.kind() {
        ErrorKind::OutOfFuel => format!("the chat template does not end within {FUEL} steps"),
        ErrorKind::WriteFailure => format!("the chat template writes more than {} MiB", MAX_OUTPUT >> 20),
        _ => format!("the chat template fails: {error}"),
    };
    Error::input(cause, TEMPLATE_REMEDY)
}

/// Rejects messages on which a template would fail with an unhelpful error.
fn validate(messages: &[Message]) -> Result<()> {
    if messages.is_empty() {
        return Err(Error::input("the conversation is empty", "give at least one message"));
    }
    for (i, message) in messages.iter().enumerate() {
        let MessageContent::Parts(parts) = &message.content else { continue };
        if let Some(j) = parts.iter().position(|part| part.kind == "text" && part.text.is_none()) {
            return Err(Error::input(
                format!("part {j} of message {i} is of type text and has no text"),
                "add its text",
            ));
        }
    }
    Ok(())
}

/// Jinja's `trim` with Python's definition of white space, which includes the four ASCII separators.
fn trim(value: &Value, chars: Option<Cow<'_, str>>) -> String {
    let text = if value.is_undefined() { String::new() } else { value.to_string() };
    let strip = |c: char| match &chars {
        Some(chars) => chars.contains(c),
        None => c.is_whitespace() || ('\x1c'..='\x1f').contains(&c),
    };
    text.trim_matches(strip).to_owned()
}

/// A writer that fails at [`MAX_OUTPUT`] bytes.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_source(source: &str) -> Result<ChatTemplate> {
        ChatTemplate::from_files(Some(source.as_bytes()), None)
    }

    fn render(source: &str) -> Result<String> {
        from_source(source)?.render(&[Message::new("user", "hi")], true)
    }

    #[test]
    fn the_template_is_looked_for_in_the_order_that_transformers_has() {
        let dir = tempfile::tempdir().unwrap();
        let text = || ChatTemplate::open(dir.path()).unwrap().render(&[Message::new("user", "hi")], false).unwrap();
        assert_eq!(text(), "<bos><start_of_turn>user\nhi<end_of_turn>\n");

        let config = r#"{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "chat_template":
            [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ bos_token }}{{ eos_token }}"}]}"#;
        std::fs::write(dir.path().join("tokenizer_config.json"), config).unwrap();
        assert_eq!(text(), "<s></s>");
        std::fs::write(dir.path().join("chat_template.jinja"), "{{ bos_token }}jinja\r\nfile\r\n").unwrap();
        assert_eq!(text(), "<s>jinja\nfile");
    }

    #[test]
    fn blocks_and_python_methods_behave_as_in_transformers() {
        let source = "{% for m in messages %}\n  {% if m['role'] == 'user' %}\n{{ m.content.upper().strip() }}\n  {% endif %}\n{% endfor %}\n!\n";
        assert_eq!(render(source).unwrap(), "HI\n!");
        assert_eq!(render("{{ '\\x1f\\u00a0 a <b> \\n' | trim }}{{ 'xax' | trim('x') }}").unwrap(), "a <b>a");
    }

    #[test]
    fn a_rejection_is_told_apart_from_a_failure() {
        let error = render("{{ raise_exception('roles\nmust alternate') }}").unwrap_err();
        assert!(error.to_string().contains("rejects the messages: roles\\nmust alternate"), "{error}");
        let error = render("{% macro m() %}{{ raise_exception('nested') }}{% endmacro %}{{ m() }}").unwrap_err();
        assert!(error.to_string().contains("rejects the messages: nested"), "{error}");
        let error = render("{{ messages[7].role.nothing }}").unwrap_err();
        assert!(error.to_string().contains("the chat template fails"), "{error}");
        let error = render("{% for %}").unwrap_err();
        assert!(error.to_string().contains("chat_template.jinja does not compile"), "{error}");
    }

    #[test]
    fn a_template_cannot_run_or_write_without_end() {
        let endless = "{% for a in range(10000) %}{% for b in range(10000) %}{{ '' }}{% endfor %}{% endfor %}";
        let error = render(endless).unwrap_err();
        assert!(error.to_string().contains("does not end within"), "{error}");
        let error = render("{% for a in range(10000) %}{{ 'x' * 1000000 }}{% endfor %}").unwrap_err();
        assert!(error.to_string().contains("writes more than"), "{error}");
    }

    #[test]
    fn bad_messages_are_explained() {
        let template = ChatTemplate::from_files(None, None).unwrap();
        assert!(template.render(&[], true).unwrap_err().to_string().contains("empty"));
        let parts: Vec<Message> = serde_json::from_str(r#"[{"role": "user", "content": [{"type": "text"}]}]"#).unwrap();
        assert!(template.render(&parts, true).unwrap_err().to_string().contains("part 0 of message 0"));
        let error = serde_json::from_str::<Message>(r#"{"role": "user", "content": 5}"#).unwrap_err();
        assert!(error.to_string().contains("text, or a list of parts"), "{error}");
    }

    #[test]
    fn a_configuration_that_is_not_understood_is_an_error() {
        for config in ["{", "5", r#"{"chat_template": 5}"#, r#"{"bos_token": 5}"#, r#"{"chat_template": []}"#] {
            assert_eq!(ChatTemplate::from_files(None, Some(config.as_bytes())).unwrap_err().exit_code(), 2, "{config}");
        }
    }
}
