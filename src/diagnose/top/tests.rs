//! The sampler on intact machines, on machines that lose devices, and on machines without any.

use super::Monitor;
use crate::cli::top_view::TopView;
use crate::diagnose::probe::testing::{TestMachine, all_files};
use crate::diagnose::status::Environment;
use crate::display::is_obeyed;
use crate::machine::files::Files;
use crate::sys::bindings as b;
use crate::sys::fake::{AMDGPU_INFO, FakeIoctls, XDNA_ARRAY, XDNA_INFO, bytes};
use nix::errno::Errno;
use std::fs;

const CLIENT: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t3\ndrm-pdev:\t0000:c6:00.0\ndrm-memory-vram:\t1024 KiB\n\
    drm-memory-gtt:\t2048 KiB\ndrm-engine-compute:\t1000000 ns\n";

/// Adds a process that uses the GPU and reports as a Kiln.
fn put_process(files: &Files, engine_ns: u64) {
    let put = |path: &str, text: &str| {
        let at = files.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    };
    put("/proc/77/fdinfo/5", &CLIENT.replace("1000000", &engine_ns.to_string()));
    put("/proc/77/comm", "kiln\n");
    put("/proc/77/status", &format!("Uid:\t0\t{}\t0\t0\n", nix::unistd::geteuid()));
    put("/proc/77/stat", &format!("77 (kiln) S {} 900 0", vec!["1"; 18].join(" ")));
    put(
        "/run/kiln/77.json",
        r#"{"pid":77,"started":900,"command":"run","model":"a\u001b[31m","device":"780M","decode_tokens_s":3.0,"sequences":1}"#,
    );
    let fd = files.at("/proc/77/fd/5");
    fs::create_dir_all(fd.parent().unwrap()).unwrap();
    let _ = std::os::unix::fs::symlink("/dev/dri/renderD128", fd);
}

/// A sampler that ignores the environment of the test process.
fn sampler_of(files: &Files) -> Monitor {
    Monitor::new(files.clone(), Environment::default())
}

fn text(sampler: &mut Monitor) -> String {
    let sample = sampler.sample();
    serde_json::to_string(&sample).unwrap();
    let lines = TopView::default().lines(&sample);
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    assert!(!text.chars().any(|c| is_obeyed(c) && c != '\n'), "{text:?}");
    text
}

