//! What kiln says of itself: help, completions and the manual.

use crate::common::program::{kiln, program, run};
use std::process::Command;

const COMMANDS: [&str; 12] = [
    "run",
    "logits",
    "perplexity",
    "tokenize",
    "quantize",
    "forge",
    "bench",
    "plan",
    "probe",
    "top",
    "completions",
    "man",
];

#[test]
fn help_has_examples_environment_and_exit_codes() {
    let help = kiln(&["--help"]).stdout;
    for word in ["Examples:", "KILN_MODEL", "KILN_CACHE_DIR", "RUST_LOG", "Exit codes:"] {
        assert!(help.contains(word), "no {word} in: {help}");
    }
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "no {command} in: {help}");
        assert_eq!(kiln(&[command, "--help"]).code, 0);
    }
    assert!(kiln(&["run", "--help"]).stdout.contains("Examples:"));
}

#[test]
fn completions_name_every_command_and_bash_understands_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = kiln(&["completions", shell]);
        assert_eq!(script.code, 0, "{}", script.stderr);
        assert!(COMMANDS.iter().all(|command| script.stdout.contains(command)), "{shell}");
    }
    let script = kiln(&["completions", "bash"]).stdout;
    assert_eq!(run(Command::new("bash").arg("-n"), script.as_bytes()).code, 0);
    kiln(&["completions", "tcsh"]).refused(2, &["tcsh", "possible values: bash", "`kiln completions --help`"]);
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    let written = kiln(&["man", pages.to_str().unwrap()]);
    assert_eq!((written.code, written.stdout.as_str()), (0, ""), "{}", written.stderr);
    for command in COMMANDS {
        let page = std::fs::read_to_string(pages.join(format!("kiln-{command}.1"))).unwrap();
        assert!(page.contains(".TH kiln-"), "{page}");
    }
    // A page that is a link is replaced; what it names stays.
    let letter = dir.path().join("letter");
    std::fs::write(&letter, "text").unwrap();
    std::fs::remove_file(pages.join("kiln-run.1")).unwrap();
    std::os::unix::fs::symlink(&letter, pages.join("kiln-run.1")).unwrap();
    assert_eq!(kiln(&["man", pages.to_str().unwrap()]).code, 0);
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "text");
    assert!(pages.join("kiln-run.1").symlink_metadata().unwrap().is_file());
    let main = std::fs::read_to_string(pages.join("kiln.1")).unwrap();
    assert_eq!(main, kiln(&["man"]).stdout);
    assert!(main.contains("KILN_CACHE_DIR"), "{main}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut command = program();
    run(command.args(["man", file.to_str().unwrap()]), b"").refused(1, &["cannot write"]);
}
