//! The C interface, as programs in C, C++ and Python use it: the header is current, the examples run, and a caller's
//! mistakes are errors.

mod faults;
#[path = "../examples/reply.rs"]
mod reply;

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library that was built with this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().join("libkiln_capi.so")
}

fn header() -> String {
    std::fs::read_to_string(root().join("include/kiln.h")).unwrap_or_default()
}

/// libkiln optimised as it is released, with the names that valgrind tells: without optimisation valgrind sees other code.
fn released_library() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("released");
    run(Command::new(env!("CARGO"))
        .args(["build", "--locked", "--release", "--package", "kiln-capi", "--target-dir"])
        .arg(&target)
        .current_dir(root())
        .envs([("CARGO_PROFILE_RELEASE_STRIP", "none"), ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")]));
    target.join("release/libkiln_capi.so")
}

/// A directory with the library under the name by which programs load it, and a file made from the header that a
/// program includes.
fn installed() -> TempDir {
    install(&library())
}

fn install(library: &Path) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("faults.h"), faults::source(&header())).unwrap();
    for name in ["libkiln.so.0", "libkiln.so"] {
        symlink(library, directory.path().join(name)).unwrap();
    }
    directory
}

fn run(command: &mut Command) -> Output {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = [&done.stdout[..], &done.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(done.status.success(), "{command:?}: {}\n{}", done.status, said.concat());
    done
}

/// Compiles a program as its users would, with every warning an error.
fn compile(compiler: &str, standard: &str, source: &str, at: &TempDir) -> PathBuf {
    let program = at.path().join("program");
    run(Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([program.as_os_str(), root().join(source).as_os_str()])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(format!("-I{}", at.path().display()))
        .arg(format!("-L{}", at.path().display()))
        .arg(format!("-Wl,-rpath,{}", at.path().display()))
        .arg("-lkiln"));
    program
}

#[test]
fn the_header_is_current() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(root().join("src/border.rs"))
        .with_src(root().join("src/border/session.rs"))
        .with_src(root().join("src/border/server.rs"))
        .with_src(root().join("src/border/machine.rs"))
        .generate()
        .unwrap()
        .write(&mut made);
    let made = without_safety(&String::from_utf8(made).unwrap());
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(root().join("include/kiln.h"), &made).unwrap();
    }
    assert!(header() == made, "include/kiln.h is not of today's sources: run this test with KILN_BLESS=1");
}

/// The header without the sections on what a caller in Rust must promise.
fn without_safety(header: &str) -> String {
    let mut is_safety = false;
    let kept = header.lines().filter(|line| {
        is_safety = (is_safety || line.trim() == "# Safety") && line.trim() != "*/";
        !is_safety
    });
    kept.map(|line| line.to_owned() + "\n").collect::<String>().replace("\n\n */", "\n */")
}

#[test]
fn the_library_has_the_headers_functions_and_no_others() {
    let named = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library())).stdout;
    let named = String::from_utf8(named).unwrap();
    let exported: BTreeSet<&str> = named.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = header();
    let declared: BTreeSet<&str> = header
        .match_indices("kiln_")
        .map(|(at, _)| header[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default())
        .filter(|name| header.contains(&format!("{name}(")))
        .collect();
    assert!(declared.len() > 10);
    assert_eq!(exported, declared);
    let dynamic = run(Command::new("readelf").arg("-d").arg(library())).stdout;
    assert!(String::from_utf8(dynamic).unwrap().contains("Library soname: [libkiln.so.0]"));
}

