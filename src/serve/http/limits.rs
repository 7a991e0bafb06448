//! Bounds on what a peer may cost the server: connections, bytes and time.

use std::time::Duration;

/// How deep a request's JSON may nest. serde_json counts, and refuses the next level.
pub const JSON_DEPTH: usize = 127;

/// What a peer may cost: connections, bytes, and time. Every wait for a peer ends at a deadline that follows from these.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once. One more is answered 503 and closed.
    pub connections: usize,
    /// Connections at once of one peer: an IPv4 address, an IPv6 network of 64 bits, or a user of a Unix socket. `None`
    /// allows 64, and of this machine any number.
    pub connections_per_peer: Option<usize>,
    /// From a request's first byte to the end of its headers, and from a connection's start to its first byte.
    pub head_time: Duration,
    /// From an answer to the next request's first byte.
    pub idle_time: Duration,
    /// What a body may take however short it is. Each received byte adds to it by [`Limits::least_rate`].
    pub body_time: Duration,
    /// What one write may take however short it is. Each byte of it adds to it by [`Limits::least_rate`].
    pub write_time: Duration,
    /// The least rate at which a peer sends a body or takes an answer, in bytes per second.
    pub least_rate: u64,
    /// How long the rest of a refused request is read and dropped. A connection that is closed with bytes unread is reset,
    /// and a reset may overtake the answer.
    pub linger_time: Duration,
    /// Bytes of a request's line and headers, and of a chunked body's trailers.
    pub head_bytes: usize,
    /// Bytes of a request's line.
    pub line_bytes: usize,
    /// Headers of a request, and trailers of a chunked body.
    pub fields: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Bytes of memory that all requests' bodies may take together, and what is parsed of them. A client may have half of what
    /// the others leave. One more body is answered 503.
    pub memory_bytes: usize,
    /// The stack of a connection's thread, in bytes. The handler runs on it.
    pub stack_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // With the sockets that are being turned away it stays below 1024, the usual limit of open files.
            connections: 512,
            connections_per_peer: None,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            body_time: Duration::from_secs(10),
            write_time: Duration::from_secs(30),
            least_rate: 1024,
            linger_time: Duration::from_secs(2),
            head_bytes: 16 << 10,
            line_bytes: 8 << 10,
            fields: 64,
            body_bytes: 8 << 20,
            memory_bytes: 256 << 20,
            // JSON that nests as deep as it may takes half of it, where nothing optimises its parser.
            stack_bytes: 512 << 10,
        }
    }
}

impl Limits {
    /// Bytes of memory that what is parsed of one body may take. A text takes hardly more than its length, and small numbers
    /// and lists many times theirs.
    pub(super) fn parsed_bytes(&self) -> usize {
        self.body_bytes.saturating_mul(4)
    }

    /// What `bytes` bytes take at the least rate.
    pub(super) fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_millis((bytes as u64).saturating_mul(1000) / self.least_rate.max(1))
    }
}
