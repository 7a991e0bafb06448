//! Access control: accepted host names, origins of web pages, and API keys.

use super::error::ApiError;
use super::keys::ApiKeys;
use super::listen::ListenAddress;
use super::parse::Head;
use super::request::{Client, Method, Peer};

/// Access rules. By default any client that reaches the socket by an address or as localhost is accepted, and no web
/// page of another site.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Host names that are accepted over TCP, besides `localhost`.
    ///
    /// A web page can make a browser resolve the page's own name to an address of this machine (DNS rebinding), and
    /// then counts as same-origin. Such a request has the page's name as its host. An address as host cannot be forged
    /// in this way.
    pub names: Vec<String>,
    /// Origins whose pages may call the server from a browser, such as `https://example.org`. They are compared
    /// exactly; `*` stands for every page.
    pub origins: Vec<String>,
    /// Keys, sent as `Authorization: Bearer KEY` or `x-api-key: KEY`. If there are none, requests need no key.
    pub keys: ApiKeys,
    /// Listeners that accept other keys than `keys`, or need none.
    pub keys_at: Vec<(ListenAddress, ApiKeys)>,
    /// The paths that are answered without a key.
    pub open_paths: Vec<String>,
    /// True: the server may listen on addresses other than loopback without keys.
    pub open_to_all: bool,
}

/// The guard's decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Admission {
    /// The request goes to the handler.
    Pass,
    /// Accepted: a browser's preflight request for a page.
    Preflight,
    /// The request is refused with this error.
    Refuse(ApiError),
}

impl Guard {
    /// The guard for the listener that `is_it` matches.
    pub(super) fn of(&self, is_it: impl Fn(&ListenAddress) -> bool) -> Guard {
        let own = self.keys_at.iter().find(|(place, _)| is_it(place)).map(|(_, keys)| keys.clone());
        Guard { keys: own.unwrap_or_else(|| self.keys.clone()), ..self.clone() }
    }

    /// All sets of keys, for all listeners.
    pub fn all_keys(&self) -> impl Iterator<Item = &ApiKeys> {
        std::iter::once(&self.keys).chain(self.keys_at.iter().map(|(_, keys)| keys))
    }

    /// The name of the key in a request.
    pub(super) fn key_name(&self, head: &Head) -> Option<String> {
        given_keys(head).find_map(|key| self.keys.name_of(key))
    }

    /// Decides on a request by its head, before its body is read.
    pub(super) fn judge(&self, head: &Head, peer: &Peer) -> Admission {
        // Browsers cannot reach a Unix socket, and other clients send any host.
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

    /// The client in whose name a request uses resources: the holder of its key, if there are several keys or keyless
    /// places, else its address or user.
    pub(super) fn client(&self, head: &Head, peer: &Peer) -> Client {
        let has_others = !self.keys_at.is_empty();
        given_keys(head).find_map(|key| self.keys.client(key, has_others)).unwrap_or_else(|| peer.into())
    }

    /// True if the host is accepted. HTTP/1.0 without a host is, because no browser sends it.
    fn answers_to(&self, head: &Head) -> bool {
        head.host.as_ref().is_none_or(|host| {
            let is_given = |name: &String| name.trim_end_matches('.').eq_ignore_ascii_case(&host.name);
            host.is_address || host.name == "localhost" || self.names.iter().any(is_given)
        })
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin || allowed == "*")
    }

    /// Whether a page without permission makes a browser act: a form can post to any server without asking first. A key
    /// protects from that too, since browsers do not add it by themselves. Reads are refused as well; the browser would
    /// hide the answer from the page without an explanation.
    fn is_forged(&self, origin: &str, head: &Head) -> bool {
        let host = head.host.as_ref().map_or("", |host| &host.text);
        let is_own = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
        !self.keys.are_needed() && !is_own && !self.allows(origin)
    }

    /// The headers that allow a browser to pass the answer to the page.
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

/// The headers of the answer to a browser's preflight request.
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

/// The keys in a request. OpenAI's and Anthropic's clients use different headers.
fn given_keys(head: &Head) -> impl Iterator<Item = &str> {
    let bearer = head.headers.get("authorization").and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
    bearer.into_iter().chain(head.headers.get("x-api-key").map(str::trim))
}
