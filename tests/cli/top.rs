//! `kiln top` as scripts and people use it: a running Kiln shows and later disappears, a stream ends with its reader,
//! and the terminal is restored.

use crate::common::golden;
use crate::common::program::{Ran, program, run};
use rexpect::process::wait::WaitStatus;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Milliseconds for each thing that is waited for: against a hang, since a busy machine may be slow.
const PATIENCE: Option<u64> = Some(600_000);

fn kiln(directory: &Path) -> Command {
    let mut command = program();
    command.env("KILN_RUNTIME_DIR", directory).env("TERM", "xterm");
    command
}

/// The Kilns that `top` shows.
fn shown(directory: &Path) -> Vec<Value> {
    let sample = run(kiln(directory).args(["top", "--once", "--json"]), b"").json();
    for key in ["time", "gpus", "npus", "kilns"] {
        assert!(!sample[key].is_null(), "no {key} in {sample}");
    }
    sample["kilns"].as_array().unwrap().clone()
}

/// A process that is killed when the test ends in any way.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a Kiln that decodes until it is killed.
fn bench(directory: &Path) -> Running {
    let tiny = golden("tiny").display().to_string();
    let arguments = ["bench", "-m", &tiny, "--device", "cpu", "--prefill", "0", "--decode", "32", "--batch", "2"];
    let mut command = kiln(directory);
    command.args(arguments).args(["--reps", "1000000", "--json"]);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// `top` did not say how to reach a server that it shows.
#[test]
fn a_server_shows_with_the_places_where_it_listens() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket").display().to_string();
    let mut command = kiln(dir.path());
    command.args(["serve", "--device", "cpu", "--listen", "127.0.0.1:0", "--unix", &socket]);
    let _server = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("it shows with its places", || {
        shown(dir.path()).iter().any(|k| {
            let places: Vec<&str> = k["places"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
            matches!(places[..], [address, path] if address.starts_with("127.0.0.1:") && path == socket)
        })
    });
    let text = kiln(dir.path()).args(["top", "--once"]).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("    at http://127.0.0.1:") && text.contains(&format!("  {socket}\n")), "{text}");
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_running_kiln_shows_with_its_rate_and_a_killed_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(shown(dir.path()), Vec::<Value>::new());
    let child = bench(dir.path());
    let pid = u64::from(child.0.id());
    wait_for("it shows with its rate", || {
        shown(dir.path()).iter().any(|k| {
            k["pid"] == pid
                && k["decode_tokens_s"].as_f64().unwrap() > 0.0
                && k["sequences"] == 2
                && k["command"] == "bench"
        })
    });
    let text = kiln(dir.path()).args(["top", "--once"]).output().unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).contains(&format!("Kiln {pid} bench")));
    // When killed, it leaves its file. Readers must not take that for a running process.
    drop(child);
    let file = dir.path().join(format!("{pid}.json"));
    assert!(file.exists());
    assert_eq!(shown(dir.path()), Vec::<Value>::new());
    // The next Kiln removes that file, and its own when it ends.
    let tiny = golden("tiny").display().to_string();
    let arguments = ["run", "-m", &tiny, "--device", "cpu", "--tokens", "2,5", "-n", "3"];
    assert!(kiln(dir.path()).args(arguments).output().unwrap().status.success());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_test_that_fails_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut pid = 0;
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let child = bench(dir.path());
        pid = child.0.id();
        // Like `panic!`, without its message in the output.
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(failed.is_err() && pid != 0);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_run_without_a_place_to_report_runs_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let tiny = golden("tiny").display().to_string();
    let arguments = ["run", "-m", &tiny, "--device", "cpu", "--tokens", "2,5", "-n", "3"];
    let output = kiln(&file.join("below")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_recording_is_written_beside_what_is_shown_and_replayed_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("recording");
    let file = place.to_str().unwrap();
    let top = |arguments: &[&str]| run(kiln(dir.path()).arg("top").args(arguments), b"");
    let shown = top(&["--once", "--json", "--record", file]).stdout;
    assert_eq!(std::fs::read_to_string(&place).unwrap(), shown);
    assert_eq!(top(&["--replay", file, "--json"]).stdout, shown);
    assert!(top(&["--replay", file, "--once"]).stdout.contains("no Kiln is running"));
    top(&["--once", "--record", file]).refused(2, &["exists already"]);
    top(&["--replay", "/no/such", "--once"]).refused(2, &["/no/such does not exist"]);
    std::fs::write(&place, "").unwrap();
    top(&["--replay", file, "--once"]).refused(2, &["has no samples"]);
    std::fs::write(&place, "a letter\n").unwrap();
    top(&["--replay", file, "--once"]).refused(2, &["line 1 of", "no sample"]);
}

