//! Turns text or messages into a prompt's token ids. A prompt that is too long is refused early.

use crate::error::{Setting, Text, text};
use crate::model::Shape;
use crate::schedule::Schedule;
use crate::text::{ChatInput, ChatTemplate, Message, Tokenizer};
use crate::{Error, Result};

/// Limits of every sequence of a loaded model: its vocabulary and the context.
#[derive(Debug, Clone, Copy)]
pub struct SequenceLimits<'a> {
    /// The model's shape.
    pub shape: &'a Shape,
    /// The most positions of a sequence, prompt and reply together.
    pub context: usize,
}

impl<'a> SequenceLimits<'a> {
    /// The limits that a schedule was built for.
    pub fn of(schedule: &'a Schedule) -> SequenceLimits<'a> {
        SequenceLimits { shape: &schedule.shape, context: schedule.extent.context }
    }

    /// Checks tokens that will follow `used` tokens.
    ///
    /// # Errors
    /// Input: there are no tokens, one is outside of the vocabulary, or they exceed the context.
    pub fn check(self, used: usize, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::input("the prompt is empty", "give at least one token"));
        }
        let vocab = self.shape.vocab;
        if let Some(id) = tokens.iter().find(|&&t| t as usize >= vocab) {
            return Err(Error::input(
                format!("token id {id} is outside of the vocabulary of {vocab}"),
                "use ids from this model's tokenizer",
            ));
        }
        let total = used + tokens.len();
        if total > self.context {
            return Err(self.too_long(&format!("{total} tokens")));
        }
        Ok(())
    }

    /// Refuses a text whose length alone shows that it has too many tokens.
    fn check_text(self, tokenizer: &Tokenizer, text: &str) -> Result<()> {
        let fewest = tokenizer.fewest_tokens(text);
        if fewest > self.context {
            return Err(self.too_long(&format!("{} bytes, at least {fewest} tokens,", text.len())));
        }
        Ok(())
    }

    /// The error for a prompt that is too long; `length` describes its length.
    fn too_long(self, length: &str) -> Error {
        let larger = self.larger_context().map_or(Text::default(), |larger| text!(", or ", larger));
        let cause = format!("the prompt of {length} is longer than the context of {}", self.context);
        Error::input(cause, text!("shorten it", larger))
    }

    /// The remedy of a larger context, if the model has one.
    pub fn larger_context(self) -> Option<Text> {
        let most = self.shape.max_context;
        (self.context < most).then(|| text!("raise ", Setting::Context.the(), format!(" (up to {most})")))
    }
}

/// The ids of a text. `<bos>` is put before it unless the text begins with one.
///
/// # Errors
/// Input: the text has more tokens than the context, which is found before encoding it if possible; or the tokenizer
/// has no `<bos>` or cannot encode it.
pub fn encode_text(tokenizer: &Tokenizer, text: &str, limits: SequenceLimits<'_>) -> Result<Vec<u32>> {
    tokenizer.require_bos()?;
    limits.check_text(tokenizer, text)?;
    let ids = tokenizer.encode(text, !text.starts_with("<bos>"))?;
    limits.check(0, &ids)?;
    Ok(ids)
}

/// The ids of messages in the chat template, up to where the model's answer begins. A special token that a message
/// spells stays text.
///
/// # Errors
/// Input: as [`encode_text`], or the template refuses the messages.
pub fn encode_messages<'a>(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    input: impl Into<ChatInput<'a>>,
    limits: SequenceLimits<'_>,
) -> Result<Vec<u32>> {
    let ids = encode_rendered(tokenizer, template, input.into(), limits, true)?;
    limits.check(0, &ids)?;
    Ok(ids)
}

/// As [`encode_messages`], up to the end of the last message's text, which the model continues.
///
/// # Errors
/// As [`encode_messages`], or the template does not end turns by `<end_of_turn>`.
pub fn encode_unfinished<'a>(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    input: impl Into<ChatInput<'a>>,
    limits: SequenceLimits<'_>,
) -> Result<Vec<u32>> {
    let mut ids = encode_rendered(tokenizer, template, input.into(), limits, false)?;
    // Spellings in messages stay text, so the last such token is the template's.
    let end = tokenizer.end_of_turn().and_then(|end| ids.iter().rposition(|&id| id == end));
    let end = end.ok_or_else(|| {
        Error::input("the chat template has no <end_of_turn> before which an answer could go on", "end with a question")
    })?;
    ids.truncate(end);
    limits.check(0, &ids)?;
    Ok(ids)
}

/// The ids of messages, with or without the opening of the model's turn.
fn encode_rendered(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    input: ChatInput<'_>,
    limits: SequenceLimits<'_>,
    open_answer: bool,
) -> Result<Vec<u32>> {
    // Checks the lengths first. Templates trim messages and keep the rest.
    let mut texts = input.messages.iter().flat_map(Message::texts);
    texts.try_for_each(|text| limits.check_text(tokenizer, text.trim()))?;
    tokenizer.encode_rendered(&template.render_for(tokenizer, input, open_answer)?)
}
