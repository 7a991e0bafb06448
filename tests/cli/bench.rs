//! `kiln bench` as scripts use it. On a CPU driver its times mean nothing, but they must add up.

use crate::common::golden;
use crate::common::program::{Ran, program, run};
use serde_json::Value;
use std::process::Command;

/// The report of a bench, and the progress lines taken out of its stderr.
struct Bench {
    ran: Ran,
    told: Vec<String>,
}

impl Bench {
    fn of(mut ran: Ran) -> Bench {
        let (told, other): (Vec<&str>, Vec<&str>) = ran.stderr.lines().partition(|l| l.starts_with("kiln bench: "));
        let told = told.iter().map(|l| l.trim_start_matches("kiln bench: ").to_owned()).collect();
        ran.stderr = other.join("\n");
        Bench { ran, told }
    }

    fn json(&self) -> Value {
        assert_eq!(self.ran.stderr, "", "validation and warnings go to stderr");
        self.ran.json()
    }
}

/// Runs bench. On a busy machine the ceiling may be measured at a worse moment than the work. Bench refuses that and
/// asks to be run again, so this runs it again.
fn bench(arguments: &[&str]) -> Bench {
    let is_settled = |b: &Bench| b.ran.code != 1 || !b.ran.stderr.contains("the measurement is wrong");
    let mut runs = std::iter::repeat_with(|| bench_once(arguments)).take(20);
    runs.find(is_settled).expect("one of 20 runs is measured in peace")
}

fn bench_once(arguments: &[&str]) -> Bench {
    let mut command = program();
    command.arg("bench").arg("-m").arg(golden("tiny")).args(arguments).env("KILN_VALIDATION", "1");
    Bench::of(run(&mut command, b""))
}

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or_else(|| panic!("{key} is {} in {v}", v[key]))
}

fn list<'a>(v: &'a Value, key: &str) -> &'a Vec<Value> {
    v[key].as_array().unwrap_or_else(|| panic!("{key} is {}", v[key]))
}

fn sum(list: &[Value], key: &str) -> f64 {
    list.iter().map(|v| number(v, key)).sum()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
}

/// Checks what holds for a line on any device.
fn check_line(line: &Value, report: &Value, repetitions: usize) {
    let (seconds, rate) = (&line["seconds"], &line["tokens_s"]);
    assert_eq!((list(seconds, "values").len(), list(rate, "values").len()), (repetitions, repetitions));
    close(number(rate, "median"), number(line, "tokens") / number(seconds, "median"));
    close(number(rate, "max"), number(line, "tokens") / number(seconds, "min"));
    let bytes = number(line, "weight_bytes") + number(line, "kv_bytes");
    close(number(line, "gb_s"), bytes / 1e9 / number(seconds, "median"));
    close(number(line, "read_share"), number(line, "gb_s") / number(report, "read_ceiling_gb_s"));
    assert!(number(line, "read_share") > 0.0 && number(line, "read_share") <= 1.0);
    close(number(line, "tflop_s"), number(line, "operations") / 1e12 / number(seconds, "median"));
    let passes = number(line, "passes") * number(report, "layers");
    close(number(line, "ms_per_layer"), 1e3 * number(seconds, "median") / passes);
}

/// Checks the timeline of a pass in which the device does everything: embedding, and then layer by layer.
fn check_timeline(timeline: &Value, layers: usize) {
    let spans = list(timeline, "spans");
    let segments: Vec<&str> = spans.iter().map(|span| span["segment"].as_str().unwrap()).collect();
    let expected: Vec<String> = (0..layers).map(|layer| format!("layer {layer}")).collect();
    assert_eq!((segments[0], segments[1..].to_vec()), ("embed", expected.iter().map(String::as_str).collect()));
    assert!(spans.iter().all(|span| span["engine"] == "device" && number(span, "start_ms") <= number(span, "end_ms")));
    assert!(spans.is_sorted_by(|a, b| number(a, "end_ms") <= number(b, "start_ms") + 1e-6), "{timeline}");
    assert_eq!((number(timeline, "npu_share"), number(timeline, "both_share")), (0.0, 0.0));
    assert!(number(timeline, "device_share") > 0.0 && number(timeline, "device_share") <= 1.0 + 1e-9);
    close(1e3 * number(timeline, "seconds"), number(&spans[spans.len() - 1], "end_ms") - number(&spans[0], "start_ms"));
}

