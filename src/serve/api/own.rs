//! Requests of this process: the answers that a peer gets, without a connection.

use super::answer::ApiAnswer;
use super::run::{self, PendingAnswer};
use super::send::note_failure;
use super::{Api, Call, chat};
use crate::engine::request::Abandoned;
use crate::serve::http::{ApiError, Handler, HttpRequest, Method, Notes};
use crate::{Cancel, Error, Result};
use serde_json::Value;
use std::cell::Cell;
use std::sync::Arc;

impl Api {
    /// Answers a request for `target`, a path with its query, and passes the answer's status and body to `pass` as it
    /// is made. Returns the status.
    ///
    /// # Errors
    /// As `pass`. Interrupted: `cancel` is set. The error that ended a stream.
    pub(in crate::serve) fn request(
        &self,
        method: Method,
        target: &str,
        body: &[u8],
        cancel: &Cancel,
        pass: &mut dyn FnMut(u16, &[u8]) -> Result<()>,
    ) -> Result<u16> {
        let mut request = match HttpRequest::of_this_process(method, target, body) {
            Ok(request) => request,
            Err(e) => return self.pass_error(target, &e, pass),
        };
        let body = std::mem::take(&mut request.body);
        let replies = match self.answer(&request, body) {
            Ok(ApiAnswer::Whole { status, body, .. }) => return pass(status, &body).map(|()| status),
            Ok(ApiAnswer::Replies(asked, wording)) => {
                let (notes, abandoned) = (Notes::default(), abandoned(cancel));
                PendingAnswer::start(&self.service, asked, wording, request.client, notes, abandoned)
            }
            Err(e) => Err(e),
        };
        match replies.map(|replies| replies.until(cancel)) {
            Ok(replies) if replies.is_stream => match replies.stream(&mut |text| pass(200, text.as_bytes()))? {
                Ok(()) => Ok(200),
                Err((e, last)) => {
                    if self.note(&request, &e) {
                        pass(200, last.as_bytes())?;
                    }
                    Err(e.into())
                }
            },
            replies => match replies.and_then(PendingAnswer::whole) {
                Ok(value) => pass(200, value.to_string().as_bytes()).map(|()| 200),
                Err(e) if self.note(&request, &e) => self.pass_error(&request.path, &e, pass),
                Err(e) => Err(e.into()),
            },
        }
    }

    /// Passes an error on as the answer of `path`.
    fn pass_error(&self, path: &str, e: &ApiError, pass: &mut dyn FnMut(u16, &[u8]) -> Result<()>) -> Result<u16> {
        pass(e.status, self.wording(path)(e).to_string().as_bytes()).map(|()| e.status)
    }

    /// Counts and logs a failure. Returns false for the end of a request by its caller, which is none.
    fn note(&self, request: &HttpRequest, e: &ApiError) -> bool {
        let is_failure = !matches!(e.cause.as_deref(), Some(Error::Interrupted { .. }));
        if is_failure {
            note_failure(&self.service, request, e, &Notes::default());
        }
        is_failure
    }

    /// Makes the reply to a chat completion's request for one reply, and passes its text to `say` as it comes. Returns
    /// the reply's object without the text, and the error that interrupted it.
    ///
    /// # Errors
    /// The request's, before the reply begins.
    pub(in crate::serve) fn generate(
        &self,
        body: &[u8],
        cancel: &Cancel,
        say: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<(Value, Result<()>)> {
        let mut request = HttpRequest::of_this_process(Method::Post, "/v1/chat/completions", body)?;
        let body = Cell::new(std::mem::take(&mut request.body));
        let call = Call { service: &self.service, request: &request, body: &body, rest: "" };
        let started = call.read(chat::read).and_then(|(asked, chat)| {
            let (events, _) = run::start(&self.service, &asked, request.client, &abandoned(cancel))?;
            Ok((events.until(cancel), chat))
        });
        let noted = |e: ApiError| {
            self.note(&request, &e);
            Error::from(e)
        };
        let (events, chat) = started.map_err(noted)?;
        let (reply, ended) = chat.reply(events, say);
        Ok((reply, ended.map_err(noted)))
    }
}

fn abandoned(cancel: &Cancel) -> Abandoned {
    let cancel = cancel.clone();
    Arc::new(move || cancel.is_set())
}
