//! The executable as scripts use it: its JSON, its exit codes, and one line on stderr for whatever is wrong.

mod common;

use common::{golden, ids, max_abs};
use kiln::model::{Shape, TensorId, config, presets};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        assert_eq!(self.stdout.trim_end().lines().count(), 1, "one object and nothing else: {}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Asserts the exit code, and one line on stderr that has all of `words`; nothing on stdout.
    fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert_eq!(self.stderr.lines().count(), 1, "one line: {}", self.stderr);
        assert!(self.stderr.starts_with("kiln: ") && self.stderr.contains("; "), "cause; remedy: {}", self.stderr);
        for w in words {
            assert!(self.stderr.contains(w), "no `{w}` in: {}", self.stderr);
        }
    }
}

fn kiln_with(arguments: &[&str], stdin: &[u8], environment: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    kiln_by(command.args(arguments).env_remove("RUST_LOG").envs(environment.iter().copied()), stdin)
}

/// Runs Kiln by a command that may say more than its arguments.
fn kiln_by(command: &mut Command, stdin: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that does not read its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |b| String::from_utf8(b).unwrap();
    Ran { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
}

fn kiln(arguments: &[&str]) -> Ran {
    kiln_with(arguments, b"", &[])
}

fn tiny() -> String {
    golden("tiny").display().to_string()
}

/// A copy of `tiny` with the small tokenizer, which fits its vocabulary.
fn tiny_with_text() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in
        ["tiny/config.json", "tiny/model.safetensors", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
    {
        let from = golden(file);
        std::fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
    }
    dir
}

fn path(dir: &tempfile::TempDir) -> &str {
    dir.path().to_str().unwrap()
}

#[test]
fn run_prints_the_golden_ids_as_json() {
    let golden: Value = serde_json::from_slice(&std::fs::read(golden("tiny/golden.json")).unwrap()).unwrap();
    let prompt = &golden["prompts"][1];
    let tokens = prompt["ids"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    for (weights, key) in [("int8", "int8"), ("bf16", "f32")] {
        for device in ["cpu", "vulkan"] {
            let ran = kiln(&[
                "run",
                "-m",
                &tiny(),
                "--tokens",
                &tokens,
                "-n",
                "3",
                "--ignore-eos",
                "--json",
                "--device",
                device,
                "--weights",
                weights,
            ])
            .json();
            assert_eq!(ids(&ran["tokens"]), ids(&prompt[key]["greedy"]["ids"])[..3], "{device} {weights}");
            assert_eq!(ran["prompt_tokens"], prompt["ids"]);
            assert_eq!(ran["finish"], "length");
            assert_eq!(ran["text"], Value::Null, "the directory has no tokenizer");
            for key in ["model", "device", "prefill_s", "decode_s", "decode_tok_s", "roofline_share"] {
                assert!(!ran[key].is_null(), "{key} is missing");
            }
            let share = ran["roofline_share"].as_f64().unwrap();
            assert!(share > 0.0 && share <= 1.0, "a rate above its physical limit: {share}");
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
    // The rate is that of the passes; the first token comes with the prefill's.
    assert!(plain.stderr.contains(", 12 tokens, 11 of them decoded in "), "{}", plain.stderr);
    let one = with(&["-n", "1", "--ignore-eos"]).stderr;
    assert!(one.contains(" s, 1 token, CPU"), "{one}");

    // Stop at what the text itself holds.
    let (at, stop) = text.char_indices().nth(text.chars().count() / 2).unwrap();
    let stopped = with(&["-n", "12", "--ignore-eos", "--json", "--stop", &stop.to_string()]).json();
    assert_eq!(stopped["finish"], "stop");
    assert_eq!(stopped["text"].as_str().unwrap(), &text[..text.find(stop).unwrap()]);
    assert!(at >= stopped["text"].as_str().unwrap().len());

    // The same seed, the same tokens; the prompt on standard input.
    let sampled = |seed: &str| {
        let arguments =
            ["run", "-m", path(&dir), "--temp", "1.5", "--seed", seed, "-n", "12", "--ignore-eos", "--json"];
        kiln_with(&[&arguments[..], &["--device", "cpu"]].concat(), b"hello", &[]).json()["tokens"].clone()
    };
    assert_eq!(sampled("5"), sampled("5"));
    assert_ne!(sampled("5"), sampled("6"));
    // A seed that nobody chose is told, so that the reply can be had again.
    let drawn = with(&["--temp", "1.5", "-n", "12", "--ignore-eos", "--json"]).json();
    assert_eq!(sampled(&drawn["seed"].to_string()), drawn["tokens"]);
    assert!(all["seed"].is_null(), "the likeliest token needs none");
    // A context that ends the reply: as many tokens as fit, and one more that needs no place.
    let prompt = all["prompt_tokens"].as_array().unwrap().len();
    let full = with(&["--ctx", &(prompt + 4).to_string(), "--ignore-eos", "--json"]).json();
    assert_eq!(full["tokens"].as_array().unwrap().len(), 5);
    assert_eq!(full["finish"], "length");
}

#[test]
fn chat_template_and_raw_prompts_become_the_ids_they_should() {
    let dir = tiny_with_text();
    let run = |more: &[&str]| {
        let base = ["run", "-m", path(&dir), "-n", "1", "--json", "--device", "cpu"];
        kiln(&[&base[..], more].concat()).json()["prompt_tokens"].clone()
    };
    let tokenize = |more: &[&str]| kiln(&[&["tokenize", "-m", path(&dir)], more].concat()).json()["ids"].clone();
    let chat = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]"#;
    assert_eq!(run(&["-p", "hi", "--system", "be brief"]), tokenize(&["--chat", chat]));
    assert_eq!(run(&["-p", "hi", "--raw"]), tokenize(&["hi"]));
    assert_eq!(run(&["-p", "<bos>hi", "--raw"]), tokenize(&["hi"]), "no second BOS");
}

#[test]
fn logits_come_for_the_last_position_and_as_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.safetensors");
    let case = common::Case::open("tiny");
    let prompt = case.prompts().iter().find(|p| p["name"] == "len33").unwrap();
    let tokens = prompt["ids"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    for chunk in ["1", "5", "4096"] {
        let ran = kiln(&[
            "logits",
            "-m",
            &tiny(),
            "--weights",
            "bf16",
            "--device",
            "cpu",
            "--tokens",
            &tokens,
            "--all",
            "--chunk",
            chunk,
            "--out",
            file.to_str().unwrap(),
            "--json",
        ])
        .json();
        assert_eq!((ran["vocab"].as_u64(), ran["position"].as_u64()), (Some(512), Some(32)));
        let last = common::floats(&ran["logits"]);
        assert!(max_abs(&last, case.tensor("len33.logits")) < 3e-4);

        let bytes = std::fs::read(&file).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let read = |name: &str| {
            let t = tensors.tensor(name).unwrap();
            let floats: Vec<f32> =
                t.data().chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
            (t.shape().to_vec(), floats)
        };
        let (shape, all) = read("logits");
        assert_eq!(shape, [33, 512]);
        assert!(max_abs(&all, case.tensor("len33.all_logits")) < 3e-4);
        let (shape, hidden) = read("hidden");
        assert_eq!(shape, [8, 128]);
        assert!(max_abs(&hidden, case.tensor("len33.hidden")) < 3e-3);
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    assert_eq!(mode, std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&plain).unwrap().permissions()));
    // --all without --out is the last position's logits all the same.
    let all = kiln(&["logits", "-m", &tiny(), "--tokens", "2,5", "--device", "cpu", "--all", "--json"]).json();
    assert_eq!(all["position"], 1);
    // Without --all, one row; and a directory that is not there leaves nothing.
    let one = ["logits", "-m", &tiny(), "--device", "cpu", "--tokens", "2,5", "--out", file.to_str().unwrap()];
    assert_eq!(kiln(&one).code, 0);
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().tensor("logits").unwrap().shape(), [1, 512]);
    let nowhere = dir.path().join("no/such/place.safetensors");
    kiln(&["logits", "-m", &tiny(), "--tokens", "2", "--out", nowhere.to_str().unwrap()])
        .refused(1, &["cannot write", "place.safetensors"]);
}

#[test]
fn bad_prompts_are_refused_in_one_line() {
    let m = &tiny();
    let text = tiny_with_text();
    kiln(&["run", "-m", m, "--tokens", "2,512"]).refused(2, &["512", "vocabulary"]);
    kiln(&["run", "-m", m, "--tokens", "2,x"]).refused(2, &["x"]);
    kiln(&["run", "-m", m, "--tokens", "-1"]).refused(2, &[]);
    kiln(&["run", "-m", m, "--tokens", ""]).refused(2, &["empty"]);
    kiln(&["logits", "-m", m, "--tokens", "99999999999"]).refused(2, &["99999999999"]);
    kiln(&["run", "-m", m, "--tokens", "2,3,4,5", "--ctx", "3"]).refused(2, &["4 tokens", "3", "--ctx (up to 4096)"]);
    // At the model's own limit there is no larger one to ask for.
    let whole = kiln(&["run", "-m", m, "--tokens", &vec!["2"; 4097].join(",")]);
    whole.refused(2, &["4097 tokens", "4096; shorten it\n"]);
    kiln(&["run", "-m", m, "--tokens", "2", "--ctx", "999999999"]).refused(2, &["999999999", "4096"]);
    kiln(&["run", "-m", m, "--tokens", "2", "--ctx", "0"]).refused(2, &["0"]);
    kiln(&["logits", "-m", m, "--tokens", "2", "--chunk", "0"]).refused(2, &["chunk"]);
    kiln(&["run", "-m", path(&text), "-p", ""]).refused(2, &["empty"]);
    kiln(&["run", "-m", path(&text)]).refused(2, &["empty"]);
    kiln_with(&["run", "-m", path(&text)], b"caf\xe9", &[]).refused(2, &["UTF-8", "3"]);
    kiln(&["run", "-m", path(&text), "-p", "x", "--temp", "-1"]).refused(2, &["--temp"]);
    kiln(&["run", "-m", path(&text), "-p", "x", "--top-p", "0"]).refused(2, &["--top-p"]);
    kiln(&["run", "-m", path(&text), "-p", "x", "--stop", ""]).refused(2, &["stop"]);
    kiln(&["run", "-m", m, "-p", "x"]).refused(2, &["tokenizer"]);
    kiln(&["run", "-m", m, "--tokens", "2", "--stop", "x"]).refused(2, &["tokenizer"]);
}

#[test]
fn bad_usage_and_bad_models_are_refused_in_one_line() {
    kiln(&["run", "--no-such-flag"]).refused(2, &["--no-such-flag"]);
    kiln(&["frobnicate"]).refused(2, &["frobnicate"]);
    kiln(&["run", "-p", "x", "-n", "-1"]).refused(2, &["-1", "-n"]);
    kiln(&["run", "-p", "x", "--top-k", "-3"]).refused(2, &["-3", "--top-k"]);
    kiln(&["forge", "--shape", "gemma3-1b", "-o", "/no/such", "--seed", "-3"]).refused(2, &["-3", "--seed"]);
    kiln(&["run", "-p", "x", "--device", "gpu"]).refused(2, &["gpu", "vulkan"]);
    kiln(&["run", "-p", "x", "--device", "vulkan:x"]).refused(2, &["x"]);
    kiln(&["run", "-m", "/no/such/model", "-p", "x"]).refused(2, &["/no/such/model"]);
    kiln(&["plan", "-m", "/no/such/model"]).refused(2, &["/no/such/model"]);
    kiln(&["plan", "--machine", "c64"]).refused(2, &["c64", "780m"]);
    kiln(&["plan", "--machine", "780m", "--device", "vulkan:9"]).refused(2, &["--device", "780m"]);
    kiln(&["plan", "--shape", "gemma9"]).refused(2, &["gemma9", "gemma3-27b"]);
    for command in [&["run", "-p", "x"][..], &["plan", "--machine", "780m"], &["probe"], &["logits", "--tokens", "2"]] {
        kiln(&[command, &["--npu", "require"]].concat()).refused(4, &["NPU"]);
    }

    // The file that is to be taken anew is the one that is wrong.
    let generation = tiny_with_text();
    std::fs::write(generation.path().join("generation_config.json"), r#"{"eos_token_id": "end"}"#).unwrap();
    let ran = kiln(&["run", "-m", path(&generation), "-p", "x"]);
    ran.refused(2, &["generation_config.json: eos_token_id", "take generation_config.json from"]);
    assert!(!ran.stderr.contains("take config.json"), "{}", ran.stderr);
    // What is refused for its KV cache is not helped by other weights, nor what is INT8 by INT8.
    let cap = ["plan", "--shape", "gemma3-27b", "--machine", "8060s:0.5", "--ctx", "131072", "--batch", "4"];
    assert!(!kiln(&cap).stderr.contains("--weights"), "{}", kiln(&cap).stderr);

    // An INT8 source has no BF16 to keep.
    let int8 = tempfile::tempdir().unwrap();
    std::fs::copy(golden("tiny/config.json"), int8.path().join("config.json")).unwrap();
    std::fs::copy(golden("tiny/model.int8.safetensors"), int8.path().join("model.safetensors")).unwrap();
    kiln(&["run", "-m", path(&int8), "--tokens", "2", "--weights", "bf16"]).refused(2, &["bf16", "INT8"]);

    // A normalizer that the tokenizers crate panics on.
    let odd = tiny_with_text();
    let file = odd.path().join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json["normalizer"] = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    std::fs::write(&file, json.to_string()).unwrap();
    kiln(&["run", "-m", path(&odd), "-p", "x"]).refused(2, &["normalizer"]);
    // A broken template stops only what needs it.
    let template = tiny_with_text();
    std::fs::write(template.path().join("chat_template.jinja"), "{{").unwrap();
    kiln(&["run", "-m", path(&template), "-p", "x"]).refused(2, &["chat_template.jinja"]);
    assert_eq!(kiln(&["run", "-m", path(&template), "-p", "x", "--raw", "-n", "1"]).code, 0);

    // A tokenizer of 512 for a vocabulary of 320.
    let mixed = tempfile::tempdir().unwrap();
    for file in ["deep62/config.json", "deep62/model.safetensors", "tokenizer/tokenizer.json"] {
        let from = golden(file);
        std::fs::copy(&from, mixed.path().join(from.file_name().unwrap())).unwrap();
    }
    kiln(&["run", "-m", path(&mixed), "-p", "x"]).refused(2, &["512", "320"]);
}

#[test]
fn devices_that_are_not_there_are_said_so() {
    let m = &tiny();
    kiln(&["run", "-m", m, "--tokens", "2", "--device", "vulkan:77"]).refused(4, &["77", "0:"]);
    let none = [("VK_ICD_FILENAMES", "/nonexistent.json"), ("VK_DRIVER_FILES", "/nonexistent.json")];
    kiln_with(&["run", "-m", m, "--tokens", "2", "--device", "vulkan"], b"", &none).refused(4, &["driver"]);
    // Nor is validation that was asked for left out in silence.
    let validated = [none[0], none[1], ("KILN_VALIDATION", "1")];
    kiln_with(&["run", "-m", m, "--tokens", "2"], b"", &validated).refused(4, &["driver"]);
    // `auto` falls back to the CPU, and says so.
    // What says how a model is loaded is not left unused where probe is given none.
    kiln(&["probe", "--quick", "--device", "cpu", "--ctx", "4096"]).refused(2, &["4096", "1..=2048"]);
    let probe = kiln(&["probe", "--quick", "--device", "cpu", "--ctx", "2048"]);
    assert!(probe.stdout.contains("model.memory") && probe.stdout.contains("demo needs"), "{}", probe.stdout);
    let ran = kiln_with(&["run", "-m", m, "--tokens", "2", "-n", "1", "--json"], b"", &none);
    assert!(ran.json()["device"].as_str().unwrap().contains("CPU"));
    assert!(ran.stderr.contains("CPU"), "{}", ran.stderr);
}

/// A 27B INT8 checkpoint whose data is a hole in a file: enough to be planned, and refused before a byte is read.
fn hollow_27b(dir: &Path) {
    let shape: Shape = presets::preset("gemma3-27b").unwrap();
    std::fs::write(dir.join("config.json"), config::to_json(&shape)).unwrap();
    let mut header = serde_json::Map::new();
    let mut offset = 0u64;
    let mut add = |name: String, dtype: &str, dims: &[usize], bytes: usize| {
        let end = offset + (dims.iter().product::<usize>() * bytes) as u64;
        header.insert(name, serde_json::json!({"dtype": dtype, "shape": dims, "data_offsets": [offset, end]}));
        offset = end;
    };
    for id in TensorId::all(&shape) {
        let [rows, cols] = id.dims(&shape);
        if id.is_vector() {
            add(id.name(), "BF16", &[cols], 2);
        } else {
            add(id.name(), "I8", &[rows, cols], 1);
            add(format!("{}_scale", id.name()), "F32", &[rows], 4);
        }
    }
    let header = Value::Object(header).to_string();
    let mut file = std::fs::File::create(dir.join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + offset).unwrap();
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_the_sum() {
    let dir = tempfile::tempdir().unwrap();
    hollow_27b(dir.path());
    for device in ["vulkan", "cpu"] {
        kiln(&["run", "-m", path(&dir), "--tokens", "2", "--device", device]).refused(3, &["27.0 GB", "free"]);
    }
    does_not_fit(&["plan", "-m", path(&dir), "--device", "cpu"], &["weights 27.0 GB", "KV cache"]);
    // It does fit the machine it is for; at a context that is too long, it does not.
    let plan = kiln(&["plan", "-m", path(&dir), "--machine", "780m", "--json", "--schedule"]).json();
    assert_eq!(plan["schedule"].as_array().unwrap().len(), 62 * 13 + 4);
    let at_one = plan["roofline"][0]["tokens_s"].as_f64().unwrap();
    assert!((3.2..3.4).contains(&at_one), "89.6 GB/s over 27.0 GB: {at_one}");
    let long = ["plan", "-m", path(&dir), "--machine", "780m", "--ctx", "131072", "--batch", "3"];
    does_not_fit(&long, &["KV cache", "VRAM", "GTT", "--batch"]);
    // A layer's KV that no allocation can hold: no other kernel parameter would help.
    let cap = ["plan", "--shape", "gemma3-27b", "--machine", "8060s:0.5", "--ctx", "131072", "--batch", "4"];
    does_not_fit(&cap, &["KV cache of layer 5", "4294967296 B needed", "in one allocation", "--batch"]);
    let plan = kiln(&[&cap[..], &["--json"]].concat());
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert!(plan["kernel_parameters"].is_null() && !kiln(&cap).stdout.contains("would fit"), "{plan}");
    // BF16 weights fit an 890M's 64 GiB once the kernel lets the GPU have more of them; a 780M's 96 GiB as they are.
    let bf16 = ["plan", "--shape", "gemma3-27b", "--weights", "bf16", "--machine"];
    does_not_fit(&[&bf16[..], &["890m"]].concat(), &["together", "boot", "amdgpu.gttsize=", "ttm.pages_limit="]);
    does_not_fit(&[&bf16[..], &["780m:4"]].concat(), &["amdgpu.gttsize=50176", "4.0 GB in VRAM"]);
    let plan = kiln(&[&bf16[..], &["890m", "--json"]].concat());
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["kernel_parameters"], "amdgpu.gttsize=38912 ttm.pages_limit=9961472 ttm.page_pool_size=9961472");
    let plan = kiln(&[&bf16[..], &["780m", "--json"]].concat()).json();
    assert!(plan["kernel_parameters"].is_null() && plan["heaps"][0]["reserved"].as_u64() > Some(0), "{plan}");
    kiln(&["plan", "--machine", "780m:3"]).refused(2, &["780m", "0.5, 1, 2, 4, 8, 16"]);
    kiln(&["plan", "-m", path(&dir), "--batch", "4611686018427387904"]).refused(2, &["--batch"]);
    kiln(&["plan", "-m", path(&dir), "--batch", "0"]).refused(2, &["--batch"]);
    // A chunk far past the prompt takes no memory for rows that never come.
    let long =
        ["logits", "-m", &tiny(), "--tokens", "2,3", "--chunk", "18446744073709551615", "--ctx", "4096", "--json"];
    assert_eq!(kiln(&long).json()["position"], 1);
}

/// A plan that is refused still shows its arithmetic, and why it is.
fn does_not_fit(arguments: &[&str], words: &[&str]) {
    let text = kiln(arguments);
    let reason = text.stdout.lines().find_map(|l| l.strip_prefix("does not fit: ")).unwrap();
    assert!(text.stdout.contains("roofline") && text.stderr.contains(reason), "{}\n{}", text.stdout, text.stderr);
    Ran { stdout: String::new(), ..text }.refused(3, words);
    let json = kiln(&[arguments, &["--json"]].concat());
    let value: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(json.stderr.contains(value["reason"].as_str().unwrap()), "{}", json.stderr);
    assert_eq!((json.code, &value["fits"]), (3, &Value::Bool(false)));
    let sums: u64 = value["sums"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(value["bytes"].as_u64(), Some(sums));
}

/// An answer is not lost because its summary has nowhere to go, and an error keeps its exit code.
#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let run = |arguments: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let out = command.args(arguments).stdin(Stdio::null()).stderr(full).output().unwrap();
        (out.status.code(), out.stdout)
    };
    assert_eq!(run(&["run", "--bogus"]).0, Some(2));
    let (code, text) = run(&["run", "--device", "cpu", "-p", "Who are you?"]);
    assert_eq!(code, Some(0));
    assert!(!text.is_empty());
}

/// The built-in model, as it comes: its answer, and a context that ends it, said aloud.
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
    kiln_with(&["run"], &vec![b'y'; (64 << 20) + 1], &[]).refused(2, &["64 MiB"]);
}

