//! A chat's commands, its files, and what Ctrl-C leaves of a line.

use super::{QUESTION, leave, messages, run, say, speak, start, until_prompt};
use std::path::Path;

/// What the question was answered with.
const ANSWER: &str = "The aquarium opens at 9:00 on Saturday.";

/// Ctrl-C took away what was typed: in a reply the terminal did, at the prompt the editor.
#[test]
fn what_is_typed_outlives_a_ctrl_c() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["--ignore-eos"], cache.path());
    say(&mut chat, QUESTION);
    chat.exp_string("The aquarium opens").unwrap();
    chat.send("zyzzyva").unwrap();
    chat.send_control('c').unwrap();
    until_prompt(&mut chat, ", interrupted");
    chat.exp_string("zyzzyva").unwrap();
    // At the prompt the first one leaves the line, and the second one clears it.
    chat.send_control('c').unwrap();
    until_prompt(&mut chat, "Ctrl-C again clears the line");
    chat.exp_string("zyzzyva").unwrap();
    chat.send("s").unwrap();
    chat.send_control('c').unwrap();
    until_prompt(&mut chat, "Ctrl-C again clears the line");
    chat.exp_string("zyzzyvas").unwrap();
    chat.send_control('c').unwrap();
    until_prompt(&mut chat, "(Ctrl-D ends the chat)");
    say(&mut chat, "/temp");
    until_prompt(&mut chat, "the temperature is 0");
    leave(chat);
    let history = std::fs::read_to_string(cache.path().join("history")).unwrap();
    assert!(history.lines().any(|line| line == "zyzzyvas"), "{history}");
}

#[test]
fn the_last_exchange_is_answered_anew_or_taken_back() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&[], cache.path());
    for command in ["/undo", "/regenerate"] {
        say(&mut chat, command);
        until_prompt(&mut chat, "kiln: nothing has been asked yet");
    }
    speak(&mut chat, QUESTION);
    let once = messages(&mut chat, cache.path());
    assert_eq!(once[1].1, ANSWER);
    say(&mut chat, "/regenerate");
    chat.exp_string("`/temp 1` lets it vary").unwrap();
    until_prompt(&mut chat, ANSWER);
    assert_eq!(messages(&mut chat, cache.path()), once);
    say(&mut chat, "/temp 1.5");
    until_prompt(&mut chat, "the temperature is 1.5");
    for (wrong, said) in [("/temp -1", "the temperature"), ("/temp warm", "warm is no temperature")] {
        say(&mut chat, wrong);
        chat.exp_string("kiln: ").unwrap();
        until_prompt(&mut chat, said);
    }
    say(&mut chat, "/regenerate");
    until_prompt(&mut chat, "prompt tokens new");
    let again = messages(&mut chat, cache.path());
    assert_eq!((again.len(), &again[0]), (2, &once[0]));
    say(&mut chat, "/undo");
    chat.exp_string("(taken back: When does the aquarium open on Saturday?)").unwrap();
    until_prompt(&mut chat, "0/2048 ");
    assert!(messages(&mut chat, cache.path()).is_empty());
    leave(chat);
}

/// Where a new answer does not come, the old one stays.
#[test]
fn an_answer_stays_until_there_is_another() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("chat");
    let long = "museum ".repeat(500);
    let said = serde_json::json!([{"role": "user", "content": long}, {"role": "assistant", "content": "yes"}]);
    std::fs::write(&file, said.to_string()).unwrap();
    // Token by token: the prompt takes long enough to be interrupted.
    let mut chat = start(&["--chunk", "1"], cache.path());
    say(&mut chat, &format!("/load {}", file.display()));
    until_prompt(&mut chat, "last asked: museum museum");
    say(&mut chat, "/regenerate");
    chat.exp_regex(r"[0-9]+/5[0-9][0-9] tokens, ").unwrap();
    chat.send_control('c').unwrap();
    until_prompt(&mut chat, ", interrupted");
    let kept = messages(&mut chat, cache.path());
    assert_eq!((kept.len(), kept[1].1.as_str()), (2, "yes"));
    leave(chat);
}

