//! The interactive chat, on a pseudo-terminal.

mod commands;
mod escapes;

use rexpect::process::signal::Signal;
use rexpect::process::wait::WaitStatus;
use rexpect::session::{PtySession, spawn_command};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Milliseconds for each thing that is waited for: against a hang, since a busy machine may need minutes for a reply.
const PATIENCE: Option<u64> = Some(600_000);

/// A question that the built-in model answers with: The aquarium opens at 9:00 on Saturday.
const QUESTION: &str = "When does the aquarium open on Saturday?";

/// A chat on a wide terminal, at its first prompt.
fn start(arguments: &[&str], cache: &Path) -> PtySession {
    let mut chat = run(200, arguments, cache);
    until_prompt(&mut chat, "/bye the chat");
    chat
}

/// `kiln run` on a terminal of so many columns that echoes, which rexpect's do not by themselves. Signals are as a terminal has them, whatever this process ignores.
fn run(columns: usize, arguments: &[&str], cache: &Path) -> PtySession {
    let mut command = Command::new("env");
    let script = format!("stty echo cols {columns} rows 30 && exec \"$0\" run --device cpu \"$@\"");
    command.args(["--default-signal=INT,QUIT,TERM,HUP", "sh", "-c", &script, env!("CARGO_BIN_EXE_kiln")]);
    command
        .args(arguments)
        .env("KILN_CACHE_DIR", cache)
        .env("KILN_RUNTIME_DIR", cache.join("reports"))
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .env_remove("RUST_LOG")
        .env_remove("KILN_MODEL");
    spawn_command(command, PATIENCE).unwrap()
}

/// Types a line and Enter, which a raw terminal sends as a carriage return.
fn say(chat: &mut PtySession, line: &str) {
    chat.send(line).unwrap();
    chat.send("\r").unwrap();
    chat.flush().unwrap();
}

/// Waits for words, and for the prompt behind them.
fn until_prompt(chat: &mut PtySession, words: &str) {
    chat.exp_string(words).unwrap();
    chat.exp_string("> ").unwrap();
}

/// Says a line, and waits until it is answered.
fn speak(chat: &mut PtySession, line: &str) {
    say(chat, line);
    until_prompt(chat, "prompt tokens new");
}

/// Ends a chat at its prompt.
fn leave(mut chat: PtySession) {
    say(&mut chat, "/bye");
    assert!(matches!(chat.process.wait().unwrap(), WaitStatus::Exited(_, 0)));
}

/// The messages of a chat, by role and content. The chat writes them to a file and waits at its prompt.
fn messages(chat: &mut PtySession, directory: &Path) -> Vec<(String, String)> {
    let file = directory.join("saved.json");
    say(chat, &format!("/save {}", file.display()));
    chat.exp_regex(r"\(\d+ turns?( and a system message)? in ").unwrap();
    chat.exp_string("> ").unwrap();
    let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = |message: &serde_json::Value, key| message[key].as_str().unwrap().to_owned();
    saved.as_array().unwrap().iter().map(|m| (text(m, "role"), text(m, "content"))).collect()
}

