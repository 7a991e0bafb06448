//! How likely tokens were, in OpenAI's words.

use super::fields::Fields;
use crate::sequence::Likelihood;
use crate::sequence::likelihood::MOST_TOP;
use crate::serve::http::ApiError;
use crate::serve::job::ReplyToken;
use crate::text::Tokenizer;
use serde_json::{Map, Value, json};

/// Stands for minus infinity, which JSON cannot say. OpenAI's number.
const LEAST: f32 = -9999.0;

/// Reads a chat completion's `logprobs` and `top_logprobs`: of how many of the likeliest tokens the likelihood is wanted.
///
/// # Errors
/// 400: a value is wrong, or `top_logprobs` comes without `logprobs`.
pub(super) fn read(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=MOST_TOP as i64)?.unwrap_or(0) as usize;
    match wanted {
        false if top > 0 => Err(fields.wrong("top_logprobs", "goes with logprobs: true only")),
        false => Ok(None),
        true => Ok(Some(top)),
    }
}

/// A token's entry in a chat completion.
pub(super) fn entry(tokenizer: &Tokenizer, token: &ReplyToken, likelihood: &Likelihood) -> Value {
    let one = |id, logprob: f32| {
        let bytes = tokenizer.bytes(id);
        json!({"token": String::from_utf8_lossy(&bytes), "logprob": logprob.max(LEAST), "bytes": bytes})
    };
    let mut entry = one(token.id, likelihood.logprob);
    entry["top_logprobs"] = likelihood.top.iter().map(|&(id, logprob)| one(id, logprob)).collect();
    entry
}

/// The object of a plain completion, which grows token by token.
#[derive(Debug, Clone, Default)]
pub(super) struct LogprobTable {
    tokens: Vec<String>,
    logprobs: Vec<Option<f32>>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// Characters of all tokens so far.
    length: usize,
}

impl LogprobTable {
    /// Adds a text's first token, which follows none.
    pub fn add_first(&mut self, tokenizer: &Tokenizer, id: u32) {
        self.add_text(String::from_utf8_lossy(&tokenizer.bytes(id)).into_owned());
        self.logprobs.push(None);
        self.top.push(Value::Null);
    }

    fn add_text(&mut self, text: String) {
        self.offsets.push(self.length);
        self.length += text.chars().count();
        self.tokens.push(text);
    }

    pub fn add(&mut self, tokenizer: &Tokenizer, token: &ReplyToken, likelihood: &Likelihood) {
        let text = |id| String::from_utf8_lossy(&tokenizer.bytes(id)).into_owned();
        self.add_text(text(token.id));
        self.logprobs.push(Some(likelihood.logprob.max(LEAST)));
        let top: Map<String, Value> =
            likelihood.top.iter().map(|&(id, logprob)| (text(id), json!(logprob.max(LEAST)))).collect();
        self.top.push(Value::Object(top));
    }

    /// The entries since the last call.
    pub fn take(&mut self) -> Value {
        let length = self.length;
        let LogprobTable { tokens, logprobs, top, offsets, .. } =
            std::mem::replace(self, LogprobTable { length, ..LogprobTable::default() });
        json!({"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets})
    }
}