#[test]
fn what_a_c_program_does_wrongly_is_an_error_and_the_rest_works() {
    let at = installed();
    let program = compile("cc", "-std=gnu11", "tests/border.c", &at);
    let said = String::from_utf8(run(&mut Command::new(program)).stdout).unwrap();
    let checked = [
        "planned",
        "nonsense",
        "texts",
        "replies",
        "asked",
        "cancelled",
        "freed in use",
        "1000 sessions",
        "three engines",
        "faults",
    ];
    assert!(checked.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn a_thread_with_a_small_stack_may_call_every_function() {
    let at = installed();
    let program = compile("cc", "-std=gnu11", "tests/stack.c", &at);
    let file = at.path().join("session");
    assert_eq!(String::from_utf8(run(Command::new(program).arg(file)).stdout).unwrap(), "all of them\n");
}

#[test]
fn a_session_that_was_saved_goes_on_in_another_process_as_it_would_have() {
    let at = installed();
    let program = compile("cc", "-std=gnu11", "tests/sessions.c", &at);
    let files = tempfile::tempdir().unwrap();
    let said = |what: &str| {
        let done = run(Command::new(&program).arg(what).arg(files.path()));
        String::from_utf8(done.stdout).unwrap()
    };
    let (kept, gone_on) = (said("keep"), said("go-on"));
    assert!(kept.starts_with("synced\nsaved\nreply "), "{kept}");
    let reply = gone_on.strip_prefix("reply ").unwrap();
    assert!(reply.contains("\"token_logprobs\":[-") && kept.ends_with(reply), "{kept}\n{gone_on}");
    let mode = std::fs::metadata(files.path().join("session")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_engine_is_opened_to_others_and_closed_again() {
    let at = installed();
    let program = compile("cc", "-std=gnu11", "tests/server.c", &at);
    let files = tempfile::tempdir().unwrap();
    let said = String::from_utf8(run(Command::new(program).arg(files.path())).stdout).unwrap();
    assert_eq!(said, "served\n");
}

#[test]
fn the_engine_answers_a_program_in_rust() {
    let mut heard = String::new();
    let mut hear = |piece: &str| heard.push_str(piece);
    let answer = reply::reply(None.into(), "How much is the museum for 2 adults?", &mut hear).unwrap();
    assert!(heard.contains("museum"), "{heard}");
    assert_eq!(answer["text"], heard);
    // The prompt was brought into the cache before.
    let usage = &answer["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 0 && cached <= usage["prompt_tokens"].as_u64().unwrap(), "{answer}");
    let missing = std::path::PathBuf::from("/nowhere");
    assert_eq!(reply::reply(Some(missing).into(), "", &mut |_| ()).unwrap_err().exit_code(), 2);
}

/// Valgrind finds nothing: no memory that is read before it is written, after it was freed or beyond its end, and none
/// that is lost. Valgrind runs each program a hundred times slower, so this test is no part of an ordinary run.
#[test]
#[ignore = "it takes minutes"]
fn valgrind_finds_nothing_wrong() {
    let library = released_library();
    let files = tempfile::tempdir().unwrap();
    let directory = files.path().to_str().unwrap();
    for (source, arguments) in [
        ("tests/border.c", &["20"][..]),
        ("tests/sessions.c", &["keep", directory]),
        ("tests/sessions.c", &["go-on", directory]),
        ("tests/server.c", &[directory]),
    ] {
        let at = install(&library);
        let program = compile("cc", "-std=gnu11", source, &at);
        run(Command::new("valgrind")
            .args([
                "--quiet",
                "--error-exitcode=99",
                "--track-origins=yes",
                "--leak-check=full",
                "--errors-for-leak-kinds=definite",
            ])
            .args(["--show-leak-kinds=definite", "--fair-sched=yes"])
            .arg(format!("--suppressions={}", root().join("tests/valgrind.supp").display()))
            .arg(program)
            .args(arguments));
    }
}

#[test]
fn the_examples_run() {
    let at = installed();
    let chat = compile("cc", "-std=c11", "examples/chat.c", &at);
    let said = String::from_utf8(run(Command::new(&chat).args(["", "How much is the museum for 2 adults?"])).stdout);
    assert!(said.unwrap().contains("museum"));
    let wrong = Command::new(&chat).arg("/nowhere").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let schema = compile("c++", "-std=c++17", "examples/schema.cpp", &at);
    let document = String::from_utf8(run(&mut Command::new(schema)).stdout).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert!(document["euros"].is_u64(), "{document}");
    let serve = compile("c++", "-std=c++17", "examples/serve.cpp", &at);
    let served = run(Command::new(serve).arg("127.0.0.1:0").stdin(Stdio::null()));
    let places: Vec<String> = serde_json::from_slice(&served.stdout).unwrap();
    assert!(places.len() == 1 && places[0].starts_with("127.0.0.1:") && places[0] != "127.0.0.1:0", "{places:?}");
    let file = at.path().join("session");
    let python = |more: &[&Path]| -> serde_json::Value {
        let mut command = Command::new("python3");
        let done = run(command.arg(root().join("examples/tokens.py")).arg(library()).arg("two adults").args(more));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let [shown, saved, taken] = [python(&[]), python(&[&file]), python(&[&file])];
    assert!(shown["text"].as_str().unwrap().ends_with("two adults"), "{shown}");
    let count = shown["tokens"].as_array().unwrap().len();
    assert_eq!((&saved["reused"], &taken["reused"]), (&0.into(), &count.into()));
}
