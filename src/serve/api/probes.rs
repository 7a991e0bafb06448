//! What supervisors and the page ask: whether the server lives, is ready, and how it does. None of it waits for the engine.

use super::Call;
use crate::schedule::kv::PAGE;
use crate::serve::health::Phase;
use crate::serve::http::{Gone, JSON, Reply};
use crate::serve::service::Service;
use serde_json::{Value, json};
use std::time::Duration;

/// An engine that has made no progress for so long, with work to do, will make none.
const STALLED: Duration = Duration::from_secs(60);

/// The content type of [`crate::serve::metrics::Metrics::text`].
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether the process is worth keeping.
///
/// # Errors
/// The peer is gone.
pub(super) fn live(call: &Call<'_>, reply: Reply<'_>) -> Result<(), Gone> {
    let (is_live, value) = liveness(call.service);
    send(reply, is_live, &value)
}

/// Whether requests are answered in good time.
///
/// # Errors
/// The peer is gone.
pub(super) fn ready(call: &Call<'_>, reply: Reply<'_>) -> Result<(), Gone> {
    let (is_ready, value) = readiness(call.service);
    send(reply, is_ready, &value)
}

/// Both.
///
/// # Errors
/// The peer is gone.
pub(super) fn health(call: &Call<'_>, reply: Reply<'_>) -> Result<(), Gone> {
    let ((is_live, live), (is_ready, ready)) = (liveness(call.service), readiness(call.service));
    let word = if is_live && is_ready { "ok" } else { "unavailable" };
    send(reply, is_live && is_ready, &json!({"status": word, "live": live, "ready": ready}))
}

fn send(reply: Reply<'_>, is_well: bool, value: &Value) -> Result<(), Gone> {
    match is_well {
        true => reply.json(200, value),
        false => reply.send(503, JSON, &[("Retry-After", "5")], value.to_string().as_bytes()),
    }
}

fn liveness(service: &Service) -> (bool, Value) {
    let stalled = service.health.stalled();
    let is_live = stalled < STALLED && !matches!(service.health.phase(), Phase::Failed(_));
    (is_live, json!({"live": is_live, "since_progress_s": stalled.as_secs_f64()}))
}

fn readiness(service: &Service) -> (bool, Value) {
    let reason = service.health.ready().err();
    (reason.is_none(), json!({"ready": reason.is_none(), "phase": service.health.phase().name(), "reason": reason}))
}

/// The metrics.
///
/// # Errors
/// The peer is gone.
pub(super) fn metrics(call: &Call<'_>, reply: Reply<'_>) -> Result<(), Gone> {
    reply.send(200, OPENMETRICS, &[], call.service.metrics.text().as_bytes())
}

/// What the page shows of the server.
///
/// # Errors
/// The peer is gone.
pub(super) fn status(call: &Call<'_>, reply: Reply<'_>) -> Result<(), Gone> {
    let Call { service, .. } = call;
    let (health, rates, model) = (&service.health, service.metrics.rates(), service.model().ok());
    reply.json(
        200,
        &json!({
            "model": model.as_ref().map(|model| &model.name),
            "device": model.as_ref().map(|model| &model.device),
            "ready": health.ready().is_ok(),
            "phase": health.phase().name(),
            "uptime_s": health.uptime().as_secs_f64(),
            "boot_s": health.boot().map(|boot| boot.as_secs_f64()),
            "tokens_per_s": rates.tokens_per_s,
            "running": rates.running,
            "queued": rates.queued,
            "slots": rates.slots,
            "kv_tokens": rates.pages * PAGE as i64,
            "kv_tokens_used": rates.pages_used * PAGE as i64,
            "roofline_share": rates.roofline_share,
            "context": model.as_ref().map(|model| model.context),
        }),
    )
}
