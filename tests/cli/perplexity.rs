//! `kiln perplexity`: its figure against the logits that `kiln logits` gives.

use crate::common::program::{kiln, program, run};
use crate::{list, path, tiny_with_text};
use serde_json::Value;
use std::path::Path;

/// The rows of `logits` in a file that `kiln logits --all --out` wrote.
fn rows(file: &Path, vocab: usize) -> Vec<Vec<f64>> {
    let bytes = std::fs::read(file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let values: Vec<f64> = tensors
        .tensor("logits")
        .unwrap()
        .data()
        .chunks_exact(4)
        .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
        .collect();
    values.chunks(vocab).map(<[f64]>::to_vec).collect()
}

#[test]
fn the_figure_is_that_of_the_logits_of_each_window() {
    const WINDOW: usize = 16;
    let dir = tiny_with_text();
    let text = dir.path().join("text");
    // The line end at the end is not part of the text.
    let words = "The quick brown fox jumps over the lazy dog, again and again and again.";
    std::fs::write(&text, format!("{words}\n")).unwrap();
    let text = text.to_str().unwrap();
    let ids = crate::common::ids(&kiln(&["tokenize", "-m", path(&dir), words]).json()["ids"]);
    assert!(ids.len() >= 2 * WINDOW, "{}", ids.len());

    let elsewhere = tempfile::tempdir().unwrap();
    let out = elsewhere.path().join("out.safetensors");
    let mut losses: Vec<f64> = Vec::new();
    for part in ids.chunks_exact(WINDOW) {
        let window = [&ids[..1], &part[1..]].concat();
        let arguments = ["logits", "-m", path(&dir), "--all", "--device", "cpu", "--json", "--tokens", &list(&window)];
        let ran = kiln(&[&arguments[..], &["--out", out.to_str().unwrap()]].concat()).json();
        let rows = rows(&out, ran["vocab"].as_u64().unwrap() as usize);
        for at in WINDOW / 2..WINDOW - 1 {
            let sum: f64 = rows[at].iter().map(|x| x.exp()).sum();
            losses.push(sum.ln() - rows[at][window[at + 1] as usize]);
        }
    }
    let count = losses.len() as f64;
    let mean = losses.iter().sum::<f64>() / count;
    let variance = losses.iter().map(|x| x * x).sum::<f64>() / count - mean * mean;
    let error = (variance / (count - 1.0)).sqrt() * mean.exp();

    let base = ["perplexity", "-m", path(&dir), "--device", "cpu", "--context", "16"];
    let measured = kiln(&[&base[..], &[text, "--json"]].concat()).json();
    let near = |key: &str, wanted: f64| {
        let found = measured[key].as_f64().unwrap();
        assert!((found / wanted - 1.0).abs() < 1e-4, "{key}: {found}, not {wanted}");
    };
    near("perplexity", mean.exp());
    near("error", error);
    near("mean_nll", mean);
    assert_eq!(measured["scored"], losses.len());
    assert_eq!(measured["tokens"], ids.len());
    assert_eq!((&measured["windows"], &measured["context"]), (&Value::from(ids.len() / WINDOW), &Value::from(WINDOW)));

    // For a person: the figure on standard output, the rest on standard error; and from standard input.
    let said = run(program().args([&base[..], &["-"]].concat()), words.as_bytes());
    assert_eq!(said.stdout, format!("perplexity {:.4} ± {:.4}\n", mean.exp(), error));
    assert!(said.code == 0 && said.stderr.contains("tokens scored in"), "{}", said.stderr);
}

/// As llama.cpp has it: of a text, only `<bos>` before it is a special token.
#[test]
fn special_tokens_that_the_text_spells_stay_text() {
    let dir = tiny_with_text();
    let spelled = "<end_of_turn>".repeat(8);
    let measure = |text: &str| {
        let arguments = ["perplexity", "-m", path(&dir), "--device", "cpu", "--ctx", "8", "--json", "-"];
        run(program().args(arguments), text.as_bytes()).json()
    };
    let parsed = kiln(&["tokenize", "-m", path(&dir), "--json", &spelled]).json()["ids"].as_array().unwrap().len();
    assert_eq!(parsed, 9, "the text spells a special token");
    assert!(measure(&spelled)["tokens"].as_u64().unwrap() > 16);
}

#[test]
fn what_cannot_be_scored_is_refused_before_the_model_is_loaded() {
    let dir = tiny_with_text();
    let text = dir.path().join("text");
    std::fs::write(&text, "too short").unwrap();
    let text = text.to_str().unwrap();
    let refused = |more: &[&str]| kiln(&[&["perplexity", "-m", path(&dir), "--device", "cpu"], more].concat());
    refused(&[text]).refused(2, &["two windows of 512", "--ctx"]);
    refused(&[text, "--ctx", "2"]).refused(2, &["window of 2", "--ctx"]);
    refused(&[text, "--ctx", "0"]).refused(2, &["0 tokens", "--ctx"]);
    std::fs::write(text, "\n").unwrap();
    refused(&[text]).refused(2, &["text is empty; give a text of many tokens"]);
    refused(&[path(&dir)]).refused(2, &["is a directory; give a file"]);
    refused(&["/no/such"]).refused(2, &["/no/such does not exist"]);
}
