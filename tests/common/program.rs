//! Child processes: `kiln` as a script starts it, and this test executable.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// A program's output and exit code.
pub struct Ran {
    /// -1 if a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        let text = |b| String::from_utf8(b).unwrap();
        Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Standard output: one JSON object on one line.
    pub fn object(&self) -> Value {
        assert_eq!(self.stdout.trim_end().lines().count(), 1, "one object and nothing else: {}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// The JSON object of a successful run.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.object()
    }

    /// Asserts the exit code, and one line on stderr that has all of `words`.
    pub fn failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "one line: {}", self.stderr);
        for w in words {
            assert!(self.stderr.contains(w), "no `{w}` in: {}", self.stderr);
        }
    }

    /// As [`Ran::failed`], with nothing on stdout. The line must have a cause and a remedy.
    pub fn refused(&self, code: i32, words: &[&str]) {
        self.failed(code, words);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("kiln: ") && self.stderr.contains("; "), "cause; remedy: {}", self.stderr);
    }
}

/// Kiln, on the driver that this test runs on.
pub fn program() -> Command {
    let mut command = start(env!("CARGO_BIN_EXE_kiln"));
    command.env_remove("RUST_LOG").env_remove("KILN_MODEL").env("KILN_CONFIG", "");
    command
}

/// Kiln, with signals as env(1) is told. The tests may run with some ignored, which Kiln goes on ignoring: a shell ignores
/// SIGINT for commands in the background, and nohup(1) SIGHUP.
pub fn with_signals(told: &[&str]) -> Command {
    let kiln = program();
    let mut command = Command::new("env");
    command.args(told).arg(kiln.get_program()).args(kiln.get_args());
    command.env_remove("RUST_LOG").env_remove("KILN_MODEL").env("KILN_CONFIG", "");
    command
}

/// Runs Kiln.
pub fn kiln(arguments: &[&str]) -> Ran {
    run(program().args(arguments), b"")
}

/// Runs a command with `stdin` as its standard input.
pub fn run(command: &mut Command, stdin: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // Beside reading, since a command may write before it has read everything. One that does not read its input
        // closes the pipe.
        scope.spawn(move || drop(input.write_all(stdin)));
        Ran::of(child.wait_with_output().unwrap())
    })
}

/// A command that starts `executable` on the driver that this test runs on.
pub fn start(executable: impl AsRef<OsStr>) -> Command {
    match std::env::var_os("KILN_TEST_LAUNCHER") {
        Some(launcher) => {
            let mut command = Command::new(launcher);
            command.arg(executable);
            command
        }
        None => Command::new(executable),
    }
}

/// A command that starts this test executable again, on the same driver.
pub fn this_test() -> Command {
    match std::env::var_os("KILN_TEST_LAUNCHER") {
        // This process is then the launcher (see tools/fetch-mesa), and the test executable is its argument.
        Some(_) => start(std::env::args_os().next().unwrap()),
        None => start(std::env::current_exe().unwrap()),
    }
}
