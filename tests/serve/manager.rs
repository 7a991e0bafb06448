//! What systemd is told, by a socket of the test's own.

use super::client::{PATIENCE, SMALL, Server, command};
use nix::sys::signal::Signal;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

/// Datagrams up to one that has `word` at the beginning of a line.
fn until(socket: &UnixDatagram, word: &str) -> Vec<String> {
    let end = Instant::now() + PATIENCE;
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "no {word}: {heard:?}");
        socket.set_read_timeout(Some(left)).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        heard.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        if heard.last().unwrap().lines().any(|line| line.starts_with(word)) {
            return heard;
        }
    }
}

#[test]
fn it_is_told_of_readiness_of_progress_of_a_reload_and_of_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut command = command(directory.path(), &SMALL);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000");
    let mut server = Server::spawn(command, directory);
    let before = until(&socket, "READY=1");
    assert!(before[..before.len() - 1].iter().all(|text| !text.contains("STOPPING")), "{before:?}");
    assert_eq!(server.get("/readyz").0, 200, "ready means that it answers");
    // Twice, so that it is not only once at the start.
    until(&socket, "WATCHDOG=1");
    until(&socket, "WATCHDOG=1");
    server.signal(Signal::SIGHUP);
    let reload = until(&socket, "READY=1");
    let began = reload.iter().position(|text| text.starts_with("RELOADING=1\nMONOTONIC_USEC=")).expect("RELOADING");
    assert!(began < reload.len() - 1, "{reload:?}");
    server.signal(Signal::SIGTERM);
    until(&socket, "STOPPING=1");
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
}
