//! `/v1/completions`: continues a text without a chat template.

use super::answer::ApiAnswer;
use super::fields::Fields;
use super::logprobs::LogprobTable;
use super::run::{Completion, ParsedRequest, Wording};
use super::{Call, dialogue, form, options};
use crate::engine::request::{CompleteReply, MOST_CHOICES, ReplyEnd, ReplyToken, Request};
use crate::sequence::prompt::encode_text;
use crate::serve::http::ApiError;
use crate::serve::model::Model;
use serde_json::{Value, json};
use std::sync::Arc;

/// The most alternatives that a completion may list for each token.
const MOST_TOP: i64 = 5;

/// Answers a request.
///
/// # Errors
/// 400: a field is wrong. 503: the model is loading.
pub(super) fn complete(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    let name = call.model_name(&fields, &model)?;
    let (stream, with_usage) = options::stream(&fields)?;
    let echo = fields.boolean("echo")?.unwrap_or(false);
    // Some clients send the boolean of chat completions.
    let is_off = fields.get("logprobs") == Some(&Value::Bool(false));
    let likelihoods = if is_off { None } else { fields.integer("logprobs", 0..=MOST_TOP)?.map(|top| top as usize) };
    let scores = echo && likelihoods.is_some();
    let form = form::read(&fields)?;
    let limits: &[&str] =
        if scores { &[] } else { &["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"] };
    let mut ask = options::read(&fields, limits, model.shape.vocab, &call.service.defaults.get())?;
    ask.choices = options::choices(&fields)?;
    ask.likelihoods = likelihoods;
    if scores {
        ask = Request { scores, limit: read_scored(&fields, stream || form.is_some())?, stop: Vec::new(), ..ask };
    }
    let prompts = read_prompts(&fields, &model)?;
    if ask.limit == 0 && prompts.iter().any(|prompt| prompt.tokens.len() < 2) {
        return Err(fields.wrong("prompt", "has one token, before which there is none that it could follow"));
    }
    if prompts.len() * ask.choices > MOST_CHOICES {
        let (count, n) = (prompts.len(), ask.choices);
        let what = format!("has {count} texts with {n} replies each, and at most {MOST_CHOICES} replies are made");
        return Err(fields.wrong("prompt", what));
    }
    let completion = CompletionWording {
        answer: Completion::new(["text_completion"; 2], "cmpl-", name, with_usage),
        first: prompts.iter().filter(|_| scores).filter_map(CompletionPrompt::first).collect(),
        given: prompts.iter().map(|prompt| if scores { prompt.tokens.len() - 1 } else { 0 }).collect(),
        echoes: prompts.iter().map(|prompt| if echo { prompt.text(&model) } else { String::new() }).collect(),
        tables: ask.likelihoods.map(|_| {
            let length = |prompt: &CompletionPrompt| if scores { 0 } else { prompt.text(&model).chars().count() };
            let of = |prompt| std::iter::repeat_n(LogprobTable::behind(length(prompt)), ask.choices);
            prompts.iter().flat_map(of).collect()
        }),
        each: ask.choices,
        model: model.clone(),
    };
    let asks = prompts.into_iter().map(|prompt| Request { prompt: prompt.tokens, ..ask.clone() }).collect();
    Ok(ApiAnswer::replies(ParsedRequest { model, asks, form, stream, forgotten: 0 }, completion))
}
/// Reads the number of tokens to generate after a prompt that is scored.
fn read_scored(fields: &Fields<'_>, has_more: bool) -> Result<usize, ApiError> {
    if has_more {
        return Err(fields.unserved("echo", "with logprobs it goes without a stream and without a form of the reply"));
    }
    for name in ["max_tokens", "max_completion_tokens"] {
        match fields.integer(name, -1..=i64::from(i32::MAX))? {
            Some(limit @ 0..=1) => return Ok(limit as usize),
            Some(_) => {
                return Err(
                    fields.wrong(name, "has to be 0 or 1 where echo and logprobs ask for a prompt's likelihoods")
                );
            }
            None => {}
        }
    }
    Err(fields
        .wrong("max_tokens", "is missing, and has to be 0 or 1 where echo and logprobs ask for a prompt's likelihoods"))
}

struct CompletionPrompt {
    /// The prompt's text; `None` if it was given as tokens.
    text: Option<String>,
    tokens: Vec<u32>,
}

impl CompletionPrompt {
    fn of_text(text: &str, model: &Model) -> Result<CompletionPrompt, ApiError> {
        let tokens = encode_text(&model.tokenizer, text, model.limits());
        let tokens = tokens.map_err(|e| dialogue::refusal(&e, model, "prompt"))?;
        Ok(CompletionPrompt { text: Some(text.to_owned()), tokens })
    }

    fn of_tokens(values: &[Value], model: &Model) -> Result<CompletionPrompt, ApiError> {
        let tokens = options::tokens(values, "prompt", model.shape.vocab)?;
        model.limits().check(0, &tokens).map_err(|e| dialogue::refusal(&e, model, "prompt"))?;
        Ok(CompletionPrompt { text: None, tokens })
    }

    /// The first token, and whether it belongs to the prompt's text. The `<bos>` before a text does not.
    fn first(&self) -> Option<(u32, bool)> {
        Some((*self.tokens.first()?, self.text.as_deref().is_none_or(|text| text.starts_with("<bos>"))))
    }

