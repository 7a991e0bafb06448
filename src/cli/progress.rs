//! Progress bars and spinners on standard error, shown only on a terminal and not with --json.

use super::terminal::is_dumb;
use crate::diagnose::periodic::PeriodicWork;
use crate::sequence::counts;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The interval at which a bar is drawn.
const PERIOD: Duration = Duration::from_millis(200);

/// True if progress is shown: standard error is a terminal on which a line can be overwritten.
pub(super) fn is_shown(json: bool) -> bool {
    !json && std::io::stderr().is_terminal() && !is_dumb()
}

/// A bar of `total` with indicatif's template `style`; hidden if progress is not shown.
pub(super) fn bar(total: Option<u64>, style: &str, json: bool) -> ProgressBar {
    if !is_shown(json) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(5));
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A bar that a thread keeps up to date until it is dropped. Work that ends before the first update shows no bar.
pub(super) struct LiveBar {
    bar: ProgressBar,
    /// `None` if no thread can be started. Then the bar only shows explicit updates.
    updates: Option<PeriodicWork>,
}

impl LiveBar {
    /// Starts to call `update` on the bar several times a second.
    pub(super) fn start(bar: ProgressBar, update: impl Fn(&ProgressBar) + Send + 'static) -> LiveBar {
        let own = bar.clone();
        let draw = move || {
            update(&own);
            PERIOD
        };
        LiveBar { bar, updates: PeriodicWork::start("progress", PERIOD, draw).ok() }
    }

    /// A spinner with a message.
    pub(super) fn spinner() -> LiveBar {
        LiveBar::start(ProgressBar::new_spinner(), ProgressBar::tick)
    }

    /// A bar for the `tokens` of a prompt; `None` if progress is not shown.
    pub(super) fn prefill(tokens: usize, json: bool) -> Option<LiveBar> {
        let style = "prompt {wide_bar} {pos}/{len} tokens, {elapsed}";
        let start = counts::read().prefilled;
        let update = move |bar: &ProgressBar| bar.set_position(counts::read().prefilled - start);
        is_shown(json).then(|| LiveBar::start(bar(Some(tokens as u64), style, json), update))
    }

    /// Sets the text beside the bar to the current activity.
    pub(super) fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
}

impl Drop for LiveBar {
    fn drop(&mut self) {
        drop(self.updates.take());
        self.bar.finish_and_clear();
    }
}
