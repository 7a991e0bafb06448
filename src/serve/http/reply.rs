//! The answer to a request, whole or as a stream.

use super::access::Notes;
use super::connections::Connections;
use super::error::{ApiError, ErrorWording, LastWords};
use super::limits::Limits;
use super::socket::{Gone, PeerWatch, Socket};
use crate::engine::deadline::after;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

/// The state of one request's answer on its connection.
pub(super) struct Exchange {
    socket: Arc<Socket>,
    limits: Arc<Limits>,
    connections: Arc<Connections>,
    /// The form of the answer, from the request's head.
    pub form: ResponseForm,
    /// Headers that every answer to this request has.
    pub shared: Vec<(&'static str, String)>,
    /// Formats errors for the API that the request's path belongs to.
    pub words: ErrorWording,
    /// Makes the text that ends a stream if the handler does not finish it.
    last_words: LastWords,
    /// The handler's notes on the request.
    pub notes: Notes,
    pub state: ResponseState,
    /// The status of the answer, once its headers are sent.
    pub status: Option<u16>,
}

/// The form of an answer, from the request's head. Before a head is read: HTTP/1.1, and the connection ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseForm {
    pub is_1_1: bool,
    /// True if only the headers are sent, because the method is HEAD.
    pub is_head: bool,
    /// True if the connection remains open after the answer.
    pub keep: bool,
}

/// The progress of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseState {
    /// No byte of the answer was sent.
    Due,
    /// The answer is a stream, and has not ended.
    Streaming(Ending),
    /// A stream that ended with an error, and must not end cleanly.
    Failed(Ending),
    /// All of the answer was sent.
    Done,
    /// The peer has disconnected, or the connection failed.
    Gone,
}

/// How the peer recognises the end of a streamed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The stream is sent in chunks, and an empty one ends it.
    Chunk,
    /// The connection's end is the stream's end (HTTP/1.0).
    Connection,
    /// The answer has no body, because the method is HEAD.
    Headers,
}

impl Exchange {
    pub fn new(socket: Arc<Socket>, limits: Arc<Limits>, connections: Arc<Connections>) -> Exchange {
        let form = ResponseForm { is_1_1: true, is_head: false, keep: false };
        let (words, last_words): (ErrorWording, LastWords) = (ApiError::to_json, |_| String::new());
        let (shared, notes, state, status) = (Vec::new(), Notes::default(), ResponseState::Due, None);
        Exchange { socket, limits, connections, form, shared, words, last_words, notes, state, status }
    }

