//! Requests read from bytes in place of a socket, for tests and fuzzing.

use super::budget::{MemoryBudget, Share};
use super::error::ApiError;
use super::incoming::{Incoming, NoRequest, TimedRead};
use super::limits::Limits;
use super::request::{Client, HttpRequest, Peer};
use super::socket::ReadStop;
use crate::engine::deadline::after;
use std::sync::Arc;
use std::time::Instant;

impl TimedRead for &[u8] {
    fn read(&mut self, into: &mut [u8], _: Instant) -> Result<usize, ReadStop> {
        let length = into.len().min(self.len());
        into[..length].copy_from_slice(&self[..length]);
        *self = &self[length..];
        Ok(length)
    }
}

/// The requests of a connection on which `peer` sends `bytes` and ends, as a server would read them. The last one is an
/// error if the connection could not continue after it.
pub fn requests(bytes: &[u8], peer: &Peer, limits: &Limits) -> Vec<Result<HttpRequest, ApiError>> {
    requests_of(&mut Incoming::new(bytes), peer, limits)
}

pub(super) fn requests_of<S: TimedRead>(
    incoming: &mut Incoming<S>,
    peer: &Peer,
    limits: &Limits,
) -> Vec<Result<HttpRequest, ApiError>> {
    let budget = Arc::new(MemoryBudget::new(limits.memory_bytes, limits.parsed_bytes()));
    let client = Client::from(peer);
    let mut all = Vec::new();
    loop {
        let head = incoming.head(limits, after(limits.head_time));
        let keep = head.as_ref().is_ok_and(|head| head.keep);
        let read = head.and_then(|head| {
            let body = incoming.body(head.framing, limits, Share::new(budget.clone(), client))?;
            Ok(HttpRequest::new(head, body, peer.clone(), client))
        });
        match read {
            Ok(request) => all.push(Ok(request)),
            Err(NoRequest::Refused(e)) => all.push(Err(e)),
            Err(NoRequest::Nothing | NoRequest::Gone) => {}
        }
        if !keep || !matches!(all.last(), Some(Ok(_))) {
            return all;
        }
    }
}
