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
    place: Place,
}

/// Where in the text the next token begins.
#[derive(Debug, Clone, Default)]
struct Place {
    /// Characters before the run of byte tokens.
    characters: usize,
    /// The byte tokens since the last other one. They are characters together.
    run: Vec<u8>,
}

impl Place {
    /// The characters before the next token. A token within a character begins where that does.
    fn offset(&self) -> usize {
        let whole = match std::str::from_utf8(&self.run) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&self.run[..e.valid_up_to()]).unwrap_or_default(),
        };
        self.characters + whole.chars().count()
    }

    /// Ends the run, as [`StreamDecoder`](crate::text::StreamDecoder) does: each byte of one that is no UTF-8 is a character.
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

/// The key of a token: its text, or OpenAI's way to write bytes that are no characters by themselves.
fn key(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |key, byte| format!("{key}\\x{byte:02x}")),
    }
}

impl LogprobTable {
    /// A table of tokens behind this many characters.
    pub fn behind(characters: usize) -> LogprobTable {
        LogprobTable { place: Place { characters, run: Vec::new() }, ..LogprobTable::default() }
    }

    /// Adds a text's first token, which follows none. `is_said`: the text that is echoed has it.
    pub fn add_first(&mut self, tokenizer: &Tokenizer, id: u32, is_said: bool) {
        let said = if is_said { tokenizer.bytes(id) } else { Vec::new() };
        self.add_token(tokenizer, id, &said);
        self.logprobs.push(None);
        self.top.push(Value::Null);
    }

    /// Adds a token that the text has as the bytes `said`.
    fn add_token(&mut self, tokenizer: &Tokenizer, id: u32, said: &[u8]) {
        self.offsets.push(self.place.offset());
        self.place.push(tokenizer, id, said);
        self.tokens.push(key(&tokenizer.bytes(id)));
    }

    /// Adds a token. `is_prompt`: it is the prompt's, whose special tokens are text.
    pub fn add(&mut self, tokenizer: &Tokenizer, token: &ReplyToken, likelihood: &Likelihood, is_prompt: bool) {
        let said = if is_prompt { Some(tokenizer.bytes(token.id)) } else { tokenizer.bytes_of(token.id) };
        self.add_token(tokenizer, token.id, &said.unwrap_or_default());
        self.logprobs.push(Some(likelihood.logprob.max(LEAST)));
        let mut top = Map::new();
        for &(id, logprob) in &likelihood.top {
            // Of two tokens of one text the likelier one, which comes first.
            top.entry(key(&tokenizer.bytes(id))).or_insert_with(|| json!(logprob.max(LEAST)));
        }
        self.top.push(Value::Object(top));
    }

    /// The entries since the last call.
    pub fn take(&mut self) -> Value {
        let place = self.place.clone();
        let LogprobTable { tokens, logprobs, top, offsets, .. } =
            std::mem::replace(self, LogprobTable { place, ..LogprobTable::default() });
        json!({"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets})
    }
}
