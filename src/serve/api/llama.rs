//! `/props` and `/slots` of llama.cpp's server, which its clients request at the start.

use super::Call;
use super::answer::ApiAnswer;
use super::fields::shown;
use super::responses::shortest;
use super::tokenize::spelling;
use crate::engine::core::ReplyTokens;
use crate::serve::http::ApiError;
use serde_json::{Value, json};

/// Describes the server and its default sampling.
///
/// # Errors
/// 503: the model is loading.
pub(super) fn props(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let model = call.service.model()?;
    let defaults = call.service.defaults.get();
    let (d, limit) = (&defaults.sampler, i64::try_from(defaults.limit).unwrap_or(-1));
    let piece = |id: Option<u32>| id.map(|id| spelling(&model.tokenizer, id)).unwrap_or_default();
    Ok(json!({
        "default_generation_settings": {
            "n_ctx": model.context,
            "params": {
                "temperature": shortest(d.temperature), "top_k": d.top_k, "top_p": shortest(d.top_p),
                "min_p": shortest(d.min_p), "repeat_penalty": shortest(d.repeat_penalty),
                "presence_penalty": shortest(d.presence_penalty),
                "frequency_penalty": shortest(d.frequency_penalty), "n_predict": limit, "max_tokens": limit,
            },
        },
        "total_slots": model.slots,
        "model_alias": model.name,
        "model_path": model.name,
        "modalities": {"vision": false, "audio": false},
        "bos_token": piece(model.tokenizer.bos()),
        "eos_token": piece(model.tokenizer.eos()),
        "build_info": concat!("kiln ", env!("CARGO_PKG_VERSION")),
        "is_sleeping": false,
    })
    .into())
}

/// Lists the slots, with token counts of those in use. The text of replies is never shown, because it belongs to other
/// clients.
///
/// # Errors
/// 400: the query is wrong. 503: the model is loading, or no slot is idle and one was asked for.
pub(super) fn slots(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let model = call.service.model()?;
    let slots = call.service.slots.get();
    match call.request.query("fail_on_no_slot") {
        Some("1" | "true") if slots.iter().flatten().count() >= model.slots => {
            return Err(ApiError::unavailable("no slot is idle", 1));
        }
        Some("0" | "1" | "true" | "false") | None => {}
        Some(other) => {
            let message = format!("fail_on_no_slot is {}, and has to be 0 or 1", shown(&other.into()));
            return Err(ApiError::bad(message).param("fail_on_no_slot").code("invalid_value"));
        }
    }
    let is_speculative = call.service.settings.drafted > 0;
    let slot = |id: usize| {
        let counts = slots.get(id).copied().flatten();
        let mut slot = json!({
            "id": id, "n_ctx": model.context, "speculative": is_speculative, "is_processing": counts.is_some(),
        });
        if let Some(ReplyTokens { prompt, reply }) = counts {
            slot["n_prompt_tokens"] = prompt.into();
            slot["next_token"] = json!([{"has_next_token": true, "n_decoded": reply}]);
        }
        slot
    };
    Ok((0..model.slots).map(slot).collect::<Value>().into())
}
