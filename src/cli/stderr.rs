//! A server's output on standard error. A pipe without a reader fills up, and writing to it would then block for ever.
//! So output that cannot be written in time is dropped and counted.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, IsTerminal, StderrLock, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Milliseconds to wait for the reader. After a timeout output is dropped without waiting until the reader is back.
const PATIENCE: u16 = 100;
/// Bytes that can be written to a pipe without blocking when poll reports it writable: one page.
const PIECE: usize = 4096;

/// Whether this process drops output instead of blocking.
static DROPS: AtomicBool = AtomicBool::new(false);
/// Texts dropped since the last one that was written.
static DROPPED: Mutex<u64> = Mutex::new(0);

/// Whether all output consists of JSON objects.
static SAYS_OBJECTS: AtomicBool = AtomicBool::new(false);

/// Makes this process drop output on standard error instead of blocking; with `json` all of it consists of objects.
/// Returns a writer for the log. `None` for a terminal, where blocking is fine, because its user may pause and continue
/// it.
pub fn drop_unread(json: bool) -> Option<Box<dyn Write + Send>> {
    if io::stderr().is_terminal() {
        return None;
    }
    SAYS_OBJECTS.store(json, Ordering::Relaxed);
    DROPS.store(true, Ordering::Relaxed);
    Some(Box::new(Unread))
}

/// Writes a line, or drops it as [`drop_unread`] says. Errors are ignored: the work continues without a reader.
pub(super) fn write_line(line: &str) {
    let text = format!("{line}\n");
    match DROPS.load(Ordering::Relaxed) {
        true => say(text.as_bytes()),
        false => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// A writer to standard error that drops instead of blocking.
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

/// Whether a piece can be written without blocking, after waiting for `milliseconds` at most.
fn is_ready(stderr: &StderrLock<'_>, milliseconds: u16) -> bool {
    let mut polled = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    !matches!(poll(&mut polled, PollTimeout::from(milliseconds)), Ok(0))
}
