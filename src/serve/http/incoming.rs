//! Reads requests from a connection: heads and bodies.

use super::body::Body;
use super::budget::Share;
use super::error::ApiError;
use super::limits::Limits;
use super::parse::{Framing, Head, Scan, line_before, too_large};
use super::socket::{ReadStop, Socket};
use crate::engine::deadline::later;
use std::time::Instant;

/// A source of bytes that waits until a deadline.
pub(super) trait TimedRead {
    /// Reads available bytes, and waits for some until `deadline`. 0 is the end.
    fn read(&mut self, into: &mut [u8], deadline: Instant) -> Result<usize, ReadStop>;
}

impl TimedRead for &Socket {
    fn read(&mut self, into: &mut [u8], deadline: Instant) -> Result<usize, ReadStop> {
        Socket::read(self, into, deadline)
    }
}

/// The reason why there is no request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoRequest {
    /// The peer ended the connection, and no request was begun.
    Nothing,
    /// The connection failed or was cut.
    Gone,
    /// The request is refused, and the connection must end, because the start of the next request is unknown.
    Refused(ApiError),
}

impl From<ApiError> for NoRequest {
    fn from(e: ApiError) -> NoRequest {
        NoRequest::Refused(e)
    }
}

/// The requests of a connection in sequence.
#[derive(Debug)]
pub(super) struct Incoming<S> {
    source: S,
    /// Bytes read. The first `taken` have been used.
    buffer: Vec<u8>,
    taken: usize,
}

/// The number of bytes that are read at a time.
const PIECE: usize = 8 << 10;

/// The longest line before a chunk. Its extensions are ignored, but may hold a signature.
const CHUNK_LINE: usize = 256;

impl<S: TimedRead> Incoming<S> {
    pub fn new(source: S) -> Incoming<S> {
        Incoming { source, buffer: Vec::new(), taken: 0 }
    }

    /// Bytes that were read after the end of the last request.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// The path in the incomplete or invalid request read so far, which selects the format of its error.
    pub fn path(&self) -> String {
        let start = self.rest().iter().position(|b| !b"\r\n".contains(b)).unwrap_or(self.rest().len());
        let line = self.rest()[start..].split(|&b| b == b'\r').next().unwrap_or_default();
        let target = line.split(|&b| b == b' ').nth(1).unwrap_or_default();
        let path = target.split(|&b| b == b'?').next().unwrap_or_default();
        String::from_utf8_lossy(path).into_owned()
    }

