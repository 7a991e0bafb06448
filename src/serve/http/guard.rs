//! Who may ask: the names that the server answers to, the pages that may call it, and the keys.

use super::error::ApiError;
use super::keys::ApiKeys;
use super::listen::ListenAddress;
use super::parse::Head;
use super::request::{Client, Method, Peer};

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
    pub keys: ApiKeys,
    /// Places with keys of their own, or none, in place of those.
    pub keys_at: Vec<(ListenAddress, ApiKeys)>,
    /// Paths that need no key.
    pub open_paths: Vec<String>,
    /// Listens on other than loopback addresses even without keys.
    pub open_to_all: bool,
}

/// What the guard says of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Admission {
    /// The handler may have it.
    Pass,
    /// A browser asks on behalf of a page whether it may call: it may.
    Preflight,
    /// The peer may not.
    Refuse(ApiError),
}

impl Guard {
    /// The guard of the listener that `is_it` knows by its place.
    pub(super) fn of(&self, is_it: impl Fn(&ListenAddress) -> bool) -> Guard {
        let own = self.keys_at.iter().find(|(place, _)| is_it(place)).map(|(_, keys)| keys.clone());
        Guard { keys: own.unwrap_or_else(|| self.keys.clone()), ..self.clone() }
    }

    /// The keys of all places.
    pub fn all_keys(&self) -> impl Iterator<Item = &ApiKeys> {
        std::iter::once(&self.keys).chain(self.keys_at.iter().map(|(_, keys)| keys))
    }

    /// The name of the key that a request brings.
    pub(super) fn key_name(&self, head: &Head) -> Option<String> {
        given_keys(head).find_map(|key| self.keys.name_of(key))
    }

    /// Judges a request by its head, before its body is read.
    pub(super) fn judge(&self, head: &Head, peer: &Peer) -> Admission {
        // A browser does not reach a Unix socket, and what does names any host.
        if matches!(peer, Peer::Tcp(_)) && !self.answers_to(head) {
            let (text, name) = head.host.as_ref().map_or(("", ""), |host| (&host.text, &host.name));
            let name = if name.is_empty() { "NAME".to_owned() } else { name.escape_default().to_string() };
            let message = format!("this server does not answer to the host {text:?}; start it with --host {name}");
            return Admission::Refuse(ApiError::new(403, message).code("host_not_allowed"));
        }
        let origin = head.headers.get("origin");
        let asks = head.method == Method::Options && head.headers.get("access-control-request-method").is_some();
        match origin {
            Some(origin) if asks && self.allows(origin) => return Admission::Preflight,
            Some(origin) if asks || self.is_forged(origin, head) => {
                let message = format!(
                    "pages of {origin:?} may not call this server; start it with --cors-origin {}",
                    origin.escape_default()
                );
                return Admission::Refuse(ApiError::new(403, message).code("origin_not_allowed"));
            }
            _ => {}
        }
        let needs_key = self.keys.are_needed() && !self.open_paths.contains(&head.path);
        match needs_key && !given_keys(head).any(|key| self.keys.has(key)) {
            true => Admission::Refuse(
                ApiError::new(401, "this server needs an API key: `Authorization: Bearer KEY`")
                    .code("invalid_api_key")
                    .header("WWW-Authenticate", "Bearer"),
            ),
            false => Admission::Pass,
        }
    }

    /// With whom a request shares what a client may have: those who bring its key, where others bring another or none, else
    /// those of its address or user.
    pub(super) fn client(&self, head: &Head, peer: &Peer) -> Client {
        let has_others = !self.keys_at.is_empty();
        given_keys(head).find_map(|key| self.keys.client(key, has_others)).unwrap_or_else(|| peer.into())
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
    /// A key protects from that as well, since a browser adds none by itself. What a page reads is refused too: the browser
    /// would keep it from the page without a word.
    fn is_forged(&self, origin: &str, head: &Head) -> bool {
        let host = head.host.as_ref().map_or("", |host| &host.text);
        let is_own = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
        !self.keys.are_needed() && !is_own && !self.allows(origin)
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
