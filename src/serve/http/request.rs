//! A request in the form that handlers get.

use super::body::Body;
use super::budget::{MemoryBudget, Share};
use super::error::ApiError;
use super::limits::Limits;
use super::parse::{Head, RequestTarget, too_large};
use nix::unistd::{getegid, geteuid};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A request whose body is complete.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method. HEAD arrives as [`Method::Get`], and only headers are sent.
    pub method: Method,
    /// The path, percent-decoded, starting with `/`; `*` for `OPTIONS *`.
    pub path: String,
    /// The query's names and values in order, decoded.
    pub query: Vec<(String, String)>,
    /// The headers of the request.
    pub headers: Headers,
    /// The complete body. Empty if the handler does not take one.
    pub body: Body,
    /// The address or the process that sent the request.
    pub peer: Peer,
    /// The client in whose name the request uses resources.
    pub client: Client,
}

impl HttpRequest {
    pub(super) fn new(head: Head, body: Body, peer: Peer, client: Client) -> HttpRequest {
        HttpRequest {
            method: head.method,
            path: head.path,
            query: head.query,
            headers: head.headers,
            body,
            peer,
            client,
        }
    }

    /// A request of this process for `target`, a path with its query. Its body has the limits of any other.
    ///
    /// # Errors
    /// 400: `target` is no path. 413: the body is too long.
    pub fn of_this_process(method: Method, target: &str, bytes: &[u8]) -> Result<HttpRequest, ApiError> {
        let limits = Limits::default();
        let (path, query) = RequestTarget::parse(target, method)?.decoded()?;
        let pid = std::process::id().cast_signed();
        let peer = Peer::Unix { pid, user: geteuid().as_raw(), group: getegid().as_raw() };
        let client = Client::from(&peer);
        if bytes.len() > limits.body_bytes {
            return Err(too_large(&limits));
        }
        let budget = Arc::new(MemoryBudget::new(limits.memory_bytes, limits.parsed_bytes()));
        let mut body = Body::new(Share::new(budget, client));
        body.extend(bytes, bytes.len())?;
        Ok(HttpRequest { method, path, query, headers: Headers::default(), body, peer, client })
    }

    /// The first value of a name in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// A request's method. The server answers 501 to any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The method GET, or HEAD, which is answered without a body.
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
    /// TRACE. No path accepts it, but as a known method it is answered 405 instead of 501.
    Trace,
    /// QUERY. No path accepts it, but as a known method it is answered 405 instead of 501.
    Query,
}

impl Method {
    /// All methods, in order, with the names mapped to them.
    pub const ALL: [(Method, &'static [&'static str]); 8] = [
        (Method::Get, &["GET", "HEAD"]),
        (Method::Post, &["POST"]),
        (Method::Put, &["PUT"]),
        (Method::Patch, &["PATCH"]),
        (Method::Delete, &["DELETE"]),
        (Method::Options, &["OPTIONS"]),
        (Method::Trace, &["TRACE"]),
        (Method::Query, &["QUERY"]),
    ];

    /// The spellings of this method in a request line.
    pub(super) fn names(self) -> &'static [&'static str] {
        Method::ALL[self as usize].1
    }

    /// True if requests of this method must give the length of their body.
    pub(super) fn has_body(self) -> bool {
        matches!(self, Method::Post | Method::Put | Method::Patch)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names()[0])
    }
}

/// Names and values in order. Names are compared ignoring case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub(super) Vec<(String, String)>);

impl Headers {
    /// The first value of a name. Bytes that are not UTF-8 become U+FFFD.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The values of all headers with this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// True if the comma-separated values of header `name` contain `word`, in any case.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.all(name).flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    }
}

/// The ranges of a header such as `Accept` with their weights (RFC 9110, 12.4.2).
pub fn weighted(value: &str) -> impl Iterator<Item = (&str, f32)> {
    value.split(',').map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        (name, parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.trim().parse().unwrap_or(0.0)))
    })
}

/// The address or the process that a connection comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A process on this machine, with its ids when it connected.
    Unix {
        /// The process's id.
        pid: i32,
        /// The id of the process's user.
        user: u32,
        /// The id of the process's group.
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

pub use crate::engine::request::Client;

impl From<&Peer> for Client {
    fn from(peer: &Peer) -> Client {
        match peer {
            Peer::Unix { user, .. } => Client::User(*user),
            Peer::Tcp(address) => Client::Address(match address.ip().to_canonical() {
                IpAddr::V6(ip) if !ip.is_loopback() => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
                ip => ip,
            }),
        }
    }
}
