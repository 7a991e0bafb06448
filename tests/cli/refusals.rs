//! Refusals: one line that names the cause and the remedy.

use crate::common::golden;
use crate::common::program::{kiln, program, run};
use crate::{model_of, path, tiny, tiny_with_text};
use kiln::testing::machine::files::Files;
use kiln::testing::machine::nodes::may_have_gpu;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// What asks for a KV cache that a machine has no room for.
#[rustfmt::skip]
const LARGE_CACHE: &[&str] = &[
    "plan", "--shape", "gemma3-27b", "--machine", "8060s:0.5", "--ctx", "131072", "--batch", "9", "--kv-tokens", "1179648",
];

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
    // At the model's own limit the remedy is not a larger context.
    let whole = kiln(&["run", "-m", m, "--tokens", &vec!["2"; 4097].join(",")]);
    whole.refused(2, &["4097 tokens", "4096; shorten it\n"]);
    kiln(&["run", "-m", m, "--tokens", "2", "--ctx", "999999999"]).refused(2, &["999999999", "4096"]);
    kiln(&["run", "-m", m, "--tokens", "2", "--ctx", "0"]).refused(2, &["0"]);
    kiln(&["logits", "-m", m, "--tokens", "2", "--chunk", "0"]).refused(2, &["chunk"]);
    kiln(&["run", "-m", path(&text), "-p", ""]).refused(2, &["empty"]);
    kiln(&["run", "-m", path(&text)]).refused(2, &["empty"]);
    run(program().args(["run", "-m", path(&text)]), b"caf\xe9").refused(2, &["UTF-8", "3"]);
    kiln(&["run", "-m", path(&text), "-p", "x", "--temp", "-1"]).refused(2, &["--temp"]);
    kiln(&["run", "-m", path(&text), "-p", "x", "--temp", "1", "--top-p", "1.5"]).refused(2, &["--top-p"]);
    // Without a temperature these change nothing, which is said.
    for option in ["--seed", "--top-k", "--min-p"] {
        let ran = kiln(&["run", "-m", m, "--tokens", "2", "-n", "1", "--device", "cpu", option, "1"]);
        assert!(ran.code == 0 && ran.stderr.contains(&format!("give --temp for {option}")), "{}", ran.stderr);
    }
    kiln(&["run", "-m", path(&text), "-p", "x", "--stop", ""]).refused(2, &["stop"]);
    kiln(&["run", "-m", m, "-p", "x"]).refused(2, &["tokenizer"]);
    kiln(&["run", "-m", m, "--tokens", "2", "--stop", "x"]).refused(2, &["tokenizer"]);
}

/// Such a link was taken for no path: its name meant the built-in model, or one of the hub's.
#[test]
fn a_link_that_leads_nowhere_is_a_path() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("org")).unwrap();
    for name in ["demo", "org/name"] {
        std::os::unix::fs::symlink("nowhere", place.path().join(name)).unwrap();
        let mut command = program();
        command.args(["run", "--device", "cpu", "--tokens", "2", "-n", "1", "-m", name]).current_dir(place.path());
        run(&mut command, b"").refused(2, &[&format!("{name} is a link to nowhere, which does not exist")]);
    }
}