    pub fn reply(&mut self) -> Responder<'_> {
        Responder { exchange: self }
    }

    /// Allows the socket to send the answer's first bytes ahead.
    pub fn expect_answer(&self) {
        self.socket.expect_answer();
    }

    /// Sends `100 Continue` to a peer that waits for it.
    pub fn proceed(&mut self) -> Result<(), Gone> {
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    }

    /// Writes within the time limit for the peer.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if self.state == ResponseState::Gone {
            return Err(Gone);
        }
        let deadline = after(self.limits.write_time.saturating_add(self.limits.time_of(bytes.len())));
        self.socket.write(bytes, deadline).inspect_err(|_| self.state = ResponseState::Gone)
    }

    /// Writes the first bytes of an answer, beginning with the status line.
    fn begin(&mut self, status: u16, bytes: &[u8]) -> Result<(), Gone> {
        self.status = Some(status);
        let sent_ahead = self.socket.begin_answer();
        self.write(bytes.get(sent_ahead..).unwrap_or_default())
    }

    /// The status line and headers, without those for the body's framing.
    fn head(&mut self, status: u16, content_type: Option<&str>, headers: &[(&str, &str)]) -> String {
        // While draining, the answer announces that the connection closes.
        self.form.keep &= !self.connections.is_draining();
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        field(&mut head, "Date", &httpdate::fmt_http_date(SystemTime::now()));
        if let Some(content_type) = content_type {
            field(&mut head, "Content-Type", content_type);
        }
        for (name, value) in &self.shared {
            field(&mut head, name, value);
        }
        for (name, value) in headers {
            field(&mut head, name, value);
        }
        head
    }

    /// Writes the `Connection` header, if one is needed, and the empty line after the headers.
    fn end_head(&self, head: &mut String) {
        match self.form {
            ResponseForm { keep: false, .. } => field(head, "Connection", "close"),
            ResponseForm { is_1_1: false, .. } => field(head, "Connection", "keep-alive"),
            _ => {}
        }
        head.push_str("\r\n");
    }

    /// Writes a chunk of a stream. Writes nothing for HEAD or for empty `bytes`, since an empty chunk would end the
    /// stream.
    fn write_part(&mut self, ending: Ending, bytes: &[u8]) -> Result<(), Gone> {
        match ending {
            _ if bytes.is_empty() => Ok(()),
            Ending::Headers => Ok(()),
            Ending::Connection => self.write(bytes),
            Ending::Chunk => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(bytes);
                chunk.extend_from_slice(b"\r\n");
                self.write(&chunk)
            }
        }
    }

    /// Ends an answer that the handler did not finish: by an error if it has not begun, else by the stream's last
    /// words.
    pub fn give_up(&mut self) {
        if matches!(self.state, ResponseState::Due | ResponseState::Streaming(_)) {
            self.notes.set("error", "internal_error");
        }
        match self.state {
            ResponseState::Due => {
                let _ = self.reply().error(&ApiError::internal());
            }
            ResponseState::Streaming(ending) => {
                let last = (self.last_words)(&ApiError::internal());
                if self.write_part(ending, last.as_bytes()).is_ok() {
                    self.state = ResponseState::Failed(ending);
                }
            }
            ResponseState::Failed(_) | ResponseState::Done | ResponseState::Gone => {}
        }
    }
}

/// Adds a header. Line breaks in the value are removed.
fn field(head: &mut String, name: &str, value: &str) {
    let value = value.replace(|c: char| c.is_control(), " ");
    // Writing to a string cannot fail.
    let _ = write!(head, "{name}: {value}\r\n");
}

/// Answers a request: by [`Responder::send`], [`Responder::json`], [`Responder::error`] or [`Responder::stream`].
///
/// Each fails with [`Gone`] if the peer does not take the answer. The handler should then return that.
pub struct Responder<'a> {
    exchange: &'a mut Exchange,
}

impl<'a> Responder<'a> {
    /// A watch on the peer, for any thread.
    pub fn watch(&self) -> PeerWatch {
        self.exchange.watch()
    }

    /// The notes on the request for the access log, for any thread.
    pub fn notes(&self) -> Notes {
        self.exchange.notes.clone()
    }

    /// Adds a header to any answer sent later.
    pub fn with_header(self, name: &'static str, value: String) -> Responder<'a> {
        self.exchange.shared.push((name, value));
        self
    }

    /// Sends a whole answer.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn send(self, status: u16, content_type: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<(), Gone> {
        self.exchange.send(status, Some(content_type), headers, body)
    }

    /// Sends a whole answer without a body.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn send_empty(self, status: u16, headers: &[(&str, &str)]) -> Result<(), Gone> {
        self.exchange.send(status, None, headers, b"")
    }

    /// Sends a JSON value.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn json(self, status: u16, value: &Value) -> Result<(), Gone> {
        self.send(status, JSON, &[], value.to_string().as_bytes())
    }

    /// Sends an error in the format of its path ([`super::Handler::wording`]).
    ///
    /// # Errors
    /// The peer is gone.
    pub fn error(self, e: &ApiError) -> Result<(), Gone> {
        let headers: Vec<(&str, &str)> = e.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = (self.exchange.words)(e).to_string();
        self.send(e.status, JSON, &headers, body.as_bytes())
    }

    /// Begins a stream with status 200 and sends its headers.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn stream(self, content_type: &str) -> Result<ResponseStream<'a>, Gone> {
        let exchange = self.exchange;
        let ending = match exchange.form {
            ResponseForm { is_head: true, .. } => Ending::Headers,
            ResponseForm { is_1_1: true, .. } => Ending::Chunk,
            _ => Ending::Connection,
        };
        exchange.form.keep &= ending != Ending::Connection;
        // Tells proxies to forward each write at once and to cache nothing.
        let headers = [("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no")];
        let mut head = exchange.head(200, Some(content_type), &headers);
        match ending {
            Ending::Chunk => field(&mut head, "Transfer-Encoding", "chunked"),
            Ending::Connection => exchange.socket.ends_answer(),
            Ending::Headers => {}
        }
        exchange.end_head(&mut head);
        exchange.begin(200, head.as_bytes())?;
        exchange.state = ResponseState::Streaming(ending);
        if content_type.starts_with(EVENTS) {
            exchange.last_words = ApiError::to_event;
        }
        Ok(ResponseStream { exchange, ending })
    }
}

