//! Checks of the NPU: its driver's answers, and the system settings that it needs.

use super::gpu::{check_driver, open};
use super::reads::{self, ReadProbe};
use super::{Checks, Verdict, share};
use crate::Result;
use crate::display::{bytes, counted};
use crate::error::text;
use crate::machine::files::{FileFault, Files};
use crate::machine::nodes::{DeviceNode, DriverApi, PciDevice, kernel_parameter, npu_generation};
use crate::npu::offload::open_on;
use crate::npu::programs;
use crate::npu::trial::{self, CommandTimes, ProgramTrial};
use crate::sys::xrt::{Library, Missing};
use crate::sys::{amdxdna, drm};
use nix::sys::resource::{Resource, getrlimit};
use std::time::Duration;

/// The least memory that a program on the NPU locks: its heap and an arena.
const LOCKED_BYTES: u64 = 128 << 20;
/// The longest time for a run, which normally takes a fraction of a millisecond.
const DEADLINE: Duration = Duration::from_secs(5);
/// The most devices that libxrt is asked for.
const MOST_DEVICES: u32 = 16;

/// What libxrt reports: its version, and its devices.
#[derive(Debug, Clone)]
pub(super) struct XrtProbe {
    /// The version: major, minor and patch level.
    pub(super) version: [u32; 3],
    /// The name and the bus address of each device.
    pub(super) devices: Result<Vec<(String, String)>>,
}

/// Checks every NPU, and the system settings that it needs. If `read` is given, measures read rates, alone and beside
/// its GPU.
pub(super) fn check(
    checks: &mut Checks,
    files: &Files,
    xrt: &std::result::Result<XrtProbe, Missing>,
    api: Option<DriverApi>,
    read: Option<ReadProbe<'_>>,
) {
    let npus: Vec<DeviceNode> = DeviceNode::accelerators(files).into_iter().filter(DeviceNode::is_amdxdna).collect();
    for (i, node) in npus.iter().enumerate() {
        check_npu(checks.group(format!("npu{i}")), files, node, api, read);
    }
    checks.group("npu");
    let undriven: Vec<PciDevice> = PciDevice::all(files).into_iter().filter(|s| s.is_npu() && !s.driven).collect();
    for slot in &undriven {
        check_undriven(checks, files, slot);
    }
    if npus.is_empty() && undriven.is_empty() {
        let driven = PciDevice::all(files).iter().any(|s| s.is_npu() && s.driven);
        match driven {
            true => checks.fail(
                "node",
                "an NPU has a driver, but this system shows no accel node of it",
                "in a container pass /dev/accel in (`--device /dev/accel/accel0`) and mount /sys",
            ),
            false => checks.skip("", "there is none: attention runs on the GPU"),
        }
    } else {
        // The checks above describe the machine; their faults do not keep a model from running.
        checks.skip(
            "use",
            "attention runs on the GPU, and on an NPU of XDNA 1 in the passes that are measured to be faster there",
        );
        check_locked_memory(checks);
    }
    check_xrt(checks, xrt, &npus);
}

fn check_undriven(checks: &mut Checks, files: &Files, slot: &PciDevice) {
    let generation = npu_generation(slot.id, 0).unwrap_or("an NPU");
    let line = files.text("/proc/cmdline").unwrap_or_default();
    let remedy = match kernel_parameter(&line, "amd_iommu").as_deref() {
        Some("off") => "boot without amd_iommu=off: the NPU's driver needs the IOMMU",
        _ => "use Linux 6.14 or newer with amdxdna (`modprobe amdxdna`) and its firmware (amdnpu), and see `dmesg`",
    };
    checks.fail(&format!("driver.{}", slot.name), format!("{generation} has no driver"), remedy);
}

fn check_npu(
    checks: &mut Checks,
    files: &Files,
    node: &DeviceNode,
    api: Option<DriverApi>,
    read: Option<ReadProbe<'_>>,
) {
    let opened = open(checks, files, node);
    check_driver(checks, node, opened.as_ref());
    check_identity(checks, files, node);
    check_iommu(checks, files, node);
    let Some(opened) = opened else { return };
    check_array(checks, &opened);
    check_contexts(checks, &opened);
    let works = check_programs(checks, files, node, api);
    if let (Some(api), Some(read)) = (api.filter(|_| works), read) {
        (read.progress)("NPU reads");
        let load = || open_on(files, node, &programs::READ_SUM, api);
        let clock = amdxdna::clocks(&opened).ok().map(|clocks| clocks.array).filter(|mhz| *mhz > 0);
        reads::check(checks, load, clock, read.gpu);
    }
}

