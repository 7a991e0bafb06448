//! A connection: its requests in sequence, and its end.

use super::Handler;
use super::access::{AccessLog, AccessRecord, Outcome, own_id};
use super::body::Body;
use super::budget::{MemoryBudget, Share};
use super::connections::Connections;
use super::error::ApiError;
use super::guard::{Admission, Guard, preflight};
use super::incoming::{Incoming, NoRequest};
use super::limits::Limits;
use super::parse::{Framing, Head};
use super::reply::{Ending, Exchange, ResponseForm, ResponseState};
use super::request::{HttpRequest, Peer};
use super::socket::{Gone, Socket};
use crate::engine::deadline::after;
use crate::serve::unique::unique;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// State shared by a server's connections.
pub(super) struct ServerContext<'a, H: ?Sized> {
    pub limits: Arc<Limits>,
    pub access: AccessLog,
    pub budget: Arc<MemoryBudget>,
    pub connections: Arc<Connections>,
    pub handler: &'a H,
}

/// The state of a connection after a request.
enum AfterRequest {
    /// The connection remains open, and the next request follows.
    Request,
    /// Closed after the peer has read the answer.
    End,
    /// Reset, so that the peer cannot mistake the connection's end for the answer's end.
    Reset,
    /// Dropped, because the peer does not read any more.
    Drop,
}

