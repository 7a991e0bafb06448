//! Likelihoods of tokens in OpenAI's formats.

use super::fields::Fields;
use crate::engine::request::ReplyToken;
use crate::sequence::Likelihood;
use crate::sequence::likelihood::MOST_TOP;
use crate::serve::http::ApiError;
use crate::text::Tokenizer;
use serde_json::{Map, Value, json};

/// The likelihood that stands for minus infinity, which JSON cannot express. OpenAI uses the same number.
const LEAST: f32 = -9999.0;

/// Reads a chat completion's `logprobs` and `top_logprobs`: the number of alternatives, or `None` without likelihoods.
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

/// The likelihood object of a plain completion, which grows token by token.
#[derive(Debug, Clone, Default)]
pub(super) struct LogprobTable {
    tokens: Vec<String>,
    logprobs: Vec<Option<f32>>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    place: Place,
}

/// The position of the next token in the text.
#[derive(Debug, Clone, Default)]
struct Place {
    /// Characters before the current run of byte tokens.
    characters: usize,
    /// Bytes of the current run of byte tokens, which together form characters.
    run: Vec<u8>,
}

impl Place {
    /// The number of characters before the next token. A token inside a character begins where the character does.
    fn offset(&self) -> usize {
        let whole = match std::str::from_utf8(&self.run) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&self.run[..e.valid_up_to()]).unwrap_or_default(),
        };
        self.characters + whole.chars().count()
    }

    /// Ends the run. As in [`StreamDecoder`](crate::text::StreamDecoder), a run that is not UTF-8 has a character per
    /// byte.
    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        self.characters += std::str::from_utf8(&run).map_or(run.len(), |text| text.chars().count());
    }

    fn push(&mut self, tokenizer: &Tokenizer, id: u32, bytes: &[u8]) {
        match tokenizer.is_byte(id) {
            true => self.run.extend_from_slice(bytes),
            false => {
                self.end_run();
                self.characters += String::from_utf8_lossy(bytes).chars().count();
            }
        }
    }
}

/// A token's key: its text, or OpenAI's notation for bytes that are not UTF-8.
fn key(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |key, byte| format!("{key}\\x{byte:02x}")),
    }
}

impl LogprobTable {
    /// A table for tokens after this many characters.
    pub fn behind(characters: usize) -> LogprobTable {
        LogprobTable { place: Place { characters, run: Vec::new() }, ..LogprobTable::default() }
    }

    /// Adds a text's first token, which has no likelihood. `is_said`: the echoed text contains it.
    pub fn add_first(&mut self, tokenizer: &Tokenizer, id: u32, is_said: bool) {
        let said = if is_said { tokenizer.bytes(id) } else { Vec::new() };
        self.add_token(tokenizer, id, &said);
        self.logprobs.push(None);
        self.top.push(Value::Null);
    }

    /// Adds a token to the table. `said`: the token's bytes in the reply's text.
    fn add_token(&mut self, tokenizer: &Tokenizer, id: u32, said: &[u8]) {
        self.offsets.push(self.place.offset());
        self.place.push(tokenizer, id, said);
        self.tokens.push(key(&tokenizer.bytes(id)));
    }

    /// Adds a token. `is_prompt`: it belongs to the prompt, in which special tokens are shown as text.
    pub fn add(&mut self, tokenizer: &Tokenizer, token: &ReplyToken, likelihood: &Likelihood, is_prompt: bool) {
        let said = if is_prompt { Some(tokenizer.bytes(token.id)) } else { tokenizer.bytes_of(token.id) };
        self.add_token(tokenizer, token.id, &said.unwrap_or_default());
        self.logprobs.push(Some(likelihood.logprob.max(LEAST)));
        let mut top = Map::new();
        for &(id, logprob) in &likelihood.top {
            // Of two tokens with the same text the likelier one counts. It comes first.
            top.entry(key(&tokenizer.bytes(id))).or_insert_with(|| json!(logprob.max(LEAST)));
        }
        self.top.push(Value::Object(top));
    }

    /// Takes the entries that were added since the last call.
    pub fn take(&mut self) -> Value {
        let place = self.place.clone();
        let LogprobTable { tokens, logprobs, top, offsets, .. } =
            std::mem::replace(self, LogprobTable { place, ..LogprobTable::default() });
        json!({"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets})
    }
}
