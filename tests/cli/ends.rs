//! Commands that are cut off: by their reader, a full disk, or a signal.

use crate::common::program::{Ran, program};
use crate::{entries, tiny};
use std::fs::{File, OpenOptions};
use std::io::PipeWriter;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A pipe whose reader is gone before anything is written. A quick command would otherwise finish before the reader
/// goes.
fn closed_pipe() -> PipeWriter {
    std::io::pipe().unwrap().1
}

/// A file that accepts no bytes.
fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn kill(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
}

/// Waits until `begun` is true of a process's work.
fn wait_for(child: &mut Child, mut begun: impl FnMut() -> bool) {
    let start = Instant::now();
    while !begun() {
        assert!(start.elapsed().as_secs() < 60 && child.try_wait().unwrap().is_none(), "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_closed_pipe_ends_a_reply() {
    let arguments = ["run", "-m", &tiny(), "--tokens", "2", "--ignore-eos", "--device", "cpu"];
    let out = program().args(arguments).stdout(closed_pipe()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(out.status.signal(), Some(13), "{:?}", out.status);
}

/// An answer is printed even if its summary cannot be, and an error keeps its exit code.
#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let run = |arguments: &[&str]| {
        Ran::of(program().args(arguments).stdin(Stdio::null()).stderr(full_disk()).output().unwrap())
    };
    assert_eq!(run(&["run", "--bogus"]).code, 2);
    let ran = run(&["run", "--device", "cpu", "-p", "Who are you?"]);
    assert!(ran.code == 0 && !ran.stdout.is_empty());
}

/// Ended by SIGPIPE without a message, like `ls | head`; a shell shows that as 141.
#[test]
fn what_only_shows_ends_quietly_with_its_reader() {
    for arguments in [
        &["plan", "--shape", "gemma3-27b", "--machine", "780m"][..],
        &["plan", "--shape", "gemma3-27b", "--machine", "780m", "--schedule", "--json"],
        &["probe", "--quick"],
        &["probe", "--quick", "--json", "--device", "cpu"],
        &["run", "-p", "Who are you?", "--device", "cpu"],
        &["run", "-p", "Who are you?", "--device", "cpu", "--json"],
        &["logits", "--tokens", "2", "--device", "cpu", "--json"],
        &["tokenize", "Who are you?"],
        &["run", "--help"],
        &["--version"],
    ] {
        let mut command = program();
        command.args(arguments).env("KILN_VALIDATION", "0");
        let out = command.stdout(closed_pipe()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(out.status.signal(), Some(13), "{arguments:?}: {:?}", out.status);
        assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{arguments:?}");
    }
    // A full disk is an error and not such an end.
    for arguments in
        [&["plan", "--shape", "gemma3-1b", "--machine", "780m"][..], &["--help"], &["run", "-h"], &["--version"]]
    {
        let ran = Ran::of(program().args(arguments).stdout(full_disk()).output().unwrap());
        assert_eq!(ran.code, 1, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("cannot write standard output"), "{arguments:?}: {}", ran.stderr);
    }
}

/// A command that a signal ends removes its unfinished files.
#[test]
fn a_forge_that_is_interrupted_leaves_nothing() {
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("model").display().to_string();
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM,HUP,QUIT", env!("CARGO_BIN_EXE_kiln"), "forge"]);
        command.args(["--shape", "gemma3-4b", "-o", &out]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        wait_for(&mut child, || entries(dir.path()) > 0);
        kill(&child, signal);
        let out = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), entries(dir.path())), (Some(1), 0), "{signal}: {stderr}");
        assert!(stderr.contains("interrupted") && stderr.lines().count() == 1, "{signal}: {stderr}");
    }
}

/// `logits --out` leaves nothing if a signal ends it. An ignored signal does not end it.
#[test]
fn logits_that_are_interrupted_leave_no_file() {
    let ids = vec!["5"; 4000].join(",");
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3)] {
        let dir = tempfile::tempdir().unwrap();
        // All logits of a prompt that takes seconds, into a file that already exists.
        let out = dir.path().join("out.safetensors");
        std::fs::write(&out, "before").unwrap();
        let (model, file) = (tiny(), out.display().to_string());
        let arguments =
            ["logits", "-m", &model, "--tokens", &ids, "--all", "--chunk", "1", "--device", "cpu", "--out", &file];
        // The tests may run with signals ignored: a shell ignores SIGINT for commands in the background.
        let start = |hangup: &str| {
            let mut command = Command::new("env");
            command.args(["--default-signal=INT,TERM,QUIT", hangup, env!("CARGO_BIN_EXE_kiln")]);
            let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            wait_for(&mut child, || entries(dir.path()) >= 2);
            child
        };
        let mut child = start("--default-signal=HUP");
        kill(&child, signal);
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{signal}");
        assert_eq!(entries(dir.path()), 1, "{signal}");
        assert_eq!(std::fs::read(&out).unwrap(), b"before", "{signal}");
        // Like nohup.
        let child = start("--ignore-signal=HUP");
        kill(&child, "HUP");
        std::thread::sleep(Duration::from_millis(100));
        kill(&child, "TERM");
        assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(15), "{signal}");
        assert_eq!(entries(dir.path()), 1, "{signal}");
    }
}
