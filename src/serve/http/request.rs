//! A request as a handler sees it.

use super::error::ApiError;
use super::parse::Head;
use serde::de::DeserializeOwned;
use std::fmt;
use std::net::SocketAddr;

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is asked. HEAD arrives as [`Method::Get`], and its reply sends headers alone.
    pub method: Method,
    /// The path with its percent-encoding undone, starting with `/`; `*` for `OPTIONS *`.
    pub path: String,
    /// The query's names and values in their order, with their encoding undone.
    pub query: Vec<(String, String)>,
    /// The headers.
    pub headers: Headers,
    /// The body, whole.
    pub body: Vec<u8>,
    /// Who asks.
    pub peer: Peer,
}

impl Request {
    pub(super) fn new(head: Head, body: Vec<u8>, peer: Peer) -> Request {
        Request { method: head.method, path: head.path, query: head.query, headers: head.headers, body, peer }
    }

    /// The first value of a name in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON, nested [`super::JSON_DEPTH`] deep at most.
    ///
    /// # Errors
    /// 400: it is not JSON, too deep, or not what `T` wants; with the line and column.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body)
            .map_err(|e| ApiError::bad(format!("the body is not the JSON wanted here: {e}")).code("invalid_json"))
    }
}

/// What a request asks. The server answers 501 to any other method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET, or HEAD.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// TRACE, which no path takes: it is answered 405 and not 501, since it is no unknown method.
    Trace,
    /// QUERY, likewise.
    Query,
}

impl Method {
    /// All methods.
    pub const ALL: [Method; 8] = [
        Method::Get,
        Method::Post,
        Method::Put,
        Method::Patch,
        Method::Delete,
        Method::Options,
        Method::Trace,
        Method::Query,
    ];

    /// The names that arrive as this method.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Method::Get => &["GET", "HEAD"],
            Method::Post => &["POST"],
            Method::Put => &["PUT"],
            Method::Patch => &["PATCH"],
            Method::Delete => &["DELETE"],
            Method::Options => &["OPTIONS"],
            Method::Trace => &["TRACE"],
            Method::Query => &["QUERY"],
        }
    }

    /// Whether it carries a body, so that its length has to be said.
    pub(super) fn has_body(self) -> bool {
        matches!(self, Method::Post | Method::Put | Method::Patch)
    }

    /// Whether it only looks.
    pub(super) fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Options)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names()[0])
    }
}

/// Names and values in their order. Names are compared without regard to case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub(super) Vec<(String, String)>);

impl Headers {
    /// The first value of a name. Bytes that are not UTF-8 are U+FFFD in it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether one of the comma-separated words of a name's values is `word`.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.all(name).flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// An address.
    Tcp(SocketAddr),
    /// A process of this machine, as it was when it connected.
    Unix {
        /// Its process id.
        pid: i32,
        /// Its user's id.
        user: u32,
        /// Its group's id.
        group: u32,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix { pid, user, group } => write!(f, "process {pid} of user {user}, group {group}"),
        }
    }
}