/// How often drafts are right is stated and no result: what is measured is what passes cost.
#[test]
fn drafts_of_a_stated_quality_are_timed() {
    let base = ["--prefill", "0", "--batch", "1", "--decode", "24", "--reps", "3", "--json", "--device", "cpu"];
    let report = bench(&[&base[..], &["--speculate", "3", "--accept", "0.75"]].concat()).json();
    let lines = list(&report, "lines");
    assert_eq!(lines[1]["name"], "decode, 3 drafted, each right with a stated 0.75");
    assert_eq!((&lines[1]["drafted"], &lines[1]["stated_share_right"]), (&3.into(), &0.75.into()));
    check_line(&lines[1], &report, 3);
    assert_eq!((number(&lines[1], "tokens"), lines.len()), (24.0, 2));
    assert!(number(&lines[1], "passes") < 20.0 && number(&lines[1], "passes") > 6.0, "{}", lines[1]);
    // A pass reads the weights once, and the rows of wrong tokens are read for nothing.
    assert!(number(&lines[1], "weight_bytes") < number(&lines[0], "weight_bytes"));
}

/// Where nothing says how many tokens to draft, as many are drafted as pay.
#[test]
fn as_many_are_drafted_as_pay() {
    let base = ["--prefill", "0", "--batch", "1", "--decode", "40", "--reps", "3", "--json", "--device", "cpu"];
    let report = bench(&[&base[..], &["--accept", "0,1"]].concat()).json();
    let lines = list(&report, "lines");
    for (line, share) in lines[1..].iter().zip(["0", "1"]) {
        assert_eq!(line["name"], format!("decode, drafted as it pays, each right with a stated {share}"));
        assert!(line["drafted"].is_null(), "{line}");
        check_line(line, &report, 3);
    }
    // What is never right gives a token a pass.
    assert_eq!((lines.len(), number(&lines[1], "passes")), (3, 40.0));
    assert!(number(&lines[2], "passes") <= 40.0);
}

/// What a pass costs by its rows: as many sequences, and rows of one, all at one depth.
#[test]
fn passes_are_timed_by_their_rows() {
    let report = bench(&["--device", "cpu", "--rows", "3,1,2", "--decode", "2", "--reps", "3", "--json"]).json();
    let lines = list(&report, "lines");
    let names: Vec<&str> = lines.iter().map(|l| l["name"].as_str().unwrap()).collect();
    let expected = ["decode", "decode x 2", "decode x 3", "2 rows of one sequence", "3 rows of one sequence"];
    assert_eq!(names, expected.map(|name| format!("{name} at depth 1024")));
    assert_eq!(report["sequences"], 3);
    for line in lines {
        check_line(line, &report, 3);
        close(number(line, "ms_per_pass"), 1e3 * number(&line["seconds"], "median") / 2.0);
    }
    for clash in [["--rows", "2", "--batch", "1"], ["--prefill", "2", "--beside", "1"]] {
        let clash = bench_once(&clash);
        assert_eq!(clash.ran.code, 2, "{}", clash.ran.stderr);
    }
}

/// A mixed pass beside the passes of its parts.
#[test]
fn mixed_passes_are_timed_beside_their_parts() {
    let arguments = ["--rows", "7", "--beside", "2", "--depth", "40", "--decode", "1", "--reps", "3", "--json"];
    let report = bench(&[&["--device", "cpu"][..], &arguments].concat()).json();
    let lines = list(&report, "lines");
    let names: Vec<&str> = lines.iter().map(|l| l["name"].as_str().unwrap()).collect();
    let expected = ["decode x 2", "7 rows of one sequence", "7 rows of one sequence beside 2"];
    assert_eq!(names, expected.map(|name| format!("{name} at depth 40")));
    assert_eq!(report["sequences"], 3);
    let [others, chunk, mixed] = &lines[..] else { panic!("{names:?}") };
    check_line(mixed, &report, 3);
    for sum in ["kv_bytes", "operations", "tokens"] {
        close(number(mixed, sum), number(others, sum) + number(chunk, sum));
    }
}

