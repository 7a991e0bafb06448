//! `kiln probe` as scripts use it: its JSON, its exit codes, and that it measures this machine's device.

use crate::common::golden;
use crate::common::program::{Ran, kiln, program, run};
use serde_json::Value;
use std::process::Command;

fn probe(arguments: &[&str]) -> Ran {
    kiln(&[&["probe"], arguments].concat())
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[test]
fn every_check_has_its_four_parts_and_the_device_is_measured() {
    let report = probe(&["--json"]).json();
    for c in report["checks"].as_array().unwrap() {
        assert_eq!(c.as_object().unwrap().len(), 4, "{c}");
        assert!(["ok", "warn", "fail", "skip"].contains(&c["verdict"].as_str().unwrap()), "{c}");
        assert!(!c["evidence"].as_str().unwrap().is_empty(), "{c}");
        let remedy = c["remedy"].as_str();
        assert!(remedy.is_some() || ["ok", "skip"].contains(&c["verdict"].as_str().unwrap()), "{c}");
    }
    assert_eq!(report["summary"]["runs"], true);
    for name in ["measured.read", "measured.dispatch", "measured.submit", "measured.transfer"] {
        assert_eq!(check(&report, name)["verdict"], "ok");
    }
    let read = check(&report, "measured.read")["evidence"].as_str().unwrap();
    let rate: f64 = read.split(' ').next().unwrap().parse().unwrap();
    assert!(rate > 0.05, "{read}");
    for (name, verdict) in [("ok", "ok"), ("warn", "warn"), ("fail", "fail"), ("skip", "skip")] {
        let count = report["checks"].as_array().unwrap().iter().filter(|c| c["verdict"] == verdict).count();
        assert_eq!(report["summary"][name], count);
    }
}

#[test]
fn a_model_that_fits_is_ok_and_one_that_does_not_is_exit_1_with_the_sum() {
    let tiny = golden("tiny").display().to_string();
    let fits = probe(&["--quick", "--json", "-m", &tiny]).json();
    assert_eq!(check(&fits, "model.memory")["verdict"], "ok");

    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(golden("tiny").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let nested = config.get("text_config").is_some();
    let sizes = if nested { &mut config["text_config"] } else { &mut config };
    // Many layers, each of which fits a driver's largest allocation.
    sizes["intermediate_size"] = (1 << 15).into();
    sizes["hidden_size"] = (1 << 13).into();
    let types = vec![sizes["layer_types"].as_array().unwrap().clone(); 100].concat();
    sizes["num_hidden_layers"] = types.len().into();
    sizes["layer_types"] = types.into();
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let ran = probe(&["--quick", "--json", "-m", &dir.path().display().to_string()]);
    ran.failed(1, &["needs"]);
    let summary = ran.object()["summary"]["text"].as_str().unwrap().to_owned();
    assert!(summary.contains(", but the model does not fit; "), "{summary}");
    let model = check(&ran.object(), "model.memory").clone();
    assert!(model["verdict"] == "fail" && model["evidence"].as_str().unwrap().contains("weights"), "{model}");
}

#[test]
fn without_a_vulkan_driver_the_exit_is_1_and_the_checks_are_there() {
    let none = [("VK_ICD_FILENAMES", "/nonexistent"), ("VK_DRIVER_FILES", "/nonexistent")];
    let probe = |arguments: &[&str]| run(program().args(["probe", "--quick"]).args(arguments).envs(none), b"");
    let ran = probe(&[]);
    ran.failed(1, &[]);
    assert!(ran.stderr.starts_with("kiln: "), "{}", ran.stderr);
    let stdout = ran.stdout;
    assert!(stdout.contains("vulkan.loader") && stdout.contains("no GPU can run Kiln"), "{stdout}");
    assert_eq!(probe(&["--json"]).object()["summary"]["runs"], false);
}

/// The last line named the driver for the CPU, which `auto` leaves alone.
#[test]
fn the_device_that_auto_takes_is_named() {
    let summary = |device| probe(&["--quick", "--json", "--device", device]).json()["summary"].clone();
    let (auto, vulkan) = (summary("auto"), summary("vulkan"));
    let taken = kiln(&["run", "--tokens", "2", "-n", "1", "--json"]).json()["device"].clone();
    let on_cpu = taken.as_str().unwrap().starts_with("CPU");
    assert_eq!(auto["on_cpu"], on_cpu, "{auto} {taken}");
    assert_eq!(auto["text"].as_str().unwrap().starts_with("Kiln takes the CPU here by itself; "), on_cpu, "{auto}");
    assert_eq!(vulkan["on_cpu"], false);
    let named = format!("Kiln can run on {}; ", vulkan["device"].as_str().unwrap());
    assert!(vulkan["text"].as_str().unwrap().starts_with(&named), "{vulkan}");
}

/// No machine has so many render nodes.
#[test]
fn a_chosen_amdgpu_device_that_is_not_there_is_no_other_one() {
    let ran = probe(&["--quick", "--json", "--device", "amdgpu:9999"]);
    ran.failed(1, &["amdgpu:9999"]);
    let report = ran.object();
    let open = check(&report, "amdgpu.open");
    assert_eq!((&open["verdict"], &report["summary"]["runs"]), (&"fail".into(), &false.into()));
    let evidence = open["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("there is no render node "), "{evidence}");
    kiln(&["run", "--device", "amdgpu:9999", "--tokens", "2", "-n", "1"]).refused(4, &[evidence, "; "]);
}

#[test]
fn a_device_that_is_not_there_is_named_and_one_that_is_suggested() {
    let ran = probe(&["--quick", "--json", "--device", "vulkan:99"]);
    ran.failed(1, &[]);
    let (report, stderr) = (ran.object(), ran.stderr);
    let fit = (0..99).find(|i| {
        report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["name"] == format!("vulkan{i}.device") && c["verdict"] == "ok")
    });
    let fit = format!("vulkan:{} (", fit.expect("a fit device"));
    let summary = report["summary"]["text"].as_str().unwrap();
    for text in [stderr.as_str(), summary] {
        assert!(text.contains("vulkan:99") && text.contains(&fit) && !text.contains("no GPU can"), "{text}");
    }
    assert_eq!(report["summary"]["runs"], false);
}

#[test]
fn bad_arguments_are_exit_2_and_nothing_is_printed() {
    let tiny = golden("tiny").display().to_string();
    for arguments in [
        &["-m", "/nonexistent"][..],
        &["-m", "/dev/null"],
        &["-m", ""],
        &["-m", &tiny, "--ctx", "0"],
        &["-m", &tiny, "--ctx", "18446744073709551615"],
        &["--devise"],
        &["--device", "gpu"],
        &["--device", "vulkan:-1"],
        &["--device", "vulkan:99999999999999999999"],
        &["extra"],
    ] {
        let ran = probe(arguments);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{arguments:?}");
    }
}

/// Runs in tools/vm-test's machine, which has udmabuf, a dma-heap and vgem's render node.
#[test]
#[ignore = "takes a kernel with udmabuf, a dma-heap and vgem: tools/vm-test"]
fn a_kernel_that_shares_memory_is_seen_to_share_it() {
    let report = probe(&["--json"]).json();
    for name in ["udmabuf", "heap", "export", "import.udmabuf", "import.heap"] {
        assert_eq!(check(&report, &format!("share.{name}"))["verdict"], "ok", "{report}");
    }
    assert_eq!(check(&report, "gpu0.node")["verdict"], "ok", "{report}");
    assert!(check(&report, "gpu0.driver")["evidence"].as_str().unwrap().starts_with("vgem "), "{report}");
    assert!(check(&report, "gpu0.amdgpu")["evidence"].as_str().unwrap().contains("driven by vgem"), "{report}");
    assert_eq!(report["summary"]["fail"], 0, "{report}");

    let sample = kiln(&["top", "--once", "--json"]).json();
    assert_eq!(sample["gpus"][0]["name"], "renderD128", "{sample}");
    assert!(sample["gpus"][0]["fault"].is_string(), "{sample}");
}

/// The file of `--report` has all that is asked for first, and nobody's name.
#[test]
fn a_report_is_one_file_without_names_and_is_never_written_over_another() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("report.json");
    let file = place.to_str().unwrap();
    let arguments = ["probe", "--quick", "--device", "cpu", "--json", "--report", file];
    let set = |command: &mut Command| {
        command.env("KILN_MODEL", "demo").env("KILN_API_KEY", "sk-1234").env("KILN_CACHE_DIR", "/home/anna/cache");
    };
    let mut command = program();
    command.args(arguments);
    set(&mut command);
    let ran = run(&mut command, b"");
    assert!(ran.stderr.contains("look at it before you give it away"), "{}", ran.stderr);
    let text = std::fs::read_to_string(&place).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["probe"]["checks"].as_array().unwrap().len(), printed["checks"].as_array().unwrap().len());
    assert!(report["plan"]["verdict"].as_str().unwrap().starts_with("fits; "), "{}", report["plan"]);
    for key in ["kiln", "time", "kernel_log", "devcoredumps", "cache", "kilns"] {
        assert!(!report[key].is_null(), "no {key}");
    }
    assert_eq!(report["cache"]["directory"], "/home/USER/cache");
    assert_eq!(report["environment"]["KILN_API_KEY"], "***");
    assert!(!text.contains("anna") && !text.contains("sk-1234"), "{text}");
    probe(&["--quick", "--device", "cpu", "--report", file]).refused(2, &["exists already"]);
    assert_eq!(std::fs::read_to_string(&place).unwrap(), text);
}
