//! Thoughts and suppressed tokens, by a model of tests/golden that thinks where it is asked to.

use crate::common::program::{kiln, program, run};
use crate::common::{golden, ids};
use crate::{model_of, path};
use serde_json::{Value, json};

const ANSWER: &str = "The river moves.";
const THOUGHT: &str = "A simple question";
const FILES: [&str; 3] = ["thinker/config.json", "thinker/model.safetensors", "thinker/tokenizer.json"];

#[test]
fn a_thought_goes_to_standard_error_and_the_answer_alone_to_standard_output() {
    let model = golden("thinker").display().to_string();
    let base = ["run", "-m", &model, "-p", "Hello", "--device", "cpu"];
    let with = |more: &[&str]| kiln(&[&base[..], more].concat());
    assert_eq!(with(&[]).stdout, format!("{ANSWER}\n"));
    assert!(!with(&[]).stderr.contains(THOUGHT));
    let thinks = with(&["--think"]);
    assert_eq!(thinks.stdout, format!("{ANSWER}\n"));
    assert!(thinks.stderr.starts_with(&format!("{THOUGHT}\n\n[")), "{:?}", thinks.stderr);
    assert_eq!(with(&["--think", "--quiet"]).stderr, "");
    let whole = with(&["--think", "--json"]).json();
    assert_eq!((&whole["text"], &whole["thought"]), (&json!(ANSWER), &json!(THOUGHT)));
    assert_eq!(with(&["--json"]).json()["thought"], Value::Null);
    // A limit within the thought leaves no answer.
    let cut = with(&["--think", "--json", "-n", "4"]).json();
    assert_eq!((&cut["text"], &cut["thought"]), (&json!(""), &json!("A simple")));
    let mut painted = program();
    let painted = run(painted.args(base).arg("--think").env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1"), b"");
    assert!(painted.stderr.starts_with("\u{1b}[2mA\u{1b}[0m"), "{:?}", painted.stderr);
}

#[test]
fn a_model_that_cannot_think_refuses_it_in_one_line() {
    kiln(&["run", "-p", "Hello", "--device", "cpu", "--think"]).refused(2, &["knows no thoughts", "leave out --think"]);
    kiln(&["run", "-p", "Hello", "--device", "cpu", "--think", "--raw"]).refused(2, &["--think", "--raw"]);
}

#[test]
fn a_line_of_a_batch_has_its_thought_beside_its_text() {
    let place = tempfile::tempdir().unwrap();
    let (input, output) = (place.path().join("in.jsonl"), place.path().join("out.jsonl"));
    let body = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "Hello"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body})
    };
    let lines = [
        json!({"prompt": "Hello", "think": true}),
        json!({"prompt": "Hello"}),
        json!({"prompt": "Hello", "think": true, "raw": true}),
        body(json!({"enable_thinking": true})),
        body(json!({"reasoning_effort": "none"})),
    ];
    std::fs::write(&input, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let model = golden("thinker").display().to_string();
    let ran = kiln(&["batch", "-m", &model, path_of(&input), "-o", path_of(&output), "--device", "cpu"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let out = std::fs::read_to_string(&output).unwrap();
    let out: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (at, thought) in [(0, json!(THOUGHT)), (1, Value::Null), (3, json!(THOUGHT)), (4, Value::Null)] {
        assert_eq!((&out[at]["text"], &out[at]["thought"]), (&json!(ANSWER), &thought), "{}", out[at]);
    }
    assert!(out[2]["error"]["message"].as_str().unwrap().contains("think goes with the chat template"), "{}", out[2]);
    let message = |at: usize| &out[at]["response"]["body"]["choices"][0]["message"];
    assert_eq!((&message(3)["content"], &message(3)["reasoning_content"]), (&json!(ANSWER), &json!(THOUGHT)));
    assert_eq!(message(4).get("reasoning_content"), None);
}

fn path_of(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// The token that the model would choose is one that its generation_config.json suppresses.
#[test]
fn a_suppressed_token_is_never_chosen() {
    let (plain, suppressing) = (model_of(&FILES), model_of(&FILES));
    let planted = ids(&kiln(&["tokenize", "-m", path(&plain), "--no-bos", "The", "--json"]).json()["ids"])[0];
    let config = json!({"suppress_tokens": [planted]}).to_string();
    std::fs::write(suppressing.path().join("generation_config.json"), config).unwrap();
    for device in ["reference", "cpu", "vulkan"] {
        for sampling in [&[][..], &["--temp", "1", "--seed", "3"], &["--speculate", "3"]] {
            let chosen = |dir: &tempfile::TempDir| {
                let base = ["run", "-m", path(dir), "-p", "Hello", "-n", "6", "--json", "--device", device];
                ids(&kiln(&[&base[..], sampling].concat()).json()["tokens"])
            };
            assert!(chosen(&plain).contains(&planted), "{device} {sampling:?}");
            let tokens = chosen(&suppressing);
            assert!(!tokens.contains(&planted), "{device} {sampling:?}: {tokens:?}");
        }
    }
    let wrong = json!({"suppress_tokens": [544]}).to_string();
    std::fs::write(suppressing.path().join("generation_config.json"), wrong).unwrap();
    kiln(&["run", "-m", path(&suppressing), "-p", "x"])
        .refused(2, &["generation_config.json", "suppress_tokens", "544"]);
}
