//! The server on real sockets, with clients that send arbitrary bytes.
//!
//! Expected events are waited for, up to [`PATIENCE`]. If a limit should be exceeded, the test sets it low.

mod access;
mod bodies;
mod drain;
mod ends;
mod faults;
mod fuzz;
mod guards;
mod heads;
mod places;

use super::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest wait of a test for an expected event, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A limit that is exceeded.
const SHORT: Duration = Duration::from_millis(100);

/// A server on its own thread, stopped when it is dropped.
struct RunningServer {
    address: SocketAddr,
    drainer: Drainer,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    fn new(limits: Limits, guard: Guard, handler: impl Handler + Send + 'static) -> RunningServer {
        RunningServer::at(&[Listen::Tcp(([127, 0, 0, 1], 0).into())], limits, guard, handler)
    }

    fn at(at: &[Listen], limits: Limits, guard: Guard, handler: impl Handler + Send + 'static) -> RunningServer {
        let server = Server::bind(at, limits, guard).unwrap();
        let address = server.addresses().first().copied().unwrap_or(([127, 0, 0, 1], 0).into());
        let drainer = server.drainer();
        let thread = Some(std::thread::spawn(move || server.run(&handler)));
        RunningServer { address, drainer, thread }
    }

    /// A server with [`echo`] and limits that are not exceeded.
    fn echo() -> RunningServer {
        RunningServer::new(patient(), Guard::default(), echo)
    }

    fn connect(&self) -> RawClient<TcpStream> {
        RawClient::new(TcpStream::connect(self.address).unwrap())
    }

    /// Waits until the server has returned.
    fn ended(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.drainer.drain(Duration::ZERO);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// Time limits that are not exceeded, except for the wait of a connection that ends.
fn patient() -> Limits {
    let (head_time, idle_time, body_time, write_time) = (PATIENCE, PATIENCE, PATIENCE, PATIENCE);
    Limits { head_time, idle_time, body_time, write_time, ..Limits::default() }
}

/// Answers with the request.
fn echo(request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
    let query: Vec<String> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let body = String::from_utf8_lossy(&request.body);
    reply.json(
        200,
        &serde_json::json!({
            "method": request.method.to_string(), "path": request.path, "query": query, "body": body,
            "bytes": request.body.len(),
        }),
    )
}

/// A client that sends arbitrary bytes.
struct RawClient<S> {
    stream: S,
    read: Vec<u8>,
}

/// An answer as bytes.
#[derive(Debug)]
struct ByteResponse {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// Whether the body ended as its headers say.
    is_whole: bool,
}

impl ByteResponse {
    fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

trait Connection: Read + Write {
    fn half_close(&self);
    fn be_patient(&self);
}

impl Connection for TcpStream {
    fn half_close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
    fn be_patient(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
        self.set_write_timeout(Some(PATIENCE)).unwrap();
    }
}

impl Connection for std::os::unix::net::UnixStream {
    fn half_close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
    fn be_patient(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
        self.set_write_timeout(Some(PATIENCE)).unwrap();
    }
}

impl<S: Connection> RawClient<S> {
    fn new(stream: S) -> RawClient<S> {
        stream.be_patient();
        RawClient { stream, read: Vec::new() }
    }

    /// Sends bytes, as far as the server accepts them.
    fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.stream.write_all(bytes.as_ref());
        self
    }

    fn get(&mut self, path: &str) -> ByteResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer()
    }

    fn half_close(&mut self) -> &mut Self {
        self.stream.half_close();
        self
    }

    /// Reads more bytes. Returns whether there were any.
    fn more(&mut self) -> bool {
        let mut piece = [0; 4096];
        let length = match self.stream.read(&mut piece) {
            Ok(length) => length,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => 0,
            Err(e) => panic!("{e} after {:?}", String::from_utf8_lossy(&self.read)),
        };
        self.read.extend_from_slice(&piece[..length]);
        length > 0
    }

    /// Reads until `end` arrives, and takes everything up to it. `None` if the connection ended.
    fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|w| w == end.as_bytes()) {
                let taken = self.read.drain(..at + end.len()).collect();
                return Some(String::from_utf8(taken).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Reads `length` bytes, or as many as there are.
    fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.read.len() < length && self.more() {}
        self.read.drain(..length.min(self.read.len())).collect()
    }

    /// Reads to the end of the connection. Asserts that it comes without further bytes.
    fn assert_ended(&mut self) {
        while self.more() {}
        assert_eq!(String::from_utf8_lossy(&self.read), "");
    }

    fn head(&mut self) -> ByteResponse {
        let head = self.until("\r\n\r\n").expect("an answer");
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest[..3].parse().ok()).unwrap();
        ByteResponse { status, head, body: Vec::new(), is_whole: false }
    }

    fn answer(&mut self) -> ByteResponse {
        let mut answer = self.head();
        if answer.header("Transfer-Encoding") == Some("chunked") {
            while let Some(line) = self.until("\r\n") {
                let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
                answer.body.extend(self.exactly(length));
                if self.until("\r\n").is_some() && length == 0 {
                    answer.is_whole = true;
                    break;
                }
            }
        } else if let Some(length) = answer.header("Content-Length").map(|length| length.parse().unwrap()) {
            answer.body = self.exactly(length);
            answer.is_whole = answer.body.len() == length;
        } else if answer.header("Connection") == Some("close") {
            while self.more() {}
            answer.body = std::mem::take(&mut self.read);
        }
        answer
    }
}

/// Polls until `holds` returns true; `what` describes the event.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A handler that reports each request, then checks until it is released whether the peer is gone.
struct WaitingHandler {
    told: Mutex<Sender<&'static str>>,
    go: &'static AtomicBool,
}

/// The handler, its reports, and its release. It reports "asked", and then "gone" or "answered".
fn waiting() -> (WaitingHandler, Receiver<&'static str>, &'static AtomicBool) {
    let (told, tells) = channel();
    let go: &'static AtomicBool = Box::leak(Box::default());
    (WaitingHandler { told: Mutex::new(told), go }, tells, go)
}

impl Handler for WaitingHandler {
    fn handle(&self, _: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
        let tell = |what| self.told.lock().unwrap().send(what).unwrap_or(());
        tell("asked");
        let watch = reply.watch();
        while !self.go.load(Ordering::Relaxed) {
            if watch.is_gone() {
                tell("gone");
                return Err(Gone);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        reply.send(200, "text/plain", &[], b"waited")?;
        tell("answered");
        Ok(())
    }
}

#[test]
fn a_server_tells_its_places_and_says_of_each_answer_what_and_when_it_is() {
    let server = RunningServer::echo();
    let answer = server.connect().get("/a");
    assert_eq!((answer.status, answer.header("Content-Type")), (200, Some(JSON)));
    assert!(httpdate::parse_http_date(answer.header("Date").unwrap()).is_ok());
    assert_eq!(answer.header("Connection"), None);
    let bound = Server::bind(&[Listen::Tcp(([127, 0, 0, 1], 0).into())], patient(), Guard::default()).unwrap();
    assert_eq!(bound.names(), [bound.addresses()[0].to_string()]);
}
