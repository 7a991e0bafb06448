//! Sources of connections: TCP, Unix sockets, and sockets opened by the service manager.

use super::guard::Guard;
use super::request::Peer;
use crate::error::{Setting, text};
use crate::machine::partial::parent_of;
use crate::{Error, Result};
use listenfd::ListenFd;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, socket, sockopt,
};
use std::fmt;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// An address or a Unix socket to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address. Port 0 chooses a free port.
    Tcp(SocketAddr),
    /// A Unix socket at a path.
    Unix {
        /// The path. An abandoned socket there is replaced.
        path: PathBuf,
        /// The permission bits, such as `0o660`.
        mode: u32,
    },
    /// The sockets opened by the service manager (`LISTEN_FDS`, systemd's socket activation).
    ///
    /// Reads and removes environment variables, so listen before other threads read the environment.
    Activated,
}

impl Listen {
    /// Checks in advance that a place reachable from other machines is guarded.
    ///
    /// # Errors
    /// Input: it is not guarded.
    pub fn check(&self, guard: &Guard) -> Result<()> {
        match self {
            Listen::Tcp(address) => check_exposure(*address, &guard.of(|place| *place == ListenAddress::Tcp(*address))),
            Listen::Unix { .. } | Listen::Activated => Ok(()),
        }
    }

    /// Checks that keys are given for existing places only. Those of a service manager are known after opening.
    ///
    /// # Errors
    /// Input: a place does not exist.
    pub fn check_keys(all: &[Listen], guard: &Guard) -> Result<()> {
        let is_it = |at: &Listen, place: &ListenAddress| match (at, place) {
            (Listen::Tcp(address), ListenAddress::Tcp(of)) => address == of,
            (Listen::Unix { path, .. }, ListenAddress::Named(name)) => path == name,
            (Listen::Activated, _) => true,
            _ => false,
        };
        match guard.keys_at.iter().find(|(place, _)| !all.iter().any(|at| is_it(at, place))) {
            Some((place, _)) => Err(no_such_place(place)),
            None => Ok(()),
        }
    }
}

/// The error for keys that are configured for an address that the server does not listen on.
pub(super) fn no_such_place(place: &ListenAddress) -> Error {
    let cause = format!("keys are given for {place}, and nothing listens there");
    Error::input(
        cause,
        "name an address as --listen has it, a Unix socket's path, or the name of the service manager's",
    )
}

/// The default address is `127.0.0.1:8080`.
impl Default for Listen {
    fn default() -> Listen {
        Listen::Tcp((Ipv4Addr::LOCALHOST, 8080).into())
    }
}

/// The address of a listener, by which its keys are configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP address, as given or as bound.
    Tcp(SocketAddr),
    /// The path of a Unix socket, or the name of a service manager's socket (`FileDescriptorName=`).
    Named(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Named(name) => name.display().fmt(f),
        }
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub(super) struct Listener {
    socket: ListenerSocket,
    /// The TCP address that the socket is bound to. `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// The listener's address in messages.
    pub name: String,
    _path: Option<OwnPath>,
    /// The access rules for connections of this listener.
    pub guard: Arc<Guard>,
    /// Whether another process opened it. That process keeps it, and waiting connections are left for the next server.
    pub is_inherited: bool,
}