    fn text(&self, model: &Model) -> String {
        let decode = || {
            let mut stream = model.tokenizer.stream(false);
            let mut text: String = self.tokens.iter().map(|&id| stream.push(id).to_owned()).collect();
            text.push_str(stream.finish());
            text
        };
        self.text.clone().unwrap_or_else(decode)
    }
}

/// Reads the prompt: a text, tokens, or a list of either.
fn read_prompts(fields: &Fields<'_>, model: &Model) -> Result<Vec<CompletionPrompt>, ApiError> {
    const NAME: &str = "prompt";
    let one = |value: &Value| match value {
        Value::String(text) => CompletionPrompt::of_text(text, model),
        Value::Array(values) => CompletionPrompt::of_tokens(values, model),
        _ => Err(fields.wrong(NAME, "mixes tokens with texts")),
    };
    match fields.get(NAME) {
        None => Err(fields.missing(NAME)),
        Some(text @ Value::String(_)) => one(text).map(|prompt| vec![prompt]),
        Some(Value::Array(values)) if values.is_empty() => Err(fields.wrong(NAME, "is an empty list")),
        Some(tokens @ Value::Array(values)) if values[0].is_number() => one(tokens).map(|prompt| vec![prompt]),
        // Checked before encoding, which would be in vain.
        Some(Value::Array(values)) if values.len() > MOST_CHOICES => {
            Err(fields.wrong(NAME, format!("has {} texts, and at most {MOST_CHOICES} are taken", values.len())))
        }
        Some(Value::Array(values)) => values.iter().map(one).collect(),
        Some(value) => Err(super::fields::wrong_kind(NAME, value, "a text, tokens, or a list of either")),
    }
}

/// Formats replies as a completion of OpenAI's API.
struct CompletionWording {
    answer: Completion,
    model: Arc<Model>,
    /// Each prompt's text to repeat before its replies; empty if not requested.
    echoes: Vec<String>,
    /// The first token of each scored prompt, which has no likelihood because no token precedes it, and whether it
    /// belongs to the prompt's text.
    first: Vec<(u32, bool)>,
    /// For each reply, the number of its tokens that are repeated from the prompt.
    given: Vec<usize>,
    /// A table for each choice, if likelihoods are requested.
    tables: Option<Vec<LogprobTable>>,
    /// The number of choices for each prompt.
    each: usize,
}

impl CompletionWording {
    /// Adds a token's likelihood to the choice's table, if the request asks for likelihoods.
    fn note(&mut self, choice: usize, token: &ReplyToken, is_prompt: bool) {
        if let (Some(tables), Some(likelihood)) = (&mut self.tables, &token.likelihood) {
            tables[choice].add(&self.model.tokenizer, token, likelihood, is_prompt);
        }
    }

    /// Takes the likelihoods recorded since the last call.
    fn take_logprobs(&mut self, choice: usize) -> Value {
        self.tables.as_mut().map_or(Value::Null, |tables| tables[choice].take())
    }

    fn choice(&mut self, index: usize, reply: CompleteReply) -> Option<Value> {
        let mut end = reply.end?;
        let prompt = index / self.each;
        let given = self.given[prompt];
        end.generation.prompt += given;
        end.generation.tokens.drain(..given.min(end.generation.tokens.len()));
        self.answer.usage.add(index, self.each, &end);
        if let (Some(tables), Some(&(first, is_said))) = (&mut self.tables, self.first.get(prompt)) {
            tables[index].add_first(&self.model.tokenizer, first, is_said);
        }
        reply.tokens.iter().enumerate().for_each(|(i, token)| self.note(index, token, i < given));
        let said: String = reply.tokens.iter().skip(given).map(|token| token.text.as_str()).collect();
        // A reply without tokens of its own holds back only the prompt's end, which has been echoed already.
        let held = if reply.tokens.len() > given || given == 0 { end.text.as_str() } else { "" };
        let text = self.echoes[prompt].clone() + &said + held;
        let logprobs = self.take_logprobs(index);
        Some(json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": end.generation.finish.name()}))
    }
}

fn piece(index: usize, text: &str, logprobs: Value) -> Value {
    json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": null})
}

impl Wording for CompletionWording {
    fn whole(&mut self, replies: Vec<CompleteReply>) -> Value {
        let choices = replies.into_iter().enumerate().filter_map(|(i, reply)| self.choice(i, reply)).collect();
        self.answer.whole(choices)
    }

    fn begin(&mut self) -> String {
        let choices = 0..self.echoes.len() * self.each;
        let echoed = choices.map(|i| (i, &self.echoes[i / self.each])).filter(|(_, echo)| !echo.is_empty());
        echoed.map(|(i, echo)| self.answer.chunk(piece(i, echo, Value::Null))).collect()
    }

    fn token(&mut self, choice: usize, token: ReplyToken) -> String {
        if token.text.is_empty() && self.tables.is_none() {
            return String::new();
        }
        self.note(choice, &token, false);
        let logprobs = self.take_logprobs(choice);
        self.answer.chunk(piece(choice, &token.text, logprobs))
    }

    fn end(&mut self, choice: usize, end: ReplyEnd) -> String {
        self.answer.usage.add(choice, self.each, &end);
        let mut last = piece(choice, &end.text, Value::Null);
        last["finish_reason"] = end.generation.finish.name().into();
        self.answer.chunk(last)
    }

    fn finish(&mut self) -> String {
        self.answer.done()
    }
}
