//! An engine inside another program: what the server answers, asked without a port.
//!
//! [`Engine::open`] runs the server on threads of its own. Requests reach it through a socket that only this process can connect
//! to, so every path of the API, its checks, its batch and its cache are those of `kiln serve`.

use super::api::Api;
use super::http::{Guard, Limits, Listen, Method};
use super::model::Model;
use super::server::{self, Notice, Order, Reread, Setup, Started};
use super::service::{Service, Settings};
use super::unique::unique;
use crate::engine::{ModelFiles, Options};
use crate::machine::threads;
use crate::{Cancel, Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a wait for an answer looks at its [`Cancel`].
const SLICE: Duration = Duration::from_millis(20);
/// How long requests under way may take once the engine is closed.
const DRAIN: Duration = Duration::from_secs(2);
/// Headers of an answer that are read.
const MOST_HEADERS: usize = 64;

/// How an engine is opened.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The model.
    pub files: ModelFiles,
    /// How it is loaded: for as many sequences as `options.sequences` says, or for as many of them as fit.
    pub options: Options,
    /// How requests are treated.
    pub settings: Settings,
    /// Where others may reach it too.
    pub listen: Vec<Listen>,
}

/// A loaded model that answers requests of this process, from any thread, many at once. Dropped, it ends what is under way and
/// gives its memory back.
pub struct Engine {
    address: SocketAddr,
    orders: Sender<Order>,
    service: Arc<Service>,
    started: Started,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Engine {
    /// Loads the model, and returns once it answers.
    ///
    /// # Errors
    /// As [`server::serve`].
    pub fn open(options: EngineOptions) -> Result<Engine> {
        let name = unique("kiln-engine-");
        let address = SocketAddr::from_abstract_name(&name)
            .map_err(|e| Error::failed(format!("no socket can be named {name}: {e}"), "report this"))?;
        let EngineOptions { files, options, settings, mut listen } = options;
        listen.push(Listen::Process(name));
        let setup = Setup {
            load: server::loader(files.clone(), None, options, true),
            files,
            settings,
            listen,
            limits: Limits::default(),
            guard: Guard { open_paths: Api::open_paths(), ..Guard::default() },
            access: Default::default(),
            is_service: false,
            drain: DRAIN,
            reread: Box::new(|| Ok(Reread::default())),
        };
        let (orders, taken) = channel();
        let (say, notices) = channel();
        let (give, given) = channel();
        let run = move || {
            let handler = |service: Arc<Service>| {
                let _ = give.send(service.clone());
                Api::new(service)
            };
            server::serve(&setup, taken, handler, &mut |notice| drop(say.send(notice)))
        };
        let thread = thread::Builder::new().name("kiln".into()).spawn(run);
        let thread = thread
            .map_err(|e| Error::failed(format!("a thread of the engine cannot be started: {e}"), threads::REMEDY))?;
        let started = notices.iter().find_map(|notice| match notice {
            Notice::Ready(started) => Some(started),
            _ => None,
        });
        match (started, given.try_recv()) {
            (Some(started), Ok(service)) => Ok(Engine { address, orders, service, started, thread: Some(thread) }),
            _ => Err(ended(thread)),
        }
    }

    /// What answers.
    pub fn started(&self) -> &Started {
        &self.started
    }

    /// The model's tokenizer, template and shape.
    ///
    /// # Errors
    /// Failed: the engine has ended.
    pub fn model(&self) -> Result<Arc<Model>> {
        self.service.model().map_err(|e| Error::failed(e.message, "open the engine again"))
    }

    /// Asks a path of the server's API, and hands the answer's body to `on` as it comes. Returns the answer's status. `on` may
    /// break, which ends the request as its client's going away does.
    ///
    /// # Errors
    /// Interrupted: `cancel` is set, or `on` broke. Failed: the engine does not answer, or ends in the middle of an answer.
    pub fn request(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
        cancel: &Cancel,
        on: &mut dyn FnMut(u16, &[u8]) -> ControlFlow<()>,
    ) -> Result<u16> {
        if !path.starts_with('/') || path.contains(|c: char| c.is_control() || c == ' ') {
            return Err(Error::input(format!("{path:?} is no path"), "name one as /v1/chat/completions is"));
        }
        let mut stream = UnixStream::connect_addr(&self.address).map_err(unanswered)?;
        stream.set_read_timeout(Some(SLICE)).map_err(unanswered)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        // Where the answer comes before all is read, the rest is not wanted.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = Answer::default();
        let mut piece = [0; 16 << 10];
        loop {
            if cancel.is_set() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            cancel.check_or("the request was cancelled")?;
            let read = match stream.read(&mut piece) {
                Ok(read) => read,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(e) => return Err(unanswered(e)),
            };
            answer.take(&piece[..read])?;
            if let Some(status) = answer.status {
                let body = std::mem::take(&mut answer.body);
                if !body.is_empty() && on(status, &body).is_break() {
                    let _ = stream.shutdown(Shutdown::Both);
                    let cause = "the caller took no more of the answer";
                    return Err(Error::Interrupted { cause: cause.into(), remedy: "ask again".into() });
                }
                if answer.is_done() {
                    return Ok(status);
                }
            }
            if read == 0 {
                return Err(Error::failed("the answer ended in its middle", "ask again, or open the engine anew"));
            }
        }
    }

    /// Ends what is under way, and gives the model's memory back.
    ///
    /// # Errors
    /// Why the engine had ended before, where it had.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let _ = self.orders.send(Order::Stop);
        match self.thread.take() {
            Some(thread) => thread.join().unwrap_or_else(|_| Err(Error::device("the engine panicked", "report this"))),
            None => Ok(()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            log::error!("{e}");
        }
    }
}

/// Why an engine ended before it answered.
fn ended(thread: JoinHandle<Result<()>>) -> Error {
    let silent = || Error::failed("the engine ended without an answer", "report this");
    match thread.join() {
        Ok(Err(e)) => e,
        _ => silent(),
    }
}

fn unanswered(e: std::io::Error) -> Error {
    Error::failed(format!("the engine does not answer: {e}"), "open it again")
}

/// How an answer's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// After so many bytes more.
    Length(u64),
    /// With the last chunk. So many bytes of this one are still to come, with the line's end behind it; `None`: its line is.
    Chunks(Option<u64>),
    /// It has ended.
    Done,
}

