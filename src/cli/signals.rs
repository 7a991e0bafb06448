//! The signals that stop a command: Ctrl-C, Ctrl-\\, SIGTERM and SIGHUP.
//!
//! A command that must clean up catches them: the first signal sets a flag that ends the work early. After the results
//! are printed and temporary files removed, the process ends by that signal, as its shell expects. A second signal ends
//! the process at once. A command without clean-up leaves the signals at their defaults.

use crate::Cancel;
use crate::machine::files::Files;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag::{register, register_conditional_default, register_usize};
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// True after the first caught signal.
static FLAG: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// The number of the last caught signal; 0 if none was caught.
static CAUGHT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The stopping signals that were not ignored at the start. Others stay ignored: nohup ignores SIGHUP, and a shell
/// ignores some for background commands.
static STOPS: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let ignored = Files::system().field("/proc/self/status", "SigIgn").ok();
    let ignored = ignored.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
});

/// Sets up signals, before any other code handles them.
pub(super) fn prepare() {
    LazyLock::force(&STOPS);
    // A write beyond the file size limit then fails like on a full disk, and does not end the process.
    if let Err(e) = register(SIGXFSZ, Arc::<AtomicBool>::default()) {
        log::warn!("a file that grows beyond its limit ends the program: {e}");
    }
}

/// The signals that stop this command, such as SIGINT and SIGTERM.
pub(super) fn stops() -> &'static [i32] {
    &STOPS
}

/// The flag set by signals after [`catch`].
pub(super) fn cancel() -> Cancel {
    FLAG.clone().into()
}

/// Makes the first of `signals` set the flag, and the second end the process at once.
pub(super) fn catch(signals: impl IntoIterator<Item = i32>) {
    for signal in signals {
        // The order matters: the first signal finds the flag unset and sets it, the second finds it set.
        let caught = register_conditional_default(signal, FLAG.clone())
            .and_then(|_| register_usize(signal, CAUGHT.clone(), signal as usize))
            .and_then(|_| register(signal, FLAG.clone()));
        if let Err(e) = caught {
            log::warn!("signal {signal} cannot be caught: {e}");
        }
    }
}

/// Sets the flag like a signal. Returns whether it was set already.
pub(super) fn interrupt() -> bool {
    FLAG.swap(true, Ordering::Relaxed)
}

/// Clears the flag after a signal has been handled.
pub(super) fn forget() {
    CAUGHT.store(0, Ordering::Relaxed);
    FLAG.store(false, Ordering::Relaxed);
}

/// Ends the process by the caught signal, if there was one.
pub(super) fn end() {
    let signal = CAUGHT.load(Ordering::Relaxed);
    if signal != 0 {
        let _ = emulate_default_handler(signal as i32);
    }
}
