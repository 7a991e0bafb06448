//! What commands that write for minutes share: a progress bar on a terminal, an end at Ctrl-C, a summary.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::model::writer::{Watch, Written};
use crate::plan::bytes;
use crate::{Error, Result};

/// Runs a write with a progress bar on stderr (only if that is a terminal) and prints its summary on stdout: a line,
/// or with `json` an object of `source`, `destination`, `tensors`, `bytes`, `seconds` and the keys of `more`.
///
/// Ctrl-C, SIGTERM and SIGHUP end the write in good order; a second one ends the process at once.
pub(super) fn run(
    source: &str,
    destination: &Path,
    more: &[(&str, Value)],
    json: bool,
    write: impl FnOnce(&Watch) -> Result<Written>,
) -> Result<()> {
    let cancel = cancel_on_signal()?;
    let bar = progress_bar();
    let begin = Instant::now();
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let result = write(&Watch { progress: &progress, cancel: &cancel });
    bar.finish_and_clear();
    let (written, seconds) = (result?, begin.elapsed().as_secs_f64());
    let line = if json {
        let mut object = json!({
            "source": source,
            "destination": destination.display().to_string(),
            "tensors": written.tensors,
            "bytes": written.bytes,
            "seconds": seconds,
        });
        for (key, value) in more {
            object[*key] = value.clone();
        }
        object.to_string()
    } else {
        let rate = written.bytes as f64 / 1e9 / seconds;
        let (place, tensors, size) = (destination.display(), written.tensors, bytes(written.bytes));
        format!("wrote {place}: {tensors} tensors, {size} in {seconds:.1} s ({rate:.2} GB/s)")
    };
    let printed = writeln!(std::io::stdout(), "{line}");
    printed.map_err(|e| Error::unwritable(Path::new("standard output"), &e))
}

/// A flag that the first signal to stop sets.
fn cancel_on_signal() -> Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset and sets it, the second finds it set.
        signal_hook::flag::register_conditional_shutdown(signal, 1, cancel.clone())
            .and_then(|_| signal_hook::flag::register(signal, cancel.clone()))
            .map_err(|e| Error::failed(format!("cannot handle signals: {e}"), "start it again"))?;
    }
    Ok(cancel)
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let style = "{bar:40} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
