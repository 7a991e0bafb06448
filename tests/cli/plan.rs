//! `kiln plan`, and the refusals of other commands for a model that does not fit.

use crate::common::gguf::{Tensor, file_of, renamed};
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

/// A refused plan begins with the sum and has no rate of what cannot run, in the tables and in JSON.
fn does_not_fit(arguments: &[&str], words: &[&str]) {
    let text = kiln(arguments);
    let verdict = text.stdout.lines().next().unwrap().to_owned();
    assert!(verdict.starts_with("does not fit: "), "{}", text.stdout);
    assert!(!text.stdout.contains("roofline") && !text.stdout.contains("drafted"), "{}", text.stdout);
    assert!(
        !text.stdout.lines().any(|line| line.split_whitespace().any(|w| w == "0" || w == "0.0")),
        "{}",
        text.stdout
    );
    Ran { stdout: String::new(), ..text }.refused(3, words);
    let json = kiln(&[arguments, &["--json"]].concat());
    let value: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(json.stderr.contains(value["reason"].as_str().unwrap()), "{}", json.stderr);
    assert_eq!((json.code, &value["fits"], &value["at_best"]), (3, &Value::Bool(false), &Value::Null));
    assert!(value["remedies"].is_object(), "{value}");
    for list in ["roofline", "drafts", "regions"] {
        assert_eq!(value[list], serde_json::json!([]), "{list}");
    }
    assert!(value["kv_room"].as_array().unwrap().iter().all(|room| room["tokens"].as_u64() > Some(0)), "{value}");
    // Of this machine as much may be free now and not then.
    assert!(!arguments.contains(&"--machine") || value["verdict"] == *verdict, "{value}");
    let sums: u64 = value["sums"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(value["bytes"].as_u64(), Some(sums));
}

/// Gemma 3 27B on a 780M with these arguments.
fn plan_27b(more: &[&str]) -> Ran {
    kiln(&[&["plan", "--shape", "gemma3-27b"], more].concat())
}

fn json_27b(more: &[&str]) -> Value {
    serde_json::from_str(&plan_27b(&[more, &["--json"]].concat()).stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_first_line_says_what_a_machine_allows_at_best() {
    let machine = ["--machine", "780m", "--ram", "64"];
    let int8 = json_27b(&machine);
    let verdict = "fits; at most 3.3 tokens/s: 5.7 in 4 bits, about 9 with a draft; \
                   first token of a prompt of 1,000 tokens after 6.1 s at best";
    assert_eq!(int8["verdict"], verdict);
    assert_eq!(plan_27b(&machine).stdout.lines().next(), Some(verdict));
    // Each figure is the tables', or follows from fields beside it.
    let best = &int8["at_best"];
    let int4 = json_27b(&[&machine[..], &["--weights", "int4"]].concat());
    assert_eq!(best["tokens_s"], int8["roofline"][0]["tokens_s"]);
    assert_eq!(best["int4_tokens_s"], int4["roofline"][0]["tokens_s"]);
    let draft = &best["with_draft"];
    assert_eq!((&draft["weights"], &draft["drafted"], number(&draft["right"])), (&"int4, int8".into(), &1.into(), 0.6));
    assert_eq!(
        (number(&draft["tokens_a_pass"]), &draft["tokens_s"]),
        (1.6, &int4["drafts"][0]["rates"][1]["tokens_s"])
    );
    // 2 operations for each of the layers' 25.6 G weights and each of 1,000 tokens, and attention's, at 512 for each of 12
    // units and 2.8 GHz: memory is no bound.
    let prefill = &best["prefill"];
    let operations = number(&prefill["operations"]);
    assert!((51.2e12..52.5e12).contains(&operations), "{operations}");
    let peak = 512.0 * 12.0 * 2.8e9;
    let share = number(&prefill["share_of_peak"]);
    let seconds = [number(&prefill["seconds_at_peak"]), number(&prefill["seconds"]) * share];
    assert!(seconds.iter().all(|seconds| (seconds * peak / operations - 1.0).abs() < 1e-9), "{prefill}");
    assert!((number(&prefill["peak_operations_s"]) / peak - 1.0).abs() < 1e-9 && share < 1.0, "{prefill}");
    // What is in 4 bits already is compared with nothing.
    let said = int4["verdict"].as_str().unwrap();
    assert!(said.starts_with("fits; at most 5.7 tokens/s, about 9 with a draft; first token"), "{said}");
    assert_eq!((&int4["at_best"]["int4_tokens_s"], &int4["at_best"]["with_draft"]), (&Value::Null, draft));
    // Several sequences, a short context, and a draft model, whose own passes count.
    let several = json_27b(&["--machine", "780m", "--batch", "8", "--ctx", "500", "--draft", "gemma3-270m"]);
    let said = several["verdict"].as_str().unwrap();
    assert!(said.contains("3.3 tokens/s (8 sequences together 26.5): 5.7 in 4 bits, about 9 with a draft"), "{said}");
    assert!(said.contains("; first token of a prompt of 500 tokens after "), "{said}");
    assert!(number(&several["at_best"]["with_draft"]["tokens_s"]) < number(&draft["tokens_s"]));
    // A draft model as slow as the model gains nothing.
    let slow = ["plan", "--shape", "gemma3-4b", "--machine", "780m", "--draft", "gemma3-4b", "--json"];
    let plan = kiln(&slow).json();
    let said = plan["verdict"].as_str().unwrap();
    assert!(said.starts_with("fits; at most ") && !said.contains("draft"), "{said}");
    assert!(plan["at_best"]["with_draft"].is_null() && number(&plan["at_best"]["int4_tokens_s"]) > 30.0, "{plan}");
}

/// Of a device whose arithmetic is not known no time for a prompt is said.
#[test]
fn the_reference_executors_verdict_has_no_time_for_a_prompt() {
    let arguments = ["plan", "-m", &tiny(), "--device", "cpu"];
    let text = kiln(&arguments).stdout;
    let verdict = text.lines().next().unwrap();
    assert!(verdict.starts_with("fits; at most ") && !verdict.contains("first token"), "{text}");
    assert!(text.contains("how long a prompt takes is not known"), "{text}");
    let plan = kiln(&[&arguments[..], &["--json"]].concat()).json();
    assert!(plan["at_best"]["prefill"].is_null() && plan["machine"].is_null(), "{plan}");
}

/// Whatever a refusal's first line suggests fits, and less of it does not.
#[test]
fn what_a_refusal_suggests_fits() {
    const GIB: u64 = 1 << 30;
    let fits = |more: &[&str]| json_27b(more)["fits"] == true;
    does_not_fit(
        &["plan", "--shape", "gemma3-27b", "--machine", "780m", "--ram", "32"],
        &["--weights int4", "amdgpu.gttsize=12288"],
    );
    let plan = json_27b(&["--machine", "780m", "--ram", "32"]);
    assert_eq!(
        plan["verdict"],
        "does not fit: needs 28.4 GB, this machine gives 24.2 GB; INT4 needs 17.1 GB and fits, at most 5.7 tokens/s; \
         as it is it fits with the kernel's parameters below or 48 GiB of RAM"
    );
    let (smaller, ram) = (&plan["remedies"]["smaller"], plan["remedies"]["ram"].as_u64());
    let int4 = json_27b(&["--machine", "780m", "--ram", "32", "--weights", "int4"]);
    assert_eq!((&smaller["bytes"], &smaller["fits"]), (&int4["bytes"], &int4["fits"]));
    assert_eq!((&int4["fits"], &smaller["tokens_s"]), (&Value::Bool(true), &int4["roofline"][0]["tokens_s"]));
    assert!(ram == Some(48 * GIB) && fits(&["--machine", "780m", "--ram", "48"]), "{ram:?}");
    assert_eq!(plan["remedies"]["kernel_parameters"], plan["kernel_parameters"]);

    // A carve-out in the place of GTT: what the firmware offers above the one that is too small.
    let small = ["--machine", "780m:0.5", "--ram", "32", "--weights", "int4"];
    let plan = json_27b(&small);
    assert!(plan["fits"] == false && plan["remedies"]["carve_out"] == 4 * GIB, "{plan}");
    assert!(plan["verdict"].as_str().unwrap().contains("as it is it fits with a carve-out of 4 GiB"), "{plan}");
    assert!(fits(&["--machine", "780m:4", "--ram", "32", "--weights", "int4"]));
    assert!(!fits(&["--machine", "780m:2", "--ram", "32", "--weights", "int4"]));

    // A context, and a KV cache. Pages are in blocks that are alike, so that a few more may fit by chance.
    let first_too_many = |most: u64, fits: &dyn Fn(u64) -> bool| {
        assert!(fits(most), "{most}");
        let found = (1..).map(|n| most + 64 * n).find(|n| !fits(*n)).unwrap();
        assert!(found <= most + most / 50, "{found} of {most}");
        found
    };
    let long = ["--machine", "890m", "--ram", "48", "--ctx", "131072"];
    let context = json_27b(&long)["remedies"]["ctx"].as_u64().unwrap();
    let with = |context: u64| fits(&[&long[..4], &["--ctx", &context.to_string()]].concat());
    let little = first_too_many(context, &with);
    let little = json_27b(&[&long[..4], &["--ctx", &little.to_string()]].concat());
    // What is missing, or that no heap has room for the last block.
    let said = little["verdict"].as_str().unwrap();
    let words = [" too much), this machine gives ", " GB in VRAM and "];
    assert!(words.iter().any(|words| said.contains(words)), "{said}");
    let cache = ["--machine", "890m", "--ctx", "4096", "--batch", "32", "--kv-tokens", "131072"];
    let tokens = json_27b(&cache)["remedies"]["kv_tokens"].as_u64().unwrap();
    first_too_many(tokens, &|tokens| fits(&[&cache[..7], &[&tokens.to_string()]].concat()));

    // Where 4 bits do not fit either, nobody is sent that way.
    let none = plan_27b(&["--machine", "780m", "--ram", "16"]);
    assert!(
        none.stdout.contains("INT4 needs 17.1 GB and does not fit either; as it is it fits with 48 GiB"),
        "{}",
        none.stdout
    );
    assert!(none.code == 3 && !none.stderr.contains("int4"), "{}", none.stderr);
    // The largest of the smaller forms that fits is named.
    let bf16 = plan_27b(&["--machine", "780m", "--ram", "64", "--weights", "bf16"]);
    assert!(bf16.stdout.contains("; INT8 needs 28.4 GB and fits, at most 3.3 tokens/s; "), "{}", bf16.stdout);
    let bf16 = plan_27b(&["--machine", "780m", "--ram", "32", "--weights", "bf16"]);
    assert!(bf16.stdout.contains("; INT4 needs 17.1 GB and fits, at most 5.7 tokens/s; "), "{}", bf16.stdout);
    assert!(bf16.stderr.contains("--weights int4"), "{}", bf16.stderr);
}

/// A GGUF file of 27B whose data is a hole, with the layers' matrices in the type `kind`, whose blocks are of so many weights
/// and bytes, and the embedding in Q6_K.
fn hollow_gguf(path: &Path, (kind_of_layers, weights, bytes): (u32, usize, usize)) {
    let shape: Shape = presets::preset("gemma3-27b").unwrap();
    let mut file = file_of(&shape);
    let mut end = 0u64;
    for id in TensorId::all(&shape) {
        let [rows, cols] = id.dims(&shape);
        let (kind, bytes) = match id {
            _ if id.is_vector() => (0, 4 * cols),
            TensorId::Embedding => (14, rows * cols / 256 * 210),
            _ => (kind_of_layers, rows * cols / weights * bytes),
        };
        let dims = if id.is_vector() { vec![cols] } else { vec![rows, cols] };
        file.tensors.push(Tensor { offset: Some(end), ..Tensor::new(&renamed(&id.name()), &dims, kind, Vec::new()) });
        end += (bytes as u64).next_multiple_of(32);
    }
    let (head, _) = file.parts();
    std::fs::write(path, &head).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_len(head.len() as u64 + end).unwrap();
}

/// The verdict on a GGUF file is on the types that it has. No other is made of these, so 4 bits are another file's.
#[test]
fn a_gguf_files_verdict_is_of_its_own_types() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gemma-3-27b-it-Q8_0.gguf");
    hollow_gguf(&file, (8, 32, 34));
    let ran = |ram: &str| kiln(&["plan", "-m", file.to_str().unwrap(), "--machine", "780m", "--ram", ram]);
    let line = |ram: &str| ran(ram).stdout.lines().next().unwrap().to_owned();
    // 25.6 G weights of 34 bytes for 32, and 1.4 G of 210 bytes for 256.
    assert!(
        line("64").starts_with("fits; at most 3.2 tokens/s: 5.7 in 4 bits, about 9 with a draft; "),
        "{}",
        line("64")
    );
    let refused = line("32");
    assert!(refused.starts_with("does not fit: needs 29.7 GB, this machine gives 24.2 GB; "), "{refused}");
    assert!(refused.contains("; a file of 4 bits needs about 17.1 GB and fits, at most 5.7 tokens/s; "), "{refused}");
    assert!(!ran("32").stderr.contains("--weights"), "{}", ran("32").stderr);
}

/// Of a file in Q4_K it said how fast the model would be "in 4 bits", and sent to "a file of 4 bits".
#[test]
fn a_file_in_4_bits_is_compared_with_no_4_bits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gemma-3-27b-it-Q4_K_M.gguf");
    hollow_gguf(&file, (12, 256, 144));
    for (ram, verdict) in [("64", "fits; "), ("16", "does not fit: ")] {
        let ran = kiln(&["plan", "-m", file.to_str().unwrap(), "--machine", "780m", "--ram", ram]);
        assert!(ran.stdout.starts_with(verdict), "{}", ran.stdout);
        assert!(!ran.stdout.contains("4 bits"), "{}", ran.stdout);
    }
}

/// What a machine by name is taken to have stands below the verdict, whoever said it.
#[test]
fn no_ram_is_assumed_in_silence() {
    const GIB: u64 = 1 << 30;
    for (more, line, ram, carve_out, assumed) in [
        (
            &["--machine", "780m"][..],
            "assumes 96 GiB of RAM (--ram N takes N), 16 of them carved out for the GPU (--machine 780m:N takes N); \
             it fits from 48 GiB of RAM on, in 4 bits from 32",
            96,
            16,
            &["ram", "carve_out"][..],
        ),
        (
            &["--machine", "780m", "--ram", "48GB"],
            "with 48 GiB of RAM; assumes that 16 of them are carved out for the GPU (--machine 780m:N takes N); \
             it fits from 48 GiB of RAM on, in 4 bits from 32",
            48,
            16,
            &["carve_out"],
        ),
        (
            &["--machine", "780m:4"],
            "assumes 96 GiB of RAM (--ram N takes N), with 4 of them carved out for the GPU; \
             it fits from 64 GiB of RAM on, in 4 bits from 32",
            96,
            4,
            &["ram"],
        ),
        (
            &["--machine", "780m:4", "--ram", "32GiB"],
            "with 32 GiB of RAM, 4 of them carved out for the GPU; it fits from 64 GiB of RAM on, in 4 bits from 32",
            32,
            4,
            &[],
        ),
        (
            &["--machine", "8060s", "--ram", "16", "--weights", "bf16"],
            "with 16 GiB of RAM; assumes that 8 of them are carved out for the GPU (--machine 8060s:N takes N); \
             it fits from 96 GiB of RAM on, in 4 bits from 32",
            16,
            8,
            &["carve_out"],
        ),
    ] {
        assert_eq!(plan_27b(more).stdout.lines().nth(1), Some(line));
        let plan = json_27b(more);
        let machine = &plan["machine"];
        assert_eq!((machine["ram"].as_u64(), machine["carve_out"].as_u64()), (Some(ram * GIB), Some(carve_out * GIB)));
        assert_eq!(machine["assumed"], serde_json::json!(assumed), "{more:?}");
        let vram = &plan["heaps"][0];
        let bytes = |key: &str| vram[key].as_u64().unwrap();
        assert_eq!(bytes("available") + bytes("reserved"), carve_out * GIB, "{more:?}");
    }
    for word in ["x", "", "0", "-1", "1.5", "32MB", "32 T", "4294967296"] {
        plan_27b(&["--machine", "780m", "--ram", word]).refused(2, &["--ram", "whole number of GiB"]);
    }
    plan_27b(&["--ram", "32"]).refused(2, &["--ram", "--machine"]);
    plan_27b(&["--machine", "780m:16", "--ram", "16"]).refused(2, &["16 GiB of RAM less a carve-out of 16 GiB"]);
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
        if arguments.contains(&"--schedule") {
            let is_roof = |line: &str| line.ends_with("  memory") || line.ends_with("  matrix units");
            assert_eq!(units(&is_roof).len(), 1, "{shown}");
            let is_step =
                |line: &str| line.get(..6).is_some_and(|l| l.trim().parse::<usize>().is_ok() && l.ends_with(' '));
            assert_eq!(units(&|line| is_step(line) && line.contains("layer")).len(), 1, "{shown}");
        }
    }
}