/// An answer as it comes.
#[derive(Debug, Default)]
struct Answer {
    /// Bytes that are not understood yet.
    raw: Vec<u8>,
    status: Option<u16>,
    framing: Option<Framing>,
    /// The body's bytes that nobody took yet.
    body: Vec<u8>,
}

impl Answer {
    fn is_done(&self) -> bool {
        self.framing == Some(Framing::Done)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.raw.extend_from_slice(bytes);
        if self.framing.is_none() && !self.take_head()? {
            return Ok(());
        }
        while self.take_part()? {}
        Ok(())
    }

    /// Whether the head is whole.
    fn take_head(&mut self) -> Result<bool> {
        let wrong = |what: &str| Error::failed(format!("the engine's answer has {what}"), "report this");
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&self.raw).map_err(|e| wrong(&format!("a head that is none: {e}")))?;
        let httparse::Status::Complete(length) = parsed else { return Ok(false) };
        let value = |name: &str| {
            let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.and_then(|header| std::str::from_utf8(header.value).ok())
        };
        self.framing = Some(match (value("transfer-encoding"), value("content-length")) {
            (Some(_), _) => Framing::Chunks(None),
            (None, Some(length)) => match length.parse().map_err(|_| wrong("a length that is none"))? {
                0 => Framing::Done,
                length => Framing::Length(length),
            },
            (None, None) => Framing::Done,
        });
        self.status = response.code;
        self.raw.drain(..length);
        Ok(true)
    }

    /// Whether there may be more to take.
    fn take_part(&mut self) -> Result<bool> {
        match self.framing {
            Some(Framing::Length(left)) => {
                let length = self.raw.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.body.extend(self.raw.drain(..length));
                let left = left - length as u64;
                self.framing = Some(if left == 0 { Framing::Done } else { Framing::Length(left) });
                Ok(false)
            }
            Some(Framing::Chunks(None)) => match httparse::parse_chunk_size(&self.raw) {
                Ok(httparse::Status::Partial) => Ok(false),
                Ok(httparse::Status::Complete((_, 0))) => {
                    self.framing = Some(Framing::Done);
                    Ok(false)
                }
                Ok(httparse::Status::Complete((line, size))) => {
                    self.raw.drain(..line);
                    self.framing = Some(Framing::Chunks(Some(size)));
                    Ok(true)
                }
                Err(_) => Err(Error::failed("the engine's answer has a chunk that is none", "report this")),
            },
            Some(Framing::Chunks(Some(size))) => {
                // The line's end behind a chunk is taken with it.
                let whole = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(2);
                if self.raw.len() < whole {
                    return Ok(false);
                }
                self.body.extend_from_slice(&self.raw[..whole - 2]);
                self.raw.drain(..whole);
                self.framing = Some(Framing::Chunks(None));
                Ok(true)
            }
            Some(Framing::Done) | None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that comes byte by byte is the answer that comes at once.
    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        for (raw, status, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, ""),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nb\r\n defghijkl\n\r\n0\r\n\r\n",
                200,
                "abc defghijkl\n",
            ),
        ] {
            for step in [1, 2, 7, raw.len()] {
                let mut answer = Answer::default();
                for piece in raw.as_bytes().chunks(step) {
                    answer.take(piece).unwrap();
                }
                assert_eq!((answer.status, answer.is_done()), (Some(status), true), "{raw:?} by {step}");
                assert_eq!(String::from_utf8(answer.body).unwrap(), body);
            }
        }
        assert!(Answer::default().take(b"no head\r\n\r\n").is_err());
        let mut cut = Answer::default();
        cut.take(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").unwrap();
        assert!(!cut.is_done());
    }
}
