//! Checks on intact machines, and on machines with a single fault each.

mod asleep;
mod npu;

use super::testing::{TestMachine, all_files, names};
use super::{Check, Checks, ProbeReport, Verdict, gpu, share, system};
use crate::display::is_obeyed;
use crate::engine::Device;
use crate::error::Text;
use crate::machine::files::Files;
use crate::machine::nodes::DriverApi;
use crate::sys::fake::FakeIoctls;
use crate::sys::xrt::Missing;
use nix::errno::Errno;
use std::fs;

/// All checks that do not need Vulkan.
fn checks(files: &Files) -> Vec<Check> {
    made_by(|checks| {
        system::check(checks, files);
        gpu::check(checks, files, false, &[]);
        super::npu::check(checks, files, &Err(Missing::NotInstalled), Some(DriverApi::Kernel), None);
        share::check(checks, files, None, &[]);
    })
}

/// The checks that `make` adds.
fn made_by(make: impl FnOnce(&mut Checks)) -> Vec<Check> {
    let mut checks = Checks::default();
    make(&mut checks);
    checks.all
}

fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    let names: Vec<&str> = checks.iter().map(|c| c.name.as_str()).collect();
    checks.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no check {name} among {names:?}"))
}

/// Asserts properties of all checks.
fn assert_sound(checks: &[Check], what: &str) {
    assert!(!checks.is_empty(), "{what}");
    let names: std::collections::HashSet<&str> = checks.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names.len(), checks.len(), "{what}: each name once: {checks:#?}");
    for c in checks {
        let texts = [Some(c.name.clone()), Some(c.evidence.to_string()), c.remedy.as_ref().map(Text::to_string)];
        for text in texts.into_iter().flatten() {
            assert!(!text.is_empty() && !text.chars().any(is_obeyed), "{what}: {c:?}");
        }
        let needs_remedy = matches!(c.verdict, Verdict::Warn | Verdict::Fail);
        assert!(!needs_remedy || c.remedy.is_some(), "{what}: {c:?}");
    }
}