/// What the user said in a chat.
fn said(chat: &mut PtySession, directory: &Path) -> Vec<String> {
    messages(chat, directory).into_iter().filter(|(role, _)| role == "user").map(|(_, content)| content).collect()
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
    let summary = chat.exp_regex(r"prompt tokens new, in [0-9.]+ m?s, [0-9]+ tokens").unwrap().1;
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
    let mode = std::fs::metadata(cache.path().join("history")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others may read what was asked");
}

/// A long prompt shows how far it is. Ctrl-C ends it, and the chat goes on as if it had not been typed.
#[test]
fn ctrl_c_ends_a_prompt_and_the_chat_goes_on() {
    let cache = tempfile::tempdir().unwrap();
    // Token by token, so that a quick processor takes several times as long as nothing is shown.
    let mut chat = start(&["--chunk", "1"], cache.path());
    say(&mut chat, &"museum ".repeat(500));
    chat.exp_regex(r"[0-9]+/5[0-9][0-9] tokens, ").unwrap();
    chat.send_control('c').unwrap();
    chat.exp_regex(r"\[the prompt of [0-9]+ tokens ran for [0-9.]+ m?s, interrupted\]").unwrap();
    chat.exp_string("> ").unwrap();
    say(&mut chat, "When does the aquarium open on Saturday?");
    chat.exp_string("The aquarium opens at 9:00 on Saturday.").unwrap();
    let summary = chat.exp_regex(r"\[\d+ of \d+ prompt tokens").unwrap().1;
    let tokens: Vec<usize> = summary.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    assert!(tokens[1] < 100, "the interrupted message is still in the conversation: {summary}");
    chat.exp_string("> ").unwrap();
    say(&mut chat, "/bye");
    assert!(matches!(chat.process.wait().unwrap(), WaitStatus::Exited(_, 0)));
}

/// However the chat is ended, at its prompt or in a reply, the shell after it must have its echo back.
#[test]
fn a_signal_gives_the_terminal_back() {
    let cache = tempfile::tempdir().unwrap();
    for (signal, in_reply) in
        [("TERM", false), ("HUP", false), ("QUIT", false), ("TERM", true), ("HUP", true), ("QUIT", true)]
    {
        let mut command = Command::new("env");
        let script = "stty echo cols 100 rows 30; before=$(stty -g); trap : HUP TERM QUIT; \
                      env --default-signal=HUP,TERM,QUIT \
                      sh -c 'echo pid $$; exec \"$0\" run --ignore-eos --device cpu' \"$0\"; \
                      [ \"$before\" = \"$(stty -g)\" ] && echo the same modes || echo other modes";
        command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_kiln")]);
        command
            .env("KILN_CACHE_DIR", cache.path())
            .env("TERM", "xterm")
            .env_remove("RUST_LOG")
            .env_remove("KILN_MODEL");
        let mut shell = spawn_command(command, PATIENCE).unwrap();
        let (_, pid) = shell.exp_regex(r"pid \d+").unwrap();
        // The terminal is raw once the prompt shows.
        shell.exp_string("> ").unwrap();
        if in_reply {
            say(&mut shell, QUESTION);
            shell.exp_string("The aquarium").unwrap();
        }
        let pid = pid.trim_start_matches("pid ");
        assert!(Command::new("kill").args([&format!("-{signal}"), pid]).status().unwrap().success());
        assert_eq!(shell.exp_regex("(the same|other) modes").unwrap().1, "the same modes", "{signal}");
    }
}

/// It was echoed into the reply.
#[test]
fn what_is_typed_in_a_reply_waits_for_the_prompt() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["--ignore-eos", "-n", "200"], cache.path());
    say(&mut chat, QUESTION);
    chat.exp_string("The aquarium").unwrap();
    chat.send("zyzzyva").unwrap();
    chat.flush().unwrap();
    let reply = chat.exp_string("200 tokens").unwrap();
    assert!(!reply.contains("zyzzyva"), "{reply}");
    chat.exp_string("> ").unwrap();
    chat.exp_string("zyzzyva").unwrap();
    speak(&mut chat, " is a beetle");
    assert_eq!(said(&mut chat, cache.path()), [QUESTION, "zyzzyva is a beetle"]);
    leave(chat);
}

/// The editor reads the lines of such a terminal as they come, and that shows what is typed at the prompt alone.
#[test]
fn a_dumb_terminal_echoes_at_the_prompt_and_not_in_a_reply() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "stty echo; TERM=dumb \"$0\" run --device cpu --ignore-eos -n 200; stty -a",
        env!("CARGO_BIN_EXE_kiln"),
    ]);
    command.env("KILN_CACHE_DIR", cache.path()).env_remove("RUST_LOG").env_remove("KILN_MODEL");
    let mut chat = spawn_command(command, PATIENCE).unwrap();
    chat.exp_string("> ").unwrap();
    chat.send_line(QUESTION).unwrap();
    chat.exp_string(QUESTION).unwrap();
    chat.exp_string("The aquarium").unwrap();
    chat.send("/system zyz").unwrap();
    chat.flush().unwrap();
    let reply = chat.exp_string("200 tokens").unwrap();
    assert!(!reply.contains("zyz"), "{reply}");
    chat.exp_string("> ").unwrap();
    chat.send_line("zyva").unwrap();
    chat.exp_string("zyva").unwrap();
    until_prompt(&mut chat, "is replaced");
    chat.send_line("/bye").unwrap();
    let modes = chat.exp_eof().unwrap();
    assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
}

/// A terminal breaks lines within words.
#[test]
fn words_stay_whole_at_the_edge() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = run(17, &[], cache.path());
    // What is said of the chat, too, whatever the device is called.
    let before = chat.exp_string("> ").unwrap();
    assert!(["Ctrl-C", "reply,", "Ctrl-D", "chat;", "/help"].iter().all(|word| before.contains(word)), "{before}");
    say(&mut chat, QUESTION);
    until_prompt(&mut chat, "The aquarium\r\nopens at 9:00 on\r\nSaturday.\r\n");
    leave(chat);
    let shown = run(17, &["-p", QUESTION], cache.path()).exp_eof().unwrap();
    assert!(shown.contains("The aquarium\r\nopens at 9:00 on\r\nSaturday.\r\n"), "{shown}");
}