#[test]
fn lines_kernels_and_layers_add_up() {
    for device in ["cpu", "vulkan"] {
        let report = bench(&[
            "--device",
            device,
            "--prefill",
            "24,8",
            "--decode",
            "1",
            "--batch",
            "3,1",
            "--depth",
            "20,0",
            "--reps",
            "3",
            "--kernels",
            "--timeline",
            "--layer",
            "5",
            "--chunk",
            "16",
            "--json",
        ])
        .json();
        let lines = list(&report, "lines");
        let names: Vec<&str> = lines.iter().map(|l| l["name"].as_str().unwrap()).collect();
        let shallow = ["prefill 8", "prefill 24", "decode", "decode x 3"];
        let deep = shallow.map(|n| format!("{n} at depth 20"));
        assert_eq!(names, [&shallow[..], &deep.iter().map(String::as_str).collect::<Vec<_>>()].concat());
        assert_eq!((&report["context"], &report["chunk"], &report["sequences"]), (&44.into(), &16.into(), &3.into()));
        for line in lines {
            check_line(line, &report, 3);
            let (kernels, groups) = (list(line, "kernels"), list(line, "kernel_groups"));
            close(sum(kernels, "seconds"), number(line, "kernels_seconds"));
            close(sum(groups, "seconds"), number(line, "kernels_seconds"));
            close(sum(groups, "pass_share"), 1.0);
            assert_eq!(sum(groups, "count") as usize, kernels.len());
            // A profiled pass is a pass of the line, except for a prefill of several chunks.
            for key in ["weight_bytes", "kv_bytes", "operations"] {
                assert_eq!(sum(kernels, key), sum(groups, key));
                if number(line, "passes") == 1.0 {
                    assert_eq!(sum(kernels, key), number(line, key), "{key} of {}", line["name"]);
                }
            }
            check_timeline(&line["timeline"], number(&report, "layers") as usize);
            let submits = number(line, "submits_per_token");
            match device {
                "cpu" => assert_eq!((submits, &line["gpu_busy"]), (0.0, &Value::Null)),
                _ => assert!(submits > 0.0 && number(line, "gpu_busy") > 0.0 && number(line, "gpu_busy") <= 1.0),
            }
        }
        // Two chunks: the second sees the keys of the first, and only the second has a head.
        let (one, two) = (&lines[0], &lines[1]);
        assert_eq!((number(one, "passes"), number(two, "passes")), (1.0, 2.0));
        assert!(number(two, "weight_bytes") < 2.0 * number(one, "weight_bytes"));
        // Three sequences share all weights except rows of the embedding. Each has its own KV and operations.
        let (one, three) = (&lines[6], &lines[7]);
        assert_eq!(number(three, "tokens"), 3.0);
        assert_eq!(number(three, "kv_bytes"), 3.0 * number(one, "kv_bytes"));
        assert_eq!(number(three, "operations"), 3.0 * number(one, "operations"));
        assert!(number(three, "weight_bytes") < 1.01 * number(one, "weight_bytes"));
        assert!(number(one, "kv_bytes") > number(&lines[2], "kv_bytes"), "depth has keys to read");

        let layers = list(&report, "layer");
        assert_eq!(layers.iter().map(|l| number(l, "depth")).collect::<Vec<_>>(), [0.0, 20.0]);
        for layer in layers {
            assert_eq!((&layer["layer"], &layer["kind"]), (&5.into(), &"global".into()));
            let runs = list(layer, "runs");
            assert_eq!(runs.iter().map(|r| number(r, "tokens")).collect::<Vec<_>>(), [1.0, 10.0, 50.0]);
            let ends = number(layer, "embed_ms") + number(layer, "head_ms");
            close(number(layer, "implied_pass_ms"), 6.0 * number(&runs[2], "ms") + ends);
            close(number(layer, "implied_tokens_s"), 1e3 / number(layer, "implied_pass_ms"));
            assert!(number(layer, "read_share") > 0.0 && number(layer, "read_share") <= 1.0);
        }
        let (load, memory) = (&report["load"], &report["memory"]);
        close(number(load, "gb_s"), number(load, "bytes") / 1e9 / number(load, "seconds"));
        close(number(memory, "above_bytes"), number(memory, "peak_bytes") - number(memory, "baseline_bytes"));
        assert!(number(memory, "above_bytes") > 0.0);
    }
}

