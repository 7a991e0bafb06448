//! The system around the devices: kernel, memory, and the parameters that limit how much memory a GPU may use.

use super::{Checks, Verdict};
use crate::display::{bytes, counted};
use crate::machine::files::{FileFault, Files};
use crate::machine::nodes::{PciDevice, kernel_parameter};
use crate::machine::{cgroup_room, memory_field};

/// Adds the checks of the system: kernel, rights, memory and modules.
pub(super) fn check(checks: &mut Checks, files: &Files) {
    checks.group("system");
    check_kernel(checks, files);
    check_rights(checks, nix::unistd::geteuid().is_root());
    check_memory(checks, files);
    check_parameters(checks, files);
    check_pages(checks, files);
    check_modules(checks, files);
}

fn check_kernel(checks: &mut Checks, files: &Files) {
    let processor = files.text("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("model name"))?;
        Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
    });
    let processor = processor.unwrap_or_else(|| "an unnamed processor".into());
    let release = files.text("/proc/sys/kernel/osrelease");
    checks.show("kernel", Verdict::Skip, release, |release| format!("Linux {release}, {processor}"));
    match files.text("/sys/class/dmi/id/product_name") {
        Ok(product) => {
            let vendor = files.text("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
            let bios = files.text("/sys/class/dmi/id/bios_version").unwrap_or_else(|_| "unknown".into());
            checks.ok("machine", format!("{vendor} {product}, BIOS {bios}").trim_start());
        }
        Err(f) => checks.skip("machine", f.to_string()),
    }
}

/// Reports this user's rights, and the checks that need root.
fn check_rights(checks: &mut Checks, root: bool) {
    match root {
        true => checks.ok("rights", "run as root: all that can be seen is seen"),
        false => checks.unseen(
            "rights",
            "not run as root: the memory modules' speed and other users' processes on GPU and NPU are not seen",
            "run as root for these; all else is the same",
        ),
    }
}

/// Free memory below which only the smallest models run.
const LITTLE: u64 = 2 << 30;

fn check_memory(checks: &mut Checks, files: &Files) {
    let text = files.text("/proc/meminfo");
    let field = |name| text.as_deref().ok().and_then(|t| memory_field(t, name));
    match (&text, field("MemTotal"), field("MemAvailable")) {
        (_, Some(total), Some(free)) => {
            let evidence = format!("{} free of {}", bytes(free), bytes(total));
            checks.judge("memory", free < LITTLE, evidence, "end what else uses memory, or add some");
        }
        (Err(f), ..) => checks.fault("memory", Verdict::Skip, f),
        _ => checks.warn("memory", "/proc/meminfo does not say how much memory there is", "mount /proc"),
    }
    match (field("SwapTotal"), field("SwapFree")) {
        (Some(0), _) => checks.ok("swap", "none: a model that does not fit is refused, not swapped"),
        (Some(total), Some(free)) => {
            let used = total.saturating_sub(free);
            let remedy = "end other programs that use memory: swapped-out pages make the first tokens slow";
            checks.judge("swap", used > total / 2, format!("{} used of {}", bytes(used), bytes(total)), remedy);
        }
        _ => checks.skip("swap", "unknown"),
    }
    let groups = files.text("/proc/self/cgroup").unwrap_or_default();
    match (cgroup_room(files, &groups), field("MemAvailable")) {
        (Some(room), Some(free)) if room < free => checks.warn(
            "cgroup",
            format!("this process's group leaves {}, and the machine has {} free", bytes(room), bytes(free)),
            "raise its memory limit (`--memory` of a container, MemoryMax= of a systemd unit)",
        ),
        // Old kernels express "no limit" as a number beyond any memory.
        (Some(room), _) if room < 1 << 62 => {
            checks.ok("cgroup", format!("this process's group leaves {}", bytes(room)))
        }
        _ => checks.ok("cgroup", "no memory limit on this process's group"),
    }
}

/// Parameters of the kernel's command line that affect the GPU or the NPU.
const PARAMETERS: [&str; 8] = [
    "amdgpu.gttsize",
    "amdgpu.lockup_timeout",
    "amdgpu.vm_size",
    "ttm.pages_limit",
    "ttm.page_pool_size",
    "amd_iommu",
    "iommu",
    "mem",
];

fn check_parameters(checks: &mut Checks, files: &Files) {
    match files.text("/proc/cmdline") {
        Err(FileFault::Empty(_)) => checks.ok("parameters", "the kernel was booted without any"),
        Err(f) => checks.fault("parameters", Verdict::Skip, &f),
        Ok(line) => {
            let set: Vec<String> = PARAMETERS
                .iter()
                .filter_map(|&name| Some(format!("{name}={}", kernel_parameter(&line, name)?)))
                .collect();
            let evidence = if set.is_empty() { "none of those that matter is set".into() } else { set.join(" ") };
            let set = |name| kernel_parameter(&line, name).is_some();
            let is_unlimited = set("amdgpu.gttsize") && !set("ttm.pages_limit");
            let remedy = "set ttm.pages_limit beside amdgpu.gttsize, in pages of 4 KiB: newer kernels go by it alone";
            checks.judge("parameters", is_unlimited, evidence, remedy);
            if kernel_parameter(&line, "amd_iommu").as_deref() == Some("off") {
                let has_npu = PciDevice::all(files).iter().any(PciDevice::is_npu);
                let lost = if has_npu { ", and this machine's NPU is lost" } else { "" };
                let evidence = format!("amd_iommu=off: the GPU gains 5 to 12 %{lost}");
                checks.judge("iommu", has_npu, evidence, "boot without amd_iommu=off if the NPU is to be used");
            }
        }
    }
    // The limit in force: pages of system memory that all GPUs together may hold.
    match files.value::<u64>("/sys/module/ttm/parameters/pages_limit") {
        Err(FileFault::Absent(_)) => checks.skip("gtt-limit", "no driver with GTT is loaded"),
        pages => checks.show("gtt-limit", Verdict::Warn, pages, |pages| {
            format!("{} of system memory for all GPUs", bytes(pages.saturating_mul(4096)))
        }),
    }
}

