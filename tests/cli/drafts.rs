//! Drafts by `kiln run`, `kiln batch` and `kiln bench`: the same replies in fewer passes, and texts that cannot be drafted from.

use crate::common::program::{Ran, kiln};
use crate::{tiny, tiny_with_text};
use serde_json::{Value, json};
use std::fs::File;

const QUESTION: &str = "When does the museum open on Sunday?";
const ANSWER: &str = "The museum opens at 10:00 on Sunday.";

fn file(directory: &tempfile::TempDir, name: &str, text: &[u8]) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// What `kiln run` answers the question with.
fn answer(device: &str, more: &[&str]) -> Ran {
    kiln(&[&["run", "--device", device, "-p", QUESTION], more].concat())
}

/// The first draft is tried whatever passes take, since nothing is known of that yet.
#[test]
fn known_answers_give_the_same_replies_in_fewer_passes() {
    let directory = tempfile::tempdir().unwrap();
    let text = file(&directory, "answers", format!("We are glad to help.\n{ANSWER}\n").as_bytes());
    for device in ["cpu", "vulkan"] {
        let plain = answer(device, &["--json"]).json();
        assert_eq!((&plain["text"], &plain["drafted"], &plain["accepted"]), (&json!(ANSWER), &json!(0), &json!(0)));
        assert_eq!(plain["tokens_per_pass"], 1.0);
        let drafted = answer(device, &["--draft-text", &text, "--json"]).json();
        for key in ["tokens", "text", "finish", "prompt_tokens"] {
            assert_eq!(drafted[key], plain[key], "{key} on {device}");
        }
        let number = |key: &str| drafted[key].as_f64().unwrap();
        assert!(number("accepted") > 0.0 && number("accepted") <= number("drafted"), "{drafted}");
        assert!(number("tokens_per_pass") > 1.0, "{drafted}");
        assert!(number("roofline_share") > 0.0 && number("roofline_share") <= 1.0, "{drafted}");
        let said = answer(device, &["--draft-text", &text]);
        assert_eq!(said.stdout, format!("{ANSWER}\n"));
        assert!(
            said.stderr.contains(" drafted tokens accepted, ") && said.stderr.contains(" tokens a pass"),
            "{}",
            said.stderr
        );
    }
    let none = answer("cpu", &["--draft-text", &text, "--speculate", "0", "--json"]).json();
    assert_eq!((&none["drafted"], &none["text"]), (&json!(0), &json!(ANSWER)));
}

/// With equal seeds what is sampled is the same, and so it is from a text that is never right.
#[test]
fn sampled_replies_are_the_same_with_drafts() {
    let directory = tempfile::tempdir().unwrap();
    let right = file(&directory, "right", format!("{ANSWER}\n").repeat(2).as_bytes());
    let wrong = file(
        &directory,
        "wrong",
        b"The museum opens its doors when the aquarium opens at noon, and the museum closes at",
    );
    for seed in ["1", "2", "3"] {
        let sampled = |more: &[&str]| {
            let base = ["--temp", "1.6", "--top-k", "0", "--top-p", "1", "--seed", seed, "-n", "40", "--json"];
            answer("cpu", &[&base[..], more].concat()).json()
        };
        let plain = sampled(&[]);
        for text in [&right, &wrong] {
            assert_eq!(sampled(&["--draft-text", text])["tokens"], plain["tokens"], "seed {seed}, {text}");
        }
        assert_eq!(sampled(&["--speculate", "3"])["tokens"], plain["tokens"], "seed {seed}");
    }
}