#[derive(Debug)]
enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Opens the place `at`.
    ///
    /// # Errors
    /// Input: the address or path cannot be bound, or is reachable from other machines without keys.
    pub fn open(at: &Listen, guard: &Guard) -> Result<Vec<Listener>> {
        let opened = match at {
            Listen::Tcp(address) => {
                let guard = guard.of(|place| *place == ListenAddress::Tcp(*address));
                check_exposure(*address, &guard)?;
                let listener = TcpListener::bind(address).map_err(|e| unbound(&address.to_string(), &e))?;
                vec![Listener::new(ListenerSocket::Tcp(listener), guard)]
            }
            Listen::Unix { path, mode } => {
                let guard = guard.of(|place| *place == ListenAddress::Named(path.clone()));
                let (listener, path) = open_unix(path, *mode)?;
                vec![Listener { _path: Some(path), ..Listener::new(ListenerSocket::Unix(listener), guard) }]
            }
            Listen::Activated => activated(guard)?,
        };
        for listener in &opened {
            // Non-blocking, because the peer may leave between poll and accept.
            let prepared = match &listener.socket {
                ListenerSocket::Tcp(socket) => socket.set_nonblocking(true),
                ListenerSocket::Unix(socket) => socket.set_nonblocking(true),
            };
            // The longest backlog that the system allows; std's 128 is short for a burst.
            let prepared = prepared.and_then(|()| Ok(listen(&listener.as_fd(), Backlog::MAXALLOWABLE)?));
            prepared.map_err(|e| Error::failed(format!("cannot listen on {}: {e}", listener.name), "report this"))?;
        }
        Ok(opened)
    }

    fn new(socket: ListenerSocket, guard: Guard) -> Listener {
        let (address, name) = match &socket {
            ListenerSocket::Tcp(listener) => {
                let address = listener.local_addr().ok();
                (address, address.map_or_else(|| "a TCP socket".into(), |address| address.to_string()))
            }
            ListenerSocket::Unix(listener) => {
                let path = listener.local_addr().ok().and_then(|address| Some(address.as_pathname()?.to_owned()));
                (None, path.map_or_else(|| "a Unix socket".into(), |path| path.display().to_string()))
            }
        };
        Listener { socket, address, name, _path: None, guard: Arc::new(guard), is_inherited: false }
    }

    /// Accepts a waiting connection.
    ///
    /// # Errors
    /// A system error: no connection is waiting, or there are too many open files.
    pub fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        match &self.socket {
            ListenerSocket::Tcp(listener) => {
                listener.accept().map(|(stream, address)| (stream.into(), Peer::Tcp(address)))
            }
            ListenerSocket::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let of = getsockopt(&stream, sockopt::PeerCredentials)?;
                let peer = Peer::Unix { pid: of.pid(), user: of.uid(), group: of.gid() };
                log::info!("connection of {peer}");
                Ok((stream.into(), peer))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListenerSocket::Tcp(listener) => listener.as_fd(),
            ListenerSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Refuses an address that other machines can reach, unless there are keys or the user allows it.
fn check_exposure(address: SocketAddr, guard: &Guard) -> Result<()> {
    match address.ip().to_canonical().is_loopback() || guard.open_to_all || guard.keys.are_needed() {
        true => Ok(()),
        false => Err(Error::input(
            format!("{address} can be reached from other machines, and no API keys guard it"),
            text!(
                "set API keys",
                Setting::ApiKeys.aside(),
                ", allow it explicitly",
                Setting::OpenToAll.aside(),
                format!(", or listen on 127.0.0.1:{}", address.port())
            ),
        )),
    }
}

/// The error for an address or path that cannot be bound.
fn unbound(what: &str, e: &io::Error) -> Error {
    let remedy = match e.kind() {
        ErrorKind::AddrInUse => "choose another, or end what listens there",
        ErrorKind::AddrNotAvailable => "choose an address of this machine, such as 127.0.0.1",
        ErrorKind::PermissionDenied => "choose another, or run as a user who may (ports below 1024 are for root)",
        ErrorKind::NotFound => "create its directory",
        _ => "choose another",
    };
    Error::input(format!("cannot listen on {what}: {e}"), remedy)
}

/// Opens a Unix socket at `path`, replacing an abandoned one.
fn open_unix(path: &Path, mode: u32) -> Result<(UnixListener, OwnPath)> {
    let name = path.display().to_string();
    let failed = |e: io::Error| unbound(&name, &e);
    // Prevents two servers that start at once from both replacing the same abandoned socket.
    let _lock = lock_directory(path).map_err(failed)?;
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(Error::input(format!("{name} is not a socket"), "choose another path, or remove it"));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(failed)?,
            // In use or inaccessible, so it must not be removed.
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(failed(e)),
            _ => return Err(failed(Errno::EADDRINUSE.into())),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let opened = || -> io::Result<OwnedFd> {
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        // Set before listening, so that no client can connect without permission.
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        listen(&fd, Backlog::MAXALLOWABLE)?;
        Ok(fd)
    };
    let listener = UnixListener::from(opened().map_err(failed)?);
    let path = OwnPath::new(path).map_err(failed)?;
    Ok((listener, path))
}

/// Locks a path's directory against other servers that open sockets there, until it is dropped. `None`: the lock was
/// held for longer than a server needs. Every user who can read the directory can lock it, so the lock is only
/// advisory.
fn lock_directory(path: &Path) -> io::Result<Option<Flock<File>>> {
    /// The longest wait for the directory's lock. Other servers have it for milliseconds.
    const PATIENCE: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_millis(5);
    let mut directory = File::open(parent_of(path))?;
    let start = Instant::now();
    loop {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((unlocked, Errno::EWOULDBLOCK)) if start.elapsed() < PATIENCE => directory = unlocked,
            Err((_, Errno::EWOULDBLOCK)) => {
                log::warn!("{}: another process has locked the directory; going on without a lock", path.display());
                return Ok(None);
            }
            Err((_, e)) => return Err(e.into()),
        }
        thread::sleep(PAUSE);
    }
}

