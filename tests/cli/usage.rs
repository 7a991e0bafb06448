//! What kiln says of itself: help, completions and the manual.

use crate::common::program::{kiln, program, run};
use std::process::Command;

const COMMANDS: [&str; 14] = [
    "run",
    "batch",
    "logits",
    "perplexity",
    "compare",
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

/// A command's was its own: `kiln-run 0.1.0`.
#[test]
fn the_version_is_the_programs() {
    let version = kiln(&["--version"]).stdout;
    assert!(version.starts_with(concat!("kiln ", env!("CARGO_PKG_VERSION"), " (")), "{version}");
    assert!(version.ends_with(")\n") && version.lines().count() == 1 && version.contains("serve"), "{version}");
    for command in COMMANDS {
        assert_eq!(kiln(&[command, "--version"]).stdout, version, "{command}");
    }
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
        let title = format!(".TH kiln-{command} 1  \"kiln {}\"", env!("CARGO_PKG_VERSION"));
        assert!(page.contains(&title), "{page}");
    }
    // Pages are written anew, and another's file of such a name is not; then none is.
    assert_eq!(kiln(&["man", pages.to_str().unwrap()]).code, 0);
    let (other, page) = (pages.join("kiln-top.1"), std::fs::read(pages.join("kiln.1")).unwrap());
    std::fs::write(&other, "a letter").unwrap();
    std::fs::write(pages.join("kiln.1"), "").unwrap();
    kiln(&["man", pages.to_str().unwrap()]).refused(2, &["kiln-top.1 exists, and is no page of this manual"]);
    assert_eq!(std::fs::read(&other).unwrap(), b"a letter");
    assert_eq!(std::fs::read(pages.join("kiln.1")).unwrap(), b"");
    std::fs::remove_file(&other).unwrap();
    assert_eq!(kiln(&["man", pages.to_str().unwrap()]).code, 0);
    assert_eq!(std::fs::read(pages.join("kiln.1")).unwrap(), page);
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
    run(command.args(["man", file.to_str().unwrap()]), b"").refused(2, &["no directory", "give a directory"]);
}

/// They were filled into paragraphs.
#[test]
fn the_manuals_examples_keep_their_lines() {
    let page = kiln(&["man"]).stdout;
    let blocks: Vec<&str> = page.split(".nf\n").skip(1).map(|rest| rest.split_once(".fi\n").unwrap().0).collect();
    assert_eq!(blocks.len(), 3, "examples, environment and exit codes: {page}");
    assert!(blocks[0].starts_with("  kiln run\n") && blocks[0].contains("\n  kiln probe\n"), "{page}");
    assert!(blocks.iter().all(|block| block.lines().all(|line| line.starts_with("  "))), "{page}");
    assert!(page.contains("\n.SH VERSION\n"));
}

/// Lines that were broken by hand were broken again by a narrow terminal.
#[test]
fn a_paragraph_of_the_help_is_wrapped_once() {
    let mut command = program();
    let help = run(command.args(["perplexity", "--help"]).env("COLUMNS", "60"), b"").stdout;
    let paragraph = help.split_once("Of a window").unwrap().1;
    let (lines, last): (Vec<&str>, _) = (paragraph.lines().collect(), paragraph.lines().count() - 1);
    assert!(last > 3 && lines[1..last].iter().all(|line| (40..=60).contains(&line.len())), "{help}");
}
