//! Shared by commands that write for minutes: a progress bar, an orderly end after a signal, and a summary.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::{progress, signals};
use crate::Result;
use crate::display::{counted, moved};
use crate::model::write::{WriteMonitor, WriteSummary};

/// Runs a write and prints its summary on stdout. The summary is a line or, with `json`, an object of `source`,
/// `destination`, `tensors`, `bytes`, `seconds` and the keys of `more`. A progress bar shows on stderr if that is a
/// terminal.
///
/// A signal ends the write in an orderly way, and a second one ends the process at once.
pub(super) fn run(
    source: &str,
    destination: &Path,
    more: &[(&str, Value)],
    json: bool,
    write: impl FnOnce(&WriteMonitor) -> Result<WriteSummary>,
) -> Result<()> {
    signals::catch(signals::stops().iter().copied());
    let style = "{bar:40} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
    let bar = progress::bar(None, style, json);
    let begin = Instant::now();
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let result = write(&WriteMonitor { progress: &progress, cancel: &signals::cancel() });
    bar.finish_and_clear();
    let (written, seconds) = (result?, begin.elapsed().as_secs_f64());
    if json {
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
        return super::print_json(&object);
    }
    let (place, tensors) = (destination.display(), counted(written.tensors, "tensor"));
    super::print(&format!("wrote {place}: {tensors}, {}\n", moved(written.bytes, seconds)))
}
