//! A connected socket with deadlines for reads and writes, which detects that its peer is gone.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, setsockopt, shutdown, sockopt};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The beginning of every answer, regardless of its status.
const PREFIX: &[u8] = b"HTTP/1.1 ";

/// Interval at which waits check whether the socket was cut.
const SLICE: Duration = Duration::from_millis(250);

/// The peer is gone or too slow: nothing written reaches it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer is gone")]
pub struct Gone;

/// The reason why no bytes were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadStop {
    /// The deadline passed before any byte came.
    Deadline,
    /// The server is stopping, and nothing was available.
    Draining,
    /// The connection failed, or the server has cut it.
    Gone,
}

/// A connected TCP or Unix socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// While an answer is due: the number of bytes of [`PREFIX`] already sent.
    due: Mutex<Option<usize>>,
    /// True after the server has cut the connection: reads and writes fail.
    is_cut: AtomicBool,
    /// True if the answer has no other end than the connection's. A connection that fails is reset then.
    ends_answer: AtomicBool,
}

impl Socket {
    pub fn new(fd: OwnedFd) -> Socket {
        Socket { fd, due: Mutex::default(), is_cut: AtomicBool::new(false), ends_answer: AtomicBool::new(false) }
    }

    /// Sets options: writes are sent at once, and a peer that vanishes silently is detected within `patience`.
    ///
    /// A connection on which an option cannot be set still works.
    pub fn prepare_tcp(&self, patience: Duration) {
        let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX).max(1);
        let _ = setsockopt(&self.fd, sockopt::TcpNoDelay, &true);
        let _ = setsockopt(&self.fd, sockopt::TcpUserTimeout, &seconds.saturating_mul(1000));
        let _ = setsockopt(&self.fd, sockopt::KeepAlive, &true);
        let _ = setsockopt(&self.fd, sockopt::TcpKeepIdle, &seconds);
        let _ = setsockopt(&self.fd, sockopt::TcpKeepInterval, &seconds.div_ceil(3));
        let _ = setsockopt(&self.fd, sockopt::TcpKeepCount, &3);
    }

    /// Reads available bytes, and waits for some until `deadline`. 0 is the end of the peer's data.
    pub fn read(&self, into: &mut [u8], deadline: Instant) -> Result<usize, ReadStop> {
        loop {
            match recv(self.fd.as_raw_fd(), into, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLIN, deadline, None)?,
                Err(Errno::EINTR) => {}
                Err(_) => return Err(ReadStop::Gone),
                Ok(_) if self.is_cut() => return Err(ReadStop::Gone),
                Ok(length) => return Ok(length),
            }
        }
    }

    /// Waits until bytes are available, or until `wake` is readable.
    pub fn wait_for_request(&self, deadline: Instant, wake: BorrowedFd<'_>) -> Result<(), ReadStop> {
        self.wait(PollFlags::POLLIN, deadline, Some(wake))
    }

    /// Writes all of `bytes` until `deadline`.
    pub fn write(&self, mut bytes: &[u8], deadline: Instant) -> Result<(), Gone> {
        while !bytes.is_empty() {
            match self.send(bytes) {
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT, deadline, None).map_err(|_| Gone)?,
                Err(Errno::EINTR) => {}
                Err(_) => return Err(Gone),
                Ok(_) if self.is_cut() => return Err(Gone),
                Ok(sent) => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    /// Writes as much as possible without waiting.
    pub fn write_some(&self, bytes: &[u8]) {
        let _ = self.send(bytes);
    }

    fn send(&self, bytes: &[u8]) -> nix::Result<usize> {
        send(self.fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
    }

    fn wait(&self, events: PollFlags, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> Result<(), ReadStop> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = vec![PollFd::new(self.fd.as_fd(), events)];
            fds.extend(wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)));
            match poll(&mut fds, timeout(left.min(SLICE))) {
                Err(Errno::EINTR) => {}
                Err(_) => return Err(ReadStop::Gone),
                Ok(_) if self.is_cut() => return Err(ReadStop::Gone),
                Ok(0) if left.is_zero() => return Err(ReadStop::Deadline),
                Ok(0) => {}
                Ok(_) if fds[0].any() == Some(true) => return Ok(()),
                Ok(_) => return Err(ReadStop::Draining),
            }
        }
    }

    /// Marks an answer as due, so that [`Socket::is_gone`] may send its first bytes.
    pub fn expect_answer(&self) {
        *self.due() = Some(0);
    }

    /// Ends the state set by [`Socket::expect_answer`]. Returns the number of bytes of the answer already sent.
    pub fn begin_answer(&self) -> usize {
        self.due().take().unwrap_or(0)
    }

    fn due(&self) -> MutexGuard<'_, Option<usize>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the peer is gone, so that nothing written reaches it. Makes a system call, and reads nothing.
    ///
    /// A peer that has shut down its sending side may still read. Over TCP a peer that has closed its socket looks the
    /// same until data is sent to it: then its system resets the connection. So the answer's first bytes, which are the
    /// same for every answer, are sent ahead. After an answer has begun, its next write has that effect.
    fn is_gone(&self) -> bool {
        let half_closed = PollFlags::from_bits_retain(libc::POLLRDHUP);
        match self.happened(half_closed) {
            // nix has no name for POLLRDHUP, and returns `None` for an unknown flag.
            None => {}
            Some(events) if events.contains(half_closed) => {}
            Some(events) => return self.is_cut() || !events.is_empty(),
        }
        let is_closed = || self.is_cut() || self.happened(PollFlags::empty()) != Some(PollFlags::empty());
        is_closed() || {
            self.send_ahead();
            is_closed()
        }
    }

    /// The `events` that have occurred. `None` if the connection has failed, or both directions are shut down.
    fn happened(&self, events: PollFlags) -> Option<PollFlags> {
        let mut fds = [PollFd::new(self.fd.as_fd(), events)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) => fds[0].revents(),
            Err(_) => Some(PollFlags::empty()),
        }
    }

    fn send_ahead(&self) {
        if let Some(sent) = self.due().as_mut() {
            *sent += self.send(&PREFIX[*sent..]).unwrap_or(0);
        }
    }

    /// Ends the sending direction, so that the peer reads an end.
    pub fn end(&self) {
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Write);
    }

    /// Reads and drops data until `deadline`, the end, or `most` bytes. Returns whether the end was reached.
    pub fn discard(&self, most: usize, deadline: Instant) -> bool {
        let mut dropped = vec![0; 16 << 10];
        let mut left = most;
        loop {
            match self.read(&mut dropped, deadline) {
                Ok(0) | Err(ReadStop::Gone) => return true,
                Err(_) => return false,
                Ok(length) => left = left.saturating_sub(length),
            }
            if left == 0 || Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// Notes that a clean end of the connection would look like a clean end of the answer.
    pub fn ends_answer(&self) {
        self.ends_answer.store(true, Ordering::Relaxed);
    }

    /// Makes the final drop reset the connection instead of ending it cleanly. A Unix socket has no reset.
    pub fn reset_when_dropped(&self) {
        let _ = setsockopt(&self.fd, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 });
    }

    /// Ends the connection, including reads and writes in progress.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        // Otherwise the answering thread resets the connection; its waits check the flag.
        if !self.ends_answer.load(Ordering::Relaxed) {
            let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Both);
        }
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}

