//! The processes that use the devices, from the kernel's fdinfo of each open descriptor of a DRM or accel node. A
//! user without privileges sees only processes of the same user.

use crate::machine::files::Files;
use std::collections::HashSet;

/// The use that one process makes of one GPU, as the kernel counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrmClient {
    /// The process's id.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// The device's bus address, such as `0000:c5:00.0`.
    pub slot: String,
    /// The kernel's number of this client.
    pub id: u64,
    /// Bytes of VRAM that the process has allocated.
    pub vram: u64,
    /// Bytes of GTT that the process has allocated.
    pub gtt: u64,
    /// Nanoseconds that each of the device's engines spent on it.
    pub engines: Vec<(String, u64)>,
}

impl DrmClient {
    /// The time that all engines worked for the process, in nanoseconds.
    pub fn engine_ns(&self) -> u64 {
        self.engines.iter().fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }
}

/// Every client visible to this user, each once. This process is left out, because it opens devices only to query them.
pub fn find(files: &Files) -> Vec<DrmClient> {
    let own = files.target("/proc/self").unwrap_or_default();
    let mut processes = files.list("/proc").unwrap_or_default();
    processes.retain(|name| *name != own);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for pid in processes.iter().filter_map(|n| n.parse::<u32>().ok()) {
        // A process that has ended, or is another user's, has no readable descriptors.
        for fd in files.list(&format!("/proc/{pid}/fd")).unwrap_or_default() {
            let target = files.link(&format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
            if !target.starts_with("/dev/dri/") && !target.starts_with("/dev/accel/") {
                continue;
            }
            let Ok(text) = files.text(&format!("/proc/{pid}/fdinfo/{fd}")) else { continue };
            let Some(client) = parse(pid, &text) else { continue };
            // A client may be open through several descriptors, in several processes.
            if seen.insert((client.slot.clone(), client.id)) {
                let name = files.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
                found.push(DrmClient { name, ..client });
            }
        }
    }
    found
}

fn parse(pid: u32, text: &str) -> Option<DrmClient> {
    let field = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
    // Newer kernels report resident bytes; older ones only have `memory`.
    let memory = |heap: &str| {
        let named = ["drm-resident", "drm-memory", "drm-total"].iter().find_map(|k| field(&format!("{k}-{heap}")));
        named.and_then(parse_bytes).unwrap_or(0)
    };
    let engines = text.lines().filter_map(|l| {
        let (name, value) = l.strip_prefix("drm-engine-")?.split_once(':')?;
        // Capacities are not times.
        let time = if name.starts_with("capacity") { None } else { value.trim().strip_suffix("ns") };
        Some((name.to_owned(), time?.trim().parse().ok()?))
    });
    Some(DrmClient {
        pid,
        name: String::new(),
        slot: field("drm-pdev").unwrap_or_default().to_owned(),
        id: field("drm-client-id")?.parse().ok()?,
        vram: memory("vram"),
        gtt: memory("gtt"),
        engines: engines.collect(),
    })
}

/// Parses a number and its unit: none, KiB or MiB, as the kernel writes them.
fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let shift = match unit.trim() {
        "" => 0,
        "KiB" | "kB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const AMDGPU: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t25\nino:\t1\ndrm-driver:\tamdgpu\ndrm-client-id:\t71\n\
        drm-pdev:\t0000:c6:00.0\npasid:\t32778\ndrm-memory-vram:\t120 KiB\ndrm-memory-gtt: \t2048 KiB\ndrm-memory-cpu: \t0 KiB\n\
        drm-engine-gfx:\t1000 ns\ndrm-engine-compute:\t234 ns\ndrm-engine-capacity-gfx:\t1\n";

    #[test]
    fn memory_and_engine_time_are_read_in_the_kernels_units() {
        let c = parse(5, AMDGPU).unwrap();
        assert_eq!(
            (c.id, c.slot.as_str(), c.vram, c.gtt, c.engine_ns()),
            (71, "0000:c6:00.0", 120 << 10, 2 << 20, 1234)
        );
        assert_eq!(c.engines, [("gfx".into(), 1000), ("compute".into(), 234)]);
        let newer = format!("{AMDGPU}drm-resident-vram:\t3 MiB\ndrm-total-vram:\t9 MiB\n");
        assert_eq!(parse(5, &newer).unwrap().vram, 3 << 20);
        assert_eq!(parse(5, "pos:\t0\n"), None);
        assert_eq!(parse(5, "drm-client-id:\tx\n"), None);
        let odd = parse(5, "drm-client-id:\t1\ndrm-memory-vram:\t99999999999999999999 KiB\ndrm-engine-gfx:\t-5 ns\n")
            .unwrap();
        assert_eq!((odd.vram, odd.engine_ns()), (0, 0));
        assert_eq!(parse_bytes("18446744073709551615 GiB"), None);
    }

    #[test]
    fn a_descriptor_open_twice_is_one_client() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::under(root.path());
        for (pid, fd, target, text) in [
            (7, 3, "/dev/dri/renderD128", AMDGPU),
            (7, 4, "/dev/dri/renderD128", AMDGPU),
            (8, 3, "/dev/dri/renderD128", AMDGPU),
            (8, 5, "/dev/accel/accel0", &AMDGPU.replace("71", "2")),
            (8, 6, "/dev/null", &AMDGPU.replace("71", "9")),
            (9, 1, "/dev/dri/card0", "\u{0}"),
        ] {
            let put = |what: &str, text: &str| {
                let at = files.at(&format!("/proc/{pid}/{what}"));
                fs::create_dir_all(at.parent().unwrap()).unwrap();
                fs::write(at, text).unwrap();
            };
            put(&format!("fdinfo/{fd}"), text);
            put("comm", "kiln\n");
            fs::create_dir_all(files.at(&format!("/proc/{pid}/fd"))).unwrap();
            std::os::unix::fs::symlink(target, files.at(&format!("/proc/{pid}/fd/{fd}"))).unwrap();
        }
        let clients = || find(&files).iter().map(|c| (c.pid, c.id)).collect::<Vec<_>>();
        assert_eq!(clients(), [(7, 71), (8, 2)]);
        assert_eq!(find(&files)[0].name, "kiln");
        // This process's own descriptors do not count.
        std::os::unix::fs::symlink("8", files.at("/proc/self")).unwrap();
        assert_eq!(clients(), [(7, 71)]);
    }
}