#[test]
fn lines_of_a_batch_tell_of_their_drafts() {
    let directory = tempfile::tempdir().unwrap();
    let text = file(&directory, "answers", format!("{ANSWER}\n").as_bytes());
    let lines: String = (0..3).map(|_| format!("{}\n", json!({"prompt": QUESTION}))).collect();
    let input = file(&directory, "in.jsonl", lines.as_bytes());
    let base = ["batch", &input, "-o", "-", "--device", "cpu", "--ctx", "128"];
    let alone = kiln(&[&base[..], &["--batch", "1", "--draft-text", &text]].concat());
    assert_eq!(alone.code, 0, "{}", alone.stderr);
    let lines: Vec<Value> = alone.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 3 && lines.iter().all(|line| line["text"] == ANSWER), "{}", alone.stdout);
    let accepted: f64 = lines.iter().map(|line| line["accepted"].as_f64().unwrap()).sum();
    assert!(accepted > 0.0 && alone.stderr.contains(" tokens a pass"), "{}", alone.stderr);
    // Sequences that decode together have none.
    let together = kiln(&[&base[..], &["--batch", "3", "--draft-text", &text, "--json"]].concat());
    assert!(together.stdout.lines().all(|line| line.contains(ANSWER)), "{}", together.stdout);
}