#[test]
fn a_whole_machine_is_shown_with_its_processes_contexts_and_energy() {
    let mut machine = TestMachine::new("8945hs");
    let _drivers = machine.drive();
    put_process(&machine.files, 1_000_000);
    let mut sampler = sampler_of(&machine.files);
    let first = sampler.sample();
    let gpu = &first.gpus[0];
    assert_eq!(gpu.name, "renderD128 gfx1103");
    assert_eq!(
        (gpu.busy, gpu.engine_mhz, gpu.power, gpu.temperature),
        (Some(3.0), Some(800.0), Some(9.132), Some(43.0))
    );
    assert_eq!(gpu.vram.unwrap().total, 16 << 30);
    let p = &gpu.processes[0];
    assert_eq!((p.pid, p.name.as_str(), p.vram, p.gtt, p.busy), (77, "kiln", 1 << 20, 2 << 20, None));
    let npu = &first.npus[0];
    assert_eq!((npu.name.as_str(), npu.columns, npu.columns_used), ("accel0 RyzenAI-npu1", Some(5), Some(4)));
    assert_eq!((npu.contexts[0].pid, npu.contexts[0].completed, npu.contexts[0].completed_s), (4242, 1000, None));
    let joules = first.kilns[0].joules_per_token.unwrap();
    assert!((joules - 9.132 / 3.0).abs() < 1e-9, "{joules}");

    // Rates are taken over the time between two samples.
    std::thread::sleep(std::time::Duration::from_millis(30));
    put_process(&machine.files, 1_000_000_000);
    let context = b::amdxdna_drm_hwctx_entry {
        context_id: 1,
        num_col: 4,
        pid: 4242,
        command_completions: 1050,
        ..Default::default()
    };
    let entry = [(size_of_val(&context) as u32).to_ne_bytes().to_vec(), bytes(context)].concat();
    drop(_drivers);
    machine.npu = machine.npu.clone().with(XDNA_ARRAY, b::DRM_AMDXDNA_HW_CONTEXT_ALL, 0, entry);
    let _drivers = machine.drive();
    let second = sampler.sample();
    assert!(second.gpus[0].processes[0].busy.unwrap() > 10.0, "{second:?}");
    let (engine, busy) = &second.gpus[0].engines[0];
    assert!(engine == "compute" && *busy > 10.0, "{second:?}");
    assert!(second.npus[0].contexts[0].completed_s.unwrap() > 1.0, "{second:?}");

    let text = text(&mut sampler);
    for words in [
        "GPU renderD128 gfx1103  busy [#",
        "9.1 W  43 °C",
        "VRAM [#",
        "77",
        "columns [####",
        "4 of 5",
        "Kiln 77 run",
        "3.04 J/token",
    ] {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
}

#[test]
fn a_gpu_that_is_asleep_is_left_so() {
    let machine = TestMachine::new("8945hs");
    let asked = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let count = asked.clone();
    let _driver = FakeIoctls::new(&machine.files.at("/dev/dri/renderD128"), move |_, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Err(Errno::ENODEV)
    });
    let device = machine.files.at("/sys/devices/pci0000:00/0000:00:08.1/0000:c6:00.0");
    fs::create_dir_all(device.join("power")).unwrap();
    let status = device.join("power/runtime_status");
    fs::write(&status, "suspended\n").unwrap();
    put_process(&machine.files, 1_000_000);
    let mut sampler = sampler_of(&machine.files);
    let gpu = sampler.sample().gpus.remove(0);
    assert_eq!((gpu.fault.as_deref(), gpu.busy), (Some("it is suspended, and left asleep"), None));
    assert_eq!(
        (gpu.driver.as_str(), gpu.processes.len(), sampler.open.contains_key("/dev/dri/renderD128")),
        ("amdgpu", 1, false)
    );
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 0);
    fs::write(&status, "active\n").unwrap();
    assert_eq!(sampler.sample().gpus[0].fault, None);
}

#[test]
fn the_firmwares_table_says_the_fabrics_clock_and_what_holds_clocks_down() {
    let machine = TestMachine::new("8945hs");
    let _drivers = machine.drive();
    let at = machine.files.at("/sys/devices/pci0000:00/0000:00:08.1/0000:c6:00.0/gpu_metrics");
    let mut table = vec![0u8; 264];
    table[..4].copy_from_slice(&[8, 1, 3, 0]);
    table[182..184].copy_from_slice(&1960u16.to_le_bytes());
    let mut sampler = sampler_of(&machine.files);
    let mut sample = |times: [u32; 2]| {
        table[240..248].copy_from_slice(&times.map(u32::to_le_bytes).concat());
        fs::write(&at, &table).unwrap();
        let gpu = sampler.sample().gpus.remove(0);
        (gpu.fabric_mhz, gpu.throttled_by)
    };
    assert_eq!(sample([5, 5]), (Some(1960.0), vec![]));
    assert_eq!(sample([6, 5]), (Some(1960.0), vec!["SPPT".to_owned()]));
    assert_eq!(sample([6, 5]), (Some(1960.0), vec![]));
}

