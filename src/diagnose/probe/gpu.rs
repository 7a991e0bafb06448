//! Checks of the GPU, as its kernel driver describes it.

use super::{Checks, Verdict, wake_it};
use crate::display::bytes;
use crate::machine::files::{FileFault, Files};
use crate::machine::nodes::{AMD_GPU, DeviceNode, Nvidia, PciDevice, SUSPENDED, gfx_name};
use crate::sys::{self, amdgpu, drm};

/// Checks every GPU that is not `asleep`. `reached`: Vulkan lists a GPU even if sysfs shows none.
pub(super) fn check(checks: &mut Checks, files: &Files, reached: bool, asleep: &[String]) {
    let gpus = DeviceNode::gpus(files);
    for (i, node) in gpus.iter().enumerate() {
        checks.group(format!("gpu{i}"));
        match asleep.contains(&node.name) {
            true => leave_asleep(checks, files, node),
            false => check_gpu(checks, files, node),
        }
    }
    check_bus(checks.group("gpu"), files, gpus.is_empty(), reached, asleep);
}

/// Reports a sleeping GPU without asking its driver: amdgpu's own files in sysfs would wake it too.
fn leave_asleep(checks: &mut Checks, files: &Files, node: &DeviceNode) {
    let at = if node.slot.is_empty() { String::new() } else { format!(" at {}", node.slot) };
    checks.unseen("node", format!("{}{at}, driven by {}: {SUSPENDED}", node.path, or_unknown(&node.driver)), wake_it());
    if let Some(gfx) = gfx_name(files, node).filter(|_| node.is_amdgpu()) {
        checks.ok("family", format!("{gfx} (device {:04x}, revision {:02x})", node.id.1, node.revision));
    }
}

/// Reports GPUs without a driver, and the absence of any GPU.
fn check_bus(checks: &mut Checks, files: &Files, none: bool, reached: bool, asleep: &[String]) {
    let slots = PciDevice::all(files);
    for slot in slots.iter().filter(|s| s.is_gpu() && !s.driven) {
        let (vendor, device) = slot.id;
        let (verdict, remedy) = match vendor {
            AMD_GPU => (
                Verdict::Fail,
                "load amdgpu (`modprobe amdgpu`), install its firmware (firmware-amd-graphics on Debian), and see `dmesg`",
            ),
            _ => (Verdict::Skip, "install its vendor's driver, if Kiln is to use it"),
        };
        let evidence = format!("{} ({vendor:04x}:{device:04x}) has no driver", slot.name);
        checks.push(&format!("driver.{}", slot.name), verdict, evidence, Some(remedy.into()));
    }
    if !none {
        return;
    }
    if reached {
        return checks.skip("", "no render node in /sys/class/drm: its driver is not asked; Vulkan reaches it");
    }
    if let Some(nvidia) = Nvidia::all(files).first() {
        let model = nvidia.model.as_deref().unwrap_or("a GPU of NVIDIA's driver");
        if asleep.contains(&nvidia.slot) {
            return checks.unseen("", format!("{model} at {}: {SUSPENDED}", nvidia.slot), wake_it());
        }
        return checks.warn(
            "",
            format!("{model} is at {}, and Vulkan does not reach it", nvidia.slot),
            "install the Vulkan part of its driver (libnvidia-gl); in a container set NVIDIA_DRIVER_CAPABILITIES=all",
        );
    }
    let driven = slots.iter().any(|s| s.is_gpu() && s.driven && s.id.0 == AMD_GPU);
    match driven || files.exists("/dev/dri") || files.exists("/dev/kfd") {
        true => checks.warn(
            "",
            "a GPU is there, but this system shows no render node of it",
            "in a container pass /dev/dri in (`--device /dev/dri`) and mount /sys",
        ),
        false => checks.warn(
            "",
            "no render node in /sys/class/drm",
            "with an AMD GPU: load amdgpu; in a container pass /dev/dri in (`--device /dev/dri`)",
        ),
    }
}

