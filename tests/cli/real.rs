//! Real weights: Gemma 3 270M on every executor, by every command that runs it. What random weights do not show: a vocabulary
//! of 262,144, types that change from layer to layer, outliers in what products multiply, and choices that mean something.

use crate::common::program::{Ran, kiln};
use crate::common::{gemma3_270m, golden, ids};
use serde_json::{Value, json};

const EXECUTORS: [&str; 3] = ["reference", "cpu", "vulkan"];

/// Texts, and the 16 tokens that the model goes on with.
const TEXTS: [(&str, &str); 4] = [
    ("The capital of France is", " the capital of the country of France. It is the largest city in France and"),
    ("Monday, Tuesday, Wednesday,", " Thursday, Friday, Saturday, Sunday, and Monday, Tuesday, Wednesday, Thursday"),
    ("def fibonacci(n):\n    if n < 2:\n        return n\n    return", " fibonacci(n-1) + fibonacci(n-2)\n\n"),
    (
        "Die Hauptstadt von Deutschland ist",
        " ein Ort, der sich mit seinen vielen Sehenswürdigkeiten und kulturellen Sehenswürdig",
    ),
];

/// The greedy continuation of a text, as an object.
fn go_on(text: &str, device: &str, n: usize, more: &[&str]) -> Value {
    let n = n.to_string();
    let base =
        ["run", "-m", &gemma3_270m(), "--raw", "-p", text, "-n", &n, "--device", device, "--tune", "off", "--json"];
    kiln(&[&base[..], more].concat()).json()
}

#[test]
#[ignore = "takes Gemma 3 270M (tools/fetch-gemma) and minutes: tools/test --full runs it"]
fn every_executor_goes_on_with_the_same_tokens() {
    for (text, wanted) in TEXTS {
        for device in EXECUTORS {
            let got = go_on(text, device, 16, &[]);
            assert_eq!(got["text"], wanted, "{text:?} on {device}");
            assert!(got["device"].as_str().unwrap().len() > 3 && got["prompt_tokens"][0] == 2, "{got}");
        }
    }
}

/// The text was written for this test, so that no model has learnt it.
fn perplexity(device: &str) -> f64 {
    let text = golden("prose.txt").display().to_string();
    let measured = kiln(&["perplexity", "-m", &gemma3_270m(), "--ctx", "256", "--device", device, "--json", &text]);
    let measured = measured.json();
    assert_eq!((&measured["windows"], &measured["scored"]), (&json!(3), &json!(3 * 127)), "{measured}");
    measured["perplexity"].as_f64().unwrap()
}

#[test]
#[ignore = "takes Gemma 3 270M (tools/fetch-gemma) and minutes: tools/test --full runs it"]
fn every_executor_has_the_references_perplexity() {
    let reference = perplexity("reference");
    println!("reference: {reference}");
    for (device, bound) in [("vulkan", 1e-4), ("cpu", 5e-4)] {
        let got = perplexity(device);
        let off = got / reference - 1.0;
        println!("{device}: {got}, {off:+.1e} of {bound:.0e}");
        assert!(off.abs() < bound, "{device} has a perplexity of {got}, the reference of {reference}");
    }
}

#[test]
#[ignore = "takes Gemma 3 270M (tools/fetch-gemma) and a minute: tools/test --full runs it"]
fn executors_are_equal_step_by_step() {
    let model = gemma3_270m();
    for device in ["cpu", "vulkan"] {
        let text = "The ferry to the outer islands leaves at half past seven, and on most mornings the quay is wet.";
        let found = kiln(&["compare", "-m", &model, "--b", device, "-p", text, "--json"]).json();
        assert_eq!(found["equal"], true, "{device}: {found}");
    }
}

/// What a draft gets right is taken, and what it gets wrong changes nothing.
#[test]
#[ignore = "takes Gemma 3 270M (tools/fetch-gemma) and a minute: tools/test --full runs it"]
fn drafts_change_no_token() {
    let folder = tempfile::tempdir().unwrap();
    // Greedily this model comes back to what it said.
    let text = TEXTS[1].0;
    let plain = go_on(text, "cpu", 48, &[]);
    let known = folder.path().join("known");
    std::fs::write(&known, plain["text"].as_str().unwrap()).unwrap();
    let drafts = [&["--speculate", "4"][..], &["--draft-text", known.to_str().unwrap()]];
    // A driver for the processor takes half a second a token.
    for (device, n, more) in [("cpu", 48, drafts[0]), ("cpu", 48, drafts[1]), ("vulkan", 24, drafts[1])] {
        let drafted = go_on(text, device, n, more);
        let plain = &ids(&plain["tokens"])[..n];
        assert_eq!(ids(&drafted["tokens"]), plain, "{more:?} on {device}");
        assert!(drafted["accepted"].as_u64().unwrap() > 8, "{more:?} on {device}: {drafted}");
        assert!(drafted["tokens_per_pass"].as_f64().unwrap() > 1.2, "{more:?} on {device}: {drafted}");
    }
}

/// Each line of a batch, several at once and sampled too, gets what it gets alone.
#[test]
#[ignore = "takes Gemma 3 270M (tools/fetch-gemma) and a minute: tools/test --full runs it"]
fn lines_of_a_batch_get_what_they_get_alone() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    let sampled = ["--temp", "1", "--seed", "7"];
    let line = |text: &str, is_sampled: bool| match is_sampled {
        true => json!({"prompt": text, "raw": true, "n": 16, "temp": 1, "seed": 7}),
        false => json!({"prompt": text, "raw": true, "n": 16}),
    };
    let asked: Vec<(&str, bool)> = TEXTS.iter().flat_map(|(text, _)| [(*text, false), (*text, true)]).collect();
    let lines: Vec<String> = asked.iter().map(|(text, is_sampled)| line(text, *is_sampled).to_string()).collect();
    std::fs::write(&input, lines.join("\n")).unwrap();
    let (input, output) = (input.display().to_string(), folder.path().join("out.jsonl"));
    let base = ["batch", "-m", &gemma3_270m(), &input, "--batch", "4", "--ctx", "128", "--device", "cpu"];
    let done: Ran = kiln(&[&base[..], &["-o", output.to_str().unwrap()]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    let answers = std::fs::read_to_string(&output).unwrap();
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), asked.len());
    for ((text, is_sampled), got) in asked.into_iter().zip(answers) {
        let alone = go_on(text, "cpu", 16, if is_sampled { &sampled } else { &[] });
        assert_eq!(ids(&got["tokens"]), ids(&alone["tokens"]), "{text:?}, sampled: {is_sampled}");
    }
}
