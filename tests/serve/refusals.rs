//! What `kiln serve` refuses before it answers anybody.

use super::client::{SMALL, Server, command};
use super::common::golden;
use super::common::program::{kiln, run};

#[test]
fn places_that_cannot_be_had_and_dangerous_ones_are_refused() {
    kiln(&["serve", "--listen", "nonsense"]).refused(2, &["--listen", "ADDRESS:PORT"]);
    kiln(&["serve", "--device", "cpu", "--listen", "0.0.0.0:0"]).refused(2, &["0.0.0.0", "key"]);
    kiln(&["serve", "--device", "cpu", "--unix", "/no/such/place"]).refused(2, &["/no/such/place"]);
    kiln(&["serve", "--unix", "x", "--unix-mode", "9"]).refused(2, &["--unix-mode", "octal"]);
    kiln(&["serve", "--cors-origin", "localhost:3000"]).refused(2, &["--cors-origin", "http://localhost:3000"]);
    kiln(&["serve", "--host", "https://kiln.lan:8080"]).refused(2, &["--host kiln.lan"]);
    kiln(&["serve", "--host", "0.0.0.0"]).refused(2, &["--listen 0.0.0.0:8080"]);
    kiln(&["serve", "--port", "8080"]).refused(2, &["--listen 127.0.0.1:PORT"]);
    let server = Server::start(&[]);
    let second = run(&mut command(server.directory.path(), &SMALL), b"");
    second.refused(2, &["socket"]);
    assert_eq!(server.get("/readyz").0, 200, "the first one answers on");
}

#[test]
fn files_that_are_missing_or_empty_and_models_without_text_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "\n \n").unwrap();
    let empty = empty.to_str().unwrap();
    kiln(&["serve", "--api-key-file", empty]).refused(2, &["empty", "key"]);
    kiln(&["serve", "--api-key-file", "/no/such"]).refused(2, &["/no/such does not exist"]);
    kiln(&["serve", "--system-prompt", "/no/such"]).refused(2, &["/no/such does not exist"]);
    let tiny = golden("tiny").display().to_string();
    kiln(&["serve", "-m", &tiny, "--device", "cpu", "--check"]).refused(2, &["tokenizer"]);
    kiln(&["serve", "-m", "/no/such", "--check"]).refused(2, &["/no/such"]);
    kiln(&["serve", "--batch", "0"]).refused(2, &["--batch"]);
    kiln(&["serve", "--ctx", "0"]).refused(2, &["context"]);
}
