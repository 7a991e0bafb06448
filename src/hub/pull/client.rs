//! Requests to the hub and to the hosts that it redirects to. Only the hub gets the token.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ureq::http::header::{HeaderMap, HeaderName, LOCATION};
use ureq::http::{StatusCode, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::proxy::Proxies;
use super::settings::PullSettings;
use crate::display::quote;
use crate::{Cancel, Error, Result};

/// The most redirects that a request follows.
const MOST_REDIRECTS: usize = 10;
/// The longest wait for a connection to a server.
const CONNECT: Duration = Duration::from_secs(20);
/// The longest error body that is read for its explanation, in bytes.
const MAX_EXPLANATION: u64 = 64 << 10;
/// The interval at which a cancellation is noticed.
const LOOK: Duration = Duration::from_millis(100);
/// Variables that name a file of certificates to trust instead of the public ones.
const CERTIFICATES: [&str; 3] = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];

/// An HTTP client for the hub.
pub(super) struct HubClient {
    agent: Agent,
    /// The hub's URL as the user gave it, for messages.
    address: String,
    endpoint: Uri,
    token: Option<String>,
    proxies: Proxies,
    watch: CancelWatch,
}

/// A response, from the host that has the file.
pub(super) struct Answer {
    pub(super) status: u16,
    /// The headers of the last answer, after all redirects.
    headers: HeaderMap,
    /// The hub's own etag and length of the file, if it sent them.
    pub(super) linked: Linked,
    body: Body,
}

/// Properties of a file in the hub's own response, before the redirect to the host that stores it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Linked {
    pub(super) etag: Option<String>,
    pub(super) size: Option<u64>,
}

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A repeated request may succeed. `after`: the seconds that the server asks to wait.
    Passing { why: String, after: Option<u64> },
    /// The hub refuses the request, with a status, an error code and a message.
    Refused { status: u16, code: String, message: String },
    /// The request failed in a way that a repeated request would not change.
    Lasting { why: String, remedy: String },
    /// The caller has cancelled the download.
    Cancelled,
}

impl HubClient {
    /// A client for these settings. Its requests end when `cancel` is set.
    ///
    /// # Errors
    /// Input: the endpoint is not a URL, or the certificates cannot be read.
    pub(super) fn new(settings: &PullSettings, cancel: &Cancel) -> Result<HubClient> {
        let endpoint: Uri =
            settings.endpoint.parse().ok().filter(|uri: &Uri| uri.host().is_some()).ok_or_else(|| {
                let cause = format!("HF_ENDPOINT is {}, which is no address of a server", quote(&settings.endpoint));
                Error::input(cause, "set it as in https://huggingface.co, or unset it")
            })?;
        let tls = TlsConfig::builder().root_certs(root_certificates()?).build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .tls_config(tls)
            .user_agent(concat!("kiln/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(settings.patience.silence))
            .timeout_per_read(Some(settings.patience.silence))
            .timeout_per_write(Some(settings.patience.silence))
            .build();
        let agent = Agent::new_with_config(config);
        let watch = CancelWatch::start(agent.clone(), cancel.clone());
        let proxies = Proxies::by(|name| std::env::var(name).ok());
        let (address, token) = (settings.endpoint.clone(), settings.token.clone());
        Ok(HubClient { agent, address, endpoint, token, proxies, watch })
    }

    /// The hub's address, without a slash at its end.
    pub(super) fn endpoint(&self) -> &str {
        &self.address
    }

    /// True if requests to the hub carry the user's token.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some() && is_private(&self.endpoint)
    }

    /// True if a token is set, but not sent because the connection is not encrypted.
    pub(super) fn withholds_token(&self) -> bool {
        self.token.is_some() && !is_private(&self.endpoint)
    }

    /// Requests `url`, from byte `from` on if that is not 0. Statuses other than 200, 206 and 416 are errors.
    pub(super) fn get(&self, url: &str, from: u64) -> std::result::Result<Answer, Trouble> {
        let mut uri = parse(url)?;
        let mut linked = Linked::default();
        for _ in 0..=MOST_REDIRECTS {
            let response = self.ask(&uri, from)?;
            let is_hub = same_host(&uri, &self.endpoint);
            let (parts, body) = response.into_parts();
            if is_hub {
                linked.take(&parts.headers, parts.status);
            }
            if parts.status.is_redirection() {
                uri = follow(&uri, text(&parts.headers, LOCATION).unwrap_or_default())?;
                continue;
            }
            let answer = Answer { status: parts.status.as_u16(), headers: parts.headers, linked, body };
            return if matches!(answer.status, 200 | 206 | 416) {
                Ok(answer)
            } else {
                Err(answer.trouble(is_hub, &uri))
            };
        }
        Err(Trouble::Lasting { why: format!("{url} leads in a circle"), remedy: "check HF_ENDPOINT".into() })
    }

    fn ask(&self, uri: &Uri, from: u64) -> std::result::Result<ureq::http::Response<Body>, Trouble> {
        let proxy = match self.proxies.of(uri) {
            None => None,
            Some(address) => Some(ureq::Proxy::new(address).map_err(|_| Trouble::Lasting {
                // The value is not shown: it may contain a password.
                why: "the proxy that the environment names has no address of one".into(),
                remedy: "set HTTPS_PROXY as in http://proxy.example:3128".into(),
            })?),
        };
        let through = proxy.as_ref().map(|proxy| format!(" through the proxy {}", proxy.host())).unwrap_or_default();
        let mut request = self.agent.get(uri.clone()).config().proxy(proxy).build();
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| same_host(uri, &self.endpoint) && self.has_token()) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|e| match self.watch.is_cancelled() {
            true => Trouble::Cancelled,
            false => trouble_of(&e, uri.host().unwrap_or_default(), &through),
        })
    }
}