/// The content type of JSON.
pub const JSON: &str = "application/json";
/// The content type of server-sent events.
pub const EVENTS: &str = "text/event-stream";

impl Exchange {
    fn watch(&self) -> PeerWatch {
        PeerWatch::new(Arc::downgrade(&self.socket))
    }

    fn send(
        &mut self,
        status: u16,
        content_type: Option<&str>,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), Gone> {
        let mut head = self.head(status, content_type, headers);
        // RFC 9110, 8.6: answers with these statuses have no body and no length.
        let has_body = status >= 200 && !matches!(status, 204 | 304);
        if has_body {
            field(&mut head, "Content-Length", &body.len().to_string());
        }
        self.end_head(&mut head);
        let mut answer = head.into_bytes();
        if has_body && !self.form.is_head {
            answer.extend_from_slice(body);
        }
        self.begin(status, &answer)?;
        self.state = ResponseState::Done;
        Ok(())
    }
}

/// A streamed answer. Each write is sent at once.
///
/// [`ResponseStream::finish`] ends it. A stream dropped without it is aborted when the handler returns or panics: its
/// last words are sent, by default OpenAI's error as an event, and the connection ends so that the peer sees the stream
/// cut off (HTTP/1.1: no last chunk; HTTP/1.0 over TCP: a reset).
pub struct ResponseStream<'a> {
    exchange: &'a mut Exchange,
    ending: Ending,
}

impl ResponseStream<'_> {
    /// Sets the last words, sent if the handler does not finish the stream.
    pub fn with_last_words(self, last_words: LastWords) -> Self {
        self.exchange.last_words = last_words;
        self
    }

    /// A watch on the peer, for any thread.
    pub fn watch(&self) -> PeerWatch {
        self.exchange.watch()
    }

    /// Sends `bytes` in one write. Waits for a slow reader for [`Limits::write_time`], extended by the rate.
    ///
    /// # Errors
    /// The peer is gone, or reads too slowly.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.exchange.write_part(self.ending, bytes)
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// The peer is gone, or reads too slowly.
    pub fn finish(self) -> Result<(), Gone> {
        if self.ending == Ending::Chunk {
            self.exchange.write(b"0\r\n\r\n")?;
        }
        self.exchange.state = ResponseState::Done;
        Ok(())
    }

    /// Ends the stream with an error: sends `last` and marks the stream as cut off.
    ///
    /// # Errors
    /// The peer is gone, or reads too slowly.
    pub fn fail(mut self, last: &[u8]) -> Result<(), Gone> {
        self.write(last)?;
        self.exchange.state = ResponseState::Failed(self.ending);
        Ok(())
    }
}

/// The reason phrase of a status, required by HTTP/1.1 but not used.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Answer",
    }
}

/// An error as a complete answer, for a connection that is turned away.
pub(super) fn error_answer(e: &ApiError) -> Vec<u8> {
    let body = e.to_json().to_string();
    let mut answer = format!("HTTP/1.1 {} {}\r\n", e.status, reason(e.status));
    for (name, value) in &e.headers {
        field(&mut answer, name, value);
    }
    let length = body.len();
    let _ = write!(answer, "Content-Type: {JSON}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    answer.into_bytes()
}