fn check_identity(checks: &mut Checks, files: &Files, node: &DeviceNode) {
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
        Err(FileFault::Absent(_)) => checks.unseen("firmware", "the driver does not say", "use Linux 6.14 or newer"),
        Err(f) => checks.warn("firmware", f.to_string(), "see `dmesg` for amdxdna's messages"),
    }
}

fn check_iommu(checks: &mut Checks, files: &Files, node: &DeviceNode) {
    match files.text(&node.file("iommu_group/type")) {
        Err(FileFault::Absent(_)) => checks.fail(
            "iommu",
            "the NPU is in no IOMMU group",
            "switch the IOMMU on in the BIOS, and boot without amd_iommu=off",
        ),
        mode => checks.show("iommu", Verdict::Warn, mode, |mode| format!("the NPU's group is in mode {mode}")),
    }
}

fn check_array(checks: &mut Checks, opened: &drm::Node) {
    if let Some(a) = checks.got("array", Verdict::Fail, amdxdna::array(opened)) {
        let ([major, minor], columns, core_rows) = (a.version, a.columns, a.core_rows);
        match columns == 0 || core_rows == 0 {
            true => {
                checks.fail("array", format!("the driver says {columns} columns of {core_rows} tiles"), "see `dmesg`");
            }
            false => {
                let tiles = format!("{columns} columns of {core_rows} compute tiles, {} rows in all", a.rows);
                checks.ok("array", format!("{tiles}; AIE {major}.{minor}"));
            }
        }
    }
    checks.show("clocks", Verdict::Warn, amdxdna::clocks(opened), |c| {
        format!("controller {} MHz, array {} MHz", c.controller, c.array)
    });
    if let Some(mode) = checks.got("power", Verdict::Warn, amdxdna::power_mode(opened)) {
        let is_low = mode == "low" || mode == "medium";
        let low = if is_low { ": clocks are lower than they may be" } else { "" };
        let remedy = "as root: `xrt-smi configure --pmode default`";
        checks.judge("power", is_low, format!("power mode {mode}{low}"), remedy);
    }
    // Older firmware has no sensors, which does not matter.
    if let Ok(sensors) = amdxdna::sensors(opened) {
        let shown: Vec<String> = sensors.iter().map(|s| format!("{} {:.1} {}", s.label, s.value, s.unit)).collect();
        checks.ok("sensors", if shown.is_empty() { "none".into() } else { shown.join(", ") });
    }
}

