//! The size of the CPU's caches: weights that fit in them are not read at the memory's rate.

use super::files::Files;
use std::collections::BTreeSet;

/// The directory of sysfs that describes the CPUs.
const CPUS: &str = "/sys/devices/system/cpu";
/// Bytes assumed if the kernel does not describe the caches, as on some virtual machines: a large desktop CPU's.
const USUAL: u64 = 64 << 20;

/// Total bytes of the CPU's data caches, each shared cache counted once.
pub fn bytes(files: &Files) -> u64 {
    let mut caches = BTreeSet::new();
    for cpu in files.list(CPUS).unwrap_or_default() {
        let directory = format!("{CPUS}/{cpu}/cache");
        for index in files.list(&directory).unwrap_or_default() {
            let field = |name| files.text(&format!("{directory}/{index}/{name}"));
            let (Ok(kind), Ok(level), Ok(cpus), Ok(size)) =
                (field("type"), field("level"), field("shared_cpu_list"), field("size"))
            else {
                continue;
            };
            if kind != "Instruction" {
                caches.insert((level, cpus, kind, in_bytes(&size).unwrap_or(0)));
            }
        }
    }
    let sum: u64 = caches.iter().map(|(.., size)| size).fold(0, |sum, size| sum.saturating_add(*size));
    if sum > 0 { sum } else { USUAL }
}

/// A size as the kernel writes it, such as `48K`.
fn in_bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => (text.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_cache_counts_once_and_instructions_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::under(dir.path());
        assert_eq!(bytes(&files), USUAL);
        let put = |cpu: u32, index: u32, [kind, level, cpus, size]: [&str; 4]| {
            let place = files.at(&format!("{CPUS}/cpu{cpu}/cache/index{index}"));
            std::fs::create_dir_all(&place).unwrap();
            for (name, text) in [("type", kind), ("level", level), ("shared_cpu_list", cpus), ("size", size)] {
                std::fs::write(place.join(name), format!("{text}\n")).unwrap();
            }
        };
        for (cpu, own) in [(0, "0"), (1, "1")] {
            put(cpu, 0, ["Data", "1", own, "48K"]);
            put(cpu, 1, ["Instruction", "1", own, "64K"]);
            put(cpu, 2, ["Unified", "2", own, "2M"]);
            put(cpu, 3, ["Unified", "3", "0-1", "16384K"]);
        }
        assert_eq!(bytes(&files), 2 * (48 << 10) + 2 * (2 << 20) + (16 << 20));
    }
}
