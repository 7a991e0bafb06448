//! Accepts connections and starts a thread for each, until the server stops.

use super::Handler;
use super::access::{AccessLog, AccessRecord, Outcome};
use super::budget::MemoryBudget;
use super::connection::ServerContext;
use super::connections::{Connections, Drainer, Ticket};
use super::error::ApiError;
use super::guard::Guard;
use super::keys::ApiKeys;
use super::limits::Limits;
use super::listen::{Listen, Listener, no_such_place};
use super::reply::error_answer;
use super::request::Peer;
use super::socket::{Socket, timeout};
use crate::serve::unique::unique;
use crate::{Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Map;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant, SystemTime};

/// A server bound to its addresses, to be run by [`Server::run`].
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    limits: Arc<Limits>,
    access: AccessLog,
    connections: Arc<Connections>,
}

/// The pause after the system had no resources for another connection.
const REST: Duration = Duration::from_millis(50);

impl Server {
    /// Opens all places in `listen`.
    ///
    /// # Errors
    /// Input: a place cannot be opened, or is reachable from other machines without keys. Failed: the system lacks
    /// resources.
    pub fn bind(listen: &[Listen], limits: Limits, guard: Guard) -> Result<Server> {
        let opened = listen.iter().map(|at| Listener::open(at, &guard)).collect::<Result<Vec<_>>>()?;
        let listeners: Vec<Listener> = opened.into_iter().flatten().collect();
        let is_used = |keys: &ApiKeys| listeners.iter().any(|listener| listener.guard.keys.are(keys));
        if let Some((place, _)) = guard.keys_at.iter().find(|(_, keys)| !is_used(keys)) {
            return Err(no_such_place(place));
        }
        let connections = Connections::new().map_err(|e| {
            Error::failed(format!("cannot open a pipe: {e}"), "raise the limit of open files (`ulimit -n`)")
        })?;
        let access = AccessLog::default();
        Ok(Server { listeners, limits: Arc::new(limits), access, connections: Arc::new(connections) })
    }

    /// Records each request in `access`.
    pub fn with_access_log(self, access: AccessLog) -> Server {
        Server { access, ..self }
    }

    /// The TCP addresses listened on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.address).collect()
    }

    /// The addresses and Unix sockets that the server listens on, as text.
    pub fn names(&self) -> Vec<String> {
        self.listeners.iter().map(|listener| listener.name.clone()).collect()
    }

    /// A handle to stop the server from any thread, even before it runs.
    pub fn drainer(&self) -> Drainer {
        Drainer(self.connections.clone())
    }

    /// Answers requests until the server is stopped, and returns when all connections have ended and all handlers have
    /// returned. Handlers that check their [`super::PeerWatch`] return soon after the drain's grace.
    pub fn run<H: Handler + ?Sized>(self, handler: &H) {
        let Server { listeners, limits, access, connections } = self;
        let budget = Arc::new(MemoryBudget::new(limits.memory_bytes, limits.parsed_bytes()));
        let service = ServerContext { limits, access, budget, connections, handler };
        thread::scope(|scope| {
            let mut door = Acceptor {
                scope,
                service: &service,
                spare: spare(),
                has_complained: false,
                leaving: Leaving::default(),
            };
            door.keep(&listeners);
            door.close(&listeners);
            drop(listeners);
        });
    }
}

/// The thread that accepts connections, or refuses them when there are too many.
struct Acceptor<'scope, 'env, H: ?Sized> {
    scope: &'scope Scope<'scope, 'env>,
    service: &'env ServerContext<'env, H>,
    /// A file to close when no more can be opened, so that a connection can still be accepted and turned away.
    spare: Option<File>,
    /// True if a lack of file descriptors or threads was logged, and no connection was accepted since.
    has_complained: bool,
    leaving: Leaving,
}

