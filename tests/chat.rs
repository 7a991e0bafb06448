//! The interactive chat, on a pseudo-terminal.

use rexpect::process::wait::WaitStatus;
use rexpect::session::{PtySession, spawn_command};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A chat on a terminal of some size, at its first prompt.
fn start(arguments: &[&str], cache: &Path) -> PtySession {
    let mut command = Command::new("sh");
    command.args(["-c", "stty cols 100 rows 30 && exec \"$0\" run --device cpu \"$@\"", env!("CARGO_BIN_EXE_kiln")]);
    command.args(arguments).env("KILN_CACHE_DIR", cache).env("TERM", "xterm").env_remove("RUST_LOG");
    let mut chat = spawn_command(command, Some(30_000)).unwrap();
    chat.exp_string("/bye the chat").unwrap();
    chat.exp_string("> ").unwrap();
    chat
}

/// Types a line and Enter, which a raw terminal sends as a carriage return.
fn say(chat: &mut PtySession, line: &str) {
    chat.send(line).unwrap();
    chat.send("\r").unwrap();
    chat.flush().unwrap();
}

/// One conversation: a follow-up that needs the previous exchange, an interrupted reply, and the end.
#[test]
fn a_chat_keeps_its_context_and_survives_ctrl_c() {
    let cache = tempfile::tempdir().unwrap();
    // Without the model's stop tokens a reply goes on until it is interrupted.
    let mut chat = start(&["--ignore-eos"], cache.path());
    // Ctrl-C in the middle of a reply.
    say(&mut chat, "When does the aquarium open on Saturday?");
    chat.exp_string("The aquarium opens").unwrap();
    chat.send_control('c').unwrap();
    let summary = chat.exp_regex(r"prompt tokens new, in [0-9.]+ s, [0-9]+ tokens").unwrap().1;
    let tokens: usize = summary.split_whitespace().rev().nth(1).unwrap().parse().unwrap();
    assert!(tokens < 1000, "the reply went on to the end of the context: {summary}");
    chat.exp_string("> ").unwrap();
    // At the prompt, Ctrl-C only says how to leave.
    chat.send_control('c').unwrap();
    chat.exp_string("Ctrl-D ends the chat").unwrap();
    chat.send_control('d').unwrap();
    match chat.process.wait().unwrap() {
        WaitStatus::Exited(_, code) => assert_eq!(code, 0),
        other => panic!("{other:?}"),
    }
    let history = std::fs::read_to_string(cache.path().join("history")).unwrap();
    assert!(history.contains("When does the aquarium open on Saturday?"), "{history}");
}

/// However the chat is ended, the shell after it must have its echo back.
#[test]
fn a_signal_at_the_prompt_gives_the_terminal_back() {
    let cache = tempfile::tempdir().unwrap();
    for signal in ["TERM", "HUP", "QUIT"] {
        let mut command = Command::new("env");
        let script = "stty cols 100 rows 30; before=$(stty -g); trap : HUP TERM QUIT; \
                      env --default-signal=HUP,TERM,QUIT sh -c 'echo pid $$; exec \"$0\" run --device cpu' \"$0\"; \
                      [ \"$before\" = \"$(stty -g)\" ] && echo the same modes || echo other modes";
        command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_kiln")]);
        command.env("KILN_CACHE_DIR", cache.path()).env("TERM", "xterm").env_remove("RUST_LOG");
        let mut shell = spawn_command(command, Some(30_000)).unwrap();
        let (_, pid) = shell.exp_regex(r"pid \d+").unwrap();
        shell.exp_string("> ").unwrap();
        // The terminal is raw once the prompt shows.
        let pid = pid.trim_start_matches("pid ");
        assert!(Command::new("kill").args([&format!("-{signal}"), pid]).status().unwrap().success());
        assert_eq!(shell.exp_regex("(the same|other) modes").unwrap().1, "the same modes", "{signal}");
    }
}

/// A line that is not UTF-8 does not end the conversation, and its rest is not taken for a message.
#[test]
fn a_line_that_is_not_utf_8_is_said_and_the_chat_goes_on() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&[], cache.path());
    std::io::Write::write_all(&mut chat.writer, b"caf\xe9 au lait\r").unwrap();
    chat.flush().unwrap();
    chat.exp_string("kiln: what was typed is not UTF-8").unwrap();
    chat.exp_string("> ").unwrap();
    say(&mut chat, "When does the aquarium open on Saturday?");
    let before = chat.exp_string("The aquarium opens at 9:00 on Saturday.").unwrap();
    assert!(!before.contains("prompt tokens"), "{before}");
    chat.exp_string("> ").unwrap();
    say(&mut chat, "/bye");
    assert!(matches!(chat.process.wait().unwrap(), WaitStatus::Exited(_, 0)));
}

#[test]
fn a_follow_up_is_answered_from_the_conversation() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["--ctx", "256"], cache.path());
    say(&mut chat, "When does the aquarium open on Saturday?");
    chat.exp_string("The aquarium opens at 9:00 on Saturday.").unwrap();
    chat.exp_string("> ").unwrap();
    say(&mut chat, "and on Monday?");
    chat.exp_string("The aquarium opens at 9:00 on Monday.").unwrap();
    // Only new tokens were run: the first exchange is in the cache.
    let summary = chat.exp_regex(r"\[\d+ of \d+ prompt tokens").unwrap().1;
    let tokens: Vec<usize> = summary.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    assert!(tokens[0] < 25 && tokens[1] > 35, "{summary}");
    chat.exp_string("> ").unwrap();
    // A message that does not fit is refused, and the conversation stays.
    say(&mut chat, &"museum ".repeat(300));
    chat.exp_string("too long").unwrap();
    chat.exp_string("> ").unwrap();
    say(&mut chat, "and on Tuesday?");
    chat.exp_string("The aquarium").unwrap();
    chat.exp_string("> ").unwrap();
    say(&mut chat, "/bye");
    assert!(matches!(chat.process.wait().unwrap(), WaitStatus::Exited(_, 0)));
}

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
    let shown = spawn_command(answer_of(model.path()), Some(60_000)).unwrap().exp_eof().unwrap();
    assert!(shown.starts_with("\\u{1b}\r\n"), "{shown:?}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}
