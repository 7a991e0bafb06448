//! One connection: its requests, one after the other, and how it ends.

use super::Handler;
use super::access::{Access, AccessLog, Ended, own_id};
use super::body::Body;
use super::budget::{Budget, Share};
use super::connections::Connections;
use super::error::ApiError;
use super::guard::{Guard, Verdict, preflight};
use super::incoming::{Incoming, Unread};
use super::limits::Limits;
use super::parse::{Framing, Head};
use super::reply::{Ending, Exchange, Form, State};
use super::request::{Peer, Request};
use super::socket::{Gone, Socket};
use crate::serve::deadline::after;
use crate::serve::unique::unique;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What all connections of a server share.
pub(super) struct Service<'a, H: ?Sized> {
    pub limits: Arc<Limits>,
    pub access: AccessLog,
    pub budget: Arc<Budget>,
    pub connections: Arc<Connections>,
    pub handler: &'a H,
}

/// How a connection goes on after a request, or ends.
enum Next {
    /// With the next request.
    Request,
    /// It ends, and the peer reads what was sent.
    End,
    /// It ends in a way that the peer cannot take for the answer's end.
    Reset,
    /// It ends, and nobody reads any more.
    Drop,
}

impl<H: Handler + ?Sized> Service<'_, H> {
    /// Answers a connection's requests until it ends.
    pub fn serve(&self, socket: &Arc<Socket>, peer: &Peer, guard: &Guard) {
        let mut incoming = Incoming::new(&**socket);
        // Counted from the connection's start, so that one without a request costs no more than that.
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
                Next::Request => {}
                Next::End => {
                    // Closed with bytes unread, the connection would be reset, and the answer perhaps lost.
                    socket.end();
                    socket.discard(usize::MAX, after(self.limits.linger_time));
                    return;
                }
                Next::Reset => return socket.reset_when_dropped(),
                Next::Drop => return,
            }
        }
    }

    /// Answers the next request, whose head is complete at `deadline`.
    fn answer_next(
        &self,
        socket: &Arc<Socket>,
        peer: &Peer,
        guard: &Guard,
        incoming: &mut Incoming<&Socket>,
        deadline: Instant,
    ) -> Next {
        let (started, begun) = (Instant::now(), SystemTime::now());
        let mut exchange = Exchange::new(socket.clone(), self.limits.clone(), self.connections.clone());
        let (mut asked, mut key, mut id) = (None, None, unique("req_"));
        let answered = match self.connections.is_draining() {
            true => Err(Unread::Refused(ApiError::stopping())),
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
            Err(Unread::Refused(e)) => {
                exchange.form.keep = false;
                exchange.notes.set("error", e.code.unwrap_or(e.kind));
                if asked.is_none() {
                    exchange.shared.push(("X-Request-Id", id.clone()));
                    exchange.words = self.handler.wording(&incoming.path());
                }
                let _ = exchange.reply().error(&e);
            }
            Err(Unread::Nothing | Unread::Gone) => exchange.state = State::Gone,
        }
        if asked.is_some() || exchange.status.is_some() {
            let end = match exchange.state {
                State::Done => Ended::Whole,
                State::Failed(_) => Ended::Failed,
                State::Due | State::Streaming(_) | State::Gone => Ended::Gone,
            };
            self.access.note(|| {
                let (peer, asked, notes) = (peer.clone(), asked.clone(), exchange.notes.take());
                Access { id, peer, key, asked, status: exchange.status, begun, time: started.elapsed(), end, notes }
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
            State::Done if exchange.form.keep => Next::Request,
            State::Done | State::Failed(Ending::Chunk | Ending::Headers) => Next::End,
            State::Failed(Ending::Connection) => Next::Reset,
            // What has not been sent of a stream that the connection's end would end is not worth an end.
            State::Due | State::Streaming(_) | State::Gone => match exchange.status {
                Some(_) => Next::Reset,
                None => Next::Drop,
            },
        }
    }

    /// Answers the request whose head was read.
    ///
    /// # Errors
    /// The request cannot be read to its end.
    fn answer(
        &self,
        head: Head,
        peer: &Peer,
        guard: &Guard,
        incoming: &mut Incoming<&Socket>,
        exchange: &mut Exchange,
    ) -> Result<(), Unread> {
        exchange.form = Form { is_1_1: head.is_1_1, is_head: head.is_head, keep: head.keep };
        let own = match guard.judge(&head, peer) {
            Verdict::Pass if head.path == "*" => Some(Ok(vec![("Allow", "GET, HEAD, POST, OPTIONS".to_owned())])),
            Verdict::Pass => None,
            Verdict::Preflight => Some(Ok(preflight(&head))),
            Verdict::Refuse(e) => Some(Err(e)),
        };
        if let Some(own) = own {
            // The body that comes is not worth its reading.
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
            // What comes of it is dropped with the connection.
            exchange.form.keep &= head.framing == Framing::None;
            self.handle(Request::new(head, Body::default(), peer.clone(), client), exchange);
            return Ok(());
        }
        if head.expects && head.framing != Framing::None && incoming.rest().is_empty() {
            exchange.proceed().map_err(|_| Unread::Gone)?;
        }
        let body = incoming.body(head.framing, &self.limits, Share::new(self.budget.clone(), client))?;
        self.handle(Request::new(head, body, peer.clone(), client), exchange);
        Ok(())
    }

    /// Hands a request to the handler.
    fn handle(&self, request: Request, exchange: &mut Exchange) {
        exchange.expect_answer();
        // Unwind safe: of what the handler left unfinished, only the exchange is used again, and it says how far it is.
        let handled = catch_unwind(AssertUnwindSafe(|| self.handler.handle(request, exchange.reply())));
        if matches!(handled, Ok(Err(Gone))) && exchange.state == State::Due {
            exchange.state = State::Gone;
        }
    }
}