#[test]
fn without_a_terminal_a_recording_goes_on_until_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let mut command = kiln(dir.path());
    command.args(["top", "--interval", "0.05", "--record"]).arg(&file);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    wait_for("it records", || lines() >= 3);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(nix::sys::signal::SIGTERM as i32));
    let replayed = run(kiln(dir.path()).args(["top", "--json", "--replay"]).arg(&file), b"");
    assert_eq!(replayed.stdout, std::fs::read_to_string(&file).unwrap());
}

#[test]
fn a_stream_is_one_object_a_line_and_ends_with_its_reader() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = kiln(dir.path());
    command.args(["top", "--json", "--interval", "0.05"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut times = Vec::new();
    for _ in 0..3 {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        times.push(serde_json::from_str::<Value>(&line).unwrap()["time"].as_f64().unwrap());
    }
    assert!(times[0] < times[1] && times[1] < times[2], "{times:?}");
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn without_a_terminal_or_with_a_bad_interval_it_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["top"][..], "--once"),
        (&["top", "--once", "extra"], "extra"),
        (&["top", "--once", "--interval", "1e308"], "of 1e308 seconds"),
        (&["top", "--once", "--interval", "0"], "--interval"),
        (&["top", "--once", "--interval", "nan"], "--interval"),
        (&["top", "--once", "--interval", "-1"], "--interval"),
    ] {
        let ran = run(kiln(dir.path()).args(arguments), b"");
        ran.failed(2, &[words]);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn live_it_draws_and_gives_the_terminal_back() {
    let dir = tempfile::tempdir().unwrap();
    for end in ["q", "\u{1b}", "\u{3}", "-TERM", "-HUP", "-INT", "-QUIT"] {
        // The tests may run with signals ignored: a shell ignores SIGINT for commands in the background.
        let mut command = Command::new("env");
        command.args(["--default-signal=TERM,HUP,INT,QUIT", env!("CARGO_BIN_EXE_kiln"), "top", "--interval", "0.1"]);
        command.env("KILN_RUNTIME_DIR", dir.path()).env_remove("RUST_LOG").env("TERM", "xterm");
        let mut session = rexpect::session::spawn_command(command, PATIENCE).unwrap();
        // This terminal does not report its size. The first drawing leaves out spaces.
        session.exp_string("\u{1b}[?1049h").unwrap();
        session.exp_regex("no.*Kiln.*is.*running").unwrap();
        match end {
            signal if signal.starts_with('-') => {
                let pid = session.process().child_pid;
                assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
            }
            key => {
                session.send(key).unwrap();
                session.flush().unwrap();
            }
        }
        // Leaves the alternate screen.
        session.exp_string("\u{1b}[?1049l").unwrap();
        session.exp_eof().unwrap();
        match session.process().wait().unwrap() {
            WaitStatus::Exited(_, code) => assert!(code == 0 && !end.starts_with('-'), "{end}: {code}"),
            WaitStatus::Signaled(_, signal, _) => assert_eq!(signal.as_str(), format!("SIG{}", &end[1..])),
            other => panic!("{end}: {other:?}"),
        }
    }
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = kiln(dir.path());
    // A build server's variable CI would let a dumb terminal have colour.
    command.arg("top").env("TERM", "dumb").env_remove("CI");
    let mut session = rexpect::session::spawn_command(command, PATIENCE).unwrap();
    assert_eq!(session.exp_string("kiln: a dumb terminal cannot be drawn on; use --once").unwrap(), "");
    session.exp_eof().unwrap();
}

/// When its terminal is closed it ends without spinning or panicking, with or without a signal.
#[test]
fn a_terminal_that_is_closed_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    for hangup in ["--default-signal=HUP", "--ignore-signal=HUP"] {
        let [terminal, other] = terminal();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = Command::new("env");
        command.args([hangup, env!("CARGO_BIN_EXE_kiln"), "top", "--interval", "0.1"]);
        command.env("KILN_RUNTIME_DIR", dir.path()).env_remove("RUST_LOG").env("TERM", "xterm");
        let mut child = Running(command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap());
        let mut seen = String::new();
        let mut screen = std::fs::File::from(other);
        wait_for("it draws", || {
            let mut bytes = [0; 4096];
            let n = std::io::Read::read(&mut screen, &mut bytes).unwrap();
            seen += &String::from_utf8_lossy(&bytes[..n]);
            seen.contains("running")
        });
        drop(screen);
        let mut status = None;
        wait_for("it ends", || {
            status = child.0.try_wait().unwrap();
            status.is_some()
        });
        let hung_up = status.unwrap().signal() == Some(libc::SIGHUP) && hangup.starts_with("--default");
        assert!(hung_up || matches!(status.unwrap().code(), Some(0 | 1)), "{hangup}: {status:?}");
    }
}

