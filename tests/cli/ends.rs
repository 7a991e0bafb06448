//! Commands that are cut off: by their reader, a full disk, or a signal.

use crate::common::golden;
use crate::common::program::{self, Ran, program, run};
use crate::{entries, tiny};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::PipeWriter;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
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
fn wait_for(child: &mut Child, begun: impl Fn(&Child) -> bool) {
    let start = Instant::now();
    while !begun(child) {
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
        &["top", "--once"],
        &["run", "--help"],
        &["--version"],
    ] {
        let mut command = program();
        command.args(arguments).env("KILN_VALIDATION", "0");
        let out = command.stdout(closed_pipe()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(out.status.signal(), Some(13), "{arguments:?}: {:?}", out.status);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(said, "", "{arguments:?}");
    }
    // A full disk is an error and not such an end.
    for arguments in [
        &["plan", "--shape", "gemma3-1b", "--machine", "780m"][..],
        &["run", "-p", "Who are you?", "--device", "cpu"],
        &["run", "-p", "Who are you?", "--device", "cpu", "--json"],
        &["top", "--once"],
        &["--help"],
        &["run", "-h"],
        &["--version"],
    ] {
        let ran = Ran::of(program().args(arguments).stdin(Stdio::null()).stdout(full_disk()).output().unwrap());
        assert_eq!(ran.code, 1, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("cannot write standard output"), "{arguments:?}: {}", ran.stderr);
    }
}

/// Rust opens /dev/null in place of a closed descriptor, so an answer was lost without a word.
#[test]
fn a_standard_output_that_nothing_can_be_written_to_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("pages");
    for (redirection, command, code) in [
        (">&-", "run -p 'Who are you?' --device cpu", 1),
        (">&-", "run -p 'Who are you?' --device cpu --json", 1),
        ("1</dev/null", "run -p 'Who are you?' --device cpu", 1),
        (">&-", "tokenize hello", 1),
        (">&-", "plan --shape gemma3-1b --machine 780m", 1),
        (">&-", "top --once", 1),
        (">&-", "top --json", 1),
        (">&-", "completions bash", 1),
        (">&-", "man", 1),
        (">&-", "--version", 1),
        (">/dev/null", "tokenize hello", 0),
        ("1<>/dev/null", "tokenize hello", 0),
        (">&-", "man pages", 0),
    ] {
        let mut shell = Command::new("sh");
        let script = format!("exec \"$0\" {command} {redirection} </dev/null");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_kiln")]).current_dir(dir.path()).env_remove("RUST_LOG");
        let ran = Ran::of(shell.output().unwrap());
        match code {
            0 => assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command} {redirection}"),
            _ => ran.refused(code, &["cannot write standard output: it is closed"]),
        }
    }
    assert!(entries(&pages) > 1);
}

/// Kiln, with signals as env(1) is told, that reads nothing.
pub(crate) fn with_signals(told: &[&str]) -> Command {
    let mut command = program::with_signals(told);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A question that the built-in model answers.
const QUESTION: &str = "When does the museum open on Sunday?";
pub(crate) const DEFAULT: &str = "--default-signal=INT,TERM,HUP,QUIT";
const SIGNALS: [(&str, i32); 4] = [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3)];

/// What a running Kiln reports to `kiln top` in the directory `reports`.
fn report(reports: &Path, child: &Child, field: &str) -> u64 {
    let file = std::fs::read(reports.join(format!("{}.json", child.id()))).unwrap_or_default();
    serde_json::from_slice::<Value>(&file).ok().and_then(|report| report[field].as_u64()).unwrap_or(0)
}

/// A shell that starts one command after another ends with the one that was interrupted. What was generated is shown.
#[test]
fn a_reply_that_a_signal_cuts_short_is_shown_and_is_no_success() {
    let reports = tempfile::tempdir().unwrap();
    for (device, signals) in
        [("cpu", SIGNALS.len()), ("vulkan", if crate::common::runs_all() { SIGNALS.len() } else { 2 })]
    {
        for (json, (signal, number)) in [&[][..], &["--json"]].into_iter().cycle().zip(SIGNALS).take(signals) {
            let mut command = with_signals(&[DEFAULT]);
            command.args(["run", "--device", device, "-p", QUESTION, "--ignore-eos"]).args(json);
            let mut child = command.env("KILN_RUNTIME_DIR", reports.path()).spawn().unwrap();
            wait_for(&mut child, |child| report(reports.path(), child, "decoded") > 0);
            kill(&child, signal);
            let out = child.wait_with_output().unwrap();
            let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            assert_eq!(out.status.signal(), Some(number), "{device} {signal}: {:?} {stderr}", out.status);
            match json {
                [] => {
                    assert!(stdout.starts_with("The museum"), "{device} {signal}: {stdout}");
                    assert!(stderr.contains(", interrupted") && stderr.lines().count() == 1, "{stderr}");
                }
                _ => {
                    let reply: Value = serde_json::from_str(&stdout).unwrap();
                    assert_eq!(reply["finish"], "interrupted", "{device} {signal}");
                    assert!(reply["text"].as_str().unwrap().starts_with("The museum"), "{device} {signal}: {stdout}");
                    assert_eq!(stderr, "", "{device} {signal}");
                }
            }
        }
    }
    assert_eq!(entries(reports.path()), 0, "reports of processes that have ended");
}

