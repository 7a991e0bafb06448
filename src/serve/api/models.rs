//! `/v1/models`: the loaded model, under its name and its aliases.

use super::answer::ApiAnswer;
use super::{Call, run};
use crate::serve::http::ApiError;
use crate::serve::model::Model;
use serde_json::{Value, json};

/// Lists the names.
///
/// # Errors
/// 503: the model is loading.
pub(super) fn list(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let model = call.service.model()?;
    let names = call.service.names(&model);
    Ok(json!({"object": "list", "data": names.map(|name| describe(&model, name)).collect::<Vec<Value>>()}).into())
}

/// Describes the model by one of its names.
///
/// # Errors
/// 404: the name is another model's. 503: the model is loading.
pub(super) fn show(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let model = call.service.model()?;
    Ok(describe(&model, call.own_name(call.rest, &model)?).into())
}

fn describe(model: &Model, name: &str) -> Value {
    json!({
        "id": name, "object": "model", "created": run::seconds(model.loaded), "owned_by": "kiln",
        "root": model.name, "parent": null, "max_model_len": model.context,
    })
}
