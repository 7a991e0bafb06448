//! What this machine has, beside its GPU.

pub mod profile;

use rayon::prelude::*;
use std::fs;
use std::time::Instant;

/// Bytes of system memory that a process can still take without swapping: `MemAvailable`, or what the memory cgroup
/// leaves if that is less.
pub fn available_memory() -> u64 {
    let free = fs::read_to_string("/proc/meminfo").ok().and_then(|s| parse_meminfo(&s, "MemAvailable"));
    let free = free.unwrap_or(u64::MAX);
    let limit = read_number("/sys/fs/cgroup/memory.max");
    let used = read_number("/sys/fs/cgroup/memory.current");
    match (limit, used) {
        (Some(limit), Some(used)) => free.min(limit.saturating_sub(used)),
        _ => free,
    }
}

/// Bytes per second at which all cores together read `bytes` of system memory: the best of three passes.
pub fn measure_read(bytes: usize) -> f64 {
    // Written once, so that every page is there.
    let data: Vec<u64> = (0..bytes / 8).into_par_iter().map(|i| i as u64).collect();
    read_rate(&[&data])
}

/// Bytes per second at which all cores together read `buffers`: the best of three passes.
pub fn read_rate(buffers: &[&[u64]]) -> f64 {
    let fold = |b: &[u64]| b.par_chunks(1 << 16).map(|c| c.iter().fold(0, |a, w| a ^ w)).reduce(|| 0, |a, b| a ^ b);
    let best = (0..3).map(|_| {
        let start = Instant::now();
        std::hint::black_box(buffers.iter().fold(0, |a, b| a ^ fold(b)));
        start.elapsed().as_secs_f64()
    });
    let bytes: usize = buffers.iter().map(|b| 8 * b.len()).sum();
    bytes as f64 / best.fold(f64::INFINITY, f64::min)
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A field of /proc/meminfo, in bytes.
fn parse_meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_fields_are_found_by_their_whole_name() {
        let text = "MemTotal:       24000 kB\nMemAvailable:   1234 kB\nOdd: x kB\n";
        assert_eq!(parse_meminfo(text, "MemAvailable"), Some(1234 * 1024));
        assert_eq!(parse_meminfo(text, "Mem"), None);
        assert_eq!(parse_meminfo(text, "Odd"), None);
    }
}
