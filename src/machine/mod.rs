//! The machine's files, device nodes and heaps.

pub mod cache;
pub mod caches;
pub mod files;
pub mod gpu_metrics;
pub mod heaps;
pub mod nodes;
pub(crate) mod partial;
pub mod profile;
pub(crate) mod regular;
pub mod stamp;
pub(crate) mod threads;

use crate::{Error, Result};
use files::Files;
use nix::sys::sysinfo::sysinfo;
use rayon::prelude::*;
use std::path::Path;
use std::time::Instant;

/// Bytes of system memory that this process can still allocate without swapping: the lesser of `MemAvailable` and the
/// room in its memory cgroups. Page cache counts as free, since the kernel reclaims it. Without /proc, page cache is
/// not counted, and only entirely free memory is.
pub fn available_memory() -> u64 {
    available_in(&Files::system())
}

/// Free bytes on the file system of `path`.
///
/// # Errors
/// Failed: the file system does not answer.
pub(crate) fn free_bytes(path: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path).map_err(|e| Error::unwritable(path, &e.into()))?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

fn available_in(files: &Files) -> u64 {
    let available = files.text("/proc/meminfo").ok().and_then(|s| memory_field(&s, "MemAvailable"));
    let free = available.or_else(|| sysinfo().ok().map(|s| s.ram_unused())).unwrap_or(0);
    let cgroups = files.text("/proc/self/cgroup").unwrap_or_default();
    cgroup_room(files, &cgroups).map_or(free, |room| room.min(free))
}

/// The directory at which control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The least number of bytes left in a process's memory cgroup and its ancestors. `cgroups` is the text of
/// /proc/self/cgroup.
pub(crate) fn cgroup_room(files: &Files, cgroups: &str) -> Option<u64> {
    let rooms = cgroups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (top, names) = match controllers {
            "" => (CGROUPS.to_owned(), ["memory.max", "memory.current", "inactive_file", "active_file"]),
            c if c.split(',').any(|c| c == "memory") => (
                format!("{CGROUPS}/memory"),
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"],
            ),
            _ => return None,
        };
        let inner = Path::new(&top).join(path.trim_start_matches('/'));
        let above = inner.ancestors().take_while(|d| d.starts_with(&top));
        above.filter_map(|d| group_room(files, d.to_str()?, names)).min()
    });
    rooms.min()
}

/// Bytes left in one cgroup: limit less usage without page cache.
fn group_room(files: &Files, group: &str, [limit, used, inactive, active]: [&str; 4]) -> Option<u64> {
    let number = |name| files.value::<u64>(&format!("{group}/{name}")).ok();
    let (limit, used) = (number(limit)?, number(used)?);
    let field = |name| files.field(&format!("{group}/memory.stat"), name).ok()?.parse::<u64>().ok();
    let [inactive, active] = [inactive, active].map(|name| field(name).unwrap_or(0));
    let cache = inactive.saturating_add(active);
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}

/// Bandwidth at which all cores together `read` `bytes` of system memory, in bytes per second. Best of three passes.
///
/// # Errors
/// Failed: no thread can be started. Refused: there is not enough memory.
pub fn measure_read(bytes: usize, read: fn(&[u64]) -> f32) -> Result<f64> {
    threads::start()?;
    let mut data = Vec::<u64>::new();
    data.try_reserve_exact(bytes / 8).map_err(|_| {
        let cause =
            format!("{} of memory to measure how fast it is read cannot be had", crate::display::bytes(bytes as u64));
        Error::refused(cause, "close other programs, or raise the limit (`ulimit -v`)")
    })?;
    // Writes every page once, so that all are mapped.
    (0..bytes / 8).into_par_iter().map(|i| i as u64).collect_into_vec(&mut data);
    Ok(read_rate(&[&data], read))
}

/// Bandwidth at which all cores together `read` `buffers`, in bytes per second. Best of three passes. The sum of what
/// `read` returns is thrown away: it only keeps the words read.
pub fn read_rate(buffers: &[&[u64]], read: fn(&[u64]) -> f32) -> f64 {
    // Small buffers are read beside each other.
    let fold = || buffers.par_iter().flat_map(|b| b.par_chunks(1 << 14)).map(read).sum::<f32>();
    let best = (0..3).map(|_| {
        let start = Instant::now();
        std::hint::black_box(fold());
        start.elapsed().as_secs_f64()
    });
    let bytes: usize = buffers.iter().map(|b| 8 * b.len()).sum();
    bytes as f64 / best.fold(f64::INFINITY, f64::min)
}

/// A field of /proc/meminfo or of a process's status, in bytes.
pub(crate) fn memory_field(text: &str, field: &str) -> Option<u64> {
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
        assert_eq!(memory_field(text, "MemAvailable"), Some(1234 * 1024));
        assert_eq!(memory_field(text, "Mem"), None);
        assert_eq!(memory_field(text, "Odd"), None);
        let status = "VmRSS:\t 5 kB\nRssAnon:\t    1234 kB\nRssFile:\t 9 kB\n";
        assert_eq!(memory_field(status, "RssAnon"), Some(1234 * 1024));
        assert_eq!(memory_field("", "RssAnon"), None);
    }

    /// Regression: a plan with an unreadable /proc had 18446744073.7 GB free.
    #[test]
    fn without_proc_free_memory_is_no_more_than_there_is() {
        let root = tempfile::tempdir().unwrap();
        let total = sysinfo().unwrap().ram_total();
        let free = available_in(&Files::under(root.path()));
        assert!(0 < free && free <= total, "{free} of {total}");
        let proc = root.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        std::fs::write(proc.join("meminfo"), "MemTotal: 9 kB\nMemAvailable: 5 kB\n").unwrap();
        assert_eq!(available_in(&Files::under(root.path())), 5 * 1024);
    }

    #[test]
    fn the_tightest_cgroup_above_counts_and_page_cache_does_not() {
        let root = tempfile::tempdir().unwrap();
        let (mount, files) = (root.path().join("sys/fs/cgroup"), Files::under(root.path()));
        let write = |group: &str, files: &[(&str, &str)]| {
            let dir = mount.join(group);
            std::fs::create_dir_all(&dir).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(dir.join(name), text).unwrap());
        };
        let stat = "anon 1\ninactive_file 300\nactive_file 100\n";
        write("kiosk", &[("memory.max", "1000\n"), ("memory.current", "900\n"), ("memory.stat", stat)]);
        write("kiosk/kiln", &[("memory.max", "max\n"), ("memory.current", "900\n")]);
        assert_eq!(cgroup_room(&files, "0::/kiosk/kiln\n"), Some(1000 - (900 - 400)));
        assert_eq!(cgroup_room(&files, "0::/elsewhere\n"), None);
        assert_eq!(cgroup_room(&files, "garbage\n\n:::"), None);

        let v1 = [("memory.limit_in_bytes", "500"), ("memory.usage_in_bytes", "600"), ("memory.stat", "\u{0}odd")];
        write("memory/docker/x", &v1);
        assert_eq!(cgroup_room(&files, "4:cpu:/a\n5:memory,pids:/docker/x\n"), Some(0));
    }
}