#[test]
fn a_quiet_chat_shows_the_replies_alone() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = run(200, &["--quiet"], cache.path());
    let before = chat.exp_string("> ").unwrap();
    assert!(!before.contains("demo"), "{before}");
    say(&mut chat, QUESTION);
    chat.exp_string("The aquarium opens at 9:00 on Saturday.\r\n").unwrap();
    let behind = chat.exp_string("> ").unwrap();
    assert!(!behind.contains("token"), "{behind}");
    leave(chat);
}

#[test]
fn a_saved_chat_is_loaded_and_goes_on() {
    let cache = tempfile::tempdir().unwrap();
    let at = |name: &str| cache.path().join(name).display().to_string();
    let mut first = start(&["--system", "Be brief."], cache.path());
    say(&mut first, QUESTION);
    until_prompt(&mut first, "on Saturday.\r\n");
    let exchange = messages(&mut first, cache.path());
    say(&mut first, &format!("/save {}", at("chat")));
    first.exp_string("(1 turn and a system message in ").unwrap();
    first.exp_string("> ").unwrap();
    leave(first);

    let mut second = start(&[], cache.path());
    for (file, text, said) in [
        ("none", None, "does not exist"),
        ("letter", Some("Dear Anne"), "the messages are not understood"),
        ("bytes", Some("\u{0}"), "the messages are not understood"),
        (
            "order",
            Some(r#"[{"role": "assistant", "content": "x"}]"#),
            "message 1 has the role \"assistant\" where user comes",
        ),
        ("image", Some(r#"[{"role": "user", "content": [{"type": "image"}]}]"#), "image"),
    ] {
        text.iter().for_each(|text| std::fs::write(at(file), text).unwrap());
        say(&mut second, &format!("/load {}", at(file)));
        second.exp_string("kiln: ").unwrap();
        until_prompt(&mut second, said);
    }
    assert!(messages(&mut second, cache.path()).is_empty());
    say(&mut second, &format!("/load {}", at("chat")));
    second.exp_string("(1 turn and a system message from ").unwrap();
    second.exp_string("> ").unwrap();
    assert_eq!(messages(&mut second, cache.path()), exchange);
    say(&mut second, "and on Monday?");
    until_prompt(&mut second, "The aquarium opens at 9:00 on Monday.");
    // A conversation that waits for an answer gets one.
    std::fs::write(at("asked"), serde_json::json!([{"role": "user", "content": QUESTION}]).to_string()).unwrap();
    say(&mut second, &format!("/load {}", at("asked")));
    second.exp_string("(1 turn from ").unwrap();
    until_prompt(&mut second, "The aquarium opens at 9:00 on Saturday.");
    assert_eq!(messages(&mut second, cache.path()).len(), 2);
    leave(second);
}

/// `kiln top` showed the last reply's sequence for as long as the chat was open.
#[test]
fn a_chat_at_its_prompt_reports_no_sequence() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["-n", "5", "--ignore-eos"], cache.path());
    speak(&mut chat, QUESTION);
    let report = cache.path().join("reports").join(format!("{}.json", chat.process.child_pid));
    let is_idle = || {
        let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        report["decoded"].as_u64() > Some(0) && report["sequences"] == 0
    };
    let start = Instant::now();
    while !is_idle() {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", std::fs::read_to_string(&report).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    leave(chat);
}

/// A line that is not UTF-8 does not end the conversation, and its rest is not taken for a message.
#[test]
fn a_line_that_is_not_utf_8_is_said_and_the_chat_goes_on() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&[], cache.path());
    std::io::Write::write_all(&mut chat.writer, b"caf\xe9 au lait\r").unwrap();
    chat.flush().unwrap();
    until_prompt(&mut chat, "kiln: the line is not UTF-8");
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
    until_prompt(&mut chat, "The aquarium opens at 9:00 on Saturday.");
    say(&mut chat, "and on Monday?");
    chat.exp_string("The aquarium opens at 9:00 on Monday.").unwrap();
    // Only new tokens were run: the first exchange is in the cache.
    let summary = chat.exp_regex(r"\[\d+ of \d+ prompt tokens").unwrap().1;
    let tokens: Vec<usize> = summary.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    assert!(tokens[0] < 25 && tokens[1] > 35, "{summary}");
    chat.exp_string("> ").unwrap();
    // A message that does not fit is refused, and the conversation stays.
    say(&mut chat, &"museum ".repeat(300));
    until_prompt(&mut chat, "too long");
    say(&mut chat, "and on Tuesday?");
    until_prompt(&mut chat, "The aquarium");
    say(&mut chat, "/bye");
    assert!(matches!(chat.process.wait().unwrap(), WaitStatus::Exited(_, 0)));
}

