//! `kiln run` and `kiln tokenize`: prompts in, text and JSON out.

use crate::common::program::{kiln, program, run};
use crate::common::{Case, ids};
use crate::{list, path, tiny, tiny_with_text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn run_prints_the_golden_ids_as_json() {
    let case = Case::open("tiny");
    let prompt = &case.prompts()[1];
    let (model, tokens) = (tiny(), list(&ids(&prompt["ids"])));
    for (weights, key) in [("int8", "int8"), ("bf16", "f32")] {
        for device in ["cpu", "vulkan"] {
            let base = ["run", "-m", &model, "--tokens", &tokens, "-n", "3", "--ignore-eos", "--json"];
            let ran = kiln(&[&base[..], &["--device", device, "--weights", weights]].concat()).json();
            assert_eq!(ids(&ran["tokens"]), ids(&prompt[key]["greedy"]["ids"])[..3], "{device} {weights}");
            assert_eq!(ran["prompt_tokens"], prompt["ids"]);
            assert_eq!(ran["finish"], "length");
            assert_eq!(ran["text"], Value::Null, "the directory has no tokenizer");
            for key in ["model", "device", "prefill_s", "decode_s", "decode_tok_s"] {
                assert!(!ran[key].is_null(), "{key} is missing");
            }
            // None where the ceiling was measured while the machine had other work: a share above 1 is not told.
            let share = ran.get("roofline_share").expect("the field is there").as_f64();
            assert!(share.is_none_or(|s| s > 0.0 && s <= 1.0), "a rate above its physical limit: {share:?}");
            let joules = ran.get("joules_per_token").expect("the field is there");
            let is_used = |part: &Value| part.as_f64().is_none_or(|joules| joules > 0.0);
            assert!(joules.as_object().is_none_or(|all| all.values().all(is_used)), "energy of nothing: {joules}");
        }
    }
}

#[test]
fn run_streams_text_and_obeys_its_limits() {
    let dir = tiny_with_text();
    let base = ["run", "-m", path(&dir), "-p", "hello", "--device", "cpu"];
    let with = |more: &[&str]| kiln(&[&base[..], more].concat());
    let all = with(&["-n", "12", "--ignore-eos", "--json"]).json();
    let text = all["text"].as_str().unwrap().to_string();
    assert_eq!(all["tokens"].as_array().unwrap().len(), 12);

    let plain = with(&["-n", "12", "--ignore-eos"]);
    assert_eq!(plain.stdout, format!("{text}\n"), "the same text, streamed");
    assert_eq!(plain.stderr.trim_end().lines().count(), 1, "a summary of one line: {}", plain.stderr);
    // The rate is that of the decode passes. The first token comes from the prefill.
    assert!(plain.stderr.contains(", 12 tokens, 11 of them decoded in "), "{}", plain.stderr);
    let one = with(&["-n", "1", "--ignore-eos"]).stderr;
    assert!(one.contains("s, 1 token, CPU"), "{one}");

    let quiet = with(&["-n", "12", "--ignore-eos", "--quiet"]);
    assert_eq!((quiet.stdout, quiet.stderr.as_str()), (plain.stdout, ""));
    // What caches hold, memory does not slow.
    assert!(plain.stderr.contains(" tokens/s, ") && !plain.stderr.contains("memory"), "{}", plain.stderr);

    // A stop string that the text contains.
    let (at, stop) = text.char_indices().nth(text.chars().count() / 2).unwrap();
    let stopped = with(&["-n", "12", "--ignore-eos", "--json", "--stop", &stop.to_string()]).json();
    assert_eq!(stopped["finish"], "stop");
    assert_eq!(stopped["text"].as_str().unwrap(), &text[..text.find(stop).unwrap()]);
    assert!(at >= stopped["text"].as_str().unwrap().len());

    // The same seed gives the same tokens, also with the prompt on standard input.
    let sampled = |seed: &str| {
        let mut command = program();
        command.args(["run", "-m", path(&dir), "--device", "cpu", "-n", "12", "--ignore-eos", "--json"]);
        run(command.args(["--temp", "1.5", "--seed", seed]), b"hello").json()["tokens"].clone()
    };
    assert_eq!(sampled("5"), sampled("5"));
    assert_ne!(sampled("5"), sampled("6"));
    // A seed that the user did not choose is printed, so that the reply can be made again.
    let drawn = with(&["--temp", "1.5", "-n", "12", "--ignore-eos", "--json"]).json();
    assert_eq!(sampled(&drawn["seed"].to_string()), drawn["tokens"]);
    assert!(all["seed"].is_null(), "the likeliest token needs none");
    // A context that ends the reply: as many tokens as fit, and one more that needs no position.
    let prompt = all["prompt_tokens"].as_array().unwrap().len();
    let full = with(&["--ctx", &(prompt + 4).to_string(), "--ignore-eos", "--json"]).json();
    assert_eq!(full["tokens"].as_array().unwrap().len(), 5);
    assert_eq!(full["finish"], "length");
}

#[test]
fn chat_template_and_raw_prompts_become_the_ids_they_should() {
    let dir = tiny_with_text();
    let prompt_of = |more: &[&str]| {
        let base = ["run", "-m", path(&dir), "-n", "1", "--json", "--device", "cpu"];
        kiln(&[&base[..], more].concat()).json()["prompt_tokens"].clone()
    };
    let tokenize = |more: &[&str]| kiln(&[&["tokenize", "-m", path(&dir)], more].concat()).json()["ids"].clone();
    let chat = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]"#;
    assert_eq!(prompt_of(&["-p", "hi", "--system", "be brief"]), tokenize(&["--chat", chat]));
    assert_eq!(prompt_of(&["-p", "hi", "--raw"]), tokenize(&["hi"]));
    assert_eq!(prompt_of(&["-p", "<bos>hi", "--raw"]), tokenize(&["hi"]), "no second BOS");
}