/// It took until the end of the prompt, for some half a minute.
#[test]
fn a_prompt_that_a_signal_interrupts_ends_before_its_reply() {
    let reports = tempfile::tempdir().unwrap();
    let prompt = "aquarium ".repeat(1700);
    for device in ["cpu", "vulkan"] {
        let mut command = with_signals(&[DEFAULT]);
        command.args(["run", "--device", device, "-p", &prompt, "--ignore-eos", "--chunk", "32"]);
        let mut child = command.env("KILN_RUNTIME_DIR", reports.path()).spawn().unwrap();
        wait_for(&mut child, |child| report(reports.path(), child, "prefilled") > 0);
        kill(&child, "INT");
        let out = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.signal(), Some(2), "{device}: {:?} {stderr}", out.status);
        assert!(stderr.starts_with("[the prompt of 17") && stderr.contains(", interrupted"), "{device}: {stderr}");
        assert_eq!((stderr.lines().count(), out.stdout.trim_ascii()), (1, &b""[..]), "{device}: {stderr}");
    }
}

/// As nohup starts it, or a shell without job control in the background.
#[test]
fn signals_that_were_ignored_stay_ignored() {
    let reports = tempfile::tempdir().unwrap();
    let mut command = with_signals(&["--default-signal=TERM", "--ignore-signal=INT,HUP"]);
    command.args(["run", "--device", "cpu", "-p", QUESTION, "--ignore-eos"]);
    let mut child = command.env("KILN_RUNTIME_DIR", reports.path()).spawn().unwrap();
    wait_for(&mut child, |child| report(reports.path(), child, "decoded") > 0);
    kill(&child, "INT");
    kill(&child, "HUP");
    let then = report(reports.path(), &child, "decoded");
    wait_for(&mut child, |child| report(reports.path(), child, "decoded") > then);
    kill(&child, "TERM");
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.signal(), Some(15), "{:?} {}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// A command that a signal ends removes its unfinished files, and its shell sees the signal.
#[test]
fn a_forge_that_is_interrupted_leaves_nothing() {
    for (signal, number) in SIGNALS {
        let dir = tempfile::tempdir().unwrap();
        let mut child = forge(dir.path(), "gemma3-4b", "model");
        wait_for(&mut child, |_| entries(dir.path()) > 0);
        kill(&child, signal);
        let out = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.signal(), entries(dir.path())), (Some(number), 0), "{signal}: {stderr}");
        assert!(stderr.contains("interrupted") && stderr.lines().count() == 1, "{signal}: {stderr}");
    }
}

/// Starts to forge `shape` in `dir`.
fn forge(dir: &Path, shape: &str, name: &str) -> Child {
    let mut command = with_signals(&[DEFAULT]);
    command.args(["forge", "--shape", shape, "-o"]).arg(dir.join(name)).spawn().unwrap()
}

/// Killed writes left directories of up to the model's size behind for good.
#[test]
fn the_next_start_removes_what_a_killed_one_left_and_nothing_of_one_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    // The directory that a forge has begun to fill.
    let begun = || {
        let mut entries = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        entries.find(|path| path.is_dir() && std::fs::read_dir(path).is_ok_and(|mut files| files.next().is_some()))
    };
    let mut killed = forge(dir.path(), "gemma3-4b", "killed");
    wait_for(&mut killed, |_| begun().is_some());
    kill(&killed, "KILL");
    killed.wait().unwrap();
    let left = begun().unwrap();
    let mut running = forge(dir.path(), "gemma3-4b", "running");
    wait_for(&mut running, |_| begun().is_some_and(|path| path != left));
    kill(&running, "STOP");
    assert!(!left.exists());
    let config = golden("tiny/config.json").display().to_string();
    assert!(forge(dir.path(), &config, "done").wait().unwrap().success());
    assert_eq!(entries(dir.path()), 2, "the new model, and the directory of the one that runs");
    kill(&running, "TERM");
    kill(&running, "CONT");
    running.wait().unwrap();
    assert_eq!(entries(dir.path()), 1);
}