fn check_contexts(checks: &mut Checks, opened: &drm::Node) {
    match amdxdna::contexts(opened) {
        Ok(contexts) => {
            let columns = amdxdna::columns_held(&contexts);
            let errors = contexts.iter().fold(0u64, |sum, c| sum.saturating_add(c.errors));
            let (held, on) = (counted(contexts.len(), "context"), counted(columns as usize, "column"));
            let evidence = format!("{held} on {on}, {}", counted(errors as usize, "error"));
            checks.judge("contexts", errors > 0, evidence, "see `dmesg` for amdxdna's messages");
        }
        Err(e) if matches!(e.errno, nix::errno::Errno::EACCES | nix::errno::Errno::EPERM) => {
            checks.unseen(
                "contexts",
                "the driver shows other users' contexts to root alone",
                "run as root to see them",
            );
        }
        Err(e) => checks.fault("contexts", Verdict::Warn, &e),
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

/// Runs programs on the NPU, in its own memory and in imported dma-bufs, and compares every value. Returns whether all
/// ran and were right.
fn check_programs(checks: &mut Checks, files: &Files, node: &DeviceNode, api: Option<DriverApi>) -> bool {
    let Some(api) = api else {
        checks.skip("program", "nothing is run on the NPU, as was asked for");
        return false;
    };
    if !node.is_xdna1() {
        checks.skip("program", "Kiln's programs are for XDNA 1");
        return false;
    }
    for (name, trial) in [("add", trial::VECTOR_ADD), ("product", trial::PRODUCT)] {
        if let Err(e) = check_program(checks, name, files, node, api, &trial) {
            let (cause, remedy) = e.parts();
            checks.fail(name, text!(format!("{}: ", trial.what), cause.clone()), remedy.clone());
            // A hung array would hang again.
            return false;
        }
    }
    true
}

fn check_program(
    checks: &mut Checks,
    name: &str,
    files: &Files,
    node: &DeviceNode,
    api: DriverApi,
    trial: &ProgramTrial,
) -> Result<()> {
    let mut context = open_on(files, node, trial.program, api)?;
    let milliseconds = |took: Duration| format!("{:.2} ms a run", 1e3 * took.as_secs_f64());
    let own = trial.allocate(&mut context)?;
    let took = milliseconds(trial.run(&mut context, &own, DEADLINE)?);
    if name == "add" {
        let times = CommandTimes::measure(&mut context, &own, DEADLINE)?;
        let [alone, together] = [times.alone, times.together].map(|time| 1e6 * time.as_secs_f64());
        checks.ok("commands", format!("a vector add takes {alone:.0} us alone, and {together:.0} us where four run"));
    }
    let exact = format!("{} through {}: exact, {took} in its own memory", trial.what, api.name());
    let mut refused = None;
    for (source, shared) in share::dma_bufs(files) {
        match trial.import(&mut context, &shared) {
            Ok(imported) => {
                let took = milliseconds(trial.run(&mut context, &imported, DEADLINE)?);
                checks.ok(name, format!("{exact}, {took} in dma-bufs of {source}"));
                return Ok(());
            }
            // A driver without address translation accepts only contiguous memory, so another source may work.
            Err(e) => refused = Some(e),
        }
    }
    match refused {
        Some(e) => checks.warn(name, text!(format!("{exact}; "), e.parts().0.clone()), e.parts().1.clone()),
        None => checks.ok(name, format!("{exact}; nothing here makes a dma-buf to import")),
    }
    Ok(())
}

/// Loads libxrt if it is installed, and lists its devices.
pub(super) fn ask_xrt() -> std::result::Result<XrtProbe, Missing> {
    let library = Library::load()?;
    let devices = library.count().and_then(|count| {
        (0..count.min(MOST_DEVICES))
            .map(|i| {
                let device = library.open(&i.to_string())?;
                Ok((device.name()?, device.slot()?))
            })
            .collect()
    });
    Ok(XrtProbe { version: library.version(), devices })
}

/// Checks whether libxrt is usable, and whether it finds the NPUs listed by the kernel.
fn check_xrt(checks: &mut Checks, xrt: &std::result::Result<XrtProbe, Missing>, npus: &[DeviceNode]) {
    const WITHOUT: &str = "nothing needs it: the kernel's driver does without";
    let xrt = match xrt {
        Ok(xrt) => xrt,
        Err(e @ Missing::Unloadable(_)) => return checks.warn("xrt", format!("{e}; {WITHOUT}"), e.remedy()),
        Err(e) if npus.is_empty() => return checks.skip("xrt", format!("{e}; {WITHOUT}")),
        Err(e) => return checks.unseen("xrt", format!("{e}; {WITHOUT}"), e.remedy()),
    };
    let [major, minor, patch] = xrt.version;
    let version = format!("libxrt {major}.{minor}.{patch}");
    match &xrt.devices {
        Err(e) => checks.warn("xrt", text!(format!("{version}: "), e.parts().0.clone()), e.parts().1.clone()),
        Ok(devices) => {
            let shown: Vec<String> = devices.iter().map(|(name, slot)| format!("{name} at {slot}")).collect();
            let unseen = npus.iter().find(|n| !n.slot.is_empty() && !devices.iter().any(|(_, slot)| *slot == n.slot));
            match unseen {
                Some(npu) => checks.warn(
                    "xrt",
                    format!("{version} does not find the NPU at {}: {}", npu.slot, or_none(&shown)),
                    "install libxrt-npu2 of the same version, and give this user the accel node",
                ),
                None => checks.ok("xrt", format!("{version}: {}", or_none(&shown))),
            }
        }
    }
}

fn or_none(devices: &[String]) -> String {
    if devices.is_empty() { "no device".into() } else { devices.join(", ") }
}
