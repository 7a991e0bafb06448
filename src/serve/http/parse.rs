//! Parsing of a request's head (RFC 9112).
//!
//! Anything that two parsers could read differently is refused: a line that ends in a bare LF, a folded header, a
//! length given twice or in two ways, a doubled Host. Otherwise a proxy in front of Kiln and Kiln might see different
//! requests.

use super::error::ApiError;
use super::limits::Limits;
use super::request::{Headers, Method};
use percent_encoding::percent_decode_str;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The request line and headers of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub method: Method,
    /// True if the request's method is HEAD. `method` is GET then.
    pub is_head: bool,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Headers,
    /// True for HTTP/1.1, false for HTTP/1.0.
    pub is_1_1: bool,
    /// The host: the authority in the target, else the header. HTTP/1.0 may have none.
    pub host: Option<HostName>,
    pub framing: Framing,
    /// True if the peer waits for `100 Continue` before it sends the body.
    pub expects: bool,
    /// True if the peer may send more requests on this connection.
    pub keep: bool,
}

/// How the end of a request's body is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// The request has no body.
    None,
    /// The body has this number of bytes.
    Length(usize),
    /// The body is sent in chunks, each with its length before it.
    Chunked,
}

/// The name or address of a host, without the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostName {
    /// The host's name in lower case, without a trailing dot, and without the brackets around an IPv6 address.
    pub name: String,
    pub is_address: bool,
    /// The host as the peer sent it, with the port.
    pub text: String,
}

/// Finds the end of a head in bytes that arrive in pieces. Each byte is looked at once. Invalid input is refused at the
/// end of its line, or when it exceeds the limits.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The number of bytes that were examined.
    at: usize,
    /// The index of the current line's first byte.
    line: usize,
    /// The start of the head, after empty lines.
    start: usize,
    /// The number of complete lines so far.
    lines: usize,
}

