//! `/tokenize`, `/detokenize` and `/tokenizer_info` in vLLM's format, the first two also in llama.cpp's.

use super::fields::Fields;
use super::tools::{self, Layout};
use super::{Call, messages, options, table};
use crate::serve::http::{ApiError, Gone, JSON, Responder};
use crate::text::Tokenizer;
use serde_json::{Value, json};

/// Turns text or messages into tokens.
///
/// # Errors
/// The peer is gone.
pub(super) fn tokenize(call: &Call<'_>, reply: Responder<'_>) -> Result<(), Gone> {
    match tokens(call) {
        Ok(text) => reply.send(200, JSON, &[], text.as_bytes()),
        Err(e) => call.refuse(reply, &e),
    }
}

/// The answer as text. With millions of tokens a [`Value`] would take twenty times as much memory.
fn tokens(call: &Call<'_>) -> Result<String, ApiError> {
    let model = call.service.model()?;
    let body = call.body()?;
    let fields = Fields::of_body(&body)?;
    table::TOKENIZE.check(&fields)?;
    call.model_name(&fields, &model)?;
    let tools = tools::read(&fields, Layout::Nested, model.template.calls())?;
    let tokens = match (fields.text("prompt")?, fields.text("content")?) {
        // By default vLLM adds <bos> to a prompt, and llama.cpp adds none to content.
        (Some(text), None) => model.tokenizer.encode(text, fields.boolean("add_special_tokens")?.unwrap_or(true)),
        (None, Some(text)) => model.tokenizer.encode(text, fields.boolean("add_special")?.unwrap_or(false)),
        (None, None) if fields.get("messages").is_some() => {
            let mut dialogue = messages::read(&fields)?;
            dialogue.complete(call.service.system(), tools.as_ref(), model.template.calls());
            Ok(dialogue.encode(&model, "messages")?.tokens)
        }
        (None, None) => return Err(fields.missing("prompt")),
        (Some(_), Some(_)) => return Err(fields.wrong("content", "is given beside prompt")),
    };
    let tokens = tokens.map_err(|e| ApiError::from(&e).param("prompt").code("invalid_value"))?;
    let list = serde_json::to_string(&tokens).map_err(|_| ApiError::internal())?;
    Ok(format!(r#"{{"count":{},"max_model_len":{},"tokens":{list}}}"#, tokens.len(), model.context))
}

/// Sends the tokens that clients such as lm-evaluation-harness put around text themselves.
///
/// # Errors
/// The peer is gone.
pub(super) fn info(call: &Call<'_>, reply: Responder<'_>) -> Result<(), Gone> {
    let info = call.service.model().map(|model| {
        let spelled = |id: Option<u32>| id.map(|id| spelling(&model.tokenizer, id));
        let (bos, eos) = (model.tokenizer.bos(), model.tokenizer.eos());
        json!({"bos_token": spelled(bos), "eos_token": spelled(eos), "model_max_length": model.context})
    });
    call.answer(reply, info)
}

/// A token's text by itself.
pub(super) fn spelling(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(&tokenizer.bytes(id)).into_owned()
}

/// Turns tokens into text.
///
/// # Errors
/// The peer is gone.
pub(super) fn detokenize(call: &Call<'_>, reply: Responder<'_>) -> Result<(), Gone> {
    call.answer(reply, text(call))
}

fn text(call: &Call<'_>) -> Result<Value, ApiError> {
    let model = call.service.model()?;
    let body = call.body()?;
    let fields = Fields::of_body(&body)?;
    table::DETOKENIZE.check(&fields)?;
    call.model_name(&fields, &model)?;
    let tokens = fields.list("tokens")?.ok_or_else(|| fields.missing("tokens"))?;
    let tokens = options::tokens(tokens, "tokens", model.tokenizer.vocab_size())?;
    let text =
        model.tokenizer.decode(&tokens, false).map_err(|e| ApiError::from(&e).param("tokens").code("invalid_value"))?;
    // vLLM's name and llama.cpp's.
    Ok(json!({"prompt": text, "content": text}))
}
