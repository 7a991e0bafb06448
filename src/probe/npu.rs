//! The NPU: what its driver says of it, and what the machine must allow for it to work.

use super::gpu::{check_driver, open};
use super::{Check, Checks};
use crate::machine::files::{Fault, Files};
use crate::machine::nodes::{Node, Slot, kernel_parameter, npu_generation};
use crate::plan::bytes;
use crate::sys::amdxdna;
use crate::sys::drm;
use nix::sys::resource::{Resource, getrlimit};

/// What a program on the NPU locks in memory at least: its heap, and an arena beside it.
const LOCKED_BYTES: u64 = 128 << 20;
/// Where libraries lie.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/opt/xilinx/xrt/lib",
    "/opt/xilinx/xrt/lib64",
];
const XRT: &str = "libxrt_coreutil.so.2";

/// Checks every NPU, and what it needs around it.
pub(super) fn check(files: &Files) -> Vec<Check> {
    let npus: Vec<Node> = Node::accelerators(files).into_iter().filter(Node::is_amdxdna).collect();
    let mut all = Vec::new();
    for (i, node) in npus.iter().enumerate() {
        let mut checks = Checks::of(format!("npu{i}"));
        check_npu(&mut checks, files, node);
        all.extend(checks.all);
    }
    let mut checks = Checks::of("npu");
    let undriven: Vec<Slot> = Slot::all(files).into_iter().filter(|s| s.is_npu() && !s.driven).collect();
    for slot in &undriven {
        check_undriven(&mut checks, files, slot);
    }
    if npus.is_empty() && undriven.is_empty() {
        let driven = Slot::all(files).iter().any(|s| s.is_npu() && s.driven);
        match driven {
            true => checks.fail(
                "node",
                "an NPU has a driver, but this system shows no accel node of it",
                "in a container pass /dev/accel in (`--device /dev/accel/accel0`) and mount /sys",
            ),
            false => checks.skip("", "there is none: attention runs on the GPU"),
        }
    } else {
        check_locked_memory(&mut checks);
    }
    check_xrt(&mut checks, files);
    all.extend(checks.all);
    all
}

fn check_undriven(checks: &mut Checks, files: &Files, slot: &Slot) {
    let generation = npu_generation(slot.id, 0).unwrap_or("an NPU");
    let line = files.text("/proc/cmdline").unwrap_or_default();
    let remedy = match kernel_parameter(&line, "amd_iommu").as_deref() {
        Some("off") => "boot without amd_iommu=off: the NPU's driver needs the IOMMU",
        _ => "use Linux 6.14 or newer with amdxdna (`modprobe amdxdna`) and its firmware (amdnpu), and see `dmesg`",
    };
    checks.fail(&format!("driver.{}", slot.name), format!("{generation} has no driver"), remedy);
}

fn check_npu(checks: &mut Checks, files: &Files, node: &Node) {
    let opened = open(checks, files, node);
    check_driver(checks, node, opened.as_ref());
    check_identity(checks, files, node);
    check_iommu(checks, files, node);
    let Some(opened) = opened else { return };
    check_array(checks, &opened);
    check_contexts(checks, &opened);
}

fn check_identity(checks: &mut Checks, files: &Files, node: &Node) {
    let name = files.text(&node.file("vbnv"));
    let generation = npu_generation(node.id, node.revision);
    let shown = name.as_deref().unwrap_or("unnamed");
    match generation {
        Some(g) => checks.ok("generation", format!("{shown}, {g}")),
        None => checks.warn(
            "generation",
            format!("{shown}, device {:04x}:{:04x}, which Kiln does not know", node.id.0, node.id.1),
            "report this NPU; attention runs on the GPU",
        ),
    }
    match files.text(&node.file("fw_version")) {
        Ok(version) => checks.ok("firmware", version),
        Err(Fault::Absent(_)) => checks.unseen("firmware", "the driver does not say", "use Linux 6.14 or newer"),
        Err(f) => checks.warn("firmware", f, "see `dmesg` for amdxdna's messages"),
    }
}

fn check_iommu(checks: &mut Checks, files: &Files, node: &Node) {
    match files.text(&node.file("iommu_group/type")) {
        Ok(mode) => checks.ok("iommu", format!("the NPU's group is in mode {mode}")),
        Err(Fault::Absent(_)) => checks.fail(
            "iommu",
            "the NPU is in no IOMMU group",
            "switch the IOMMU on in the BIOS, and boot without amd_iommu=off",
        ),
        Err(f) => checks.warn("iommu", f, "mount /sys"),
    }
}