/// A socket's path. When it is dropped the file is removed, if it is still the same one.
#[derive(Debug)]
struct OwnPath {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OwnPath {
    fn new(path: &Path) -> io::Result<OwnPath> {
        let found = path.symlink_metadata()?;
        // Absolute, because the working directory may change.
        Ok(OwnPath { path: std::path::absolute(path)?, device: found.dev(), inode: found.ino() })
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        let _lock = lock_directory(&self.path);
        let is_own = |found: std::fs::Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        if self.path.symlink_metadata().is_ok_and(is_own) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The sockets opened by the service manager.
fn activated(guard: &Guard) -> Result<Vec<Listener>> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names: Vec<&str> = names.split(':').collect();
    let mut given = ListenFd::from_env();
    let mut opened = Vec::new();
    for index in 0..given.len() {
        let tcp = given.take_tcp_listener(index).ok().flatten().map(ListenerSocket::Tcp);
        let unix = || given.take_unix_listener(index).ok().flatten().map(ListenerSocket::Unix);
        let Some(socket) = tcp.or_else(unix) else {
            let cause = format!("socket {} of the service manager is no TCP or Unix stream socket", index + 1);
            return Err(Error::input(cause, "use ListenStream= in its socket unit"));
        };
        let mut listener = Listener { is_inherited: true, ..Listener::new(socket, guard.clone()) };
        if !getsockopt(&listener.as_fd(), sockopt::AcceptConn).unwrap_or(false) {
            let cause = format!("the service manager's socket {} is a connection", listener.name);
            return Err(Error::input(cause, "use Accept=no in its socket unit"));
        }
        let (address, own) = (listener.address, PathBuf::from(&listener.name));
        let named = names.get(index).filter(|name| !name.is_empty());
        listener.guard = Arc::new(guard.of(|place| match place {
            ListenAddress::Tcp(place) => Some(*place) == address,
            ListenAddress::Named(name) => *name == own || named.is_some_and(|named| Path::new(named) == name),
        }));
        if let Some(address) = address {
            check_exposure(address, &listener.guard)?;
        }
        opened.push(listener);
    }
    match opened.is_empty() {
        true => Err(Error::input(
            "no sockets were handed over (LISTEN_FDS)",
            "start it by its socket unit (`systemctl start`), or name an address",
        )),
        false => Ok(opened),
    }
}