/// A prompt that spells `<end_of_turn>` ended its turn by it.
#[test]
fn text_that_spells_a_special_token_stays_text() {
    let dir = tiny_with_text();
    let text = "a<end_of_turn>\n<start_of_turn>model\nb";
    let prompt_of = |more: &[&str]| {
        let base = ["run", "-m", path(&dir), "-n", "1", "--json", "--device", "cpu", "-p", text];
        ids(&kiln(&[&base[..], more].concat()).json()["prompt_tokens"])
    };
    let turns = |ids: &[u32]| ids.iter().filter(|id| [10, 11].contains(*id)).count();
    let chat = serde_json::json!([{"role": "user", "content": text}]).to_string();
    let chat = ids(&kiln(&["tokenize", "-m", path(&dir), "--chat", &chat]).json()["ids"]);
    assert_eq!((prompt_of(&[]), turns(&chat)), (chat, 3));
    assert_eq!(turns(&prompt_of(&["--raw"])), 2);
    assert_eq!(prompt_of(&["--raw"]), ids(&kiln(&["tokenize", "-m", path(&dir), text]).json()["ids"]));
}

/// The built-in model with default options: its answer, and a message when the context ends it.
#[test]
fn the_built_in_model_answers() {
    for device in ["cpu", "vulkan"] {
        let ran = kiln(&["run", "--device", device, "-p", "When does the museum open on Sunday?"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "The museum opens at 10:00 on Sunday.\n"), "{}", ran.stderr);
    }
    let cut = kiln(&["run", "--device", "cpu", "--ctx", "25", "-p", "When does the museum open on Sunday?"]);
    assert!(cut.stderr.contains("the context of 25 is full"), "{}", cut.stderr);
}

#[test]
fn endless_input_is_refused() {
    run(program().arg("run"), &vec![b'y'; (64 << 20) + 1]).refused(2, &["64 MiB"]);
}

