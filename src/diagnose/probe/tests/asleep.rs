//! GPUs that are asleep and must stay so.

use super::{assert_sound, find, made_by};
use crate::diagnose::probe::testing::TestMachine;
use crate::diagnose::probe::{Check, ProbeOptions, Verdict, gpu, run};
use crate::engine::Device;
use crate::error::Setting;
use crate::machine::files::Files;
use crate::machine::nodes;
use serde_json::{Value, json};
use std::fs;

#[test]
fn a_gpu_that_is_asleep_is_neither_opened_nor_woken_by_vulkan_unless_that_is_asked() {
    let machine = TestMachine::new("8945hs");
    let _drivers = machine.drive();
    let device = machine.files.at("/sys/devices/pci0000:00/0000:00:08.1/0000:c6:00.0");
    fs::create_dir_all(device.join("power")).unwrap();
    fs::write(device.join("power/runtime_status"), "suspended\n").unwrap();
    // Reading these wakes a GPU on some kernels.
    for file in ["gpu_busy_percent", "power_dpm_force_performance_level"] {
        fs::remove_file(device.join(file)).unwrap();
    }
    let node = machine.files.at("/dev/dri/renderD128");
    fs::remove_file(&node).unwrap();
    let ask = |device, wakes| {
        run(&ProbeOptions { device, npu: None, wakes, ..ProbeOptions::of_machine(&machine.files, false) }, &|_| ())
    };
    for device in [Device::Vulkan(None), Device::Cpu] {
        let report = ask(device, false);
        assert_sound(&report.checks, "asleep");
        let of_gpu: Vec<&Check> = report.checks.iter().filter(|c| c.name.contains("gpu0")).collect();
        let [asleep, family] = of_gpu[..] else { panic!("{of_gpu:#?}") };
        assert_eq!((asleep.name.as_str(), asleep.verdict), ("gpu0.node", Verdict::Skip));
        assert!(
            asleep.evidence.to_string().ends_with("driven by amdgpu: it is suspended, and left asleep"),
            "{asleep:?}"
        );
        assert!(asleep.remedy.as_ref().unwrap().names(Setting::Wake));
        assert_eq!(family.evidence.to_string(), "gfx1103 (device 1900, revision b3)");
        let of_vulkan: Vec<&Check> = report.checks.iter().filter(|c| c.name.starts_with("vulkan")).collect();
        assert!(matches!(of_vulkan[..], [Check { verdict: Verdict::Skip, .. }]), "{of_vulkan:#?}");
        assert_eq!((report.asleep.as_slice(), report.device.is_none()), (&["renderD128".to_owned()][..], true));
        let summary = &report.to_json(&|words| words.to_string())["summary"];
        assert_eq!((&summary["runs"], &summary["asleep"]), (&Value::Null, &json!(["renderD128"])), "{summary}");
        assert!(report.summary().starts_with("not known whether Kiln can run: renderD128 left asleep; "));
        assert!(report.unknown().is_some());
    }
    // A requested wake-up finds it.
    let report = ask(Device::Cpu, true);
    assert_eq!(find(&report.checks, "gpu0.node").verdict, Verdict::Fail);
    assert!(report.asleep.is_empty() && report.unknown().is_none());
}

#[test]
fn a_sleeping_gpu_without_a_render_node_is_left_asleep_too() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::under(dir.path());
    let put = |path: &str, text: &str| {
        let at = files.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    };
    put("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA H200\n");
    put("/sys/bus/pci/devices/0000:01:00.0/power/runtime_status", "suspended\n");
    let asleep = nodes::sleeping_gpus(&files);
    assert_eq!(asleep, ["0000:01:00.0"]);
    let checks = made_by(|checks| gpu::check(checks, &files, false, &asleep));
    let found = find(&checks, "gpu");
    assert_eq!(
        (found.verdict, found.evidence.to_string().as_str()),
        (Verdict::Skip, "NVIDIA H200 at 0000:01:00.0: it is suspended, and left asleep")
    );
    put("/sys/bus/pci/devices/0000:01:00.0/power/runtime_status", "active\n");
    assert!(nodes::sleeping_gpus(&files).is_empty());
}