#[test]
fn a_whole_machine_is_described_and_found_sound() {
    let expected: [(&str, &[(&str, &str)]); 3] = [
        (
            "8945hs",
            &[
                ("gpu0.family", "gfx1103 (device 1900, revision b3)"),
                (
                    "gpu0.units",
                    "12 compute units at up to 2800 MHz; DDR5, 128 bits at up to 2800 MHz: 89.6 GB/s at most",
                ),
                ("gpu0.memory", "VRAM 859.0 MB used of 17.2 GB; GTT 134.2 MB used of 42.1 GB"),
                ("gpu0.firmware", "MEC 0x2e, RLC 0x52"),
                ("gpu0.driver", "amdgpu 3.64.0 (amdgpu)"),
                ("gpu0.activity", "3 % busy, engine 800 MHz, 43 °C, 9 W"),
                ("npu0.generation", "RyzenAI-npu1, XDNA 1 (Phoenix, Hawk Point)"),
                ("npu0.firmware", "1.5.5.391"),
                ("npu0.array", "5 columns of 4 compute tiles, 6 rows in all; AIE 2.1"),
                ("npu0.contexts", "2 contexts on 4 columns, 0 errors"),
                ("npu0.iommu", "the NPU's group is in mode DMA-FQ"),
                ("system.kernel", "Linux 6.18.3-amd64, AMD Ryzen 9 8945HS w/ Radeon 780M Graphics"),
                ("share.gpu0", "GTT memory of amdgpu, exported"),
            ],
        ),
        (
            "890m",
            &[
                ("gpu0.family", "gfx1150 (device 150e, revision c1)"),
                (
                    "gpu0.units",
                    "16 compute units at up to 2900 MHz; LPDDR5, 128 bits at up to 937 MHz: 119.9 GB/s at most",
                ),
                ("npu0.generation", "NPU Strix, XDNA 2 (Strix Point)"),
                ("npu0.array", "8 columns of 4 compute tiles, 6 rows in all; AIE 2.1"),
            ],
        ),
        (
            "8060s",
            &[
                ("gpu0.family", "gfx1151 (device 1586, revision c1)"),
                (
                    "gpu0.units",
                    "40 compute units at up to 2900 MHz; LPDDR5, 256 bits at up to 1000 MHz: 256.0 GB/s at most",
                ),
                ("gpu0.memory", "VRAM 26.8 MB used of 536.9 MB; GTT 134.2 MB used of 116.0 GB"),
                (
                    "system.parameters",
                    "amdgpu.lockup_timeout=10000 ttm.pages_limit=28311552 ttm.page_pool_size=28311552",
                ),
                ("system.gtt-limit", "116.0 GB of system memory for all GPUs"),
                ("npu0.generation", "NPU Strix Halo, XDNA 2 (Strix Halo)"),
            ],
        ),
    ];
    for (name, facts) in expected {
        let machine = TestMachine::new(name).with_array();
        let _drivers = machine.drive();
        let checks = checks(&machine.files);
        assert_sound(&checks, name);
        for (check, evidence) in facts {
            let found = find(&checks, check);
            assert_eq!(
                (found.verdict, found.evidence.to_string().as_str()),
                (Verdict::Ok, *evidence),
                "{name} {check}"
            );
        }
        // An NPU is described and tried, and the output must not suggest that a model always uses it.
        let unused = find(&checks, "npu.use");
        assert_eq!(unused.verdict, Verdict::Skip);
        assert!(unused.evidence.to_string().contains("attention runs on the GPU"), "{unused:?}");
        // The limit of locked memory is this process's, not the test machine's.
        let wrong: Vec<&Check> = checks
            .iter()
            .filter(|c| matches!(c.verdict, Verdict::Warn | Verdict::Fail) && c.name != "npu.memlock")
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
}

#[test]
fn every_file_may_be_absent_empty_huge_binary_a_directory_or_a_pipe() {
    let pristine = TestMachine::new("8945hs");
    let root = pristine.dir.path().to_path_buf();
    let _drivers = pristine.drive();
    let whole = checks(&pristine.files);
    let mut noticed = 0;
    for path in all_files(&root) {
        // Device nodes are damaged below, through the drivers' answers.
        if path.starts_with(root.join("dev")) {
            continue;
        }
        let original = fs::read(&path).unwrap();
        for kind in [
            "absent",
            "empty",
            "huge",
            "binary",
            "escape",
            "turned",
            "huge number",
            "negative",
            "zero",
            "directory",
            "pipe",
        ] {
            fs::remove_file(&path).unwrap();
            match kind {
                "absent" => {}
                "empty" => fs::write(&path, "").unwrap(),
                "huge" => fs::write(&path, "9".repeat(1 << 20)).unwrap(),
                "binary" => fs::write(&path, [0xff, 0x00, 0x80, 0x0a]).unwrap(),
                "escape" => fs::write(&path, "\u{1b}]0;owned\u{7}\n").unwrap(),
                "turned" => fs::write(&path, "0x\u{202e}1\n").unwrap(),
                "negative" => fs::write(&path, format!("{}\n", i64::MIN)).unwrap(),
                "zero" => fs::write(&path, "0\n").unwrap(),
                "huge number" => fs::write(&path, format!("{}\n", u64::MAX)).unwrap(),
                "directory" => fs::create_dir(&path).unwrap(),
                _ => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            }
            let checks = checks(&pristine.files);
            assert_sound(&checks, &format!("{} {kind}", path.display()));
            noticed += usize::from(checks != whole);
            if kind == "directory" {
                fs::remove_dir(&path).unwrap()
            } else {
                let _ = fs::remove_file(&path);
            }
            fs::write(&path, &original).unwrap();
        }
    }
    assert_eq!(checks(&pristine.files), whole, "all is as it was");
    assert!(noticed > 150, "most of this must show: {noticed}");
}

#[test]
fn files_that_vanish_between_two_reads_are_verdicts() {
    // A device goes away: its directory is removed while checks run again and again.
    let machine = TestMachine::new("8945hs");
    let _drivers = machine.drive();
    let device = machine.files.at("/sys/devices/pci0000:00/0000:00:08.1");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for path in all_files(&device) {
                fs::remove_file(path).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        });
        for round in 0..20 {
            assert_sound(&checks(&machine.files), &format!("round {round}"));
        }
    });
}