/// The tokens of KV that each machine has room for, of so many sequences together: in the table and in JSON.
#[test]
fn a_plan_says_how_many_tokens_there_is_room_for() {
    for (machine, of_one, of_32) in [("780m", 131_072, 107_200), ("890m", 131_072, 26_240), ("8060s", 131_072, 631_488)]
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

/// What the cost model expects of a machine by name stands beside the roofline, below it, and is called a prediction.
#[test]
fn a_machine_by_name_has_a_prediction_below_its_roofline() {
    for machine in ["780m", "890m", "8060s"] {
        let plan = kiln(&["plan", "--shape", "gemma3-27b", "--machine", machine, "--json"]).json();
        let rate = |list: &Value, field: &str, n: u64| {
            let line = list.as_array().unwrap().iter().find(|line| line[field] == n).unwrap();
            line["tokens_s"].as_f64().unwrap()
        };
        for n in [1, 8, 32] {
            let predicted = rate(&plan["prediction"]["decode"], "sequences", n);
            let roof = rate(&plan["roofline"], "batch", n);
            assert!(predicted < roof && predicted > 0.2 * roof, "{machine}, {n}: {predicted} of {roof}");
        }
        assert!(plan["prediction"]["prefill"]["tokens_s"].as_f64().unwrap() > 10.0, "{plan}");
    }
    let text = kiln(&["plan", "--shape", "gemma3-27b", "--machine", "780m"]);
    assert_eq!(text.code, 0, "{}", text.stderr);
    assert!(
        text.stdout.contains("prediction") && text.stdout.contains("nothing of it was measured"),
        "{}",
        text.stdout
    );
    assert!(kiln(&["plan", "--shape", "gemma3-270m", "--device", "cpu", "--json"]).json()["prediction"].is_null());
    // Attention beside: on the NPU of the one machine that has this kind of one, in JSON and as a table.
    let attention = |machine| {
        let plan = kiln(&["plan", "--shape", "gemma3-27b", "--machine", machine, "--ram", "96", "--json"]).json();
        plan["prediction"]["attention"].as_array().unwrap().clone()
    };
    let placed = attention("780m");
    let rows: Vec<[u64; 3]> =
        placed.iter().map(|a| ["behind", "sequences", "tokens"].map(|key| a[key].as_u64().unwrap())).collect();
    let passes = [[1, 1], [2, 1], [8, 1], [32, 1], [1, 512]];
    let all = [1024, 8192, 32_768].map(|behind| passes.map(|[sequences, tokens]| [behind, sequences, tokens]));
    assert_eq!(rows, all.concat());
    for a in &placed {
        let of = |key: &str| a[key].as_f64().unwrap();
        assert!(0.0 < of("on_gpu_s") && of("on_gpu_s") < of("pass_s"), "{a}");
        let is_faster = of("pass_with_npu_s") < 0.98 * of("pass_s");
        assert_eq!(a["chosen"] == "NPU", is_faster && a["sequences"] == 1, "{a}");
        assert!(a["tokens"] != 1 || a["chosen"] == "GPU", "{a}");
        // Eight channels of a word a cycle.
        assert!(of("npu_bytes") / of("on_npu_s") < 8.0 * 4.0 * 1.028e9, "{a}");
    }
    assert!(attention("8060s").is_empty());
    let text = kiln(&["plan", "--shape", "gemma3-27b", "--machine", "780m", "--ram", "96", "--npu"]).stdout;
    assert!(text.contains("attention on the NPU, a prediction too"), "{text}");
    // One is required of the machine that is planned for, not of this one.
    kiln(&["plan", "--shape", "gemma3-27b", "--machine", "8060s", "--npu"])
        .refused(4, &["8060s", "XDNA 1", "--npu off"]);
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
    // One that does not fit is refused as such: the model alone might.
    let large = ["plan", "--shape", "gemma3-4b", "--machine", "780m", "--ram", "16", "--draft", "gemma3-27b"];
    kiln(&large).refused(3, &["28.4 GB", "leave out --draft"]);
}

/// The table in README.md ("Your own box"): RAM, a model, its mix of types, the file's name, and GiB of RAM to plan with.
const OWN_BOX: [(&str, &str, &str, &str, u64); 4] = [
    ("16 GB", "gemma3-12b", "q4_k_m", "gemma-3-12b-it Q4_K_M", 16),
    ("32 GB", "gemma3-27b", "q4_k_m", "gemma-3-27b-it Q4_K_M", 32),
    ("32 GB", "gemma4-31b", "q4_k_m", "gemma-4-31b-it Q4_K_M", 32),
    ("48 GB and more", "gemma3-27b", "q8_0", "gemma-3-27b-it Q8_0", 48),
];

/// Plans are what the table is made of. KILN_BLESS=1 writes it anew.
#[test]
fn the_readmes_table_of_machines_is_what_plans_say() {
    let mut table = String::from("   | RAM | file | its size | with 4,096 tokens of context | 780M | 890M | 8060S |\n");
    table += "   | --- | --- | --- | --- | --- | --- | --- |\n";
    for (ram, shape, mix, file, gib) in OWN_BOX {
        let plan = |machine: &str| {
            let gib = gib.to_string();
            kiln(&["plan", "--shape", shape, "--weights", mix, "--machine", machine, "--ram", &gib, "--json"]).object()
        };
        let plans = ["780m", "890m", "8060s"].map(plan);
        let gb = |value: &Value| format!("{:.1} GB", value.as_f64().unwrap() / 1e9);
        let rate = |plan: &Value| {
            let rate = plan["at_best"]["tokens_s"].as_f64();
            format!("{:.1}", rate.unwrap_or_else(|| panic!("{shape} in {mix} does not fit {gib} GiB: {plan}")))
        };
        let rates = plans.each_ref().map(rate).join(" | ");
        let (size, needs) = (gb(&plans[0]["file"]["bytes"]), gb(&plans[0]["bytes"]));
        table += &format!("   | {ram} | {file} | {size} | {needs} | {rates} |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let start = page.find("   | RAM | file |").expect("the table of machines");
    let end = start + page[start..].find("\n\n").unwrap() + 1;
    if page[start..end] == table {
        return;
    }
    let with_table = format!("{}{table}{}", &page[..start], &page[end..]);
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(&path, with_table).unwrap();
        return;
    }
    panic!("README.md has another table than plans say; KILN_BLESS=1 writes it anew:\n{table}\n{}", &page[start..end]);
}

#[test]
fn a_mix_of_types_is_planned_without_a_file() {
    let plan = |weights: &str| kiln(&["plan", "--shape", "27b", "--weights", weights, "--machine", "780m", "--json"]);
    let q4_k_m = plan("Q4_K_M").json();
    assert_eq!((q4_k_m["weights"].as_str(), q4_k_m["file"]["mix"].as_str()), (Some("q4_k, q6_k"), Some("q4_k_m")));
    assert_eq!(plan("q4_k").json()["file"], q4_k_m["file"]);
    assert!(plan("int8").json()["file"].is_null());
    let text = kiln(&["plan", "--shape", "27b", "--weights", "q4_k_m", "--machine", "780m"]).stdout;
    assert!(text.contains("as a GGUF file in Q4_K_M of about 16.5 GB"), "{text}");
    let line = ["plan", "-m", &tiny(), "--weights", "q4_k_m"];
    kiln(&line).refused(2, &["q4_k_m is a mix of types of a file", "or name a --shape"]);
    plan("iq2_xxs").failed(2, &["iq2_xxs", "q4_k_m"]);
    kiln(&["run", "-m", &tiny(), "--weights", "q4_k_m", "--tokens", "2"]).refused(2, &["q4_k_m", "int8"]);
}

/// A token reads 8 of 128 experts; more sequences read more of them between them, and a file has all.
#[test]
fn a_mixture_of_experts_is_planned_by_what_a_token_reads() {
    let line = ["plan", "--shape", "gemma4-26b-a4b", "--weights", "q4_0", "--machine", "8060s", "--ram", "32"];
    let text = kiln(&line).stdout;
    assert!(text.contains("FFN 2112 beside 8 of 128 experts of 704"), "{text}");
    let plan = kiln(&[&line[..], &["--json"]].concat()).object();
    let near = |found: &Value, wanted: f64| {
        let found = found.as_f64().unwrap_or_else(|| panic!("{plan}"));
        assert!((found / wanted - 1.0).abs() < 0.03, "{found}, not {wanted}: {plan}");
    };
    near(&plan["file"]["bytes"], 14.4e9);
    let of = |batch: usize| {
        let roofs = plan["roofline"].as_array().unwrap();
        roofs.iter().find(|roof| roof["batch"] == batch).unwrap_or_else(|| panic!("{plan}"))
    };
    near(&of(1)["bytes"], 2.36e9);
    near(&of(1)["tokens_s"], 108.0);
    // 52 of 128 experts, were the choices independent.
    near(&of(8)["bytes"], 1.55e9 + 12.85e9 * 51.6 / 128.0);
}
