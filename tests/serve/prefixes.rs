//! Prefixes that a server keeps in a file for the next start.

use super::client::{PATIENCE, SMALL, Server, command};
use super::common::program::{kiln, run as run_to_end};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A directory with a system prompt of more than a page.
fn place() -> (Arc<tempfile::TempDir>, PathBuf) {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let system = "You are the voice of a museum's information desk. Answer briefly and kindly. ".repeat(4);
    std::fs::write(directory.path().join("system"), system).unwrap();
    let file = directory.path().join("prefixes");
    (directory, file)
}

fn arguments(directory: &Path) -> Vec<String> {
    let at = |name: &str| directory.join(name).display().to_string();
    let mut all = SMALL.map(String::from).to_vec();
    all.extend(["--system-prompt".into(), at("system"), "--prefix-file".into(), at("prefixes")]);
    all
}

/// A server with the file, that answers.
fn start(directory: &Arc<tempfile::TempDir>, more: &[&str]) -> Server {
    let mut serve = serve(directory.path());
    serve.args(more).env("RUST_LOG", "info");
    let server = Server::spawn(serve, directory.clone());
    server.wait_to_say("kiln serve: ready");
    server
}

/// The text of an answer, and how many tokens of its prompt were in the cache.
fn ask(server: &Server) -> (Value, u64) {
    let messages = json!([{"role": "user", "content": "Where is the exit?"}]);
    let (_, answer) =
        server.post("/v1/chat/completions", &json!({"messages": messages, "temperature": 0, "max_tokens": 8}));
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    (answer["choices"][0]["message"]["content"].clone(), cached.unwrap_or_else(|| panic!("{answer}")))
}

fn stop(mut server: Server) -> String {
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.said());
    server.said()
}

/// Tokens that the server ran of prompts, its own first question's included.
fn ran(server: &Server) -> f64 {
    server.metric("kiln_prompt_tokens_total")
}

/// Bytes that are kept for prompts to come, once there are any.
fn kept(server: &Server) -> f64 {
    let end = Instant::now() + PATIENCE;
    loop {
        let bytes = server.metric("kiln_prefix_memory_bytes");
        if bytes > 0.0 {
            return bytes;
        }
        assert!(Instant::now() < end, "nothing is kept: {}", server.said());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_system_prompt_is_run_once_for_all_starts() {
    let (directory, file) = place();
    let first = start(&directory, &[]);
    assert!(file.exists(), "it is written before the server is asked to stop");
    let all = ran(&first);
    let (answer, cached) = ask(&first);
    assert!(all > 64.0 && cached > 64, "{all} tokens, {cached} of them cached");
    assert!(kept(&first) <= first.metric("kiln_prefix_memory_limit_bytes"));
    stop(first);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let second = start(&directory, &[]);
    // What the first one was asked is there, and the first question takes two pages of it and leaves it whole.
    let (again, (same, found)) = (ran(&second), ask(&second));
    assert!(again <= all - 128.0 && same == answer && found > cached, "{again} {found}: {}", second.said());
    stop(second);

    // Another server has the file.
    let holder = start(&directory, &[]);
    let beside = tempfile::tempdir().unwrap();
    let mut serve = command(beside.path(), &arguments(directory.path()).iter().map(String::as_str).collect::<Vec<_>>());
    serve.env("RUST_LOG", "warn");
    let other = Server::spawn(serve, beside);
    other.wait_to_say("kiln serve: ready");
    assert_eq!(other.said().matches("another server uses it").count(), 1, "{}", other.said());
    assert_eq!((ran(&other), ask(&other)), (all, (answer.clone(), cached)));
    let before = std::fs::read(&file).unwrap();
    stop(other);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    stop(holder);

    // Whatever has become of the file.
    std::fs::write(&file, &before[..before.len() / 2]).unwrap();
    let last = start(&directory, &[]);
    assert_eq!(last.said().matches("is not used for prefixes: it is cut off or damaged").count(), 1, "{}", last.said());
    assert_eq!((ran(&last), ask(&last)), (all, (answer.clone(), cached)));
    drop(last);
    let again = start(&directory, &[]);
    assert_eq!((ran(&again), ask(&again)), (all - cached as f64, (answer, cached)), "it was written anew");
}

/// The command that serves with the file.
fn serve(directory: &Path) -> Command {
    let mut command = command(directory, &arguments(directory).iter().map(String::as_str).collect::<Vec<_>>());
    command.env("RUST_LOG", "warn");
    command
}

fn partials(directory: &Path) -> usize {
    let names = directory.read_dir().unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter(|name| name.ends_with(".partial")).count()
}

/// A limit on the size of files ends a write as a full disk does: in the header, and in pages.
#[test]
fn a_file_that_cannot_be_written_whole_stays_as_it_was() {
    let (directory, file) = place();
    let old = b"KILNpfx\n, of long ago";
    std::fs::write(&file, old).unwrap();
    for bytes in [1 << 12, 1 << 14, 100_000] {
        let mut serve = serve(directory.path());
        // SAFETY: the child calls nothing but setrlimit before it becomes another program.
        unsafe { serve.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes)?)) };
        let server = Server::spawn(serve, directory.clone());
        server.wait_to_say("kiln serve: ready");
        assert_eq!(server.said().matches("the prefixes were not written").count(), 1, "{}", server.said());
        assert!(ask(&server).1 > 64);
        stop(server);
        assert_eq!((std::fs::read(&file).unwrap(), partials(directory.path())), (old.to_vec(), 0));
    }
}