#[test]
fn every_errno_of_every_driver_is_a_verdict() {
    for errno in
        [Errno::ENODEV, Errno::EACCES, Errno::EOPNOTSUPP, Errno::EINVAL, Errno::ENOTTY, Errno::EIO, Errno::ENOMEM]
    {
        let machine = TestMachine::new("8945hs");
        let node = machine.files.at("/dev/dri/renderD128");
        let accel = machine.files.at("/dev/accel/accel0");
        let _fakes = [FakeIoctls::new(&node, move |_, _| Err(errno)), FakeIoctls::new(&accel, move |_, _| Err(errno))];
        let checks = checks(&machine.files);
        assert_sound(&checks, errno.desc());
        assert_eq!(find(&checks, "gpu0.units").verdict, Verdict::Fail, "{errno}");
        assert_eq!(find(&checks, "npu0.array").verdict, Verdict::Fail, "{errno}");
        // The values from sysfs are shown even without the driver's answers.
        let memory = find(&checks, "gpu0.memory");
        assert_eq!(
            memory.evidence.to_string(),
            "VRAM 859.0 MB used of 17.2 GB; GTT 134.2 MB used of 42.1 GB",
            "{errno}"
        );
        assert!(find(&checks, "gpu0.firmware").evidence.to_string().contains("MEC 0x2e"), "{errno}");
    }
}

#[test]
fn short_answers_are_zero_where_they_end() {
    let mut machine = TestMachine::new("8945hs");
    for answer in machine.gpu.answers.values_mut().chain(machine.npu.answers.values_mut()) {
        // The first four bytes of an array are its entries' size.
        answer.as_mut().unwrap().truncate(4);
    }
    let _drivers = machine.drive();
    let checks = checks(&machine.files);
    assert_sound(&checks, "short answers");
    assert_eq!(find(&checks, "gpu0.units").verdict, Verdict::Fail);
    assert!(find(&checks, "gpu0.memory").evidence.to_string().starts_with("VRAM 859.0 MB"), "sysfs stands in");
    assert_eq!(find(&checks, "npu0.array").verdict, Verdict::Fail);
    assert!(find(&checks, "npu0.contexts").evidence.to_string().starts_with("0 contexts"));
}

#[test]
fn garbage_in_answers_is_no_panic() {
    for byte in [0xff, 0x7f, 0x80, 0x01] {
        let mut machine = TestMachine::new("8060s");
        for answer in machine.gpu.answers.values_mut().chain(machine.npu.answers.values_mut()) {
            let answer = answer.as_mut().unwrap();
            let kept = answer.len().min(4);
            answer[kept..].fill(byte);
        }
        let _drivers = machine.drive();
        assert_sound(&checks(&machine.files), "garbage");
    }
}

#[test]
fn a_machine_with_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let checks = checks(&Files::under(dir.path()));
    assert_sound(&checks, "nothing");
    assert_eq!(find(&checks, "gpu").verdict, Verdict::Warn);
    assert_eq!(find(&checks, "npu").verdict, Verdict::Skip);
    assert_eq!(find(&checks, "system.kernel").verdict, Verdict::Skip);
}

#[test]
fn a_container_without_its_nodes_is_told_to_pass_them_in() {
    let machine = TestMachine::new("8945hs");
    fs::remove_dir_all(machine.files.at("/dev")).unwrap();
    let checks = checks(&machine.files);
    for name in ["gpu0.node", "npu0.node"] {
        let c = find(&checks, name);
        assert_eq!(c.verdict, Verdict::Fail, "{c:?}");
        assert!(c.remedy.as_ref().unwrap().to_string().contains("container"), "{c:?}");
    }
    // The same without /sys/class, as in containers where /sys is masked and only the bus is visible.
    fs::remove_dir_all(machine.files.at("/sys/class/drm")).unwrap();
    fs::remove_dir_all(machine.files.at("/sys/class/accel")).unwrap();
    let checks = self::checks(&machine.files);
    assert!(find(&checks, "gpu").remedy.as_ref().unwrap().to_string().contains("/dev/dri"));
    assert_eq!(find(&checks, "npu.node").verdict, Verdict::Fail);
}

#[test]
fn a_node_that_is_no_device_is_a_verdict() {
    for kind in ["directory", "pipe", "loop", "plain file"] {
        let machine = TestMachine::new("8945hs");
        for path in ["/dev/dri/renderD128", "/dev/accel/accel0", "/dev/udmabuf", "/dev/dma_heap/system"] {
            let at = machine.files.at(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&at);
            match kind {
                "directory" => fs::create_dir(&at).unwrap(),
                "pipe" => nix::unistd::mkfifo(&at, nix::sys::stat::Mode::S_IRWXU).unwrap(),
                "loop" => std::os::unix::fs::symlink(&at, &at).unwrap(),
                _ => fs::write(&at, "no device").unwrap(),
            }
        }
        let checks = checks(&machine.files);
        assert_sound(&checks, kind);
        let failed = checks.iter().filter(|c| c.name.starts_with("gpu0") && c.verdict == Verdict::Fail);
        assert!(failed.count() >= 1, "{kind}: {checks:#?}");
    }
}

