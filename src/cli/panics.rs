//! Turns a panic into one line on standard error and exit code 1.

use super::note;
use crate::display::plain;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Runs the program. If it panics, or a thread that it waits for does, prints one line and returns exit code 1.
pub fn guard(program: impl FnOnce() -> ExitCode) -> ExitCode {
    set_hook(Box::new(report));
    // Unwind safe: nothing that the panic left unfinished is used again.
    catch_unwind(AssertUnwindSafe(program)).unwrap_or(ExitCode::FAILURE)
}

/// Source locations of the panics reported so far.
static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints a panic, with a backtrace if `RUST_BACKTRACE` is set. Panics of several workers at one place are one line.
fn report(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map_or("an unknown place".into(), |l| format!("{}:{}", l.file(), l.line()));
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.contains(&place) {
        return;
    }
    let payload = panic.payload();
    let message = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    note(&line(message.unwrap_or("a panic without a message"), &place));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        note(&trace.to_string());
    }
    reported.push(place);
}

fn line(message: &str, place: &str) -> String {
    format!("kiln: internal error: {} at {place}; report this", plain(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::process::{Command, exit};

    /// Programs that fail in different ways, by name.
    fn program(name: &str) -> ExitCode {
        let numbers = [1, 2, 3];
        let next = |i: &usize| numbers[i + 3];
        match name {
            "main" => panic!("the first line\nthe second"),
            "thread" => std::thread::scope(|scope| {
                scope.spawn(|| panic!("in a thread")).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
            "workers" => assert_eq!((0..1000).into_par_iter().map(|i| next(&i)).sum::<usize>(), 0),
            _ => {}
        }
        ExitCode::SUCCESS
    }

    /// Runs this test alone in a process whose main function is `program`.
    #[test]
    fn a_panic_wherever_it_is_ends_the_program_with_one_line_and_exit_code_1() {
        const VARIABLE: &str = "KILN_TEST_PANIC";
        if let Ok(name) = std::env::var(VARIABLE) {
            let code = format!("{:?}", guard(|| program(&name)));
            exit(if code == format!("{:?}", ExitCode::from(1)) { 1 } else { 0 });
        }
        for (name, message, trace) in [
            ("main", "the first line the second", false),
            ("main", "the first line the second", true),
            ("thread", "in a thread", false),
            ("workers", "index out of bounds", false),
        ] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let this = "cli::panics::tests::a_panic_wherever_it_is_ends_the_program_with_one_line_and_exit_code_1";
            command.args(["--exact", this, "--nocapture"]).env(VARIABLE, name);
            command.env_remove("RUST_LIB_BACKTRACE").env("RUST_BACKTRACE", if trace { "1" } else { "0" });
            let ended = command.output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(1), "{name}: {said}");
            let first = said.lines().next().unwrap();
            assert!(first.starts_with(&format!("kiln: internal error: {message}")), "{name}: {said}");
            assert!(first.contains(" at src/cli/panics.rs:") && first.ends_with("; report this"), "{name}: {said}");
            assert_eq!(said.lines().count() > 1, trace, "{name}: {said}");
        }
    }
}
