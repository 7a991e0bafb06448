//! Limits on a peer's use of the server: connections, bytes and time.

use std::time::Duration;

/// The deepest nesting of a request's JSON. serde_json refuses the next level.
pub const JSON_DEPTH: usize = 127;

/// Limits on a peer's connections, bytes and time. Every wait for a peer has a deadline that follows from these.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most open connections. Another one is answered 503 and closed.
    pub connections: usize,
    /// The most open connections of a peer: an IPv4 address, an IPv6 network of 64 bits, or a user of a Unix socket.
    /// `None` means 64, or any number from this machine.
    pub connections_per_peer: Option<usize>,
    /// From a request's first byte to the end of its headers, and from a connection's start to its first byte.
    pub head_time: Duration,
    /// From an answer to the next request's first byte.
    pub idle_time: Duration,
    /// The base time for a body. Received bytes extend it by [`Limits::least_rate`].
    pub body_time: Duration,
    /// The base time for a write. Its bytes extend it by [`Limits::least_rate`].
    pub write_time: Duration,
    /// The lowest acceptable rate for sending a body or reading an answer, in bytes per second.
    pub least_rate: u64,
    /// The time for which the rest of a refused request is read and dropped. Closing a connection with unread bytes
    /// resets it, and the reset may overtake the answer.
    pub linger_time: Duration,
    /// Bytes of a request's line and headers, and of a chunked body's trailers.
    pub head_bytes: usize,
    /// The most bytes of a request line.
    pub line_bytes: usize,
    /// Headers of a request, and trailers of a chunked body.
    pub fields: usize,
    /// The most bytes of a request's body.
    pub body_bytes: usize,
    /// The memory for all requests' bodies and parsed JSON, in bytes. A client may use half of the rest. Beyond that
    /// requests are answered 503.
    pub memory_bytes: usize,
    /// The stack of a connection's thread, in bytes. The handler runs on it.
    pub stack_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // Together with sockets being turned away this stays below 1024, the usual limit of open files.
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
            // JSON of the deepest nesting takes half of it in an unoptimised build.
            stack_bytes: 512 << 10,
        }
    }
}

impl Limits {
    /// The most memory for the parsed JSON of one body, in bytes. A string takes little more than its length, but small
    /// numbers and lists take many times theirs.
    pub(super) fn parsed_bytes(&self) -> usize {
        self.body_bytes.saturating_mul(4)
    }

    /// The time for `bytes` bytes at the lowest rate.
    pub(super) fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_millis((bytes as u64).saturating_mul(1000) / self.least_rate.max(1))
    }
}