impl<H: Handler + ?Sized> ServerContext<'_, H> {
    /// Answers a connection's requests until it ends.
    pub fn serve(&self, socket: &Arc<Socket>, peer: &Peer, guard: &Guard) {
        let mut incoming = Incoming::new(&**socket);
        // Counted from the connection's start, so that an idle connection cannot hold its place longer.
        let mut first = Some(after(self.limits.head_time));
        loop {
            if incoming.rest().is_empty() {
                let deadline = first.unwrap_or_else(|| after(self.limits.idle_time));
                if socket.wait_for_request(deadline, self.connections.woken()).is_err() {
                    return;
                }
            }
            let deadline = first.take().unwrap_or_else(|| after(self.limits.head_time));
            match self.answer_next(socket, peer, guard, &mut incoming, deadline) {
                AfterRequest::Request => {}
                AfterRequest::End => {
                    // If it were closed with unread bytes it would be reset, and the answer might be lost.
                    socket.end();
                    socket.discard(usize::MAX, after(self.limits.linger_time));
                    return;
                }
                AfterRequest::Reset => return socket.reset_when_dropped(),
                AfterRequest::Drop => return,
            }
        }
    }

    /// Answers the next request, whose head must be complete by `deadline`.
    fn answer_next(
        &self,
        socket: &Arc<Socket>,
        peer: &Peer,
        guard: &Guard,
        incoming: &mut Incoming<&Socket>,
        deadline: Instant,
    ) -> AfterRequest {
        let (started, begun) = (Instant::now(), SystemTime::now());
        let mut exchange = Exchange::new(socket.clone(), self.limits.clone(), self.connections.clone());
        let (mut asked, mut key, mut id) = (None, None, unique("req_"));
        let answered = match self.connections.is_draining() {
            true => Err(NoRequest::Refused(ApiError::stopping())),
            false => incoming.head(&self.limits, deadline).and_then(|head| {
                asked = Some((head.method, head.path.clone()));
                key = guard.key_name(&head);
                id = head.headers.get("x-request-id").and_then(own_id).unwrap_or_else(|| id.clone());
                exchange.shared = guard.sharing(&head);
                exchange.shared.push(("X-Request-Id", id.clone()));
                exchange.words = self.handler.wording(&head.path);
                self.answer(head, peer, guard, incoming, &mut exchange)
            }),
        };
        match answered {
            Ok(()) => exchange.give_up(),
            Err(NoRequest::Refused(e)) => {
                exchange.form.keep = false;
                exchange.notes.set("error", e.code.unwrap_or(e.kind));
                if asked.is_none() {
                    exchange.shared.push(("X-Request-Id", id.clone()));
                    exchange.words = self.handler.wording(&incoming.path());
                }
                let _ = exchange.reply().error(&e);
            }
            Err(NoRequest::Nothing | NoRequest::Gone) => exchange.state = ResponseState::Gone,
        }
        if asked.is_some() || exchange.status.is_some() {
            let end = match exchange.state {
                ResponseState::Done => Outcome::Whole,
                ResponseState::Failed(_) => Outcome::Failed,
                ResponseState::Due | ResponseState::Streaming(_) | ResponseState::Gone => Outcome::Gone,
            };
            self.access.note(|| {
                let (peer, asked, notes) = (peer.clone(), asked.clone(), exchange.notes.take());
                AccessRecord {
                    id,
                    peer,
                    key,
                    asked,
                    status: exchange.status,
                    begun,
                    time: started.elapsed(),
                    end,
                    notes,
                }
            });
        }
        let time = started.elapsed().as_millis();
        match (asked, exchange.status) {
            (Some((method, path)), Some(status)) => log::debug!("{peer}: {method} {path:?}: {status}, {time} ms"),
            (Some((method, path)), None) => log::debug!("{peer}: {method} {path:?}: not answered, {time} ms"),
            (None, Some(status)) => log::debug!("{peer}: no request: {status}"),
            (None, None) => {}
        }
        match exchange.state {
            ResponseState::Done if exchange.form.keep => AfterRequest::Request,
            ResponseState::Done | ResponseState::Failed(Ending::Chunk | Ending::Headers) => AfterRequest::End,
            ResponseState::Failed(Ending::Connection) => AfterRequest::Reset,
            // A stream whose end is the connection's end must be reset, so that it does not look complete.
            ResponseState::Due | ResponseState::Streaming(_) | ResponseState::Gone => match exchange.status {
                Some(_) => AfterRequest::Reset,
                None => AfterRequest::Drop,
            },
        }
    }

    /// Answers a request whose head has been read.
    ///
    /// # Errors
    /// The request cannot be read completely.
    fn answer(
        &self,
        head: Head,
        peer: &Peer,
        guard: &Guard,
        incoming: &mut Incoming<&Socket>,
        exchange: &mut Exchange,
    ) -> Result<(), NoRequest> {
        exchange.form = ResponseForm { is_1_1: head.is_1_1, is_head: head.is_head, keep: head.keep };
        let own = match guard.judge(&head, peer) {
            Admission::Pass if head.path == "*" => Some(Ok(vec![("Allow", "GET, HEAD, POST, OPTIONS".to_owned())])),
            Admission::Pass => None,
            Admission::Preflight => Some(Ok(preflight(&head))),
            Admission::Refuse(e) => Some(Err(e)),
        };
        if let Some(own) = own {
            // The body is not worth reading.
            exchange.form.keep &= head.framing == Framing::None;
            let _ = match own {
                Ok(headers) => {
                    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, v)| (*name, v.as_str())).collect();
                    exchange.reply().send_empty(204, &headers)
                }
                Err(e) => {
                    exchange.notes.set("error", e.code.unwrap_or(e.kind));
                    exchange.reply().error(&e)
                }
            };
            return Ok(());
        }
        let client = guard.client(&head, peer);
        if !self.handler.takes_body(head.method, &head.path) {
            // The body is dropped with the connection.
            exchange.form.keep &= head.framing == Framing::None;
            self.handle(HttpRequest::new(head, Body::default(), peer.clone(), client), exchange);
            return Ok(());
        }
        if head.expects && head.framing != Framing::None && incoming.rest().is_empty() {
            exchange.proceed().map_err(|_| NoRequest::Gone)?;
        }
        let body = incoming.body(head.framing, &self.limits, Share::new(self.budget.clone(), client))?;
        self.handle(HttpRequest::new(head, body, peer.clone(), client), exchange);
        Ok(())
    }

    /// Passes a request to the handler.
    fn handle(&self, request: HttpRequest, exchange: &mut Exchange) {
        exchange.expect_answer();
        // Unwind safe: after a panic only the exchange is used, whose state says how much has been sent.
        let handled = catch_unwind(AssertUnwindSafe(|| self.handler.handle(request, exchange.reply())));
        if matches!(handled, Ok(Err(Gone))) && exchange.state == ResponseState::Due {
            exchange.state = ResponseState::Gone;
        }
    }
}