#[test]
fn the_table_has_a_row_for_each_line_and_each_kind_of_kernel() {
    let arguments = ["--device", "vulkan", "--prefill", "8", "--decode", "2", "--batch", "1,2", "--reps", "1"];
    let Bench { ran, told } = bench(&[&arguments[..], &["--kernels", "--layer", "0"]].concat());
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    // Progress names each case once.
    let cases = ["measuring the ceilings", "prefill 8", "decode", "decode x 2", "layer 0 alone"];
    assert!(told[0].starts_with("loading ") && told[0].contains("first load"), "{told:?}");
    assert_eq!(told[1..], cases);
    let rows = |start: &str| ran.stdout.lines().filter(|l| l.starts_with(start)).count();
    for line in ["prefill 8 ", "decode  ", "decode x 2 ", "read ceiling ", "load ", "memory ", "layer 0 (local) alone"]
    {
        assert_eq!(rows(line), 1, "{line} in {}", ran.stdout);
    }
    assert_eq!(rows("kernels of a pass of "), 3);
    // One kernel per pass, however many layers there are.
    let runs = |l: &str, step| l.split(' ').next().is_some_and(|steps| steps.split('+').any(|s| s == step));
    for step in ["embed", "qkv", "attend", "down", "head", "argmax"] {
        assert_eq!(ran.stdout.lines().filter(|l| runs(l, step)).count(), 3, "{step} in {}", ran.stdout);
    }
}

#[test]
fn what_is_left_out_is_not_measured() {
    let base = ["--device", "cpu", "--prefill", "0", "--json"];
    let report = bench(&[&base[..], &["--decode", "2", "--batch", "2", "--reps", "2"]].concat()).json();
    assert_eq!(list(&report, "lines").len(), 1);
    assert_eq!(report["lines"][0]["kernels"], Value::Null);
    let report = bench(&[&base[..], &["--decode", "0", "--layer", "2"]].concat()).json();
    assert_eq!((list(&report, "lines").len(), list(&report, "layer").len()), (0, 1));
    assert_eq!(report["sequences"], 1);
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    let bench = |arguments: &[&str]| bench(arguments).ran;
    bench(&["--reps", "0"]).refused(2, &["--reps"]);
    for reps in ["1000001", "18446744073709551615"] {
        bench(&["--reps", reps]).refused(2, &["--reps", reps]);
    }
    bench(&["--batch", "0"]).refused(2, &["--batch"]);
    bench(&["--batch", "1,0,8"]).refused(2, &["--batch"]);
    bench(&["--batch", "x"]).refused(2, &["--batch", "x"]);
    bench(&["--batch", "-1"]).refused(2, &["--batch", "-1"]);
    bench(&["--batch", "100000"]).refused(2, &["100000"]);
    bench(&["--batch", "1,,8"]).refused(2, &["--batch"]);
    bench(&["--prefill", "8,0"]).refused(2, &["--prefill"]);
    bench(&["--prefill", "5000"]).refused(2, &["5000", "4096", "the model"]);
    bench(&["--depth", "4000"]).refused(2, &["4512", "4096", "the model"]);
    bench(&["--depth", "18446744073709551615"]).refused(2, &["the model"]);
    bench(&["--depth", "64", "--ctx", "100"]).refused(2, &["576", "100", "--ctx"]);
    bench(&["--ctx", "5000"]).refused(2, &["5000"]);
    bench(&["--chunk", "0"]).refused(2, &["chunk"]);
    bench(&["--layer", "6"]).refused(2, &["layer 6", "0 to 5"]);
    bench(&["--layer", "-1"]).refused(2, &["-1"]);
    bench(&["--prefill", "0", "--decode", "0"]).refused(2, &["nothing to measure"]);
    bench(&["--device", "vulkan:77"]).refused(4, &["77"]);
}

/// Stands in for `kiln` where there is no GPU: records its arguments, and prints what tools/bench reads, at `RATE`.
const FAKE_KILN: &str = r#"#!/usr/bin/env python3
import json, os, sys
log, rate = os.environ["LOG"], float(os.environ["RATE"])
# Longer than any start of this script: it is taken off the time to the first token, which says nothing of Kiln here.
OPEN = 1000
with open(log, "a") as f:
    f.write(" ".join(sys.argv[1:]) + "\n")
def after(option, otherwise=""):
    return sys.argv[sys.argv.index(option) + 1] if option in sys.argv else otherwise
def line(name):
    sample = {"median": rate, "spread": 0.01}
    return {"name": name, "tokens_s": sample, "gb_s": 1000, "read_share": 0.5, "matrix_share": None, "gpu_busy": 0.95,
            "cpu_us_per_token": 40}
command = sys.argv[1]
if command == "plan":
    print(json.dumps({"device": os.environ["GPU"], "sums": {"weights": int(os.environ["WEIGHTS"])}}))
elif command == "forge":
    os.makedirs(after("-o"))
    open(os.path.join(after("-o"), "config.json"), "w").write("{}")
    print("{}")
