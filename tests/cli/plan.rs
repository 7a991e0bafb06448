//! `kiln plan`, and the refusals of other commands for a model that does not fit.

use crate::common::program::{Ran, kiln};
use crate::{path, tiny};
use kiln::model::{Shape, TensorId, config, presets};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// A 27B INT8 checkpoint whose data is a hole in a file. It can be planned, and is refused before a byte is read.
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
    assert_eq!(plan["schedule"].as_array().unwrap().len(), 62 * 13 + 6);
    let at_one = plan["roofline"][0]["tokens_s"].as_f64().unwrap();
    assert!((3.2..3.4).contains(&at_one), "89.6 GB/s over 27.0 GB: {at_one}");
    let long = ["plan", "-m", path(&dir), "--machine", "780m", "--ctx", "131072", "--batch", "3"];
    let whole = [&long[..], &["--kv-tokens", "393216"]].concat();
    does_not_fit(&whole, &["KV cache", "VRAM", "GTT", "--kv-tokens (now 393216)", "--batch"]);
    // Without that the KV cache is as large as fits, and holds one whole sequence at least.
    let plan = kiln(&[&long[..], &["--json"]].concat()).json();
    let tokens = plan["kv_tokens"].as_u64().unwrap();
    assert!((131_072..393_216).contains(&tokens), "{tokens}");
    kiln(&[&long[..], &["--kv-tokens", "131071"]].concat()).refused(2, &["--kv-tokens", "--ctx"]);
    // BF16 weights fit an 890M's 64 GiB if the kernel lets the GPU use more of them. They fit a 780M's 96 GiB as they
    // are.
    let bf16 = ["plan", "--shape", "gemma3-27b", "--weights", "bf16", "--machine"];
    does_not_fit(&[&bf16[..], &["890m"]].concat(), &["together", "boot", "amdgpu.gttsize=", "ttm.pages_limit="]);
    does_not_fit(&[&bf16[..], &["780m:4"]].concat(), &["amdgpu.gttsize=50176", "4.0 GB in VRAM"]);
    let plan = kiln(&[&bf16[..], &["890m", "--json"]].concat());
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["kernel_parameters"], "amdgpu.gttsize=38912 ttm.pages_limit=9961472 ttm.page_pool_size=9961472");
    let plan = kiln(&[&bf16[..], &["780m", "--json"]].concat()).json();
    assert!(plan["kernel_parameters"].is_null() && plan["heaps"][0]["reserved"].as_u64() > Some(0), "{plan}");
    let int4 = ["plan", "--shape", "gemma3-27b", "--weights", "int4", "--machine", "780m", "--json"];
    let plan = kiln(&int4).json();
    assert_eq!(plan["sums"]["weights"], 15_815_175_936u64);
    let at_one = plan["roofline"][0]["tokens_s"].as_f64().unwrap();
    assert!((5.6..5.7).contains(&at_one), "89.6 GB/s over 15.8 GB: {at_one}");
    kiln(&["plan", "--machine", "780m:3"]).refused(2, &["780m", "0.5, 1, 2, 4, 8, 16"]);
    kiln(&["plan", "-m", path(&dir), "--batch", "4611686018427387904"]).refused(2, &["--batch"]);
    kiln(&["plan", "-m", path(&dir), "--batch", "0"]).refused(2, &["--batch"]);
    // A chunk far longer than the prompt takes no memory for rows that never come.
    let long =
        ["logits", "-m", &tiny(), "--tokens", "2,3", "--chunk", "18446744073709551615", "--ctx", "4096", "--json"];
    assert_eq!(kiln(&long).json()["position"], 1);
}

/// A refused plan still shows its figures, and the reason.
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

/// Sums in MB stood among sums in GB.
#[test]
fn a_table_has_one_unit() {
    let fits = ["plan", "--shape", "gemma3-27b", "--machine", "780m", "--schedule"];
    let refused = ["plan", "--shape", "gemma3-27b", "--machine", "890m", "--ctx", "131072", "--kv-tokens", "262144"];
    let refused = [&refused[..], &["--batch", "2"]].concat();
    for arguments in [&fits[..], &refused] {
        let shown = kiln(arguments).stdout;
        // A heap's use was in bytes where it came close to what is free.
        let words: Vec<&str> = shown.split_whitespace().collect();
        let raw = words.windows(2).find(|w| w[1] == "B" && w[0].len() > 3);
        assert_eq!(raw, None, "{shown}");
        // The rows of a table: the column of bytes is a number and its unit.
        let units = |begins: &dyn Fn(&str) -> bool| {
            let rows = shown.lines().filter(|line| begins(line));
            let unit =
                |row: &str| row.split_whitespace().find(|w| ["B", "kB", "MB", "GB"].contains(w)).map(str::to_owned);
            let mut units: Vec<String> = rows.filter_map(unit).collect();
            assert!(units.len() > 1, "{shown}");
            units.dedup();
            units
        };
        let kinds = ["weights", "KV cache", "arena", "staging", "together"];
        let is_sum =
            |line: &str| line.strip_prefix("    ").is_some_and(|l| kinds.iter().any(|kind| l.starts_with(kind)));
        assert_eq!(units(&is_sum).len(), 1, "{shown}");
        assert_eq!(units(&|line| line.ends_with("  memory") || line.ends_with("  matrix units")).len(), 1, "{shown}");
        if arguments.contains(&"--schedule") {
            let is_step =
                |line: &str| line.get(..6).is_some_and(|l| l.trim().parse::<usize>().is_ok() && l.ends_with(' '));
            assert_eq!(units(&|line| is_step(line) && line.contains("layer")).len(), 1, "{shown}");
        }
    }
}

