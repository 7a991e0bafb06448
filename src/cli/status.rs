//! `kiln status`: whether a server is ready, for health checks of containers and for scripts.

use super::{print, print_json};
use crate::{Error, Result};
use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Says whether a server is ready.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/status.txt"))]
pub struct StatusArgs {
    /// Where it listens: an address with a port, as such or as a URL, or the path of a Unix socket
    #[arg(value_name = "AT", default_value = "127.0.0.1:8080")]
    at: String,
}

/// The longest time for the whole command. A server answers health checks without waiting for its engine.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest HTTP answer that is read, in bytes.
const MOST_BYTES: usize = 64 << 10;
/// The most headers of an answer.
const MOST_HEADERS: usize = 64;

/// Runs the command.
///
/// # Errors
/// Failed: the server does not answer, or is not ready.
pub fn run(args: &StatusArgs, json: bool) -> Result<()> {
    let at = &args.at;
    let answer = ask(at).map_err(|e| {
        let remedy = "start it with `kiln serve`, or name where it listens, as in `kiln status 127.0.0.1:8080`";
        Error::failed(format!("no server answers at {at}: {e}"), remedy)
    })?;
    let health = health(&answer)
        .ok_or_else(|| Error::failed(format!("the server at {at} is no Kiln"), "name where `kiln serve` listens"))?;
    if let Some(why) = complaint(&health) {
        return Err(Error::failed(format!("the server at {at} is not ready: {why}"), "see its log"));
    }
    match json {
        true => print_json(&health),
        false => print("ready\n"),
    }
}

/// The address of a server, from `HOST:PORT` or from the URL that the server prints.
fn address(at: &str) -> &str {
    at.strip_prefix("http://").map_or(at, |rest| rest.split('/').next().unwrap_or(rest))
}

/// Requests the server's health, and returns the HTTP answer.
fn ask(at: &str) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let stream = connect(address(at))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    exchange(&stream, end)
}

/// Connects to an address, or to a Unix socket, whose bytes and timeouts are used as those of any other.
fn connect(at: &str) -> io::Result<TcpStream> {
    if at.contains('/') {
        return Ok(OwnedFd::from(UnixStream::connect(at)?).into());
    }
    let mut failure = io::Error::from(ErrorKind::NotFound);
    for address in at.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Err(e) => failure = e,
            connected => return connected,
        }
    }
    Err(failure)
}

/// Sends the request, and reads until the server closes the connection.
fn exchange(mut stream: &TcpStream, end: Instant) -> io::Result<Vec<u8>> {
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while answer.len() < MOST_BYTES {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(e) => return Err(e),
        }
    }
    Ok(answer)
}

/// The JSON object in an answer. `None`: the answer is not Kiln's.
fn health(answer: &[u8]) -> Option<Value> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(answer).ok()? else { return None };
    let health: Value = serde_json::from_slice(answer.get(length..)?).ok()?;
    let is_kilns =
        matches!(response.code, Some(200 | 503)) && health["live"].is_object() && health["ready"].is_object();
    is_kilns.then_some(health)
}

/// The reason why a server is not ready. `None`: it is.
fn complaint(health: &Value) -> Option<String> {
    if health["status"] == "ok" {
        return None;
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let stalled = || format!("no progress for {:.0} s", health["live"]["since_progress_s"].as_f64().unwrap_or(0.0));
    Some(text(&health["ready"]["reason"]).or_else(|| text(&health["ready"]["phase"])).unwrap_or_else(stalled))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = r#"{"status":"ok","live":{"live":true},"ready":{"ready":true,"phase":"ready","reason":null}}"#;
    const LOADING: &str = r#"{"status":"unavailable","live":{"live":true},"ready":{"ready":false,"phase":"loading","reason":"it loads"}}"#;

    #[test]
    fn only_kilns_answers_are_believed() {
        let said = |head: &str, body: &str| health(format!("HTTP/1.1 {head}\r\nX: y\r\n\r\n{body}").as_bytes());
        assert_eq!(said("200 OK", READY).and_then(|health| complaint(&health)), None);
        assert!(said("200 OK", READY).is_some());
        assert_eq!(said("503 no", LOADING).and_then(|health| complaint(&health)).as_deref(), Some("it loads"));
        for (head, body) in [("200 OK", "{}"), ("200 OK", "<html>"), ("404 no", READY), ("200 OK", "")] {
            assert!(said(head, body).is_none(), "{head} {body}");
        }
        assert!(health(b"SSH-2.0\r\n").is_none() && health(b"").is_none());
    }

    #[test]
    fn a_url_is_an_address() {
        for (given, found) in [
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("http://kiosk:80", "kiosk:80"),
            ("kiosk:80", "kiosk:80"),
            ("/run/kiln.sock", "/run/kiln.sock"),
        ] {
            assert_eq!(address(given), found);
        }
    }

    #[test]
    fn a_server_that_says_nothing_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        let end = begun + Duration::from_millis(50);
        let done = exchange(&OwnedFd::from(ours).into(), end);
        assert_eq!(done.map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
        drop(theirs);
    }
}