/// A pseudo-terminal: the program's end, and the other end.
fn terminal() -> [OwnedFd; 2] {
    let (mut other, mut own) = (0, 0);
    let (name, modes, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: the descriptors are written to; nothing else is asked for.
    assert_eq!(unsafe { libc::openpty(&mut other, &mut own, name, modes, size) }, 0);
    for fd in [own, other] {
        // SAFETY: the descriptor is open. What one test starts must not hold another's terminal open.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
    }
    // SAFETY: both descriptors are new, and owned by nothing else.
    unsafe { [OwnedFd::from_raw_fd(own), OwnedFd::from_raw_fd(other)] }
}

/// A pseudo-terminal that accepts no output: the program's end, whose writes fail instead of waiting, and the other
/// end.
fn deaf_terminal() -> [OwnedFd; 2] {
    let ends = terminal();
    let own = ends[0].as_raw_fd();
    // SAFETY: the descriptor is open.
    unsafe {
        assert_eq!(libc::tcflow(own, libc::TCOOFF), 0);
        assert_eq!(libc::fcntl(own, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK), 0);
    }
    ends
}

/// The modes of a terminal: input, output, control and local.
fn modes(terminal: &OwnedFd) -> [libc::tcflag_t; 4] {
    // SAFETY: the structure is made of integers, and is written to.
    let modes = unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut modes), 0);
        modes
    };
    [modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag]
}

#[test]
fn a_terminal_that_fails_at_once_is_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let [terminal, _other] = deaf_terminal();
    let before = modes(&terminal);
    let end = || Stdio::from(terminal.try_clone().unwrap());
    let output = kiln(dir.path()).arg("top").stdin(end()).stdout(end()).stderr(Stdio::piped()).output().unwrap();
    Ran::of(output).failed(1, &["the terminal failed"]);
    assert_eq!(modes(&terminal), before);
}

#[test]
fn a_terminal_may_say_any_size() {
    let dir = tempfile::tempdir().unwrap();
    for size in ["rows 1 cols 1", "rows 1 cols 65535", "rows 65535 cols 65535", "rows 0 cols 0", "rows 24 cols 80"] {
        let mut command = Command::new("sh");
        let script = format!("stty {size} && exec \"$0\" top --interval 0.1");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_kiln")]).env("KILN_RUNTIME_DIR", dir.path());
        command.env("TERM", "xterm");
        let mut session = rexpect::session::spawn_command(command, PATIENCE).unwrap();
        session.exp_string("\u{1b}[?1049h").unwrap();
        session.send("q").unwrap();
        session.flush().unwrap();
        session.exp_string("\u{1b}[?1049l").unwrap();
        session.exp_eof().unwrap();
        let status = session.process().wait().unwrap();
        assert!(matches!(status, rexpect::process::wait::WaitStatus::Exited(_, 0)), "{size}: {status:?}");
    }
}
