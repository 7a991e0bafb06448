//! What a server takes, and what becomes of it where it gets no more: memory, threads, a reader of its log.

use super::client::{PATIENCE, SMALL, Server, command};
use super::common::program::kiln;
use super::load::memory;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_kv_cache_that_nobody_uses_takes_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let serve = command(directory.path(), &["--device", "cpu", "--batch", "32", "--ctx", "2048"]);
    let server = Server::spawn(serve, directory);
    server.wait_to_say("kiln serve: ready");
    let used = memory(&server);
    assert!(used < 256 << 20, "{used} bytes, with a KV cache of 880 MB");
}

#[test]
fn times_that_no_clock_reaches_are_refused() {
    for option in ["--drain", "--deadline", "--max-gap"] {
        kiln(&["serve", option, "18446744073709551615"]).refused(2, &[option]);
    }
}

/// A user that runs nothing else.
const NOBODY: u32 = 64_124;

/// Root is exempt from the limit on threads, and another user may not reach the build directory.
fn as_nobody(directory: &Path) -> Command {
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = directory.join("kiln");
    std::fs::copy(env!("CARGO_BIN_EXE_kiln"), &program).unwrap();
    open(directory);
    open(&program);
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,TERM").arg(program).args(["serve", "--unix"]).arg(directory.join("socket"));
    command.arg("-m").arg(super::bundles::small_model(directory));
    command
        .args(["--device", "cpu", "--batch", "2"])
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env_remove("LISTEN_FDS");
    command.env("KILN_CACHE_DIR", directory.join("cache")).env("KILN_RUNTIME_DIR", directory.join("reports"));
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY);
    }
    command
}

#[test]
fn a_reload_for_which_there_is_no_thread_fails_and_the_server_goes_on_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::spawn(as_nobody(directory.path()), directory);
    server.wait_to_say("kiln serve: ready");
    let mut limit = Command::new("prlimit");
    limit.args(["--nproc=1:", "--pid", &server.id().to_string()]);
    if nix::unistd::geteuid().is_root() {
        limit.uid(NOBODY);
    }
    assert!(limit.status().unwrap().success());
    super::bundles::touch(&server.directory.path().join("source"));
    server.signal(Signal::SIGHUP);
    server.wait_to_say("the old one answers on: a thread of the server cannot be started");
    let (status, answer) = server.get("/readyz");
    assert_eq!((status, &answer["error"]["code"]), (503, &"overloaded".into()), "{answer}");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
    assert!(!server.said().contains("internal error"), "{}", server.said());
}

/// Asks for the path on one connection, again and again.
fn ask(stream: &mut UnixStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "the connection ended");
        answer.extend_from_slice(&piece[..length]);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let mut serve = command(directory.path(), &SMALL);
    serve.env("RUST_LOG", "debug").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = serve.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    fcntl(&stderr, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    let until = Instant::now() + PATIENCE;
    let mut stream = loop {
        assert!(Instant::now() < until, "it does not listen");
        match UnixStream::connect(directory.path().join("socket")) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut ask_often = || (0..400).for_each(|_| assert!(ask(&mut stream, "/livez").starts_with("HTTP/1.1 200")));
    ask_often();
    // Whoever reads again is told what is missing.
    let mut read = [0; 4096];
    assert!(stderr.read(&mut read).unwrap() > 0);
    ask_often();
    drop(stream);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("lines were dropped here: standard error was not read in time"), "{rest}");
}

/// The status of a request that brings `key`.
fn status(server: &Server, key: &str) -> String {
    let mut stream = UnixStream::connect(&server.path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let field = format!("Authorization: Bearer {key}\r\nConnection: close\r\n");
    write!(stream, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{field}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].to_owned()
}

#[test]
fn a_hangup_takes_over_keys_and_a_file_that_is_broken_leaves_them() {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys");
    std::fs::write(&keys, "# Of the desk\nold\nboth\n").unwrap();
    let file = keys.display().to_string();
    let server = Server::start_at(directory, &["--api-key-file", &file]);
    let statuses = || ["old", "both", "new", "# Of the desk"].map(|key| status(&server, key));
    assert_eq!(statuses(), ["200", "200", "401", "401"]);
    std::fs::write(&keys, "both\nnew\n").unwrap();
    server.signal(Signal::SIGHUP);
    server.wait_to_say("the model's files are the same");
    assert_eq!(statuses(), ["401", "200", "200", "401"]);
    std::fs::write(&keys, "no key\n").unwrap();
    server.signal(Signal::SIGHUP);
    server.wait_to_say("the API keys stay as they were: line 1 of ");
    assert_eq!(statuses(), ["401", "200", "200", "401"]);
    // Whoever takes the last key out of it wants none to be right.
    std::fs::write(&keys, "# none\n").unwrap();
    server.signal(Signal::SIGHUP);
    server.wait_to_say("has no API keys any more");
    assert_eq!(statuses(), ["401"; 4]);
}