#[test]
fn a_device_that_goes_away_says_so_and_comes_back() {
    let machine = TestMachine::new("8945hs");
    let drivers = machine.drive();
    let mut sampler = sampler_of(&machine.files);
    assert!(sampler.sample().gpus[0].fault.is_none());
    // Lost: neither files nor drivers answer.
    let device = machine.files.at("/sys/devices/pci0000:00/0000:00:08.1/0000:c6:00.0");
    let kept: Vec<_> = all_files(&device).into_iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect();
    for (path, _) in kept.iter().filter(|(p, _)| !p.ends_with("uevent")) {
        fs::remove_file(path).unwrap();
    }
    drop(drivers);
    let gone = |path| FakeIoctls::new(&machine.files.at(path), |_, _| Err(Errno::ENODEV));
    let lost = [gone("/dev/dri/renderD128"), gone("/dev/accel/accel0")];
    let shown = text(&mut sampler);
    assert!(shown.contains("it says nothing: ") && shown.contains("gpu_busy_percent is absent"), "{shown}");
    assert!(shown.contains("list the NPU's contexts: ENODEV"), "{shown}");
    drop(lost);
    // A device that comes back has a new node. The old one is still open, and dead.
    fs::remove_file(machine.files.at("/dev/accel/accel0")).unwrap();
    fs::write(machine.files.at("/dev/accel/accel0"), "").unwrap();
    let _drivers = machine.drive();
    kept.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    let back = sampler.sample();
    assert!(back.gpus[0].fault.is_none() && back.npus[0].fault.is_none(), "{back:?}");
    // Removed completely.
    fs::remove_dir_all(machine.files.at("/sys")).unwrap();
    assert!(text(&mut sampler).starts_with("no GPU"));
}

#[test]
fn devices_stay_open_and_what_does_not_change_is_asked_for_once() {
    const GPU: &str = "/dev/dri/renderD128";
    const NPU: &str = "/dev/accel/accel0";
    let mut machine = TestMachine::new("8945hs");
    // The memory clock is not in sysfs, and this driver does not know it either.
    let unknown = machine.gpu.clone();
    let clock =
        |mhz: u32| unknown.clone().with(AMDGPU_INFO, b::AMDGPU_INFO_SENSOR, b::AMDGPU_INFO_SENSOR_GFX_MCLK, bytes(mhz));
    machine.gpu = clock(2400);
    let drivers = machine.drive();
    let mut sampler = Monitor::new(machine.files.clone(), Environment::default());
    let mut sample = || {
        let sample = sampler.sample();
        (sample.gpus[0].memory_mhz, sample.npus[0].columns, sample.npus[0].columns_used)
    };
    assert_eq!(sample(), (Some(2400.0), Some(5), Some(4)));

    // Other devices take over the names. The open nodes still answer, except for constants that were read before.
    drop(drivers);
    let aside = |path: &str| {
        let (path, aside) = (machine.files.at(path), machine.files.at(&format!("{path}.open")));
        fs::rename(&path, &aside).unwrap();
        fs::write(&path, "").unwrap();
        aside
    };
    let (gpu, npu) = (aside(GPU), aside(NPU));
    let _others = [clock(600).at(&machine.files.at(GPU)), TestMachine::new("890m").npu.at(&machine.files.at(NPU))];
    let asked = machine.npu.clone().without(XDNA_INFO, b::DRM_AMDXDNA_QUERY_AIE_METADATA, 0, Errno::EIO);
    let open = [clock(1200).at(&gpu), asked.clone().at(&npu)];
    assert_eq!(sample(), (Some(1200.0), Some(5), Some(4)));
    // An unknown or refused request does not make the nodes be opened again.
    drop(open);
    let refusing = asked.clone().without(XDNA_ARRAY, b::DRM_AMDXDNA_HW_CONTEXT_ALL, 0, Errno::EACCES);
    let open = [unknown.clone().at(&gpu), refusing.at(&npu)];
    assert_eq!(sample(), (None, Some(5), None));
    drop(open);
    let open = [clock(1200).at(&gpu), asked.at(&npu)];
    assert_eq!(sample(), (Some(1200.0), Some(5), Some(4)));
    // A missing device does: the next sample shows the new devices.
    drop(open);
    let gone = [&gpu, &npu].map(|path| FakeIoctls::new(path, |_, _| Err(Errno::ENODEV)));
    assert_eq!(sample().0, None);
    drop(gone);
    assert_eq!(sample(), (Some(600.0), Some(8), Some(4)));
}