/// The prompt's reader took in what was typed ahead, and lost it with each line that it gave back.
#[test]
fn lines_typed_ahead_are_answered_in_turn() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&[], cache.path());
    // A paste that the terminal does not mark as one.
    let pasted = ["When does the aquarium open on Saturday?", "and on Monday?", "When does the museum open on Sunday?"];
    chat.send(&pasted.map(|line| format!("{line}\r")).concat()).unwrap();
    chat.flush().unwrap();
    for answer in ["at 9:00 on Saturday.", "at 9:00 on Monday.", "The museum opens at 10:00 on Sunday."] {
        chat.exp_string(answer).unwrap();
    }
    chat.exp_string("> ").unwrap();
    // While a reply is made.
    say(&mut chat, pasted[0]);
    chat.exp_string("The aquarium").unwrap();
    chat.send("and on Tuesday?\rWhen does the museum open on Sunday?\r").unwrap();
    chat.flush().unwrap();
    until_prompt(&mut chat, "The museum opens at 10:00 on Sunday.");
    let expected = [&pasted[..], &[pasted[0], "and on Tuesday?", pasted[2]]].concat();
    assert_eq!(said(&mut chat, cache.path()), expected);
    leave(chat);
}

#[test]
fn a_message_may_have_several_lines() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["-n", "1"], cache.path());
    for typed in [
        "one\\\rtwo\r",
        "\"\"\"\rone\\\r\rtwo\r\"\"\"\r",
        // Alt-Enter.
        "one\x1b\rtwo\r",
        // A paste that the terminal marks.
        "\x1b[200~one\rtwo\x1b[201~\r",
    ] {
        chat.send(typed).unwrap();
        chat.flush().unwrap();
        until_prompt(&mut chat, "prompt tokens new");
    }
    assert_eq!(said(&mut chat, cache.path()), ["one\ntwo", "one\\\n\ntwo", "one\ntwo", "one\ntwo"]);
    leave(chat);
}

#[test]
fn commands_are_obeyed_and_never_sent() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["-n", "1", "--system", "Be brief."], cache.path());
    say(&mut chat, "/help");
    until_prompt(&mut chat, "/system [TEXT]");
    say(&mut chat, "/halp me");
    until_prompt(&mut chat, "kiln: there is no command /halp; /help is one");
    speak(&mut chat, " /halp me");
    say(&mut chat, "/system Be kind.");
    until_prompt(&mut chat, "is replaced");
    let now: Vec<(String, String)> = messages(&mut chat, cache.path());
    let roles: Vec<&str> = now.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!((roles, now[0].1.as_str()), (vec!["system", "user", "assistant"], "Be kind."));
    assert_eq!(now[1].1, " /halp me");
    say(&mut chat, "/clear");
    until_prompt(&mut chat, "begins anew");
    assert_eq!(messages(&mut chat, cache.path()).len(), 1);
    // A file that exists is not overwritten, and the chat goes on.
    let file = cache.path().join("kept");
    std::fs::write(&file, "before").unwrap();
    say(&mut chat, &format!("/save {}", file.display()));
    until_prompt(&mut chat, "exists already; choose another name");
    assert_eq!(std::fs::read(&file).unwrap(), b"before");
    say(&mut chat, "/save /no/such/directory/file");
    until_prompt(&mut chat, "kiln: cannot write /no/such/directory/file");
    leave(chat);
}

/// The editor took a Ctrl-C of the reply for one at its prompt when the terminal was resized.
#[test]
fn a_resize_after_an_interrupted_reply_keeps_what_is_typed() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["--ignore-eos"], cache.path());
    say(&mut chat, "When does the aquarium open on Saturday?");
    chat.exp_string("The aquarium opens").unwrap();
    chat.send_control('c').unwrap();
    until_prompt(&mut chat, ", interrupted");
    chat.send("/save no").unwrap();
    chat.flush().unwrap();
    chat.exp_string("/save no").unwrap();
    let signal = Command::new("kill").args(["-WINCH", &chat.process.child_pid.to_string()]).status().unwrap();
    assert!(signal.success());
    std::thread::sleep(std::time::Duration::from_millis(200));
    say(&mut chat, "where/file");
    until_prompt(&mut chat, "kiln: cannot write nowhere/file");
    leave(chat);
}

