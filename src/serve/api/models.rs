//! `/v1/models`: the loaded model, under its name and its aliases.

use super::{Call, run};
use crate::serve::http::{Gone, Responder};
use crate::serve::model::Model;
use serde_json::{Value, json};

/// Lists the names.
///
/// # Errors
/// The peer is gone.
pub(super) fn list(call: &Call<'_>, reply: Responder<'_>) -> Result<(), Gone> {
    let list = call.service.model().map(|model| {
        let names = call.service.names(&model);
        json!({"object": "list", "data": names.map(|name| describe(&model, name)).collect::<Vec<Value>>()})
    });
    call.answer(reply, list)
}

/// Describes the model by one of its names.
///
/// # Errors
/// The peer is gone.
pub(super) fn show(call: &Call<'_>, reply: Responder<'_>) -> Result<(), Gone> {
    let name = call.rest;
    let shown = call.service.model().and_then(|model| Ok(describe(&model, call.own_name(name, &model)?)));
    call.answer(reply, shown)
}

fn describe(model: &Model, name: &str) -> Value {
    json!({
        "id": name, "object": "model", "created": run::seconds(model.loaded), "owned_by": "kiln",
        "root": model.name, "parent": null, "max_model_len": model.context,
    })
}