    /// Reads more bytes into the buffer. Returns the number of bytes read.
    fn fill(&mut self, deadline: Instant) -> Result<usize, ReadStop> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + PIECE, 0);
        let read = self.source.read(&mut self.buffer[before..], deadline);
        self.buffer.truncate(before + read.unwrap_or(0));
        read
    }

    /// Reads more bytes as [`Incoming::fill`] does. If the connection ends first, the error names the incomplete
    /// `part`.
    fn fill_within(&mut self, part: &str, deadline: Instant) -> Result<usize, NoRequest> {
        match self.fill(deadline) {
            Ok(0) => Err(ApiError::bad(format!("the connection ended within the {part}")).into()),
            Ok(length) => Ok(length),
            Err(ReadStop::Deadline) => Err(ApiError::new(408, format!("the {part} came too slowly")).into()),
            Err(_) => Err(NoRequest::Gone),
        }
    }

    /// The next request's head, which must be complete by `deadline`.
    pub fn head(&mut self, limits: &Limits, deadline: Instant) -> Result<Head, NoRequest> {
        let mut scan = Scan::default();
        loop {
            if let Some(range) = scan.end(self.rest(), limits)? {
                let head = Head::parse(&self.rest()[range.clone()], limits)?;
                self.taken += range.end;
                return Ok(head);
            }
            match self.fill_within("headers", deadline) {
                Ok(_) => {}
                Err(_) if self.rest().iter().all(|b| b"\r\n".contains(b)) => return Err(NoRequest::Nothing),
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads the body after a head, within the limits. Its memory is taken from `share`.
    pub fn body(&mut self, framing: Framing, limits: &Limits, share: Share) -> Result<Body, NoRequest> {
        let start = Instant::now();
        // The time for a body grows with the bytes received.
        let deadline = |received: usize| later(start, limits.body_time.saturating_add(limits.time_of(received)));
        let mut body = Body::new(share);
        match framing {
            Framing::None => {}
            Framing::Length(length) => self.take(length, length, &mut body, &deadline)?,
            Framing::Chunked => self.chunks(&mut body, limits, &deadline)?,
        }
        Ok(body)
    }

    /// Appends `length` bytes to `body`, which will have `most`. Memory grows with the bytes received, not with the
    /// announcement.
    fn take(
        &mut self,
        length: usize,
        most: usize,
        body: &mut Body,
        deadline: &dyn Fn(usize) -> Instant,
    ) -> Result<(), NoRequest> {
        let end = body.len() + length;
        loop {
            let length = self.rest().len().min(end - body.len());
            body.extend(&self.rest()[..length], most)?;
            self.taken += length;
            if body.len() == end {
                return Ok(());
            }
            self.fill_within("body", deadline(body.len()))?;
        }
    }

    /// Appends the data of all chunks to `body`, and drops trailers.
    fn chunks(
        &mut self,
        body: &mut Body,
        limits: &Limits,
        deadline: &dyn Fn(usize) -> Instant,
    ) -> Result<(), NoRequest> {
        let mut extensions = 0;
        loop {
            let line = self.line(CHUNK_LINE, deadline(body.len()))?;
            let (length, extension) = chunk(&line)?;
            extensions += extension;
            if extensions > limits.head_bytes {
                return Err(ApiError::bad("the chunks' extensions are too long").into());
            }
            let room = limits.body_bytes - body.len();
            let length = usize::try_from(length).ok().filter(|&length| length <= room);
            match length.ok_or_else(|| too_large(limits))? {
                0 => return self.trailers(limits, deadline(body.len())),
                length => self.take(length, limits.body_bytes, body, deadline)?,
            }
            if !self.line(CHUNK_LINE, deadline(body.len()))?.is_empty() {
                return Err(ApiError::bad("a chunk is longer than it says").into());
            }
        }
    }

    /// Drops the trailers, which have no meaning here.
    fn trailers(&mut self, limits: &Limits, deadline: Instant) -> Result<(), NoRequest> {
        let too_many = || ApiError::new(431, "too many trailers").code("headers_too_large");
        let mut trailers = Vec::new();
        for _ in 0..=limits.fields {
            let line = self.line(limits.head_bytes, deadline)?;
            trailers.extend_from_slice(&line);
            trailers.extend_from_slice(b"\r\n");
            if trailers.len() > limits.head_bytes {
                return Err(too_many().into());
            }
            if line.is_empty() {
                let mut fields = vec![httparse::EMPTY_HEADER; limits.fields];
                return match httparse::parse_headers(&trailers, &mut fields) {
                    Ok(httparse::Status::Complete(_)) => Ok(()),
                    _ => Err(ApiError::bad("a trailer is no header").into()),
                };
            }
        }
        Err(too_many().into())
    }

    /// A line of at most `most` bytes, without its CR LF.
    fn line(&mut self, most: usize, deadline: Instant) -> Result<Vec<u8>, NoRequest> {
        let mut at = 0;
        loop {
            if let Some(length) = self.rest()[at..].iter().position(|&b| b == b'\n') {
                let end = at + length;
                let line = line_before(self.rest(), 0, end)?.to_vec();
                self.taken += end + 1;
                return if line.len() <= most { Ok(line) } else { Err(too_long().into()) };
            }
            at = self.rest().len();
            if at > most + 1 {
                return Err(too_long().into());
            }
            self.fill_within("body", deadline)?;
        }
    }
}

fn too_long() -> ApiError {
    ApiError::bad("a line of the chunked body is too long")
}

/// The length in the line before a chunk, and the bytes of its extensions.
fn chunk(line: &[u8]) -> Result<(u64, usize), ApiError> {
    let size = line.split(|&b| b == b';').next().unwrap_or_default();
    let refused = || ApiError::bad("a chunk's length is no number");
    // httparse reads an empty length as 0.
    if !size.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(refused());
    }
    let ended = [line, b"\r\n"].concat();
    match httparse::parse_chunk_size(&ended) {
        Ok(httparse::Status::Complete((_, length))) => Ok((length, line.len() - size.len())),
        _ => Err(refused()),
    }
}
