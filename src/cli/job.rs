//! Shared by commands that write for minutes: a progress bar, an orderly end at Ctrl-C, and a summary.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::NamedTempFile;

use crate::display::{bytes, counted};
use crate::machine::files::Files;
use crate::model::write::{WriteMonitor, Written};
use crate::{Error, Result};

/// Runs a write and prints its summary on stdout. The summary is a line or, with `json`, an object of `source`,
/// `destination`, `tensors`, `bytes`, `seconds` and the keys of `more`. A progress bar shows on stderr if that is a
/// terminal.
///
/// Ctrl-C, Ctrl-\\, SIGTERM and SIGHUP end the write in good order; a second one ends the process at once.
pub(super) fn run(
    source: &str,
    destination: &Path,
    more: &[(&str, Value)],
    json: bool,
    write: impl FnOnce(&WriteMonitor) -> Result<Written>,
) -> Result<()> {
    let cancel = cancel_on_signal()?;
    let bar = progress_bar();
    let begin = Instant::now();
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let result = write(&WriteMonitor { progress: &progress, cancel: &cancel });
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
        let (place, size) = (destination.display(), bytes(written.bytes));
        let tensors = counted(written.tensors, "tensor");
        format!("wrote {place}: {tensors}, {size} in {seconds:.1} s ({rate:.2} GB/s)")
    };
    super::print(&format!("{line}\n"))
}

/// The signals that stop a command. Signals that were ignored when the process started stay ignored: nohup ignores
/// SIGHUP, and a shell ignores some for commands in the background.
pub(super) fn stops() -> Vec<i32> {
    let ignored = Files::system().field("/proc/self/status", "SigIgn").ok();
    let ignored = ignored.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// A temporary file, created by `make`, that is removed if a signal ends the process. The signal still ends the process
/// at once.
pub(super) fn temporary(make: impl FnOnce() -> std::io::Result<NamedTempFile>) -> std::io::Result<NamedTempFile> {
    // Before the file is created: a signal that comes in between waits for the thread.
    let mut signals = Signals::new(stops())?;
    let file = make()?;
    let path = file.path().to_owned();
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Fails if the file has already been renamed.
            let _ = std::fs::remove_file(path);
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(file)
}

/// A flag that the first stopping signal sets.
fn cancel_on_signal() -> Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in stops() {
        // In this order: the first signal finds the flag unset and sets it, the second finds it set and exits.
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
