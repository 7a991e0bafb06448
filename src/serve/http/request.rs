//! A request as a handler sees it.

use super::body::Body;
use super::parse::Head;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A complete request.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// What is asked. HEAD arrives as [`Method::Get`], and its reply sends headers alone.
    pub method: Method,
    /// The path with its percent-encoding undone, starting with `/`; `*` for `OPTIONS *`.
    pub path: String,
    /// The query's names and values in their order, with their encoding undone.
    pub query: Vec<(String, String)>,
    /// The headers.
    pub headers: Headers,
    /// The body, whole. Empty where the handler takes none.
    pub body: Body,
    /// Who is at the other end.
    pub peer: Peer,
    /// With whom it shares what a client may have.
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

    /// The first value of a name in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
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

/// Who counts as one where clients have shares: of connections, of memory, of places among the replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// An IPv4 address, or an IPv6 network of 64 bits, which is what one customer of a provider has.
    Address(IpAddr),
    /// A user of this machine.
    User(u32),
    /// The holder of one of several API keys, wherever it asks from. The number means nothing outside of this process.
    Key(u64),
}

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