/// A timeout for poll, rounded up so that it does not end before `time`.
pub(super) fn timeout(time: Duration) -> PollTimeout {
    PollTimeout::try_from(time.saturating_add(Duration::from_micros(999))).unwrap_or(PollTimeout::MAX)
}

/// Watches the peer of a request, from any thread and for any time.
#[derive(Debug, Clone)]
pub struct PeerWatch(Weak<Socket>);

impl PeerWatch {
    pub(super) fn new(socket: Weak<Socket>) -> PeerWatch {
        PeerWatch(socket)
    }

    /// Whether work on the request is useless: its connection has ended, or the answer is not read any more. Makes one
    /// or two system calls, does not wait, and leaves pipelined requests unread.
    ///
    /// **A peer that has only shut down its sending side is not gone**, since it may still read: `nc -N` and `socat` do
    /// so. curl, browsers, Python's and Node's clients never do, but a client that gives up closes its socket, which
    /// over TCP looks the same at first. So the first check of such a peer sends the answer's first bytes, `HTTP/1.1 `,
    /// ahead. If the socket was closed, its system resets the connection, and this check or one a round trip later
    /// finds the peer gone. After a [`super::ResponseStream`] has begun, its writes have that effect.
    pub fn is_gone(&self) -> bool {
        self.0.upgrade().is_none_or(|socket| socket.is_gone())
    }
}