/// At 350 bytes of memory for each byte of text, 8 MB took 2.9 GB.
#[test]
fn long_text_is_tokenized_in_little_memory_and_refused_by_its_length() {
    let mut text = " The quick brown fox jumps over the lazy dog, again and again.".repeat(130_000);
    text.push('!');
    let run = |arguments: &[&str]| {
        let script = "ulimit -v 500000 && exec \"$0\" \"$@\"";
        kiln_by(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_kiln")]).args(arguments), text.as_bytes())
    };
    let ids = ids(&run(&["tokenize"]).json()["ids"]);
    let line = ids_of(" The quick brown fox jumps over the lazy dog, again and again.");
    assert_eq!(ids[1..line.len() + 1], line);
    assert_eq!(ids[1 + 129_999 * line.len()..][..line.len()], line);
    run(&["run", "--device", "cpu"]).refused(2, &["8060", "at least", "longer than the context of 2048"]);
}

/// The built-in tokenizer's ids, without BOS.
fn ids_of(text: &str) -> Vec<u32> {
    ids(&kiln(&["tokenize", "--no-bos", text]).json()["ids"])
}

/// A pipe whose reader is gone before anything is written: what is quick would otherwise be done before it goes.
fn closed_pipe() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

/// As `ls | head` does: by SIGPIPE, which a shell shows as 141, and without a word.
#[test]
fn what_only_shows_ends_quietly_with_its_reader() {
    use std::os::unix::process::ExitStatusExt;
    for arguments in [
        &["plan", "--shape", "gemma3-27b", "--machine", "780m"][..],
        &["plan", "--shape", "gemma3-27b", "--machine", "780m", "--schedule", "--json"],
        &["probe", "--quick"],
        &["probe", "--quick", "--json", "--device", "cpu"],
        &["run", "-p", "Who are you?", "--device", "cpu"],
        &["run", "-p", "Who are you?", "--device", "cpu", "--json"],
        &["logits", "--tokens", "2", "--device", "cpu", "--json"],
        &["tokenize", "Who are you?"],
        &["run", "--help"],
        &["--version"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.args(arguments).env_remove("RUST_LOG").env("KILN_VALIDATION", "0");
        let out = command.stdout(closed_pipe()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(out.status.signal(), Some(13), "{arguments:?}: {:?}", out.status);
        assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{arguments:?}");
    }
    // A full disk is no such end.
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = command.args(["plan", "--shape", "gemma3-1b", "--machine", "780m"]).stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    for help in [&["--help"][..], &["run", "-h"], &["--version"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_kiln")).args(help).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(1) && stderr.contains("cannot write standard output"), "{help:?}: {stderr}");
    }
}

/// Root's `--out /dev/null` must not take everyone's.
#[test]
fn logits_replace_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("pipe", at("link to the pipe")).unwrap();
    std::fs::write(at("file"), "before").unwrap();
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    let model = tiny();
    let run = |name: &str| {
        let out = at(name).display().to_string();
        kiln(&["logits", "-m", &model, "--tokens", "2,5", "--device", "cpu", "--out", &out])
    };
    for name in ["pipe", "link to the pipe", "."] {
        run(name).refused(2, &["no regular file", "--out"]);
    }
    assert!(!at("pipe").is_file() && at("link to the pipe").is_symlink());
    assert_eq!(run("link").code, 0);
    assert!(at("link").is_symlink() && std::fs::read(at("file")).unwrap() != b"before");
}

fn kill(child: &std::process::Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
}

/// Ended by a signal, what is written in part is removed.
#[test]
fn a_forge_that_is_interrupted_leaves_nothing() {
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let dir = tempfile::tempdir().unwrap();
        let entries = || std::fs::read_dir(dir.path()).unwrap().count();
        let out = dir.path().join("model").display().to_string();
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM,HUP,QUIT", env!("CARGO_BIN_EXE_kiln"), "forge"]);
        command.args(["--shape", "gemma3-4b", "-o", &out]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let begin = std::time::Instant::now();
        while entries() == 0 {
            assert!(begin.elapsed().as_secs() < 60 && child.try_wait().unwrap().is_none(), "it never began");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        kill(&child, signal);
        let out = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), entries()), (Some(1), 0), "{signal}: {stderr}");
        assert!(stderr.contains("interrupted") && stderr.lines().count() == 1, "{signal}: {stderr}");
    }
}

/// Ended by a signal, `logits --out` leaves nothing; one that is to be ignored does not end it.
#[test]
fn logits_that_are_interrupted_leave_no_file() {
    use std::os::unix::process::ExitStatusExt;
    let ids = vec!["5"; 4000].join(",");
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let entries = || std::fs::read_dir(dir.path()).unwrap().count();
        // All logits of a prompt that takes seconds, into a file that is there before.
        let out = dir.path().join("out.safetensors");
        std::fs::write(&out, "before").unwrap();
        let (model, file) = (tiny(), out.display().to_string());
        let arguments =
            ["logits", "-m", &model, "--tokens", &ids, "--all", "--chunk", "1", "--device", "cpu", "--out", &file];
        // Whoever runs the tests may have had signals ignored: a shell that runs them in the background, SIGINT.
        let start = |hangup: &str| {
            let mut command = Command::new("env");
            command.args(["--default-signal=INT,TERM,QUIT", hangup, env!("CARGO_BIN_EXE_kiln")]);
            let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let begin = std::time::Instant::now();
            while entries() < 2 {
                assert!(begin.elapsed().as_secs() < 60 && child.try_wait().unwrap().is_none(), "it never began");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            child
        };
        let mut child = start("--default-signal=HUP");
        kill(&child, signal);
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{signal}");
        assert_eq!(entries(), 1, "{signal}");
        assert_eq!(std::fs::read(&out).unwrap(), b"before", "{signal}");
        // As nohup does.
        let child = start("--ignore-signal=HUP");
        kill(&child, "HUP");
        std::thread::sleep(std::time::Duration::from_millis(100));
        kill(&child, "TERM");
        assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(15), "{signal}");
        assert_eq!(entries(), 1, "{signal}");
    }
}

#[test]
fn a_closed_pipe_ends_a_reply() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["run", "-m", &tiny(), "--tokens", "2", "--ignore-eos", "--device", "cpu"]);
    let out = command.stdout(closed_pipe()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&out.status), Some(13), "{:?}", out.status);
}