/// Opens any file. `None` if no more can be opened.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl<H: Handler + ?Sized> Acceptor<'_, '_, H> {
    /// Accepts connections until the server stops.
    fn keep(&mut self, listeners: &[Listener]) {
        let connections = &self.service.connections;
        let mut rest = None;
        while !connections.is_draining() {
            let mut fds = vec![PollFd::new(connections.woken(), PollFlags::POLLIN)];
            if rest.is_none() {
                fds.extend(listeners.iter().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)));
            }
            let until = rest.or(self.leaving.next_look).map(|at: Instant| at.saturating_duration_since(Instant::now()));
            let polled = poll(&mut fds, until.map_or(PollTimeout::NONE, timeout));
            rest = rest.filter(|&at| Instant::now() < at);
            self.leaving.look();
            match polled {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                // Not enough memory for poll itself.
                Err(_) => {
                    thread::sleep(REST);
                    continue;
                }
            }
            let is_ready = |fd: &PollFd<'_>| fd.any() == Some(true);
            for (listener, _) in listeners.iter().zip(fds.iter().skip(1)).filter(|(_, fd)| is_ready(fd)) {
                if let Err(e) = self.take(listener) {
                    self.complain(&format!("cannot take connections on {}: {e}", listener.name));
                    rest = Some(Instant::now() + REST);
                }
            }
        }
    }

    /// Accepts the waiting connection, if it is still there.
    ///
    /// # Errors
    /// There are no resources for it, and it keeps waiting.
    fn take(&mut self, listener: &Listener) -> io::Result<()> {
        let (fd, peer) = match listener.accept() {
            Ok(taken) => taken,
            Err(e) => match Errno::from_raw(e.raw_os_error().unwrap_or(0)) {
                Errno::EMFILE | Errno::ENFILE => return self.take_in_place_of_the_spare(listener),
                Errno::ENOMEM | Errno::ENOBUFS | Errno::EBADF | Errno::EINVAL | Errno::ENOTSOCK => return Err(e),
                // The peer left, or accept(2) reports a network error.
                _ => return Ok(()),
            },
        };
        self.has_complained = false;
        let socket = Arc::new(Socket::new(fd));
        if matches!(peer, Peer::Tcp(_)) {
            socket.prepare_tcp(self.service.limits.write_time);
        }
        match self.service.connections.admit(&socket, &peer, &self.service.limits) {
            Err(e) => self.turn_away(socket, &peer, &e),
            Ok(ticket) => self.start(socket, peer, listener.guard.clone(), ticket),
        }
        Ok(())
    }

    /// Starts a thread that serves the connection.
    fn start(&mut self, socket: Arc<Socket>, peer: Peer, guard: Arc<Guard>, ticket: Ticket) {
        let service = self.service;
        let answered = (socket.clone(), peer.clone());
        let serve = move || {
            service.serve(&answered.0, &answered.1, &guard);
            drop(answered);
            drop(ticket);
        };
        let thread = thread::Builder::new().name("http".into()).stack_size(service.limits.stack_bytes);
        if let Err(e) = thread.spawn_scoped(self.scope, serve) {
            log::warn!("cannot start a thread for a connection: {e}");
            self.turn_away(socket, &peer, &ApiError::overloaded("the server has no thread for this connection"));
        }
    }

    /// Answers with `e` without waiting for the peer.
    fn turn_away(&mut self, socket: Arc<Socket>, peer: &Peer, e: &ApiError) {
        log::debug!("{peer} turned away: {}", e.message);
        self.service.access.note(|| {
            let notes = Map::from_iter([("error".to_owned(), e.code.unwrap_or(e.kind).into())]);
            let (peer, begun, time) = (peer.clone(), SystemTime::now(), Duration::ZERO);
            let (key, asked, status, end) = (None, None, Some(e.status), Outcome::Whole);
            AccessRecord { id: unique("req_"), peer, key, asked, status, begun, time, end, notes }
        });
        socket.write_some(&error_answer(e));
        socket.end();
        self.leaving.add(socket);
    }

    /// Logs a warning once until a connection is accepted again, because peers control how often it occurs.
    fn complain(&mut self, about: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            log::warn!("{about}");
        }
    }

    /// Turns a connection away when no more files can be opened.
    ///
    /// # Errors
    /// No file can be opened even so.
    fn take_in_place_of_the_spare(&mut self, listener: &Listener) -> io::Result<()> {
        self.leaving.sockets.clear();
        self.spare = None;
        let taken = listener.accept();
        if let Ok((fd, peer)) = taken {
            let socket = Arc::new(Socket::new(fd));
            self.complain(&format!("{peer} turned away: there are too many open files"));
            socket.write_some(&error_answer(&ApiError::overloaded("the server has too many files open")));
            socket.end();
            // The request is read only if it is already there, because the descriptor is needed at once.
            socket.discard(64 << 10, Instant::now());
        }
        self.spare = spare();
        match self.spare {
            Some(_) => Ok(()),
            None => Err(Errno::EMFILE.into()),
        }
    }

    /// Waits until the connections have ended. Meanwhile turns new ones away, so that health checks learn that the
    /// server stops.
    fn close(&mut self, listeners: &[Listener]) {
        loop {
            for listener in listeners.iter().filter(|listener| !listener.is_inherited) {
                self.turn_some_away(listener);
            }
            self.leaving.look();
            if self.service.connections.wait_for_end(Leaving::PAUSE) {
                return;
            }
        }
    }

    /// Refuses connections that wait to be accepted: at most [`Leaving::MOST`] in one call.
    fn turn_some_away(&mut self, listener: &Listener) {
        for _ in 0..Leaving::MOST {
            match listener.accept() {
                Ok((fd, peer)) => self.turn_away(Arc::new(Socket::new(fd)), &peer, &ApiError::stopping()),
                Err(_) => return,
            }
        }
    }
}

/// Connections that were turned away, kept until their peers have read the answer. If one were closed at once, with a
/// request unread or on its way, it would be reset, and the reset might overtake the answer.
#[derive(Default)]
struct Leaving {
    /// The sockets with the times at which they are dropped, earliest first.
    sockets: VecDeque<(Instant, Arc<Socket>)>,
    /// The time of the next check; `None` without sockets.
    next_look: Option<Instant>,
}

impl Leaving {
    /// The most refused connections that stay open until their peer has read the answer.
    const MOST: usize = 256;
    /// The longest time for which a refused connection stays open.
    const TIME: Duration = Duration::from_secs(1);
    /// The interval at which refused connections are checked for their end.
    const PAUSE: Duration = Duration::from_millis(20);
    /// The most bytes discarded from a connection at a time.
    const PIECE: usize = 64 << 10;

    fn add(&mut self, socket: Arc<Socket>) {
        if self.sockets.len() == Self::MOST {
            self.sockets.pop_front();
        }
        let now = Instant::now();
        self.sockets.push_back((now + Self::TIME, socket));
        self.next_look.get_or_insert(now + Self::PAUSE);
    }

    /// Discards received bytes, and drops connections that have ended or whose time is over.
    fn look(&mut self) {
        let now = Instant::now();
        if self.next_look.is_some_and(|at| at <= now) {
            self.sockets.retain(|(until, socket)| now < *until && !socket.discard(Self::PIECE, now));
            self.next_look = self.sockets.front().map(|_| now + Self::PAUSE);
        }
    }
}
