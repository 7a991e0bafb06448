//! Calls: each is answered on a thread of its own, because the caller's may have a small stack.

use crate::machine::threads;
use crate::serve::http::Limits;
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::thread;

/// Does `work` on another thread. Each piece that it passes goes to `on` on this thread, and the work goes on once `on`
/// has returned. After a break the work gets an error.
///
/// # Errors
/// As `work`. Failed: no thread can be started, or the work panicked.
pub(super) fn apart<T: Send, R: Send>(
    on: &mut dyn FnMut(T) -> ControlFlow<()>,
    work: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<R> + Send,
) -> Result<R> {
    thread::scope(|scope| {
        let ((give, given), (go_on, answer)) = (channel(), channel());
        let mut pass = move |piece| match give.send(piece).ok().and_then(|()| answer.recv().ok()) {
            Some(ControlFlow::Continue(())) => Ok(()),
            Some(ControlFlow::Break(())) | None => {
                Err(Error::interrupted("the caller took no more of the answer", "ask again"))
            }
        };
        let thread = thread::Builder::new().name("kiln call".into()).stack_size(Limits::default().stack_bytes);
        let thread = thread
            .spawn_scoped(scope, move || work(&mut pass))
            .map_err(|e| Error::failed(format!("a thread for the call cannot be started: {e}"), threads::REMEDY))?;
        for piece in given {
            // The work waits for this, so it cannot be gone.
            let _ = go_on.send(on(piece));
        }
        thread.join().unwrap_or_else(|_| Err(Error::failed("the thread of the call panicked", "report this")))
    })
}
