//! An HTTP/1.1 server on std's sockets, independent of models: one thread per connection, and a deadline for every
//! wait.
//!
//! [`Server::bind`] opens sockets, [`Server::run`] answers by a [`Handler`] until a [`Drainer`] stops it. The handler
//! gets complete requests within [`Limits`] that the [`Guard`] has accepted. It answers by a [`Responder`], at once or
//! by a [`ResponseStream`], and a [`PeerWatch`] tells whether the peer is still waiting.
//!
//! ```no_run
//! use kiln::serve::http::{ApiError, EVENTS, Gone, Guard, HttpRequest, Limits, Listen, Method, Responder, Server};
//!
//! fn answer(request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
//!     match (request.method, request.path.as_str()) {
//!         (Method::Get, "/count") => {
//!             let mut stream = reply.stream(EVENTS)?;
//!             (0..3).try_for_each(|i| stream.write(format!("data: {i}\n\n").as_bytes()))?;
//!             stream.finish()
//!         }
//!         (_, "/count") => reply.error(&ApiError::method_not_allowed(&[Method::Get])),
//!         (_, path) => reply.error(&ApiError::not_found(path)),
//!     }
//! }
//!
//! let server = Server::bind(&[Listen::default()], Limits::default(), Guard::default())?;
//! let drainer = server.drainer(); // for the thread that waits for SIGTERM
//! server.run(&answer);
//! # Ok::<(), kiln::Error>(())
//! ```

mod access;
mod body;
mod budget;
mod connection;
mod connections;
mod error;
mod guard;
mod incoming;
mod keys;
mod limits;
mod listen;
mod parse;
mod reply;
mod request;
mod server;
mod socket;
#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(test)]
mod tests;

pub use access::{AccessLog, AccessRecord, Notes, Outcome};
pub use body::{Body, Json};
pub use connections::Drainer;
pub use error::{ApiError, ErrorWording, LastWords};
pub use guard::Guard;
pub use keys::ApiKeys;
pub use limits::{JSON_DEPTH, Limits};
pub use listen::{Listen, ListenAddress};
pub use reply::{EVENTS, JSON, Responder, ResponseStream};
pub use request::{Client, Headers, HttpRequest, Method, Peer, weighted};
pub use server::Server;
pub use socket::{Gone, PeerWatch};
#[cfg(any(test, feature = "testing"))]
pub use testing::requests;

/// Answers requests, many at the same time.
///
/// A handler runs on the connection's thread, whose stack is small ([`Limits::stack_bytes`]). A panic becomes a 500, or
/// ends the stream with an error. Returning without an answer, and without [`Gone`], becomes a 500 as well.
pub trait Handler: Sync {
    /// Answers `request` by `reply`.
    ///
    /// # Errors
    /// The peer is gone: the connection is closed.
    fn handle(&self, request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone>;

    /// The error format of a path, also for requests that do not reach the handler.
    fn wording(&self, _path: &str) -> ErrorWording {
        ApiError::to_json
    }

    /// True if the body of such a request is read. If not, a request with a body ends its connection.
    fn takes_body(&self, _method: Method, _path: &str) -> bool {
        true
    }
}

impl<F: Fn(HttpRequest, Responder<'_>) -> Result<(), Gone> + Sync> Handler for F {
    fn handle(&self, request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
        self(request, reply)
    }
}