/// It was found when the server stopped, hours later.
#[test]
fn a_place_where_the_file_cannot_be_written_is_found_by_the_check() {
    let (directory, file) = place();
    let check =
        |file: &str, more: &[&str]| kiln(&[&["serve", "--device", "cpu", "--prefix-file", file], more].concat());
    let written = file.display().to_string();
    assert_eq!(check(&written, &["--check"]).code, 0);
    assert!(!file.exists() && partials(directory.path()) == 0);
    check("/no/such/directory/file", &["--check"]).refused(1, &["cannot write /no/such/directory/file"]);
    std::fs::write(&file, "a letter").unwrap();
    check(&written, &["--check"]).refused(2, &["prefixes", "stays as it is: it is no file of prefixes"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"a letter");
}

#[test]
fn a_server_that_is_killed_as_it_writes_leaves_a_whole_file_or_none() {
    let (directory, file) = place();
    for _ in 0..5 {
        let mut server = Server::spawn(serve(directory.path()), directory.clone());
        let end = Instant::now() + PATIENCE;
        // The file is there once it has its name.
        while partials(directory.path()) == 0 && !file.exists() {
            assert!(Instant::now() < end, "{}", server.said());
            std::hint::spin_loop();
        }
        server.signal(Signal::SIGKILL);
        server.wait();
        let was_written = file.exists();
        let next = start(&directory, &[]);
        assert!(!next.said().contains("is not used"), "{}", next.said());
        assert_eq!(ran(&next) < 64.0, was_written);
        assert_eq!((file.exists(), partials(directory.path())), (true, 0), "what was left is removed");
        stop(next);
        std::fs::remove_file(&file).unwrap();
    }
}

/// The path of something else, by mistake.
#[test]
fn a_file_of_another_kind_is_refused_at_the_start() {
    let (directory, file) = place();
    std::fs::write(&file, "precious").unwrap();
    let refused = run_to_end(&mut serve(directory.path()), b"");
    refused.refused(2, &["prefixes", "stays as it is: it is no file of prefixes", "name another path"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_bound_on_what_is_kept_is_held() {
    let (directory, _) = place();
    let server = start(&directory, &["--prefix-cache", "0"]);
    assert_eq!((ask(&server).1, server.metric("kiln_prefix_memory_limit_bytes")), (0, 0.0));
    stop(server);
    kiln(&["serve", "--prefix-cache", "none"]).refused(2, &["--prefix-cache"]);
    // Two pages of each pool have 2.1 MB.
    let server = start(&directory, &["--prefix-cache", "2"]);
    assert_eq!(ask(&server).1, 128);
    assert!(kept(&server) <= f64::from(2 << 20), "{}", kept(&server));
    assert_eq!(server.metric("kiln_prefix_memory_limit_bytes"), f64::from(2 << 20));
}
