//! `kiln bench` as scripts use it. Its times mean nothing on a CPU driver; that they add up does.

mod common;

use common::golden;
use serde_json::Value;
use std::process::Command;

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

fn bench(arguments: &[&str]) -> Ran {
    let model = golden("tiny").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["bench", "-m", &model]).args(arguments).env_remove("RUST_LOG").env("KILN_VALIDATION", "1");
    let out = command.output().unwrap();
    let text = |b| String::from_utf8(b).unwrap();
    Ran { code: out.status.code().unwrap_or(-1), stdout: text(out.stdout), stderr: text(out.stderr) }
}

impl Ran {
    fn json(&self) -> Value {
        assert_eq!((self.code, &*self.stderr), (0, ""), "validation and warnings go to stderr");
        assert_eq!(self.stdout.trim_end().lines().count(), 1, "one object and nothing else: {}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }

    fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, &*self.stdout), (code, ""), "{}", self.stderr);
        assert!(self.stderr.lines().count() == 1 && self.stderr.contains("; "), "one line: {}", self.stderr);
        words.iter().for_each(|w| assert!(self.stderr.contains(w), "no `{w}` in: {}", self.stderr));
    }
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

/// What must hold of a line whatever the device.
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
            // A pass of the line is one profiled pass, but for a prefill of several chunks.
            for key in ["weight_bytes", "kv_bytes", "operations"] {
                assert_eq!(sum(kernels, key), sum(groups, key));
                if number(line, "passes") == 1.0 {
                    assert_eq!(sum(kernels, key), number(line, key), "{key} of {}", line["name"]);
                }
            }
            let submits = number(line, "submits_per_token");
            match device {
                "cpu" => assert_eq!((submits, &line["gpu_busy"]), (0.0, &Value::Null)),
                _ => assert!(submits > 0.0 && number(line, "gpu_busy") > 0.0 && number(line, "gpu_busy") <= 1.0),
            }
        }
        // Two chunks: the second sees the first's keys, and only it has a head.
        let (one, two) = (&lines[0], &lines[1]);
        assert_eq!((number(one, "passes"), number(two, "passes")), (1.0, 2.0));
        assert!(number(two, "weight_bytes") < 2.0 * number(one, "weight_bytes"));
        // Three sequences share the weights, all but the embedding's rows, and have their own KV and work.
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
    let ran = bench(&[&arguments[..], &["--kernels", "--layer", "0"]].concat());
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    let rows = |start: &str| ran.stdout.lines().filter(|l| l.starts_with(start)).count();
    for line in ["prefill 8 ", "decode  ", "decode x 2 ", "read ceiling ", "load ", "memory ", "layer 0 (local) alone"]
    {
        assert_eq!(rows(line), 1, "{line} in {}", ran.stdout);
    }
    assert_eq!(rows("kernels of a pass of "), 3);
    // One row a pass, however many layers.
    for step in ["embed ", "qkv ", "attend ", "down ", "head ", "argmax "] {
        assert_eq!(rows(step), 3, "{step} in {}", ran.stdout);
    }
}

#[test]
fn what_is_left_out_is_not_measured() {
    let ran = bench(&["--device", "cpu", "--prefill", "0", "--decode", "2", "--batch", "2", "--reps", "2", "--json"]);
    let report = ran.json();
    assert_eq!(list(&report, "lines").len(), 1);
    assert_eq!(report["lines"][0]["kernels"], Value::Null);
    let ran = bench(&["--device", "cpu", "--prefill", "0", "--decode", "0", "--layer", "2", "--json"]);
    let report = ran.json();
    assert_eq!((list(&report, "lines").len(), list(&report, "layer").len()), (0, 1));
    assert_eq!(report["sequences"], 1);
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    bench(&["--reps", "0"]).refused(2, &["--reps"]);
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
