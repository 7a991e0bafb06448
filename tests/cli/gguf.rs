//! `-m` with GGUF files and with ids of the Hugging Face hub: each command answers as for the model's directory.

use crate::common::gguf::{self, Float, add_tokenizer, golden_model};
use crate::common::program::{Ran, kiln, program, run};
use crate::common::{golden, max_abs};
use crate::{path, tiny_with_text};
use serde_json::Value;
use std::path::Path;

/// `tiny` with text, in a directory and as a GGUF file in another.
fn both() -> (tempfile::TempDir, tempfile::TempDir) {
    let (directory, other) = (tiny_with_text(), tempfile::tempdir().unwrap());
    // GGUF has no key for the root that scores are divided by, and it follows from the layers.
    let config = directory.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let edited = text.replace("\"query_pre_attn_scalar\": 24", "\"query_pre_attn_scalar\": 32");
    assert_ne!(edited, text);
    std::fs::write(&config, edited).unwrap();
    let mut file = golden_model("tiny", Float::Bf16);
    add_tokenizer(&mut file, &std::fs::read(golden("tokenizer/tokenizer.json")).unwrap());
    std::fs::write(other.path().join("tiny-BF16.gguf"), file.bytes()).unwrap();
    (directory, other)
}

fn file(dir: &tempfile::TempDir) -> String {
    dir.path().join("tiny-BF16.gguf").display().to_string()
}

/// What does not depend on the time or on the model's name.
fn lasting(mut object: Value) -> Value {
    for key in ["prefill_s", "decode_s", "decode_tok_s", "roofline_share", "seconds", "model"] {
        object.as_object_mut().unwrap().remove(key);
    }
    object
}

#[test]
fn every_command_answers_as_for_the_directory() {
    let (directory, other) = both();
    let (dir, gguf) = (path(&directory), file(&other));
    let text = directory.path().join("text");
    std::fs::write(&text, "The quick brown fox jumps over the lazy dog, again and again and again.").unwrap();
    let text = text.to_str().unwrap();
    let messages = r#"[{"role": "user", "content": "Hello <end_of_turn>"}]"#;
    for (command, rest) in [
        ("run", &["-p", "Hello", "-n", "5", "--device", "cpu", "--json"][..]),
        ("run", &["--tokens", "2,17,5", "-n", "5", "--device", "cpu", "--weights", "bf16", "--json"]),
        ("logits", &["--tokens", "2,17,5", "--device", "cpu", "--json"]),
        ("perplexity", &[text, "--ctx", "16", "--device", "cpu", "--json"]),
        ("tokenize", &["Hello  wörld\n\n<b>"]),
        ("tokenize", &["--chat", messages]),
        ("tokenize", &["--decode", "2,94,460"]),
    ] {
        let ran = |model: &str| lasting(kiln(&[&[command, "-m", model], rest].concat()).json());
        let (wanted, found) = (ran(dir), ran(&gguf));
        assert_eq!(found, wanted, "{command} {rest:?}");
    }
    let plan = |model: &str| kiln(&["plan", "-m", model, "--machine", "780m", "--json"]).json();
    assert_eq!(plan(&gguf)["model"], "tiny-BF16");
    assert_eq!(plan(&gguf)["regions"], plan(dir)["regions"]);
    let ask = |model: &str| -> Vec<Value> {
        let ran = run(
            program().args(["batch", "-m", model, "-", "-o", "-", "--device", "cpu"]),
            b"{\"prompt\":\"Hello\",\"n\":4}\n",
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(ask(&gguf)[0]["text"], ask(dir)[0]["text"]);
    // The directory of a GGUF file and nothing else is that file.
    let logits = |model: &str| {
        crate::common::floats(
            &kiln(&["logits", "-m", model, "--tokens", "2", "--device", "cpu", "--json"]).json()["logits"],
        )
    };
    assert_eq!(max_abs(&logits(path(&other)), &logits(&gguf)), 0.0);
}

#[test]
fn what_a_gguf_file_is_not_good_for_is_said_in_one_line() {
    let (directory, other) = both();
    let gguf = file(&other);
    let out = other.path().join("out").display().to_string();
    kiln(&["quantize", "-m", &gguf, "-o", &out]).refused(2, &["is a GGUF file, and a model directory is read here"]);
    kiln(&["logits", "-m", &gguf, "--tokens", "2", "--out", &gguf]).refused(2, &["is a file of the model itself"]);
    let weights = directory.path().join("model.safetensors").display().to_string();
    kiln(&["run", "-m", &weights, "--tokens", "2"]).refused(2, &["it is no GGUF file; give a GGUF file, or a model's"]);
    kiln(&["run", "-m", &format!("{gguf}x"), "--tokens", "2"]).refused(2, &["tiny-BF16.ggufx"]);
    let model = golden("gguf/model.gguf").display().to_string();
    kiln(&["run", "-m", &model, "-p", "x"]).refused(2, &["tokenizer"]);
    let text = other.path().join("text").display().to_string();
    std::fs::write(&text, "some text").unwrap();
    let mut bytes = std::fs::read(&gguf).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&gguf, bytes).unwrap();
    for command in [&["run", "-p", "x"][..], &["plan"], &["tokenize", "x"], &["perplexity", &text], &["bench"]] {
        kiln(&[command, &["-m", &gguf]].concat()).refused(2, &["tiny-BF16.gguf: tensor ", "truncated"]);
    }
}

/// What runs says what it runs in, most bytes first; no format that is asked for changes the file's own types.
#[test]
fn the_types_of_a_gguf_file_are_named_where_a_model_is_planned_and_loaded() {
    let model = golden("gguf/model.gguf").display().to_string();
    let types = "q8_0, int8, q6_k, q4_k, int4, q5_0";
    let plan = kiln(&["plan", "-m", &model, "--machine", "780m", "--schedule"]);
    assert!(plan.stdout.contains(&format!("vocabulary 96, {types} weights")), "{}", plan.stdout);
    for operands in ["q4_k [256, 256]", "q6_k [64, 256]", "q8_0 [64, 256]", "q5_0 [96, 256]"] {
        assert!(plan.stdout.contains(operands), "{operands}: {}", plan.stdout);
    }
    let bf16 = kiln(&["plan", "-m", &model, "--machine", "780m", "--weights", "bf16"]);
    assert!(bf16.stdout.contains("vocabulary 96, bf16, q8_0, q6_k, q4_k, int4, q5_0 weights"), "{}", bf16.stdout);
    let tokens = ["run", "-m", &model, "--tokens", "2,17,5", "-n", "4", "--device", "cpu", "--json"];
    let ran = run(program().args(tokens).env("RUST_LOG", "info"), b"");
    assert!(ran.stderr.contains(&format!("of weights ({types}) in ")), "{}", ran.stderr);
    assert_eq!(ran.json()["tokens"].as_array().unwrap().len(), 4, "{}", ran.stdout);
    let probe = kiln(&["probe", "-m", &model, "--device", "cpu", "--quick"]);
    assert!(probe.stdout.contains(&format!("model ({types}) needs ")), "{}", probe.stdout);
}

/// A base of 1e4 and one of 1e6 are different models, and no logits say which of them was meant.
#[test]
fn a_file_that_gives_no_base_of_rope_is_run_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let ask = |change: &dyn Fn(&mut gguf::GgufFile)| {
        let mut file = golden_model("tiny", Float::Bf16);
        change(&mut file);
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, file.bytes()).unwrap();
        let tokens = "2,17,5,300,41,9,88,130,7,77,500,3,2,64";
        kiln(&["logits", "-m", path.to_str().unwrap(), "--tokens", tokens, "--device", "cpu", "--json"])
    };
    let usual = ask(&|_| {});
    let ollamas = ask(&|file| {
        file.remove("gemma3.rope.freq_base");
        file.set("gemma3.rope.global.freq_base", gguf::Value::f32(1e6));
    });
    let silent = ask(&|file| file.remove("gemma3.rope.freq_base"));
    let other = ask(&|file| file.set("gemma3.rope.freq_base", gguf::Value::f32(1e4)));
    assert_eq!((&ollamas.stderr, &usual.stderr), (&String::new(), &String::new()));
    assert_eq!(ollamas.json()["logits"], usual.json()["logits"]);
    assert_eq!(silent.json()["logits"], usual.json()["logits"]);
    assert_ne!(other.json()["logits"], usual.json()["logits"]);
    let warning = "m.gguf gives no base of RoPE; 1e6 is taken, which every Gemma 3 has";
    assert_eq!(silent.stderr.matches(warning).count(), 1, "{}", silent.stderr);
}