/// A terminal that waits for whole lines cuts them off at 4095 bytes.
#[test]
fn a_long_line_typed_while_a_reply_is_made_is_kept_whole() {
    let cache = tempfile::tempdir().unwrap();
    let mut chat = start(&["--ignore-eos"], cache.path());
    say(&mut chat, "When does the aquarium open on Saturday?");
    chat.exp_string("The aquarium opens").unwrap();
    let long = "long ".repeat(1200);
    say(&mut chat, &format!("/save {long}end"));
    // Behind the line, Ctrl-C would wait for it to be read.
    let process = Command::new("kill").args(["-INT", &chat.process.child_pid.to_string()]).status().unwrap();
    assert!(process.success());
    until_prompt(&mut chat, "kiln: cannot write long long");
    leave(chat);
    let history = std::fs::read_to_string(cache.path().join("history")).unwrap();
    assert!(history.contains(&format!("/save {long}end\n")), "{history}");
}

#[test]
fn the_terminal_is_left_as_it_was() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "stty echo; \"$0\" run --device cpu -n 1; stty -a", env!("CARGO_BIN_EXE_kiln")]);
    command.env("KILN_CACHE_DIR", cache.path()).env("TERM", "xterm").env_remove("RUST_LOG").env_remove("KILN_MODEL");
    let mut chat = spawn_command(command, PATIENCE).unwrap();
    chat.exp_string("> ").unwrap();
    speak(&mut chat, "Who are you?");
    say(&mut chat, "/bye");
    let modes = chat.exp_eof().unwrap();
    assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
}

#[test]
fn a_history_with_a_line_that_is_not_utf_8_keeps_the_others() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("history");
    std::fs::write(&file, b"#V2\none\ncaf\xe9\ntwo\n").unwrap();
    let mut chat = start(&["-n", "1"], cache.path());
    // Back to the first line.
    chat.send("\x1b[A\x1b[A\x1b[A\r").unwrap();
    chat.flush().unwrap();
    until_prompt(&mut chat, "prompt tokens new");
    assert_eq!(said(&mut chat, cache.path()), ["one"]);
    leave(chat);
    let history = std::fs::read_to_string(&file).unwrap();
    assert!(history.starts_with("#V2\none\ncaf\u{fffd}\ntwo\none\n"), "{history}");
}

/// The chat's lines were added to whatever file had the name.
#[test]
fn a_file_that_is_no_history_is_left_alone() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("history");
    for text in [&b"1066 Hastings\n"[..], b"1066 caf\xe9\n"] {
        std::fs::write(&file, text).unwrap();
        let mut chat = run(200, &["-n", "1"], cache.path());
        until_prompt(&mut chat, "history is no history of a chat, and is left as it is");
        speak(&mut chat, QUESTION);
        leave(chat);
        assert_eq!(std::fs::read(&file).unwrap(), text);
    }
}

/// The history was written at the end of a chat, over what another had written.
#[test]
fn two_chats_and_a_terminal_that_closes_lose_no_line_of_the_history() {
    let cache = tempfile::tempdir().unwrap();
    let mut first = start(&["-n", "1"], cache.path());
    let mut second = start(&["-n", "1"], cache.path());
    speak(&mut first, "one from the first");
    speak(&mut second, "one from the second");
    speak(&mut first, "two from the first");
    speak(&mut second, "two from the second");
    let process = Command::new("kill").args(["-HUP", &first.process.child_pid.to_string()]).status().unwrap();
    assert!(process.success());
    assert!(matches!(first.process.wait().unwrap(), WaitStatus::Signaled(_, Signal::SIGHUP, _)));
    leave(second);
    let history = std::fs::read_to_string(cache.path().join("history")).unwrap();
    let lines: Vec<&str> = history.lines().skip(1).collect();
    let expected = ["one from the first", "one from the second", "two from the first", "two from the second"];
    assert_eq!(lines[..4], expected, "{history}");
    // The next chat has them.
    let mut third = start(&["-n", "1"], cache.path());
    third.send("\x1b[A\x1b[A\x1b[A\r").unwrap();
    third.flush().unwrap();
    until_prompt(&mut third, "prompt tokens new");
    assert_eq!(said(&mut third, cache.path()), ["two from the first"]);
    leave(third);
}
