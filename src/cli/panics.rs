//! Turns a panic into one line on standard error and exit code 1; with --json also into an object on standard output.

use super::{note, report_object};
use crate::Error;
use crate::display::plain;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Runs the program. If it, or a thread that it waits for, panics, prints one line, with `json` also an object on
/// standard output, and returns exit code 1.
pub fn guard(json: bool, program: impl FnOnce() -> ExitCode) -> ExitCode {
    set_hook(Box::new(report));
    // Unwind safe: state left by the panic is not used again.
    catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(|_| {
        let reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(panic) = reported.first().filter(|_| json) {
            report_object(&Error::failed(format!("internal error: {}", panic.message), REMEDY));
        }
        ExitCode::FAILURE
    })
}

const REMEDY: &str = "report this";

/// A panic that has been reported.
struct ReportedPanic {
    place: String,
    /// The panic's message, with the file and the line that panicked.
    message: String,
}

/// The panics reported so far.
static REPORTED: Mutex<Vec<ReportedPanic>> = Mutex::new(Vec::new());

/// Prints a panic, with a backtrace if `RUST_BACKTRACE` is set. Panics of several workers at the same place make one
/// line.
fn report(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map_or("an unknown place".into(), |l| format!("{}:{}", l.file(), l.line()));
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.iter().any(|panic| panic.place == place) {
        return;
    }
    let payload = panic.payload();
    let message = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let message = format!("{} at {place}", plain(message.unwrap_or("a panic without a message")));
    note(&format!("kiln: internal error: {message}; {REMEDY}"));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        note(&trace.to_string());
    }
    reported.push(ReportedPanic { place, message });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::process::{Command, exit};

    /// Programs that fail in different ways, selected by name.
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

    /// Runs this test alone in a child process whose main function is `program`.
    #[test]
    fn a_panic_wherever_it_is_ends_the_program_with_one_line_and_exit_code_1() {
        const VARIABLE: &str = "KILN_TEST_PANIC";
        if let Ok(name) = std::env::var(VARIABLE) {
            let code = format!("{:?}", guard(true, || program(&name)));
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
            let printed = String::from_utf8(ended.stdout).unwrap();
            let object = printed.lines().find(|line| line.starts_with('{')).unwrap();
            let error = &serde_json::from_str::<serde_json::Value>(object).unwrap()["error"];
            assert_eq!((&error["exit"], &error["remedy"]), (&1.into(), &"report this".into()));
            assert!(error["message"].as_str().unwrap().starts_with(&format!("internal error: {message}")), "{object}");
        }
    }
}
