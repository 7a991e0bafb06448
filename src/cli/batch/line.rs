//! One line of the input of `kiln batch`: a prompt, and how its reply is made.

use crate::cli::reply::ReplyArgs;
use crate::sequence::prompt::{encode_messages, encode_text};
use crate::sequence::{Chooser, Conversation, Limits, Reply, Request};
use crate::text::{ChatTemplate, Message, MessageContent, Tokenizer};
use crate::{Error, Result};
use serde::Deserialize;

/// What a line may hold. Options are named as those of `kiln run`, and default to those of the command line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Line {
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    system: Option<String>,
    raw: Option<bool>,
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

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Several(Vec<String>),
}

const REMEDY: &str = r#"write a line such as {"prompt": "Hello", "n": 50}"#;

/// What lines are read with.
pub(super) struct Reader<'a> {
    pub(super) defaults: &'a ReplyArgs,
    pub(super) limits: Limits<'a>,
    /// `None`: the model directory has none. Then lines give token ids.
    pub(super) text: Option<(&'a Tokenizer, &'a ChatTemplate)>,
}

/// A line that was understood.
pub(super) struct Asked {
    pub(super) request: Request,
    /// `None` without a tokenizer.
    pub(super) reply: Option<Reply>,
}

impl Reader<'_> {
    /// Reads a line.
    ///
    /// # Errors
    /// Input: it is no object of these keys, a value is out of range, or the prompt does not fit the context.
    pub(super) fn read(&self, line: &[u8]) -> Result<Asked> {
        match line.trim_ascii().first() {
            None => return Err(Error::input("the line is empty", REMEDY)),
            // An array would be taken for the values of the keys in their order.
            Some(b'[') => return Err(Error::input("the line is no JSON object", REMEDY)),
            Some(_) => {}
        }
        let line: Line = serde_json::from_slice(line).map_err(|e| {
            Error::input(format!("the line is not understood: {}", in_plain_words(&e.to_string())), REMEDY)
        })?;
        let options = self.options(&line);
        options.sampler().validate()?;
        let tokenizer = self.text.map(|(tokenizer, _)| tokenizer);
        if tokenizer.is_none() && !options.stop.is_empty() {
            return Err(Error::input(
                "stop strings need a tokenizer, and the model directory has none",
                "leave out stop",
            ));
        }
        let reply = tokenizer.map(|tokenizer| Reply::new(tokenizer, &options.stop)).transpose()?;
        let request = Request {
            prompt: self.encode(line, &options)?,
            chooser: Chooser::new(options.sampler(), self.limits.shape.vocab)?,
            stops: options.stops(self.limits.shape, tokenizer),
            limit: options.limit(),
            reuse: true,
        };
        Ok(Asked { request, reply })
    }

    fn options(&self, line: &Line) -> ReplyArgs {
        let d = self.defaults;
        ReplyArgs {
            raw: line.raw.unwrap_or(d.raw),
            // An empty text is none.
            system: line.system.clone().filter(|text| !text.is_empty()).or(d.system.clone()),
            n: line.n.or(d.n),
            temp: line.temp.unwrap_or(d.temp),
            top_k: line.top_k.unwrap_or(d.top_k),
            top_p: line.top_p.unwrap_or(d.top_p),
            min_p: line.min_p.unwrap_or(d.min_p),
            repeat_penalty: line.repeat_penalty.unwrap_or(d.repeat_penalty),
            seed: line.seed.or(d.seed),
            stop: match &line.stop {
                Some(Stops::One(text)) => vec![text.clone()],
                Some(Stops::Several(texts)) => texts.clone(),
                None => d.stop.clone(),
            },
            ignore_eos: line.ignore_eos.unwrap_or(d.ignore_eos),
        }
    }

    fn encode(&self, line: Line, options: &ReplyArgs) -> Result<Vec<u32>> {
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
                encode_messages(tokenizer, template, conversation.messages(), self.limits)
            }
            (None, Some(mut messages), None) => {
                let (tokenizer, template) = with_text()?;
                messages.retain(|message| !(message.role == "system" && is_empty(&message.content)));
                encode_messages(tokenizer, template, &messages, self.limits)
            }
            (None, None, Some(ids)) => self.limits.check(0, &ids).map(|()| ids),
            _ => Err(Error::input("the line has none of prompt, messages and tokens", REMEDY)),
        }
    }
}

/// Whether a content is text, and empty.
fn is_empty(content: &MessageContent) -> bool {
    match content {
        MessageContent::Text(text) => text.is_empty(),
        MessageContent::Parts(parts) => {
            parts.iter().all(|part| part.kind == "text" && part.text.as_deref() == Some(""))
        }
    }
}

/// Says in JSON's words what serde says in Rust's.
fn in_plain_words(message: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("expected struct Line", "expected an object"),
        ("expected struct Message", "expected an object with role and content"),
        ("expected usize", "expected a whole number of 0 or more"),
        ("expected u64", "expected a whole number of 0 or more"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected f32", "expected a number"),
        ("data did not match any variant of untagged enum Stops", "stop is neither a text nor a list of texts"),
        (", expected one of `prompt`", "; a line has `prompt`"),
    ];
    WORDS.iter().fold(message.to_owned(), |message, (theirs, plain)| message.replace(theirs, plain))
}