elif command == "bench":
    names = []
    for depth in after("--depth", "0").split(","):
        at = "" if depth == "0" else " at depth " + depth
        names += ["prefill " + p + at for p in after("--prefill").split(",") if p != "0"]
        names += ["decode" + ("" if b == "1" else " x " + b) + at for b in after("--batch", "1").split(",")]
    print(json.dumps({"device": "a GPU", "lines": [line(n) for n in names], "load": {"seconds": 2, "open_seconds": OPEN},
                      "memory": {"above_bytes": 50000000}, "read_ceiling_gb_s": 4600, "matrix_ceiling_tflop_s": None}))
else:
    print("{}")
"#;

struct Tool {
    dir: tempfile::TempDir,
}

impl Tool {
    fn new() -> Tool {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let fake = dir.path().join("kiln");
        std::fs::write(&fake, FAKE_KILN).unwrap();
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
        Tool { dir }
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tools/bench"));
        command.arg("--kiln").arg(self.dir.path().join("kiln")).arg("--dir").arg(self.dir.path()).args(arguments);
        command.env("LOG", self.dir.path().join("log")).env("GPU", "a GPU").env("RATE", "10000").env("WEIGHTS", "1000");
        run(command.envs(environment.iter().copied()), b"")
    }

    fn forged(&self) -> bool {
        self.dir.path().join("kiln-bench-gemma3-27b/config.json").exists()
    }

    fn calls(&self, command: &str) -> usize {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().filter(|l| l.starts_with(command)).count()
    }
}

#[test]
fn the_comparison_runs_every_line_and_judges_the_bars() {
    let tool = Tool::new();
    let file = tool.dir.path().join("report.json").display().to_string();
    let ran = tool.run(&["--json", &file], &[]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(!tool.forged(), "the checkpoint is removed again");
    assert_eq!((tool.calls("forge"), tool.calls("bench -m"), tool.calls("bench --device vulkan -m")), (1, 0, 2));
    assert!(!ran.stdout.contains("missed"), "{}", ran.stdout);
    // In each table, every row has as many cells as the header.
    let rows: Vec<&str> = ran.stdout.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(rows.len(), 2 + 7 + 2 + 5);
    assert!(rows[..9].iter().all(|r| r.matches('|').count() == 14), "{}", ran.stdout);
    assert!(rows[9..].iter().all(|r| r.matches('|').count() == 5), "{}", ran.stdout);
    assert!(rows[2].contains("| decode, 1 sequence | 58.0 | 77.2 | 94.1 | 172 | **10000.0** | 1.0 % |"), "{}", rows[2]);

    // The same table from the file.
    let again = tool.run(&["--report", &file], &[]);
    assert_eq!((again.code, again.stdout), (0, ran.stdout));

    // A result that is too slow fails. The checkpoint is kept if asked for, and used again.
    let slow = [("RATE", "4399")];
    let ran = tool.run(&["--keep"], &slow);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(tool.forged());
    let row = ran.stdout.lines().find(|l| l.starts_with("| prefill 2048")).unwrap();
    assert!(row.contains("4400 **missed** (1.00×)") && row.contains("9000 **missed** (0.49×)"), "{row}");
    tool.run(&[], &slow);
    assert_eq!(tool.calls("forge"), 2);
    assert!(tool.forged(), "what was there before stays");
}

#[test]
fn the_comparison_refuses_in_one_line_where_it_cannot_run() {
    let tool = Tool::new();
    let refused = |ran: Ran, code: i32, word: &str| {
        ran.failed(code, &[word]);
        assert_eq!(ran.stdout, "");
    };
    refused(tool.run(&[], &[("GPU", "llvmpipe (LLVM 15)")]), 4, "no GPU");
    refused(tool.run(&[], &[("WEIGHTS", "9000000000000000")]), 3, "more room");
    refused(tool.run(&["--dir", "/no/such/folder"], &[]), 2, "/no/such/folder");
    refused(tool.run(&["--kiln", "/no/such/kiln"], &[]), 1, "/no/such/kiln");
    refused(tool.run(&["--report", "/no/such/file"], &[]), 2, "/no/such/file");
    // The executable's own refusal is passed on.
    let kiln = env!("CARGO_BIN_EXE_kiln");
    let none = [("VK_ICD_FILENAMES", "/nonexistent.json"), ("VK_DRIVER_FILES", "/nonexistent.json")];
    refused(tool.run(&["--kiln", kiln], &none), 4, "driver");
    assert_eq!(tool.calls("forge"), 0);
}
