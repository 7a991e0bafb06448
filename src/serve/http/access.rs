//! Records of the access log: each request's sender, target, time and result, without its content.

use super::request::{Method, Peer};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A request that has ended, or a connection that was refused before its request.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessRecord {
    /// The request's id: its header `X-Request-Id`, or a unique one. The answer has it too.
    pub id: String,
    /// The address or the process that sent the request.
    pub peer: Peer,
    /// The name of the API key, if a valid one was sent.
    pub key: Option<String>,
    /// Method and path, if they could be parsed.
    pub asked: Option<(Method, String)>,
    /// The answer's status, if an answer began.
    pub status: Option<u16>,
    /// The time at which the request's first byte was read.
    pub begun: SystemTime,
    /// The time from `begun` until the answer was sent or failed.
    pub time: Duration,
    /// Whether the answer was sent completely.
    pub end: Outcome,
    /// Additional fields that the handler adds to the record, such as numbers of tokens.
    pub notes: Map<String, Value>,
}

/// Whether an answer was sent completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of the answer was sent.
    Whole,
    /// The answer is a stream that ended with an error.
    Failed,
    /// The peer disconnected before the end.
    Gone,
}

impl Outcome {
    /// The outcome's name in the access log.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Whole => "whole",
            Outcome::Failed => "failed",
            Outcome::Gone => "gone",
        }
    }
}

/// The destination of access records. It is called on the thread on which a request ended.
#[derive(Clone, Default)]
pub struct AccessLog(Option<Arc<Write>>);

type Write = dyn Fn(&AccessRecord) + Send + Sync;

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "an access log" } else { "no access log" })
    }
}

impl AccessLog {
    /// A log that calls `write`.
    pub fn new(write: impl Fn(&AccessRecord) + Send + Sync + 'static) -> AccessLog {
        AccessLog(Some(Arc::new(write)))
    }

    pub(super) fn note(&self, access: impl FnOnce() -> AccessRecord) {
        if let Some(write) = &self.0 {
            write(&access());
        }
    }
}

/// A handler's notes on a request for the access log. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Map<String, Value>>>);

impl Notes {
    /// Sets a value, replacing an earlier one of the same name.
    pub fn set(&self, name: &str, value: impl Into<Value>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value.into());
    }

    pub(super) fn take(&self) -> Map<String, Value> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request's own id, if it is fit for a log and a header.
pub(super) fn own_id(given: &str) -> Option<String> {
    const LONGEST: usize = 128;
    let is_plain = !given.is_empty() && given.len() <= LONGEST && given.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| given.to_owned())
}