/// The tokens of KV that each machine has room for, of so many sequences together: in the table and in JSON.
#[test]
fn a_plan_says_how_many_tokens_there_is_room_for() {
    for (machine, of_one, of_32) in [("780m", 131_072, 107_328), ("890m", 131_072, 26_368), ("8060s", 131_072, 631_616)]
    {
        let arguments = ["plan", "--shape", "gemma3-27b", "--machine", machine];
        let plan = kiln(&[&arguments[..], &["--json"]].concat()).json();
        let room = |sequences: u64| {
            let rooms = plan["kv_room"].as_array().unwrap();
            rooms.iter().find(|room| room["sequences"] == sequences).unwrap()["tokens"].as_u64().unwrap()
        };
        assert_eq!((room(1), room(32)), (of_one, of_32), "{machine}");
        let text = kiln(&arguments).stdout;
        let row = |words: &[String]| text.lines().any(|l| l.split_whitespace().eq(words.iter().map(String::as_str)));
        assert!(row(&[32.to_string(), of_32.to_string(), (of_32 / 32).to_string()]), "{text}");
        // What there is room for fits.
        let tokens = room(32).to_string();
        let batch = [&arguments[..], &["--batch", "32", "--ctx", "16384", "--kv-tokens", &tokens, "--json"]].concat();
        assert_eq!(kiln(&batch).json()["fits"], true, "{machine}");
    }
}

/// A directory in INT4 is planned in INT4, also where INT8 is asked for.
#[test]
fn what_the_files_have_in_int4_is_planned_so() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("int4");
    let dir = dir.to_str().unwrap();
    let weights = |args: &[&str]| {
        let plan = kiln(&[&["plan", "--device", "cpu", "--json", "-m"], args].concat()).json();
        plan["sums"]["weights"].as_u64().unwrap()
    };
    kiln(&["quantize", "-m", &tiny(), "-o", dir, "--weights", "int4", "--json"]).json();
    let [bf16, int8, int4] = ["bf16", "int8", "int4"].map(|format| weights(&[&tiny(), "--weights", format]));
    assert!(bf16 > int8 && int8 > int4, "{bf16}, {int8}, {int4}");
    assert_eq!([weights(&[dir]), weights(&[dir, "--weights", "int4"])], [int4; 2]);
}

/// Rates with drafts are arithmetic: tokens of a pass over what it reads, and what drafting reads.
#[test]
fn drafts_are_planned_as_arithmetic() {
    let plan = |more: &[&str]| {
        kiln(&[&["plan", "--shape", "gemma3-27b", "--weights", "int4", "--machine", "890m", "--json"], more].concat())
            .json()
    };
    let (alone, beside) = (plan(&[]), plan(&["--draft", "gemma3-270m"]));
    let rate = |plan: &Value, drafted: usize, right: usize| {
        plan["drafts"][drafted]["rates"][right]["tokens_s"].as_f64().unwrap()
    };
    let one = alone["roofline"][0]["tokens_s"].as_f64().unwrap();
    // One drafted token that is right half of the time, and reading hardly more: 1.5 tokens a pass.
    assert!((rate(&alone, 0, 0) / one - 1.5).abs() < 0.01, "{}", rate(&alone, 0, 0) / one);
    // Seven at 0.8: (1 - 0.8^8) / 0.2.
    assert!((rate(&alone, 2, 3) / one - 4.161).abs() < 0.05, "{}", rate(&alone, 2, 3) / one);
    for drafted in 0..3 {
        for right in 0..4 {
            assert!(rate(&beside, drafted, right) < rate(&alone, drafted, right));
        }
    }
    let free = |plan: &Value| plan["pool"]["available"].as_u64().unwrap();
    assert_eq!(free(&alone) - free(&beside), beside["draft"]["bytes"].as_u64().unwrap());
    let text =
        kiln(&["plan", "--shape", "gemma3-27b", "--weights", "int4", "--machine", "890m", "--draft", "gemma3-270m"]);
    assert!(text.stdout.contains("beside gemma3-270m, which drafts") && text.stdout.contains("drafts by gemma3-270m"));
    kiln(&["plan", "--shape", "gemma3-27b", "--machine", "890m", "--ctx", "100000", "--draft", "gemma3-270m"])
        .refused(2, &["draft model's, 32768", "--ctx"]);
    kiln(&["plan", "--shape", "gemma3-27b", "--machine", "890m", "--draft", "nonsense"]).refused(2, &["nonsense"]);
}