#[test]
fn whatever_the_files_hold_a_sample_is_taken() {
    let machine = TestMachine::new("8060s");
    let _drivers = machine.drive();
    put_process(&machine.files, 5);
    let mut sampler = sampler_of(&machine.files);
    for path in all_files(machine.dir.path()) {
        if path.starts_with(machine.dir.path().join("dev")) {
            continue;
        }
        let original = fs::read(&path).unwrap();
        let turned = "\u{202e}1".as_bytes();
        for content in [&b""[..], b"\xff\x00", b"18446744073709551615\n", b"-1\n", b"0\n", turned, &[b'x'; 300_000]] {
            fs::write(&path, content).unwrap();
            text(&mut sampler);
        }
        fs::write(&path, original).unwrap();
    }
}

#[test]
fn two_gpus_make_no_energy_per_token_and_one_of_another_driver_is_named() {
    let machine = TestMachine::new("8945hs");
    let _drivers = machine.drive();
    put_process(&machine.files, 5);
    let other = machine.files.at("/sys/class/drm/renderD129/device/uevent");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(other, "DRIVER=nvidia\nPCI_SLOT_NAME=0000:01:00.0\n").unwrap();
    let sample = sampler_of(&machine.files).sample();
    assert_eq!(sample.gpus.len(), 2);
    assert!(sample.gpus[1].fault.as_deref().unwrap().contains("nvidia-smi"), "{sample:?}");
    assert_eq!(sample.kilns[0].joules_per_token, None);
}

#[test]
fn a_gpu_of_nvidias_driver_is_named_however_little_of_it_is_seen() {
    let put = |files: &Files, path: &str, text: &str| {
        let at = files.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    };
    // By the files that the driver's documentation describes; by the bus; and by a node alone, as in some containers.
    let by_proc = |files: &Files| {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 164\nDevice Minor: \t 0\n";
        put(files, "/proc/driver/nvidia/gpus/0000:01:00.0/information", text);
    };
    let by_bus = |files: &Files| {
        for (name, value) in [("vendor", "0x10de"), ("device", "0x2335"), ("class", "0x030200")] {
            put(files, &format!("/sys/bus/pci/devices/0000:01:00.0/{name}"), value);
        }
        let driver = files.at("/sys/bus/pci/devices/0000:01:00.0/driver");
        std::os::unix::fs::symlink("../../drivers/nvidia", driver).unwrap();
    };
    for (in_proc, on_bus, name) in [
        (true, false, "0000:01:00.0 NVIDIA H200"),
        (false, true, "0000:01:00.0"),
        (true, true, "0000:01:00.0 NVIDIA H200"),
        (false, false, "nvidia0"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::under(dir.path());
        put(&files, "/dev/nvidia0", "");
        put(&files, "/dev/nvidiactl", "");
        if in_proc {
            by_proc(&files);
        }
        if on_bus {
            by_bus(&files);
        }
        let mut sampler = sampler_of(&files);
        let sample = sampler.sample();
        let names: Vec<&str> = sample.gpus.iter().map(|g| g.name.as_str()).collect();
        assert_eq!((names, sample.gpus[0].busy), (vec![name], None));
        let shown = text(&mut sampler);
        assert!(
            shown.starts_with(&format!("GPU {name}  its driver keeps load")) && !shown.contains("no GPU"),
            "{shown}"
        );
        // With a render node as well it is still one GPU.
        if name.starts_with("0000") {
            let uevent = "DRIVER=nvidia\nPCI_SLOT_NAME=0000:01:00.0\n";
            put(&files, "/sys/class/drm/renderD128/device/uevent", uevent);
            let sample = sampler.sample();
            assert_eq!(sample.gpus.len(), 1, "{sample:?}");
            assert_eq!(sample.gpus[0].name, name.replace("0000:01:00.0", "renderD128"));
        }
    }
}