fn check_pages(checks: &mut Checks, files: &Files) {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    match files.text(FILE) {
        Ok(text) => match text.split_ascii_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']')) {
            Some("never") => checks.warn(
                "huge-pages",
                "transparent huge pages are off: a CPU driver's reads of weights miss its TLB",
                format!("echo madvise > {FILE}"),
            ),
            Some(mode) => checks.ok("huge-pages", format!("transparent huge pages: {mode}")),
            None => checks.warn("huge-pages", format!("{FILE} holds `{text}`"), "mount /sys"),
        },
        Err(f) => checks.skip("huge-pages", f.to_string()),
    }
}

/// Reports the memory modules' speed. Only root can read its tables.
fn check_modules(checks: &mut Checks, files: &Files) {
    const FILE: &str = "/sys/firmware/dmi/tables/DMI";
    match files.bytes(FILE) {
        Err(FileFault::Denied(_)) => {
            checks.unseen("memory-clock", "the BIOS's tables are root's", "run as root to see it")
        }
        Err(f) => checks.skip("memory-clock", f.to_string()),
        Ok(table) => {
            let modules = memory_modules(&table);
            let Some(slowest) = modules.iter().map(|m| m.configured).min().filter(|&s| s > 0) else {
                return checks
                    .skip("memory-clock", format!("the BIOS lists {} and no speed", counted(modules.len(), "module")));
            };
            let rated = modules.iter().map(|m| m.rated).min().unwrap_or(0);
            let is_slow = slowest < rated;
            let rated = if is_slow { format!(", though they are made for {rated}") } else { String::new() };
            let evidence = format!("{} at {slowest} MT/s{rated}", counted(modules.len(), "module"));
            let remedy = "choose their profile (EXPO or XMP) in the BIOS: decoding is as fast as the memory";
            checks.judge("memory-clock", is_slow, evidence, remedy);
        }
    }
}

/// The speeds of a memory module, in MT/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemoryModule {
    rated: u32,
    configured: u32,
}

/// The modules in an SMBIOS table (structures of type 17). The table is not trusted.
fn memory_modules(table: &[u8]) -> Vec<MemoryModule> {
    let mut modules = Vec::new();
    let mut rest = table;
    // A structure consists of type, length, handle and fields, then strings. A zero ends each string, and another zero
    // the structure.
    while let [kind, length, ..] = *rest {
        let Some(fields) = rest.get(..usize::from(length)).filter(|f| f.len() >= 4) else { break };
        let word = |at: usize| fields.get(at..at + 2).map_or(0, |b| u32::from(u16::from_le_bytes([b[0], b[1]])));
        // Size at 0x0c, rated speed at 0x15, configured speed at 0x20; a slot without a module has size 0.
        if kind == 17 && word(0x0c) != 0 {
            modules.push(MemoryModule { rated: word(0x15), configured: word(0x20) });
        }
        if kind == 127 {
            break;
        }
        let strings = &rest[usize::from(length)..];
        let Some(end) = strings.windows(2).position(|w| w == [0, 0]) else { break };
        rest = &strings[end + 2..];
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::probe::Verdict;

    /// A structure of type 17 with its strings.
    fn module(size: u16, rated: u16, configured: u16) -> Vec<u8> {
        let mut s = vec![0u8; 0x22];
        (s[0], s[1]) = (17, 0x22);
        s[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        s[0x15..0x17].copy_from_slice(&rated.to_le_bytes());
        s[0x20..0x22].copy_from_slice(&configured.to_le_bytes());
        s.extend(b"DIMM 0\0BANK 0\0\0");
        s
    }

    #[test]
    fn modules_are_found_among_other_structures_and_empty_slots() {
        let other = [&[1u8, 6, 0, 0, 1, 2][..], b"\0\0"].concat();
        let table =
            [other, module(0x7fff, 5600, 5600), module(0, 0, 0), module(0x7fff, 5600, 4800), vec![127, 4, 0, 0, 0, 0]];
        let found = memory_modules(&table.concat());
        assert_eq!(
            found,
            [MemoryModule { rated: 5600, configured: 5600 }, MemoryModule { rated: 5600, configured: 4800 }]
        );
    }

    #[test]
    fn a_user_is_told_what_root_would_see() {
        let verdict = |root| {
            let mut checks = Checks::default();
            check_rights(&mut checks, root);
            (checks.all[0].verdict, checks.all[0].remedy.is_some())
        };
        assert_eq!(verdict(true), (Verdict::Ok, false));
        assert_eq!(verdict(false), (Verdict::Skip, true));
    }

    #[test]
    fn no_table_whatever_its_bytes_is_a_panic() {
        let good = [module(1, 5600, 4800), module(1, 5600, 4800)].concat();
        for cut in 0..good.len() {
            memory_modules(&good[..cut]);
            let mut bad = good.clone();
            bad[cut] ^= 0xff;
            memory_modules(&bad);
        }
        assert_eq!(memory_modules(&[17, 0, 0, 0, 0, 0]), []);
        assert_eq!(memory_modules(&[17, 255]), []);
    }
}
