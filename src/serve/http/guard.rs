//! Who may ask: the names that the server answers to, the pages that may call it, and the keys.

use super::error::ApiError;
use super::parse::Head;
use super::request::{Client, Method, Peer};
use crate::machine::regular::{self, Links};
use crate::{Error, Result};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use subtle::{Choice, ConstantTimeEq};

/// Who may ask. Without settings: whoever reaches the socket, by an address or as localhost, and no other site's page.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Names besides `localhost` that requests over TCP may be meant for.
    ///
    /// A web page can make a browser resolve the page's own name to an address of this machine (DNS rebinding), and then
    /// counts as the server's own. Such a request names the page's host. A host that is an address cannot be forged so.
    pub names: Vec<String>,
    /// Origins whose pages may call the server from a browser, such as `https://example.org`. They are compared exactly, and
    /// `*` is every page.
    pub origins: Vec<String>,
    /// Keys of which a request needs one, as `Authorization: Bearer KEY` or `x-api-key: KEY`. With none, requests need none.
    pub keys: Keys,
    /// Paths that need no key.
    pub open_paths: Vec<String>,
    /// Listens on other than loopback addresses even without keys.
    pub open_to_all: bool,
}

/// API keys. Clones are the same keys, and change together. Its debug output shows none.
#[derive(Clone, Default)]
pub struct Keys(Arc<RwLock<Vec<String>>>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.with(<[String]>::len))
    }
}

/// Most bytes of a file of keys.
const MOST_BYTES: u64 = 1 << 20;

impl Keys {
    /// Keys from a text with one on each line. Empty lines do not count, nor those that begin with `#`, nor spaces around a
    /// key.
    pub fn parse(text: &str) -> Keys {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Keys(Arc::new(RwLock::new(lines.map(str::to_owned).collect())))
    }

    /// Keys from a file, as [`Keys::parse`].
    ///
    /// # Errors
    /// Input: it cannot be read, is no regular file of UTF-8 text, or has no keys.
    pub fn read(path: &Path) -> Result<Keys> {
        let name = path.display();
        let bytes = regular::read(path, Links::Follow, MOST_BYTES).map_err(|fault| match fault {
            regular::Fault::Io(e) => Error::unreadable(path, &e),
            fault => {
                Error::input(format!("{name} is not used for API keys: {fault}"), "give a file with one key a line")
            }
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::input(format!("{name} is not UTF-8"), "write one key on each line"))?;
        let keys = Keys::parse(&text);
        match keys.is_empty() {
            true => Err(Error::input(format!("{name} has no API keys"), "write one key on each line")),
            false => Ok(keys),
        }
    }

    /// From here on the keys are those of `other`, for all clones.
    pub fn replace(&self, other: &Keys) {
        let new = other.with(<[String]>::to_vec);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    fn with<T>(&self, see: impl FnOnce(&[String]) -> T) -> T {
        see(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.with(<[String]>::is_empty)
    }

    /// Whether `given` is one of them. The time it takes says nothing of a key but its length.
    pub fn has(&self, given: &str) -> bool {
        let found = |found: Choice, key: &String| found | key.as_bytes().ct_eq(given.as_bytes());
        self.with(|keys| keys.iter().fold(Choice::from(0), found).into())
    }

    /// The client that a key stands for. `None`: it is the only one, so that whoever asks brings the same.
    fn client(&self, given: &str) -> Option<Client> {
        static NUMBERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let several = self.with(|keys| keys.len() > 1);
        (several && self.has(given)).then(|| Client::Key(NUMBERS.hash_one(given)))
    }
}

/// What the guard says of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The handler may have it.
    Pass,
    /// A browser asks on behalf of a page whether it may call: it may.
    Preflight,
    /// The peer may not.
    Refuse(ApiError),
}

impl Guard {
    /// Judges a request by its head, before its body is read.
    pub(super) fn judge(&self, head: &Head, peer: &Peer) -> Verdict {
        // A browser does not reach a Unix socket, and what does names any host.
        if matches!(peer, Peer::Tcp(_)) && !self.answers_to(head) {
            let host = head.host.as_ref().map_or("", |host| &host.text);
            let message = format!("this server does not answer to the host {host:?}; add it to the allowed names");
            return Verdict::Refuse(ApiError::new(403, message).code("host_not_allowed"));
        }
        let origin = head.headers.get("origin");
        let asks = head.method == Method::Options && head.headers.get("access-control-request-method").is_some();
        match origin {
            Some(origin) if asks && self.allows(origin) => return Verdict::Preflight,
            Some(origin) if asks || self.is_forged(origin, head) => {
                let message = format!("pages of {origin:?} may not call this server; add it to the allowed origins");
                return Verdict::Refuse(ApiError::new(403, message).code("origin_not_allowed"));
            }
            _ => {}
        }
        let needs_key = !self.keys.is_empty() && !self.open_paths.contains(&head.path);
        match needs_key && !given_keys(head).any(|key| self.keys.has(key)) {
            true => Verdict::Refuse(
                ApiError::new(401, "this server needs an API key: `Authorization: Bearer KEY`")
                    .code("invalid_api_key")
                    .header("WWW-Authenticate", "Bearer"),
            ),
            false => Verdict::Pass,
        }
    }

    /// With whom a request shares what a client may have: those who bring its key, where there are several keys, else those
    /// of its address or user.
    pub(super) fn client(&self, head: &Head, peer: &Peer) -> Client {
        given_keys(head).find_map(|key| self.keys.client(key)).unwrap_or_else(|| peer.into())
    }

    /// HTTP/1.0 without a host passes: no browser sends that.
    fn answers_to(&self, head: &Head) -> bool {
        head.host.as_ref().is_none_or(|host| {
            let is_given = |name: &String| name.trim_end_matches('.').eq_ignore_ascii_case(&host.name);
            host.is_address || host.name == "localhost" || self.names.iter().any(is_given)
        })
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin || allowed == "*")
    }

    /// Whether a page that may not call makes the browser do something: a form may post to any server, without asking it.
    /// A key protects from that as well, since a browser adds none by itself.
    fn is_forged(&self, origin: &str, head: &Head) -> bool {
        let host = head.host.as_ref().map_or("", |host| &host.text);
        let is_own = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
        self.keys.is_empty() && !head.method.is_safe() && !is_own && !self.allows(origin)
    }

    /// The headers that let a browser hand an answer to the page that asked.
    pub(super) fn sharing(&self, head: &Head) -> Vec<(&'static str, String)> {
        if self.origins.is_empty() {
            return Vec::new();
        }
        let mut headers = vec![("Vary", "Origin".to_owned())];
        if let Some(origin) = head.headers.get("origin").filter(|origin| self.allows(origin)) {
            headers.push(("Access-Control-Allow-Origin", origin.to_owned()));
        }
        headers
    }
}

/// The headers that answer a browser's question whether a page may call.
pub(super) fn preflight(head: &Head) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE".to_owned()),
        ("Access-Control-Max-Age", "600".to_owned()),
    ];
    if let Some(wanted) = head.headers.get("access-control-request-headers") {
        headers.push(("Access-Control-Allow-Headers", wanted.to_owned()));
    }
    headers
}

/// The keys that a request brings: OpenAI's clients send one, and Anthropic's another header.
fn given_keys(head: &Head) -> impl Iterator<Item = &str> {
    let bearer = head.headers.get("authorization").and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
    bearer.into_iter().chain(head.headers.get("x-api-key").map(str::trim))
}