impl Answer {
    /// The value of header `name` as a number.
    pub(super) fn number(&self, name: &'static str) -> Option<u64> {
        text(&self.headers, HeaderName::from_static(name))?.trim().parse().ok()
    }

    /// The first byte's position and the total length in the response to a range request.
    pub(super) fn range(&self) -> Option<(u64, Option<u64>)> {
        let range = text(&self.headers, HeaderName::from_static("content-range"))?.trim().strip_prefix("bytes ")?;
        let (part, whole) = range.split_once('/')?;
        Some((part.split_once('-')?.0.trim().parse().ok()?, whole.trim().parse().ok()))
    }

    /// A reader of the answer's body.
    pub(super) fn into_reader(self) -> impl Read {
        self.body.into_reader()
    }

    fn trouble(self, is_hub: bool, uri: &Uri) -> Trouble {
        let header = |name| text(&self.headers, HeaderName::from_static(name)).unwrap_or_default().trim().to_owned();
        let (status, code, mut message) = (self.status, header("x-error-code"), header("x-error-message"));
        let host = uri.host().unwrap_or_default();
        let after = header("retry-after");
        let after = after.parse().ok().or_else(|| seconds_until(&after));
        // A storage host refuses a signed URL that has expired; the hub issues a new one.
        if !is_hub || matches!(status, 408 | 429 | 500..=599) {
            let why = match status {
                429 => format!("{host} takes no more requests for now (429)"),
                _ => format!("{host} answers with {}", named(status)),
            };
            return Trouble::Passing { why, after };
        }
        if message.is_empty() {
            let mut bytes = Vec::new();
            let _ = self.into_reader().take(MAX_EXPLANATION).read_to_end(&mut bytes);
            let body: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
            message = body.and_then(|body| Some(body.get("error")?.as_str()?.to_owned())).unwrap_or_default();
        }
        Trouble::Refused { status, code: quote(&code), message: quote(message.trim()) }
    }
}

impl Linked {
    /// Takes etag and length from one response of the hub's. The `x-linked-*` headers describe the file behind a
    /// redirect.
    fn take(&mut self, headers: &HeaderMap, status: StatusCode) {
        let header = |name| text(headers, HeaderName::from_static(name));
        let whole = status == StatusCode::OK;
        let etag = header("x-linked-etag").or_else(|| header("etag").filter(|_| status.is_success()));
        let size = header("x-linked-size").or_else(|| header("content-length").filter(|_| whole));
        self.etag = self.etag.take().or_else(|| etag.map(plain_etag));
        self.size = self.size.or_else(|| size?.trim().parse().ok());
    }
}

/// An etag without quotes and without the weak prefix `W/`.
fn plain_etag(etag: &str) -> String {
    etag.trim().trim_start_matches("W/").trim_matches('"').to_owned()
}

/// A status with its reason: `503 Service Unavailable`.
fn named(status: u16) -> String {
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    reason.map_or_else(|| status.to_string(), |reason| format!("{status} {reason}"))
}