#[test]
fn what_cannot_be_drafted_from_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (empty, broken) = (file(&directory, "empty", b" \n"), file(&directory, "broken", b"caf\xe9"));
    nix::unistd::mkfifo(&directory.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    File::create(directory.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
    let input = file(&directory, "in.jsonl", b"{\"prompt\": \"x\"}\n");
    let output = at("out.jsonl");
    for (text, words) in [
        (at("absent"), &["absent", "does not exist", "check the path"][..]),
        (at("fifo"), &["fifo", "not a regular file"]),
        (directory.path().display().to_string(), &["not a regular file"]),
        (at("huge"), &["1099511627776 bytes", "at most 16777216"]),
        (empty, &["is empty"]),
        (broken, &["not UTF-8 at byte 3"]),
    ] {
        for command in [&["run", "-p", "x"][..], &["batch", &input, "-o", &output], &["serve", "--check"]] {
            kiln(&[command, &["--device", "cpu", "--draft-text", &text]].concat()).refused(2, words);
        }
    }
    let text = file(&directory, "text", b"some words");
    kiln(&["run", "-m", &tiny(), "--tokens", "2", "--draft-text", &text]).refused(2, &["--draft-text", "tokenizer"]);
    for many in ["8", "-1", "x"] {
        kiln(&["run", "-p", "x", "--speculate", many]).refused(2, &["--speculate"]);
    }
    kiln(&["bench", "--speculate", "3"]).refused(2, &["--accept"]);
    kiln(&["bench", "--draft", "model"]).refused(2, &["--accept"]);
    kiln(&["bench", "--speculate", "3", "--accept", "1.5"]).refused(2, &["probability of 1.5", "from 0 to 1"]);
    kiln(&["bench", "--speculate", "3", "--accept", "x"]).refused(2, &["--accept", "not a number"]);
}

/// The smallest contexts have no room for a draft, and a model's own text is none the worse for it.
#[test]
fn drafts_keep_within_the_smallest_contexts() {
    let dir = tiny_with_text();
    let model = dir.path().to_str().unwrap();
    for context in ["1", "2", "5", "9"] {
        let reply = |more: &[&str]| {
            let base =
                ["run", "-m", model, "--tokens", "2", "--ignore-eos", "--device", "cpu", "--ctx", context, "--json"];
            kiln(&[&base[..], more].concat()).json()
        };
        let (plain, drafted) = (reply(&[]), reply(&["--speculate", "7"]));
        assert_eq!((&drafted["tokens"], &drafted["finish"]), (&plain["tokens"], &plain["finish"]), "{context}");
    }
}

/// A model directory whose draft is itself.
#[test]
fn a_draft_model_gives_the_same_replies_in_fewer_passes() {
    let dir = tiny_with_text();
    let model = dir.path().to_str().unwrap();
    for device in ["cpu", "vulkan"] {
        let reply = |more: &[&str]| {
            let base = ["run", "-m", model, "-p", "hello", "-n", "24", "--ignore-eos", "--device", device, "--json"];
            kiln(&[&base[..], more].concat()).json()
        };
        let (plain, drafted) = (reply(&[]), reply(&["--draft", model]));
        assert_eq!(drafted["tokens"], plain["tokens"], "{device}");
        assert!(drafted["accepted"].as_u64().unwrap() > 0, "{drafted}");
        let none = reply(&["--draft", model, "--speculate", "0"]);
        assert_eq!((&none["tokens"], &none["drafted"]), (&plain["tokens"], &json!(0)));
    }
    let served = kiln(&["serve", "-m", model, "--draft", model, "--device", "cpu", "--check"]);
    assert_eq!(served.code, 0, "{}", served.stderr);
}

/// The built-in model and the draft model beside it.
#[test]
fn the_built_in_draft_model_says_most_of_what_the_model_says() {
    let question = "Where are the toilets, and is there a discount for groups?";
    for &device in if crate::common::runs_all() { &["cpu", "vulkan"][..] } else { &["cpu"] } {
        let reply = |more: &[&str]| {
            let base = ["run", "-p", question, "--temp", "0", "--device", device, "--json"];
            kiln(&[&base[..], more].concat()).json()
        };
        let (plain, drafted) = (reply(&[]), reply(&["--draft", "demo"]));
        assert_eq!(drafted["tokens"], plain["tokens"], "{device}");
        let number = |key: &str| drafted[key].as_u64().unwrap();
        assert!(2 * number("accepted") > number("drafted") && number("drafted") > 0, "{drafted}");
    }
    assert!(kiln(&["plan", "--draft", "demo"]).stdout.contains("drafts by demo"));
    let dir = tiny_with_text();
    let model = dir.path().to_str().unwrap();
    kiln(&["run", "-m", model, "-p", "x", "--ctx", "64", "--device", "cpu", "--draft", "demo"])
        .refused(2, &["token ", "--draft"]);
}

#[test]
fn a_draft_model_that_is_no_match_is_refused_in_one_line() {
    let (dir, other) = (tiny_with_text(), tiny_with_text());
    let model = dir.path().to_str().unwrap();
    let name = |dir: &tempfile::TempDir| dir.path().display().to_string();
    let edit = |dir: &tempfile::TempDir, file: &str, from: &str, to: &str| {
        let path = dir.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    };
    edit(&other, "tokenizer.json", "<unused3>", "<unused4>");
    let template = tiny_with_text();
    std::fs::write(template.path().join("chat_template.jinja"), "{% for m in messages %}{{ m.content }}{% endfor %}")
        .unwrap();
    let short = tiny_with_text();
    edit(&short, "config.json", "\"max_position_embeddings\": ", "\"max_position_embeddings\": 12, \"once\": ");
    // Without a tokenizer nothing else tells.
    let padded = crate::model_of(&["tiny/config.json", "tiny/model.safetensors"]);
    edit(&padded, "config.json", "\"vocab_size\": 512", "\"vocab_size\": 1024");
    let directory = tempfile::tempdir().unwrap();
    let input = file(&directory, "in.jsonl", b"{\"prompt\": \"x\"}\n");
    let output = directory.path().join("out.jsonl").display().to_string();
    for (draft, words) in [
        (name(&other), &["token 9 is `<unused3>`", "`<unused4>`", "--draft"][..]),
        (name(&template), &["chat template", "--draft"]),
        (name(&short), &["draft model's, 12", "--ctx", "--draft"]),
        (format!("{model}/absent"), &["absent"]),
        (name(&padded), &["vocabulary of 512", "one of 1024", "--draft"]),
    ] {
        for command in [&["run", "-p", "x"][..], &["batch", &input, "-o", &output], &["serve", "--check"]] {
            kiln(&[command, &["-m", model, "--device", "cpu", "--ctx", "64", "--draft", &draft]].concat())
                .refused(2, words);
        }
    }
    let text = file(&directory, "text", b"some words");
    kiln(&["run", "-m", model, "-p", "x", "--draft", model, "--draft-text", &text])
        .refused(2, &["--draft", "--draft-text"]);
}