#[test]
fn a_gpu_that_vulkan_reaches_without_a_render_node_is_no_warning() {
    let dir = tempfile::tempdir().unwrap();
    let checks = made_by(|checks| gpu::check(checks, &Files::under(dir.path()), true, &[]));
    assert_eq!(find(&checks, "gpu").verdict, Verdict::Skip);
}

#[test]
fn an_nvidia_gpu_that_vulkan_does_not_reach_is_a_warning_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::under(dir.path());
    let gpu = files.at("/proc/driver/nvidia/gpus/0000:01:00.0");
    fs::create_dir_all(&gpu).unwrap();
    fs::write(gpu.join("information"), "Model: \t NVIDIA H200\n").unwrap();
    let checks = self::checks(&files);
    assert_sound(&checks, "NVIDIA");
    let found = find(&checks, "gpu");
    assert_eq!(
        (found.verdict, found.evidence.to_string().as_str()),
        (Verdict::Warn, "NVIDIA H200 is at 0000:01:00.0, and Vulkan does not reach it")
    );
    assert_eq!(find(&made_by(|checks| gpu::check(checks, &files, true, &[])), "gpu").verdict, Verdict::Skip);
}

#[test]
fn two_gpus_are_both_looked_at() {
    let machine = TestMachine::new("8945hs");
    // A discrete GPU of another driver beside the APU, and a GPU without a driver.
    let put = |path: &str, text: &str| {
        let at = machine.files.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    };
    put("/sys/class/drm/renderD129/device/uevent", "DRIVER=nvidia\nPCI_SLOT_NAME=0000:01:00.0\n");
    put("/sys/class/drm/renderD129/device/vendor", "0x10de\n");
    put("/dev/dri/renderD129", "");
    put("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x1002\n");
    put("/sys/bus/pci/devices/0000:02:00.0/device", "0x744c\n");
    put("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
    let _drivers = machine.drive();
    let checks = checks(&machine.files);
    assert_sound(&checks, "two GPUs");
    assert_eq!(find(&checks, "gpu0.family").verdict, Verdict::Ok);
    assert_eq!(find(&checks, "gpu1.amdgpu").verdict, Verdict::Skip);
    assert!(find(&checks, "gpu1.amdgpu").evidence.to_string().contains("nvidia"));
    let undriven = find(&checks, "gpu.driver.0000:02:00.0");
    assert!(
        undriven.verdict == Verdict::Fail && undriven.evidence.to_string().contains("0000:02:00.0 (1002:744c)"),
        "{undriven:?}"
    );
}

#[test]
fn a_user_without_the_group_is_told_which_to_join() {
    use std::os::unix::fs::PermissionsExt;
    let machine = TestMachine::new("8945hs");
    let _drivers = machine.drive();
    fs::set_permissions(machine.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for node in ["/dev/dri/renderD128", "/dev/accel/accel0"] {
        fs::set_permissions(machine.files.at(node), fs::Permissions::from_mode(0o600)).unwrap();
    }
    // Files of another user: as root, this thread gives up its rights to files.
    let checks = std::thread::scope(|scope| {
        let look = || {
            if nix::unistd::geteuid().is_root() {
                nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            } else {
                for node in ["/dev/dri/renderD128", "/dev/accel/accel0"] {
                    fs::set_permissions(machine.files.at(node), fs::Permissions::from_mode(0o000)).unwrap();
                }
            }
            checks(&machine.files)
        };
        scope.spawn(look).join().unwrap()
    });
    assert_sound(&checks, "no group");
    for name in ["gpu0.node", "npu0.node"] {
        let c = find(&checks, name);
        assert!(c.verdict == Verdict::Fail && c.remedy.as_ref().unwrap().to_string().contains("group render"), "{c:?}");
    }
    // World-readable files are still shown.
    assert_eq!(find(&checks, "gpu0.memory").verdict, Verdict::Ok);
    assert_eq!(find(&checks, "gpu0.family").verdict, Verdict::Ok);
    assert_eq!(find(&checks, "npu0.firmware").verdict, Verdict::Ok);
}

#[test]
fn what_holds_a_machine_back_is_a_warning_with_its_remedy() {
    let machine = TestMachine::new("8945hs");
    let _drivers = machine.drive();
    let device = "/sys/devices/pci0000:00/0000:00:08.1/0000:c6:00.0";
    let npu_device = "/sys/devices/pci0000:00/0000:00:08.2/0000:c7:00.1";
    let lockup = "/sys/module/amdgpu/parameters/lockup_timeout";
    let cases: &[(&str, &str, &str, Verdict, &str)] = &[
        (&format!("{device}/power_dpm_force_performance_level"), "low\n", "gpu0.clocks", Verdict::Warn, "echo auto"),
        (&format!("{device}/gpu_busy_percent"), "97\n", "gpu0.activity", Verdict::Warn, "kiln top"),
        // The order is graphics, compute, SDMA, video. Kiln's jobs are on a compute ring.
        (lockup, "500,60000\n", "gpu0.lockup", Verdict::Ok, ""),
        (lockup, "10000,500\n", "gpu0.lockup", Verdict::Warn, "lockup_timeout=10000"),
        (lockup, "10000,500,10000,10000\n", "gpu0.lockup", Verdict::Warn, "lockup_timeout=10000"),
        (lockup, "500\n", "gpu0.lockup", Verdict::Warn, "lockup_timeout=10000"),
        (lockup, "soon\n", "gpu0.lockup", Verdict::Warn, "milliseconds"),
        (lockup, "10000\n", "gpu0.lockup", Verdict::Ok, ""),
        ("/proc/cmdline", "amdgpu.gttsize=65536\n", "system.parameters", Verdict::Warn, "ttm.pages_limit"),
        ("/proc/cmdline", "amdgpu.gttsize=65536 ttm.pages_limit=16777216\n", "system.parameters", Verdict::Ok, ""),
        ("/proc/cmdline", "amd_iommu=off\n", "system.iommu", Verdict::Warn, "without amd_iommu=off"),
        (
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]\n",
            "system.huge-pages",
            Verdict::Warn,
            "madvise",
        ),
        ("/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 900000 kB\n", "system.memory", Verdict::Warn, "memory"),
        (&format!("{npu_device}/device"), "0x9999\n", "npu0.generation", Verdict::Warn, "report"),
    ];
    for &(path, content, check, verdict, remedy) in cases {
        let at = machine.files.at(path);
        let original = fs::read(&at).unwrap();
        fs::write(&at, content).unwrap();
        let checks = checks(&machine.files);
        let found = find(&checks, check);
        assert_eq!(found.verdict, verdict, "{path}: {found:?}");
        assert!(found.remedy.clone().unwrap_or_default().to_string().contains(remedy), "{path}: {found:?}");
        fs::write(&at, original).unwrap();
    }
    // Without its IOMMU group, and without its driver.
    fs::remove_file(machine.files.at(&format!("{npu_device}/iommu_group"))).unwrap();
    assert_eq!(find(&checks(&machine.files), "npu0.iommu").verdict, Verdict::Fail);
    fs::remove_dir_all(machine.files.at("/sys/class/accel")).unwrap();
    fs::remove_file(machine.files.at(&format!("{npu_device}/driver"))).unwrap();
    fs::write(machine.files.at("/proc/cmdline"), "amd_iommu=off\n").unwrap();
    let checks = checks(&machine.files);
    let driver = find(&checks, "npu.driver.0000:c7:00.1");
    assert!(
        driver.verdict == Verdict::Fail && driver.remedy.as_ref().unwrap().to_string().contains("amd_iommu=off"),
        "{driver:?}"
    );
}

/// Known faults of a gfx1151, and of no other GPU: kernels before 6.18.4, and MES 0x83.
#[test]
fn kernels_and_firmware_that_are_bad_for_a_gpu_are_warnings_there_alone() {
    let release = "/proc/sys/kernel/osrelease";
    let lockup = "/sys/module/amdgpu/parameters/lockup_timeout";
    for (name, is_gfx1151) in [("8060s", true), ("890m", false), ("8945hs", false)] {
        let mut machine = TestMachine::new(name);
        fs::write(machine.files.at(lockup), "").unwrap();
        for (version, is_old, default) in [
            ("6.17.9-amd64", true, "10 s or 60 s"),
            ("6.18.3", true, "10 s or 60 s"),
            ("6.18.4", false, "10 s or 60 s"),
            ("6.19.0-rc1", false, "10 s or 60 s"),
            ("7.0.1-generic", false, "2 s, Linux 7's default"),
        ] {
            fs::write(machine.files.at(release), format!("{version}\n")).unwrap();
            let _drivers = machine.drive();
            let checks = checks(&machine.files);
            assert_sound(&checks, name);
            let verdict = checks.iter().find(|check| check.name == "gpu0.kernel").map(|check| check.verdict);
            let expected = if is_old { Verdict::Warn } else { Verdict::Ok };
            assert_eq!(verdict, is_gfx1151.then_some(expected), "{name}, Linux {version}");
            let lockup = find(&checks, "gpu0.lockup");
            assert_eq!(lockup.verdict, Verdict::Ok);
            assert!(lockup.evidence.to_string().contains(default), "{version}: {lockup:?}");
        }
        for (mes, is_bad) in [(0x80, false), (0x83, true), (0x1083, true), (0x84, false)] {
            machine.gpu = machine.gpu.clone().with_firmware(crate::sys::amdgpu::MES, mes);
            let _drivers = machine.drive();
            let checks = checks(&machine.files);
            let firmware = find(&checks, "gpu0.firmware");
            assert!(firmware.evidence.to_string().contains(&format!("MES {mes:#x}")), "{firmware:?}");
            assert_eq!(firmware.verdict == Verdict::Warn, is_bad && is_gfx1151, "{name}: {firmware:?}");
        }
        // Without an NPU the IOMMU does not matter.
        fs::write(machine.files.at("/proc/cmdline"), "amd_iommu=off\n").unwrap();
        let _drivers = machine.drive();
        assert_eq!(find(&checks(&machine.files), "system.iommu").verdict, Verdict::Warn, "{name}");
        for slot in fs::read_dir(machine.files.at("/sys/bus/pci/devices")).unwrap() {
            let slot = slot.unwrap().path();
            let class = fs::read_to_string(slot.join("class")).unwrap_or_default();
            if !class.starts_with("0x03") {
                fs::remove_file(slot).unwrap();
            }
        }
        assert_eq!(find(&checks(&machine.files), "system.iommu").verdict, Verdict::Ok, "{name}");
    }
}

#[test]
fn a_chosen_device_that_cannot_run_is_named_with_those_that_can() {
    let named = |i: usize| (i, format!("device {i}"));
    let report = |choice, fit: &[usize]| {
        let fit = fit.iter().copied().map(named).collect();
        ProbeReport { checks: Vec::new(), choice, device: None, fit, on_cpu: false, asleep: Vec::new() }
    };
    let some = report(Device::Vulkan(Some(5)), &[0, 2]);
    assert_eq!(some.instead(), Some(("vulkan:5".into(), "vulkan:0 (device 0), vulkan:2 (device 2)".into())));
    assert!(some.summary().starts_with("Kiln cannot run on vulkan:5, which was chosen; fit: vulkan:0 (device 0), "));
    // Listed as suitable, but failed.
    assert_eq!(
        report(Device::Vulkan(Some(2)), &[0, 2]).instead(),
        Some(("vulkan:2".into(), "vulkan:0 (device 0)".into()))
    );
    for (chosen, name) in [(Device::Amdgpu(None), "amdgpu"), (Device::Amdgpu(Some(129)), "amdgpu:129")] {
        assert_eq!(report(chosen, &[0]).instead(), Some((name.into(), "vulkan:0 (device 0)".into())));
    }
    for none in [
        report(Device::Vulkan(Some(2)), &[2]),
        report(Device::Vulkan(Some(0)), &[]),
        report(Device::Vulkan(None), &[]),
        report(Device::Amdgpu(None), &[]),
    ] {
        assert_eq!(none.instead(), None);
        assert!(none.summary().starts_with("no GPU can run Kiln"), "{}", none.summary());
    }
    let runs = ProbeReport { device: Some("it".into()), ..some };
    assert!(runs.instead().is_none() && runs.summary().starts_with("Kiln can run on it; 0 ok"));
    // A model that does not fit is part of the conclusion.
    let memory = Check {
        name: "model.memory".into(),
        verdict: Verdict::Fail,
        evidence: "it needs more".into(),
        remedy: Some("use a smaller one".into()),
    };
    let full = ProbeReport { checks: vec![memory], ..runs };
    let summary = full.summary();
    assert_eq!(summary, "Kiln can run on it, but the model does not fit; 0 ok; 1 failed: model.memory");
    // The summary names the choice of `auto`, not the driver that it leaves unused.
    let on_cpu = ProbeReport { checks: Vec::new(), on_cpu: true, ..full };
    assert_eq!(on_cpu.summary(), "Kiln takes the CPU here by itself; it can be told to run on it; 0 ok");
}

#[test]
fn there_is_a_machine_for_each_profile() {
    assert_eq!(names().collect::<Vec<_>>(), ["8945hs", "890m", "8060s"]);
}
