//! The open connections: their limits, and their end when the server stops.

use super::error::ApiError;
use super::limits::Limits;
use super::request::{Client, Peer};
use super::socket::Socket;
use crate::engine::deadline::after;
use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// All connections of a server, with the limits on their number.
#[derive(Debug)]
pub(super) struct Connections {
    state: Mutex<OpenConnections>,
    /// Notified when a connection ends or the deadline changes.
    changed: Condvar,
    draining: AtomicBool,
    /// A pipe that becomes readable when the server stops, to wake threads that poll it.
    woken: PipeReader,
    waker: PipeWriter,
}

#[derive(Debug, Default)]
struct OpenConnections {
    open: HashMap<u64, Open>,
    /// The id that the next connection gets.
    next: u64,
    /// The time at which draining cuts the remaining requests. `None`: not draining.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    socket: Weak<Socket>,
    client: Client,
}

/// The most simultaneous connections of a client.
fn allowed(client: Client, limits: &Limits) -> usize {
    /// Browsers open six to a server, and several machines may share an address.
    const DEFAULT: usize = 64;
    let is_local = !matches!(client, Client::Address(ip) if !ip.is_loopback());
    limits.connections_per_peer.unwrap_or(if is_local { usize::MAX } else { DEFAULT })
}

/// A connection's entry among the open ones, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// # Errors
    /// A system error: no pipe can be created.
    pub fn new() -> io::Result<Connections> {
        let (woken, waker) = io::pipe()?;
        Ok(Connections { state: Mutex::default(), changed: Condvar::new(), draining: false.into(), woken, waker })
    }

    /// Registers a connection.
    ///
    /// # Errors
    /// 503: the limit of all connections or of this peer's is reached.
    pub fn admit(self: &Arc<Self>, socket: &Arc<Socket>, peer: &Peer, limits: &Limits) -> Result<Ticket, ApiError> {
        let client = Client::from(peer);
        let mut state = self.state();
        if state.open.len() >= limits.connections {
            return Err(ApiError::overloaded("the server has as many connections as it takes; try again soon"));
        }
        let of_peer = state.open.values().filter(|open| open.client == client).count();
        if of_peer >= allowed(client, limits) {
            return Err(ApiError::overloaded("this peer has as many connections as one may have; close some"));
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number, Open { socket: Arc::downgrade(socket), client });
        Ok(Ticket { connections: self.clone(), number })
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// A descriptor that becomes readable when the server stops.
    pub fn woken(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Waits for up to `time` until all connections have ended, and cuts them after the drain's deadline. Returns
    /// whether all have ended.
    pub fn wait_for_end(&self, time: Duration) -> bool {
        let until = after(time);
        let mut state = self.state();
        while !state.open.is_empty() {
            let now = Instant::now();
            if state.deadline.is_some_and(|deadline| deadline <= now) {
                log::info!("ending {} connections whose requests take too long", state.open.len());
                state.open.values().filter_map(|open| open.socket.upgrade()).for_each(|socket| socket.cut());
                return true;
            }
            let left = state.deadline.map_or(until, |deadline| deadline.min(until)).saturating_duration_since(now);
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, OpenConnections> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.connections.state().open.remove(&self.number);
        self.connections.changed.notify_all();
    }
}

/// Stops a server from any thread. Clones stop the same server.
#[derive(Debug, Clone)]
pub struct Drainer(pub(super) Arc<Connections>);

impl Drainer {
    /// Stops accepting connections, closes idle ones, and gives requests in progress another `grace`. After that their
    /// connections are cut, and their [`super::PeerWatch`]es report that the peer is gone. A request whose first byte
    /// has not been read yet is answered 503.
    ///
    /// A second call can only shorten the grace. The call takes a lock, so it must not be made in a signal handler; use
    /// a thread that waits for signals.
    pub fn drain(&self, grace: Duration) {
        let mut state = self.0.state();
        let deadline = after(grace);
        state.deadline = Some(state.deadline.map_or(deadline, |before| before.min(deadline)));
        if !self.0.draining.swap(true, Ordering::Relaxed) {
            // Never read, so that all waits end. An empty pipe always has room for a byte.
            let _ = (&self.0.waker).write(&[0]);
        }
        self.0.changed.notify_all();
    }

    /// True after [`Drainer::drain`] was called: no further requests are accepted.
    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn peers_that_share_an_address_or_a_network_or_a_user_count_as_one_and_this_machine_is_free_unless_set() {
        let peers = |text: &str| Peer::Tcp(text.parse().unwrap());
        let user = |user| Peer::Unix { pid: 1, user, group: 1 };
        let cases = [
            (peers("192.0.2.1:1"), peers("192.0.2.1:2"), peers("192.0.2.2:1"), 64),
            (peers("[::ffff:192.0.2.1]:1"), peers("192.0.2.1:2"), peers("[::ffff:192.0.2.2]:1"), 64),
            (peers("[2001:db8::1]:1"), peers("[2001:db8::ffff:1]:1"), peers("[2001:db8:0:1::1]:1"), 64),
            (peers("127.0.0.1:1"), peers("127.0.0.1:2"), peers("192.0.2.2:1"), usize::MAX),
            (peers("[::1]:1"), peers("[::1]:2"), peers("[::2]:2"), usize::MAX),
            (user(1), user(1), user(2), usize::MAX),
        ];
        for (one, same, other, most) in cases {
            assert_eq!(Client::from(&one), Client::from(&same));
            assert_ne!(Client::from(&one), Client::from(&other));
            let mut limits = Limits::default();
            assert_eq!(super::allowed(Client::from(&one), &limits), most, "{one}");
            limits.connections_per_peer = Some(2);
            let connections = Arc::new(Connections::new().unwrap());
            let socket = Arc::new(Socket::new(UnixStream::pair().unwrap().0.into()));
            let admit = |peer| connections.admit(&socket, peer, &limits);
            let (first, _second) = (admit(&one).unwrap(), admit(&same).unwrap());
            assert_eq!(admit(&one).unwrap_err().status, 503);
            let _other = admit(&other).unwrap();
            drop(first);
            let _again = admit(&same).unwrap();
        }
    }
}
