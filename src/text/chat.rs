//! Chat messages rendered into the text that the model was tuned on.
//!
//! The template comes with the model, so it is a program from elsewhere. It runs in MiniJinja without files, and in
//! bounded memory, depth and steps (bounds.rs). It sees the same variables, functions and methods as in transformers.

mod bounds;
mod filters;
mod json;
mod message;
mod methods;
mod python;
mod source;

use std::collections::BTreeMap;
use std::path::Path;

use minijinja::{Environment, ErrorKind, Value};
use serde::Deserialize;

use self::bounds::{ChargedTemplate, Excess, FUEL, cause_of};
use self::message::{change_texts_of, texts_of};
use self::source::MAX_SOURCE;
use super::calls::CallSyntax;
use super::spellings::choose_mark;
use super::tokenizer::Tokenizer;
use crate::display::quote;
use crate::model::architecture::Architecture;
use crate::model::{json as strict_json, text_file};
use crate::{Error, Result};

pub use self::message::{ChatInput, ContentPart, Message, MessageContent};

/// The special tokens that a template sees by name, with Gemma's own.
const SPECIAL_TOKENS: [(&str, &str); 4] =
    [("bos_token", "<bos>"), ("eos_token", "<eos>"), ("pad_token", "<pad>"), ("unk_token", "<unk>")];

/// The file that names special tokens, and may hold the template.
const CONFIG: &str = "tokenizer_config.json";

/// Largest tokenizer_config.json that is read, in bytes. Gemma 3's has 1.2 MB.
const MAX_CONFIG: usize = 16 << 20;

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

/// Messages as the template has written them, for [`Tokenizer::encode_rendered`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub(super) text: String,
    /// A character inserted into each spelling of a special token in a message; `None` without one.
    pub(super) mark: Option<char>,
}

impl Rendered {
    /// The rendered text, in which a mark is inserted into each message's spelling of a special token.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The text without marks, in which a message's spelling of a special token looks like the token itself.
    pub fn into_text(self) -> String {
        match self.mark {
            Some(mark) => self.text.replace(mark, ""),
            None => self.text,
        }
    }
}

/// A model's chat template. It has compiled successfully.
#[derive(Debug)]
pub struct ChatTemplate {
    /// The template's source after preparation, as it is compiled.
    source: String,
    /// Special tokens by the name of their variable, such as `bos_token`.
    special_tokens: BTreeMap<&'static str, String>,
    calls: CallSyntax,
}

impl ChatTemplate {
    /// The template of a model directory: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`, else
    /// the family's own. A blank template counts as missing. If the config has several named templates, `default` is
    /// used.
    ///
    /// # Errors
    /// [`Error::Input`] when one of these files exists but cannot be read or understood.
    pub fn open(dir: &Path, family: &Architecture) -> Result<Self> {
        let read = |name: &str, max| text_file::read_bytes(&dir.join(name), max, TEMPLATE_REMEDY);
        let config = read(CONFIG, MAX_CONFIG)?;
        Self::from_files(read("chat_template.jinja", MAX_SOURCE)?.as_deref(), config.as_deref(), family)
    }

    /// As [`open`](Self::open), from the contents of `chat_template.jinja` and `tokenizer_config.json`, where they
    /// exist.
    ///
    /// # Errors
    /// [`Error::Input`] when they cannot be understood.
    pub fn from_files(
        chat_template: Option<&[u8]>,
        tokenizer_config: Option<&[u8]>,
        family: &Architecture,
    ) -> Result<Self> {
        let remedy = "use the tokenizer_config.json that came with the model";
        let config: TokenizerConfig = match tokenizer_config {
            Some(bytes) => strict_json::parse(bytes)
                .and_then(serde_json::from_value)
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
            (None, None) => ("the built-in chat template", family.template.to_owned()),
        };
        let tokens = [config.bos_token, config.eos_token, config.pad_token, config.unk_token];
        let special_tokens = SPECIAL_TOKENS
            .into_iter()
            .zip(tokens)
            .map(|((name, gemmas), token)| (name, token.map_or(gemmas.to_owned(), SpecialToken::into_text)));
        let special_tokens = special_tokens.collect();
        Self::compile(name, &source, family, special_tokens)
    }

    /// The template of a GGUF file. If it is missing or blank, the family's own.
    ///
    /// # Errors
    /// [`Error::Input`] when it does not compile.
    pub fn of_gguf(template: Option<&str>, family: &Architecture) -> Result<Self> {
        let special_tokens = SPECIAL_TOKENS.map(|(name, gemmas)| (name, gemmas.to_owned())).into();
        Self::compile("tokenizer.chat_template", template.unwrap_or_default(), family, special_tokens)
    }

    /// The `eos_token` in a directory's `tokenizer_config.json`, which ends a reply beside the tokens of the model's
    /// config. `None` for a file that cannot be understood, since [`open`](Self::open) refuses it.
    pub fn eos(dir: &Path) -> Option<String> {
        #[derive(Deserialize)]
        struct Eos {
            eos_token: Option<SpecialToken>,
        }
        let config = text_file::read_bytes(&dir.join(CONFIG), MAX_CONFIG, TEMPLATE_REMEDY).ok()??;
        Some(serde_json::from_slice::<Eos>(&config).ok()?.eos_token?.into_text())
    }

    fn compile(
        name: &str,
        source: &str,
        family: &Architecture,
        special_tokens: BTreeMap<&'static str, String>,
    ) -> Result<Self> {
        // An empty template would make an empty prompt.
        let source = if source.trim().is_empty() { family.template } else { source };
        let source = source::prepare(source).map_err(|excess| refuse(name, &excess.into()))?;
        ChargedTemplate::compile(&source).map_err(|e| refuse(name, &e))?;
        Ok(Self { calls: CallSyntax::of_template(&source), source, special_tokens })
    }

