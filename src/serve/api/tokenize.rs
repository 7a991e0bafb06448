//! `/tokenize`, `/detokenize` and `/tokenizer_info` in vLLM's format, the first two also in llama.cpp's.

use super::answer::ApiAnswer;
use super::fields::Fields;
use super::tools::{self, Layout};
use super::{Call, messages, options};
use crate::serve::http::{ApiError, JSON};
use crate::serve::model::Model;
use crate::text::Tokenizer;
use serde_json::json;
use std::sync::Arc;

/// Turns text or messages into tokens.
///
/// # Errors
/// 400: a field is wrong. 503: the model is loading.
pub(super) fn tokenize(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    call.model_name(&fields, &model)?;
    let tools = tools::read(&fields, Layout::Nested, model.template.calls())?;
    let tokens = match (fields.text("prompt")?, fields.text("content")?) {
        // By default vLLM adds <bos> to a prompt, and llama.cpp adds none to content.
        (Some(text), None) => model.tokenizer.encode(text, fields.boolean("add_special_tokens")?.unwrap_or(true)),
        (None, Some(text)) => model.tokenizer.encode(text, fields.boolean("add_special")?.unwrap_or(false)),
        (None, None) if fields.get("messages").is_some() => {
            let dialogue = call.complete(messages::read(&fields)?, &fields, tools.as_ref(), &model);
            Ok(dialogue.encode(&model, "messages")?.tokens)
        }
        (None, None) => return Err(fields.missing("prompt")),
        (Some(_), Some(_)) => return Err(fields.wrong("content", "is given beside prompt")),
    };
    let tokens = tokens.map_err(|e| ApiError::from(&e).param("prompt").code("invalid_value"))?;
    // With millions of tokens a JSON value would take twenty times as much memory as its text.
    let list = serde_json::to_string(&tokens).map_err(|_| ApiError::internal())?;
    let text = format!(r#"{{"count":{},"max_model_len":{},"tokens":{list}}}"#, tokens.len(), model.context);
    Ok(ApiAnswer::of(JSON, &[], text.into_bytes()))
}

/// Sends the tokens that clients such as lm-evaluation-harness put around text themselves.
///
/// # Errors
/// 503: the model is loading.
pub(super) fn info(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let model = call.service.model()?;
    let spelled = |id: Option<u32>| id.map(|id| spelling(&model.tokenizer, id));
    let (bos, eos) = (model.tokenizer.bos(), model.tokenizer.eos());
    Ok(json!({"bos_token": spelled(bos), "eos_token": spelled(eos), "model_max_length": model.context}).into())
}

/// The text of a token by itself, without its neighbours.
pub(super) fn spelling(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(&tokenizer.bytes(id)).into_owned()
}

/// Turns tokens into text.
///
/// # Errors
/// As [`tokenize`].
pub(super) fn detokenize(call: &Call<'_>, model: Arc<Model>, fields: Fields<'_>) -> Result<ApiAnswer, ApiError> {
    call.model_name(&fields, &model)?;
    let tokens = fields.list("tokens")?.ok_or_else(|| fields.missing("tokens"))?;
    let tokens = options::tokens(tokens, "tokens", model.tokenizer.vocab_size())?;
    let text =
        model.tokenizer.decode(&tokens, false).map_err(|e| ApiError::from(&e).param("tokens").code("invalid_value"))?;
    // vLLM's name and llama.cpp's.
    Ok(json!({"prompt": text, "content": text}).into())
}
