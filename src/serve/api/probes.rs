//! Health checks, metrics and status. None of them waits for the engine.

use super::Call;
use super::answer::ApiAnswer;
use crate::schedule::kv::PAGE;
use crate::serve::health::Phase;
use crate::serve::http::{ApiError, JSON, weighted};
use crate::serve::service::Service;
use crate::version;
use serde_json::{Value, json};
use std::time::Duration;

/// An engine with work but without progress for this long counts as hung.
const STALLED: Duration = Duration::from_secs(60);

/// Content types of the formats of [`crate::serve::metrics::Metrics`].
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `/livez`: whether the process should be kept.
///
/// # Errors
/// None: the verdict is the status.
pub(super) fn live(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let (is_live, value) = liveness(call.service);
    Ok(verdict(is_live, &value))
}

/// `/readyz`: whether requests are answered in good time.
///
/// # Errors
/// None: the verdict is the status.
pub(super) fn ready(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let (is_ready, value) = readiness(call.service);
    Ok(verdict(is_ready, &value))
}

/// `/health`: both of them.
///
/// # Errors
/// None: the verdict is the status.
pub(super) fn health(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let ((is_live, live), (is_ready, ready)) = (liveness(call.service), readiness(call.service));
    let word = if is_live && is_ready { "ok" } else { "unavailable" };
    Ok(verdict(is_live && is_ready, &json!({"status": word, "live": live, "ready": ready})))
}

fn verdict(is_well: bool, value: &Value) -> ApiAnswer {
    let (status, headers): (u16, &[_]) = if is_well { (200, &[]) } else { (503, &[("Retry-After", "5")]) };
    ApiAnswer::Whole { status, content_type: JSON, headers, body: value.to_string().into_bytes().into() }
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

/// Answers requests for embeddings, which are not supported.
///
/// # Errors
/// 501.
pub(super) fn no_embeddings(_: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let message = "this server makes text and no embeddings; ask one that has loaded a model for them";
    Err(ApiError::new(501, message).code("not_implemented"))
}

/// Sends the metrics, as OpenMetrics if requested.
///
/// # Errors
/// None.
pub(super) fn metrics(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let metrics = &call.service.metrics;
    let (content_type, text) = match wants_openmetrics(call.request.headers.all("accept")) {
        true => (OPENMETRICS, metrics.openmetrics()),
        false => (PROMETHEUS, metrics.prometheus()),
    };
    Ok(ApiAnswer::of(content_type, &[("Vary", "Accept")], text.into_bytes()))
}

/// True if `Accept` prefers OpenMetrics to plain text.
fn wants_openmetrics<'a>(accept: impl Iterator<Item = &'a str>) -> bool {
    let (mut openmetrics, mut plain) = (0.0, 0.0);
    for (range, weight) in accept.flat_map(weighted) {
        let best: &mut f32 = match range.to_ascii_lowercase().as_str() {
            "application/openmetrics-text" => &mut openmetrics,
            "text/plain" => &mut plain,
            _ => continue,
        };
        *best = best.max(weight);
    }
    openmetrics > 0.0 && openmetrics >= plain
}

/// The server's status for the page.
///
/// # Errors
/// None.
pub(super) fn status(call: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    let Call { service, .. } = call;
    let (health, metrics, model) = (&service.health, &service.metrics, service.model().ok());
    Ok(json!({
        "version": version::VERSION,
        "commit": version::COMMIT,
        "features": version::features().collect::<Vec<_>>(),
        "model": model.as_ref().map(|model| &model.name),
        "device": model.as_ref().map(|model| model.device()),
        "ready": health.ready().is_ok(),
        "phase": health.phase().name(),
        "uptime_s": health.uptime().as_secs_f64(),
        "boot_s": health.boot().map(|boot| boot.as_secs_f64()),
        "tokens_per_s": metrics.tokens_per_second.get(),
        "running": metrics.running.get(),
        "queued": metrics.waiting.get(),
        "slots": metrics.slots.get(),
        "kv_tokens": metrics.kv_pages.get() * PAGE as i64,
        "kv_tokens_used": metrics.kv_pages_used.get() * PAGE as i64,
        "roofline_share": metrics.roofline_share.get(),
        "context": model.as_ref().map(|model| model.context),
    })
    .into())
}

#[cfg(test)]
mod tests {
    use super::wants_openmetrics;

    #[test]
    fn openmetrics_goes_to_those_that_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        for (accept, wants) in [
            (prometheus, true),
            ("application/openmetrics-text", true),
            ("text/plain;version=0.0.4", false),
            ("text/plain, application/openmetrics-text;q=0.5", false),
            ("application/openmetrics-text;q=0", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(wants_openmetrics([accept].into_iter()), wants, "{accept}");
        }
    }
}