impl Scan {
    /// The head's range in `bytes`, if it is complete. `bytes` must extend those of the last call.
    pub fn end(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<std::ops::Range<usize>>, ApiError> {
        while let Some(length) = bytes[self.at..].iter().position(|&b| b == b'\n') {
            let end = self.at + length;
            let line = line_before(bytes, self.line, end)?;
            self.at = end + 1;
            self.line = self.at;
            self.check(line.len(), limits)?;
            match line.first() {
                // An empty line before a request may be left from the previous one.
                None if self.lines == 0 => self.start = self.at,
                None => return Ok(Some(self.start..self.at)),
                Some(b' ' | b'\t') => return Err(ApiError::bad("a line of the headers starts with a space")),
                Some(_) => self.lines += 1,
            }
            // Plus the request line.
            if self.lines > limits.fields + 1 {
                let message = format!("more than {} headers", limits.fields);
                return Err(ApiError::new(431, message).code("headers_too_large"));
            }
        }
        self.at = bytes.len();
        self.check(self.at - self.line, limits)?;
        match self.lines {
            0 => check_method(&bytes[self.line..]).map(|()| None),
            _ => Ok(None),
        }
    }

    /// Refuses a request's line, or a head so far, that is too long.
    fn check(&self, line: usize, limits: &Limits) -> Result<(), ApiError> {
        if self.lines == 0 && line > limits.line_bytes {
            return Err(ApiError::new(414, format!("the request's line is longer than {} bytes", limits.line_bytes)));
        }
        if self.at > limits.head_bytes {
            let message = format!("the headers are longer than {} bytes", limits.head_bytes);
            return Err(ApiError::new(431, message).code("headers_too_large"));
        }
        Ok(())
    }
}

/// The line from `start` to the LF at `end`.
pub(super) fn line_before(bytes: &[u8], start: usize, end: usize) -> Result<&[u8], ApiError> {
    bytes[start..end].strip_suffix(b"\r").ok_or_else(|| ApiError::bad("a line ends in LF without CR"))
}

/// Refuses bytes that cannot begin a request before a line end arrives: a TLS hello has no line end, and its sender
/// waits.
fn check_method(line: &[u8]) -> Result<(), ApiError> {
    let method = line.split(|&b| b == b' ').next().unwrap_or_default();
    // A leading line end is allowed; httparse checks the rest.
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    match method.strip_suffix(b"\r").unwrap_or(method).iter().all(is_token) {
        true => Ok(()),
        false if line.first() == Some(&0x16) => {
            Err(ApiError::bad("this is no HTTP request, but perhaps TLS; use http:// and not https://"))
        }
        false => Err(ApiError::bad("the first line is no request")),
    }
}

impl Head {
    /// Parses a head found by [`Scan`].
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Head, ApiError> {
        let mut fields = vec![httparse::EMPTY_HEADER; limits.fields];
        let mut parsed = httparse::Request::new(&mut fields);
        let complete = parsed.parse(bytes).map_err(|e| refusal(e, bytes))?;
        let (httparse::Status::Complete(_), Some(method), Some(target), Some(version)) =
            (complete, parsed.method, parsed.path, parsed.version)
        else {
            return Err(ApiError::bad("the request ends early"));
        };
        let (name, is_1_1) = (method, version == 1);
        let Some((method, _)) = Method::ALL.into_iter().find(|(_, names)| names.contains(&name)) else {
            return Err(ApiError::new(501, format!("the method {name} is not served")));
        };
        let headers = parsed.headers.iter().map(|field| {
            (field.name.to_owned(), String::from_utf8_lossy(field.value).trim_matches([' ', '\t']).to_owned())
        });
        let headers = Headers(headers.collect());
        let target = RequestTarget::parse(target, method)?;
        let host = host(&headers, target.authority, is_1_1)?;
        let (path, query) = target.decoded()?;
        let framing = framing(&headers, method, is_1_1, limits)?;
        if let Some(expected) = headers.get("expect").filter(|value| !value.eq_ignore_ascii_case("100-continue")) {
            return Err(ApiError::new(417, format!("the expectation {expected:?} cannot be met")));
        }
        Ok(Head {
            method,
            is_head: name == "HEAD",
            path,
            query,
            is_1_1,
            host,
            framing,
            expects: is_1_1 && headers.get("expect").is_some(),
            keep: !headers.lists("connection", "close") && (is_1_1 || headers.lists("connection", "keep-alive")),
            headers,
        })
    }
}

/// The error for a head that httparse refuses.
fn refusal(e: httparse::Error, bytes: &[u8]) -> ApiError {
    let line = bytes.split(|&b| b == b'\r').next().unwrap_or_default();
    let mut words = line.rsplit(|&b| b == b' ');
    let version = words.next().unwrap_or_default();
    match e {
        httparse::Error::Version if is_version(version) && words.count() == 2 => {
            ApiError::new(505, format!("{} is not served; HTTP/1.1 is", String::from_utf8_lossy(version)))
        }
        httparse::Error::TooManyHeaders => ApiError::new(431, "too many headers").code("headers_too_large"),
        httparse::Error::HeaderName | httparse::Error::HeaderValue => ApiError::bad("a header has bytes that none may"),
        _ => ApiError::bad("the first line is no request"),
    }
}

fn is_version(word: &[u8]) -> bool {
    matches!(word, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
        if major.is_ascii_digit() && minor.is_ascii_digit())
}

/// The target in the request line.
pub(super) struct RequestTarget<'a> {
    authority: Option<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl<'a> RequestTarget<'a> {
    /// `/path?query`, `http://authority/path?query`, or `*` of OPTIONS.
    pub fn parse(text: &'a str, method: Method) -> Result<RequestTarget<'a>, ApiError> {
        const SCHEME: &str = "http://";
        if text == "*" && method == Method::Options {
            return Ok(RequestTarget { authority: None, path: "*", query: "" });
        }
        let (authority, rest) = match text.get(..SCHEME.len()) {
            Some(scheme) if scheme.eq_ignore_ascii_case(SCHEME) => {
                let rest = &text[SCHEME.len()..];
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
            _ => (None, text),
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = if path.is_empty() && authority.is_some() { "/" } else { path };
        if !path.starts_with('/') || text.contains('#') {
            return Err(ApiError::bad("the request's target is no path"));
        }
        Ok(RequestTarget { authority, path, query })
    }

    /// The path, and the query's names and values.
    pub fn decoded(&self) -> Result<(String, Vec<(String, String)>), ApiError> {
        Ok((without_empty_segments(decode(self.path)?), pairs(self.query)?))
    }
}

/// Decodes the percent-encoded bytes of a path or a query.
fn decode(text: &str) -> Result<String, ApiError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if !decoded.contains('\0') => Ok(decoded.into_owned()),
        _ => Err(ApiError::bad("the request's target is not UTF-8 text")),
    }
}

/// Removes empty segments from a path. A base URL that ends with a slash gives a double slash, and some clients end
/// each path with one.
fn without_empty_segments(path: String) -> String {
    match path.len() > 1 && (path.contains("//") || path.ends_with('/')) {
        true => format!("/{}", path.split('/').filter(|segment| !segment.is_empty()).collect::<Vec<_>>().join("/")),
        false => path,
    }
}

/// The names and values of a query in form encoding.
fn pairs(query: &str) -> Result<Vec<(String, String)>, ApiError> {
    let word = |text: &str| decode(&text.replace('+', " "));
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((word(name)?, word(value)?))
    });
    pairs.collect()
}

