//! What an access log has of a request: who asked what, when, and how it ended. No content.

use super::request::{Method, Peer};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A request that has ended, or a connection that was turned away before it sent one.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessRecord {
    /// The request's id: its header `X-Request-Id`, or one that no other has. The answer carries it.
    pub id: String,
    /// Who asked.
    pub peer: Peer,
    /// The name of the key that was brought, if it is right.
    pub key: Option<String>,
    /// What was asked of which path, where that could be read.
    pub asked: Option<(Method, String)>,
    /// The answer's status, where one began.
    pub status: Option<u16>,
    /// When the request's first byte was read.
    pub begun: SystemTime,
    /// How long it took from there.
    pub time: Duration,
    /// How the answer ended.
    pub end: Outcome,
    /// What the handler notes of it.
    pub notes: Map<String, Value>,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was sent whole.
    Whole,
    /// It is a stream that ended with an error.
    Failed,
    /// The peer was gone before its end.
    Gone,
}

impl Outcome {
    /// Its word in a log.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Whole => "whole",
            Outcome::Failed => "failed",
            Outcome::Gone => "gone",
        }
    }
}

/// Where requests are noted. Whatever thread a request ended on calls it.
#[derive(Clone, Default)]
pub struct AccessLog(Option<Arc<Write>>);

type Write = dyn Fn(&AccessRecord) + Send + Sync;

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "an access log" } else { "no access log" })
    }
}

impl AccessLog {
    /// One that `write` writes.
    pub fn new(write: impl Fn(&AccessRecord) + Send + Sync + 'static) -> AccessLog {
        AccessLog(Some(Arc::new(write)))
    }

    pub(super) fn note(&self, access: impl FnOnce() -> AccessRecord) {
        if let Some(write) = &self.0 {
            write(&access());
        }
    }
}

/// What a handler notes of a request for the access log. Clones are of the same request.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Map<String, Value>>>);

impl Notes {
    /// Notes a value, in place of an earlier one of the same name.
    pub fn set(&self, name: &str, value: impl Into<Value>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value.into());
    }

    pub(super) fn take(&self) -> Map<String, Value> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request's own id, where it is one that a log and a header can have.
pub(super) fn own_id(given: &str) -> Option<String> {
    const LONGEST: usize = 128;
    let is_plain = !given.is_empty() && given.len() <= LONGEST && given.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| given.to_owned())
}