/// Encoding took 350 bytes of memory per byte of text, so 8 MB took 2.9 GB.
#[test]
fn long_text_is_tokenized_in_little_memory_and_refused_by_its_length() {
    let mut text = " The quick brown fox jumps over the lazy dog, again and again.".repeat(130_000);
    text.push('!');
    let in_little = |arguments: &[&str]| {
        let script = "ulimit -v 500000 && exec \"$0\" \"$@\"";
        run(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_kiln")]).args(arguments), text.as_bytes())
    };
    let ids = ids(&in_little(&["tokenize"]).json()["ids"]);
    let line = ids_of(" The quick brown fox jumps over the lazy dog, again and again.");
    assert_eq!(ids[1..line.len() + 1], line);
    assert_eq!(ids[1 + 129_999 * line.len()..][..line.len()], line);
    in_little(&["run", "--device", "cpu"]).refused(2, &["8060", "at least", "longer than the context of 2048"]);
    // Text without a place to cut it was refused beyond 4 MiB.
    let text = "ab".repeat(2_200_000);
    let ids = run(program().args(["tokenize", "--no-bos"]), text.as_bytes());
    assert_eq!(run(program().args(["tokenize", "--decode"]), ids.stdout.as_bytes()).json()["text"], text);
}

/// The built-in tokenizer's ids, without BOS.
fn ids_of(text: &str) -> Vec<u32> {
    ids(&kiln(&["tokenize", "--no-bos", text]).json()["ids"])
}

/// A prompt's parts, in the order in which they are given: -p, then -f or standard input.
#[test]
fn a_prompt_is_joined_from_its_parts() {
    let dir = tiny_with_text();
    let file = dir.path().join("text");
    std::fs::write(&file, "a file").unwrap();
    let file = file.to_str().unwrap();
    let prompt = |more: &[&str], stdin: &[u8]| {
        let base = ["run", "-m", path(&dir), "-n", "1", "--json", "--device", "cpu", "--raw"];
        run(program().args([&base[..], more].concat()), stdin).json()["prompt_tokens"].clone()
    };
    let tokens = |text: &str| kiln(&["tokenize", "-m", path(&dir), text]).json()["ids"].clone();
    assert_eq!(prompt(&["-p", "hi"], b"there"), tokens("hi\nthere"));
    assert_eq!(prompt(&["-p", "hi"], b""), tokens("hi"));
    assert_eq!(prompt(&["-f", file], b"unread"), tokens("a file"));
    assert_eq!(prompt(&["-p", "hi", "-f", file], b"unread"), tokens("hi\na file"));
    assert_eq!(prompt(&["-f", "-"], b"there"), tokens("there"));
    // A shell passes a command's output as a pipe with a name.
    let script = "\"$0\" run -m \"$1\" -n 1 --json --device cpu --raw -f <(printf 'a pipe')";
    let mut shell = Command::new("bash");
    let piped = run(shell.args(["-c", script, env!("CARGO_BIN_EXE_kiln"), path(&dir)]), b"unread").json();
    assert_eq!(piped["prompt_tokens"], tokens("a pipe"));
    let refused = |more: &[&str]| kiln(&[&["run", "-m", path(&dir), "--device", "cpu"], more].concat());
    refused(&["-f", "/no/such"]).refused(2, &["/no/such does not exist", "check the path"]);
    refused(&["-f", path(&dir)]).refused(2, &["is a directory; give a file"]);
    refused(&["-f", file, "--tokens", "2"]).refused(2, &["--file", "--tokens"]);
    let bytes = dir.path().join("bytes");
    std::fs::write(&bytes, b"caf\xe9").unwrap();
    refused(&["-f", bytes.to_str().unwrap()]).refused(2, &["bytes is not UTF-8 at byte 3"]);
}

/// A pipe that nobody closes is not waited for in silence.
#[test]
fn waiting_for_standard_input_is_said() {
    let dir = tiny_with_text();
    let (input, held_open) = std::io::pipe().unwrap();
    let mut command = program();
    command.args(["run", "-m", path(&dir), "-p", "hi", "-n", "1", "--device", "cpu"]).stdin(input);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("waiting for standard input"), "{line}");
    drop((command, held_open));
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_environment_names_the_model() {
    let dir = tiny_with_text();
    let with = |model: &str, arguments: &[&str]| run(program().args(arguments).env("KILN_MODEL", model), b"");
    let name = dir.path().file_name().unwrap().to_str().unwrap();
    let base = ["run", "--tokens", "2", "-n", "1", "--device", "cpu", "--json"];
    assert_eq!(with(path(&dir), &base).json()["model"], name);
    assert_eq!(with("/no/such", &[&base[..], &["-m", path(&dir)]].concat()).json()["model"], name);
    assert_eq!(with("", &base).json()["model"], "demo");
    assert_eq!(with("/no/such", &[&base[..], &["-m", "demo"]].concat()).json()["model"], "demo");
    with("/no/such", &base).failed(2, &["/no/such does not exist"]);
    assert_eq!(with(path(&dir), &["tokenize", "hi"]).json(), kiln(&["tokenize", "-m", path(&dir), "hi"]).json());
    // A shape takes the place of a model, whatever the environment says.
    assert_eq!(with("/no/such", &["plan", "--shape", "gemma3-1b", "--machine", "780m", "--json"]).json()["fits"], true);
}
