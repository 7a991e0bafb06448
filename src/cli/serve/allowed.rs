//! Values of `--host` and `--cors-origin`. A value that no request could match is refused at the start, with the
//! spelling that would match.

use std::net::IpAddr;

/// Parses a name of this machine in the form of a request's `Host`.
pub(super) fn host(text: &str) -> Result<String, String> {
    let bare = text.trim_start_matches('[').split(']').next().unwrap_or_default();
    if let Ok(ip) = bare.parse::<IpAddr>().or_else(|_| text.rsplit_once(':').map_or("", |(ip, _)| ip).parse()) {
        let at = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        return Err(format!("requests to an address need no name; to listen there give --listen {at}:8080"));
    }
    let name = text.split_once("://").map_or(text, |(_, rest)| rest);
    let name = name.split(['/', ':']).next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match name.chars().all(is_name) && !name.is_empty() {
        true if name == text => Ok(name.to_owned()),
        true => Err(format!("a name has no scheme, port or path; give --host {name}")),
        false if text == "*" => Err("give each name that requests may be meant for".into()),
        false => {
            Err("a name has letters, digits, - and . alone; give another script's as a browser does (xn--...)".into())
        }
    }
}

/// Parses an origin, and returns it in the form of browsers: without a path, in lower case, and without the default
/// port.
pub(super) fn origin(text: &str) -> Result<String, String> {
    // `null` is the origin of a page opened from a file.
    if matches!(text, "*" | "null") {
        return Ok(text.to_owned());
    }
    let given = text.to_ascii_lowercase();
    let Some((scheme, authority)) = given.split_once("://") else {
        let given = given.trim_end_matches('/');
        return Err(format!("an origin begins with its scheme; give http://{given} or https://{given}"));
    };
    let authority = authority.trim_end_matches('/');
    let name = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if name != authority {
        return Err(format!("an origin has no path; give {scheme}://{name}"));
    }
    let is_usual = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '@');
    if scheme.is_empty() || name.is_empty() || !name.chars().all(is_usual) {
        return Err("give SCHEME://HOST or SCHEME://HOST:PORT as the browser sends it, or * for every site".into());
    }
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let name = if own_port.is_empty() { name } else { name.strip_suffix(own_port).unwrap_or(name) };
    Ok(format!("{scheme}://{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for (given, taken) in [
            ("*", "*"),
            ("null", "null"),
            ("http://localhost:3000/", "http://localhost:3000"),
            ("HTTP://LOCALHOST:3000", "http://localhost:3000"),
            ("https://example.org:443", "https://example.org"),
            ("http://[::1]:80", "http://[::1]"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(origin(given).as_deref(), Ok(taken));
        }
        for (given, remedy) in [
            ("localhost:3000", "http://localhost:3000"),
            ("https://example.org/chat", "give https://example.org"),
            ("http://localhost:*", "* for every site"),
            ("", "scheme"),
            ("http://", "HOST"),
            ("https://b\u{fc}cher.example", "as the browser sends it"),
        ] {
            assert!(origin(given).unwrap_err().contains(remedy), "{given}: {:?}", origin(given));
        }
    }

    #[test]
    fn a_host_is_a_name_alone() {
        for name in ["kiln.lan", "Kiln.LAN", "kiln.lan.", "my_host", "xn--bcher-kva.example"] {
            assert_eq!(host(name).as_deref(), Ok(name));
        }
        for (given, remedy) in [
            ("https://kiln.lan", "--host kiln.lan"),
            ("kiln.lan:8080", "--host kiln.lan"),
            ("kiln.lan/", "--host kiln.lan"),
            ("*", "each name"),
            ("", "letters"),
            ("0.0.0.0", "--listen 0.0.0.0:8080"),
            ("127.0.0.1:8080", "--listen 127.0.0.1:8080"),
            ("::", "--listen [::]:8080"),
            ("[::1]:8080", "--listen [::1]:8080"),
        ] {
            assert!(host(given).unwrap_err().contains(remedy), "{given}: {:?}", host(given));
        }
    }
}