    /// The syntax in which the model writes calls. The template accepts `tools` and messages with calls only for
    /// [`CallSyntax::Marked`].
    pub fn calls(&self) -> CallSyntax {
        self.calls
    }

    /// True if the model can be asked to think before it answers ([`ChatInput::thinking`]).
    pub fn thinks(&self) -> bool {
        self.source.contains("enable_thinking")
    }

    /// The text of messages. `add_generation_prompt` appends the opening of the model's turn. The text begins with
    /// `<bos>`. For ids, use [`render_for`](Self::render_for): in this text, a message may spell special tokens.
    ///
    /// # Errors
    /// [`Error::Input`] when there are no messages, when one has parts other than text, when the template rejects them
    /// (for example, roles must alternate), or when it fails or exceeds its bounds.
    pub fn render<'a>(&self, input: impl Into<ChatInput<'a>>, add_generation_prompt: bool) -> Result<String> {
        let ChatInput { messages, tools, thinking } = input.into();
        validate(messages)?;
        let context = minijinja::context! {
            messages,
            add_generation_prompt,
            // As in transformers, the variable is defined but none if there are no tools.
            tools => (!tools.is_empty()).then_some(tools),
            documents => (),
            enable_thinking => thinking.map_or(Value::UNDEFINED, Value::from),
            ..Value::from_serialize(&self.special_tokens)
        };
        let describe = |e| describe(&e, self.rejected_remedy());
        let program = ChargedTemplate::compile(&self.source).map_err(describe)?;
        program.run(context, extend).map_err(describe)
    }

    /// The remedy for messages that the template rejects. TranslateGemma's template accepts no plain text.
    fn rejected_remedy(&self) -> &'static str {
        match self.source.contains("source_lang_code") {
            true => {
                "this is TranslateGemma: give a user's content as \
                 [{\"type\": \"text\", \"source_lang_code\": \"en\", \"target_lang_code\": \"de\", \"text\": ..}]"
            }
            false => "correct the messages",
        }
    }

    /// Renders messages so that `tokenizer` can tell the template's special tokens from spellings in a message or in a
    /// function's description.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_for<'a>(
        &self,
        tokenizer: &Tokenizer,
        input: impl Into<ChatInput<'a>>,
        add_generation_prompt: bool,
    ) -> Result<Rendered> {
        let ChatInput { messages, tools, thinking } = input.into();
        let mut texts: Vec<&str> = messages.iter().flat_map(Message::texts).collect();
        tools.iter().for_each(|tool| texts_of(tool, &mut texts));
        let mark = choose_mark(texts.iter().copied()).ok_or_else(|| {
            Error::input("the messages use every character that Unicode keeps for private use", "remove some of them")
        })?;
        let mut any = false;
        let (mut messages, mut tools) = (messages.to_vec(), tools.to_vec());
        let mut change = |text: &mut String| {
            if let Some(with_marks) = tokenizer.mark_spellings(text, mark) {
                *text = with_marks;
                any = true;
            }
        };
        messages.iter_mut().for_each(|message| message.change_texts(&mut change));
        tools.iter_mut().for_each(|tool| change_texts_of(tool, &mut change));
        let text = self.render(ChatInput { messages: &messages, tools: &tools, thinking }, add_generation_prompt)?;
        Ok(Rendered { text, mark: any.then_some(mark) })
    }
}

const TEMPLATE_REMEDY: &str = "use the chat template that came with the model";

/// The template called `default` among several named ones, or the only one.
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

/// Adds functions and filters that templates expect beyond Jinja's own.
fn extend(environment: &mut Environment) {
    environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(message)))
    });
    environment.add_function("strftime_now", |format: String| -> std::result::Result<String, minijinja::Error> {
        jiff::fmt::strtime::format(&format, &jiff::Zoned::now())
            .map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now fails: {e}")))
    });
}

/// The error for a template that cannot be used.
fn refuse(name: &str, error: &minijinja::Error) -> Error {
    match Excess::of(error) {
        Some(excess) => Error::input(format!("{name} {excess}"), TEMPLATE_REMEDY),
        None => Error::input(format!("{name} does not compile: {error}"), TEMPLATE_REMEDY),
    }
}

/// The message with which a template refused its input, by `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// An error of a template: the message it raised on purpose, or where it failed.
fn describe(error: &minijinja::Error, rejected: &str) -> Error {
    if let Some(Raised(message)) = cause_of(error) {
        return Error::input(format!("the chat template rejects the messages: {}", quote(message)), rejected);
    }
    let cause = match error.kind() {
        ErrorKind::OutOfFuel => format!("the chat template does not end within {FUEL} steps"),
        _ => match Excess::of(error) {
            Some(excess) => format!("the chat template {excess}"),
            None => format!("the chat template fails: {error}"),
        },
    };
    Error::input(cause, TEMPLATE_REMEDY)
}

/// Rejects messages on which a template would fail with an unhelpful error, and parts other than text. For an image
/// Gemma's template writes a placeholder, and the model would answer without having seen the image.
fn validate(messages: &[Message]) -> Result<()> {
    if messages.is_empty() {
        return Err(Error::input("the conversation is empty", "give at least one message"));
    }
    for (i, message) in messages.iter().enumerate() {
        let MessageContent::Parts(parts) = &message.content else { continue };
        for (j, part) in parts.iter().enumerate() {
            if part.kind != "text" {
                let cause =
                    format!("part {j} of message {i} is of type {}, and Kiln reads text only", quote(&part.kind));
                return Err(Error::input(cause, "leave it out"));
            }
            if part.text.is_none() {
                let cause = format!("part {j} of message {i} is of type text and has no text");
                return Err(Error::input(cause, "add its text"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
