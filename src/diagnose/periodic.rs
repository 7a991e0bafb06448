//! Work on a thread of its own, at intervals, until its handle is dropped.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A thread that calls a function at an interval. Dropping it waits until a call in progress has ended.
#[derive(Debug)]
pub struct PeriodicWork {
    /// The sender by which the thread is ended: dropping it wakes the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicWork {
    /// Starts to call `work`, for the first time after `pause`. It returns the pause before the next call.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        name: &str,
        mut pause: Duration,
        mut work: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<PeriodicWork> {
        let (end, ended) = channel::<()>();
        let repeat = move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = work();
            }
        };
        let thread = Builder::new().name(name.into()).spawn(repeat)?;
        Ok(PeriodicWork { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for PeriodicWork {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