/// The number of seconds from now until a date in HTTP's format.
fn seconds_until(date: &str) -> Option<u64> {
    let then = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    Some(then.duration_since(jiff::Timestamp::now()).as_secs().max(0) as u64)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn parse(url: &str) -> std::result::Result<Uri, Trouble> {
    url.parse().ok().filter(|uri: &Uri| uri.host().is_some()).ok_or_else(|| Trouble::Lasting {
        why: format!("{} is no address", quote(url)),
        remedy: "check HF_ENDPOINT".into(),
    })
}

/// The URL that a redirect from `from` leads to.
fn follow(from: &Uri, location: &str) -> std::result::Result<Uri, Trouble> {
    let wrong = |what: &str| Trouble::Lasting {
        why: format!("{} sends on to {}, {what}", from.host().unwrap_or_default(), quote(location)),
        remedy: "check HF_ENDPOINT, and the proxy if there is one".into(),
    };
    let next = match (location.starts_with('/') && !location.starts_with("//"), from.scheme(), from.authority()) {
        (true, Some(scheme), Some(authority)) => format!("{scheme}://{authority}{location}"),
        _ => location.to_owned(),
    };
    let next: Uri = next.parse().map_err(|_| wrong("which is no address"))?;
    match (from.scheme_str(), next.scheme_str(), next.host()) {
        (Some("https"), Some("http"), _) => Err(wrong("which is not encrypted")),
        (_, Some("https" | "http"), Some(_)) => Ok(next),
        _ => Err(wrong("which is no address")),
    }
}

/// True if two URLs have the same scheme, host and port. The token is sent to no other host.
fn same_host(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    (a.scheme_str(), host(a), port(a)) == (b.scheme_str(), host(b), port(b))
}

/// True if the connection is encrypted, or does not leave this machine.
fn is_private(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    uri.scheme_str() == Some("https") || host == "localhost" || host == "[::1]" || host.starts_with("127.")
}

/// The certificates to trust: from the file that a variable names, else the built-in public ones.
fn root_certificates() -> Result<RootCerts> {
    let named = |name: &'static str| Some((name, std::env::var_os(name).filter(|value| !value.is_empty())?));
    let Some((name, file)) = CERTIFICATES.into_iter().find_map(named) else { return Ok(RootCerts::WebPki) };
    let file = std::path::PathBuf::from(file);
    // `requests` accepts a directory too; here it is an error.
    let wrong = |why: String| {
        let cause = format!("{name} is {}, {why}", file.display());
        Error::input(cause, "name a file with certificates in PEM, or unset it")
    };
    let pem = std::fs::read(&file).map_err(|e| wrong(format!("which cannot be read: {e}")))?;
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match certificates.is_empty() {
        true => Err(wrong("which has no certificate".into())),
        false => Ok(RootCerts::Specific(Arc::new(certificates))),
    }
}

fn trouble_of(e: &ureq::Error, host: &str, through: &str) -> Trouble {
    let passing = |why: String| Trouble::Passing { why, after: None };
    match e {
        ureq::Error::Timeout(_) => passing(format!("{host} is silent{through}")),
        ureq::Error::HostNotFound => passing(format!("the name {host} is not found{through}")),
        ureq::Error::Io(e) => passing(format!("{host} cannot be reached{through}: {e}")),
        ureq::Error::ConnectProxyFailed(why) => Trouble::Lasting {
            why: format!("{host} cannot be reached{through}: {why}"),
            remedy: "check the proxy's address and password in HTTPS_PROXY, or name the host in NO_PROXY".into(),
        },
        ureq::Error::Rustls(_) | ureq::Error::Tls(_) => Trouble::Lasting {
            why: format!("{host} cannot be trusted{through}: {e}"),
            remedy: "check the clock; where a proxy has its own certificate, name that in SSL_CERT_FILE".into(),
        },
        _ => passing(format!("{host} gives no answer of use{through}: {e}")),
    }
}

/// Ends an agent's requests once the work is cancelled.
struct CancelWatch {
    cancel: Cancel,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CancelWatch {
    fn start(agent: Agent, cancel: Cancel) -> CancelWatch {
        let is_over = Arc::new(AtomicBool::new(false));
        let (own, over) = (cancel.clone(), is_over.clone());
        let look = move || {
            while !over.load(Ordering::Relaxed) {
                if own.is_set() {
                    return agent.shutdown();
                }
                std::thread::park_timeout(LOOK);
            }
        };
        // Without the thread a request ends by its own limits.
        let thread = std::thread::Builder::new().name("pull-cancel".into()).spawn(look).ok();
        CancelWatch { cancel, is_over, thread }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_set()
    }
}

impl Drop for CancelWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_an_address_and_never_out_of_encryption() {
        let hub: Uri = "https://hub.example/org/a".parse().unwrap();
        let to = |location: &str| follow(&hub, location).map(|uri| uri.to_string());
        assert_eq!(to("/b?c=d"), Ok("https://hub.example/b?c=d".into()));
        assert_eq!(to("https://cdn.example/x"), Ok("https://cdn.example/x".into()));
        for location in ["http://cdn.example/x", "", "x", "//cdn.example/x", "file:///etc/passwd", "https://"] {
            assert!(matches!(to(location), Err(Trouble::Lasting { .. })), "{location}");
        }
    }

    #[test]
    fn the_token_goes_to_the_hub_alone_and_never_in_the_clear() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let hub = uri("https://hub.example");
        assert!(same_host(&hub, &uri("https://HUB.example:443/a")));
        for other in
            ["http://hub.example/a", "https://hub.example:444", "https://cdn.hub.example", "https://hub.example.org"]
        {
            assert!(!same_host(&hub, &uri(other)), "{other}");
        }
        for (address, private) in [
            ("https://hub.example", true),
            ("http://hub.example", false),
            ("http://127.0.0.1:80", true),
            ("http://localhost", true),
            ("http://[::1]:8080", true),
            ("http://localhost.example", false),
        ] {
            assert_eq!(is_private(&uri(address)), private, "{address}");
        }
    }

    #[test]
    fn a_server_may_say_when_by_a_date() {
        assert_eq!(seconds_until("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        assert!(seconds_until("Wed, 06 Nov 2199 08:49:37 GMT").is_some_and(|seconds| seconds > 1_000_000));
        assert_eq!(seconds_until("soon"), None);
    }
}