fn check_gpu(checks: &mut Checks, files: &Files, node: &DeviceNode) {
    let opened = open(checks, files, node);
    check_driver(checks, node, opened.as_ref());
    if !node.is_amdgpu() {
        let asked = opened.as_ref().and_then(|n| n.version().ok()).map(|v| v.name);
        let driver = asked.unwrap_or_else(|| or_unknown(&node.driver).to_owned());
        checks.skip("amdgpu", format!("driven by {driver}: the checks of amdgpu do not concern it"));
        return;
    }
    check_family(checks, files, node, opened.as_ref());
    check_kernel(checks, files, node);
    check_memory(checks, files, node, opened.as_ref());
    check_activity(checks, files, node, opened.as_ref());
    check_firmware(checks, files, node, opened.as_ref());
    check_lockup(checks, files);
}

/// Peak bytes per second of the GPU's memory. `None` unless there is exactly one GPU and its driver reports the rate.
pub(super) fn peak_bandwidth(files: &Files) -> Option<f64> {
    let gpus = DeviceNode::gpus(files);
    let [node] = &gpus[..] else { return None };
    amdgpu::device(&drm::Node::open(&files.at(&node.path)).ok()?).ok()?.peak_bandwidth()
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "an unknown driver" } else { text }
}

/// Opens the node: checks that it exists and that this user may use it.
pub(super) fn open(checks: &mut Checks, files: &Files, node: &DeviceNode) -> Option<drm::Node> {
    let group = if node.name.starts_with("accel") { "render (or the one that owns it)" } else { "render" };
    if !files.exists(&node.path) {
        let remedy = "in a container pass it in (`--device`); else see whether udev runs";
        checks.fail("node", format!("{} is absent, though the driver offers it", node.path), remedy);
        return None;
    }
    match drm::Node::open(&files.at(&node.path)) {
        Ok(opened) => {
            let slot = if node.slot.is_empty() { String::new() } else { format!(" at {}", node.slot) };
            checks.ok("node", format!("{}{slot} opens for reading and writing", node.path));
            Some(opened)
        }
        Err(e) if matches!(e.errno, nix::errno::Errno::EACCES | nix::errno::Errno::EPERM) => {
            let remedy =
                format!("join the group {group} (`usermod -aG render $USER`, then log in again), or run as root");
            checks.fail("node", format!("{} may not be opened: {}", node.path, e.errno), remedy);
            None
        }
        Err(e) => {
            checks.fail("node", format!("{}: {}", node.path, e.errno), e.remedy());
            None
        }
    }
}

/// The driver's name and the version of its interface.
pub(super) fn check_driver(checks: &mut Checks, node: &DeviceNode, opened: Option<&drm::Node>) {
    let Some(opened) = opened else {
        return checks
            .skip("driver", format!("{}; its version is known once the node opens", or_unknown(&node.driver)));
    };
    checks.show("driver", Verdict::Fail, opened.version(), |v| {
        let [major, minor, patch] = v.numbers;
        format!("{} {major}.{minor}.{patch} ({})", v.name, v.description)
    });
}

fn check_family(checks: &mut Checks, files: &Files, node: &DeviceNode, opened: Option<&drm::Node>) {
    let (_, id) = node.id;
    let gfx = gfx_name(files, node);
    match &gfx {
        Some(gfx) => checks.ok("family", format!("{gfx} (device {id:04x}, revision {:02x})", node.revision)),
        None => checks.warn(
            "family",
            format!("device {id:04x}: neither the compute driver nor the chip's own table says what it is"),
            "use Linux 6.1 or newer",
        ),
    }
    let Some(opened) = opened else { return };
    let Some(d) = checks.got("units", Verdict::Fail, amdgpu::device(opened)) else { return };
    let mut evidence = format!("{} compute units at up to {} MHz", d.compute_units, d.max_engine_clock / 1000);
    if let (Some(kind), true) = (d.memory_name(), d.memory_bits > 0) {
        evidence += &format!("; {kind}, {} bits at up to {} MHz", d.memory_bits, d.max_memory_clock / 1000);
    }
    if let Some(peak) = d.peak_bandwidth() {
        evidence += &format!(": {:.1} GB/s at most", peak / 1e9);
    }
    match d.compute_units {
        0 => checks.fail("units", "the driver counts no compute units", "see `dmesg` for amdgpu's errors"),
        _ => checks.ok("units", evidence),
    }
}