/// Runs Kiln with the hub's cache in `cache`.
fn with_hub(cache: &Path, arguments: &[&str]) -> Ran {
    run(program().args(arguments).env("HF_HUB_CACHE", cache), b"")
}

#[test]
fn a_model_of_the_hubs_cache_is_found_by_its_id() {
    let (directory, other) = both();
    let cache = tempfile::tempdir().unwrap();
    let place = |id: &str, from: &Path| {
        let model = cache.path().join(format!("models--{}", id.replace('/', "--")));
        std::fs::create_dir_all(model.join("refs")).unwrap();
        std::fs::create_dir_all(model.join("snapshots/0a1b")).unwrap();
        std::fs::write(model.join("refs/main"), "0a1b").unwrap();
        for entry in from.read_dir().unwrap() {
            let entry = entry.unwrap();
            std::os::unix::fs::symlink(entry.path(), model.join("snapshots/0a1b").join(entry.file_name())).unwrap();
        }
    };
    place("org/tiny-it", directory.path());
    place("org/tiny-it-GGUF", other.path());
    let ask = |id: &str| {
        with_hub(cache.path(), &["run", "-m", id, "--tokens", "2,5", "-n", "4", "--device", "cpu", "--json"]).json()
    };
    assert_eq!(ask("org/tiny-it")["tokens"], ask("org/tiny-it-GGUF")["tokens"]);
    assert_eq!(ask("org/tiny-it")["model"], "tiny-it");
    let out = cache.path().join("out").display().to_string();
    assert_eq!(with_hub(cache.path(), &["quantize", "-m", "org/tiny-it", "-o", &out]).code, 0);
    for command in [&["run", "-p", "x"][..], &["plan"], &["tokenize", "x"], &["quantize", "-o", "/no/such"]] {
        let ran = with_hub(cache.path(), &[command, &["-m", "org/absent"]].concat());
        ran.refused(2, &["org/absent is no path", "run `kiln pull org/absent`"]);
    }
}