/// The second `/save` of a chat was refused, since there was a file: its own.
#[test]
fn a_chat_is_saved_over_its_own_file_and_over_no_other() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("chat").display().to_string();
    let mut chat = start(&["-n", "1", "--system", "Be brief."], cache.path());
    say(&mut chat, "/save");
    until_prompt(&mut chat, "kiln: the conversation has no file yet; give a name behind /save");
    let save = format!("/save {file}");
    for (line, said) in [("one", "1 turn and a system message in"), ("two", "2 turns and a system message in")] {
        speak(&mut chat, line);
        say(&mut chat, &save);
        until_prompt(&mut chat, said);
    }
    leave(chat);
    let mut chat = start(&["-n", "1"], cache.path());
    say(&mut chat, &format!("/load {file}"));
    chat.exp_string("(2 turns and a system message from ").unwrap();
    until_prompt(&mut chat, "; last asked: two)");
    speak(&mut chat, "three");
    say(&mut chat, "/save");
    until_prompt(&mut chat, "3 turns and a system message in");
    std::fs::write(&file, "a letter").unwrap();
    say(&mut chat, &save);
    until_prompt(&mut chat, "was changed by another program since");
    assert_eq!(std::fs::read(&file).unwrap(), b"a letter");
    leave(chat);
}

#[test]
fn the_prompt_says_how_much_of_the_context_is_used() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = run(200, &["--ctx", "512"], cache.path());
    until_prompt(&mut chat, "0/512 ");
    let mut used = Vec::new();
    for (line, said) in [
        (QUESTION, "prompt tokens new"),
        ("and on Monday?", "prompt tokens new"),
        ("/undo", "(taken back"),
        ("/clear", "begins anew"),
    ] {
        say(&mut chat, line);
        chat.exp_string(said).unwrap();
        let prompt = chat.exp_regex("[0-9]+/512 > ").unwrap().1;
        used.push(prompt.split('/').next().unwrap().parse::<usize>().unwrap());
    }
    assert!(0 < used[0] && used[0] < used[1] && used[3] == 0, "{used:?}");
    // A reply's last token ends its turn, and the template ends it again.
    assert!(used[2].abs_diff(used[0]) <= 2, "{used:?}");
    leave(chat);
}

#[test]
fn the_tab_key_completes_commands_and_files() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("a chat of mine");
    std::fs::write(&file, r#"[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]"#).unwrap();
    let mut chat = start(&["-n", "1"], cache.path());
    say(&mut chat, "/rege\t");
    until_prompt(&mut chat, "nothing has been asked yet");
    say(&mut chat, &format!("/load {}/a ch\t", cache.path().display()));
    until_prompt(&mut chat, "(1 turn from ");
    leave(chat);
}

/// Where colour is wanted, and where it is not.
#[test]
fn a_chat_has_colour_where_the_terminal_has() {
    let cache = tempfile::tempdir().unwrap();
    for (variable, value, has_color) in
        [("X", "", true), ("NO_COLOR", "1", false), ("CLICOLOR", "0", false), ("TERM", "dumb", false)]
    {
        let shown = colored(cache.path(), variable, value);
        assert_eq!(shown.contains("\u{1b}[2m"), has_color, "{variable}={value}: {shown:?}");
        assert_eq!(shown.contains("\u{1b}[31m"), has_color, "{variable}={value}: {shown:?}");
    }
}

/// What a chat shows of a wrong command, with a variable of its environment.
fn colored(cache: &Path, variable: &str, value: &str) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["run", "--device", "cpu"]).env("KILN_CACHE_DIR", cache).env("TERM", "xterm").env(variable, value);
    // A build server's variable CI would give a dumb terminal colour.
    command.env_remove("RUST_LOG").env_remove("KILN_MODEL").env_remove("CI");
    let mut chat = rexpect::session::spawn_command(command, super::PATIENCE).unwrap();
    let greeting = chat.exp_string("0/2048 ").unwrap();
    chat.exp_string("> ").unwrap();
    chat.send("/halp\r").unwrap();
    chat.flush().unwrap();
    let said = chat.exp_string("there is no command").unwrap();
    chat.exp_string("> ").unwrap();
    leave(chat);
    greeting + &said
}
