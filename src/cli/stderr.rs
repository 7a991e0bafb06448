//! A server's output on standard error. A pipe without a reader fills up, and writing to it would then block for ever.
//! So output that cannot be written in time is dropped and counted.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, IsTerminal, StderrLock, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

/// Milliseconds to wait for the reader. After a timeout output is dropped without waiting until the reader is back.
const PATIENCE: u16 = 100;
/// Bytes that can be written to a pipe without blocking when poll reports it writable: one page.
const PIECE: usize = 4096;

/// The state of a process that drops output instead of blocking.
static UNREAD: Mutex<Option<Unread>> = Mutex::new(None);

struct Unread {
    /// True if each line of output is a JSON object.
    says_objects: bool,
    /// Texts dropped since the last one that was written.
    dropped: u64,
}

/// Makes this process drop output on standard error instead of blocking; with `json` all of it consists of objects.
/// Returns a writer for the log. `None` for a terminal, where blocking is fine, because its user may pause and continue
/// it.
pub fn drop_unread(json: bool) -> Option<Box<dyn Write + Send>> {
    if io::stderr().is_terminal() {
        return None;
    }
    *UNREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Unread { says_objects: json, dropped: 0 });
    Some(Box::new(LogWriter))
}

/// Writes a line, or drops it as [`drop_unread`] says. Errors are ignored: the work continues without a reader.
pub(super) fn write_line(line: &str) {
    write(format!("{line}\n").as_bytes());
}

/// Writes the log as [`write_line`] does.
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes bytes as [`write_line`] does, without a newline after them.
pub(super) fn write(bytes: &[u8]) {
    match &mut *UNREAD.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(unread) => unread.write(bytes),
        None => drop(io::stderr().write_all(bytes)),
    }
}

impl Unread {
    fn write(&mut self, bytes: &[u8]) {
        let mut stderr = io::stderr().lock();
        if self.dropped > 0 {
            let lost = format!("{} lines were dropped here: standard error was not read in time", self.dropped);
            let lost = match self.says_objects {
                true => format!("\n{}\n", super::log_object("warn", &lost)),
                // The last line may have been cut.
                false => format!("\nkiln: {lost}\n"),
            };
            if !is_ready(&stderr, 0) || stderr.write_all(lost.as_bytes()).is_err() {
                self.dropped += 1;
                return;
            }
            self.dropped = 0;
        }
        if !bytes.chunks(PIECE).all(|piece| is_ready(&stderr, PATIENCE) && stderr.write_all(piece).is_ok()) {
            self.dropped += 1;
        }
    }
}

/// True if standard error can be written without blocking. Waits for that for `milliseconds` at most.
fn is_ready(stderr: &StderrLock<'_>, milliseconds: u16) -> bool {
    let mut polled = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    !matches!(poll(&mut polled, PollTimeout::from(milliseconds)), Ok(0))
}
