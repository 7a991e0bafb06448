//! Notifications to the service manager (systemd's sd_notify): datagrams to the socket named by `NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// The connection to the service manager (systemd), if the process runs under one.
#[derive(Debug, Default)]
pub(super) struct Manager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// The longest interval between signs of life that the manager accepts.
    pub watchdog: Option<Duration>,
}

impl Manager {
    /// The manager named in the environment.
    pub fn from_environment() -> Manager {
        let own = |pid: &OsStr| pid == OsStr::from_bytes(std::process::id().to_string().as_bytes());
        let is_ours = std::env::var_os("WATCHDOG_PID").is_none_or(|pid| own(&pid));
        let micros =
            std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok()).filter(|micros| *micros > 0);
        Manager {
            to: std::env::var_os("NOTIFY_SOCKET").and_then(|name| open(&name)),
            watchdog: micros.filter(|_| is_ours).map(Duration::from_micros),
        }
    }

    /// Sends assignments such as `READY=1`, one per line, if there is a manager.
    pub fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.to
            && let Err(e) = socket.send_to_addr(state.as_bytes(), address)
        {
            log::warn!("the service manager did not get {:?}: {e}", state.lines().next().unwrap_or_default());
        }
    }
}

/// A socket and the address to send to. A name that begins with `@` is abstract, not a path.
fn open(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(Path::new(name)),
    };
    let opened = address.and_then(|address| Ok((UnixDatagram::unbound()?, address)));
    opened.inspect_err(|e| log::warn!("NOTIFY_SOCKET={}: {e}", name.display())).ok()
}
