//! The C interface, as programs in C, C++ and Python use it: the header is current, the examples run, and what a caller may do
//! wrongly is an error.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library that was built with this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().join("libkiln_capi.so")
}

/// A directory with the library by the name that programs load it by.
fn installed() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["libkiln.so.0", "libkiln.so"] {
        symlink(library(), directory.path().join(name)).unwrap();
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
        .generate()
        .unwrap()
        .write(&mut made);
    let made = without_safety(&String::from_utf8(made).unwrap());
    let path = root().join("include/kiln.h");
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "include/kiln.h is not of today's sources: run this test with KILN_BLESS=1");
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
    let header = std::fs::read_to_string(root().join("include/kiln.h")).unwrap();
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
    let checked = ["nonsense", "texts", "replies", "cancelled", "freed in use", "1000 sessions", "three engines"];
    assert!(checked.iter().all(|part| said.contains(part)), "{said}");
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
    let python =
        Command::new("python3").arg(root().join("examples/tokens.py")).arg(library()).arg("two adults").output();
    let python = python.unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let shown: serde_json::Value = serde_json::from_slice(&python.stdout).unwrap();
    assert!(shown["text"].as_str().unwrap().ends_with("two adults"), "{shown}");
}
