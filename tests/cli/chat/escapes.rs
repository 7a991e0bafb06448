//! What a terminal would obey of a model's words, a history and a path does not reach it.

use super::{PATIENCE, leave, start};
use rexpect::session::spawn_command;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A model that answers the tokens 2,5,7 with the byte 0x1B, by a vocabulary in which that byte's token and the one that
/// the golden model answers with have changed places.
fn model_of_escapes() -> tempfile::TempDir {
    let (golden, dir) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), tempfile::tempdir().unwrap());
    for file in ["tiny/config.json", "tiny/model.safetensors"] {
        let from = golden.join(file);
        std::fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
    }
    let answer = answer_of(dir.path()).arg("--json").output().unwrap();
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let mut tokenizer: Value =
        serde_json::from_slice(&std::fs::read(golden.join("tokenizer/tokenizer.json")).unwrap()).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let escape = vocabulary["<0x1B>"].clone();
    let token = vocabulary.iter().find(|(_, id)| **id == answer["tokens"][0]).unwrap().0.clone();
    vocabulary["<0x1B>"] = answer["tokens"][0].clone();
    vocabulary[&token] = escape;
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    dir
}

fn answer_of(model: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["run", "--device", "cpu", "--tokens", "2,5,7", "-n", "1", "--ignore-eos", "-m"]).arg(model);
    command.env_remove("RUST_LOG");
    command
}

/// A terminal would obey an escape sequence that a model writes. A pipe gets it as it is.
#[test]
fn control_characters_of_a_reply_do_not_reach_a_terminal() {
    let model = model_of_escapes();
    assert_eq!(answer_of(model.path()).output().unwrap().stdout, b"\x1b\n");
    let shown = spawn_command(answer_of(model.path()), PATIENCE).unwrap().exp_eof().unwrap();
    // A busy machine shows the prompt's progress first, and erases it.
    let reply = shown.rsplit("\r\u{1b}[2K").next().unwrap_or_default();
    assert!(reply.starts_with("\\u{1b}\r\n"), "{shown:?}");
    assert!(!reply.contains('\u{1b}'), "{shown:?}");
}

/// The editor shows lines of the history as they are.
#[test]
fn a_history_does_not_command_the_terminal() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("history");
    std::fs::write(&file, b"#V2\none\x1b]0;pwned\x07\n").unwrap();
    let mut chat = start(&["-n", "1"], cache.path());
    chat.send("\x1b[A").unwrap();
    chat.flush().unwrap();
    chat.exp_string(r"one\u{1b}]0;pwned\u{7}").unwrap();
    chat.send_control('u').unwrap();
    leave(chat);
}

/// A terminal would obey a path that is shown there. A pipe gets it as it is.
#[test]
fn control_characters_of_a_path_do_not_reach_a_terminal() {
    let (place, tiny) = (tempfile::tempdir().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny"));
    let write = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.args(["quantize", "-m"]).arg(&tiny).arg("-o").arg(place.path().join(name)).env_remove("RUST_LOG");
        command
    };
    let piped = write("a\x1b[31m").output().unwrap();
    assert!(String::from_utf8(piped.stdout).unwrap().contains("a\x1b[31m: "));
    let shown = spawn_command(write("b\x1b[31m"), PATIENCE).unwrap().exp_eof().unwrap();
    assert!(shown.contains(r"b\u{1b}[31m: ") && !shown.contains("\x1b[31m"), "{shown:?}");
}
