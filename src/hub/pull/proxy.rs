//! The choice of a proxy, by the environment variables that curl and Python's clients read.

use ureq::http::Uri;

/// The HTTP proxies that environment variables name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Proxies {
    https: Option<String>,
    http: Option<String>,
    none_for: Vec<String>,
}

impl Proxies {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`; their lowercase forms come first.
    pub(super) fn by(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let set = |name: &str| {
            let value = variable(&name.to_lowercase()).or_else(|| variable(name));
            value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let (all, none_for) = (set("ALL_PROXY"), set("NO_PROXY").unwrap_or_default());
        let none_for = none_for.split([',', ' ']).map(|host| host.trim().to_ascii_lowercase());
        Proxies {
            https: set("HTTPS_PROXY").or_else(|| all.clone()),
            http: set("HTTP_PROXY").or(all),
            none_for: none_for.filter(|host| !host.is_empty()).collect(),
        }
    }

    /// The proxy for a request to `uri`; `None` for a direct connection.
    pub(super) fn of(&self, uri: &Uri) -> Option<&str> {
        let proxy = if uri.scheme_str() == Some("https") { &self.https } else { &self.http };
        let (host, port) = (uri.host()?.to_ascii_lowercase(), uri.port_u16());
        proxy.as_deref().filter(|_| !self.none_for.iter().any(|rule| is_exempt(rule, &host, port)))
    }
}

/// True if a rule of `NO_PROXY` matches a host: by its name, by a domain above it, or by `*`.
fn is_exempt(rule: &str, host: &str, port: Option<u16>) -> bool {
    let (rule, of_rule) = match rule.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') => (name, digits.parse::<u16>().ok()),
        _ => (rule, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let domain = rule.trim_start_matches('*').trim_start_matches('.').trim_start_matches('[').trim_end_matches(']');
    let is_host = rule == "*" || host == domain || (!domain.is_empty() && host.ends_with(&format!(".{domain}")));
    is_host && (of_rule.is_none() || of_rule == port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_has_its_proxy_and_a_host_may_have_none() {
        let with = |set: &[(&str, &str)], uri: &str| {
            let found = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            Proxies::by(found).of(&uri.parse().unwrap()).map(str::to_owned)
        };
        let hub = "https://huggingface.co/api";
        let both = [("HTTPS_PROXY", "http://a:1"), ("http_proxy", "http://b:2")];
        assert_eq!(with(&both, hub).as_deref(), Some("http://a:1"));
        assert_eq!(with(&both, "http://localhost:8080/x").as_deref(), Some("http://b:2"));
        assert_eq!(with(&[("ALL_PROXY", "http://c:3")], hub).as_deref(), Some("http://c:3"));
        assert_eq!(with(&[("HTTPS_PROXY", " "), ("all_proxy", "http://c:3")], hub).as_deref(), Some("http://c:3"));
        assert_eq!(with(&[], hub), None);
        for (rules, uri, is_proxied) in [
            ("*", hub, false),
            ("huggingface.co", hub, false),
            ("HUGGINGFACE.CO, b", hub, false),
            (".huggingface.co", "https://cdn.huggingface.co/x", false),
            ("huggingface.co", "https://cdn.huggingface.co/x", false),
            ("*.huggingface.co", "https://cdn.huggingface.co/x", false),
            ("face.co", hub, true),
            ("huggingface.co:8443", hub, true),
            ("127.0.0.1:80,localhost", "https://127.0.0.1:80/x", false),
            ("::1", "https://[::1]/x", false),
            ("", hub, true),
        ] {
            let found = with(&[("HTTPS_PROXY", "http://a:1"), ("NO_PROXY", rules)], uri);
            assert_eq!(found.is_some(), is_proxied, "{rules} {uri}");
        }
    }
}
