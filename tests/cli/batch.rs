//! `kiln batch`: a line out for each line in, as `kiln run` answers it, also after an interruption.

use crate::common::program::{Ran, kiln, program, run, start};
use crate::ends::{DEFAULT, with_signals};
use crate::{path, tiny, tiny_with_text};
use serde_json::{Value, json};
use std::path::Path;

/// Lines of a file, each an object.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn write(directory: &tempfile::TempDir, name: &str, lines: &[Value]) -> String {
    let path = directory.path().join(name);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// What does not depend on the time.
fn lasting(line: &Value) -> Value {
    let mut line = line.clone();
    for key in ["prefill_s", "decode_s", "decode_tok_s"] {
        line.as_object_mut().unwrap().remove(key);
    }
    line
}

/// The arguments with which `kiln run` is asked the same as by a line.
fn arguments_of(asked: &Value) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    for (key, value) in asked.as_object().unwrap() {
        let option = if key == "n" { "-n".into() } else { format!("--{key}") };
        match value {
            Value::Bool(_) => arguments.push(option),
            Value::String(text) => arguments.extend([option, text.clone()]),
            Value::Array(words) if key == "stop" => {
                arguments.extend(words.iter().flat_map(|w| [option.clone(), w.as_str().unwrap().into()]));
            }
            Value::Array(ids) if key == "tokens" => {
                arguments.extend([option, ids.iter().map(Value::to_string).collect::<Vec<_>>().join(",")]);
            }
            // One message is what -p makes of its text.
            Value::Array(messages) => {
                arguments.extend(["-p".into(), messages[0]["content"].as_str().unwrap().into()]);
            }
            number => arguments.extend([option, number.to_string()]),
        }
    }
    arguments
}

