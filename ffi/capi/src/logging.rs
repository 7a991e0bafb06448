//! Kiln's log, handed to the host program.

use log::{LevelFilter, Log, Metadata, Record};
use std::sync::{Arc, Once, PoisonError, RwLock};

/// A function that takes a level, 1 (error) to 5 (trace), and a line.
pub(crate) type Sink = Arc<dyn Fn(u32, &str) + Send + Sync>;

struct Lines(RwLock<Option<Sink>>);

static LINES: Lines = Lines(RwLock::new(None));
static FIRST: Once = Once::new();

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let sink = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sink) = sink {
            sink(record.level() as u32, &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Hands lines up to `level` to `sink`; `None` ends that. A logger that the host's Rust code has set stays.
pub(crate) fn set(level: u32, sink: Option<Sink>) {
    FIRST.call_once(|| drop(log::set_logger(&LINES)));
    let level = match (level, &sink) {
        (0, _) | (_, None) => LevelFilter::Off,
        (1, _) => LevelFilter::Error,
        (2, _) => LevelFilter::Warn,
        (3, _) => LevelFilter::Info,
        (4, _) => LevelFilter::Debug,
        (5.., _) => LevelFilter::Trace,
    };
    *LINES.0.write().unwrap_or_else(PoisonError::into_inner) = sink;
    log::set_max_level(level);
}