fn check_array(checks: &mut Checks, opened: &drm::Node) {
    match amdxdna::array(opened) {
        Ok(a) if a.columns == 0 || a.core_rows == 0 => {
            checks.fail(
                "array",
                format!("the driver says {} columns of {} tiles", a.columns, a.core_rows),
                "see `dmesg`",
            );
        }
        Ok(a) => {
            let [major, minor] = a.version;
            let tiles = format!("{} columns of {} compute tiles, {} rows in all", a.columns, a.core_rows, a.rows);
            checks.ok("array", format!("{tiles}; AIE {major}.{minor}"));
        }
        Err(e) => checks.fail("array", e.to_string(), e.remedy()),
    }
    match amdxdna::clocks(opened) {
        Ok(c) => checks.ok("clocks", format!("controller {} MHz, array {} MHz", c.controller, c.array)),
        Err(e) => checks.warn("clocks", e.to_string(), e.remedy()),
    }
    match amdxdna::power_mode(opened) {
        Ok(mode) if mode == "low" => {
            checks.warn(
                "power",
                "power mode low: clocks are at their lowest",
                "as root: `xrt-smi configure --pmode default`",
            );
        }
        Ok(mode) => checks.ok("power", format!("power mode {mode}")),
        Err(e) => checks.warn("power", e.to_string(), e.remedy()),
    }
    // Older firmware has none: nothing is lost by that.
    if let Ok(sensors) = amdxdna::sensors(opened) {
        let shown: Vec<String> = sensors.iter().map(|s| format!("{} {:.1} {}", s.label, s.value, s.unit)).collect();
        checks.ok("sensors", if shown.is_empty() { "none".into() } else { shown.join(", ") });
    }
}

fn check_contexts(checks: &mut Checks, opened: &drm::Node) {
    match amdxdna::contexts(opened) {
        Ok(contexts) => {
            let columns: u64 = contexts.iter().map(|c| u64::from(c.columns)).sum();
            let errors = contexts.iter().fold(0u64, |sum, c| sum.saturating_add(c.errors));
            let evidence = format!("{} contexts on {columns} columns, {errors} errors", contexts.len());
            match errors {
                0 => checks.ok("contexts", evidence),
                _ => checks.warn("contexts", evidence, "see `dmesg` for amdxdna's messages"),
            }
        }
        Err(e) if matches!(e.errno, nix::errno::Errno::EACCES | nix::errno::Errno::EPERM) => {
            checks.unseen(
                "contexts",
                "the driver shows other users' contexts to root alone",
                "run as root to see them",
            );
        }
        Err(e) => checks.warn("contexts", e.to_string(), e.remedy()),
    }
    if let Ok(Some(error)) = amdxdna::last_error(opened) {
        let evidence = format!("the array reported error {:#x} by itself", error.code);
        checks.warn("errors", evidence, "see `dmesg` for amdxdna's messages");
    }
}

fn check_locked_memory(checks: &mut Checks) {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((soft, _)) if soft < LOCKED_BYTES => checks.warn(
            "memlock",
            format!("this user may lock {} of memory, and an NPU program locks {}", bytes(soft), bytes(LOCKED_BYTES)),
            "raise it: `ulimit -l unlimited`, or memlock in /etc/security/limits.conf, or LimitMEMLOCK= of a systemd unit",
        ),
        Ok((soft, _)) if soft == nix::libc::RLIM_INFINITY => checks.ok("memlock", "no limit on locked memory"),
        Ok((soft, _)) => checks.ok("memlock", format!("this user may lock {}", bytes(soft))),
        Err(e) => checks.warn("memlock", format!("the limit cannot be read: {e}"), "run outside of the sandbox"),
    }
}

/// libxrt's version, from the name of its file.
fn check_xrt(checks: &mut Checks, files: &Files) {
    let names = |folder: &str| files.list(folder).unwrap_or_default();
    let found = LIBRARIES.iter().find_map(|folder| {
        let versions = names(folder).into_iter().filter(|n| n.starts_with(XRT));
        versions.max_by_key(String::len).map(|n| n.trim_start_matches("libxrt_coreutil.so.").to_owned())
    });
    let without = "this build has no bridge to it: Kiln reaches the NPU through the kernel's own interface";
    match found {
        Some(version) => checks.skip("xrt", format!("libxrt {version} is installed; {without}")),
        None => checks.skip("xrt", format!("libxrt is not installed; {without}")),
    }
}