/// The kernel's version: major, minor and patch level.
fn kernel_version(files: &Files) -> Option<[u32; 3]> {
    let release = files.text("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)])
}

/// The first kernel that sets aside enough memory for the registers of a gfx1151's compute waves (ROCm/TheRock, issue
/// 2991).
const ENOUGH_REGISTERS: [u32; 3] = [6, 18, 4];

/// Warns of kernels that are known to be bad for this GPU.
fn check_kernel(checks: &mut Checks, files: &Files, node: &DeviceNode) {
    if gfx_name(files, node).as_deref() != Some("gfx1151") {
        return;
    }
    let Some(version @ [major, minor, patch]) = kernel_version(files) else {
        return checks.skip("kernel", "its version is not known");
    };
    let is_old = version < ENOUGH_REGISTERS;
    let state = match is_old {
        true => {
            "sets too little memory aside for a gfx1151's registers: ROCm's programs crash, and may hang the GPU for all"
        }
        false => "is new enough for a gfx1151",
    };
    checks.judge("kernel", is_old, format!("Linux {major}.{minor}.{patch} {state}"), "use Linux 6.18.4 or newer");
}

fn check_memory(checks: &mut Checks, files: &Files, node: &DeviceNode, opened: Option<&drm::Node>) {
    // From the driver if the node can be opened, else from sysfs. Vulkan is no source: the heaps that it shows for an
    // APU are not the real ones.
    let query = opened.and_then(|opened| checks.got("memory.query", Verdict::Warn, amdgpu::memory(opened)));
    let heap = |name, of: fn(amdgpu::GpuMemory) -> amdgpu::GpuHeap| match query.map(of) {
        Some(h) if h.total > 0 => Ok((h.total, h.used)),
        _ => {
            let read = |what| files.value::<u64>(&node.file(&format!("mem_info_{name}_{what}")));
            Ok((read("total")?, read("used")?))
        }
    };
    let (vram, gtt) = (heap("vram", |m| m.vram), heap("gtt", |m| m.gtt));
    let show = |h: &Result<(u64, u64), FileFault>| match h {
        Ok((total, used)) => format!("{} used of {}", bytes(*used), bytes(*total)),
        Err(f) => f.to_string(),
    };
    let evidence = format!("VRAM {}; GTT {}", show(&vram), show(&gtt));
    let full = |h: &Result<(u64, u64), FileFault>| h.as_ref().is_ok_and(|&(total, used)| used > total / 10 * 9);
    match (&vram, &gtt) {
        (Ok(_), Ok(_)) => {
            let remedy = "close what else uses the GPU's memory (`kiln top` shows who)";
            checks.judge("memory", full(&vram) && full(&gtt), evidence, remedy);
        }
        _ => checks.warn("memory", evidence, "use Linux 5.10 or newer, and mount /sys"),
    }
    let Some(opened) = opened else { return };
    if let Some(n) = checks.got("evictions", Verdict::Warn, amdgpu::evictions(opened)) {
        let is_full = n > 0 && full(&vram);
        let full = if is_full { ", and VRAM is full" } else { "" };
        let evidence = format!("{n} since the driver was loaded{full}");
        checks.judge("evictions", is_full, evidence, "close what else uses VRAM");
    }
    if let Some(n) = checks.got("resets", Verdict::Warn, amdgpu::losses(opened)) {
        let resets = if n == 0 { "no reset".into() } else { format!("{n} resets") };
        let evidence = format!("{resets} lost VRAM since the driver was loaded");
        checks.judge("resets", n > 0, evidence, "see `dmesg` for the program that hung");
    }
}

/// Checks the load, and whether the clocks are throttled.
fn check_activity(checks: &mut Checks, files: &Files, node: &DeviceNode, opened: Option<&drm::Node>) {
    let file = node.file("power_dpm_force_performance_level");
    if let Some(level) = checks.got("clocks", Verdict::Skip, files.text(&file)) {
        let is_low = matches!(level.as_str(), "low" | "profile_min_sclk" | "profile_min_mclk");
        checks.judge("clocks", is_low, format!("the performance level is {level}"), format!("echo auto > {file}"));
    }
    let busy = files.value::<u64>(&node.file("gpu_busy_percent"));
    let sensor = |s| opened.map(|n| amdgpu::sensor(n, s));
    let mut parts = vec![busy.as_ref().map_or_else(ToString::to_string, |b| format!("{b} % busy"))];
    let mut show = |reading: Option<sys::DriverResult<u32>>, text: fn(u32) -> String| {
        if let Some(Ok(value)) = reading {
            parts.push(text(value));
        }
    };
    show(sensor(amdgpu::GpuSensor::EngineClock), |v| format!("engine {v} MHz"));
    show(sensor(amdgpu::GpuSensor::MemoryClock), |v| format!("memory {v} MHz"));
    show(sensor(amdgpu::GpuSensor::Temperature), |v| format!("{} °C", v / 1000));
    show(sensor(amdgpu::GpuSensor::Power), |v| format!("{v} W"));
    let evidence = parts.join(", ");
    match busy {
        Ok(b) => checks.judge("activity", b > 20, evidence, "end what else uses the GPU before measuring (`kiln top`)"),
        Err(_) => checks.skip("activity", evidence),
    }
}

/// The version of MES that came with linux-firmware 20251125, which hangs a gfx1151 (ROCm/legacy-rocm-build, issue
/// 5724). The one before it, and those since 20260110, do not.
const HANGS: u64 = 0x83;

fn check_firmware(checks: &mut Checks, files: &Files, node: &DeviceNode, opened: Option<&drm::Node>) {
    let version = |&(name, number): &(&'static str, u32)| {
        let asked = opened.and_then(|n| amdgpu::firmware(n, number).ok()).map(|f| u64::from(f.version));
        let file = node.file(&format!("fw_version/{}_fw_version", name.to_lowercase()));
        let version = asked.filter(|&v| v > 0).or_else(|| files.hex(&file).ok()).filter(|&v| v > 0)?;
        Some((name, number, version))
    };
    let found: Vec<_> = amdgpu::FIRMWARES.iter().filter_map(version).collect();
    let named: Vec<String> = found.iter().map(|(name, _, version)| format!("{name} {version:#x}")).collect();
    let named = named.join(", ");
    let hangs = found.iter().any(|&(_, number, version)| number == amdgpu::MES && version & 0xfff == HANGS);
    match found.is_empty() {
        true => checks.unseen("firmware", "no firmware's version can be read", "give this user the render node"),
        false if hangs && gfx_name(files, node).as_deref() == Some("gfx1151") => checks.warn(
            "firmware",
            format!("{named}: MES {HANGS:#x} is that of linux-firmware 20251125, which hangs a gfx1151"),
            "install linux-firmware 20251111, or 20260110 or newer, make the initramfs anew, and boot",
        ),
        false => checks.ok("firmware", named),
    }
}

/// Milliseconds that one of Kiln's jobs may run before the ring is reset.
///
/// The parameter is a list, by amdgpu's documentation "[GFX,Compute,SDMA,Video]", or one value. One value holds for all
/// rings; in older kernels it does not hold for compute. Kiln's queue is on a compute ring.
fn job_timeout(parameter: &str) -> Option<i64> {
    let parts: Vec<i64> = parameter.split(',').map(|p| p.trim().parse().ok()).collect::<Option<_>>()?;
    parts.get(1).or(parts.first()).copied()
}

fn check_lockup(checks: &mut Checks, files: &Files) {
    const FILE: &str = "/sys/module/amdgpu/parameters/lockup_timeout";
    match files.text(FILE) {
        Err(FileFault::Empty(_)) => {
            let default = match kernel_version(files) {
                Some([major, ..]) if major >= 7 => "2 s, Linux 7's default",
                _ => "the driver's default, 10 s or 60 s",
            };
            checks.ok("lockup", format!("jobs are reset after {default}: a submit is made for half a second at most"));
        }
        Err(f) => checks.fault("lockup", Verdict::Skip, &f),
        Ok(text) => match job_timeout(&text) {
            Some(ms @ 1..) => {
                let remedy = "boot with amdgpu.lockup_timeout=10000,10000: long contexts may take longer in one submit";
                checks.judge("lockup", ms < 1000, format!("jobs are reset after {ms} ms"), remedy);
            }
            Some(_) => checks.ok("lockup", format!("{text}: jobs are never reset, or after the driver's default")),
            None => {
                checks.warn("lockup", format!("{FILE} holds `{text}`"), "set amdgpu.lockup_timeout to milliseconds")
            }
        },
    }
}