/// `logits --out` leaves nothing if a signal ends it. An ignored signal does not end it.
#[test]
fn logits_that_are_interrupted_leave_no_file() {
    let ids = vec!["5"; 4000].join(",");
    for (signal, number) in SIGNALS {
        let dir = tempfile::tempdir().unwrap();
        // All logits of a prompt that takes seconds, into a file that already exists.
        let out = dir.path().join("out.safetensors");
        let before = b"\x02\0\0\0\0\0\0\0{}";
        std::fs::write(&out, before).unwrap();
        let (model, file) = (tiny(), out.display().to_string());
        let arguments =
            ["logits", "-m", &model, "--tokens", &ids, "--all", "--chunk", "1", "--device", "cpu", "--out", &file];
        let start = |told: &[&str]| {
            let mut child = with_signals(told).args(arguments).spawn().unwrap();
            wait_for(&mut child, |_| entries(dir.path()) >= 2);
            child
        };
        let child = start(&[DEFAULT]);
        kill(&child, signal);
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(number), "{signal}: {stderr}");
        assert!(stderr.contains("interrupted") && stderr.lines().count() == 1, "{signal}: {stderr}");
        assert_eq!(entries(dir.path()), 1, "{signal}");
        assert_eq!(std::fs::read(&out).unwrap(), before, "{signal}");
        // Like nohup.
        let child = start(&["--default-signal=INT,TERM,QUIT", "--ignore-signal=HUP"]);
        kill(&child, "HUP");
        std::thread::sleep(Duration::from_millis(100));
        kill(&child, "TERM");
        assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(15), "{signal}");
        assert_eq!(entries(dir.path()), 1, "{signal}");
    }
}

/// The signal that comes with it ended the process, and left what was written.
#[test]
fn a_file_beyond_its_limit_is_an_error_like_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let limited = |limit: &str, command: &str| {
        let script = format!("ulimit -f {limit} && exec \"$0\" {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_kiln")]).current_dir(dir.path()).stdin(Stdio::null());
        shell.env("KILN_CACHE_DIR", dir.path().join("cache")).env("KILN_RUNTIME_DIR", dir.path().join("reports"));
        Ran::of(shell.output().unwrap())
    };
    for command in
        ["forge --shape gemma3-1b -o model", "logits --device cpu --tokens 2,5 --out out", "tokenize hello >text"]
    {
        // In units of 512 bytes; a redirected file is the shell's.
        let ran = limited(if command.contains('>') { "0" } else { "8" }, command);
        ran.failed(1, &["cannot write", "File too large", "`ulimit -f`"]);
        let _ = std::fs::remove_file(dir.path().join("text"));
        assert_eq!(entries(dir.path()), 0, "{command}");
    }
}

/// Drivers for the CPU died of it, some by a signal.
#[test]
fn too_few_addresses_for_a_driver_are_told() {
    let limited = |arguments: &[&str]| {
        let script = "ulimit -v 500000 && exec \"$0\" \"$@\"";
        run(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_kiln")]).args(arguments), b"")
    };
    limited(&["run", "--device", "vulkan", "-p", "hello"])
        .refused(3, &["512.0 MB of addresses", "`ulimit -v`", "--device cpu"]);
    limited(&["plan"]).refused(3, &["1.1 GB of memory to measure", "`ulimit -v`"]);
    let probed = limited(&["probe"]);
    assert!(probed.code >= 0 && probed.stdout.contains("of addresses"), "{}{}", probed.stdout, probed.stderr);
}

/// Where no thread can be started, the command's own does the work.
#[test]
fn a_limit_on_threads_makes_it_slower_and_not_fail() {
    let dir = tempfile::tempdir().unwrap();
    // Root is exempt from the limit, and another user may not reach the build directory.
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    open(dir.path());
    let at = |name: &str| dir.path().join(name);
    for (from, name) in
        [(PathBuf::from(env!("CARGO_BIN_EXE_kiln")), "kiln"), (golden("tiny/config.json"), "config.json")]
    {
        std::fs::copy(from, at(name)).unwrap();
        open(&at(name));
    }
    let limited = |threads: usize, command: &str| {
        let script = format!("exec prlimit --nproc={threads} ./kiln {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(dir.path()).stdin(Stdio::null()).env_remove("RUST_LOG");
        shell.env("KILN_CACHE_DIR", at("cache")).env("KILN_RUNTIME_DIR", at("reports"));
        if nix::unistd::geteuid().is_root() {
            // Nobody's.
            shell.uid(64_123);
        }
        Ran::of(shell.output().unwrap())
    };
    // 1: no thread but the first. 3: two more, for a user who runs nothing else.
    for threads in [1, 3] {
        let answer = limited(threads, &format!("run --device cpu -p '{QUESTION}'"));
        assert_eq!(
            (answer.code, answer.stdout.as_str()),
            (0, "The museum opens at 10:00 on Sunday.\n"),
            "{}",
            answer.stderr
        );
        for command in [
            "forge --shape config.json -o forged",
            "quantize -m forged -o quantized",
            "plan -m forged --device cpu",
            "logits -m forged --device cpu --tokens 2,5 --out out",
            "tokenize hello",
        ] {
            let ran = limited(threads, command);
            assert_eq!(ran.code, 0, "{threads} {command}: {}", ran.stderr);
        }
        for name in ["forged", "quantized"] {
            std::fs::remove_dir_all(at(name)).unwrap();
        }
    }
    // A driver cannot do without.
    limited(1, "run --device vulkan -p hello").failed(4, &[]);
}