/// The host that a request is for: the authority of its target, or else its `Host` header.
fn host(headers: &Headers, authority: Option<&str>, is_1_1: bool) -> Result<Option<HostName>, ApiError> {
    let mut given = headers.all("host");
    let header = given.next();
    if given.next().is_some() {
        return Err(ApiError::bad("there are two Host headers"));
    }
    if header.is_none() && is_1_1 {
        return Err(ApiError::bad("the Host header is missing"));
    }
    let header = header.map(HostName::parse).transpose()?;
    authority.map(HostName::parse).transpose().map(|target| target.or(header))
}

impl HostName {
    /// Parses `name`, `name:port`, `address` or `[address]:port`. An empty text is a host without a name.
    pub fn parse(text: &str) -> Result<HostName, ApiError> {
        let refused = || ApiError::bad("the Host is no name or address");
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(refused)?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let is_v6 = text.starts_with('[');
        let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
            return Err(refused());
        }
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        if if is_v6 { name.parse::<Ipv6Addr>().is_err() } else { !is_name } {
            return Err(refused());
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        Ok(HostName { is_address: is_v6 || name.parse::<Ipv4Addr>().is_ok(), name, text: text.to_owned() })
    }
}

/// The framing of a request's body, from its headers.
fn framing(headers: &Headers, method: Method, is_1_1: bool, limits: &Limits) -> Result<Framing, ApiError> {
    let mut lengths = headers.all("content-length");
    let (length, second) = (lengths.next(), lengths.next());
    let codings: Vec<&str> =
        headers.all("transfer-encoding").flat_map(|value| value.split(',')).map(str::trim).collect();
    if !codings.is_empty() {
        if length.is_some() {
            return Err(ApiError::bad("the body's length is given both as Transfer-Encoding and as Content-Length"));
        }
        if !is_1_1 {
            return Err(ApiError::bad("HTTP/1.0 has no Transfer-Encoding"));
        }
        let is_chunked = |coding: &&str| coding.eq_ignore_ascii_case("chunked");
        return match codings.split_last() {
            Some((last, before)) if is_chunked(last) && before.is_empty() => Ok(Framing::Chunked),
            Some((_, before)) if before.iter().any(is_chunked) => {
                Err(ApiError::bad("the body is chunked before another Transfer-Encoding"))
            }
            _ => Err(ApiError::new(501, "a body may be chunked, and nothing else")),
        };
    }
    match (length, second) {
        (None, _) if method.has_body() => {
            Err(ApiError::new(411, format!("a {method} needs a Content-Length, or a body in chunks")))
        }
        (None, _) => Ok(Framing::None),
        (Some(_), Some(_)) => Err(ApiError::bad("Content-Length is given twice")),
        (Some(text), None) if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) => {
            Err(ApiError::bad("Content-Length is no number"))
        }
        // A number that overflows is too large as well.
        (Some(text), None) => match text.parse().ok().filter(|&length| length <= limits.body_bytes) {
            Some(0) => Ok(Framing::None),
            Some(length) => Ok(Framing::Length(length)),
            None => Err(too_large(limits)),
        },
    }
}

/// A 413 error: the body exceeds the limit.
pub(super) fn too_large(limits: &Limits) -> ApiError {
    let message = format!("the body is longer than {} bytes", limits.body_bytes);
    ApiError::new(413, message).code("body_too_large")
}
