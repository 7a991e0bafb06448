//! What files and paths say does not command the terminal on which it is shown.

use crate::common::golden;
use crate::common::program::{kiln, program, run};
use serde_json::{Value, json};

/// What a terminal would obey: it sets the title, colours, and goes to the line's start.
const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{1b}[31mX\rINFO fake\u{9b}2J\u{202e}";

fn has_commands(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}')
}

/// The log has the text of a token that the file gives another id.
#[test]
fn what_is_logged_of_a_file_is_one_line_without_commands() {
    let place = tempfile::tempdir().unwrap();
    let text = std::fs::read(golden("tokenizer/tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&text).unwrap();
    let flags = json!({"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    let mut token = json!({"id": 9999, "content": EVIL});
    token.as_object_mut().unwrap().extend(flags.as_object().unwrap().clone());
    tokenizer["added_tokens"].as_array_mut().unwrap().push(token);
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.insert(EVIL.into(), vocabulary.len().into());
    std::fs::write(place.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let directory = place.path().display().to_string();
    let ran = run(program().args(["tokenize", "-m", &directory, "hello"]).env("RUST_LOG", "warn"), b"");
    assert!(ran.stderr.starts_with("[WARN ] ") && ran.stderr.contains("the id 9999"), "{:?}", ran.stderr);
    assert!(ran.stderr.contains("]0;pwned") && ran.stderr.lines().count() == 1, "{:?}", ran.stderr);
    assert!(!has_commands(&ran.stderr), "{:?}", ran.stderr);
}

/// What asks for colour and what forbids it, for standard output and standard error alike. A pipe has none by itself.
#[test]
fn colour_is_where_it_is_wanted_and_not_forbidden() {
    for (variables, has_color) in [
        (&[][..], false),
        (&[("CLICOLOR_FORCE", "1")], true),
        (&[("CLICOLOR_FORCE", "1"), ("TERM", "dumb")], true),
        (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        (&[("NO_COLOR", "")], false),
    ] {
        let shown = |arguments: &[&str]| {
            let mut command = program();
            command.env_remove("NO_COLOR").env_remove("CLICOLOR").env_remove("CLICOLOR_FORCE");
            run(command.args(arguments).envs(variables.iter().copied()), b"")
        };
        let plan = shown(&["plan", "--shape", "gemma3-1b", "--machine", "780m"]);
        assert_eq!(plan.stdout.starts_with("\u{1b}[1m\u{1b}[32mfits;\u{1b}[0m "), has_color, "{}", plan.stdout);
        let refused = shown(&["run", "-m", "/no/such", "-p", "x"]).stderr;
        assert_eq!(refused.starts_with("\u{1b}[1m\u{1b}[31mkiln:\u{1b}[0m "), has_color, "{refused:?}");
        let colored = [plan.stdout, refused, shown(&["top", "--once"]).stdout, shown(&["probe", "--quick"]).stdout];
        assert!(colored.iter().all(|text| text.contains('\u{1b}') == has_color), "{colored:?}");
    }
}

#[test]
fn paths_and_arguments_are_shown_without_commands() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(EVIL.replace('/', "")).display().to_string();
    for arguments in [
        &["run", "-m", &path, "-p", "x"][..],
        &["tokenize", "-m", &path, "x"],
        &["plan", "--shape", &path],
        &["run", &path],
        &[&path],
        &["run", "--device", EVIL, "-p", "x"],
        &["run", "-n", EVIL, "-p", "x"],
    ] {
        let ran = kiln(arguments);
        assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{:?}", ran.stderr);
        assert!(ran.stderr.contains("INFO fake") && !has_commands(&ran.stderr), "{:?}", ran.stderr);
    }
}