#[test]
fn each_line_gets_what_run_answers() {
    let model = tiny_with_text();
    let asked = [
        json!({"prompt": "hello", "n": 6, "ignore-eos": true}),
        json!({"prompt": "hello there", "raw": true, "n": 9, "temp": 1.5, "top-k": 20, "seed": 3}),
        json!({"prompt": "hello", "system": "be short", "n": 3}),
        json!({"tokens": [2, 5, 9], "n": 5, "temp": 0.7, "top-p": 0.9, "min-p": 0.01, "seed": 4}),
        json!({"messages": [{"role": "user", "content": "hello"}], "n": 6, "ignore-eos": true}),
        json!({"prompt": "hello", "n": 0}),
        json!({"prompt": "a b c", "n": 8, "repeat-penalty": 1.3, "seed": 5, "stop": ["e", "o"]}),
    ];
    let input = write(&model, "in.jsonl", &asked);
    let output = model.path().join("out.jsonl").display().to_string();
    let base = ["-m", path(&model), "--device", "cpu"];
    let done = kiln(&[&["batch", &input, "-o", &output, "--batch", "3"], &base[..]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.is_empty() && done.stderr.starts_with("[7 lines, 0 failed; "), "{}", done.stderr);
    let answered = lines(&std::fs::read_to_string(&output).unwrap());
    assert_eq!(answered.len(), asked.len());
    for (i, (asked, got)) in asked.iter().zip(&answered).enumerate() {
        let arguments = arguments_of(asked);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let alone = kiln(&[&["run", "--json"], &base[..], &arguments].concat()).json();
        assert_eq!(got["index"], i);
        for key in ["model", "device", "prompt_tokens", "tokens", "text", "finish", "seed"] {
            assert_eq!(got[key], alone[key], "{key} of {asked}");
        }
        for key in alone.as_object().unwrap().keys() {
            assert!(got.get(key).is_some(), "`run --json` has {key}");
        }
    }
}

/// An empty system message is none: the options' own is meant.
#[test]
fn an_empty_system_message_is_none() {
    let model = tiny_with_text();
    let empty = json!([{"role": "system", "content": ""}, {"role": "user", "content": "hello"}]);
    let asked = [
        json!({"prompt": "hello", "n": 0}),
        json!({"prompt": "hello", "system": "", "n": 0}),
        json!({"messages": [{"role": "user", "content": "hello"}], "n": 0}),
        json!({"messages": empty, "n": 0}),
    ];
    let input = write(&model, "in.jsonl", &asked);
    let base = ["-m", path(&model), "--device", "cpu"];
    let prompts = |system: &[&str]| {
        let done = kiln(&[&["batch", &input, "-o", "-"], &base[..], system].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        lines(&done.stdout).into_iter().map(|line| line["prompt_tokens"].clone()).collect::<Vec<Value>>()
    };
    let (none, brief) = (prompts(&[]), prompts(&["--system", "be short"]));
    assert_eq!(none, vec![none[0].clone(); 4]);
    assert_eq!(prompts(&["--system", ""]), none);
    // Messages are as they are given.
    assert!(brief[0] != none[0] && brief[1] == brief[0] && brief[2..] == none[2..], "{brief:?}");
    let run = ["run", "--json", "-p", "hello", "--system", "", "-n", "0"];
    assert_eq!(kiln(&[&run, &base[..]].concat()).json()["prompt_tokens"], none[0]);
}

/// Lines of many kinds: short and long, alike at their beginnings, greedy and with every setting of the sampler.
fn mixed(count: usize) -> Vec<Value> {
    let words =
        ["Where", "is", "the", "aquarium", "?", "I", "have", "two", "children", "with", "me", ".", "When", "does"];
    let line = |i: usize| {
        let length = 1 + i * 7 % 60;
        let text: Vec<&str> = (0..length).map(|at| words[(at + i % 5 * (at / 9)) % words.len()]).collect();
        let mut line = match i % 3 {
            0 => json!({"messages": [{"role": "user", "content": text.join(" ")}]}),
            1 => json!({"prompt": text.join(" "), "system": "You are the guide of a museum."}),
            _ => json!({"prompt": text.join(" "), "raw": true}),
        };
        line["n"] = json!(1 + i * 5 % 23);
        if i % 2 == 1 {
            line["ignore-eos"] = json!(true);
        }
        let settings = match i % 7 {
            1 => json!({"temp": 1.0, "seed": i}),
            2 => json!({"temp": 0.8, "top-k": 0, "top-p": 1.0, "seed": i}),
            3 => json!({"temp": 1.3, "top-k": 5, "seed": i, "repeat-penalty": 1.2}),
            4 => json!({"temp": 0.6, "top-k": 0, "top-p": 0.7, "min-p": 0.05, "seed": i}),
            5 => json!({"repeat-penalty": 1.4, "temp": 0, "seed": i}),
            6 => json!({"stop": ["the"], "temp": 0}),
            _ => json!({"temp": 0}),
        };
        settings.as_object().unwrap().iter().for_each(|(key, value)| line[key] = value.clone());
        line
    };
    (0..count).map(line).collect()
}

/// The built-in model's answers to lines, `sequences` at once, without what depends on the time.
fn answers(directory: &tempfile::TempDir, asked: &[Value], sequences: usize) -> Vec<Value> {
    let input = write(directory, "in.jsonl", asked);
    let done = kiln(&["batch", &input, "-o", "-", "--device", "cpu", "--batch", &sequences.to_string()]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    lines(&done.stdout).iter().map(lasting).collect()
}

#[test]
fn lines_get_what_run_answers_each_alone() {
    let directory = tempfile::tempdir().unwrap();
    let asked = mixed(if crate::common::runs_all() { 50 } else { 16 });
    for (asked, got) in asked.iter().zip(answers(&directory, &asked, 16)) {
        let arguments = arguments_of(asked);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let alone = kiln(&[&["run", "--json", "--device", "cpu"], &arguments[..]].concat()).json();
        for key in ["prompt_tokens", "tokens", "text", "finish", "seed"] {
            assert_eq!(got[key], alone[key], "{key} of {asked}");
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_thousand_lines_get_the_same_answers_together_killed_and_each_alone() {
    let directory = tempfile::tempdir().unwrap();
    let asked = mixed(1000);
    let together = answers(&directory, &asked, 32);
    assert_eq!(together, answers(&directory, &asked, 1));
    let (input, output) = (directory.path().join("in.jsonl"), directory.path().join("out.jsonl"));
    let written = || std::fs::read_to_string(&output).unwrap_or_default();
    for kept in [100, 500, 900] {
        let arguments = [Path::new("batch"), &input, Path::new("-o"), &output];
        let mut child = program().args(arguments).args(["--device", "cpu", "--batch", "32"]).spawn().unwrap();
        while written().lines().count() < kept {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let done =
        kiln(&["batch", input.to_str().unwrap(), "-o", output.to_str().unwrap(), "--device", "cpu", "--batch", "32"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(lines(&written()).iter().map(lasting).collect::<Vec<_>>(), together);
}

#[test]
fn a_bad_line_fails_alone() {
    let model = tiny_with_text();
    let bad = [
        ("no json", "not understood: it is no JSON at column"),
        ("", "the line is empty"),
        ("  ", "the line is empty"),
        (r#"["hello"]"#, "no JSON object"),
        (r#"{"promt": "hello"}"#, "unknown field `promt`"),
        (r#"{"prompt": "hello", "prompt": "there"}"#, "duplicate field `prompt`"),
        (r#"{"prompt": "hello", "tokens": [1]}"#, "more than one of prompt, messages and tokens"),
        (r#"{"n": 1}"#, "none of prompt, messages and tokens"),
        (r#"{"tokens": [1], "n": "many"}"#, "expected a whole number of 0 or more"),
        (r#"{"custom_id": {}, "prompt": "hello"}"#, "id is neither a text nor an integer of 64 bits"),
        (r#"{"id": 18446744073709551616, "prompt": "hello"}"#, "id is neither a text nor an integer of 64 bits"),
        (r#"{"id": 1.0, "prompt": "hello"}"#, "id is neither a text nor an integer of 64 bits"),
        (r#"{"id": 1e400, "prompt": "hello"}"#, "number out of range"),
        (r#"{"custom_id": 1e400, "body": {"prompt": "hello"}}"#, "number out of range"),
        (r#"7"#, "expected an object"),
        (r#"{"tokens": [5], "raw": true}"#, "raw goes with a prompt"),
        (r#"{"prompt": "a", "raw": true, "system": "b"}"#, "system goes with a prompt in the chat template"),
        (r#"{"tokens": []}"#, "empty"),
        (r#"{"tokens": [512]}"#, "vocabulary"),
        (r#"{"prompt": "hello", "temp": -1}"#, "temperature"),
        (r#"{"prompt": "hello", "n": -1}"#, "not understood"),
        (r#"{"prompt": "hello", "stop": [""]}"#, "stop string"),
        (r#"{"messages": [{"role": "user", "content": [{"type": "image"}]}]}"#, "image"),
    ];
    let good = r#"{"prompt": "hello", "n": 2, "ignore-eos": true}"#;
    let mut input = format!("{good}\n");
    bad.iter().for_each(|(line, _)| input += &format!("{line}\n"));
    // The last line has no end.
    input += good;
    let mut command = program();
    command.args(["batch", "-", "-o", "-", "-m", path(&model), "--device", "cpu"]);
    let done = run(&mut command, input.as_bytes());
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stderr.contains("23 of 25 lines failed"), "{}", done.stderr);
    let answered = lines(&done.stdout);
    assert_eq!(answered.len(), bad.len() + 2);
    assert!(answered.iter().enumerate().all(|(i, line)| line["index"] == i));
    for ((line, cause), got) in bad.iter().zip(&answered[1..]) {
        let message = got["error"]["message"].as_str().unwrap_or_else(|| panic!("{line} passed"));
        assert!(message.contains(cause), "{line}: {message}");
        assert!(got["error"]["exit"] == 2 && !got["error"]["remedy"].is_null());
    }
    for good in [&answered[0], &answered[bad.len() + 1]] {
        assert_eq!(good["tokens"].as_array().unwrap().len(), 2);
    }
}

/// Wherever the output was cut off, the same command completes it to what one run writes.
#[test]
fn an_output_in_part_is_completed_and_a_foreign_one_refused() {
    let model = tiny_with_text();
    let asked: Vec<Value> =
        (0..6).map(|i| json!({"tokens": [2, 5 + i], "n": 3, "temp": 1, "seed": i, "ignore-eos": true})).collect();
    let input = write(&model, "in.jsonl", &asked);
    let output = model.path().join("out.jsonl");
    let batch = |input: &str, more: &[&str]| {
        let base = ["batch", input, "-o", output.to_str().unwrap(), "-m", path(&model), "--device", "cpu"];
        kiln(&[&base[..], more].concat())
    };
    assert_eq!(batch(&input, &[]).code, 0);
    let whole = std::fs::read_to_string(&output).unwrap();
    let want: Vec<Value> = lines(&whole).iter().map(lasting).collect();
    let third = whole.match_indices('\n').nth(2).unwrap().0 + 1;
    // After a line, within one, before the first, and when nothing is left.
    for cut in [third, third + 9, 0, whole.len()] {
        std::fs::write(&output, &whole[..cut]).unwrap();
        let done = batch(&input, &[]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let got: Vec<Value> = lines(&std::fs::read_to_string(&output).unwrap()).iter().map(lasting).collect();
        assert_eq!(got, want, "cut at {cut}");
    }
    let kept = &whole[..third];
    std::fs::write(&output, kept).unwrap();
    let mut others = asked.clone();
    others[1] = json!({"tokens": [7], "n": 3});
    let other = write(&model, "other.jsonl", &others);
    batch(&other, &[]).refused(2, &["out.jsonl is of another input, model or options, from line 2", "-o"]);
    batch(&input, &["--top-k", "9"]).refused(2, &["from line 1"]);
    batch(&write(&model, "short.jsonl", &asked[..2]), &[]).refused(2, &["from line 3"]);
    let config = model.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text} ")).unwrap();
    batch(&input, &[]).refused(2, &["from line 1"]);
    std::fs::write(&config, text).unwrap();
    assert_eq!(std::fs::read_to_string(&output).unwrap(), kept, "nothing is lost");
    // A last line without an end is only dropped if it is one of these.
    for foreign in ["precious", "{\"index\":3,\"mine\"", "\0\0"] {
        let text = format!("{kept}{foreign}");
        std::fs::write(&output, &text).unwrap();
        batch(&input, &[]).refused(2, &["out.jsonl is of another input"]);
        assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
    }
}

/// Answers came back under their number alone.
#[test]
fn each_line_gets_its_id_back() {
    let model = tiny_with_text();
    let body = json!({"model": "any", "messages": [{"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hello"}], "max_tokens": 3, "temperature": 0, "ignore_eos": true, "stream": false,
        "n": 1, "frequency_penalty": 0.0, "response_format": {"type": "text"}, "user": "anne", "tools": [], "stop": null});
    let line = |id: &str, body: &Value| json!({"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body});
    let with = |key: &str, value: Value| {
        let mut body = body.clone();
        body[key] = value;
        line(key, &body)
    };
    let mut elsewhere = line("elsewhere", &body);
    elsewhere["url"] = "/v1/embeddings".into();
    let asked = [
        json!({"id": 7, "prompt": "hello", "n": 1}),
        json!({"custom_id": "a", "id": "b", "tokens": [2, 5], "n": 1}),
        json!({"prompt": "hello", "n": 1}),
        line("plain", &body),
        json!({"id": "none"}),
        json!({"id": ["x"], "prompt": "hello"}),
        with("response_format", json!({"type": "json_object"})),
        with("n", json!(2)),
        with("max_tokens", json!("many")),
        elsewhere,
        json!({"custom_id": "body", "body": 7}),
    ];
    let input = write(&model, "in.jsonl", &asked);
    let done = kiln(&["batch", &input, "-o", "-", "-m", path(&model), "--device", "cpu"]);
    let got = lines(&done.stdout);
    assert_eq!(got.len(), asked.len());
    for (asked, got) in asked.iter().zip(&got) {
        for key in ["id", "custom_id"] {
            let expected = if asked[key].is_array() { got[key].clone() } else { asked[key].clone() };
            assert_eq!(got[key], expected, "{asked}: {got}");
        }
    }
    // As its messages alone are answered, and in OpenAI's words beside Kiln's.
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]);
    let same = write(&model, "same.jsonl", &[json!({"messages": messages, "n": 3, "ignore-eos": true})]);
    let same = lines(&kiln(&["batch", &same, "-o", "-", "-m", path(&model), "--device", "cpu"]).stdout);
    assert_eq!(got[3]["tokens"], same[0]["tokens"]);
    let response = &got[3]["response"];
    assert_eq!((&response["status_code"], &got[3]["error"]), (&json!(200), &Value::Null));
    let choice = &response["body"]["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&same[0]["text"], &json!("length")));
    assert_eq!(response["body"]["usage"]["completion_tokens"], 3);
    for (got, cause) in got[4..].iter().zip([
        "none of prompt, messages and tokens",
        "id is neither a text nor an integer of 64 bits",
        "does not serve response_format",
        "does not serve n of a body",
        "expected a whole number of 0 or more",
        "another path",
        "expected the body to be an object",
    ]) {
        let message = got["error"]["message"].as_str().unwrap_or_else(|| panic!("{got} passed"));
        assert!(message.contains(cause), "{cause}: {message}");
    }
    assert!(done.code == 1 && done.stderr.contains("7 of 11 lines failed"), "{}", done.stderr);
}

/// There was no way but to begin anew.
#[test]
fn what_failed_is_asked_again_in_its_place() {
    let model = tiny_with_text();
    // The one in the middle fails always.
    let asked =
        [json!({"tokens": [2, 5], "n": 2}), json!({"tokens": [512], "n": 2}), json!({"tokens": [2, 7], "n": 2})];
    let input = write(&model, "in.jsonl", &asked);
    let output = model.path().join("out.jsonl");
    let batch = |more: &[&str]| {
        let base = ["batch", &input, "-o", output.to_str().unwrap(), "-m", path(&model), "--device", "cpu"];
        kiln(&[&base[..], &["--ignore-eos"], more].concat())
    };
    let failing = |done: Ran, lines: &str| {
        assert!(done.code == 1 && done.stderr.contains(lines), "{}", done.stderr);
        done.stderr
    };
    assert!(failing(batch(&[]), "1 of 3 lines failed").contains("--retry-failed"));
    let whole = std::fs::read_to_string(&output).unwrap();
    let want: Vec<Value> = lines(&whole).iter().map(lasting).collect();
    // As after a fault of the device: two lines failed that can be answered.
    let failed = |line: &Value| json!({"index": line["index"], "request": line["request"], "error": {"message": "x"}});
    let mut broken = lines(&whole);
    broken[0] = failed(&broken[0]);
    broken[2] = failed(&broken[2]);
    let text: String = broken.iter().map(|line| format!("{line}\n")).collect();
    let read = || lines(&std::fs::read_to_string(&output).unwrap()).iter().map(lasting).collect::<Vec<Value>>();
    // All lines are there, and some that never were; a link to the file stays one.
    for kept in [3, 1] {
        let text: String = text.split_inclusive('\n').take(kept).collect();
        std::fs::write(&output, text).unwrap();
        let link = model.path().join("link.jsonl");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink("out.jsonl", &link).unwrap();
        let base = ["batch", &input, "-o", link.to_str().unwrap(), "-m", path(&model), "--device", "cpu"];
        let done = kiln(&[&base[..], &["--ignore-eos", "--retry-failed"]].concat());
        let said = failing(done, "1 of 3 lines failed");
        assert!(said.contains(&format!("{kept} of which failed and are asked again")), "{said}");
        assert_eq!(read(), want, "{kept}");
        assert!(link.is_symlink());
    }
    // Without the option they stay.
    std::fs::write(&output, &text).unwrap();
    failing(batch(&[]), "3 of 3 lines failed");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
}

/// SIGINT ends it by that signal; what was answered is there, and the same command goes on.
#[test]
fn an_interrupted_batch_goes_on_where_it_was() {
    let model = tiny_with_text();
    // The last two take long, so that the interrupt comes before their end on a machine that is busy, too.
    let n = |i| if i < 4 { 4 } else { 1000 };
    let asked: Vec<Value> = (0..6).map(|i| json!({"tokens": [2, 5 + i], "n": n(i), "ignore-eos": true})).collect();
    let input = write(&model, "in.jsonl", &asked);
    let output = model.path().join("out.jsonl");
    let arguments = ["batch", &input, "-o", output.to_str().unwrap(), "-m", path(&model), "--device", "cpu"];
    let mut child = with_signals(&[DEFAULT]).args(arguments).args(["--batch", "2"]).spawn().unwrap();
    let written = || std::fs::read_to_string(&output).unwrap_or_default().lines().count();
    while written() < 3 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::yield_now();
    }
    assert!(run(start("kill").args(["-INT", &child.id().to_string()]), b"").code == 0);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(2));
    let there = written();
    assert!((3..=4).contains(&there), "{there} lines");
    let done = kiln(&[&arguments[..], &["--batch", "2"]].concat());
    assert!(done.code == 0 && done.stderr.contains("goes on after"), "{}", done.stderr);
    assert_eq!(written(), 6);
}

#[test]
fn odd_arguments_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let input = write(&directory, "in.jsonl", &[json!({"tokens": [2]})]);
    let there = |name: &str| directory.path().join(name).display().to_string();
    let batch = |arguments: &[&str]| kiln(&[&["batch", "-m", &tiny(), "--device", "cpu"], arguments].concat());
    batch(&["/nope", "-o", "-"]).refused(2, &["/nope does not exist"]);
    batch(&[&input, "-o", "/nope/out.jsonl"]).refused(1, &["cannot write /nope/out.jsonl"]);
    batch(&[&input]).refused(2, &["--output <OUT.jsonl>", "kiln batch --help"]);
    batch(&[&input, "-o", "-", "--batch", "0"]).refused(2, &["--batch"]);
    batch(&[&input, "-o", &input]).refused(2, &["IN and OUT are the same file"]);
    // Neither a name nor a missing line end matters.
    let link = there("link");
    std::os::unix::fs::symlink(&input, &link).unwrap();
    std::fs::write(&input, "{\"tokens\":[2]}").unwrap();
    batch(&[&input, "-o", &link]).refused(2, &["IN and OUT are the same file"]);
    batch(&[directory.path().to_str().unwrap(), "-o", &there("none")]).refused(2, &["is a directory; give a file"]);
    assert!(!Path::new(&there("none")).exists());
    batch(&[&input, "-o", "-", "--temp", "-1"]).refused(2, &["temperature"]);
    assert_eq!(std::fs::read_to_string(&input).unwrap(), "{\"tokens\":[2]}");
    // No line, no reply.
    let empty = batch(&[&write(&directory, "empty.jsonl", &[]), "-o", "-"]);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, ""));
    assert!(empty.stderr.ends_with("empty.jsonl has no lines: there is nothing to do\n"), "{}", empty.stderr);
    // A model without a tokenizer takes ids. What is done is not done again.
    let again = || batch(&[&input, "-o", &there("out.jsonl"), "-n", "2", "--ignore-eos"]);
    assert_eq!(again().code, 0);
    let done = again();
    assert!(done.code == 0 && done.stderr.contains("nothing is left to do, [1 line, 0 failed]"), "{}", done.stderr);
    assert_eq!(lines(&std::fs::read_to_string(Path::new(&there("out.jsonl"))).unwrap())[0]["text"], Value::Null);
}
