//! A server in a process of its own, at a Unix socket, and requests to it.

use super::common::program::with_signals;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// A small server.
pub const SMALL: [&str; 6] = ["--device", "cpu", "--ctx", "256", "--batch", "2"];

pub struct Server {
    pub path: PathBuf,
    pub directory: Arc<tempfile::TempDir>,
    child: Child,
    stderr: Arc<Mutex<String>>,
}

/// The command that serves at a socket in `directory`.
pub fn command(directory: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = with_signals(&["--default-signal=HUP,INT,TERM"]);
    command.args(["serve", "--unix"]).arg(directory.join("socket")).args(arguments);
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("LISTEN_FDS");
    command
}

impl Server {
    /// A server that answers.
    pub fn start(arguments: &[&str]) -> Server {
        Server::start_at(tempfile::tempdir().unwrap(), arguments)
    }

    pub fn start_at(directory: impl Into<Arc<tempfile::TempDir>>, arguments: &[&str]) -> Server {
        let directory: Arc<tempfile::TempDir> = directory.into();
        let server = Server::spawn(command(directory.path(), &[&SMALL, arguments].concat()), directory);
        server.wait_to_say("kiln serve: ready");
        server
    }

    pub fn spawn(mut command: Command, directory: impl Into<Arc<tempfile::TempDir>>) -> Server {
        let directory: Arc<tempfile::TempDir> = directory.into();
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (stderr, from) = (Arc::new(Mutex::new(String::new())), child.stderr.take().unwrap());
        let said = stderr.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                said.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Server { path: directory.path().join("socket"), directory, child, stderr }
    }

    pub fn said(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn wait_to_say(&self, words: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.said().contains(words) {
            assert!(Instant::now() < until, "it does not say {words:?}: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        as_json(answer(self.ask("GET", path, "")))
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        as_json(answer(self.ask("POST", path, &body.to_string())))
    }

    /// All metrics, in Prometheus' text.
    pub fn metrics(&self) -> String {
        answer(self.ask("GET", "/metrics", "")).1
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
    }

    /// The status of a request that needs a key.
    pub fn ask_with(&self, key: &str) -> u16 {
        answer(self.ask_as(key, "GET", "/v1/models", "")).0
    }

    /// `/status`, as who has a key sees it.
    pub fn status_of_server(&self, key: &str) -> Value {
        as_json(answer(self.ask_as(key, "GET", "/status", ""))).1
    }

    /// Sends a request. Returns the connection, which ends with the answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> UnixStream {
        self.ask_as("", method, path, body)
    }

    fn ask_as(&self, key: &str, method: &str, path: &str, body: &str) -> UnixStream {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let key = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
        let fields = format!("{key}Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        stream.write_all(format!("{head}{fields}\r\n{body}").as_bytes()).unwrap();
        stream
    }
}

/// An answer's status and body.
fn answer(mut stream: UnixStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn as_json((status, body): (u16, String)) -> (u16, Value) {
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
