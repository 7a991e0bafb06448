//! Sends answers to peers.

use super::answer::ApiAnswer;
use super::once;
use super::run::PendingAnswer;
use crate::serve::health::Phase;
use crate::serve::http::{ApiError, Gone, HttpRequest, Notes, Responder};
use crate::serve::service::Service;
use std::sync::Arc;

/// Sends an answer or an error.
///
/// # Errors
/// The peer is gone.
pub(super) fn send(
    service: &Service,
    request: &HttpRequest,
    reply: Responder<'_>,
    answer: Result<ApiAnswer, ApiError>,
) -> Result<(), Gone> {
    let (watch, notes) = (reply.watch(), reply.notes());
    let watched = watch.clone();
    let started = match answer {
        Ok(ApiAnswer::Whole { status, content_type, headers, body }) => {
            return reply.send(status, content_type, headers, &body);
        }
        Ok(ApiAnswer::Replies(asked, wording)) => {
            let abandoned = Arc::new(move || watched.is_gone());
            PendingAnswer::start(service, asked, wording, request.client, notes.clone(), abandoned)
        }
        Err(e) => Err(e),
    };
    let mut replies = match started {
        Ok(replies) => replies,
        Err(e) => return refuse(service, request, reply, &e),
    };
    let headers = replies.headers.drain(..);
    let reply = headers.fold(reply, |reply, (name, value)| reply.with_header(name, value));
    let sent = match replies.is_stream {
        true => {
            let stream = reply.stream(replies.wording.content_type());
            stream.map(|stream| stream.with_last_words(replies.wording.last_words())).and_then(|mut stream| {
                match replies.stream(&mut |text| stream.write(text.as_bytes()))? {
                    Ok(()) => stream.finish(),
                    // The engine cancels requests whose client is gone.
                    Err(_) if watch.is_gone() => Err(Gone),
                    Err((e, last)) => {
                        note_failure(service, request, &e, &notes);
                        stream.fail(last.as_bytes())
                    }
                }
            })
        }
        false => match replies.whole() {
            Ok(value) => reply.json(200, &value),
            // The engine cancels requests whose client is gone.
            Err(_) if watch.is_gone() => Err(Gone),
            Err(e) => refuse(service, request, reply, &e),
        },
    };
    sent.inspect_err(|Gone| {
        if service.health.phase() == Phase::Draining {
            log::warn!("a reply to {} was cut off before its end, as the server stops", request.peer);
        }
    })
}

/// Sends an error as the answer, and notes it for the log.
fn refuse(service: &Service, request: &HttpRequest, reply: Responder<'_>, e: &ApiError) -> Result<(), Gone> {
    note_failure(service, request, e, &reply.notes());
    reply.error(e)
}

/// Counts and logs the server's own errors: no room, too late, or a failure. The access log gets the code of any error.
pub(super) fn note_failure(service: &Service, request: &HttpRequest, e: &ApiError, notes: &Notes) {
    notes.set("error", e.code.unwrap_or(e.kind));
    if e.status < 500 || e.status == 501 {
        return;
    }
    service.metrics.errors.inc();
    let HttpRequest { method, path, peer, .. } = request;
    once::warn_rarely(|| format!("{method} {path} of {peer} is answered {}: {}", e.status, e.message));
}
