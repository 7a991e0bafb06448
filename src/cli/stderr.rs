//! What a server says on standard error. A pipe that nobody reads fills up, and whoever writes to it then waits for ever: here
//! what does not go out in time is dropped, and counted, and the server goes on.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, IsTerminal, StderrLock, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Milliseconds that a reader may take. One that has taken longer is not waited for until it reads.
const PATIENCE: u16 = 100;
/// Bytes that a pipe takes without waiting, once it takes any: one page.
const PIECE: usize = 4096;

/// Whether this process drops what nobody reads.
static DROPS: AtomicBool = AtomicBool::new(false);
/// Texts that were dropped since the last one that went out.
static DROPPED: Mutex<u64> = Mutex::new(0);

/// Whether all that is said is objects.
static SAYS_OBJECTS: AtomicBool = AtomicBool::new(false);

/// From here on this process waits for no reader of standard error; with `json` it says nothing but objects there. Returns
/// where a log may be written to; `None`: it is a terminal, and whoever stops that may go on.
pub fn drop_unread(json: bool) -> Option<Box<dyn Write + Send>> {
    if io::stderr().is_terminal() {
        return None;
    }
    SAYS_OBJECTS.store(json, Ordering::Relaxed);
    DROPS.store(true, Ordering::Relaxed);
    Some(Box::new(Unread))
}

/// Writes a line, and drops it where nobody reads and this process does not wait for that. Failure is ignored: the work goes
/// on without a reader.
pub(super) fn write_line(line: &str) {
    let text = format!("{line}\n");
    match DROPS.load(Ordering::Relaxed) {
        true => say(text.as_bytes()),
        false => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// Standard error, where what is not read is dropped.
struct Unread;

impl Write for Unread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        say(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn say(bytes: &[u8]) {
    let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = io::stderr().lock();
    if *dropped > 0 {
        let lost = format!("{dropped} lines were dropped here: nobody read standard error in time");
        let lost = match SAYS_OBJECTS.load(Ordering::Relaxed) {
            true => format!("\n{}\n", super::log_object("warn", &lost)),
            false => format!("\nkiln: {lost}\n"),
        };
        if !is_ready(&stderr, 0) || stderr.write_all(lost.as_bytes()).is_err() {
            *dropped += 1;
            return;
        }
        *dropped = 0;
    }
    if !bytes.chunks(PIECE).all(|piece| is_ready(&stderr, PATIENCE) && stderr.write_all(piece).is_ok()) {
        *dropped += 1;
    }
}

/// Whether a piece can be written without waiting, after `milliseconds` at most.
fn is_ready(stderr: &StderrLock<'_>, milliseconds: u16) -> bool {
    let mut polled = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    !matches!(poll(&mut polled, PollTimeout::from(milliseconds)), Ok(0))
}