#[test]
fn bad_usage_and_bad_models_are_refused_in_one_line() {
    kiln(&["run", "--no-such-flag"]).refused(2, &["--no-such-flag"]);
    kiln(&["frobnicate"]).refused(2, &["frobnicate"]);
    kiln(&["run", "-p", "x", "-n", "-1"]).refused(2, &["-1", "-n"]);
    kiln(&["run", "-p", "x", "--temp", "1", "--top-k", "-3"]).refused(2, &["-3", "--top-k"]);
    kiln(&["forge", "--shape", "gemma3-1b", "-o", "/no/such", "--seed", "-3"]).refused(2, &["-3", "--seed"]);
    kiln(&["run", "-p", "x", "--device", "gpu"]).refused(2, &["gpu", "vulkan"]);
    kiln(&["run", "-p", "x", "--device", "vulkan:x"]).refused(2, &["x"]);
    kiln(&["run", "-m", "/no/such/model", "-p", "x"]).refused(2, &["/no/such/model"]);
    kiln(&["plan", "-m", "/no/such/model"]).refused(2, &["/no/such/model"]);
    kiln(&["plan", "--machine", "c64"]).refused(2, &["c64", "780m"]);
    kiln(&["plan", "--machine", "780m", "--device", "vulkan:9"]).refused(2, &["--device", "780m"]);
    kiln(&["plan", "--shape", "gemma9"]).refused(2, &["gemma9", "gemma3-27b"]);
    for command in
        [&["run", "-p", "x"][..], &["plan"], &["plan", "--machine", "890m"], &["probe"], &["logits", "--tokens", "2"]]
    {
        kiln(&[command, &["--npu", "require"]].concat()).refused(4, &["NPU"]);
    }

    // The remedy names the file that is wrong.
    let generation = tiny_with_text();
    std::fs::write(generation.path().join("generation_config.json"), r#"{"eos_token_id": "end"}"#).unwrap();
    let ran = kiln(&["run", "-m", path(&generation), "-p", "x"]);
    ran.refused(2, &["generation_config.json: eos_token_id", "take generation_config.json from"]);
    assert!(!ran.stderr.contains("take config.json"), "{}", ran.stderr);
    // Smaller weights are no remedy for a KV cache that is too large, nor INT8 for a model that is INT8.
    assert!(!kiln(LARGE_CACHE).stderr.contains("--weights"), "{}", kiln(LARGE_CACHE).stderr);

    // An INT8 source cannot become BF16.
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
    // A broken template only stops commands that need it.
    let template = tiny_with_text();
    std::fs::write(template.path().join("chat_template.jinja"), "{{").unwrap();
    kiln(&["run", "-m", path(&template), "-p", "x"]).refused(2, &["chat_template.jinja"]);
    assert_eq!(kiln(&["run", "-m", path(&template), "-p", "x", "--raw", "-n", "1"]).code, 0);

    // A tokenizer of 512 for a vocabulary of 320.
    let mixed = model_of(&["deep62/config.json", "deep62/model.safetensors", "tokenizer/tokenizer.json"]);
    kiln(&["run", "-m", path(&mixed), "-p", "x"]).refused(2, &["512", "320"]);
}

/// What is beside models, given as one: every command says what it is.
#[test]
fn what_is_no_model_is_named_by_every_command() {
    let adapter = tempfile::tempdir().unwrap();
    let config = r#"{"peft_type": "LORA", "base_model_name_or_path": "google/gemma-3-1b-it"}"#;
    std::fs::write(adapter.path().join("adapter_config.json"), config).unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n";
    let clone = tiny_with_text();
    for name in ["config.json", "tokenizer.json"] {
        std::fs::write(clone.path().join(name), pointer).unwrap();
    }
    for command in [&["run", "-p", "x"][..], &["plan"], &["logits", "--tokens", "2"], &["bench"]] {
        let ran = |model: &tempfile::TempDir| kiln(&[command, &["-m", path(model), "--device", "cpu"]].concat());
        ran(&adapter)
            .refused(2, &["is a LoRA adapter, not a model; merge it into its base model, google/gemma-3-1b-it"]);
        ran(&clone).refused(2, &["config.json is a Git LFS pointer in place of the file; run `git lfs pull`"]);
    }
    kiln(&["tokenize", "-m", path(&clone), "x"]).refused(2, &["tokenizer.json is a Git LFS pointer"]);
    kiln(&["run", "no/such.gguf"]).refused(2, &["give the model as `-m no/such.gguf`"]);
}

/// Each of these hung, or took all memory.
#[test]
fn what_is_no_text_file_is_refused_and_no_cache_set_aside() {
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"] {
        let model = tiny_with_text();
        let file = model.path().join(name);
        let refused = |what: &str| {
            kiln(&["run", "-m", path(&model), "-p", "x", "--device", "cpu"]).refused(2, &[name, what]);
            std::fs::remove_file(&file).unwrap();
        };
        let _ = std::fs::remove_file(&file);
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused("not a regular file");
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        refused("not a regular file");
        std::fs::File::create(&file).unwrap().set_len(5 << 30).unwrap();
        refused("5368709120 bytes");
    }

    let cache = tempfile::tempdir().unwrap();
    let answer = || {
        let arguments = ["run", "-m", &tiny(), "--tokens", "2,5", "-n", "1", "--device", "vulkan"];
        run(program().args(arguments).env("KILN_CACHE_DIR", cache.path()), b"")
    };
    assert_eq!(answer().code, 0);
    let files: Vec<_> = std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in &files {
        std::fs::remove_file(file).unwrap();
        nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let again = answer();
    assert_eq!((again.code, again.stdout), (0, answer().stdout), "{}", again.stderr);
    assert!(again.stderr.contains("is not used: it is not a regular file"), "{}", again.stderr);
    for file in &files {
        let found = file.symlink_metadata().unwrap();
        assert!(found.is_file() && found.permissions().mode() & 0o777 == 0o600, "{}", file.display());
    }
}

/// Templates that filled 7.9 GB, ran for minutes or overflowed the stack.
#[test]
fn a_hostile_template_is_refused_in_one_line() {
    let model = tiny_with_text();
    for (template, what) in [
        ("{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "16 MiB"),
        (
            "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
            "16 MiB",
        ),
        (&format!("{{{{ {}1 }}}}", "not ".repeat(50_000)), "has a tag of more than 512"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "does not end"),
    ] {
        std::fs::write(model.path().join("chat_template.jinja"), template).unwrap();
        kiln(&["run", "-m", path(&model), "-p", "x", "--device", "cpu"]).refused(2, &[what]);
    }
}

/// `tokenize` refused such a tokenizer, and `run` went on with a prompt that the model has never seen.
#[test]
fn a_tokenizer_without_bos_is_refused_everywhere() {
    let model = tiny_with_text();
    let file = model.path().join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json["added_tokens"].as_array_mut().unwrap().retain(|token| token["content"] != "<bos>");
    std::fs::write(&file, json.to_string()).unwrap();
    let chat = r#"[{"role": "user", "content": "x"}]"#;
    for arguments in [
        &["run", "--device", "cpu", "-p", "x"][..],
        &["run", "--device", "cpu", "-p", "x", "--raw"],
        &["run", "--device", "cpu", "-p", "<bos>x", "--raw"],
        &["tokenize", "x"],
        &["tokenize", "--chat", chat],
    ] {
        kiln(&[arguments, &["-m", path(&model)]].concat()).refused(2, &["no <bos>"]);
    }
    assert_eq!(kiln(&["tokenize", "--no-bos", "x", "-m", path(&model)]).code, 0);
    assert_eq!(kiln(&["run", "--tokens", "2,5", "-n", "1", "--device", "cpu", "-m", path(&model)]).code, 0);
}

/// With --json an error is also an object, unless the command's own object says it.
#[test]
fn under_json_an_error_is_an_object_as_well() {
    let m = &tiny();
    for (arguments, code, message, remedy) in [
        (&["run", "-m", m, "--tokens", "2,512"][..], 2, "512", "tokenizer"),
        (&["run", "-m", "/no/such", "-p", "x"], 2, "/no/such does not exist", "check the path"),
        (&["run", "--tokens", "2", "--device", "vulkan:77"], 4, "77", "0:"),
        (&["run", "--no-such-flag"], 2, "'--no-such-flag'", "`kiln run --help`"),
        (&["perplexity", "-m", m], 2, "<FILE>", "`kiln perplexity --help`"),
        (&["run", "-m", m, "--tokens", "2", "--ctx", "0"], 2, "0 tokens", "--ctx"),
    ] {
        let ran = kiln(&[arguments, &["--json"]].concat());
        ran.failed(code, &[message, remedy]);
        let error = ran.object()["error"].clone();
        let text = |key: &str| error[key].as_str().unwrap().to_owned();
        assert_eq!(error["exit"], code, "{error}");
        assert_eq!(ran.stderr, format!("kiln: {}; {}\n", text("message"), text("remedy")));
        assert!(text("message").contains(message) && text("remedy").contains(remedy), "{error}");
        kiln(arguments).refused(code, &[message, remedy]);
    }
    let refused = kiln(&[LARGE_CACHE, &["--json"]].concat());
    assert_eq!((refused.code, &refused.object()["fits"]), (3, &Value::Bool(false)));
}

/// Whoever loads a model: what the command line has wrong is said before a device is opened, and before a draft model is loaded.
#[test]
fn options_that_a_model_cannot_have_are_refused_before_a_device_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let [input, output] = ["in.jsonl", "out.jsonl"].map(|name| directory.path().join(name).display().to_string());
    std::fs::write(&input, "{\"prompt\": \"x\"}\n").unwrap();
    let commands = [&["run", "-p", "x"][..], &["batch", &input, "-o", &output], &["bench"], &["serve", "--check"]];
    for command in commands {
        let wrong = ["-m", "demo", "--device", "vulkan:77", "--weights", "bf16"];
        kiln(&[command, &wrong].concat()).refused(2, &["INT8 already", "--weights int8"]);
    }
}

#[test]
fn devices_that_are_not_there_are_said_so() {
    let m = &tiny();
    kiln(&["run", "-m", m, "--tokens", "2", "--device", "vulkan:77"]).refused(4, &["77", "0:"]);
    let none = [("VK_ICD_FILENAMES", "/nonexistent.json"), ("VK_DRIVER_FILES", "/nonexistent.json")];
    let without = |more: &[&str]| {
        let mut command = program();
        command.args(["run", "-m", m, "--tokens", "2"]).args(more).envs(none);
        command
    };
    run(&mut without(&["--device", "vulkan"]), b"").refused(4, &["driver"]);
    // If validation was asked for, it is not left out silently.
    run(without(&[]).env("KILN_VALIDATION", "1"), b"").refused(4, &["driver"]);
    // Options for loading apply to the built-in model if probe is given no model.
    kiln(&["probe", "--quick", "--device", "cpu", "--ctx", "4096"]).refused(2, &["4096", "1..=2048"]);
    let probe = kiln(&["probe", "--quick", "--device", "cpu", "--ctx", "2048"]);
    assert!(probe.stdout.contains("model.memory") && probe.stdout.contains("demo (int8) needs"), "{}", probe.stdout);
    // `auto` falls back to the CPU, and says so.
    let ran = run(&mut without(&["-n", "1", "--json"]), b"");
    assert!(ran.json()["device"].as_str().unwrap().contains("CPU"));
    assert!(ran.stderr.contains("CPU"), "{}", ran.stderr);
    // Nothing is wrong with a machine without a GPU. With one that cannot be used, something is.
    let note = "kiln: there is no GPU; running on the CPU\n";
    match may_have_gpu(&Files::system()) {
        true => assert!(ran.stderr.contains("WARN") && !ran.stderr.contains("no GPU"), "{}", ran.stderr),
        false => assert_eq!(ran.stderr, note),
    }
}
